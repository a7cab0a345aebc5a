"""The running half of a match stone: batches in, matches out, and what it is when it moves."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar, cast

import numpy as np

from evflow.errors import FlowError
from evflow.events.batch import EventBatch
from evflow.matching.engine import Matches
from evflow.outside import shown
from evflow.stone import Actor, Checkpoint, Context, Stone
from evflow.stones.matching.book import Book
from evflow.stones.matching.changes import apply_changes
from evflow.stones.matching.ledger import unpack
from evflow.stones.matching.output import ports_of, with_ids

if TYPE_CHECKING:
    from evflow.stones.match import Match

CHANGES, EVENTS = "changes", "events"
"""The inputs of a match stone."""

T = TypeVar("T")

_LAYOUT = "changes of subscriptions"
_MOST_EVENTS = 8192
_MEASURE = 5.0


class Matching(Actor):
    """The running half of a ``Match``; see ``evflow.stone.Actor``."""

    def __init__(self, context: Context, stone: Match, book: Book) -> None:
        super().__init__(context)
        self._stone = stone
        self._book = book
        self._measure = 0.0
        self._tell(0, 0)

    def receive(self, batch: EventBatch, input: str) -> None:
        if input == CHANGES:
            apply_changes(
                self._book, batch, lambda at, reason: self.context.fault(batch.slice(at, at + 1), reason)
            )
            self._tell(0, 0)
            return
        # In parts, since what a batch matches may be much more than the batch.
        for start in range(0, len(batch), _MOST_EVENTS):
            whole = len(batch) <= _MOST_EVENTS
            self._match(batch if whole else batch.slice(start, start + _MOST_EVENTS))

    def _match(self, batch: EventBatch) -> None:
        matches = self._book.matcher.match_batch(batch)
        matched = int(np.count_nonzero(np.diff(matches.offsets)))
        if self._stone.route:
            for port, positions in ports_of(matches, self._book.ports_of(matches.ids)):
                self._emit(batch, positions, port)
        else:
            with_others = self._stone.others == 0
            if matched or with_others:
                self.context.emit(with_ids(batch, matches, self._stone.field, with_others))
        if matched < len(batch):
            self._emit_others(batch, matches)
        self._tell(matched, len(matches.ids))

    def _emit(self, batch: EventBatch, positions: np.ndarray[Any, Any], port: int) -> None:
        self.context.emit(batch if len(positions) == len(batch) else batch.select(positions), port)

    def _emit_others(self, batch: EventBatch, matches: Matches) -> None:
        others = np.flatnonzero(np.diff(matches.offsets) == 0)
        port = self._stone.others
        if port is None:
            self.context.drop(len(others))
        elif port or self._stone.route:
            self._emit(batch, others, port)

    def _tell(self, matched: int, matches: int) -> None:
        """Says in the stone's attributes what there is."""
        told = self.context.attributes
        told["subscriptions"] = len(self._book.matcher)
        now = time.monotonic()
        if now >= self._measure:
            self._measure = now + _MEASURE
            told["memory"] = sum(self._book.matcher.stats().memory.values())
        for name, more in (("matched", matched), ("matches", matches)):
            before = told.get(name, 0)
            # Anyone may set an attribute to anything.
            told[name] = more + (before if isinstance(before, int) else 0)

    def do(self, task: Callable[[Book], T]) -> T:
        """Does what a program asks for."""
        try:
            return task(self._book)
        finally:
            self._tell(0, 0)

    @property
    def keeps(self) -> bool:
        return self._book.ledger is not None

    def sync(self) -> None:
        if self._book.ledger is not None:
            self._book.ledger.sync()

    def close(self) -> None:
        self._book.close()

    def checkpoint(self) -> Checkpoint:
        packed = self._book.pack()
        return Checkpoint() if packed is None else Checkpoint((), np.frombuffer(packed, np.uint8), _LAYOUT)

    def restore(self, checkpoint: Checkpoint) -> bool:
        ledger = self._book.ledger
        if checkpoint.state is not None and ledger is not None:
            if checkpoint.layout != _LAYOUT:
                raise FlowError(f"expected {_LAYOUT}, found {shown(checkpoint.layout)}")
            entries, moves = unpack(checkpoint.state.tobytes())
            book = self._stone.book(None)
            book.overlay(entries, moves)
            ledger.take(entries, moves)
            book.ledger = ledger
            self._book = book
            self._tell(0, 0)
        return not checkpoint.held

    def become(self, stone: Stone) -> bool:
        # What takes the place of a match stone is one, if it is of its kind.
        wanted = cast("Match", stone)
        if stone.kind != self._stone.kind or wanted.keeper != self._stone.keeper:
            return False
        if _matching_settings(wanted) != _matching_settings(self._stone):
            if self._book.ledger is None:
                return False
            self._book = wanted.book(self._book.ledger)
        self._stone = wanted
        self._tell(0, 0)
        return True


def _matching_settings(stone: Match) -> dict[str, Any]:
    """What a stone says of its matcher, and not of how events leave."""
    said = stone.settings()
    return {key: value for key, value in said.items() if key not in ("route", "others", "field")}
