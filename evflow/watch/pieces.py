"""Pieces: a file of pieces one behind the other, each checked, of which a kill in mid-write costs the last.

    file   "evflow recording 1\\n", then pieces
    piece  u32 length of meta, u32 length of body, u32 CRC-32 of both, u32 CRC-32 of the 12 bytes before
           meta: a msgpack array; body: bytes as they are

Integers are little-endian. A piece that goes on behind the end of the file, or that ends there and is not
what its CRC says, is torn: it is left out. So are zeros at the end, which a host leaves that lost its power.
Any other piece that is wrong is damage.
"""

from __future__ import annotations

import os
import struct
import zlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple, Protocol

import msgspec

from evflow.errors import FlowError
from evflow.outside import Malformed, from_msgpack, shown

__all__ = ["MAGIC", "Piece", "begin", "pieces", "put"]

MAGIC = b"evflow recording 1\n"

_HEAD = struct.Struct("<III")
_CHECK = struct.Struct("<I")
_SIZE = _HEAD.size + _CHECK.size
_MOST_META = 1 << 28
_CHUNK = 1 << 20


class Sink(Protocol):
    """A file without a buffer: what could not be written is not tried again when it is closed."""

    def write(self, data: memoryview, /) -> int | None:
        """Writes at least a byte; gives how many."""


class Piece(NamedTuple):
    """A piece of a file.

    Attributes:
        meta: what its msgpack says.
        body: its bytes.
        at: the byte it begins at.
        end: the byte behind it.
    """

    meta: list[Any]
    body: bytes
    at: int
    end: int


def begin(file: Sink) -> None:
    """Writes the beginning of an empty file."""
    _write(file, MAGIC)


def put(file: Sink, meta: Sequence[Any], body: bytes | memoryview = b"") -> None:
    """Writes a piece where the file stands, and gives it to the system.

    Raises:
        FlowError: it is too large.
        OSError: it cannot be written; a part of it may have been.
    """
    packed = msgspec.msgpack.encode(meta)
    length = memoryview(body).nbytes
    if len(packed) > _MOST_META or length >> 32:
        raise FlowError(f"a piece of {len(packed) + length:,} bytes is too large to be recorded")
    head = _HEAD.pack(len(packed), length, zlib.crc32(body, zlib.crc32(packed)))
    _write(file, b"".join((head, _CHECK.pack(zlib.crc32(head)), packed)))
    _write(file, body)


def _write(file: Sink, data: bytes | memoryview) -> None:
    left = memoryview(data).cast("B")
    while left.nbytes:
        left = left[file.write(left) :]


def pieces(file: BinaryIO, path: Path) -> Iterator[Piece]:
    """The pieces of a file, up to one that is torn; one is in memory at a time.

    Args:
        file: the file, at its beginning.
        path: its name, for messages.

    Raises:
        FlowError: it is no such file, or is damaged; names the byte.
    """
    magic = file.read(len(MAGIC))
    if magic != MAGIC:
        # A recorder that was killed at once leaves a part of it.
        if not MAGIC.startswith(magic):
            raise FlowError(f"{path}: expected a recording, which begins with {MAGIC!r}, found {magic!r}")
        return
    at = len(MAGIC)
    while (piece := _next(file, at, path)) is not None:
        yield piece
        at = piece.end


def _next(file: BinaryIO, at: int, path: Path) -> Piece | None:
    """The piece at a byte; None if there is none, or a torn one."""
    head = file.read(_SIZE)
    if len(head) < _SIZE:
        return None
    if zlib.crc32(head[: _HEAD.size]) != _CHECK.unpack_from(head, _HEAD.size)[0]:
        if not _zeros(file, head):
            raise _damage(path, at, "no piece begins there")
        return None
    meta_size, body_size, check = _HEAD.unpack_from(head)
    end = at + _SIZE + meta_size + body_size
    size = os.fstat(file.fileno()).st_size
    # Before anything is read: a length from outside is no reason to take so much memory.
    if end > size:
        return None
    meta, body = file.read(meta_size), file.read(body_size)
    if len(meta) < meta_size or len(body) < body_size:
        return None
    if zlib.crc32(body, zlib.crc32(meta)) != check:
        if end < size:
            raise _damage(path, at, "its bytes are not those that were written")
        return None
    return Piece(_unpacked(meta, at, path), body, at, end)


def _zeros(file: BinaryIO, rest: bytes) -> bool:
    """Whether only zeros are left."""
    while rest:
        if rest.strip(b"\0"):
            return False
        rest = file.read(_CHUNK)
    return True


def _unpacked(meta: bytes, at: int, path: Path) -> list[Any]:
    try:
        fields = from_msgpack(meta, _MOST_META)
    except Malformed as error:
        raise _damage(path, at, str(error)) from None
    if not isinstance(fields, list) or not fields or not isinstance(fields[0], str):
        raise _damage(path, at, f"expected an array that begins with a text, found {shown(fields)}")
    return fields


def _damage(path: Path, at: int, what: str) -> FlowError:
    return FlowError(f"{path}: the piece at byte {at:,} is damaged: {what}; what is before it can be read")
