"""A terminal's workers: threads in which handlers run beside the engine, each lane of events in order.

A lane is what is handled in order: the events with one value of the key, or those that came into the flow at
one entrance. Lanes lie in sections, and a section begins when the one before is done. So events keep their
place among all others where it is not known at which entrance they came in.
"""

from __future__ import annotations

import threading
import time
from collections import OrderedDict, defaultdict, deque
from collections.abc import Hashable, Iterable, Iterator, Mapping
from itertools import groupby
from typing import Any, NamedTuple

import numpy as np

from evflow.errors import FlowError, SchemaError
from evflow.events.batch import EventBatch
from evflow.events.columns.reading import find_field
from evflow.events.joining import joined
from evflow.outside import shown
from evflow.schema import Schema
from evflow.schema.types import Blob, Bytes, Number, Str, Text
from evflow.stone import Actor, Checkpoint, Context, Entrance, Handler, Held, working

RAW = "raw"
"""The input that takes what no handler's schema fits."""

_MOST_BYTES = 64 << 20
"""Bytes of events that may be held, whatever their number."""

_PORTION = 0.02
"""Seconds after which a worker reports what it has handled, and turns to the lane that has waited longest."""

_MOST_TOGETHER = 8192
"""Events that a handler of batches gets at once, if they came in several batches."""

_MOST_LIVES = 10_000
"""RemoteInputs that are remembered."""

_Positions = np.ndarray[Any, np.dtype[Any]]


def key_problem(schema: Schema, key: str) -> str:
    """Why a field cannot say which events of a schema are handled in order; "" if it can."""
    try:
        kind, _ = find_field(schema, key)
    except SchemaError as error:
        return f"key {shown(key)}: {error}"
    if isinstance(kind, Str | Bytes | Text | Blob) or (isinstance(kind, Number) and kind.kind != "f"):
        return ""
    found = f"schema {schema.name} has it as {kind.text}"
    return f"key {shown(key)}: {found}; expected an integer, a bool, text or bytes"


class _Arrival:
    """A batch that came.

    Attributes:
        first: the number of its first event among all that came.
        left: how many of its events are held.
        bytes: bytes of all its events.
    """

    __slots__ = ("bytes", "first", "left")

    def __init__(self, first: int, batch: EventBatch) -> None:
        self.first = first
        self.left = len(batch)
        self.bytes = batch.nbytes


class _Piece(NamedTuple):
    """Events of one arrival and one lane.

    Attributes:
        arrival: the arrival.
        input: the input to which they came.
        batch: all events of the arrival.
        positions: which of these are meant, increasing.
    """

    arrival: _Arrival
    input: str
    batch: EventBatch
    positions: _Positions

    def events(self) -> EventBatch:
        """The events as a batch of their own."""
        return self.batch if len(self.positions) == len(self.batch) else self.batch.select(self.positions)

    def can_join(self, other: _Piece) -> bool:
        """Whether the events of both may be one batch."""
        plain = self.batch.attributes is None and other.batch.attributes is None
        alike = self.input == other.input != RAW and self.batch.schema == other.batch.schema
        return plain and alike

    def part(self, start: int, stop: int | None = None) -> _Piece:
        """Some of these events, by their places among them."""
        return self._replace(positions=self.positions[start:stop])


_Outcomes = list[tuple[_Piece, BaseException | None]]
"""Events that have been handled, and what their handler raised, or None."""


class _Section:
    """Lanes that may be handled beside one another.

    Attributes:
        lanes: what waits in each lane; one that a worker has may be empty.
        ready: the lanes that a worker may take, the one that has waited longest first.
        at_work: the lanes that workers have.
    """

    def __init__(self) -> None:
        self.lanes: dict[Hashable, deque[_Piece]] = {}
        self.ready: deque[Hashable] = deque()
        self.at_work: set[Hashable] = set()


class _Lanes:
    """The events that wait. Whoever calls has the lock.

    Attributes:
        waiting: how many events wait.
    """

    def __init__(self) -> None:
        self._sections = deque([_Section()])
        self.waiting = 0

    def put(self, key: Hashable, piece: _Piece) -> None:
        """Puts events behind all others of their lane."""
        section = self._sections[-1]
        lane = section.lanes.get(key)
        if lane is None:
            lane = section.lanes[key] = deque()
            section.ready.append(key)
        lane.append(piece)
        self.waiting += len(piece.positions)

    def fence(self) -> None:
        """What is put in after this waits until all is done that was put in before."""
        if self._sections[-1].lanes:
            self._sections.append(_Section())

    @property
    def ready(self) -> bool:
        """Whether a worker may take a lane."""
        return bool(self._sections[0].ready)

    @property
    def at_work(self) -> int:
        """How many lanes workers have."""
        return len(self._sections[0].at_work)

    def take(self, together: bool) -> tuple[Hashable, list[_Piece]]:
        """The next events of the lane that has waited longest, which nobody else gets until ``give_back``.

        Args:
            together: whether to give those behind them too, as far as they can be one batch.
        """
        section = self._sections[0]
        key = section.ready.popleft()
        lane = section.lanes[key]
        pieces = [lane.popleft()]
        count = len(pieces[0].positions)
        while together and lane and count < _MOST_TOGETHER and pieces[0].can_join(lane[0]):
            pieces.append(lane.popleft())
            count += len(pieces[-1].positions)
        section.at_work.add(key)
        self.waiting -= count
        return key, pieces

    def give_back(self, key: Hashable, rest: _Piece | None) -> bool:
        """A worker has handled what it took, but for a rest.

        Returns:
            Whether a section begins.
        """
        section = self._sections[0]
        section.at_work.remove(key)
        lane = section.lanes[key]
        if rest is not None:
            lane.appendleft(rest)
            self.waiting += len(rest.positions)
        if lane:
            section.ready.append(key)
        else:
            del section.lanes[key]
        if section.lanes or len(self._sections) == 1:
            return False
        self._sections.popleft()
        return True

    def pieces(self) -> Iterator[_Piece]:
        """All that waits."""
        for section in self._sections:
            for lane in section.lanes.values():
                yield from lane

    def clear(self) -> None:
        """Nothing waits any more; workers keep the lanes that they have."""
        first = self._sections[0]
        first.ready.clear()
        first.lanes = {key: deque() for key in first.at_work}
        self._sections = deque([first])
        self.waiting = 0
        self.fence()


def _in_order(pieces: Iterable[_Piece]) -> list[_Piece]:
    """The same events in the order in which they came, those of each arrival as one piece."""
    found: defaultdict[_Arrival, list[_Piece]] = defaultdict(list)
    for piece in pieces:
        found[piece.arrival].append(piece)
    return [
        parts[0]._replace(positions=np.sort(np.concatenate([part.positions for part in parts])))
        for _, parts in sorted(found.items(), key=lambda entry: entry[0].first)
    ]


class _Hand:
    """What a worker has in hand.

    Attributes:
        pieces: the events.
        begun: how many of them the handler was given.
        errors: for each event that has been handled what its handler raised, or None.
        seconds: how long that took.
    """

    __slots__ = ("begun", "errors", "pieces", "seconds")

    def __init__(self, pieces: list[_Piece]) -> None:
        self.pieces = pieces
        self.begun = 0
        self.errors: list[BaseException | None] = []
        self.seconds = 0.0

    @property
    def count(self) -> int:
        """How many events these are."""
        return sum(len(piece.positions) for piece in self.pieces)

    def give_up(self) -> list[_Piece]:
        """Takes out what the handler was not given."""
        at, found = self.begun, []
        for place, piece in enumerate(self.pieces):
            if at < len(piece.positions):
                found.append(piece.part(at))
                self.pieces[place] = piece.part(0, at)
            at = max(at - len(piece.positions), 0)
        return found

    def split(self) -> tuple[_Outcomes, list[_Piece]]:
        """What has been handled, and the rest."""
        # The worker may go on meanwhile.
        errors = list(self.errors)
        outcomes: _Outcomes = []
        rest = []
        for piece in self.pieces:
            count, at = len(piece.positions), 0
            for _, alike in groupby(errors[:count], key=id):
                run = list(alike)
                outcomes.append((piece.part(at, at + len(run)), run[0]))
                at += len(run)
            if at < count:
                rest.append(piece.part(at))
            errors = errors[count:]
        return outcomes, rest


class Working(Actor):
    """The running half of a ``Terminal`` with workers; see ``evflow.stone.Actor``.

    Args:
        context: its way to the engine.
        handlers: its handlers by input.
        batch: whether they take batches.
        workers: the number of threads.
        key: the field whose value says what is handled in order; None for the entrance.
        queue: events that may wait.

    Raises:
        FlowError: a thread cannot be started.
    """

    def __init__(
        self,
        context: Context,
        handlers: Mapping[str, Handler],
        *,
        batch: bool,
        workers: int,
        key: str | None,
        queue: int,
    ) -> None:
        super().__init__(context)
        self._handlers = handlers
        self._batch = batch
        self._key = key
        self._queue = queue
        # What follows is of the engine's thread.
        self._arrivals: OrderedDict[int, _Arrival] = OrderedDict()
        self._came = 0
        self._oldest = 0
        self._held = 0
        self._bytes = 0
        self._era = -1
        self._lives: dict[str, set[bytes]] = {}
        # What follows is of whoever has the lock.
        self._changed = threading.Condition()
        self._lanes = _Lanes()
        self._hands: dict[Hashable, _Hand] = {}
        self._reports: list[tuple[_Outcomes, float]] = []
        self._pauses = 0
        self._ended = threading.Event()
        name = context.home[1]
        self._threads = [
            threading.Thread(target=self._work, name=f"evflow {name} {number}", daemon=True)
            for number in range(workers)
        ]
        begun = 0
        try:
            for thread in self._threads:
                thread.start()
                begun += 1
        except RuntimeError as error:
            self._threads = self._threads[:begun]
            self.close()
            raise FlowError(
                f"stone {name!r}: worker {begun + 1} of {workers} cannot be started: {error}; "
                "expected fewer workers, or a system that allows more threads"
            ) from error

    # --- in the engine's thread

    def receive(self, batch: EventBatch, input: str) -> None:
        if not batch:
            return
        arrival = _Arrival(self._came, batch)
        lanes = self._by_key(batch, input)
        if isinstance(lanes, str):
            self.context.fault(batch, lanes)
            return
        with self._changed:
            if lanes is None:
                self._put_in_order(_Piece(arrival, input, batch, np.arange(len(batch), dtype=np.int32)))
            else:
                for value, positions in lanes.items():
                    self._lanes.put(value, _Piece(arrival, input, batch, np.array(positions, np.int32)))
            self._changed.notify(1 if lanes is None else len(lanes))
        if not self._arrivals:
            self._oldest = arrival.first
        self._arrivals[arrival.first] = arrival
        self._came += len(batch)
        self._held += len(batch)
        self._bytes += arrival.bytes

    def _by_key(self, batch: EventBatch, input: str) -> dict[Hashable, list[int]] | str | None:
        """The positions of events by their value of the key; why there is none; None without a key."""
        if self._key is None:
            return None
        problem = key_problem(batch.schema, self._key)
        if problem:
            # The handler of raw events takes whatever comes: those share one lane.
            return {(): list(range(len(batch)))} if input == RAW else problem
        found: defaultdict[Hashable, list[int]] = defaultdict(list)
        for position, value in enumerate(batch.column(self._key).tolist()):
            found[value].append(position)
        return found

    def _put_in_order(self, piece: _Piece) -> None:
        """Puts events into the lane of their entrance."""
        entrance = self.context.entrance
        if entrance is None:
            # Nobody knows whom they must not overtake, nor who must not overtake them.
            self._lanes.fence()
            self._lanes.put((), piece)
            self._lanes.fence()
            return
        if self._is_another(entrance):
            self._lanes.fence()
        self._lanes.put((entrance.name, entrance.life), piece)

    def _is_another(self, entrance: Entrance) -> bool:
        """Whether events that came in elsewhere before may be of the same source."""
        changed = entrance.era != self._era or sum(map(len, self._lives.values())) >= _MOST_LIVES
        if changed:
            self._era = entrance.era
            self._lives.clear()
        lives = self._lives.setdefault(entrance.name, set())
        moved = bool(lives) and entrance.life not in lives
        lives.add(entrance.life)
        return changed or moved

    def wake(self, now: float) -> None:
        self._collect()

    def _collect(self) -> None:
        """Takes what workers have reported."""
        with self._changed:
            reports, self._reports = self._reports, []
        for outcomes, seconds in reports:
            self._account(outcomes)
            self.context.spend(seconds)

    def _account(self, outcomes: _Outcomes) -> None:
        """Notes what was handled."""
        for piece, error in outcomes:
            self._let_go(piece)
            if error is not None:
                self.context.fault(piece.events(), error)

    def _let_go(self, piece: _Piece) -> None:
        arrival = piece.arrival
        self._held -= len(piece.positions)
        arrival.left -= len(piece.positions)
        if not arrival.left:
            del self._arrivals[arrival.first]
            self._bytes -= arrival.bytes
        self._oldest = next(iter(self._arrivals), self._came)

    @property
    def full(self) -> bool:
        return self._lanes.waiting >= self._queue or self._bytes >= _MOST_BYTES

    @property
    def busy(self) -> str:
        return f"{self._held} events wait for its workers, or are being handled" if self._held else ""

    @property
    def taken(self) -> int:
        return self._came

    @property
    def oldest(self) -> int:
        return self._came if not self._held else self._oldest

    @property
    def queued(self) -> int:
        return self._held

    def pause(self) -> None:
        with self._changed:
            self._pauses += 1

    def resume(self) -> None:
        with self._changed:
            self._pauses -= 1
            self._changed.notify_all()

    @property
    def at_work(self) -> str:
        self._collect()
        with self._changed:
            count = self._lanes.at_work
        return f"{count} of its handlers have not returned" if count else ""

    def checkpoint(self) -> Checkpoint:
        self._collect()
        with self._changed:
            waiting = [(piece.input, piece.events()) for piece in _in_order(self._lanes.pieces())]
        return Checkpoint(tuple(Held(input, batch) for input, batch in joined(waiting)))

    def extract(self, count: int | None = None) -> list[EventBatch]:
        if count is not None:
            raise FlowError("a terminal lets no events go on: nothing leads from it")
        self._collect()
        with self._changed:
            begun = [piece for hand in self._hands.values() for piece in hand.give_up()]
            pieces = _in_order([*begun, *self._lanes.pieces()])
            self._lanes.clear()
        for piece in pieces:
            self._let_go(piece)
        return [piece.events() for piece in pieces]

    def close(self) -> None:
        with self._changed:
            self._ended.set()
            hands = list(self._hands.values())
            self._changed.notify_all()
        self._collect()
        for hand in hands:
            outcomes, rest = hand.split()
            self._account(outcomes)
            for piece in rest:
                self._let_go(piece)
                self.context.fault(piece.events(), "its handler had not returned when the stone ended")
        if not hands:
            for thread in self._threads:
                thread.join()

    # --- in the workers

    def _work(self) -> None:
        working.set(self)
        while True:
            with self._changed:
                while not self._ended.is_set() and (self._pauses or not self._lanes.ready):
                    self._changed.wait()
                if self._ended.is_set():
                    return
                was_full = self.full
                key, pieces = self._lanes.take(self._batch)
                hand = self._hands[key] = _Hand(pieces)
                # A worker that waits does not keep the memory of what it has handled.
                del pieces
            if was_full and not self.full:
                self.context.wake()
            self._handle(hand)
            outcomes, rest = hand.split()
            with self._changed:
                if self._ended.is_set():
                    return
                del self._hands[key]
                if self._lanes.give_back(key, rest[0] if rest else None):
                    self._changed.notify_all()
                self._reports.append((outcomes, hand.seconds))
            del hand, outcomes, rest
            self.context.wake()

    def _handle(self, hand: _Hand) -> None:
        """Has events handled, those of single events as many as there is time for."""
        start, first = time.perf_counter(), hand.pieces[0]
        try:
            if self._batch and first.input != RAW:
                hand.begun = hand.count
                parts = [piece.events() for piece in hand.pieces]
                self._handlers[first.input](parts[0] if len(parts) == 1 else EventBatch.concat(parts))
                hand.errors = [None] * hand.count
            else:
                self._each(first, hand, start + _PORTION)
        except BaseException as error:  # noqa: BLE001  a handler may raise anything, sys.exit() too
            hand.errors += [error] * (hand.count - len(hand.errors))
        hand.seconds = time.perf_counter() - start

    def _each(self, piece: _Piece, hand: _Hand, until: float) -> None:
        """Calls a handler with one event after the other, until it is time to report, or to begin nothing
        more."""
        handler: Any = self._handlers[piece.input]
        events = piece.events()
        raw = piece.input == RAW
        for position, event in enumerate(events):
            with self._changed:
                # What has not begun may be taken out meanwhile.
                if position >= hand.count:
                    return
                hand.begun = position + 1
            try:
                if raw:
                    handler(events.slice(position, position + 1).to_bytes(), events.schema)
                else:
                    handler(event)
            except BaseException as error:  # noqa: BLE001  as above
                hand.errors.append(error)
            else:
                hand.errors.append(None)
            if self._pauses or time.perf_counter() >= until:
                return
