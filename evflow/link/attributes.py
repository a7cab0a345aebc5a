"""Attributes as plain data, as a frame carries them: one row a column, and one value where that says all.

A column is ``[name, kind, present, values]``. ``kind`` is that of ``AttributeColumn``, and upper case where
every event has the attribute and all have the same value, which then stands alone for ``values``. Kind ``n``
is integers that count up by one from event to event, of which the first stands alone; a peer must not be able
to fill the memory with a few bytes, so no more than ``MOST_COUNTING`` columns are so. ``present`` is a bit an
event, the least significant first, or None if all have it. ``values`` are elements of 8 bytes, little-endian,
or a list of texts; 0 or "" where the event has none. Columns are in the order of their names.
"""

from __future__ import annotations

from sys import getsizeof
from typing import Any

import msgpack
import numpy as np

from evflow.errors import LinkError
from evflow.events.attributes import AttributeColumn, Attributes, AttributeValue
from evflow.events.batch import EventBatch
from evflow.link.messages import MOST_COLUMNS, MOST_DATA, MOST_TEXTS
from evflow.outside import shown
from evflow.schema.types import TEXT
from evflow.schema.values import Misfit, describe, to_text

__all__ = ["MOST_EXTENT", "divided", "extent", "kept", "pack", "unpack"]

MOST_EXTENT = MOST_DATA - (64 << 10)
"""Bytes that the attributes of a frame may have; the header has some beside them."""

_BESIDE = 32
"""Bytes that a column has at most beside its name and values."""

MOST_COUNTING = 4
"""Those of them that may be told as integers that count up."""

_Array = np.ndarray[Any, np.dtype[Any]]

_WIRE: dict[str, str] = {"i": "<i8", "f": "<f8"}
_NATIVE: dict[str, Any] = {"i": np.int64, "f": np.float64, "s": object}
_TYPES = {"I": "int", "F": "float", "S": "str"}


def pack(attributes: Attributes) -> list[Any]:
    """Attributes as data that msgpack takes.

    Raises:
        LinkError: there are more columns than a peer accepts.
    """
    columns = attributes.columns
    if len(columns) > MOST_COLUMNS:
        raise LinkError(f"attributes: expected at most {MOST_COLUMNS} names in a batch, found {len(columns)}")
    rows: list[Any] = []
    counting = 0
    for name in sorted(columns):
        rows.append(_packed(name, columns[name], counting < MOST_COUNTING))
        counting += rows[-1][1] == _COUNTING
    return rows


def _packed(name: str, column: AttributeColumn, may_count: bool) -> list[Any]:
    kind, values, present = column.kind, column.values, column.present
    # A column of one element that all events share is known by its stride.
    whole = bool(present[:1].all() if present.strides == (0,) else present.all())
    if whole and len(values) and _equal(kind, values):
        return [name, kind.upper(), None, values[0] if kind == "s" else values[0].item()]
    if whole and kind == "i" and may_count and _counts(values):
        return [name, _COUNTING, None, values[0].item()]
    bits = None if whole else np.packbits(present, bitorder="little").tobytes()
    if kind == "s":
        texts = values.tolist()
        kept = texts if whole else [t if p else "" for t, p in zip(texts, present.tolist(), strict=True)]
        return [name, kind, bits, kept]
    filled = values if whole else np.where(present, values, 0)
    return [name, kind, bits, filled.astype(_WIRE[kind], copy=False).tobytes()]


def _equal(kind: str, values: _Array) -> bool:
    """Whether all values are the same, floats to the bit."""
    if kind == "s":
        texts = values.tolist()
        return bool(texts.count(texts[0]) == len(texts))
    if values.strides == (0,):
        return True
    words = values.view(np.int64)
    return bool(words[0] == words[-1] and (words == words[0]).all())


def _counts(values: _Array) -> bool:
    """Whether each value is one more than that before it."""
    n = len(values)
    if n < 2 or int(values[-1]) - int(values[0]) != n - 1:
        return False
    return bool((values[1:] - values[:-1] == 1).all())


def divided(batch: EventBatch) -> list[EventBatch]:
    """A batch in parts, in order, each with no more attributes than one frame may have.

    Raises:
        LinkError: a single event has more.
    """
    attributes = batch.attributes
    if attributes is None:
        return [batch]
    if len(attributes.columns) > MOST_COLUMNS:
        raise LinkError(f"expected at most {MOST_COLUMNS} attributes, found {len(attributes.columns)}")
    texts, size = extent(attributes)
    if texts <= MOST_TEXTS and size <= MOST_EXTENT:
        return [batch]
    if len(batch) > 1:
        middle = len(batch) // 2
        return [*divided(batch.slice(0, middle)), *divided(batch.slice(middle, len(batch)))]
    size = len(msgpack.packb(pack(attributes)))
    if size > MOST_EXTENT:
        raise LinkError(
            f"the attributes of an event: expected at most {MOST_EXTENT} bytes, found {size}; "
            "what is large belongs into a field"
        )
    return [batch]


def extent(attributes: Attributes) -> tuple[int, int]:
    """How many texts attributes have, and how many bytes they take in a header at most."""
    texts = size = 0
    for name, column in attributes.columns.items():
        size += _BESIDE + 4 * len(name)
        size += len(column.present) // 8
        # A column of one element that all events share is known by its stride.
        values = column.values[:1] if column.values.strides == (0,) else column.values
        if column.kind == "s":
            texts += len(values)
            size += 5 * len(values) + 4 * sum(map(len, values.tolist()))
        else:
            size += 8 * len(values)
    return texts, size


def kept(data: list[Any] | None) -> int:
    """The bytes of memory that attributes take, of data that ``unpack`` has taken."""
    return 0 if data is None else sum(_weight(row[3]) for row in data)


def _weight(values: object) -> int:
    if isinstance(values, list | tuple):
        return sum(map(getsizeof, values)) + 16 * len(values)
    return getsizeof(values)


def unpack(data: object, count: int) -> Attributes | None:
    """Attributes from data that a peer sent; without a copy of numbers, and none of what all events share.

    Args:
        data: what ``pack`` made; None for no attributes.
        count: the events of the batch, known to be there.

    Raises:
        LinkError: the data are not exactly that; names the attribute, expected and found.
    """
    if data is None:
        return None
    if not isinstance(data, list | tuple) or len(data) > MOST_COLUMNS:
        found = f"{len(data)} columns" if isinstance(data, list | tuple) else describe(data)
        raise LinkError(f"attributes: expected a list of at most {MOST_COLUMNS} columns, found {found}")
    columns: dict[str, AttributeColumn] = {}
    before: str | None = None
    counting = 0
    for place, row in enumerate(data):
        if not isinstance(row, list | tuple) or len(row) != 4:
            raise LinkError(
                f"attributes: column {place}: expected [name, kind, present, values], found {describe(row)}"
            )
        name = _name(row[0], place, before)
        counting += row[1] == _COUNTING
        if counting > MOST_COUNTING:
            raise _refused(name, f"at most {MOST_COUNTING} attributes of kind {_COUNTING}", row[1])
        columns[name] = _column(name, row[1], row[2], row[3], count)
        before = name
    return Attributes(columns) if columns else None


def _name(name: object, place: int, before: str | None) -> str:
    if not isinstance(name, str):
        raise LinkError(f"attributes: column {place}: expected a name that is text, found {describe(name)}")
    try:
        to_text(TEXT, name)
    except Misfit as error:
        raise LinkError(f"attributes: column {place}: its name: {error}") from None
    if before is not None and name <= before:
        raise LinkError(
            f"attribute {shown(name)}: expected each name once and in order, found it after {shown(before)}"
        )
    return name


def _column(name: str, kind: object, present: object, values: object, count: int) -> AttributeColumn:
    if not isinstance(kind, str) or kind not in _KINDS:
        raise _refused(name, f"a kind, one of {', '.join(sorted(_KINDS))}", kind)
    if kind in _TYPES:
        if present is not None:
            raise _refused(name, "None for the bits of an attribute that all events have", present)
        kind = kind.lower()
        one = _repeated(_single(name, kind.upper(), values), _NATIVE[kind], count)
        return AttributeColumn(kind, one, _repeated(True, np.bool_, count))
    if kind == _COUNTING:
        return AttributeColumn("i", _counted(name, present, values, count), _repeated(True, np.bool_, count))
    held = _present(name, present, count)
    whole = present is None
    filled = _texts(name, values, count) if kind == "s" else _numbers(name, kind, values, count)
    empty = filled[:0] if whole else (filled if kind == "s" else filled.view(np.int64))[~held]
    if empty.any():
        raise LinkError(f"attribute {shown(name)}: expected no value where an event has none, found one")
    return AttributeColumn(kind, filled, held)


_COUNTING = "n"
_KINDS = frozenset(f"ifsIFS{_COUNTING}")


_SMALL = _AT_ONCE = 1024


def _repeated(value: object, dtype: Any, count: int) -> _Array:
    """The same value for each event."""
    if count <= _SMALL:
        return np.full(count, value, dtype)
    # A peer must not be able to fill the memory with a few bytes, so many events share one element.
    return np.broadcast_to(np.array(value, dtype), count)


def _counted(name: str, present: object, first: object, count: int) -> _Array:
    """The values that count up from the first."""
    if present is not None:
        raise _refused(name, "None for the bits of an attribute that all events have", present)
    start = _single(name, "I", first)
    assert isinstance(start, int)
    if start + count > 1 << 63:
        raise _refused(name, f"{count} integers of 64 bits", first)
    return np.arange(start, start + count, dtype=np.int64)


def _single(name: str, kind: str, value: object) -> AttributeValue:
    """The value that all events have."""
    if kind == "F" and isinstance(value, float):
        return value
    if kind == "I" and isinstance(value, int) and not isinstance(value, bool):
        if not -(1 << 63) <= value < 1 << 63:
            raise _refused(name, "an integer of 64 bits", value)
        return value
    if kind == "S" and isinstance(value, str):
        _check_text(name, value)
        return value
    raise _refused(name, f"one value of type {_TYPES[kind]} for kind {kind}", value)


def _present(name: str, bits: object, count: int) -> np.ndarray[Any, np.dtype[np.bool_]]:
    if bits is None:
        return _repeated(True, np.bool_, count)
    size = (count + 7) // 8
    if not isinstance(bits, bytes) or len(bits) != size:
        raise _refused(name, f"None or {size} bytes, a bit for each of {count} events", bits)
    if count % 8 and bits[-1] >> count % 8:
        raise _refused(name, f"bits for {count} events and zeros behind them", bits[-1:])
    return np.unpackbits(np.frombuffer(bits, np.uint8), count=count, bitorder="little").view(np.bool_)


def _numbers(name: str, kind: str, data: object, count: int) -> _Array:
    if not isinstance(data, bytes) or len(data) != 8 * count:
        raise _refused(name, f"{8 * count} bytes, 8 for each of {count} events", data)
    return np.frombuffer(data, _WIRE[kind]).astype(_NATIVE[kind], copy=False)


def _texts(name: str, texts: object, count: int) -> _Array:
    if not isinstance(texts, list | tuple) or len(texts) != count:
        raise _refused(name, f"a list of {count} texts", texts)
    if not all(isinstance(text, str) for text in texts):
        raise _refused(name, "texts only", next(text for text in texts if not isinstance(text, str)))
    try:
        for start in range(0, count, _AT_ONCE):
            "".join(texts[start : start + _AT_ONCE]).encode()
    except UnicodeEncodeError:
        for text in texts:
            _check_text(name, text)
    filled = np.empty(count, object)
    filled[:] = texts
    return filled


def _check_text(name: str, text: object) -> None:
    try:
        to_text(TEXT, text)
    except Misfit as error:
        raise LinkError(f"attribute {shown(name)}: {error}") from None


def _refused(name: str, expected: str, found: object) -> LinkError:
    size = f" of length {len(found)}" if isinstance(found, bytes | list | tuple) else ""
    return LinkError(f"attribute {shown(name)}: expected {expected}, found {describe(found)}{size}")
