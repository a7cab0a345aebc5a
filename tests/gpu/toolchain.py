"""What the tests of the GPU part need beside a C++ compiler, made once for each user: PyCUDA, NVRTC and
NVIDIA's disassembler.

None is a dependency of the package's tests, since they are large or must be built. They are installed from
the package index into a folder of the user's cache, named by their versions. PyCUDA is built from its source
against CUDA's headers and an empty ``libcuda.so``, for a minute or more.

    python -m tests.gpu.toolchain       makes all of it now and says where it is
"""

from __future__ import annotations

import fcntl
import functools
import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

__all__ = ["Missing", "cache", "compiled", "kept", "library", "nvdisasm", "nvrtc", "pycuda", "run"]

PYCUDA = "pycuda==2026.1"
HEADERS = ("nvidia-cuda-runtime==13.0.96", "nvidia-cuda-profiler-api==13.0.85", "nvidia-cuda-crt==13.0.88")
NVRTC = {"12.0": "nvidia-cuda-nvrtc-cu12==12.0.140", "13.0": "nvidia-cuda-nvrtc==13.0.88"}
"""The older is what the extra ``gpu`` brings, whose PTX drivers since 525 read; the newer knows all cards."""

NVDISASM = "nvidia-cuda-nvdisasm==13.5.37"
"""Reads machine code."""

SECONDS = 900


class Missing(Exception):
    """Something cannot be had on this machine; the text says what and why."""


def cache() -> Path:
    """The folder in which everything is kept."""
    home = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(home, "evflow", "tests", "gpu")


def made(name: str, make: Callable[[Path], None]) -> Path:
    """The folder ``name`` of the cache; ``make`` fills it if it is not there. Safe beside other processes."""
    final = cache() / name
    with locked(name):
        if not final.exists():
            folder = Path(tempfile.mkdtemp(dir=cache()))
            try:
                make(folder)
                folder.rename(final)
            finally:
                shutil.rmtree(folder, ignore_errors=True)
    return final


@contextmanager
def locked(name: str) -> Iterator[None]:
    """Lets one process at a time make something."""
    cache().mkdir(parents=True, exist_ok=True)
    with open(cache() / f"{name}.lock", "w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def run(arguments: Sequence[str | Path], **environment: str) -> str:
    """Runs a program and gives what it printed.

    Raises:
        Missing: it is not there, took too long, or failed; with the end of what it printed.
    """
    try:
        done = subprocess.run(
            [str(argument) for argument in arguments],
            env=os.environ | environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            encoding="utf-8",
            timeout=SECONDS,
        )
    except (FileNotFoundError, subprocess.TimeoutExpired) as error:
        raise Missing(str(error)) from error
    if done.returncode:
        raise Missing(f"{arguments[0]} ended with {done.returncode}: {done.stdout[-3000:]}")
    return done.stdout


def install(folder: Path, *requirements: str | Path, **environment: str) -> None:
    """Has pip install into ``folder``, without looking at what this Python has."""
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--no-warn-conflicts", "--target", folder]
    run([*command, *requirements], **environment)


def _headers(folder: Path) -> None:
    install(folder, "--no-deps", *HEADERS)


def _build(folder: Path) -> None:
    """PyCUDA from source. It reads where CUDA is from a file in the home folder only."""
    root = made(f"headers-{HEADERS[0].partition('==')[2]}", _headers) / "nvidia" / "cu13"
    with tempfile.TemporaryDirectory() as temporary:
        home = Path(temporary)
        run(
            [
                compiler(),
                "-shared",
                "-o",
                home / "libcuda.so",
                "-Wl,-soname,libcuda.so.1",
                "-x",
                "c",
                os.devnull,
            ]
        )
        (home / ".aksetup-defaults.py").write_text(
            f"CUDA_ROOT = {str(root)!r}\nCUDADRV_LIB_DIR = [{str(home)!r}]\nCUDA_ENABLE_CURAND = False\n"
            'CXXFLAGS = ["-O0", "-g0", "-w"]\nLDFLAGS = ["-Wl,-s"]\n'
        )
        # Built apart from its dependencies, so that no older wheel of it is taken from pip's cache.
        wheels = home / "wheels"
        command = [
            sys.executable,
            "-m",
            "pip",
            "wheel",
            "--quiet",
            "--no-deps",
            "--no-cache-dir",
            "-w",
            wheels,
        ]
        run([*command, PYCUDA], HOME=str(home), LIBRARY_PATH=str(home))
        install(folder, *wheels.glob("*.whl"))


def compiler() -> str:
    """The C++ compiler: ``$CXX`` or g++."""
    found = shutil.which(os.environ.get("CXX", "g++"))
    if found is None:
        raise Missing("needs a C++ compiler: g++, or another in $CXX")
    return found


@functools.cache
def pycuda() -> Path:
    """A folder from which PyCUDA can be imported, once there is a ``libcuda.so.1``."""
    compiler()
    tag = f"cp{sys.version_info.major}{sys.version_info.minor}"
    return made(f"{PYCUDA.replace('==', '-')}-{tag}", _build)


@functools.cache
def nvrtc(version: str) -> Path:
    """The folder with NVRTC's libraries, of a version that ``NVRTC`` names."""
    folder = made(f"nvrtc-{version}", lambda folder: install(folder, "--no-deps", NVRTC[version]))
    return next(folder.glob("nvidia/**/libnvrtc.so.*")).parent


@functools.cache
def nvdisasm() -> Path:
    """NVIDIA's disassembler."""
    folder = made(NVDISASM.replace("==", "-"), lambda folder: install(folder, "--no-deps", NVDISASM))
    return next(folder.glob("nvidia/**/bin/nvdisasm"))


def compiled(sources: Sequence[Path], options: Sequence[str], suffix: str = ".so", text: str = "") -> Path:
    """C++ compiled, kept by the hash of all that goes in.

    Args:
        sources: files; those that end in ``.h`` are found when they are included.
        options: of the compiler.
        suffix: ``.so`` for a library, else a program is made.
        text: more source, compiled as one file before the others.
    """
    program = compiler()
    hashed = hashlib.sha256(f"{_version(program)}\0{options}\0{text}\0".encode())
    for source in sources:
        hashed.update(source.read_bytes())
    final = cache() / f"{hashed.hexdigest()[:32]}{suffix}"
    with locked(hashed.hexdigest()[:2]), tempfile.TemporaryDirectory(dir=cache()) as temporary:
        if final.exists():
            return final
        made_here, first = Path(temporary, "made"), Path(temporary, "text.cpp")
        first.write_text(text)
        files = [source for source in sources if source.suffix != ".h"]
        # Not among the options: what was compiled in another checkout is as good.
        headers = {f"-I{source.parent}" for source in sources if source.suffix == ".h"}
        shared = ["-fPIC", "-shared"] if suffix == ".so" else []
        run([program, "-std=c++17", "-o", made_here, first, *files, *shared, *headers, *options])
        made_here.rename(final)
    return final


def kept(make: Callable[[], str], *parts: object) -> str:
    """A text that takes long to make, kept by the hash of all that goes in."""
    hashed = hashlib.sha256(repr(parts).encode()).hexdigest()[:32]
    final = cache() / f"{hashed}.txt"
    with locked(hashed[:2]):
        if not final.exists():
            made_here = final.with_suffix(".new")
            made_here.write_text(make())
            made_here.rename(final)
    return final.read_text()


@functools.cache
def _version(program: str) -> str:
    return run([program, "--version"])


def library(folder: Path, pattern: str) -> str:
    """The one file of ``folder`` whose name fits."""
    found = sorted(folder.glob(pattern))
    if not found:
        raise Missing(f"{folder} has no {pattern}")
    return str(found[0])


if __name__ == "__main__":
    print(f"PyCUDA: {pycuda()}")
    for version in NVRTC:
        print(f"NVRTC {version}: {nvrtc(version)}")
    print(f"nvdisasm: {nvdisasm()}")
