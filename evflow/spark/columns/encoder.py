"""Rows of a DataFrame, as Arrow has them, become events, by code compiled for the schema (``encode_ir.py``).

It goes over a batch once; twice where events vary in width: first to measure. What Arrow can have in several
ways is brought into one before (``storing.py``).
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from evflow.codgen.memory import address
from evflow.codgen.native import LOCK, Code
from evflow.errors import SchemaError
from evflow.events.batch import EventBatch
from evflow.events.gather import ByteArray, Offsets, own_place, running
from evflow.schema import Schema
from evflow.schema.types import Bytes, Str
from evflow.schema.values import describe
from evflow.spark.columns.bytes_ir import SLACK
from evflow.spark.columns.encode_ir import HEAD, Site, write_encoder
from evflow.spark.columns.forms import WORDS, call, forms_of
from evflow.spark.columns.names import indices_of
from evflow.spark.columns.storing import Stored, Unfit, constant, store

_AT = {name: at for at, name in enumerate(HEAD)}


class _Encoder:
    """Compiled code of one schema; any number of threads may use it."""

    def __init__(self, schema: Schema) -> None:
        self.forms = forms_of(schema)
        ir, self.sites = write_encoder(self.forms)
        self.code = Code(ir)
        self.size = len(HEAD) + len(WORDS) * self.forms.count


class _Rows:
    """The rows of one batch, on their way into events."""

    def __init__(self, schema: Schema, batch: pa.RecordBatch) -> None:
        self._schema, self._batch = schema, batch
        self._columns = [_column(schema, batch, index) for index in range(len(schema))]
        self._encoder = _encoder(schema)
        self._words = words = np.zeros(self._encoder.size, np.int64)
        words[len(HEAD) :] = [
            word for column in self._columns for stored in column.walk() for word in stored.words
        ]
        words[_AT["rows"]], words[_AT["site"]] = batch.num_rows, -1
        self._encoder.code.saw(batch.num_rows)

    def measure(self, offsets: Offsets) -> None:
        """Writes where each event starts and the last ends, from where the first does."""
        words, start = self._words, int(offsets[0])
        words[_AT["measure"]], words[_AT["offsets"]] = 1, address(offsets)
        call(self._encoder.code, words, self._batch.num_rows)
        words[_AT["measure"]] = 0
        offsets[1:] += start

    def write(self, target: ByteArray) -> None:
        """Writes the events to where ``target`` begins, and up to ``SLACK`` bytes that mean nothing behind.

        Raises:
            SchemaError: a value does not fit.
        """
        words = self._words
        words[_AT["out"]] = address(target)
        call(self._encoder.code, words, self._batch.num_rows)
        if words[_AT["site"]] >= 0:
            site = self._encoder.sites[words[_AT["site"]]]
            raise _error(self._schema, self._batch, site, int(words[_AT["row"]]))


def encode(schema: Schema, *batches: pa.RecordBatch) -> EventBatch:
    """Rows as one batch of events, by native code: each value is copied once.

    A column goes to the field of its name. It may have any type of which the values that are there fit the
    field without loss: narrower and wider numbers, a dictionary, times (which become integers, see
    ``schemas``), decimals as their digits or as numbers that hold them. Columns that are not fields are
    ignored; a field without a column takes its default.

    Args:
        schema: of the events.
        batches: the rows, in order; slices of longer batches too.

    Raises:
        SchemaError: a column is missing or of a type that does not fit, or a value does not; names the
            column, the row within its batch, what was expected and found.

    Example:
        >>> import evflow as ev
        >>> import pyarrow as pa
        >>> trade = ev.Schema("trade", {"symbol": ev.Str[4], "price": float | None})
        >>> rows = pa.RecordBatch.from_pydict({"price": [80.5, None], "symbol": ["IBM", "SAP"]})
        >>> [(event.symbol, event.price) for event in encode(trade, rows)]
        [('IBM', 80.5), ('SAP', None)]
    """
    if schema.recursive:
        raise SchemaError(f"schema {schema.name} holds records within themselves, which no row of Spark does")
    parts = [_Rows(schema, batch) for batch in batches]
    first = running([batch.num_rows for batch in batches], len(batches))
    rows, width, offsets = int(first[-1]), schema.width, None
    if width is None:
        offsets = np.zeros(rows + 1, np.int64)
        for part, start, stop in zip(parts, first, first[1:], strict=False):
            part.measure(offsets[start : stop + 1])
        first = offsets[first]
    else:
        first *= width
    total = int(first[-1])
    place = own_place(total + SLACK)
    for part, start in zip(parts, first, strict=False):
        part.write(place.target[start:])
    return EventBatch(schema, place.held[:total], rows, offsets)


def _column(schema: Schema, batch: pa.RecordBatch, index: int) -> Stored:
    field = schema.fields[index]
    at = indices_of(batch.schema.names, field.name)
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


def _encoder(schema: Schema) -> _Encoder:
    found: _Encoder | None = schema.made.get("arrow encoder")
    if found is None:
        with LOCK:
            found = schema.made["arrow encoder"] = schema.made.get("arrow encoder") or _Encoder(schema)
    return found


def _column_of(path: str) -> str:
    return path.split(".")[0].split("[")[0]


def _error(schema: Schema, batch: pa.RecordBatch, site: Site, row: int) -> SchemaError:
    form = site.form
    value: Any = batch.column(indices_of(batch.schema.names, _column_of(form.path))[0])[row].as_py()
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
