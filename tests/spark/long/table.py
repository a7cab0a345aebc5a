"""Rows of all common types with nulls, made twice: by Spark from SQL, and by numpy from the same numbers."""

from __future__ import annotations

from collections.abc import Callable
from itertools import zip_longest
from typing import TYPE_CHECKING, Any

import msgpack
import numpy as np
from numpy.typing import NDArray

import evflow as ev

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

Ids = NDArray[np.int64]

HOLE = 7
"""Of so many rows each column has a null in one, the next column in the next row."""

_MINUTE = 60_000_000
_1960 = -3653 * 1440 * _MINUTE


def _numbers(ids: Ids) -> list[list[float]]:
    halves, quarters, counts = ids * 0.5, ids * 0.25, ids % 4
    rows = zip(halves.tolist(), quarters.tolist(), counts.tolist(), strict=True)
    return [[half, quarter, -1.0][:count] for half, quarter, count in rows]


def _named(prefix: str, ids: Ids) -> list[str]:
    return np.strings.add(prefix, ids.astype("U20")).tolist()


COLUMNS: dict[str, tuple[str, Callable[[Ids], Any]]] = {
    "flag": ("id % 3 = 0", lambda i: i % 3 == 0),
    "tiny": ("cast(id % 256 - 128 as tinyint)", lambda i: i % 256 - 128),
    "small": ("cast(id % 65536 - 32768 as smallint)", lambda i: i % 65536 - 32768),
    "whole": ("cast(id * 211 % 2147483647 as int)", lambda i: i * 211 % 2147483647),
    "big": ("9007199254740993 + id", lambda i: 9007199254740993 + i),
    "narrow": ("cast(id / 3 as float)", lambda i: (i / 3).astype(np.float32).astype(float)),
    "wide": ("id / 3", lambda i: i / 3),
    "nan": ("if(id % 3 = 0, double('NaN'), id * 0.5D)", lambda i: np.where(i % 3 == 0, np.nan, i * 0.5)),
    "text": ("concat('ключ ', id)", lambda i: _named("ключ ", i)),
    "blob": ("cast(concat('x', id) as binary)", lambda i: np.strings.add(b"x", i.astype("S20"))),
    "price": ("cast(id as decimal(18, 2)) + 0.25", lambda i: np.strings.add(i.astype("U20"), ".25")),
    "day": ("date_add(date '1969-12-01', cast(id % 36525 as int))", lambda i: i % 36525 - 31),
    "moment": ("timestamp_micros(1357000000000001 + id * 1000)", lambda i: 1357000000000001 + i * 1000),
    "local": (
        "timestamp_ntz '1960-01-01 00:00:00.000001' + make_dt_interval(0, 0, cast(id as int))",
        lambda i: _1960 + 1 + i * _MINUTE,
    ),
    "span": (
        "make_dt_interval(cast(id % 1000 as int), 1, 2, 3.000004)",
        lambda i: ((i % 1000 * 24 + 1) * 3600 + 123) * 1_000_000 + 4,
    ),
    "numbers": ("slice(array(id * 0.5D, id * 0.25D, -1D), 1, cast(id % 4 as int))", _numbers),
    "holes": ("array(id, null, id + 2)", lambda i: [[n, None, n + 2] for n in i.tolist()]),
    "words": ("array('a', concat('b', id))", lambda i: [["a", text] for text in _named("b", i)]),
    "table": ("map('a', id, 'b', null)", lambda i: [[["a", n], ["b", None]] for n in i.tolist()]),
    "place": (
        "named_struct('x', id * 0.25D, 'name', concat('p', id))",
        lambda i: [list(pair) for pair in zip((i * 0.25).tolist(), _named("p", i), strict=True)],
    ),
}
"""SQL for a column of each type from ``id``, and what msgpack has of it in an event."""

_EPOCH = "timestamp_ntz '1970-01-01 00:00:00'"

READ = {
    "price": "cast(price as string)",
    "day": "unix_date(day)",
    "moment": "unix_micros(moment)",
    "local": f"timestampdiff(MICROSECOND, {_EPOCH}, local)",
    "span": f"timestampdiff(MICROSECOND, {_EPOCH}, {_EPOCH} + span)",
    "table": "map_entries(table)",
}
"""SQL for what columns become in Spark again."""


def table(spark: SparkSession, count: int, parts: int, step: Callable[[Any], Any] | None = None) -> DataFrame:
    """Rows 0 to ``count`` in their order, in so many partitions; ``step`` gets their ids in batches."""
    ids = spark.range(0, count, 1, parts)
    if step is not None:
        # What comes from Python may be null for all that Spark knows.
        ids = ids.mapInArrow(step, "id long").selectExpr("coalesce(id, 0L) as id")
    columns = [
        f"if(id % {HOLE} = {at % HOLE}, null, {sql}) as {name}"
        for at, (name, (sql, _)) in enumerate(COLUMNS.items())
    ]
    return ids.selectExpr("id", *columns)


def expected(ids: Ids) -> dict[str, list[Any]]:
    """The values of these rows, by column, as msgpack has them."""
    found: dict[str, list[Any]] = {"id": ids.tolist()}
    for at, (name, (_, make)) in enumerate(COLUMNS.items()):
        made = make(ids)
        column = found[name] = made if isinstance(made, list) else made.tolist()
        for hole in np.flatnonzero(ids % HOLE == at % HOLE).tolist():
            column[hole] = None
    return found


def _array(code: int, data: bytes) -> list[Any]:
    """An array of one dimension; code 10 is for f64."""
    assert code == 10 and data[0] == 1, (code, data)
    return np.frombuffer(data, "<f8", offset=5).tolist()


def differences(batch: ev.EventBatch, first: int) -> list[str]:
    """Where events are not the rows from ``first`` on: one line for each column in which they are not.

    The events are read by msgpack, and not by anything of evflow's.
    """
    unpacker = msgpack.Unpacker(max_buffer_size=0, ext_hook=_array)
    unpacker.feed(batch.to_bytes())
    rows = list(unpacker)
    names = [field.name for field in batch.schema.wire_fields]
    wanted = expected(np.arange(first, first + len(batch)))
    if sorted(names) != sorted(wanted) or len(rows) != len(batch):
        return [f"{len(rows)} events of {names}, expected {len(batch)} of {list(wanted)}"]
    lines = []
    for name, column in zip(names, zip(*rows, strict=True), strict=True):
        if list(column) != wanted[name]:
            lines += _first(name, first, column, wanted[name])
    return lines


def _first(name: str, first: int, found: Any, wanted: list[Any]) -> list[str]:
    """The first row in which a column differs; NaN is like NaN."""
    for row, (one, other) in enumerate(zip_longest(found, wanted), first):
        if one != other and not (one != one and other != other):
            return [f"row {row}, column {name}: found {one!r}, expected {other!r}"]
    return []
