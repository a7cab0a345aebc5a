"""The links of a node as a flow and a deployment see them, over real sockets."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import evflow as ev
from evflow.engine.engine import Engine
from evflow.engine.letters import LetterBox
from evflow.engine.topology import Crossing, Slot, Topology
from evflow.errors import LinkError
from evflow.net.node.node import Links, Node

PATIENCE = 20.0


class End:
    """A node, its links, and an engine with one terminal that others may send to."""

    def __init__(self, name: str, journal: Path | None = None) -> None:
        self.arrived: list[int] = []
        self.node = Node(name, "tcp://127.0.0.1:0", heartbeat=0.05, journal=journal)
        self.links: Links = self.node.attach("by hand")
        self.slot = Slot(
            "end", ev.Terminal(lambda event: self.arrived.append(event.number)), arrivals=(None,)
        )
        self.engine = Engine(Topology({"end": self.slot}), LetterBox(10, lambda stone, batch, timeout: None))
        self.links.attach(self.engine, {"end": self.slot}, lambda: None, self._give_up)
        self.given: list[str] = []

    def _give_up(self, bridge: str, batch: ev.EventBatch, reason: str) -> None:
        self.given.append(reason)

    def turn(self) -> None:
        self.links.receive(time.monotonic())
        self.engine.run()
        self.links.finish(time.monotonic())
        self.links.bell.sleep(0.001)


@pytest.fixture
def ends() -> Iterator[tuple[End, End]]:
    a, b = End("a"), End("b")
    yield a, b
    a.links.close()
    b.links.close()


def until(ends: tuple[End, ...], done: Callable[[], bool]) -> None:
    """Has all take turns until something holds."""
    end = time.monotonic() + PATIENCE
    while not done():
        assert time.monotonic() < end
        for one in ends:
            one.turn()


class Ping(ev.Event):
    number: int


@pytest.mark.slow
def test_peer_is_dialled_kept_heard_told_and_forgotten(ends: tuple[End, End]) -> None:
    a, b = ends
    assert not a.links.connected("b") and a.links.heard("b") is None and not a.links.tell("b", "change", b"")
    before = time.monotonic()
    a.links.peer("b", b.node.contact)
    until(ends, lambda: a.links.connected("b") and b.links.connected("a"))
    heard = a.links.heard("b")
    assert heard is not None and before <= heard <= time.monotonic()
    notes: list[tuple[str, bytes]] = []
    b.links.listen("change", lambda peer, body, now: notes.append((peer, body)))
    bodies = [b"", b"small", bytes(range(256)) * (32 << 10)]
    assert all(a.links.tell("b", "change", body) for body in bodies)
    assert a.links.tell("b", "unknown", b"x")
    until(ends, lambda: len(notes) == 3 and bool(b.node.refused))
    assert notes == [("a", body) for body in bodies]
    assert b.node.refused == {"unknown topic": 1}
    a.links.forget("b")
    until(ends, lambda: not a.node.links() and not b.links.connected("a"))


def test_peer_that_cannot_be_is_refused(ends: tuple[End, End]) -> None:
    a, _ = ends
    for name, contact, wrong in (
        ("a", "", "a node cannot be a peer of itself"),
        ("", "", "expected a name"),
        ("b", "nowhere", "begins with neither"),
        ("b", "tcp://10.0.0.1:7000", "is beyond this host, and there are no keys"),
    ):
        with pytest.raises(LinkError, match=wrong):
            a.links.peer(name, contact)
    with pytest.raises(LinkError, match="expected at most 8388608 bytes"):
        a.links.tell("b", "change", bytes((8 << 20) + 1))
    assert not a.node.links()


@pytest.mark.slow
def test_stone_and_bridge_move_over_real_sockets(ends: tuple[End, End], tmp_path: Path) -> None:
    a, b = ends
    c = End("c", tmp_path / "journal")
    c.links.leave("end", "it is not here yet")
    all_ = (a, b, c)
    a.links.peer("b", b.node.contact)
    a.links.peer("c", c.node.contact)
    bridge = Slot("bridge", ev.Bridge("b", "end"))
    send = a.links.sender(bridge, Crossing("b", "end", ""))
    for number in range(10):
        send(ev.EventBatch.from_columns(Ping, {"number": [number]}))
    until(all_, lambda: len(b.arrived) == 10)
    b.links.close_entries(["end"])
    assert b.links.blocked(b.slot)
    for number in range(10, 20):
        send(ev.EventBatch.from_columns(Ping, {"number": [number]}))
    until(all_, lambda: not b.links.waiting_for({"end"}, ()))
    seen = b.links.seen("end")
    b.links.leave("end", "it has moved")
    b.links.open_entries(["end"])
    a.links.readdress("bridge", Crossing("c", "end", ""))
    until(all_, lambda: "has no stone 'end'" in a.node.links()["c"]["trouble"])
    with pytest.raises(LinkError, match="what a stone has seen"):
        c.links.learn(seen[:-1])
    c.links.learn(seen)
    c.links.enter("end", c.slot)
    until(all_, lambda: not a.links.owes)
    assert b.arrived == list(range(10)) and c.arrived == list(range(10, 20))
    a.links.drop("bridge")
    assert a.given == [] and a.links.waiting_for((), {"bridge"}) == ""
    c.links.close()


def test_bridge_may_be_led_to_a_contact_that_is_permitted(ends: tuple[End, End]) -> None:
    a, b = ends
    bridge = Slot("bridge", ev.Bridge("nobody", "end"))
    send = a.links.sender(bridge, Crossing("nobody", "end", ""))
    send(ev.EventBatch.from_columns(Ping, {"number": [1]}))
    with pytest.raises(LinkError, match="is beyond this host"):
        a.links.readdress("bridge", Crossing("tcp://10.0.0.1:7000", "end", ""))
    a.links.readdress("bridge", Crossing(b.node.contact, "end", ""))
    until(ends, lambda: not a.links.owes)
    assert b.arrived == [1] and "nobody" not in a.node.links()
    a.links.drop("bridge", lambda bridge, batch, reason: None)
