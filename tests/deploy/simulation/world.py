"""The world of a run: nodes, what is deployed and changed, what goes wrong, and what must hold."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from random import Random
from unittest import mock

from evflow import mishaps
from evflow.deploy import member, messages, proposals, snapshots
from evflow.deploy.record import stones_on
from tests.deploy.simulation.faults import schedule
from tests.deploy.simulation.ground import Disk
from tests.deploy.simulation.network import Killed, Network
from tests.deploy.simulation.process import MemoryStore, Process
from tests.deploy.simulation.truth import Failure, Truth
from tests.deploy.simulation.wishes import Wishes
from tests.link.simulation.clock import Clock

__all__ = ["Tally", "World", "simulate"]

_LATE = 60.0
_MOST_STEPS = 200_000


@dataclass
class Tally:
    """What happened.

    Attributes:
        wanted, made, refused, unknown: changes that were proposed, and what became of them.
        decided: versions.
        fallbacks: of these, made by a fallback rule.
        events: seen by stones.
        kills: of processes.
        seconds: simulated.
    """

    wanted: int = 0
    made: int = 0
    refused: int = 0
    unknown: int = 0
    decided: int = 0
    fallbacks: int = 0
    events: int = 0
    kills: int = 0
    seconds: float = 0.0


class World:
    """One run.

    Args:
        random: all chance.

    Attributes:
        alive: name → process.
        saves: how often what a stone has seen is saved when it sees something.
        ends: when the last fault is over.
    """

    def __init__(self, random: Random) -> None:
        self.random = random
        self.clock = Clock()
        self.truth = Truth()
        self.tally = Tally()
        self.nodes = list("ABCDE"[: random.randint(2, 5)])
        self.saves = random.choice((0.02, 0.5))
        self.ends = random.choice((3.0, 10.0, 30.0))
        self.network = Network(self.clock, random, self._deliver)
        self.alive: dict[str, Process] = {}
        self.stores = {name: MemoryStore() for name in self.nodes}
        self.disks: dict[str, Disk] = {name: {} for name in self.nodes}
        self.wishes = Wishes(self)
        self.killed: Counter[str] = Counter()

    def permits(self, peer: str, what: str) -> bool:
        return True

    # --- life and death

    def start(self, name: str) -> None:
        """Starts a node, again perhaps."""
        if name in self.alive:
            return
        try:
            process = Process(name, self, self.stores[name], self.disks[name])
        except Killed:
            self.later(2.0, lambda: self.start(name))
            return
        self.alive[name] = process
        process.do(lambda: None)

    def kill(self, process: Process) -> None:
        """Ends a process; the node starts again a little later."""
        del self.alive[process.name]
        self.tally.kills += 1
        self.stores[process.name].dies = lambda: None
        process.died()
        self.later(self.random.choice((0.5, 5.0, 40.0)), lambda: self.start(process.name))

    def later(self, seconds: float, call: Callable[[], None]) -> None:
        """Calls within so many seconds."""
        self.clock.at(self.clock.now + self.random.random() * seconds, call)

    def _deliver(self, start: str, end: str, note: bytes) -> None:
        process = self.alive.get(end)
        if process is not None:
            process.do(lambda: process.controller.receive(start, note, self.clock.now))

    # --- events

    def _events(self) -> None:
        """Events come for some stones, wherever these run."""
        for process in list(self.alive.values()):
            for deployment, stones in list(process.ground.stones.items()):
                for stone in list(stones):
                    if self.random.random() < 0.3:
                        self.tally.events += 1
                        process.event(deployment, stone)
        self.later(0.4, self._events)

    # --- the run

    def run(self) -> Tally:
        """Runs until all is decided, and checks everything.

        Raises:
            Failure: something is not as it must be.
        """
        for name in self.nodes:
            self.start(name)
        self._events()
        self.wishes.schedule()
        schedule(self)
        self._until(self.ends)
        self.network.heal()
        for process in self.alive.values():
            process.sends_left = None
        for store in self.stores.values():
            store.dies = lambda: None
        self.wishes.over = True
        # What comes late from earlier times may disturb it for a while.
        self._until(self.clock.now + 1.5 * _LATE, lambda: self._calm)
        self._until(self.clock.now + 1.5)
        self._until(self.clock.now + _LATE, lambda: self._calm)
        self._check_end()
        self.tally.decided = len(self.truth.decided)
        self.tally.fallbacks = sum(
            bool(self.truth.lost.get(record.change)) for record in self.truth.decided.values()
        )
        self.tally.seconds = self.clock.now
        return self.tally

    @property
    def _calm(self) -> bool:
        if len(self.alive) < len(self.nodes) or not all(p.calm for p in self.alive.values()):
            return False
        for process in self.alive.values():
            for record in process.records().values():
                for node in record.hosts:
                    if self.alive[node].records().get(record.deployment) != record:
                        return False
        return True

    def _until(self, end: float, done: Callable[[], bool] | None = None) -> None:
        """Goes on until a time, or until what has to come before that has."""
        looks = self.clock.now
        for _ in range(_MOST_STEPS):
            if done is not None and self.clock.now >= looks:
                if done():
                    return
                looks = self.clock.now + 0.5
            if self.clock.now >= end:
                if done is not None:
                    raise Failure("it does not come to an end:\n" + self._describe())
                return
            self.clock.step()
            self.wishes.check_answered()
        raise Failure("it does too much:\n" + self._describe())

    def _describe(self) -> str:
        return "\n".join(process.describe() for process in self.alive.values())

    # --- what must hold

    def _check_end(self) -> None:
        self.wishes.check({record.graph["tag"] for record in self.truth.decided.values() if record.graph})
        for process in self.alive.values():
            placed = {name: set(stones_on(r, process.name)) for name, r in process.records().items()}
            runs = {name: set(stones) for name, stones in process.ground.stones.items()}
            if {k: v for k, v in placed.items() if v} != {k: v for k, v in runs.items() if v}:
                raise Failure(f"on {process.name} run {runs}, not {placed}")
            for deployment, stones in runs.items():
                for stone in stones:
                    if not process.ground.event(deployment, stone):
                        raise Failure(f"stone {stone} on {process.name} does not run")
            for key in process.store.kept:
                if key.startswith("arriving/"):
                    raise Failure(f"{process.name} keeps {key} for ever")


def _found(log: logging.Logger, who: str, what: str, error: BaseException) -> None:
    raise Failure(f"{who}: {what}") from error


def simulate(seed: int) -> Tally:
    """One run.

    Raises:
        Failure: something is not as it must be.
    """
    random = Random(f"deploy {seed}")
    with ExitStack() as stack:
        # What is refused and lost here is expected.
        stack.enter_context(mock.patch.object(logging.getLogger("evflow.deploy"), "disabled", True))
        piece = random.choice((10, 40, 1000))
        for module in (messages, snapshots):
            stack.enter_context(mock.patch.object(module, "PIECE", piece))
        # With little patience proposers are often taken for dead that are alive.
        silence = random.choice((3.0, 3.0, 0.7))
        for module in (member, proposals):
            stack.enter_context(mock.patch.object(module, "SILENCE", silence))
        stack.enter_context(mock.patch.object(mishaps, "tell", _found))
        return World(random).run()
