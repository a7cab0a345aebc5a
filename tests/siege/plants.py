"""Faults to plant into a besieged node, each of which takes back what a node does against an attack."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from typing import Any, NamedTuple

__all__ = ["PLANTS", "Plant"]


class Plant(NamedTuple):
    """A fault.

    Attributes:
        patch: plants it into this process.
        attacks: those that have to find it.
        found: a pattern of what one of the failures says.
        memory: bytes that a node may have in use.
    """

    patch: Callable[[], None]
    attacks: tuple[str, ...]
    found: str
    memory: int = 1 << 30


class _Broken(BaseException):
    """What nothing contains."""


def _unbounded() -> None:
    """Headers are read as a whole, however large and deep, wherever they come from."""
    import msgpack

    from evflow.errors import LinkError
    from evflow.net.link import messages as m

    inner = m.unpack

    def unpack(data: Any) -> m.Message:
        try:
            fields = msgpack.unpackb(data, max_map_len=0, max_ext_len=0)
        except (ValueError, msgpack.UnpackException, RecursionError) as error:
            raise LinkError(f"expected msgpack, found {error!r:.100}") from None
        try:
            return inner(data)
        except LinkError:
            raise LinkError(f"expected a message, found {fields!r:.100}") from None

    m.unpack = unpack
    m.MOST_GREETING = 64 << 20


def _nested() -> None:
    """Lists in lists break the flow: the text of an error shows the whole value."""
    from evflow.net.link import messages as m

    _unbounded()
    inner = m.unpack

    def unpack(data: Any) -> m.Message:
        try:
            return inner(data)
        except RecursionError as error:
            raise _Broken from error

    m.unpack = unpack


def _zombie() -> None:
    """A process whose flow broke goes on without it."""
    from evflow.flow.flow import Flow

    _nested()
    Flow.failure = None  # type: ignore[assignment]


def _starved() -> None:
    """Nobody serves links while a handler runs."""
    from evflow.flow.worker import Worker

    begin = Worker.__init__

    def init(self: Worker, *arguments: Any, **settings: Any) -> None:
        begin(self, *arguments, **settings)
        self._standby = None
        self.engine.away = nullcontext()

    Worker.__init__ = init  # type: ignore[method-assign]


def _heartbeats() -> None:
    """ZeroMQ has heartbeats of its own, while a handler leaves its queues full."""
    import zmq

    from evflow.net.node.sockets import Sockets

    _starved()
    socket_of = Sockets._socket

    def made(self: Sockets, *arguments: Any) -> Any:
        socket = socket_of(self, *arguments)
        socket.set(zmq.HEARTBEAT_IVL, 1000)
        socket.set(zmq.HEARTBEAT_TIMEOUT, 5000)
        return socket

    Sockets._socket = made  # type: ignore[method-assign]


def _disk() -> None:
    """A full disk ends the flow."""
    from evflow.errors import LinkError
    from evflow.net.node.journal import FileJournal

    save = FileJournal.save

    def saved(self: FileJournal, *arguments: Any) -> None:
        try:
            save(self, *arguments)
        except LinkError as error:
            raise _Broken from error

    FileJournal.save = saved  # type: ignore[method-assign]


def _boundless() -> None:
    """Every channel gets all the credit that one may have, and nothing has to wait at its sender."""
    from evflow.net.link.inlet import Budget

    Budget.allows = lambda self, inlet, used: self.window  # type: ignore[method-assign]
    Budget.admits = lambda self, inlet, beyond: True  # type: ignore[method-assign]


def _endless() -> None:
    """Functions have all the fuel there is, whatever their stone says."""
    from evflow.codgen.llvm import emitter

    emitter.tank = lambda function: (1 << 63) - 1  # type: ignore[attr-defined]


PLANTS: dict[str, Plant] = {
    "nested": Plant(_nested, ("nested",), "no answer|ended by itself"),
    "zombie": Plant(_zombie, ("nested",), "no answer"),
    "header": Plant(_unbounded, ("header",), "MiB in use"),
    "starved": Plant(_starved, ("nap",), "link to . broke"),
    "boundless": Plant(_boundless, ("hoard",), "MiB in use", memory=400 << 20),
    "heartbeats": Plant(_heartbeats, ("orphan",), "ended by itself"),
    "endless": Plant(_endless, ("fuel",), "not handled|took|lost"),
    "disk": Plant(_disk, ("fill",), "no answer|ended by itself|not handled"),
}
