"""Columns of a DataFrame, and the moves that its rows are."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from evflow.errors import EvflowError, SparkError
from evflow.events.gather import places_of, starts_of
from evflow.matching.areas.columns import AreaColumns
from evflow.spark.columns.names import indices_of, quoted
from evflow.tiles.messages import BOX, CIRCLE, GONE, MOVE, Rows
from evflow.tiles.moves import drawn
from evflow.tiles.store import Content, content_of

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame
    from pyspark.sql.types import DataType, StructField

FOREVER = -(1 << 63)
"""The time of what has been there from the beginning."""

_NUMBERS = {CIRCLE: ("latitude", "longitude", "radius"), BOX: ("south", "west", "north", "east")}
_POLYGON = "array<array<struct<latitude:double,longitude:double>>>"
_ZONES = (
    "latitude, longitude and radius, or south, west, north and east, or polygon "
    "array<array<struct<latitude double, longitude double>>>"
)


@dataclass(frozen=True)
class Form:
    """How the rows of a DataFrame say what moves are.

    Attributes:
        side: ``publication`` or ``subscription``.
        flags: those of every move.
        columns: the columns that are read, and what they are called in the DataFrame.
        moment: the type of times; empty if there are none, so that nothing moves.
        is_timestamp: whether times are timestamps, which are read as microseconds.
        id: the type of ids.
    """

    side: str
    flags: int
    columns: tuple[tuple[str, str], ...]
    moment: str
    is_timestamp: bool
    id: str

    @classmethod
    def of(cls, frame: DataFrame, side: str, flags: int, id: str, time: str) -> Form:
        """Tells by the columns how moves are given.

        Args:
            frame: a row is a move.
            side: ``publication`` or ``subscription``.
            flags: those of every move.
            id: the column of ids.
            time: the column of times, without which subscriptions do not move.

        Raises:
            SparkError: a column is missing or has another type.
        """
        from pyspark.sql.types import BooleanType, IntegralType, NumericType, StructType, TimestampType

        if not hasattr(frame, "mapInArrow") or frame.isStreaming:
            raise SparkError(
                f"tiles: {side}s: expected a DataFrame that does not stream but found {type(frame).__name__}"
            )
        there = _Columns(frame, side)
        named = there.one(id, "whole numbers", IntegralType)
        moment = there.one(
            time, "timestamps or whole numbers", IntegralType, TimestampType, optional=flags > 0
        )
        columns = {"id": named.name} | ({} if moment is None else {"time": moment.name})
        optional: list[tuple[str, str, type[Any]]] = [("deleted", "truth values", BooleanType)]
        numbers = [name for names in _NUMBERS.values() for name in names]
        optional += [(name, "numbers", NumericType) for name in numbers]
        optional += [("attributes", "a struct of text, numbers and truth values", StructType)]
        for name, what, kind in optional:
            if found := there.one(name, what, kind, optional=True):
                columns[name] = found.name
        if polygon := there.one("polygon", _POLYGON, object, optional=True):
            if _spelt(polygon.dataType) != _POLYGON:
                raise there.wrong("polygon", _POLYGON)
            columns["polygon"] = polygon.name
        if "latitude" in columns and flags == 0:
            # A trajectory may be one of points.
            columns.setdefault("radius", "")
        if "polygon" not in columns and not any(columns.keys() >= set(names) for names in _NUMBERS.values()):
            raise SparkError(
                f"tiles: {side}s: expected {_ZONES}; the columns are: {', '.join(frame.columns)}"
            )
        there.check_attributes(columns.get("attributes"))
        kinds = "" if moment is None else moment.dataType.simpleString()
        is_timestamp = moment is not None and isinstance(moment.dataType, TimestampType)
        return cls(side, flags, tuple(columns.items()), kinds, is_timestamp, named.dataType.simpleString())

    def select(self, frame: DataFrame) -> DataFrame:
        """The columns that are read, under the names that they have here."""
        from pyspark.sql import functions as F

        found = []
        for name, given in self.columns:
            column = F.col(quoted(given)) if given else F.lit(0.0)
            if name == "time" and self.is_timestamp:
                column = F.unix_micros(column)
            elif name in ("id", "time"):
                column = column.cast("long")
            elif name not in ("deleted", "polygon", "attributes"):
                column = column.cast("double")
            found.append(column.alias(name))
        return frame.select(*found)

    def shown(self, row: np.void) -> str:
        """Which move it is, for messages."""
        time = np.datetime64(int(row["version"]), "us") if self.is_timestamp else row["version"]
        return f"{self.side} {row['id']}" + (f" at {time}" if self.moment else "")


class _Columns:
    """The columns of a DataFrame by name, checked."""

    def __init__(self, frame: DataFrame, side: str) -> None:
        self._frame, self._side = frame, side

    def one(self, name: str, what: str, *kinds: type[Any], optional: bool = False) -> Any:
        """A column; None if it may be missing and is.

        Raises:
            SparkError: it is not there, or of another type.
        """
        at = indices_of(self._frame.columns, name)
        if not at and optional:
            return None
        field: StructField | None = self._frame.schema.fields[at[0]] if len(at) == 1 else None
        if field is None or not isinstance(field.dataType, kinds):
            raise self.wrong(name, what)
        return field

    def wrong(self, name: str, what: str) -> SparkError:
        """The error of a column."""
        there = ", ".join(f"{known} {kind}" for known, kind in self._frame.dtypes)
        return SparkError(f"tiles: {self._side}s: expected {what} in column {name}; there are: {there}")

    def check_attributes(self, name: str | None) -> None:
        """Checks the types of attributes.

        Raises:
            SparkError: one is not text, a number or a truth value.
        """
        from pyspark.sql.types import BooleanType, DecimalType, NumericType, StringType

        for field in self._frame.schema[name].dataType.fields if name else ():  # type: ignore[attr-defined]
            good = isinstance(field.dataType, BooleanType | NumericType | StringType)
            if not good or isinstance(field.dataType, DecimalType):
                raise SparkError(
                    f"tiles: {self._side}s: attribute {field.name} is a {field.dataType.simpleString()}: "
                    "expected text, a number (cast decimals) or a truth value"
                )


def _spelt(kind: DataType) -> str:
    return kind.simpleString().lower()


def rows_of(form: Form, batch: pa.RecordBatch) -> tuple[Rows, dict[int, Content]]:
    """The moves that rows are, and the contents that they name.

    Args:
        form: how rows say that.
        batch: the rows.

    Raises:
        SparkError: a row does not say it.
    """
    rows = np.zeros(batch.num_rows, MOVE)
    there = set(batch.schema.names)
    for name in {"id", "time"} & there:
        if batch[name].null_count:
            raise SparkError(f"tiles: {form.side}s: {name} is null in a row; each move has one")
    rows["id"], rows["flags"] = batch["id"].to_numpy(), form.flags
    rows["version"] = batch["time"].to_numpy() if "time" in there else FOREVER
    if "deleted" in there:
        rows["flags"][batch["deleted"].fill_null(False).to_numpy(zero_copy_only=False)] |= GONE
    live = rows["flags"] & GONE == 0
    contents: dict[int, Content] = {}
    shapes = np.zeros(len(rows), np.int64)
    for kind, names in _NUMBERS.items():
        if there.issuperset(names):
            held = np.column_stack([batch[name].to_numpy(zero_copy_only=False) for name in names])
            # A radius that is not a column is the same for all.
            some = live & ~np.isnan(held[:, :2]).all(axis=1)
            rows["kind"][some] = kind
            rows["zone"][some, : len(names)] = held[some]
            shapes += some
    if "polygon" in there:
        some = live & batch["polygon"].is_valid().to_numpy(zero_copy_only=False)
        contents |= _outlines(form, rows, np.flatnonzero(some), batch["polygon"])
        shapes += some
    for at in np.flatnonzero(live & (shapes != 1))[:1]:
        raise SparkError(
            f"tiles: {form.shown(rows[at])} has {shapes[at]} zones: expected one, the others null: {_ZONES}"
        )
    if "attributes" in there:
        contents |= _attributes(form, rows, live, batch["attributes"])
    return rows, contents


def _outlines(form: Form, rows: Rows, which: NDArray[np.int64], column: pa.Array) -> dict[int, Content]:
    """Writes polygons as the zones of moves; returns their outlines by number."""
    part = rows[which]
    try:
        found: dict[int, Content] = dict(drawn(part, _polygons(column.take(which))))
    except EvflowError as error:
        if len(which) == 1:
            raise SparkError(f"tiles: {form.shown(part[0])}: {error}") from None
        for at in which:
            _outlines(form, rows, np.array([at]), column)
        raise
    rows[which] = part
    return found


def _polygons(column: pa.Array) -> AreaColumns:
    """Polygons of lists of rings, which are closed where they are not."""
    import pyarrow.compute as pc

    rings = column.flatten()
    corners = np.column_stack(
        [pc.cast(side, "double").fill_null(np.nan) for side in rings.flatten().flatten()]
    )
    lengths = pc.list_value_length(rings).fill_null(0).to_numpy().astype(np.int64)
    start = starts_of(lengths)
    first, last = start[:-1], start[1:]
    # What has no corners is refused as too short.
    there = np.flatnonzero(lengths)
    is_open = np.zeros(len(lengths), bool)
    is_open[there] = (lengths[there] == 1) | (corners[first[there]] != corners[last[there] - 1]).any(axis=1)
    lengths = lengths + is_open
    at = places_of(first, lengths)
    at = np.where(at < np.repeat(last, lengths), at, np.repeat(first, lengths))
    counts = pc.list_value_length(column).to_numpy().astype(np.int64)
    return AreaColumns.polygons(corners[at], starts_of(lengths), starts_of(counts), "globe")


def _attributes(
    form: Form, rows: Rows, live: NDArray[np.bool_], column: pa.StructArray
) -> dict[int, Content]:
    """Writes the numbers of sets of attributes; Python runs once for each set of a batch."""
    fields = column.flatten()
    key = np.zeros(len(rows), np.int64)
    for field in fields:
        coded = field.dictionary_encode()
        codes = coded.indices.fill_null(-1).to_numpy() + 1
        key = np.unique(key * (len(coded.dictionary) + 1) + codes, return_inverse=True)[1]
    _, first, which = np.unique(key, return_index=True, return_inverse=True)
    found: dict[int, Content] = {}
    numbers = []
    for at in first.tolist():
        values = zip(
            (field.name for field in column.type), (field[at].as_py() for field in fields), strict=True
        )
        try:
            number, content = content_of({name: value for name, value in values if value is not None})
        except EvflowError as error:
            raise SparkError(f"tiles: {form.shown(rows[at])}: {error}") from None
        numbers.append(number)
        if number:
            found[number] = content
    rows["content"] = np.where(live, np.array(numbers, np.int64)[which], 0)
    return found
