"""A writer without sockets: which step gets room, under a hard budget, and what waits for what.

The memory of a writer has a fixed size, the budget. It begins with a table: entry 0 says whether the
application is communicating, each other one belongs to a step and is changed before the bytes of the step are
overwritten. Whoever has copied bytes looks at the entry afterwards, and so knows whether the copy is what was
written.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from msgspec.structs import replace

from evflow.errors import StagingError
from evflow.net.node.arena import FreeList
from evflow.staging.messages import Bye, Dropped, Fate, FromWriter, Hello, Ready, ToWriter, Waits, layout
from evflow.staging.model import Block

TABLE = 4096
"""Bytes of the table at the beginning of the memory."""

MOST_STEPS = TABLE // 8 - 1
"""Steps that a writer may hold in its memory at a time."""

MOST_SPILLED = 8192
"""Steps that it may hold in files: a hello tells of all that it holds."""

Full = Literal["block", "drop oldest", "spill"]
Table = np.ndarray[Any, np.dtype[np.int64]]


@dataclass(slots=True)
class Held:
    """A step that the writer holds until it is safe or gone; ``announced`` once it is complete.
    The ``file`` has its bytes if it is spilled."""

    ready: Ready
    size: int
    announced: bool = False
    file: Any = None

    @property
    def spilled(self) -> bool:
        """Whether it is in a file."""
        return self.ready.slot < 0

    def close(self) -> None:
        """Closes the file; whoever has it open or mapped keeps it."""
        if self.file is not None:
            self.file.close()


class Sending:
    """The steps of one writer; settings as of ``Writer``. Nothing is done with ``at`` but to tell it.

    Attributes:
        outbox: what is to be sent, oldest first.
        held: what is held by step, oldest first.
        refused: why the staging node refuses the writer; "" if it does not.
    """

    def __init__(self, hello: Hello, budget: int, full: Full, disk: int, table: Table, at: str) -> None:
        self._at, self.hello = at, replace(hello, keeps=full != "drop oldest")
        self.budget, self.full, self.disk = budget, full, disk
        self.table = table
        self.outbox: deque[FromWriter] = deque()
        self.held: dict[int, Held] = {}
        self.safe = -1
        self.fates: deque[tuple[int, str]] = deque()
        self.refused = ""
        self._free = FreeList(TABLE, budget)
        self._slots = list(range(MOST_STEPS, 0, -1))
        # The newest step that was announced, and that was begun.
        self._last = self._newest = hello.last
        self._connected = self._left = False
        self._waits = self._told = ""

    def begin(self, step: int, time: float, blocks: tuple[Block, ...]) -> Held | None:
        """Takes a step, if there is room for all of it; nothing is allocated before. None if it has to wait,
        for the reason ``why`` gives; StagingError if it can never be taken."""
        what = f"step {step} of rank {self.hello.rank}"
        if self.refused:
            raise StagingError(f"{what}: the staging node has refused this writer: {self.refused}")
        if step <= self._newest or step >= 1 << 62:
            raise StagingError(f"{what}: expected a number above {self._newest}, and below 2**62")
        for other in [other for other, held in self.held.items() if not held.announced]:
            raise StagingError(f"{what}: expected step {other} to be complete before")
        size = layout(blocks)[1]
        most = max(self.budget - TABLE, self.disk if self.full == "spill" else 0)
        if size > most:
            room = f"it has {size} bytes, and there is never room for more than {most}"
            advice = f"give the writer a budget of {size + TABLE} or more, or write smaller blocks"
            raise StagingError(f"{what}: {room}; {advice}")
        place = self._room(size)
        while place is None and self.full == "drop oldest" and (oldest := self._oldest(False)) is not None:
            self.release(oldest)
            self.outbox.append(Dropped(oldest))
            full = f"its budget of {self.budget} bytes was full"
            self.fates.append((oldest, f"dropped by rank {self.hello.rank}: {full}"))
            place = self._room(size)
        files = [held.size for held in self.held.values() if held.spilled]
        spilled, many = sum(files), len(files) >= MOST_SPILLED
        if place is None and self.full == "spill" and spilled + size <= self.disk and not many:
            place = (0, -1)
        if place is None:
            piece = max((end - start for start, end in self._free.regions), default=0)
            free = f"{self._free.free} of a budget of {self.budget} are free, {piece} in one piece"
            self._waits = f"{what} waits for {size} bytes: {free}"
            if many:
                self._waits += f", and {len(files)} of {MOST_SPILLED} steps are on disk"
            elif self.full == "spill":
                self._waits += f", and of {self.disk} bytes on disk {self.disk - spilled}"
            return None
        start, slot = place
        self._newest, self._waits = step, ""
        generation = int(self.table[slot]) if slot > 0 else 0
        held = self.held[step] = Held(Ready(step, time, blocks, start, slot, generation), size)
        return held

    def forget_wait(self) -> None:
        """The application no longer waits for room."""
        self._waits = ""

    def _room(self, size: int) -> tuple[int, int] | None:
        if not self._slots or size > self.budget - TABLE:
            return None
        start = self._free.take(size)
        return None if start is None else (start, self._slots.pop())

    def release(self, step: int) -> None:
        """Gives the room of a step back; nobody is told."""
        held = self.held.pop(step)
        held.close()
        if not held.spilled:
            # Before anything else is written there.
            self.table[held.ready.slot] += 1
            self._slots.append(held.ready.slot)
            self._free.give(held.ready.start, held.size)

    def give_up(self, step: int) -> None:
        """Gives the step in hand up. Nobody has heard of it, so its number is free again."""
        self.release(step)
        self._newest = self._last

    def _oldest(self, spilled: bool) -> int | None:
        steps = (step for step, held in self.held.items() if held.announced and spilled >= held.spilled)
        return next(steps, None)

    def announce(self, step: int) -> None:
        """A step that was begun is complete."""
        self.held[step].announced = True
        self._last = step
        self.outbox.append(self.held[step].ready)

    def leave(self) -> None:
        """No more steps are begun."""
        if not self._left:
            self._left = True
            self.outbox.append(Bye())

    def connected(self) -> None:
        """There is a new connection: whoever is there knows nothing."""
        self._connected, self._told = True, ""
        self.outbox.clear()
        ready = [held.ready for held in self.held.values() if held.announced]
        held = tuple(one.step for one in ready)
        self.outbox.append(replace(self.hello, last=self._last, held=held))
        self.outbox.extend(ready)
        if self._left:
            self.outbox.append(Bye())

    def disconnected(self) -> None:
        """The connection has ended; all that is held stays."""
        self._connected = False
        self.outbox.clear()

    def receive(self, message: ToWriter) -> None:
        """Takes a message of the staging node."""
        if isinstance(message, Fate):
            if not message.reason:
                self.safe = max(self.safe, message.step)
            if message.step in self.held and self.held[message.step].announced:
                self.release(message.step)
                self.fates.append((message.step, message.reason))
        elif isinstance(message, Waits):
            self._told = message.reason
        else:
            self.refused = message.reason

    @property
    def used(self) -> int:
        """Bytes of the budget in use, the table included."""
        return self.budget - self._free.free

    def why(self) -> str:
        """What waits, and for what, in words; "" if nothing does."""
        if not self.held and not self._waits:
            return ""
        oldest = self._oldest(True)
        reasons = [self._waits] if self._waits else []
        if self.refused:
            reasons.append(f"the staging node has refused rank {self.hello.rank}: {self.refused}")
        elif oldest is not None:
            there = self._told or "the staging node has not answered yet"
            why = there if self._connected else f"no staging node is connected at {self._at}"
            reasons.append(f"step {oldest} of rank {self.hello.rank} is not safe yet: {why}")
        elif self.held:
            doing = "is being written by the application"
            reasons.append(f"step {min(self.held)} of rank {self.hello.rank} {doing}")
        return "; ".join(reasons)
