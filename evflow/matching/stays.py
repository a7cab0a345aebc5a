"""Loops of tracking: a table of keys, each with the sorted ids of what its last event matched.

Keys stand in a hash table with linear probing. Sets of ids stand in one pool, in rooms whose sizes are powers
of two; rooms that are left go to a list by size. The key that was seen least recently is found in a queue: a
list of all keys by age, made anew when it is empty, in which keys that were seen since are passed over.
Without a compiler all this is plain Python.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from evflow.matching.native import Read, ReadRows, Write, WriteRows, array_kernel, compiled

Int32s = NDArray[np.int32]
Int64s = NDArray[np.int64]

HASH, LAST, START, COUNT, ROOM, WORDS = range(6)
"""Columns of ``keys``: the hash, the number of the last event, where the ids start and how many there are,
the size of their room, and from ``WORDS`` on the key itself."""

USED, EVENTS, TOP, FORGOTTEN, LARGEST, HEAD, QUEUED, WARM, FREE = range(9)
"""Entries of ``state``: how many keys and how many events there were, how much of the pool was given out, how
many keys were forgotten, the most ids a key ever had, how much of the queue is used up, how many events there
were when it was made, nothing of use, and from ``FREE`` on the first free room of each size, plus 1."""

SIZES = 31
"""Sizes of rooms; a room of size s has space for ``2 << s`` ids, and one of size 0 is none."""

MANY = 64
"""Ids of an event beyond which they have to come in order."""

NONE = -1


@compiled
def _place(table: Int32s, keys: Int64s, words: Int64s, row: int, hashed: int) -> int:
    """Where a key stands in the table, or the free place where it would."""
    mask = len(table) - 1
    at = hashed & mask
    while table[at] != 0:
        key = table[at] - 1
        if keys[key, HASH] == hashed:
            word = 0
            while word < words.shape[1] and keys[key, WORDS + word] == words[row, word]:
                word += 1
            if word == words.shape[1]:
                return at
        at = (at + 1) & mask
    return at


@compiled
def _erase(table: Int32s, keys: Int64s, key: int) -> None:
    """Takes a key out of the table, and moves those up that stand behind it because of it."""
    mask = len(table) - 1
    at = keys[key, HASH] & mask
    while table[at] != key + 1:
        at = (at + 1) & mask
    behind = at
    while True:
        behind = (behind + 1) & mask
        if table[behind] == 0:
            break
        # How far it stands behind its own place, and behind the gap.
        if ((behind - keys[table[behind] - 1, HASH]) & mask) >= ((behind - at) & mask):
            table[at] = table[behind]
            at = behind
    table[at] = 0


@compiled
def _sorted(now: Int32s, ids: Int32s, start: int, stop: int) -> int:
    """Writes ids in order, each once; how many there are."""
    many = stop - start > MANY
    for i in range(start, stop):
        value, rank = ids[i], 0
        if many:
            rank = i - start
        else:
            # Without a branch, for the order is of chance.
            for j in range(start, i):
                rank += ids[j] <= value
            for j in range(i + 1, stop):
                rank += ids[j] < value
        now[rank] = value
    count = 0
    for i in range(stop - start):
        now[count] = now[i]
        if count == 0 or now[count - 1] != now[count]:
            count += 1
    return count


@compiled
def _fit(keys: Int64s, pool: Int32s, state: Int64s, key: int, count: int) -> None:
    """Gives a key a room for so many ids, unless it has one that fits."""
    room, wanted = keys[key, ROOM], 0
    if count > 0:
        wanted = 1
    while wanted > 0 and (2 << wanted) < count:
        wanted += 1
    if wanted == room or wanted == room - 1:
        return
    if room > 0:
        start = keys[key, START]
        pool[start] = state[FREE + room]
        state[FREE + room] = start + 1
    if wanted > 0:
        free = state[FREE + wanted]
        if free > 0:
            keys[key, START] = free - 1
            state[FREE + wanted] = pool[free - 1]
        else:
            keys[key, START] = state[TOP]
            state[TOP] += 2 << wanted
    keys[key, ROOM] = wanted


@array_kernel
def fill(table: Write[np.int32], keys: ReadRows[np.int64], used: int) -> None:
    """Puts the first ``used`` keys into an empty table."""
    mask = len(table) - 1
    for key in range(used):
        at = keys[key, HASH] & mask
        while table[at] != 0:
            at = (at + 1) & mask
        table[at] = key + 1


@array_kernel
def find(table: Read[np.int32], keys: ReadRows[np.int64], words: ReadRows[np.int64], hashed: int) -> int:
    """Which key has the first row of ``words``; ``NONE`` if none has."""
    at = _place(table, keys, words, 0, hashed)
    found: int = table[at] - 1
    return found


@compiled
def _oldest(keys: Int64s, state: Int64s, queue: Int64s) -> int:
    """Takes the key out of the queue that was seen least recently; ``NONE`` if the queue is empty."""
    while state[HEAD] < len(queue):
        key: int = queue[state[HEAD]]
        state[HEAD] += 1
        if keys[key, LAST] <= state[QUEUED]:
            return key
    return NONE


@compiled
def _warmed(table: Int32s, keys: Int64s, pool: Int32s, hashes: Int64s, first: int, places: Int64s) -> int:
    """Reads what a block of events will need, so that no read waits for another."""
    stop, mask, warm = min(first + len(places), len(hashes)), len(table) - 1, 0
    for n in range(first, stop):
        places[n - first] = max(table[hashes[n] & mask] - 1, 0)
    for n in range(stop - first):
        key = places[n]
        places[n] = keys[key, START]
        warm += keys[key, WORDS]
    for n in range(stop - first):
        warm += pool[places[n]]
    return warm


@array_kernel
def step(
    table: Write[np.int32],
    keys: WriteRows[np.int64],
    pool: Write[np.int32],
    state: Write[np.int64],
    ended: Read[np.int64],
    queue: Read[np.int64],
    first: int,
    words: ReadRows[np.int64],
    hashes: Read[np.int64],
    offsets: Read[np.int64],
    ids: Read[np.int32],
    limit: int,
    now: Write[np.int32],
    places: Write[np.int64],
    ends: WriteRows[np.int64],
    enter: Write[np.int32],
    inside: Write[np.int32],
    leave: Write[np.int32],
) -> int:
    """Goes through events in order: which ids each enters, stays inside and leaves, ascending.

    Args:
        table: places of keys by hash, plus 1; twice as many as there may be keys, and a power of two.
        keys: see ``HASH``.
        pool: the ids of all keys; enough is free.
        state: see ``USED``.
        ended: by id, the number of the event after which a subscription of that id ended last.
        queue: all keys by age as it was; see ``HEAD``.
        first: the event to begin with.
        words: the key of each event.
        hashes: the hash of each.
        offsets, ids: what each event matches.
        limit: how many keys there may be.
        now: room for the ids of an event.
        places: room for some numbers.
        ends: N + 1 rows, the first of zeros: where the ids of each event end in the arrays that follow.
        enter, inside, leave: room for the result.

    Returns:
        The event before which the queue has to be made anew; N if none.
    """
    entered, stayed, left = ends[first, 0], ends[first, 1], ends[first, 2]
    for n in range(first, len(hashes)):
        if (n - first) % len(places) == 0:
            state[WARM] = _warmed(table, keys, pool, hashes, n, places)
        at = _place(table, keys, words, n, hashes[n])
        key = table[at] - 1
        if key < 0:
            if state[USED] < limit:
                key = state[USED]
                state[USED] += 1
            else:
                key = _oldest(keys, state, queue)
                if key == NONE:
                    return n
                state[FORGOTTEN] += 1
                _erase(table, keys, key)
                at = _place(table, keys, words, n, hashes[n])
            table[at] = key + 1
            keys[key, HASH], keys[key, COUNT] = hashes[n], 0
            for word in range(words.shape[1]):
                keys[key, WORDS + word] = words[n, word]
        count = _sorted(now, ids, offsets[n], offsets[n + 1])
        i, start, last = 0, keys[key, START], keys[key, LAST]
        for j in range(start, start + keys[key, COUNT]):
            id = pool[j]
            if id < len(ended) and ended[id] >= last:
                continue
            while i < count and now[i] < id:
                enter[entered] = now[i]
                entered += 1
                i += 1
            if i < count and now[i] == id:
                inside[stayed] = id
                stayed += 1
                i += 1
            else:
                leave[left] = id
                left += 1
        while i < count:
            enter[entered] = now[i]
            entered += 1
            i += 1
        ends[n + 1, 0], ends[n + 1, 1], ends[n + 1, 2] = entered, stayed, left
        _fit(keys, pool, state, key, count)
        start = keys[key, START]
        for i in range(count):
            pool[start + i] = now[i]
        state[EVENTS] += 1
        keys[key, COUNT], keys[key, LAST] = count, state[EVENTS]
        state[LARGEST] = max(state[LARGEST], count)
    return len(hashes)


@array_kernel
def pad(
    chars: Read[np.uint8], start: Read[np.int64], length: Read[np.int32], rows: WriteRows[np.uint8]
) -> None:
    """Copies each piece of ``chars`` to its row, from the ninth byte on."""
    for i in range(len(start)):
        for j in range(length[i]):
            rows[i, 8 + j] = chars[start[i] + j]
