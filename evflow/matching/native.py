"""Memory and vectors for compiled functions: what numba has no words for, as a few LLVM instructions each.

All state of the engine lies at addresses that do not change while a kernel runs, so kernels are handed
integers and read what they need from there. Every integer is int64: numba then never widens to float, and a
kernel has one signature.
"""

from __future__ import annotations

import importlib
import importlib.util
import math
import os
from collections.abc import Callable
from functools import cache, cached_property, wraps
from pathlib import Path
from typing import Annotated, Any, NamedTuple, TypeVar, cast, get_args, get_origin, get_type_hints

import numpy as np
from llvmlite import ir
from numpy.typing import NDArray

from evflow.errors import SubscriptionError
from evflow.matching import objects

Function = TypeVar("Function", bound=Callable[..., Any])
Item = TypeVar("Item", bound=np.generic)

Read = Annotated[NDArray[Item], 1, True]
"""How a kernel says that it takes a contiguous array of one dimension, of which it only reads."""
ReadRows = Annotated[NDArray[Item], 2, True]
Write = Annotated[NDArray[Item], 1, False]
WriteRows = Annotated[NDArray[Item], 2, False]
WriteBlocks = Annotated[NDArray[Item], 3, False]

_I1, _I8, _I32, _I64 = (ir.IntType(bits) for bits in (1, 8, 32, 64))
_F32, _F64 = ir.FloatType(), ir.DoubleType()


class _Later:
    """A module that is imported when something of it is asked for."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, name: str) -> Any:
        return getattr(importlib.import_module(self._name), name)


types: Any = _Later("numba.core.types")
"""numba's types, for what is evaluated only where numba compiles."""
cgutils: Any = _Later("numba.core.cgutils")

PLAIN: dict[str, Any] = {"error_model": "numpy", "nogil": True, "no_cfunc_wrapper": True, "_nrt": False}
"""Options that numba's own annotations leave out. Kernels take no part in counting references to arrays: that
would take longer than what they do.
"""
PART = PLAIN | {"no_cpython_wrapper": True}
"""How numba compiles what only compiled code calls."""


class Kernel(NamedTuple):
    """A function that Python calls.

    Attributes:
        function: as it is written.
        nogil: whether other threads of Python run meanwhile.
    """

    function: Callable[..., Any]
    nogil: bool


KERNELS: dict[str, Kernel] = {}
"""All kernels that were defined, by module and name."""

HAS_CODE = objects.found() is not None or importlib.util.find_spec("numba") is not None
"""Whether kernels are machine code: from a file, or numba's."""


@cache
def numba() -> Any:
    """The compiler, for kernels that are in no file."""
    try:
        found = importlib.import_module("numba")
    except ImportError as missing:
        raise SubscriptionError(
            "engine 'index' has no machine code for this computer, and numba, which would compile it, is not "
            "installed: run pip install 'evflow[matching]', or use engine 'reference'"
        ) from missing
    lock = importlib.import_module("numba.core.compiler_lock").global_compiler_lock
    # As in ``codgen.native``: a fork must not copy half a compilation.
    os.register_at_fork(before=lock.acquire, after_in_parent=lock.release, after_in_child=lock.release)
    return found


class _Part:
    """What compiled code calls by its name: numba sees it only if it compiles, and Python may call it too.

    Args:
        function: as it is written.
        make: gives what numba knows it by.
    """

    def __init__(self, function: Callable[..., Any] | None, make: Callable[[], Any]) -> None:
        self.py_func = function
        self._make = make

    def __call__(self, *arguments: Any) -> Any:
        assert self.py_func is not None, "only compiled code can call it"
        return self.py_func(*arguments)

    @cached_property
    def _made(self) -> Any:
        return self._make()

    @property
    def _numba_type_(self) -> Any:
        context = importlib.import_module("numba.core.registry").cpu_target.typing_context
        made = self._made
        context.refresh()
        return context.resolve_value_type(made)


def compiled(function: Function) -> Function:
    """A part of kernels: called by compiled code."""
    return cast(Function, _Part(function, lambda: numba().njit(**PART)(function)))


def kernel(function: Function) -> Function:
    """What Python calls: it takes and gives integers and floats, and holds no lock."""
    return _kernel(function, nogil=True)


def short_kernel(function: Function) -> Function:
    """A kernel that keeps the interpreter's lock: to give it up takes as long as what it does."""
    return _kernel(function, nogil=False)


class _OnFirstCall:
    """A kernel that numba compiles, for its only signature, when it is called for the first time."""

    def __init__(self, made: Any) -> None:
        self.py_func, self._made = made.py_func, made
        self._compiled = False

    def __call__(self, *arguments: Any) -> Any:
        if not self._compiled:
            # Of threads that come at once, all but the first find it done.
            self._made.compile(numba_signature(self.py_func))
            self._made.disable_compile()
            self._compiled = True
        return self._made(*arguments)


def array_kernel(function: Function) -> Function:
    """A kernel that takes arrays, such as ``Read``, and may not make any; without a compiler it is Python.

    It also takes named tuples of arrays, each of which is a ``Write`` of some kind.
    """
    if not HAS_CODE:
        # As machine code does, it goes on with infinite numbers and NaN.
        return np.errstate(all="ignore")(function)
    made: Any = _kernel(function, nogil=True)
    if hasattr(made, "disable_compile") and objects.FORCED != "build":
        made = _OnFirstCall(made)
    return cast(Function, made)


def _kernel(function: Function, *, nogil: bool) -> Function:
    name = f"{function.__module__}.{function.__qualname__}"
    KERNELS[name] = Kernel(function, nogil)
    made = (objects.found() or {}).get(name)
    if made is None:
        options = {"nogil": nogil, "cache": objects.FORCED != "build"}
        made = fresh(numba().njit(**PLAIN | options)(function))
    return cast(Function, made)


def numba_signature(function: Callable[..., Any]) -> Any:
    """numba's signature of a kernel, as its annotations have it: the only one that it is compiled for."""
    hints = get_type_hints(function, include_extras=True)
    result = hints.pop("return")
    return _type_of(result)(*map(_type_of, hints.values()))


def _type_of(hint: Any) -> Any:
    if hint is type(None):
        return types.void
    if isinstance(hint, type) and issubclass(hint, tuple):
        parts = get_type_hints(hint, include_extras=True).values()
        return types.BaseTuple.from_types([_type_of(part) for part in parts], hint)
    if get_origin(hint) is Annotated:
        array, dimensions, only_read = get_args(hint)
        item = get_args(get_args(array)[1])[0]
        return types.Array(_type_of(item), dimensions, "C", readonly=only_read)
    return getattr(types, np.dtype(hint).name)


def outside(symbol: str, result: str, *arguments: str) -> Callable[..., Any]:
    """A function of the interpreter, for kernels that hold its lock; objects are addresses.

    Args:
        symbol: its name.
        result: what it gives, by numba's name of the type.
        arguments: what it takes.
    """

    def make() -> Any:
        kinds = [getattr(types, kind) for kind in arguments]
        return types.ExternalFunction(symbol, getattr(types, result)(*kinds))

    return cast(Callable[..., Any], _Part(None, make))


def instruction(signature: str) -> Callable[[Callable[..., Any]], Callable[..., int]]:
    """Has compiled code call a function that writes a few instructions of LLVM, with the values it is given.

    Args:
        signature: the types, as numba writes them.
    """

    def decorated(write: Callable[..., Any]) -> Callable[..., int]:
        def make() -> Any:
            numba()
            arguments, result = importlib.import_module("numba.core.sigutils").normalize_signature(signature)

            def codegen(context: Any, builder: Any, _: Any, values: list[Any]) -> Any:
                made = write(builder, *values)
                return context.get_dummy_value() if made is None else made

            # numba counts the arguments of what is wrapped.
            @wraps(write)
            def typed(*_: Any) -> Any:
                return result(*arguments), codegen

            return importlib.import_module("numba.extending").intrinsic(typed)

        return cast(Callable[..., int], _Part(None, make))

    return decorated


def _pointer(builder: Any, address: Any, kind: Any) -> Any:
    return builder.inttoptr(address, kind.as_pointer())


def _read(builder: Any, address: Any, kind: Any) -> Any:
    return builder.load(_pointer(builder, address, kind), align=1)


def _loader(kind: Any, widened: str = "") -> Callable[[int], int]:
    """Reads a number at an address; ``widened`` says how it becomes one of 64 bits."""
    wide = _F64 if widened == "fpext" or kind is _F64 else _I64

    @instruction(f"{'float64' if wide is _F64 else 'int64'}(int64)")
    def load(builder: Any, address: Any) -> Any:
        value = _read(builder, address, kind)
        return getattr(builder, widened)(value, wide) if widened else value

    return load


def _storer(kind: Any, narrowed: str = "") -> Callable[[int, float], int]:
    """Writes a number at an address; ``narrowed`` says how it comes from one of 64 bits."""

    @instruction(f"void(int64, {'float64' if narrowed == 'fptrunc' or kind is _F64 else 'int64'})")
    def store(builder: Any, address: Any, value: Any) -> None:
        value = getattr(builder, narrowed)(value, kind) if narrowed else value
        builder.store(value, _pointer(builder, address, kind), align=1)

    return store


def _viewer(name: str, kind: Any) -> Callable[[int], Any]:
    """What stands at an address, to be indexed; numba's name of the type of an element, and LLVM's type."""

    @instruction(f"CPointer({name})(int64)")
    def view(builder: Any, address: Any) -> Any:
        return _pointer(builder, address, kind)

    return view


uint8s, int64s, uint64s = _viewer("uint8", _I8), _viewer("int64", _I64), _viewer("uint64", _I64)
u8, u32, i32, i64 = _loader(_I8, "zext"), _loader(_I32, "zext"), _loader(_I32, "sext"), _loader(_I64)
f32: Callable[[int], float] = _loader(_F32, "fpext")
f64: Callable[[int], float] = _loader(_F64)
set_u8, set_u32, set_i64 = _storer(_I8, "trunc"), _storer(_I32, "trunc"), _storer(_I64)
set_f32, set_f64 = _storer(_F32, "fptrunc"), _storer(_F64)


@instruction("void(int64)")
def prefetch(builder: Any, address: Any) -> None:
    """Ask for the cache line at an address; any address will do."""
    byte = _I8.as_pointer()
    kind = ir.FunctionType(ir.VoidType(), [byte, _I32, _I32, _I32])
    function = builder.module.declare_intrinsic("llvm.prefetch", [byte], kind)
    builder.call(function, [builder.inttoptr(address, byte), _I32(0), _I32(3), _I32(1)])


@instruction("int64(int64)")
def lowest(builder: Any, bits: Any) -> Any:
    """The number of the lowest bit that is set; 64 if none is."""
    return builder.cttz(bits, _I1(0))


@instruction("int64(int64)")
def ones(builder: Any, bits: Any) -> Any:
    """How many bits are set."""
    return builder.ctpop(bits)


@instruction("int64(int64, int64)")
def product(builder: Any, left: Any, right: Any) -> Any:
    """The low 64 bits of a product; numba's own has no meaning where it overflows."""
    return builder.mul(left, right)


@instruction("int64(int64, int64)")
def total(builder: Any, left: Any, right: Any) -> Any:
    """The low 64 bits of a sum."""
    return builder.add(left, right)


@instruction("int64(float64)")
def bits_of(builder: Any, number: Any) -> Any:
    """The bits of a float64."""
    return builder.bitcast(number, _I64)


@instruction("float64(int64)")
def float_of(builder: Any, bits: Any) -> Any:
    """The float64 of these bits."""
    return builder.bitcast(bits, _F64)


@instruction("float64(float64)")
def narrow(builder: Any, number: Any) -> Any:
    """A float64 rounded to float32."""
    return builder.fpext(builder.fptrunc(number, _F32), _F64)


@instruction("int64(float64)")
def narrow_bits(builder: Any, number: Any) -> Any:
    """The bits of a float64 rounded to float32, sign extended."""
    return builder.sext(builder.bitcast(builder.fptrunc(number, _F32), _I32), _I64)


def _lanes(builder: Any, address: Any, kind: Any, count: int) -> Any:
    """``count`` values that stand next to each other."""
    return _read(builder, address, ir.VectorType(kind, count))


def _splat(builder: Any, value: Any, count: int) -> Any:
    """A vector of one value."""
    kind = ir.VectorType(value.type, count)
    first = builder.insert_element(ir.Constant(kind, ir.Undefined), value, _I32(0))
    return builder.shuffle_vector(first, first, ir.Constant(ir.VectorType(_I32, count), [0] * count))


def _mask(builder: Any, truths: Any, count: int) -> Any:
    """A vector of truths as the low bits of an integer."""
    return builder.zext(builder.bitcast(truths, ir.IntType(count)), _I64)


@instruction("int64(int64, int64, int64)")
def within(builder: Any, keys: Any, lows: Any, widths: Any) -> Any:
    """Which of 8 keys lie in their intervals: ``key - low <= width`` in unsigned arithmetic, as 8 bits."""
    key, low, width = (_lanes(builder, address, _I32, 8) for address in (keys, lows, widths))
    return _mask(builder, builder.icmp_unsigned("<=", builder.sub(key, low), width), 8)


def _inside(excluded: int) -> Callable[[int, int, int], int]:
    """Which of 16 intervals hold one key, and do not exclude it, as 16 bits.

    ``column`` is where the lows stand; widths and columns of excluded keys follow, each ``step`` bytes on.
    """

    @instruction("int64(int64, int64, int64)")
    def test(builder: Any, key: Any, column: Any, step: Any) -> Any:
        key = _splat(builder, builder.trunc(key, _I32), 16)
        columns = [column]
        for _ in range(1 + excluded):
            columns.append(builder.add(columns[-1], step))
        low, width, *others = (_lanes(builder, column, _I32, 16) for column in columns)
        held = builder.icmp_unsigned("<=", builder.sub(key, low), width)
        for other in others:
            held = builder.and_(held, builder.icmp_unsigned("!=", key, other))
        return _mask(builder, held, 16)

    return test


inside, inside_but_one, inside_but_two = (_inside(excluded) for excluded in range(3))


@instruction("int64(int64, int64, int64, int64, int64)")
def subsets(builder: Any, first: Any, second: Any, third: Any, masks: Any, step: Any) -> Any:
    """Which of 16 masks have none of the bits of three words, as 16 bits.

    ``masks`` is where their first words stand; columns of the others follow, each ``step`` bytes on.
    """
    found = None
    for missing in (first, second, third):
        word = _splat(builder, builder.trunc(missing, _I32), 16)
        left = builder.and_(_lanes(builder, masks, _I32, 16), word)
        found = left if found is None else builder.or_(found, left)
        masks = builder.add(masks, step)
    none = ir.Constant(ir.VectorType(_I32, 16), [0] * 16)
    return _mask(builder, builder.icmp_unsigned("==", found, none), 16)


def _distances(builder: Any, point: list[Any], columns: list[Any], kind: Any, count: int) -> Any:
    """The squares of ``count`` distances from a point: each step rounded to ``kind``, nothing fused."""
    total = None
    for place, column in zip(point, columns, strict=False):
        if kind is _F32:
            place = builder.fptrunc(place, _F32)
        step = builder.fsub(_lanes(builder, column, kind, count), _splat(builder, place, count))
        square = builder.fmul(step, step)
        total = square if total is None else builder.fadd(total, square)
    return total


def _near(builder: Any, point: list[Any], columns: list[Any], kind: Any, count: int) -> Any:
    """Which of ``count`` areas hold a point; the last of the columns is that of reaches."""
    total = _distances(builder, point, columns, kind, count)
    reach = _lanes(builder, columns[-1], kind, count)
    return _mask(builder, builder.fcmp_ordered("<=", total, reach), count)


@instruction("int64(float64, float64, int64, int64, int64)")
def near_plane(builder: Any, x: Any, y: Any, xs: Any, ys: Any, reaches: Any) -> Any:
    """Which of 16 circles on the plane may hold a point, as 16 bits; columns are float32."""
    return _near(builder, [x, y], [xs, ys, reaches], _F32, 16)


def _size(builder: Any, numbers: Any) -> Any:
    """The absolute values of 16 float32."""
    kind = ir.FunctionType(numbers.type, [numbers.type])
    return builder.call(builder.module.declare_intrinsic("llvm.fabs.v16f32", fnty=kind), [numbers])


@instruction("int64(float64, float64, int64, int64, int64)")
def surely_near(builder: Any, x: Any, y: Any, xs: Any, ys: Any, reaches: Any) -> Any:
    """Which of 16 circles on the plane hold a point however it was rounded, as 16 bits; columns are float32.

    The radius is that of the reach less what was added for rounding, ``b``, and the distance may be as much
    larger. ``(d + 2b)^2`` is at most ``d^2 (1 + t) + 4b^2 (1 + 1/t)``, which takes no root.
    """

    def every(number: float) -> Any:
        return ir.Constant(ir.VectorType(_F32, 16), [number] * 16)

    total = away = None
    for place, column in ((x, xs), (y, ys)):
        centre = _lanes(builder, column, _F32, 16)
        step = builder.fsub(centre, _splat(builder, builder.fptrunc(place, _F32), 16))
        square, size = builder.fmul(step, step), _size(builder, centre)
        total = square if total is None else builder.fadd(total, square)
        away = size if away is None else builder.fadd(away, size)
    slack = builder.fadd(builder.fmul(away, every(2.0**-15)), every(2.0**-52))
    square = builder.fmul(total, every(1 + 2.0**-9))
    square = builder.fadd(square, builder.fmul(slack, slack))
    reach = _lanes(builder, reaches, _F32, 16)
    held = builder.fcmp_ordered("<", square, reach)
    finite = builder.fcmp_ordered("<", reach, every(math.inf))
    return _mask(builder, builder.and_(held, finite), 16)


@instruction("int64(float64, float64, float64, int64, int64, int64, int64)")
def near_globe(builder: Any, x: Any, y: Any, z: Any, xs: Any, ys: Any, zs: Any, reaches: Any) -> Any:
    """Which of 8 circles on the globe hold a point, as 8 bits; columns are float64."""
    return _near(builder, [x, y, z], [xs, ys, zs, reaches], _F64, 8)


@instruction("int64(float64, float64, float64, float64, int64)")
def within_reach(builder: Any, x: Any, y: Any, z: Any, reach: Any, block: Any) -> Any:
    """Which of 32 balls meet one, as 32 bits: columns of x, y, z and radii, float32, one after the other."""
    found = None
    for half in (0, 16):
        columns = [builder.add(block, _I64(4 * (32 * column + half))) for column in range(4)]
        total = _distances(builder, [x, y, z], columns, _F32, 16)
        own = _splat(builder, builder.fptrunc(reach, _F32), 16)
        both = builder.fadd(_lanes(builder, columns[-1], _F32, 16), own)
        near = builder.fcmp_ordered("<=", total, builder.fmul(both, both))
        bits = builder.shl(_mask(builder, near, 16), _I64(half))
        found = bits if found is None else builder.or_(found, bits)
    return found


@instruction("int64(int64, int64, int64, int64)")
def meet(builder: Any, base: Any, offsets: Any, count: Any, out: Any) -> Any:
    """Ands ``count`` lines of 1024 bits, and the one at ``base``, to ``out``: 1 if a bit is left, else 0.

    ``offsets`` is where their distances from ``base`` stand, uint32. Where none is left, ``out`` stays.
    """
    line = ir.VectorType(_I64, 16)
    held = cgutils.alloca_once_value(builder, _read(builder, base, line))
    with cgutils.for_range(builder, count) as loop:
        place = builder.add(offsets, builder.shl(loop.index, _I64(2)))
        offset = builder.zext(_read(builder, place, _I32), _I64)
        other = _read(builder, builder.add(base, offset), line)
        builder.store(builder.and_(builder.load(held), other), held)
    left = builder.load(held)
    kind = ir.FunctionType(_I64, [line])
    merged = builder.call(builder.module.declare_intrinsic("llvm.vector.reduce.or.v16i64", fnty=kind), [left])
    some = builder.icmp_unsigned("!=", merged, _I64(0))
    with builder.if_then(some):
        builder.store(left, _pointer(builder, out, line), align=1)
    return builder.zext(some, _I64)


def fresh(dispatcher: Any) -> Any:
    """Has a function heed all sources of its folder and of this one, and of those beneath, when it is cached.

    numba compares the file of the function only, and not those of functions that were inlined into it.

    Args:
        dispatcher: what ``njit(cache=True)`` made of the function, not compiled yet.
    """
    # Not public; without it numba's own comparison stays.
    file: Any = getattr(getattr(dispatcher, "_cache", None), "_cache_file", None)
    if hasattr(file, "_source_stamp"):
        own = Path(dispatcher.py_func.__code__.co_filename).parent
        sources = _sources(own) + _sources(Path(__file__).parent)
        file._source_stamp = (file._source_stamp, sources)
    return dispatcher


@cache
def _sources(folder: Path) -> tuple[tuple[str, int, int], ...]:
    """Name, time and size of every source."""
    found = [(path, path.stat()) for path in sorted(folder.rglob("*.py"))]
    return tuple((str(path.relative_to(folder)), held.st_mtime_ns, held.st_size) for path, held in found)
