"""How hosts learn of each other's deaths: hosts in one process, with a clock and links of the test's own."""

from __future__ import annotations

import itertools
import random
from collections import Counter
from collections.abc import Callable
from unittest.mock import patch

import numpy as np
import pytest

from evflow.errors import EvflowError
from evflow.events.event import Event
from evflow.tiles.client import Client
from evflow.tiles.grid import Grid
from evflow.tiles.messages import Message, Outbox, Place
from evflow.tiles.plan import Plan
from evflow.tiles.roles import Roles
from evflow.tiles.wire import batch_of
from tests.examples import tried
from tests.tiles.rows import moves
from tests.tiles.world import Circle, gap

CLIENT = 5
HERE = Circle(46.5, 6.6, 100)
Key = tuple[int, int, int, int]


class Hosts:
    """Hosts, what is on its way between them, and a client that is connected to one of them."""

    def __init__(self, replicas: int = 2, count: int = 2) -> None:
        names = tuple("abcd"[:count])
        self.plan = Plan.made(names, names, names, replicas, 15)
        self.now, self._numbers = 0.0, itertools.count(1)
        self.hosts: dict[int, Roles] = {}
        self.stopped: set[int] = set()
        self.cut: set[tuple[int, int]] = set()
        self.waiting: dict[int, list[Event]] = {at: [] for at in range(count)}
        self.matches = Counter[Key]()
        self.kinds = Counter[str]()
        for at in range(count):
            self.start(at)
        self.run(0.5)

    def start(self, at: int) -> None:
        self.waiting.setdefault(at, [])
        self.hosts[at] = Roles(self.plan, at, lambda: next(self._numbers), self.now, silence=1.0)

    def kill(self, at: int) -> None:
        del self.hosts[at]
        self.waiting[at].clear()

    def run(self, seconds: float) -> None:
        """Lets time pass: what is sent arrives at the next of its steps."""
        until = self.now + seconds
        while self.now < until:
            self.now += 0.02
            for at in [at for at in self.hosts if at not in self.stopped]:
                self.hosts[at].tick(self.now)
                arrived, self.waiting[at] = self.waiting[at], []
                for view in batch_of(arrived) if arrived else ():
                    self.hosts[at].receive(view, self.now)
            self._carry()

    def _carry(self) -> None:
        for at, host in self.hosts.items():
            self.kinds.update(str(sent.kind) for _, sent in host.outbox)
            for to, sent in host.outbox:
                if (at, to) not in self.cut and to in self.hosts:
                    self.waiting[to].append(sent)
            host.outbox.clear()
            for session in host.sessions.values():
                while session.outbox:
                    self._take(host, session.outbox.popleft())

    def _take(self, host: Roles, message: Message) -> None:
        """What a client is told."""
        if message.kind == "matches":
            names = ("pub", "pub_version", "sub", "sub_version")
            self.matches.update(zip(*(message.rows[name].tolist() for name in names), strict=True))
            host.say(CLIENT, Message("ack", number=message.number))

    def say(self, at: int, *, version: int, number: int, subscription: bool = False) -> None:
        """A client of a host publishes or subscribes."""
        if CLIENT not in self.hosts[at].sessions:
            self.hosts[at].connect(CLIENT, self.now)
            connected = np.zeros(1, moves([HERE]).dtype)
            connected["home"] = at + 1
            self.hosts[at].say(CLIENT, Message("moved", connected))
        rows = moves([HERE], [1], version, subscriptions=subscription)
        rows["home"] = at + 1
        self.hosts[at].say(CLIENT, Message("moves", rows, number))

    @property
    def lives(self) -> list[int]:
        return [host.life for _, host in sorted(self.hosts.items())]


def test_hosts_that_start_together_have_nothing_to_catch_up_with() -> None:
    hosts = Hosts()
    assert hosts.lives == [0, 0]
    assert all(host.is_ready for host in hosts.hosts.values())
    hosts.say(0, version=1, number=1, subscription=True)
    hosts.say(0, version=2, number=2)
    hosts.run(0.3)
    assert hosts.matches == {(1, 2, 1, 1): 1}


def test_hosts_that_send_messages_need_no_signs_of_life() -> None:
    hosts = Hosts()
    hosts.kinds.clear()
    for number in range(20):
        hosts.say(0, version=number, number=number)
        hosts.run(0.1)
    assert hosts.kinds["alive"] == 0 and hosts.lives == [0, 0]
    # Nothing is sent: up to eight signs in a second, which is ``silence``, from each to the other.
    hosts.run(2)
    assert 20 <= hosts.kinds["alive"] <= 32 and hosts.lives == [0, 0]


def test_a_host_that_comes_later_catches_up_with_those_that_went_on_without_it() -> None:
    hosts = Hosts()
    hosts.say(0, version=1, number=1, subscription=True)
    hosts.kill(1)
    hosts.run(2)
    hosts.start(1)
    hosts.run(0.5)
    assert hosts.lives == [0, 1]
    assert hosts.hosts[1].told["state_live"] == 1 and hosts.hosts[1].is_ready
    hosts.kill(0)
    hosts.run(2)
    hosts.say(1, version=2, number=2)
    hosts.run(0.3)
    assert set(hosts.matches) == {(1, 2, 1, 1)}


def test_a_host_catches_up_by_parts_one_at_a_time() -> None:
    with patch("evflow.tiles.state.MOST_ROWS", 5):
        hosts = Hosts()
        hosts.say(0, version=1, number=1, subscription=True)
        rows = moves([HERE] * 30, range(2, 32), 1)
        rows["home"] = 1
        hosts.hosts[0].say(CLIENT, Message("moves", rows, 2))
        hosts.run(0.2)
        hosts.kill(1)
        hosts.run(2)
        hosts.start(1)
        live, parts = [(0, 0)], Counter[int]()
        while not hosts.hosts[1].is_ready:
            hosts.run(0.02)
            parts.update(len(sent.rows) for sent in hosts.waiting[1] if sent.kind == "snapshot")
            told = hosts.hosts[1].told
            live.append((int(told.get("state_live", 0)), int(told.get("tile_live", 0))))
        # It has a turn for other things between two parts, and counts once it has all of them.
        assert all(
            0 <= b - a <= 5 for one, two in itertools.pairwise(live) for a, b in zip(one, two, strict=True)
        )
        assert live[-1] == (31, 31) and parts == {5: 6, 1: 1}


def test_hosts_tell_what_they_lack_where_nobody_has_it(caplog: pytest.LogCaptureFixture) -> None:
    with patch("evflow.tiles.state.MOST_ROWS", 5):
        hosts = Hosts()
        rows = moves([HERE] * 300, range(300), 1)
        hosts.say(0, version=1, number=1, subscription=True)
        hosts.hosts[0].say(CLIENT, Message("moves", rows, 2))
        hosts.run(0.2)
        assert [host.told["lacks"] for host in hosts.hosts.values()] == ["", ""]
        hosts.kill(1)
        hosts.run(2)
        hosts.start(1)
        hosts.run(0.2)
        assert not hosts.hosts[1].is_ready
        hosts.kill(0)
        hosts.run(2)
        hosts.start(0)
        hosts.run(2)
    assert [host.told["lacks"] for host in hosts.hosts.values()] == ["0", "0"]
    assert "replicas 1 and 0 of group 0 of State Managers both lack its entities" in caplog.text


def test_a_host_that_starts_again_at_once_is_taken_for_dead_before_it_joins() -> None:
    hosts = Hosts()
    hosts.say(0, version=1, number=1, subscription=True)
    hosts.run(0.2)
    hosts.kill(1)
    hosts.start(1)
    hosts.run(0.5)
    assert hosts.lives == [0, 1]
    assert hosts.hosts[1].told["tile_live"] == 1


def test_a_host_that_was_stopped_for_long_begins_anew() -> None:
    hosts = Hosts()
    hosts.say(0, version=1, number=1, subscription=True)
    hosts.stopped.add(1)
    hosts.run(2)
    hosts.stopped.clear()
    hosts.run(0.5)
    assert hosts.lives == [0, 1]
    assert hosts.hosts[1].told["state_live"] == 1


def test_of_two_hosts_that_were_cut_off_one_begins_anew() -> None:
    hosts = Hosts()
    hosts.say(0, version=1, number=1, subscription=True)
    hosts.run(0.2)
    hosts.cut = {(0, 1), (1, 0)}
    hosts.run(2)
    hosts.cut = set()
    hosts.run(1)
    assert hosts.lives == [0, 1]
    assert all(host.told["state_live"] == 1 for host in hosts.hosts.values())


def test_a_host_that_misses_a_message_begins_anew_and_has_it_then() -> None:
    hosts = Hosts()
    hosts.say(0, version=1, number=1, subscription=True)
    hosts.run(0.2)
    hosts.cut = {(0, 1)}
    hosts.say(0, version=2, number=2)
    hosts.run(0.1)
    hosts.cut = set()
    hosts.run(1)
    assert hosts.lives == [0, 1] and hosts.hosts[1].gaps == 1
    assert hosts.hosts[1].told["state_live"] == 2
    assert set(hosts.matches) == {(1, 2, 1, 1)}


def test_clients_that_are_not_connected_are_told_to_connect() -> None:
    hosts = Hosts()
    with pytest.raises(EvflowError, match="connect again"):
        hosts.hosts[0].session(CLIENT, 0.0)
    hosts.hosts[0].connect(CLIENT, 0.0)
    with pytest.raises(EvflowError, match="expected moves, moved or ack"):
        hosts.hosts[0].say(CLIENT, Message("sync"))
    with pytest.raises(EvflowError, match="expected another host"):
        lone = Hosts(1, 1).hosts[0]
        other = Hosts(2, 2).hosts[1]
        other.tick(9.0)
        lone.receive(batch_of([other.outbox[0][1]])[0], 0.0)


class Played(Hosts):
    """Hosts with a fleet that moves, and troubles that a seed decides."""

    def __init__(self, seed: int, replicas: int = 2) -> None:
        self.random = random.Random(seed)
        self.client = Client(Place("client", CLIENT), Place("frontend", 0))
        self.at: int | None = None
        self.version = 0
        # Of publications and of subscriptions: versions and zones since all was quiet, the one then first.
        self.states: list[list[tuple[int, list[Circle]]]] = [[(0, [])], [(0, [])]]
        super().__init__(replicas, self.random.choice([2, 4]))

    def _say(self, outbox: Outbox) -> None:
        for _, message in outbox:
            # What goes to a host that has died is lost; the client sends it again to another.
            if self.at in self.hosts and CLIENT in self.hosts[self.at].sessions:
                self.hosts[self.at].say(CLIENT, message)

    def _take(self, host: Roles, message: Message) -> None:
        if host is self.hosts.get(-1 if self.at is None else self.at):
            rows, outbox = self.client.receive(self.client.frontend, message)
            if message.kind == "matches":
                names = ("pub", "pub_version", "sub", "sub_version")
                self.matches.update(zip(*(rows[name].tolist() for name in names), strict=True))
            self._say(outbox)

    def run(self, seconds: float) -> None:
        for _ in range(max(1, round(seconds / 0.1))):
            super().run(0.1)
            self._connect()

    def _connect(self) -> None:
        """The client goes to another host when its own has died, or is stopped, or began anew."""
        running = [at for at, host in self.hosts.items() if at not in self.stopped and host.roles]
        if self.at in running and CLIENT in self.hosts[self.at].sessions:
            return
        self.at = self.random.choice(running) if running else None
        if self.at is not None:
            place = self.hosts[self.at].connect(CLIENT, self.now)
            self._say(self.client.moved_to(place))

    def move(self, which: int) -> None:
        """Moves all publications (0) or all subscriptions (1)."""
        near = [self.random.uniform(-0.01, 0.01) for _ in range(24)]
        zones = [Circle(46.5 + a, 6.6 + b, 300) for a, b in itertools.pairwise(near)]
        self.version += 1
        self.states[which].append((self.version, zones))
        rows = moves(zones, None, self.version, subscriptions=bool(which))
        self._say(self.client.send(rows))

    def check(self, changed: bool = False) -> None:
        """Matches of the latest states must have come, and those with what did not move; others may have.

        While the layout changes, a state that is replaced at once may be skipped.
        """
        required, allowed = set[Key](), set[Key]()
        pubs, subs = self.states
        for pub, sub in itertools.product(pubs, subs):
            if pub is pubs[0] and sub is subs[0]:
                continue
            found = {
                (p, pub[0], s, sub[0])
                for (p, one), (s, other) in itertools.product(enumerate(pub[1]), enumerate(sub[1]))
                if gap(one, other) < 0
            }
            allowed |= found
            if (pub is pubs[-1] and sub is subs[-1]) or (1 in (len(pubs), len(subs)) and not changed):
                required |= found
        assert set(self.matches.values()) <= {1}
        assert required <= set(self.matches) <= allowed
        self.matches.clear()
        self.states = [held[-1:] for held in self.states]

    def play(self) -> None:
        """Some troubles, one at a time, while the fleet moves."""
        for _ in range(3):
            at, what = self.random.choice(sorted(self.hosts)), self.random.randrange(3)
            others = [other for other in self.hosts if other != at]
            self.run(self.random.choice([0, 0.1]))
            self.move(self.random.randrange(2))
            if what == 0:
                self.kill(at)
                self._some()
                self.start(at)
            elif what == 1:
                self.stopped.add(at)
                self._some()
                self.stopped.clear()
            else:
                self.cut = {(other, at) for other in others}
                self.move(self.random.randrange(2))
                self.run(0.2)
                self.cut = set()
            self._some()
            self.run(4)
            assert all(host.is_ready for host in self.hosts.values())
            assert self.client.idle
            self.check()

    def change(self, plan: Plan) -> None:
        """The steps of a change, as ``evflow.tiles.change`` has them, while the fleet moves."""
        new = sorted(set(plan.numbers) - set(self.plan.numbers))
        self._take_step(plan)
        for at in new:
            self.start(at)
            self._move_until(lambda: all(host.is_ready for host in self.hosts.values()))
        if plan.next:
            self._take_step(plan.settled())
        for at in set(self.hosts) - set(self.plan.numbers):
            self.kill(at)
        self.run(4)
        assert self.client.idle
        self.check(changed=True)

    def _take_step(self, plan: Plan) -> None:
        self.plan = plan
        self.hosts[self.random.choice(sorted(self.hosts))].adopt(plan, self.now)
        self._move_until(lambda: all(h.plan.stage == plan.stage and h.is_ready for h in self.hosts.values()))

    def _move_until(self, done: Callable[[], bool]) -> None:
        for _ in range(200):
            if self.random.random() < 0.5:
                self.move(self.random.randrange(2))
            super().run(0.02)
            self._connect()
            if done():
                return
        raise AssertionError([(host.plan.stage, host.told) for host in self.hosts.values()])

    def _some(self) -> None:
        for _ in range(self.random.randrange(3)):
            self.move(self.random.randrange(2))
            self.run(self.random.choice([0.1, 0.5, 2]))


@pytest.mark.parametrize("seed", range(tried(8)))
def test_no_match_is_lost_or_doubled_when_hosts_die_stop_and_miss_messages(seed: int) -> None:
    # Every second fleet takes several messages where one would do.
    rows = (100_000, 5)[seed % 2]
    with patch("evflow.tiles.manager.MOST_ROWS", rows), patch("evflow.tiles.client.MOST_ROWS", rows):
        Played(seed).play()


@pytest.mark.parametrize("seed", [pytest.param(0, marks=pytest.mark.slow), 1])
def test_no_match_is_lost_or_doubled_when_hosts_join_and_leave(seed: int) -> None:
    hosts = Played(seed, 1 + seed % 2)
    for name in "ef":
        hosts.change(hosts.plan.grown(name))
    for name in "ae":
        hosts.change(hosts.plan.without(name))
    assert sorted(hosts.plan.numbers) == sorted(hosts.hosts)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(2))
def test_no_match_is_lost_or_doubled_when_tiles_are_split_and_joined(seed: int) -> None:
    hosts = Played(seed, 1 + seed % 2)
    tile = int(Grid(15).tiles(moves([HERE]))[1][0])
    for splits in ([tile], [tile, *Grid.parts(tile)], []):
        hosts.change(hosts.plan.divided(splits))
        assert all(host.plan.splits == tuple(sorted(splits)) for host in hosts.hosts.values())
