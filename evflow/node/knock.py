"""A knock at a contact: whether a node is there, and whether it has keys, which it says to anybody."""

from __future__ import annotations

from contextlib import suppress

import zmq

__all__ = ["Knock"]

# What begins each connection of ZMTP 3: a signature and a version. Who gets it says the rest of its own: the
# minor version, and then the name of its mechanism in 20 bytes.
_GREETING = b"\xff" + bytes(7) + b"\x01\x7f\x03"
_SIGNATURE = (0xFF, 0x7F)
_MECHANISM = slice(12, 32)
_MOST = 64


class Knock:
    """A connection that asks no more than who is there; it does not hold anybody up.

    Args:
        context: that of the other sockets.
        contact: where to knock.

    Raises:
        zmq.ZMQError: there cannot be such a connection.

    Attributes:
        socket: where there is something to read when more is known.
    """

    def __init__(self, context: zmq.Context[zmq.Socket[bytes]], contact: str) -> None:
        self.socket: zmq.Socket[bytes] = context.socket(zmq.STREAM)
        self._heard = b""
        self._said = False
        try:
            self.socket.set(zmq.LINGER, 0)
            self.socket.set(zmq.IPV6, int("[" in contact))
            self.socket.set(zmq.RECONNECT_IVL, -1)
            self.socket.connect(contact)
        except zmq.ZMQError:
            self.socket.close()
            raise

    def mechanism(self) -> str:
        """ "CURVE" of a node with keys, "NULL" of one without; "" while that is not known."""
        while len(self._heard) < _MOST and self.socket.poll(0):
            identity, data = self.socket.recv_multipart(zmq.NOBLOCK)
            self._heard += data
            # Without data it says that the connection is there, or gone.
            if not self._said:
                self._said = True
                with suppress(zmq.ZMQError):
                    self.socket.send_multipart((identity, _GREETING), zmq.NOBLOCK)
        heard = self._heard
        if len(heard) < _MECHANISM.stop or (heard[0], heard[9]) != _SIGNATURE:
            return ""
        return heard[_MECHANISM].rstrip(b"\0").decode("ascii", "replace")

    def close(self) -> None:
        """Ends the connection."""
        self.socket.close()
