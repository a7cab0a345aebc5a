"""Two processes that measure a way to carry events: a sender here, a receiver in a child process.

A way has two ends. The receiver is made in the child and says by its ``contact`` where it is; the sender is
made here from that. A round sends a number of messages and ends when the receiver has got them all, has
touched each, and has said so over a pipe of its own; what it touched must add up.
"""

from __future__ import annotations

import faulthandler
import gc
import multiprocessing
import os
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from itertools import cycle, islice
from multiprocessing.connection import Connection, wait
from typing import Any, Protocol

import numpy as np

PATIENCE = 60
"""Seconds that a start or a round may take; then the whole program ends with a traceback."""
BATCH = 1_000
"""Events in a batch."""

EVENTS = {
    100: np.dtype([("key", "<i4"), ("price", "<f8")] + [(f"x{i}", "<f8") for i in range(11)]),
    1_000: np.dtype([("key", "<i8"), ("price", "<f8"), ("samples", "<f8", 123)]),
}
"""The events by their size in bytes. Prices are 0, 1, … 99, 0, …, so that sums are exact."""


@cache
def events(size: int) -> np.ndarray[Any, Any]:
    """16 batches of events of ``size`` bytes as one structured array, the same in every process."""
    rows = np.zeros(16 * BATCH, EVENTS[size])
    rows["key"] = np.arange(len(rows))
    rows["price"] = rows["key"] % 100
    for name in list(rows.dtype.fields or ())[2:]:
        rows[name] = np.random.default_rng(6).uniform(size=rows[name].shape)
    return rows


@dataclass(frozen=True)
class Work:
    """What is sent: messages of one size, each of ``events`` events, over and over the same few."""

    size: int
    events = 1

    def made(self) -> Sequence[Any]:
        """The messages: bytes or bytearrays, which every peer takes as they are."""
        raise NotImplementedError

    def touch(self, message: Any) -> float:
        """What a receiver does with a message, which has the buffer protocol and a length."""
        raise NotImplementedError

    def messages(self, count: int) -> Iterator[Any]:
        return islice(cycle(pieces(self)), count)

    @property
    def bytes(self) -> int:
        """Bytes of a message."""
        return self.size * self.events


@cache
def pieces(work: Work) -> Sequence[Any]:
    """The messages of a work, made once a process."""
    return work.made()


@cache
def expected(work: Work, count: int) -> float:
    """What the touches of ``count`` messages add up to."""
    return float(sum(map(work.touch, work.messages(count))))


class Events(Work):
    """An event of ``size`` bytes a message; its touch is its length."""

    def made(self) -> Sequence[Any]:
        return [row.tobytes() for row in events(self.size)]

    def touch(self, message: Any) -> float:
        return len(message)


class Batches(Work):
    """1,000 events of ``size`` bytes a message, a structured array; its touch is the sum of a column."""

    events = BATCH

    def made(self) -> Sequence[Any]:
        rows = events(self.size)
        return [bytearray(rows[i : i + BATCH].tobytes()) for i in range(0, len(rows), BATCH)]

    def touch(self, message: Any) -> float:
        return float(np.frombuffer(message, EVENTS[self.size])["price"].sum())


class Arrays(Work):
    """An array of float64 a message, of ``size`` bytes; its touch is the sum of one number of each page."""

    def made(self) -> Sequence[Any]:
        return [bytearray((np.arange(self.size // 8) % 100).astype("<f8").tobytes())]

    def touch(self, message: Any) -> float:
        return float(np.frombuffer(message, "<f8")[::512].sum())


class Receiver(Protocol):
    """The end in the child process.

    Attributes:
        contact: what the sender needs to reach it; it is pickled.
    """

    contact: Any

    def receive(self, count: int) -> float:
        """Waits for ``count`` messages and returns the sum of their touches."""

    def close(self) -> None:
        """Lets go of what it holds."""


class Sender(Protocol):
    """The end in this process."""

    def send(self, count: int) -> Sequence[int]:
        """Sends ``count`` messages; returns the ns of each round trip, where the receiver sends them back."""

    def close(self) -> None:
        """Lets go of what it holds."""


@dataclass(frozen=True)
class Way:
    """A way to carry messages.

    Attributes:
        receiver: makes the receiver, in the child: a class or function of a module, as it is pickled.
        sender: makes the sender from the receiver's contact.
        share: the part of a table's messages that suffices, where the way is slow.
    """

    name: str
    receiver: Callable[[Any], Receiver]
    sender: Callable[[Any, Any], Sender]
    share: float = 1.0


@dataclass(frozen=True)
class Round:
    """One measurement.

    Attributes:
        seconds: from the first send to the receiver's word that it has all.
        cpu: seconds of CPU of the sending process meanwhile, of all its threads.
        trips: ns of each round trip, if any.
    """

    messages: int
    seconds: float
    cpu: float
    trips: Sequence[int]


class Pair:
    """A receiver in a child process and the sender connected to it."""

    def __init__(self, way: Way, work: Work) -> None:
        self.way, self.work = way, work
        spawn = multiprocessing.get_context("spawn")
        self.pipe, theirs = spawn.Pipe()
        self.child = spawn.Process(target=serve, args=(theirs, way.receiver, work), daemon=True)
        with patience():
            self.child.start()
            theirs.close()
            self.sender = way.sender(work, self.answer())

    def answer(self) -> Any:
        try:
            return self.pipe.recv()
        except EOFError:
            raise SystemExit(f"{self.way.name}: the receiving process has died") from None

    def round(self, messages: int) -> Round:
        """Sends ``way.share`` of so many messages."""
        count = max(1, int(messages * self.way.share))
        total = expected(self.work, count)
        self.pipe.send(count)
        self.answer()
        gc.collect()
        with patience():
            start = time.perf_counter()
            trips: Sequence[int] = ()
            got = 0.0

            def run() -> None:
                nonlocal trips, got
                trips = self.sender.send(count)
                got = self.answer()

            cpu = sender_cpu(run)
            seconds = time.perf_counter() - start
        if got != total:
            raise SystemExit(f"{self.way.name}: the receiver got {got} of {total}")
        return Round(count, seconds, cpu, trips)

    def close(self) -> None:
        with patience():
            with suppress(BrokenPipeError):
                self.pipe.send(None)
            self.sender.close()
            self.child.join(5)
        if self.child.is_alive():
            self.child.kill()
        self.pipe.close()


class patience:
    """A with block that ends the program, with a traceback, when it takes more than ``PATIENCE`` seconds."""

    def __enter__(self) -> None:
        faulthandler.dump_traceback_later(PATIENCE, exit=True)

    def __exit__(self, *_: object) -> None:
        faulthandler.cancel_dump_traceback_later()


def sender_cpu(run: Callable[[], object]) -> float:
    """Seconds of CPU that this process, with all its threads, spends while ``run`` runs."""
    before = time.process_time()
    run()
    return time.process_time() - before


def serve(pipe: Connection, make: Callable[[Work], Receiver], work: Work) -> None:
    """The child process: a receiver that takes as many messages as the pipe names, until it names None."""
    threading.Thread(target=die_with_parent, daemon=True).start()
    receiver = make(work)
    pipe.send(receiver.contact)
    while (count := pipe.recv()) is not None:
        pipe.send(None)
        pipe.send(receiver.receive(count))
    receiver.close()


def die_with_parent() -> None:
    parent = multiprocessing.parent_process()
    assert parent is not None
    wait([parent.sentinel])
    os._exit(1)
