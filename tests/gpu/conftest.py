"""PyCUDA on the stand-in, for every test here that asks for it."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from typing import TypeVar

import pytest

from tests.gpu import toolchain
from tests.gpu.standin import StandIn, load
from tests.gpu.toolchain import SECONDS, Missing

T = TypeVar("T")

NEEDS = {"standin", "nvrtc"}


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The first test that needs them may have to build PyCUDA or fetch NVRTC."""
    for item in items:
        if NEEDS & set(getattr(item, "fixturenames", ())):
            item.add_marker(pytest.mark.timeout(SECONDS))
            item.add_marker(pytest.mark.slow)


def had(make: Callable[[], T]) -> T:
    """What ``make`` gives; else the test is skipped and says why, unless ``EVFLOW_GPU_TESTS`` is ``must``."""
    try:
        return make()
    except Missing as missing:
        if os.environ.get("EVFLOW_GPU_TESTS") == "must":
            raise
        pytest.skip(f"the GPU part cannot be tested here: {missing}")


@pytest.fixture(scope="session")
def nvrtc() -> None:
    """All versions of NVRTC are there."""
    for version in toolchain.NVRTC:
        had(lambda version=version: toolchain.nvrtc(version))


@pytest.fixture
def standin() -> Iterator[StandIn]:
    """The stand-in as at first: deferred, threads in order."""
    loaded = had(load)
    loaded.configure()
    yield loaded
    failure, misuse = loaded.failure, loaded.misuse
    # Drops work that is left before what it refers to is freed.
    loaded.configure()
    loaded.held()
    # Else a fault that could not be planted would pass for one that was caught.
    assert failure is None, f"the stand-in could not load a module: {failure}"
    assert not misuse and not loaded.misuse, misuse or loaded.misuse
    # That of the device's own thread.
    assert loaded.counter("contexts") <= 1, "a context is left on the stack of a thread"
