"""A log: checksummed pieces one behind the other, in a file and in its older segments.

    file   "evflow log 1\n", then pieces; the first says what the log is of
    piece  u32 length of meta, u32 length of body, u32 CRC-32 of meta, u32 CRC-32 of body, u32 CRC-32 of the
           16 bytes before
           meta: a msgpack array; body: bytes as they are

Integers are little-endian. What is appended is with the system at once, so a kill of the process costs at
most the piece that is being written. Such a piece is torn: it goes on behind the end of the file. It is left
out, as are zeros and a last piece with a wrong sum, which a power cut may leave. Any other piece that is
wrong is damage, and the file is refused.

A log that grows goes on in a new file, which begins with what the owner has to know of the older ones. The
newest file has the name of the log, an older one that name and its number. So the owner can delete old files
without reading them.
"""

from __future__ import annotations

import errno
import os
import stat
import struct
import zlib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple

from evflow.disk.lock import OwnFile, tell_if_open
from evflow.disk.trouble import unusable
from evflow.errors import FlowError, SchemaError
from evflow.outside import Malformed, from_msgpack, shown, shown_path

_MAGIC = b"evflow log 1\n"
_SQLITE = b"SQLite format 3\0"
_RECORDING = b"evflow recording 1\n"

_HEAD = struct.Struct("<IIII")
_CHECK = struct.Struct("<I")
_SIZE = _HEAD.size + _CHECK.size
_AT_ONCE = 1024
"""Bytes of a piece that are read at first."""
_CHUNK = 1 << 20
_MOST_ZEROS = 64 << 20
"""Zeros at the end of a file that a power cut may leave."""
_MOST = (1 << 32) - 1
_ERRORS = OSError, ValueError, TypeError, OverflowError, SchemaError

Meta = list[Any]
"""What a piece says: plain data, the first of which is usually the name of what it is."""

Body = bytes | memoryview


class Piece(NamedTuple):
    """A piece of a log.

    Attributes:
        meta: what it says.
        segment: the number of its file.
        at: the byte at which it begins.
        size: bytes of its body.
        end: the byte behind it.
        check: CRC-32 of its body.
    """

    meta: Meta
    segment: int
    at: int
    size: int
    end: int
    check: int


class Log:
    """Pieces in a file, to which one owner at a time appends.

    Nothing is written before ``begin``. ``pieces()`` has to be read to its end before anything is appended.

    Args:
        path: the file. Until ``close`` nobody else has it.
        what: what the file is, for messages, such as "journal".
        kind: what the file is, as it says so itself; another kind or version of it is refused.
        own: whether the log locks the file; False if who opens it has locked its folder.
        synced: whether what is appended is on the disk itself when ``append`` and ``begin`` return.
        write: False to read a log of one file that is there, also while another appends to it.

    Attributes:
        path: the file.
        known: whether all pieces were read, so that the end is known.
        end: the byte behind the last piece of the newest file.
        segment: the number of the newest file.

    Raises:
        UnwrittenError: the file cannot be used now, or another has it. Each method raises it too.
        FlowError: the file is not such a log, or is damaged. Each method that reads raises it too.
    """

    def __init__(
        self, path: Path, what: str, kind: str, *, own: bool = True, synced: bool = False, write: bool = True
    ) -> None:
        self._named = path
        self._what = what
        self._kind = kind
        self._synced = synced
        self._file = -1
        self._opened: os.stat_result | None = None
        self._older: dict[int, Path] = {}  # the oldest first
        self._reading = (-1, -1)  # the number of an older file, and it itself
        self._own: OwnFile | None = None
        self._unsynced: set[int] = set()  # numbers of older files
        self.known = False
        self._torn = False  # whether there is something behind the end
        self._closed = False
        self.segment = 0
        self.end = 0
        with self.naming():
            # What is renamed to this name is to take the place of the file, not of a link to it.
            self.path = Path(os.path.realpath(path))
            self._own = OwnFile(path) if own and write else None
            try:
                if write:
                    self._find()
                self._open(write)
            except BaseException:
                self.close()
                raise

    @contextmanager
    def naming(self) -> Iterator[None]:
        """Within it an error of the file names the file, and says what to do."""
        try:
            yield
        except _ERRORS as error:
            raise self._unusable(error) from error

    def _unusable(self, error: Exception) -> FlowError:
        return unusable(f"{self._what} {shown_path(self._named)}", error)

    @property
    def begun(self) -> bool:
        """Whether there is a file."""
        return self._file >= 0

    # --- opening

    def _find(self) -> None:
        """Finds the older files, and puts the newest in its place after a kill."""
        self._older = dict(sorted((int(p.name.rpartition(".")[2]), p) for p in _segments(self.path)))
        if not _there(self.path) and self._older and self._rolled.exists():
            # A kill between the two steps of ``roll``.
            self._rolled.rename(self.path)
        for made in (self._made, self._rolled):
            made.unlink(missing_ok=True)
        if not _there(self.path):
            # Its owner has thrown the log away.
            self._forget(list(self._older))

    def _open(self, write: bool) -> None:
        if write and not _there(self.path):
            return
        access = (os.O_RDWR if write else os.O_RDONLY) | os.O_CLOEXEC | os.O_NONBLOCK
        file = self._file = os.open(self.path, access)
        opened = self._opened = os.fstat(file)
        if not stat.S_ISREG(opened.st_mode):
            raise OSError(errno.EINVAL, "it is not a regular file")
        if write:
            tell_if_open(self.path)
        first = self._first(opened.st_size)
        if first is None:
            # Nothing was written before a kill or a power cut.
            os.close(file)
            self._file = -1
            if self._older:
                self.path.unlink()
                self._older.popitem()[1].rename(self.path)
                self._open(write)
            return
        self.segment, oldest = first
        if not write:
            return
        self._forget([number for number in self._older if not oldest <= number < self.segment])
        listed = list(self._older)
        if listed and listed != list(range(listed[0], self.segment)):
            raise ValueError(f"its file {listed[-1] + 1} is missing; {_DAMAGED}")

    def _first(self, size: int) -> tuple[int, int] | None:
        """The number of the newest file and of the oldest that counts; None if nothing was written."""
        begins = os.pread(self._file, len(_MAGIC), 0)
        if begins != _MAGIC:
            if _MAGIC.startswith(begins):
                return None
            raise ValueError(_foreign(begins))
        first = self._piece(self._file, 0, len(_MAGIC), size)
        if first is None:
            return None
        match first.meta:
            case [str(kind), int(number), int(oldest)] if kind == self._kind:
                return number, oldest
            case [str(kind), *_]:
                raise ValueError(
                    f"expected {self._kind}, found {shown(kind)}, which is something else or of another "
                    "version of evflow; take another file, or open it with the version that wrote it"
                )
        raise ValueError(f"found {shown(first.meta)}; {_DAMAGED}")

    @property
    def _made(self) -> Path:
        """What ``begin`` makes, which may not be whole; what ``roll`` makes is, once the other is renamed."""
        return self.path.with_name(f"{self.path.name}.new")

    @property
    def _rolled(self) -> Path:
        return self.path.with_name(f"{self.path.name}.next")

    # --- reading

    def pieces(self, segment: int | None = None, at: int = 0) -> Iterator[Piece]:
        """The pieces from one on, in order; their bodies are not read.

        Args:
            segment: the file of the first; None for the oldest.
            at: the byte at which the first begins, or ends the one before; 0 for the beginning of the file.
        """
        with self.naming():
            numbers = [*self._older, *([self.segment] if self.begun else [])]
            for number in numbers:
                if segment is None or number >= segment:
                    yield from self._in_file(number, at if number == segment else 0)
            self.known = True

    def _in_file(self, number: int, at: int) -> Iterator[Piece]:
        newest = number == self.segment
        file = self._file_of(number)
        size = self.end if newest and self.known else os.fstat(file).st_size
        if not newest and os.pread(file, len(_MAGIC), 0) != _MAGIC:
            raise _damage(0, f"file {number} does not begin as it should")
        at = at or len(_MAGIC)
        while (piece := self._piece(file, number, at, size)) is not None:
            at = piece.end
            if piece.at > len(_MAGIC):
                yield piece
            elif piece.meta[:2] != [self._kind, number]:
                raise _damage(0, f"file {number} begins with {shown(piece.meta)}")
        if newest and not self.known:
            self.end, self._torn = at, at != size
        elif at != size:
            raise _damage(at, "it is cut")

    def _piece(self, file: int, number: int, at: int, size: int) -> Piece | None:
        """The piece at a byte; None if there is none, or a torn one."""
        head = os.pread(file, _AT_ONCE, at)
        if len(head) < _SIZE or at + _SIZE > size:
            return None
        if zlib.crc32(head[: _HEAD.size]) != _CHECK.unpack_from(head, _HEAD.size)[0]:
            if _only_zeros(file, at, size):
                return None
            raise _damage(at, "no piece begins there")
        meta_size, body_size, meta_check, check = _HEAD.unpack_from(head)
        start = at + _SIZE + meta_size
        end = start + body_size
        # Before anything is read: a length from outside is no reason to take so much memory.
        if end > size:
            return None
        meta = head[_SIZE : _SIZE + meta_size]
        if len(meta) < meta_size:
            meta = os.pread(file, meta_size, at + _SIZE)
        last = end == size and not self.known
        if zlib.crc32(meta) != meta_check or (last and _sum_of(file, start, end) != check):
            if last:
                return None
            raise _damage(at, "its bytes are not those that were written")
        try:
            fields = from_msgpack(meta)
        except Malformed as error:
            raise _damage(at, str(error)) from None
        if not isinstance(fields, list) or not fields:
            raise _damage(at, f"expected an array, found {shown(fields)}")
        return Piece(fields, number, at, body_size, end, check)

    def body(self, piece: Piece) -> bytes:
        """The body of a piece."""
        with self.naming():
            file = self._file_of(piece.segment)
            body = os.pread(file, piece.size, piece.end - piece.size)
            while 0 < len(body) < piece.size:
                more = os.pread(file, piece.size - len(body), piece.end - piece.size + len(body))
                if not more:
                    break
                body += more
            if len(body) != piece.size or zlib.crc32(body) != piece.check:
                raise _damage(piece.at, "its bytes are not those that were written")
            return body

    def _file_of(self, number: int) -> int:
        if number == self.segment:
            return self._file
        if self._reading[0] != number:
            self._stop_reading()
            self._reading = number, os.open(self._older[number], os.O_RDONLY | os.O_CLOEXEC)
        return self._reading[1]

    def _stop_reading(self) -> None:
        if self._reading[1] >= 0:
            os.close(self._reading[1])
        self._reading = -1, -1

    # --- writing

    def begin(self, files: Iterable[Iterable[tuple[Meta, Body]]]) -> None:
        """From now on exactly these pieces are in the log: all of them or, after a kill, what was before.

        Args:
            files: the pieces of each file, the newest last: what each says, and its body.
        """
        with self.naming():
            if self._closed:
                raise ValueError("it is closed")
            number = oldest = self.segment + 1 if self.begun else 0
            made: dict[int, Path] = {}
            try:
                for number, pieces in enumerate(files, oldest):
                    if number > oldest:
                        made[number - 1] = self._made.rename(self._older_path(number - 1))
                    self._write_new(self._made, number, oldest, pieces)
                    # A power cut must not leave the new name with nothing behind it.
                    sync_file(self._made)
                gone = list(self._older)
                self._take_new(self._made, number)
            except BaseException:
                for path in made.values():
                    path.unlink(missing_ok=True)
                raise
            self._older |= made
            self._forget(gone)
            if self._synced:
                sync_file(self.path.parent)

    def roll(self, metas: Iterable[Meta]) -> None:
        """Goes on in a new file, which begins with these pieces; the one so far becomes an older one."""
        with self.naming():
            self._require()
            number = self.segment + 1
            oldest = next(iter(self._older), self.segment)
            self._write_new(self._rolled, number, oldest, [(meta, b"") for meta in metas])
            older = self._older_path(self.segment)
            if self._torn:
                os.ftruncate(self._file, self.end)
            before = self.segment
            self.path.rename(older)
            try:
                self._take_new(self._rolled, number)
            except OSError:
                older.rename(self.path)
                raise
            self._older[before] = older
            self._unsynced.add(before)

    def _older_path(self, number: int) -> Path:
        return self.path.with_name(f"{self.path.name}.{number:08d}")

    def _write_new(self, made: Path, number: int, oldest: int, pieces: Iterable[tuple[Meta, Body]]) -> None:
        made.unlink(missing_ok=True)
        file = os.open(made, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        try:
            at = _write(file, [_MAGIC, *_parts([self._kind, number, oldest])], 0)
            for meta, body in pieces:
                at = _write(file, _parts(meta, body), at)
        finally:
            os.close(file)

    def _take_new(self, made: Path, number: int) -> None:
        """Puts a new file in its place."""
        file = os.open(made, os.O_RDWR | os.O_CLOEXEC)
        try:
            made.rename(self.path)
        except OSError:
            os.close(file)
            raise
        if self.begun:
            os.close(self._file)
        self._file, self.segment = file, number
        self._opened = os.fstat(file)
        self.end, self._torn, self.known = self._opened.st_size, False, True

    def append(self, meta: Meta, body: Body = b"") -> None:
        """Appends a piece, all of it or nothing."""
        try:
            self._require()
            if not self.known:
                raise ValueError("it is not read yet")
            if self._torn:
                # What came behind a part of a piece could not be read.
                os.ftruncate(self._file, self.end)
            self._torn = True
            end = _write(self._file, _parts(meta, body), self.end)
            if self._synced:
                os.fdatasync(self._file)
            self.end, self._torn = end, False
        except _ERRORS as error:
            raise self._unusable(error) from error

    def append_late(self, meta: Meta) -> None:
        """Appends a piece after ``close``, unless another has had the file since or it cannot be written."""
        with suppress(OSError, ValueError):
            own = OwnFile(self.path, patience=0) if self._own is not None else None
            try:
                file = os.open(self.path, os.O_WRONLY | os.O_CLOEXEC | os.O_NONBLOCK)
                try:
                    now = os.fstat(file)
                    same = self._opened is not None and os.path.samestat(now, self._opened)
                    if same and now.st_size == self.end and self.known:
                        self.end = _write(file, _parts(meta), self.end)
                finally:
                    os.close(file)
            finally:
                if own is not None:
                    own.close()

    def _require(self) -> None:
        """Sees to it that the file is where it was opened: what is written to a deleted file is lost."""
        if self._closed:
            raise ValueError("it is closed")
        try:
            if self._opened is not None and os.path.samestat(os.stat(self.path), self._opened):
                return
        except (FileNotFoundError, NotADirectoryError):
            pass
        raise FileNotFoundError(errno.ENOENT, "it was deleted, moved or replaced while it was open")

    def drop(self, segment: int) -> None:
        """Deletes the files before one."""
        with self.naming():
            gone = [number for number in self._older if number < segment]
            if gone:
                # What the newest file begins with takes the place of what is deleted.
                os.fsync(self._file)
            self._forget(gone)

    def _forget(self, numbers: Iterable[int]) -> None:
        for number in numbers:
            if number == self._reading[0]:
                self._stop_reading()
            self._older[number].unlink(missing_ok=True)
            del self._older[number]

    def sync(self) -> None:
        """Brings all that was appended to the disk itself."""
        with self.naming():
            if not self.begun:
                return
            self._require()
            for number in self._unsynced & self._older.keys():
                sync_file(self._older[number])
            self._unsynced.clear()
            os.fsync(self._file)
            sync_file(self.path.parent)

    def close(self) -> None:
        """Closes the files. Closing twice does nothing."""
        self._closed = True
        self._stop_reading()
        if self._file >= 0:
            os.close(self._file)
            self._file = -1
        if self._own is not None:
            self._own.close()


_DAMAGED = "bring back a copy of it, or move it and the files named like it away to begin anew"


def remove(path: Path) -> None:
    """Deletes a log that nobody has open.

    Raises:
        OSError: that cannot be.
    """
    for file in (path, *_segments(path)):
        file.unlink(missing_ok=True)


def _segments(path: Path) -> list[Path]:
    """The older files of a log."""
    start = f"{path.name}."
    with suppress(FileNotFoundError):
        named = [(entry.name.removeprefix(start), entry.name) for entry in os.scandir(path.parent)
                 if entry.name.startswith(start)]  # fmt: skip
        return [path.with_name(name) for end, name in named if len(end) == 8 and end.isdecimal()]
    return []


def sync_file(path: Path) -> None:
    """Has the disk write a file, or a folder's entries.

    Raises:
        OSError: the disk refuses.
    """
    file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(file)
    finally:
        os.close(file)


def _there(path: Path) -> bool:
    """Whether there is something by a name, a link that leads nowhere included."""
    try:
        path.lstat()
    except FileNotFoundError:
        return False
    return True


def _foreign(begins: bytes) -> str:
    if _SQLITE.startswith(begins):
        return (
            "it is an SQLite database, which an earlier evflow or another program wrote; use up what is in "
            "it with that, or move it away or take another file to begin anew"
        )
    if _RECORDING.startswith(begins):
        return (
            "it is a recording of an earlier evflow; replay it with that, to a node of this version where it "
            "is to be recorded again, or take another file"
        )
    return f"it is not a file of evflow: it begins with {shown(begins)}; move it away, or take another file"


def _damage(at: int, what: str) -> ValueError:
    return ValueError(f"it is damaged at byte {at:,}: {what}; {_DAMAGED}")


def _parts(meta: Meta, body: Body = b"") -> list[Body]:
    """A piece as it is written."""
    # Found when it is needed: importing evflow loads numpy and nothing else.
    from msgspec.msgpack import encode

    packed, held = encode(meta), memoryview(body).cast("B")
    if max(len(packed), held.nbytes) > _MOST:
        raise FlowError(f"{len(packed) + held.nbytes:,} bytes are too much for one piece of a file")
    head = _HEAD.pack(len(packed), held.nbytes, zlib.crc32(packed), zlib.crc32(held))
    return [b"".join((head, _CHECK.pack(zlib.crc32(head)), packed)), held]


def _write(file: int, parts: list[Body], at: int) -> int:
    """Writes bytes; gives the byte behind them."""
    size = sum(map(len, parts))
    written = os.pwritev(file, parts, at)
    if written < size:
        rest = memoryview(b"".join(parts))
        while written < size:
            written += os.pwrite(file, rest[written:], at + written)
    return at + size


def _sum_of(file: int, at: int, end: int) -> int:
    check = 0
    while at < end and (chunk := os.pread(file, min(_CHUNK, end - at), at)):
        check = zlib.crc32(chunk, check)
        at += len(chunk)
    return check


def _only_zeros(file: int, at: int, size: int) -> bool:
    """Whether only zeros are left, and no more than a power cut leaves."""
    if size - at > _MOST_ZEROS:
        return False
    while at < size and (chunk := os.pread(file, _CHUNK, at)):
        if chunk.strip(b"\0"):
            return False
        at += len(chunk)
    return True
