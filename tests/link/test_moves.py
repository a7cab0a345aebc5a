"""Bridges that come to lead elsewhere, or go; links that are kept, and ended; what peers can do to that."""

from __future__ import annotations

import math

import pytest
from msgspec.structs import replace

from evflow.engine.topology import DROPPED, Crossing
from evflow.errors import LinkError
from evflow.net.link import messages as m
from evflow.net.link.link import UNNEEDED, State
from tests.link.pair import DESCRIPTION, Network, Pair, Peer, Raw, chain, frame, pings, receiver, sender
from tests.link.three import Three, ending

# Bridges


def test_readdressed_bridge_sends_again_what_is_not_safe_with_the_same_numbers() -> None:
    three = Three()
    three.submit(1)
    three.b.hub.downstream.close(["end"])
    three.submit(2, 3)
    three.b.hub.remote_inputs.leave("end", "it has moved")
    three.readdress()
    assert (three.at_b, three.at_c) == ([1], [2, 3])
    frames = [
        said.sequence
        for port, said, _ in three.network.log
        if isinstance(said, m.Data) and port is three.c.port
    ]
    assert frames == [2, 3] and three.network.said(m.Close, three.b.port)
    three.submit(4)
    assert three.at_c == [2, 3, 4] and not three.a.hub.owes
    assert three.outlet.address.peer == "c"


def test_frames_that_the_old_node_has_handled_are_known_on_the_new_one() -> None:
    three = Three()
    three.network.lose = lambda message: isinstance(message, m.Ack)
    three.submit(1, 2)
    assert three.at_b == [1, 2] and three.a.hub.owes
    three.network.lose = lambda message: False
    three.c.hub.delivery.learn("end", three.b.hub.delivery.seen("end"))
    three.b.hub.remote_inputs.leave("end", "it has moved")
    three.readdress()
    three.submit(3)
    assert three.at_c == [3] and not three.a.hub.owes
    # Should it come back without what it had, it must be handled again there.
    assert three.b.hub.delivery.seen("end") == {}


def test_late_words_about_a_channel_that_was_closed_do_no_harm() -> None:
    _, a, raw = sender()
    raw.say(m.Welcome(1, "b", b"i" * 16, ""), m.Accept(0, 0, 1000))
    a.submit("pings", pings(1))
    raw.say()
    a.hub.readdress("bridge", Crossing("b", "other", ""))
    answers = raw.say(m.Held(0, 1), m.Ack(0, 1, 1, 1000), m.Reject(0, "no"), m.Accept(0, 0, 5), m.Retry(0))
    assert [type(said) for said in answers] == [m.Close, m.Open, m.Sent]
    assert answers[1].channel == 1 and answers[1].stone == "other"  # type: ignore[union-attr]
    answers = raw.say(m.Accept(1, 0, 1000))
    assert [said.sequence for said in answers if isinstance(said, m.Data)] == [1]
    raw.say(m.Ack(2, 0, 0, 0))
    assert a.link("b").trouble == "peer b: this node has no channel 2"


def test_other_stone_of_the_same_peer_gets_what_the_first_has_not_handled() -> None:
    _, b, raw, arrived = receiver()
    raw.say(frame(1, 5))
    b.hub.downstream.close(["end"])
    raw.say(frame(2, 6))
    b.hub.remote_inputs.enter("other", b.slots["end"])
    answers = raw.say(m.Close(0), m.Open(1, "bridge", "other", "", b"s" * 16, 1, 1))
    assert [(said.channel, said.received) for said in answers if isinstance(said, m.Accept)] == [(1, 0)]
    b.hub.downstream.open(["end"])
    raw.say(frame(2, 6, channel=1), frame(3, 7, channel=1))
    assert arrived == [5, 6, 7]


def test_readdressed_bridge_that_keeps_nothing_counts_what_it_cannot_know() -> None:
    three = Three("at_most_once")
    three.submit(1)
    three.b.hub.downstream.close(["end"])
    three.submit(2, 3)
    three.readdress()
    three.b.hub.remote_inputs.leave("end", "it has moved")
    three.submit(4)
    assert (three.at_b, three.at_c) == ([1], [4])
    assert three.a.slots["bridge"].counts[DROPPED] == 2


def test_events_lost_in_the_queue_of_a_stone_that_left_are_counted_at_most_once() -> None:
    """After a new session what had come counted as handled, though it waited still."""
    three = Three("at_most_once")
    three.b.hub.downstream.close(["end"])
    three.submit(1, 2)
    three.a.link("b").down("broken", three.network.now)
    three.network.run(1)
    three.b.hub.remote_inputs.leave("end", "it has moved")
    three.readdress()
    assert three.a.slots["bridge"].counts[DROPPED] == 2 and three.at_b == []


def test_channel_numbers_are_not_used_again() -> None:
    three = Three()
    for peer in ("c", "b", "c"):
        three.a.hub.readdress("bridge", Crossing(peer, "end", ""))
        three.network.run()
    opens = [(port, said.channel) for port, said, _ in three.network.log if isinstance(said, m.Open)]
    b, c = three.b.port, three.c.port
    assert opens == [(b, 0), (c, 0), (b, 1), (c, 1)]
    three.submit(1)
    assert three.at_c == [1]


def test_dropped_bridge_gives_up_what_it_owes() -> None:
    given: list[tuple[str, int, str]] = []
    network = Network()
    a = Peer(network, "a", ending("b", []))
    a.submit("pings", pings(1, 2))
    a.hub.drop("bridge", lambda bridge, batch, reason: given.append((bridge, len(batch), reason)))
    ((bridge, count, why),) = given
    assert (bridge, count) == ("bridge", 2)
    assert why.startswith("the bridge was taken away; bridge 'bridge' to b: 2 events wait; not connected yet")
    assert "no contact of b is known: give it with peers=" in why
    assert not a.hub.owes and "b" not in a.hub.links and not a.hub.outlets
    for change in (
        lambda: a.hub.drop("bridge", lambda bridge, batch, reason: None),
        lambda: a.hub.readdress("bridge", Crossing("b", "end", "")),
    ):
        with pytest.raises(
            LinkError, match="bridge 'bridge': node a has none of that name that leads to a peer"
        ):
            change()


def test_contact_is_asked_for_only_while_none_is_known_and_nothing_else_is_the_trouble() -> None:
    network = Network()
    link = Peer(network, "a", ending("b", [])).link("b")
    assert link.why == (
        "not connected yet; no contact of b is known: give it with peers=, or let it dial this node"
    )
    link.trouble = "the peer says: no"
    assert link.why == "the peer says: no"
    other = Peer(network, "a", ending("b", []), {"b": "nobody there"}).link("b")
    assert other.why == "not connected yet"


def test_bridge_of_a_name_that_is_there_must_be_dropped_first() -> None:
    three = Three()
    slot = three.a.slots["bridge"]
    with pytest.raises(LinkError, match="bridge 'bridge': node a has it already; drop it first"):
        three.a.hub.sender(slot, Crossing("c", "end", ""))
    three.a.hub.drop("bridge", lambda bridge, batch, reason: None)
    send = three.a.hub.sender(slot, Crossing("c", "end", ""))
    send(pings(5))
    three.network.run()
    assert three.at_c == [5] and not three.a.hub.owes


def test_bridge_in_place_of_another_blocks_what_leads_to_it() -> None:
    network = Network()
    a = Peer(network, "a", ending("b", []))
    slot = a.slots["bridge"]
    assert not a.hub.downstream.blocked(a.slots["pings"])
    a.hub.drop("bridge", lambda bridge, batch, reason: None)
    slot.stone.limit = 1  # type: ignore[attr-defined]
    a.hub.sender(slot, Crossing("b", "end", ""))(pings(5))
    assert a.hub.downstream.blocked(a.slots["pings"])


# Links


def test_link_that_is_kept_is_dialled_and_ended_once_forgotten() -> None:
    network = Network()
    b, a = Peer(network, "b", chain([])), Peer(network, "a", ending("a", []))
    a.hub.keep("b", "b")
    network.run(0.1)
    assert a.link("b").state is State.UP and b.link("a").state is State.UP
    assert a.link("b").heard is not None
    a.hub.forget("b")
    network.run(5)
    assert "b" not in a.hub.links and not a.hub.connections
    assert "a" not in b.hub.links and not b.hub.connections
    assert a.hub.finish(network.now) == b.hub.finish(network.now) == math.inf
    a.hub.forget("b")


def test_good_bye_of_a_peer_is_a_trouble_while_a_bridge_leads_there() -> None:
    three = Three()
    three.b.link("a").bye(UNNEEDED)
    three.network.deliver()
    assert three.a.link("b").trouble == f"the peer has ended: {UNNEEDED}"
    three.network.run(5)
    assert three.a.link("b").state is State.UP


def test_link_that_a_bridge_needs_or_a_peer_is_not_forgotten() -> None:
    three = Three()
    three.a.hub.forget("b")
    three.a.hub.forget("c")
    three.network.run(5)
    assert three.a.link("b").state is State.UP and "c" not in three.a.hub.links
    three.b.hub.forget("a")
    three.network.run(5)
    three.submit(1)
    assert three.at_b == [1] and three.a.link("b").sessions == 1


def test_link_is_forgotten_at_once_without_a_session() -> None:
    network = Network()
    a = Peer(network, "a", ending("a", []))
    a.hub.keep("b", "b")
    network.run(1)
    a.hub.forget("b")
    assert a.hub.links == {} and a.hub.connections == {}


def test_new_contact_of_a_kept_peer_is_dialled_at_once() -> None:
    network = Network()
    Peer(network, "b", ending("b", []))
    a = Peer(network, "a", ending("a", []))
    a.hub.keep("b", "nowhere")
    network.run(8, 0.1)
    a.hub.keep("b", "b")
    network.run(0.02)
    assert a.link("b").state is State.UP


def test_link_to_a_contact_gives_way_to_the_one_that_is_kept_by_name() -> None:
    network = Network()
    network.ports["tcp://b"] = Peer(network, "b", ending("b", arrived := [])).port
    a = Peer(network, "a", ending("tcp://b", []))
    a.submit("pings", pings(1))
    a.hub.keep("b", "b")
    network.run(0.3)
    a.hub.peer("tcp://b", "tcp://b")
    network.run(20, 0.05)
    a.submit("pings", pings(2))
    network.run()
    assert arrived == [1, 2] and not a.hub.owes
    assert a.link("b").state is State.UP and a.link("b").lasting
    assert a.link("tcp://b").state is State.DOWN and len(a.hub.connections) == 1
    assert a.hub.tell("b", "change", b"")
    sessions = a.link("b").sessions
    network.run(20, 0.05)
    assert a.link("b").sessions == sessions


def test_link_that_is_kept_by_name_takes_over_from_one_to_a_contact() -> None:
    network = Network()
    network.ports["tcp://b"] = Peer(network, "b", ending("b", arrived := [])).port
    a = Peer(network, "a", ending("tcp://b", []), {"tcp://b": "tcp://b"})
    a.submit("pings", pings(1))
    network.run(0.5)
    a.hub.keep("b", "b")
    network.run(20, 0.05)
    a.submit("pings", pings(2))
    network.run()
    assert arrived == [1, 2] and a.link("b").state is State.UP and a.link("b").outlets


# Hostile peers


def test_storm_of_rejects_and_retries_costs_that_channel_only() -> None:
    network, a, raw = sender()
    raw.say(m.Welcome(1, "b", b"i" * 16, ""), m.Accept(0, 0, 1000))
    a.submit("pings", pings(1))
    for _ in range(100):
        raw.say(m.Reject(0, "no"), m.Reject(0, "no"), m.Retry(0), m.Retry(0), m.Accept(0, 0, 1000))
        network.run(0.01)
    outlet = a.hub.outlets["bridge"]
    assert outlet.owed_events == 1 and outlet.owed_bytes == 10
    answers = raw.say(m.Ack(0, 1, 1, 1000))
    assert not a.hub.owes and not any(isinstance(said, m.Reset) for said in answers)
    assert a.link("b").sessions == 1 and not a.hub.refused


@pytest.mark.parametrize("message", [m.Retry(9), m.Reject(9, "no")])
def test_words_about_a_channel_that_never_was_end_the_session(message: m.Message) -> None:
    _, a, raw = sender()
    raw.say(m.Welcome(1, "b", b"i" * 16, ""))
    raw.say(message)
    assert a.link("b").trouble == "peer b: this node has no channel 9"
    assert a.hub.refused == {"protocol": 1}


def test_rejected_channels_have_a_bound() -> None:
    _, b, raw, arrived = receiver()
    for start in range(0, 7000, 1000):
        raw.say(*(m.Open(n + 1, f"x{n}", "nobody", "", bytes(16), 1, 0) for n in range(start, start + 1000)))
    session = b.link("a").session
    assert session is not None and len(session._rejected) <= 5000
    raw.say(frame(1, 5))
    assert arrived == [5]


@pytest.mark.slow
def test_peer_with_a_bridge_of_the_same_name_has_nothing_of_others_forgotten() -> None:
    pair = Pair()
    pair.submit(1)
    pair.run()
    seen = pair.b.hub.delivery.seen("end")
    thief = Raw(pair.network, "thief")
    thief.hello("b")
    thief.say(m.Open(0, "bridge", "end", "", b"t" * 16, 1, 0), m.SchemaText(0, DESCRIPTION))
    thief.say(*(replace(frame(n + 1, 7), route=n.to_bytes(16), path=[1]) for n in range(10_100)))
    known = pair.b.hub.delivery.seen("end")["bridge"]
    assert seen["bridge"][0] in known and len(known) == 10_001
