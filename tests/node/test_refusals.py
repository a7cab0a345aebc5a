"""What a node refuses from strangers and from peers that break the protocol, beside a healthy peer."""

from __future__ import annotations

import json
import random
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgpack
import numpy as np
import pytest
import zmq

import evflow as ev
from evflow.net.node.keyfile import generate
from tests.node import graphs
from tests.node.graphs import Rec
from tests.node.processes import running, wait_for

STREAM = bytes(range(16))


class Rogue:
    """A peer that says whatever it likes to a node, and hears what comes back."""

    def __init__(self, context: zmq.Context[Any], contact: str) -> None:
        self._socket = context.socket(zmq.DEALER)
        self._socket.connect(contact)

    def send(self, *parts: bytes) -> None:
        """Sends bytes as they are."""
        self._socket.send_multipart(parts)

    def say(self, *fields: Any, body: bytes | None = None) -> None:
        """Sends a message of the protocol."""
        self.send(msgpack.packb(fields), *([] if body is None else [body]))

    def hear(self, number: int) -> list[Any]:
        """Waits for a message of that number; others are let go."""
        while self._socket.poll(10_000):
            fields = msgpack.unpackb(self._socket.recv())
            if fields[0] == number:
                return list(fields[1:])
        raise AssertionError(f"no message {number} came")

    def greet(self, name: str = "rogue") -> None:
        """Begins a session."""
        self.say(1, 1, name, STREAM, "")
        self.hear(2)

    def open(self, stone: str = "end", stream: bytes = STREAM) -> None:
        """Opens a channel to the terminal, and tells the schema of its events."""
        self.say(7, 0, "some bridge", stone, "", stream, 1, 0)
        self.hear(8)
        self.say(10, 0, json.dumps(Rec.schema.description))

    def data(self, sequence: int, events: int, body: bytes, channel: int = 0) -> None:
        """Sends a frame of events."""
        self.say(11, channel, sequence, 0, events, b"", [], None, None, body=body)


@contextmanager
def _node_with_a_healthy_peer() -> Iterator[tuple[ev.Node, list[int], ev.Flow, Rogue]]:
    """A node that others send to; a peer that does, whose flow submits to it; and a rogue."""
    seen: list[int] = []
    there = ev.Node("there", listen="tcp://127.0.0.1:0", heartbeat=5)
    here = ev.Node("here", peers={"there": there.contact}, heartbeat=5)
    graph = graphs.pair(seen)
    context: zmq.Context[Any] = zmq.Context()
    try:
        with running(graph, there), running(graph, here) as flow:
            yield there, seen, flow, Rogue(context, there.contact)
            assert here.links()["there"]["sessions"] == 1
    finally:
        context.destroy(linger=0)


def _stays_healthy(flow: ev.Flow, seen: list[int], start: int = 0) -> None:
    """The healthy peer's events arrive, all and once."""
    flow["recs"].submit_batch({"seq": np.arange(start, start + 1000)})
    flow.drain(10)
    assert [seq for seq in seen if seq >= 0] == list(range(start + 1000))


def test_random_bytes_are_refused_and_disturb_nobody() -> None:
    """Each message of a stranger that is none is counted; the peer beside it loses nothing."""
    randomness = random.Random(5)
    with _node_with_a_healthy_peer() as (node, seen, flow, rogue):
        _stays_healthy(flow, seen)
        for _ in range(300):
            parts = [
                randomness.randbytes(randomness.randrange(40)) for _ in range(randomness.randrange(1, 4))
            ]
            rogue.send(b"\xc1" + parts[0], *parts[1:])
        wait_for(lambda: node.refused.get("malformed") == 300, "300 messages that are counted")
        _stays_healthy(flow, seen, 1000)


def test_random_bytes_by_the_shortcut_are_refused_and_disturb_nobody() -> None:
    """Whoever takes the shortcut has a session, which ends with the first packet that is not a message."""
    randomness = random.Random(6)
    with _node_with_a_healthy_peer() as (node, seen, flow, rogue):
        for number in range(30):
            rogue.greet()
            name, token = rogue.hear(22)
            with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as shortcut:
                shortcut.settimeout(10)
                shortcut.connect("\0" + name)
                shortcut.send(token)
                rogue.say(23, True)
                sizes, count = ([0, 6], b"") if number % 3 else ([0, 7, 100, 9000], bytes(8))
                shortcut.send(count + b"\xc1" + randomness.randbytes(randomness.choice(sizes)))
                while msgpack.unpackb(shortcut.recv(10_000)[8:])[0] != 4:
                    pass
        _stays_healthy(flow, seen)
        assert node.refused == {"protocol": 30}


WRONG: dict[str, Callable[[Rogue], None]] = {
    "a frame in a channel that is not open": lambda rogue: rogue.data(1, 1, b"", channel=7),
    "an acknowledgement of a channel that is none": lambda rogue: rogue.say(12, 0, 1, 1, 1),
    "an acceptance of a channel that is none": lambda rogue: rogue.say(8, 0, 1, 1),
    "a rejection of a channel that is none": lambda rogue: rogue.say(9, 0, "no"),
    "a welcome within a session": lambda rogue: rogue.say(2, 1, "rogue", STREAM, ""),
    "bytes that are not a message": lambda rogue: rogue.send(b"\xc1"),
    "a message of no known number": lambda rogue: rogue.say(99),
    "a message with a field too few": lambda rogue: rogue.say(5),
    "a message with a field of another kind": lambda rogue: rogue.say(5, "one"),
    "a schema that is none": lambda rogue: rogue.say(10, 0, "{"),
    "a message of three parts": lambda rogue: rogue.send(msgpack.packb([5, 1]), b"", b""),
    "a shortcut to something else": lambda rogue: rogue.say(22, "/run/dbus", bytes(16)),
    "shared memory that is nowhere": lambda rogue: rogue.say(11, 0, 1, 0, 1, b"", [], None, [0, 0, 10]),
}


@pytest.mark.parametrize("what", WRONG)
def test_a_session_that_breaks_the_protocol_ends_and_is_counted(what: str) -> None:
    """The peer that did it is told; it may begin anew, and others do not notice."""
    with _node_with_a_healthy_peer() as (node, seen, flow, rogue):
        _stays_healthy(flow, seen)
        rogue.greet()
        rogue.open()
        WRONG[what](rogue)
        (reason,) = rogue.hear(4)
        assert reason
        wait_for(lambda: node.refused.get("protocol") == 1, "a refusal that is counted")
        wait_for(lambda: node.links()["rogue"]["state"] == "down", "the end of the session")
        rogue.greet()
        wait_for(lambda: node.links()["rogue"]["state"] == "up", "another session")
        _stays_healthy(flow, seen, 1000)


def test_messages_of_a_session_before_it_begins_are_answered_with_a_reset() -> None:
    with _node_with_a_healthy_peer() as (node, seen, flow, rogue):
        rogue.data(1, 1, b"")
        assert "no session" in rogue.hear(4)[0]
        _stays_healthy(flow, seen)
        assert "rogue" not in node.links()


def test_a_frame_of_malformed_events_costs_that_frame_only() -> None:
    """It is counted; the frames before and after it arrive, and the session goes on."""
    good = ev.EventBatch.from_columns(Rec.schema, {"seq": [-1, -2], "price": [0.0, 0.0]}).to_bytes()
    with _node_with_a_healthy_peer() as (node, seen, flow, rogue):
        rogue.greet()
        rogue.open()
        rogue.data(1, 2, good)
        rogue.data(2, 2, good[:-1])
        rogue.data(3, 3, good)
        rogue.data(4, 2, b"\xff" * len(good))
        rogue.data(5, 2, good)
        wait_for(lambda: seen.count(-1) == 2, "the frames that are good")
        _stays_healthy(flow, seen)
        assert node.refused == {"malformed": 3}
        assert node.links()["rogue"]["state"] == "up"


def test_frames_out_of_turn_end_the_session() -> None:
    with _node_with_a_healthy_peer() as (node, seen, flow, rogue):
        rogue.greet()
        rogue.open()
        rogue.data(5, 1, ev.EventBatch.from_columns(Rec.schema, {"seq": [-1], "price": [0.0]}).to_bytes())
        assert "expected frame 1, found 5" in rogue.hear(4)[0]
        _stays_healthy(flow, seen)
        assert node.refused == {"protocol": 1}


@pytest.mark.slow
def test_who_sends_more_than_it_has_credit_for_is_cut_off() -> None:
    """While the way on is blocked a node keeps a bounded amount of what a peer sends regardless."""
    seen: list[int] = []
    graph = graphs.chain(seen, ("first", "there", "nowhere"), limit=1 << 16)
    there = ev.Node(
        "there", listen="tcp://127.0.0.1:0", peers={"nowhere": "tcp://127.0.0.1:1"}, window=1 << 16
    )
    batch = ev.EventBatch.from_columns(Rec.schema, {"seq": np.arange(1000), "price": np.zeros(1000)})
    context: zmq.Context[Any] = zmq.Context()
    try:
        with running(graph, there, timeout=0.1):
            rogue = Rogue(context, there.contact)
            rogue.greet()
            rogue.open("at there")
            for sequence in range(1, 100):
                rogue.data(sequence, 1000, batch.to_bytes())
            assert "more than it has credit for" in rogue.hear(4)[0]
            wait_for(lambda: there.refused.get("protocol"), "a refusal that is counted")
    finally:
        context.destroy(linger=0)


def test_names_that_no_peer_can_have_are_refused() -> None:
    """The node's own, none at all, and one for a wrong version of the protocol."""
    with _node_with_a_healthy_peer() as (node, seen, flow, rogue):
        for version, name in ((1, "there"), (1, ""), (2, "rogue")):
            rogue.say(1, version, name, STREAM, "")
            assert rogue.hear(3)[0]
        assert node.refused == {"unauthorised": 2, "other version": 1}
        # The healthy peer may be there already.
        assert set(node.links()) <= {"here"}
        _stays_healthy(flow, seen)


def test_an_unknown_stone_and_an_unknown_input_are_refused_and_counted() -> None:
    with _node_with_a_healthy_peer() as (node, seen, flow, rogue):
        rogue.greet()
        for stone, input in (("nothing", ""), ("end", "nothing"), ("recs", "")):
            rogue.say(7, 0, "bridge", stone, input, STREAM, 1, 0)
            assert "no stone" in rogue.hear(9)[1]
        assert node.refused == {"unknown stone": 3}
        _stays_healthy(flow, seen)


@pytest.mark.slow
def test_a_peer_without_an_allowed_key_gets_nothing(tmp_path: Path) -> None:
    """Plain, with a key that nobody knows, and with one that is known and not allowed; a good key gets in."""
    there_keys, seen = tmp_path / "there", []
    folders = {name: tmp_path / name for name in ("good", "stranger", "barred")}
    generate(there_keys, "there")
    for name, folder in folders.items():
        generate(folder, name)
        (folder / "there.pub").write_bytes((there_keys / "there.pub").read_bytes())
        if name != "stranger":
            (there_keys / f"{name}.pub").write_bytes((folder / f"{name}.pub").read_bytes())
    there = ev.Node("there", listen="tcp://127.0.0.1:0", keys=there_keys, allow=["good"], heartbeat=0.5)
    with running(graphs.pair(seen, start="good"), there):
        refused = "it does not let in the key of"
        for name, keys, why in (
            ("stranger", folders["stranger"], f"{refused} stranger"),
            ("barred", folders["barred"], f"{refused} barred"),
            ("plain", None, "it speaks only with nodes that have keys"),
        ):
            node = ev.Node(name, peers={"there": there.contact}, keys=keys, heartbeat=0.5)
            with running(graphs.pair([], start=name), node, timeout=0.1) as flow:
                flow["recs"].submit(Rec(1))
                with pytest.raises(ev.FlowError, match=why):
                    flow.drain(1.5)
        node = ev.Node("good", peers={"there": there.contact}, keys=folders["good"], heartbeat=0.5)
        with running(graphs.pair([], start="good"), node) as flow:
            flow["recs"].submit(Rec(2))
            flow.drain(10)
        assert seen == [2]
        assert set(there.links()) == {"good"}


@pytest.mark.parametrize(
    "settings",
    [{"listen": "tcp://*:0"}, {"listen": "tcp://10.1.2.3:7000"}, {"peers": {"far": "tcp://10.1.2.3:1"}}],
)
def test_tcp_beyond_this_host_without_keys_is_refused_with_what_to_do(settings: dict[str, Any]) -> None:
    with pytest.raises(ev.LinkError, match=r"beyond this host.*evflow keygen.*keys=FOLDER.*plain=True"):
        ev.Node("here", **settings)


def test_plain_allows_tcp_beyond_this_host() -> None:
    node = ev.Node("here", listen="tcp://*:0", plain=True, peers={"far": "tcp://10.1.2.3:1"})
    assert node.contacts[0].startswith("tcp://*:")
    node.close()
