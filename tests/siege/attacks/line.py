"""A raw ZeroMQ connection to a node, by somebody whose key it knows."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import msgpack
import zmq

from evflow.net.node.keyfile import key_paths, read_secret
from tests.siege.hostile import Foe

__all__ = ["ACCEPT", "ACK", "HELLO", "REJECT", "WELCOME", "Line", "packed"]

HELLO, WELCOME, ACCEPT, REJECT, ACK = 1, 2, 8, 9, 12
_WAIT_MS = 1000

_context: zmq.Context[Any] = zmq.Context()


def packed(*fields: Any) -> bytes:
    """A header."""
    return bytes(msgpack.packb(list(fields)))


class Line:
    """A DEALER that is connected to the foe's target.

    Args:
        foe: whose it is; what is said is counted there.
        session: whether to say hello at once, and wait for the welcome.
    """

    def __init__(self, foe: Foe, session: bool = True) -> None:
        self._foe = foe
        self._socket = _context.socket(zmq.DEALER)
        self._socket.set(zmq.LINGER, _WAIT_MS)
        self._socket.set(zmq.SNDTIMEO, _WAIT_MS)
        self._socket.set(zmq.SNDHWM, 100)
        self._socket.set(zmq.RCVHWM, 10)
        folder = Path(foe.keys)
        secret = read_secret(folder, foe.name)
        self._socket.curve_secretkey = secret.encode()
        self._socket.curve_publickey = zmq.curve_public(secret.encode())
        public = key_paths(folder, foe.target)[1].read_text().splitlines()[-1]
        self._socket.curve_serverkey = public.encode()
        self._socket.connect(foe.contact)
        self.is_welcome = session and self.greet()

    def greet(self, name: str | None = None) -> bool:
        """Says hello; whether a welcome came."""
        self.say(packed(HELLO, 1, self._foe.name if name is None else name, os.urandom(16), ""))
        return any(message[0] == WELCOME for message in self.hear(_WAIT_MS, 1))

    def say(self, *parts: bytes) -> bool:
        """Sends a message; False if the node takes no more now, or the time is over."""
        if not self._foe.left:
            return False
        try:
            self._socket.send_multipart(list(parts), copy=sum(map(len, parts)) < 1 << 16)
        except zmq.Again:
            self._foe.done["held up"] += 1
            return False
        self._foe.done["messages"] += 1
        self._foe.done["bytes"] += sum(map(len, parts))
        return True

    def hear(self, wait_ms: int = 0, most: int = 100) -> list[list[Any]]:
        """What the node has said, as far as it can be read."""
        heard = []
        while len(heard) < most and self._socket.poll(wait_ms):
            parts = self._socket.recv_multipart()
            heard.append(msgpack.unpackb(parts[0]))
        return heard

    def close(self) -> None:
        """Leaves without a word."""
        self._socket.close()
