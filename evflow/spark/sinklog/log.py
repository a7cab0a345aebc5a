"""The log of a sink: rows with rising offsets, in files that are let go from the oldest on.

A row keeps its offset for good, so whoever reads the rows from 100 to 200 twice gets the same. Beside them
the log has who reads, and what came over links. Rows and the frame that they are of are one piece, so after a
kill both are there, or neither.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Sequence
from itertools import islice
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import msgspec
from msgspec import convert

from evflow.disk import END, Meta, Numbered
from evflow.errors import FlowError, SchemaError, UnwrittenError
from evflow.events.batch import EventBatch
from evflow.events.joining import pieces, within
from evflow.forked import remove_folder, temporary_folder
from evflow.outside import shown
from evflow.schema import Schema

_MOST_ORIGINS = 10_000
_MOST_PIECE = 1 << 20
Frame = tuple[bytes, tuple[int, ...]]
"""What a frame of a link is known by: its route and its path."""

Offset = Annotated[int, msgspec.Meta(ge=0, lt=END)]

_NO_FRAME: Frame = (b"", ())


class Origin(NamedTuple):
    """How much has come over a route.

    Attributes:
        path: of the newest frame.
        rows: of that frame that are in the log.
    """

    path: tuple[int, ...]
    rows: int


class _Plain(NamedTuple):
    spool: str
    first: Offset
    schema: Any
    queries: list[tuple[str, Offset]]
    origins: list[tuple[bytes, tuple[Offset, ...], Offset]]


class Book(NamedTuple):
    """The state of a log beside its rows.

    Attributes:
        spool: which log this is; another one has another, also in its place.
        first: the offset of the first row that has not been let go.
        schema: of the rows.
        queries: query → the offset up to which it has committed.
        origins: route → how much of it was appended; the newest last.
    """

    spool: str
    first: int
    schema: Schema
    queries: dict[str, int]
    origins: dict[bytes, Origin]

    @classmethod
    def parsed(cls, plain: Sequence[Any]) -> Book:
        """The book that plain data from outside describe.

        Raises:
            ValueError: a value is not what it should be. So does SchemaError.
        """
        spool, first, schema, queries, origins = convert(plain, _Plain)
        came = {route: Origin(path, rows) for route, path, rows in origins}
        return cls(spool, first, Schema.from_description(schema), dict(queries), came)

    def plain(self) -> list[Any]:
        """Plain data that describe the book."""
        origins = [[route, list(one.path), one.rows] for route, one in self.origins.items()]
        return [self.spool, self.first, self.schema.description, list(self.queries.items()), origins]


class RowLog(Numbered):
    """Rows of one schema with offsets from 0 on.

    Nothing is written before there is a row, or a query that reads.

    Args:
        path: the newest file; the names of older ones begin with its name. None for temporary files, which go
            with ``close``.
        segment: bytes of rows after which another file is begun.
        schema: of the rows; None for that of the first rows that come.

    Attributes:
        spool: which log this is, 32 hex digits; another one has another, also in its place.
        schema: of the rows; None as long as that is not known.
        queries: query → the offset up to which it has committed.

    Raises:
        FlowError: the files cannot be used; each method raises it too.
    """

    def __init__(self, path: Path | None, segment: int, schema: Schema | None = None) -> None:
        self._folder = temporary_folder("evflow-sink-") if path is None else None
        place = path if self._folder is None else self._folder / "rows"
        assert place is not None
        self._origins: dict[bytes, Origin] = {}
        self._handled: tuple[Frame, int] = (_NO_FRAME, 0)
        self.spool = secrets.token_hex(16)
        self.schema = schema
        self.queries: dict[str, int] = {}
        if not place.parent.is_dir():
            raise FlowError(f"sink file {place} cannot be made: there is no folder {place.parent}")
        super().__init__(place, "sink file", "sink 1", segment, own=path is not None)
        if schema is not None and self.schema != schema:
            self.close()
            raise FlowError(
                f"sink file {place} has rows of {self.schema!r}, expected {schema!r}; read them first, or "
                "take another file"
            )

    def _state(self) -> list[Any]:
        book = self.book()
        if book is None:
            raise FlowError("no rows have come to the sink, so it has no schema yet")
        return book.plain()

    def _restore(self, state: list[Any]) -> None:
        book = Book.parsed(state)
        self.spool, self.schema = book.spool, book.schema
        self.queries, self._origins = book.queries, book.origins

    def _noted(self, meta: Meta) -> None:
        match meta:
            case ["query", str(query), None]:
                self.queries.pop(query, None)
            case ["query", str(query), row]:
                self.queries[query] = convert(row, Offset)
            case _:
                raise ValueError(f"{shown(meta)} is not what a sink writes")

    def _added(self, count: int, said: Sequence[Any]) -> None:
        """Notes rows of a frame: its route, its path and its rows before."""
        if not said:
            return
        route, path, before = convert(said, tuple[bytes, tuple[Offset, ...], Offset])
        self._origins.pop(route, None)
        self._origins[route] = Origin(path, before + count)
        if len(self._origins) > 2 * _MOST_ORIGINS:
            for old in list(islice(self._origins, _MOST_ORIGINS)):
                del self._origins[old]

    def __len__(self) -> int:
        return self.next - self.first

    # --- rows come

    def append(self, batch: EventBatch, frame: Frame | None = None) -> int:
        """Appends rows, but for those that were appended before.

        Args:
            batch: the rows; their attributes are not kept.
            frame: what the frame is known by that they are of; None if they are of none. What comes of a
                frame, and in which order, is the same whenever it comes.

        Returns:
            How many rows of the batch were there before.

        Raises:
            SchemaError: they are of another schema.
            UnwrittenError: the files cannot be written now; it says how many of the rows are there.
        """
        if self.schema is None:
            self.schema = batch.schema
        if batch.schema is not self.schema and batch.schema != self.schema:
            raise SchemaError(
                f"a sink has rows of one schema: expected {self.schema!r}, found {batch.schema!r}"
            )
        before = 0 if frame is None else self._before(frame, len(batch))
        left = batch.slice(before, len(batch)) if before else batch
        taken = before
        try:
            for piece in pieces(left.with_attributes(None), min(self._size, _MOST_PIECE)):
                said = () if frame is None else (*frame, self._done(frame))
                self.put(len(piece), said, piece.data.data)
                taken += len(piece)
        except UnwrittenError as error:
            raise UnwrittenError(str(error), taken) from error
        return before

    def _before(self, frame: Frame, count: int) -> int:
        """How many of the next rows of a frame are there; notes that they have come."""
        known, come = self._handled
        come = come if known == frame else 0
        self._handled = (frame, come + count)
        route, path = frame
        newest = self._origins.get(route)
        if newest is not None and path < newest.path:
            return count
        return min(max(self._done(frame) - come, 0), count)

    def _done(self, frame: Frame) -> int:
        """How many rows of a frame, the newest of its route, are there."""
        origin = self._origins.get(frame[0])
        return origin.rows if origin is not None and origin.path == frame[1] else 0

    # --- rows are read, and go

    def read(self, start: int, stop: int, most: int) -> EventBatch:
        """Rows from ``start`` on, before ``stop``: as many as have about ``most`` bytes, but one at least.

        Raises:
            FlowError: they are not there, or there is none between.
        """
        if not self.first <= start < stop <= self.next:
            raise FlowError(
                f"rows {start} to {stop} are not there: the sink has those from {self.first} to {self.next}"
            )
        assert self.schema is not None
        bodies: list[bytes] = []
        before = end = size = 0
        for at, piece in self.since(start):
            before = before if bodies else start - at
            bodies.append(self._log.body(piece))
            end, size = at + piece.meta[1], size + piece.size
            if end >= stop or size >= most:
                break
        with self._log.naming():
            batch = EventBatch.from_bytes(self.schema, b"".join(bodies), end - start + before)
        wanted = batch.slice(before, before + min(stop, end) - start)
        return wanted.slice(0, max(within(wanted, most), 1))

    def held(self, count: int | None = None) -> list[EventBatch]:
        """All rows that have not been let go, in order; of these the first ``count``."""
        found: list[EventBatch] = []
        at, stop = self.first, self.next if count is None else min(self.first + count, self.next)
        while at < stop:
            found.append(self.read(at, stop, _MOST_PIECE))
            at += len(found[-1])
        return found

    # --- queries

    def commit(self, query: str, row: int) -> None:
        """A query has committed the rows before an offset."""
        if self.queries.get(query) != row:
            self._note_query(query, row)

    def forget(self, query: str) -> None:
        """A query does not read any more."""
        if query in self.queries:
            self._note_query(query, None)

    def _note_query(self, query: str, row: int | None) -> None:
        # Nothing is written before the schema is known.
        (self._noted if self.schema is None else self.note)(["query", query, row])

    # --- moving

    def book(self) -> Book | None:
        """What it is beside its rows; None if it has no schema."""
        if self.schema is None:
            return None
        newest = list(self._origins.items())[-_MOST_ORIGINS:]
        return Book(self.spool, self.first, self.schema, dict(self.queries), dict(newest))

    def become(self, book: Book, rows: Iterable[EventBatch]) -> None:
        """From now on it is what another one was; after a kill before that it is what it was."""
        size = min(self._size, _MOST_PIECE)
        parts = (part for batch in rows for part in pieces(batch.with_attributes(None), size))
        self.replace(book.first, book.plain(), ((len(part), (), part.data.data) for part in parts))

    def close(self) -> None:
        """Closes the files; temporary ones are removed."""
        super().close()
        if self._folder is not None:
            remove_folder(self._folder)
