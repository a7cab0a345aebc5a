"""A run of a siege: its nodes, who is healthy, who attacks, and what is done when."""

from __future__ import annotations

import heapq
import itertools
import json
import time
from collections import Counter
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any, NamedTuple

from tests.node.network import keys_for
from tests.siege import machine
from tests.siege.ground import ground
from tests.siege.judge import Failure, naps_of
from tests.siege.limits import Limits
from tests.siege.nodes import Node, Program
from tests.siege.plan import ATTACKS, Step
from tests.siege.troubles import Trouble
from tests.siege.ways import NODES

__all__ = ["World"]

_SAMPLE = 0.5
_TICK = 0.02
_OVERTIME = 20.0
"""Seconds that an attack may take longer than it should before it is ended."""

_WOLVES = [f"wolf{number}" for number in range(6)]
_MOLES = [f"mole{number}" for number in range(4)]
"""Names of attackers: a node hears only one under each."""

_WARM = 3.0
_READY = 60.0
_MODULES = {
    **dict.fromkeys(("loris", "crowd", "noise"), "tests.siege.attacks.tcp"),
    **{name: "tests.siege.attacks.functions" for name, attack in ATTACKS.items() if attack.by == "mole"},
}


class _Running(NamedTuple):
    step: Step
    name: str
    program: Program
    until: float


class World:
    """A run.

    Args:
        folder: where nodes have their storage, and logs are written; empty.
        limits: what is allowed.
        plant: a fault to plant into the nodes, or "".
        stack: takes away what was made.
        say: prints a line.

    Attributes:
        nodes: name → node.
        desk: the healthy program.
        troubles: what was done to nodes.
        failures: what was seen to be wrong so far.
        begun: when the first attack may begin, of ``time.monotonic``.
        made: attack → how often it was made.
        done: attack → what those who made it say that they did.
    """

    def __init__(
        self, folder: Path, limits: Limits, plant: str, stack: ExitStack, say: Callable[[str], None]
    ) -> None:
        self.folder = folder
        self._limits = limits
        self._say = say
        self.troubles: list[Trouble] = []
        self.failures: list[Failure] = []
        self.made: Counter[str] = Counter()
        self.done: dict[str, Counter[str]] = {}
        self.log: list[tuple[float, float, Step]] = []
        self._due: list[tuple[float, int, Callable[[], Any]]] = []
        self._numbers = itertools.count()
        self._running: list[_Running] = []
        self._next_sample = 0.0
        self._stack = stack
        people = ("desk", "watch", *_WOLVES, *_MOLES)
        keys_for(folder / "keys", (*NODES, *people))
        self.ground = ground((*NODES, "desk", "wolf"), stack)
        self.hosts = {name: self.ground.contact(name) for name in NODES}
        self.nodes: dict[str, Node] = {}
        stack.callback(self._end)
        for name in NODES:
            self.ground.disk(folder / name)
            self.nodes[name] = Node(
                name, folder, self.ground.listen(name), self.hosts[name], self.ground.space(name),
                (*NODES, "desk", *_MOLES), limits.descriptors, plant,
            )  # fmt: skip
        self._wait(lambda: all(node.is_ready for node in self.nodes.values()), "nodes that listen")
        settings = {"hosts": self.hosts, "keys": str(folder / "keys" / "desk"), "folder": str(folder)}
        self.desk = Program(
            "tests.siege.desk", [json.dumps(settings)], self.ground.space("desk"), folder / "desk.log"
        )
        self.desk.tell("begin")
        if self.desk.answer(_READY) is None and self.desk.code is not None:
            raise RuntimeError(f"the desk ended\n{(folder / 'desk.log').read_text()[-4000:]}")
        self.begun = time.monotonic() + _WARM
        while time.monotonic() < self.begun:
            self.turn()
        self.usual = {name: max(s.descriptors for s in node.samples) for name, node in self.nodes.items()}

    def _wait(self, condition: Callable[[], bool], what: str) -> None:
        until = time.monotonic() + _READY
        while not condition():
            if time.monotonic() > until:
                raise RuntimeError(f"not within {_READY:g} s: {what}; the logs are in {self.folder}")
            time.sleep(_TICK)

    # --- time

    def later(self, seconds: float, call: Callable[[], Any]) -> None:
        """Calls after so many seconds."""
        heapq.heappush(self._due, (time.monotonic() + seconds, next(self._numbers), call))

    def turn(self) -> None:
        """Does what is due, and looks at everybody."""
        now = time.monotonic()
        while self._due and self._due[0][0] <= now:
            heapq.heappop(self._due)[2]()
        for running in list(self._running):
            self._look_at(running, now)
        self._look_at_nodes(now)
        time.sleep(_TICK)

    @property
    def is_calm(self) -> bool:
        """Whether no attack goes on."""
        return not self._running and not self._due

    def turn_nodes(self) -> None:
        """Looks at the nodes only."""
        now = time.monotonic()
        while self._due and self._due[0][0] <= now:
            heapq.heappop(self._due)[2]()
        self._look_at_nodes(now)

    def _look_at_nodes(self, now: float) -> None:
        sampled = now >= self._next_sample
        if sampled:
            self._next_sample = now + _SAMPLE
        for name, node in self.nodes.items():
            if node.code is not None and not node.is_down:
                self._ended(name, node, now)
            elif sampled and not node.is_down:
                node.sample()
                self._judge_sample(name, node)

    def _ended(self, name: str, node: Node, now: float) -> None:
        began = [t for t in self.troubles if t.node == name and t.kind == "kill" and t.end == float("inf")]
        what = "did not start again" if began else "ended by itself"
        self.fail(now, f"node {name} {what}, with exit code {node.code}\n{_indented(node.tail())}", name)
        node.is_down = True
        for trouble in began:
            trouble.end = now
        trouble = Trouble("ended", name, now)
        self.troubles.append(trouble)
        # So that one failure does not hide the next.
        self.later(1.0, lambda: machine.revive(self, trouble))

    def _judge_sample(self, name: str, node: Node) -> None:
        most = node.samples[-1].most
        before = node.samples[-2].most if len(node.samples) > 1 else 0
        if most > self._limits.memory and not before > self._limits.memory:
            what = f"{most >> 20} MiB in use; expected at most {self._limits.memory >> 20}"
            self.fail(node.samples[-1].at, f"node {name}: {what}", name)

    def fail(self, at: float, what: str, *nodes: str) -> None:
        """Notes that something is wrong."""
        self.failures.append(Failure(at, what, nodes))
        self._say(f"  {at - getattr(self, 'begun', at):7.1f} s  FAILED  {what.splitlines()[0]}")

    # --- attacks

    def attack(self, step: Step) -> None:
        """Begins an attack."""
        by = ATTACKS[step.attack].by
        if step.attack in self.ground.missing:
            self.made[f"{step.attack} (skipped)"] += 1
            return
        now = time.monotonic()
        if by == "siege":
            made = machine.attack(self, step)
            self.made[step.attack if made else f"{step.attack} (skipped)"] += 1
        else:
            made = True
            self._start(step, by, now)
            self.made[step.attack] += 1
        if made:
            self.log.append((now, now + step.seconds, step))

    def _start(self, step: Step, by: str, now: float) -> None:
        busy = [running.name for running in self._running]
        name = min(_WOLVES if by == "wolf" else _MOLES, key=busy.count)
        foe = {
            "target": step.target, "hosts": self.hosts, "name": name,
            "keys": str(self.folder / "keys" / name),
            "seconds": step.seconds, "seed": step.seed,
        }  # fmt: skip
        module = _MODULES.get(step.attack, "tests.siege.attacks.wire")
        program = Program(
            "tests.siege.hostile", [module, step.attack, json.dumps(foe)], self.ground.space("wolf"),
            self.folder / f"{name}.log",
        )  # fmt: skip
        self._running.append(_Running(step, name, program, now + step.seconds + _OVERTIME))

    def _look_at(self, running: _Running, now: float) -> None:
        step, _, program, until = running
        if program.code is None and now < until:
            return
        told = program.answer()
        done = self.done.setdefault(step.attack, Counter())
        if told is None:
            done["ended early" if program.code is not None else "ended late"] += 1
            if program.code not in (None, 0):
                self.fail(now, f"attack {step} did not work; see {program.log}", step.target)
        else:
            done.update(told)
            for what in told:
                if what.startswith("admitted"):
                    self.fail(
                        now, f"node {step.target} {what}, which is not a function of that module", step.target
                    )
        program.kill()
        self._running.remove(running)

    # --- the end

    def all_troubles(self) -> list[Trouble]:
        """What was done to nodes, with the sleep of their handlers."""
        naps = [nap for name, node in self.nodes.items() for nap in naps_of(name, node.naps, self.troubles)]
        return [*self.troubles, *naps]

    def _end(self) -> None:
        for running in self._running:
            running.program.kill()
        if hasattr(self, "desk"):
            self.desk.kill()
        machine.end_all(self)
        for node in self.nodes.values():
            node.kill()


def _indented(text: str) -> str:
    return "\n".join(f"      | {line}" for line in text.splitlines())
