"""Events become rows of a DataFrame, as Arrow has them, by compiled code (``decode_ir.py``)."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from evflow.codgen.memory import Array as Memory
from evflow.codgen.memory import address
from evflow.codgen.native import LOCK, Code
from evflow.errors import SchemaError
from evflow.events.batch import EventBatch
from evflow.schema import Schema
from evflow.schema.logical._nanoseconds import Nanoseconds
from evflow.schema.types import Array as ArrayType
from evflow.schema.types import Blob, Bytes, FieldType, ListOf, Logical, Number, Record, Str, Text
from evflow.spark.columns.bytes_ir import SLACK
from evflow.spark.columns.decode_ir import COLUMN, HEAD, counts, write_decoder
from evflow.spark.columns.forms import Form, call, forms_of
from evflow.spark.columns.names import indices_of

_AT = {name: at for at, name in enumerate(HEAD)}
_MOST = (1 << 31) - 1
_DAY = 86_400_000_000_000
# What is the same in memory as the integers of a field.
_SAME = {
    "i64": (pa.types.is_int64, pa.types.is_duration, pa.types.is_timestamp, pa.types.is_time64),
    "i32": (pa.types.is_int32, pa.types.is_date32),
}


class _Decoder:
    """Compiled code of one schema; any number of threads may use it."""

    def __init__(self, schema: Schema) -> None:
        self.schema = schema
        self.forms = forms_of(schema, spark=True)
        self.counts = counts(self.forms)
        self.code = Code(write_decoder(self.forms))

    def run(self, batch: EventBatch, schema: pa.Schema) -> list[Any]:
        """The columns that a schema of Arrow wants."""
        rows = len(batch)
        words = np.zeros(len(HEAD) + len(COLUMN) * self.forms.count, np.int64)
        words[_AT["rows"]], words[_AT["size"]] = rows, len(batch.data)
        words[_AT["data"]] = address(batch.data)
        words[_AT["offsets"]] = 0 if batch.offsets is None else address(batch.offsets)
        words[_AT["selection"]] = 0 if batch.selection is None else address(batch.selection)
        self.code.saw(rows)
        if self.counts:
            words[_AT["count"]] = 1
            call(self.code, words, rows)
            words[_AT["count"]] = 0
        columns = {form.path: _Column(form, rows, words) for form in self.forms.fields}
        call(self.code, words, rows)
        return [_wanted(self.schema, columns, field).array(field, words, rows) for field in schema]


def _wanted(schema: Schema, columns: dict[str, _Column], field: pa.Field) -> _Column:
    names = list(columns)
    at = indices_of(names, field.name)
    if len(at) != 1:
        raise SchemaError(
            f"schema {schema.name} has no field {field.name!r} for a column of that name; its fields are "
            f"{', '.join(names)}"
        )
    return columns[names[at[0]]]


def decode(batch: EventBatch, arrow_schema: pa.Schema | None = None) -> pa.RecordBatch:
    """Events as rows, by native code: each value is copied once.

    Args:
        batch: the events; of a selection only those that are meant.
        arrow_schema: the columns wanted, in their order: fields of the events in the types of Arrow that they
            are to have, such as timestamps for integers; ``arrow_schema_of(batch.schema)`` where it is None.

    Raises:
        SchemaError: a column is not a field, cannot have the wanted type, or has nulls where none may be.

    Example:
        >>> import evflow as ev
        >>> import pyarrow as pa
        >>> step = ev.Schema("step", {"day": ev.i32, "count": ev.u8})
        >>> events = ev.EventBatch.from_columns(step, {"day": [0, 365], "count": [7, 8]})
        >>> decode(events).to_pydict()
        {'day': [0, 365], 'count': [7, 8]}
        >>> decode(events, pa.schema({"day": pa.date32()}))["day"][1].as_py().isoformat()
        '1971-01-01'
    """
    events = batch.schema
    if events.recursive:
        raise SchemaError(f"schema {events.name} holds records within themselves, which no row of Spark does")
    found: _Decoder | None = events.made.get("arrow decoder")
    if found is None:
        with LOCK:
            found = events.made["arrow decoder"] = events.made.get("arrow decoder") or _Decoder(events)
    columns = arrow_schema_of(events) if arrow_schema is None else arrow_schema
    return pa.RecordBatch.from_arrays(found.run(batch, columns), schema=columns)


def arrow_schema_of(schema: Schema) -> pa.Schema:
    """The Arrow types that Spark wants for rows of ``struct_of(schema)``.

    Example:
        >>> import evflow as ev
        >>> print(arrow_schema_of(ev.Schema("seat", {"row": ev.u8, "letter": str | None})))
        row: int16 not null
        letter: string
    """
    from pyspark.sql.pandas.types import to_arrow_schema

    from evflow.spark.columns.schemas import struct_of

    columns: pa.Schema = to_arrow_schema(struct_of(schema), timezone="UTC")
    return columns


class _Column:
    """The memory of a form while native code writes it, and the array made of it.

    Args:
        form: what it holds.
        rows: how many values.
        words: the context of the native code, which has counted; the addresses go there.
    """

    def __init__(self, form: Form, rows: int, words: Memory) -> None:
        self._form = form
        self._at = len(HEAD) + len(COLUMN) * form.number
        kind = form.kind
        items = int(words[self._at + COLUMN.index("items")])
        self._validity = np.full((rows + 7) // 8, 0xFF, np.uint8) if form.optional else None
        self._values, self._content = _memory(form, rows, items)
        inner = items if isinstance(kind, (ListOf, ArrayType)) else rows
        if isinstance(kind, ArrayType) and kind.static:
            inner = rows * (kind.shape[0] or 0)
        self._children = [_Column(child, inner, words) for child in form.children]
        for word, memory in (
            ("validity", self._validity),
            ("values", self._values),
            ("content", self._content),
        ):
            words[self._at + COLUMN.index(word)] = 0 if memory is None else address(memory)

    def array(self, wanted: pa.Field, words: Memory, rows: int, spared: int = 0) -> Any:
        """The values, of a wanted type.

        Args:
            wanted: the type, and whether nulls may stand there.
            words: the context of the native code, which is done.
            rows: how many values there are; there may be memory for more.
            spared: how many of them are within nulls, where any value may be missing.

        Raises:
            SchemaError: they cannot be had as that type, or there are nulls where none may be.
        """
        nulls = int(words[self._at + COLUMN.index("nulls")])
        if nulls > spared and not wanted.nullable:
            missing = nulls - spared
            raise SchemaError(
                f"column {self._form.path}: {missing} of its values are missing where none may be"
            )
        spared = nulls if self._form.optional else spared
        bitmap = pa.py_buffer(self._validity) if nulls and self._validity is not None else None
        made, fits = self._made(wanted.type, rows, bitmap, nulls, words, spared)
        if fits:
            return made
        try:
            return _cast(made, wanted.type)
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError, pa.ArrowTypeError) as error:
            raise SchemaError(
                f"column {self._form.path}: {self._form.kind.text} as {wanted.type}: {error}"
            ) from None

    def _made(
        self, wanted: Any, rows: int, bitmap: Any, nulls: int, words: Memory, spared: int
    ) -> tuple[Any, bool]:
        """An array of the type wanted, or of one that has to be cast to it."""
        kind = self._form.kind
        if isinstance(kind, Logical):
            if isinstance(kind, Nanoseconds) and wanted == spark_form(wanted) != kind.arrow_type():
                # What is less than a microsecond is cut off.
                micros = pa.py_buffer(np.asarray(self._values) // 1000)
                return pa.Array.from_buffers(
                    spark_form(kind.arrow_type()), rows, [bitmap, micros], nulls
                ), False
            made = kind.to_arrow(self._stored(kind.stored, rows, bitmap, nulls, words))
            return made, made.type == wanted
        if isinstance(kind, Number):
            return self._numbers(kind, wanted, rows, bitmap, nulls)
        if isinstance(kind, Record):
            return self._struct(kind, wanted, rows, bitmap, nulls, words, spared)
        if isinstance(kind, (ListOf, ArrayType)):
            return self._list(wanted, rows, bitmap, nulls, words)
        natural = pa.string() if isinstance(kind, (Str, Text)) else pa.binary()
        return self._pieces(natural, rows, bitmap, nulls, words), wanted == natural

    def _stored(self, kind: FieldType, rows: int, bitmap: Any, nulls: int, words: Memory) -> Any:
        """What values of a logical type are kept as."""
        if isinstance(kind, Bytes):
            return self._pieces(pa.binary(), rows, bitmap, nulls, words)
        assert self._form.stored is not None
        natural = pa.from_numpy_dtype(self._form.stored.dtype)
        return pa.Array.from_buffers(natural, rows, [bitmap, pa.py_buffer(self._values)], nulls)

    def _pieces(self, natural: Any, rows: int, bitmap: Any, nulls: int, words: Memory) -> Any:
        used = int(words[self._at + COLUMN.index("items")])
        buffers = [bitmap, pa.py_buffer(self._values), pa.py_buffer(self._content).slice(0, used)]
        return pa.Array.from_buffers(natural, rows, buffers, nulls)

    def _numbers(self, kind: Number, wanted: Any, rows: int, bitmap: Any, nulls: int) -> tuple[Any, bool]:
        assert self._form.stored is not None
        natural = pa.from_numpy_dtype(self._form.stored.dtype)
        same = any(fits(wanted) for fits in _SAME.get(kind.name, ()))
        made = _made_as(natural, wanted) if same else natural
        array = pa.Array.from_buffers(made, rows, [bitmap, pa.py_buffer(self._values)], nulls)
        if pa.types.is_time64(made):
            _check_times(self._form, array)
        return array, made == wanted

    def _struct(
        self, kind: Record, wanted: Any, rows: int, bitmap: Any, nulls: int, words: Memory, spared: int
    ) -> tuple[Any, bool]:
        if not pa.types.is_struct(wanted):
            raise SchemaError(f"column {self._form.path}: record {kind.name} cannot be had as {wanted}")
        columns = dict(zip((f.name for f in kind.schema.fields), self._children, strict=True))
        members = [wanted.field(i) for i in range(wanted.num_fields)]
        parts = [_wanted(kind.schema, columns, m).array(m, words, rows, spared) for m in members]
        return pa.Array.from_buffers(wanted, rows, [bitmap], nulls, children=parts), True

    def _list(self, wanted: Any, rows: int, bitmap: Any, nulls: int, words: Memory) -> tuple[Any, bool]:
        inner, items = self._children[0], int(words[self._at + COLUMN.index("items")])
        buffers = [bitmap, pa.py_buffer(self._values)]
        if pa.types.is_map(wanted):
            entries = pa.field("entries", pa.struct([wanted.key_field, wanted.item_field]), nullable=False)
            part = inner.array(entries, words, items)
            return pa.Array.from_buffers(wanted, rows, buffers, nulls, children=[part]), True
        if not hasattr(wanted, "value_field"):
            raise SchemaError(f"column {self._form.path}: a list cannot be had as {wanted}")
        part = inner.array(wanted.value_field, words, items)
        made = pa.list_(wanted.value_field)
        return pa.Array.from_buffers(made, rows, buffers, nulls, children=[part]), made == wanted


def spark_form(kind: Any) -> Any:
    """The type of Arrow in which Spark has values of another."""
    if pa.types.is_timestamp(kind):
        return pa.timestamp("us", kind.tz)
    if pa.types.is_duration(kind):
        return pa.duration("us")
    return pa.binary() if pa.types.is_fixed_size_binary(kind) else kind


def _cast(made: Any, wanted: Any) -> Any:
    if pa.types.is_date32(wanted) and pa.types.is_int64(made.type):
        # Days: Arrow has dates of 32 bits only.
        made = made.cast(pa.int32())
    return made.cast(wanted)


def _check_times(form: Form, array: Any) -> None:
    ends = pc.min_max(array.view(pa.int64())).as_py().values()
    wrong = next((end for end in ends if end is not None and not 0 <= end < _DAY), None)
    if wrong is not None:
        raise SchemaError(
            f"column {form.path}: {form.kind.text} as {array.type}: {wrong} ns is not a time of day"
        )


def _made_as(natural: Any, wanted: Any) -> Any:
    """The type in which integers are as the field has them: microseconds, or nanoseconds of the day."""
    if pa.types.is_timestamp(wanted):
        return pa.timestamp("us", wanted.tz)
    if pa.types.is_duration(wanted):
        return pa.duration("us")
    if pa.types.is_time64(wanted):
        return pa.time64("ns")
    return natural if wanted == natural else wanted


def _memory(form: Form, rows: int, items: int) -> tuple[Memory | None, Memory | None]:
    """Memory of the values or offsets, and of the content, of a form."""
    kind = form.kind
    if isinstance(kind, Record):
        return None, None
    if isinstance(kind, Number):
        assert form.stored is not None
        if kind.kind == "b":
            return np.zeros((rows + 7) // 8, np.uint8), None
        return np.empty(rows, form.stored.dtype), None
    offsets = np.empty(rows + 1, np.int32)
    offsets[0] = 0
    if isinstance(kind, (Str, Bytes)):
        items = rows * kind.capacity
    if items > _MOST:
        raise SchemaError(
            f"column {form.path}: {items} bytes or elements are too many for one batch of Arrow; "
            "take smaller batches"
        )
    if isinstance(kind, (Str, Bytes, Text, Blob)):
        return offsets, np.empty(items + SLACK, np.uint8)
    return offsets, None
