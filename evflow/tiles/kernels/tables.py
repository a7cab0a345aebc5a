"""Hash tables of 64-bit keys in arrays, which the caller has made large enough."""

from __future__ import annotations

from typing import Any

import numpy as np

from evflow.matching.native import Read, ReadRows, Write, WriteRows, array_kernel, compiled, prefetch
from evflow.tiles.kernels.fields import AHEAD, ID, KEY_WORDS, MOVE_WORDS, USED, VERSION, WORD, I, U, Words


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


@compiled
def key_of(row: Words) -> int:
    """The key of a move's entity: publications and subscriptions have ids of their own."""
    key: int = row[ID] << 1 | row[WORD] >> 8 & 1
    return key


@compiled
def ask(array: Any, row: int) -> None:
    """Asks memory for a row of an array; there need not be one."""
    size = array.strides[0]
    first = array.ctypes.data + row * size
    for line in range(0, size, 64):
        prefetch(first + line)
    prefetch(first + size - 1)


@compiled
def ask_for(table: Words, key: int) -> None:
    """Asks memory for where a key stands in a table."""
    prefetch(table.ctypes.data + 16 * I(mixed(key) & U(len(table) - 1)))


@compiled
def ask_ahead(rows: Words, start: int, table: Words, held: Words) -> None:
    """Asks memory for what is held of the next ``AHEAD`` entities, so that no move waits for it alone."""
    stop = min(start + AHEAD, len(rows))
    for i in range(start, stop):
        ask_for(table, key_of(rows[i]))
    for i in range(start, stop):
        ask(held, table[find(table, key_of(rows[i])), 1])


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
def _hashed(row: Words) -> Any:
    """A hash of the key of a match."""
    h = mixed(row[0])
    for k in range(1, KEY_WORDS):
        h = mixed(I(h ^ U(row[k])))
    return h


@compiled
def _stands(keys: Words, table: Words, key: Words, hashed: Any) -> int:
    """Where a key stands in a table, or would: it has half of the hash, and the position in ``keys``."""
    mask = len(table) - 1
    at: int = I(hashed & U(mask))
    while table[at] != -1:
        if (table[at] ^ I(hashed)) >> 32 == 0:
            same = True
            for k in range(KEY_WORDS):
                same &= keys[table[at] & 0xFFFFFFFF, k] == key[k]
            if same:
                break
        at = (at + 1) & mask
    return at


@array_kernel
def first(
    rows: ReadRows[np.int64],
    count: int,
    present: WriteRows[np.int64],
    table: Write[np.int64],
    past: ReadRows[np.int64],
    past_table: Read[np.int64],
    numbers: Write[np.int64],
) -> int:
    """Looks for the keys of matches in two sets, and enters in the present one those that neither has.

    Args:
        rows: matches.
        count: how many the present set has.
        present, table: its keys as they came, each with a number, and where each of them is.
        past, past_table: those of the other one.
        numbers: those of the rows, not negative; of what is in a set it gets the number there.

    Returns:
        How many the present set has then.
    """
    for i in range(len(rows)):
        for j in range(i, min(i + AHEAD, len(rows)) if i % AHEAD == 0 else i):
            h = _hashed(rows[j])
            prefetch(table.ctypes.data + 8 * I(h & U(len(table) - 1)))
            prefetch(past_table.ctypes.data + 8 * I(h & U(len(past_table) - 1)))
        h = _hashed(rows[i])
        at = _stands(present, table, rows[i], h)
        number = -1
        if table[at] != -1:
            number = present[table[at] & 0xFFFFFFFF, KEY_WORDS]
        else:
            before = past_table[_stands(past, past_table, rows[i], h)]
            if before != -1:
                number = past[before & 0xFFFFFFFF, KEY_WORDS]
        if number != -1:
            numbers[i] = number
            continue
        if table[at] == -1:
            table[at] = I(h) >> 32 << 32 | count
            for k in range(KEY_WORDS):
                present[count, k] = rows[i, k]
            count += 1
        present[table[at] & 0xFFFFFFFF, KEY_WORDS] = numbers[i]
    return count


@array_kernel
def drop(rows: ReadRows[np.int64], keys: WriteRows[np.int64], table: Write[np.int64]) -> None:
    """Takes the keys of matches out of a set."""
    for i in range(len(rows)):
        at = table[_stands(keys, table, rows[i], _hashed(rows[i]))]
        if at != -1:
            keys[at & 0xFFFFFFFF, KEY_WORDS] = -1


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
        slot = table[find(table, key_of(rows[i])), 1]
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
        if i % AHEAD == 0:
            ask_ahead(rows, i, table, held)
        row = rows[i]
        key = key_of(row)
        at = find(table, key)
        if table[at, 1] == -1:
            table[at, 0], table[at, 1] = key, count[USED]
            count[USED] += 1
        elif newness(row, held[table[at, 1]]) < 0:
            continue
        copy(row, held[table[at, 1]])
