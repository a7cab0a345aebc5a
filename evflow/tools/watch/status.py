"""What a node says of itself, checked: the answer to "status" as values with names and types.

A node of another version may say more, which is left out, or less, which has a default. What is of another
type than expected is refused as a whole, so nobody behind this has to doubt it.
"""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
from msgspec import Meta, Struct

from evflow.errors import LinkError

Value = int | float | str

_MOST = 100_000

# What is not finite cannot be printed as a number.
Real = Annotated[float, Meta(ge=-1e300, le=1e300)]


class StoneStatus(Struct, frozen=True, rename={"taken": "in", "left": "out"}):
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
    busy: Real = 0.0
    frozen: bool = False
    attributes: Annotated[dict[str, Value], Meta(max_length=_MOST)] = {}


class LinkStatus(Struct, frozen=True):
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
    round_trip: Real = 0.0
    bandwidth: Real = 0.0
    waiting: int = 0
    sessions: int = 0

    @property
    def left(self) -> bool:
        """Whether it is of a visitor who has gone: who asks or deploys comes as a node, and leaves again."""
        return self.state != "up" and not self.contact and not self.waiting


class DeploymentStatus(Struct, frozen=True):
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
    hosts: Annotated[dict[str, str], Meta(max_length=_MOST)] = {}
    members: Annotated[dict[str, str], Meta(max_length=_MOST)] = {}
    frozen: tuple[str, ...] = ()
    changing: str = ""
    trouble: str = ""
    graph: dict[str, Any] | None = None


class NodeStatus(Struct, frozen=True):
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
    uptime: Real = 0.0
    load: Real = 0.0
    memory: int = 0
    budget: Annotated[dict[str, int], Meta(max_length=_MOST)] = {}
    wall: Real = 0.0
    deployments: Annotated[dict[str, DeploymentStatus], Meta(max_length=_MOST)] = {}
    stones: Annotated[dict[str, StoneStatus], Meta(max_length=_MOST)] = {}
    links: Annotated[dict[str, LinkStatus], Meta(max_length=_MOST)] = {}
    refused: Annotated[dict[str, int], Meta(max_length=_MOST)] = {}
    dead_letters: int = 0
    handlers: tuple[str, ...] = ()
    unwritten: tuple[str, ...] = ()

    @classmethod
    def parse(cls, data: object) -> NodeStatus:
        """The status that a node's answer is.

        Raises:
            LinkError: it is none; names what was expected and found.
        """
        try:
            return msgspec.convert(data, cls)
        except (msgspec.ValidationError, RecursionError) as error:
            raise LinkError(f"status: {error}; is the node another version of evflow?") from None
