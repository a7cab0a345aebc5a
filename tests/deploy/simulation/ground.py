"""A ground that only pretends: each stone holds the list of the events that it has seen.

The world knows all that was seen by each stone; see ``Truth``.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping
from random import Random

from evflow.deploy.record import Record, moves, stones_on
from evflow.engine.snapshot import Parts, Snapshot
from tests.deploy.simulation.truth import Failure, Truth

__all__ = ["Disk", "FakeGround"]

Disk = dict[tuple[str, str], list[int]]
"""(birth, stone) → what of its events would be there after a restart."""


class FakeGround:
    """What the deployments do to a simulated node.

    Args:
        node: its name.
        disk: what outlives it.
        truth: what the world knows.
        random: the world's.

    Attributes:
        records: deployment → what was adopted.
        stones: deployment → stone → the events it has seen.
        runs: whether the node has started.
        closed: deployments whose entries are closed.
    """

    def __init__(self, node: str, disk: Disk, truth: Truth, random: Random) -> None:
        self.records: dict[str, Record] = {}
        self.stones: dict[str, dict[str, list[int]]] = {}
        self.runs = False
        self.closed: dict[str, tuple[Record | None, Record]] = {}
        self._inside: dict[str, int] = {}
        self._quiet: set[str] = set()
        self._settled: set[str] = set()
        self._node = node
        self._disk = disk
        self._truth = truth
        self._random = random

    def start(self, records: Iterable[Record], arrived: Mapping[str, Mapping[str, bytes]]) -> None:
        for record in records:
            self.records[record.deployment] = record
            came = {stone: json.loads(data) for stone, data in arrived.get(record.deployment, {}).items()}
            here = self.stones[record.deployment] = {}
            for stone in stones_on(record, self._node):
                here[stone] = list(self._disk.get((record.birth, stone), came.get(stone, [])))
                if stone not in came and (record.birth, stone) not in self._disk:
                    self._truth.is_empty(self._node, record, stone)

    def check(self, old: Record | None, new: Record) -> str:
        for name, stone in stones_on(new, self._node).items():
            if stone["settings"].get("bad") == self._node:
                return f"stone {name!r}: it is bad"
        return ""

    def begin(
        self, old: Record | None, new: Record, settled: bool = False, lost: Collection[str] = ()
    ) -> None:
        if new.deployment in self.closed:
            raise Failure(f"{self._node}: a change of {new.deployment} begins within another")
        self.closed[new.deployment] = (old, new)
        self._inside[new.deployment] = self._random.choice((0, 0, 1, 5)) if self.runs else 0

    def waiting(self, deployment: str) -> str:
        if deployment in self._quiet:
            if deployment in self._settled or self._random.random() < 0.9:
                return ""
            # Another node was not quiet yet.
            self._quiet.discard(deployment)
            self._inside[deployment] = 2
        if self._inside[deployment]:
            # What was under way when the entries were closed.
            self._inside[deployment] -= 1
            for stone in list(self.stones.get(deployment, {})):
                self._see(deployment, stone)
            return "events are under way"
        self._quiet.add(deployment)
        return ""

    def settle(self, deployment: str) -> str:
        if deployment not in self.closed:
            raise Failure(f"{self._node}: {deployment} settles while no change is under way")
        self._settled.add(deployment)
        return self.waiting(deployment)

    def expect(self, new: Record, arrived: Mapping[str, Snapshot]) -> None:
        if new.deployment not in self.closed:
            raise Failure(f"{self._node}: {new.deployment} expects a change that was not begun")

    def leaving(self, deployment: str) -> dict[str, Parts]:
        if deployment not in self._settled:
            raise Failure(f"{self._node}: snapshots of {deployment} are taken before all nodes are quiet")
        if deployment not in self._quiet:
            raise Failure(f"{self._node}: snapshots of {deployment} are taken before it is quiet")
        old, new = self.closed[deployment]
        gone = [stone for stone, (start, _) in moves(old, new).items() if start == self._node]
        return {stone: [b"", json.dumps(self.stones[deployment][stone]).encode()] for stone in gone}

    def commit(self, new: Record, arrived: Mapping[str, Snapshot]) -> None:
        old, _ = self._end(new.deployment)
        moved = moves(old, new)
        self._adopt(new)
        here = self.stones.get(new.deployment, {})
        for stone, data in arrived.items():
            here[stone] = json.loads(bytes(data))
            self._truth.came(self._node, new, stone, len(here[stone]))
        for stone in here:
            if stone in moved and moved[stone][1] == self._node and stone not in arrived:
                self._truth.begins_anew(self._node, new, stone, moved[stone][0])

    def cancel(self, deployment: str) -> None:
        self._end(deployment)

    def overtake(self, new: Record) -> None:
        if new.deployment in self.closed:
            raise Failure(f"{self._node}: {new.deployment} is overtaken while a change is under way")
        before = self.stones.get(new.deployment, {}).keys()
        self._adopt(new)
        if self.stones.get(new.deployment, {}).keys() - before:
            raise Failure(f"{self._node}: stones of {new.deployment} came without the node's doing")

    def _end(self, deployment: str) -> tuple[Record | None, Record]:
        self._quiet.discard(deployment)
        self._settled.discard(deployment)
        if deployment not in self.closed:
            raise Failure(f"{self._node}: a change of {deployment} ends that has not begun")
        return self.closed.pop(deployment)

    def _adopt(self, new: Record) -> None:
        before = self.stones.pop(new.deployment, {})
        here = stones_on(new, self._node)
        for stone in before.keys() - here.keys():
            self._disk.pop((new.birth, stone), None)
        self.records.pop(new.deployment, None)
        if here:
            self.records[new.deployment] = new
            self.stones[new.deployment] = {stone: before.get(stone, []) for stone in here}

    # --- events

    def event(self, deployment: str, stone: str) -> bool:
        """An event comes for a stone; gives whether it is here and its entries are open."""
        if stone not in self.stones.get(deployment, {}) or deployment in self.closed:
            return False
        self._see(deployment, stone)
        return True

    def _see(self, deployment: str, stone: str) -> None:
        record, seen = self.records[deployment], self.stones[deployment][stone]
        seen.append(self._truth.sees(self._node, record, stone, seen))

    def save(self, deployment: str, stone: str) -> None:
        """What a stone has seen outlives the node from now on."""
        birth = self.records[deployment].birth
        self._disk[birth, stone] = list(self.stones[deployment][stone])
