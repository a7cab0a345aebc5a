"""Loops over strings and places: machine code where there is any or numba is installed, else plain Python.

Each has one signature, which takes arrays that may not be written to as well as others.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from evflow.matching.native import Read, Write, WriteRows, array_kernel, compiled

BLOCK = 32
"""Strings that are looked up together."""


_K1 = np.uint64(0x9E3779B97F4A7C15)
_K2 = np.uint64(0xD6E8FEB86659FD93)
_LOW = np.uint64(0xFFFFFFFF)
_U = np.uint64
_I: Any = np.int64


@compiled
def hash_of(chars: Any, start: int, length: int, seed: np.uint64) -> np.uint64:
    """The hash of a string; ``chars`` is an array or a pointer."""
    h = seed ^ (_U(length) * _K1)
    at, end = start, start + length
    while at + 8 <= end:
        w = _U(chars[at]) | _U(chars[at + 1]) << _U(8) | _U(chars[at + 2]) << _U(16)
        w |= _U(chars[at + 3]) << _U(24) | _U(chars[at + 4]) << _U(32) | _U(chars[at + 5]) << _U(40)
        w |= _U(chars[at + 6]) << _U(48) | _U(chars[at + 7]) << _U(56)
        h = (h ^ w) * _K2
        h ^= h >> _U(32)
        at += 8
    w = _U(0)
    while at < end:
        w = w << _U(8) | _U(chars[at])
        at += 1
    h = (h ^ w) * _K2
    h ^= h >> _U(29)
    h *= _K1
    return h ^ (h >> _U(32))


@compiled
def probe(
    chars: Any,
    start: int,
    length: int,
    data: Any,
    offsets: Any,
    slots: Any,
    mask: np.uint64,
    hashed: np.uint64,
) -> int:
    """The number of a string; or -1 - slot, where it would stand. Arrays may be pointers."""
    tag = hashed >> _U(32)
    slot = hashed & mask
    while True:
        held = slots[slot]
        if held == _U(0):
            missing: int = -1 - _I(slot)
            return missing
        if held >> _U(32) == tag:
            number: int = _I(held & _LOW) - 1
            at = offsets[number]
            if offsets[number + 1] - at == length:
                i = 0
                while i < length and data[at + i] == chars[start + i]:
                    i += 1
                if i == length:
                    return number
        slot = (slot + _U(1)) & mask


@array_kernel
def find_texts(
    chars: Read[np.uint8],
    start: Read[np.int64],
    length: Read[np.int32],
    data: Read[np.uint8],
    offsets: Read[np.int64],
    slots: Read[np.uint64],
    seed: np.uint64,
    hashes: Write[np.uint64],
    found: Write[np.int32],
) -> None:
    """Looks up N pieces of ``chars`` among the strings of a table; -1 for those that are not there.

    ``hashes`` is room for ``BLOCK`` of them.
    """
    for first in range(0, len(start), BLOCK):
        n = min(BLOCK, len(start) - first)
        # The reads of a block's slots overlap, since none waits for another.
        warm = _U(0)
        for i in range(n):
            hashes[i] = hash_of(chars, _I(start[first + i]), _I(length[first + i]), seed)
            warm |= slots[hashes[i] & _U(len(slots) - 1)]
        if warm == _U(0):
            for i in range(first, first + n):
                found[i] = -1
            continue
        for i in range(n):
            at, size = _I(start[first + i]), _I(length[first + i])
            found[first + i] = max(
                probe(chars, at, size, data, offsets, slots, _U(len(slots) - 1), hashes[i]), -1
            )


@array_kernel
def insert_texts(
    data: Read[np.uint8],
    offsets: Read[np.int64],
    first: int,
    last: int,
    slots: Write[np.uint64],
    seed: np.uint64,
) -> None:
    """Puts strings ``first`` up to ``last``, all different, into the slots of a table."""
    mask = _U(len(slots) - 1)
    for number in range(first, last):
        hashed = hash_of(data, offsets[number], offsets[number + 1] - offsets[number], seed)
        slot = hashed & mask
        while slots[slot] != _U(0):
            slot = (slot + _U(1)) & mask
        slots[slot] = (hashed & ~_LOW) | _U(number + 1)


@array_kernel
def intern_texts(
    chars: Read[np.uint8],
    bounds: Read[np.int64],
    data: Write[np.uint8],
    offsets: Write[np.int64],
    count: int,
    slots: Write[np.uint64],
    seed: np.uint64,
    numbers: Write[np.int32],
) -> int:
    """Numbers the pieces between ``bounds``, appending those that are new; there is room for all of them.

    Returns:
        How many strings there are now.
    """
    for i in range(len(numbers)):
        at = bounds[i]
        size = bounds[i + 1] - at
        hashed = hash_of(chars, at, size, seed)
        number = probe(chars, at, size, data, offsets, slots, _U(len(slots) - 1), hashed)
        if number < 0:
            slots[-1 - number] = (hashed & ~_LOW) | _U(count + 1)
            to = offsets[count]
            for i_char in range(size):
                data[to + i_char] = chars[at + i_char]
            offsets[count + 1] = to + size
            number = count
            count += 1
        numbers[i] = number
    return count


@array_kernel
def padded_lengths(
    chars: Read[np.uint8], start: Read[np.int64], capacity: int, lengths: Write[np.int32]
) -> None:
    """How long texts are that are padded with NUL to ``capacity`` bytes."""
    for i in range(len(start)):
        size = capacity
        while size and chars[start[i] + size - 1] == 0:
            size -= 1
        lengths[i] = size


@array_kernel
def gather_fixed(chars: Read[np.uint8], start: Read[np.int64], out: WriteRows[np.uint8]) -> None:
    """Copies a piece of ``out.shape[1]`` bytes from each ``start`` on."""
    for i in range(len(start)):
        at = start[i]
        for j in range(out.shape[1]):
            out[i, j] = chars[at + j]


@compiled
def _skip(chars: NDArray[np.uint8], at: int) -> int:
    """Where a msgpack value that starts at ``at`` ends."""
    waiting = 1
    while waiting:
        waiting -= 1
        marker = _I(chars[at])
        two = four = 0
        if marker in (0xDA, 0xC5, 0xDC):
            two = _I(chars[at + 1]) << 8 | _I(chars[at + 2])
        elif marker in (0xDB, 0xC6, 0xC9, 0xDD):
            for i in range(1, 5):
                four = four << 8 | _I(chars[at + i])
        if marker in (0xC0, 0xC2, 0xC3):
            at += 1
        elif marker in (0xCC, 0xD0):
            at += 2
        elif marker in (0xCD, 0xD1):
            at += 3
        elif marker in (0xCE, 0xD2, 0xCA):
            at += 5
        elif marker in (0xCF, 0xD3, 0xCB):
            at += 9
        elif marker in (0xD9, 0xC4):
            at += 2 + _I(chars[at + 1])
        elif marker in (0xDA, 0xC5):
            at += 3 + two
        elif marker in (0xDB, 0xC6):
            at += 5 + four
        elif marker == 0xC9:
            at += 6 + four
        elif marker == 0xDC:
            at += 3
            waiting += two
        elif marker == 0xDD:
            at += 5
            waiting += four
        else:
            at += 1
            waiting += marker & 0x0F
    return at


@array_kernel
def walk_fields(chars: Read[np.uint8], start: Read[np.int64], places: WriteRows[np.int64]) -> None:
    """Where each of the values stands that follow one another from ``start`` on, event by event."""
    for event in range(len(start)):
        at = start[event]
        for field in range(places.shape[1]):
            places[event, field] = at
            at = _skip(chars, at)
