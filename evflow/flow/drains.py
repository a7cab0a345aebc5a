"""Who waits until what was submitted has been handled, or is on the disk."""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable, Iterable, Sequence

from evflow.engine.engine import Engine
from evflow.engine.topology import Slot
from evflow.errors import EvflowError, FlowError
from evflow.flow.net import Net
from evflow.flow.source_queue import Marks, SourceQueue
from evflow.later import Once
from evflow.mishaps import CONTAINED, named, say
from evflow.outside import shown

_log = logging.getLogger("evflow.flow")

_SILENT = 10.0
"""Seconds that somebody waits until the log says what for; then tenfold as many."""

_Hold = tuple[Slot, int, int]
"""A stone that keeps events in memory, and how far its ``kept_ever`` had come."""


class Drain(Marks):
    """Somebody who waits until what is in the source queues has been handled.

    Args:
        engine: what handles it.
        call: called, in the engine's thread, once there is nothing left to wait for.

    Attributes:
        ended: set once there is nothing left to wait for.
        failure: why what is waited for did not come.
        given_up: whether nobody waits any more; set in any thread.
    """

    def __init__(self, engine: Engine, call: Callable[[], object] = lambda: None) -> None:
        super().__init__()
        self._engine = engine
        self._call = call
        # How far the stones had come, once the queues were run, that handle events by themselves.
        self._kept: dict[Slot, tuple[int, int]] | None = None
        self.ended = Once()
        self.failure: EvflowError | None = None
        self.given_up = False

    def begin(self, queues: Sequence[SourceQueue]) -> None:
        """It waits for what is in the queues now; called in the engine's thread, as are all that follow."""
        self._engine.waking.draining()
        self.mark(queues)

    def over(self, held_up: bool) -> bool:
        """Whether nothing is left to wait for on this node.

        Args:
            held_up: whether queues are not run now, since too much waits at frozen stones.
        """
        return held_up or self.given_up or (self.done and self._handled())

    def _handled(self) -> bool:
        """Whether stones have emitted and handled by themselves what there was when the queues were run."""
        if self._kept is None:
            self._kept = self._engine.waking.kept()
        return self._kept is not None and not self._engine.waking.busy(self._kept)

    def finish(self, net: Net) -> None:
        """Ends once other nodes are done too."""
        net.when_handled(self._end)

    def _end(self) -> None:
        failures = self._engine.waking.failures()
        self.failure = failures[0] if failures else None
        self.ended.set()
        self._call()

    def waits_for(self) -> list[str]:
        """What it waits for that nobody else tells; any thread may ask."""
        return []


class Flush(Drain):
    """Somebody who waits until what is in a source queue is on the disk, in files of stones that have some.

    Args:
        engine: whose stones these are.
        slot: the stone that events were submitted to.
    """

    def __init__(self, engine: Engine, slot: Slot) -> None:
        super().__init__(engine)
        self._slot = slot
        self._holds: list[_Hold] = []
        self._rounds: int | None = None

    def begin(self, queues: Sequence[SourceQueue]) -> None:
        self.mark(queue for queue in queues if queue.slot is self._slot)
        if not self._targets():
            self.failure = FlowError(
                f"stone {self._slot.name!r} leads to no stone that keeps events in a file, and to no other "
                "node, so nothing of what is submitted to it can be flushed; use drain to wait until it is "
                "handled, or lead it to a stone with a file, as ev.Storage(1000, path='events.db')"
            )

    def over(self, held_up: bool) -> bool:
        if self.given_up or self.failure is not None:
            return True
        if not self.done:
            return False
        if self._engine.topology.slots.get(self._slot.name) is not self._slot:
            self.failure = FlowError(
                f"stone {self._slot.name!r} was removed before its events were on the disk"
            )
            return True
        if not self._released():
            return False
        self._sync()
        return True

    def _sync(self) -> None:
        for slot in self._targets():
            if slot.actor is None or not slot.keeps:
                continue
            try:
                with self._engine.away:
                    slot.actor.sync()
            except CONTAINED as error:
                self.failure = FlowError(
                    f"stone {slot.name!r} cannot bring its file to the disk: {named(error)}"
                )
                return

    def finish(self, net: Net) -> None:
        if self.failure is None:
            net.when_safe(self._slot, self._end)
        else:
            self._end()

    def _end(self) -> None:
        self.ended.set()

    def _released(self) -> bool:
        """Whether what there was in the queues has passed each stone that keeps events in memory."""
        if self._rounds is None:
            # What one of them lets go may be kept by the next.
            self._rounds = len(self._path()) + 1
        while self._rounds:
            self._holds = [hold for hold in self._known(self._holds) if not hold[0].has_released(*hold[1:])]
            if self._holds:
                return False
            self._rounds -= 1
            self._holds = [(slot, *slot.kept_ever) for slot in self._path() if slot.keeps_events]
            if not self._holds:
                self._rounds = 0
        return True

    def _known(self, holds: Iterable[_Hold]) -> list[_Hold]:
        """The same of the stones that have taken the place of others; those that are gone hold nothing."""
        slots = self._engine.topology.slots
        found = ((slots.get(slot.name), slot, parked, taken) for slot, parked, taken in holds)
        return [
            (now, parked, taken) if now is slot else (now, *now.kept_ever)
            for now, slot, parked, taken in found
            if now is not None
        ]

    def _targets(self) -> list[Slot]:
        """The stones that have what gets to them in a file or hand it to another node."""
        return [s for s in self._engine.topology.ahead(self._slot) if s.sends or s.keeps]

    def _path(self) -> list[Slot]:
        """The stones from which events get to those, and those."""
        topology = self._engine.topology
        ahead = topology.ahead(self._slot)
        found, before = set(self._targets()), -1
        while len(found) > before:
            before = len(found)
            found |= {s for s in ahead if not found.isdisjoint(topology.onward(s))}
        return [slot for slot in ahead if slot in found]

    def waits_for(self) -> list[str]:
        return [
            f"stone {slot.name!r} keeps {slot.queued} events in memory" + ", since it is frozen" * slot.frozen
            for slot, _, _ in list(self._holds)
        ]


class Waiting:
    """Tells the log what somebody waits for, who waits long.

    Args:
        flow: the flow's name.
        reasons: what is not done yet, and why.
    """

    def __init__(self, flow: str, reasons: Callable[[], Iterable[str]]) -> None:
        self._flow = flow
        self._reasons = reasons
        self._began = time.monotonic()
        self._due = _SILENT

    def look(self) -> None:
        """Tells it if it is time; to be called now and then."""
        waited = time.monotonic() - self._began
        if waited < self._due:
            return
        self._due *= 10
        if reasons := "; ".join(self._reasons()):
            say(_log, logging.WARNING, f"flow {self._flow}: not done after {waited:.0f} s: {reasons}")


class End:
    """The end of a flow: when at the latest, and what is done then.

    Attributes:
        finish: what is done.
        deadline: when at the latest, as ``time.monotonic`` tells it.
    """

    def __init__(self, finish: Callable[[], None], timeout: float) -> None:
        self.finish = finish
        self.deadline = time.monotonic() + timeout
        self._timeout = timeout
        self._left: int | None = None

    def is_due(self, left: int) -> bool:
        """Whether it is time, while stones still have so many events to handle by themselves; as long as they
        become fewer it is not."""
        now = time.monotonic()
        if self._left is None or left < self._left:
            self._left, self.deadline = left, now + self._timeout
        return now >= self.deadline


def check_timeout(flow: str, timeout: object) -> None:
    """Refuses what is neither None nor a number of seconds; infinity is one.

    Raises:
        FlowError: names the flow and what was given.
    """
    fits = (isinstance(timeout, float) and not math.isnan(timeout)) or (
        isinstance(timeout, int) and not isinstance(timeout, bool) and abs(timeout) < 1 << 63
    )
    if timeout is not None and not fits:
        raise FlowError(f"flow {flow}: timeout {shown(timeout, 300)}: expected seconds, or None")
