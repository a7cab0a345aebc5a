"""The ledger of a match stone: what has changed since its graph was written, as a file that survives a kill.

What counts is the latest of each: a row for each subscription that came or went, and one for each area that
moved. So what is applied to it twice is as if it had been once. It lies over what the graph itself says of
subscriptions, which is not in it.

A subscription is known by its text, if it has one, else by its id: the graph may give a text another id once
it has changed. Rows say the text last, and only where there is one.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain, islice
from operator import itemgetter
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import msgpack
import msgspec
from msgspec import convert

from evflow.disk import Changes, Meta
from evflow.errors import FlowError
from evflow.matching.textids import LONGEST
from evflow.outside import from_msgpack, shown

ALL = -1
"""Stands for all filters of a subscription that have an area."""

_VERSION = 1
Id = Annotated[int, msgspec.Meta(ge=0, le=(1 << 31) - 2)]
Text = Annotated[str, msgspec.Meta(min_length=1, max_length=LONGEST)]
_AT_ONCE = 1000
"""Rows in one piece of a file that is written anew."""


class Entry(NamedTuple):
    """A subscription that came or was replaced, as ``packing`` has it; or that went: ``filters`` is None."""

    id: Id
    port: Annotated[int, msgspec.Meta(ge=0, le=(1 << 31) - 1)]
    filters: bytes | None
    text: Text | None = None


class Forgotten(NamedTuple):
    """A subscription that went, and that the graph does not have."""

    text: Text


class Moved(NamedTuple):
    """An area that moved, of one filter or of ``ALL``; a radius of None has not changed."""

    id: Id
    filter: Annotated[int, msgspec.Meta(ge=ALL, le=(1 << 31) - 2)]
    x: float
    y: float
    radius: float | None
    text: Text | None = None


class _Latest(NamedTuple):
    """What changes have led to: subscriptions by text or id, and areas by that and filter."""

    entries: dict[int | str, Entry]
    moves: dict[int | str, dict[int, Moved]]


class Ledger(Changes[_Latest]):
    """A ledger in a file, which is made when there is something to write.

    Args:
        path: the file; until ``close`` nobody else has it.

    Raises:
        FlowError: it cannot be used, or another has it; each method raises it too.
    """

    def __init__(self, path: Path) -> None:
        super().__init__(path, "subscriptions file", "subscriptions 1")

    def _none(self) -> _Latest:
        return _Latest({}, {})

    def _apply(self, state: _Latest, change: Meta) -> None:
        for row in change:
            if len(row) > len(Entry._fields):
                _move(state.moves, _moved(row))
            elif len(row) > len(Forgotten._fields):
                entry = convert(row, Entry)
                key = entry.id if entry.text is None else entry.text
                state.entries[key] = entry
                state.moves.pop(key, None)
            else:
                text = convert(row, Forgotten).text
                state.entries.pop(text, None)
                state.moves.pop(text, None)

    def _changes(self, state: _Latest) -> Iterator[Meta]:
        rows: Iterator[Entry | Moved] = chain(
            state.entries.values(), *(moves.values() for moves in state.moves.values())
        )
        while some := _rows(islice(rows, _AT_ONCE)):
            yield some

    def subscribed(self, entries: Iterable[Entry | Forgotten]) -> None:
        """Subscriptions came, or took the place of those with their ids, or went."""
        self.change(_rows(entries))

    def moved(self, moves: Iterable[Moved]) -> None:
        """Areas have moved; a later one of the same filter wins."""
        self.change(_rows(moves))

    def read(self) -> tuple[list[Entry], list[Moved]]:
        """All that is in it; what moved all filters of a subscription comes before what moved one."""
        entries, moves = self.load()
        moved = [move for of_one in moves.values() for move in of_one.values()]
        return sorted(entries.values(), key=itemgetter(0)), sorted(moved, key=itemgetter(0, 1))

    def pack(self) -> bytes:
        """All that is in it, as bytes that ``unpack`` takes."""
        entries, moves = self.read()
        packed: bytes = msgpack.packb([_VERSION, _rows(entries), _rows(moves)])
        return packed

    def take(self, entries: Sequence[Entry], moves: Sequence[Moved]) -> None:
        """From now on exactly this is in it."""
        if entries or moves or self.begun:
            state = self._none()
            self._apply(state, [*entries, *moves])
            self.replace(state)


def _rows(changes: Iterable[Entry | Forgotten | Moved]) -> list[tuple[Any, ...]]:
    """Changes as they are written: as an evflow without texts does, where they have none."""
    return [change if change.text is not None else change[:-1] for change in changes]


def _move(moves: dict[int | str, dict[int, Moved]], move: Moved) -> None:
    of_one = moves.setdefault(move.id if move.text is None else move.text, {})
    if move.filter == ALL and move.radius is not None:
        of_one.clear()
    elif move.filter == ALL:
        # Each filter that moved by itself keeps its own radius.
        for filter, before in of_one.items():
            of_one[filter] = before._replace(x=move.x, y=move.y)
    if move.radius is None and move.filter in of_one:
        move = move._replace(radius=of_one[move.filter].radius)
    of_one[move.filter] = move


def unpack(data: bytes) -> tuple[list[Entry], list[Moved]]:
    """What ``Ledger.pack`` made.

    Raises:
        FlowError: it is malformed.
    """
    try:
        version, entries, moves = from_msgpack(data)
        if version != _VERSION:
            raise ValueError(f"version {shown(version)}")
        return convert(entries, list[Entry]), list(map(_moved, moves))
    except (ValueError, TypeError) as error:
        raise FlowError(f"the subscriptions of a snapshot are malformed: {shown(error)}") from None


def _moved(row: Sequence[Any]) -> Moved:
    moved = convert(row, Moved)
    if not math.isfinite(moved.x) or not math.isfinite(moved.y):
        raise ValueError(f"{shown(row)} is not an area that moved")
    return moved
