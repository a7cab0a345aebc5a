"""A simulated process: one life of a node, its controller and its ground."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from evflow.deploy import messages as m
from evflow.deploy.controller import Controller
from evflow.deploy.record import Record
from evflow.disk import Growing
from tests.deploy.simulation.ground import Disk, FakeGround
from tests.deploy.simulation.network import Killed
from tests.deploy.simulation.truth import Failure

if TYPE_CHECKING:
    from tests.deploy.simulation.world import World

__all__ = ["MemoryStore", "Process"]

_MOST_SPINS = 50


class MemoryStore:
    """A store that outlives a process that is killed.

    Attributes:
        kept: what it has.
        dies: called before and after what is saved is there; may raise ``Killed``.
    """

    def __init__(self) -> None:
        self.kept: dict[str, bytes] = {}
        self.dies: Callable[[], None] = lambda: None

    def load(self) -> dict[str, bytes]:
        return dict(self.kept)

    def growing(self, total: int) -> Growing:
        return Growing(total)

    def save(
        self, values: Mapping[str, bytes | Growing | None], renamed: Mapping[str, str] | None = None
    ) -> None:
        self.dies()
        for old, new in (renamed or {}).items():
            self.kept[new] = self.kept.pop(old)
        for key, value in values.items():
            if value is None:
                self.kept.pop(key, None)
            else:
                self.kept[key] = bytes(value.data) if isinstance(value, Growing) else value
        self.dies()


class Process:
    """One life of a node.

    Args:
        name: the node's name.
        world: everything else.
        store, disk: what outlives it.

    Attributes:
        sends_left: after so many notes it dies; None for never.
    """

    def __init__(self, name: str, world: World, store: MemoryStore, disk: Disk) -> None:
        self.name = name
        self.world = world
        self.store = store
        self.disk = disk
        self.sends_left: int | None = None
        self.ground = FakeGround(name, disk, world.truth, world.random)
        self._timer = float("inf")
        self._spins = 0
        self.controller = Controller(
            name,
            self.ground,
            store,
            self._send,
            world.random.randbytes,
            world.clock.now,
            permits=world.permits,
        )
        self.ground.runs = True

    @property
    def alive(self) -> bool:
        return self.world.alive.get(self.name) is self

    def _send(self, peer: str, note: bytes) -> bool:
        if self.sends_left is not None:
            self.sends_left -= 1
            if self.sends_left < 0:
                raise Killed
        message = m.unpack(note)
        if isinstance(message, m.Prepare) and message.record is not None:
            self.world.truth.lost[message.record.change] = set(message.lost)
        return self.world.network.send(self.name, peer, note)

    def do(self, task: Callable[[], object]) -> None:
        """Does something, and has a turn; the process may die within."""
        if not self.alive:
            return
        try:
            task()
            due = self.controller.tick(self.world.clock.now)
        except Killed:
            self.world.kill(self)
            return
        self._check()
        self._sleep(due)

    def _check(self) -> None:
        for replica in self.controller.durable.replicas.values():
            if replica.record is not None:
                self.world.truth.learn(replica.record)
        if self.controller.refused:
            raise Failure(f"{self.name}: something was refused: {self.controller.refused}")

    def _sleep(self, due: float) -> None:
        now = self.world.clock.now
        if due <= now:
            self._spins += 1
            if self._spins > _MOST_SPINS:
                raise Failure(f"{self.name} does not sleep")
            due = now + 0.001
        else:
            self._spins = 0
        if due < self._timer or self._timer <= now:
            self._timer = due
            self.world.clock.at(due, lambda: self._timed(due))

    def _timed(self, due: float) -> None:
        if self._timer == due:
            self._timer = float("inf")
            self.do(lambda: None)

    def event(self, deployment: str, stone: str) -> None:
        """An event comes for a stone, perhaps."""
        if (
            self.alive
            and self.ground.event(deployment, stone)
            and self.world.random.random() < self.world.saves
        ):
            self.ground.save(deployment, stone)
            if self.world.random.random() < 0.5:
                self.do(lambda: self.controller.released(deployment, stone))

    def died(self) -> None:
        """What was not saved is gone."""
        for deployment, stones in self.ground.stones.items():
            birth = self.ground.records[deployment].birth
            for stone in stones:
                saved = self.disk.get((birth, stone), [])
                self.world.truth.dies(self.name, birth, stone, len(saved))

    @property
    def calm(self) -> bool:
        """Whether nothing is to be decided any more."""
        members = self.controller.members.values()
        open = any(member.preparing is not None or member.orphan is not None for member in members)
        return not open and not self.controller._proposals.proposals and not self.ground.closed

    def records(self) -> dict[str, Record]:
        return self.controller.records

    def describe(self) -> str:
        """What it still has to do, for a failure."""
        members = [
            (
                mb.deployment,
                mb.birth[:4],
                mb.replica.version,
                mb.preparing and mb.preparing.describe(),
                mb.replica.prepared is not None,
            )
            for mb in self.controller.members.values()
        ]
        known = self.controller._proposals.proposals.values()
        proposals = [(p.at, p.phase, p.proposer.ballot, p.finishes) for p in known]
        return f"{self.name}: {members} {proposals}"
