"""A system of tiles over daemons that are processes, beside brute force."""

from __future__ import annotations

import random
import threading
import time
from collections import Counter
from contextlib import ExitStack
from pathlib import Path

import pytest

from evflow import tiles
from evflow.deploy.handle import Deployment
from evflow.errors import FlowError
from tests.deploy.daemons import DaemonProcess
from tests.node.processes import wait_for
from tests.tiles.world import Circle, gap

pytestmark = pytest.mark.slow

CENTRE = (46.5, 6.6)
KEY = ("pub", "pub_version", "sub", "sub_version")
Key = tuple[int, int, int, int]


class Fleet:
    """Moving publications and subscriptions, the client that moves them, and what it should be told.

    Args:
        client: a connection.
        count: of each of both.
    """

    def __init__(self, client: tiles.Connection, count: int) -> None:
        self.client, self.random = client, random.Random(7)
        self.found, self.wanted = Counter[Key](), set[Key]()
        self.ids = list(range(count))
        self.states: list[tuple[int, list[Circle]]] = [(0, []), (0, [])]
        self.move(1)

    def move(self, which: int) -> None:
        """Moves all publications (0) or all subscriptions (1)."""
        zones = [
            Circle(
                CENTRE[0] + self.random.uniform(-0.02, 0.02),
                CENTRE[1] + self.random.uniform(-0.02, 0.02),
                self.random.uniform(0, 400),
            )
            for _ in self.ids
        ]
        send = self.client.subscribe if which else self.client.publish
        self.states[which] = send(self.ids, zones), zones
        (pub_version, pubs), (sub_version, subs) = self.states
        self.wanted |= {
            (p, pub_version, s, sub_version)
            for p, pub in enumerate(pubs)
            for s, sub in enumerate(subs)
            if gap(pub, sub) < 0
        }

    def settle(self, seconds: float = 15.0) -> None:
        """Waits until all that should come has come, and a moment more."""
        until = time.monotonic() + seconds
        while time.monotonic() < until and not self.wanted <= set(self.found):
            self._take(0.2)
        self._take(0.1)
        assert self.found == Counter(dict.fromkeys(self.wanted, 1))

    def _take(self, seconds: float) -> None:
        for rows in self.client.batches(seconds):
            self.found.update(zip(*(rows[name].tolist() for name in KEY), strict=True))


def _ready(handle: Deployment, host: str) -> None:
    """Waits until a host has caught up."""
    until = time.monotonic() + 15
    while time.monotonic() < until and handle.attributes(host).get("ready") != 1:
        time.sleep(0.05)
    assert handle.attributes(host)["ready"] == 1


def test_no_match_is_lost_or_doubled_when_each_of_two_hosts_is_killed_in_turn(tmp_path: Path) -> None:
    allow = ("--allow", "evflow.tiles.stone")
    graph = tiles.graph("ab", replicas=2, silence=0.4)
    with (
        DaemonProcess("a", tmp_path, *allow) as a,
        DaemonProcess("b", tmp_path, *allow) as b,
        graph.deploy({"a": a.contact, "b": b.contact}) as handle,
        tiles.connect(f"{a.contact}/tiles/a", patience=0.6) as client,
    ):
        fleet = Fleet(client, 60)
        for which in (0, 1, 0):
            fleet.move(which)
            fleet.settle()
        for dies, other in ((a, "b"), (b, "a")):
            fleet.move(0)
            dies.kill()
            for _ in range(3):
                fleet.move(0)
            fleet.settle()
            assert client.host == other
            client.drain(10)
            fleet.move(1)
            dies.restart()
            fleet.move(0)
            _ready(handle, dies.name)
            fleet.settle()
            client.drain(10)


def _daemons(stack: ExitStack, folder: Path, names: str) -> dict[str, DaemonProcess]:
    """Daemons that may have hosts of tiles, by name, until the stack ends."""
    allow = ("--allow", "evflow.tiles.stone")
    return {name: stack.enter_context(DaemonProcess(name, folder, *allow)) for name in names}


def test_no_match_is_lost_or_doubled_when_a_host_joins_and_another_leaves(tmp_path: Path) -> None:
    with ExitStack() as stack:
        running = _daemons(stack, tmp_path, "abcde")
        contacts = {name: process.contact for name, process in running.items()}
        fifth = contacts.pop("e")
        # Signs of life come all the time, also while a change is made.
        handle = stack.enter_context(tiles.graph("abcd", silence=0.6).deploy(contacts))
        client = stack.enter_context(tiles.connect(f"{contacts['a']}/tiles/a"))
        fleet = Fleet(client, 60)
        fleet.settle()
        for change in (lambda: tiles.grow(handle, "e", fifth), lambda: tiles.shrink(handle, "a")):
            changing = threading.Thread(target=change)
            changing.start()
            while changing.is_alive():
                for which in (0, 1):
                    fleet.move(which)
                    fleet.settle()
            changing.join()
        with pytest.raises(FlowError, match="'b': expected one that is not there yet"):
            tiles.grow(handle, "b")
        assert client.host != "a" and handle.attributes("e")["state_live"] > 0
        assert sorted(name for name in handle.graph.stones if len(name) == 1) == list("bcde")


def test_a_dead_host_leaves_where_a_spare_one_takes_its_place(tmp_path: Path) -> None:
    with ExitStack() as stack:
        running = _daemons(stack, tmp_path, "abc")
        contacts = {name: process.contact for name, process in running.items()}
        third = contacts.pop("c")
        handle = stack.enter_context(tiles.graph("ab", replicas=2, silence=0.4).deploy(contacts))
        client = stack.enter_context(tiles.connect(f"{contacts['a']}/tiles/a", patience=0.6))
        fleet = Fleet(client, 60)
        tiles.grow(handle, "c", third)
        # How long it waits for the answer of a host that is dead.
        handle.cluster.timeout = 1.0
        running["a"].kill()
        fleet.move(0)
        tiles.shrink(handle, "a")
        assert sorted(handle.graph.stones) == ["b", "b to c", "c", "c to b"]
        fleet.move(1)
        fleet.settle()
        running["a"].restart()
        wait_for(lambda: all(told["node"] != "a" for told in handle.stats().values()), "a has no stone")
        running["b"].kill()
        fleet.move(0)
        fleet.settle()
