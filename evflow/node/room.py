"""The free room of an arena: where blocks can go, the lowest place first."""

from __future__ import annotations

from bisect import bisect

__all__ = ["Room"]


class Room:
    """The free room of an arena, as regions in ascending order that never touch each other.

    Args:
        start: first free byte.
        end: the byte behind the last one.
    """

    def __init__(self, start: int, end: int) -> None:
        self._starts = [start] if end > start else []
        self._ends = [end] if end > start else []

    @property
    def free(self) -> int:
        """Bytes that are free."""
        return sum(self._ends) - sum(self._starts)

    @property
    def regions(self) -> list[tuple[int, int]]:
        """Start and end of each free region."""
        return list(zip(self._starts, self._ends, strict=True))

    def take(self, length: int) -> int | None:
        """Takes the lowest ``length`` bytes that are free in one piece; None if there are none."""
        starts, ends = self._starts, self._ends
        for position, start in enumerate(starts):
            left = ends[position] - start - length
            if left > 0:
                starts[position] = start + length
                return start
            if left == 0:
                del starts[position], ends[position]
                return start
        return None

    def give(self, start: int, length: int) -> None:
        """Gives back what was taken."""
        starts, ends = self._starts, self._ends
        end = start + length
        position = bisect(starts, start)
        joins_before = position > 0 and ends[position - 1] == start
        joins_after = position < len(starts) and starts[position] == end
        if joins_before and joins_after:
            ends[position - 1] = ends[position]
            del starts[position], ends[position]
        elif joins_before:
            ends[position - 1] = end
        elif joins_after:
            starts[position] = start
        else:
            starts.insert(position, start)
            ends.insert(position, end)
