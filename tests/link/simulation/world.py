"""One simulated run, from a seed: nodes, network, faults, and what must hold at the end."""

from __future__ import annotations

import logging
from collections import Counter, deque
from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random
from typing import Any
from unittest import mock

from evflow import mishaps
from evflow.engine.placement import bridged
from evflow.engine.topology import DROPPED, Slot
from evflow.events.batch import EventBatch
from tests.link.simulation.clock import Clock
from tests.link.simulation.faults import schedule
from tests.link.simulation.moving import Move
from tests.link.simulation.network import Network
from tests.link.simulation.process import Failure, MemoryJournal, Process
from tests.link.simulation.scenarios import Item, Scenario
from tests.link.simulation.setting import Setting, draw, draw_manner, sizes
from tests.quiet import quiet

__all__ = ["Outcome", "World", "simulate"]

Key = tuple[str, int, int, int]
"""Of an event that a terminal has handled: terminal, source, path, number."""

_PATIENCE = 240.0
_MOST_STEPS = 400_000


@dataclass
class Outcome:
    """What happened in a run: events submitted, handled, handled twice; nodes killed; simulated seconds."""

    submitted: int = 0
    handled: int = 0
    doubled: int = 0
    kills: int = 0
    seconds: float = 0.0


@dataclass
class World:
    """Everything in one run.

    Args:
        scenario: the graph and its oracle.
        random: where all chance comes from, but how long stones take.
        pace: where that comes from.

    Attributes:
        dawdles: how often a stone's own code takes long, up to six heartbeats, while the links are served.
        nodes: the nodes' names.
        alive: node → its process; not there while it is dead.
        homes: stone → the node that it was on at first.
        killed: nodes that were killed.
        gone: nodes that do not start again.
        move: the move of the stones of B, if there is one.
    """

    scenario: Scenario
    random: Random
    pace: Random
    dawdles: float = field(init=False)
    setting: Setting = field(init=False)
    clock: Clock = field(default_factory=Clock)
    alive: dict[str, Process] = field(default_factory=dict)
    killed: Counter[str] = field(default_factory=Counter)
    gone: set[str] = field(default_factory=set)
    move: Move | None = None
    handled: dict[str, list[Key]] = field(default_factory=dict)
    at_risk: Counter[Key] = field(default_factory=Counter)
    submitted: dict[int, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.dawdles = self.pace.choice((0.0, 0.0, 0.02, 0.2))
        self.setting = draw(self.random, self.scenario.holds)
        self.network = Network(self.clock, self.random, draw_manner(self.random))
        self.graph = bridged(self.scenario.build(self.random, self._handler))
        for stone in self.graph.stones.values():
            if stone.kind == "bridge":
                stone.limit = self.setting.limit  # type: ignore[attr-defined]
                stone.policy = self.scenario.policy  # type: ignore[attr-defined]
                stone.delivery = self.scenario.delivery  # type: ignore[attr-defined]
        self.nodes = sorted({str(stone.on) for stone in self.graph.stones.values()})
        self.homes = {name: str(stone.on) for name, stone in self.graph.stones.items()}
        self.largest = 0
        self.journals = {name: MemoryJournal() for name in self.nodes if self.setting.journals}
        for name in self.nodes:
            self.start(name)

    # --- nodes

    def start(self, name: str) -> None:
        """A process of a node begins, unless there is one, or it is gone for good."""
        if name not in self.alive and name not in self.gone:
            self.alive[name] = Process(name, self, self.journals.get(name))
            self.alive[name].wake()

    def kill(self, process: Process) -> None:
        """A process ends, and all of its memory is gone; the node starts again a little later."""
        process.alive = False
        process.dies()
        self.killed[process.name] += 1
        self.at_risk.update(process.at_risk)
        del self.alive[process.name]
        process.transport.die()
        if process.name in self.journals:
            self.journals[process.name].dies = lambda: None
        self.network.later((0.001, 2.0), lambda: self.start(process.name))

    def _handler(self, terminal: str) -> Callable[[EventBatch], None]:
        keys = self.handled[terminal] = []

        def handle(batch: EventBatch) -> None:
            process = self.alive[str(self.graph.stones[terminal].on)]
            columns = [batch.column(name).tolist() for name in ("source", "path", "seq", "text")]
            for source, path, seq, text in zip(*columns, strict=True):
                if seq >= 0:
                    if text != payload(source, seq):
                        self.wrong = f"terminal {terminal}: event {source}:{seq} has come with {text[:80]!r}"
                    keys.append((terminal, source, path, seq))
                    process.at_risk.append(keys[-1])

        return handle

    # --- what is submitted

    def submit_all(self) -> None:
        """Has all that the seed has chosen submitted over time."""
        for name, (source, schema) in self.scenario.sources.items():
            node = str(self.graph.stones[name].on)
            queue = self.alive[node].backlog[name] = deque()
            times = sorted(
                self.random.uniform(0, self.setting.ends) * self.random.choice((0.1, 1))
                for _ in range(self.setting.events)
            )
            self.submitted[source] = len(times)
            seq = 0
            while seq < len(times):
                count = min(self.random.choice((1, 1, 2, 8)), len(times) - seq)
                self._submit_at(times[seq], node, queue, _batch(schema, source, range(seq, seq + count)))
                seq += count
            if self.scenario.flushes:
                self._submit_at(self.setting.ends, node, queue, _batch(schema, source, range(-1, 0)))

    def _submit_at(self, time: float, node: str, queue: deque[EventBatch], batch: EventBatch) -> None:
        self.largest = max(self.largest, batch.nbytes)

        def submit() -> None:
            queue.append(batch)
            self.alive[node].wake()

        self.clock.at(time, submit)

    # --- the run

    def run(self) -> Outcome:
        """Runs until nothing is owed any more, and checks everything.

        Raises:
            Failure: something is not as it must be.
        """
        self.wrong = ""
        self.submit_all()
        schedule(self)
        if self.scenario.moves:
            self.move = Move(self, self.scenario.moves)
            self.clock.at(self.random.uniform(0, self.setting.ends), self.move.begin)
        self._until(self.setting.ends)
        self._mend()
        self._until(self.clock.now + _PATIENCE, lambda: self._calm)
        self._until(self.clock.now + 3 * self.setting.heartbeat)
        return self._checked()

    def _mend(self) -> None:
        self.network.heal()
        self.disarm()

    def disarm(self) -> None:
        """Nobody dies of what was prepared so far."""
        for process in self.alive.values():
            process.doomed, process.transport.sends_left = False, None
        for journal in self.journals.values():
            journal.dies = lambda: None

    @property
    def _calm(self) -> bool:
        if len(self.alive) < len(set(self.nodes) - self.gone) or (self.move and not self.move.done):
            return False
        for process in self.alive.values():
            self._let_go(process)
        return all(process.quiet for process in self.alive.values())

    def _let_go(self, process: Process) -> None:
        slots = process.engine.topology.slots
        for name in (self.scenario.stores, self.scenario.freezes):
            slot = slots.get(name)
            if slot is not None and slot.keeps_events and not process.tasks:
                process.tasks.append(_opener(slot))
                process.wake()

    def _until(self, end: float, done: Callable[[], bool] | None = None) -> None:
        """Goes on until a time, or until what has to come before that has."""
        looks = self.clock.now
        for _ in range(_MOST_STEPS):
            if self.wrong:
                raise Failure(self.wrong)
            if done is not None and self.clock.now >= looks:
                if done():
                    return
                looks = self.clock.now + 0.1
            if self.clock.now >= end:
                if done is not None:
                    raise Failure("it does not come to an end:\n" + self._describe())
                return
            if not self.clock.step():
                raise Failure("nothing happens any more:\n" + self._describe())
        raise Failure("it does too much:\n" + self._describe())

    def _describe(self) -> str:
        return "\n".join(process.describe() for process in self.alive.values())

    # --- what must hold

    def check_turn(self, process: Process) -> None:
        """No outlet owes, and no inlet queues, more than it may; and nobody is refused, since all are honest.

        Raises:
            Failure: one does.
        """
        if process.hub.refused.keys() - ({"unknown stone"} if self.move else set()):
            raise Failure(f"something was refused: {process.describe()}")
        setting = self.setting
        frame = max(self.largest, min(setting.frame, setting.limit + self.largest))
        for outlet in process.hub.outlets.values():
            most = setting.limit + frame
            owed = outlet.owed_bytes if self.scenario.policy == "block" else outlet.waiting.bytes
            if self.scenario.policy not in ("block", "keep latest") and owed > setting.limit:
                raise Failure(f"bridge {outlet.bridge}: {owed} bytes wait of {setting.limit}")
            if not self.scenario.bursts and owed > most:
                raise Failure(f"bridge {outlet.bridge} owes {owed} bytes, at most {most}")
        for inlet in (*process.hub.remote_inputs.inlets.values(), *process.hub.remote_inputs.former):
            queued = sum(arrived.size for arrived in inlet.queue)
            if not self.scenario.bursts and queued > setting.window + frame:
                raise Failure(f"inlet of {inlet.bridge} queues {queued} of {setting.window} bytes")

    def _checked(self) -> Outcome:
        outcome = Outcome(sum(self.submitted.values()), kills=self.killed.total(), seconds=self.clock.now)
        if not self._calm:
            raise Failure("it did not stay calm:\n" + self._describe())
        for process in self.alive.values():
            if len(process.letters.letters()):
                raise Failure(f"events were given up: {process.describe()}")
        expected = self._expected()
        for terminal, keys in self.handled.items():
            outcome.handled += len(keys)
            outcome.doubled += self._check_terminal(terminal, keys, expected.get(terminal, {}))
        return outcome

    def _expected(self) -> dict[str, dict[tuple[int, int], list[int]]]:
        expected: dict[str, dict[tuple[int, int], list[int]]] = {}
        for source, count in self.submitted.items():
            for seq in range(count):
                for terminal, path in self.scenario.arrives(source, seq):
                    expected.setdefault(terminal, {}).setdefault((source, path), []).append(seq)
        return expected

    def _check_terminal(
        self, terminal: str, keys: list[Key], expected: dict[tuple[int, int], list[int]]
    ) -> int:
        found: dict[tuple[int, int], list[int]] = {}
        for _, source, path, seq in dict.fromkeys(keys):
            found.setdefault((source, path), []).append(seq)
        doubled = Counter(keys)
        doubled.subtract(dict.fromkeys(keys, 1))
        self._check_doubles(terminal, +doubled)
        strict = self.scenario.delivery != "at_most_once" and self.scenario.policy == "block"
        if not strict:
            self._check_lossy(terminal, found, expected)
        if self.killed[self.scenario.mixes]:
            found = {lane: sorted(numbers) for lane, numbers in found.items()}
        if strict and found != expected:
            raise Failure(f"terminal {terminal}: {_difference(found, expected)}")
        return (+doubled).total()

    def _check_doubles(self, terminal: str, doubled: Counter[Key]) -> None:
        homes = {self.homes[terminal], str(self.graph.stones[terminal].on)}
        kills = sum(self.killed[home] for home in homes)
        forgets = kills and not self.journals
        again = not self.scenario.once and self.killed.total() > kills
        if self.scenario.delivery != "at_most_once" and (forgets or again):
            return
        allowed: Counter[Key] = self.at_risk if self.scenario.delivery != "at_most_once" else Counter()
        if doubled - allowed:
            raise Failure(f"terminal {terminal}: came twice: {sorted(doubled - allowed)[:10]}")

    def _check_lossy(
        self,
        terminal: str,
        found: dict[tuple[int, int], list[int]],
        expected: dict[tuple[int, int], list[int]],
    ) -> None:
        for lane, numbers in found.items():
            if numbers != sorted(numbers) or not set(numbers) <= set(expected[lane]):
                raise Failure(f"terminal {terminal}: {numbers} came of {expected[lane]}")
        dropped = sum(
            int(process.engine.topology.slots[name].counts[DROPPED])
            for process in self.alive.values()
            for name in process.hub.outlets
        )
        dropped += self.move.dropped if self.move else 0
        arrived, submitted = sum(map(len, found.values())), sum(map(len, expected.values()))
        # After a kill or a move nobody knows which of what was under way had been handled.
        unsure = self.scenario.delivery == "at_most_once" and (self.killed.total() > 0 or self.move)
        if arrived + dropped < submitted or (arrived + dropped > submitted and not unsure):
            raise Failure(f"{submitted} submitted, {arrived} arrived, {dropped} dropped")


def _opener(slot: Slot) -> Callable[[Process], object]:
    return lambda p: p.engine.send_stored(slot, None) if slot.actor else p.engine.unfreeze(slot)


def _difference(found: dict[tuple[int, int], list[int]], expected: dict[tuple[int, int], list[int]]) -> str:
    for lane in sorted({*found, *expected}):
        here, there = found.get(lane, []), expected.get(lane, [])
        if here != there:
            lost, more = sorted(set(there) - set(here)), sorted(set(here) - set(there))
            return f"source and path {lane}: lost {lost}, too many {more}, found {here}"
    return "nothing differs"


def payload(source: int, seq: int) -> str:
    """The text of an event."""
    return f"{source}:{seq}:" + "x" * (seq * 37 % 101)


def _batch(schema: type[Any], source: int, numbers: range) -> EventBatch:
    count = len(numbers)
    columns = {
        "source": [source] * count,
        "seq": list(numbers),
        "path": [0] * count,
        "text": [payload(source, seq) for seq in numbers],
    }
    if schema is not Item:
        columns["other"] = [0] * count
    return EventBatch.from_columns(schema, columns)


def _found(log: logging.Logger, who: str, what: str, error: BaseException) -> None:
    raise Failure(f"{who}: {what}") from error


@quiet("evflow.link")
def simulate(scenario: Scenario, seed: int) -> Outcome:
    """One run.

    Raises:
        Failure: something is not as it must be.
    """
    world = World(scenario, Random(f"{scenario.name} {seed}"), Random(f"{scenario.name} {seed} pace"))
    with sizes(world.setting), mock.patch.object(mishaps, "tell", _found):
        return world.run()
