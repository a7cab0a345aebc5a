"""What an event costs by either way to weak filters: signature by signature, or by the bitmaps of the pool.

All is counted while events are matched, but for the share of the pool that bitmaps leave before there are
any: that is told by a sample of the filters. The nanoseconds were measured on an AMD EPYC of 2021; only their
ratios matter.
"""

from __future__ import annotations

from dataclasses import dataclass

from evflow.matching.index import layout as at

SIGNATURE, NAME = 50, 8
"""What a signature takes that an event has all elements of, and each of these elements."""
SHORT, LONG = 15, 1
"""What a filter takes in a short list, and in columns, which take up to four times that if they are in no
cache.
"""
_BLOCK, _ROW = 10.0, 3.0
"""What a block of the pool takes, and each row of it that is anded."""
_NEAR, _FAR = 25.0, 40.0
"""What the exact test of a filter takes that the rows left, if caches hold the pool, and if they do not."""
ENTER = 1000.0
"""What it takes to move a filter from one way to the other."""
FEWEST = 512
"""Filters below which all is well as it is."""
BETTER = 1.5
"""How many times cheaper another way must be to be taken."""


@dataclass(frozen=True, slots=True)
class Counts:
    """What matching some events has taken.

    Attributes:
        events: how many there were.
        spent: nanoseconds that weak filters in lists have taken, by the number of signatures of which an
            event had all elements, of these elements, and of the filters there.
        candidates: filters of the pool that the rows left.
        reached: filters of the pool whose elements one event had; None where that was not counted.
    """

    events: int
    spent: int
    candidates: int
    reached: int | None = None

    def lists(self) -> float:
        """Nanoseconds an event that weak filters in lists have taken."""
        return self.spent / max(1, self.events)

    def lists_instead(self, filters: int, signatures: int, constraints: float, columns_from: int) -> float:
        """Nanoseconds an event that the pool's filters would take in lists.

        Args:
            filters: how many the pool holds.
            signatures: how many there are in all.
            constraints: elements of a filter on average.
            columns_from: filters of a list that has columns.
        """
        if self.reached is None:
            raise ValueError("reached was not counted; expected counts of an event for which it was asked")
        hits = self.reached * min(1.0, signatures / max(1, filters))
        test = LONG if filters >= columns_from * signatures else SHORT
        return hits * (SIGNATURE + NAME * constraints) + test * self.reached

    def pool(self, blocks: int, axes: int) -> float:
        """Nanoseconds an event that a pool of so many blocks and axes has taken."""
        return bits_cost(blocks, axes) + _test_cost(blocks) * self.candidates / max(1, self.events)


def bits_cost(blocks: int, axes: int) -> float:
    """Nanoseconds that the rows of a pool take an event."""
    return blocks * (_BLOCK + _ROW * axes)


def _test_cost(blocks: int) -> float:
    """Nanoseconds that the test of a filter takes in a pool of so many blocks."""
    return _FAR if blocks * at.IN_BLOCK > at.CACHED else _NEAR


def pool_instead(filters: int, blocks: int, axes: int, share: float) -> float:
    """Nanoseconds an event that a pool would take.

    Args:
        filters: how many it would hold.
        blocks, axes: how large it would be.
        share: the share of its filters that its rows would leave.
    """
    return bits_cost(blocks, axes) + _test_cost(blocks) * share * filters
