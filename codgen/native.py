"""From LLVM IR to machine code in memory: the target machine, and two tiers.

The first tier is LLVM's fast instruction selection without any pass over the code: a new filter is ready in
less than a millisecond. Code that has seen many events is compiled once more with all optimisations, by
another thread. Both tiers come from the same text and compute the same, to the last bit.
"""

from __future__ import annotations

import ctypes
import logging
import math
import os
import threading
from collections.abc import Callable
from functools import cache
from typing import Any

import llvmlite.binding as llvm
from llvmlite.binding.ffi import ObjectRef
from llvmlite.binding.newpassmanagers import NewPassManager

from evflow.codgen.llvm.append_ir import PYTHON_FUNCTIONS
from evflow.codgen.llvm.expressions import C_FUNCTIONS
from evflow.errors import CodeError

_log = logging.getLogger("evflow.codgen")

HOT = 20_000
"""Events after which code is compiled with all optimisations."""

_MASS = 1_000_000
"""Events of a batch that waits until the code is optimised: some 40 ms."""

_LARGE = 200_000
"""Characters of IR beyond which code is not optimised: that takes more than linear time, ten seconds for a
schema of 300 fields, and a function from outside could keep it busy for minutes."""

_MOST = 40_000_000
"""Characters of IR beyond which code is refused: LLVM takes some ten seconds for as many."""

LOCK = threading.RLock()
"""Held while LLVM works."""

# A fork copies LLVM as it is: half a compilation would abort the fork when it ends.
os.register_at_fork(before=LOCK.acquire, after_in_parent=LOCK.release, after_in_child=LOCK.release)


def is_busy() -> bool:
    """Whether another thread compiles, so that whoever compiles now waits."""
    if not LOCK.acquire(blocking=False):
        return True
    LOCK.release()
    return False


class compiling:
    """What is compiled within, one thread at a time, is compiled or refused.

    Raises:
        CodeError: Python or LLVM cannot compile it; says why.
    """

    def __enter__(self) -> None:
        LOCK.acquire()

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        LOCK.release()
        if isinstance(error, RecursionError):
            raise CodeError("the code is nested too deeply to be compiled") from None
        if isinstance(error, (RuntimeError, MemoryError)):
            why = str(error) or type(error).__name__
            raise CodeError(f"LLVM cannot compile this code: {why}") from error


@cache
def _target() -> Any:
    """LLVM's description of this host; LLVM is set up first."""
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    _add_symbols()
    return llvm.Target.from_default_triple()


def _machine(*, optimised: bool) -> Any:
    """A target machine, which the engine that uses it will own.

    The first tier does without this processor's own instructions, which take a tenth of a millisecond to
    set up.
    """
    if not optimised:
        return _target().create_target_machine(opt=0, jit=True)
    cpu, features = llvm.get_host_cpu_name(), llvm.get_host_cpu_features().flatten()
    return _target().create_target_machine(cpu=cpu, features=features, opt=2, jit=True)


@cache
def _context() -> Any:
    return llvm.context.get_global_context()


@cache
def _head() -> str:
    """How a module begins: what it is made for."""
    layout = _machine(optimised=False).target_data
    return f'target datalayout = "{layout}"\ntarget triple = "{_target().triple}"\n'


def _add_symbols() -> None:
    """Names the functions of the C library and of Python that generated code calls."""
    # Python is linked with the C library and its mathematics.
    for name in (*C_FUNCTIONS, "memmem", *PYTHON_FUNCTIONS):
        llvm.add_symbol(f"ev_{name}", ctypes.cast(getattr(ctypes.pythonapi, name), ctypes.c_void_p).value)


def prepare() -> None:
    """Sets LLVM up for both tiers, which opens files of this host; doing it again costs nothing."""
    with LOCK:
        _machines()


@cache
def _machines() -> None:
    _head()
    _machine(optimised=True)


def target() -> str:
    """The processor that code is made for."""
    return f"{llvm.get_default_triple()} {llvm.get_host_cpu_name()}"


class _Engine:
    """An engine of LLVM, which holds the code of some modules: one for each module would take a megabyte.

    The code of all of them is freed when the last ``Native`` that is in it goes.
    """

    MOST = 32

    def __init__(self, *, optimised: bool) -> None:
        self._engine = llvm.create_mcjit_compiler(llvm.parse_assembly(""), _machine(optimised=optimised))
        self.modules = 0

    def add(self, ir: str, entry: str, machine: Any = None) -> int:
        """Makes machine code of a module; gives the address of its entry.

        Args:
            ir: the module.
            entry: the name of its only function that is not internal.
            machine: what the code is optimised for; None if it is not.
        """
        self.modules += 1
        # The modules of an engine share their names.
        name = f"{entry}.{self.modules}"
        module = _parsed(ir.replace(f"@{entry}(", f"@{name}("))
        if machine is not None:
            _optimise(module, machine)
        self._engine.add_module(module)
        address: int = self._engine.get_function_address(name)
        self._engine.remove_module(module)
        module.close()
        return address


_engines: dict[tuple[bool, bool], _Engine] = {}


class Native:
    """Machine code of one module, kept as long as this object lives.

    Args:
        ir: the module.
        entry: the name of its only function that is not internal.
        optimised: whether the code is optimised, unless it is large.
        lasting: whether it lives long, so that it should not keep an engine from being freed in which code
            is that does not.

    Attributes:
        address: of the entry.
    """

    def __init__(self, ir: str, entry: str = "run", *, optimised: bool, lasting: bool = False) -> None:
        optimised = optimised and len(ir) <= _LARGE
        with LOCK:
            engine = _engines.get((optimised, lasting))
            if engine is None or engine.modules >= _Engine.MOST:
                engine = _engines[optimised, lasting] = _Engine(optimised=optimised)
            self._engine = engine
            if optimised:
                self.address = engine.add(ir, entry, _machine(optimised=True))
            else:
                # Marked so, LLVM leaves out what little it would still do to the code: a third of the time.
                self.address = engine.add(ir.replace(" nounwind {", " nounwind optnone noinline {"), entry)


def _parsed(ir: str) -> Any:
    return llvm.parse_assembly(_head() + ir, _context())


def _optimise(module: Any, machine: Any) -> None:
    options = llvm.create_pipeline_tuning_options(speed_level=2)
    builder = llvm.create_pass_builder(machine, options)
    manager = builder.getModulePassManager()
    manager.run(module, builder)
    # llvmlite does not free it: among its base classes the one that knows how comes too late.
    if type(manager)._dispose is ObjectRef._dispose:
        NewPassManager._dispose(manager)


class Tiers:
    """Machine code in the tier that its use has earned; any number of threads may use it.

    Args:
        ir: the module.
        entry: the name of its only function that is not internal.

    Attributes:
        ir: as given.
        native: the code of the tier in use.
        optimised: whether that is the second tier.

    Raises:
        CodeError: the module is too large.
    """

    def __init__(self, ir: str, entry: str = "run") -> None:
        if len(ir) > _MOST:
            raise CodeError(
                f"the code becomes too large: {len(ir)} characters of LLVM IR; expected at most {_MOST}"
            )
        self.ir = ir
        self._entry = entry
        self._seen: float = 0
        self._optimiser: threading.Thread | None = None
        # Another thread may still run what was there before, so it stays.
        self._natives: tuple[Native, ...] = ()
        self._load(optimised=False)

    def _load(self, *, optimised: bool) -> None:
        native = self._made(optimised=optimised)
        self._natives = (*self._natives, native)
        self.native, self.optimised = native, optimised

    def _made(self, *, optimised: bool) -> Native:
        return Native(self._whole(), self._entry, optimised=optimised)

    def _whole(self) -> str:
        """The whole module, where ``ir`` is what the first tier has to compile of it."""
        return self.ir

    @property
    def settled(self) -> bool:
        """Whether the code stays in the tier that it is in."""
        return self.optimised or self._seen < 0 or len(self.ir) > _LARGE

    def saw(self, events: int) -> None:
        """Tells that so many events are about to run.

        Once there were many, another thread optimises the code, and events do not wait for it. They do where
        a single batch is so large that this pays.
        """
        if self.optimised:
            return
        self._seen += events
        if self._seen <= HOT or len(self.ir) > _LARGE:
            return
        if events >= _MASS:
            self.optimise()
        elif self._optimiser is None or not self._optimiser.is_alive():
            self._optimiser = threading.Thread(target=self._optimise_beside, name="evflow compiler")
            try:
                self._optimiser.start()
            except RuntimeError:
                # Python ends, or there is no room for a thread: the first tier does the same.
                self._seen = -math.inf

    def optimise(self) -> None:
        """Compiles the code with all optimisations, unless it is large or done already."""
        with LOCK:
            if not self.optimised and len(self.ir) <= _LARGE:
                self._load(optimised=True)

    def _optimise_beside(self) -> None:
        try:
            self.optimise()
        except Exception:  # noqa: BLE001  whatever LLVM says, the first tier does the same
            _log.warning("LLVM could not optimise the code of a function, which runs as it is", exc_info=True)
            self._seen = -math.inf

    def dump_ir(self, *, optimised: bool = False) -> str:
        """LLVM IR: as it was written, or as the optimiser leaves it."""
        if not optimised:
            return self._whole()
        with LOCK:
            module = _parsed(self._whole())
            module.verify()
            _optimise(module, _machine(optimised=True))
            return str(module)


class Code(Tiers):
    """Compiled code that is called with the address of its context.

    Attributes:
        held: the function ``void (ptr context)`` as a callable that keeps the interpreter lock.
        free: the same, but other threads run meanwhile.
        loops: whether it may take long, whatever it is given.
    """

    held: Callable[[int], None]
    free: Callable[[int], None]
    loops = False

    def _load(self, *, optimised: bool) -> None:
        super()._load(optimised=optimised)
        self.held, self.free = _HELD(self.native.address), _FREE(self.native.address)


_HELD = ctypes.PYFUNCTYPE(None, ctypes.c_int64)
_FREE = ctypes.CFUNCTYPE(None, ctypes.c_int64)
