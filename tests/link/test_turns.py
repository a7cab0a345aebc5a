"""Which frames a node takes in first where many have come, and when it looks after its links."""

from __future__ import annotations

import pytest

from evflow.net.link import messages as m
from tests.link.pair import DESCRIPTION, Network, Peer, Raw, chain
from tests.link.pair import frame as framed
from tests.link.test_regressions import Paths, ending, frame, node, tell


def test_a_frame_waits_for_one_frame_of_every_other_peer() -> None:
    arrived: list[int] = []
    network = Network()
    b = Peer(network, "b", chain(arrived))
    peers = {name: Raw(network, name) for name in ("crowd", "quiet")}
    for name, peer in peers.items():
        peer.hello("b")
        peer.say(m.Open(0, name, "end", "", name.encode().ljust(16), 1, 0), m.SchemaText(0, DESCRIPTION))

    with b.hub.serving:
        peers["crowd"].say(*[framed(1 + number, number) for number in range(30)])
        peers["quiet"].say(framed(1, 1000), framed(2, 1001))
        assert arrived == []
    b.hub.handle(network.now)

    assert [number for number in arrived if number < 1000] == list(range(30))
    assert arrived.index(1000) <= 1
    assert arrived.index(1001) <= 3


def test_what_was_taken_in_is_told_after_five_milliseconds_or_eight_frames() -> None:
    """No turn before does anything for the links."""
    seen: list[int] = []
    hub, wires = node(ending(seen), "B")
    due = hub.finish(1.0)
    wires.sent.clear()
    for sequence in range(1, 8):
        tell(hub, *frame(sequence, sequence), now=1.0)
        due = hub.finish(1.001)
    assert seen == [*range(1, 8)]
    assert due == pytest.approx(1.005)
    assert wires.sent == []
    due = hub.finish(1.005)
    assert [(ack.safe, ack.consumed) for ack in wires.take(m.Ack)] == [(7, 7)]
    assert due > 1.1
    for sequence in range(8, 16):
        tell(hub, *frame(sequence, sequence), now=1.006)
    hub.finish(1.006)
    assert [(ack.safe, ack.consumed) for ack in wires.take(m.Ack)] == [(15, 15)]


def test_a_journal_has_what_a_turn_has_handled_at_its_end() -> None:
    """Else a kill within the next five milliseconds would have it handled twice."""
    seen: list[int] = []
    journal = Paths({})
    hub, _ = node(ending(seen), "B", journal=journal)
    hub.finish(1.0)
    for sequence in (1, 2):
        tell(hub, *frame(sequence, sequence), now=1.0)
        hub.finish(1.0)
        assert journal.saved[-1] == (sequence,)


def test_who_waits_for_what_is_handled_hears_of_it_in_the_same_turn() -> None:
    called: list[str] = []
    hub, _ = node(ending([]), "B")
    hub.finish(1.0)
    hub.delivery.when_handled(lambda: called.append("handled"))
    hub.finish(1.0)
    assert called == ["handled"]
