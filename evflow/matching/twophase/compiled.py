"""How kernels are compiled, and the columns that they read, each group as one argument."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any, NamedTuple, TypeVar, cast

import numpy as np
from numpy.typing import NDArray

from evflow.errors import SubscriptionError
from evflow.matching import native
from evflow.matching.native import fresh
from evflow.matching.rows import EventRows
from evflow.matching.strings import Strings

try:
    importlib.import_module("numba")
except ImportError as error:
    raise SubscriptionError(
        "engine 'two-phase' is compiled with numba, which is not installed: run"
        " pip install 'evflow[matching]', or use engine 'reference'"
    ) from error

Function = TypeVar("Function", bound=Callable[..., Any])


def kernel(function: Function) -> Function:
    """What Python calls: compiled on its first call and kept in a file; it may not make arrays.

    Callers give arrays of the same types always, so that there is one signature.
    """
    return cast(Function, fresh(native.numba().njit(**native.PLAIN, cache=True)(function)))


Int = Any
"""An integer of 64 bits: numba's, or numpy's or Python's where the text is read as Python."""


class Rows(NamedTuple):
    """The columns of ``EventRows``."""

    start: NDArray[np.int64]
    name: NDArray[np.int32]
    kind: NDArray[np.uint8]
    number: NDArray[np.float64]
    chars: NDArray[np.uint8]
    char_start: NDArray[np.int64]
    char_length: NDArray[np.int32]
    place: NDArray[np.float64]


class Words(NamedTuple):
    """The bytes of operands that are strings."""

    data: NDArray[np.uint8]
    offsets: NDArray[np.int64]


class Columns(NamedTuple):
    """The filters held, as ``Held`` has them, with tests (``codes_of``) in place of operators."""

    subscription: NDArray[np.int32]
    start: NDArray[np.int64]
    name: NDArray[np.int32]
    test: NDArray[np.uint8]
    number: NDArray[np.float64]
    text: NDArray[np.int32]
    centre: NDArray[np.float64]
    reach: NDArray[np.float64]


def rows_of(events: EventRows) -> Rows:
    """Events as kernels take them."""
    kinds = np.int64, np.int32, np.uint8, np.float64, np.uint8, np.int64, np.int32, np.float64
    return Rows(
        *(_ready(getattr(events, name), kind) for name, kind in zip(Rows._fields, kinds, strict=True))
    )


def words_of(strings: Strings) -> Words:
    """Operands as kernels take them."""
    return Words(_ready(strings.data, np.uint8), _ready(strings.offsets, np.int64))


def _ready(array: NDArray[Any], dtype: Any) -> NDArray[Any]:
    # An array that may not be written to has another type for numba, which would compile everything again.
    return np.require(array, dtype, ["C", "W"])


def nbytes(arrays: tuple[NDArray[Any], ...]) -> int:
    """Bytes of several arrays."""
    return sum(array.nbytes for array in arrays)
