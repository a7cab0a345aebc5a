"""The running half of a match stone: batches in, matches out, and what it is when it moves."""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar, cast

import msgpack
import numpy as np

from evflow.errors import EvflowError, FlowError
from evflow.events.batch import EventBatch
from evflow.matching.engine import Matches
from evflow.outside import from_msgpack, shown
from evflow.stone import Actor, Checkpoint, Context, Stone
from evflow.stones.matching.book import Book
from evflow.stones.matching.changes import apply_changes
from evflow.stones.matching.ledger import unpack
from evflow.stones.matching.output import (
    Columns,
    columns_by_port,
    ids_each,
    matched_schema,
    ports_of,
    with_ids,
)

if TYPE_CHECKING:
    from evflow.matching.encoding.keys import Words
    from evflow.stones.match import Match

EVENTS = "events"
"""The input of a match stone that takes what is matched."""

T = TypeVar("T")

_log = logging.getLogger("evflow.matching")

_LAYOUT = "changes of subscriptions"
_TRACKED = "changes of subscriptions, and what is tracked"
_MOST_EVENTS = 8192
_MOST_IDS = 10_000
"""Ids of a question, whose answer is within the 8 MiB that one may have."""
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
        if input != EVENTS:
            apply_changes(
                self._book, batch, lambda at, reason: self.context.fault(batch.slice(at, at + 1), reason)
            )
            self._tell(0, 0)
            return
        self._book.asked.arrived(batch)
        # In parts, since what a batch matches may be much more than the batch.
        for start in range(0, len(batch), _MOST_EVENTS):
            whole = len(batch) <= _MOST_EVENTS
            self._match(batch if whole else batch.slice(start, start + _MOST_EVENTS))

    def _match(self, batch: EventBatch) -> None:
        words: Words | None = None
        if self._stone.track is not None:
            batch, words = self._with_keys(batch, self._stone.track)
        matches = self._book.matcher.match_batch(batch)
        columns = {"": matches} if words is None else self._tracked(words, matches)
        each = ids_each(columns)
        told = int(np.count_nonzero(each))
        self._leave(batch, columns, told)
        if told < len(batch):
            self._emit_others(batch, np.flatnonzero(each == 0))
        matched = told if words is None else int(np.count_nonzero(np.diff(matches.offsets)))
        self._tell(matched, len(matches.ids))

    def _with_keys(self, batch: EventBatch, track: str) -> tuple[EventBatch, Words]:
        """The events that have a key, with their keys; the others are given up."""
        # Graphs are described where nothing is matched, and it brings in machine code.
        from evflow.matching.encoding.keys import GOOD, keys_of_batch, reasons

        # Events that cannot leave are not to have been tracked.
        matched_schema(batch.schema, *self._stone.fields.values())
        words, state = keys_of_batch(batch, track)
        if not state.any():
            return batch, words
        for positions, reason in reasons(batch, track, state):
            self.context.fault(batch.select(positions), reason)
        good = np.flatnonzero(state == GOOD)
        return batch.select(good), words[good]

    def _tracked(self, words: Words, matches: Matches) -> Columns:
        """What is to be told of each event, by what it is."""
        tracker = self._book.tracker
        assert tracker is not None
        forgotten = tracker.forgotten
        tracked = tracker.track_words(words, matches)
        if not forgotten and tracker.forgotten:
            _log.warning(
                "match %s: there are more than %d different %s; those seen least recently are forgotten and "
                "leave nothing; track_limit= allows more",
                self._stone.name, tracker.limit, self._stone.track,
            )  # fmt: skip
        return {state: getattr(tracked, state) for state in self._stone.track_states}

    def _leave(self, batch: EventBatch, columns: Columns, told: int) -> None:
        """Emits the events of which there is something to tell, and those that go along without it."""
        stone = self._stone
        fields = stone.fields
        columns = {fields.get(state, state): matches for state, matches in columns.items()}
        if not stone.route:
            if told or stone.others == 0:
                self.context.emit(with_ids(batch, columns, stone.others == 0))
            return
        if stone.track is None:
            matches = columns[""]
            for port, positions in ports_of(matches, self._book.ports_of(matches.ids)):
                self._emit(batch, positions, port)
            return
        ports = self._book.ports_of(np.concatenate([matches.ids for matches in columns.values()]))
        for port, positions, held in columns_by_port(columns, ports):
            self.context.emit(with_ids(batch.select(positions), held), port)

    def _emit(self, batch: EventBatch, positions: np.ndarray[Any, Any], port: int) -> None:
        self.context.emit(batch if len(positions) == len(batch) else batch.select(positions), port)

    def _emit_others(self, batch: EventBatch, others: np.ndarray[Any, Any]) -> None:
        port = self._stone.others
        if port is None:
            self.context.drop(len(others))
        elif port or self._stone.route:
            self._emit(batch, others, port)

    def _tell(self, matched: int, matches: int) -> None:
        """Says in the stone's attributes what there is."""
        told = self.context.attributes
        told["subscriptions"] = len(self._book.matcher)
        tracker = self._book.tracker
        if tracker is not None:
            told["tracked"], told["forgotten"] = len(tracker), tracker.forgotten
        now = time.monotonic()
        if now >= self._measure:
            self._measure = now + _MEASURE
            held = 0 if tracker is None else tracker.nbytes
            told["memory"] = sum(self._book.matcher.stats().memory.values()) + held
        for name, more in (("matched", matched), ("matches", matches)):
            before = told.get(name, 0)
            # Anyone may set an attribute to anything.
            told[name] = more + (before if isinstance(before, int) else 0)

    def answer(self, question: dict[str, Any]) -> list[str | None]:
        """The texts of subscriptions: ``{"texts": [7, 8]}`` is answered as ``Matcher.texts`` does."""
        ids = question.get("texts")
        whole = isinstance(ids, list) and len(ids) <= _MOST_IDS and all(type(id) is int for id in ids)
        if not whole or len(question) > 1:
            raise FlowError(
                f"question {shown(question)}: expected {{'texts': [7, 8]}} with {_MOST_IDS} ids at most"
            )
        return self._book.matcher.texts(ids)

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
        packed, tracker = self._book.pack(), self._book.tracker
        if tracker is not None:
            packed = msgpack.packb([packed, _tracking(self._stone), tracker.pack()])
        layout = _LAYOUT if tracker is None else _TRACKED
        return Checkpoint() if packed is None else Checkpoint((), np.frombuffer(packed, np.uint8), layout)

    def restore(self, checkpoint: Checkpoint) -> bool:
        if checkpoint.state is not None:
            changes, tracking, tracked = _unpacked(checkpoint.layout, checkpoint.state.tobytes())
            book, ledger = self._book, self._book.ledger
            kept = None if changes is None or ledger is None else unpack(changes)
            if kept is not None:
                book = self._stone.book(None)
                kept = book.overlay(*kept)
            if book.tracker is not None and tracking == _tracking(self._stone):
                try:
                    book.tracker.unpack(tracked)
                except EvflowError as error:
                    raise FlowError(str(error)) from None
            if kept is not None and ledger is not None:
                ledger.take(*kept)
                book.ledger, self._book = ledger, book
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
        elif (wanted.track, wanted.track_limit) != (self._stone.track, self._stone.track_limit):
            self._book.tracker = wanted.tracker()
        self._stone = wanted
        self._tell(0, 0)
        return True


def _matching_settings(stone: Match) -> dict[str, Any]:
    """What a stone says of its matcher, and not of how events leave."""
    said = stone.settings()
    left_out = ("route", "others", "field", "track", "track_states", "track_limit")
    return {key: value for key, value in said.items() if key not in left_out}


def _tracking(stone: Match) -> str:
    """What has to be the same for what was tracked to go on: the key, and what the graph subscribes."""
    return json.dumps([stone.track, stone.settings()["subscriptions"], str(stone.file)])


def _unpacked(layout: str, state: bytes) -> tuple[bytes | None, str, bytes]:
    """The parts of a checkpoint: changes, what was tracked by, and what was known.

    Raises:
        FlowError: it is malformed.
    """
    if layout == _LAYOUT:
        return state, "", b""
    if layout != _TRACKED:
        raise FlowError(f"expected {_LAYOUT}, found {shown(layout)}")
    try:
        found = from_msgpack(state)
        changes, tracking, tracked = found
        if not isinstance(changes, bytes | None) or type(tracking) is not str or type(tracked) is not bytes:
            raise ValueError(shown(found))
    except (ValueError, TypeError) as error:
        raise FlowError(f"what was tracked of a snapshot is malformed: {shown(error)}") from None
    return changes, tracking, tracked
