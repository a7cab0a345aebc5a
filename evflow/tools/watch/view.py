"""What a ``Survey`` says, as tables: ``evflow status`` shows one look, ``evflow top`` adds rates to it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from evflow.tools.report import Cell, Figure, Styled, duration, grid, milliseconds, size, text
from evflow.tools.watch.status import DeploymentStatus, NodeStatus, StoneStatus
from evflow.tools.watch.survey import Rate, Seen, Survey, rates

if TYPE_CHECKING:
    from rich.console import Group
    from rich.table import Table

_STONES = 40
"""Stones that a frame shows: those through which most goes."""

_BAD, _GOOD = "bold red", "green"

_NODE = ("node", "host", "contact", "state", "up", "load", "memory", "peers' events", "stones",
         "dead letters", "refused", "version")  # fmt: skip
_LINK = ("link", "state", "contact", "round trip", "bandwidth", "waiting", "sessions", "trouble")
_ONLY_STATUS = {"contact", "peers' events", "stones", "version", "sessions"}
_RARE = {"dropped", "errors", "unmatched", "queued", "notes"}
"""Columns that ``status`` shows only where there is something in them."""

Row = Mapping[str, Cell]


def status_text(survey: Survey) -> str:
    """Everything that was seen, as tables; what is wrong comes last, where it is not scrolled away."""
    stones = [
        {"stone": name, "kind": stone.kind, "node": node, **_counts(stone)}
        for node, name, stone in _stones_of(survey)
    ]
    titles = [
        title for title in (stones or [{}])[0] if title not in _RARE or any(row[title] for row in stones)
    ]
    tables = [
        _table(_NODE, map(_node, survey.nodes)),
        *_deployments(survey),
        *_some(_LINK, _links(survey)),
        *_some(titles, stones),
    ]
    parts = list(map(text, tables))
    if troubles := survey.troubles():
        heading = f"{len(troubles)} {'trouble' if len(troubles) == 1 else 'troubles'}"
        parts.append("\n".join([heading, *map(str, troubles)]))
    return "\n\n".join(parts)


def frame(before: Survey | None, after: Survey, most: int = _STONES) -> Group:
    """One frame of the live view.

    Args:
        before: the look before; None for a frame without rates.
        after: the look now.
        most: stones to show.
    """
    from rich.console import Group
    from rich.text import Text

    rate, stones = rates(before, after), _stones_of(after)
    busiest = sorted(stones, key=lambda one: rate.get(one[:2], Rate()).taken, reverse=True)[:most]
    shown = {one[:2] for one in busiest}
    rows = [
        {"stone": name, "kind": stone.kind, "node": node, **_rates(rate.get((node, name)), stone)}
        for node, name, stone in stones
        if (node, name) in shown
    ]
    hidden = f"… and {len(stones) - len(rows):,} more through which less goes"
    parts: list[Table | Text] = [
        _table([title for title in _NODE if title not in _ONLY_STATUS], map(_node, after.nodes)),
        *_deployments(after),
        *_some(list(rows[0]) if rows else (), rows),
        *([Text(hidden, "dim")] if len(rows) < len(stones) else []),
        *_some([title for title in _LINK if title not in _ONLY_STATUS], _links(after)),
        *(Text(str(trouble), _BAD) for trouble in after.troubles()),
    ]
    spaced: list[Table | Text] = [piece for part in parts for piece in (part, Text(""))]
    return Group(*spaced[:-1])


def _table(titles: Sequence[str], rows: Any) -> Table:
    return grid(titles, [[row.get(title, "") for title in titles] for row in rows])


def _some(titles: Sequence[str], rows: Sequence[Row]) -> list[Table]:
    """A table, if there are rows."""
    return [_table(titles, rows)] if rows else []


def _node(seen: Seen) -> Row:
    status = seen.status
    if status is None:
        kind = seen.trouble.kind if seen.trouble else ""
        return {"node": seen.name, "contact": seen.contact, "state": Styled(kind or "unreachable", _BAD)}
    return {
        "node": status.node,
        "host": status.host,
        "contact": status.contact or seen.contact,
        "state": Styled("alive", _GOOD),
        "up": duration(status.uptime),
        "load": Figure(f"{status.load:.2f}"),
        "memory": size(status.memory),
        "peers' events": _budget(status),
        "stones": len(status.stones),
        "dead letters": _alarm(status.dead_letters),
        "refused": _alarm(sum(status.refused.values())),
        "version": status.version,
    }


def _alarm(count: int) -> Cell:
    return Styled(count, _BAD) if count else count


def _budget(status: NodeStatus) -> Figure:
    known = status.budget
    return Figure(
        f"{size(known['used'])} of {size(known['most'])}" if {"used", "most"} <= known.keys() else ""
    )


def _deployments(survey: Survey) -> list[Table]:
    rows: list[Row] = [
        {
            "deployment": name,
            "version": known.version,
            "members": _members(known),
            "frozen": ", ".join(known.frozen),
            "changing": known.changing,
        }
        for name, known in survey.deployments().items()
    ]
    return _some(list(rows[0]) if rows else (), rows)


def _members(known: DeploymentStatus) -> str:
    """The members of a deployment with those that are not alive named."""
    if not known.members:
        return ""
    bad = [f"{name} {state}" for name, state in known.members.items() if state != "alive"]
    alive = len(known.members) - len(bad)
    return f"{alive} of {len(known.members)} alive{': ' + ', '.join(bad) if bad else ''}"


def _links(survey: Survey) -> list[Row]:
    return [
        {
            "link": f"{node} → {peer}",
            "state": Styled(link.state, _GOOD if link.state == "up" else _BAD),
            "contact": link.contact,
            "round trip": milliseconds(link.round_trip),
            "bandwidth": size(link.bandwidth, "/s"),
            "waiting": link.waiting,
            "sessions": link.sessions,
            "trouble": Styled(trouble.kind, _BAD) if trouble else "",
        }
        for node, peer, link, trouble in survey.links()
    ]


def _stones_of(survey: Survey) -> list[tuple[str, str, StoneStatus]]:
    return [(node, name, s) for node, status in survey.alive.items() for name, s in status.stones.items()]


def _counts(stone: StoneStatus) -> Row:
    """What ``status`` shows of a stone."""
    return {
        "in": stone.taken,
        "out": stone.left,
        "dropped": stone.dropped,
        "errors": _alarm(stone.errors),
        "unmatched": stone.unmatched,
        "queued": stone.queued,
        "busy": Figure(f"{stone.busy:,.2f} s"),
        "notes": notes_of(stone),
    }


def _rates(rate: Rate | None, stone: StoneStatus) -> Row:
    """What ``top`` shows of a stone; no rates if there was no look before."""
    figures = ["", "", "", ""]
    if rate is not None:
        figures = [
            f"{rate.taken:,.0f}",
            f"{rate.left:,.0f}",
            f"{rate.lost:,.0f}" if rate.lost else "",
            f"{rate.busy:.0%}",
        ]
    return {
        **dict(zip(("in/s", "out/s", "lost/s", "busy"), map(Figure, figures), strict=True)),
        "queued": stone.queued or "",
        "in": stone.taken,
        "errors": _alarm(stone.errors),
        "notes": notes_of(stone),
    }


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
                "trouble": None if seen.trouble is None else asdict(seen.trouble),
            }
            for seen in survey.nodes
        ],
        "troubles": [asdict(trouble) for trouble in survey.troubles()],
    }
