"""The events that wait at a queue stone, between the runs of its function."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from evflow.codgen.llvm.queue_ir import ENTRY, QUEUE
from evflow.codgen.memory import Array, address
from evflow.errors import GraphError
from evflow.schema import Schema

__all__ = ["AttributeValue", "QueueState"]

AttributeValue = int | float | str

_STORE, _USED, _CAPACITY, _ENTRIES, _TAIL, _ROOM, _HEAD = range(7)
_FIRST_BYTES = 4096
_FIRST_ENTRIES = 64


class QueueState:
    """The queues of one stone: a queue for each input of its function.

    An event is a slice of its queue's ``store``, named by an entry (offset, size, number). Taking events
    out frees nothing; the store is packed when it is full and half of it is free, so that this costs no
    more than what was put in.

    Args:
        schemas: of the events of each queue.
        limit: the greatest number of events in a queue.

    Attributes:
        schemas, limit: as given.
        attributes: the attributes of waiting events that have some, by the event's number.
        number: the number that the next event gets.
    """

    def __init__(self, schemas: Sequence[Schema], limit: int) -> None:
        self.schemas = tuple(schemas)
        self.limit = limit
        self.attributes: dict[int, Mapping[str, AttributeValue]] = {}
        self.number = 0
        self._block = np.zeros(QUEUE * len(self.schemas), np.int64)
        self._words = self._block.reshape(-1, QUEUE)
        self._stores: list[Array] = []
        self._entries: list[Array] = []
        for slot in range(len(self.schemas)):
            self._stores.append(np.empty(0, np.uint8))
            self._entries.append(np.empty((0, ENTRY), np.int64))
            self._set_store(slot, np.empty(_FIRST_BYTES, np.uint8))
            self._set_entries(slot, np.empty((_FIRST_ENTRIES, ENTRY), np.int64))

    @property
    def address(self) -> int:
        """Where the words of the queues are, for native code."""
        return address(self._block)

    def _set_store(self, slot: int, store: Array) -> None:
        self._stores[slot] = store
        self._words[slot, _STORE], self._words[slot, _CAPACITY] = address(store), len(store)

    def _set_entries(self, slot: int, entries: Array) -> None:
        self._entries[slot] = entries
        self._words[slot, _ENTRIES], self._words[slot, _ROOM] = address(entries), len(entries)

    def length(self, slot: int) -> int:
        """How many events wait in a queue."""
        return int(self._words[slot, _TAIL] - self._words[slot, _HEAD])

    def __len__(self) -> int:
        return sum(self.length(slot) for slot in range(len(self.schemas)))

    def _waiting(self, slot: int) -> Array:
        head, tail = self._words[slot, _HEAD], self._words[slot, _TAIL]
        return self._entries[slot][head:tail]

    @property
    def oldest(self) -> int:
        """The number of the oldest event that waits in any queue; ``number`` if none does."""
        heads = [int(self._waiting(slot)[0, 2]) for slot in range(len(self.schemas)) if self.length(slot)]
        return min(heads, default=self.number)

    def events(self, slot: int) -> list[bytes]:
        """The bytes of the events that wait in a queue, the oldest first."""
        store = self._stores[slot]
        return [store[at : at + size].tobytes() for at, size, _ in self._waiting(slot).tolist()]

    def contents(self, slot: int) -> tuple[Array, Array, Array]:
        """The events that wait in a queue, the oldest first, copied back to back: their bytes (uint8), where
        each starts and the last ends (int64), and their numbers (int64)."""
        waiting = self._waiting(slot)
        ends = np.zeros(len(waiting) + 1, np.int64)
        np.cumsum(waiting[:, 1], out=ends[1:])
        return self._packed(slot, np.empty(int(ends[-1]), np.uint8)), ends, waiting[:, 2].copy()

    def fill(self, slot: int, data: Array, offsets: Array, numbers: Array) -> None:
        """Puts valid events into an empty queue, without running the function; see ``contents``.

        Raises:
            GraphError: there are more than the limit.
        """
        count = len(numbers)
        if count > self.limit:
            raise GraphError(f"{count} events for a queue of at most {self.limit}")
        entries = np.empty((max(count, _FIRST_ENTRIES), ENTRY), np.int64)
        entries[:count, 0], entries[:count, 1] = offsets[:-1], np.diff(offsets)
        entries[:count, 2] = numbers
        store = np.empty(max(len(data), _FIRST_BYTES), np.uint8)
        store[: len(data)] = data
        self._set_store(slot, store)
        self._set_entries(slot, entries)
        self._words[slot, _HEAD], self._words[slot, _TAIL], self._words[slot, _USED] = 0, count, len(data)
        if count:
            self.number = max(self.number, int(numbers[-1]) + 1)

    def attributes_of(self, slot: int) -> list[Mapping[str, AttributeValue]]:
        """The attributes of the events that wait in a queue."""
        return [self.attributes.get(number, {}) for number in self._waiting(slot)[:, 2].tolist()]

    def extract(self, slot: int, count: int | None = None) -> list[bytes]:
        """Takes the oldest ``count`` events (by default all) out of a queue."""
        taken = self.events(slot)[:count]
        for number in self._waiting(slot)[: len(taken), 2].tolist():
            self.attributes.pop(number, None)
        self._words[slot, _HEAD] += len(taken)
        return taken

    def insert(
        self,
        slot: int,
        events: Iterable[bytes],
        attributes: Sequence[Mapping[str, AttributeValue]] | None = None,
    ) -> int:
        """Puts valid events behind the others of a queue, without running the function.

        Returns:
            How many there was room for; the others are left out.
        """
        count = 0
        for event in events:
            if self.length(slot) >= self.limit:
                break
            if attributes is not None and attributes[count]:
                self.attributes[self.number] = dict(attributes[count])
            self._append(slot, event)
            count += 1
        return count

    def _append(self, slot: int, event: bytes) -> None:
        words = self._words[slot]
        if words[_USED] + len(event) > words[_CAPACITY]:
            self._grow_store(slot, len(event))
        if words[_TAIL] >= words[_ROOM]:
            self._grow_entries(slot)
        used, tail = int(words[_USED]), int(words[_TAIL])
        self._stores[slot][used : used + len(event)] = np.frombuffer(event, np.uint8)
        self._entries[slot][tail] = used, len(event), self.number
        words[_USED] += len(event)
        words[_TAIL] += 1
        self.number += 1

    def grow(self, queue: int, need: int) -> None:
        """Makes room while native code waits.

        Args:
            queue: twice the slot for its store, and one more for its entries.
            need: how many bytes or entries there must be room for.
        """
        slot, entries = divmod(queue, 2)
        if entries:
            self._grow_entries(slot)
        else:
            self._grow_store(slot, need - int(self._words[slot, _USED]))

    def _grow_store(self, slot: int, more: int) -> None:
        waiting = self._waiting(slot)
        live = int(waiting[:, 1].sum())
        size = len(self._stores[slot])
        if live + more > size // 2:
            size = 2 * size + more
        packed = np.empty(size, np.uint8)
        self._packed(slot, packed[:live])
        waiting[:, 0] = np.cumsum(waiting[:, 1]) - waiting[:, 1]
        self._words[slot, _USED] = live
        self._set_store(slot, packed)

    def _packed(self, slot: int, out: Array) -> Array:
        """The bytes of the events that wait in a queue, back to back in ``out``, which has their length."""
        waiting, store, live = self._waiting(slot), self._stores[slot], len(out)
        if live and waiting[0, 0] + live == waiting[-1, 0] + waiting[-1, 1]:
            # Nothing was taken out of the middle.
            out[:] = store[waiting[0, 0] : waiting[0, 0] + live]
        elif live:
            np.concatenate([store[at : at + n] for at, n, _ in waiting.tolist()], out=out)
        return out

    def _grow_entries(self, slot: int) -> None:
        waiting = self._waiting(slot)
        size = len(self._entries[slot])
        if len(waiting) + 1 > size // 2:
            size *= 2
        entries = np.empty((size, ENTRY), np.int64)
        entries[: len(waiting)] = waiting
        self._words[slot, _HEAD], self._words[slot, _TAIL] = 0, len(waiting)
        self._set_entries(slot, entries)

    def prune(self) -> None:
        """Forgets the attributes of events that no longer wait, when these are many."""
        if len(self.attributes) > 2 * len(self) + 64:
            known = self.attributes
            numbers = [n for slot in range(len(self.schemas)) for n in self._waiting(slot)[:, 2].tolist()]
            self.attributes = {n: known[n] for n in numbers if n in known}
