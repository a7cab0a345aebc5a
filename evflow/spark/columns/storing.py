"""Columns of Arrow brought into the forms that the encoder reads, with all that is in them.

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
import pyarrow.compute as pc

from evflow.errors import SchemaError
from evflow.events.columns.arrow import arrow_type, plain_value
from evflow.events.numeric import convert_array
from evflow.schema import Schema
from evflow.schema.types import (
    NUMBERS,
    Array,
    Blob,
    Bytes,
    FieldType,
    ListOf,
    Logical,
    Maybe,
    Number,
    Record,
    Str,
    Text,
)
from evflow.schema.values import Misfit
from evflow.spark.columns.names import indices_of

_ARROW = {number: pa.from_numpy_dtype(number.dtype) for number in NUMBERS.values()}

# So many decimal digits can be had back from a float.
_DIGITS = {4: 6, 8: 15}
# The greatest power of ten that a float64 holds exactly.
_EXACT_POWER = 22


class Unfit(SchemaError):
    """A value of a column does not fit; inside this folder only.

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


def _unfit_type(expected: str, found: Any) -> Unfit:
    """A column whose type does not fit."""
    return Unfit("", f"expected {expected}, found a column of {found}; cast or convert it before")


@dataclass(slots=True)
class Stored:
    """A column in the form that the encoder reads.

    Attributes:
        words: see ``WORDS``.
        held: what the addresses in ``words`` point into.
        children: what is within.
    """

    words: tuple[int, int, int, int, int, int]
    held: tuple[object, ...]
    children: list[Stored] = field(default_factory=list)

    def walk(self) -> Iterator[Stored]:
        """This and what is within, in the order of their forms."""
        yield self
        for child in self.children:
            yield from child.walk()


def store(kind: FieldType, array: Any, shift: int = 0) -> Stored:
    """An array of Arrow for a field of ``kind``.

    Args:
        kind: the field's type.
        array: its values.
        shift: what is added to the index of a value to find it in ``array``.

    Raises:
        Unfit: a value does not fit, or the array is of another type altogether.
    """
    array = _flat(kind, array)
    held = kind.held
    try:
        if isinstance(held, Logical):
            array, held = _store_logical(held, array), held.stored
        if isinstance(held, Number):
            return _store_numbers(held, array, shift)
        if isinstance(held, (Str, Text, Bytes, Blob)):
            return _store_pieces(held, array, shift)
    except Misfit as misfit:
        raise Unfit("", str(misfit), misfit.index) from None
    if isinstance(held, Record):
        return _record(held.schema, array, shift)
    assert isinstance(held, (ListOf, Array))
    return _list(held, array, shift)


def _flat(kind: FieldType, array: Any) -> Any:
    """The array without what only some columns have: chunks, a dictionary, views, runs."""
    if isinstance(array, pa.ChunkedArray):
        array = array.combine_chunks()
    if isinstance(array, pa.ExtensionArray):
        array = array.storage
    if pa.types.is_run_end_encoded(array.type):
        array = pc.run_end_decode(array)
    if pa.types.is_dictionary(array.type):
        array = array.dictionary_decode()
    if pa.types.is_null(array.type):
        array = pa.nulls(len(array), arrow_type(kind))
    return array


def _record(schema: Schema, array: Any, shift: int) -> Stored:
    if not pa.types.is_struct(array.type):
        raise _unfit_type(f"a column of structs (record {schema.name})", array.type)
    stored = _store_memory(array, shift)
    names = [array.type.field(i).name for i in range(array.type.num_fields)]
    # Under a null there may be anything, which then is a null as well.
    parts = array.flatten() if array.null_count else [array.field(i) for i in range(len(names))]
    for member in schema.fields:
        at = indices_of(names, member.name)
        if len(at) == 1:
            part = parts[at[0]]
        elif not at and not member.required:
            part = constant(member.type, member.default, len(array))
        else:
            raise _unfit_type(f"structs with one field {member.name}", array.type)
        try:
            stored.children.append(store(member.type, part, shift))
        except Unfit as error:
            raise Unfit(f".{member.name}{error.path}", error.words, error.row) from None
    return stored


def constant(kind: FieldType, value: Any, rows: int) -> Any:
    """A column that has the default of a field in each row."""
    held = kind.held
    if isinstance(held, ListOf):
        return pa.nulls(rows, arrow_type(held)) if value is None else pa.array([[]] * rows, arrow_type(held))
    return pa.array([plain_value(value)], arrow_type(held)).take(pa.array(np.zeros(rows, np.int64)))


def _list(kind: ListOf | Array, array: Any, shift: int) -> Stored:
    array = _as_list(kind, array)
    element = _element(kind)
    if array.null_count and not isinstance(array, pa.MapArray):
        array = _without_hidden(array)
    stored = _store_memory(array, shift)
    if not len(array):
        stored.children.append(store(element, array.values.slice(0, 0)))
        return stored
    offsets = _offsets(array)
    first, last = int(offsets[0]), int(offsets[-1])
    values = array.values.slice(first, last - first)
    try:
        if isinstance(kind, Array) and values.null_count and len(kind.shape) == 1:
            null = int(np.argmin(values.is_valid().to_numpy(zero_copy_only=False)))
            raise Unfit("", "expected an array without nulls, found one", null)
        stored.children.append(store(element, values, -first))
    except Unfit as error:
        row = error.row
        if row is not None:
            row = int(np.searchsorted(offsets, first + row, "right")) - 1
        raise Unfit("[]" + error.path, error.words, row) from None
    return stored


def _element(kind: ListOf | Array) -> FieldType:
    if isinstance(kind, ListOf):
        return kind.element
    # Nulls among the numbers are looked for apart, so that they are reported by their row.
    return Maybe(kind.element) if len(kind.shape) == 1 else Array(kind.element, kind.shape[1:])


def _as_list(kind: ListOf | Array, array: Any) -> Any:
    found = array.type
    if pa.types.is_list(found):
        return array
    if pa.types.is_large_list(found):
        return _narrowed(array, pa.list_(found.value_field))
    if pa.types.is_map(found) and isinstance(kind, ListOf) and isinstance(kind.element.held, Record):
        return array
    if pa.types.is_fixed_size_list(found):
        return array.cast(pa.list_(found.value_field))
    raise _unfit_type(f"a column of arrays ({kind.text})", found)


def _without_hidden(array: Any) -> Any:
    """Lists of which those that are null have no elements."""
    counts = np.diff(_offsets(array))
    missing = ~array.is_valid().to_numpy(zero_copy_only=False)
    if not counts[missing].any():
        return array
    return _compacted(array)


def _offsets(array: Any) -> np.ndarray[Any, np.dtype[np.int32]]:
    """Where each value of text, bytes or a list starts and the last ends."""
    return np.frombuffer(array.buffers()[1], np.int32)[array.offset : array.offset + len(array) + 1]


def _compacted(array: Any) -> Any:
    """The array without what is of no value in it."""
    return array.take(pa.array(np.arange(len(array))))


def _narrowed(array: Any, kind: Any) -> Any:
    """An array with offsets of 32 bits, where it has such of 64.

    Raises:
        Misfit: it holds too much.
    """
    try:
        return array.cast(kind)
    except pa.ArrowInvalid:
        # It may be a slice of one that holds more.
        return _cast(_compacted(array), kind, "at most 2 GiB, or 2,147,483,647 elements, in one batch")


def _store_memory(array: Any, shift: int) -> Stored:
    """An array whose memory is as the encoder wants it: bitmap, values or offsets, content.

    Args:
        array: the values.
        shift: what is added to the index of a value to find it in ``array``.
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
    return Stored(words, (array,))


def _store_numbers(kind: Number, array: Any, shift: int) -> Stored:
    """Numbers, times and decimals for a field of numbers.

    Raises:
        Misfit: a value does not fit; carries its row.
        Unfit: the array is of another type altogether.
    """
    if array.type == _ARROW[kind]:
        return _store_memory(array, shift)
    plain = _integers(kind, array)
    if plain.type == _ARROW[kind]:
        return _store_memory(plain, shift)
    if pa.types.is_decimal(plain.type):
        values = _from_decimals(kind, plain)
    else:
        if not (
            pa.types.is_integer(plain.type)
            or pa.types.is_floating(plain.type)
            or pa.types.is_boolean(plain.type)
        ):
            raise _unfit_type(f"a column of {kind.name}", array.type)
        filled = plain.fill_null(pa.scalar(0).cast(plain.type)) if plain.null_count else plain
        values = convert_array(kind, filled.to_numpy(zero_copy_only=False))
    # What was null stays so: the bitmap is that of the array before.
    bitmap = _store_memory(array, shift)
    numbers = _store_memory(pa.array(values, _ARROW[kind]), shift)
    words = (bitmap.words[0], bitmap.words[1], *numbers.words[2:])
    return Stored(words, (bitmap, numbers))


def _store_logical(kind: Logical, array: Any) -> Any:
    """Values of a logical type as an array of what they are kept as.

    Raises:
        Misfit: a value does not fit; carries its row.
        Unfit: the array is of another type altogether.
    """
    try:
        return kind.from_arrow(array)
    except (TypeError, pa.ArrowNotImplementedError):
        raise _unfit_type(f"a column of {kind.text}", array.type) from None
    except (Misfit, pa.ArrowInvalid):
        row = _first_wrong(array, kind.from_arrow)
        raise Misfit(f"a value of {kind.text}", _value(array, row), row) from None


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
        raise _unfit_type(f"numbers of which {kind.name} holds all digits", array.type)
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
        row = _first_wrong(array, lambda part: part.cast(kind))
        raise Misfit(expected, _value(array, row), row) from None


def _value(array: Any, row: int) -> Any:
    try:
        return array[row].as_py()
    except (OverflowError, ValueError):  # a time beyond the years that Python has
        return str(array.slice(row, 1).view(pa.int64())[0])


def _first_wrong(array: Any, use: Callable[[Any], object]) -> int:
    """The first row for which ``use``, of the rows up to it, raises."""
    good, bad = 0, len(array)
    while bad - good > 1:
        middle = (good + bad) // 2
        try:
            use(array.slice(0, middle))
            good = middle
        except (Misfit, pa.ArrowInvalid):
            bad = middle
    return good


def _store_pieces(kind: Str | Text | Bytes | Blob, array: Any, shift: int) -> Stored:
    """Text, bytes and decimals for a field of text or bytes; how long they are is not looked at.

    Raises:
        Misfit: a value is not UTF-8; carries its row.
        Unfit: the array is of another type altogether.
    """
    found = array.type
    text = isinstance(kind, (Str, Text))
    if pa.types.is_decimal(found) and text:
        array = array.cast(pa.string())
    elif found in (pa.large_string(), pa.string_view()):
        array = _narrowed(array, pa.string())
    elif found in (pa.large_binary(), pa.binary_view()) or pa.types.is_fixed_size_binary(found):
        array = _narrowed(array, pa.binary())
    elif found not in (pa.string(), pa.binary()):
        raise _unfit_type(f"a column of {'text' if text else 'bytes'} ({kind.text})", found)
    if text and len(array):
        _check_utf8(array)
    return _store_memory(array, shift)


def _check_utf8(array: Any) -> None:
    content, offsets = array.buffers()[2], _offsets(array)
    if content is None or not content.size:
        return
    data = np.frombuffer(content, np.uint8)[offsets[0] : offsets[-1]]
    if not len(data) or int(data.max()) < 0x80:
        return
    as_text = array.view(pa.string())
    try:
        as_text.validate(full=True)
    except pa.ArrowInvalid:
        row = _first_wrong(as_text, lambda part: part.validate(full=True))
        found = array.view(pa.binary())[row].as_py()
        raise Misfit("text in UTF-8", found, row) from None
