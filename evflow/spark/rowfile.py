"""Row files: encoded events in a file, which only grows, and is read without a copy.

The file begins with how many events are in it and their schema; the events follow back to back, as in a
batch. Where their width varies a second file beside it says where each ends. What is appended counts once the
beginning says so, with one small write: a process that is killed in the middle of a batch has not appended
it, and what it wrote of it is written over.

A kill of the process loses nothing that was appended; a power cut may lose the last moments.
"""

from __future__ import annotations

import json
import mmap
import os
import struct
from pathlib import Path
from typing import Any

import numpy as np

from evflow.disk import unusable
from evflow.errors import EvflowError, FlowError, SchemaError
from evflow.events.batch import EventBatch
from evflow.events.gather import ByteArray, Offsets, frozen
from evflow.outside import from_json
from evflow.schema import Schema
from evflow.schema.values import describe

_MAGIC = b"evflow\x01\n"
_COUNTS = struct.Struct("<qq")  # rows, bytes of events
_HEAD = struct.Struct("<8sqqq")  # the magic, the counts, bytes of the schema's description
_END = np.dtype("<i8")
_MOST_TEXT = 64 << 20


class RowFile:
    """Events of one schema in a file; attributes are not kept. For one thread at a time.

    No file is open between two calls after ``close``; the next call opens it again.

    Args:
        path: the file, made if it is not there; where the width of events varies, one named ``path`` and
            ``.ends`` stands beside it.
        schema: the schema of the events; None for that of a file which is there.
        own: whether what is in it was appended by this process; otherwise it is checked when it is read.

    Raises:
        SchemaError: the file has events of another schema.
        FlowError: it cannot be used; each method raises it too.

    Attributes:
        path: the file.
        schema: the schema of its events.
        rows: how many events are in it.
        nbytes: bytes of these.

    Example:
        >>> import tempfile
        >>> from pathlib import Path
        >>> import evflow as ev
        >>> class Ping(ev.Event):
        ...     number: int
        >>> folder = tempfile.TemporaryDirectory()
        >>> file = RowFile(Path(folder.name) / "pings", Ping.schema)
        >>> file.append(ev.EventBatch.from_columns(Ping, {"number": [1, 2, 3]}))
        >>> file.rows, file.nbytes, file.read(1, 1 << 20)["number"].tolist()
        (3, 30, [2, 3])
        >>> file.delete()
        >>> folder.cleanup()
    """

    def __init__(self, path: str | Path, schema: Schema | None = None, own: bool = False) -> None:
        self.path = Path(path)
        self.rows = self.nbytes = 0
        self._file = self._ends = -1
        self._start = 0  # where the first event stands in the file
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
            self._make(schema)
            return schema
        found = self._read_head(head)
        if schema is not None and schema != found:
            raise SchemaError(f"row file {self.path} has events of {found!r}, expected {schema!r}")
        return found

    def _make(self, schema: Schema) -> None:
        text = json.dumps(schema.description).encode()
        self._start = _HEAD.size + len(text)
        self._write(self._file, text, _HEAD.size)
        self._write(self._file, _HEAD.pack(_MAGIC, 0, 0, len(text)), 0)

    def _read_head(self, head: bytes) -> Schema:
        magic, rows, nbytes, length = _HEAD.unpack(head)
        if magic != _MAGIC or rows < 0 or nbytes < 0 or not 0 < length <= _MOST_TEXT:
            raise ValueError("it is no row file of this version of evflow")
        try:
            found = Schema.from_description(from_json(os.pread(self._file, length, _HEAD.size)))
        except SchemaError as error:
            raise ValueError(f"it is damaged: {error}") from None
        self._start = _HEAD.size + length
        ends = self._ends_path.stat().st_size if found.width is None and rows else rows * _END.itemsize
        if os.fstat(self._file).st_size < self._start + nbytes or ends < rows * _END.itemsize:
            raise ValueError(f"it is cut: expected {rows} events in {nbytes} bytes")
        if found.width is not None and nbytes != rows * found.width:
            raise ValueError(f"it is damaged: {rows} events of {found.width} bytes are not {nbytes} bytes")
        self.rows, self.nbytes = rows, nbytes
        return found

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
        whole = batch.compact()
        rows, nbytes = self.rows + whole.rows, self.nbytes + len(whole.data)
        try:
            file = self._opened()
            if whole.offsets is not None:
                ends = whole.offsets[1:] + (self.nbytes - int(whole.offsets[0]))
                at = self.rows * _END.itemsize
                self._write(self._ends_opened(), ends.astype(_END, copy=False).data, at)
            self._write(file, whole.data.data, self._start + self.nbytes)
            os.pwrite(file, _COUNTS.pack(rows, nbytes), len(_MAGIC))
        except OSError as error:
            raise self._unusable(error) from error
        self.rows, self.nbytes = rows, nbytes

    def read(self, first: int, most_bytes: int) -> EventBatch:
        """Events from number ``first`` on, in order: as many whole ones as fit into ``most_bytes``, and at
        least one if there is one. Their bytes are the file's own, mapped, and stay when it is deleted.

        Raises:
            FlowError: there are fewer than ``first`` events; or the file is damaged, or cannot be read.
        """
        if not 0 <= first <= self.rows:
            raise FlowError(f"row file {self.path} has {self.rows} events, so none from {describe(first)} on")
        if first == self.rows:
            return EventBatch.from_columns(self.schema, {field.name: [] for field in self.schema.fields})
        try:
            width = self.schema.width
            if width is None:
                batch = self._read_varying(first, most_bytes)
            else:
                count = min(max(1, most_bytes // width), self.rows - first)
                batch = EventBatch(self.schema, self._map(first * width, count * width), count)
            if first < self._unsure:
                self._check(batch)
        except (OSError, ValueError) as error:
            raise self._unusable(error) from error
        return batch

    def _check(self, batch: EventBatch) -> None:
        """Sees to it that what was found on the disk is events: native code relies on that."""
        try:
            found = EventBatch.from_bytes(self.schema, batch.data.data, batch.rows)
        except SchemaError as error:
            raise ValueError(f"it is damaged: {error}") from None
        if not (
            found.offsets is None or batch.offsets is None or np.array_equal(found.offsets, batch.offsets)
        ):
            raise ValueError("it is damaged: events do not end where they should")

    def _read_varying(self, first: int, most_bytes: int) -> EventBatch:
        length = self.rows * _END.itemsize
        with_ends = mmap.mmap(self._ends_opened(), length, flags=mmap.MAP_SHARED, prot=mmap.PROT_READ)
        ends: Offsets = np.frombuffer(with_ends, _END)
        start = int(ends[first - 1]) if first else 0
        if start < 0:
            raise ValueError("it is damaged: an event ends before it begins")
        stop = max(first + 1, int(np.searchsorted(ends, start + most_bytes, "right")))
        offsets = np.zeros(stop - first + 1, np.int64)
        np.subtract(ends[first:stop], start, out=offsets[1:])
        if not 0 < offsets[-1] <= self.nbytes - start:
            raise ValueError("it is damaged: events end where there are none")
        return EventBatch(self.schema, self._map(start, int(offsets[-1])), stop - first, offsets)

    def _map(self, at: int, length: int) -> ByteArray:
        """Bytes of events; only these are mapped, so no more of the file counts as this process's memory."""
        begin = self._start + at
        aligned = begin - begin % mmap.ALLOCATIONGRANULARITY
        mapped = mmap.mmap(
            self._opened(),
            begin + length - aligned,
            flags=mmap.MAP_SHARED,
            prot=mmap.PROT_READ,
            offset=aligned,
        )
        return frozen(np.frombuffer(mapped, np.uint8, length, begin - aligned))

    def sync(self) -> None:
        """Brings what was appended to the disk itself."""
        try:
            os.fsync(self._opened())
            if not self.schema.width:
                os.fsync(self._ends_opened())
        except OSError as error:
            raise self._unusable(error) from error

    def close(self) -> None:
        """Closes the file, until it is used again; what was read of it stays."""
        for file in (self._file, self._ends):
            if file >= 0:
                os.close(file)
        self._file = self._ends = -1

    def delete(self) -> None:
        """Closes and removes the file, also one that is gone already."""
        self.close()
        self.remove(self.path)

    @property
    def header(self) -> int:
        """Bytes before the first event."""
        return self._start

    @property
    def size(self) -> int:
        """Bytes that it takes on the disk."""
        return self._start + self.nbytes + (0 if self.schema.width else self.rows * _END.itemsize)

    @staticmethod
    def remove(path: Path) -> int:
        """Removes a row file that is not open; returns the bytes that it took on the disk.

        Raises:
            FlowError: it cannot be removed.
        """
        freed = 0
        for part in (_ends_path(path), path):
            try:
                size = part.stat().st_size
                part.unlink()
                freed += size
            except FileNotFoundError:
                pass
            except OSError as error:
                raise FlowError(f"row file {path} cannot be removed: {error}") from error
        return freed

    @property
    def _ends_path(self) -> Path:
        return _ends_path(self.path)

    def _opened(self) -> int:
        if self._file < 0:
            self._file = os.open(self.path, os.O_RDWR | os.O_CLOEXEC)
        return self._file

    def _ends_opened(self) -> int:
        if self._ends < 0:
            self._ends = os.open(self._ends_path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        return self._ends

    def _write(self, file: int, data: bytes | memoryview, at: int) -> None:
        rest: Any = memoryview(data).cast("B")
        while rest.nbytes:
            written = os.pwrite(file, rest, at)
            rest, at = rest[written:], at + written

    def _unusable(self, error: Exception) -> FlowError:
        return unusable(f"row file {self.path}", error)

    def __repr__(self) -> str:
        return f"RowFile({self.path.name}: {self.rows} events of {self.schema.name}, {self.nbytes} bytes)"


def _ends_path(path: Path) -> Path:
    return path.with_name(f"{path.name}.ends")
