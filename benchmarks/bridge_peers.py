"""The other libraries of ``bridge.py``: a receiver and a sender for each way to carry messages.

What is exact of each:

- raw TCP: a length of 4 bytes and the message in one ``sendall``, or through a buffered file; read through
  a buffered file. Arrays and batches: ``sendall`` of the length and of the memory itself, ``recv_into`` one
  buffer that is used again.
- pyzmq: ``PUSH`` and ``PULL`` over TCP, both ends with the same ``copy``. Below 64 KiB ``copy=False`` of
  pyzmq still copies at the sender. ``columns`` fills a new structured array for each batch from numpy
  columns, and sends it with ``copy=False``; the other batches are bytes that are there already. ``made
  anew`` does so with arrays, as a program must whose data change while what it sent is on its way.
  ``send buffer`` has the system take no more than evflow has it take on loopback; all others leave that
  to the system, as pyzmq does if it is not told.
- zenoh: two peers over TCP, reliable, ``CongestionControl.BLOCK``, no scouting, its shared memory off.
  *Shared memory* allocates each message in the provider's pool, copies the bytes in and puts that; *by
  itself* puts bytes, and zenoh moves them through its pool while that has room. The receiver copies with
  ``to_bytes``, since the Python library offers no view of a payload.

Every receiver hands what it got to ``Work.touch``: for a batch ``np.frombuffer`` and the sum of one column,
for an array the sum of one number of each page of 4 KiB.
"""

from __future__ import annotations

import atexit
import json
import os
import socket
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np
from bridge_pair import BATCH, EVENTS, Way, Work, events, expected

QUEUED = 16 << 20
"""Bytes that pyzmq may queue at each end; its mark is a number of messages, never over 1,000 here."""
POOL = 256 << 20
"""Bytes of zenoh's shared memory."""


def timed(exchange: Callable[[Any], object], messages: Iterator[Any]) -> list[int]:
    """ns of each exchange of a message."""
    trips = []
    for message in messages:
        start = time.perf_counter_ns()
        exchange(message)
        trips.append(time.perf_counter_ns() - start)
    return trips


class TcpReceiver:
    """Listens on loopback and accepts one sender."""

    def __init__(self, work: Work) -> None:
        self.work = work
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.contact = self.listener.getsockname()
        self.socket: socket.socket | None = None

    def accepted(self) -> socket.socket:
        if self.socket is None:
            self.socket = self.listener.accept()[0]
            self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self.file = self.socket.makefile("rb", 1 << 16)
        return self.socket

    def receive(self, count: int) -> float:
        self.accepted()
        read, touch, total = self.file.read, self.work.touch, 0.0
        for _ in range(count):
            total += touch(read(int.from_bytes(read(4), "little")))
        return total

    def close(self) -> None:
        if self.socket is not None:
            self.file.close()
            self.socket.close()
        self.listener.close()


class TcpReceiverInto(TcpReceiver):
    """Receives into a buffer of its own, which it uses again."""

    def receive(self, count: int) -> float:
        receive, touch, total = self.accepted().recv_into, self.work.touch, 0.0
        head = bytearray(4)
        buffer = memoryview(bytearray(self.work.bytes))
        for _ in range(count):
            receive(head, 4, socket.MSG_WAITALL)
            message = buffer[: int.from_bytes(head, "little")]
            receive(message, len(message), socket.MSG_WAITALL)
            total += touch(message)
        return total


class TcpEcho(TcpReceiver):
    """Sends back what it gets."""

    def receive(self, count: int) -> float:
        receive, send, size = self.accepted().recv, self.accepted().sendall, self.work.bytes
        for _ in range(count):
            send(receive(size, socket.MSG_WAITALL))
        return expected(self.work, count)


class TcpSender:
    """One ``sendall`` a message."""

    def __init__(self, work: Work, contact: Any) -> None:
        self.work = work
        self.socket = socket.create_connection(contact)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def send(self, count: int) -> Sequence[int]:
        send = self.socket.sendall
        for message in self.work.messages(count):
            send(len(message).to_bytes(4, "little") + message)
        return ()

    def close(self) -> None:
        self.socket.close()


class TcpBuffered(TcpSender):
    """Messages go through a buffered file."""

    def send(self, count: int) -> Sequence[int]:
        with self.socket.makefile("wb", 1 << 16) as file:
            for message in self.work.messages(count):
                file.write(len(message).to_bytes(4, "little"))
                file.write(message)
        return ()


class TcpUncopied(TcpSender):
    """The length, then the memory itself."""

    def send(self, count: int) -> Sequence[int]:
        send = self.socket.sendall
        for message in self.work.messages(count):
            send(len(message).to_bytes(4, "little"))
            send(memoryview(message))
        return ()


class TcpPing(TcpSender):
    """Waits for each message to come back."""

    def send(self, count: int) -> Sequence[int]:
        send, receive, size = self.socket.sendall, self.socket.recv, self.work.bytes

        def exchange(message: Any) -> None:
            send(message)
            receive(size, socket.MSG_WAITALL)

        return timed(exchange, self.work.messages(count))


class ZmqEnd:
    """A socket of its own context, with room for at least two messages and at most ``QUEUED`` bytes."""

    def __init__(self, kind: str, work: Work) -> None:
        import zmq

        self.work = work
        self.context: Any = zmq.Context()
        self.socket: Any = self.context.socket(getattr(zmq, kind))
        self.socket.linger = 0
        self.socket.set_hwm(min(1_000, max(2, QUEUED // work.bytes)))

    def close(self) -> None:
        self.context.destroy()


class ZmqReceiver(ZmqEnd):
    """PULL, or for round trips PAIR."""

    def __init__(self, work: Work, copy: bool = True, kind: str = "PULL") -> None:
        super().__init__(kind, work)
        self.copy = copy
        self.socket.bind("tcp://127.0.0.1:*")
        self.contact = self.socket.last_endpoint.decode()

    def receive(self, count: int) -> float:
        receive, touch, copy, total = self.socket.recv, self.work.touch, self.copy, 0.0
        for _ in range(count):
            total += touch(receive(copy=copy))
        return total


class ZmqEcho(ZmqReceiver):
    """Sends back what it gets."""

    def __init__(self, work: Work) -> None:
        super().__init__(work, kind="PAIR")

    def receive(self, count: int) -> float:
        receive, send = self.socket.recv, self.socket.send
        for _ in range(count):
            send(receive())
        return expected(self.work, count)


class ZmqSender(ZmqEnd):
    """PUSH, or for round trips PAIR."""

    def __init__(
        self, work: Work, contact: Any, copy: bool = True, kind: str = "PUSH", buffer: int = -1
    ) -> None:
        super().__init__(kind, work)
        self.copy = copy
        self.socket.sndbuf = buffer
        self.socket.connect(contact)

    def send(self, count: int) -> Sequence[int]:
        send, copy = self.socket.send, self.copy
        for message in self.work.messages(count):
            send(message, copy=copy)
        return ()


class ZmqColumns(ZmqSender):
    """Fills a new structured array for each batch from columns."""

    def send(self, count: int) -> Sequence[int]:
        rows, dtype = events(self.work.size), EVENTS[self.work.size]
        columns = {name: np.ascontiguousarray(rows[name]) for name in dtype.names or ()}
        for i in range(count):
            start = i * BATCH % len(rows)
            batch = np.empty(BATCH, dtype)
            for name, column in columns.items():
                batch[name] = column[start : start + BATCH]
            self.socket.send(batch.view(np.uint8), copy=False)
        return ()


class ZmqAnew(ZmqSender):
    """Writes each message to a new array, since those sent before may still be on their way."""

    def send(self, count: int) -> Sequence[int]:
        send = self.socket.send
        for message in self.work.messages(count):
            made = np.empty(len(message), np.uint8)
            made[:] = np.frombuffer(message, np.uint8)
            send(made, copy=False)
        return ()


class ZmqPing(ZmqSender):
    """Waits for each message to come back."""

    def __init__(self, work: Work, contact: Any) -> None:
        super().__init__(work, contact, kind="PAIR")

    def send(self, count: int) -> Sequence[int]:
        send, receive = self.socket.send, self.socket.recv

        def exchange(message: Any) -> None:
            send(message)
            receive()

        return timed(exchange, self.work.messages(count))


class ZenohEnd:
    """A session that knows only the other end; what is sent goes to ``there`` and what comes is ``here``."""

    def __init__(self, work: Work, shared: bool, here: str, there: str, **endpoints: str) -> None:
        import zenoh

        self.work = work
        self.error = zenoh.ZError
        config = zenoh.Config()
        settings = {
            "mode": "peer",
            "scouting/multicast/enabled": False,
            "scouting/gossip/enabled": False,
            "listen/endpoints": [],
            "transport/shared_memory/enabled": shared,
            "transport/shared_memory/mode": "init",
            "transport/shared_memory/transport_optimization/pool_size": POOL,
        } | {f"{key}/endpoints": [endpoint] for key, endpoint in endpoints.items()}
        for key, value in settings.items():
            config.insert_json5(key, json.dumps(value))
        self.session: Any = zenoh.open(config)
        self.subscriber: Any = self.session.declare_subscriber(here, zenoh.handlers.FifoChannel(1_000))
        self.publisher: Any = self.session.declare_publisher(
            there,
            congestion_control=zenoh.CongestionControl.BLOCK,
            reliability=zenoh.Reliability.RELIABLE,
        )

    def close(self) -> None:
        with suppress(self.error):
            self.session.close()


@cache
def remove_segments_at_exit() -> None:
    """Removes, when the program ends, what zenoh left behind of its shared memory since it began."""
    atexit.register(remove_segments)


def remove_segments() -> None:
    mapped = ""
    for process in Path("/proc").glob("[0-9]*"):
        if process.name != str(os.getpid()):
            with suppress(OSError):
                mapped += (process / "maps").read_text()
    for segment in segments() - SEGMENTS:
        if segment.name not in mapped:
            segment.unlink(missing_ok=True)


def segments() -> set[Path]:
    return set(Path("/dev/shm").glob("*.zenoh"))


SEGMENTS = segments()
"""zenoh's segments of shared memory before it was used here."""


class ZenohReceiver(ZenohEnd):
    """Takes samples from a channel."""

    def __init__(self, work: Work, shared: bool = False) -> None:
        with socket.create_server(("127.0.0.1", 0)) as taken:
            self.contact = f"tcp/127.0.0.1:{taken.getsockname()[1]}"
        super().__init__(work, shared, "bridge/there", "bridge/back", listen=self.contact)

    def receive(self, count: int) -> float:
        receive, touch, total = self.subscriber.recv, self.work.touch, 0.0
        for _ in range(count):
            total += touch(receive().payload.to_bytes())
        return total


class ZenohSharedReceiver(ZenohReceiver):
    """Insists that what comes lies in shared memory."""

    def __init__(self, work: Work) -> None:
        super().__init__(work, shared=True)

    def receive(self, count: int) -> float:
        payload = self.subscriber.recv().payload
        assert payload.as_shm() is not None, "zenoh did not use its shared memory"
        return self.work.touch(payload.to_bytes()) + super().receive(count - 1)


class ZenohEcho(ZenohReceiver):
    """Sends back what it gets."""

    def receive(self, count: int) -> float:
        receive, put = self.subscriber.recv, self.publisher.put
        for _ in range(count):
            put(receive().payload.to_bytes())
        return expected(self.work, count)


class ZenohSender(ZenohEnd):
    """Puts bytes, once the receiver's subscription is known here."""

    def __init__(self, work: Work, contact: Any, shared: bool = False) -> None:
        remove_segments_at_exit()
        super().__init__(work, shared, "bridge/back", "bridge/there", connect=contact)
        deadline = time.monotonic() + 10
        while not self.publisher.matching_status:
            if time.monotonic() > deadline:
                raise SystemExit("zenoh: the receiver was not found within 10 s")
            time.sleep(0.01)

    def send(self, count: int) -> Sequence[int]:
        put = self.publisher.put
        for message in self.work.messages(count):
            put(message)
        return ()


class ZenohShared(ZenohSender):
    """Copies each message into memory of a provider."""

    def __init__(self, work: Work, contact: Any) -> None:
        from zenoh import shm

        super().__init__(work, contact, shared=True)
        self.provider: Any = shm.ShmProvider.default_backend(POOL)
        self.policy: Any = shm.BlockOn(shm.GarbageCollect())

    def send(self, count: int) -> Sequence[int]:
        put, alloc, policy = self.publisher.put, self.provider.alloc, self.policy
        for message in self.work.messages(count):
            size = len(message)
            memory = alloc(size, policy)
            memory[0:size] = message
            put(memory)
        return ()


class ZenohPing(ZenohSender):
    """Waits for each message to come back."""

    def send(self, count: int) -> Sequence[int]:
        put, receive = self.publisher.put, self.subscriber.recv

        def exchange(message: Any) -> None:
            put(message)
            receive().payload.to_bytes()

        return timed(exchange, self.work.messages(count))


PYZMQ = (
    Way("pyzmq", ZmqReceiver, ZmqSender),
    Way("pyzmq, copy=False", partial(ZmqReceiver, copy=False), partial(ZmqSender, copy=False)),
)
ZENOH = Way("zenoh", ZenohReceiver, ZenohSender)
TCP_UNCOPIED = Way("raw TCP", TcpReceiverInto, TcpUncopied)
WAYS: dict[str, Sequence[Way]] = {
    "one by one": (
        *PYZMQ,
        ZENOH,
        Way("raw TCP, one sendall each", TcpReceiver, TcpSender),
        Way("raw TCP, buffered", TcpReceiver, TcpBuffered),
    ),
    "batches": (
        *PYZMQ,
        Way("pyzmq, columns", partial(ZmqReceiver, copy=False), partial(ZmqColumns, copy=False)),
        ZENOH,
        TCP_UNCOPIED,
    ),
    "arrays": (
        *PYZMQ,
        Way(
            "pyzmq, copy=False, send buffer",
            partial(ZmqReceiver, copy=False),
            partial(ZmqSender, copy=False, buffer=512 << 10),
        ),
        Way("pyzmq, made anew", partial(ZmqReceiver, copy=False), partial(ZmqAnew, copy=False)),
        ZENOH,
        Way("zenoh, shared memory", ZenohSharedReceiver, ZenohShared),
        Way(
            "zenoh, shared memory by itself",
            partial(ZenohReceiver, shared=True),
            partial(ZenohSender, shared=True),
        ),
        TCP_UNCOPIED,
    ),
    "ping-pong": (
        Way("pyzmq", ZmqEcho, ZmqPing),
        Way("zenoh", ZenohEcho, ZenohPing),
        Way("raw TCP", TcpEcho, TcpPing),
    ),
}
"""The ways of each kind of table of ``bridge.py``."""
