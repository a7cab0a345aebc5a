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
from typing import Annotated, Any, Literal

import msgspec
import numpy as np
from msgspec import Meta, Raw, Struct

from evflow.errors import LinkError
from evflow.events.attributes import MOST_ATTRIBUTES, AttributeColumn, Attributes, too_many
from evflow.events.batch import EventBatch
from evflow.net.link.messages import MISREAD, MOST_DATA, MOST_TEXTS, NIL
from evflow.outside import shown

MOST_EXTENT = MOST_DATA - (64 << 10)
"""Bytes that the attributes of a frame may have; the header has some beside them."""

_BESIDE = 32
"""Bytes that a column has at most beside its name and values."""

MOST_COUNTING = 4
"""Those of them that may be told as integers that count up."""

_Array = np.ndarray[Any, np.dtype[Any]]

_WIRE: dict[str, str] = {"i": "<i8", "f": "<f8"}
_NATIVE: dict[str, Any] = {"i": np.int64, "f": np.float64, "s": object}
_COUNTING = "n"


class _Column(Struct, array_like=True, forbid_unknown_fields=True):
    """A column; ``values`` are read once their kind and number are known."""

    name: str
    kind: Literal["i", "f", "s", "I", "F", "S", "n"]
    present: bytes | None
    values: Raw


_Integer = Annotated[int, Meta(ge=-(1 << 63), le=(1 << 63) - 1)]
_encode = msgspec.msgpack.Encoder().encode
_columns = msgspec.msgpack.Decoder(Annotated[list[_Column], Meta(max_length=MOST_ATTRIBUTES)] | None)
_values: dict[str, msgspec.msgpack.Decoder[Any]] = {
    kind: msgspec.msgpack.Decoder(of)
    for kind, of in [
        ("i", bytes), ("f", bytes), ("s", Annotated[list[str], Meta(max_length=MOST_TEXTS)]),
        ("I", _Integer), ("F", float), ("S", str), ("n", _Integer),
    ]
}  # fmt: skip


def pack(attributes: Attributes | None) -> Raw:
    """Attributes as msgpack; nil for none.

    Raises:
        LinkError: there are more columns than a peer accepts.
    """
    columns = {} if attributes is None else attributes.columns
    if not columns:
        return NIL
    if len(columns) > MOST_ATTRIBUTES:
        raise LinkError(
            f"attributes: expected at most {MOST_ATTRIBUTES} names in a batch, found {len(columns)}"
        )
    rows: list[Any] = []
    counting = 0
    for name in sorted(columns):
        rows.append(_packed(name, columns[name], counting < MOST_COUNTING))
        counting += rows[-1][1] == _COUNTING
    return Raw(_encode(rows))


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
    if len(attributes.columns) > MOST_ATTRIBUTES:
        attributes = attributes.present()
        batch = batch.with_attributes(attributes)
    names = len(attributes.columns)
    texts, size = extent(attributes)
    if names <= MOST_ATTRIBUTES and texts <= MOST_TEXTS and size <= MOST_EXTENT:
        return [batch]
    if len(batch) > 1:
        middle = len(batch) // 2
        return [*divided(batch.slice(0, middle)), *divided(batch.slice(middle, len(batch)))]
    if names > MOST_ATTRIBUTES:
        raise LinkError(too_many(names))
    size = len(memoryview(pack(attributes)))
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


def kept(attributes: Attributes) -> int:
    """The bytes of memory that attributes take."""
    return sum(_weight(column) for column in attributes.columns.values())


def _weight(column: AttributeColumn) -> int:
    # A column of one element that all events share is known by its stride.
    values = column.values[:1] if column.values.strides == (0,) else column.values
    if column.kind != "s":
        return values.nbytes
    return sum(map(getsizeof, values.tolist())) + 16 * len(values)


def unpack(data: bytes | Raw, count: int) -> Attributes | None:
    """Attributes from bytes that a peer sent; without a copy of numbers, and none of what all events share.

    Args:
        data: what ``pack`` made.
        count: the events of the batch, known to be there.

    Raises:
        LinkError: the data are not exactly that; names the attribute, expected and found.
    """
    try:
        rows = _columns.decode(data)
    except MISREAD as error:
        raise LinkError(f"attributes: {error}") from None
    columns: dict[str, AttributeColumn] = {}
    before: str | None = None
    counting = texts = 0
    for row in rows or ():
        if before is not None and row.name <= before:
            raise LinkError(
                f"attribute {shown(row.name)}: expected each name once and in order, found it after "
                f"{shown(before)}"
            )
        before = row.name
        counting += row.kind == _COUNTING
        texts += count if row.kind == "s" else 0
        if counting > MOST_COUNTING:
            raise _refused(row, f"at most {MOST_COUNTING} attributes of kind {_COUNTING}", "more")
        if texts > MOST_TEXTS:
            raise _refused(row, f"at most {MOST_TEXTS} texts in all attributes", "more")
        columns[row.name] = _column(row, count)
    return Attributes(columns) if columns else None


def _column(row: _Column, count: int) -> AttributeColumn:
    if row.kind in "IFSn":
        if row.present is not None:
            raise _refused(row, "nil for the bits of an attribute that all events have", shown(row.present))
        kind = "i" if row.kind == _COUNTING else row.kind.lower()
        one = _read(row)
        if row.kind != _COUNTING:
            values = _repeated(one, _NATIVE[kind], count)
        elif one + count > 1 << 63:
            raise _refused(row, f"{count} integers of 64 bits", f"{one} as the first")
        else:
            values = np.arange(one, one + count, dtype=np.int64)
        return AttributeColumn(kind, values, _repeated(True, np.bool_, count))
    held = _present(row, count)
    if row.kind == "s":
        _check_length(row, _length(row.values), f"a list of {count} texts", count)
        filled = np.empty(count, object)
        filled[:] = _read(row)
    else:
        data = _read(row)
        _check_length(row, len(data), f"{8 * count} bytes, 8 for each of {count} events", 8 * count)
        filled = np.frombuffer(data, _WIRE[row.kind]).astype(_NATIVE[row.kind], copy=False)
    empty = (
        filled[:0] if row.present is None else (filled if row.kind == "s" else filled.view(np.int64))[~held]
    )
    if empty.any():
        raise LinkError(f"attribute {shown(row.name)}: expected no value where an event has none, found one")
    return AttributeColumn(row.kind, filled, held)


def _read(row: _Column) -> Any:
    try:
        return _values[row.kind].decode(row.values)
    except MISREAD as error:
        raise LinkError(f"attribute {shown(row.name)} of kind {row.kind}: {error}") from None


def _length(values: Raw) -> int:
    """How many values a list claims to have; -1 where it is not a list."""
    data = memoryview(values)
    if data[0] >> 4 == 9:
        return data[0] & 15
    size = {0xDC: 2, 0xDD: 4}.get(data[0], 0)
    return int.from_bytes(data[1 : 1 + size], "big") if size else -1


_SMALL = 1024


def _repeated(value: object, dtype: Any, count: int) -> _Array:
    """The same value for each event."""
    if count <= _SMALL:
        return np.full(count, value, dtype)
    # A peer must not be able to fill the memory with a few bytes, so many events share one element.
    return np.broadcast_to(np.array(value, dtype), count)


def _present(row: _Column, count: int) -> np.ndarray[Any, np.dtype[np.bool_]]:
    bits, size = row.present, (count + 7) // 8
    if bits is None:
        return _repeated(True, np.bool_, count)
    _check_length(row, len(bits), f"nil or {size} bytes, a bit for each of {count} events", size)
    if count % 8 and bits[-1] >> count % 8:
        raise _refused(row, f"bits for {count} events and zeros behind them", shown(bits[-1:]))
    return np.unpackbits(np.frombuffer(bits, np.uint8), count=count, bitorder="little").view(np.bool_)


def _check_length(row: _Column, length: int, expected: str, wanted: int) -> None:
    if length != wanted:
        raise _refused(row, expected, f"a length of {length}" if length >= 0 else "something else")


def _refused(row: _Column, expected: str, found: str) -> LinkError:
    return LinkError(f"attribute {shown(row.name)}: expected {expected}, found {found}")
