"""What waits at a bridge while its link is busy or down, and what gives way when it becomes too much.

The emissions into a bridge are numbered 1, 2, 3 … An entry knows the least of those that it stands for, so
every emission below that of the first entry is settled: sent on, or given up on purpose.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator

import numpy as np
from msgspec import Struct

from evflow.events.batch import EventBatch
from evflow.events.joining import within
from evflow.net.link.provenance import Provenance

_DENSE = 0.5
"""The part of a batch's bytes from which a selection may wait as it is."""


class Entry(Struct, eq=False):
    """A batch that waits.

    Attributes:
        batch: its events.
        low: the number of the first emission that it stands for.
        tag: whatever belongs to exactly this emission; None if the entry stands for several.
    """

    batch: EventBatch
    low: int
    tag: Provenance | None = None


class Waiting:
    """The entries that wait, the oldest first, their ``low`` never falling.

    Args:
        whole: whether most events of a batch may wait as a selection, which is copied out when it is sent.
            Policies that drop events, and handlers, do not take that.

    Attributes:
        entries: they; to be changed by the methods only.
        bytes: bytes in memory for their events.
        events: how many events they have.
        fresh: how many events came since this was last set to 0.
    """

    __slots__ = ("_whole", "bytes", "entries", "events", "fresh")

    def __init__(self, whole: bool = False) -> None:
        self._whole = whole
        self.entries: deque[Entry] = deque()
        self.bytes = 0
        self.events = 0
        self.fresh = 0

    def __len__(self) -> int:
        return len(self.entries)

    def __iter__(self) -> Iterator[Entry]:
        return iter(self.entries)

    @property
    def first(self) -> Entry | None:
        """The oldest entry."""
        return self.entries[0] if self.entries else None

    def append(self, entry: Entry) -> None:
        """Puts an entry behind the others; one without events is left out, since it settles by itself.

        A selection of few events is copied out, so that the others are not held in memory.
        """
        if entry.batch.selection is not None:
            entry.batch = self._settled(entry.batch)
        count = entry.batch.rows if entry.batch.selection is None else len(entry.batch)
        if count:
            self.entries.append(entry)
            self.bytes += entry.batch.size
            self.events += count
            self.fresh += count

    def appendleft(self, entry: Entry) -> None:
        """Puts an entry back before the others."""
        if entry.batch.selection is not None:
            entry.batch = self._settled(entry.batch)
        if len(entry.batch):
            self.entries.appendleft(self._counted(entry))

    def _settled(self, batch: EventBatch) -> EventBatch:
        dense = self._whole and batch.nbytes >= _DENSE * batch.size
        return batch if dense else batch.compact()

    def _counted(self, entry: Entry) -> Entry:
        self.bytes += entry.batch.size
        self.events += len(entry.batch)
        return entry

    def popleft(self) -> Entry:
        """Takes the oldest entry out.

        Raises:
            IndexError: nothing waits.
        """
        entry = self.entries.popleft()
        batch = entry.batch
        self.bytes -= batch.size
        self.events -= batch.rows if batch.selection is None else len(batch)
        return entry

    def pop(self) -> Entry:
        """Takes the newest entry out.

        Raises:
            IndexError: nothing waits.
        """
        entry = self.entries.pop()
        self.bytes -= entry.batch.size
        self.events -= len(entry.batch)
        return entry

    def trim(self, place: int, batch: EventBatch) -> None:
        """Leaves only some events of the entry at ``place``; it keeps its ``low`` and its tag."""
        entry = self.entries[place]
        self.bytes += batch.size - entry.batch.size
        self.events += len(batch) - len(entry.batch)
        entry.batch = batch

    def replace(self, entries: Iterable[Entry]) -> int:
        """Lets these entries wait in place of all others; returns how many events fewer that is."""
        before, listed = self.events, list(entries)
        for entry in listed:
            entry.batch = entry.batch.compact()
        self.entries.clear()
        self.bytes = self.events = 0
        self.entries.extend(self._counted(entry) for entry in listed if entry.batch.rows)
        return before - self.events


def keep_all(waiting: Waiting, limit: int) -> int:
    """Drops nothing; who emits has to wait."""
    return 0


def drop_oldest(waiting: Waiting, limit: int) -> int:
    """Drops just as many of the oldest events as have to go; returns how many."""
    before = waiting.events
    while (excess := waiting.bytes - limit) > 0 and waiting.entries:
        batch = waiting.entries[0].batch
        gone = _ending_at(batch, excess)
        if gone >= batch.rows:
            waiting.popleft()
        else:
            waiting.trim(0, batch.slice(gone, batch.rows))
    return before - waiting.events


def drop_newest(waiting: Waiting, limit: int) -> int:
    """Drops just as many of the newest events as have to go; returns how many."""
    before = waiting.events
    while waiting.bytes > limit and waiting.entries:
        batch = waiting.entries[-1].batch
        kept = within(batch, limit - (waiting.bytes - batch.nbytes))
        if kept <= 0:
            waiting.pop()
        else:
            # A copy: what is cut off would stay in memory as long as what is kept.
            waiting.trim(-1, batch.take(np.arange(kept)))
    return before - waiting.events


def keep_latest(waiting: Waiting, limit: int) -> int:
    """Drops all but the newest event of each schema, whatever the limit; returns how many.

    To be called after each ``append``.
    """
    seen, kept = set(), []
    for entry in reversed(waiting.entries):
        schema, rows = entry.batch.schema, entry.batch.rows
        if schema not in seen:
            seen.add(schema)
            kept.append(entry)
            if rows > 1:
                entry.batch = entry.batch.take([rows - 1])
    return waiting.replace(reversed(kept))


def sample(waiting: Waiting, limit: int) -> int:
    """Drops every second event, again and again until the rest fits or is one; returns how many."""
    dropped = 0
    while waiting.bytes > limit and waiting.events > 1:
        dropped += waiting.replace(_every_second(waiting))
    return dropped


def _every_second(waiting: Waiting) -> Iterator[Entry]:
    position = 0
    for entry in waiting:
        rows = entry.batch.rows
        kept = np.arange(position % 2, rows, 2)
        position += rows
        if len(kept) < rows:
            entry.batch = entry.batch.take(kept)
        yield entry


def _ending_at(batch: EventBatch, size: int) -> int:
    """The least number of events that are ``size`` bytes or more; more than all if all are less."""
    if batch.offsets is None:
        return -(-size // (batch.schema.width or 1))
    return int(np.searchsorted(batch.offsets, size, "left"))


Policy = Callable[[Waiting, int], int]
"""(what waits, bytes that may wait) → events dropped. To be called after each ``append``."""

POLICIES: dict[str, Policy] = {
    "block": keep_all,
    "drop oldest": drop_oldest,
    "drop newest": drop_newest,
    "keep latest": keep_latest,
    "sample": sample,
}
"""What gives way when too much waits at a bridge, by the name that the user writes."""
