"""A few controllers in one thread, with a network that loses nothing and a clock that is set."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Collection, Iterable, Mapping
from itertools import pairwise
from typing import Any

from evflow.deploy.controller import Controller, Outcome
from evflow.deploy.record import Record, moves, stones_on
from evflow.engine.snapshot import Parts, Snapshot
from tests.deploy.simulation.process import MemoryStore

__all__ = ["Group", "PlainGround", "graph_of", "record_of"]


def graph_of(**placed: str) -> dict[str, Any]:
    """A chain of stones: stone=node, …"""
    names = list(placed)
    return {
        "name": "g",
        "stones": [{"name": n, "kind": "queue", "on": on, "settings": {}} for n, on in placed.items()],
        "links": [[a, 0, b, ""] for a, b in pairwise(names)],
        "morphs": [],
    }


def record_of(name: str, nodes: str, **placed: str) -> Record:
    """A new deployment."""
    return Record.first(name, graph_of(**placed), {node: f"sim://{node}" for node in nodes})


class PlainGround:
    """Does nothing but note what is asked of it.

    Attributes:
        refuses: what ``check`` answers.
        waits: what ``waiting`` answers.
        stalls: what it answers after ``settle``, if anything.
        calls: what was asked, in order.
        expected: stone → the snapshot that it may come with.
        arrived: stone → the snapshot it came with.
        record: what was adopted last.
        settled: whether all nodes were quiet already for the change that was begun last.
    """

    def __init__(self, node: str) -> None:
        self.node = node
        self.refuses = ""
        self.waits = ""
        self.stalls = ""
        self.calls: list[str] = []
        self.expected: dict[str, Snapshot] = {}
        self.arrived: dict[str, Snapshot] = {}
        self.record: Record | None = None
        self.settled = False
        self._change: tuple[Record | None, Record] | None = None

    def start(self, records: Iterable[Record], arrived: Mapping[str, Mapping[str, bytes]]) -> None:
        self.calls.append("start")
        for record in records:
            self.record = record
        for stones in arrived.values():
            self.arrived.update(stones)

    def check(self, old: Record | None, new: Record) -> str:
        return self.refuses

    def begin(
        self, old: Record | None, new: Record, settled: bool = False, lost: Collection[str] = ()
    ) -> None:
        self.calls.append("begin")
        self.settled = settled
        self._change = (old, new)

    def waiting(self, deployment: str) -> str:
        return self.waits

    def settle(self, deployment: str) -> str:
        self.calls.append("settle")
        self.waits = self.waits or self.stalls
        return self.waits

    def leaving(self, deployment: str) -> dict[str, Parts]:
        assert self._change is not None
        moved = moves(*self._change)
        gone = [stone for stone, (start, _) in moved.items() if start == self.node]
        return {stone: [f"{stone} of {self.node}".encode() * 1000] * 100 for stone in gone}

    def expect(self, new: Record, arrived: Mapping[str, Snapshot]) -> None:
        self.expected = dict(arrived)

    def commit(self, new: Record, arrived: Mapping[str, Snapshot]) -> None:
        self.calls.append("commit")
        assert self.expected == arrived
        self.arrived.update(arrived)
        self.record = new

    def cancel(self, deployment: str) -> None:
        self.calls.append("cancel")

    def overtake(self, new: Record) -> None:
        self.calls.append("overtake")
        self.record = new


class Group:
    """Controllers that hear each other.

    Args:
        names: one letter a node.
        allowed: who may deploy.

    Attributes:
        now: the time.
        down: nodes that neither hear nor do anything.
        notes: those under way: (from, to, note).
    """

    def __init__(self, names: str, allowed: str = "ABCDE") -> None:
        self.now = 100.0
        self.down: set[str] = set()
        self.allowed = allowed
        self.stores = {name: MemoryStore() for name in names}
        self.grounds: dict[str, PlainGround] = {}
        self.controllers: dict[str, Controller] = {}
        self.notes: deque[tuple[str, str, bytes]] = deque()
        for name in names:
            self.start(name)

    def start(self, name: str) -> None:
        """Starts a node, again perhaps."""
        ground = self.grounds[name] = PlainGround(name)

        def send(peer: str, note: bytes) -> bool:
            self.notes.append((name, peer, note))
            return True

        self.controllers[name] = Controller(
            name, ground, self.stores[name], send, os.urandom, self.now,
            permits=lambda peer, what: peer in self.allowed,
        )  # fmt: skip

    def run(self, seconds: float = 1.0) -> None:
        """Lets time pass."""
        end = self.now + seconds
        while self.now < end:
            while self.notes:
                start, peer, note = self.notes.popleft()
                if not {start, peer} & self.down and peer in self.controllers:
                    self.controllers[peer].receive(start, note, self.now)
                    self.controllers[peer].tick(self.now)
            for name, controller in self.controllers.items():
                if name not in self.down:
                    controller.tick(self.now)
            if not self.notes:
                self.now += 0.05

    def propose(self, node: str, wanted: Record, seconds: float = 15.0, **given: Any) -> Outcome:
        """What becomes of a proposal within so many seconds."""
        outcomes: list[Outcome] = []
        self.controllers[node].propose(wanted, done=outcomes.append, **given)
        end = self.now + seconds
        while not outcomes and self.now < end:
            self.run(0.05)
        (outcome,) = outcomes
        return outcome

    def versions(self, name: str) -> dict[str, int]:
        """Node → the version of a deployment that it is at."""
        return {n: s.records[name].version for n, s in self.controllers.items() if name in s.records}

    def stones(self, name: str) -> dict[str, set[str]]:
        """Node → the stones that its ground was told to run."""
        found = {}
        for node, ground in self.grounds.items():
            if ground.record is not None and ground.record.deployment == name:
                found[node] = set(stones_on(ground.record, node))
        return found
