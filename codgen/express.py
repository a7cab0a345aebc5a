"""Machine code that sends events over a socket from where they are written, without Python.

Python goes from one thread to another after milliseconds only. An event that its own thread sends does not
wait for that.
"""

from __future__ import annotations

import ctypes
import socket
from ctypes import c_int64
from functools import cache
from typing import Any, NamedTuple

import numpy as np

from evflow.codgen.llvm.express_ir import MOST_FRAMES, WORDS, write_express
from evflow.codgen.memory import Array, address
from evflow.codgen.native import Native

__all__ = ["MOST", "MOST_FRAMES", "Express", "Head"]

MOST = 4 << 10
"""Bytes of events that a message has at most."""

_UNREAD = 4 << 10
"""Bytes that may wait unread in the socket, as the system counts them: some five small messages. Where more
do, the reader is busy, and is better served with many events at once."""

_AT = {name: number for number, name in enumerate(WORDS)}
_LEFT, _SENT, _LOOK, _WIDTH, _SEQUENCE, _FRAMES, _SOCKET = (
    _AT[name] for name in ("left", "sent", "look", "width", "sequence", "frames", "socket")
)


class Head(NamedTuple):
    """What a message begins with.

    Attributes:
        data: the bytes.
        sequence: where in them the message's number stands, in 8 bytes.
        events: where its number of events, in 4.
        size: where the size of the events, in 2.
    """

    data: bytes
    sequence: int
    events: int
    size: int


@cache
def _code() -> Native:
    # Links need Linux; elsewhere there is neither this module nor these flags.
    import termios

    flags = socket.MSG_DONTWAIT | socket.MSG_NOSIGNAL
    return Native(write_express(termios.TIOCOUTQ, flags), optimised=False)


def _address_of(name: str) -> int:
    """The address of a function of the C library, with which Python is linked."""
    return ctypes.cast(getattr(ctypes.pythonapi, name), ctypes.c_void_p).value or 0


class Express:
    """Sends events from where they are written, as messages of a socket that keeps messages apart.

    Attributes:
        address: of the words that the machine code is given; see ``express_ir``.
        lent: whether it may send now.
        head: what each message begins with; None until that is said.
        socket: the number of the socket that it sends over; -1 until that is said.
    """

    def __init__(self) -> None:
        words = np.zeros(len(WORDS) + MOST_FRAMES, np.int64)
        self.address = address(words)
        self.lent = False
        self._words: Any = (c_int64 * len(words)).from_buffer(words.data)
        self._code = _code()
        # As ``struct iovec`` twice, and ``struct msghdr``, of Linux.
        self._parts, self._message = np.zeros(4, np.int64), np.zeros(7, np.int64)
        self._message[2:4] = address(self._parts), 2
        self.head: Head | None = None
        self.socket = -1
        self._data: Array = np.zeros(0, np.uint8)
        self._set(
            function=self._code.address, most=MOST, unread=_UNREAD,
            ioctl=_address_of("ioctl"), sendmsg=_address_of("sendmsg"),
            message=address(self._message), parts=address(self._parts),
        )  # fmt: skip

    def _set(self, **values: int) -> None:
        for name, value in values.items():
            self._words[_AT[name]] = value

    def use(self, descriptor: int) -> None:
        """From now on it sends over this socket."""
        self._words[_SOCKET] = self.socket = descriptor

    def begin_with(self, head: Head) -> None:
        """From now on each message begins so."""
        self.head = head
        self._data = np.frombuffer(bytearray(head.data), np.uint8)
        start = address(self._data)
        self._parts[:2] = start, len(self._data)
        self._set(sequence_at=start + head.sequence, events_at=start + head.events, size_at=start + head.size)

    def load(self, sequence: int, frames: int) -> None:
        """Says which messages it may send: from which number on, and how many."""
        self._words[_SEQUENCE] = sequence
        self._words[_LEFT] = min(frames, MOST_FRAMES)

    def lend(self, start: int, width: int | None) -> None:
        """From now on it may send what is written from an address on, events of this width."""
        words = self._words
        words[_SENT], words[_LOOK], words[_WIDTH], words[_FRAMES] = start, 0, width or 0, 0
        self.lent = True

    def stop(self) -> None:
        """From now on it sends nothing more, until it is loaded anew."""
        self._words[_LEFT] = 0

    def settle(self) -> list[int]:
        """Gives how many events each message has that it has sent; to be called when it sends no more."""
        self.lent = False
        noted: list[int] = self._words[len(WORDS) : len(WORDS) + self._words[_FRAMES]]
        return noted
