"""What the world knows of a run: what each stone has seen, and what was decided."""

from __future__ import annotations

from itertools import count

from evflow.deploy.record import Record, moves, stones_on

__all__ = ["Failure", "Truth"]


class Failure(BaseException):
    """Something is not as it must be; nothing contains it."""


class Truth:
    """What must hold.

    A stone that goes on has all that was seen by it, wherever that was. Where its node died without having
    saved all, it has at least what was saved.

    Attributes:
        decided: (birth, version) → the record.
        lost: change → the nodes that it takes for lost.
    """

    def __init__(self) -> None:
        self.decided: dict[tuple[str, int], Record] = {}
        self.lost: dict[str, set[str]] = {}
        self._seen: dict[tuple[str, str], list[int]] = {}
        self._least: dict[tuple[str, str], int] = {}
        self._holder: dict[tuple[str, str], str] = {}
        self._came: dict[tuple[str, str], int] = {}
        self._numbers = count()

    def learn(self, record: Record) -> None:
        """A node knows a record."""
        known = self.decided.setdefault((record.birth, record.version), record)
        if known != record:
            raise Failure(f"version {record.version} of {record.deployment} is two: {known}, {record}")

    def _abandoned(self, node: str, record: Record) -> bool:
        """Whether a node was taken for dead, and has not heard of what was decided without it."""
        for (birth, version), later in self.decided.items():
            if birth == record.birth and version > record.version and node in self.lost.get(later.change, ()):
                return True
        return False

    def sees(self, node: str, record: Record, stone: str, seen: list[int]) -> int:
        """A stone sees another event, which is returned, after those it has seen."""
        number = next(self._numbers)
        if self._abandoned(node, record):
            return number
        if stone not in stones_on(record, node):
            raise Failure(f"stone {stone} runs on {node}, where {record} does not have it")
        key = (record.birth, stone)
        known, least = self._seen.get(key, []), self._least.get(key, 0)
        if seen != known[: len(seen)] or len(seen) < least:
            raise Failure(f"stone {stone} on {node} has seen {seen}, not {known} (at least {least} of it)")
        self._seen[key] = [*seen, number]
        self._least[key] = len(seen) + 1
        self._holder[key] = node
        return number

    def came(self, node: str, record: Record, stone: str, count: int) -> None:
        """A stone has come to a node with a snapshot of so many events, which is kept there."""
        self._holder[record.birth, stone] = node
        self._came[record.birth, stone] = count

    def begins_anew(self, node: str, record: Record, stone: str, start: str) -> None:
        """A stone has come to a node without a snapshot."""
        if not any(start in self.lost.get(change, ()) for change in {record.change, *record.parts.values()}):
            raise Failure(f"stone {stone} came to {node} without its snapshot from {start}")
        key = (record.birth, stone)
        self._seen[key], self._least[key], self._holder[key] = [], 0, node
        self._came[key] = 0

    def is_empty(self, node: str, record: Record, stone: str) -> None:
        """A node that starts again has nothing of a stone: it may have died before that could begin anew.

        The stone has begun anew there if the decided change that last moved it moved it to this node from one
        taken for lost.
        """
        before, came, start = None, None, ""
        for later in sorted(self._versions(record.birth), key=lambda version: version.version):
            if stone in moves(before, later):
                (start, _), came = moves(before, later)[stone], later
            before = later
        if came is None or start not in self.lost.get(came.change, ()) or stone not in stones_on(came, node):
            return
        if self._holder.get((record.birth, stone), node) != node:
            self.begins_anew(node, record, stone, start)

    def _versions(self, birth: str) -> list[Record]:
        return [record for (of, _), record in self.decided.items() if of == birth]

    def dies(self, node: str, birth: str, stone: str, saved: int) -> None:
        """A node dies; of what a stone had seen there only so much is saved."""
        key = (birth, stone)
        if self._holder.get(key) == node:
            self._least[key] = min(self._least.get(key, 0), max(saved, self._came.get(key, 0)))
