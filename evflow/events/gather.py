"""Picking byte ranges out of a buffer and putting pieces of rows together, with numpy."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any, NamedTuple

import numpy as np

from evflow.codgen.memory import BRIEF, address

address_of = address

ByteArray = np.ndarray[Any, np.dtype[np.uint8]]
Offsets = np.ndarray[Any, np.dtype[np.int64]]


class Place(NamedTuple):
    """Bytes that are written once, to where they are used.

    Attributes:
        target: uint8, 1-D, to write into; of no use any more when nothing refers to ``held``.
        held: the same bytes, not writeable.
    """

    target: ByteArray
    held: ByteArray


Room = Callable[[int], Place | None]
"""Gives a place for so many bytes; None if there is none."""


def no_room(length: int) -> None:
    """The ``Room`` that there is none of."""


# An index takes eight bytes for each byte that it moves; longer pieces are copied one by one.
_LONG = 128
# Pieces up to this length are padded and moved as rows of a matrix.
_SHORT = 64


@dataclass(frozen=True, slots=True, eq=False)
class Ragged:
    """Pieces of bytes of different length, one a row, back to back.

    Attributes:
        lengths: int64, one a row.
        data: uint8, all pieces.
    """

    lengths: Offsets
    data: ByteArray

    @classmethod
    def of(cls, pieces: Sequence[bytes]) -> Ragged:
        """The pieces given as bytes."""
        lengths = np.fromiter(map(len, pieces), np.int64, len(pieces))
        return cls(lengths, np.frombuffer(b"".join(pieces), np.uint8))

    @classmethod
    def even(cls, matrix: ByteArray) -> Ragged:
        """The rows of a matrix."""
        n, width = matrix.shape
        return cls(np.full(n, width, np.int64), matrix.reshape(-1))

    def take(self, rows: np.ndarray[Any, np.dtype[Any]]) -> Ragged:
        """The pieces of these rows, in this order."""
        lengths = self.lengths[rows]
        return Ragged(lengths, gather(self.data, starts_of(self.lengths)[rows], lengths))


def frozen(data: ByteArray) -> ByteArray:
    """The same array, no longer writeable."""
    data.flags.writeable = False
    return data


def own_place(length: int) -> Place:
    """A place in memory of its own, for where a ``Room`` has given none."""
    memory = np.empty(length, np.uint8)
    return Place(memory, frozen(memory[:]))


def write_parts(target: ByteArray, parts: Iterable[Any]) -> None:
    """Copies buffers back to back to where ``target`` begins.

    Args:
        target: uint8, 1-D, with room for all of them.
        parts: anything contiguous that exports its bytes, arrays of any dtype included.
    """
    at, into = 0, target.data
    for part in parts:
        source = memoryview(part)
        size = source.nbytes
        if size > BRIEF:
            np.copyto(target[at : at + size], np.frombuffer(source, np.uint8))
        elif size:
            into[at : at + size] = source.cast("B")
        at += size


def repeat(target: ByteArray, piece: bytes) -> None:
    """Fills memory, whose size is a multiple of the piece's, with one piece behind the other."""
    into, done = target.data, len(piece)
    into[:done] = piece
    while done < len(into):
        more = min(done, len(into) - done)
        into[done : done + more] = into[:more]
        done += more


def nbytes_of(parts: Iterable[bytes | memoryview]) -> int:
    """Bytes of all parts together."""
    return sum([part.nbytes if isinstance(part, memoryview) else len(part) for part in parts])


def interface_of(address: int, length: int, writeable: bool = False) -> dict[str, Any]:
    """What ``__array_interface__`` of an object has to be, so that numpy sees bytes in memory."""
    return {"version": 3, "shape": (length,), "typestr": "|u1", "data": (address, not writeable)}


def back_to_back(pieces: Sequence[ByteArray]) -> ByteArray | None:
    """Read-only pieces as one array without a copy, where each begins in memory where the one before ends."""
    start = at = address_of(pieces[0])
    for piece in pieces:
        if address_of(piece) != at or piece.flags.writeable:
            return None
        at += len(piece)
    return np.asarray(_Joined(pieces, start, at - start))


class _Joined:
    """Memory of several arrays, which it keeps alive."""

    def __init__(self, pieces: Sequence[ByteArray], address: int, length: int) -> None:
        self._pieces = pieces
        self.__array_interface__ = interface_of(address, length)


def running(lengths: Iterable[int], n: int) -> Offsets:
    """Offsets, int64 of ``n + 1``, from ``n`` lengths."""
    return np.fromiter(accumulate(lengths, initial=0), np.int64, n + 1)


def starts_of(lengths: Offsets) -> Offsets:
    """Where each piece starts and the last ends: one more than there are lengths."""
    offsets = np.zeros(len(lengths) + 1, np.int64)
    np.cumsum(lengths, out=offsets[1:])
    return offsets


def places_of(starts: Offsets, lengths: Offsets) -> Offsets:
    """Where all items of pieces are: from each start on as many as its length says, piece after piece.

    Args:
        starts: where each piece starts.
        lengths: how many items it has.

    Example:
        >>> places_of(np.array([7, 2]), np.array([2, 3]))
        array([7, 8, 2, 3, 4])
    """
    offsets = starts_of(lengths)
    places: Offsets = np.arange(offsets[-1]) + np.repeat(starts - offsets[:-1], lengths)
    return places


def gather(data: ByteArray, starts: Offsets, lengths: Offsets) -> ByteArray:
    """The pieces of ``data`` at ``starts``, back to back."""
    offsets = starts_of(lengths)
    total = int(offsets[-1])
    if total > _LONG * len(lengths):
        whole = data.data
        ends = (starts + lengths).tolist()
        return np.frombuffer(
            b"".join([whole[a:b] for a, b in zip(starts.tolist(), ends, strict=True)]), np.uint8
        )
    return data[np.arange(total) + np.repeat(starts - offsets[:-1], lengths)]


def interleave(parts: Sequence[Ragged]) -> tuple[ByteArray, Offsets]:
    """Rows made of one piece of each part, in the order of the parts, and the offsets of the rows."""
    offsets = starts_of(_row_lengths(parts))
    out = np.empty(int(offsets[-1]), np.uint8)
    starts = offsets[:-1].copy()
    for part in parts:
        _scatter(out, starts, part)
        starts += part.lengths
    return out, offsets


def join(parts: Sequence[Ragged]) -> Ragged:
    """Rows made of one piece of each part, as pieces."""
    if len(parts) == 1:
        return parts[0]
    data, offsets = interleave(parts)
    return Ragged(np.diff(offsets), data)


def expand(pieces: Ragged, present: np.ndarray[Any, np.dtype[np.bool_]], filler: bytes) -> Ragged:
    """The pieces in the rows that are present, the one byte ``filler`` in the others."""
    lengths = np.ones(len(present), np.int64)
    lengths[present] = pieces.lengths
    offsets = starts_of(lengths)
    out = np.full(int(offsets[-1]), filler[0], np.uint8)
    _scatter(out, offsets[:-1][present], pieces)
    return Ragged(lengths, out)


def put_into_rows(rows: ByteArray, at: int, pieces: Ragged) -> None:
    """Writes each piece into its row of a contiguous matrix, from column ``at`` on."""
    n, width = rows.shape
    longest = int(pieces.lengths.max(initial=0))
    if 0 < longest <= _SHORT:
        padded = np.zeros((n, longest), np.uint8)
        padded[np.arange(longest) < pieces.lengths[:, None]] = pieces.data
        np.ndarray((n,), f"V{longest}", rows, at, (width,))[...] = padded.view(f"V{longest}").reshape(-1)
        return
    _scatter(rows.reshape(-1), np.arange(at, at + n * width, width, dtype=np.int64), pieces)


def _row_lengths(parts: Sequence[Ragged]) -> Offsets:
    lengths: Offsets = np.sum([part.lengths for part in parts], axis=0, dtype=np.int64)
    return lengths


def _scatter(out: ByteArray, starts: Offsets, part: Ragged) -> None:
    sources = starts_of(part.lengths)
    if len(part.data) > _LONG * len(part.lengths):
        ends = (starts + part.lengths).tolist()
        for a, b, c, d in zip(
            starts.tolist(), ends, sources[:-1].tolist(), sources[1:].tolist(), strict=True
        ):
            out[a:b] = part.data[c:d]
    else:
        out[np.arange(len(part.data)) + np.repeat(starts - sources[:-1], part.lengths)] = part.data
