"""Machine code that was made before: it is used where it fits, and refused where it does not."""

from __future__ import annotations

import hashlib
import importlib.util
import json
import logging
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from evflow.matching import globe, native, objects
from tests.examples import tried

CHECKOUT = Path(__file__).parents[2]

pytestmark = pytest.mark.skipif(
    not objects.fits(objects.FOLDER) and importlib.util.find_spec("numba") is None,
    reason="there is no machine code of the matcher, and no numba to make it",
)


def test_the_machine_code_is_of_these_sources() -> None:
    assert objects.fits(objects.FOLDER), "run python evflow/matching/build.py"


def fresh(code: str, **environment: str) -> str:
    """What a new process of the checkout prints."""
    given = {name: value for name, value in os.environ.items() if name != "EVFLOW_MATCHING_JIT"}
    command = [sys.executable, "-c", code]
    done = subprocess.run(
        command, cwd=CHECKOUT, env=given | environment, check=True, capture_output=True, encoding="utf-8"
    )
    return done.stdout.strip()


PLAYED = """
import sys
from functools import partial
from random import Random
from evflow.matching import Matcher
from tests.matching.play import Play
for seed in range(40):
    Play(Random(seed), partial(Matcher, "index")).run(8)
print("numba" in sys.modules)
"""


@pytest.mark.slow
def test_code_made_before_gives_what_the_oracle_says() -> None:
    assert fresh(PLAYED) == "False"


CALLED = """
import sys
import numpy as np
from evflow.matching import globe
places = np.linspace(-90, 90, 57), np.linspace(-400, 400, 57)
found = np.empty((57, 3))
globe.unit_vectors(*places, found)
assert np.allclose(found[:, 2], np.sin(np.radians(places[0])), rtol=0, atol=1e-15)
try:
    globe.unit_vectors(*places, found.astype(np.float32))
except TypeError:
    print("numba" in sys.modules)
"""


@pytest.mark.slow
def test_numba_stands_in_for_code_made_before(tmp_path: Path) -> None:
    pytest.importorskip("numba")
    # All kernels take numba half a minute, also if it does not optimise.
    code = PLAYED if tried(1) > 1 else CALLED
    assert fresh(code, EVFLOW_MATCHING_JIT="1", NUMBA_OPT="0", NUMBA_CACHE_DIR=str(tmp_path)) == "True"


@pytest.mark.slow
def test_the_first_match_takes_no_compiler(tmp_path: Path) -> None:
    code = """
import os, sys, threading, time
from evflow.matching import Matcher
matcher = Matcher(space="globe")
matcher.subscribe_many(["a > 3 and within(1, 2, 3 km)", "b contains 'x'"])
event = {"a": 4, "b": "xy", "latitude": 1.0, "longitude": 2.0}
def match():
    for _ in range(2000):
        assert sorted(matcher.match(event).tolist()) == [0, 1]
threads = [threading.Thread(target=match) for _ in range(3)]
for thread in threads:
    thread.start()
child = os.fork()
match()
for thread in threads if child else ():
    thread.join()
if not child:
    os._exit(0)
assert os.waitpid(child, 0)[1] == 0
print("numba" in sys.modules, list(os.scandir(os.environ["NUMBA_CACHE_DIR"])))
"""
    assert fresh(code, NUMBA_CACHE_DIR=str(tmp_path)) == "False []"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A copy of the machine code."""
    copy = tmp_path / "machine"
    shutil.copytree(CHECKOUT / "evflow/matching/machine", copy)
    return copy


def rewritten(path: Path, change: Callable[[objects.Header], None]) -> None:
    """Changes what a file says of itself, with the checksum that belongs to it."""
    _, line, code = path.read_bytes().split(b"\n", 2)
    header: objects.Header = json.loads(line)
    change(header)
    rest = json.dumps(header).encode() + b"\n" + code
    path.write_bytes(hashlib.sha256(rest).hexdigest().encode() + b"\n" + rest)


def refused(folder: Path, caplog: pytest.LogCaptureFixture) -> str:
    """The line of the log with which a folder's code is refused."""
    with caplog.at_level(logging.WARNING, "evflow.matching"):
        assert objects.load(folder) is None and not objects.fits(folder)
    (record,) = caplog.records
    return record.getMessage()


def test_code_that_fits_is_loaded(folder: Path) -> None:
    loaded = objects.load(folder)
    assert loaded is not None and loaded.keys() == native.KERNELS.keys() | loaded.keys()
    assert "evflow.matching.index.report.match" in loaded
    assert objects.load(folder / "elsewhere") is None


def test_a_damaged_file_is_refused(folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    for path in folder.iterdir():
        content = bytearray(path.read_bytes())
        content[-1000] ^= 1
        path.write_bytes(content)
    assert "damaged" in refused(folder, caplog)


def test_a_file_that_ends_too_soon_is_refused(folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    for path in folder.iterdir():
        path.write_bytes(path.read_bytes()[:40])
    assert "damaged" in refused(folder, caplog)


def test_code_of_other_sources_is_refused(folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    for path in folder.iterdir():
        rewritten(path, lambda header: header["sources"].update({"matching/index/keys.py": "another"}))
    assert "sources have changed" in refused(folder, caplog)


def test_code_for_another_platform_is_refused(folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    for path in folder.iterdir():
        rewritten(path, lambda header: header.update(platform="plan9 pdp11"))
    assert "found plan9 pdp11" in refused(folder, caplog)


def test_code_that_calls_what_python_lacks_is_refused(folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    for path in folder.iterdir():
        rewritten(path, lambda header: header["symbols"].append("PyNo_Such"))
    with caplog.at_level(logging.WARNING, "evflow.matching"):
        assert objects.load(folder) is None
    assert "PyNo_Such" in caplog.text


def test_every_target_gives_the_same(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    places = np.linspace(-90, 90, 57), np.linspace(-400, 400, 57)
    expected = np.empty((57, 3))
    globe.unit_vectors(*places, expected)
    for target, needed in objects.targets().items():
        monkeypatch.setattr(objects, "targets", lambda target=target, needed=needed: {target: needed})
        loaded = objects.load(folder)
        if loaded is not None:
            found = np.empty((57, 3))
            loaded["evflow.matching.globe.unit_vectors"](*places, found)
            assert np.array_equal(found, expected)


def test_arguments_of_another_kind_are_refused(folder: Path) -> None:
    loaded = objects.load(folder)
    assert loaded is not None
    move, vectors = (
        loaded["evflow.matching.index.change.move_one"],
        loaded["evflow.matching.globe.unit_vectors"],
    )
    places, found = np.zeros(2), np.empty((2, 3))
    for wrong in ((), ("a", 0, 0, 0.0, 0.0, 0.0), (0, 0, 0, 0.0, None, 0.0), (0, 0, 0, 0.0, 0.0)):
        with pytest.raises(TypeError):
            move(*wrong)
    for arrays in (
        (places, places, found[0]),
        (places, places.astype(np.float32), found),
        (places, places, 1.0),
    ):
        with pytest.raises(TypeError):
            vectors(*arrays)
    fixed = found.copy()
    fixed.flags.writeable = False
    with pytest.raises(ValueError):
        vectors(places, places, fixed)
    assert native.HAS_CODE
