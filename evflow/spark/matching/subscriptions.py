"""Subscriptions of a DataFrame, read where their rows are: in the executors.

A task makes pieces of its rows, and something of each piece, which goes to the driver as pickled bytes. A
malformed subscription does not fail the task, since the driver would get that as a text of two tracebacks:
the error itself goes to the driver as such bytes.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from evflow.errors import SparkError, SubscriptionError
from evflow.events.gather import places_of
from evflow.matching.columns.bulk import FilterColumns, as_subscription
from evflow.matching.space import LOCATIONS
from evflow.spark.columns.names import indices_of, quoted
from evflow.spark.matching.bounds import Boxes, boxes_of, boxes_of_shapes
from evflow.spark.matching.options import Settings
from evflow.spark.matching.tiles import Tiles
from evflow.spark.rows import together
from evflow.spark.session import is_connect

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame

Int64s = NDArray[np.int64]

_ROWS = 1 << 16
_BYTES = 16 << 20
"""A piece has about so many rows or bytes of Arrow at most."""

_NUMBERS = ("tinyint", "smallint", "int", "bigint", "float", "double", "decimal")
_WHOLE = {"tinyint": "int8", "smallint": "int16", "int": "int32", "bigint": "int64"}
"""Types of ids, and their names in numpy."""

_FILTER, _CONSTRAINT = 80, 50
"""Bytes in the index, found by measuring."""

_MIXED = np.uint64(0x9E3779B97F4A7C15)


@dataclass(frozen=True)
class Form:
    """How the rows of a DataFrame say what subscriptions are.

    Attributes:
        text: whether a row is a text in ``subscription``; else it is in columns of numbers and constraints.
        area: the columns of the area, or none.
        constraints: whether there is a column ``constraints``.
        space: what areas are on.
        id: the column of ids.
    """

    text: bool
    area: tuple[str, ...]
    constraints: bool
    space: str
    id: str

    def select(self, subscriptions: DataFrame) -> DataFrame:
        """The columns that are read, the ids first as ``id``, areas as ``x``, ``y``, ``radius``."""
        from pyspark.sql import functions as F

        columns = [F.col(quoted(self.id)).cast("long").alias("id")]
        if self.text:
            columns.append(F.col("subscription"))
        for name, role in zip(self.area, ("x", "y", "radius"), strict=False):
            columns.append(F.col(name).cast("double").alias(role))
        if self.constraints:
            columns.append(F.col("constraints"))
        return subscriptions.select(*columns)


def form_of(subscriptions: DataFrame, id: str, space: str) -> Form:
    """Tells by the columns how subscriptions are given.

    Raises:
        SubscriptionError: they are given in no way, or in two, or ids are not whole numbers.
    """
    there = ", ".join(f"{name} {kind}" for name, kind in subscriptions.dtypes) or "none"
    names = subscriptions.columns
    at = indices_of(names, id)
    if len(at) != 1 or subscriptions.dtypes[at[0]][1] not in _WHOLE:
        raise SubscriptionError(
            f"subscriptions: expected whole numbers in column {id} (subscription_id=); there are: {there}"
        )
    id = names[at[0]]
    # The names that mean something are in lower case.
    types = {name.lower(): kind for name, kind in subscriptions.dtypes} | dict(subscriptions.dtypes)
    numbers = {name for name, kind in types.items() if kind.partition("(")[0] in _NUMBERS}
    areas = [(*LOCATIONS[space], "radius"), ("x", "y", "radius")]
    area = next((names for names in areas if numbers.issuperset(names)), ())
    constraints = "constraints" in types
    if types.get("subscription") == "string":
        if area or constraints:
            also = ", ".join([*area, *["constraints"] * constraints])
            raise SubscriptionError(
                f"subscriptions: texts in subscription, and {also} beside: drop one of the two"
            )
        return Form(True, (), False, space, id)
    if not area and not constraints:
        raise SubscriptionError(
            f"subscriptions: expected texts in column subscription, or numbers in {', '.join(areas[0])}, or "
            f"constraints, but the columns are: {there}"
        )
    return Form(False, area, constraints, space, id)


@dataclass(frozen=True, eq=False)
class Subscriptions:
    """The subscriptions that are matched.

    Attributes:
        frame: a row is a subscription.
        form: how they are given.
        settings: of the matcher.
    """

    frame: DataFrame
    form: Form
    settings: Settings

    @classmethod
    def of(cls, frame: DataFrame, id: str, settings: Settings) -> Subscriptions:
        """Subscriptions and how they are matched, checked.

        Raises:
            SparkError: they are not a DataFrame, or one that streams.
            SubscriptionError: columns of the subscriptions are missing.
        """
        check_frame("subscriptions", frame)
        if frame.isStreaming:
            raise SparkError(
                "subscriptions: expected a DataFrame that does not stream; match each micro-batch in "
                "foreachBatch"
            )
        return cls(frame, form_of(frame, id, settings.space), settings)

    @property
    def ids(self) -> str:
        """The type of their ids, by its name in numpy."""
        return _WHOLE[dict(self.frame.dtypes)[self.form.id]]

    @cached_property
    def rows(self) -> DataFrame:
        """The subscriptions as they are read; one DataFrame, so that Spark plans it once."""
        return self.form.select(self.frame)


def check_frame(what: str, given: object) -> None:
    """Checks that an argument is a DataFrame.

    Raises:
        SparkError: it is not.
    """
    if not hasattr(given, "mapInArrow"):
        raise SparkError(f"{what}: expected a DataFrame of Spark but found {type(given).__name__}")


@dataclass(frozen=True, slots=True)
class Piece:
    """Some subscriptions of a DataFrame, checked.

    Attributes:
        columns: their filters, those of a subscription next to each other.
        ids: int64, one a subscription: what the DataFrame calls them.
    """

    columns: FilterColumns
    ids: Int64s

    @property
    def of(self) -> Int64s:
        """int64, one a filter: which of the ``ids`` it belongs to."""
        given = self.columns.subscription
        return np.arange(len(self.columns)) if given is None else given


def pieces_of(form: Form, batches: Iterator[pa.RecordBatch]) -> Iterator[Piece]:
    """The subscriptions of a task's rows, in pieces.

    Raises:
        SubscriptionError: one is malformed; names its id.
    """
    import pyarrow as pa

    for batch in together(batches, _ROWS, _BYTES):
        yield read_piece(form, pa.Table.from_batches([batch]))


def read_piece(form: Form, table: pa.Table) -> Piece:
    """The subscriptions of some rows.

    Raises:
        SubscriptionError: one is malformed; names its id, and what is wrong where.
    """
    ids = table.column("id")
    if ids.null_count:
        raise SubscriptionError(f"subscriptions: column {form.id} is null in a row; each has an id")
    try:
        columns = _columns(form, table)
    except SubscriptionError:
        for row, id in enumerate(ids.to_pylist()):
            _explain(form, table.slice(row, 1), id)
        raise
    return Piece(columns.grouped(), ids.to_numpy())


def _explain(form: Form, row: pa.Table, id: int) -> None:
    """Raises the error of one row, if it has one, with its id."""
    try:
        if form.text and row.column("subscription")[0].is_valid:
            as_subscription(row.column("subscription")[0].as_py())
        _columns(form, row)
    except SubscriptionError as error:
        message = (
            error.message.removeprefix("filter 0, ")
            .removeprefix("filter 0: ")
            .removeprefix("subscription 0: ")
        )
        raise SubscriptionError(
            f"subscription {id}: {message}", error.source, error.line, error.column
        ) from None


def _columns(form: Form, table: pa.Table) -> FilterColumns:
    """The rows as checked columns of filters."""
    if form.text:
        texts = table.column("subscription")
        if texts.null_count:
            raise SubscriptionError("filter 0: its text is null")
        columns = FilterColumns.from_subscriptions(texts.to_pylist())
        columns.check(form.space)
        return columns
    found = _contents(table) if form.constraints else _nothing(table.num_rows)
    columns = FilterColumns.from_arrays(**found, **_areas(table, form), space=form.space)
    columns.check(form.space)
    return columns


def _contents(table: pa.Table) -> dict[str, Any]:
    from evflow.matching.columns.arrow import read_filters

    return read_filters(table.select(["constraints"]))


def _nothing(count: int) -> dict[str, Any]:
    """So many filters without constraints."""
    return {
        "name": np.zeros(0, np.int32),
        "names": (),
        "op": np.zeros(0, np.uint8),
        "start": np.zeros(count + 1, np.int64),
    }


def _areas(table: pa.Table, form: Form) -> dict[str, Any]:
    if not form.area:
        return {}
    columns = [table.column(role) for role in ("x", "y", "radius")]
    missing = [column.is_null().to_numpy() for column in columns]
    numbers = [np.array(column.fill_null(np.nan).to_numpy(), np.float64) for column in columns]
    for lacks, held in zip(missing, numbers, strict=True):
        # Without a centre a filter is true everywhere, which nobody means with NaN or with half an area.
        wrong = np.flatnonzero((lacks != missing[0]) | (np.isnan(held) & ~lacks))
        if len(wrong):
            raise SubscriptionError(f"filter {wrong[0]}: {_told(form, columns, int(wrong[0]))}")
    return dict(zip(("x", "y", "radius"), numbers, strict=True))


def _told(form: Form, columns: list[pa.ChunkedArray], row: int) -> str:
    values = (column[row].as_py() for column in columns)
    told = (
        f"{name} {'null' if held is None else held}" for name, held in zip(form.area, values, strict=True)
    )
    return f"its area is {', '.join(told)}; an area has three numbers, or is null in all three"


def chosen(piece: Piece, which: Int64s) -> Piece:
    """Some of the subscriptions of a piece, with all of their filters.

    Args:
        piece: all of them.
        which: indices of its ``ids``, rising.
    """
    first = np.searchsorted(piece.of, which)
    lengths = np.searchsorted(piece.of, which, "right") - first
    columns = piece.columns.take(places_of(first, lengths))
    taken: dict[str, Any] = {"subscription": np.repeat(np.arange(len(which)), lengths)}
    taken["text"], taken["texts"] = _used(columns.text, columns.texts)
    if columns.area is not None and columns.areas is not None:
        there = np.flatnonzero(columns.area >= 0)
        taken["areas"] = columns.areas.take(columns.area[there])
        taken["area"] = np.full(len(columns), -1, np.int64)
        taken["area"][there] = np.arange(len(there))
    return Piece(replace(columns, **taken, count=len(which)), piece.ids[which])


def _used(text: NDArray[np.int32], texts: Any) -> tuple[NDArray[np.int32], list[str]]:
    """Operands and only those strings that they are."""
    used, numbers = np.unique(text, return_inverse=True)
    kept = [texts[number] for number in used.tolist() if number >= 0]
    return (numbers - (len(used) - len(kept))).astype(np.int32), kept


def _boxes_in(piece: Piece, space: str) -> Boxes:
    """The boxes of a piece's areas; each is of a filter."""
    x, y, radius = piece.columns.x, piece.columns.y, piece.columns.radius
    none = np.zeros(0)
    if x is None or y is None or radius is None:
        found = boxes_of(space, none, none, none)
    else:
        there = np.flatnonzero(~np.isnan(x))
        round = boxes_of(space, x[there], y[there], radius[there])
        found = Boxes(round.low, round.high, there[round.of])
    if piece.columns.area is None or piece.columns.areas is None:
        return found
    there = np.flatnonzero(piece.columns.area >= 0)
    shaped = boxes_of_shapes(piece.columns.areas.take(piece.columns.area[there]))
    return Boxes(
        np.concatenate([found.low, shaped.low]),
        np.concatenate([found.high, shaped.high]),
        np.concatenate([found.of, there[shaped.of]]),
    )


def touched(piece: Piece, tiles: Tiles, space: str, wide: int) -> tuple[Int64s, Int64s, Int64s]:
    """Where the subscriptions of a piece belong.

    Returns:
        The pairs of subscription and tile, and the subscriptions that belong to no tiles: one of their
        filters has no area, or they touch more than ``wide``.
    """
    boxes, of = _boxes_in(piece, space), piece.of
    which, tile = tiles.touching(Boxes(boxes.low, boxes.high, of[boxes.of]))
    everywhere = np.bincount(which, minlength=len(piece.ids)) > wide
    located = np.zeros(len(of), bool)
    located[boxes.of] = True
    everywhere[of[~located]] = True
    kept = ~everywhere[which]
    return which[kept], tile[kept], np.flatnonzero(everywhere)


def everywhere(tiles: Tiles, wide: int, space: str, piece: Piece) -> Piece:
    """The subscriptions of a piece that belong to no tiles."""
    return chosen(piece, touched(piece, tiles, space, wide)[2])


@dataclass(frozen=True, eq=False)
class _Made:
    """The function of a task that makes something of each piece of the subscriptions."""

    form: Form
    make: Callable[[Piece], Any]

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import pyarrow as pa

        def row(made: Any) -> pa.RecordBatch:
            return pa.record_batch({"made": pa.array([pickle.dumps(made)], pa.binary())})

        try:
            for piece in pieces_of(self.form, batches):
                yield row(self.make(piece))
        except SubscriptionError as error:
            yield row(error)


def _made(given: Subscriptions, make: Callable[[Piece], Any]) -> list[Any]:
    """What a function makes of the pieces of all subscriptions, in the executors.

    Raises:
        SubscriptionError: a subscription is malformed; names its id.
    """
    table = given.rows.mapInArrow(_Made(given.form, make), "made binary").toArrow()
    found = [pickle.loads(made.as_buffer()) for made in table.column("made")]
    for made in found:
        if isinstance(made, SubscriptionError):
            raise made
    return found


def _itself(piece: Piece) -> Piece:
    return piece


def collect(given: Subscriptions, tiles: Tiles | None = None, wide: int = 0) -> list[Piece]:
    """The subscriptions.

    Args:
        given: says which.
        tiles: only those that belong to none of these; else all.
        wide: see ``touched``.

    Raises:
        SubscriptionError: one is malformed; names its id.
    """
    if tiles is not None:
        return _made(given, partial(everywhere, tiles, wide, given.form.space))
    if given.form.text:
        return _made(given, _itself)
    # Quicker than to hand them over to workers and back.
    return list(pieces_of(given.form, iter(given.rows.toArrow().to_batches())))


def refuse_repeats(given: Subscriptions, pieces: Sequence[Piece] | None = None) -> None:
    """Checks that no two subscriptions have one id.

    Args:
        given: says which.
        pieces: all subscriptions if they are at hand; else Spark looks.

    Raises:
        SubscriptionError: two have.
    """
    if pieces is None:
        from pyspark.sql import functions as F

        ids = given.rows.groupBy("id").agg(F.count("*").alias("count"))
        found = [row["id"] for row in ids.where("count > 1").limit(1).collect()]
    else:
        ordered = np.sort(np.concatenate([np.zeros(0, np.int64), *(piece.ids for piece in pieces)]))
        found = ordered[1:][ordered[1:] == ordered[:-1]][:1].tolist()
    if found:
        raise SubscriptionError(
            f"subscriptions: id {found[0]} stands twice in column {given.form.id}; each has its own"
        )


@dataclass(frozen=True, eq=False)
class Survey:
    """How much there is of what.

    Attributes:
        filters: how many.
        areas: how many filters have one.
        nbytes: of an index of all, estimated.
        names: the attributes that constraints use.
        boxes: of a sample of the areas.
        share: of the areas that are in the sample.
    """

    filters: int
    areas: int
    nbytes: int
    names: frozenset[str]
    boxes: Boxes
    share: float

    @classmethod
    def of(cls, form: Form, share: float, piece: Piece) -> Survey:
        """The survey of one piece."""
        columns, boxes = piece.columns, _boxes_in(piece, form.space)
        # The same of equal subscriptions, wherever they are read.
        mixed = piece.ids[piece.of[boxes.of]].astype(np.uint64) * _MIXED
        taken = (mixed >> np.uint64(11)) < np.uint64(share * (1 << 53))
        sample = Boxes(boxes.low[taken], boxes.high[taken], boxes.of[taken])
        areas, nbytes = len(np.unique(boxes.of)), bytes_of(columns)
        return cls(len(columns), areas, nbytes, columns.attributes, sample, share)


def survey(given: Subscriptions, share: float) -> Survey:
    """Reads all subscriptions, and counts.

    Args:
        given: says which.
        share: of the areas that are to be in the sample, 0 to 1.

    Raises:
        SubscriptionError: one is malformed; names its id.
    """
    parts: list[Survey] = _made(given, partial(Survey.of, given.form, share))
    none = np.zeros((0, 2))
    low = np.concatenate([none, *(part.boxes.low for part in parts)])
    high = np.concatenate([none, *(part.boxes.high for part in parts)])
    filters, areas, nbytes = (
        sum(getattr(part, name) for part in parts) for name in ("filters", "areas", "nbytes")
    )
    names = frozenset[str]().union(*(part.names for part in parts))
    return Survey(filters, areas, nbytes, names, Boxes(low, high, np.arange(len(low))), share)


def bytes_of(columns: FilterColumns) -> int:
    """The bytes of an index of filters, estimated."""
    return _estimated(len(columns), len(columns.name), sum(map(len, columns.texts)))


def _estimated(filters: int, constraints: int, characters: int = 0) -> int:
    return _FILTER * filters + _CONSTRAINT * constraints + 2 * characters


def counted(given: Subscriptions) -> tuple[int, int]:
    """How many subscriptions there are, and the bytes of an index of them, estimated without reading them.

    One aggregate, which Spark makes by itself; none for areas that the driver holds in any case.
    """
    from pyspark.sql import functions as F

    form, rows = given.form, given.rows
    held = None if form.text or form.constraints else _held(rows)
    if held is not None:
        return held, _estimated(held, 0)
    size = F.length("subscription") if form.text else F.size("constraints") if form.constraints else F.lit(0)
    count, total = rows.agg(F.count("*"), F.coalesce(F.sum(size), F.lit(0))).collect()[0]
    # A constraint takes about 25 characters.
    constraints = total // 25 if form.text else total
    return int(count), _estimated(int(count), int(constraints))


def _held(rows: DataFrame) -> int | None:
    """How many rows of a DataFrame the driver holds, as those of local data; None if it is made of others."""
    if is_connect(rows.sparkSession):
        return None
    classic: Any = rows
    plan = classic._jdf.queryExecution().optimizedPlan()
    return int(plan.data().size()) if plan.getClass().getSimpleName() == "LocalRelation" else None
