"""What tasks do: a State Manager sees the moves of entities, then Tile Managers the moves in tiles."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from evflow.errors import SparkError
from evflow.events.gather import places_of
from evflow.spark.matching.broadcast import prepare_worker
from evflow.spark.replay.columns import Form, rows_of
from evflow.tiles.grid import Grid
from evflow.tiles.kernels import fields
from evflow.tiles.layout import Layout
from evflow.tiles.manager import TileManager
from evflow.tiles.messages import GONE, MOVE, POLYGON, SILENT, SUBSCRIPTION, Message, Place, Rows, words
from evflow.tiles.moves import MOST_ID, MOST_TILES, are_zones
from evflow.tiles.ring import Ring
from evflow.tiles.state import StateManager
from evflow.tiles.store import Content, outlines_of
from evflow.tiles.wire import contents_of, packed

if TYPE_CHECKING:
    import pyarrow as pa

MOVES = "slice int, tile long, time long, move binary, contents binary"
"""The columns of moves in tiles, which are divided by slice and tile, and ordered by slice and time."""

PAIRS = "pub long, pub_time long, sub long, sub_time long, born long, apart boolean"
"""The columns of matches, and of pairs that have come apart; ``born`` is when the subscription began."""

_AT_ONCE = 1 << 18
"""Moves in tiles that are made at once, about."""

_FRONTEND = Place("frontend", 0)


@lru_cache(4)
def _layout(zoom: int) -> Layout:
    """That of a system of one host; once a worker process."""
    ring = Ring({0: ("task",)})
    return Layout(Grid(zoom), ring, ring)


@dataclass(frozen=True)
class Spread:
    """The function of a task that has all moves of some entities, ordered by id and time.

    A slice is a part of the time, of which a task may know nothing but this: so it begins with silent copies
    of what was there before.

    Attributes:
        form: how rows say what moves are.
        zoom: of the grid.
        cuts: the times at which slices begin, but for the first.
    """

    form: Form
    zoom: int
    cuts: tuple[int, ...] = ()

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        prepare_worker()
        state = StateManager(Place("state", 0), _layout(self.zoom))
        rows, contents = np.zeros(0, MOVE), dict[int, Content]()
        for batch in batches:
            # How long a state lasts is known from the next row.
            known = len(rows)
            more, named = rows_of(self.form, batch)
            rows, contents = np.concatenate([rows, more]), contents | named
            _check_order(np.column_stack([rows["id"], rows["version"]]))
            self._check_times(rows)
            _write_births(rows, known)
            yield from self._spread(state, rows, len(rows) - 1, contents)
            rows = rows[-1:].copy()
            contents = {number: contents[number] for number in _named(rows).ravel().tolist() if number}
        yield from self._spread(state, rows, len(rows), contents)

    def _check_times(self, rows: Rows) -> None:
        """Checks that no entity has two states at one time.

        Raises:
            SparkError: one has.
        """
        same = (rows["id"][1:] == rows["id"][:-1]) & (rows["version"][1:] == rows["version"][:-1])
        state = words(rows)[:, [fields.WORD, fields.CONTENT, *range(fields.ZONE, fields.TILE)]]
        # The same once more is dropped as a late move is.
        for at in np.flatnonzero(same & (state[1:] != state[:-1]).any(axis=1))[:1]:
            raise SparkError(
                f"tiles: {self.form.shown(rows[at])} stands in two rows, which differ: expected one state at "
                "a time"
            )

    def _spread(
        self, state: StateManager, rows: Rows, count: int, contents: dict[int, Content]
    ) -> Iterator[pa.RecordBatch]:
        """The first of some moves in their tiles."""
        if count < 1:
            return
        state.contents.learn(contents)
        sizes = self._checked(rows[:count], state)
        # A state is told in the slices in which it is known without a move.
        first = np.searchsorted(self.cuts, rows["version"], "right")
        last = np.full(count, len(self.cuts))
        follows = np.flatnonzero(rows["id"][1:] == rows["id"][:-1])
        follows = follows[follows < count]
        last[follows] = first[follows + 1]
        lasts = np.where(rows["flags"][:count] & GONE, 0, last - first[:count])
        parts = np.cumsum(sizes * (lasts + 1)) // _AT_ONCE
        for start, stop in pairwise([0, *(np.flatnonzero(np.diff(parts)) + 1).tolist(), count]):
            part = rows[start:stop]
            for _, message in state.receive(_FRONTEND, Message("moves", part, contents=contents)):
                if message.kind == "moves":
                    slices = np.searchsorted(self.cuts, message.rows["version"], "right")
                    yield _told(message.rows, slices, message.contents)
            zone, tile = state.layout.grid.tiles(part[lasts[start:stop] > 0], state.contents)
            at = start + np.flatnonzero(lasts[start:stop])[zone]
            copies, slices = rows[np.repeat(at, lasts[at])], places_of(first[at] + 1, lasts[at])
            copies["tile"] = np.repeat(tile, lasts[at])
            copies["flags"] |= SILENT
            if len(copies):
                yield _told(copies, slices, contents)
        kept = np.zeros(len(state.entities), bool)
        kept[-1:] = True
        state.entities.keep(kept)

    def _checked(self, rows: Rows, state: StateManager) -> NDArray[np.int64]:
        """The tiles that zones touch at most.

        Raises:
            SparkError: an id or a zone is wrong.
        """
        for at in np.flatnonzero((rows["id"] < 0) | (rows["id"] > MOST_ID))[:1]:
            raise SparkError(f"tiles: {self.form.shown(rows[at])}: expected ids from 0 to {MOST_ID}")
        live = rows["flags"] & GONE == 0
        for at in np.flatnonzero(live & ~are_zones(rows, state.contents))[:1]:
            zone = rows["zone"][at].tolist()
            found = f"circle {zone[:3]}: expected" if rows["kind"][at] == 0 else f"box {zone}: expected"
            raise SparkError(
                f"tiles: {self.form.shown(rows[at])}: {found} latitudes from -90 to 90, longitudes from -180 "
                "to 180, a radius of at least 0 m; south <= north, west <= east <= west + 360"
            )
        sizes = state.layout.grid.counts(rows, state.contents)
        for at in np.flatnonzero(live & (sizes > MOST_TILES))[:1]:
            raise SparkError(
                f"tiles: {self.form.shown(rows[at])}: its zone touches up to {sizes[at]:,} tiles, of at most "
                f"{MOST_TILES:,}: make tiles larger with metres="
            )
        return np.where(live, sizes, 1)


def _check_order(keys: NDArray[np.int64]) -> None:
    """Checks that rows of integers, (N, K), do not fall.

    Raises:
        SparkError: they do.
    """
    before, after = keys[:-1], keys[1:]
    falls, same = np.zeros(len(after), bool), np.ones(len(after), bool)
    for column in range(keys.shape[1]):
        falls |= same & (after[:, column] < before[:, column])
        same &= after[:, column] == before[:, column]
    if falls.any():
        raise SparkError("tiles: rows of a task came in no order, though sorted: report this")


def _write_births(rows: Rows, known: int) -> None:
    """Writes when each entity began: nothing leaves a subscription that was deleted, so it begins anew.

    It stands in ``sender``, which Tile Managers hand on with matches.
    """
    first = np.ones(len(rows), bool)
    first[1:] = (rows["id"][1:] != rows["id"][:-1]) | (rows["flags"][:-1] & GONE > 0)
    born = rows["version"].copy()
    born[:known] = rows["sender"][:known]
    rows["sender"] = born[np.maximum.accumulate(np.where(first, np.arange(len(rows)), 0))]


def _named(rows: Rows) -> NDArray[np.int64]:
    """The numbers of the attributes and of the outline that each move names, or 0; (N, 2)."""
    named = np.zeros((len(rows), 2), np.int64)
    named[:, 0] = rows["content"]
    named[rows["kind"] == POLYGON, 1] = outlines_of(rows)
    return named


def _told(rows: Rows, slices: NDArray[np.int64], contents: dict[int, Content]) -> pa.RecordBatch:
    """Moves in tiles as rows of ``MOVES``; each brings what it names."""
    import pyarrow as pa

    n, size = len(rows), MOVE.itemsize
    offsets = np.arange(n + 1, dtype=np.int32) * size
    data = pa.py_buffer(np.ascontiguousarray(rows))
    moves = pa.Array.from_buffers(pa.binary(), n, [None, pa.py_buffer(offsets), data])
    named, brought = _named(rows), pa.nulls(n, pa.binary())
    if named.any():
        sets, which = np.unique(named, axis=0, return_inverse=True)
        given = [packed({number: contents[number] for number in pair if number}) for pair in sets.tolist()]
        brought = pa.array([each or None for each in given], pa.binary()).take(pa.array(which.ravel()))
    columns = {
        "slice": pa.array(slices, pa.int32()),
        "tile": pa.array(rows["tile"]),
        "time": pa.array(rows["version"]),
        "move": moves,
        "contents": brought,
    }
    return pa.record_batch(columns)


@dataclass(frozen=True)
class Replay:
    """The function of a task that has the moves in some tiles, ordered by slice and time.

    Attributes:
        zoom: of the grid.
        events: whether the subscriptions ask for events.
    """

    zoom: int
    events: bool

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        prepare_worker()
        manager, last = TileManager(Place("tile", 0), _layout(self.zoom)), np.zeros((0, 2), np.int64)
        for batch in _whole(batches):
            keys = np.column_stack([batch[name].to_numpy() for name in ("slice", "time")])
            _check_order(np.concatenate([last, keys]))
            for start, stop in pairwise([0, *(np.flatnonzero(np.diff(keys[:, 0])) + 1).tolist(), len(keys)]):
                if len(last) and last[0, 0] != keys[start, 0]:
                    manager = TileManager(manager.place, manager.layout)
                last = keys[stop - 1 : stop]
                rows, contents = _moves(batch.slice(start, stop - start))
                for found in manager.matches(Message("moves", rows, contents=contents)):
                    if len(found):
                        yield self._pairs(found)

    def _pairs(self, found: Rows) -> pa.RecordBatch:
        import pyarrow as pa

        names = {"pub": "pub", "pub_time": "pub_version", "sub": "sub", "sub_time": "sub_version"}
        columns = {name: pa.array(found[field]) for name, field in names.items()}
        if self.events:
            columns["born"] = pa.array(found["sender"])
            columns["apart"] = pa.array(found["event"] & 8 > 0)
        return pa.record_batch(columns)


def _whole(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Batches put together anew, none of them empty: all moves of a time are in one."""
    import pyarrow as pa

    held, last = list[pa.RecordBatch](), np.zeros(2, np.int64)
    for batch in batches:
        if not batch.num_rows:
            continue
        keys = np.column_stack([batch[name].to_numpy() for name in ("slice", "time")])
        at = len(keys) - int((keys == keys[-1]).all(axis=1).sum())
        if at or (held and (keys[0] != last).any()):
            yield from pa.Table.from_batches([*held, batch.slice(0, at)]).combine_chunks().to_batches()
            held = []
        held.append(batch.slice(at))
        last = keys[-1]
    if held:
        yield from pa.Table.from_batches(held).combine_chunks().to_batches()


def _moves(batch: pa.RecordBatch) -> tuple[Rows, dict[int, Content]]:
    """Moves in tiles, ordered by time and rank, and what they name."""
    # Spark may be set to give longer offsets.
    held = batch["move"].cast("binary")
    offsets = np.frombuffer(held.buffers()[1], np.int32)[held.offset :]
    rows = np.frombuffer(held.buffers()[2], MOVE, len(held), int(offsets[0]))
    contents: dict[int, Content] = {}
    for given in batch["contents"].unique().drop_null().to_pylist():
        contents |= contents_of(given)
    # At one time subscriptions move first, each side in the order of ids.
    publications = rows["flags"] & SUBSCRIPTION == 0
    return rows[np.lexsort((rows["id"], publications, rows["version"]))], contents
