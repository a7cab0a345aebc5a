"""evflow's ways of ``bridge.py``: one graph on two nodes, a source on one and a terminal on the other.

Its events have the fields of the peers' events, and are a little longer on the wire, where each number has a
byte before it: 114 B for 100 B, 1,014 B for 1 KB.

- one by one: ``submit`` of event objects that are there already. The terminal's handler reads the price
  of each event and adds it up, where the peers' receivers take the length of each message.
- batches: ``encoded`` submits batches that were encoded before, ``columns`` numpy columns, which evflow
  encodes each time. The terminal takes batches and adds up a column.
- arrays: ``submit`` of an event with one array of float64, which evflow copies, as it does all events;
  ``loaned`` writes the bytes into the array of a loan, as *zenoh, shared memory* does. As that is one copy
  too, it costs what ``submit`` costs, and the loan; programs that make the array in place save the copy.
  Loans of less than 1 MiB are copied a second time, when they are submitted.
  ``encoded`` submits what was encoded before and cannot change, as ``copy=False`` of pyzmq sends bytes that
  must not.
- ping-pong: a terminal's handler there submits to a source that leads back, where a handler submits the next.

Nodes of one host use shared memory for what is large, and a shortcut for what is small; a way called ``TCP``
has both off. Events are delivered at least once, unless the way says otherwise. Each handler adds up what it
touched; a receiver returns what the peers' touches add up to if its own are right.
"""

from __future__ import annotations

import logging
import math
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import cycle, islice
from typing import Any

import numpy as np
from bridge_pair import BATCH, Events, Way, Work, events, expected, pieces

import evflow as ev

# A node warns when its peer ends, and here one end always ends first.
logging.getLogger("evflow").setLevel(logging.ERROR)


class Event100(ev.Event):
    """The event of 100 B."""

    key: ev.i32
    price: float
    x0: float
    x1: float
    x2: float
    x3: float
    x4: float
    x5: float
    x6: float
    x7: float
    x8: float
    x9: float
    x10: float


class Event1000(ev.Event):
    """The event of 1 KB."""

    key: int
    price: float
    samples: ev.Array[ev.f64, 123]


class Samples(ev.Event):
    """An array."""

    samples: ev.Array[ev.f64, None]


KINDS: dict[int, type[ev.Event]] = {100: Event100, 1_000: Event1000}
NARROWER = ev.Schema("narrower", {"key": ev.i16, "price": ev.f32} | {f"x{i}": ev.f32 for i in range(11)})
SUBSET = ev.Schema("subset", {"key": ev.i32, "price": ev.f64})
OTHER_ORDER = ev.Schema("other_order", {"x10": ev.f32, "price": ev.f32, "key": ev.i16})


class Tally:
    """Adds up what handlers touched, and wakes who waits for a number of events."""

    def __init__(self) -> None:
        self.events, self.total, self.wanted = 0, 0.0, math.inf
        self.reached = threading.Event()

    def one(self, event: Any) -> None:
        self.events += 1
        self.total += event.price
        if self.events >= self.wanted:
            self.reached.set()

    def batch(self, batch: ev.EventBatch) -> None:
        self.add(len(batch), float(batch["price"].sum(dtype=float)))

    def native(self, batch: ev.EventBatch) -> None:
        """A batch all of whose columns are turned to this machine's byte order."""
        self.add(len(batch), float(batch.to_columns()["price"].sum()))

    def array(self, event: Any) -> None:
        self.add(1, float(event.samples[::512].sum()))

    def add(self, events: int, total: float) -> None:
        self.events += events
        self.total += total
        if self.events >= self.wanted:
            self.reached.set()

    def wait(self, wanted: int) -> float:
        """Waits for so many events since the last call; returns what their touches add up to."""
        self.wanted = wanted
        if self.events < wanted:
            self.reached.wait()
        total = self.total if self.events == wanted else math.nan
        self.events, self.total, self.wanted = 0, 0.0, math.inf
        self.reached.clear()
        return total


def single_events(work: Work) -> Sequence[Any]:
    """The work's events as objects."""
    rows = events(work.size)
    names = rows.dtype.names or ()
    columns = [rows[name].tolist() if rows[name].ndim == 1 else list(rows[name]) for name in names]
    kind = KINDS[work.size]
    return [kind(*values) for values in zip(*columns, strict=True)]


def columns(work: Work, order: str = "=") -> Sequence[Mapping[str, Any]]:
    """Batches of the work's events as columns in a byte order, each contiguous."""
    rows = events(work.size)
    whole = {
        name: np.ascontiguousarray(rows[name]).astype(rows[name].dtype.newbyteorder(order))
        for name in rows.dtype.names or ()
    }
    starts = range(0, len(rows), BATCH)
    return [{name: column[i : i + BATCH] for name, column in whole.items()} for i in starts]


def other_order(work: Work) -> Sequence[Any]:
    """Columns in the byte order that is not this machine's."""
    return columns(work, "S")


def encoded(work: Work) -> Sequence[ev.EventBatch]:
    """Batches of the work's events that are encoded already."""
    return [ev.EventBatch.from_columns(KINDS[work.size], batch) for batch in columns(work)]


def arrays(work: Work) -> Sequence[Any]:
    """The work's array in an event."""
    return [Samples(np.frombuffer(message, "<f8")) for message in work.made()]


def encoded_arrays(work: Work) -> Sequence[ev.EventBatch]:
    """The work's array in an event that is encoded already."""
    return [ev.EventBatch.from_events([event]) for event in arrays(work)]


@dataclass(frozen=True)
class Setup:
    """How a way's events are made, carried and taken.

    Attributes:
        made: the messages of a work, to be submitted.
        handler: the method of ``Tally`` that takes them at the terminal.
        tables: whether the messages are batches, which go through ``submit_batch``.
        batch: whether the terminal takes batches.
        loaned: whether each event is made anew, as a loan.
        wanted: the schema that the terminal asks for; None takes what comes.
    """

    made: Callable[[Work], Sequence[Any]]
    handler: Callable[[Tally, Any], None]
    tables: bool = True
    batch: bool = True
    delivery: str = "at_least_once"
    shared_memory: bool = True
    wanted: ev.Schema | None = None
    loaned: bool = False

    def graph(self, work: Work, handler: Callable[[Any], None]) -> ev.Graph:
        graph = ev.Graph("bridge")
        source = graph.source("events", KINDS.get(work.size, Samples), on="sender")
        bridge = source >> ev.Bridge(delivery=self.delivery, on="sender")
        bridge >> ev.Terminal(handler, batch=self.batch, input=self.wanted, on="receiver")
        return graph

    def way(self, name: str, share: float = 1.0) -> Way:
        return Way(name, partial(Receiver, self), partial(Sender, self), share)


def ignore(event: Any) -> None:
    """The handler of a terminal that runs on the other node."""


class Receiver:
    """Runs the terminal."""

    def __init__(self, setup: Setup, work: Work) -> None:
        self.work = work
        self.tally = Tally()
        node = ev.Node("receiver", "tcp://127.0.0.1:0", shared_memory=setup.shared_memory)
        self.contact = node.contact
        self.flow = setup.graph(work, partial(setup.handler, self.tally)).run(node=node)

    def receive(self, count: int) -> float:
        total = self.tally.wait(count * self.work.events)
        if self.flow.dead_letters():
            raise SystemExit(f"evflow gave events up: {self.flow.dead_letters()}")
        if isinstance(self.work, Events):
            return expected(self.work, count) if total == prices(count) else total
        return total

    def close(self) -> None:
        self.flow.close()


def prices(count: int) -> int:
    """The sum of the first prices of ``events``."""
    return sum(range(100)) * (count // 100) + sum(range(count % 100))


class Sender:
    """Submits to the source."""

    def __init__(self, setup: Setup, work: Work, contact: str) -> None:
        self.messages = setup.made(work)
        node = ev.Node("sender", peers={"receiver": contact}, shared_memory=setup.shared_memory)
        self.flow = setup.graph(work, ignore).run(node=node)
        source = self.flow["events"]
        self.submit: Callable[[Any], None] = source.submit_batch if setup.tables else source.submit
        if setup.loaned:
            self.submit = partial(submit_loaned, source)

    def send(self, count: int) -> Sequence[int]:
        submit = self.submit
        for message in islice(cycle(self.messages), count):
            submit(message)
        return ()

    def close(self) -> None:
        self.flow.close()


def submit_loaned(source: Any, message: Any) -> None:
    """Submits an event with these bytes as its array, which are written to where a large one is sent from."""
    loaned = source.loan(Samples, samples=len(message) // 8)
    loaned.samples[:] = np.frombuffer(message, "<f8")
    source.submit(loaned)


def there_and_back(work: Work, ping: Callable[[Any], None], pong: Callable[[Any], None]) -> ev.Graph:
    """From ``near`` to a handler on ``far``, and from there to a handler on ``near``."""
    graph = ev.Graph("there and back")
    graph.source("ping", KINDS[work.size], on="near") >> ev.Terminal(ping, on="far")
    graph.source("pong", KINDS[work.size], on="far") >> ev.Terminal(pong, on="near")
    return graph


class Echo:
    """Submits what it gets to the source that leads back."""

    def __init__(self, shared_memory: bool, work: Work) -> None:
        self.work = work
        self.tally = Tally()
        node = ev.Node("far", "tcp://127.0.0.1:0", shared_memory=shared_memory)
        self.contact = node.contact
        self.flow = there_and_back(work, self.answer, ignore).run(node=node)
        self.back = self.flow["pong"]

    def answer(self, event: Any) -> None:
        self.back.submit(event)
        self.tally.one(event)

    def receive(self, count: int) -> float:
        return expected(self.work, count) if self.tally.wait(count) == prices(count) else math.nan

    def close(self) -> None:
        self.flow.close()


class Ping:
    """Submits the next event when the one before is back."""

    def __init__(self, shared_memory: bool, work: Work, contact: str) -> None:
        self.messages = single_events(work)
        self.back = threading.Event()
        self.trips: list[int] = []
        self.left: Iterable[Any] = ()
        node = ev.Node("near", peers={"far": contact}, shared_memory=shared_memory)
        self.flow = there_and_back(work, ignore, self.pong).run(node=node)
        self.there = self.flow["ping"]

    def pong(self, event: Any) -> None:
        self.trips.append(time.perf_counter_ns() - self.start)
        self.next()

    def next(self) -> None:
        for message in self.left:
            self.start = time.perf_counter_ns()
            self.there.submit(message)
            return
        self.back.set()

    def send(self, count: int) -> Sequence[int]:
        self.trips, self.left = [], islice(cycle(self.messages), count)
        self.back.clear()
        self.next()
        self.back.wait()
        return self.trips

    def close(self) -> None:
        self.flow.close()


def over_tcp(setup: Setup) -> Setup:
    return replace(setup, shared_memory=False)


def at_most_once(setup: Setup) -> Setup:
    return replace(setup, delivery="at_most_once")


ONE = Setup(single_events, Tally.one, tables=False, batch=False)
ONE_TO_BATCHES = Setup(single_events, Tally.batch, tables=False)
ENCODED = Setup(encoded, Tally.batch)
COLUMNS = Setup(columns, Tally.batch)
ARRAYS = Setup(arrays, Tally.array, tables=False, batch=False)
LOANED_ARRAYS = replace(ARRAYS, made=pieces, loaned=True)
ENCODED_ARRAYS = Setup(encoded_arrays, Tally.array, batch=False)
SAME = "the same schema"
WAYS: dict[str, Sequence[Way]] = {
    "one by one": (
        ONE.way("evflow", 0.4),
        ONE_TO_BATCHES.way("evflow, batch terminal", 0.4),
        at_most_once(ONE).way("evflow, at most once", 0.4),
    ),
    "batches": (
        ENCODED.way("evflow, encoded"),
        at_most_once(ENCODED).way("evflow, encoded, at most once"),
        COLUMNS.way("evflow, columns", 0.1),
        over_tcp(ENCODED).way("evflow, TCP, encoded", 0.4),
        at_most_once(over_tcp(ENCODED)).way("evflow, TCP, encoded, at most once", 0.4),
        over_tcp(COLUMNS).way("evflow, TCP, columns", 0.1),
    ),
    "arrays": (
        ARRAYS.way("evflow, shared memory", 0.5),
        over_tcp(ARRAYS).way("evflow, TCP"),
        LOANED_ARRAYS.way("evflow, shared memory, loaned", 0.5),
        over_tcp(LOANED_ARRAYS).way("evflow, TCP, loaned"),
        ENCODED_ARRAYS.way("evflow, shared memory, encoded", 0.5),
        over_tcp(ENCODED_ARRAYS).way("evflow, TCP, encoded"),
    ),
    "ping-pong": (
        Way("evflow", partial(Echo, True), partial(Ping, True)),
        Way("evflow, TCP", partial(Echo, False), partial(Ping, False)),
    ),
    "schemas": (
        ENCODED.way(SAME),
        replace(ENCODED, wanted=SUBSET).way("2 of 13 fields"),
        replace(ENCODED, wanted=NARROWER).way("narrower: f64 → f32, i32 → i16"),
        replace(ENCODED, wanted=OTHER_ORDER).way("3 of 13 fields, narrower, in another order"),
        replace(ENCODED, handler=Tally.native).way("the same, as columns of native byte order"),
        COLUMNS.way("the same, from columns", 0.2),
        replace(COLUMNS, made=other_order).way("the same, from columns of the other byte order", 0.2),
    ),
}
"""The ways of each kind of table of ``bridge.py``."""
