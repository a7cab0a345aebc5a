"""Which frames a node takes in first, where several peers have sent many."""

from __future__ import annotations

from evflow.net.link import messages as m
from tests.link.pair import DESCRIPTION, Network, Peer, Raw, chain, frame


def test_a_frame_waits_for_one_frame_of_every_other_peer() -> None:
    arrived: list[int] = []
    network = Network()
    b = Peer(network, "b", chain(arrived))
    peers = {name: Raw(network, name) for name in ("crowd", "quiet")}
    for name, peer in peers.items():
        peer.hello("b")
        peer.say(m.Open(0, name, "end", "", name.encode().ljust(16), 1, 0), m.SchemaText(0, DESCRIPTION))

    with b.hub.serving:
        peers["crowd"].say(*[frame(1 + number, number) for number in range(30)])
        peers["quiet"].say(frame(1, 1000), frame(2, 1001))
        assert arrived == []
    b.hub.handle(network.now)

    assert [number for number in arrived if number < 1000] == list(range(30))
    assert arrived.index(1000) <= 1
    assert arrived.index(1001) <= 3
