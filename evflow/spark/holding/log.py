"""The log of a sink: rows with rising offsets, in files that are let go from the oldest on.

A row keeps its offset for good, so whoever reads the rows from 100 to 200 twice gets the same. Each file
begins with the state of the log: from which row on rows count, who reads, and what came over links. So a file
goes without being read. Rows and the frame that they are of are one piece, so after a kill both are there, or
neither.
"""

from __future__ import annotations

import secrets
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from evflow.disk import Log, Meta, Piece
from evflow.errors import FlowError, SchemaError, UnwrittenError
from evflow.events.batch import EventBatch
from evflow.forked import remove_folder, temporary_folder
from evflow.outside import shown
from evflow.schema import Schema

__all__ = ["END", "Book", "Frame", "Origin", "RowLog"]

END = 1 << 62
"""An offset is less."""

_MOST_ORIGINS = 10_000
_MOST_PIECE = 1 << 20
_PIECE_ROWS = 1 << 16
_MARK = 1 << 16
"""Bytes of a file between two rows of which the place is known."""

Frame = tuple[bytes, tuple[int, ...]]
"""What a frame of a link is known by: its route and its path."""

_NO_FRAME: Frame = (b"", ())


class Origin(NamedTuple):
    """How much has come over a route.

    Attributes:
        path: of the newest frame.
        rows: of that frame that are in the log.
    """

    path: tuple[int, ...]
    rows: int


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
    def parsed(cls, spool: Any, first: Any, schema: Any, queries: Any, origins: Any) -> Book:
        """The book that plain data from outside describe.

        Raises:
            ValueError: a value is not what it should be. So do TypeError and SchemaError.
        """
        known = dict(queries)
        came = {route: Origin(tuple(path), rows) for route, path, rows in origins}
        good = (
            isinstance(spool, str)
            and _whole(first)
            and all(isinstance(query, str) and _whole(row) for query, row in known.items())
            and all(
                isinstance(route, bytes) and all(map(_whole, (*one.path, one.rows)))
                for route, one in came.items()
            )
        )
        if not good:
            raise ValueError("expected names and offsets, found something else")
        return cls(spool, first, Schema.from_description(schema), known, came)

    def plain(self) -> list[Any]:
        """Plain data that describe the book."""
        origins = [[route, list(one.path), one.rows] for route, one in self.origins.items()]
        return [self.spool, self.first, self.schema.description, list(self.queries.items()), origins]


def _whole(value: object) -> bool:
    return type(value) is int and 0 <= value < END


@dataclass
class _File:
    """A file: its number, its rows from ``first`` to ``next``, their bytes, and where some of them are."""

    number: int
    first: int
    next: int
    nbytes: int = 0
    marks: list[tuple[int, int]] = field(default_factory=list)

    def add(self, rows: int, at: int, nbytes: int) -> None:
        if not self.marks or at - self.marks[-1][1] >= _MARK:
            self.marks.append((self.next, at))
        self.next += rows
        self.nbytes += nbytes


class RowLog:
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
        first: the offset of the oldest row that has not been let go.
        queries: query → the offset up to which it has committed.

    Raises:
        FlowError: the files cannot be used; each method raises it too.
    """

    def __init__(self, path: Path | None, segment: int, schema: Schema | None = None) -> None:
        self._folder: Path | None = None
        if path is None:
            self._folder = temporary_folder("evflow-sink-")
            self._path = self._folder / "rows"
        else:
            self._path = path
        self._segment = segment
        self._files: list[_File] = []
        self._origins: dict[bytes, Origin] = {}
        self._handled: tuple[Frame, int] = (_NO_FRAME, 0)
        self.spool = secrets.token_hex(16)
        self.schema = schema
        self.first = 0
        self.queries: dict[str, int] = {}
        if not self._path.parent.is_dir():
            raise FlowError(f"sink file {self._path} cannot be made: there is no folder {self._path.parent}")
        self._log = Log(self._path, "sink file", "sink 1", own=path is not None)
        try:
            self._read()
            if schema is not None and self.schema != schema:
                raise FlowError(
                    f"sink file {self._path} has rows of {self.schema!r}, expected {schema!r}; read them "
                    "first, or take another file"
                )
        except BaseException:
            self.close()
            raise

    # --- the files

    def _read(self) -> None:
        self._files = []
        with self._log.naming():
            for piece in self._log.pieces():
                self._take(piece)
            if self._files and not self._files[0].first <= self.first <= self.next:
                raise ValueError(
                    f"rows from {self.first} on are missing, there are those from {self._files[0].first} to "
                    f"{self.next}; bring back its files, or move them away to begin anew"
                )
        if self._files:
            self._drop()

    def _take(self, piece: Piece) -> None:
        """Makes the change that a piece says."""
        match piece.meta:
            case ["state", int(next), *plain] if _whole(next):
                if self._files and self._files[-1].next != next:
                    raise ValueError(f"rows from {self._files[-1].next} to {next} are missing")
                self._set(Book.parsed(*plain))
                self._files.append(_File(piece.segment, next, next))
            case ["rows", int(rows), *frame] if self._files and rows > 0:
                self._came(rows, piece.at, piece.size, frame)
            case ["first", int(first)] if self._files and _whole(first):
                self.first = first
            case ["query", str(query), int(row)] if self._files and _whole(row):
                self.queries[query] = row
            case ["query", str(query), None] if self._files:
                self.queries.pop(query, None)
            case _:
                raise ValueError(f"{shown(piece.meta)} is not what a sink writes")

    def _set(self, book: Book) -> None:
        self.spool, self.first, self.schema = book.spool, book.first, book.schema
        self.queries, self._origins = book.queries, book.origins

    def _came(self, rows: int, at: int, nbytes: int, frame: Sequence[Any]) -> None:
        """Notes rows that are in the newest file; a frame is its route, its path and its rows before."""
        self._files[-1].add(rows, at, nbytes)
        if frame:
            route, path, before = frame
            if not isinstance(route, bytes) or not all(map(_whole, (*path, before))):
                raise ValueError(f"{shown(frame)} is not a frame")
            self._origins.pop(route, None)
            self._origins[route] = Origin(tuple(path), before + rows)
            if len(self._origins) > 2 * _MOST_ORIGINS:
                for old in list(islice(self._origins, _MOST_ORIGINS)):
                    del self._origins[old]

    def _state(self) -> Meta:
        book = self.book()
        if book is None:
            raise FlowError(f"sink file {self._path}: no rows have come, so it has no schema yet")
        return ["state", self.next, *book.plain()]

    def _begun(self) -> Log:
        if not self._files:
            self._log.begin([[(self._state(), b"")]])
            self._files.append(_File(self._log.segment, self.first, self.first))
        return self._log

    def _roll(self) -> None:
        """Goes on in another file."""
        self._log.roll([self._state()])
        self._files.append(_File(self._log.segment, self.next, self.next))

    @property
    def next(self) -> int:
        """The offset that the next row will have."""
        return self._files[-1].next if self._files else self.first

    @property
    def nbytes(self) -> int:
        """Bytes of the rows in files."""
        return sum(file.nbytes for file in self._files)

    @property
    def oldest_end(self) -> int:
        """The offset up to which rows have to be let go so that a file goes."""
        return self._files[0].next if self._files else self.next

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
            for piece in self._pieces(left.with_attributes(None)):
                self._put(piece, frame)
                taken += len(piece)
        except UnwrittenError as error:
            raise UnwrittenError(str(error), taken) from error
        return before

    def _put(self, piece: EventBatch, frame: Frame | None) -> None:
        log, newest = self._begun(), self._files[-1]
        # A file that has little but a large state is worth its state only if it gets as much more.
        if newest.nbytes >= self._segment and log.end >= 2 * (newest.marks or [(0, 0)])[0][1]:
            self._roll()
        said = [] if frame is None else [frame[0], frame[1], self._done(frame)]
        at = log.end
        log.append(*_piece(piece, said))
        self._came(len(piece), at, len(piece.data), said)

    def _pieces(self, batch: EventBatch) -> Iterator[EventBatch]:
        """A batch in parts, of which none is much larger than a file is to be."""
        whole = batch.compact()
        mean = max(whole.nbytes // max(len(whole), 1), 1)
        count = max(min(min(self._segment, _MOST_PIECE) // mean, _PIECE_ROWS), 1)
        for start in range(0, len(whole), count):
            yield whole.slice(start, min(start + count, len(whole)))

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
        """Rows from ``start`` on, before ``stop``: as many as are in one file and about ``most`` bytes, but
        one at least.

        Raises:
            FlowError: they are not there, or there is none between.
        """
        if not self.first <= start < stop <= self.next:
            raise FlowError(
                f"rows {start} to {stop} are not there: the sink has those from {self.first} to {self.next}"
            )
        assert self.schema is not None
        file = self._files[bisect_right(self._files, start, key=lambda file: file.first) - 1]
        row, at = file.marks[bisect_right(file.marks, start, key=lambda mark: mark[0]) - 1]
        bodies: list[bytes] = []
        first, size = row, 0
        for piece in self._log.pieces(file.number, at):
            if piece.meta[0] != "rows":
                continue
            if (next := row + piece.meta[1]) > start:
                first = first if bodies else row
                bodies.append(self._log.body(piece))
                size += piece.size
            row = next
            if row >= min(stop, file.next) or size >= most:
                break
        with self._log.naming():
            batch = EventBatch.from_bytes(self.schema, b"".join(bodies), row - first)
        return _fitting(batch.slice(start - first, min(stop, row) - first), most)

    def held(self, count: int | None = None) -> list[EventBatch]:
        """All rows that have not been let go, in order; of these the first ``count``."""
        found: list[EventBatch] = []
        at, stop = self.first, self.next if count is None else min(self.first + count, self.next)
        while at < stop:
            found.append(self.read(at, stop, self._segment))
            at += len(found[-1])
        return found

    def let_go(self, first: int) -> int:
        """Lets the rows before an offset go, and deletes files of which none is left.

        Returns:
            How many rows went.
        """
        gone = min(first, self.next) - self.first
        if gone <= 0:
            return 0
        self._begun().append(["first", self.first + gone])
        self.first += gone
        self._drop()
        return gone

    def _drop(self) -> None:
        if self._files[-1].next <= self.first and 2 * self._files[-1].nbytes >= self._segment:
            self._roll()
        gone = 0
        while self._files[gone].next <= self.first and gone < len(self._files) - 1:
            gone += 1
        if gone:
            self._log.drop(self._files[gone].number)
            del self._files[:gone]

    # --- queries

    def commit(self, query: str, row: int) -> None:
        """A query has committed the rows before an offset."""
        if self.queries.get(query) != row:
            if self.schema is not None:
                self._begun().append(["query", query, row])
            self.queries[query] = row

    def forget(self, query: str) -> None:
        """A query does not read any more."""
        if query in self.queries:
            if self.schema is not None:
                self._begun().append(["query", query, None])
            del self.queries[query]

    # --- moving

    def book(self) -> Book | None:
        """What it is beside its rows; None if it has no schema."""
        if self.schema is None:
            return None
        newest = list(self._origins.items())[-_MOST_ORIGINS:]
        return Book(self.spool, self.first, self.schema, dict(self.queries), dict(newest))

    def become(self, book: Book, rows: Iterable[EventBatch]) -> None:
        """From now on it is what another one was; after a kill before that it is what it was."""
        self._log.begin(self._copied(book, rows))
        self._read()

    def _copied(self, book: Book, rows: Iterable[EventBatch]) -> Iterator[list[tuple[Meta, Any]]]:
        """The pieces of each file of a log."""
        next, size = book.first, 0
        file: list[tuple[Meta, Any]] = [(["state", next, *book.plain()], b"")]
        for batch in rows:
            for piece in self._pieces(batch.with_attributes(None)):
                if size >= self._segment:
                    yield file
                    file, size = [(["state", next, *book.plain()], b"")], 0
                file.append(_piece(piece))
                size, next = size + len(piece.data), next + len(piece)
        yield file

    def sync(self) -> None:
        """Brings all rows that were appended to the disk itself.

        Raises:
            FlowError: the disk refuses.
        """
        self._log.sync()

    def close(self) -> None:
        """Closes the files; temporary ones are removed."""
        self._log.close()
        if self._folder is not None:
            remove_folder(self._folder)


def _piece(rows: EventBatch, said: Sequence[Any] = ()) -> tuple[Meta, Any]:
    return ["rows", len(rows), *said], rows.data.data


def _fitting(batch: EventBatch, most: int) -> EventBatch:
    """The first events of a batch that fit into so many bytes, but one at least."""
    if batch.nbytes <= most:
        return batch
    width = batch.schema.width
    if batch.offsets is not None:
        count = int(np.searchsorted(batch.offsets, most, "right")) - 1
    else:
        count = most // (width or 1)
    return batch.slice(0, max(count, 1))
