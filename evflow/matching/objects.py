"""Kernels that were compiled when evflow was built, so that whoever runs it needs no compiler for them.

``evflow/matching/build.py`` writes a file for each processor that it knows: a line with the checksum of all
that follows, a line of JSON (``Header``), and an object file. The functions in it become builtin functions of
Python. This module needs nothing but the standard library to say whether files fit.
"""

from __future__ import annotations

import ctypes
import hashlib
import json
import logging
import os
import platform
import sys
import sysconfig
from collections.abc import Callable, Mapping
from functools import cache
from importlib import resources
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Any, TypedDict

__all__ = ["FOLDER", "FORCED", "Header", "fits", "found", "load", "platform_name", "sources", "targets"]

_log = logging.getLogger("evflow.matching")

# The package may be in an archive; a script that has no package uses this module too.
_HERE: Traversable = resources.files(__package__) if __package__ else Path(__file__).parent
_ALL: Traversable = resources.files("evflow") if __package__ else Path(__file__).parents[1]
FOLDER = _HERE / "machine"
"""Where the files are."""

FORCED = os.environ.get("EVFLOW_MATCHING_JIT", "")
"""Not empty: numba compiles the kernels even where there is a file."""

_X86: Mapping[str, tuple[str, ...]] = {
    "x86-64-v3": ("avx", "avx2", "bmi", "bmi2", "f16c", "fma", "lzcnt", "movbe", "popcnt", "xsave"),
    "x86-64-v2": ("cx16", "popcnt", "sahf", "sse3", "sse4.1", "sse4.2", "ssse3"),
}

_FASTCALL = 0x80
"""How Python calls a kernel: with its arguments as an array."""

Builtin = Callable[..., Any]


class Header(TypedDict):
    """What a file says of itself.

    Attributes:
        platform: the system and the processor's family that it is for.
        target: the processor, by LLVM's name.
        sources: the files that it was made of, below evflow, each with the checksum of its contents.
        functions: the kernels, by module and name.
        symbols: what it calls of Python and of the C library.
        versions: of numba and LLVM, which made it.
    """

    platform: str
    target: str
    sources: dict[str, str]
    functions: list[str]
    symbols: list[str]
    versions: dict[str, str]


class _RefusedError(Exception):
    """A file does not fit; says why."""


def platform_name() -> str:
    """The system and the processor's family."""
    return f"{sys.platform} {platform.machine()}"


def targets() -> Mapping[str, tuple[str, ...]]:
    """The processors that code is made for, the best first, with the features that each must have."""
    return _X86 if platform.machine() in ("x86_64", "AMD64") else {"generic": ()}


def sources(names: list[str]) -> dict[str, str]:
    """The checksums of files.

    Args:
        names: their paths below evflow.
    """
    return {name: hashlib.sha256((_ALL / name).read_bytes()).hexdigest() for name in names}


@cache
def found() -> Mapping[str, Builtin] | None:
    """The kernels of the file for this processor; None if there is none that fits, so that numba compiles."""
    return None if FORCED else load(FOLDER)


def load(folder: Traversable) -> dict[str, Builtin] | None:
    """The kernels of a folder's file for this processor, by module and name; None if none fits.

    A file that does not fit is refused with a line in the log.

    Args:
        folder: where the files are.
    """
    if sys.implementation.name != "cpython" or sysconfig.get_config_var("Py_GIL_DISABLED"):
        return None
    import llvmlite.binding as llvm

    features = llvm.get_host_cpu_features()
    for target, needed in targets().items():
        path = folder / target
        if all(features.get(name) for name in needed) and path.is_file():
            try:
                return _functions(*_read(path, target))
            except (_RefusedError, OSError, AttributeError) as refused:
                _log.warning("%s is not used, and numba compiles the matcher: %s", path, refused)
                return None
    return None


def fits(folder: Traversable) -> bool:
    """Whether a folder has files for all processors of this platform, made of these sources.

    Args:
        folder: where the files are.
    """
    try:
        return all(_read(folder / target, target) for target in targets())
    except (_RefusedError, OSError):
        return False


def _read(path: Traversable, target: str) -> tuple[Header, bytes]:
    checksum, _, rest = path.read_bytes().partition(b"\n")
    if hashlib.sha256(rest).hexdigest().encode() != checksum:
        raise _RefusedError("it is damaged, for its checksum is another")
    line, _, code = rest.partition(b"\n")
    header: Header = json.loads(line)
    held = header["platform"], header["target"]
    if held != (platform_name(), target):
        raise _RefusedError(f"expected code for {platform_name()} {target}, found {' '.join(held)}")
    if sources(list(header["sources"])) != header["sources"]:
        raise _RefusedError("its sources have changed since; run python evflow/matching/build.py")
    return header, code


def _functions(header: Header, code: bytes) -> dict[str, Builtin]:
    import llvmlite.binding as llvm

    from evflow.codgen.memory import MethodDef, new_builtin
    from evflow.codgen.native import LOCK

    with LOCK:
        llvm.initialize_native_target()
        llvm.initialize_native_asmprinter()
        for name in header["symbols"]:
            llvm.add_symbol(name, ctypes.cast(getattr(ctypes.pythonapi, name), ctypes.c_void_p).value)
        machine = llvm.Target.from_default_triple().create_target_machine(jit=True)
        engine = llvm.create_mcjit_compiler(llvm.parse_assembly(""), machine)
        engine.add_object_file(llvm.ObjectFileRef.from_data(code))
        engine.finalize_object()
        made: dict[str, Builtin] = {}
        for name in header["functions"]:
            module, _, function = name.rpartition(".")
            definition = MethodDef(function.encode(), engine.get_function_address(name), _FASTCALL, None)
            # A kernel has no use for its first argument, which holds what is needed as long as it lives.
            made[name] = new_builtin(definition, (definition, engine), module)
        return made
