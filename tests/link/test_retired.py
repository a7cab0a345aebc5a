"""Bridges that end while their receiver holds events in memory: they stay the backup of these."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

import evflow as ev
from evflow.engine.topology import Crossing
from evflow.net.link import delivery
from evflow.net.link import messages as m
from evflow.net.link.link import State
from tests.link.pair import DESCRIPTION, Network, Pair, Peer, Ping, Raw, frame, pings, receiver, sender
from tests.link.three import relay

Given = list[tuple[str, list[int], str]]


class Stored(Pair):
    """Node a sends to a storage of b."""

    def __init__(self) -> None:
        super().__init__(ev.Storage(10, name="store", on="b"))
        self.given: Given = []

    def drop(self) -> None:
        self.a.hub.drop("bridge", lambda name, batch, why: self.given.append((name, _numbers(batch), why)))

    def again(self, peer: str = "b") -> None:
        """Another outlet of the bridge's name."""
        self.a.slots["bridge"].actor = None
        self.a.engine.topology.crossings["bridge"] = Crossing(peer, "store", "")
        self.a.engine.open(self.a.slots["bridge"])

    def restart(self) -> None:
        self.b.kill()
        self.b = Peer(self.network, "b", self.graph)
        self.run(20)

    def open(self) -> None:
        self.b.engine.send_stored(self.b.slots["store"], None)
        self.b.engine.run()
        self.run()

    def held(self) -> int:
        return self.b.slots["store"].queued


def _numbers(batch: ev.EventBatch) -> list[int]:
    return [int(number) for number in batch.column("number")]


def _gone(peer: Peer, stone: str) -> None:
    """A stone goes elsewhere with what it holds."""
    peer.engine.extract(peer.slots[stone])
    del peer.engine.topology.slots[stone]
    peer.engine.changed()


def test_bridge_that_has_ended_sends_again_what_its_receiver_has_lost() -> None:
    stored = Stored()
    stored.submit(1)
    stored.submit(2)
    stored.run()
    stored.drop()
    hub = stored.a.hub
    stored.run()
    assert stored.given == [] and not hub.outlets and not hub.owes and len(hub.retired) == 1
    assert stored.a.link("b").report()["waiting"] == 2
    assert not hub.downstream.outlets(stored.a.slots["pings"])
    stored.restart()
    assert stored.held() == 2 and not hub.owes
    stored.open()
    assert stored.arrived == [1, 2] and not hub.retired
    assert stored.network.said(m.Close) and stored.a.link("b").report()["waiting"] == 0
    assert [said.delivery for said in stored.network.said(m.Open)] == [1, 2, 2]


def test_bridge_that_has_ended_is_not_sent_again_what_was_not_lost() -> None:
    stored = Stored()
    stored.submit(1)
    stored.run()
    stored.drop()
    for _ in range(3):
        stored.break_()
        stored.run(5)
    assert stored.held() == 1 and len(stored.network.said(m.Data)) == 1
    stored.open()
    assert stored.arrived == [1] and not stored.a.hub.retired


def test_new_bridge_of_the_name_has_a_channel_beside_the_one_that_has_ended() -> None:
    stored = Stored()
    for number in (1, 2, 3):
        stored.submit(number)
        stored.run()
        stored.drop()
        stored.again()
    stored.submit(4)
    stored.run()
    stored.break_()
    stored.run(5)
    assert stored.held() == 4 and len(stored.a.hub.retired) == 3
    assert len(stored.b.hub.remote_inputs.over("a", "bridge")) == 4
    stored.restart()
    assert stored.held() == 4
    stored.open()
    assert sorted(stored.arrived) == [1, 2, 3, 4] and not stored.a.hub.retired
    stored.submit(5)
    stored.run()
    stored.open()
    assert stored.arrived[4:] == [5] and len(stored.b.hub.remote_inputs.all()) == 1


def test_only_what_is_held_is_kept_when_a_bridge_ends() -> None:
    stored = Stored()
    stored.submit(1)
    stored.run()
    stored.b.hub.downstream.close(["store"])
    stored.submit(2)
    stored.run()
    stored.submit(3)
    stored.drop()
    assert [numbers for _, numbers, _ in stored.given] == [[2], [3]]
    assert stored.outlet.owed_events == 1 and stored.outlet.owed_bytes == 10


def test_bridge_that_keeps_nothing_is_forgotten_at_once() -> None:
    pair = Pair(ev.Storage(10, name="store", on="b"), delivery="at_most_once")
    pair.submit(1)
    pair.run()
    pair.a.hub.drop("bridge", lambda *given: None)
    assert not pair.a.hub.retired and pair.b.slots["store"].queued == 1


def test_stone_that_leaves_with_what_it_holds_ends_what_is_kept_for_it() -> None:
    stored = Stored()
    stored.submit(1)
    stored.run()
    stored.drop()
    stored.run()
    stored.b.hub.downstream.close(["store"])
    _gone(stored.b, "store")
    stored.b.hub.remote_inputs.leave("store", "it has moved")
    # At once, before the sender asks again.
    stored.network.settle()
    assert not stored.a.hub.retired and stored.given == []


def test_who_was_away_when_the_stone_left_hears_of_it_later() -> None:
    stored = Stored()
    stored.submit(1)
    stored.run()
    stored.b.hub.downstream.close(["store"])
    _gone(stored.b, "store")
    stored.network.lose = lambda message: True
    stored.b.hub.remote_inputs.leave("store", "it has moved")
    stored.network.settle()
    stored.drop()
    stored.network.lose = lambda message: False
    assert len(stored.a.hub.retired) == 1
    stored.run(20)
    assert not stored.a.hub.retired and stored.given == [] and not stored.b.hub.refused


def test_stone_that_was_given_up_is_followed() -> None:
    stored = Stored()
    stored.submit(1)
    stored.run()
    stored.drop()
    stored.run()
    _gone(stored.b, "store")
    stored.b.hub.remote_inputs.leave("store", "it was given up")
    stored.run()
    assert len(stored.a.hub.retired) == 1 and stored.a.hub.owes
    assert stored.a.link("b").report()["trouble"]
    arrived: list[int] = []
    c = Peer(stored.network, "c", _behind("bridge", "c", arrived))
    c.hub.remote_inputs.enter("store", c.slots["end"])
    stored.a.hub.peer("c", "c")
    stored.a.hub.retired.follow("elsewhere", "c")
    stored.a.hub.retired.follow("store", "c")
    stored.a.hub.retired.follow("store", "c")
    stored.run(20)
    assert c.slots["end"].queued == 1 and not stored.a.hub.owes
    assert "b" not in stored.a.hub.links or not stored.a.link("b").outlets


def test_what_nobody_takes_for_an_hour_is_given_up() -> None:
    stored = Stored()
    stored.submit(1)
    stored.run()
    stored.drop()
    stored.run()
    _gone(stored.b, "store")
    stored.b.hub.remote_inputs.leave("store", "it was given up")
    stored.network.run(3500, 0.5)
    assert len(stored.a.hub.retired) == 1 and not stored.given
    stored.network.run(110, 0.5)
    ((bridge, numbers, why),) = stored.given
    assert (bridge, numbers) == ("bridge", [1]) and not stored.a.hub.retired
    assert why == (
        "the bridge was taken away, and node b has not got what it held; "
        "node b has no stone 'store' that others may send to; it has none"
    )


def test_stone_that_is_led_to_from_its_own_node_only_still_has_its_backup() -> None:
    stored = Stored()
    stored.submit(1)
    stored.run()
    # The receiver changes before the sender.
    stored.b.hub.remote_inputs.leave("store", "it is led to from this node only")
    stored.run()
    assert stored.outlet.state == "rejected"
    stored.drop()
    stored.run(3)
    assert stored.held() == 1 and len(stored.a.hub.retired) == 1 and not stored.a.hub.owes
    # One that lives in the new graph has no such entrance.
    stored.b.kill()
    stored.b = Peer(stored.network, "b", stored.graph)
    stored.b.hub.remote_inputs.begin({})
    stored.run(20)
    assert stored.held() == 1
    stored.again()
    stored.run()
    assert "has no stone 'store'" in stored.a.hub.outlets["bridge"].reason
    stored.open()
    assert stored.arrived == [1] and not stored.a.hub.retired


def test_stone_that_stayed_for_a_while_ends_what_is_kept_for_it_when_it_goes() -> None:
    stored = Stored()
    stored.submit(1)
    stored.run()
    stored.drop()
    stored.run()
    stored.b.hub.remote_inputs.leave("store", "it is led to from this node only")
    stored.run()
    assert len(stored.a.hub.retired) == 1 and stored.a.link("b").outlets
    _gone(stored.b, "store")
    stored.run()
    assert not stored.a.hub.retired and not stored.b.hub.remote_inputs.all()


def test_stone_that_comes_back_knows_what_it_had() -> None:
    stored = Stored()
    stored.submit(1)
    stored.run()
    stored.drop()
    stored.run()
    hub, slot = stored.b.hub, stored.b.slots["store"]
    seen = hub.delivery.seen("store")
    del stored.b.engine.topology.slots["store"]
    hub.remote_inputs.leave("store", "it was given up")
    stored.run()
    hub.delivery.learn("store", seen)
    stored.b.engine.topology.slots["store"] = slot
    stored.b.engine.changed()
    hub.remote_inputs.enter("store", slot)
    stored.run(2)
    assert stored.held() == 1 and len(stored.a.hub.retired) == 1
    stored.open()
    assert stored.arrived == [1] and not stored.a.hub.retired


def test_frames_of_nodes_before_stay_owed_while_what_they_led_to_is_held() -> None:
    arrived: list[int] = []
    network, graph = Network(), relay([], ev.Split(name="split", on="b"))
    c = Peer(network, "c", _behind("onward", "c", arrived))
    b = Peer(network, "b", graph, {"c": "c"})
    a = Peer(network, "a", graph, {"b": "b"})
    a.submit("pings", pings(1))
    network.run()
    b.hub.drop("onward", lambda *given: None)
    network.run()
    outlet = a.hub.outlets["bridge"]
    assert outlet.owed_events == 1 and not a.hub.owes and not b.hub.waiting_for({"split"}, ())
    c.engine.send_stored(c.slots["end"], None)
    c.engine.run()
    network.run()
    assert arrived == [1] and outlet.owed_events == 0 and not b.hub.retired


def _retiring(between: ev.Stone) -> tuple[Network, Peer, Peer, Raw]:
    """Node b with the stone "between", which a peer by hand sends to; c holds what comes of that."""
    network, graph = Network(), relay([], between)
    graph.insert(ev.Filter("input.number == 1", name="ones"), after="between", before="onward")
    c = Peer(network, "c", _behind("onward", "c", []))
    b = Peer(network, "b", graph, {"c": "c"})
    raw = Raw(network, "a")
    raw.hello("b")
    raw.say(m.Open(0, "bridge", "between", "", b"s" * 16, 1, 0), m.SchemaText(0, DESCRIPTION))
    return network, b, c, raw


def _safe(network: Network, raw: Raw) -> dict[int, int]:
    """By channel, up to which frame the peer by hand was told that it may forget them."""
    return {said.channel: said.safe for said in network.said(m.Ack, raw.port) if said.safe}


def _release(network: Network, peer: Peer, stone: str, count: int | None = None) -> None:
    peer.engine.send_stored(peer.slots[stone], count)
    peer.engine.run()
    network.run()


def test_frame_that_comes_again_stays_owed_while_what_it_led_to_is_held() -> None:
    network, b, c, raw = _retiring(ev.Split(name="between", on="b"))
    raw.say(frame(1, 1))
    network.run()
    b.hub.drop("onward", lambda *given: None)
    network.run()
    assert len(b.hub.retired) == 1
    raw.say(m.Open(1, "bridge", "between", "", b"t" * 16, 1, 0), m.SchemaText(1, DESCRIPTION))
    raw.say(replace(frame(1, 1, channel=1), route=b"s" * 16, path=[1]))
    network.run()
    assert c.slots["end"].queued == 1 and not _safe(network, raw)
    _release(network, c, "end")
    assert _safe(network, raw) == {0: 1, 1: 1}


def test_frame_that_a_stone_let_go_in_part_stays_owed_while_that_part_is_held() -> None:
    """What the stone holds leads to no other bridge, once one has ended."""
    network, b, c, raw = _retiring(ev.Storage(10, name="between", on="b"))
    raw.say(frame(1, 1, 2))
    _release(network, b, "between", 1)
    b.hub.drop("onward", lambda *given: None)
    _release(network, b, "between")
    assert (b.slots["between"].queued, c.slots["end"].queued) == (0, 1) and not _safe(network, raw)
    _release(network, c, "end")
    assert _safe(network, raw) == {0: 1}


def _behind(bridge: str, node: str, arrived: list[int]) -> ev.Graph:
    """A bridge to the storage "end" on a node, and what handles its events there."""
    graph = ev.Graph()
    store = (
        graph.source("pings", Ping, on="x")
        >> ev.Bridge(name=bridge, on="x")
        >> ev.Storage(10, name="end", on=node)
    )
    store >> ev.Terminal(lambda event: arrived.append(event.number), name="last", on=node)
    return graph


def test_bridges_wait_while_too_many_that_have_ended_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    stored = Stored()
    stored.submit(1)
    stored.run()
    stored.drop()
    stored.again()
    stored.submit(2)
    stored.run()
    assert stored.a.hub.waiting_for((), {"bridge"}) == ""
    monkeypatch.setattr(delivery, "_MOST_ALIKE", 1)
    assert stored.a.hub.waiting_for((), {"bridge"}) == (
        "bridge 'bridge' to b: it has ended 1 times while b holds events; so many may be kept"
    )
    monkeypatch.setattr(delivery, "MOST_RETIRED", 1)
    assert stored.a.hub.waiting_for((), {"bridge"}) == (
        "bridge 'bridge' to b: 1 bridges have ended while their receivers hold events; so many may be kept"
    )
    stored.drop()
    assert len(stored.a.hub.retired) == 1 and stored.given == []


def test_end_of_a_node_gives_up_nothing_that_is_held_for_bridges_that_have_ended() -> None:
    stored = Stored()
    stored.submit(1)
    stored.run()
    stored.drop()
    stored.run()
    given: list[int] = []
    stored.a.hub.close("it has ended", lambda bridge, batch, why: given.append(len(batch)))
    assert given == [] and stored.a.link("b").state is State.DOWN


def test_drain_waits_while_what_was_lost_is_sent_again() -> None:
    stored = Stored()
    stored.submit(1)
    stored.run()
    stored.drop()
    stored.b.kill()
    stored.run(5)
    assert stored.a.hub.owes and "1 event waits" in stored.a.hub.troubles()[0]
    called: list[str] = []
    stored.a.hub.delivery.when_handled(lambda: called.append("handled"))
    stored.a.hub.delivery.when_safe(stored.a.slots["pings"], lambda: called.append("safe"))
    stored.run()
    assert not called
    stored.b = Peer(stored.network, "b", stored.graph)
    stored.run(20)
    assert called == ["handled"] and not stored.a.hub.owes
    stored.open()
    assert called == ["handled", "safe"]


def test_bridge_that_has_ended_gets_to_stones_but_not_to_bridges() -> None:
    _, b, raw, _ = receiver()
    b.hub.remote_inputs.leave("end", "it is led to from this node only")
    open_ = m.Open(1, "bridge", "end", "", b"e" * 16, 1, 0)
    assert isinstance(raw.say(open_)[-1], m.Reject)
    assert raw.say(replace(open_, delivery=m.ENDED)) == [m.Accept(1, 0, 8 << 20)]
    assert isinstance(raw.say(replace(open_, channel=2, stone="nowhere", delivery=m.ENDED))[-1], m.Reject)
    _, a, raw = sender()
    raw.say(m.Welcome(1, "b", b"i" * 16, ""), m.SchemaText(0, DESCRIPTION))
    answers = raw.say(m.Open(0, "x", "bridge", "", bytes(16), m.ENDED, 0))
    assert any(isinstance(said, m.Reject) for said in answers) and a.hub.refused == {"unknown stone": 1}


def test_later_frame_of_a_route_that_was_safe_before_stays_in_the_journal() -> None:
    network, b, raw, arrived = receiver()
    route = b"r" * 16
    raw.say(m.Open(1, "bridge", "end", "", b"t" * 16, 1, 0))
    raw.say(replace(frame(1, 5), route=route, path=[9]))
    raw.say(replace(frame(1, 6, channel=1), route=route, path=[3]))
    raw.say(replace(frame(2, 7), route=route, path=[10]), frame(2, 8, channel=1))
    network.run()
    known = {route: (path, safe) for route, path, safe in b.hub.delivery.seen("end")["bridge"]}
    assert known == {route: ((10,), (10,)), b"s" * 16: ((2,), (2,)), b"t" * 16: ((2,), (2,))}
    assert arrived == [5, 7, 8]
