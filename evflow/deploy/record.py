"""A record: one version of a deployment, as plain data; and what differs between two of them.

Version v + 1 is decided by the members of version v, so who the members are is part of the record, and all
of them have it. Nothing here checks that the graph can run: that is up to the nodes it would run on.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Annotated, Any

import msgspec
from msgspec import Meta, Struct

from evflow.errors import DeployError, GraphError
from evflow.graph.rules import rules_of
from evflow.net.link.messages import MISREAD
from evflow.outside import shown

MOST_NODES = 1000
"""Nodes that a deployment may have."""

MOST_STONES = 10_000
"""Stones that a deployment may have."""

_MOST_LINKS = 100_000
_NAME = 255
_TEXT = 1 << 16

Name = Annotated[str, Meta(min_length=1, max_length=_NAME, pattern="^[^/]*\\Z")]
Contact = Annotated[str, Meta(max_length=4096)]
StoneName = Annotated[str, Meta(max_length=_TEXT)]
Identity = Annotated[str, Meta(pattern="^[0-9a-f]{32}\\Z")]
"""The identity of a change: 32 hexadecimal digits."""

IdentityOrNone = Annotated[str, Meta(pattern="^([0-9a-f]{32})?\\Z")]

UNSET: Any = object()
"""An argument that was not given, where None means something."""


class _Stone(Struct):
    name: Annotated[str, Meta(min_length=1, max_length=_TEXT)]
    on: Any = None


class _Fallback(Struct):
    to: str
    after: Annotated[float, Meta(gt=0, lt=1e9)]


class _Graph(Struct):
    """What of a graph has to be read here; all else is for the nodes where its stones run."""

    stones: list[_Stone]
    links: list[tuple[str, int, str, str]]
    fallbacks: dict[str, _Fallback] | None = None


@dataclass(frozen=True)
class Record:
    """One version of a deployment.

    Attributes:
        deployment: its name.
        version: 1, 2, …
        graph: as ``Graph.to_dict`` gives it; None once it is undeployed. Beside the stones may be
            ``"fallbacks"``: {node: {"to": node, "after": seconds}}.
        hosts: node → contact. These nodes are its members.
        frozen: the names of frozen stones.
        change: the identity of the change that made this version; "" while nobody has proposed it.
        birth: the change that made version 1; another deployment of the same name has another.
        parts: node → the last change that touched what runs there; also for nodes that left by this change.
    """

    deployment: Name
    version: Annotated[int, Meta(gt=0, lt=1 << 62)]
    graph: dict[str, Any] | None
    hosts: Annotated[dict[Name, Contact], Meta(min_length=1, max_length=MOST_NODES)]
    frozen: Annotated[list[StoneName], Meta(max_length=MOST_STONES)] = field(default_factory=list)
    change: IdentityOrNone = ""
    birth: IdentityOrNone = ""
    parts: Annotated[dict[Name, Identity], Meta(max_length=2 * MOST_NODES)] = field(default_factory=dict)

    @classmethod
    def first(
        cls, deployment: str, graph: dict[str, Any], hosts: Mapping[str, str], frozen: Iterable[str] = ()
    ) -> Record:
        """A new deployment, to be proposed.

        Raises:
            DeployError: something is malformed, or a stone is on none of the hosts.
        """
        if not isinstance(deployment, str) or not 0 < len(deployment) <= _NAME or "/" in deployment:
            raise DeployError(
                f"graph {shown(deployment, 300)} cannot be deployed: a deployment goes by the name of its "
                f"graph; expected one of 1 to {_NAME} characters without '/'"
            )
        if not isinstance(hosts, Mapping):
            raise DeployError(
                f"deployment {deployment}: expected hosts as node → contact, found {shown(hosts, 300)}"
            )
        return cls.from_data(cls(deployment, 1, graph, dict(hosts), list(frozen)).data())

    def edited(
        self,
        graph: dict[str, Any] | None = UNSET,
        *,
        hosts: Mapping[str, str] = UNSET,
        frozen: Iterable[str] = UNSET,
    ) -> Record:
        """The next version, to be proposed; what is not given stays. With ``graph`` None it is undeployed.

        Raises:
            DeployError: as ``first``.
        """
        wanted = replace(
            self,
            version=self.version + 1,
            graph=self.graph if graph is UNSET else graph,
            hosts=self.hosts if hosts is UNSET else dict(hosts),
            frozen=self.frozen if frozen is UNSET else list(frozen),
            change="",
            parts={},
        )
        return Record.from_data(wanted.data())

    def moved(self, nodes: Mapping[str, str], frozen: Iterable[str] = UNSET) -> Record:
        """The next version with stones on other nodes.

        Args:
            nodes: stone → the node that it goes to.
            frozen: the stones that are frozen then; by default those that are.

        Raises:
            DeployError: a node is none of the hosts.
        """
        graph = self.graph or {}
        stones = [{**stone, "on": nodes.get(stone["name"], stone["on"])} for stone in graph.get("stones", ())]
        return self.edited({**graph, "stones": stones}, frozen=frozen)

    def made_by(self, change: str, old: Record | None) -> Record:
        """The same version as made by a change from ``old``, with everything that follows from that."""
        parts = {} if old is None else {node: made for node, made in old.parts.items() if node in self.hosts}
        parts |= dict.fromkeys(touched(old, self), change)
        return replace(self, change=change, birth=change if old is None else old.birth, parts=parts)

    def unchanged(self, change: str) -> Record:
        """The next version that is as this one."""
        return replace(self, version=self.version + 1, change=change)

    def withdrawn(self, change: str) -> Record:
        """What is decided in place of a first version that is not to come about."""
        return replace(self, graph=None, frozen=[], change=change, parts={})

    @property
    def fallbacks(self) -> dict[str, tuple[str, float]]:
        """Node → the node that its stones go to once it was dead for so many seconds."""
        rules = (self.graph or {}).get("fallbacks") or {}
        return {node: (rule["to"], float(rule["after"])) for node, rule in rules.items()}

    def data(self) -> dict[str, Any]:
        """The record as plain data."""
        return dict(vars(self))

    @classmethod
    def from_data(cls, data: object) -> Record:
        """The record that ``data()`` described; it may come from outside.

        Raises:
            DeployError: it is malformed.
        """
        if type(data) is not dict or data.keys() != cls.__annotations__.keys():
            raise DeployError(f"a record: expected {', '.join(cls.__annotations__)}, found {shown(data)}")
        try:
            record = msgspec.convert(data, cls)
        except MISREAD as error:
            raise DeployError(f"a record: {error}") from None
        if record.graph is not None:
            _check_graph(record.deployment, record.graph, record.hosts)
        return record


def stones_on(record: Record | None, node: str) -> dict[str, dict[str, Any]]:
    """The stones that a record places on a node, by name, as the graph describes them."""
    return {name: stone for name, stone in stones_of(record).items() if stone["on"] == node}


def moves(old: Record | None, new: Record) -> dict[str, tuple[str, str]]:
    """Stone → (node it leaves, node it goes to), for stones that are in both and on different nodes."""
    before, after = stones_of(old), stones_of(new)
    return {
        name: (before[name]["on"], stone["on"])
        for name, stone in after.items()
        if name in before and before[name]["on"] != stone["on"]
    }


def touched(old: Record | None, new: Record) -> set[str]:
    """The nodes that have to do something for a change: what runs there differs, or they are new."""
    if old is None:
        return set(new.hosts)
    before, after = _parts(old), _parts(new)
    differs = {node for node in before.keys() | after.keys() if before.get(node) != after.get(node)}
    return differs | (new.hosts.keys() - old.hosts.keys())


def differences(node: str, old: Record | None, new: Record) -> list[str]:
    """What differs between two versions on a node: a line for each stone there, and for each host.

    Args:
        node: the node.
        old: the version before; None for all that is frozen from the beginning.
        new: the version after.
    """
    after = stones_of(new)
    before = after if old is None else stones_of(old)
    here = {name for stones in (before, after) for name, stone in stones.items() if stone["on"] == node}
    lines = [f"stone {name!r} is removed" for name in before if name in here and name not in after]
    for name, stone in after.items():
        if name not in here:
            continue
        was = before.get(name)
        if was is None:
            lines.append(f"stone {name!r} comes")
            continue
        if was["on"] != stone["on"]:
            lines.append(f"stone {name!r} is moved from {was['on']} to {stone['on']}")
        if was | {"on": ""} != stone | {"on": ""}:
            lines.append(f"stone {name!r} is replaced")
    was_frozen, frozen = here & set(() if old is None else old.frozen), here & set(new.frozen)
    lines += [f"stone {name!r} is frozen" for name in sorted(frozen - was_frozen)]
    lines += [f"stone {name!r} is unfrozen" for name in sorted(was_frozen - frozen) if name in after]
    if old is not None:
        lines += [f"host {host} joins" for host in new.hosts if host not in old.hosts]
        lines += [f"host {host} leaves" for host in old.hosts if host not in new.hosts]
    return lines


def stones_of(record: Record | None) -> dict[str, dict[str, Any]]:
    """The stones of a record, by name, as the graph describes them; none without a record."""
    graph = None if record is None else record.graph
    return {stone["name"]: stone for stone in (graph or {}).get("stones", ())}


def _parts(record: Record) -> dict[str, list[Any]]:
    """For each node with stones all that its part is made of: stones, their links, where these lead."""
    graph, stones = record.graph or {}, stones_of(record)
    parts: dict[str, list[Any]] = {}
    for stone in stones.values():
        part = parts.setdefault(stone["on"], [graph.get("morphs")])
        part.append((stone, stone["name"] in record.frozen))
    for link in graph.get("links", ()):
        source, target = stones[link[0]]["on"], stones[link[2]]["on"]
        parts[source].append((link, target, record.hosts.get(target)))
        if target != source:
            parts[target].append((link, source, record.hosts.get(source)))
    return parts


def _check_graph(deployment: str, graph: dict[str, Any], hosts: dict[str, str]) -> None:
    """Refuses a graph whose stones, links, fallbacks or rules cannot be told."""
    try:
        read = msgspec.convert(graph, _Graph)
        rules = rules_of(graph)
    except (*MISREAD, GraphError) as error:
        raise DeployError(f"deployment {deployment}: its graph: {error}") from None
    for what, count, most in (
        ("stones", len(read.stones), MOST_STONES),
        ("links", len(read.links), _MOST_LINKS),
    ):
        if count > most:
            raise DeployError(f"deployment {deployment}: expected at most {most} {what}, found {count}")
    known = f"expected one of its hosts, {', '.join(sorted(hosts)):.1000}"
    names: set[str] = set()
    for stone in read.stones:
        if stone.name in names:
            raise DeployError(f"deployment {deployment}: there are two stones {shown(stone.name, 300)}")
        if type(stone.on) is not str or stone.on not in hosts:
            place = "no node (on= places it)" if stone.on is None else shown(stone.on, 300)
            raise DeployError(
                f"deployment {deployment}: stone {shown(stone.name, 300)} is placed on {place}; {known}"
            )
        names.add(stone.name)
    for link in read.links:
        if not names.issuperset((link[0], link[2])):
            raise DeployError(f"deployment {deployment}: {shown(link, 300)} is not a link between its stones")
    for node, fallback in (read.fallbacks or {}).items():
        what = f"deployment {deployment}: fallback of {shown(node, 300)}"
        if node not in hosts:
            raise DeployError(f"{what}: no stone is placed there; {known}")
        if fallback.to not in hosts or fallback.to == node:
            raise DeployError(f"{what} to {shown(fallback.to, 300)}: {known}, and another one")
    for rule in rules.values():
        for name, node in rule.move.items():
            if node not in hosts:
                what = f"{rule.text:.300} moves {shown(name, 300)} to {shown(node, 300)}"
                raise DeployError(f"deployment {deployment}: {what}; {known}")
