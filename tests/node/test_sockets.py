"""The sockets of a node: what they ask of the system, by where their peer is."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import zmq

from evflow.net.node.contact import Contact
from evflow.net.node.sockets import Sockets
from tests.node.processes import wait_for

BY_THE_SYSTEM = -1
"""What ZeroMQ has for a buffer whose size is the system's to choose."""


@pytest.mark.parametrize(
    ("host", "near"),
    [
        ("tcp://127.0.0.1", True),
        ("tcp://127.3.2.1", True),
        ("tcp://0.0.0.0", False),
        ("tcp://10.1.2.3", False),
        ("ipc://", False),
    ],
)
def test_only_what_goes_over_loopback_is_sent_through_a_small_buffer(
    host: str, near: bool, tmp_path: Path
) -> None:
    """Over a network with a long round trip it would bound what can be on its way."""
    sockets = Sockets(None, 5.0, shared_memory=False)
    path = str(tmp_path / "s") if host == "ipc://" else ""
    try:
        if host != "tcp://10.1.2.3":
            sockets.listen(Contact.parse(f"{host}{path or ':0'}", listening=True), False)
        if host != "tcp://0.0.0.0":
            sockets.dial("peer", f"{host}{path or ':7000'}")
        buffers = [socket.get(zmq.SNDBUF) for socket in (*sockets._listeners, *sockets._dialled.values())]
        assert buffers
        assert all((size != BY_THE_SYSTEM) == near for size in buffers)
    finally:
        sockets.close()


def test_message_of_many_parts_leaves_others_their_turn() -> None:
    sockets = Sockets(None, 1.0, shared_memory=False)
    contact = sockets.listen(Contact.parse("tcp://127.0.0.1:0", listening=True), secured=False)
    context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
    taken: list[tuple[bytes, Any]] = []
    turns = 0

    def take(connection: Any, header: Any, body: Any, now: float) -> None:
        taken.append((bytes(header), body))

    def turn() -> bool:
        nonlocal turns
        sockets.bell.look()
        sockets.receive(take, 0.0)
        turns += 1
        return len(taken) == 3

    try:
        with context.socket(zmq.DEALER) as flood:
            flood.connect(str(contact))
            flood.send(b"before")
            flood.send_multipart([b""] * 50_000)
            flood.send(b"behind")
            wait_for(turn, "the message behind the flood")
        assert taken == [(b"before", None), (b"", None), (b"behind", None)]
        # So many parts are not taken in one turn.
        assert turns >= 50_000 // (64 * 100)
    finally:
        context.term()
        sockets.close()


@pytest.mark.slow
@pytest.mark.skipif(sys.version_info[:2] == (3, 12), reason="3.12 begins no thread when Python ends")
def test_a_process_ends_though_pyzmq_cannot_stop_its_collector() -> None:
    program = """
import time
import evflow as ev
from zmq.utils.garbage import gc

ev.Node("here", "tcp://127.0.0.1:0").close()
gc.stop = lambda: time.sleep(1_000)
print("closed")
"""
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60)
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "closed\n", "")
