"""The stone of a host, and the graph of all hosts."""

from __future__ import annotations

import json
import logging
import math
import secrets
import time
from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

from evflow.errors import EvflowError
from evflow.events.batch import EventBatch
from evflow.graph.graph import Graph
from evflow.outside import from_json
from evflow.schema import Schema
from evflow.stone import Acting, Actor, Context, Later
from evflow.stones.bridge import Bridge
from evflow.tiles.density import crowds
from evflow.tiles.grid import Grid
from evflow.tiles.manager import TileManager
from evflow.tiles.messages import MATCH, Place
from evflow.tiles.plan import Plan
from evflow.tiles.roles import Roles
from evflow.tiles.wire import ENVELOPE, Gathering, batch_of, parts

__all__ = ["Host", "graph"]

_log = logging.getLogger("evflow.tiles")

_GONE = 10.0
"""Seconds after which a client that asks for nothing has gone."""

_MOST_ANSWER = 4 << 20

_MOST_WAITING = 64 << 20
"""Bytes that may wait for a client, or for its acknowledgement; then it is disconnected, and what it has not
acknowledged comes again later. As much again may be held of each other replica that tells the same."""


class Host(Acting):
    """The roles that one host plays: it takes what other hosts send, and answers clients.

    ``graph`` makes one for each host and the bridges between them.

    Args:
        plan: all hosts and their roles, as ``Plan.plain`` gives it.
        host: the number of this one among the hosts.
        silence: seconds without a sign of life after which the others take a host for dead.
        name: the stone's name.
        on: the node it is placed on.

    Raises:
        GraphError: hosts cannot be grouped so.

    Example:
        >>> plan = graph(["a", "b"]).stones["a"].settings()["plan"]
        >>> Host(plan, 1).settings()["host"]
        1
    """

    kind = "tiles host"
    linked_ports = "free"
    entrance = True
    wakes = True

    def __init__(
        self,
        plan: Mapping[str, Any],
        host: int,
        *,
        silence: float = 3.0,
        name: str | None = None,
        on: str | None = None,
    ) -> None:
        super().__init__(name=name, on=on)
        self.plan = Plan.of(plan)
        self.host, self.silence = host, silence

    @property
    def inputs(self) -> Mapping[str, Schema | None]:
        return {"input": ENVELOPE}

    def emits(self, schema: Schema | None) -> tuple[Schema | None, ...]:
        return (ENVELOPE,)

    def settings(self) -> dict[str, Any]:
        return {"plan": self.plan.plain(), "host": self.host, "silence": self.silence}

    def prepare(self) -> None:
        self.plan.layout.grids.tiling  # noqa: B018  takes a moment

    def open(self, context: Context) -> Actor:
        return _HostActor(context, self)


class _Client:
    """A client's exchange with its Frontend.

    Attributes:
        parts: of messages for it, in order.
        size: their bytes.
        waits: what it has asked that is not answered yet.
        until: when it is to hear that there is nothing.
        gathering: its messages.
    """

    def __init__(self) -> None:
        self.parts: list[dict[str, Any]] = []
        self.size = 0
        self.waits: Later | None = None
        self.until = 0.0
        self.gathering = Gathering()


def _size(part: Mapping[str, Any]) -> int:
    """Bytes of a part of a message, about."""
    return len(part["rows"]) + len(part.get("contents", b"")) + 64


class _HostActor(Actor):
    """Runs the roles of a host.

    Args:
        context: see ``Actor``.
        stone: the description.
    """

    def __init__(self, context: Context, stone: Host) -> None:
        super().__init__(context)
        self._name = context.home[1]
        self._clients: dict[int, _Client] = {}
        self._change: int | float | str = ""
        self._weighed = ""
        self.roles = Roles(
            stone.plan,
            stone.host,
            lambda: secrets.randbits(62) | 1,
            time.monotonic(),
            silence=stone.silence,
            contact=context.home[0],
        )

    def receive(self, batch: EventBatch, input: str) -> None:
        now = time.monotonic()
        for position, view in enumerate(batch):
            try:
                self.roles.receive(view, now)
            except EvflowError as error:
                self.context.fault(batch.slice(position, position + 1), error)
        self._flush()

    def wake(self, now: float) -> float | None:
        now = time.monotonic()
        due = min([self.roles.tick(now), *(c.until for c in self._clients.values() if c.waits is not None)])
        for number, session in list(self.roles.sessions.items()):
            if now - session.heard > _GONE:
                self.roles.disconnect(number)
        for number, client in list(self._clients.items()):
            if number not in self.roles.sessions:
                self._dismiss(number)
            elif client.waits is not None and now > client.until:
                self._tell(client)
        self._take_plan(now)
        self._tell_crowds()
        self._flush()
        self.context.attributes.update(self.roles.told)
        return due

    def _tell_crowds(self) -> None:
        """Whoever balances the grid asks for crowds by an attribute, and is told in another one."""
        given = str(self.context.attributes.get("weigh", ""))
        if given == self._weighed:
            return
        self._weighed, told = given, ""
        managers = [role for role in self.roles.roles.values() if isinstance(role, TileManager)]
        try:
            most = float(from_json(given)[1]) if given else math.inf
            found = [(tile, *crowd) for manager in managers for tile, crowd in crowds(manager, most).items()]
            told = json.dumps([given, found]) if given else ""
        except (EvflowError, TypeError, ValueError, LookupError) as error:
            _log.warning("%s: attribute weigh: %s", self._name, error)
        self.context.attributes["crowds"] = told

    def _take_plan(self, now: float) -> None:
        """Whoever controls the deployment changes the plan by an attribute; see ``evflow.tiles.change``."""
        given = self.context.attributes.get("change", "")
        if given != self._change:
            self._change = given
            try:
                self.roles.adopt(Plan.read(str(given)), now)
            except EvflowError as error:
                _log.warning("%s: attribute change: %s", self._name, error)

    def _flush(self) -> None:
        """Sends what the roles have to say, to hosts and to clients."""
        outbox, self.roles.outbox = self.roles.outbox, []
        by_host = defaultdict(list)
        for at, sent in outbox:
            by_host[at].append(sent)
        for at, envelopes in by_host.items():
            self.context.emit(batch_of(envelopes), at)
        for number, session in list(self.roles.sessions.items()):
            if session.outbox:
                client = self._clients[number]
                while session.outbox:
                    added = parts(session.outbox.popleft())
                    client.parts += added
                    client.size += sum(map(_size, added))
                if client.waits is not None:
                    self._tell(client)
                kept = self.roles.unacknowledged(number) * MATCH.itemsize
                if max(client.size, kept) > _MOST_WAITING:
                    _log.warning("client %d takes too little, and is disconnected", number)
                    self.roles.disconnect(number)
                    self._dismiss(number)
                    self.context.wake()

    def _dismiss(self, number: int) -> None:
        client = self._clients.pop(number)
        if client.waits is not None:
            client.waits.give(EvflowError("not connected any more; connect again"))

    def _tell(self, client: _Client) -> None:
        """Answers a client with what there is for it, at most ``_MOST_ANSWER`` bytes."""
        size = taken = 0
        for part in client.parts:
            if taken and size + _size(part) > _MOST_ANSWER:
                break
            size += _size(part)
            taken += 1
        told, client.parts = client.parts[:taken], client.parts[taken:]
        client.size -= size
        waits, client.waits = client.waits, None
        assert waits is not None
        waits.give({"messages": told})

    def answer(self, question: dict[str, Any]) -> Any:
        """What a client asks; see ``evflow.tiles.connection``.

        Args:
            question: ``client`` (its number) and one of ``connect``, ``messages`` (parts of what it sends),
                ``take`` (it wants what there is for it, within so many seconds), ``leave``.
        """
        number = question.get("client")
        if not isinstance(number, int) or isinstance(number, bool) or not 0 <= number < 1 << 62:
            raise EvflowError(f"client {number!r}: expected a number below 2**62")
        now, roles = time.monotonic(), self.roles
        if question.get("connect"):
            place: Place = roles.connect(number, now)
            if number in self._clients:
                self._dismiss(number)
            self._clients[number] = _Client()
            return {"frontend": place.group, "hosts": roles.contacts}
        if question.get("leave"):
            roles.disconnect(number)
            self.context.wake()
            return {}
        roles.session(number, now)
        client = self._clients[number]
        if "messages" in question:
            for message in client.gathering.take(question["messages"]):
                roles.say(number, message)
            self.context.wake()
            return {}
        later, patience = Later(), question.get("take")
        if not isinstance(patience, int | float) or not 0 <= patience < 60:
            raise EvflowError(f"take {patience!r}: expected seconds from 0 to 60")
        if client.waits is not None:
            client.waits.give({"messages": []})
        client.waits, client.until = later, now + patience
        if client.parts:
            self._tell(client)
        return later


def graph(
    hosts: Sequence[str],
    *,
    replicas: int = 1,
    metres: float = 1222.0,
    frontends: Sequence[str] | None = None,
    states: Sequence[str] | None = None,
    tiles: Sequence[str] | None = None,
    silence: float = 3.0,
    name: str = "tiles",
) -> Graph:
    """The graph of a system of tiles, to be deployed.

    Args:
        hosts: names of nodes, each of which plays all roles unless the next arguments say otherwise.
        replicas: r: how many hosts have each entity and each tile; any r - 1 of them may die.
        metres: how wide tiles are at the equator, about.
        frontends: the hosts that clients may connect to.
        states: the hosts of State Managers, a multiple of ``replicas``.
        tiles: the hosts of Tile Managers, a multiple of ``replicas``.
        silence: seconds without a sign of life after which a host counts as dead.
        name: the graph's name, which is that of the deployment.

    Raises:
        GraphError: hosts cannot be grouped so.

    Example:
        >>> sorted(graph(["a", "b"], replicas=2).stones)
        ['a', 'a to b', 'b', 'b to a']
    """
    named = [list(hosts if some is None else some) for some in (frontends, states, tiles)]
    plan = Plan.made(named[0], named[1], named[2], replicas, Grid.of_metres(metres).zoom)
    made = Graph(name)
    for at in plan.numbers:
        put(made, name, plan, at, silence)
    return made


def put(graph: Graph, name: str, plan: Plan, host: int, silence: float) -> None:
    """Adds the stone of a host to a graph, and bridges between it and those that are there already.

    Args:
        graph: the graph.
        name: that of the deployment.
        plan: all hosts and their roles.
        host: the number of the host.
        silence: see ``graph``.
    """
    mine = plan.hosts[host]
    graph.add(Host(plan.plain(), host, silence=silence, name=mine, on=mine))
    for other, peer in plan.numbers.items():
        if peer in graph.stones and other != host:
            for one, two, to in ((mine, peer, other), (peer, mine, host)):
                way = Bridge(
                    two,
                    f"{name}/{two}",
                    delivery="at_most_once",
                    policy="drop oldest",
                    limit=256 << 20,
                    name=f"{one} to {two}",
                    on=one,
                )
                graph[one][to] >> way
