"""A record: one version of a deployment, as plain data; and what differs between two of them.

Version v + 1 is decided by the members of version v, so who the members are is part of the record, and all
of them have it. Nothing here checks that the graph can run: that is up to the nodes it would run on.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from evflow.errors import DeployError, GraphError
from evflow.outside import shown
from evflow.rules import rules_of

__all__ = ["UNSET", "Record", "is_identity", "moves", "stones_of", "stones_on", "touched"]

MOST_NODES = 1000
"""Nodes that a deployment may have."""

MOST_STONES = 10_000
"""Stones that a deployment may have."""

_MOST_LINKS = 100_000
_NAME = 255
_CONTACT = 4096
_TEXT = 1 << 16
_IDENTITY = re.compile("[0-9a-f]{32}")

UNSET: Any = object()
"""An argument that was not given, where None means something."""


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

    deployment: str
    version: int
    graph: dict[str, Any] | None
    hosts: dict[str, str]
    frozen: list[str] = field(default_factory=list)
    change: str = ""
    birth: str = ""
    parts: dict[str, str] = field(default_factory=dict)

    @classmethod
    def first(
        cls, deployment: str, graph: dict[str, Any], hosts: Mapping[str, str], frozen: Iterable[str] = ()
    ) -> Record:
        """A new deployment, to be proposed.

        Raises:
            DeployError: something is malformed, or a stone is on none of the hosts.
        """
        if not _is_name(deployment):
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

    def made_by(self, change: str, old: Record | None) -> Record:
        """The same version as made by a change from ``old``, with everything that follows from that."""
        parts = {} if old is None else {node: made for node, made in old.parts.items() if node in self.hosts}
        parts |= dict.fromkeys(touched(old, self), change)
        return replace(self, change=change, birth=change if old is None else old.birth, parts=parts)

    def unchanged(self, change: str) -> Record:
        """The next version that is as this one."""
        return replace(self, version=self.version + 1, change=change)

    def withdrawn(self, change: str) -> Record:
        """What is decided in place of a first version that shall not come to be."""
        return replace(self, graph=None, frozen=[], change=change, parts={})

    @property
    def fallbacks(self) -> dict[str, tuple[str, float]]:
        """Node → the node that its stones go to once it was dead for so many seconds."""
        rules = (self.graph or {}).get("fallbacks") or {}
        return {node: (rule["to"], float(rule["after"])) for node, rule in rules.items()}

    def data(self) -> dict[str, Any]:
        """The record as plain data."""
        return {name: getattr(self, name) for name in _FIELDS}

    @classmethod
    def from_data(cls, data: object) -> Record:
        """The record that ``data()`` described; it may come from outside.

        Raises:
            DeployError: it is malformed.
        """
        if type(data) is not dict or data.keys() != _FIELDS.keys():
            raise DeployError(f"a record: expected {', '.join(_FIELDS)}, found {shown(data)}")
        for name, check in _FIELDS.items():
            if not check(data[name]):
                raise DeployError(f"a record: {name} cannot be {shown(data[name])}")
        record = cls(**data)
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


def is_identity(value: object) -> bool:
    """Whether something is the identity of a change: 32 hexadecimal digits."""
    return type(value) is str and _IDENTITY.fullmatch(value) is not None


def _is_name(value: object) -> bool:
    return type(value) is str and 0 < len(value) <= _NAME and "/" not in value


def _is_identity_or_unset(value: object) -> bool:
    return value == "" or is_identity(value)


def _is_hosts(value: object) -> bool:
    if type(value) is not dict or not 0 < len(value) <= MOST_NODES:
        return False
    contacts = all(type(contact) is str and len(contact) <= _CONTACT for contact in value.values())
    return contacts and all(map(_is_name, value))


def _is_stone_names(value: object) -> bool:
    if type(value) is not list or len(value) > MOST_STONES:
        return False
    return all(type(name) is str and len(name) <= _TEXT for name in value)


def _is_parts(value: object) -> bool:
    if type(value) is not dict or len(value) > 2 * MOST_NODES:
        return False
    return all(map(_is_name, value)) and all(map(is_identity, value.values()))


_FIELDS: dict[str, Callable[[Any], bool]] = {
    "deployment": _is_name,
    "version": lambda value: type(value) is int and 0 < value < 1 << 62,
    "graph": lambda value: value is None or type(value) is dict,
    "hosts": _is_hosts,
    "frozen": _is_stone_names,
    "change": _is_identity_or_unset,
    "birth": _is_identity_or_unset,
    "parts": _is_parts,
}


def _check_graph(deployment: str, graph: dict[str, Any], hosts: dict[str, str]) -> None:
    """Refuses a graph whose stones, links or fallbacks cannot be told."""
    stones, links = graph.get("stones"), graph.get("links")
    if type(stones) is not list or len(stones) > MOST_STONES:
        found = len(stones) if type(stones) is list else stones
        raise DeployError(
            f"deployment {deployment}: expected at most {MOST_STONES} stones, found {shown(found)}"
        )
    names: set[str] = set()
    for stone in stones:
        names.add(_checked_stone(deployment, stone, names, hosts))
    if type(links) is not list or len(links) > _MOST_LINKS:
        raise DeployError(f"deployment {deployment}: expected at most {_MOST_LINKS} links")
    for link in links:
        if not (type(link) in (list, tuple) and len(link) == 4 and _are_ends(link, names)):
            raise DeployError(f"deployment {deployment}: {shown(link, 300)} is no link between its stones")
    _check_fallbacks(deployment, graph.get("fallbacks"), hosts)
    _check_rules(deployment, graph, hosts)


def _are_ends(link: list[Any], names: set[str]) -> bool:
    source, port, target, input = link
    texts = type(source) is str and type(target) is str and type(input) is str
    return texts and type(port) is int and source in names and target in names


def _checked_stone(deployment: str, stone: object, names: set[str], hosts: dict[str, str]) -> str:
    name = stone.get("name") if type(stone) is dict else None
    if type(stone) is not dict or type(name) is not str or not 0 < len(name) <= _TEXT or name in names:
        raise DeployError(f"deployment {deployment}: {shown(stone)} is no stone with a name of its own")
    node = stone.get("on")
    if type(node) is not str or node not in hosts:
        place = "no node" if node is None else f"{shown(node, 300)}"
        raise DeployError(
            f"deployment {deployment}: stone {shown(name, 300)} is placed on {place}; "
            f"expected one of its hosts, {', '.join(sorted(hosts)):.1000}"
        )
    return name


def _check_rules(deployment: str, graph: dict[str, Any], hosts: dict[str, str]) -> None:
    try:
        rules = rules_of(graph)
    except GraphError as error:
        raise DeployError(f"deployment {deployment}: {error}") from None
    for rule in rules.values():
        for name, node in rule.move.items():
            if node not in hosts:
                raise DeployError(
                    f"deployment {deployment}: {rule.text:.300} moves {shown(name, 300)} to "
                    f"{shown(node, 300)}; expected one of its hosts, {', '.join(sorted(hosts)):.1000}"
                )


def _check_fallbacks(deployment: str, rules: object, hosts: dict[str, str]) -> None:
    if rules is None:
        return
    if type(rules) is not dict:
        raise DeployError(f"deployment {deployment}: fallbacks: expected a table, found {shown(rules)}")
    for node, rule in rules.items():
        to, after = (rule.get("to"), rule.get("after")) if type(rule) is dict else (None, None)
        if node not in hosts:
            raise DeployError(
                f"deployment {deployment}: fallback of {shown(node, 300)}: no stone is placed there, as it "
                f"is none of its hosts, {', '.join(sorted(hosts)):.1000}"
            )
        known = type(to) is str and to in hosts and to != node
        # A comparison also refuses what is not a number of seconds, as NaN.
        if not known or type(after) not in (int, float) or not 0 < after < 1e9:  # type: ignore[operator]
            raise DeployError(
                f"deployment {deployment}: fallback of {shown(node, 300)}: expected {{'to': another host, "
                f"'after': seconds}}, found {shown(rule, 300)}"
            )
