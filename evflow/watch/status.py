"""What a node says of itself, checked: the answer to "status" as values with names and types.

A node of another version may say more, which is left out, or less, which has a default. What is of another
type than expected is refused as a whole, so nobody behind this has to doubt it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

from evflow.errors import LinkError
from evflow.outside import shown

__all__ = ["DeploymentStatus", "LinkStatus", "NodeStatus", "StoneStatus", "Value"]

Value = int | float | str
_T = TypeVar("_T")
_MOST = 100_000


@dataclass(frozen=True)
class StoneStatus:
    """A stone of a deployment on a node.

    Attributes:
        kind: its kind.
        taken, left, dropped, errors, unmatched: events so far.
        queued: events that wait in it now.
        busy: seconds spent in it so far.
        frozen: whether it is frozen.
        attributes: its own attributes.
    """

    kind: str
    taken: int = 0
    left: int = 0
    dropped: int = 0
    errors: int = 0
    unmatched: int = 0
    queued: int = 0
    busy: float = 0.0
    frozen: bool = False
    attributes: dict[str, Value] = field(default_factory=dict)


@dataclass(frozen=True)
class LinkStatus:
    """A link of a node to a peer; see ``Node.links``.

    Attributes:
        state: "down", "dialing" or "up".
        trouble: why it is not up, or what does not go over it; "" if nothing is wrong.
        contact: where the peer is dialled, or "".
        round_trip: seconds.
        bandwidth: bytes a second.
        waiting: events that have not been handled by the peer.
        sessions: how many there were.
    """

    state: str
    trouble: str = ""
    contact: str = ""
    round_trip: float = 0.0
    bandwidth: float = 0.0
    waiting: int = 0
    sessions: int = 0

    @property
    def left(self) -> bool:
        """Whether it is of a visitor who has gone: who asks or deploys comes as a node, and leaves again."""
        return self.state != "up" and not self.contact and not self.waiting


@dataclass(frozen=True)
class DeploymentStatus:
    """A deployment, as one of its nodes knows it.

    Attributes:
        version: of its record.
        change: the id of the change that made it.
        hosts: node → contact.
        members: node → "alive", "unknown", or "dead" and since when.
        frozen: names of frozen stones.
        changing: what is being changed now, or "".
        trouble: why its version does not run on the node that says this, or "".
        graph: ``Graph.to_dict()``, or None.
    """

    version: int = 0
    change: str = ""
    hosts: dict[str, str] = field(default_factory=dict)
    members: dict[str, str] = field(default_factory=dict)
    frozen: tuple[str, ...] = ()
    changing: str = ""
    trouble: str = ""
    graph: dict[str, Any] | None = None


@dataclass(frozen=True)
class NodeStatus:
    """A node at one moment.

    Attributes:
        node: its name.
        version: of evflow.
        contact: where it can be dialled.
        pid: its process.
        host: the name of its host.
        uptime: seconds since it began.
        load: of its host, the average of a minute.
        memory: bytes of its process.
        budget: bytes of events that peers may have there: ``used`` and ``most``.
        wall: its clock, seconds since 1970.
        deployments: name → deployment.
        stones: "deployment/stone" → stone.
        links: peer → link.
        refused: kind → what came and was refused so far.
        dead_letters: events given up so far.
        handlers: the modules that handlers may be of.
        unwritten: why files cannot be written now, one text a file.
    """

    node: str
    version: str = ""
    contact: str = ""
    pid: int = 0
    host: str = ""
    uptime: float = 0.0
    load: float = 0.0
    memory: int = 0
    budget: dict[str, int] = field(default_factory=dict)
    wall: float = 0.0
    deployments: dict[str, DeploymentStatus] = field(default_factory=dict)
    stones: dict[str, StoneStatus] = field(default_factory=dict)
    links: dict[str, LinkStatus] = field(default_factory=dict)
    refused: dict[str, int] = field(default_factory=dict)
    dead_letters: int = 0
    handlers: tuple[str, ...] = ()
    unwritten: tuple[str, ...] = ()

    @classmethod
    def parse(cls, data: object) -> NodeStatus:
        """The status that a node's answer is.

        Raises:
            LinkError: it is none; names what was expected and found.
        """
        said = _Reader("status", data)
        return cls(
            node=said.text("node", needed=True),
            version=said.text("version"),
            contact=said.text("contact"),
            pid=said.whole("pid"),
            host=said.text("host"),
            uptime=said.number("uptime"),
            load=said.number("load"),
            memory=said.whole("memory"),
            budget=said.mapping("budget", _count),
            wall=said.number("wall"),
            deployments=said.mapping("deployments", _deployment),
            stones=said.mapping("stones", _stone),
            links=said.mapping("links", _link),
            refused=said.mapping("refused", _count),
            dead_letters=said.whole("dead_letters"),
            handlers=said.texts("handlers"),
            unwritten=said.texts("unwritten"),
        )


def _deployment(where: str, data: object) -> DeploymentStatus:
    said = _Reader(where, data)
    graph = said.get("graph")
    return DeploymentStatus(
        version=said.whole("version"),
        change=said.text("change"),
        hosts=said.mapping("hosts", _text),
        members=said.mapping("members", _text),
        frozen=said.texts("frozen"),
        changing=said.text("changing"),
        trouble=said.text("trouble"),
        graph=None if graph is None else _mapping(f"{where}: graph", graph),
    )


def _stone(where: str, data: object) -> StoneStatus:
    said = _Reader(where, data)
    return StoneStatus(
        kind=said.text("kind"),
        taken=said.whole("in"),
        left=said.whole("out"),
        dropped=said.whole("dropped"),
        errors=said.whole("errors"),
        unmatched=said.whole("unmatched"),
        queued=said.whole("queued"),
        busy=said.number("busy"),
        frozen=bool(said.get("frozen")),
        attributes=said.mapping("attributes", _value),
    )


def _link(where: str, data: object) -> LinkStatus:
    said = _Reader(where, data)
    return LinkStatus(
        state=said.text("state", needed=True),
        trouble=said.text("trouble"),
        contact=said.text("contact"),
        round_trip=said.number("round_trip"),
        bandwidth=said.number("bandwidth"),
        waiting=said.whole("waiting"),
        sessions=said.whole("sessions"),
    )


class _Reader:
    """Reads a mapping that came from outside, key by key."""

    def __init__(self, where: str, data: object) -> None:
        self._where = where
        self._data = _mapping(where, data)

    def get(self, key: str) -> Any:
        return self._data.get(key)

    def text(self, key: str, needed: bool = False) -> str:
        value = self._data.get(key)
        return "" if value is None and not needed else _text(f"{self._where}: {key}", value)

    def whole(self, key: str) -> int:
        # Counts come as floats too, from what keeps counts and seconds in one table.
        value = self._data.get(key, 0)
        return int(_number(f"{self._where}: {key}", value))

    def number(self, key: str) -> float:
        return float(_number(f"{self._where}: {key}", self._data.get(key, 0.0)))

    def texts(self, key: str) -> tuple[str, ...]:
        value = self._data.get(key) or ()
        if not isinstance(value, list | tuple):
            raise _refused(f"{self._where}: {key}", "a list of texts", value)
        return tuple(_text(f"{self._where}: {key}", one) for one in value)

    def mapping(self, key: str, read: Callable[[str, object], _T]) -> dict[str, _T]:
        where = f"{self._where}: {key}"
        value = self._data.get(key)
        found = {} if value is None else _mapping(where, value)
        return {name: read(f"{where}: {name:.100}", one) for name, one in found.items()}


def _mapping(where: str, value: object) -> dict[str, Any]:
    if not isinstance(value, Mapping) or len(value) > _MOST or not all(isinstance(k, str) for k in value):
        raise _refused(where, f"a mapping of at most {_MOST} names", value)
    return dict(value)


def _text(where: str, value: object) -> str:
    if not isinstance(value, str):
        raise _refused(where, "a text", value)
    return value


def _number(where: str, value: object) -> int | float:
    # What is not finite cannot be printed as a count; 1e300 events are no count either.
    if isinstance(value, bool) or not isinstance(value, int | float) or not abs(value) < 1e300:
        raise _refused(where, "a number", value)
    return value


def _count(where: str, value: object) -> int:
    return int(_number(where, value))


def _value(where: str, value: object) -> Value:
    if not isinstance(value, int | float | str):
        raise _refused(where, "a number or a text", value)
    return value


def _refused(where: str, expected: str, found: object) -> LinkError:
    return LinkError(f"{where}: expected {expected}, found {shown(found)}; is it another version of evflow?")
