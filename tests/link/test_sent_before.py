"""What was sent to a node before its process began, while it closes its stones for a change."""

from __future__ import annotations

from evflow.net.link import messages as m
from tests.link.pair import Pair, Peer, frame, receiver


def test_sender_says_what_it_had_sent_before_once_the_receiver_began_anew() -> None:
    pair = Pair()
    pair.b.hub.downstream.close(["end"])
    pair.submit(1)
    pair.run()
    pair.submit(2)
    pair.run()
    assert pair.network.said(m.Sent) == []
    pair.b.kill()
    Peer(pair.network, "b", pair.graph)
    pair.run(5)
    assert pair.network.said(m.Sent) == [m.Sent(0, 2)]
    assert pair.arrived == [1, 2] and not pair.a.hub.owes


def test_closed_stone_takes_what_was_sent_before_and_is_not_at_rest_until_then() -> None:
    _, b, raw, arrived = receiver()
    raw.say(m.Sent(0, 2))
    b.hub.downstream.close(["end"], repeating=["end"])
    assert b.hub.waiting_for({"end"}, ()) == "stone 'end': what a had sent before has not come again yet"
    raw.say(frame(1, 5))
    assert arrived == [5] and b.hub.waiting_for({"end"}, ())
    raw.say(frame(2, 6), frame(3, 7))
    assert arrived == [5, 6] and b.hub.waiting_for({"end"}, ()) == ""
    b.hub.downstream.open(["end"], repeating=["end"])
    raw.say(frame(4, 8))
    assert arrived == [5, 6, 7, 8]


def test_sealed_stone_takes_nothing_not_even_what_was_sent_before() -> None:
    _, b, raw, arrived = receiver()
    raw.say(m.Sent(0, 2))
    b.hub.downstream.close(["end"], repeating=["end"])
    b.hub.downstream.open((), repeating=["end"])
    raw.say(frame(1, 5))
    assert arrived == [] and b.hub.waiting_for({"end"}, ()) == ""


def test_stone_closed_twice_takes_what_was_sent_before_only_if_both_closings_allow_it() -> None:
    _, b, raw, arrived = receiver()
    b.hub.downstream.close(["end"])
    b.hub.downstream.close(["end"], repeating=["end"])
    raw.say(m.Sent(0, 1), frame(1, 5))
    assert arrived == []
    b.hub.downstream.open(["end"])
    raw.say(m.Sent(0, 1))
    assert arrived == [5]


def test_peer_that_has_gone_is_not_waited_for() -> None:
    network, b, raw, _ = receiver()
    raw.say(m.Sent(0, 2))
    b.hub.downstream.close(["end"], repeating=["end"])
    raw.say(m.Bye("it ends"))
    network.run()
    assert b.hub.waiting_for({"end"}, ()) == ""


def test_word_of_what_was_sent_in_a_channel_that_is_not_open_is_ignored() -> None:
    _, b, raw, arrived = receiver()
    raw.say(m.Sent(7, 3), frame(1, 5))
    assert arrived == [5] and not b.hub.refused
