"""What was submitted at one stone and not run yet, and how far that has to be run for who waits."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence

from evflow.engine.gate import gate_of
from evflow.engine.topology import Slot, Topology
from evflow.events.batch import EventBatch
from evflow.flow.inbox import Intake

__all__ = ["Lane", "Marks"]


class Lane:
    """An intake, and what was taken out of it but waits for a link that takes no more.

    Attributes:
        slot: the stone.
        intake: what threads have submitted to it.
        backlog: batches taken out of the intake.
        filled, taken: batches that were put into the backlog, and taken out, so far.
        gated: whether a gate was looked for since the graph changed.
    """

    def __init__(self, slot: Slot, intake: Intake) -> None:
        self.slot = slot
        self.intake = intake
        self.backlog: deque[EventBatch] = deque()
        self.filled = 0
        self.taken = 0
        self.gated = False

    def gate(self, topology: Topology) -> None:
        """Has the filter that comes first asked where events are taken in, if many come; counts what it has
        rejected there."""
        tray = self.intake.tray
        if not self.gated and tray.many and tray.schema is not None:
            self.gated = True
            tray.set_gate(gate_of(self.slot, tray.schema, topology))
        tray.sync()

    def ungate(self) -> None:
        """From now on all events are taken in: the graph changes."""
        self.gated = False
        self.intake.tray.set_gate(None)

    @property
    def waiting(self) -> bool:
        """Whether anything waits."""
        return bool(self.backlog) or self.intake.waiting

    def fill(self, drains: Sequence[Marks]) -> None:
        """Takes what is in the intake, if the backlog is empty; what the gate has rejected is counted."""
        self.intake.tray.sync()
        if self.backlog:
            return
        if self.intake.waiting:
            self.backlog.extend(self.intake.take())
            self.filled = self.taken + len(self.backlog)
        for drain in drains:
            drain.note(self)

    def end(self, drains: Sequence[Marks]) -> list[EventBatch]:
        """Takes out all that waits; nothing more comes."""
        left = list(self.backlog)
        self.backlog.clear()
        self.taken += len(left)
        self.fill(drains)
        left += self.backlog
        self.taken += len(self.backlog)
        self.backlog.clear()
        return left

    def next(self) -> EventBatch:
        """The next batch."""
        self.taken += 1
        return self.backlog.popleft()


class Marks:
    """How far lanes are to be run until what was in them has been run."""

    def __init__(self) -> None:
        self._marks: dict[Lane, int | None] = {}

    def mark(self, lanes: Iterable[Lane]) -> None:
        """What is in these lanes now is to be run."""
        # How many batches of a lane must have been taken; not known before its intake was taken out.
        self._marks = {lane: None if lane.intake.waiting else lane.filled for lane in lanes}

    def note(self, lane: Lane) -> None:
        """A lane has been filled."""
        if lane in self._marks and self._marks[lane] is None:
            self._marks[lane] = lane.filled

    @property
    def done(self) -> bool:
        """Whether all has been run."""
        return all(mark is not None and lane.taken >= mark for lane, mark in self._marks.items())
