"""Tracking: which subscriptions something that moves enters, stays inside and leaves, from event to event."""

from __future__ import annotations

import os
from typing import Any, NamedTuple

import msgpack
import numpy as np
from numpy.typing import ArrayLike, NDArray

from evflow.errors import SchemaError, SubscriptionError
from evflow.events.gather import places_of, starts_of
from evflow.matching import stays
from evflow.matching.encoding.keys import GOOD, LACKING, LONG, LONGEST, Words, keys_of_column, widened
from evflow.matching.engine import Matches
from evflow.matching.ids import LARGEST, checked_ids
from evflow.outside import from_msgpack, shown

_VERSION = 1
_FIRST = 1024
_BLOCK = 32
"""Events whose memory is read ahead together."""

_LOW = (1 << 32) - 1
_MOST_POOL = (1 << 31) - 1
_MOST_LIMIT = 1 << 30
_K1, _K2 = np.uint64(0x9E3779B97F4A7C15), np.uint64(0xD6E8FEB86659FD93)
_PROBLEMS = {
    LACKING: "is missing",
    LONG: f"is a text of more than {LONGEST} bytes, or a number beyond 64 bits",
}

Int32s = NDArray[np.int32]
Int64s = NDArray[np.int64]


class Tracked(NamedTuple):
    """What N events enter, stay inside and leave; the ids of an event ascend in each.

    Attributes:
        enter: the subscriptions that an event satisfies and the event before it of the same key did not.
        inside: those that both satisfy.
        leave: those that the event before satisfied and this one does not.
    """

    enter: Matches
    inside: Matches
    leave: Matches


class Tracker:
    """Compares what each event matches with what the event before it of the same key matched.

    Events are given in batches, in their order. The key says what an event is about, such as the aircraft. A
    key's first event enters all that it matches. A tracker knows keys and ids only, so it goes with every
    engine, and with whatever else makes ``Matches``. One thread at a time may use it.

    Args:
        limit: how many keys it knows at most. Then the one that was seen least recently is forgotten: it
            leaves nothing, and its next event enters all that it matches.

    Attributes:
        limit: as given.

    Raises:
        SubscriptionError: ``limit`` is not a whole number from 1 to 2**30.

    Example:
        >>> from evflow.matching import Matcher, Tracker
        >>> matcher, tracker = Matcher("reference"), Tracker()
        >>> matcher.subscribe_many(["within(0, 0, 2)", "within(3, 0, 2)"])
        array([0, 1], dtype=int32)
        >>> events = {"icao24": ["3c6", "a0f", "3c6"], "x": [0.0, 9.0, 2.0], "y": [0.0, 0.0, 0.0]}
        >>> tracked = tracker.track(events["icao24"], matcher.match_batch(events))
        >>> [ids.tolist() for ids in tracked.enter], tracked.inside[2].tolist()
        ([[0], [], [1]], [0])
        >>> events = {"icao24": ["3c6"], "x": [4.0], "y": [0.0]}
        >>> tracked = tracker.track(events["icao24"], matcher.match_batch(events))
        >>> tracked.inside[0].tolist(), tracked.leave[0].tolist(), tracker.inside("3c6").tolist()
        ([1], [0], [1])
    """

    def __init__(self, *, limit: int = 1_000_000) -> None:
        if type(limit) is not int or not 1 <= limit <= _MOST_LIMIT:
            raise SubscriptionError(
                f"limit {limit!r}: expected a whole number of keys from 1 to {_MOST_LIMIT}"
            )
        self.limit = limit
        self._seed = np.frombuffer(os.urandom(8), np.uint64)[0]
        self._table = np.zeros(2, np.int32)
        self._keys = np.zeros((0, stays.WORDS + 2), np.int64)
        self._pool = np.zeros(0, np.int32)
        self._state = np.zeros(stays.FREE + stays.SIZES + 1, np.int64)
        self._ended = np.zeros(0, np.int64)
        self._queue = np.zeros(0, np.int64)

    def __len__(self) -> int:
        """How many keys are known."""
        return int(self._state[stays.USED])

    @property
    def forgotten(self) -> int:
        """How many keys were forgotten since there were more than ``limit``."""
        return int(self._state[stays.FORGOTTEN])

    @property
    def nbytes(self) -> int:
        """Bytes of memory."""
        return self._table.nbytes + self._keys.nbytes + self._pool.nbytes + self._ended.nbytes

    def track(self, keys: Any, matches: Matches) -> Tracked:
        """Takes the next events in, and tells what each enters, stays inside and leaves.

        Two keys are the same if they are equal as texts or as numbers; 5 and 5.0 are, 5 and "5" are not.

        Args:
            keys: of N events: a list, an array, or a column of pandas or pyarrow, of texts and numbers.
            matches: what these events satisfy, as ``Matcher.match_batch`` gives it.

        Returns:
            The ids.

        Raises:
            SchemaError: a key is missing, NaN, neither text nor number, or too long; names its row. Or there
                are more or fewer keys than events. Nothing has changed.
            SubscriptionError: ``matches`` has offsets that do not fit its ids, or a number that is not an id.
        """
        _check(matches)
        words, state = keys_of_column(keys)
        if (state != GOOD).any():
            row = int(np.argmax(state != GOOD))
            problem = _PROBLEMS.get(int(state[row]), "is neither a text nor a number")
            raise SchemaError(f"key {row} {problem}; expected a text or a number for each event")
        return self.track_words(words, matches)

    def track_words(self, words: Words, matches: Matches) -> Tracked:
        """Like ``track``, with keys as ``evflow.matching.encoding.keys`` makes them.

        Args:
            words: int64, (N, W).
            matches: what the N events satisfy.

        Raises:
            SchemaError: there are more or fewer keys than events.
            SubscriptionError: all keys together match more than the memory can address.
        """
        count = len(words)
        if count != len(matches):
            raise SchemaError(f"{count} keys for {len(matches)} events: expected one each")
        counts = np.diff(matches.offsets)
        most = int(counts.max(initial=0))
        ids = np.ascontiguousarray(matches.ids, np.int32)
        if most > stays.MANY:
            ids = _ordered(counts, ids)
        words = self._ready(words, len(ids))
        largest = max(int(self._state[stays.LARGEST]), most)
        leaving = min(count * largest, len(self._pool))
        ends = np.zeros((count + 1, 3), np.int64)
        found = [np.empty(size, np.int32) for size in (len(ids), len(ids), leaving)]
        offsets, hashes = np.ascontiguousarray(matches.offsets, np.int64), self._hashed(words)
        now, places = np.empty(most, np.int32), np.empty(_BLOCK, np.int64)
        done = 0
        while True:
            done = stays.step(
                self._table, self._keys, self._pool, self._state, self._ended, self._queue, done,
                words, hashes, offsets, ids, self.limit, now, places, ends, *found,
            )  # fmt: skip
            if done == count:
                break
            self._queue = self._by_age()
            self._state[stays.HEAD], self._state[stays.QUEUED] = 0, self._state[stays.EVENTS]
        columns = np.ascontiguousarray(ends.T)
        return Tracked(
            *(Matches(ends, ids[: ends[-1]].copy()) for ends, ids in zip(columns, found, strict=True))
        )

    def _ready(self, words: Words, ids: int) -> Words:
        """Makes room for keys and their ids; gives the keys with as many words as the known ones have."""
        used, count = len(self), len(words)
        wanted = min(self.limit, used + count)
        held = self._keys
        width = max(held.shape[1] - stays.WORDS, words.shape[1])
        wider = width > held.shape[1] - stays.WORDS
        if wanted > len(held) or wider:
            room = min(self.limit, max(wanted, 2 * len(held), _FIRST))
            self._keys = np.zeros((room, stays.WORDS + width), np.int64)
            self._keys[:used, : held.shape[1]] = held[:used]
            if wider:
                self._keys[:used, stays.HASH] = self._hashed(self._keys[:used, stays.WORDS :])
            self._table = np.zeros(2 << room.bit_length(), np.int32)
            stays.fill(self._table, self._keys, used)
        # A room has at most twice as many places as ids, and four at least.
        top = int(self._state[stays.TOP]) + 2 * ids + 4 * count
        if top > len(self._pool):
            if top > _MOST_POOL:
                raise SubscriptionError(
                    f"{used} keys match too much together, more than {_MOST_POOL} ids with what is free: "
                    f"expected fewer matches an event, or a lower limit of keys than {self.limit}"
                )
            grown = np.zeros(min(max(top, 2 * len(self._pool)), _MOST_POOL), np.int32)
            grown[: len(self._pool)] = self._pool
            self._pool = grown
        return np.ascontiguousarray(widened(words, width))

    def _by_age(self) -> Int64s:
        """The keys, the one that was seen least recently first."""
        return np.argsort(self._keys[: len(self), stays.LAST])

    def _hashed(self, words: Words) -> Int64s:
        """A hash of each key."""
        hashed = np.full(len(words), self._seed)
        for column in np.ascontiguousarray(words.T).view(np.uint64):
            hashed ^= column
            hashed *= _K2
            hashed ^= hashed >> np.uint64(32)
        hashed *= _K1
        return (hashed >> np.uint64(1)).view(np.int64)

    def end(self, ids: ArrayLike) -> None:
        """Tells that subscriptions were removed: nothing leaves them, and what gets their ids is another.

        Args:
            ids: integers.

        Raises:
            SubscriptionError: one is not an id.
        """
        given = checked_ids(ids, "whole numbers")
        if not len(given) or not len(self):
            return
        if (top := int(given.max()) + 1) > len(self._ended):
            grown = np.zeros(max(top, 2 * len(self._ended)), np.int64)
            grown[: len(self._ended)] = self._ended
            self._ended = grown
        self._ended[given] = self._state[stays.EVENTS]

    def inside(self, key: str | float) -> Int32s:
        """The ids of what the last event of a key satisfied, without those that ended, ascending.

        Args:
            key: a text or a number; one that is not known is inside nothing.

        Raises:
            SchemaError: it is neither.
        """
        words, state = keys_of_column([key])
        if state[0] != GOOD:
            raise SchemaError(f"key {shown(key)}: expected a text of at most {LONGEST} bytes or a number")
        width = self._keys.shape[1] - stays.WORDS
        words = widened(words, width)
        # No key is known that is as long as that.
        if words.shape[1] > width:
            return np.empty(0, np.int32)
        at = stays.find(self._table, self._keys, np.ascontiguousarray(words), int(self._hashed(words)[0]))
        if at == stays.NONE:
            return np.empty(0, np.int32)
        return self._sets(np.array([at])).ids

    def _sets(self, rows: NDArray[Any]) -> Matches:
        """What keys are inside of, by their places."""
        start, count, last = (self._keys[rows, column] for column in (stays.START, stays.COUNT, stays.LAST))
        offsets = starts_of(count)
        ids = self._pool[places_of(start, count)]
        ended = np.zeros(len(ids), np.int64)
        known = ids < len(self._ended)
        ended[known] = self._ended[ids[known]]
        there = ended < np.repeat(last, count)
        return Matches(starts_of(there.astype(np.int64))[offsets], ids[there])

    def pack(self) -> bytes:
        """All that it knows, as bytes that ``unpack`` takes."""
        rows = self._by_age()
        sets = self._sets(rows)
        words = self._keys[rows, stays.WORDS :]
        parts = (words.astype("<i8"), np.diff(sets.offsets).astype("<i4"), sets.ids.astype("<i4"))
        packed: bytes = msgpack.packb(
            [_VERSION, words.shape[1], self.forgotten, *(part.tobytes() for part in parts)]
        )
        return packed

    def unpack(self, data: bytes) -> None:
        """Takes what another one knew, in place of what it knows.

        If that are more keys than ``limit``, those seen least recently are forgotten.

        Args:
            data: what ``pack`` gave; it may come from outside.

        Raises:
            SubscriptionError: it is malformed; nothing has changed.
        """
        try:
            version, width, forgotten, *parts = from_msgpack(data)
            if version != _VERSION or type(width) is not int or not 2 <= width <= 2 + LONGEST // 8:
                raise ValueError(f"version {shown(version)}, width {shown(width)}")
            if type(forgotten) is not int or not 0 <= forgotten < 1 << 62:
                raise ValueError(f"{shown(forgotten)} keys were forgotten")
            words, counts, ids = (
                np.frombuffer(part, kind) for part, kind in zip(parts, ("<i8", "<i4", "<i4"), strict=True)
            )
            words = words.astype(np.int64).reshape(-1, width)
            offsets = starts_of(counts.astype(np.int64))
            if len(words) != len(counts) or int(counts.min(initial=0)) < 0 or offsets[-1] != len(ids):
                raise ValueError(f"{len(words)} keys, {len(counts)} counts, {len(ids)} ids")
            if len(ids) and not 0 <= int(ids.min()) <= int(ids.max()) <= LARGEST:
                raise ValueError(f"ids from {ids.min()} to {ids.max()}")
        except (ValueError, TypeError) as error:
            raise SubscriptionError(f"what a tracker knew is malformed: {shown(error)}") from None
        fresh = Tracker(limit=self.limit)
        fresh.track_words(words, Matches(offsets, ids.astype(np.int32)))
        fresh._state[stays.FORGOTTEN] += forgotten
        vars(self).update(vars(fresh))


def _check(matches: Matches) -> None:
    """Refuses what would lead out of arrays."""
    if not isinstance(matches, Matches):
        raise SubscriptionError(
            f"matches: expected Matches, as Matcher.match_batch gives it, found {shown(matches)}"
        )
    offsets, ids = np.asarray(matches.offsets), np.asarray(matches.ids)
    checked_ids(ids, "whole numbers")
    rising = offsets.ndim == 1 and offsets.dtype.kind in "iu" and len(offsets) > 0
    if not (rising and offsets[0] == 0 and offsets[-1] == ids.size and (offsets[1:] >= offsets[:-1]).all()):
        raise SubscriptionError(f"offsets of matches: expected offsets that rise from 0 to {ids.size}")


def _ordered(counts: Int64s, ids: Int32s) -> Int32s:
    """The ids of each event, ascending."""
    both = np.repeat(np.arange(len(counts)), counts) << 32 | ids
    both.sort()
    return (both & _LOW).astype(np.int32)
