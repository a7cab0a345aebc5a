"""A small part of the fuzzers, with fixed seeds, and what the runner makes of a case that goes wrong."""

from __future__ import annotations

import ctypes
import faulthandler
import mmap
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from random import Random

import numpy as np
import pytest

from evflow.codgen.kernel import Kernel, KernelCode, Stage
from evflow.codgen.runtime import new_state
from tests.examples import tried
from tests.fuzz import areas, guard, runner, samples
from tests.fuzz.runner import Failure, Report

pytestmark = pytest.mark.slow

CASES = {
    "codgen": 12,
    "python": 8,
    "chain": 6,
    "queue": 5,
    "cod-text": 12,
    "codec": 30,
    "validate": 8,
    "schema": 20,
    "link": 10,
    "subscriptions": 30,
    "spark": 30,
}
CHECKOUT = Path(__file__).parents[2]


@pytest.fixture
def guarded() -> Iterator[None]:
    with guard.installed():
        yield


def ignore(text: str) -> None:
    pass


@pytest.mark.usefixtures("guarded")
@pytest.mark.parametrize("area", areas.AREAS)
@pytest.mark.filterwarnings("ignore::SyntaxWarning")
def test_area_finds_nothing(area: str) -> None:
    for seed in range(tried(CASES[area])):
        _, failure = runner.one((area, seed), ignore)
        assert failure is None, str(failure)


@pytest.mark.parametrize(
    "arguments",
    [
        "--only codec --programs 40 --seed 5 --workers 1",
        pytest.param("--programs 40 --seed 1000000", marks=pytest.mark.timeout(300)),
    ],
)
def test_command_finds_nothing(arguments: str) -> None:
    command = [sys.executable, "-m", "tests.fuzz", *arguments.split()]
    done = subprocess.run(command, cwd=CHECKOUT, env=_environment(), capture_output=True, encoding="utf-8")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "failures: 0" in done.stdout


def _environment() -> dict[str, str]:
    return os.environ | {"PYTHONPATH": os.pathsep.join([str(CHECKOUT), *filter(None, sys.path)])}


def test_case_is_the_same_whenever_it_is_repeated() -> None:
    for area in areas.AREAS:
        told: list[list[str]] = [[], []]
        for texts in told:
            areas.run(area, 3, texts.append)
        assert told[0] == told[1]


def test_failure_says_how_to_repeat_it(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(random: Random, tell: areas.Tell) -> areas.Tally:
        tell("int x;")
        raise AssertionError(f"the {random.randrange(10)}th")

    monkeypatch.setitem(areas.AREAS, "codgen", (1, fails))
    _, failure = runner.one(("codgen", 17), ignore)
    assert isinstance(failure, Failure)
    assert "int x;" in str(failure) and "AssertionError" in str(failure)
    assert str(failure).endswith("again: python -m tests.fuzz --only codgen --seed 17 --programs 1")


BAD = """
import ctypes, time
from tests.examples import tried
from tests.fuzz import areas, runner

def bad(random, tell):
    if random.randrange(4) == 0:
        tell("what was tried")
        ctypes.string_at(0) if {crashes} else time.sleep(1000)
    return areas.Tally(8)

areas.AREAS["codec"] = (1, bad)
runner.HANG = 1.0
if __name__ == "__main__":
    report = runner.fuzz(3, 8 * 3, only="codec", workers=1)
    print(sorted(failure.seed for failure in report.failures), report.total(0))
"""


@pytest.mark.parametrize(("crashes", "how"), [(True, "the process died: SIGSEGV"), (False, "it hangs")])
def test_case_that_ends_its_process_is_reported_and_the_others_run(
    crashes: bool, how: str, tmp_path: Path
) -> None:
    script = tmp_path / "bad.py"
    script.write_text(BAD.format(crashes=crashes))
    done = subprocess.run(
        [sys.executable, script], env=_environment(), capture_output=True, encoding="utf-8", timeout=90
    )
    assert [n for n in range(3, 6) if Random(f"codec {n}").randrange(4) == 0] == [3]
    assert done.stdout.splitlines()[-1] == "[3] 3", done.stdout + done.stderr
    assert how in done.stdout and "what was tried" in done.stdout


def dies(address: int, size: int, *, write: bool = False) -> bool:
    """Whether touching some memory ends a process."""
    pid = os.fork()
    if pid == 0:
        faulthandler.disable()
        ctypes.memset(address, 0, size) if write else ctypes.string_at(address, size)
        os._exit(0)
    status = os.waitpid(pid, 0)[1]
    return os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGSEGV


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
@pytest.mark.parametrize("content", [b"", b"abc", bytes(4096), bytes(5000)])
def test_guard_ends_who_goes_one_byte_too_far(content: bytes) -> None:
    array = guard.read_only(content)
    assert array.tobytes() == content
    assert not dies(array.ctypes.data, len(content))
    assert dies(array.ctypes.data, len(content) + 1)
    assert dies(array.ctypes.data, max(len(content), 1), write=True)
    copy = guard.guarded(np.arange(5, dtype=np.int32))
    assert copy.tolist() == [0, 1, 2, 3, 4]
    assert dies(copy.ctypes.data, 21) and not dies(copy.ctypes.data, 20, write=True)


@pytest.mark.usefixtures("guarded")
def test_memory_that_native_code_shares_is_guarded() -> None:
    made, schema = samples.function(Random(1))
    kernel = Kernel(KernelCode((Stage(made, 0),), schema))
    for array in (kernel._block, kernel._scratch, new_state(made)):
        assert (array.ctypes.data + array.nbytes) % mmap.PAGESIZE == 0


def test_report_adds_up() -> None:
    report = Report()
    report.add(("codec", 1), areas.Tally(8, 0), 0.5)
    report.add(("chain", 2), areas.Tally(5, 3), 2.0)
    assert [report.total(n) for n in range(3)] == [2, 13, 3]
    assert "slowest case: chain, seed 2, 2.0 s" in str(report)
