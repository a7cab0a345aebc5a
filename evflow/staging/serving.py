"""A staging node's thread, which serves the sockets of writers and copies out of their memory."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import logging
import mmap
import os
import select
import socket
import struct
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from evflow.disk import AGAIN, OwnFile
from evflow.errors import EvflowError, StagingError
from evflow.forked import leave_to_parent
from evflow.net.node.arena import SEALS
from evflow.staging.above import Near
from evflow.staging.area import StagingNode
from evflow.staging.committing import Guarded
from evflow.staging.linking import NODE, QUIET
from evflow.staging.messages import MOST_BYTES, FromWriter, Hello, Ready, Refused, decode, encode
from evflow.staging.model import expect
from evflow.staging.pulling import Piece, Transfer
from evflow.staging.schedulers import Hold
from evflow.staging.stores.direct import Bytes, aligned
from evflow.stone import Actor, Context

_TURN = 0.002
"""Seconds of copying between two looks at the sockets; also between two looks at what an application does."""

_IDLE = 0.5

_MOST_STRANGERS = 128
"""Connections that have not said hello: of more, the oldest is ended."""

_MOST_MAPPED = 1 << 40
"""Bytes of the largest memory that is mapped; steps of a larger one are copied. Addresses can run out."""

_log = logging.getLogger("evflow.staging")


class Source:
    """What steps are read from: a writer's memory, which begins with a table, or a file. It is open as long
    as something refers to it. With ``keeps`` steps in the memory can be used where they are."""

    def __init__(self, file: int, table: bool, keeps: bool = False) -> None:
        self._file, self._table, self._keeps = file, table, keeps
        self._bytes: Bytes | None = None
        with contextlib.suppress(OSError, ValueError):
            # Of other memory a page may be gone when it is looked at, which would end the process.
            status = os.fstat(file)
            plain = status.st_blksize == mmap.PAGESIZE and status.st_size <= _MOST_MAPPED
            if table and plain and fcntl.fcntl(file, fcntl.F_GET_SEALS) & SEALS == SEALS:
                self._bytes = np.frombuffer(mmap.mmap(file, 0, prot=mmap.PROT_READ), np.uint8)
                # It has the file open by itself.
                os.close(file)
                self._file = -1

    def flag(self, slot: int) -> int:
        """An entry of the table; 0 if there is none."""
        entry = np.zeros(1, "<i8")
        return int(entry[0]) if self._table and self.read(entry.view(np.uint8), 8 * slot) else 0

    def blocks(self, transfer: Transfer) -> list[Bytes]:
        """The blocks of a step where they are; none if they have to be copied."""
        if self._bytes is None or not self._keeps:
            return []
        start, blocks = transfer.ready.start, transfer.ready.blocks
        own = zip(transfer.starts, blocks, strict=True)
        found = [self._bytes[start + at : start + at + block.nbytes] for at, block in own]
        return found if [len(data) for data in found] == [block.nbytes for block in blocks] else []

    def read(self, into: Any, start: int) -> bool:
        """Fills an array with the bytes from ``start`` on. False if they are not there."""
        if self._bytes is not None:
            found = self._bytes[start : start + len(into)]
            if there := len(found) == len(into):
                into[:] = found
            return there
        try:
            return os.preadv(self._file, [into], start) == len(into)
        except OSError:
            return False

    def __del__(self) -> None:
        if self._file >= 0:
            os.close(self._file)


class Connection:
    """A connection to a writer; the rank is -1, and the memory not known, until its hello."""

    def __init__(self, made: socket.socket) -> None:
        self.socket, self.rank = made, -1
        self.memory: Source | None = None


class Serving(Actor):
    """A staging node: serves writers until ``close``. OSError if it cannot listen at ``path``.

    Args:
        context: of the actor.
        path: where it listens.
        node: the node.
        above: makes what it has above it, given what rings its bell.
    """

    def __init__(
        self,
        context: Context,
        path: Path,
        node: StagingNode,
        above: Callable[[Callable[[], None]], Near],
    ) -> None:
        super().__init__(context)
        self._path, self._node = path.absolute(), node
        # What there was no memory for.
        self._late: Piece | None = None
        self._why = ""
        self._lock = OwnFile(path)
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET | socket.SOCK_CLOEXEC)
        try:
            # What a killed process has left; nothing else is taken away.
            if path.is_socket() and _left(path):
                path.unlink()
            self._socket.bind(str(path))
            os.chmod(path, 0o600)
            self._socket.listen(128)
        except OSError:
            self._socket.close()
            self._lock.close()
            raise
        self._connections: dict[int, Connection] = {}
        self._bell = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        self._poll = select.poll()
        self._poll.register(self._socket, select.POLLIN)
        self._poll.register(self._bell, select.POLLIN)
        self._closing = False
        self._quiet = 0.0
        self._above = above(self._ring)
        self._thread = Guarded("pull", self._run, context.wake)
        self._thread.start()
        leave_to_parent(self)

    def _ring(self) -> None:
        os.eventfd_write(self._bell, 1)

    def forsake(self) -> None:
        """In a fork: nobody may wait for it when the parent has ended."""
        self._socket.close()
        for connection in self._connections.values():
            connection.socket.close()

    def wake(self, now: float) -> float | None:
        self.context.attributes["why"] = self._why
        return self._above.emit(now)

    @property
    def busy(self) -> str:
        return self._above.busy or ("" if self.failure else self._why)

    @property
    def failure(self) -> EvflowError | None:
        return self._thread.failure or self._above.failure

    def close(self) -> None:
        """Ends it; what is not committed stays with the writers."""
        self._closing = True
        self._ring()
        self._thread.join()
        self._above.close()
        self.forsake()
        self._path.unlink(missing_ok=True)
        os.close(self._bell)
        self._lock.close()

    # --- the loop

    def _run(self) -> None:
        wait = 0.0
        while not self._closing:
            for file, _ in self._poll.poll(wait * 1000):
                if file == self._bell:
                    os.eventfd_read(self._bell)
                elif file == self._socket.fileno():
                    self._accept()
                elif file in self._connections:
                    # One before it may have ended it.
                    self._read(self._connections[file])
            wait = self._pass_on(self._copy())

    def _copy(self) -> Hold | None:
        """Copies pieces for a while. Why there is no other piece; None if there may be one."""
        end = time.monotonic() + _TURN
        while True:
            for connection in self._connections.values() if self._node.pulling.copies else ():
                if connection.memory is not None:
                    self._node.pulling.phases[connection.rank] = bool(connection.memory.flag(0))
            now = time.monotonic()
            piece, self._late = self._late or self._node.next(now), None
            if not isinstance(piece, Piece):
                return piece or Hold("")
            transfer = piece.transfer
            if not transfer.data:
                try:
                    transfer.data = [aligned(block.nbytes) for block in transfer.ready.blocks]
                except MemoryError:
                    self._late = piece
                    what = f"step {transfer.step} of rank {transfer.rank}"
                    return Hold(f"there is no memory for {what}: {transfer.nbytes} bytes", now + AGAIN)
            source, slot = transfer.source, transfer.ready.slot
            into = transfer.data[piece.block][piece.offset : piece.offset + piece.size] if piece.size else b""
            valid = not piece.size or source.read(into, piece.start)
            # Looked at when the copy is complete: the writer changes it before it writes there.
            self._node.moved(piece, valid and (slot < 0 or source.flag(slot) == transfer.ready.generation))
            if now >= end:
                return None

    def _pass_on(self, pulling: Hold | None) -> float:
        """Lets writers, node and root tell each other what there is; gives the seconds to wait then."""
        now = time.monotonic()
        node = self._node
        gathering = node.gather(now)
        reasons = (hold.reason for hold in (pulling, gathering) if hold is not None)
        own = next(filter(None, reasons), "" if pulling else "it is being pulled")
        above = self._above.turn(now, own)
        there = above.reason if above is not None else ""
        why = own or there if above is None or above.child == NODE else there or own
        if why != self._why and (now >= self._quiet or not why):
            self._why, self._quiet = why, now + QUIET
            self.context.wake()
        # Also where the reason is that of before: a further writer may wait.
        node.tell(self._why)
        by_rank = {connection.rank: connection for connection in self._connections.values()}
        while node.outbox:
            rank, told = node.outbox.popleft()
            if rank in by_rank:
                self._send(by_rank[rank], encode(told))
        if pulling is None:
            return 0.0
        due = [hold.until for hold in (pulling, gathering) if hold is not None and hold.until is not None]
        # Nothing tells when an application ends its communication phase.
        looks = _TURN if any(node.pulling.phases.values()) and pulling.reason else _IDLE
        if why != self._why:
            looks = min(looks, QUIET)
        return max(0.0, min([looks, *(until - now for until in due)]))

    # --- connections

    def _accept(self) -> None:
        try:
            made, _ = self._socket.accept()
        except OSError:
            # No file is free, perhaps: whoever connects waits meanwhile.
            time.sleep(_TURN)
            return
        made.setblocking(False)
        _, user, _ = struct.unpack("3i", made.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))
        if user != os.geteuid():
            _log.warning("staging at %s: a process of user %d is refused", self._path, user)
            made.close()
            return
        strangers = [connection for connection in self._connections.values() if connection.rank < 0]
        if len(strangers) >= _MOST_STRANGERS:
            self._end(strangers[0])
        self._connections[made.fileno()] = Connection(made)
        self._poll.register(made, select.POLLIN)

    def _read(self, connection: Connection) -> None:
        for _ in range(64):
            try:
                found = socket.recv_fds(connection.socket, MOST_BYTES, 4, socket.MSG_CMSG_CLOEXEC)
            except BlockingIOError:
                return
            except OSError:
                found = b"", [], 0, None
            data, files, flags, _ = found
            try:
                # Cut off: no descriptor is left for a file. A writer connects again, and tells it again.
                if not data or flags & socket.MSG_CTRUNC:
                    self._end(connection)
                    return
                self._take(connection, data, files, flags)
            except StagingError as error:
                _log.warning("staging at %s: %s; its connection is ended", self._path, error)
                self._send(connection, encode(Refused(str(error)[:2000])))
                # The system would throw the reason away if the connection ended with messages unread.
                with contextlib.suppress(OSError):
                    connection.socket.shutdown(socket.SHUT_RD)
                    while connection.socket.recv(1):
                        pass
                self._end(connection)
                return
            finally:
                for file in files:
                    os.close(file)

    def _take(self, connection: Connection, data: bytes, files: list[int], flags: int) -> None:
        if flags & socket.MSG_TRUNC:
            raise StagingError("a message is too long")
        message, now = decode(data, FromWriter), time.monotonic()
        rank = connection.rank
        if isinstance(message, Hello) and rank < 0:
            expect(len(files) == 1, "files of a hello:", len(files), "1, the writer's memory")
            for other in [other for other in self._connections.values() if other.rank == message.rank >= 0]:
                # It may have ended, and nobody has looked yet.
                self._read(other)
                if other.socket.fileno() in self._connections:
                    raise StagingError(f"rank {message.rank} is connected already")
            self._node.hello(message, now)
            connection.rank, connection.memory = message.rank, Source(files.pop(), True, message.keeps)
            return
        if rank < 0:
            raise StagingError("expected a hello first")
        source = connection.memory
        if isinstance(message, Ready) and message.slot < 0:
            expect(len(files) == 1, f"rank {rank}: files of a step in a file:", len(files), "1")
            source = Source(files.pop(), False)
        self._node.receive(rank, message, source, now)

    def _send(self, connection: Connection, data: bytes) -> None:
        try:
            connection.socket.send(data, socket.MSG_NOSIGNAL)
        except OSError:
            # Gone, or it has not looked at 100 messages and more: it hears all of it when it connects again.
            self._end(connection)

    def _end(self, connection: Connection) -> None:
        if self._connections.pop(connection.socket.fileno(), None) is None:
            return
        self._poll.unregister(connection.socket)
        connection.socket.close()
        if connection.rank >= 0:
            self._node.lost(connection.rank, time.monotonic())


def _left(path: Path) -> bool:
    """Whether nobody listens at a socket any more."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET | socket.SOCK_CLOEXEC) as tried:
        tried.setblocking(False)
        # Other errors are those of a socket of another kind, or with many who wait.
        return tried.connect_ex(str(path)) == errno.ECONNREFUSED
