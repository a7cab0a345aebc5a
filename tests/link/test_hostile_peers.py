"""What a peer can do at worst: it has bounds, and harms nobody else."""

from __future__ import annotations

import tracemalloc

import msgpack
import msgspec
import pytest
from msgspec.structs import replace

import evflow as ev
from evflow import EventBatch
from evflow.events.attributes import Attributes
from evflow.net.link import hub, remote_inputs, session
from evflow.net.link import messages as m
from tests.link.pair import DESCRIPTION, Network, Pair, Peer, Ping, Port, Raw, chain, frame, pings, receiver


def test_flood_of_opens_has_a_bound() -> None:
    _, b, raw, _ = receiver()
    opens = [m.Open(n, f"x{n}", "end", "", bytes(16), 1, 0) for n in range(10_000)]
    answers = raw.say(*opens)
    assert any(isinstance(said, m.Reject) and "channels" in said.reason for said in answers)
    assert not any(isinstance(said, m.Reset) for said in answers)
    assert len(b.hub.remote_inputs.inlets) <= session._MAX_CHANNELS + 1


def test_channels_under_one_number_are_forgotten_when_there_are_too_many(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(remote_inputs, "_MAX_INLETS", 50)
    _, b, raw, arrived = receiver()
    answers = raw.say(*(m.Open(7, f"x{n}", "end", "", bytes(16), 1, 0) for n in range(200)))
    assert sum(isinstance(said, m.Accept) for said in answers) == 200
    assert len(b.hub.remote_inputs.inlets) == 50
    raw.say(frame(1, 5))
    assert arrived == [5]


def test_channels_that_are_all_in_use_leave_no_room(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(remote_inputs, "_MAX_INLETS", 3)
    _, _, raw, _ = receiver()
    answers = raw.say(*(m.Open(n, f"x{n}", "end", "", bytes(16), 1, 0) for n in range(1, 4)))
    assert answers[-1] == m.Reject(3, "node b has 3 channels already")


def test_new_streams_of_a_bridge_cannot_pile_up_while_frames_wait() -> None:
    _, b, raw, _ = receiver()
    b.hub.stopped = True
    answers = []
    for n in range(50):
        answers = raw.say(m.Open(0, "bridge", "end", "", bytes([n]) * 16, 1, 0))
        raw.say(frame(1, 5))
    assert any(isinstance(said, m.Reject) for said in answers)
    assert len(b.hub.remote_inputs.all()) <= 33


def test_flood_of_names_is_forgotten() -> None:
    network = Network()
    b = Peer(network, "b", chain([]), {"known": "nowhere"})
    raw = Raw(network)
    raw.dial("b")
    for n in range(1000):
        raw.port.send(raw.end, m.pack(m.Hello(1, f"n{n}", bytes(16), "")))
        raw.port.send(raw.end, m.pack(m.Bye("")))
        network.deliver()
    assert len(b.hub.links) <= 101
    assert "known" in b.hub.links
    assert not b.hub.connections


def test_healthy_peer_recovers_from_one_that_takes_its_name() -> None:
    pair = Pair()
    pair.submit(1)
    pair.run()
    thief = Raw(pair.network, "a")
    thief.hello("b")
    thief.say(m.Open(0, "bridge", "end", "", bytes(16), 1, 1 << 62), m.SchemaText(0, DESCRIPTION))
    pair.submit(2)
    pair.run(3)
    pair.submit(3)
    pair.run(1)
    assert pair.arrived == [1, 2, 3]
    assert not pair.a.hub.owes


def test_schemas_have_a_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session, "_MAX_TEXTS", 1 << 20)
    monkeypatch.setattr(hub, "_MAX_TEXTS", 2 << 20)
    _, b, raw, _ = receiver()
    fields = ",".join(f'["{"x" * 200}{n}","i64"]' for n in range(500))
    answers: list[m.Message] = []
    for n in range(60):
        answers = raw.say(m.SchemaText(n, f'{{"name":"S{n}","fields":[{fields}]}}'))
        if answers:
            break
    assert isinstance(answers[-1], m.Reset) and "schemas" in answers[-1].reason
    for _ in range(3):
        raw.hello("b")
        raw.say(*(m.SchemaText(n, DESCRIPTION + " " * 200_000 + " " * n) for n in range(5)))
        assert sum(map(len, b.hub._texts)) <= 2 << 20


@pytest.mark.parametrize(
    "text", ["", "{", "[" * 5000, '{"name":"S","fields":[["x","array(f64,4294967295)"]]}']
)
def test_schema_that_is_none_ends_the_session(text: str) -> None:
    _, b, raw, _ = receiver()
    (answer,) = raw.say(m.SchemaText(5, text))
    assert isinstance(answer, m.Reset) and "schema 5" in answer.reason
    assert b.hub.refused == {"protocol": 1}


def test_incarnation_of_another_peer_draws_nothing_that_is_meant_for_it() -> None:
    network = Network()
    arrived: list[int] = []
    graph = ev.Graph()
    pings_of_a = graph.source("pings", Ping, on="a")
    pings_of_a >> ev.Terminal(lambda event: arrived.append(event.number), name="end", on="c")
    pings_of_a >> ev.Terminal(lambda event: None, name="other", on="e")
    c = Peer(network, "c", graph)
    thief = Raw(network, "e", "e")
    a = Peer(network, "a", graph, {"c": "c", "e": "e"})
    network.settle()
    thief.say(m.Welcome(1, "e", c.hub.greeting[2], ""))
    a.submit("pings", EventBatch.from_columns(Ping, {"number": [5]}))
    network.run()
    assert arrived == [5]
    assert len(a.link("c").outlets) == len(a.link("e").outlets) == 1


def test_frame_with_a_long_path_does_not_harm_the_next_node() -> None:
    network = Network()
    arrived: list[int] = []
    graph = ev.Graph()
    split = graph.source("pings", Ping, on="a") >> ev.Split(name="split", on="b")
    split >> ev.Terminal(lambda event: arrived.append(event.number), name="end", on="c")
    c = Peer(network, "c", graph)
    Peer(network, "b", graph, {"c": "c"})
    raw = Raw(network, "a")
    raw.hello("b")
    raw.say(m.Open(0, "x", "split", "", bytes(16), 1, 0), m.SchemaText(0, DESCRIPTION))
    raw.say(replace(frame(1, 5), route=bytes(16), path=[0] * m.MOST_PATH))
    raw.say(replace(frame(2, 6), route=bytes(16), path=[1] * 5))
    network.run()
    assert arrived == [5, 6]
    assert c.link("b").sessions == 1 and not c.hub.refused


def test_more_parts_than_two_and_no_part_are_refused() -> None:
    network = Network()
    b = Peer(network, "b", chain([]))
    # What the sockets make of it.
    b.hub.receive(Port(network).connect(b.port), b"", None, 0.0)
    assert b.hub.refused == {"malformed": 1}


def test_nested_message_costs_only_who_sends_it() -> None:
    _, b, raw, arrived = receiver()
    stranger = Port(raw.network).connect(b.port)
    for depth in (500, 990, 1000, 1010):
        b.hub.receive(stranger, b"\x91" * depth + b"\xc0", None, 0.0)
    assert b.hub.refused == {"malformed": 4}
    raw.say(frame(1, 5))
    assert arrived == [5]


@pytest.mark.parametrize(
    "fields", [[5, [[]] * 1_000_000], [1, 1, "x", b"i" * 16, "c" * 1_000_000], [[]] * 1_000_000]
)
def test_large_message_without_a_session_is_refused_unread(fields: list[object]) -> None:
    _, b, raw, arrived = receiver()
    stranger = Port(raw.network).connect(b.port)
    wire = msgpack.packb(fields)
    tracemalloc.start()
    b.hub.receive(stranger, memoryview(wire), None, 0.0)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 400_000
    assert b.hub.refused == {"malformed": 1}
    raw.say(frame(1, 5))
    assert arrived == [5]


def test_large_frame_that_comes_after_its_session_is_answered_and_not_counted() -> None:
    network = Network()
    b = Peer(network, "b", chain([]))
    raw = Raw(network)
    raw.dial("b")
    attributes = msgspec.Raw(msgpack.packb([["note", "s", None, [f"note {n}" for n in range(5000)]]]))
    answers = raw.say(m.Data(0, 1, 0, 5000, b"", [], attributes, None), body=bytes(45_000))
    assert answers == [m.Reset("no session on this connection")]
    assert not b.hub.refused


def test_frame_with_many_attributes_arrives() -> None:
    pair = Pair()
    pair.submit(0)
    pair.run()
    notes = [f"note {n}" for n in range(3000)]
    batch = pings(*range(3000)).with_attributes(Attributes.from_lists({"note": notes}))
    pair.a.submit("pings", batch)
    pair.run()
    assert pair.arrived == [0, *range(3000)]
    assert pair.b.link("a").sessions == 1
