"""A writer without sockets: which step gets room, under a hard budget, and what waits for what.

The memory of a writer has a fixed size, the budget. It begins with a table: entry 0 says whether the
application is communicating, each other one belongs to a step and is changed before the bytes of the step are
overwritten. Whoever has copied bytes looks at the entry afterwards, and so knows whether the copy is what was
written.
"""

from __future__ import annotations

from collections import deque
from typing import Any, Literal

import msgspec
import numpy as np

from evflow.errors import StagingError
from evflow.net.node.arena import FreeList
from evflow.staging.messages import (
    LINE,
    Bye,
    Dropped,
    FromWriter,
    Gone,
    Hello,
    Ready,
    Refused,
    Safe,
    ToWriter,
    Waits,
    layout,
)
from evflow.staging.model import Block

TABLE = 4096
"""Bytes of the table at the beginning of the memory."""

MOST_STEPS = TABLE // 8 - 1
"""Steps that a writer may hold at a time."""

Full = Literal["block", "drop oldest", "spill"]
Table = np.ndarray[Any, np.dtype[np.int64]]


class Held:
    """A step that the writer holds until it is safe or gone.

    Attributes:
        ready: the announcement of the step.
        size: bytes that it takes.
        announced: whether it is complete, and the staging node is to know.
    """

    __slots__ = ("announced", "ready", "size")

    def __init__(self, ready: Ready, size: int) -> None:
        self.ready, self.size, self.announced = ready, size, False

    @property
    def spilled(self) -> bool:
        """Whether it is in a file."""
        return self.ready.slot < 0


class Sending:
    """The steps of one writer.

    Args:
        hello: how the writer introduces itself.
        budget: bytes of its memory, the table included.
        full: what happens when a step finds no room.
        disk: bytes that may be spilled at a time.
        table: the table in the memory, int64.

    Attributes:
        outbox: what is to be sent, oldest first.
        held: step → what is held, oldest first.
        safe: the newest step that was told to be safe, -1 if none.
        fates: what became of steps, oldest first: number and reason; "" for a safe one.
    """

    def __init__(self, hello: Hello, budget: int, full: Full, disk: int, table: Table) -> None:
        self.hello, self.budget, self.full, self.disk = hello, budget, full, disk
        self.table = table
        self.outbox: deque[FromWriter] = deque()
        self.held: dict[int, Held] = {}
        self.safe = -1
        self.fates: deque[tuple[int, str]] = deque()
        self.refused = ""
        self._free = FreeList(TABLE, budget)
        self._slots = list(range(MOST_STEPS, 0, -1))
        self._last = hello.last
        self._newest = hello.last
        self._connected = self._met = False
        self._left = False
        self._waits = ""
        self._told = ""

    # --- steps

    def begin(self, step: int, time: float, blocks: tuple[Block, ...]) -> Held | None:
        """Takes a step, if there is room for all of it; nothing is allocated before.

        Returns:
            Where the step is to be written; None if it has to wait, for the reason ``why`` gives.

        Raises:
            StagingError: the step can never be taken: its number does not rise, or it is larger than the
                budget.
        """
        what = f"step {step} of rank {self.hello.rank}"
        if self.refused:
            raise StagingError(f"{what}: the staging node has refused this writer: {self.refused}")
        if step <= self._newest or step >= 1 << 62:
            raise StagingError(f"{what}: expected a number above {self._newest}")
        for other, held in self.held.items():
            if not held.announced:
                raise StagingError(f"{what}: expected step {other} to be complete before")
        size = max(layout(blocks)[1], LINE)
        most = max(self.budget - TABLE, self.disk if self.full == "spill" else 0)
        if size > most:
            raise StagingError(
                f"{what}: it has {size} bytes, and there is never room for more than {most}; give the writer "
                f"a budget of {size + TABLE} or more, or write smaller blocks"
            )
        place = self._room(size)
        while place is None and self.full == "drop oldest" and (oldest := self._oldest()) is not None:
            self._drop(oldest)
            place = self._room(size)
        spilled = sum(held.size for held in self.held.values() if held.spilled)
        if place is None and self.full == "spill" and spilled + size <= self.disk:
            place = (0, -1)
        if place is None:
            piece = max((end - start for start, end in self._free.regions), default=0)
            self._waits = (
                f"{what} waits for {size} bytes: {self._free.free} of a budget of {self.budget} are free, "
                f"{piece} in one piece"
            )
            if self.full == "spill":
                self._waits += f", and of {self.disk} bytes on disk {self.disk - spilled}"
            return None
        start, slot = place
        self._newest, self._waits = step, ""
        generation = int(self.table[slot]) if slot > 0 else 0
        held = self.held[step] = Held(Ready(step, time, blocks, start, slot, generation), size)
        return held

    def _room(self, size: int) -> tuple[int, int] | None:
        if not self._slots or size > self.budget - TABLE:
            return None
        start = self._free.take(size)
        return None if start is None else (start, self._slots.pop())

    def _oldest(self) -> int | None:
        return next((step for step, held in self.held.items() if held.announced and not held.spilled), None)

    def _drop(self, step: int) -> None:
        self._release(step)
        self.outbox.append(Dropped(step))
        self.fates.append(
            (step, f"dropped by rank {self.hello.rank}: its budget of {self.budget} bytes was full")
        )

    def _release(self, step: int) -> None:
        held = self.held.pop(step)
        if not held.spilled:
            # Before anything else is written there.
            self.table[held.ready.slot] += 1
            self._slots.append(held.ready.slot)
            self._free.give(held.ready.start, held.size)

    def announce(self, step: int) -> None:
        """A step that was begun is complete."""
        self.held[step].announced = True
        self._last = step
        self.outbox.append(self.held[step].ready)

    def abandon(self, step: int) -> None:
        """A step that was begun is given up before it is complete; nobody has heard of it."""
        self._release(step)

    def leave(self) -> None:
        """No more steps are begun."""
        if not self._left:
            self._left = True
            self.outbox.append(Bye())

    # --- the staging node

    def connected(self) -> None:
        """There is a new connection: whoever is there knows nothing."""
        self._connected, self._told = True, ""
        self.outbox.clear()
        ready = [held.ready for held in self.held.values() if held.announced]
        # Before the first connection nobody has heard of any step, so none of them can be committed.
        held = tuple(one.step for one in ready) if self._met else ()
        last = self._last if self._met else self.hello.last
        self._met = True
        self.outbox.append(msgspec.structs.replace(self.hello, last=last, held=held))
        self.outbox.extend(ready)
        if self._left:
            self.outbox.append(Bye())

    def disconnected(self) -> None:
        """The connection has ended; all that is held stays."""
        self._connected = False
        self.outbox.clear()

    def receive(self, message: ToWriter) -> None:
        """Takes a message of the staging node."""
        if isinstance(message, Safe | Gone):
            held = self.held.get(message.step)
            if isinstance(message, Safe):
                self.safe = max(self.safe, message.step)
            if held is not None and held.announced:
                self._release(message.step)
                self.fates.append((message.step, message.reason if isinstance(message, Gone) else ""))
        elif isinstance(message, Waits):
            self._told = message.reason
        elif isinstance(message, Refused):
            self.refused = message.reason

    @property
    def used(self) -> int:
        """Bytes of the budget in use, the table included."""
        return self.budget - self._free.free

    def why(self) -> str:
        """What waits, and for what, in words; "" if nothing does."""
        if not self.held and not self._waits:
            return ""
        oldest = next((step for step, held in self.held.items() if held.announced), None)
        reasons = [self._waits] if self._waits else []
        if self.refused:
            reasons.append(f"the staging node has refused rank {self.hello.rank}: {self.refused}")
        elif oldest is not None:
            there = self._told or "the staging node has not answered yet"
            why = there if self._connected else "no staging node is connected"
            reasons.append(f"step {oldest} of rank {self.hello.rank} is not safe yet: {why}")
        elif self.held:
            reasons.append(
                f"step {min(self.held)} of rank {self.hello.rank} is being written by the application"
            )
        return "; ".join(reasons)
