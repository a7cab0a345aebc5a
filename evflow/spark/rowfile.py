"""Row files: encoded events in a file, which only grows, and is read without a copy.

The file begins with the schema of the events. Frames follow: how many events, in how many bytes, and these
back to back, as in a batch. What is appended counts once the beginning of its first frame says so, with one
small write: a process that is killed in the middle of a batch has not appended it, and what it wrote of it is
written over.

A kill of the process loses nothing that was appended; a power cut may lose the last moments.
"""

from __future__ import annotations

import json
import mmap
import os
import struct
from bisect import bisect_right
from pathlib import Path
from typing import NamedTuple

import numpy as np

from evflow.disk import unusable
from evflow.errors import EvflowError, FlowError, SchemaError
from evflow.events.batch import EventBatch
from evflow.events.gather import frozen
from evflow.events.joining import pieces
from evflow.outside import from_json
from evflow.schema import Schema
from evflow.schema.values import describe

FRAME = 1 << 20
"""Bytes of a frame, at most, unless one event alone has more."""

_MAGIC = b"evflow\x02\n"
_HEAD = struct.Struct("<8sq")  # the magic, bytes of the schema's description
_COUNTS = struct.Struct("<qq")  # events and bytes of a frame
_MOST_TEXT = 64 << 20


class _Frame(NamedTuple):
    """A frame: the number of its first event, and where its events are in the file."""

    first: int
    rows: int
    at: int
    nbytes: int


class RowFile:
    """Events of one schema in a file; attributes are not kept. For one thread at a time.

    No file is open between two calls after ``close``; the next call opens it again.

    Args:
        path: the file, made if it is not there.
        schema: the schema of the events; None for that of a file which is there.
        own: whether what is in it was appended by this process; otherwise it is checked when it is read.

    Raises:
        SchemaError: the file has events of another schema.
        FlowError: it cannot be used; each method raises it too.

    Attributes:
        path: the file.
        schema: the schema of its events.
        header: bytes before the first frame.
        rows: how many events are in it.
        size: bytes that it takes on the disk.

    Example:
        >>> import tempfile
        >>> from pathlib import Path
        >>> import evflow as ev
        >>> class Ping(ev.Event):
        ...     number: int
        >>> folder = tempfile.TemporaryDirectory()
        >>> file = RowFile(Path(folder.name) / "pings", Ping.schema)
        >>> file.append(ev.EventBatch.from_columns(Ping, {"number": [1, 2, 3]}))
        >>> file.rows, file.read(1)["number"].tolist()
        (3, [2, 3])
        >>> file.delete()
        >>> folder.cleanup()
    """

    def __init__(self, path: str | Path, schema: Schema | None = None, own: bool = False) -> None:
        self.path = Path(path)
        self.rows = self.header = self.size = 0
        self._file = -1
        self._frames: list[_Frame] = []
        self._torn = False  # whether there may be something behind the last frame
        try:
            found = self._begin(schema)
        except EvflowError:
            self.close()
            raise
        except (OSError, ValueError, RecursionError, struct.error) as error:
            self.close()
            raise self._unusable(error) from error
        self.schema = found
        self._unsure = 0 if own else self.rows

    def _begin(self, schema: Schema | None) -> Schema:
        flags = os.O_RDWR | os.O_CLOEXEC
        self._file = os.open(self.path, flags if schema is None else flags | os.O_CREAT, 0o600)
        head = os.pread(self._file, _HEAD.size, 0)
        if schema is not None and len(head) < _HEAD.size:
            # New, or its maker was killed before it had a schema.
            text = json.dumps(schema.description).encode()
            self._write(text, _HEAD.size)
            self._write(_HEAD.pack(_MAGIC, len(text)), 0)
            self.header = self.size = _HEAD.size + len(text)
            return schema
        found = self._read_head(head)
        if schema is not None and schema != found:
            raise SchemaError(f"row file {self.path} has events of {found!r}, expected {schema!r}")
        self._read_frames(found)
        return found

    def _read_head(self, head: bytes) -> Schema:
        magic, length = _HEAD.unpack(head)
        if magic != _MAGIC or not 0 < length <= _MOST_TEXT:
            raise ValueError("it is not a row file of this version of evflow")
        try:
            found = Schema.from_description(from_json(os.pread(self._file, length, _HEAD.size)))
        except SchemaError as error:
            raise ValueError(f"it is damaged: {error}") from None
        self.header = self.size = _HEAD.size + length
        return found

    def _read_frames(self, schema: Schema) -> None:
        end = os.fstat(self._file).st_size
        while len(counts := os.pread(self._file, _COUNTS.size, self.size)) == _COUNTS.size:
            rows, nbytes = _COUNTS.unpack(counts)
            if not rows and not nbytes:
                break  # A kill left the frame without its beginning.
            at = self.size + _COUNTS.size
            if not 0 < rows <= nbytes or (schema.width is not None and nbytes != rows * schema.width):
                raise ValueError(f"it is damaged: a frame has {rows} events in {nbytes} bytes")
            if at + nbytes > end:
                raise ValueError(f"it is cut: expected {rows} events in {nbytes} bytes at byte {at}")
            self._add(rows, at, nbytes)
        self._torn = self.size < end

    def _add(self, rows: int, at: int, nbytes: int) -> None:
        self._frames.append(_Frame(self.rows, rows, at, nbytes))
        self.rows += rows
        self.size = at + nbytes

    def append(self, batch: EventBatch) -> None:
        """Adds events behind those that are there, all or none.

        Raises:
            SchemaError: they are of another schema.
            FlowError: the file cannot be written, as when the disk is full; nothing was added.
        """
        if batch.schema is not self.schema and batch.schema != self.schema:
            raise SchemaError(
                f"row file {self.path}: expected events of {self.schema!r}, found {batch.schema!r}"
            )
        at, made, begins = self.size, list[tuple[int, int, int]](), b""
        try:
            if self._torn:
                # What an earlier write has left would be read as frames.
                os.ftruncate(self._opened(), self.size)
            for part in pieces(batch, FRAME):
                self._torn = True
                counts = _COUNTS.pack(part.rows, len(part.data))
                if begins:
                    self._write(counts, at)
                begins = begins or counts
                at += _COUNTS.size
                self._write(part.data.data, at)
                made.append((part.rows, at, len(part.data)))
                at += len(part.data)
            if begins:
                self._write(begins, self.size)
        except OSError as error:
            raise self._unusable(error) from error
        self._torn = False
        for frame in made:
            self._add(*frame)

    def read(self, first: int) -> EventBatch:
        """The events from number ``first`` to the end of the frame that has it. Their bytes are the file's
        own, mapped, and stay when it is deleted.

        Raises:
            FlowError: there are fewer than ``first`` events; or the file is damaged, or cannot be read.
        """
        if not 0 <= first <= self.rows:
            raise FlowError(f"row file {self.path} has {self.rows} events, so none from {describe(first)} on")
        if first == self.rows:
            return EventBatch.from_columns(self.schema, {field.name: [] for field in self.schema.fields})
        frame = self._frames[bisect_right(self._frames, first, key=lambda frame: frame.first) - 1]
        try:
            batch = self._read_frame(frame)
        except (OSError, ValueError) as error:
            raise self._unusable(error) from error
        return batch if first == frame.first else batch.slice(first - frame.first, frame.rows)

    def _read_frame(self, frame: _Frame) -> EventBatch:
        # Only the frame is mapped, so no more of the file counts as this process's memory.
        aligned = frame.at - frame.at % mmap.ALLOCATIONGRANULARITY
        length = frame.at + frame.nbytes - aligned
        mapped = mmap.mmap(self._opened(), length, flags=mmap.MAP_SHARED, prot=mmap.PROT_READ, offset=aligned)
        data = frozen(np.frombuffer(mapped, np.uint8, frame.nbytes, frame.at - aligned))
        if self.schema.width is not None and frame.first >= self._unsure:
            return EventBatch(self.schema, data, frame.rows)
        # Native code relies on what is found on the disk; and only a look at all events tells their ends.
        try:
            return EventBatch.from_bytes(self.schema, data.data, frame.rows)
        except SchemaError as error:
            raise ValueError(f"it is damaged: {error}") from None

    def close(self) -> None:
        """Closes the file, until it is used again; what was read of it stays."""
        if self._file >= 0:
            os.close(self._file)
        self._file = -1

    def delete(self) -> None:
        """Closes and removes the file, also one that is gone already."""
        self.close()
        self.remove(self.path)

    @staticmethod
    def remove(path: Path) -> int:
        """Removes a row file that is not open; returns the bytes that it took on the disk.

        Raises:
            FlowError: it cannot be removed.
        """
        try:
            size = path.stat().st_size
            path.unlink()
        except FileNotFoundError:
            return 0
        except OSError as error:
            raise FlowError(f"row file {path} cannot be removed: {error}") from error
        return size

    def _opened(self) -> int:
        if self._file < 0:
            self._file = os.open(self.path, os.O_RDWR | os.O_CLOEXEC)
        return self._file

    def _write(self, data: bytes | memoryview, at: int) -> None:
        rest = memoryview(data).cast("B")
        while rest.nbytes:
            written = os.pwrite(self._opened(), rest, at)
            rest, at = rest[written:], at + written

    def _unusable(self, error: Exception) -> FlowError:
        return unusable(f"row file {self.path}", error)

    def __repr__(self) -> str:
        return f"RowFile({self.path.name}: {self.rows} events of {self.schema.name}, {self.size} bytes)"
