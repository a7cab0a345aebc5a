"""A shortcut: small messages between two processes of one host go over a socket of the system's own.

ZeroMQ hands each message to a thread of its own on either side; a socket wakes the reader at once. Both carry
messages of one connection, which have to be taken in the order in which they were sent. So a message in the
shortcut says how many went over the connection before it, from the one on that told of the shortcut, and
waits for these; and before one of the connection is taken, all is taken that had gone into the shortcut
before it. What is large or finds no room goes over the connection: a shortcut holds no more than the system
lets it, and nobody waits for room.

Who was dialled offers a name at which he listens, and a token. Who dialled connects, shows the token, and
then says over the connection that he has. The name is an abstract one: a killed process leaves no file.
"""

from __future__ import annotations

import ctypes
import logging
import re
import secrets
import socket
import struct
from ctypes import get_errno
from errno import EAGAIN, ECONNRESET

from evflow.codgen.express import Express
from evflow.errors import LinkError

MOST = 8 << 10
"""Bytes of the largest message that takes a shortcut."""

_COUNT = struct.Struct(">Q")
_LENGTH = _COUNT.size + MOST + 1
_TOKEN_BYTES = 16
_NAME = re.compile("evflow-[0-9a-f]{32}", re.ASCII)
_BACKLOG = 4

_log = logging.getLogger("evflow.node")

# It never waits, so it keeps the interpreter, or a thread that computes has that for milliseconds.
_recv = ctypes.PyDLL(None, use_errno=True).recv
_recv.argtypes = (ctypes.c_int, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)
_recv.restype = ctypes.c_ssize_t
# As a plain number: those of socket are enumerations, and after a sleep each bit of code that Python has to
# look at takes microseconds.
_NOW = int(socket.MSG_DONTWAIT)


class Shortcut:
    """One side of a shortcut, made by ``offer`` or ``open``; for one thread.

    Attributes:
        passed: messages that this side has sent over the connection, from the one on that tells of it.
        ended: whether the other side is gone, and all that it had sent was taken.
        descriptor: the number of the socket over which messages come; None without one.
        waiting: the next message, if it waits for one of the connection, so that nothing is to be read; with
            how many must have come over that before it.
    """

    def __init__(self, connected: socket.socket | None, listener: socket.socket | None, token: bytes) -> None:
        self.passed = 0
        self.ended = False
        self.descriptor: int | None = None
        self._socket: socket.socket | None = None
        self._buffer = ctypes.create_string_buffer(_LENGTH)
        self._address = ctypes.addressof(self._buffer)
        self._view = memoryview(self._buffer)
        self._listener = listener
        self._token = token
        # How many have come over the connection; None until the other side has told.
        self._came: int | None = None
        self._broken = False
        self._lent: set[Express] = set()
        self.waiting: tuple[int, bytes] | None = None
        if connected is not None:
            self._use(connected)

    def _use(self, connected: socket.socket) -> None:
        self._socket, self._came = connected, 1
        self.descriptor = connected.fileno()

    @classmethod
    def offer(cls) -> tuple[Shortcut, str, bytes] | None:
        """Listens for the other side: what is to be told to it are the name and the token.

        Returns:
            None if the system gives no such socket.
        """
        name, token = f"evflow-{secrets.token_hex(16)}", secrets.token_bytes(_TOKEN_BYTES)
        try:
            listener = _socket()
            listener.bind("\0" + name)
            listener.listen(_BACKLOG)
        except OSError as error:
            _log.info("there is no shortcut: %s", error)
            return None
        return cls(None, listener, token), name, token

    @classmethod
    def open(cls, name: str, token: bytes) -> Shortcut | None:
        """Takes what the other side offers; the arguments may be anything that a peer could say.

        Returns:
            None if nobody of that name listens on this host.

        Raises:
            LinkError: no honest peer offers this name.
        """
        if not _NAME.fullmatch(name):
            raise LinkError(
                f"shortcut {name[:80]!r}: expected evflow- and 32 hexadecimal digits; refuse the peer"
            )
        try:
            connected = _socket()
            try:
                connected.connect("\0" + name)
                connected.send(token)
            except OSError:
                connected.close()
                raise
        except OSError as error:
            _log.info("shortcut %s is not used: %s", name, error)
            return None
        return cls(connected, None, token)

    def accept(self) -> bool:
        """The other side says that it has connected, so it has; False if nobody has shown the token."""
        listener, self._listener = self._listener, None
        if listener is None:
            return False
        with listener:
            for _ in range(_BACKLOG):
                try:
                    connected = listener.accept()[0]
                except OSError:
                    break
                connected.setblocking(False)
                if _shows(connected, self._token):
                    self._use(connected)
                    break
                connected.close()
        return self._socket is not None

    def send(self, data: bytes) -> bool:
        """Sends a message; False if it has to go over the connection."""
        # The first goes over the connection: it tells of the shortcut.
        if self._socket is None or not self.passed or self._broken or len(data) > MOST:
            return False
        try:
            # It wakes the other side, to which the system may give this processor: others go on meanwhile.
            self._socket.send(_COUNT.pack(self.passed) + data)
        except BlockingIOError:
            return False
        except OSError:
            self._broken = True
            return False
        return True

    def lend(self, express: Express) -> bytes | None:
        """Has what sends by itself use the socket; gives what comes before each message, None if none can be
        sent."""
        if self.descriptor is None or not self.passed or self._broken:
            return None
        self._lent.add(express)
        if express.socket != self.descriptor:
            express.use(self.descriptor)
        return _COUNT.pack(self.passed)

    def came(self) -> None:
        """A message of the connection is about to be taken; what ``receive`` gives was taken before."""
        if self._came is not None:
            self._came += 1

    def receive(self, most: int) -> list[bytes]:
        """Takes the messages that are here and were sent before the next one of the connection, at most so
        many."""
        taken: list[bytes] = []
        came, descriptor = self._came, self.descriptor
        while came is not None and descriptor is not None and len(taken) < most:
            if self.waiting is None:
                size: int = _recv(descriptor, self._address, _LENGTH, _NOW)
                if size < 0 and get_errno() == ECONNRESET:
                    # The other side has gone with messages unread; those that it had sent follow.
                    continue
                if size <= 0:
                    self.ended = not size or get_errno() != EAGAIN
                    break
                # What is too short or too long is not a message, which who takes it will find.
                count = _COUNT.unpack_from(self._view)[0] if size >= _COUNT.size else 0
                self.waiting = count, bytes(self._view[_COUNT.size : size])
            count, message = self.waiting
            if count > came:
                break
            self.waiting = None
            taken.append(message)
        return taken

    def close(self) -> None:
        """Ends it; the other side still gets what was sent."""
        # The number of the socket may be that of another file soon.
        for express in self._lent:
            express.stop()
        self._lent.clear()
        for held in (self._socket, self._listener):
            if held is not None:
                held.close()
        self._socket = self._listener = self.descriptor = None


def _socket() -> socket.socket:
    made = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    made.setblocking(False)
    return made


def _shows(connected: socket.socket, token: bytes) -> bool:
    try:
        return secrets.compare_digest(connected.recv(_TOKEN_BYTES + 1), token)
    except OSError:
        return False
