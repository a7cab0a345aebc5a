"""Rows of Arrow to events by compiled code: what it is given, and what is said where it stops."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from evflow.codgen.memory import address
from evflow.codgen.native import LOCK, Code
from evflow.errors import SchemaError
from evflow.events.batch import EventBatch
from evflow.events.gather import frozen
from evflow.schema import Schema
from evflow.schema.types import Bytes, Str
from evflow.schema.values import describe
from evflow.stones.spark.columns.bytes_ir import SLACK
from evflow.stones.spark.columns.converting import Stored, Unfit
from evflow.stones.spark.columns.encode_ir import HEAD, Site, write_encoder
from evflow.stones.spark.columns.forms import WORDS, forms_of
from evflow.stones.spark.columns.native import call
from evflow.stones.spark.columns.storing import constant, store

__all__ = ["encode_rows"]

_AT = {name: at for at, name in enumerate(HEAD)}


class _Encoder:
    """Compiled code of one schema and one width of offsets; any number of threads may use it."""

    def __init__(self, schema: Schema, wide: frozenset[int]) -> None:
        self.schema = schema
        self.forms = forms_of(schema, wide)
        ir, self.sites = write_encoder(self.forms)
        self.code = Code(ir)
        self.size = len(HEAD) + len(WORDS) * self.forms.count

    def run(self, columns: list[Stored], rows: int) -> tuple[EventBatch | None, Site | None, int]:
        """The events; or what cannot be written and in which row."""
        words = np.zeros(self.size, np.int64)
        words[len(HEAD) :] = [word for column in columns for stored in column.walk() for word in stored.words]
        words[_AT["rows"]], words[_AT["site"]] = rows, -1
        self.code.saw(rows)
        offsets, total = None, rows * (self.schema.width or 0)
        if self.schema.width is None:
            offsets = np.zeros(rows + 1, np.int64)
            words[_AT["measure"]], words[_AT["offsets"]] = 1, address(offsets)
            call(self.code, words, rows)
            words[_AT["measure"]], total = 0, int(offsets[-1])
        data = np.empty(total + SLACK, np.uint8)
        words[_AT["out"]] = address(data)
        call(self.code, words, rows)
        if words[_AT["site"]] >= 0:
            return None, self.sites[words[_AT["site"]]], int(words[_AT["row"]])
        return EventBatch(self.schema, frozen(data)[:total], rows, offsets), None, 0


def encode_rows(schema: Schema, batch: pa.RecordBatch) -> EventBatch:
    """See ``evflow.stones.spark.columns.arrow.encode``."""
    if schema.recursive:
        raise SchemaError(f"schema {schema.name} holds records within themselves, which no row of Spark does")
    columns = [_column(schema, batch, index) for index in range(len(schema))]
    encoder = _encoder(schema, columns)
    events, site, row = encoder.run(columns, batch.num_rows)
    if events is None:
        assert site is not None
        raise _error(schema, batch, site, row)
    return events


def _column(schema: Schema, batch: pa.RecordBatch, index: int) -> Stored:
    field = schema.fields[index]
    at = batch.schema.get_all_field_indices(field.name)
    if len(at) > 1:
        raise SchemaError(f"schema {schema.name}: two columns are named {field.name!r}; rename or drop one")
    if not at and field.required:
        there = ", ".join(batch.schema.names) or "none"
        raise SchemaError(f"schema {schema.name}: no column for {field.name}; the columns are: {there}")
    array = batch.column(at[0]) if at else constant(field.type, field.default, batch.num_rows)
    try:
        return store(field.type, array)
    except Unfit as error:
        row = "" if error.row is None else f"row {error.row}: "
        place = f"schema {schema.name}: column {field.name}{error.path}"
        raise SchemaError(f"{place}: {row}{error.words}") from None


def _encoder(schema: Schema, columns: list[Stored]) -> _Encoder:
    wide = [stored.wide for column in columns for stored in column.walk()]
    key = f"arrow encoder {''.join('01'[w] for w in wide) if any(wide) else ''}"
    found: _Encoder | None = schema.made.get(key)
    if found is None:
        with LOCK:
            found = schema.made.get(key)
            if found is None:
                found = schema.made[key] = _Encoder(schema, frozenset(i for i, w in enumerate(wide) if w))
    return found


def _error(schema: Schema, batch: pa.RecordBatch, site: Site, row: int) -> SchemaError:
    form = site.form
    value: Any = batch.column(form.path.split(".")[0].split("[")[0])[row].as_py()
    if site.reason == "null":
        expected = "a value in every row, since the field is not optional"
    elif site.reason == "nul":
        expected = f"text that does not end with NUL, since NUL is the padding of {form.kind.text}"
    elif site.reason == "shape":
        expected = f"arrays of one shape ({form.kind.text})"
    else:
        assert isinstance(form.kind, (Str, Bytes))
        unit = "text of at most {} bytes of UTF-8" if isinstance(form.kind, Str) else "at most {} bytes"
        expected = unit.format(form.kind.capacity)
    return SchemaError(
        f"schema {schema.name}: column {form.path}: row {row}: expected {expected}, found {describe(value)}"
    )
