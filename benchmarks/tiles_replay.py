"""Which matches the moves of ``tiles.py --verify`` make, by numpy alone: cells of 100 m, times, distances.

Nothing of evflow is in it. A state of an entity holds from the call that gives it until the next one that
moves the entity. Two states match if their circles overlap and both hold at one moment; the later of both
calls triggers the match.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

RADIUS = 6_371_008.8
"""Of the earth, metres."""

REACH = 100.0
"""Metres between the middles of two circles of 50 m that touch."""

CLOSE = 1e-8
"""Metres within which rounding may decide whether circles touch."""

ROW = 1 << 32
"""From a cell to the one north of it."""

STATE = np.dtype([("id", "i8"), ("zone", "f8", (2,)), ("since", "i8"), ("until", "i8")])

HELD = np.iinfo(np.int64).max
"""The state of an entity that has no next one yet."""

Numbers = NDArray[np.int64]
Turn = tuple[int, Numbers, NDArray[np.float64]]


class Sums:
    """How many matches each call triggers, and the sum of a hash of their keys.

    Attributes:
        counts, hashes: by the number of the call.
    """

    def __init__(self) -> None:
        self.counts, self.hashes = np.zeros(0, np.uint64), np.zeros(0, np.uint64)

    def add(self, pubs: Numbers, pub_calls: Numbers, subs: Numbers, sub_calls: Numbers) -> None:
        """Adds matches; a key is what identifies a match."""
        calls = np.maximum(pub_calls, sub_calls)
        self._reach(int(calls.max(initial=-1)) + 1)
        hashes = np.zeros(len(calls), np.uint64)
        for column in (pubs, pub_calls, subs, sub_calls):
            # The finalizer of MurmurHash3.
            hashes = (hashes ^ column.astype(np.uint64)) + np.uint64(0x9E3779B97F4A7C15)
            for factor in (0xFF51AFD7ED558CCD, 0xC4CEB9FE1A85EC53):
                hashes = (hashes ^ hashes >> np.uint64(33)) * np.uint64(factor)
            hashes ^= hashes >> np.uint64(33)
        np.add.at(self.counts, calls, np.uint64(1))
        np.add.at(self.hashes, calls, hashes)

    def _reach(self, calls: int) -> None:
        if calls > len(self.counts):
            more = np.zeros(calls, np.uint64)
            self.counts, self.hashes = np.append(self.counts, more), np.append(self.hashes, more)

    def over(self, spans: Sequence[int]) -> NDArray[np.uint64]:
        """Counts and hashes over spans of calls, (spans, 2): of each call which span it is in."""
        self._reach(len(spans))
        # What says to be of a call that there was not counts, too.
        which = np.full(len(self.counts), spans[-1])
        which[: len(spans)] = spans
        sums = np.zeros((max(spans) + 1, 2), np.uint64)
        np.add.at(sums, which, np.stack([self.counts, self.hashes], axis=1))
        return sums


def replay(entities: list[tuple[Numbers, NDArray[np.float64]]], turns: Iterator[Turn]) -> tuple[Sums, int]:
    """What should come of moves.

    Args:
        entities: ids and zones of publications and of subscriptions, which calls 0 and 1 give.
        turns: of each further call: whose moves it gives, 0 or 1 as in ``entities``, ids, zones.

    Returns:
        The sums, and how many pairs are so close to touching that rounding may decide.
    """
    sums, close, begin, end = Sums(), 0, 0, 2
    held = [_states(ids, zones, call) for call, (ids, zones) in enumerate(entities)]
    while True:
        parts: list[list[NDArray[np.void]]] = [[states] for states in held]
        count = 0
        for which, ids, zones in turns:
            parts[which].append(_states(ids, zones, end))
            end, count = end + 1, count + len(ids)
            if count > sum(map(len, held)):
                break
        if begin == end:
            return sums, close
        states = [_ended(np.concatenate(part)) for part in parts]
        held = [part.compress(part["until"] == HELD) for part in states]
        for pubs, subs in _neighbours(*states):
            later = np.maximum(pubs["since"], subs["since"])
            meets = (later >= begin) & (later < np.minimum(pubs["until"], subs["until"]))
            pubs, subs = pubs.compress(meets), subs.compress(meets)
            away = _metres(pubs["zone"], subs["zone"])
            close += int((np.abs(away - REACH) < CLOSE).sum())
            pubs, subs = pubs.compress(away <= REACH), subs.compress(away <= REACH)
            sums.add(pubs["id"], pubs["since"], subs["id"], subs["since"])
        begin = end


def _states(ids: Numbers, zones: NDArray[np.float64], call: int) -> NDArray[np.void]:
    states = np.empty(len(ids), STATE)
    states["id"], states["zone"], states["since"], states["until"] = ids, zones[:, :2], call, HELD
    return states


def _ended(states: NDArray[np.void]) -> NDArray[np.void]:
    """States, each with the call that ends it."""
    states = states.take(np.argsort(states["id"], kind="stable"))
    again = np.flatnonzero(states["id"][1:] == states["id"][:-1])
    states["until"][again] = states["since"][again + 1]
    return states


def _sorted(states: NDArray[np.void], north: float) -> tuple[NDArray[np.void], Numbers]:
    """States by cells, and these: at least as wide as circles reach, south of a latitude."""
    cells = np.floor(states["zone"] / (1.01 * np.degrees(REACH / RADIUS)) * (1, np.cos(np.radians(north))))
    numbers = cells.astype(np.int64) @ (ROW, 1)
    order = np.argsort(numbers)
    return states.take(order), numbers[order]


def _neighbours(
    pubs: NDArray[np.void], subs: NDArray[np.void]
) -> Iterator[tuple[NDArray[np.void], NDArray[np.void]]]:
    """Pairs of states in the same cell or in two that touch, some at a time."""
    north = max(float(part["zone"][:, 0].max()) for part in (pubs, subs))
    (pubs, there), (subs, here) = (_sorted(part, north) for part in (pubs, subs))
    for start in range(0, len(subs), 100_000):
        part, at = subs[start : start + 100_000], here[start : start + 100_000]
        for row in (-ROW, 0, ROW):
            first = np.searchsorted(there, at + row - 1)
            counts = np.searchsorted(there, at + row + 1, side="right") - first
            which = np.repeat(np.arange(len(part)), counts)
            others = np.arange(len(which)) - np.repeat(np.cumsum(counts) - counts - first, counts)
            yield pubs.take(others), part.take(which)


def _metres(one: NDArray[np.float64], other: NDArray[np.float64]) -> NDArray[np.float64]:
    """Distances on the globe, by the haversine formula."""
    north, east = np.radians((one - other) / 2).T
    cosines = np.cos(np.radians(one[:, 0])) * np.cos(np.radians(other[:, 0]))
    half = np.sin(north) ** 2 + cosines * np.sin(east) ** 2
    metres: NDArray[np.float64] = 2 * RADIUS * np.arcsin(np.sqrt(half))
    return metres
