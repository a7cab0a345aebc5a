"""``evflow top``: one frame of the live view, from two looks at the nodes and the seconds between them."""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from typing import TYPE_CHECKING, TextIO

from evflow.errors import FlowError
from evflow.report import duration, milliseconds, plain, size
from evflow.watch.rates import Rate, rates
from evflow.watch.survey import Seen, Survey
from evflow.watch.tables import member_text, notes_of

if TYPE_CHECKING:
    from rich.console import Console, Group
    from rich.table import Table
    from rich.text import Text

__all__ = ["frame", "need_rich", "screen"]

_STONES = 40
"""Stones that are shown at most: those through which most goes."""

_BAD, _GOOD, _FAINT = "bold red", "green", "dim"


def need_rich() -> None:
    """Refuses to go on without the library for the view.

    Raises:
        FlowError: it is not installed; says how to get it.
    """
    try:
        importlib.import_module("rich")
    except ImportError:
        raise FlowError(
            "evflow top needs the package rich, which is not installed: pip install 'evflow[demo]'"
        ) from None


def screen(file: TextIO | None = None, width: int | None = None) -> Console:
    """Where frames are shown; without colours where the file is no terminal."""
    from rich.console import Console

    return Console(file=file, width=width, highlight=False)


def frame(before: Survey | None, after: Survey, seconds: float | None = None, most: int = _STONES) -> Group:
    """One frame.

    Args:
        before: the look before; None for a frame without rates.
        after: the look now.
        seconds: between the two; by default by their clock.
        most: stones to show.
    """
    from rich.console import Group
    from rich.text import Text

    parts: list[Table | Text] = [_nodes(after)]
    if deployments := after.deployments():
        made = _table("deployment", "#version", "members", "frozen", "changing")
        for name, known in deployments.items():
            members = member_text(known)
            _row(made, name, str(known.version), members, ", ".join(known.frozen), known.changing)
        parts.append(made)
    parts += _stones(after, rates(before, after, seconds), most)
    parts += _links(after)
    parts += [Text(str(trouble), style=_BAD) for trouble in after.troubles()]
    spaced = [piece for part in parts for piece in (part, Text(""))]
    return Group(*spaced[:-1])


def _table(*header: str) -> Table:
    """A table; titles that begin with # are of columns of numbers."""
    from rich.table import Table

    made = Table(box=None, padding=(0, 2, 0, 0), header_style="bold", pad_edge=False)
    for title in header:
        numeric = title.startswith("#")
        made.add_column(title.lstrip("#"), justify="right" if numeric else "left", no_wrap=numeric)
    return made


def _row(made: Table, *cells: str | Text) -> None:
    from rich.text import Text

    # As Text: names may look like markup.
    made.add_row(*(Text(plain(cell)) if isinstance(cell, str) else cell for cell in cells))


def _coloured(text: str, style: str) -> Text:
    from rich.text import Text

    return Text(plain(text), style=style)


def _alarm(value: float, shown: str) -> str | Text:
    return _coloured(shown, _BAD) if value else shown


def _nodes(after: Survey) -> Table:
    made = _table("node", "host", "state", "#up", "#load", "#memory", "#dead letters", "#refused")
    for seen in after.nodes:
        _row(made, *_node(seen))
    return made


def _node(seen: Seen) -> Sequence[str | Text]:
    status = seen.status
    if status is None:
        kind = seen.trouble.kind if seen.trouble is not None else "unreachable"
        return [seen.name, "", _coloured(kind, _BAD)]
    refused = sum(status.refused.values())
    return [
        status.node,
        status.host,
        _coloured("alive", _GOOD),
        duration(status.uptime),
        f"{status.load:.2f}",
        size(status.memory),
        _alarm(status.dead_letters, f"{status.dead_letters:,}"),
        _alarm(refused, f"{refused:,}"),
    ]


def _stones(after: Survey, rate: dict[tuple[str, str], Rate], most: int) -> list[Table | Text]:
    rows = [(node, name, s) for node, status in after.alive.items() for name, s in status.stones.items()]
    if not rows:
        return []
    shown = set(
        sorted(range(len(rows)), key=lambda i: rate.get(rows[i][:2], Rate()).taken, reverse=True)[:most]
    )
    made = _table(
        "stone", "kind", "node", "#in/s", "#out/s", "#lost/s", "#busy", "#queued", "#in", "#errors", "notes"
    )
    for number, (node, name, stone) in enumerate(rows):
        if number in shown:
            known = rate.get((node, name))
            _row(
                made,
                name,
                stone.kind,
                node,
                *_rate_cells(known),
                f"{stone.queued:,}" if stone.queued else "",
                f"{stone.taken:,}",
                _alarm(stone.errors, f"{stone.errors:,}"),
                notes_of(stone),
            )
    hidden = len(rows) - len(shown)
    return [made, _coloured(f"… and {hidden:,} more through which less goes", _FAINT)] if hidden else [made]


def _rate_cells(known: Rate | None) -> list[str | Text]:
    if known is None:
        return ["", "", "", ""]
    lost = f"{known.lost:,.0f}" if known.lost else ""
    return [f"{known.taken:,.0f}", f"{known.left:,.0f}", lost, f"{known.busy:.0%}"]


def _links(after: Survey) -> list[Table | Text]:
    links = after.links()
    if not links:
        return []
    made = _table("link", "state", "#round trip", "#bandwidth", "#waiting", "trouble")
    for node, peer, link, trouble in links:
        _row(
            made,
            f"{node} → {peer}",
            _coloured(link.state, _GOOD if link.state == "up" else _BAD),
            milliseconds(link.round_trip),
            size(link.bandwidth, "/s"),
            f"{link.waiting:,}",
            _coloured(trouble.kind, _BAD) if trouble else "",
        )
    return [made]
