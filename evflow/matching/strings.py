"""Numbers for the strings that constraints compare with, and a table that finds them by their bytes.

The bytes of all strings stand one after the other. The table is open addressing over 64-bit slots, half of a
slot the hash, so that a miss seldom reads a string. Its hash is seeded, so that nobody can prepare strings
that collide. Strings of constraints that are gone stay: only engines know which constraints hold them, and a
number that a prepared event holds must not come to mean another string.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from evflow.matching import kernels, native
from evflow.matching.mapped import mapped, with_room


def utf8(text: str) -> bytes:
    """The bytes of a text; a lone surrogate, which has none in UTF-8, keeps its place in the order."""
    return text.encode("utf-8", "surrogatepass")


class Strings:
    """Numbers strings from 0, in the order in which they come.

    Attributes:
        data: uint8: the UTF-8 bytes of all strings. Another array after ``intern``.
        offsets: int64, one more than there are strings: where each starts and the last ends. Likewise.

    Example:
        >>> strings = Strings()
        >>> strings.intern(["rain", "snow", "rain"])
        array([0, 1, 0], dtype=int32)
        >>> strings.number("snow"), strings.number("hail")
        (1, -1)
    """

    def __init__(self) -> None:
        self._seed = np.uint64(int.from_bytes(os.urandom(8), "little"))
        self._take(np.empty(0, np.uint8), np.zeros(1, np.int64))

    def _take(self, data: NDArray[np.uint8], offsets: NDArray[np.int64]) -> None:
        self.data = self._data = data
        self.offsets = self._offsets = offsets
        self._numbers: dict[bytes, int] | None = None
        self._slots = np.zeros(16, np.uint64)
        if native.HAS_CODE:
            self._reserve(0, 0)
        else:
            self._numbers = {self.bytes_of(number): number for number in range(len(self))}

    def __len__(self) -> int:
        return len(self.offsets) - 1

    @property
    def nbytes(self) -> int:
        """Bytes of memory that strings and table take."""
        return self._data.nbytes + self._offsets.nbytes + self._slots.nbytes

    @property
    def table(self) -> tuple[NDArray[np.uint8], NDArray[np.int64], NDArray[np.uint64], np.uint64]:
        """What kernels find strings with: bytes, where each starts, slots and the seed of their hash."""
        return self._data, self._offsets, self._slots, self._seed

    def bytes_of(self, number: int) -> bytes:
        """The UTF-8 bytes of a string."""
        return self.data[self.offsets[number] : self.offsets[number + 1]].tobytes()

    def intern(self, texts: Sequence[str]) -> NDArray[np.int32]:
        """The numbers of these strings, new ones for those that are new."""
        pieces = [utf8(text) for text in texts]
        bounds = np.zeros(len(pieces) + 1, np.int64)
        np.cumsum(np.fromiter(map(len, pieces), np.int64, len(pieces)), out=bounds[1:])
        self._reserve(len(pieces), int(bounds[-1]))
        numbers = np.empty(len(pieces), np.int32)
        if self._numbers is None:
            chars = np.frombuffer(b"".join(pieces), np.uint8)
            count = kernels.intern_texts(
                chars, bounds, self._data, self._offsets, len(self), self._slots, self._seed, numbers
            )
        else:
            count = self._intern_slowly(pieces, self._numbers, numbers)
        self.offsets = self._offsets[: count + 1]
        self.data = self._data[: self.offsets[-1]]
        return numbers

    def _intern_slowly(self, pieces: list[bytes], known: dict[bytes, int], numbers: NDArray[np.int32]) -> int:
        for i, piece in enumerate(pieces):
            number = known.get(piece)
            if number is None:
                number = known[piece] = len(known)
                at = int(self._offsets[number])
                self._data[at : at + len(piece)] = np.frombuffer(piece, np.uint8)
                self._offsets[number + 1] = at + len(piece)
            numbers[i] = number
        return len(known)

    def _reserve(self, count: int, size: int) -> None:
        """Makes room for ``count`` more strings of ``size`` bytes in all."""
        there, used = len(self), len(self.data)
        self._data = with_room(self._data, used + size)
        self._offsets = with_room(self._offsets, there + count + 1)
        if not native.HAS_CODE:
            return
        needed = max(16, 1 << (2 * (there + count)).bit_length())
        if needed > len(self._slots) or (there and not self._slots.any()):
            self._slots = np.zeros(max(needed, len(self._slots)), np.uint64)
            kernels.insert_texts(self._data, self._offsets, 0, there, self._slots, self._seed)

    def find(
        self, chars: NDArray[np.uint8], start: NDArray[np.int64], length: NDArray[np.int32]
    ) -> NDArray[np.int32]:
        """The numbers of N pieces of ``chars``, given by where they start and their length; -1: not there.

        Args:
            chars: uint8, contiguous.
            start: int64, N.
            length: int32, N.

        Returns:
            int32, N.
        """
        found = np.empty(len(start), np.int32)
        if self._numbers is None:
            hashes = np.empty(kernels.BLOCK, np.uint64)
            kernels.find_texts(chars, start, length, *self.table, hashes, found)
            return found
        held = chars.data
        pairs = zip(start.tolist(), length.tolist(), strict=True)
        found[:] = [self._numbers.get(bytes(held[at : at + size]), -1) for at, size in pairs]
        return found

    def number(self, text: str | bytes) -> int:
        """The number of one string, given as text or as its UTF-8 bytes; -1: not there."""
        piece = utf8(text) if isinstance(text, str) else text
        if self._numbers is not None:
            return self._numbers.get(piece, -1)
        chars = np.frombuffer(piece, np.uint8)
        return int(self.find(chars, np.zeros(1, np.int64), np.full(1, len(piece), np.int32))[0])

    def save(self, folder: Path) -> None:
        """Writes the strings to files in ``folder``."""
        np.save(folder / "string_data.npy", self.data)
        np.save(folder / "string_offsets.npy", self.offsets)

    def load(self, folder: Path) -> None:
        """Takes what ``save`` wrote, mapped copy-on-write."""
        self._take(mapped(folder / "string_data.npy"), mapped(folder / "string_offsets.npy"))
