"""Compiles the kernels ahead: ``python evflow/matching/build.py`` writes the files that ``objects`` reads.

numba translates every kernel once, without optimising. All of them, and a function for each that Python can
call, become one module, which LLVM optimises for one processor after the other.
"""

from __future__ import annotations

import hashlib
import importlib.util
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

_HERE = Path(__file__).resolve().parent
_KERNELS = (
    *(
        f"matching.{name}"
        for name in (
            *("areas.meeting", "encoding.dicts", "globe", "kernels", "index.change", "index.directory"),
            *("index.pool", "index.purge", "index.report", "index.settle", "stays"),
        )
    ),
    *(f"tiles.kernels.{name}" for name in ("state", "tables", "tile", "zones")),
)
"""The modules of evflow that define kernels, or import those that do."""

_C_LIBRARY = ("floor", "fmod", "memcmp", "memcpy", "memmove", "memset")
"""What LLVM may call besides what the code itself does."""

_PYTHON = """
declare double @PyFloat_AsDouble(ptr)
declare i64 @PyLong_AsLongLong(ptr)
declare i64 @PyLong_AsUnsignedLongLongMask(ptr)
declare ptr @PyErr_Occurred()
declare i32 @PyErr_BadArgument()
declare i32 @PyObject_GetBuffer(ptr, ptr, i32)
declare ptr @PyTuple_GetItem(ptr, i64)
declare void @PyBuffer_Release(ptr)
declare ptr @PyEval_SaveThread()
declare void @PyEval_RestoreThread(ptr)
declare ptr @PyLong_FromLongLong(i64)
declare ptr @Py_BuildValue(ptr, ...)
"""

# How a number comes from an object, and what it is where that has failed.
_NUMBERS = {
    "int64": ("i64", "PyLong_AsLongLong", "icmp eq", "-1"),
    "uint64": ("i64", "PyLong_AsUnsignedLongLongMask", "icmp eq", "-1"),
    "float64": ("double", "PyFloat_AsDouble", "fcmp oeq", "-1.0"),
}

# Of a ``Py_buffer``: its size, and where its fields stand.
_VIEW, _DATA, _OWNER, _LENGTH, _ITEM, _DIMENSIONS, _SHAPE, _STRIDES = 80, 0, 8, 16, 24, 36, 48, 56
_CONTIGUOUS, _WRITABLE = 0x20 | 0x18, 1


class _Wrapper:
    """Writes the function that Python calls with an array of arguments, and which calls a kernel.

    Args:
        name: of the function.
        symbol: the kernel's.
        signature: numba's.
        nogil: whether other threads run meanwhile.
    """

    def __init__(self, name: str, symbol: str, signature: Any, nogil: bool) -> None:
        self._lines: list[str] = []
        self._count = 0
        self._given = ["ptr %result", "ptr %problem"]
        # A tuple is handed over as its items.
        items = [(i, -1, kind) for i, kind in enumerate(signature.args) if not hasattr(kind, "types")]
        for i, kind in enumerate(signature.args):
            items += [(i, j, part) for j, part in enumerate(getattr(kind, "types", ()))]
        arguments = list(enumerate(sorted(items, key=lambda item: item[:2])))
        self._views = [i for i, (_, _, kind) in arguments if hasattr(kind, "dtype")]
        self._say(f'define ptr @"{name}"(ptr %self, ptr %objects, i64 %count) {{')
        self._say("%result = alloca i64", "%problem = alloca ptr")
        for i in self._views:
            self._say(f"%view{i} = alloca [{_VIEW} x i8], align 8")
            # A view of nothing may be released.
            self._say(f"store ptr null, ptr {self._at(f'%view{i}', _OWNER)}")
        self._check(self._set(f"icmp eq i64 %count, {len(signature.args)}"), "misused")
        for i, (at, item, kind) in arguments:
            given = self._set(f"load ptr, ptr {self._at('%objects', 8 * at)}")
            if item >= 0:
                given = self._set(f"call ptr @PyTuple_GetItem(ptr {given}, i64 {item})")
                self._check(self._set(f"icmp ne ptr {given}, null"), "failed")
            self._array(f"%view{i}", given, kind) if i in self._views else self._number(given, str(kind))
        self._call(symbol, nogil)
        self._result(signature.return_type)
        self._say("misused:", "call i32 @PyErr_BadArgument()", "br label %failed")
        self._say("failed:", *self._released(), "ret ptr null", "}")
        types = ", ".join(given.split(" ")[0] for given in self._given)
        self.text = "\n".join([f'declare i32 @"{symbol}"({types})', *self._lines, ""])

    def _say(self, *lines: str) -> None:
        self._lines += lines

    def _name(self) -> str:
        self._count += 1
        return f"x{self._count}"

    def _set(self, value: str) -> str:
        name = f"%{self._name()}"
        self._say(f"{name} = {value}")
        return name

    def _at(self, base: str, offset: int) -> str:
        return self._set(f"getelementptr i8, ptr {base}, i64 {offset}")

    def _check(self, truth: str, otherwise: str) -> None:
        """Goes on if something is true."""
        label = self._name()
        self._say(f"br i1 {truth}, label %{label}, label %{otherwise}", f"{label}:")

    def _number(self, given: str, kind: str) -> None:
        native, function, compare, failed = _NUMBERS[kind]
        value = self._set(f"call {native} @{function}(ptr {given})")
        doubtful, asked, good = self._name(), self._set(f"{compare} {native} {value}, {failed}"), self._name()
        self._say(f"br i1 {asked}, label %{doubtful}, label %{good}", f"{doubtful}:")
        error = self._set("call ptr @PyErr_Occurred()")
        fine = self._set(f"icmp eq ptr {error}, null")
        self._say(f"br i1 {fine}, label %{good}, label %failed", f"{good}:")
        self._given.append(f"{native} {value}")

    def _array(self, view: str, given: str, kind: Any) -> None:
        """What numba takes for an array: two owners, items, bytes an item, data, shape, strides."""
        flags = _CONTIGUOUS | (_WRITABLE if kind.mutable else 0)
        done = self._set(f"call i32 @PyObject_GetBuffer(ptr {given}, ptr {view}, i32 {flags})")
        self._check(self._set(f"icmp eq i32 {done}, 0"), "failed")
        length, item = (self._set(f"load i64, ptr {self._at(view, at)}") for at in (_LENGTH, _ITEM))
        bytes_each = kind.dtype.bitwidth // 8
        self._check(self._set(f"icmp eq i64 {item}, {bytes_each}"), "misused")
        dimensions = self._set(f"load i32, ptr {self._at(view, _DIMENSIONS)}")
        self._check(self._set(f"icmp eq i32 {dimensions}, {kind.ndim}"), "misused")
        items = self._set(f"udiv i64 {length}, {bytes_each}")
        data = self._set(f"load ptr, ptr {self._at(view, _DATA)}")
        self._given += ["ptr null", "ptr null", f"i64 {items}", f"i64 {bytes_each}", f"ptr {data}"]
        for field in (_SHAPE, _STRIDES):
            values = self._set(f"load ptr, ptr {self._at(view, field)}")
            for i in range(kind.ndim):
                self._given.append(f"i64 {self._set(f'load i64, ptr {self._at(values, 8 * i)}')}")

    def _call(self, symbol: str, nogil: bool) -> None:
        thread = self._set("call ptr @PyEval_SaveThread()") if nogil else ""
        status = self._set(f'call i32 @"{symbol}"({", ".join(self._given)})')
        if nogil:
            self._say(f"call void @PyEval_RestoreThread(ptr {thread})")
        # -2 says that the result is None. No kernel raises.
        good = [self._set(f"icmp eq i32 {status}, {code}") for code in (0, -2)]
        self._check(self._set(f"or i1 {good[0]}, {good[1]}"), "misused")

    def _result(self, kind: Any) -> None:
        self._say(*self._released())
        if str(kind) == "int64":
            made = self._set(f"call ptr @PyLong_FromLongLong(i64 {self._set('load i64, ptr %result')})")
        else:
            # Of an empty form Python makes None.
            form = self._set("alloca i8")
            self._say(f"store i8 0, ptr {form}")
            made = self._set(f"call ptr (ptr, ...) @Py_BuildValue(ptr {form})")
        self._say(f"ret ptr {made}")

    def _released(self) -> list[str]:
        return [f"call void @PyBuffer_Release(ptr %view{i})" for i in self._views]


def _translated() -> tuple[str, list[str]]:
    """The module of all kernels, not optimised, and the names of the functions that Python calls."""
    import llvmlite.binding as llvm

    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    for module in _KERNELS:
        importlib.import_module(f"evflow.{module}")
    from evflow.matching import native

    numba = native.numba()
    wrappers, modules = [], []
    for name, kernel in native.KERNELS.items():
        signature = native.numba_signature(kernel.function)
        dispatcher = numba.njit(**native.PART)(kernel.function)
        dispatcher.compile(signature)
        made = dispatcher.overloads[signature.args]
        modules.append(made.library.get_llvm_str())
        wrapper = _Wrapper(name, made.fndesc.llvm_func_name, signature, kernel.nogil)
        wrappers.append(wrapper.text)
    whole = llvm.parse_assembly(_PYTHON + "".join(wrappers))
    whole.triple = llvm.get_default_triple()
    for module in modules:
        whole.link_in(llvm.parse_assembly(module))
    for held in [*whole.functions, *whole.global_variables]:
        if not held.is_declaration and held.name not in native.KERNELS:
            held.linkage = "internal"
    whole.verify()
    return str(whole), list(native.KERNELS)


def _optimised(text: str, target: str) -> tuple[bytes, list[str]]:
    """The object file of a module for a processor, and what it calls outside."""
    import llvmlite.binding as llvm

    module = llvm.parse_assembly(text)
    # As numba does: the code may be loaded far from what it calls.
    model = {"reloc": "static", "codemodel": "jitdefault", "jit": True}
    machine = llvm.Target.from_default_triple().create_target_machine(cpu=target, opt=3, **model)
    module.data_layout = str(machine.target_data)
    options = llvm.create_pipeline_tuning_options(speed_level=3)
    options.loop_vectorization = options.slp_vectorization = True
    builder = llvm.create_pass_builder(machine, options)
    builder.getModulePassManager().run(module, builder)
    # An address of this process would mean nothing in another.
    assert not [held for held in module.global_variables if held.name.startswith("numba.dynamic")]
    outside = {held.name for held in module.functions if held.is_declaration}
    return machine.emit_object(module), sorted(name for name in outside if not name.startswith("llvm."))


def _sources() -> list[str]:
    """The files that were read for it, by their paths below evflow."""
    files = {Path(module.__file__ or "") for module in list(sys.modules.values()) if _is_ours(module)}
    return sorted(str(path.resolve().relative_to(_HERE.parent)) for path in {*files, Path(__file__)})


def _is_ours(module: Any) -> bool:
    return getattr(module, "__name__", "").startswith(("evflow.matching", "evflow.tiles.kernels"))


def files() -> Iterator[tuple[str, bytes]]:
    """The files for all processors of this platform, each with its name."""
    import llvmlite.binding as llvm

    from evflow.matching import native, objects

    text, functions = _translated()
    llvm_version = ".".join(map(str, llvm.llvm_version_info))
    for target in objects.targets():
        code, symbols = _optimised(text, target)
        header: objects.Header = {
            "platform": objects.platform_name(),
            "target": target,
            "sources": objects.sources(_sources()),
            "functions": functions,
            "symbols": sorted({*symbols, *_C_LIBRARY}),
            "versions": {"numba": native.numba().__version__, "llvm": llvm_version},
        }
        rest = json.dumps(header).encode() + b"\n" + code
        yield target, hashlib.sha256(rest).hexdigest().encode() + b"\n" + rest


_LOADS = """
import sys, threading, types
sys.path[0] = {root!r}
# It needs packages that evflow has when it runs, but not when it is built.
sys.modules["evflow.codgen.native"] = types.SimpleNamespace(LOCK=threading.RLock())
from pathlib import Path
from evflow.matching import objects
sys.exit(objects.load(Path({folder!r})) is None)
"""


def main() -> str | None:
    """Writes the files, unless those that are there fit.

    Returns:
        Why it could not, or None.
    """
    # As a script it stands among modules that are to be found by their full names only.
    root = str(_HERE.parents[1])
    sys.path[0] = root
    os.environ |= {"EVFLOW_MATCHING_JIT": "build", "NUMBA_OPT": "0"}
    from evflow.matching import objects

    if objects.fits(objects.FOLDER):
        return None
    if importlib.util.find_spec("numba") is None:
        return "evflow: the matcher's machine code is not made: numba is not installed; pip install numba"
    with tempfile.TemporaryDirectory() as folder:
        # What was compiled for this processor, or optimised, must not be taken from there, nor kept there.
        os.environ["NUMBA_CACHE_DIR"] = folder
        made = Path(folder, "machine")
        made.mkdir()
        for name, content in files():
            (made / name).write_bytes(content)
        # A symbol that is missing would end this process.
        code = _LOADS.format(root=root, folder=str(made))
        if subprocess.run([sys.executable, "-c", code]).returncode:
            return "evflow: the matcher's machine code is not kept: it cannot be loaded; see above"
        kept = _HERE / "machine"
        kept.mkdir(exist_ok=True)
        for path in made.iterdir():
            beside = kept / f".{path.name}.{os.getpid()}"
            shutil.copyfile(path, beside)
            beside.replace(kept / path.name)
    return None


if __name__ == "__main__":
    sys.exit(main())
