"""Handshakes of connections that a node dials: whether the other side refuses, as ZeroMQ tells it."""

from __future__ import annotations

import errno
from collections.abc import Callable
from contextlib import suppress
from itertools import count

import zmq
from zmq.utils.monitor import recv_monitor_message

_SUCCEEDED, _BROKEN_OFF, _PROTOCOL, _AUTH = (
    int(event)
    for event in (
        zmq.EVENT_HANDSHAKE_SUCCEEDED,
        zmq.EVENT_HANDSHAKE_FAILED_NO_DETAIL,
        zmq.EVENT_HANDSHAKE_FAILED_PROTOCOL,
        zmq.EVENT_HANDSHAKE_FAILED_AUTH,
    )
)

_NOT_ALLOWED = 400
"""What a gate says of a key that it does not let in."""

_CURVE, _PLAIN = "CURVE", "NULL"
"""The mechanisms of nodes with keys and without."""

_HUNG_UP = (errno.EPIPE, errno.ECONNRESET)

_ONE_KEYED = {
    False: "it speaks only with nodes that have keys, and this end has none: make some with 'evflow keygen', "
    "and give keys=FOLDER and name=NAME",
    True: "it has no keys, and this end speaks only with nodes that have some: start it with keys=FOLDER, or "
    "leave out keys=FOLDER here",
}

# What begins each connection of ZMTP 3: a signature and a version. Who gets it says the rest of its own: the
# minor version, and then the name of its mechanism in 20 bytes.
_GREETING = b"\xff" + bytes(7) + b"\x01\x7f\x03"
_SIGNATURE = (0xFF, 0x7F)
_MECHANISM = slice(12, 32)
_MOST = 64

_numbers = count()


def _other_key(expected: str) -> str:
    return (
        f"expected the node {expected!r} there, found one that has another key than {expected}.pub here: is "
        f"it the contact of another node? Then give that of {expected!r}. Has {expected!r} a new key? Then "
        f"copy its {expected}.pub here again"
    )


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


class Handshake:
    """What becomes of a handshake; watched until it has succeeded, or the connection is given up.

    Args:
        socket: the socket, before it is connected.
        key: the name of this end's key; None if it has none.
        expected: the node whose key the other side must prove; None if it need not prove any.
        knock: makes a knock at the same contact.

    Attributes:
        sockets: there is something to read at one of them when something became of it.
    """

    def __init__(
        self, socket: zmq.Socket[bytes], key: str | None, expected: str | None, knock: Callable[[], Knock]
    ) -> None:
        self._socket = socket
        self._key = key
        self._expected = expected
        self._make_knock = knock
        self._knock: Knock | None = None
        # An address of its own: one that was given up is not free at once.
        address = f"inproc://evflow-handshake-{next(_numbers)}"
        watched = _SUCCEEDED | _BROKEN_OFF | _PROTOCOL | _AUTH
        self._events: zmq.Socket[bytes] = socket.get_monitor_socket(watched, address)
        self.sockets = [self._events]

    def outcome(self) -> str | None:
        """Why the other side refuses, "" if it does not; None if that is not known yet."""
        # Before what became of the handshake since.
        mechanism = "" if self._knock is None else self._knock.mechanism()
        while self._events.poll(0):
            told = recv_monitor_message(self._events)
            event, value = int(told["event"]), int(told["value"])
            if event == _SUCCEEDED:
                return ""
            if event == _AUTH and value == _NOT_ALLOWED:
                return (
                    f"it does not let in the key of {self._key}: its folder of keys needs {self._key}.pub, "
                    "as it is here now, and its allow=, if it has one, needs that name"
                )
            if event == _PROTOCOL and value == zmq.PROTOCOL_ERROR_ZMTP_MECHANISM_MISMATCH:
                return _ONE_KEYED[self._key is not None]
            if event == _BROKEN_OFF and value in _HUNG_UP and self._expected is not None:
                # A node with another key breaks off each time; one that ends, or a tunnel, is not there.
                if mechanism == _CURVE:
                    return _other_key(self._expected)
                self._knock_once()
        return _ONE_KEYED[True] if mechanism == _PLAIN else None

    def _knock_once(self) -> None:
        if self._knock is None:
            with suppress(zmq.ZMQError):
                self._knock = self._make_knock()
                self.sockets.append(self._knock.socket)

    def close(self) -> None:
        """Watches no longer; to be called before the socket is closed."""
        self._socket.disable_monitor()
        self._events.close()
        if self._knock is not None:
            self._knock.close()
