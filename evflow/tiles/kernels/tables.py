"""Hash tables of 64-bit keys in arrays, which the caller has made large enough."""

from __future__ import annotations

from typing import Any

import numpy as np

from evflow.matching.native import Read, ReadRows, Write, WriteRows, array_kernel, compiled
from evflow.tiles.kernels.fields import ID, MOVE_WORDS, USED, VERSION, WORD, I, U, Words


@compiled
def mixed(key: int) -> Any:
    """A hash of 64 bits, distinct for distinct keys (splitmix64's finalizer, Steele and others 2014)."""
    h = U(key) + U(0x9E3779B97F4A7C15)
    h = (h ^ (h >> U(30))) * U(0xBF58476D1CE4E5B9)
    h = (h ^ (h >> U(27))) * U(0x94D049BB133111EB)
    return h ^ (h >> U(31))


@compiled
def find(table: Words, key: int) -> int:
    """Where a key stands in a table, or where it would."""
    mask = len(table) - 1
    at: int = I(mixed(key) & U(mask))
    while table[at, 1] != -1 and table[at, 0] != key:
        at = (at + 1) & mask
    return at


@array_kernel
def enter(keys: Read[np.int64], first: int, table: WriteRows[np.int64]) -> None:
    """Enters keys in a table, with numbers from ``first`` on."""
    for i in range(len(keys)):
        at = find(table, keys[i])
        table[at, 0], table[at, 1] = keys[i], first + i


@array_kernel
def owners(keys: Read[np.int64], slots: Read[np.int32], groups: Write[np.int32]) -> None:
    """The group of each key: that of the slot which the low bits of its hash name."""
    mask = U(len(slots) - 1)
    for i in range(len(keys)):
        groups[i] = slots[I(mixed(keys[i]) & mask)]


@compiled
def _holds(table: Words, key: Words, width: int, hashed: Any) -> tuple[bool, int]:
    mask = len(table) - 1
    at = I(hashed & U(mask))
    while table[at, 0] != -1:
        same = True
        for k in range(width):
            same &= table[at, k] == key[k]
        if same:
            return True, at
        at = (at + 1) & mask
    return False, at


@array_kernel
def fresh(
    rows: ReadRows[np.int64],
    width: int,
    present: WriteRows[np.int64],
    past: ReadRows[np.int64],
    new: Write[np.uint8],
) -> None:
    """Marks matches whose first words are in neither of two sets, and enters them in the present one."""
    for i in range(len(rows)):
        h = mixed(rows[i, 0])
        for k in range(1, width):
            h = mixed(I(h ^ U(rows[i, k])))
        held, at = _holds(past, rows[i], width, h)
        if not held:
            held, at = _holds(present, rows[i], width, h)
            for k in range(width):
                present[at, k] = rows[i, k]
        new[i] = not held


@array_kernel
def follow(
    rows: WriteRows[np.int64],
    pairs: WriteRows[np.int64],
    count: Write[np.int64],
    latest: ReadRows[np.int64],
    held: ReadRows[np.int64],
    told: Write[np.uint8],
) -> None:
    """Turns matches, and pairs that have come apart, into enter, inside and leave; see ``Pairs``.

    Args:
        rows: matches.
        pairs: a table of pairs.
        count: how many there are, and how many rows there have been.
        latest, held: the table of subscriptions as their client sent them, and these.
        told: gets which rows are to be told.
    """
    for i in range(len(rows)):
        row = rows[i]
        asked = row[6] >> 32
        told[i] = asked == 0
        slot = latest[find(latest, row[2] << 1 | 1), 1]
        is_over = slot != -1 and held[slot, WORD] >> 9 & 1 == 1 and held[slot, VERSION] > row[3]
        if asked == 0 or is_over:
            continue
        at = _pair(pairs, row[0], row[2])
        pair = pairs[at]
        if pair[0] == -1:
            pair[0], pair[1], pair[4] = row[0], row[2], 0
            count[0] += 1
        elif row[1] < pair[2] or row[3] < pair[3]:
            continue
        event = (3 if pair[4] else 0) if asked & 8 else (2 if pair[4] else 1)
        count[1] += 1
        pair[2], pair[3], pair[4], pair[5] = row[1], row[3], I(0 < event < 3), count[1]
        row[6] = row[6] & 0xFFFFFFFF | event << 32
        if event > 0:
            told[i] = asked >> (event - 1) & 1


@compiled
def _pair(pairs: Words, pub: int, sub: int) -> int:
    """Where a pair stands in its table, or would."""
    mask = len(pairs) - 1
    at: int = I(mixed(I(mixed(pub)) ^ sub) & U(mask))
    while pairs[at, 0] != -1 and (pairs[at, 0] != pub or pairs[at, 1] != sub):
        at = (at + 1) & mask
    return at


@array_kernel
def pair_up(given: ReadRows[np.int64], pairs: WriteRows[np.int64]) -> None:
    """Puts pairs into a table."""
    for i in range(len(given)):
        at = _pair(pairs, given[i, 0], given[i, 1])
        for k in range(given.shape[1]):
            pairs[at, k] = given[i, k]


@compiled
def newness(row: Words, held: Words) -> int:
    """1 if a move is newer than what is held, 0 if it is the same, -1 if it is older."""
    if row[VERSION] != held[VERSION]:
        return 1 if row[VERSION] > held[VERSION] else -1
    home, other = row[WORD] >> 32 & 0xFFFFFFFF, held[WORD] >> 32 & 0xFFFFFFFF
    return 0 if home == other else (1 if home > other else -1)


@array_kernel
def news(
    rows: ReadRows[np.int64], table: WriteRows[np.int64], held: WriteRows[np.int64], marks: Write[np.uint8]
) -> None:
    """Marks moves that are newer than what is held of their entities."""
    for i in range(len(rows)):
        slot = table[find(table, rows[i, ID] << 1 | rows[i, WORD] >> 8 & 1), 1]
        marks[i] = slot == -1 or newness(rows[i], held[slot]) > 0


@compiled
def copy(source: Words, target: Words) -> None:
    """Copies a move."""
    for k in range(MOVE_WORDS):
        target[k] = source[k]


@array_kernel
def keep(
    rows: ReadRows[np.int64], table: WriteRows[np.int64], held: WriteRows[np.int64], count: Write[np.int64]
) -> None:
    """Keeps the newest move of each entity."""
    for i in range(len(rows)):
        row = rows[i]
        key = row[ID] << 1 | row[WORD] >> 8 & 1
        at = find(table, key)
        if table[at, 1] == -1:
            table[at, 0], table[at, 1] = key, count[USED]
            count[USED] += 1
        elif newness(row, held[table[at, 1]]) < 0:
            continue
        copy(row, held[table[at, 1]])
