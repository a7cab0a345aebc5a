"""PyCUDA on the stand-in for the CUDA driver, in this process; what a test may ask of it.

``load`` has to come before anything imports PyCUDA. The stand-in is never an engine, and its device says that
it is not a GPU.
"""

from __future__ import annotations

import ctypes
import functools
import gc
import importlib
import os
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

from evflow.gpu.device import _devices as devices
from tests.gpu.driver.ptx import translate
from tests.gpu.toolchain import compiled, library, nvrtc, pycuda

__all__ = ["ILLEGAL_ADDRESS", "LAUNCH_FAILED", "ORDERS", "OUT_OF_MEMORY", "UNAVAILABLE", "StandIn", "load"]

FOLDER = Path(__file__).parent / "driver"
SOURCES = ("standin.cpp", "memory.cpp", "streams.cpp", "modules.cpp", "standin.h", "run.h", "unsupported.h")
ORDERS = {"in order": 0, "reversed": 1, "shuffled": 2}
OUT_OF_MEMORY, UNAVAILABLE, ILLEGAL_ADDRESS, LAUNCH_FAILED = 2, 46, 700, 719
GIB = 1 << 30


class StandIn:
    """The stand-in's own switches and counters.

    Attributes:
        edit: changes the PTX of a module that is loaded, or the C++ made of it; to plant faults.
        interleave: whether modules loaded from now on let threads take turns at each access to memory.
        count: whether they count what they cost.
        modules: the libraries that modules were translated to.
        failure: why a module was not translated, since ``configure``; the driver only says that it was not.
    """

    def __init__(self, library: ctypes.CDLL) -> None:
        self._library = library
        library.standin_counter.restype = ctypes.c_uint64
        library.standin_message.restype = ctypes.c_char_p
        library.standin_misuse.restype = ctypes.c_char_p
        self.edit: Callable[[str], str] = str
        self.interleave = False
        self.count = False
        self.modules: list[Path] = []
        self.failure: BaseException | None = None
        kind = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_char_p, ctypes.POINTER(ctypes.c_char), ctypes.c_int)
        self._callback = kind(self._translate)
        library.standin_translator(self._callback)
        self.configure()

    def _translate(self, ptx: bytes, path: Any, size: int) -> int:
        try:
            made = module(self.edit(ptx.decode()), self.interleave, self.count)
            self.modules.append(made)
            ctypes.memmove(path, str(made).encode() + b"\0", min(size, len(str(made)) + 1))
        except Exception as error:  # noqa: BLE001 - nothing may leave a callback from C
            self.failure = error
            return 1
        return 0

    def configure(
        self,
        *,
        deferred: bool = True,
        order: str = "in order",
        seed: int = 1,
        interleave: bool = False,
        limit: int = 8 * GIB,
    ) -> None:
        """Sets how work is done, and clears counters, failures and a lost context.

        Args:
            deferred: put work in streams off until somebody waits for it.
            order: in which threads run; ``shuffled`` by ``seed``.
            seed: of the shuffling.
            interleave: let threads take turns at each access to memory; for modules loaded from now on.
            limit: bytes that the device has.
        """
        self.interleave, self.count, self.modules = interleave, False, []
        self.edit = str
        self.failure = None
        self._library.standin_configure(
            int(deferred), ORDERS[order], ctypes.c_uint64(seed), ctypes.c_uint64(limit)
        )

    def counter(self, name: str) -> int:
        """One of: allocations blocking contexts d2h d2h_bytes fills h2d h2d_bytes launches syncs threads
        used."""
        return int(self._library.standin_counter(name.encode()))

    def fail(self, kind: str, code: int, after: int = 0) -> None:
        """Lets a call fail once, after others have passed.

        Args:
            kind: ``retain`` or ``push`` (of the context), ``alloc``, ``pinned``, ``copy``, ``launch`` or
                ``sync``: the call itself; ``kernel``: what a launch starts, which loses the context.
            code: as the driver gives it.
            after: how many calls pass.
        """
        # PyCUDA collects garbage and asks again where there was no memory.
        times = 2 if code == OUT_OF_MEMORY else 1
        self._library.standin_fail(kind.encode(), ctypes.c_int64(after), ctypes.c_int64(times), code)

    def held(self) -> tuple[int, int]:
        """Allocations, also pinned ones, and bytes of the device, once what was dropped has been freed."""
        gc.collect()
        for device in devices.values():
            device.do("waiting", lambda: None)
        return self.counter("allocations"), self.counter("used")

    def capability(self, major: int, minor: int) -> None:
        """Sets the compute capability of the device, until ``configure``."""
        self._library.standin_capability(10 * major + minor)

    @property
    def misuse(self) -> str:
        """The first mistake since ``configure`` that a device may let pass; empty without one."""
        return str(self._library.standin_misuse().decode())

    @property
    def message(self) -> str:
        """What the last failure was about."""
        return str(self._library.standin_message().decode())


def module(ptx: str, interleave: bool = False, count: bool = False) -> Path:
    """PTX as a library for the CPU."""
    source = translate(ptx, interleave=interleave, count=count)
    options = ["-O2", "-w", "-ffp-contract=off"]
    return compiled([FOLDER / "run.h"], options, text=source)


@functools.cache
def load() -> StandIn:
    """Builds and loads the stand-in and PyCUDA, once a process.

    Raises:
        Missing: there is no compiler, or PyCUDA cannot be had.
    """
    folder = pycuda()
    os.environ["EVFLOW_NVRTC"] = library(nvrtc("12.0"), "libnvrtc.so.*")
    options = ["-O2", "-Wall", "-Wextra", "-fvisibility=hidden", "-Wl,-soname,libcuda.so.1", "-ldl"]
    path = compiled([FOLDER / name for name in SOURCES], options)
    driver = ctypes.CDLL(str(path), mode=ctypes.RTLD_GLOBAL)
    sys.path.insert(0, str(folder))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        importlib.import_module("pycuda.driver")
    return StandIn(driver)
