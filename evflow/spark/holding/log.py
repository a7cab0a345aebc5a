"""A log: rows with rising offsets, in files that are let go from the oldest on.

A row keeps its offset for good, so whoever reads the rows from 100 to 200 twice gets the same. Beside the
rows is a ledger. What it says changes before the rows do, so after a kill at any moment the two can be made
to agree: rows that it does not count are deleted, and rows of a link's frame that it announces are there, or
are not and will come again.
"""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from pathlib import Path

from evflow.disk import OwnFile, unusable
from evflow.errors import FlowError, SchemaError, UnwrittenError
from evflow.events.batch import EventBatch
from evflow.forked import remove_folder, temporary_folder
from evflow.schema import Schema
from evflow.spark.holding.logbook import Book, Logbook, Origin
from evflow.spark.holding.segments import Segments, clear_segments

__all__ = ["Frame", "Log"]

Frame = tuple[bytes, tuple[int, ...]]
"""What a frame of a link is known by: its route and its path."""

_NO_FRAME: Frame = (b"", ())


class Log:
    """Rows of one schema with offsets from 0 on.

    Nothing is written before there is a row, or a query that reads.

    Args:
        path: the ledger; the files of rows are beside it, and their names begin with its name. None for
            temporary files, which go with ``close``.
        segment: bytes after which another file is begun.
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
        self._book: Logbook | None = None
        self._rows: Segments | None = None
        self._origins: dict[bytes, Origin] = {}
        self._handled: tuple[Frame, int] = (_NO_FRAME, 0)
        self.spool = secrets.token_hex(16)
        self.schema = schema
        self.first = 0
        self.queries: dict[str, int] = {}
        if not self._path.parent.is_dir():
            raise FlowError(f"sink file {self._path} cannot be made: there is no folder {self._path.parent}")
        try:
            self._own = None if path is None else OwnFile(path)
        except (OSError, ValueError) as error:
            raise unusable(f"sink file {path}", error) from error
        try:
            self._begin(schema)
        except BaseException:
            self.close()
            raise

    def _begin(self, schema: Schema | None) -> None:
        if not self._path.exists():
            self._clear_rows()
            return
        self._open()
        if schema is not None and self.schema != schema:
            raise FlowError(
                f"sink file {self._path} has rows of {self.schema!r}, expected {schema!r}; read them first, "
                "or take another file"
            )

    def _open(self) -> None:
        self._book = Logbook(self._path)
        book = self._book.read()
        self.spool, self.first, self.schema = book.spool, book.first, book.schema
        self.queries, self._origins = book.queries, book.origins
        self._rows = Segments(self._path, book.schema, self._segment, book.first)
        for route, origin in list(self._origins.items()):
            if origin.first + origin.more > self.next:
                # Not appended before a kill; what will stand at these offsets is something else.
                self._came(route, Origin(origin.path, origin.before, self.next, 0))

    def _clear_rows(self) -> None:
        """A log goes by its ledger: files of rows without one are of a log that was thrown away."""
        clear_segments(self._path)

    def _begun(self) -> tuple[Logbook, Segments]:
        if self._book is None or self._rows is None:
            if self.schema is None:
                raise FlowError(f"sink file {self._path}: no rows have come, so it has no schema yet")
            book = Book(self.spool, self.first, self.schema, self.queries, self._origins)
            self._book = Logbook.make(self._path, book)
            self._rows = Segments(self._path, self.schema, self._segment, self.first)
        return self._book, self._rows

    @property
    def next(self) -> int:
        """The offset that the next row will have."""
        return self.first if self._rows is None else self._rows.next

    @property
    def nbytes(self) -> int:
        """Bytes of the files of rows."""
        return 0 if self._rows is None else self._rows.nbytes

    @property
    def oldest_end(self) -> int:
        """The offset up to which rows have to be let go so that a file goes."""
        return self.next if self._rows is None else self._rows.oldest_end

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
            _, rows = self._begun()
            for piece in rows.pieces(left.with_attributes(None)):
                if frame is not None:
                    route, path = frame
                    done = self._done(frame)
                    self._came(route, Origin(path, done, self.next, len(piece)))
                rows.append(piece)
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
        return origin.rows(self.next) if origin is not None and origin.path == frame[1] else 0

    def _came(self, route: bytes, origin: Origin) -> None:
        self._begun()[0].came(route, origin)
        self._origins[route] = origin

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
        return self._begun()[1].read(start, stop, most)

    def held(self) -> list[EventBatch]:
        """All rows that have not been let go, in order."""
        return [] if self._rows is None else self._rows.held(self.first)

    def let_go(self, first: int) -> int:
        """Lets the rows before an offset go, and deletes files of which none is left.

        Returns:
            How many rows went.
        """
        gone = min(first, self.next) - self.first
        if gone <= 0:
            return 0
        book, rows = self._begun()
        self.first += gone
        book.let_go(self.first)
        rows.let_go(self.first)
        return gone

    # --- queries

    def commit(self, query: str, row: int) -> None:
        """A query has committed the rows before an offset."""
        if self.queries.get(query) != row:
            self.queries[query] = row
            if self.schema is not None:
                self._begun()[0].committed(query, row)

    def forget(self, query: str) -> None:
        """A query does not read any more."""
        if self.queries.pop(query, None) is not None and self.schema is not None:
            self._begun()[0].forget(query)

    # --- moving

    def book(self) -> Book | None:
        """What it is beside its rows; None if it has no schema."""
        if self.schema is None:
            return None
        origins = {route: Origin(o.path, o.rows(self.next), 0, 0) for route, o in self._origins.items()}
        return Book(self.spool, self.first, self.schema, dict(self.queries), origins)

    def become(self, book: Book, rows: Sequence[EventBatch]) -> None:
        """From now on it is what another one was.

        The ledger is made last: before a kill it is not there, and then nothing is.
        """
        if self._book is not None:
            self._book.delete()
        if self._rows is not None:
            self._rows.close()
        self._book = self._rows = None
        self._clear_rows()
        made = Segments(self._path, book.schema, self._segment, book.first)
        for batch in rows:
            for piece in made.pieces(batch.with_attributes(None)):
                made.append(piece)
        made.close()
        Logbook.make(self._path, book).close()
        self._open()

    def sync(self) -> None:
        """Brings all rows that were appended to the disk itself.

        Raises:
            FlowError: the disk refuses.
        """
        if self._rows is not None and self._book is not None:
            self._rows.sync()
            self._book.sync()

    def close(self) -> None:
        """Closes the files; temporary ones are removed."""
        if self._rows is not None:
            self._rows.close()
        if self._book is not None:
            self._book.close()
        if self._own is not None:
            self._own.close()
        if self._folder is not None:
            remove_folder(self._folder)
