"""Handshakes of connections that a node dials: whether the other side refuses, as ZeroMQ tells it."""

from __future__ import annotations

from itertools import count

import zmq
from zmq.utils.monitor import recv_monitor_message

__all__ = ["Handshake"]

_SUCCEEDED, _PROTOCOL, _AUTH = (
    int(event)
    for event in (
        zmq.EVENT_HANDSHAKE_SUCCEEDED,
        zmq.EVENT_HANDSHAKE_FAILED_PROTOCOL,
        zmq.EVENT_HANDSHAKE_FAILED_AUTH,
    )
)

_NOT_ALLOWED = 400
"""What a gate says of a key that it does not let in."""

_ONE_KEYED = {
    False: "it speaks only with nodes that have keys, and this end has none: make some with 'evflow keygen', "
    "and give keys=FOLDER and name=NAME",
    True: "it has no keys, and this end speaks only with nodes that have some: start it with keys=FOLDER, or "
    "leave out keys=FOLDER here",
}

_numbers = count()


class Handshake:
    """What becomes of a handshake; watched until it has succeeded, or the connection is given up.

    Args:
        socket: the socket, before it is connected.
        key: the name of this end's key; None if it has none.

    Attributes:
        events: a socket at which there is something to read when something became of it.
    """

    def __init__(self, socket: zmq.Socket[bytes], key: str | None) -> None:
        self._socket = socket
        self._key = key
        # An address of its own: one that was given up is not free at once.
        address = f"inproc://evflow-handshake-{next(_numbers)}"
        self.events: zmq.Socket[bytes] = socket.get_monitor_socket(_SUCCEEDED | _PROTOCOL | _AUTH, address)

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
        return None

    def close(self) -> None:
        """Watches no longer; to be called before the socket is closed."""
        self._socket.disable_monitor()
        self.events.close()
