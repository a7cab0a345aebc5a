"""The kernels compiled by NVRTC: to PTX as evflow does it, and to the machine code of each card."""

from __future__ import annotations

import ctypes
import functools
import json
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

from evflow.gpu.nvrtc import compile_ptx, kernel_source
from tests.gpu.toolchain import NVDISASM, NVRTC, kept, library, nvdisasm, nvrtc, run

__all__ = ["CARDS", "KERNELS", "OPTIONS", "BROUGHT", "Report", "compile_kernel", "ptx_of", "reports"]

KERNELS = Path(__file__).parents[2] / "gpu" / "kernels"
OPTIONS = ("-fmad=false",)
CARDS = (75, 80, 86, 87, 88, 89, 90, 100, 103, 110, 120, 121)
"""All that NVRTC 13.0 makes machine code for, from Turing on."""

BROUGHT = ("12.0", "compute_75")
"""The version of NVRTC that the extra ``gpu`` brings, and the virtual machine that PTX is made for."""


class Report(NamedTuple):
    """What the machine code of a kernel file is for one card.

    Attributes:
        registers: of each kernel.
        spilled: bytes of spills and stack in all.
        instructions: each that occurs, with its parts, such as ``FADD.FTZ``.
    """

    registers: list[int]
    spilled: int
    instructions: list[str]


@functools.cache
def _library(version: str) -> ctypes.CDLL:
    folder = nvrtc(version)
    # NVRTC looks for the first by name only; the loader finds it if it is loaded already.
    ctypes.CDLL(library(folder, "libnvrtc-builtins.so.*"))
    return ctypes.CDLL(library(folder, "libnvrtc.so.*"))


def compile_kernel(source: str, architecture: str, version: str) -> str:
    """CUDA C compiled to PTX, with every warning an error.

    Args:
        source: the text; it may include the files of ``gpu/kernels``.
        architecture: such as ``compute_75``.
        version: of NVRTC, as in ``toolchain.NVRTC``.
    """
    ptx, log = _compile(source, architecture, version, "PTX")
    if log:
        raise RuntimeError(f"NVRTC {version} for {architecture} says:\n{log}")
    return ptx.decode().strip("\0")


def reports(source: str, cards: Sequence[int] = CARDS) -> dict[str, Report]:
    """The machine code of CUDA C for cards, named as ``sm_75``.

    In a process of its own, since two versions of NVRTC in one crash; kept by all that goes in.
    """
    included = [path.read_text() for path in sorted(KERNELS.glob("*.cuh"))]
    told = kept(
        lambda: _told(source, cards), source, included, cards, NVRTC, NVDISASM, Path(__file__).read_text()
    )
    return {card: Report(*report) for card, report in json.loads(told).items()}


def _told(source: str, cards: Sequence[int]) -> str:
    command = [sys.executable, "-m", "tests.gpu.nvrtc", *map(str, cards)]
    done = subprocess.run(
        command, cwd=KERNELS.parents[1], input=source, capture_output=True, encoding="utf-8"
    )
    if done.returncode:
        raise RuntimeError(done.stderr)
    return done.stdout


def _report(source: str, architecture: str) -> Report:
    code, log = _compile(source, architecture, "13.0", "CUBIN", ("--ptxas-options=-v",))
    if "warning" in log:
        raise RuntimeError(f"NVRTC for {architecture} says:\n{log}")
    registers = [int(number) for number in re.findall(r"Used (\d+) registers", log)]
    spilled = re.findall(r"(\d+) bytes (?:stack frame|spill stores|spill loads|lmem)", log)
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(code)
        file.flush()
        listing = run([nvdisasm(), file.name])
    instructions = re.findall(
        r"^\s*/\*[0-9a-f]{4,}\*/\s+(?:@!?U?P\w+\s+)?([A-Z][\w.]*)", listing, re.MULTILINE
    )
    return Report(registers, sum(map(int, spilled)), sorted(set(instructions)))


def _compile(
    source: str, architecture: str, version: str, what: str, more: Sequence[str] = ()
) -> tuple[bytes, str]:
    """What NVRTC makes, ``PTX`` or ``CUBIN``, and what it says."""
    rtc = _library(version)
    program = ctypes.c_void_p()
    _check(rtc.nvrtcCreateProgram(ctypes.byref(program), source.encode(), b"kernels.cu", 0, None, None))
    options = [f"--gpu-architecture={architecture}", f"--include-path={KERNELS}", *OPTIONS, *more]
    array = (ctypes.c_char_p * len(options))(*[option.encode() for option in options])
    # NVRTC leaves its thread with another locale.
    with ThreadPoolExecutor(1) as thread:
        status = thread.submit(rtc.nvrtcCompileProgram, program, len(options), array).result()
    log = _get(rtc, "ProgramLog", program).decode().strip("\0\n ")
    if status:
        raise RuntimeError(f"NVRTC {version} for {architecture} says:\n{log}")
    made = _get(rtc, what, program)
    rtc.nvrtcDestroyProgram(ctypes.byref(program))
    return made, log


def _get(rtc: ctypes.CDLL, what: str, program: ctypes.c_void_p) -> bytes:
    size = ctypes.c_size_t()
    _check(getattr(rtc, f"nvrtcGet{what}Size")(program, ctypes.byref(size)))
    held = ctypes.create_string_buffer(size.value)
    _check(getattr(rtc, f"nvrtcGet{what}")(program, held))
    return held.raw


def _check(status: int) -> None:
    if status:
        raise RuntimeError(f"NVRTC: status {status}")


def ptx_of(name: str, source: str | None = None) -> str:
    """The PTX of one kernel file, as evflow compiles it.

    Args:
        name: the file, without its ending.
        source: what to compile instead of what stands there; it may include ``values.cuh``.
    """
    os.environ["EVFLOW_NVRTC"] = library(nvrtc(BROUGHT[0]), "libnvrtc.so.*")
    if source is None:
        return compile_ptx(kernel_source(name))
    return compile_ptx(source.replace('#include "values.cuh"\n', (KERNELS / "values.cuh").read_text()))


def main() -> None:
    source = sys.stdin.read()
    print(json.dumps({f"sm_{card}": _report(source, f"sm_{card}") for card in sys.argv[1:]}))


if __name__ == "__main__":
    main()
