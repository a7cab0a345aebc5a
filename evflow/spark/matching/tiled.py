"""The tiles plan: events and subscriptions meet in the tasks of their tiles.

Both sides are one stream of rows, sorted by group, subscriptions before events. So a task has the index of
one tile at a time and one batch of events, however many there are. What a tile's estimate did not foresee is
on disk: subscriptions beyond the limit go to further indexes, which are mapped.
"""

from __future__ import annotations

import pickle
import shutil
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from evflow.errors import SparkError
from evflow.spark.matching.broadcast import Opened, Shipped, built, opened, prepare_worker
from evflow.spark.matching.events import Question
from evflow.spark.matching.join import Pairs, Shape
from evflow.spark.matching.layout import Layout
from evflow.spark.matching.options import Settings
from evflow.spark.matching.subscriptions import Form, Piece, bytes_of, chosen, pieces_of, touched

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import Column, DataFrame

KEY, PIECE = "evflow key", "evflow piece"


def tiled(
    question: Question, layout: Layout, names: frozenset[str], beside: Shipped | None, limit: int
) -> DataFrame:
    """The pairs, by tiles.

    Args:
        question: what is matched.
        layout: which task gets what.
        names: the attributes that constraints use.
        beside: the index of the subscriptions that belong to no tiles, if there are any.
        limit: bytes of an index that a task holds in memory.
    """
    from pyspark.sql import functions as F

    shape = question.shape(names)
    events = question.events.select(*question.columns(shape))
    first, second = (F.col(shape.column(name)).cast("double") for name in question.given.settings.location)
    if beside is None:
        events = events.where(first.isNotNull() & second.isNotNull())
    events = events.select(
        _keys(question, shape, layout, first, second), F.lit(None).cast("binary").alias(PIECE), "*"
    )
    rows = question.given.rows
    pieces = rows.mapInArrow(Spread(question.given.form, layout), f"`{KEY}` long, `{PIECE}` binary")
    empty = [F.lit(None).cast(field.dataType).alias(field.name) for field in events.schema.fields[2:]]
    both = events.union(pieces.select("*", *empty))
    partition = F.shiftright(F.col(f"`{KEY}`"), 32).cast("int")
    ordered = both.repartitionById(layout.partitions, partition).sortWithinPartitions(f"`{KEY}`")
    return ordered.mapInArrow(Tiled(shape, question.given.settings, beside, limit), question.result())


def _keys(question: Question, shape: Shape, layout: Layout, first: Column, second: Column) -> Column:
    """The column of the events' keys; only places, and what groups share them by, go to Python."""
    import pyarrow as pa
    from pyspark.sql import functions as F
    from pyspark.sql.pandas.functions import arrow_udf

    space = question.given.settings.space

    def key(first: pa.Array, second: pa.Array, *spread: pa.Array) -> pa.Array:
        numbers = [column.fill_null(np.nan).to_numpy(zero_copy_only=False) for column in (first, second)]
        shared = spread[0].to_numpy() if spread else None
        return pa.array(layout.of_events(space, numbers[0], numbers[1], shared))

    spread = [F.xxhash64(*(F.col(shape.column(name)) for name in shape.keys))] if layout.divided else []
    # Spark asks for types, not for the names of types.
    key.__annotations__ = dict.fromkeys(("first", "second", "spread", "return"), pa.Array)
    define: Any = arrow_udf  # Spark's own annotations leave this form out
    made: Column = define(key, "long")(first, second, *spread).alias(KEY)
    return made


@dataclass(frozen=True, eq=False)
class Spread:
    """The function of a task that sends subscriptions to the groups of their tiles."""

    form: Form
    layout: Layout

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import pyarrow as pa

        for piece in pieces_of(self.form, batches):
            which, tile, _ = touched(piece, self.layout.tiles, self.form.space, self.layout.wide)
            order = np.argsort(tile, kind="stable")
            found, start = np.unique(tile[order], return_index=True)
            parts = np.split(which[order], start[1:])
            packed = [pickle.dumps(chosen(piece, part)) for part in parts] if len(found) else []
            keys, at = self.layout.of_subscriptions(found)
            for key, number in zip(keys.tolist(), at.tolist(), strict=True):
                yield pa.record_batch(
                    [pa.array([key]), pa.array([packed[number]], pa.binary())], [KEY, PIECE]
                )


@dataclass(frozen=True)
class Tiled:
    """The function of a task that has the rows of some groups, one after the other."""

    shape: Shape
    settings: Settings
    beside: Shipped | None
    limit: int

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        prepare_worker()
        around = [] if self.beside is None else [opened(self.beside)]
        pairs = Pairs(self.shape)
        last = -1
        with _Tile(self.settings, self.limit) as tile:
            for batch in batches:
                for key, part in _runs(batch):
                    if key < last:
                        raise SparkError("match: rows of a task came in no order, though sorted: report this")
                    last = key
                    tile.turn_to(key >> 1)
                    if key & 1:
                        yield from pairs.of(part, [*around, *tile.indexes()])
                    else:
                        for piece in part.column(1):
                            tile.add(pickle.loads(piece.as_buffer()))


def _runs(batch: pa.RecordBatch) -> Iterator[tuple[int, pa.RecordBatch]]:
    """The pieces of a sorted batch whose rows have one key."""
    keys = batch.column(0).to_numpy()
    if not len(keys):
        return
    bounds = [0, *(np.flatnonzero(keys[1:] != keys[:-1]) + 1).tolist(), len(keys)]
    for start, stop in pairwise(bounds):
        yield int(keys[start]), batch.slice(start, stop - start)


class _Tile:
    """The subscriptions of the group that a task is at."""

    def __init__(self, settings: Settings, limit: int) -> None:
        self._settings, self._limit = settings, limit
        self._group = -1
        self._waiting: list[Piece] = []
        self._size = 0
        self._indexes: list[Opened] = []
        self._folder: Path | None = None

    def __enter__(self) -> _Tile:
        return self

    def __exit__(self, *error: Any) -> None:
        self.turn_to(-1)

    def turn_to(self, group: int) -> None:
        """Forgets the subscriptions of another group."""
        if group == self._group:
            return
        self._group = group
        self._waiting, self._size, self._indexes = [], 0, []
        if self._folder is not None:
            # What is still mapped stays readable until it is let go.
            shutil.rmtree(self._folder, ignore_errors=True)
            self._folder = None

    def add(self, piece: Piece) -> None:
        """Takes in subscriptions."""
        self._waiting.append(piece)
        self._size += bytes_of(piece.columns)
        if self._size > self._limit:
            self._build(on_disk=True)

    def indexes(self) -> list[Opened]:
        """What the events of the group are matched with."""
        if self._waiting:
            self._build(on_disk=False)
        return self._indexes

    def _build(self, on_disk: bool) -> None:
        index = built(self._settings, self._waiting)
        self._waiting, self._size = [], 0
        if on_disk:
            if self._folder is None:
                self._folder = Path(tempfile.mkdtemp(prefix="evflow-tile-"))
            folder = self._folder / str(len(self._indexes))
            index.matcher.save(folder)
            index = Opened(type(index.matcher).load(folder), index.ids)
        self._indexes.append(index)
