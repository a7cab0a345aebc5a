"""Rows one behind the other in several files, which are appended to, and deleted as a whole.

The name of a file says at which offset it begins, so all is known from the files that are there.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from evflow.errors import FlowError
from evflow.events.batch import EventBatch
from evflow.schema import Schema
from evflow.spark.rowfile import RowFile

__all__ = ["Segments", "clear_segments"]

_END = ".rows"
_WHOLE = 1 << 40
_PIECE_ROWS = 1 << 16


class _Segment(NamedTuple):
    first: int
    rows: RowFile

    @property
    def next(self) -> int:
        return self.first + self.rows.rows


def clear_segments(path: Path) -> None:
    """Deletes the files beside ``path`` that are of it.

    Raises:
        FlowError: one cannot be deleted.
    """
    for _, file in _found(path):
        try:
            for left in (file, file.with_name(f"{file.name}.ends")):
                left.unlink(missing_ok=True)
        except OSError as error:
            raise FlowError(f"sink file {file} cannot be deleted: {error}") from error


def _found(path: Path) -> list[tuple[int, Path]]:
    """The files beside ``path`` that are of it, each with the offset at which it begins, in order."""
    start = f"{path.name}."
    listed = [] if not path.parent.exists() else [p for p in path.parent.iterdir() if p.name.endswith(_END)]
    named = [(p.name.removeprefix(start).removesuffix(_END), p) for p in listed if p.name.startswith(start)]
    return sorted((int(number), p) for number, p in named if number.isdecimal())


class Segments:
    """The files of the rows of one log.

    Args:
        path: their names begin with this one.
        schema: of the rows.
        size: bytes after which another file is begun.
        first: the offset of the oldest row that counts; files that are there and end before are deleted.

    Attributes:
        next: the offset that the next row will have.
        nbytes: bytes of the files.

    Raises:
        FlowError: files are missing or damaged; each method raises it if they cannot be used.
    """

    def __init__(self, path: Path, schema: Schema, size: int, first: int) -> None:
        self._path = path
        self._schema = schema
        self._size = size
        self._listed: list[_Segment] = []
        self.nbytes = 0
        self.next = first
        self._synced = 0
        try:
            for begin, file in _found(path):
                self._take(_Segment(begin, RowFile(file, schema)), first)
        except BaseException:
            self.close()
            raise

    def _take(self, segment: _Segment, first: int) -> None:
        """Takes a file that is there, the next in order."""
        if segment.next <= first:
            segment.rows.delete()
            return
        expected = self.next if self._listed else min(segment.first, first)
        if segment.first != expected:
            segment.rows.close()
            raise FlowError(
                f"sink file {segment.rows.path}: expected rows from {expected} on; files are missing or "
                "damaged"
            )
        self._listed.append(segment)
        self.nbytes += segment.rows.nbytes
        self.next = segment.next

    @property
    def first(self) -> int:
        """The offset of the oldest row that is there."""
        return self._listed[0].first if self._listed else self.next

    def pieces(self, batch: EventBatch) -> Iterator[EventBatch]:
        """A batch in parts, of which none is much larger than a file is to be."""
        mean = max(batch.nbytes // max(len(batch), 1), 1)
        count = max(min(self._size // mean, _PIECE_ROWS), 1)
        for start in range(0, len(batch), count):
            yield batch.slice(start, start + count) if count < len(batch) else batch

    def append(self, batch: EventBatch) -> None:
        """Appends rows."""
        if not self._listed or self._listed[-1].rows.nbytes >= self._size:
            file = self._path.with_name(f"{self._path.name}.{self.next:020d}{_END}")
            self._listed.append(_Segment(self.next, RowFile(file, self._schema)))
        rows = self._listed[-1].rows
        before = rows.nbytes
        rows.append(batch)
        self.nbytes += rows.nbytes - before
        self.next += len(batch)

    def sync(self) -> None:
        """Brings the rows that were appended since this was called last to the disk itself."""
        for segment in self._listed:
            if segment.next > self._synced:
                segment.rows.sync()
        self._synced = self.next

    def read(self, start: int, stop: int, most: int) -> EventBatch:
        """Rows from ``start`` on, before ``stop``, of one file, and of about ``most`` bytes at most, but one
        row at least; without a copy."""
        at = bisect_right(self._listed, start, key=lambda segment: segment.first) - 1
        segment = self._listed[at]
        batch = segment.rows.read(start - segment.first, most)
        return batch if len(batch) <= stop - start else batch.slice(0, stop - start)

    def held(self, first: int) -> list[EventBatch]:
        """All rows from an offset on, in order."""
        found: list[EventBatch] = []
        while first < self.next:
            batch = self.read(first, self.next, _WHOLE)
            found.append(batch)
            first += len(batch)
        return found

    def let_go(self, first: int) -> None:
        """Deletes the files of which all rows stand before an offset."""
        gone = 0
        while gone < len(self._listed) and self._listed[gone].next <= first:
            rows = self._listed[gone].rows
            self.nbytes -= rows.nbytes
            rows.delete()
            gone += 1
        del self._listed[:gone]

    @property
    def oldest_end(self) -> int:
        """The offset behind the oldest file; that is all that can be let go at least."""
        return self._listed[0].next if self._listed else self.next

    def close(self) -> None:
        """Closes the files."""
        for segment in self._listed:
            segment.rows.close()
        self._listed.clear()
