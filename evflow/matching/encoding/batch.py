"""Rows out of typed batches, read where their events lie: some fields by their offset, others by walking."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from evflow.events.attributes import AttributeColumn
from evflow.events.batch import EventBatch
from evflow.events.columns.reading import cells
from evflow.matching import kernels
from evflow.matching.encoding.builder import RowBuilder
from evflow.matching.encoding.values import NUMBER_KINDS, coordinate_of, dig, unmasked
from evflow.matching.encoding.workspace import Workspace
from evflow.matching.names import Names
from evflow.matching.rows import EventRows
from evflow.matching.space import Space
from evflow.matching.strings import Strings
from evflow.schema import Schema
from evflow.schema.types import FieldType, Logical, Number, Record, Str, Text

__all__ = ["encode_batch"]

_NIL = 0xC0
_TRUE = 0xC3
_LENGTH = np.dtype(">i4")

Places = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class _Leaf:
    """A field, or a field of a nested record.

    Attributes:
        kind: its type, without the option.
        offset: from the start of the event; None if it varies.
        walked: which of the fields of variable width it is; None if it is none of them.
    """

    kind: FieldType
    offset: int | None
    walked: int | None


def encode_batch(
    batch: EventBatch,
    names: Names,
    strings: Strings,
    space: Space,
    location: tuple[str, str],
    workspace: Workspace,
) -> EventRows:
    """The rows of a batch; attributes that go along with its events are like fields, and fields go first."""
    reader = _Reader(batch, RowBuilder(len(batch), strings, workspace))
    for field in batch.schema.fields:
        if field.name in names.numbers:
            reader.add(names.numbers[field.name], field.name)
        for rest, number in names.inner.get(field.name, ()):
            reader.add(number, f"{field.name}.{rest}")
    attributes = {} if batch.attributes is None else batch.attributes.columns
    for name, column in attributes.items():
        if name in names.numbers and _leaf(batch.schema, name) is None:
            reader.add_attribute(names.numbers[name], column)
    first, second = (reader.numbers(name, attributes.get(name)) for name in location)
    return reader.builder.build(space.places(first, second))


def _leaf(schema: Schema, path: str) -> _Leaf | None:
    """What a dotted name means in a schema; None if nothing."""
    first, *rest = path.split(".")
    if first not in schema:
        return None
    field = schema[first]
    kind, offset = field.type, field.offset
    walked = None
    if offset is None:
        walked = [f.name for f in schema.wire_fields if f.offset is None].index(first)
    for step in rest:
        record = kind.held
        if not isinstance(record, Record) or step not in record.schema:
            return None
        inner = record.schema[step]
        offset = None if offset is None or inner.offset is None else offset + inner.offset
        kind, walked = inner.type, None
    return _Leaf(kind.held, offset, walked)


class _Reader:
    """Reads fields of a batch into a builder of rows."""

    def __init__(self, batch: EventBatch, builder: RowBuilder) -> None:
        self.batch = batch
        self.builder = builder
        self._starts: Places | None = None
        self._walked: NDArray[np.int64] | None = None

    def add(self, number: int, path: str) -> None:
        """A field as attribute ``number``, if there is such a field."""
        leaf = _leaf(self.batch.schema, path)
        if leaf is None:
            return
        kind, batch = leaf.kind, self.batch
        if (leaf.offset is None and leaf.walked is None) or (isinstance(kind, Logical) and not kind.plain):
            self.builder.add_objects(number, [dig(view, path) for view in batch])
        elif leaf.offset is None:
            assert leaf.walked is not None
            self._add_walked(number, kind, self._places(leaf.walked))
        elif isinstance(kind, Number) and isinstance(kind, Logical):
            seconds, there = kind.constrained_column(self._fixed(kind, leaf.offset))
            self.builder.add_numbers(number, seconds, None if there.all() else there)
        elif isinstance(kind, Number):
            self.builder.add_numbers(number, self._fixed(kind, leaf.offset))
        elif isinstance(kind, Str):
            start = self._rows() + (leaf.offset + kind.head)
            self.builder.add_texts(number, batch.data, start, self._padded(start, kind))
        else:
            self.builder.add_others(number)

    def _add_walked(self, number: int, kind: FieldType, start: Places) -> None:
        data = self.batch.data
        there = data[start] != _NIL
        at = start[there]
        everywhere = None if len(at) == len(start) else there
        if isinstance(kind, Number) and isinstance(kind, Logical):
            seconds, known = kind.constrained_column(_numbers_at(data, at, kind))
            present = there.copy()
            present[there] = known
            self.builder.add_numbers(number, _spread(seconds, everywhere), None if present.all() else present)
        elif isinstance(kind, Number):
            self.builder.add_numbers(number, _spread(_numbers_at(data, at, kind), everywhere), everywhere)
        elif isinstance(kind, Text):
            length = _read_at(data, at + 1, _LENGTH).astype(np.int32)
            self._add_texts(number, at + 5, length, everywhere)
        elif isinstance(kind, Str):
            self._add_texts(number, at + kind.head, self._padded(at + kind.head, kind), everywhere)
        else:
            self.builder.add_others(number, everywhere)

    def _add_texts(
        self, number: int, start: Places, length: NDArray[np.int32], present: NDArray[np.bool_] | None
    ) -> None:
        start, length = _spread(start, present), _spread(length, present)
        self.builder.add_texts(number, self.batch.data, start, length, present)

    def add_attribute(self, number: int, column: AttributeColumn) -> None:
        """A column of attributes as attribute ``number``."""
        present = None if column.present.all() else column.present
        if column.kind != "s":
            self.builder.add_numbers(number, column.values, present)
            return
        self.builder.add_objects(number, unmasked(column.values.tolist(), present))

    def numbers(self, path: str, attribute: AttributeColumn | None) -> NDArray[np.float64]:
        """A field or attribute as numbers; NaN where it is missing or no number."""
        found = np.full(len(self.batch), np.nan)
        leaf = _leaf(self.batch.schema, path)
        if leaf is not None and isinstance(leaf.kind, Logical):
            found[:] = [coordinate_of(dig(view, path)) for view in self.batch]
        elif leaf is not None and leaf.offset is not None and isinstance(leaf.kind, Number):
            found[:] = self._fixed(leaf.kind, leaf.offset)
        elif leaf is not None and isinstance(leaf.kind, Number):
            found[:] = [coordinate_of(dig(view, path)) for view in self.batch]
        elif leaf is None and attribute is not None and attribute.values.dtype.kind in NUMBER_KINDS:
            found[attribute.present] = attribute.values[attribute.present]
        return found

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
            batch = self.batch
            if batch.offsets is not None:
                self._starts = batch.offsets[:-1]
            else:
                self._starts = np.arange(batch.rows, dtype=np.int64) * (batch.schema.width or 0)
            if batch.selection is not None:
                self._starts = self._starts[batch.selection]
        return self._starts

    def _places(self, walked: int) -> Places:
        """Where a field of variable width stands in each event."""
        if self._walked is None:
            batch = self.batch
            variable = sum(field.offset is None for field in batch.schema.fields)
            self._walked = np.empty((len(batch), variable), np.int64)
            kernels.walk_fields(batch.data, self._rows() + batch.schema.fixed_width, self._walked)
        return np.ascontiguousarray(self._walked[:, walked])

    def _padded(self, start: Places, kind: Str) -> NDArray[np.int32]:
        length = np.empty(len(start), np.int32)
        kernels.padded_lengths(self.batch.data, start, kind.capacity, length)
        return length


def _numbers_at(data: NDArray[np.uint8], start: Places, kind: Number) -> NDArray[Any]:
    if kind.kind == "b":
        return np.equal(data[start], _TRUE)
    return _read_at(data, start + 1, kind.dtype.newbyteorder(">"))


def _read_at(data: NDArray[np.uint8], start: Places, dtype: np.dtype[Any]) -> NDArray[Any]:
    """What stands at each start."""
    picked = np.empty((len(start), dtype.itemsize), np.uint8)
    kernels.gather_fixed(data, start, picked)
    return picked.view(dtype).reshape(-1)


def _spread(values: NDArray[Any], present: NDArray[np.bool_] | None) -> NDArray[Any]:
    """The values in the rows that are present, zeros in the others."""
    if present is None:
        return values
    spread = np.zeros(len(present), values.dtype.newbyteorder("="))
    spread[present] = values
    return spread
