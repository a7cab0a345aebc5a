"""Rates: what happened between two looks, a second."""

from __future__ import annotations

from dataclasses import dataclass

from evflow.watch.status import NodeStatus, StoneStatus
from evflow.watch.survey import Survey

__all__ = ["Rate", "rates"]


@dataclass(frozen=True)
class Rate:
    """What a stone did a second.

    Attributes:
        taken, left: events a second.
        lost: events a second that were dropped, failed or fitted no input.
        busy: the part of the time it was busy, 0 to 1.
    """

    taken: float = 0.0
    left: float = 0.0
    lost: float = 0.0
    busy: float = 0.0


def rates(before: Survey | None, after: Survey, seconds: float | None = None) -> dict[tuple[str, str], Rate]:
    """What each stone did a second between two looks: (node, stone) → rate.

    Stones that were not there before are left out, and all of a node that has begun anew meanwhile: nobody
    knows since when they count.

    Args:
        before: the first look; None if there was none.
        after: the second.
        seconds: between the two; by default by their clock.
    """
    if before is None:
        return {}
    passed = after.at - before.at if seconds is None else seconds
    if passed <= 0:
        return {}
    earlier = before.alive
    return {
        (node, name): _rate(earlier[node].stones[name], stone, passed)
        for node, status in after.alive.items()
        if node in earlier and _same(earlier[node], status)
        for name, stone in status.stones.items()
        if name in earlier[node].stones
    }


def _same(before: NodeStatus, after: NodeStatus) -> bool:
    """Whether it is still the same process."""
    return before.pid == after.pid and before.uptime <= after.uptime


def _rate(before: StoneStatus, after: StoneStatus, seconds: float) -> Rate:
    # A stone that was taken away and put there again counts from 0.
    start = before if before.taken <= after.taken and before.left <= after.left else StoneStatus("")
    lost = after.dropped + after.errors + after.unmatched - start.dropped - start.errors - start.unmatched
    return Rate(
        taken=(after.taken - start.taken) / seconds,
        left=(after.left - start.left) / seconds,
        lost=max(0, lost) / seconds,
        busy=min(1.0, max(0.0, after.busy - start.busy) / seconds),
    )
