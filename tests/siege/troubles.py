"""What was done to nodes when, and so when they are excused."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

__all__ = ["Span", "Trouble", "overlap", "united"]

Span = tuple[float, float]


@dataclass
class Trouble:
    """Something that was done to a node.

    Attributes:
        kind: "kill", "stop", "cut", "fill", "nap" or "ended" (by itself).
        node: the node.
        start, end: when, of ``time.monotonic``; ``end`` is infinite while it goes on.
    """

    kind: str
    node: str
    start: float
    end: float = float("inf")


def united(troubles: Iterable[Trouble], recovery: float = 0.0) -> list[Span]:
    """The times in which there was at least one, each longer by ``recovery``; in order and apart."""
    spans = sorted((trouble.start, trouble.end + recovery) for trouble in troubles)
    made: list[Span] = []
    for start, end in spans:
        if made and start <= made[-1][1]:
            made[-1] = (made[-1][0], max(end, made[-1][1]))
        else:
            made.append((start, end))
    return made


def overlap(spans: Iterable[Span], start: float, end: float) -> float:
    """How many seconds between two times are within spans."""
    return sum(max(0.0, min(end, last) - max(start, first)) for first, last in spans)
