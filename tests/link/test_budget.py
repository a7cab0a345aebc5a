"""The budget of a node: what peers may have there in memory, and that nobody stands still because of it."""

from __future__ import annotations

import msgpack
import msgspec
import pytest
from msgspec.structs import replace

import evflow as ev
from evflow.net.link import messages as m
from evflow.net.link.hub import Hub
from tests.link.pair import DESCRIPTION, Network, Peer, Ping, Raw, chain, frame, pings

MEMORY = 1 << 20
FRAME = 20 << 10


def events(size: int = FRAME) -> bytes:
    """Events of so many bytes, 10 each."""
    return bytes(pings(*range(1 << 20, (1 << 20) + size // 10)).to_bytes())


class Greedy(Raw):
    """A peer by hand that sends whatever its channels have credit for, and one frame beyond."""

    def __init__(self, network: Network, name: str, stone: str = "end") -> None:
        super().__init__(network, name)
        self.credit: dict[int, int] = {}
        self.sent: dict[int, list[int]] = {}
        self.stone = stone
        self.frames = 0
        self.hello("b")
        self.say(m.SchemaText(0, DESCRIPTION))

    def open(self, channels: int) -> None:
        """Opens so many channels."""
        first = len(self.sent)
        for channel in range(first, first + channels):
            self.sent[channel] = [0, 0]
            self.say(m.Open(channel, f"bridge {channel}", self.stone, "", channel.to_bytes(16, "big"), 1, 0))
            self._note()

    def _note(self) -> None:
        for said in self.heard:
            if isinstance(said, m.Accept | m.Ack):
                self.credit[said.channel] = said.credit
            elif isinstance(said, m.Reject):
                self.credit.pop(said.channel, None)
            assert not isinstance(said, m.Reset), said

    def pour(self, size: int = FRAME) -> None:
        """Sends on all channels until the credit is used up, at most 32 frames over each."""
        body = events(size)
        for channel, sent in self.sent.items():
            frames = []
            while sent[1] < self.credit.get(channel, 0) and len(frames) < 32:
                sent[0], sent[1] = sent[0] + 1, sent[1] + len(body)
                frames.append(m.Data(channel, sent[0], 0, len(body) // 10, b"", [], m.NIL, body))
            self.frames += len(frames)
            self.say(*frames)
            self._note()


def waiting(hub: Hub) -> int:
    """Bytes of events that wait, counted one by one."""
    return sum(
        len(a.batch.data.data) for i in hub.remote_inputs.all() for a in i.queue if a.batch is not None
    )


def test_what_one_peer_may_have_waiting_does_not_grow_with_its_channels() -> None:
    network = Network()
    b = Peer(network, "b", chain([]), memory=MEMORY)
    b.hub.stopped = True
    guest = Greedy(network, "guest")
    guest.open(200)
    guest.pour()
    assert guest.frames > 20
    assert waiting(b.hub) <= MEMORY
    assert b.hub.budget.used <= MEMORY
    assert not b.hub.refused


@pytest.mark.slow
def test_all_peers_together_have_no_more_than_the_budget_and_a_frame_each() -> None:
    network = Network()
    b = Peer(network, "b", chain([]), memory=MEMORY)
    b.hub.stopped = True
    for number in range(20):
        guest = Greedy(network, f"guest {number}")
        guest.open(20)
        guest.pour()
    # A peer may have a thirty-second part in frames beyond its credit, whatever the others have.
    assert waiting(b.hub) <= MEMORY + 20 * (MEMORY // 32)


def test_peer_with_one_channel_has_room_beside_one_that_has_taken_all_it_can() -> None:
    arrived: list[int] = []
    network = Network()
    b = Peer(network, "b", chain(arrived), memory=MEMORY)
    a = Peer(network, "a", chain([]), {"b": "b"})
    network.run()
    b.hub.stopped = True
    guest = Greedy(network, "guest")
    guest.open(100)
    guest.pour()
    a.submit("pings", pings(1, 2, 3))
    network.run()
    assert len(b.hub.remote_inputs.over("a", "bridge")[0].queue) == 1
    b.hub.stopped = False
    network.run()
    assert {1, 2, 3} < set(arrived)


def test_credit_is_given_again_when_what_waits_has_been_handled() -> None:
    network = Network()
    b = Peer(network, "b", chain([]), memory=MEMORY)
    guest = Greedy(network, "guest")
    guest.open(1)
    first = guest.credit[0]
    for _ in range(15):
        guest.pour()
    # All was handled at once: one channel has got far more than the budget by and by.
    assert guest.sent[0][1] > 3 * MEMORY
    assert first < MEMORY // 8
    assert b.hub.budget.used <= MEMORY // 2


@pytest.mark.slow
def test_credit_never_falls_within_a_session() -> None:
    network = Network()
    b = Peer(network, "b", chain([]), memory=MEMORY)
    guest = Greedy(network, "guest")
    guest.open(1)
    told = [guest.credit[0]]
    for number in range(15):
        b.hub.stopped = number % 3 == 0
        guest.pour()
        guest.open(3)
        told.append(guest.credit[0])
    assert told == sorted(told)


def test_event_larger_than_the_budget_arrives() -> None:
    arrived: list[int] = []
    network = Network()
    graph = ev.Graph()
    graph.source("pings", Blob, on="a") >> ev.Terminal(
        lambda e: arrived.append(len(e.data)), name="end", on="b"
    )
    Peer(network, "b", graph, memory=MEMORY)
    a = Peer(network, "a", graph, {"b": "b"})
    for _ in range(3):
        a.submit("pings", ev.EventBatch.from_events([Blob(data=bytes(3 * MEMORY))]))
    network.run(5.0)
    assert arrived == [3 * MEMORY] * 3
    assert not a.hub.owes


@pytest.mark.slow
def test_stone_that_takes_nothing_does_not_stop_the_other_channels_of_its_peer() -> None:
    arrived: list[int] = []
    network = Network()
    b = Peer(network, "b", chain(arrived), memory=MEMORY)
    b.hub.remote_inputs.enter("shut", b.slots["end"])
    guest = Greedy(network, "guest", "end")
    guest.open(200)
    b.hub.downstream.blocked = (  # type: ignore[method-assign]
        lambda slot, leaving=False, inlet=None: inlet is None or inlet.bridge != "bridge 199"
    )
    del guest.sent[199]
    guest.pour(40 << 10)
    assert waiting(b.hub) > MEMORY // 2
    guest.sent = {199: [0, 0]}
    for _ in range(10):
        guest.pour(200 << 10)
    assert guest.frames > 10 and len(arrived) >= 10 * (200 << 10) // 10
    assert not b.hub.refused


def test_frame_without_room_waits_at_its_sender_and_is_not_sent_again_and_again() -> None:
    arrived: list[int] = []
    network = Network()
    graph = ev.Graph()
    for number in range(60):
        graph.source(f"s{number}", Blob, on="a") >> ev.Terminal(
            lambda e: arrived.append(len(e.data)), name=f"t{number}", on="b"
        )
    b = Peer(network, "b", graph, memory=MEMORY)
    a = Peer(network, "a", graph, {"b": "b"})
    network.run()
    b.hub.stopped = True
    for number in range(60):
        a.submit(f"s{number}", ev.EventBatch.from_events([Blob(data=bytes(100_000))]))
    network.run(30.0, 0.1)
    assert waiting(b.hub) <= MEMORY
    sent = len(network.said(m.Data))
    assert sent <= 2 * 60
    b.hub.stopped = False
    network.run(30.0, 0.1)
    assert arrived == [100_000] * 60
    assert not a.hub.owes and not a.hub.refused and not b.hub.refused


@pytest.mark.parametrize("memory", [1 << 20, pytest.param(8 << 20, marks=pytest.mark.slow)])
def test_many_channels_carry_everything_through_a_small_budget(memory: int) -> None:
    arrived: list[int] = []
    network = Network()
    graph = ev.Graph()
    for number in range(64):
        graph.source(f"s{number}", Ping, on="a") >> ev.Terminal(
            lambda e: arrived.append(e.number), name=f"t{number}", on="b"
        )
    b = Peer(network, "b", graph, memory=memory)
    a = Peer(network, "a", graph, {"b": "b"})
    for start in range(0, 2000, 400):
        for number in range(64):
            a.submit(f"s{number}", pings(*range(start, start + 400)))
        network.run(0.05)
    network.run(5.0, 0.1)
    assert sorted(arrived) == sorted([*range(2000)] * 64)
    assert not a.hub.owes and not a.hub.refused and not b.hub.refused


def test_bytes_of_attributes_count() -> None:
    network = Network()
    b = Peer(network, "b", chain([]), memory=MEMORY)
    b.hub.stopped = True
    guest = Greedy(network, "guest")
    guest.open(30)
    rows = msgspec.Raw(msgpack.packb([["note", "s", None, ["x" * 50_000, "y"]]]))
    for channel in range(30):
        said = frame(1, 1, 2, channel=channel)
        guest.say(replace(said, attributes=rows))
    texts = [a for i in b.hub.remote_inputs.all() for a in i.queue]
    assert 5 < len(texts) <= 20


def test_used_and_most_are_told() -> None:
    network = Network()
    b = Peer(network, "b", chain([]), memory=MEMORY)
    assert (b.hub.budget.used, b.hub.budget.total) == (0, MEMORY)


class Blob(ev.Event):
    data: bytes
