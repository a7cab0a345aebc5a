"""The kernels as PTX, compiled at first use by NVIDIA's NVRTC; the driver compiles that for its card."""

from __future__ import annotations

import ctypes
import ctypes.util
import os
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from importlib.resources import files
from pathlib import Path

from evflow.errors import DeviceError

_VARIABLE = "EVFLOW_NVRTC"
_OPTIONS = ("--gpu-architecture=compute_75", "--std=c++17", "-fmad=false")
_WHEELS = ("nvidia/cuda_nvrtc/lib", "nvidia/cu12/lib", "nvidia/cu13/lib")
_lock = threading.Lock()


def kernel_source(name: str) -> str:
    """The CUDA C of one file of ``gpu/kernels``, with what it includes.

    Args:
        name: the file, without its ending.
    """
    folder = files("evflow.gpu") / "kernels"
    text = (folder / f"{name}.cu").read_text()
    return text.replace('#include "values.cuh"\n', (folder / "values.cuh").read_text())


@cache
def compile_ptx(source: str) -> str:
    """PTX for cards from Turing on. No product and sum are contracted, so the result is the CPU's.

    Args:
        source: CUDA C.

    Raises:
        DeviceError: there is no NVRTC, or it refuses the text; the message has its log.
    """
    with _lock:
        rtc = _library(os.environ.get(_VARIABLE))
        program = ctypes.c_void_p()
        status = rtc.nvrtcCreateProgram(ctypes.byref(program), source.encode(), b"evflow.cu", 0, None, None)
        if status:
            raise DeviceError(f"NVRTC does not start: status {status}")
        try:
            _compile(rtc, program)
            return _text(rtc, "PTX", program)
        finally:
            rtc.nvrtcDestroyProgram(ctypes.byref(program))


def _compile(rtc: ctypes.CDLL, program: ctypes.c_void_p) -> None:
    options = (ctypes.c_char_p * len(_OPTIONS))(*[option.encode() for option in _OPTIONS])
    # NVRTC leaves its thread with another locale.
    with ThreadPoolExecutor(1) as thread:
        status = thread.submit(rtc.nvrtcCompileProgram, program, len(options), options).result()
    if status:
        raise DeviceError(f"NVRTC refuses the code, status {status}:\n{_text(rtc, 'ProgramLog', program)}")


def _text(rtc: ctypes.CDLL, what: str, program: ctypes.c_void_p) -> str:
    size = ctypes.c_size_t()
    getattr(rtc, f"nvrtcGet{what}Size")(program, ctypes.byref(size))
    held = ctypes.create_string_buffer(size.value)
    status = getattr(rtc, f"nvrtcGet{what}")(program, held)
    if status:
        raise DeviceError(f"NVRTC gives no {what}: status {status}")
    return held.value.decode()


@cache
def _library(path: str | None) -> ctypes.CDLL:
    """NVRTC: where the variable says, from the toolkit, or from NVIDIA's wheel."""
    places = [path] if path else [*_from_wheels(), ctypes.util.find_library("nvrtc")]
    said = []
    for place in filter(None, places):
        try:
            # NVRTC looks for this by name only; the loader finds it if it is loaded already.
            for built in sorted(Path(place).parent.glob("libnvrtc-builtins.so.*")):
                ctypes.CDLL(str(built))
            return ctypes.CDLL(place)
        except OSError as error:
            said.append(str(error))
    raise DeviceError(
        f"NVRTC, which compiles the kernels, is not found ({'; '.join(said) or 'no libnvrtc'}); "
        f"pip install 'evflow[gpu]' brings it, or {_VARIABLE} names the library of a CUDA toolkit"
    )


def _from_wheels() -> list[str]:
    folders = [Path(entry, wheel) for entry in sys.path for wheel in _WHEELS]
    return [str(found) for folder in folders for found in sorted(folder.glob("libnvrtc.so.*"))]
