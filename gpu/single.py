"""What engines that match one event at a time share: filters, a table of constraints, how they change."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from evflow.events.gather import starts_of
from evflow.gpu.column import Staging
from evflow.gpu.device import Memory
from evflow.gpu.engine import DeviceEngine
from evflow.gpu.operands import Operands
from evflow.gpu.pack import ATTRIBUTE, attributes, gathered, places
from evflow.gpu.store import FilterStore
from evflow.gpu.table import ConstraintTable, coded
from evflow.matching.engine import Matches
from evflow.matching.filters import Filters
from evflow.matching.rows import EventRows
from evflow.matching.strings import Strings

__all__ = ["MOST_ROWS", "SingleEngine"]

MOST_ROWS = 65535
"""The most blocks along y that a device takes; an event with more attributes takes more launches."""

LEAST_DEAD = 1024


class SingleEngine(DeviceEngine):
    """An engine of CCM's family. Its answer for an event is ready when its stream is, once an event.

    Args:
        strings: the strings that constraints compare with.
        dimensions: 2 on the plane, 3 on the globe.
        device: which CUDA device, from 0.
    """

    kernel_file: str

    def __init__(self, strings: Strings, dimensions: int, *, device: int = 0) -> None:
        super().__init__(device)
        self._dimensions = dimensions
        self._kernels = self._device.kernels(self.kernel_file)
        self._staging = Staging(self._device)
        self._stream = self._staging.stream
        self._operands = Operands(strings, self._device)
        self._store = FilterStore(dimensions, self._device)
        self._table = ConstraintTable(self._device)
        self._dead = np.empty(0, np.int64)
        self._dead_constraints = 0
        self._pinned = self._device.pinned(1 << 16)
        self._input = self._device.allocate(1 << 16)
        self._failed = False
        self._stale = True

    # -- what differs

    @abstractmethod
    def _named(self, filters: Filters) -> Filters:
        """The same filters, with the constraints that the engine makes of areas."""

    @abstractmethod
    def _reserve(self, ids: int, filters: int) -> None:
        """Makes room on the device for so many subscriptions and filters; may raise DeviceError."""

    @abstractmethod
    def _restart(self) -> None:
        """Clears what events leave behind for the next; called before the first and after a failure."""

    @abstractmethod
    def _rows(self, events: EventRows) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
        """For each row that has to be looked at: its event, its attribute or -1, the row; by event."""

    @abstractmethod
    def _start(self, rows: int, longest: int, chars: int, place: NDArray[np.float64], names: int) -> None:
        """Starts all work for one event, up to the copy of its answer.

        Args:
            rows: how many rows of the table it concerns.
            longest: how many constraints the longest of them has.
            chars: the address of the event's strings.
            place: three coordinates.
            names: the Bloom filter of its attributes' names.
        """

    @abstractmethod
    def _answer(self) -> NDArray[np.int32]:
        """The answer, after the stream was waited for."""

    @abstractmethod
    def _traffic(self, rows: NDArray[np.int64], constraints: NDArray[np.int64]) -> tuple[Any, ...]:
        """Bytes that each step moves at least, for events of so many rows and constraints on them."""

    # -- subscriptions

    def add(self, filters: Filters) -> None:
        """Takes these in. After a DeviceError or an interrupt none of them is there."""
        super().add(self._named(filters))

    def _add(self, named: Filters) -> None:
        codes, operands = coded(named.op, named.number, named.text)
        self._operands.reserve()
        self._store.reserve(named)
        self._table.reserve(named.name)
        highest = int(named.subscription.max(initial=-1)) + 1
        self._reserve(max(self._store.ids, highest), len(self._store) + len(named))
        slots = self._store.add(named)
        self._operands.update()
        owners = np.repeat(slots, np.diff(named.start))
        self._table.add(named.name, codes, operands, owners)

    def _remove(self, ids: NDArray[np.int32]) -> None:
        """Forgets subscriptions. Their constraints are left out of the table once they are many."""
        _, _, slots = self._store.slots_of(ids)
        sizes = self._store.size.host[slots].astype(np.int64)
        self._store.remove(ids)
        self._dead = np.concatenate((self._dead, slots))
        self._dead_constraints += int(sizes.sum())
        if self._dead_constraints > max(LEAST_DEAD, len(self._table) // 2):
            self._table.rebuild(self._store.subscription.used >= 0)
            self._store.release(self._dead)
            self._dead, self._dead_constraints = np.empty(0, np.int64), 0

    def _move(
        self,
        ids: NDArray[np.int32],
        which: NDArray[np.int32],
        centre: NDArray[Any],
        reach: NDArray[Any] | None,
    ) -> None:
        self._store.moved(ids, which, centre, reach)

    # -- events

    def match(self, events: EventRows, threads: int = 1) -> Matches:
        """What these events satisfy, one after the other."""
        found = self._device.do("matching", lambda: self._found_for(events))
        counts = np.array([len(ids) for ids in found], np.int64)
        return Matches(starts_of(counts), np.concatenate([np.empty(0, np.int32), *found]))

    def _found_for(self, events: EventRows) -> list[NDArray[np.int32]]:
        self._check()
        if not self._store.filters or not len(events):
            return [np.empty(0, np.int32)] * len(events)
        try:
            # Nothing is sent that no event waits for.
            self._prepare()
            return self._match(events)
        except BaseException:
            self._failed = True
            raise

    def _prepare(self) -> None:
        """Sends what has changed since the last event."""
        if self._failed:
            # Nothing is known of what has arrived.
            self._staging.wait()
            for column in (*self._store.columns.values(), *self._table.columns.values()):
                column.renew()
            self._operands.renew()
            self._stale = True
            self._failed = False
        if self._stale:
            self._restart()
            self._stale = False
        for column in (*self._store.columns.values(), *self._table.columns.values()):
            column.flush(self._staging)
        self._operands.flush(self._staging)

    def _match(self, events: EventRows) -> list[NDArray[np.int32]]:
        event, attribute, row = self._rows(events)
        here = attribute >= 0
        records = np.zeros(len(event), ATTRIBUTE)
        records[here] = attributes(events, attribute[here])
        records["kind"][~here] = -1
        records["start"], records["size"] = self._table.start[row], self._table.count[row]
        wants = here & self._table.needs_chars[row]
        chars, bounds = gathered(events, attribute[wants])
        lengths = np.zeros(len(event), np.int64)
        lengths[wants] = np.diff(bounds)
        ends = np.append(0, np.cumsum(lengths))
        first = np.searchsorted(event, np.arange(len(events) + 1))
        records["chars"] = ends[:-1] - ends[first[event]]
        names = self._blooms(events)
        place = places(events)
        answers = []
        for i in range(len(events)):
            begin, end = int(first[i]), int(first[i + 1])
            self._mark(self._stream)
            size = self._send(records[begin:end], chars[ends[begin] : ends[end]])
            self._mark(self._stream)
            longest = int(records["size"][begin:end].max(initial=0))
            self._start(end - begin, longest, size, place[i], int(names[i]))
            self._staging.wait()
            answers.append(self._answer())
        return answers

    def _blooms(self, events: EventRows) -> NDArray[np.uint32]:
        return np.zeros(len(events), np.uint32)

    def _send(self, records: NDArray[np.void], chars: NDArray[np.uint8]) -> int:
        """Sends the input of an event in one copy; gives where its strings start."""
        size = records.nbytes + chars.nbytes
        if size > len(self._pinned):
            # Both or neither: where there is no memory for one the other has to fit still.
            self._pinned, self._input = self._device.pinned(2 * size), self._device.allocate(2 * size)
        if size:
            self._pinned[: records.nbytes] = records.view(np.uint8)
            self._pinned[records.nbytes : size] = chars
            self._device.send(self._input.address, self._pinned[:size], self._stream)
        return self._input.address + records.nbytes

    @property
    def _pointers(self) -> tuple[int, ...]:
        """What kernels that test constraints take: the table, then the filters' sizes and subscriptions."""
        table, store = self._table, self._store
        columns = (table.code, table.operand, table.filter, store.size, store.subscription)
        return tuple(column.address for column in columns)

    def least_bytes(self, events: EventRows) -> NDArray[np.float64]:
        """Bytes that have to be read or written at least: rows and columns as in ``times``."""
        event, _, row = self._rows(events)
        rows = np.bincount(event, minlength=len(events))
        constraints = np.bincount(event, self._table.count[row], len(events)).astype(np.int64)
        columns = np.broadcast_arrays(*self._traffic(rows, constraints))
        return np.stack(columns, axis=1).astype(np.float64)

    # -- the rest

    def memory(self) -> Mapping[str, int]:
        """Bytes held, by what for."""
        filters, table = self._store.columns.values(), self._table.columns.values()
        return {
            "filters": sum(column.nbytes for column in filters),
            "constraints": sum(column.nbytes for column in table),
            "device": sum(column.device_bytes for column in (*filters, *table)) + self._state_bytes(),
        }

    @abstractmethod
    def _state_bytes(self) -> int:
        """Bytes on the device for what events leave behind."""

    def _save(self, folder: Path) -> None:
        self._store.save(folder)
        self._table.save(folder)
        np.save(folder / "dead.npy", self._dead)

    def load(self, folder: Path) -> None:
        """Takes the state that ``save`` wrote."""
        self._store.load(folder)
        self._table.load(folder)
        self._dead = np.load(folder / "dead.npy")
        self._operands.update()
        self._reserve(self._store.ids, len(self._store))
        self._stale = True

    def _grown(self, memory: Memory | None, nbytes: int) -> Memory:
        """Memory of at least so many bytes: the one that is there, or another; then a restart is needed."""
        if memory is not None and memory.nbytes >= nbytes:
            return memory
        self._stale = True
        old = memory.nbytes if memory else 0
        return self._device.allocate(-(-max(nbytes, 2 * old, 4) // 4) * 4)
