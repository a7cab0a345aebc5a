"""The sockets of a node: what they ask of the system, by where their peer is."""

from __future__ import annotations

from pathlib import Path

import pytest
import zmq

from evflow.node.contact import Contact
from evflow.node.sockets import Sockets

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
