"""Filters from a table of pyarrow; imported only where one is at hand."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from evflow.errors import SubscriptionError
from evflow.matching.areas.wkt import polygons_of
from evflow.matching.columns.arrays import column
from evflow.matching.literals import first_of
from evflow.matching.operators import TAKES_NOTHING, Op

_COLUMN = "constraints"
_FIELDS = ("name", "op", "number", "text")
_CIRCLE = ("x", "y", "radius")

_Bools = NDArray[np.bool_]


def read_filters(table: Any, space: str | None = None) -> dict[str, Any]:
    """The arguments of ``FilterColumns.from_arrays`` from a Table or RecordBatch.

    Args:
        table: the table.
        space: "plane" or "globe"; what polygons are on.

    Raises:
        SubscriptionError: a column is missing or has another type, or a null stands where none may be.

    Example:
        >>> row = [{"name": "temp", "op": "<", "number": 30}, {"name": "wind", "op": "<", "number": 5}]
        >>> read_filters(pa.table({"constraints": [row]}))["start"]
        array([0, 2])
    """
    if not isinstance(table, (pa.Table, pa.RecordBatch)):
        raise SubscriptionError(
            f"expected a Table or RecordBatch of pyarrow but found {type(table).__name__}"
        )
    columns = dict(zip(table.schema.names, table.columns, strict=True))
    if _COLUMN not in columns:
        raise SubscriptionError(f"the table has no column {_COLUMN}; it has {', '.join(columns) or 'none'}")
    found = _constraints(_chunked(columns[_COLUMN]))
    for name in _CIRCLE:
        if name in columns:
            numbers, present = _numbers(_chunked(columns[name]), name)
            found[name] = np.where(present, numbers, np.nan)
    if "area" in columns:
        found |= _polygons(_chunked(columns["area"]), space)
    if "subscription" in columns:
        of = _chunked(columns["subscription"])
        _refuse_row(_nulls(of), "subscription is null; expected an id")
        found["subscription"] = column(_to_numpy(of), np.int64, "subscription")
    return found


def _polygons(texts: Any, space: str | None) -> dict[str, Any]:
    of_text = pa.types.is_string(texts.type) or pa.types.is_large_string(texts.type)
    if not (of_text or pa.types.is_null(texts.type)):
        raise SubscriptionError(f"area: expected polygons as well-known text (strings), found {texts.type}")
    if space is None:
        raise SubscriptionError("area: expected space='plane' or 'globe', to read polygons")
    there = np.flatnonzero(~_nulls(texts))
    area = np.full(len(texts), -1, np.int64)
    area[there] = np.arange(len(there))
    rows = there.tolist()
    return {"area": area, "areas": polygons_of(texts.take(pa.array(there)).to_pylist(), space, rows)}


def _chunked(array: Any) -> Any:
    return array if isinstance(array, pa.ChunkedArray) else pa.chunked_array([array])


def _nulls(array: Any) -> _Bools:
    """Where there are nulls; NaN is none."""
    return np.concatenate([np.zeros(0, bool), *(c.is_null().to_numpy(False) for c in array.chunks)])


def _to_numpy(array: Any) -> NDArray[Any]:
    return np.asarray(array.to_numpy())


def _refuse_row(wrong: _Bools, what: str) -> None:
    for at in first_of(wrong):
        raise SubscriptionError(f"filter {at}: {what}")


def _constraints(lists: Any) -> dict[str, Any]:
    kind = lists.type
    is_list = hasattr(kind, "value_type") and not pa.types.is_dictionary(kind)
    if not is_list or not (pa.types.is_struct(kind.value_type) or pa.types.is_null(kind.value_type)):
        raise SubscriptionError(f"column {_COLUMN}: expected lists of structs but found {kind}")
    _refuse_row(_nulls(lists), f"{_COLUMN} is null; an empty list is true for every event")
    lengths = np.concatenate(
        [np.zeros(0, np.int64), *(pc.list_value_length(c).to_numpy(False) for c in lists.chunks)]
    )
    start = np.concatenate([[0], np.cumsum(lengths, dtype=np.int64)])
    flat = pa.chunked_array([c.flatten() for c in lists.chunks], kind.value_type)
    _refuse(_nulls(flat), start, "it is null")
    if pa.types.is_null(kind.value_type):
        fields = {name: pa.chunked_array([], pa.null()) for name in _FIELDS}
    else:
        fields = _fields(flat)
    return {"start": start, **_contents(fields, start)}


def _fields(flat: Any) -> dict[str, Any]:
    """The columns of structs; what may be left out is null."""
    # A field of the same name could stand twice: the last one counts, as in the rows of Python.
    pieces = [dict(zip((f.name for f in flat.type), c.flatten(), strict=True)) for c in flat.chunks]
    found = {f.name: pa.chunked_array([piece[f.name] for piece in pieces], f.type) for f in flat.type}
    for name in ("name", "op"):
        if name not in found:
            raise SubscriptionError(f"the structs of {_COLUMN} have no field {name}; they are {flat.type}")
    for name in ("number", "text"):
        found.setdefault(name, pa.chunked_array([pa.nulls(len(flat))]))
    return {name: found[name] for name in _FIELDS}


def _contents(fields: dict[str, Any], start: NDArray[np.int64]) -> dict[str, Any]:
    name, names = _words(fields["name"], "name")
    _refuse(name < 0, start, "its name is null")
    op = _operators(fields["op"], start)
    number, has_number = _numbers(fields["number"], "number")
    text, texts = _words(fields["text"], "text")
    exists = TAKES_NOTHING[op]
    _refuse(has_number & (text >= 0), start, "it has a number and a text; one must be null")
    for bare in (Op.EXISTS, Op.ABSENT):
        _refuse(has_number & (op == bare), start, f"{bare.symbol} takes no operand, but it has a number")
    _refuse(~has_number & (text < 0) & ~exists, start, "its operand is missing: number and text are null")
    return {"name": name, "names": names, "op": op, "number": number, "text": text, "texts": texts}


def _refuse(wrong: _Bools, start: NDArray[np.int64], what: str) -> None:
    for at in first_of(wrong):
        number = int(np.searchsorted(start, at, "right")) - 1
        raise SubscriptionError(f"filter {number}, constraint {at - int(start[number])}: {what}")


def _words(array: Any, what: str) -> tuple[NDArray[np.int32], list[str]]:
    """Strings as indices of those that there are; -1 for null."""
    kind = array.type
    if pa.types.is_null(kind):
        return np.full(len(array), -1, np.int32), []
    inner = kind.value_type if pa.types.is_dictionary(kind) else kind
    if not (pa.types.is_string(inner) or pa.types.is_large_string(inner) or pa.types.is_string_view(inner)):
        raise SubscriptionError(f"{what} of {_COLUMN}: expected strings but found {kind}")
    if pa.types.is_string_view(kind):
        array = array.cast(pa.large_string())
    # One dictionary for all chunks: without the first call each may have its own.
    encoded = array.unify_dictionaries() if pa.types.is_dictionary(kind) else array.dictionary_encode()
    if not encoded.num_chunks:
        return np.zeros(0, np.int32), []
    codes = [_indices(chunk) for chunk in encoded.chunks]
    return np.concatenate(codes), encoded.chunk(0).dictionary.to_pylist()


def _indices(chunk: Any) -> NDArray[np.int32]:
    indices = chunk.indices
    if indices.null_count:
        indices = indices.cast(pa.int32()).fill_null(-1)
    return np.asarray(indices.to_numpy(False)).astype(np.int32, copy=False)


def _operators(array: Any, start: NDArray[np.int64]) -> NDArray[np.uint8]:
    _refuse(_nulls(array), start, "its op is null")
    if pa.types.is_null(array.type):
        return np.zeros(0, np.uint8)
    if pa.types.is_integer(array.type):
        return column(_to_numpy(array), np.uint8, "op")
    codes, words = _words(array, "op")
    known = np.zeros(len(words), np.uint8)
    for number, word in enumerate(words):
        wrong = codes == number
        if wrong.any():
            known[number] = _operator(word, wrong, start)
    return known[codes]


def _operator(word: str, where: _Bools, start: NDArray[np.int64]) -> Op:
    try:
        return Op.of(word)
    except SubscriptionError as error:
        _refuse(where, start, error.message)
        raise


def _numbers(array: Any, what: str) -> tuple[NDArray[np.float64], _Bools]:
    """Numbers, and where they are not null."""
    if pa.types.is_null(array.type):
        return np.zeros(len(array)), np.zeros(len(array), bool)
    if not (
        pa.types.is_integer(array.type) or pa.types.is_floating(array.type) or pa.types.is_boolean(array.type)
    ):
        raise SubscriptionError(f"{what}: expected numbers but found {array.type}")
    present = ~_nulls(array)
    if pa.types.is_float16(array.type):
        # Older versions of pyarrow replace no nulls among them.
        array = array.cast(pa.float32())
    if not present.all():
        array = pc.fill_null(array, pa.scalar(0).cast(array.type))
    return column(_to_numpy(array), np.float64, what), present
