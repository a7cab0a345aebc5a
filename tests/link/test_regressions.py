"""What the simulation has found, each on its own."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any

import pytest

import evflow as ev
from evflow.engine.check import check_graph
from evflow.engine.engine import Engine
from evflow.engine.letters import LetterBox
from evflow.engine.placement import bridged, placed_on
from evflow.engine.topology import Crossing
from evflow.events.batch import EventBatch
from evflow.mishaps import Broken
from evflow.net.link import messages as m
from evflow.net.link.hub import Hub
from evflow.net.link.outlet import Outlet, Terms
from evflow.net.link.provenance import Provenance
from evflow.stone import Acting, Actor, Context

STREAM = bytes(16)


class Rec(ev.Event):
    seq: int


def recs(*numbers: int) -> EventBatch:
    return EventBatch.from_columns(Rec, {"seq": list(numbers)})


class Wires:
    """A transport that keeps what is sent."""

    def __init__(self) -> None:
        self.sent: list[m.Message] = []

    def send(self, connection: Any, header: bytes, body: Any = None) -> bool:
        self.sent.append(m.unpack(header))
        return True

    def __getattr__(self, name: str) -> Callable[..., Any]:
        return lambda *given: [] if name == "released" else None

    def take(self, kind: type[Any]) -> list[Any]:
        """What of a kind was sent since the last time."""
        found = [message for message in self.sent if type(message) is kind]
        self.sent.clear()
        return found


class Paths:
    """A journal of one route."""

    def __init__(self, known: dict[tuple[str, str], list[Provenance]]) -> None:
        self.known = known
        self.saved: list[tuple[int, ...]] = []

    def load(self) -> dict[tuple[str, str], list[Provenance]]:
        return self.known

    def save(
        self, safe: dict[tuple[str, str, bytes], tuple[int, ...]], gone: Sequence[tuple[str, bytes]]
    ) -> None:
        self.saved.extend(safe.values())

    def forget(self, stone: str) -> None:
        raise AssertionError("nothing was to be forgotten")


def node(
    graph: ev.Graph, name: str, delivery: int = 1, gone: int = 0, journal: Paths | None = None
) -> tuple[Hub, Wires]:
    """A node with a session in which ``A`` has opened a channel to the stone ``in``."""
    wires = Wires()
    hub = Hub(name, wires, bytes, journal=journal)
    topology = placed_on(check_graph(bridged(graph)), name)
    crossings = topology.crossings
    engine = Engine(
        topology,
        LetterBox(10, lambda stone, batch, timeout: None),
        lambda slot: hub.sender(slot, crossings[slot.name]) if slot.name in crossings else None,
    )
    hub.attach(engine, dict(topology.slots))
    tell(hub, m.Hello(m.VERSION, "A", bytes(16), ""))
    tell(hub, m.Open(0, "s→in", "in", "", STREAM, delivery, gone))
    tell(hub, m.SchemaText(0, json.dumps(ev.Schema.of(Rec).description)))
    return hub, wires


def tell(hub: Hub, message: m.Message, batch: EventBatch | None = None, now: float = 0.0) -> None:
    hub.receive("A's", m.pack(message), None if batch is None else batch.to_bytes(), now)


def frame(sequence: int, *numbers: int) -> tuple[m.Data, EventBatch]:
    return m.Data(0, sequence, 0, len(numbers), b"", [], m.NIL, None), recs(*numbers)


def ending(seen: list[int]) -> ev.Graph:
    graph = ev.Graph()
    graph.source("s", Rec, on="A") >> ev.Terminal(lambda e: seen.append(e.seq), name="in", on="B")
    return graph


def test_frame_that_comes_again_does_not_set_the_journal_back() -> None:
    """Else the frames between are handled a second time after the next restart."""
    seen: list[int] = []
    journal = Paths({("s→in", "in"): [Provenance(STREAM, (8,))]})
    hub, _ = node(ending(seen), "B", gone=4, journal=journal)
    for sequence in range(5, 10):
        tell(hub, *frame(sequence, sequence))
    hub.finish(0.0)
    assert seen == [9]
    assert journal.saved == [(9,)]


def test_who_sends_is_told_what_a_stone_has_handled_before_it_leaves() -> None:
    """Else the events come again, to the same stone or to where it goes."""
    seen: list[int] = []
    hub, wires = node(ending(seen), "B")
    tell(hub, *frame(1, 1))
    hub.finish(0.0)
    tell(hub, *frame(2, 2), now=0.001)
    hub.finish(0.001)
    hub.remote_inputs.leave("in", "gone")
    assert seen == [1, 2]
    assert [ack.safe for ack in wires.take(m.Ack)][-1:] == [2]


def test_frame_that_was_handled_only_in_part_is_not_safe(monkeypatch: pytest.MonkeyPatch) -> None:
    """A stone that breaks its flow has handled some of the events; all come again."""

    def broken(engine: Engine) -> None:
        raise MemoryError

    hub, wires = node(ending([]), "B")
    monkeypatch.setattr(Engine, "run", broken)
    with pytest.raises(Broken):
        tell(hub, *frame(1, 1))
    hub.close("the end", lambda bridge, batch, why: None)
    assert {ack.safe for ack in wires.take(m.Ack)} <= {0}


def test_accept_does_not_count_what_was_lost_as_received() -> None:
    """The first ``Accept`` may be lost; only the next tells the sender how many events it has to count."""
    hub, wires = node(ending([]), "B", delivery=0, gone=22)
    assert [accept.received for accept in wires.take(m.Accept)] == [0]
    tell(hub, m.Open(0, "s→in", "in", "", STREAM, 0, 22))
    assert [accept.received for accept in wires.take(m.Accept)] == [0]
    tell(hub, *frame(23, 1))
    assert hub.refused == {}
    tell(hub, m.Open(0, "s→in", "in", "", STREAM, 0, 23))
    assert [accept.received for accept in wires.take(m.Accept)] == [23]


def test_events_lost_at_most_once_are_counted_although_an_accept_was_lost() -> None:
    dropped: list[int] = []
    outlet = Outlet("b", Crossing("B", "in", ""), Terms(exact=False), STREAM)
    outlet.dropped = dropped.append
    outlet.accepted(0, 1000)
    for number in range(3):
        outlet.put(recs(number), None)
        outlet.sent(outlet.next())
    outlet.disconnected()
    assert outlet.gone == 3
    outlet.accepted(1, 1000)
    assert dropped == [2]


def test_node_sleeps_while_a_link_is_down() -> None:
    """An acknowledgement that was due when the link went down kept the node awake until it came up again."""
    hub, _ = node(ending([]), "B")
    tell(hub, *frame(1, 1), now=1.0)
    assert hub.finish(1.0) < 1.1
    tell(hub, m.Bye("gone"), now=1.001)
    assert hub.finish(1.001) > 2.0


def test_what_stones_held_is_not_taken_for_something_else_after_a_restart() -> None:
    """After a restart the same frame pushes other events out of a storage: its number must not be known."""

    def held() -> ev.Graph:
        graph = ev.Graph()
        kept = graph.source("s", Rec, on="A") >> ev.Storage(1, name="in", on="B")
        kept >> ev.Terminal(lambda e: None, name="end", on="C")
        return graph

    def tags(*frames: tuple[m.Data, EventBatch], gone: int) -> list[Provenance | None]:
        hub, _ = node(held(), "B", gone=gone)
        for one in frames:
            tell(hub, *one)
        (outlet,) = hub.outlets.values()
        return [entry.tag for entry in outlet.waiting]

    before = tags(frame(1, 1), frame(2, 2, 3), gone=0)
    after = tags(frame(2, 2, 3), gone=1)
    assert before == [None, None] and after == [None]


class Frames(Acting):
    """Notes which frame what it is given comes of."""

    linked_ports = "none"

    def open(self, context: Context) -> Actor:
        return FramesActor(context)


class FramesActor(Actor):
    def __init__(self, context: Context) -> None:
        super().__init__(context)
        self.seen: list[tuple[bytes, tuple[int, ...]] | None] = []

    def receive(self, batch: EventBatch, input: str) -> None:
        self.seen.append(self.context.frame)


@pytest.mark.parametrize(
    ("first", "kept", "known"),
    [(ev.Storage(1, name="in", on="B"), 1, False), (ev.Filter("1", name="in", on="B"), 0, True)],
)
def test_stone_knows_no_frame_of_what_another_has_held(first: ev.Stone, kept: int, known: bool) -> None:
    """After a restart the same frame pushes other events out of a storage."""
    graph = ev.Graph()
    _ = graph.source("s", Rec, on="A") >> first >> Frames(name="end", on="B")
    hub, _ = node(graph, "B")
    for number in (1, 2):
        tell(hub, *frame(number, number))
    end = hub.downstream.slot("end")
    assert end is not None and isinstance(end.actor, FramesActor)
    assert [seen is not None for seen in end.actor.seen] == [known] * (2 - kept)
