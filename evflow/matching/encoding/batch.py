"""Rows out of typed batches, read where their events lie: some fields by their offset, others by walking."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from evflow.errors import SchemaError
from evflow.events.attributes import AttributeColumn
from evflow.events.batch import EventBatch
from evflow.events.columns.reading import cells, find_field
from evflow.matching import kernels
from evflow.matching.encoding.columns import Found, Pieces, rows_of_columns
from evflow.matching.encoding.values import Vocabulary, dig
from evflow.matching.rows import EventRows
from evflow.schema.types import FieldType, Logical, Number, Str, Text

_NIL = 0xC0
_TRUE = 0xC3
_LENGTH = np.dtype(">i4")

Places = NDArray[np.int64]
Present = NDArray[np.bool_] | None


def encode_batch(batch: EventBatch, known: Vocabulary) -> EventRows:
    """The rows of a batch; attributes that go along with its events are like fields, and fields go first."""
    reader = _Reader(batch)
    names = [*(field.name for field in batch.schema.fields), *reader.attributes]
    return rows_of_columns(len(batch), names, reader.column, known)


def column_of(batch: EventBatch, path: str) -> Found | None:
    """A field, a field of a nested record, or an attribute of all events; None if there is none of the name.

    Args:
        batch: the events.
        path: its name, dotted if it is in a nested record.
    """
    return _Reader(batch).column(path)


class _Reader:
    """The fields and attributes of a batch as columns."""

    def __init__(self, batch: EventBatch) -> None:
        self.batch = batch
        self.attributes = {} if batch.attributes is None else batch.attributes.columns
        self._starts: Places | None = None
        self._walked: NDArray[np.int64] | None = None

    def column(self, path: str) -> Found | None:
        """A field, a field of a nested record, or an attribute; None if there is none of the name."""
        column = self._field(path)
        attribute = self.attributes.get(path)
        return _of_attribute(attribute) if column is None and attribute is not None else column

    def _field(self, path: str) -> Found | None:
        schema = self.batch.schema
        first, _, rest = path.partition(".")
        if first not in schema:
            return None
        try:
            kind, at = find_field(schema, path)
        except SchemaError:
            return None
        kind = kind.held
        if (isinstance(kind, Logical) and not kind.plain) or (at is None and rest):
            return [dig(view, path) for view in self.batch], None
        if at is not None:
            return self._values(kind, at, None, None)
        varying = [field.name for field in schema.wire_fields if field.offset is None]
        start = self._places(varying.index(first), len(varying))
        there = self.batch.data[start] != _NIL
        return self._values(kind, 0, start[there], None if there.all() else there)

    def _values(self, kind: FieldType, at: int, start: Places | None, present: Present) -> Found:
        """A column of a type: ``at`` bytes behind the start of each event, or at ``start`` where present."""
        if isinstance(kind, Number):
            values = self._fixed(kind, at) if start is None else _numbers_at(self.batch.data, start, kind)
            if isinstance(kind, Logical):
                values, known = kind.constrained_column(values)
                if not known.all():
                    values, present = _spread(values, present), _spread(known, present)
                    return values, present
            return _spread(values, present), present
        if not isinstance(kind, Text | Str):
            return {}, present
        start = self._rows() + at if start is None else start
        if isinstance(kind, Text):
            start, length = start + 5, _read_at(self.batch.data, start + 1, _LENGTH).astype(np.int32)
        else:
            start, length = start + kind.head, np.empty(len(start), np.int32)
            kernels.padded_lengths(self.batch.data, start, kind.capacity, length)
        return Pieces(self.batch.data, _spread(start, present), _spread(length, present)), present

    def _fixed(self, kind: Number, offset: int) -> NDArray[Any]:
        """The numbers at an offset, where that is possible without a copy."""
        if self.batch.offsets is not None:
            return _numbers_at(self.batch.data, self._rows() + offset, kind)
        if kind.kind == "b":
            return np.equal(cells(self.batch, offset, np.dtype("u1")), _TRUE)
        return cells(self.batch, offset + 1, kind.dtype.newbyteorder(">"))

    def _rows(self) -> Places:
        """Where each event starts."""
        if self._starts is None:
            width = self.batch.schema.width or 0
            places = self.batch.places()
            self._starts = np.arange(self.batch.rows, dtype=np.int64) * width if places is None else places
        return self._starts

    def _places(self, walked: int, varying: int) -> Places:
        """Where one of the fields of variable width stands in each event."""
        if self._walked is None:
            self._walked = np.empty((len(self.batch), varying), np.int64)
            kernels.walk_fields(self.batch.data, self._rows() + self.batch.schema.fixed_width, self._walked)
        return np.ascontiguousarray(self._walked[:, walked])


def _of_attribute(attribute: AttributeColumn) -> Found:
    values = attribute.values.tolist() if attribute.kind == "s" else attribute.values
    return values, None if attribute.present.all() else attribute.present


def _numbers_at(data: NDArray[np.uint8], start: Places, kind: Number) -> NDArray[Any]:
    if kind.kind == "b":
        return np.equal(data[start], _TRUE)
    return _read_at(data, start + 1, kind.dtype.newbyteorder(">"))


def _read_at(data: NDArray[np.uint8], start: Places, dtype: np.dtype[Any]) -> NDArray[Any]:
    """What stands at each start."""
    picked = np.empty((len(start), dtype.itemsize), np.uint8)
    kernels.gather_fixed(data, start, picked)
    return picked.view(dtype).reshape(-1)


def _spread(values: NDArray[Any], present: Present) -> NDArray[Any]:
    """The values in the rows that are present, zeros in the others."""
    if present is None:
        return values
    spread = np.zeros(len(present), values.dtype.newbyteorder("="))
    spread[present] = values
    return spread
