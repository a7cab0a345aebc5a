"""Stones that are closed, that leave and that come, while a session goes on."""

from __future__ import annotations

from itertools import pairwise

import evflow as ev
from evflow.engine.topology import Slot
from evflow.net.link import messages as m
from evflow.net.link.link import State
from tests.link.pair import Network, Pair, Peer, Ping, frame, pings, receiver, sender
from tests.link.three import Three, relay, relayed


def test_closed_stone_takes_nothing_until_it_is_opened_as_often() -> None:
    pair = Pair()
    reach = pair.b.hub.downstream
    reach.close(["end"])
    reach.close(["end", "elsewhere"])
    pair.submit(1)
    pair.run()
    reach.open(["end"])
    pair.run()
    assert pair.arrived == [] and reach.blocked(pair.b.slots["end"])
    reach.open(["end", "elsewhere", "never closed"])
    pair.run()
    assert pair.arrived == [1] and not reach.blocked(pair.b.slots["end"])


def test_waiting_for_names_the_bridge_that_still_owes() -> None:
    network, a, b, arrived = relayed(ev.Split(name="split", on="b"))
    a.submit("pings", pings(1, 2))
    network.run()
    b.hub.downstream.close(["split"])
    a.submit("pings", pings(3))
    network.run()
    owed = "bridge 'onward' to c: 2 events wait; contact 'c': nobody is there"
    assert b.hub.waiting_for({"split"}, {"onward"}) == (
        f"stone 'split': what came from a has not been handled yet; {owed}"
    )
    assert b.hub.waiting_for((), {"onward"}) == owed
    assert b.hub.waiting_for({"other"}, {"other"}) == ""
    c = Peer(network, "c", relay(arrived, ev.Split(name="split", on="b")))
    network.run(5)
    assert b.hub.waiting_for({"split"}, {"onward"}) == ""
    # What is not taken in is not waited for: the sender has it.
    assert arrived == [1, 2] and a.hub.owes and c.slots


def test_waiting_for_leaves_out_what_stones_here_hold() -> None:
    network, a, b, _ = relayed(ev.Storage(10, name="held", on="b"))
    a.submit("pings", pings(1))
    network.run()
    assert b.hub.waiting_for({"held"}, {"onward"}) == "" and a.hub.outlets["bridge"].owed_events == 1
    b.engine.send_stored(b.slots["held"], None)
    b.engine.run()
    b.hub.finish(network.now)
    assert "bridge 'onward' to c: 1 event waits" in b.hub.waiting_for({"held"}, ())


def test_waiting_for_waits_until_it_is_known_what_was_lost() -> None:
    three = Three("at_most_once")
    three.network.lose = lambda message: isinstance(message, m.Data)
    three.submit(1)
    assert "bridge 'bridge' to b: frames are on their way" in three.a.hub.waiting_for((), {"bridge"})
    three.network.lose = lambda message: False
    three.a.link("b").down("broken", three.network.now)
    three.network.run(1)
    assert three.a.hub.waiting_for((), {"bridge"}) == ""


def test_stone_that_leaves_is_rejected_at_once_and_sent_to_when_it_comes_back() -> None:
    pair = Pair()
    pair.submit(1)
    pair.run()
    pair.b.hub.downstream.close(["end"])
    pair.submit(2)
    pair.submit(3)
    pair.network.settle()
    pair.b.hub.remote_inputs.leave("end", "it has moved")
    pair.b.hub.downstream.open(["end"])
    pair.network.settle()
    assert pair.outlet.state == "rejected" and pair.outlet.reason == "it has moved"
    assert pair.arrived == [1] and pair.outlet.owed_events == 2
    assert pair.b.hub.remote_inputs.all() == []
    before = pair.network.now
    pair.b.hub.remote_inputs.enter("end", pair.b.slots["end"])
    pair.network.settle()
    assert pair.network.now == before and pair.arrived == [1, 2, 3]
    pair.run()
    assert not pair.a.hub.owes
    assert pair.a.link("b").sessions == pair.b.link("a").sessions == 1


def test_last_word_of_a_stone_that_leaves_says_what_was_taken_in() -> None:
    network, b, raw, arrived = receiver()
    raw.heard.clear()
    raw.port.send(raw.end, m.pack(frame(1, 5)))
    network.deliver()
    b.hub.delivery.settle(b.hub.remote_inputs.all())
    b.hub.remote_inputs.leave("end", "it has moved")
    network.deliver()
    assert raw.heard == [m.Ack(0, 1, 1, (8 << 20) + 10), m.Reject(0, "it has moved")]
    b.hub.remote_inputs.leave("end", "twice")
    assert arrived == [5]


def test_frames_that_were_on_their_way_to_a_stone_that_left_are_dropped() -> None:
    _, b, raw, arrived = receiver()
    b.hub.remote_inputs.leave("end", "it has moved")
    assert raw.say(frame(1, 5), frame(2, 6)) == [m.Ack(0, 0, 0, 8 << 20), m.Reject(0, "it has moved")]
    assert arrived == [] and b.link("a").state is State.UP and not b.hub.refused
    b.hub.remote_inputs.enter("end", b.slots["end"])
    assert raw.say() == [m.Retry(0)]
    (accept,) = raw.say(m.Open(0, "bridge", "end", "", b"s" * 16, 1, 0))
    assert accept == m.Accept(0, 0, 8 << 20)
    raw.say(frame(1, 5))
    assert arrived == [5]
    # Nobody waits for it any more.
    b.hub.remote_inputs.enter("end", b.slots["end"])
    assert raw.say() == []


def test_closed_channel_is_not_invited_to_be_opened_again() -> None:
    _, b, raw, _ = receiver()
    b.hub.remote_inputs.leave("end", "it has moved")
    raw.say(m.Close(0))
    b.hub.remote_inputs.enter("end", b.slots["end"])
    assert raw.say() == []


def test_reject_in_the_midst_of_a_session_takes_back_what_was_sent() -> None:
    network, a, raw = sender()
    raw.say(m.Welcome(1, "b", b"i" * 16, ""), m.Accept(0, 0, 1000))
    for number in (1, 2, 3):
        a.submit("pings", pings(number))
    raw.say(m.Ack(0, 1, 2, 1000), m.Reject(0, "it has moved"))
    assert a.link("b").report()["trouble"] == "it has moved" and a.hub.outlets["bridge"].gone == 1
    network.run(0.05)
    assert raw.last(m.Open).gone == 1
    answers = raw.say(m.Accept(0, 0, 1000))
    assert [said.sequence for said in answers if isinstance(said, m.Data)] == [2, 3]


def test_rejected_channel_is_asked_for_quickly_and_then_more_seldom() -> None:
    network, a, raw = sender()
    raw.say(m.Welcome(1, "b", b"i" * 16, ""))
    asked: list[float] = []
    for _ in range(400):
        opens = [said for said in raw.heard if isinstance(said, m.Open)]
        raw.heard.clear()
        if opens:
            asked.append(network.now)
            raw.port.send(raw.end, m.pack(m.Reject(0, "not yet")))
        for number in [said.number for said in raw.heard if isinstance(said, m.Ping)]:
            raw.port.send(raw.end, m.pack(m.Pong(number)))
        network.run(0.01)
    waits = [later - sooner for sooner, later in pairwise(asked)]
    assert waits[0] < 0.06 and waits[1] > waits[0]
    assert max(waits) < 1.1 and waits[-1] > 0.9
    assert a.hub.links["b"].state is State.UP


def test_stone_in_place_of_one_of_its_name_takes_over_what_came() -> None:
    pair = Pair()
    pair.submit(1)
    pair.run()
    pair.b.hub.downstream.close(["end"])
    pair.submit(2)
    pair.run()
    later: list[int] = []
    slot = Slot("end", ev.Terminal(lambda event: later.append(event.number)))
    slot.arrivals = pair.b.slots["end"].arrivals
    pair.b.engine.open(slot)
    pair.b.engine.topology.slots["end"] = slot
    pair.b.engine.changed()
    pair.b.hub.remote_inputs.enter("end", slot)
    pair.b.hub.downstream.open(["end"])
    pair.run()
    pair.submit(3)
    pair.run()
    assert (pair.arrived, later) == ([1], [2, 3])
    assert not pair.network.said(m.Reject) and not pair.a.hub.owes


def test_stone_without_the_input_of_the_one_before_closes_its_channels() -> None:
    join = "{ while (count(left) > 0) { submit(0, left[0]); discard(left, 0); } }"
    arrived: list[int] = []
    graph = ev.Graph()
    queue = graph.add(ev.Queue(join, inputs={"left": Ping}, name="queue", on="b"))
    graph.source("pings", Ping, on="a") >> ev.Bridge(name="bridge", on="a") >> queue["left"]
    queue >> ev.Terminal(lambda event: arrived.append(event.number), name="end", on="b")
    network = Network()
    b, a = Peer(network, "b", graph), Peer(network, "a", graph, {"b": "b"})
    network.run()
    b.hub.remote_inputs.enter("queue", b.slots["end"])
    network.run()
    assert a.hub.outlets["bridge"].state == "rejected"
    assert a.hub.outlets["bridge"].reason == "node b has no stone 'queue[left]' that others may send to"


def test_what_a_stone_held_that_left_holds_nothing_back() -> None:
    pair = Pair(between=ev.Storage(10, name="store", on="b"))
    pair.submit(1)
    pair.run()
    assert pair.outlet.owed_events == 1
    del pair.b.engine.topology.slots["store"]
    pair.b.engine.changed()
    pair.run()
    assert pair.outlet.owed_events == 0


def test_what_a_stone_held_that_was_replaced_is_kept_until_the_new_one_lets_it_go() -> None:
    pair = Pair(between=ev.Storage(10, name="store", on="b"))
    pair.submit(1)
    pair.run()
    old, engine = pair.b.slots["store"], pair.b.engine
    slot = Slot("store", ev.Storage(10), old.ports, old.arrivals)
    engine.open(slot)
    held = engine.extract(old)
    engine.topology.slots["store"] = slot
    engine.changed()
    pair.b.hub.remote_inputs.enter("store", slot)
    for batch in held:
        engine.submit(slot, batch)
    engine.run()
    pair.run()
    assert pair.arrived == [] and pair.outlet.owed_events == 1
    engine.send_stored(slot, None)
    engine.run()
    pair.run()
    assert pair.arrived == [1] and pair.outlet.owed_events == 0
