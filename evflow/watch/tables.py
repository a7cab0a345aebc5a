"""``evflow status`` as text: tables of nodes, deployments, links and stones, then what is wrong."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from evflow.report import Figure, duration, milliseconds, size, table
from evflow.watch.diagnosis import Diagnosis
from evflow.watch.status import DeploymentStatus, NodeStatus, StoneStatus
from evflow.watch.survey import Seen, Survey

__all__ = ["member_text", "notes_of", "status_data", "status_text"]

_RARE = ("dropped", "errors", "unmatched", "queued")


def status_text(survey: Survey) -> str:
    """Everything that was seen, as tables; what is wrong comes last, where it is not scrolled away."""
    parts = [_nodes(survey), *_deployments(survey), *_links(survey), *_stones(survey)]
    troubles = survey.troubles()
    if troubles:
        listed = "\n".join(map(str, troubles))
        parts.append(f"{len(troubles)} {'trouble' if len(troubles) == 1 else 'troubles'}\n{listed}")
    return "\n\n".join(parts)


def _nodes(survey: Survey) -> str:
    header = ["node", "host", "contact", "state", "up", "load", "memory", "peers' events", "stones"]
    rows = [_node(seen) for seen in survey.nodes]
    return table([*header, "dead letters", "refused", "version"], rows)


def _node(seen: Seen) -> list[str | float]:
    status = seen.status
    if status is None:
        kind = seen.trouble.kind if seen.trouble else ""
        return [seen.name, "", seen.contact, kind or "unreachable", *[""] * 8]
    return [
        status.node,
        status.host,
        status.contact or seen.contact,
        "alive",
        duration(status.uptime),
        Figure(f"{status.load:.2f}"),
        size(status.memory),
        _budget(status),
        len(status.stones),
        status.dead_letters,
        sum(status.refused.values()),
        status.version,
    ]


def _budget(status: NodeStatus) -> str:
    told = status.budget
    return f"{size(told['used'])} of {size(told['most'])}" if {"used", "most"} <= told.keys() else ""


def _deployments(survey: Survey) -> Iterator[str]:
    found = survey.deployments()
    if found:
        header = ["deployment", "version", "members", "frozen", "changing"]
        rows: list[list[str | float]] = [
            [name, known.version, member_text(known), ", ".join(known.frozen), known.changing]
            for name, known in found.items()
        ]
        yield table(header, rows)


def member_text(known: DeploymentStatus) -> str:
    """The members of a deployment with those that are not alive named."""
    if not known.members:
        return ""
    bad = [f"{name} {state}" for name, state in known.members.items() if state != "alive"]
    alive = len(known.members) - len(bad)
    return f"{alive} of {len(known.members)} alive{': ' + ', '.join(bad) if bad else ''}"


def _links(survey: Survey) -> Iterator[str]:
    links = survey.links()
    if links:
        header = ["link", "state", "contact", "round trip", "bandwidth", "waiting", "sessions", "trouble"]
        rows: list[list[str | float]] = [
            [
                f"{node} → {peer}",
                link.state,
                link.contact,
                milliseconds(link.round_trip),
                size(link.bandwidth, "/s"),
                link.waiting,
                link.sessions,
                trouble.kind if trouble else "",
            ]
            for node, peer, link, trouble in links
        ]
        yield table(header, rows)


def _stones(survey: Survey) -> Iterator[str]:
    rows = [
        (name, node, stone) for node, status in survey.alive.items() for name, stone in status.stones.items()
    ]
    if not rows:
        return
    rare = [key for key in _RARE if any(getattr(stone, key) for *_, stone in rows)]
    noted = any(notes_of(stone) for *_, stone in rows)
    header = ["stone", "kind", "node", "in", "out", *rare, "busy", *(["notes"] if noted else [])]
    cells: list[list[str | float]] = [
        [
            name,
            stone.kind,
            node,
            stone.taken,
            stone.left,
            *(getattr(stone, key) for key in rare),
            Figure(f"{stone.busy:,.2f} s"),
            *([notes_of(stone)] if noted else []),
        ]
        for name, node, stone in rows
    ]
    yield table(header, cells)


def notes_of(stone: StoneStatus) -> str:
    """What is to be said of a stone in words: that it is frozen, and its own attributes."""
    said = ["frozen"] if stone.frozen else []
    said += [f"{name}={value}" for name, value in stone.attributes.items()]
    return " ".join(said)


def status_data(survey: Survey) -> dict[str, Any]:
    """Everything that was seen, as data for JSON: the nodes' own answers, and what is wrong."""
    return {
        "nodes": [
            {
                "name": seen.name,
                "contact": seen.contact,
                "status": None if seen.status is None else dict(seen.raw),
                "trouble": None if seen.trouble is None else _trouble(seen.trouble),
            }
            for seen in survey.nodes
        ],
        "troubles": [_trouble(trouble) for trouble in survey.troubles()],
    }


def _trouble(trouble: Diagnosis) -> dict[str, Any]:
    return {"kind": trouble.kind, "what": trouble.what, "checks": list(trouble.checks)}
