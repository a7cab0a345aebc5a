"""The sockets of a node: ZeroMQ connections, and shortcuts beside them, as the links' transport.

A ROUTER for each contact listened at, a DEALER for each peer dialled; all used by one thread. ZeroMQ
reconnects by itself. What was lost meanwhile is a matter of the links, and so is a peer that is silent.
"""

from __future__ import annotations

import atexit
import logging
import math
import threading
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from itertools import count
from typing import Any, NamedTuple

import zmq
from zmq.utils.garbage import gc as collector

from evflow import mishaps
from evflow.codgen.express import Express
from evflow.errors import LinkError
from evflow.events.gather import Place
from evflow.forked import leave_to_parent
from evflow.mishaps import CONTAINED
from evflow.net.link.transport import Connection
from evflow.net.node.arena import Arena
from evflow.net.node.bell import NetBell
from evflow.net.node.contact import Contact
from evflow.net.node.handshake import Handshake, Knock
from evflow.net.node.keys import Gate, KeyRing
from evflow.net.node.mapping import Sharing
from evflow.net.node.shortcut import Shortcut

Socket = zmq.Socket[bytes]
Receive = Callable[[Connection, Any, Any, float], None]

_log = logging.getLogger("evflow.node")

# As plain numbers: those of zmq are enumerations, which take their time.
_NOW, _MORE = int(zmq.NOBLOCK), int(zmq.NOBLOCK | zmq.SNDMORE)

_AT_ONCE = 64
"""Messages taken from one socket before the next has its turn."""

_MOST_PARTS = 100
"""Parts that a message has too many, taken from one socket before the next has its turn."""

_COPY = 64 << 10
"""Bytes up to which a body is copied into ZeroMQ, which is quicker than to have it kept."""

_SENT_NEARBY = 512 << 10
"""Bytes that the system takes for a peer at the other end of loopback before it has read them: so few that
they are in a processor's cache still when they are read. On a network the system finds a number itself."""

_MOST_SHORTCUTS = 64
"""Peers that may have a shortcut: each is a file, and one more to look at when the thread sleeps."""

_MOST_AHEAD = 10_000
"""More messages than a shortcut can hold at one time, as they have hundreds of bytes each for the system."""

_PROBES = 5
"""Heartbeats without a byte before the system asks a host whether it is there, and how often it asks."""

_LONGEST_PAUSE = 3600
"""Seconds between two such questions at most: the system takes no more than 32767 for any of its times."""

_RECONNECT_MS = (50, 1000)
_MOST_BYTES = 1 << 31
_LINGER_MS = 2000
_MOST_SENT, _MOST_RECEIVED = 100_000, 1_000

_unclosed: list[zmq.Context[Socket]] = []
"""Contexts with sockets that could not be closed."""

_STOPPING = 2.0
"""Seconds that pyzmq's collector of sent memory has to stop when Python ends."""


def _stop_collector() -> None:
    """Has pyzmq stop its collector, but does not wait for ever, as pyzmq has been seen to."""
    collector._stay_down = True
    stopping = threading.Thread(target=collector.stop, daemon=True)
    try:
        stopping.start()
    except RuntimeError:
        # From Python 3.12 on no thread may begin by now.
        collector.stop()
        return
    stopping.join(_STOPPING)
    if stopping.is_alive():
        collector.thread = None


atexit.unregister(collector._atexit)
atexit.register(_stop_collector)

# What ``zmq.Socket.send`` calls after it has looked at options of sockets of other kinds.
_send = zmq.backend.Socket.send


class Dialled(NamedTuple):
    """A connection that this node has opened."""

    number: int


class Guest(NamedTuple):
    """A connection that a peer has opened: number of the listening socket, routing id and key of the peer."""

    listener: int
    identity: bytes
    key: str


class Sockets:
    """The connections of one node; a ``Transport``.

    Args:
        keys: the node's keys; None for plain connections.
        heartbeat: seconds between two signs of life of a link, from which the times are chosen after which
            the system gives up the connection to a host that vanished.
        shared_memory: whether large frames go through shared memory to peers on this host, and small messages
            by shortcuts.

    Attributes:
        pace, reserve, spare: give room where large events are sent from; see ``Arena``.
        refused: what ``refusals`` will tell.
    """

    def __init__(self, keys: KeyRing | None, heartbeat: float, shared_memory: bool) -> None:
        self.bell = NetBell()
        self._context: zmq.Context[Socket] = zmq.Context()
        # Has pyzmq open now what it needs to send without a copy: later there may be no file left to open.
        zmq.Frame(bytes(_COPY), copy=False, copy_threshold=0)
        self._keys = keys
        self._gate: Gate | None = None
        if keys is not None:
            self._gate = Gate(self._context, keys)
            self._gate.start()
        self._heartbeat = heartbeat
        self._listeners: list[Socket] = []
        self._secured: list[bool] = []
        self._dialled: dict[Dialled, Socket] = {}
        # The number of a listening socket, or the connection that was dialled.
        self._of: dict[Socket, int | Dialled] = {}
        self._numbers = count()
        # Until they are over, and the connection by what tells of it.
        self._handshakes: dict[Dialled, Handshake] = {}
        self._shaking: dict[Socket, Dialled] = {}
        self.refused: list[tuple[Dialled, str]] = []
        self._sharing: dict[Connection, Sharing] = {}
        self._shared_memory = shared_memory
        self._shortcuts: dict[Connection, Shortcut] = {}
        # Where a message has more parts than a message may have, and some of them are still to be taken.
        self._flooded: set[int | Dialled] = set()
        # Those that the bell watches, by their descriptors.
        self._watched: dict[int, Connection] = {}
        self._closed = False
        self._arena = Arena()
        self.pace, self.reserve, self.spare = self._arena.pace, self._arena.reserve, self._arena.spare
        leave_to_parent(self)

    def _socket(self, kind: int, contact: Contact) -> Socket:
        socket = self._context.socket(kind)
        # Credit bounds honest peers; this those that send and never read.
        socket.set(zmq.SNDHWM, _MOST_SENT)
        socket.set(zmq.RCVHWM, _MOST_RECEIVED)
        socket.set(zmq.LINGER, 0)
        socket.set(zmq.MAXMSGSIZE, _MOST_BYTES)
        # Links have pings of their own. ZeroMQ's abort the process if a peer goes while a queue is full, so
        # the system notices the hosts that vanished.
        seconds = min(max(1, math.ceil(self._heartbeat)), _LONGEST_PAUSE)
        socket.set(zmq.TCP_KEEPALIVE, 1)
        socket.set(zmq.TCP_KEEPALIVE_IDLE, _PROBES * seconds)
        socket.set(zmq.TCP_KEEPALIVE_INTVL, seconds)
        socket.set(zmq.TCP_KEEPALIVE_CNT, _PROBES)
        # That is for a connection without traffic; this for one with bytes that nobody acknowledges.
        socket.set(zmq.TCP_MAXRT, 2 * _PROBES * seconds * 1000)
        socket.set(zmq.IPV6, int(":" in contact.host))
        if contact.scheme == "tcp" and contact.is_local:
            socket.set(zmq.SNDBUF, _SENT_NEARBY)
        return socket

    @property
    def turned_away(self) -> int:
        """How often somebody with a key that is not allowed wanted to connect."""
        return 0 if self._gate is None else self._gate.refused

    # --- listening

    def listen(self, contact: Contact, secured: bool) -> Contact:
        """Listens at a contact; returns it with the port that was taken.

        Raises:
            LinkError: the address cannot be had.
        """
        socket = self._socket(zmq.ROUTER, contact)
        socket.set(zmq.ROUTER_MANDATORY, 1)
        if secured:
            assert self._keys is not None
            self._keys.serve(socket)
        try:
            socket.bind(str(contact))
        except zmq.ZMQError as error:
            socket.close()
            raise LinkError(
                f"contact {contact}: this node cannot listen there: {error}; "
                "is another process at that address, or is it none of this host's?"
            ) from error
        self._of[socket] = len(self._listeners)
        self._listeners.append(socket)
        self._secured.append(secured)
        self.bell.watch(socket)
        if contact.scheme != "tcp" or contact.port != 0:
            return contact
        bound = bytes(socket.get(zmq.LAST_ENDPOINT)).rstrip(b"\0").decode()
        return contact.with_port(int(bound.rpartition(":")[2]))

    # --- the transport of the links

    def dial(self, peer: str, contact: str) -> Dialled:
        """A new connection; see ``Transport``."""
        wanted = Contact.parse(contact)
        try:
            socket = self._socket(zmq.DEALER, wanted)
        except zmq.ZMQError as error:
            raise LinkError(f"contact {contact} of {peer}: there is no socket for it: {error}") from error
        try:
            socket.set(zmq.RECONNECT_IVL, _RECONNECT_MS[0])
            socket.set(zmq.RECONNECT_IVL_MAX, _RECONNECT_MS[1])
            secured = self._keys is not None and wanted.scheme == "tcp"
            if self._keys is not None and secured:
                self._keys.dial(socket, peer)
            handshake = Handshake(
                socket,
                None if self._keys is None else self._keys.name,
                peer if secured else None,
                lambda: Knock(self._context, str(wanted)),
            )
            socket.connect(str(wanted))
        except (zmq.ZMQError, LinkError) as error:
            socket.close()
            raise LinkError(f"contact {contact} of {peer}: {error}") from error
        connection = Dialled(next(self._numbers))
        self._handshakes[connection] = handshake
        self._watch_handshake(connection)
        self._of[socket] = connection
        self._dialled[connection] = socket
        self.bell.watch(socket)
        return connection

    def send(self, connection: Connection, header: bytes, body: memoryview | None = None) -> bool:
        """Sends a message; see ``Transport``."""
        shortcut = self._shortcuts.get(connection)
        if shortcut is not None:
            if body is None and shortcut.send(header):
                return True
            shortcut.passed += 1
        try:
            if isinstance(connection, Guest):
                socket = self._listeners[connection.listener]
                _send(socket, connection.identity, _MORE)
            elif connection in self._dialled:
                socket = self._dialled[connection]
            else:
                return False
            if body is None:
                _send(socket, header, _NOW)
            else:
                _send(socket, header, _MORE)
                if body.nbytes < _COPY:
                    _send(socket, body, _NOW)
                else:
                    socket.send(body, _NOW, copy=False)
        except zmq.ZMQError as error:
            # The peer is gone (EHOSTUNREACH); its next message will begin a session anew.
            if error.errno not in (zmq.EHOSTUNREACH, zmq.EAGAIN):
                self._end_message(socket, error)
            return False
        except CONTAINED as error:
            self._end_message(socket, error)
            return False
        return True

    def _end_message(self, socket: Socket, error: BaseException) -> None:
        """A message could not be sent as a whole: what comes next must not be taken for the rest of it."""
        mishaps.tell(_log, "a connection", "a message could not be sent", error)
        with suppress(zmq.ZMQError):
            _send(socket, b"", _NOW)

    def hang_up(self, connection: Connection) -> None:
        """Forgets a connection; see ``Transport``."""
        self.leave_shortcut(connection)
        sharing = self._sharing.pop(connection, None)
        if sharing is not None:
            sharing.close()
        if isinstance(connection, Dialled):
            socket = self._dialled.pop(connection, None)
            if socket is not None:
                self._watch_no_longer(connection)
                del self._of[socket]
                self._flooded.discard(connection)
                self.bell.leave(socket)
                socket.close()

    def _watch_handshake(self, connection: Dialled) -> None:
        for socket in self._handshakes[connection].sockets:
            if socket not in self._shaking:
                self._shaking[socket] = connection
                self.bell.watch(socket)

    def _watch_no_longer(self, connection: Dialled) -> None:
        handshake = self._handshakes.pop(connection, None)
        if handshake is not None:
            for socket in handshake.sockets:
                if self._shaking.pop(socket, None) is not None:
                    self.bell.leave(socket)
            handshake.close()

    def proven_name(self, connection: Connection) -> str | None:
        """The name that belongs to the peer's key; see ``Transport``."""
        if not isinstance(connection, Guest) or not self._secured[connection.listener]:
            return None
        assert self._keys is not None
        # A name that no key has cannot be told, so nobody can call himself so.
        return self._keys.name_of(connection.key) or "?"

    # --- shared memory

    def _shares(self, connection: Connection) -> Sharing:
        sharing = self._sharing.get(connection)
        if sharing is None:
            sharing = self._sharing[connection] = Sharing(self._arena if self._shared_memory else None)
        return sharing

    def room(self, length: int) -> Place | None:
        return self._arena.reserve(length) if length >= _COPY else None

    def share(self, connection: Connection) -> tuple[str, int, bytes] | None:
        return self._shares(connection).offer()

    def shared(self, connection: Connection, opened: bool) -> None:
        self._shares(connection).opened(opened)

    def place(self, connection: Connection, body: memoryview) -> list[int] | None:
        return self._shares(connection).place(body)

    def release(self, connection: Connection, blocks: list[int]) -> None:
        self._shares(connection).release(blocks)

    def open_share(self, connection: Connection, name: str, size: int, nonce: bytes) -> bool:
        return self._shares(connection).open(name, size, nonce)

    def view(self, connection: Connection, place: list[int]) -> Any:
        return self._shares(connection).view(place)

    def keep(self, connection: Connection, block: int, start: int, stop: int) -> None:
        self._shares(connection).keep(block, start, stop)

    def released(self, connection: Connection) -> list[int]:
        sharing = self._sharing.get(connection)
        return [] if sharing is None else sharing.released()

    # --- shortcuts

    @property
    def _may_have_shortcut(self) -> bool:
        return self._shared_memory and len(self._shortcuts) < _MOST_SHORTCUTS

    def offer_shortcut(self, connection: Connection) -> tuple[str, bytes] | None:
        self.leave_shortcut(connection)
        offered = Shortcut.offer() if self._may_have_shortcut else None
        if offered is None:
            return None
        self._shortcuts[connection], name, token = offered
        return name, token

    def open_shortcut(self, connection: Connection, name: str, token: bytes) -> bool:
        self.leave_shortcut(connection)
        shortcut = Shortcut.open(name, token) if self._may_have_shortcut else None
        if shortcut is None:
            return False
        self._shortcuts[connection] = shortcut
        self._tend(connection, shortcut)
        return True

    def joined(self, connection: Connection, opened: bool) -> None:
        shortcut = self._shortcuts.get(connection)
        if shortcut is not None:
            if not opened or not shortcut.accept():
                self.leave_shortcut(connection)
            else:
                self._tend(connection, shortcut)

    def lend(self, connection: Connection, express: Express) -> bytes | None:
        shortcut = self._shortcuts.get(connection)
        return None if shortcut is None else shortcut.lend(express)

    def leave_shortcut(self, connection: Connection) -> None:
        shortcut = self._shortcuts.pop(connection, None)
        if shortcut is not None:
            self._unwatch(shortcut)
            shortcut.close()

    def _tend(self, connection: Connection, shortcut: Shortcut) -> None:
        """Watches a shortcut as long as something is to be read there, and forgets one that has ended."""
        if shortcut.ended:
            self.leave_shortcut(connection)
        elif shortcut.waiting:
            self._unwatch(shortcut)
        elif shortcut.descriptor is not None and shortcut.descriptor not in self._watched:
            self._watched[shortcut.descriptor] = connection
            self.bell.watch(shortcut.descriptor)

    def _unwatch(self, shortcut: Shortcut) -> None:
        if shortcut.descriptor is not None and self._watched.pop(shortcut.descriptor, None) is not None:
            self.bell.leave(shortcut.descriptor)

    def _take_due(
        self, connection: Connection, shortcut: Shortcut, take: Receive, now: float, most: int
    ) -> None:
        """Takes what has come by a shortcut and need not wait, about so many messages at most."""
        for data in shortcut.receive(most):
            take(connection, data, None, now)
            # The connection may be given up because of what came.
            if self._shortcuts.get(connection) is not shortcut:
                return
        if shortcut.waiting or shortcut.ended or shortcut.descriptor not in self._watched:
            self._tend(connection, shortcut)

    # --- what comes

    def receive(self, take: Receive, now: float) -> None:
        """Takes what had come when the bell slept last, a bounded number of messages from each socket.

        Args:
            take: called with connection, header and body (or None) of each, and the time.
            now: the time.
        """
        for watched in self.bell.ready:
            socket = watched[0]
            if isinstance(socket, int):
                connection = self._watched.get(socket)
                if connection is not None:
                    self._take_due(connection, self._shortcuts[connection], take, now, _AT_ONCE)
                continue
            for _ in range(_AT_ONCE):
                # A connection may be given up because of what came before.
                of = self._of.get(socket)
                if of is None:
                    self._shake_hands(socket)
                    break
                if not self._receive_one(socket, of, take, now) or not zmq.zmq_poll((watched,), 0):
                    break

    def _shake_hands(self, events: Socket) -> None:
        connection = self._shaking.get(events)
        if connection is None:
            return
        outcome = self._handshakes[connection].outcome()
        if outcome is None:
            self._watch_handshake(connection)
            return
        self._watch_no_longer(connection)
        if outcome:
            self.refused.append((connection, outcome))

    def refusals(self) -> list[tuple[Connection, str]]:
        """The connections whose other side has refused to shake hands since this was asked last, and why."""
        told, self.refused = self.refused, []
        return list(told)

    def _receive_one(self, socket: Socket, of: int | Dialled, take: Receive, now: float) -> bool:
        """Takes a message from a socket; False if there was none after all, its peer being gone."""
        try:
            if of in self._flooded:
                self._pass_over(socket, of)
                return True
            identity = b"" if isinstance(of, Dialled) else socket.recv(_NOW)
            header = socket.recv(_NOW, copy=False)
        except zmq.Again:
            self._flooded.discard(of)
            return False
        data, body = self._parts(socket, header, of)
        connection: Connection = of
        if not isinstance(of, Dialled):
            connection = Guest(of, identity, _user_id(header) if self._secured[of] else "")
        shortcut = self._shortcuts.get(connection)
        if shortcut is not None:
            # All that had taken the shortcut before this was sent is there by now.
            self._take_due(connection, shortcut, take, now, _MOST_AHEAD)
            shortcut.came()
        take(connection, data, body, now)
        if shortcut is not None and shortcut.waiting and self._shortcuts.get(connection) is shortcut:
            self._take_due(connection, shortcut, take, now, _AT_ONCE)
        return True

    def _parts(self, socket: Socket, header: zmq.Frame, of: int | Dialled) -> tuple[Any, memoryview | None]:
        """The header and the body of a message that has begun; no message has an empty header."""
        part = header
        try:
            # A large header may be refused before it is read, and so is not copied.
            data = header.bytes if len(header) <= _COPY else header.buffer.toreadonly()
            body = None
            if header.more:
                part = socket.recv(_NOW, copy=False)
                body = part.buffer.toreadonly()
        except CONTAINED as error:
            # Its link finds that the message is malformed.
            mishaps.tell(_log, "a connection", "a message could not be received", error)
            if socket.get(zmq.RCVMORE):
                self._flooded.add(of)
            return b"", None
        if part.more:
            self._flooded.add(of)
            return b"", None
        return data, body

    def _pass_over(self, socket: Socket, of: int | Dialled) -> None:
        """Takes parts of a message that are too many, as many as leave the others their turn."""
        for _ in range(_MOST_PARTS):
            if not socket.recv(_NOW, copy=False).more:
                self._flooded.discard(of)
                return

    def forsake(self) -> None:
        """In a fork: the connections are the parent's, and stay as they are."""
        self._closed = True
        self._arena.forsake()
        self.bell.forsake()

    def close(self) -> None:
        """Closes everything; what was sent last is still sent, for up to two seconds. Closing twice does
        nothing.

        Raises:
            LinkError: a part of it could not be closed; all others are.
        """
        if self._closed:
            return
        self._closed = True
        closing: list[Callable[[], object]] = [
            *(partial(self.leave_shortcut, connection) for connection in self._shortcuts),
            *(sharing.close for sharing in self._sharing.values()),
            *(handshake.close for handshake in self._handshakes.values()),
            *(partial(each.close, linger=_LINGER_MS) for each in (*self._listeners, *self._dialled.values())),
        ]
        self._sharing.clear()
        self._listeners.clear()
        self._dialled.clear()
        self._of.clear()
        self._handshakes.clear()
        self._shaking.clear()
        if self._gate is not None:
            closing.append(self._gate.stop)
        failures = [error for error in map(_failure, closing) if error is not None]
        if not failures:
            self._context.term()
        else:
            # It would wait for the sockets that are open, and so would the collector.
            _unclosed.append(self._context)
        self._arena.close()
        self.bell.close()
        if failures:
            raise LinkError(f"a connection could not be closed: {mishaps.named(failures[0])}") from failures[
                0
            ]


def _failure(call: Callable[[], object]) -> BaseException | None:
    """What a call raises; None if it does what it should."""
    try:
        call()
    except CONTAINED as error:
        return error
    return None


def _user_id(frame: zmq.Frame) -> str:
    try:
        return str(frame.get("User-Id"))
    except zmq.ZMQError:
        return ""
