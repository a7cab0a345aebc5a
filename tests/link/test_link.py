"""A link's states by hand: two nodes back to back, or one node and a peer that says what it is told to."""

from __future__ import annotations

from pathlib import Path

import pytest
from msgspec.structs import replace

import evflow as ev
from evflow.engine.engine import Engine
from evflow.engine.topology import DROPPED
from evflow.net.link import messages as m
from evflow.net.link import outlet
from evflow.net.link.link import State
from tests.link.pair import (
    DESCRIPTION,
    Network,
    Pair,
    Peer,
    Ping,
    Raw,
    chain,
    frame,
    pings,
    receiver,
    sender,
)

# Handshake


def test_events_arrive_once_and_in_order_and_are_forgotten() -> None:
    pair = Pair()
    pair.submit(1, 2)
    pair.run()
    pair.submit(3)
    pair.run()
    assert pair.arrived == [1, 2, 3]
    assert not pair.a.hub.owes
    assert pair.a.link("b").state is pair.b.link("a").state is State.UP
    assert pair.outlet.owed_bytes == 0
    assert not pair.b.hub.refused and not pair.a.hub.refused


def test_hello_of_another_version_is_refused() -> None:
    network = Network()
    b = Peer(network, "b", chain([]))
    raw = Raw(network, "a")
    assert raw.hello("b", version=2) == [m.Refuse("node b speaks version 1 of the protocol, not 2")]
    assert b.hub.refused == {"other version": 1}
    assert not b.hub.links


@pytest.mark.parametrize("name", ["", "b", "x" * 256, "tcp://127.0.0.1:7000", "a\nb", "\x1b[2J"])
def test_hello_with_a_name_that_no_peer_has_is_refused(name: str) -> None:
    network = Network()
    b = Peer(network, "b", chain([]))
    raw = Raw(network, name)
    (answer,) = raw.hello("b")
    assert isinstance(answer, m.Refuse) and "is not a name that a peer" in answer.reason
    assert not b.hub.links


def test_hello_must_bear_the_name_of_the_key() -> None:
    network = Network()
    b = Peer(network, "b", chain([]))
    raw = Raw(network, "a")
    raw.dial("b")
    assert raw.end is not None and raw.end.other is not None
    b.port.names[raw.end.other] = "mallory"
    answers = raw.say(m.Hello(1, "a", b"i" * 16, ""))
    assert answers == [m.Refuse("it calls itself 'a', but has the key of 'mallory'")]


def test_welcome_of_another_name_or_version_ends_the_attempt() -> None:
    network, a, raw = sender()
    raw.say(m.Welcome(1, "c", b"i" * 16, ""))
    assert a.link("b").trouble == "the contact answered as 'c', expected 'b'"
    assert a.link("b").state is State.DOWN
    network.run(2)
    raw.say(m.Welcome(2, "b", b"i" * 16, ""))
    assert a.link("b").trouble == "it speaks version 2 of the protocol, this node 1"


def test_peer_that_refuses_is_asked_again_later() -> None:
    network, a, raw = sender()
    raw.say(m.Refuse("not now"))
    assert a.link("b").trouble == "refused: not now"
    network.run(3)
    assert isinstance(raw.heard[-1], m.Hello)
    raw.say(m.Welcome(1, "b", b"i" * 16, ""))
    assert a.link("b").state is State.UP


def test_message_without_a_session_is_answered_by_reset_but_reset_and_bye_by_nothing() -> None:
    network = Network()
    Peer(network, "b", chain([]))
    raw = Raw(network, "a")
    raw.dial("b")
    assert raw.say(m.Ping(1)) == [m.Reset("no session on this connection")]
    assert raw.say(m.Reset("x"), m.Bye("x")) == []


def test_both_dial_at_once_and_the_connection_of_the_lesser_name_stays() -> None:
    arrived: list[int] = []
    graph = chain(arrived)
    back = graph.source("back", Ping, on="b")
    back >> ev.Terminal(lambda event: arrived.append(-event.number), name="start", on="a")
    network = Network()
    a = Peer(network, "a", graph, {"b": "b"})
    b = Peer(network, "b", graph, {"a": "a"})
    a.submit("pings", pings(1))
    b.submit("back", pings(2))
    network.run(0.2)
    assert sorted(arrived) == [-2, 1]
    assert a.link("b").dialled and not b.link("a").dialled
    assert a.link("b").sessions == b.link("a").sessions == 1
    assert len(a.hub.connections) == len(b.hub.connections) == 1


# The session's end


def test_sender_resets_and_says_hello_on_the_same_connection() -> None:
    network, a, raw = sender()
    raw.say(m.Welcome(1, "b", b"i" * 16, ""))
    network.run(0.5)
    answers = raw.say(m.Reset("started anew"))
    assert answers == [m.Hello(*a.hub.greeting)]
    raw.say(m.Welcome(1, "b", b"j" * 16, ""))
    assert a.link("b").sessions == 2


def test_restarted_receiver_gets_what_was_not_safe_and_no_more() -> None:
    pair = Pair()
    pair.submit(1)
    pair.run()
    pair.b.kill()
    pair.submit(2)
    pair.b = Peer(pair.network, "b", pair.graph, seed=1)
    pair.network.run(10, 0.05)
    pair.submit(3)
    pair.run()
    assert pair.arrived == [1, 2, 3]
    assert not pair.a.hub.owes


def test_silent_peer_is_given_up_after_five_heartbeats() -> None:
    network, a, raw = sender()
    raw.say(m.Welcome(1, "b", b"i" * 16, ""))
    network.run(4.5, 0.5)
    assert a.link("b").state is State.UP
    network.run(1.5, 0.5)
    assert a.link("b").state is not State.UP
    assert a.link("b").trouble == "silent for more than 5 s"


def test_orderly_end_says_what_was_taken_in_and_bye() -> None:
    network, b, raw, arrived = receiver()
    raw.heard.clear()
    raw.port.send(raw.end, m.pack(frame(1, 5)))
    network.deliver()
    b.hub.finish(network.now)
    b.hub.close("the end", lambda *given: None)
    network.deliver()
    acks = [said for said in raw.heard if isinstance(said, m.Ack)]
    assert arrived == [5]
    assert (acks[-1].safe, acks[-1].consumed) == (1, 1)
    assert raw.heard[-1] == m.Bye("the end")


def test_bye_ends_the_session() -> None:
    _, b, raw, _ = receiver()
    raw.say(m.Bye("done"))
    assert b.link("a").state is State.DOWN
    assert b.link("a").trouble == "the peer has ended: done"


@pytest.mark.parametrize("message", [m.Welcome(1, "a", bytes(16), ""), m.Refuse("no")])
def test_message_that_cannot_come_within_a_session_ends_it(message: m.Message) -> None:
    _, b, raw, _ = receiver()
    (answer,) = raw.say(message)
    assert isinstance(answer, m.Reset) and "cannot come within a session" in answer.reason
    assert b.hub.refused == {"protocol": 1}
    assert b.link("a").state is State.DOWN


def test_hello_of_another_name_on_a_connection_ends_its_session() -> None:
    _, b, raw, _ = receiver()
    (answer,) = raw.say(m.Hello(1, "z", bytes(16), ""))
    assert isinstance(answer, m.Reset) and "a connection has one peer" in answer.reason
    assert "z" not in b.hub.links
    assert not b.hub.connections


def test_hello_again_begins_a_new_session_that_goes_on() -> None:
    _, b, raw, arrived = receiver()
    raw.say(frame(1, 5))
    answers = raw.say(m.Hello(1, "a", b"i" * 16, ""), m.Open(3, "bridge", "end", "", b"s" * 16, 1, 0))
    assert m.Accept(3, 1, 8 << 20) in answers
    raw.say(m.SchemaText(0, DESCRIPTION), frame(2, 6, channel=3))
    assert arrived == [5, 6]
    assert b.link("a").sessions == 2


# Channels


def test_unknown_stone_is_rejected_and_asked_for_again() -> None:
    network, a, raw = sender()
    raw.say(m.Welcome(1, "b", b"i" * 16, ""))
    a.submit("pings", pings(1))
    raw.say(m.Reject(0, "no such stone"))
    assert a.link("b").report()["trouble"] == "no such stone"
    network.run(1.2)
    assert any(isinstance(said, m.Open) for said in raw.heard)
    raw.say(m.Accept(0, 0, 100))
    assert raw.last(m.Data).events == 1
    assert not a.link("b").report()["trouble"]


def test_receiver_rejects_and_counts_a_stone_that_is_not_there() -> None:
    _, b, raw, _ = receiver()
    (answer,) = raw.say(m.Open(1, "other", "nobody", "", bytes(16), 1, 0))
    assert answer == m.Reject(1, "node b has no stone 'nobody' that others may send to; it has end")
    (answer,) = raw.say(m.Open(1, "other", "end", "left", bytes(16), 1, 0))
    assert answer == m.Reject(1, "node b has no stone 'end[left]' that others may send to")
    assert b.hub.refused == {"unknown stone": 2}


def test_reason_of_a_rejection_is_cut() -> None:
    _, _, raw, _ = receiver()
    (answer,) = raw.say(m.Open(1, "other", "\0" * 4096, "", bytes(16), 1, 0))
    assert isinstance(answer, m.Reject) and len(answer.reason) == 1000


@pytest.mark.parametrize("sequence", [0, 2, 1 << 62])
def test_frame_that_is_not_the_next_ends_the_session(sequence: int) -> None:
    _, b, raw, arrived = receiver()
    (answer,) = raw.say(frame(sequence, 5))
    assert answer == m.Reset(f"bridge 'bridge' of a: expected frame 1, found {sequence}")
    assert arrived == []
    assert b.link("a").state is State.DOWN


def test_frame_in_a_channel_that_is_not_open_ends_the_session() -> None:
    _, _, raw, _ = receiver()
    assert raw.say(frame(1, 5, channel=9)) == [m.Reset("peer a: a frame in channel 9, which is not open")]


def test_malformed_events_are_refused_counted_and_acknowledged() -> None:
    network, b, raw, arrived = receiver()
    bad = m.Data(0, 3, 0, 1, b"", [], m.NIL, b"\x91\x05")
    raw.say(frame(1, 5), frame(2, 6, events=1 << 62), bad, m.Data(0, 4, 77, 1, b"", [], m.NIL, b"\x91"))
    raw.say(frame(5, 7))
    network.run()
    assert arrived == [5, 7]
    assert b.hub.refused == {"malformed": 3}
    assert (raw.last(m.Ack).safe, raw.last(m.Ack).consumed) == (5, 5)


def test_released_blocks_are_told_once_and_in_order_however_many(monkeypatch: pytest.MonkeyPatch) -> None:
    network, b, raw, _ = receiver()
    blocks = list(range(2 * m.MOST_BLOCKS + 3))
    released = [blocks]
    monkeypatch.setattr(b.port, "released", lambda connection: released.pop() if released else [])
    network.run()
    told = [said.blocks for said in raw.heard if isinstance(said, m.Released)]
    assert list(map(len, told)) == [m.MOST_BLOCKS, m.MOST_BLOCKS, 3]
    assert [block for some in told for block in some] == blocks


def test_frame_without_its_events_or_in_memory_that_is_not_there_ends_the_session() -> None:
    for place, reason in ((None, "without its events"), ([1, 64, 4096], "there is none with this peer")):
        _, _, raw, _ = receiver()
        (answer,) = raw.say(m.Data(0, 1, 0, 1, b"", [], m.NIL, place))
        assert isinstance(answer, m.Reset) and reason in answer.reason


def test_acknowledgement_of_frames_that_were_never_sent_ends_the_session() -> None:
    for ack in (m.Ack(0, 0, 9, 100), m.Ack(0, 1, 0, 100), m.Ack(5, 0, 0, 0)):
        _, a, raw = sender()
        raw.say(m.Welcome(1, "b", b"i" * 16, ""), m.Accept(0, 0, 1000))
        a.submit("pings", pings(1))
        raw.say(ack)
        # Who has dialled hangs up, and begins anew later.
        assert a.link("b").state is State.DOWN and not a.hub.connections
        assert a.hub.refused == {"protocol": 1}
        assert a.hub.owes


def test_accept_of_frames_that_were_never_sent_ends_the_session() -> None:
    _, a, raw = sender()
    raw.say(m.Welcome(1, "b", b"i" * 16, ""), m.Accept(0, 1, 1000))
    assert a.link("b").trouble == "bridge 'bridge': the peer has 1 frames of 0"
    assert a.link("b").state is State.DOWN


def test_acknowledgement_that_falls_takes_nothing_back() -> None:
    _, a, raw = sender()
    raw.say(m.Welcome(1, "b", b"i" * 16, ""), m.Accept(0, 0, 15))
    for number in range(4):
        a.submit("pings", pings(number))
    answers = raw.say(m.Ack(0, 1, 1, 25))
    assert [said.sequence for said in answers if isinstance(said, m.Data)] == [1, 2, 3]
    a.submit("pings", pings(9))
    assert raw.say(m.Ack(0, 0, 0, 0), m.Ack(0, 1, 1, 40), m.Ack(0, 1, 1, 24)) == []
    assert a.hub.outlets["bridge"].meter.rate >= 0
    answers = raw.say(m.Ack(0, 1, 1, 41))
    assert [said.sequence for said in answers if isinstance(said, m.Data)] == [4]


def test_second_accept_changes_nothing() -> None:
    _, a, raw = sender()
    raw.say(m.Welcome(1, "b", b"i" * 16, ""), m.Accept(0, 0, 10))
    a.submit("pings", pings(1))
    a.submit("pings", pings(2))
    raw.say()
    assert raw.last(m.Data).sequence == 1
    assert raw.say(m.Accept(0, 0, 1 << 40)) == []
    answers = raw.say(m.Ack(0, 1, 1, 20))
    assert [said.sequence for said in answers if isinstance(said, m.Data)] == [2]


def test_credit_may_be_overshot_by_one_frame() -> None:
    _, a, raw = sender()
    raw.say(m.Welcome(1, "b", b"i" * 16, ""), m.Accept(0, 0, 25))
    for number in range(6):
        a.submit("pings", pings(number))
    answers = raw.say()
    # Events of 10 bytes: 0, 10 and 20 are less than 25.
    assert [said.sequence for said in answers if isinstance(said, m.Data)] == [1, 2, 3]
    answers = raw.say(m.Ack(0, 0, 1, 35))
    frames = [said for said in answers if isinstance(said, m.Data)]
    assert [(said.sequence, said.events) for said in frames] == [(4, 3)]


def test_no_more_than_so_many_frames_are_in_flight() -> None:
    _, a, raw = sender()
    raw.say(m.Welcome(1, "b", b"i" * 16, ""), m.Accept(0, 0, 1 << 40))
    for number in range(outlet.IN_FLIGHT + 5):
        a.submit("pings", pings(number))
    frames = [said for said in raw.say() if isinstance(said, m.Data)]
    assert len(frames) == outlet.IN_FLIGHT == 32


def test_sender_without_credit_is_given_up() -> None:
    pair = Pair(window=1 << 16)
    raw = Raw(pair.network, "raw")
    raw.hello("b")
    raw.say(m.Open(0, "x", "end", "", bytes(16), 1, 0), m.SchemaText(0, DESCRIPTION))
    pair.b.hub.stopped = True
    answers: list[m.Message] = []
    for sequence in range(1, 30):
        answers = raw.say(frame(sequence, *range(1000)))
        if answers and isinstance(answers[-1], m.Reset):
            break
    assert "more than it has credit for" in answers[-1].reason  # type: ignore[union-attr]
    # A frame has 10,000 bytes, and the seventh may be sent while 60,000 of 65,536 are used.
    assert sequence == 8
    queue = pair.b.hub.remote_inputs.over("raw", "x")[0].queue
    assert len(queue) == 7


def test_frames_without_events_do_not_fill_the_memory() -> None:
    _, b, raw, _ = receiver()
    b.hub.stopped = True
    empty = [m.Data(0, sequence, 0, 0, b"", [], m.NIL, b"") for sequence in range(1, 10_050)]
    answers = raw.say(*empty)
    assert any(isinstance(said, m.Reset) for said in answers)
    assert len(b.hub.remote_inputs.over("a", "bridge")[0].queue) == 128


# Sending again, duplicates


def test_frames_that_were_on_their_way_are_sent_again() -> None:
    pair = Pair()
    pair.submit(1)
    pair.run()
    pair.network.lose = lambda message: isinstance(message, m.Data)
    pair.submit(2)
    pair.submit(3)
    pair.run()
    pair.network.lose = lambda message: False
    pair.break_()
    pair.run(1)
    assert pair.arrived == [1, 2, 3]
    assert not pair.a.hub.owes


def test_frames_whose_acknowledgement_was_lost_are_not_handled_twice() -> None:
    pair = Pair()
    pair.run()
    pair.network.lose = lambda message: isinstance(message, m.Ack)
    pair.submit(1)
    pair.submit(2)
    pair.run()
    assert pair.arrived == [1, 2] and pair.a.hub.owes
    pair.network.lose = lambda message: False
    pair.break_()
    pair.run(1)
    assert pair.arrived == [1, 2]
    assert not pair.a.hub.owes


def test_restarted_sender_that_repeats_itself_is_recognised_by_tags() -> None:
    arrived: list[int] = []
    network = Network()
    b = Peer(network, "b", chain(arrived))
    for stream in (b"1" * 16, b"2" * 16):
        raw = Raw(network, "a")
        raw.hello("b", incarnation=stream)
        raw.say(m.Open(0, "bridge", "end", "", stream, 1, 0), m.SchemaText(0, DESCRIPTION))
        # The process that forwards was started anew, and was sent the same by the one before it.
        for sequence, path in enumerate(([4, 0], [4, 1], [5, 0]), 1):
            number = path[0] * 10 + path[1]
            raw.say(replace(frame(sequence, number), route=b"r" * 16, path=path))
    assert arrived == [40, 41, 50]
    assert b.hub.remote_inputs.over("a", "bridge")[0].duplicates == 3
    network.run()
    assert raw.last(m.Ack).safe == 3


def test_at_most_once_counts_what_was_lost_and_sends_it_not_again() -> None:
    pair = Pair(delivery="at_most_once")
    pair.submit(1)
    pair.run()
    pair.network.lose = lambda message: isinstance(message, m.Data)
    pair.submit(2, 3)
    pair.run()
    pair.network.lose = lambda message: False
    pair.break_()
    pair.run(1)
    pair.submit(4)
    pair.run()
    assert pair.arrived == [1, 4]
    assert pair.a.slots["bridge"].counts[DROPPED] == 2
    assert not pair.a.hub.owes


def test_at_most_once_acknowledges_a_frame_only_once_it_was_handled(monkeypatch: pytest.MonkeyPatch) -> None:
    """Should the receiver die meanwhile, its sender counts what was lost."""
    network, b, raw, arrived = receiver()
    raw.say(m.Open(1, "bridge", "end", "", b"l" * 16, 0, 0))
    run, consumed = Engine.run, list[int]()

    def run_long(engine: Engine) -> None:
        with b.hub.serving:
            for _ in range(2):
                network.now += 1.0
                b.hub.finish(network.now)
        said = [m.unpack(header) for _, header, _ in network.queue]
        consumed.append(max(ack.consumed for ack in said if isinstance(ack, m.Ack)))
        run(engine)

    monkeypatch.setattr(Engine, "run", run_long)
    raw.say(frame(1, 5, channel=1))
    raw.say(frame(2, 6, channel=1))
    assert consumed == [0, 1] and arrived == [5, 6]
    network.run()
    assert network.said(m.Ack, raw.port)[-1].consumed == 2


# Delivery


def test_frozen_stone_keeps_frames_unacknowledged() -> None:
    pair = Pair()
    pair.b.engine.freeze(pair.b.slots["end"])
    pair.submit(1)
    pair.run()
    assert pair.arrived == [] and pair.outlet.owed_events == 1
    # Nobody waits for it, since it may take for ever.
    assert pair.network.said(m.Held) and not pair.a.hub.owes
    pair.b.engine.unfreeze(pair.b.slots["end"])
    pair.b.engine.run()
    pair.run()
    assert pair.arrived == [1] and pair.outlet.owed_events == 0


def test_queue_stone_keeps_frames_unacknowledged_until_it_lets_them_go() -> None:
    code = "{ if (count(pings) == 2) { submit(0, pings[0]); discard(pings, 0); } }"
    pair = Pair(between=ev.Queue(code, inputs={"pings": Ping}, name="pairs", on="b"))
    pair.submit(1)
    pair.run()
    assert pair.arrived == [] and pair.outlet.owed_events == 1
    pair.submit(2)
    pair.run()
    assert pair.arrived == [1]
    assert pair.outlet.owed_events == 1


def test_storage_in_memory_keeps_frames_unacknowledged_and_in_a_file_not(tmp_path: Path) -> None:
    held = Pair(between=ev.Storage(10, name="store", on="b"))
    held.submit(1)
    held.run()
    assert held.outlet.owed_events == 1
    assert held.b.engine.send_stored(held.b.slots["store"], None) == 1
    held.b.engine.run()
    held.run()
    assert held.arrived == [1] and held.outlet.owed_events == 0

    filed = Pair(between=ev.Storage(10, path=tmp_path / "store", name="store", on="b"))
    filed.submit(1)
    filed.run()
    assert filed.arrived == [] and filed.outlet.owed_events == 0
    filed.b.engine.close()


def test_bridge_that_drops_events_keeps_no_more_than_its_limit() -> None:
    """What its receiver holds is kept; beyond the limit as much may wait, and the rest is dropped."""
    limit, events = 1 << 16, pings(*range(1000))
    pair = Pair(between=ev.Storage(1 << 20, name="store", on="b"), policy="drop oldest", limit=limit)
    for _ in range(40):
        pair.a.submit("pings", events)
        pair.run()
    assert pair.outlet.owed_bytes <= 2 * limit + events.size
    dropped, held = pair.a.slots["bridge"].counts[DROPPED], pair.b.slots["store"].queued
    assert held + pair.outlet.waiting.events + dropped == 40_000 and held and dropped


def test_what_a_receiver_has_lost_is_owed_until_it_holds_it_again() -> None:
    pair = Pair(between=ev.Storage(10, name="store", on="b"))
    pair.submit(1)
    pair.run()
    assert not pair.a.hub.owes
    pair.b.kill()
    pair.b = Peer(pair.network, "b", pair.graph, seed=1)
    pair.b.hub.downstream.close(["store"])
    pair.run(20)
    assert pair.network.said(m.Accept)[-1].received == 0 and pair.a.hub.owes
    pair.b.hub.downstream.open(["store"])
    pair.run()
    assert pair.b.slots["store"].queued == 1 and not pair.a.hub.owes


def test_frames_that_were_never_sent_cannot_be_held() -> None:
    _, a, raw = sender()
    raw.say(m.Welcome(1, "b", b"i" * 16, ""), m.Accept(0, 0, 1000), m.Held(0, 1))
    assert a.link("b").trouble == "bridge 'bridge': of 0 frames the peer holds 1"


def test_acknowledgement_waits_for_no_more_while_a_stone_is_closed() -> None:
    _, b, raw, arrived = receiver()
    assert raw.say(frame(1, 5)) == []
    b.hub.downstream.close(["other"])
    assert raw.say(frame(2, 6)) == [m.Ack(0, 1, 1, (8 << 20) + 10), m.Ack(0, 2, 2, (8 << 20) + 20)]
    b.hub.downstream.open(["other"])
    assert raw.say(frame(3, 7)) == []
    assert arrived == [5, 6, 7]
