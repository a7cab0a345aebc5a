"""Survey: the status of several nodes at one moment. A node that cannot be asked is a part of the picture.

Nodes are asked at the same time, each by a thread of its own, so that a dead one costs its timeout once and
holds up no other. Connections are kept from one look to the next, and made anew where they failed.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass, field
from types import TracebackType
from typing import TYPE_CHECKING, Any

from evflow.errors import DeployError, LinkError
from evflow.tools.watch.diagnosis import Diagnosis, Probe, diagnose, told
from evflow.tools.watch.diagnosis import probe as probe_contact
from evflow.tools.watch.status import DeploymentStatus, LinkStatus, NodeStatus, StoneStatus

if TYPE_CHECKING:
    from evflow.deploy.client import Client

_AT_ONCE = 32

Opener = Callable[[], AbstractContextManager["Client"]]
"""Makes a connection to a node; raises a ``LinkError`` where there is none."""


@dataclass(frozen=True)
class Place:
    """A node to look at.

    Attributes:
        name: its name, or its contact if nobody said its name.
        contact: where it is.
        open: makes a connection to it.
    """

    name: str
    contact: str
    open: Opener


@dataclass(frozen=True)
class Seen:
    """What was seen of a node.

    Attributes:
        name: its name, as asked for or as it says.
        contact: where it was asked.
        status: what it says of itself; None if it could not be asked.
        trouble: why it could not.
        raw: its answer as it came.
    """

    name: str
    contact: str
    status: NodeStatus | None = None
    trouble: Diagnosis | None = None
    raw: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Survey:
    """What was seen of several nodes.

    Attributes:
        nodes: one each, in the order asked.
        at: when, seconds of a clock that only goes forward.
    """

    nodes: tuple[Seen, ...]
    at: float = 0.0

    @property
    def alive(self) -> dict[str, NodeStatus]:
        """The nodes that answered, by name."""
        return {seen.status.node: seen.status for seen in self.nodes if seen.status is not None}

    def deployments(self) -> dict[str, DeploymentStatus]:
        """The deployments, each as the node that has its newest version knows it."""
        found: dict[str, DeploymentStatus] = {}
        for status in self.alive.values():
            for name, known in status.deployments.items():
                if name not in found or known.version > found[name].version:
                    found[name] = known
        return found

    def links(self) -> list[tuple[str, str, LinkStatus, Diagnosis]]:
        """Every link but those of visitors who have gone: node, peer, report, and what is wrong with it."""
        return [
            (node, peer, link, diagnose(node, peer, link, host=status.host))
            for node, status in self.alive.items()
            for peer, link in status.links.items()
            if not link.left
        ]

    def troubles(self) -> list[Diagnosis]:
        """Everything that is dead or does not work as it should."""
        found = [seen.trouble for seen in self.nodes if seen.trouble is not None]
        found += [trouble for *_, trouble in self.links() if trouble]
        for node, status in self.alive.items():
            found += [
                told("not running", node=node, deployment=name, trouble=known.trouble)
                for name, known in status.deployments.items()
                if known.trouble
            ]
            found += [told("not written", node=node, trouble=why) for why in status.unwritten]
        for name, known in self.deployments().items():
            for member, state in known.members.items():
                if state.startswith("dead"):
                    contact = known.hosts.get(member)
                    at = f"{member} at {contact}" if contact else member
                    found.append(told("dead", deployment=name, node=at, at=contact or "CONTACT", state=state))
        return list({str(trouble): trouble for trouble in found}.values())


@dataclass(frozen=True)
class Rate:
    """What a stone did a second.

    Attributes:
        taken, left: events a second.
        lost: events a second that were dropped, failed or fitted no input.
        busy: the part of the time it was busy, 0 to 1.
    """

    taken: float = 0.0
    left: float = 0.0
    lost: float = 0.0
    busy: float = 0.0


def rates(before: Survey | None, after: Survey) -> dict[tuple[str, str], Rate]:
    """What each stone did a second between two looks: (node, stone) → rate.

    Stones that were not there before are left out, and all of a node that was restarted meanwhile: nobody
    knows since when they count.

    Args:
        before: the first look; None if there was none.
        after: the second.
    """
    passed = 0.0 if before is None else after.at - before.at
    if before is None or passed <= 0:
        return {}
    earlier = before.alive
    return {
        (node, name): _rate(earlier[node].stones[name], stone, passed)
        for node, now in after.alive.items()
        if node in earlier and earlier[node].pid == now.pid and earlier[node].uptime <= now.uptime
        for name, stone in now.stones.items()
        if name in earlier[node].stones
    }


def _rate(before: StoneStatus, after: StoneStatus, seconds: float) -> Rate:
    # A stone that was removed and added again counts from 0.
    start = before if before.taken <= after.taken and before.left <= after.left else StoneStatus("")
    lost = after.dropped + after.errors + after.unmatched - start.dropped - start.errors - start.unmatched
    return Rate(
        taken=(after.taken - start.taken) / seconds,
        left=(after.left - start.left) / seconds,
        lost=max(0, lost) / seconds,
        busy=min(1.0, max(0.0, after.busy - start.busy) / seconds),
    )


class Watcher:
    """Looks at nodes again and again.

    Args:
        places: the nodes.
        probe: tries a contact from this host, where a node could not be asked.
        clock: seconds, only forward.
        here: the name of this host.
    """

    def __init__(
        self,
        places: list[Place],
        probe: Callable[[str], Probe] = probe_contact,
        clock: Callable[[], float] = time.monotonic,
        here: str = "",
    ) -> None:
        self._places = places
        self._probe = probe
        self._clock = clock
        self._here = here
        self._open: dict[int, tuple[ExitStack, Client]] = {}
        self._pool = ThreadPoolExecutor(min(_AT_ONCE, max(1, len(places))), "evflow watch")

    def look(self) -> Survey:
        """Asks every node for its status."""
        seen = tuple(self._pool.map(self._ask, range(len(self._places))))
        return Survey(seen, self._clock())

    def _ask(self, number: int) -> Seen:
        place = self._places[number]
        try:
            if number not in self._open:
                stack = ExitStack()
                self._open[number] = stack, stack.enter_context(place.open())
            said = self._open[number][1].ask("status")
            status = NodeStatus.parse(said)
        except (LinkError, DeployError) as error:
            self._hang_up(number)
            return Seen(place.name, place.contact, None, self._diagnosed(place, error))
        return Seen(status.node, place.contact, status, None, said)

    def _diagnosed(self, place: Place, error: Exception) -> Diagnosis:
        report = LinkStatus("down", str(error), place.contact)
        return diagnose("", place.name, report, host=self._here, probe=self._probe(place.contact))

    def _hang_up(self, number: int) -> None:
        opened = self._open.pop(number, None)
        if opened is not None:
            opened[0].close()

    def __enter__(self) -> Watcher:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        list(self._pool.map(self._hang_up, list(self._open)))
        self._pool.shutdown()
