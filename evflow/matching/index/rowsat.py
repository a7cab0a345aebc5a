"""How compiled code learns where the columns of rows stand."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from evflow.matching.index.memory import address_of
from evflow.matching.native import kernel, set_i64
from evflow.matching.rows import EventRows

__all__ = ["columns_of"]


@kernel
def _locate(
    found: int,
    start: Any,
    name: Any,
    kind: Any,
    number: Any,
    text: Any,
    chars: Any,
    char_start: Any,
    char_length: Any,
    place: Any,
) -> int:
    """Writes the addresses of columns; numba learns them sooner than Python does."""
    set_i64(found, start.ctypes.data)
    set_i64(found + 8, name.ctypes.data)
    set_i64(found + 16, kind.ctypes.data)
    set_i64(found + 24, number.ctypes.data)
    set_i64(found + 32, text.ctypes.data)
    set_i64(found + 40, chars.ctypes.data)
    set_i64(found + 48, char_start.ctypes.data)
    set_i64(found + 56, char_length.ctypes.data)
    set_i64(found + 64, place.ctypes.data)
    return 0


def columns_of(events: EventRows) -> tuple[NDArray[np.int64], tuple[NDArray[Any], ...]]:
    """The addresses of the nine columns, good as long as the columns that are given with them are held."""
    found = np.empty(9, np.int64)
    texts = (events.chars, events.char_start, events.char_length)
    given = (events.start, events.name, events.kind, events.number, events.text, *texts, events.place)
    columns = tuple(np.ascontiguousarray(column) for column in given)
    _locate(address_of(found), *columns)
    return found, columns
