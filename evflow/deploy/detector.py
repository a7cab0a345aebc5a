"""The detector: which nodes were heard of late, and where the stones of a dead one go."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from evflow.deploy.record import Record, stones_of, stones_on

DEAD_AFTER = 5.0
"""Seconds of silence after which a node is taken for dead."""


class FailureDetector:
    """Which nodes were heard of late.

    Args:
        name: the node it is on, which is alive.
        dead_after: seconds.
    """

    def __init__(self, name: str, dead_after: float = DEAD_AFTER) -> None:
        self._name = name
        self._dead_after = dead_after
        self._heard: dict[str, float] = {}
        self._expected: dict[str, float] = {}

    def hear(self, node: str, now: float) -> None:
        """A sign of life has come."""
        if node in self._expected:
            self._heard[node] = now

    def expect(self, nodes: Iterable[str], now: float) -> None:
        """These are the nodes to be heard from now on."""
        self._expected = {node: self._expected.get(node, now) for node in nodes}
        self._heard = {node: at for node, at in self._heard.items() if node in self._expected}

    def silent(self, node: str, now: float) -> float:
        """For how many seconds a node was not heard."""
        if node == self._name or node not in self._expected:
            return 0.0
        return now - self._heard.get(node, self._expected[node])

    def is_dead(self, node: str, now: float) -> bool:
        """True if a node is taken for dead."""
        return self.silent(node, now) > self._dead_after

    def health(self, nodes: Iterable[str], now: float) -> dict[str, str]:
        """For each node "alive", "dead for … s", or "unknown" before it could be heard."""
        found = {}
        for node in nodes:
            if self.is_dead(node, now):
                found[node] = f"dead for {self.silent(node, now):.0f} s"
            else:
                found[node] = "alive" if node in self._heard or node == self._name else "unknown"
        return found


def fallen_back(record: Record, silent: Mapping[str, float]) -> Record | None:
    """The next version by the fallback rules, to be proposed; None if no rule applies.

    Args:
        record: the version that is.
        silent: for each node that is taken for dead the seconds since it was heard.
    """
    goes: dict[str, str] = {}
    for node, (to, after) in record.fallbacks.items():
        if silent.get(node, 0.0) > after and to not in silent and stones_on(record, node):
            goes[node] = to
    if not goes:
        return None
    placed = {name: stone["on"] for name, stone in stones_of(record).items()}
    return record.moved({name: goes[node] for name, node in placed.items() if node in goes})
