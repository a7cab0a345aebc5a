"""What engines that match one event at a time share: filters, a table of constraints, how they change."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from evflow.events.gather import starts_of
from evflow.gpu.column import Operands, Staging
from evflow.gpu.device import Memory
from evflow.gpu.engine import DeviceEngine
from evflow.gpu.pack import ATTRIBUTE, attributes, gathered, places
from evflow.gpu.table import GONE, ConstraintTable, coded, filter_columns, filter_values
from evflow.matching.engine import Matches
from evflow.matching.held import Held
from evflow.matching.moving import Moves
from evflow.matching.rows import EventRows, Filters
from evflow.matching.strings import Strings

MOST_ROWS = 65535
"""The most blocks along y that a device takes; an event with more attributes takes more launches."""

LEAST_DEAD = 1024
"""Filters and constraints that are gone stay until there are more than these."""


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
        self._held = Held(dimensions)
        self._columns = filter_columns(dimensions, self._device)
        self._table = ConstraintTable(self._device)
        self._ids = 0  # one more than the highest subscription
        self._dead = 0  # constraints of filters that are gone
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
        first = self._held.filters
        numbers = np.arange(first, first + len(named))
        ids = max(self._ids, int(named.subscription.max(initial=-1)) + 1)
        self._make_room(named.name, ids, first + len(named))
        self._held.add(named)
        self._ids = ids
        for name, values in filter_values(named).items():
            self._columns[name].extend(values)
        self._operands.update()
        codes, operands = coded(named.op, named.number, named.text)
        self._table.add(named.name, codes, operands, np.repeat(numbers, np.diff(named.start)))

    def _make_room(self, names: NDArray[np.int32], ids: int, filters: int) -> None:
        """Makes room for more constraints, and so many subscriptions and filters; may raise DeviceError."""
        self._operands.reserve()
        for column in self._columns.values():
            column.reserve(filters)
        self._table.reserve(names)
        self._reserve(ids, filters)

    def _remove(self, ids: NDArray[np.int32]) -> None:
        """Forgets subscriptions. What is left of them goes once it is as much as the others have."""
        numbers, _ = self._held.of(ids)
        for name, value in GONE.items():
            self._columns[name].write(numbers, value)
        start = self._held.columns.start
        self._dead += int((start[numbers + 1] - start[numbers]).sum()) + len(numbers)
        self._held.remove(ids)
        if self._dead > max(LEAST_DEAD, (self._held.constraints + self._held.filters) // 2):
            self._rebuild()

    def _rebuild(self) -> None:
        """Gives filters new numbers, without those that are gone."""
        self._held.compact()
        filters, self._dead = self._held.used(), 0
        for name, values in filter_values(filters).items():
            self._columns[name].replace(values)
        codes, operands = coded(filters.op, filters.number, filters.text)
        numbers = np.arange(len(filters))
        self._table.fill(filters.name, codes, operands, np.repeat(numbers, np.diff(filters.start)))
        # Counters of numbers that are not in use now would not be cleared.
        self._stale = True

    def _move(self, moves: Moves) -> None:
        numbers, held = self._held.move(moves), self._held.columns
        self._columns["centre"].write(numbers, held.centre[numbers])
        if (moves["radius"] >= 0).any():
            self._columns["reach"].write(numbers, held.reach[numbers])

    # -- events

    def match(self, events: EventRows, threads: int = 1) -> Matches:
        """What these events satisfy, one after the other."""
        found = self._device.do("matching", lambda: self._found_for(events))
        counts = np.array([len(ids) for ids in found], np.int64)
        return Matches(starts_of(counts), np.concatenate([np.empty(0, np.int32), *found]))

    def _found_for(self, events: EventRows) -> list[NDArray[np.int32]]:
        self._check()
        if not self._held.live or not len(events):
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
            for column in (*self._columns.values(), *self._table.columns.values()):
                column.renew()
            self._operands.renew()
            self._stale = True
            self._failed = False
        if self._stale:
            self._restart()
            self._stale = False
        for column in (*self._columns.values(), *self._table.columns.values()):
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
        table, filters = self._table, self._columns
        columns = (table.code, table.operand, table.filter, filters["size"], filters["subscription"])
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
        filters, table = self._columns.values(), self._table.columns.values()
        return {
            "filters": self._held.nbytes + sum(column.nbytes for column in filters),
            "constraints": sum(column.nbytes for column in table),
            "device": sum(column.device_bytes for column in (*filters, *table)) + self._state_bytes(),
        }

    @abstractmethod
    def _state_bytes(self) -> int:
        """Bytes on the device for what events leave behind."""

    def _save(self, folder: Path) -> None:
        self._held.save(folder)

    def load(self, folder: Path) -> None:
        """Takes the state that ``save`` wrote."""
        self._held.load(folder)
        filters = self._held.used()
        self._ids = int(filters.subscription.max(initial=-1)) + 1
        self._make_room(filters.name, self._ids, len(filters))
        self._operands.update()
        self._rebuild()

    def _grown(self, memory: Memory | None, nbytes: int) -> Memory:
        """Memory of at least so many bytes: the one that is there, or another; then a restart is needed."""
        if memory is not None and memory.nbytes >= nbytes:
            return memory
        self._stale = True
        old = memory.nbytes if memory else 0
        return self._device.allocate(-(-max(nbytes, 2 * old, 4) // 4) * 4)
