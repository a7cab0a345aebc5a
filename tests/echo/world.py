"""Processes of channels in a simulated network: notes are lost, late and out of order, processes die and come
back, the network is cut; the same seed gives the same run."""

from __future__ import annotations

import heapq
from dataclasses import dataclass, field
from random import Random
from typing import Any

import evflow as ev
from evflow.echo.membership import Marks, Membership, Settings
from evflow.echo.notes import SUBSCRIBED, unpack
from evflow.echo.record import Derivation, Record
from evflow.echo.roster import Roster


class Trade(ev.Event):
    symbol: ev.Str[8]
    size: int


TIMES = Settings(silence=5.0, patience=20.0, gossip=1.0)


@dataclass
class Process:
    """One process: its bookkeeping, and what its stones are linked by."""

    name: str
    membership: Membership
    stones: dict[str, set[str]] = field(default_factory=dict)
    """Channel → the processes that its upper split leads to."""
    opening: set[str] = field(default_factory=set)
    subscribing: set[str] = field(default_factory=set)
    opened: set[str] = field(default_factory=set)
    subscribed: set[str] = field(default_factory=set)
    applying: int = -1
    applied: int = -1

    def ready(self, key: str, now: float, family: bool) -> bool:
        """As ``Process`` of channels waits in open and subscribe."""
        m = self.membership
        keys = [k for k in (m.family(key) if family else [key]) if k not in m.failed]
        return all(k in m.rosters and not m.waiting_for(k, now) and not m.unlinked(k) for k in keys)


class World:
    """All processes, and what is on its way between them."""

    def __init__(self, seed: int, loss: float = 0.2) -> None:
        self.random = Random(seed)
        self.loss = loss
        self.now = 100.0
        self.processes: dict[str, Process] = {}
        self.cut: set[frozenset[str]] = set()
        self.records: dict[str, Record] = {}
        self._flying: list[tuple[float, int, str, str, Any]] = []
        self._count = 0

    # --- what happens

    def start(self, name: str, ahead: int = 0) -> Process:
        """A process begins, or begins again."""
        membership = Membership(name, f"tcp://{name}:1", int(self.now * 1000) + ahead, TIMES)
        self.processes[name] = Process(name, membership)
        return self.processes[name]

    def kill(self, name: str) -> None:
        """A process ends at once."""
        del self.processes[name]

    def create(self, process: Process, name: str, parent: str = "", code: str = "input.size > 1") -> str:
        """A process makes a channel."""
        made = Derivation(parent, "filter", code, None, None, 1000) if parent else None
        token = f"{self.random.getrandbits(32):08x}"
        record = Record(name, process.name, token, (ev.Schema.of(Trade),), derivation=made)
        process.membership.add(record, self.now)
        self.records[record.key] = record
        process.opening.add(record.key)
        return record.key

    def open(self, process: Process, via: str, key: str) -> None:
        """A process asks another for a channel."""
        process.membership.find(via, key, self.now)

    def subscribe(self, process: Process, key: str, yes: bool) -> None:
        """A process wants a channel's events, or no more."""
        process.membership.subscribe(key, yes, self.now)
        process.subscribed.discard(key)
        process.subscribing.discard(key)
        if yes:
            process.subscribing.add(key)

    def leave(self, process: Process, key: str) -> None:
        """A process leaves a channel and those derived from it."""
        for each in list(process.membership.family(key))[::-1]:
            if each in process.membership.rosters:
                process.membership.leave(each, self.now)
            for group in (process.opening, process.opened, process.subscribing, process.subscribed):
                group.discard(each)

    # --- time

    def step(self) -> None:
        """50 ms."""
        self.now += 0.05
        for process in list(self.processes.values()):
            process.membership.tick(self.now)
            self._apply(process)
            self._send(process)
        while self._flying and self._flying[0][0] <= self.now:
            _, _, source, target, what = heapq.heappop(self._flying)
            self._arrive(source, target, what)
        for process in self.processes.values():
            self._settle(process)

    def run(self, seconds: float) -> None:
        """So long."""
        for _ in range(int(seconds / 0.05)):
            self.step()

    def _apply(self, process: Process) -> None:
        m = process.membership
        if m.version != process.applied and process.applying == process.applied:
            # Links are changed a while after it was decided which.
            process.applying = m.version
            plan = {key: set(roster.subscribers()) for key, roster in m.rosters.items()}
            when = self.now + self.random.choice([0.0, 0.01, 0.3])
            self._fly(when, process.name, process.name, (m, m.version, m.marks(), plan))

    def _send(self, process: Process) -> None:
        for name, body in process.membership.outgoing():
            if self.random.random() >= self.loss and frozenset((process.name, name)) not in self.cut:
                self._fly(self.now + self.random.random() * 0.3, process.name, name, body)

    def _fly(self, when: float, source: str, target: str, what: Any) -> None:
        self._count += 1
        heapq.heappush(self._flying, (when, self._count, source, target, what))

    def _arrive(self, source: str, target: str, what: Any) -> None:
        process = self.processes.get(target)
        if process is None:
            return
        if isinstance(what, bytes):
            process.membership.receive(source, unpack(what), self.now)
            return
        membership, version, marks, plan = what
        if process.membership is membership:
            self._linked(process, version, marks, plan)

    def _linked(self, process: Process, version: int, marks: Marks, plan: dict[str, set[str]]) -> None:
        process.applied = process.applying = version
        process.stones = plan
        process.membership.applied(marks, self.now)

    def _settle(self, process: Process) -> None:
        m = process.membership
        for asked, (key, _) in list(m.search.answers.items()):
            del m.search.answers[asked]
            if key:
                process.opening.add(key)
        for key in sorted(process.opening):
            if process.ready(key, self.now, family=True):
                process.opening.discard(key)
                process.opened.update(m.family(key))
        for key in sorted(process.subscribing):
            if process.ready(key, self.now, family=False):
                process.subscribing.discard(key)
                process.subscribed.add(key)

    # --- what must hold

    def check_complete(self, strangers: bool = False) -> None:
        """Whoever has opened a channel leads to everyone whose subscription has returned.

        Args:
            strangers: whether two may be there who never met, since whom they have joined by died.
        """
        for publisher in self.processes.values():
            for subscriber in self.processes.values():
                if publisher is subscriber:
                    continue
                for key in publisher.opened & subscriber.subscribed:
                    if strangers and subscriber.name not in self._acquainted(publisher.name, key):
                        continue
                    assert subscriber.name in publisher.stones.get(key, ()), (
                        f"{publisher.name} does not lead to {subscriber.name} in {key}"
                    )

    def _roster(self, name: str, key: str) -> Roster:
        return self.processes[name].membership.rosters[key]

    def _acquainted(self, name: str, key: str) -> set[str]:
        """All who take part and know of each other, if only through others, or did before they forgot each
        other. Two who met through a third that left while it was cut off from one of them do not, nor do two
        who joined by a third in the moment in which it died."""
        having = {p.name for p in self.processes.values() if key in p.membership.rosters}
        rosters = {n: self._roster(n, key) for n in having}
        knows = {
            n: ({e.process for e in r.members()} | r.forgotten.keys()) & having for n, r in rosters.items()
        }
        found, todo = {name}, [name]
        while todo:
            at = todo.pop()
            new = (knows[at] | {n for n in having if at in knows[n]}) - found
            found |= new
            todo += new
        return found

    def check_agreed(self) -> None:
        """All who live know the same, and their stones follow it; derived channels are wherever their origin
        is."""
        for process in self.processes.values():
            for key, roster in process.membership.rosters.items():
                taking = {name: self._roster(name, key).own for name in self._acquainted(process.name, key)}
                assert {e.process: e for e in roster.members()} == taking, f"{process.name} in {key}"
                wanted = {n for n, e in taking.items() if e.state == SUBSCRIBED and n != process.name}
                assert process.stones[key] == wanted, (
                    f"{process.name} leads to {process.stones[key]} in {key}"
                )
                for child, record in self.records.items():
                    both = {key, child}
                    known = any(both <= p.membership.rosters.keys() for p in self.processes.values())
                    if record.parent == key and known:
                        assert child in process.membership.rosters, f"{process.name} lacks {child}"
