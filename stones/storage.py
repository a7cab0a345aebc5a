"""Storage: holds events back, in memory or in a file."""

from __future__ import annotations

import json
import logging
from collections import deque
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgpack

from evflow.disk import Meta, Numbered, Things, Trouble
from evflow.errors import GraphError, UnwrittenError
from evflow.events.attributes import Attributes
from evflow.events.batch import EventBatch
from evflow.events.joining import MANY, join_last, joined, pieces
from evflow.outside import from_json, from_msgpack, shown
from evflow.schema import Schema
from evflow.stone import Acting, Actor, Checkpoint, Context, Held, Stone, arrivals, checked_integer, titled

MOST_EVENT = 1_000_000_000
"""Bytes of an event in a file."""
MOST_PIECE = 4 << 20
"""Bytes of a piece of several events."""
SEGMENT = 16 << 20
"""Bytes of a file, after which another one is begun."""

_log = logging.getLogger("evflow.flow")


class Storage(Acting):
    """Holds up to ``limit`` events, oldest first; those beyond it flow on in order.

    ``flow.send_stored(name, count)`` lets held events go. With a ``path`` the events are in a file, and
    are there again when a graph is started over it, also after the process was killed; without, what is held
    when the flow closes goes to the dead letters.

    Args:
        limit: the number of events to hold, 1 or more.
        path: the file to keep them in; made if it is not there, and its own while it runs.
        name: the stone's name.
        on: the node it is placed on.

    Raises:
        GraphError: the limit is less than 1.

    Example:
        >>> import evflow as ev
        >>> class Ping(ev.Event):
        ...     number: int
        >>> seen = []
        >>> g = ev.Graph()
        >>> held = g.source("pings", Ping) >> ev.Storage(2, name="last two")
        >>> _ = held >> ev.Terminal(lambda event: seen.append(event.number))
        >>> with g.run() as flow:
        ...     flow["pings"].submit_batch({"number": [1, 2, 3]})
        ...     flow.drain()
        ...     before = list(seen)
        ...     _ = flow.send_stored("last two")
        >>> before, seen
        ([1], [1, 2, 3])
    """

    kind = "storage"

    def __init__(
        self,
        limit: int,
        *,
        path: str | Path | None = None,
        name: str | None = None,
        on: str | None = None,
    ) -> None:
        super().__init__(name=name, on=on)
        if path is not None and not isinstance(path, str | Path):
            raise GraphError(f"{titled('storage', name)}: path {path!r}: expected a file's name")
        self.limit = checked_integer(f"{titled('storage', name)}: limit", limit)
        self.path = None if path is None else Path(path)

    def open(self, context: Context) -> Actor:
        store = _Memory() if self.path is None else _File(self.path)
        return _Keeper(context, self, store)

    @property
    def files(self) -> tuple[Path, ...]:
        return () if self.path is None else (self.path,)

    def keep_in(self, folder: Path) -> None:
        self.path = None if self.path is None else folder / self.path

    def settings(self) -> dict[str, Any]:
        return {"limit": self.limit, "path": None if self.path is None else str(self.path)}


class _Keeper(Actor):
    def __init__(self, context: Context, stone: Storage, store: _Memory | _File) -> None:
        super().__init__(context)
        self._limit = stone.limit
        self._path = stone.path
        self._store = store
        self._taken = 0
        self._reading = Trouble(_log)

    def receive(self, batch: EventBatch, input: str) -> None:
        done = 0
        try:
            for part in pieces(batch, MOST_PIECE) if self.keeps else (batch,):
                if self.keeps and part.nbytes > MOST_EVENT:
                    told = f"an event of {part.nbytes} bytes; storage file {self._path} takes at most"
                    self.context.fault(part, f"{told} {MOST_EVENT}")
                else:
                    self._store.append(part)
                    self._taken += len(part)
                done += len(part)
        except UnwrittenError as error:
            raise UnwrittenError(str(error), done) from error
        excess = self._store.count - self._limit
        if excess > 0:
            self._let_go(excess)

    def _let_go(self, count: int) -> None:
        try:
            freed = self._store.take(count)
        except UnwrittenError as error:
            # They are in the file, and flow on with the next event.
            self._reading.failed(str(error))
            return
        self._reading.over()
        for batch in freed:
            self.context.emit(batch)

    def mark(self) -> object:
        return self._store.position

    def settled(self, mark: object) -> None:
        self._store.forget(mark)

    @property
    def taken(self) -> int:
        return 0 if self.keeps else self._taken

    @property
    def oldest(self) -> int:
        return 0 if self.keeps else self._taken - self._store.count

    @property
    def queued(self) -> int:
        return self._store.count

    @property
    def keeps(self) -> bool:
        return isinstance(self._store, _File)

    def extract(self, count: int | None = None) -> list[EventBatch]:
        return self._store.take(self._store.count if count is None else min(count, self._store.count))

    def sync(self) -> None:
        self._store.sync()

    def close(self) -> None:
        self._store.close()

    def checkpoint(self) -> Checkpoint:
        return Checkpoint(tuple(Held("input", batch) for batch in self._store.held()))

    def restore(self, checkpoint: Checkpoint) -> bool:
        self._store.hold([batch for _, batch in arrivals(checkpoint.held)])
        self._taken += self._store.count
        return True

    def become(self, stone: Stone) -> bool:
        if not isinstance(stone, Storage) or stone.path != self._path:
            return False
        # What is too much for a lower limit flows on with the next event.
        self._limit = stone.limit
        return True


class _Memory:
    def __init__(self) -> None:
        self.count = 0
        self.position = None
        self._batches: deque[tuple[str, EventBatch]] = deque()
        self._loose = 0

    def append(self, batch: EventBatch) -> None:
        self._batches.append(("", batch))
        self.count += len(batch)
        self._loose += 1
        if self._loose >= MANY:
            join_last(self._batches, self._loose)
            self._loose = 0

    def take(self, count: int) -> list[EventBatch]:
        self.count -= count
        taken: list[EventBatch] = []
        while count:
            _, batch = self._batches.popleft()
            if len(batch) > count:
                self._batches.appendleft(("", batch.slice(count, len(batch))))
                batch = batch.slice(0, count)
            count -= len(batch)
            taken.append(batch)
        return taken

    def held(self) -> list[EventBatch]:
        """What it holds, in order."""
        return [batch for _, batch in joined(self._batches)]

    def hold(self, batches: list[EventBatch]) -> None:
        """Holds these, and nothing else."""
        self._batches = deque(("", batch) for batch in batches)
        self.count = sum(map(len, batches))

    def forget(self, position: object) -> None:
        """Nothing is kept of what was taken."""

    def sync(self) -> None:
        """There is no file."""

    def close(self) -> None:
        self._batches.clear()


class _File(Numbered):
    """Events in a log. What was taken stays there until ``forget``: who is killed before finds it again."""

    def __init__(self, path: Path) -> None:
        self._closed = False
        self._schemas: list[Schema] = []
        self._known: dict[str, int] = {}  # fingerprint → place in the list
        super().__init__(path, "storage file", "storage 1", SEGMENT)
        self.position = self.first
        """The number of the oldest event that was not taken."""

    def _state(self) -> list[Any]:
        return [json.dumps(schema.description) for schema in self._schemas]

    def _restore(self, state: list[Any]) -> None:
        for text in state[len(self._schemas) :]:
            self._noted(["schema", text])

    def _added(self, count: int, said: Sequence[Any]) -> None:
        schema, attributes = said
        if schema not in range(len(self._schemas)) or not isinstance(attributes, bytes | None):
            raise ValueError(f"events of {shown(said)} are not what a storage has")

    def _noted(self, meta: Meta) -> None:
        what, text = meta
        if what != "schema" or not isinstance(text, str):
            raise ValueError(f"{shown(meta)} is not what a storage writes")
        schema = Schema.from_description(from_json(text))
        self._known[schema.fingerprint] = len(self._schemas)
        self._schemas.append(schema)

    @property
    def count(self) -> int:
        """Events that were not taken."""
        return self.next - self.position

    def append(self, batch: EventBatch) -> None:
        if batch.schema.fingerprint not in self._known:
            self.note(["schema", json.dumps(batch.schema.description)])
        self.put(*self._things(batch))

    def _things(self, batch: EventBatch) -> Things:
        told = batch.attributes
        attributes = None if told is None else msgpack.packb([told.of(i) for i in range(len(batch))])
        number = self._known[batch.schema.fingerprint]
        return len(batch), (number, attributes), batch.compact().data.data

    def take(self, count: int) -> list[EventBatch]:
        taken = self._oldest(count)
        self.position += count
        return taken

    def held(self) -> list[EventBatch]:
        """What it holds, in order."""
        return self._oldest(self.count)

    def hold(self, batches: list[EventBatch]) -> None:
        """Holds these, and nothing else."""
        for batch in batches:
            if batch.schema.fingerprint not in self._known:
                self._noted(["schema", json.dumps(batch.schema.description)])
        parts = (part for batch in batches for part in pieces(batch, MOST_PIECE))
        self.replace(self.next, self._state(), map(self._things, parts))
        self.position = self.first

    def _oldest(self, count: int) -> list[EventBatch]:
        """The oldest events that were not taken."""
        found: list[EventBatch] = []
        start, stop = self.position, self.position + count
        for number, piece in self.since(start) if count else ():
            _, size, schema, attributes = piece.meta
            body = self._log.body(piece)
            with self._log.naming():
                batch = EventBatch.from_bytes(self._schemas[schema], body, size)
                if attributes is not None:
                    batch = batch.with_attributes(Attributes.from_rows(from_msgpack(attributes)))
            found.append(batch.slice(max(start - number, 0), min(stop - number, size)))
            if number + size >= stop:
                break
        return found

    def forget(self, position: object) -> None:
        """Removes what was taken before a position."""
        assert isinstance(position, int)
        if self._closed:
            # Other nodes have handled it only now. What cannot be removed is sent once more at the worst.
            self._log.append_late(["first", position])
        else:
            self.let_go(position)

    def close(self) -> None:
        self._closed = True
        super().close()
