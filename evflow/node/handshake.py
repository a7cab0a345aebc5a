"""Handshakes of connections that a node dials: whether the other side refuses, as ZeroMQ tells it."""

from __future__ import annotations

import errno
from itertools import count

import zmq
from zmq.utils.monitor import recv_monitor_message

__all__ = ["Handshake"]

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

_HUNG_UP = (errno.EPIPE, errno.ECONNRESET)

_MOST_BROKEN_OFF = 6
"""Handshakes in a row that the other side breaks off before its key is taken for another one. A node that
ends breaks off one, and one without keys some: on one host it may hang up before it has said what it is."""

_ONE_KEYED = {
    False: "it speaks only with nodes that have keys, and this end has none: make some with 'evflow keygen', "
    "and give keys=FOLDER and name=NAME",
    True: "it has no keys, and this end speaks only with nodes that have some: start it with keys=FOLDER, or "
    "leave out keys=FOLDER here",
}

_numbers = count()


def _other_key(expected: str) -> str:
    return (
        f"expected the node {expected!r} there, found one that breaks off the handshake, as a node does that "
        f"has another key than {expected}.pub here, or has no keys: is it the contact of another node? Then "
        f"give that of {expected!r}. Has {expected!r} a new key? Then copy its {expected}.pub here again"
    )


class Handshake:
    """What becomes of a handshake; watched until it has succeeded, or the connection is given up.

    Args:
        socket: the socket, before it is connected.
        key: the name of this end's key; None if it has none.
        expected: the node whose key the other side must prove; None if it need not prove any.

    Attributes:
        events: a socket at which there is something to read when something became of it.
    """

    def __init__(self, socket: zmq.Socket[bytes], key: str | None, expected: str | None) -> None:
        self._socket = socket
        self._key = key
        self._expected = expected
        self._broken_off = 0
        # An address of its own: one that was given up is not free at once.
        address = f"inproc://evflow-handshake-{next(_numbers)}"
        watched = _SUCCEEDED | _BROKEN_OFF | _PROTOCOL | _AUTH
        self.events: zmq.Socket[bytes] = socket.get_monitor_socket(watched, address)

    def outcome(self) -> str | None:
        """Why the other side refuses, "" if it does not; None if that is not known yet."""
        while self.events.poll(0):
            told = recv_monitor_message(self.events)
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
                self._broken_off += 1
                if self._broken_off == _MOST_BROKEN_OFF:
                    return _other_key(self._expected)
        return None

    def close(self) -> None:
        """Watches no longer; to be called before the socket is closed."""
        self._socket.disable_monitor()
        self.events.close()
