"""Arrays of Arrow without anything in them, brought into the forms that the encoder reads.

They are not copied where they have that form already. A value is converted where that loses nothing: numbers
to wider and narrower ones that hold them, times to integers (microseconds, days, nanoseconds of the day),
decimals to their digits or to numbers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa

from evflow.errors import SchemaError
from evflow.events.numeric import convert_array
from evflow.schema.types import NUMBERS, Blob, Bytes, Logical, Number, Str, Text
from evflow.schema.values import Misfit

ARROW = {number: pa.from_numpy_dtype(number.dtype) for number in NUMBERS.values()}
"""The type of Arrow of each type of numbers."""

# So many decimal digits can be had back from a float.
_DIGITS = {4: 6, 8: 15}
# The greatest power of ten that a float64 holds exactly.
_EXACT_POWER = 22


class Unfit(SchemaError):
    """A value of a column does not fit; inside this package only.

    Attributes:
        path: of what is within the column: ``[].x``; empty for the column itself.
        words: what was expected and found.
        row: the first that does not; None where the type of the column does not.
    """

    def __init__(self, path: str, words: str, row: int | None = None) -> None:
        super().__init__(words)
        self.path = path
        self.words = words
        self.row = row


def unfit_type(expected: str, found: Any) -> Unfit:
    """A column whose type does not fit."""
    return Unfit("", f"expected {expected}, found a column of {found}; cast or convert it before")


@dataclass(slots=True)
class Stored:
    """A column in the form that the encoder reads.

    Attributes:
        words: see ``WORDS``.
        wide: whether its offsets have 64 bits.
        held: what the addresses in ``words`` point into.
        children: what is within.
    """

    words: tuple[int, int, int, int, int, int]
    wide: bool
    held: tuple[object, ...]
    children: list[Stored] = field(default_factory=list)

    def walk(self) -> Iterator[Stored]:
        """This and what is within, in the order of their forms."""
        yield self
        for child in self.children:
            yield from child.walk()


def store_memory(array: Any, shift: int, *, wide: bool = False) -> Stored:
    """An array whose memory is as the encoder wants it: bitmap, values or offsets, content.

    Args:
        array: the values.
        shift: what is added to the index of a value to find it in ``array``.
        wide: whether it has offsets of 64 bits.
    """
    buffers = array.buffers()[:3]
    validity, values, content = (*buffers, None)[:3] if len(buffers) < 3 else buffers
    first = array.offset + shift
    words = (
        validity.address if validity is not None and array.null_count else 0,
        first,
        0 if values is None else values.address,
        first,
        0 if content is None else content.address,
        0 if content is None else content.size,
    )
    return Stored(words, wide, (array,))


def store_numbers(kind: Number, array: Any, shift: int) -> Stored:
    """Numbers, times and decimals for a field of numbers.

    Raises:
        Misfit: a value does not fit; carries its row.
        Unfit: the array is of another type altogether.
    """
    if array.type == ARROW[kind]:
        return store_memory(array, shift)
    plain = _integers(kind, array)
    if plain.type == ARROW[kind]:
        return store_memory(plain, shift)
    if pa.types.is_decimal(plain.type):
        values = _from_decimals(kind, plain)
    else:
        if not (
            pa.types.is_integer(plain.type)
            or pa.types.is_floating(plain.type)
            or pa.types.is_boolean(plain.type)
        ):
            raise unfit_type(f"a column of {kind.name}", array.type)
        filled = plain.fill_null(pa.scalar(0).cast(plain.type)) if plain.null_count else plain
        values = convert_array(kind, filled.to_numpy(zero_copy_only=False))
    # What was null stays so: the bitmap is that of the array before.
    bitmap = store_memory(array, shift)
    numbers = store_memory(pa.array(values, ARROW[kind]), shift)
    words = (bitmap.words[0], bitmap.words[1], *numbers.words[2:])
    return Stored(words, False, (bitmap, numbers))


def store_logical(kind: Logical, array: Any) -> Any:
    """Values of a logical type as an array of what they are kept as.

    Raises:
        Misfit: a value does not fit; carries its row.
        Unfit: the array is of another type altogether.
    """
    try:
        return kind.from_arrow(array)
    except (TypeError, pa.ArrowNotImplementedError):
        raise unfit_type(f"a column of {kind.text}", array.type) from None
    except (Misfit, pa.ArrowInvalid):
        row = _first(len(array), lambda n: _keeps(kind, array.slice(0, n)))
        raise Misfit(f"a value of {kind.text}", _value(array, row), row) from None


def _keeps(kind: Logical, array: Any) -> bool:
    try:
        kind.from_arrow(array)
    except (Misfit, pa.ArrowInvalid):
        return False
    return True


def _integers(kind: Number, array: Any) -> Any:
    """Times as the integers that stand for them; anything else as it is."""
    found = array.type
    if pa.types.is_timestamp(found):
        return _cast(array, pa.timestamp("us", found.tz), "whole microseconds").view(pa.int64())
    if pa.types.is_duration(found):
        return _cast(array, pa.duration("us"), "whole microseconds").view(pa.int64())
    if pa.types.is_time(found):
        return _cast(array, pa.time64("ns"), "a time of the day").view(pa.int64())
    if pa.types.is_date(found):
        return _cast(array, pa.date32(), "a date").view(pa.int32())
    return array


def _from_decimals(kind: Number, array: Any) -> np.ndarray[Any, np.dtype[Any]]:
    filled = array.fill_null(pa.scalar(Decimal(0), array.type)) if array.null_count else array
    if kind.kind != "f":
        target = pa.uint64() if kind.name == "u64" else pa.int64()
        return convert_array(kind, _cast(filled, target, f"an integer ({kind.name})").to_numpy())
    precision, scale = array.type.precision, array.type.scale
    if precision > _DIGITS[kind.size] or not 0 <= scale <= _EXACT_POWER:
        raise unfit_type(f"numbers of which {kind.name} holds all digits", array.type)
    # Both are exact, so that the quotient is the float nearest to the decimal.
    unscaled = _cast(filled, pa.decimal128(precision, scale), "a decimal")
    low = np.frombuffer(unscaled.buffers()[1], np.int64)[2 * unscaled.offset :: 2][: len(unscaled)]
    numbers: np.ndarray[Any, np.dtype[Any]] = (low / 10.0**scale).astype(kind.dtype)
    return numbers


def _cast(array: Any, kind: Any, expected: str) -> Any:
    """The array as another type of Arrow.

    Raises:
        Misfit: a value would change; carries the first such row.
    """
    if array.type == kind:
        return array
    try:
        return array.cast(kind)
    except pa.ArrowInvalid:
        row = _first(len(array), lambda n: _casts(array.slice(0, n), kind))
        raise Misfit(expected, _value(array, row), row) from None


def _value(array: Any, row: int) -> Any:
    try:
        return array[row].as_py()
    except (OverflowError, ValueError):  # a time beyond the years that Python has
        return str(array.slice(row, 1).view(pa.int64())[0])


def _casts(array: Any, kind: Any) -> bool:
    try:
        array.cast(kind)
    except pa.ArrowInvalid:
        return False
    return True


def _first(n: int, right: Callable[[int], bool]) -> int:
    """The row that is wrong first, where ``right(k)`` tells whether the first k rows are right."""
    good, bad = 0, n
    while bad - good > 1:
        middle = (good + bad) // 2
        good, bad = (middle, bad) if right(middle) else (good, middle)
    return good


def store_pieces(kind: Str | Text | Bytes | Blob, array: Any, shift: int) -> Stored:
    """Text, bytes and decimals for a field of text or bytes; how long they are is not looked at.

    Raises:
        Misfit: a value is no UTF-8; carries its row.
        Unfit: the array is of another type altogether.
    """
    found = array.type
    text = isinstance(kind, (Str, Text))
    if pa.types.is_decimal(found) and text:
        array = array.cast(pa.string())
    elif pa.types.is_string_view(found):
        array = array.cast(pa.large_string())
    elif pa.types.is_binary_view(found):
        array = array.cast(pa.large_binary())
    elif pa.types.is_fixed_size_binary(found):
        array = array.cast(pa.binary())
    found = array.type
    wide = found in (pa.large_string(), pa.large_binary())
    if not wide and found not in (pa.string(), pa.binary()):
        raise unfit_type(f"a column of {'text' if text else 'bytes'} ({kind.text})", found)
    if text and len(array):
        _check_utf8(array, wide)
    return store_memory(array, shift, wide=wide)


def _check_utf8(array: Any, wide: bool) -> None:
    _, places, content = array.buffers()
    if content is None or not content.size:
        return
    offsets = np.frombuffer(places, np.int64 if wide else np.int32)
    start, end = int(offsets[array.offset]), int(offsets[array.offset + len(array)])
    data = np.frombuffer(content, np.uint8)[start:end]
    if not len(data) or int(data.max()) < 0x80:
        return
    as_text = array.view(pa.large_string() if wide else pa.string())
    if _valid(as_text):
        return
    row = _first(len(array), lambda n: _valid(as_text.slice(0, n)))
    found = array.view(pa.large_binary() if wide else pa.binary())[row].as_py()
    raise Misfit("text in UTF-8", found, row)


def _valid(array: Any) -> bool:
    try:
        array.validate(full=True)
    except pa.ArrowInvalid:
        return False
    return True
