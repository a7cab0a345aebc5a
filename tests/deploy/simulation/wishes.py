"""What users of a simulated world want: deployments, changes of all kinds, their end."""

from __future__ import annotations

from itertools import count, pairwise
from typing import TYPE_CHECKING, Any

from evflow.deploy.record import Record
from evflow.errors import DeployError
from tests.deploy.simulation.truth import Failure

if TYPE_CHECKING:
    from evflow.deploy.controller import Outcome
    from tests.deploy.simulation.process import Process
    from tests.deploy.simulation.world import World

__all__ = ["Wishes"]

LATEST = 1.6
"""Seconds after its limit within which a change is answered: that of the proposal, and a turn."""


class Wishes:
    """What users want, and what they were told.

    Attributes:
        over: whether nobody wants anything any more.
    """

    def __init__(self, world: World) -> None:
        self.over = False
        self._world = world
        self._tags = count(1)
        self._told: dict[int, Outcome] = {}
        self._asked: dict[int, tuple[Process, float]] = {}
        self._fallbacks = world.random.random() < 0.4

    def schedule(self) -> None:
        """Has users want things over time."""
        world, random = self._world, self._world.random
        for name in ("one", "two")[: random.choice((1, 1, 2))]:
            world.clock.at(random.random(), lambda name=name: self._create(name))
        for _ in range(random.choice((1, 3, 8, 20))):
            world.clock.at(random.uniform(0.2, world.ends), self._change)

    def _somebody(self) -> Process | None:
        alive = list(self._world.alive.values())
        return self._world.random.choice(alive) if alive else None

    def _graph(self, stones: list[dict[str, Any]], hosts: dict[str, str]) -> dict[str, Any]:
        names = [stone["name"] for stone in stones]
        links = [[a, 0, b, ""] for a, b in pairwise(names)]
        graph: dict[str, Any] = {"name": "g", "tag": next(self._tags), "stones": stones, "links": links}
        if self._fallbacks:
            nodes = sorted(hosts)
            rules = zip(nodes, [*nodes[1:], nodes[0]], strict=True)
            graph["fallbacks"] = {a: {"to": b, "after": 6.0} for a, b in rules if a != b}
        return graph

    def _create(self, name: str) -> None:
        process, random = self._somebody(), self._world.random
        if self.over or process is None:
            return
        nodes = random.sample(self._world.nodes, random.randint(1, len(self._world.nodes)))
        hosts = {node: f"sim://{node}" for node in nodes}
        stones = [
            {"name": f"s{i}", "kind": "queue", "on": random.choice(nodes), "settings": {}}
            for i in range(random.randint(1, 4))
        ]
        self._propose(process, Record.first(name, self._graph(stones, hosts), hosts))

    def _change(self) -> None:
        process, random = self._somebody(), self._world.random
        if self.over or process is None:
            return
        records = list(process.records().values())
        if not records:
            self._create(random.choice(("one", "two")))
            return
        record = random.choice(records)
        if random.random() < 0.07:
            self._propose(process, record.edited(None))
        else:
            self._propose(process, self._edited(record))

    def _edited(self, record: Record) -> Record:
        random = self._world.random
        assert record.graph is not None
        hosts, stones = dict(record.hosts), [dict(stone) for stone in record.graph["stones"]]
        new = random.choice(self._world.nodes)
        if random.random() < 0.4:
            hosts[new] = f"sim://{new}"
        for stone in random.sample(stones, random.randint(0, len(stones))):
            stone["on"] = random.choice(sorted(hosts))
        if random.random() < 0.3:
            stone = random.choice(stones)
            stone["settings"] = {"code": str(next(self._tags))}
            if random.random() < 0.3:
                stone["settings"]["bad"] = stone["on"]
        if random.random() < 0.2 and len(stones) < 6:
            name = f"t{next(self._tags)}"
            stones.append({"name": name, "kind": "queue", "on": random.choice(sorted(hosts)), "settings": {}})
        if random.random() < 0.1 and len(stones) > 1:
            stones.remove(random.choice(stones))
        if random.random() < 0.3:
            used = {stone["on"] for stone in stones}
            hosts = {n: c for n, c in hosts.items() if n in used or random.random() < 0.5}
        frozen = [random.choice(stones)["name"]] if random.random() < 0.2 else record.frozen
        return record.edited(self._graph(stones, hosts), hosts=hosts, frozen=frozen)

    def _propose(self, process: Process, wanted: Record) -> None:
        tag = 0 if wanted.graph is None else wanted.graph["tag"]
        self._world.tally.wanted += 1
        patience = self._world.random.choice((1.0, 4.0, 10.0))
        number, clock = self._world.tally.wanted, self._world.clock

        def done(outcome: Outcome) -> None:
            self._asked.pop(number, None)
            if clock.now > began[0] + patience + LATEST:
                raise Failure(
                    f"change {tag} was answered after {clock.now - began[0]} s, its limit is {patience} s"
                )
            if tag in self._told:
                raise Failure(f"change {tag} ended twice: {outcome}")
            if tag:
                self._told[tag] = outcome

        began = [clock.now]

        def propose() -> None:
            began[0] = clock.now
            self._asked[number] = (process, began[0] + patience + LATEST)
            try:
                process.controller.propose(wanted, patience=patience, done=done)
            except DeployError:
                del self._asked[number]
                self._world.tally.refused += 1

        process.do(propose)

    def check_answered(self) -> None:
        """Whoever asked for a change has an answer within its limit, unless the node asked has died."""
        for process, latest in self._asked.values():
            if process.alive and self._world.clock.now > latest:
                raise Failure(f"a change asked for at {process.name} has no answer since {latest}")

    def check(self, decided: set[int]) -> None:
        """What was said to be made was, and what was said not to be was not."""
        for tag, outcome in self._told.items():
            if outcome.error is None:
                self._world.tally.made += 1
                if tag not in decided:
                    raise Failure(f"change {tag} was told as made, and is not")
            elif "not known" in str(outcome.error):
                self._world.tally.unknown += 1
            else:
                self._world.tally.refused += 1
                if tag in decided:
                    raise Failure(f"change {tag} was made, and was told not to be: {outcome.error}")
