"""What holds for all tests: which evflow is tested, how many run at once and in which order, how many
examples are tried, what Ctrl-C does, and what is left out of gc."""

from __future__ import annotations

import gc
import os
import signal
import sys
import warnings
from contextlib import suppress
from importlib import import_module
from pathlib import Path

import pytest
from hypothesis import settings
from hypothesis import strategies as st

from tests.examples import hurry, tried
from tests.turns import in_turns

ROOT = Path(__file__).parents[1]

# As the processes that tests start in the checkout: else each matching function is compiled twice, for both.
sys.path.insert(0, str(ROOT))

# A shell script ignores SIGINT for what it starts in the background, and what tests start would inherit that.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# Collecting makes much and drops nothing: gc would take a fifth of its time.
gc.disable()

COMPILING = ("match", "test_logical")
"""Files whose tests compile matching engines have one of these in their name or folder."""

QUICK = "not slow"
SLOW = "\npytestmark = pytest.mark.slow"
"""What stands in files of which all tests are slow."""


def pytest_configure(config: pytest.Config) -> None:
    """Quick tests try fewer examples."""
    if config.option.markexpr == QUICK:
        hurry()
    # For a property that does not say how many. None is a test of speed: the first example may compile.
    settings.register_profile("suite", max_examples=tried(25), deadline=None)
    settings.load_profile("suite")


@pytest.hookimpl(tryfirst=True, optionalhook=True)
def pytest_xdist_auto_num_workers(config: pytest.Config) -> int | None:
    """A process more than there are processors, since many tests wait; none for single files."""
    if config.args and not any(Path(argument).is_dir() for argument in config.args):
        return 0
    if "PYTEST_XDIST_AUTO_NUM_WORKERS" in os.environ:
        return None
    return min(os.cpu_count() or 1, 7) + 1


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Quick tests do without files of which all tests are slow, and what these import."""
    if config.option.markexpr != QUICK or not collection_path.match("test_*.py"):
        return None
    return SLOW in collection_path.read_text() or None


@pytest.hookimpl(tryfirst=True)
def pytest_collection(session: pytest.Session) -> None:
    """Of several processes each imports other files first: what one has compiled the others read."""
    count = int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", 1))
    first = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw"))
    folders = (Path(argument).resolve() for argument in session.config.args)
    found = (file for folder in folders for file in folder.rglob("test_*.py"))
    files = sorted(file for file in found if not pytest_ignore_collect(file, session.config))
    begin = len(files) * first // count
    if count > 1 and first == 0:
        # Leaves in a file which characters there are: to find them takes a second of each process.
        st.text().validate()
    for file in files[begin:] + files[:begin] if count > 1 else ():
        # What cannot be imported fails, or is skipped, when its tests are collected.
        with suppress(Exception, pytest.skip.Exception), warnings.catch_warnings(action="error"):
            import_module(".".join(file.relative_to(ROOT).with_suffix("").parts))


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """One process has a session of Spark, one compiles the matching engines, one begins with the longest."""
    items[:] = in_turns(
        items,
        int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", 1)),
        groups=[
            lambda item: "spark" in getattr(item, "fixturenames", ()),
            lambda item: any(name in f"{item.path.parent.name}/{item.path.name}" for name in COMPILING),
            lambda item: (
                "spark_home" in getattr(item, "fixturenames", ()) or item.path.parent.name == "siege"
            ),
        ],
        slow=lambda item: item.get_closest_marker("slow") is not None,
        file=lambda item: item.path,
    )


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Who wants a file that another has is refused after a moment, where users wait a second."""
    monkeypatch.setattr("evflow.disk.lock.PATIENCE", 0.05)


@pytest.fixture
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """What could not be written is tried again after a moment, where users wait a second."""
    monkeypatch.setattr("evflow.disk.trouble.AGAIN", 0.05)


def pytest_collection_finish() -> None:
    gc.freeze()
    gc.enable()


@pytest.fixture(scope="module", autouse=True)
def _nothing_old_is_collected() -> None:
    """Thousands of tests, modules and what they keep would be gone through again and again otherwise."""
    gc.collect()
    gc.freeze()
