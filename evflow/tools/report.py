"""Tables and figures for a terminal; a pipe gets the same text without colours.

What a table shows may come from another host, so no cell can move the cursor or begin a line of its own.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from io import StringIO
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.table import Table

_RARE = ("dropped", "queued", "errors", "unmatched")
_WIDE = 10_000
_TRAILING = re.compile(r" +((?:\x1b\[[\d;]*m)*)$", re.MULTILINE)


class Figure(str):
    """A number with its unit: a text that is right-aligned, as numbers are."""

    __slots__ = ()


class Styled(NamedTuple):
    """A cell in a style of rich, such as ``bold red``."""

    value: str | float
    style: str


Cell = str | float | Styled


def grid(header: Sequence[str], rows: Iterable[Sequence[Cell]]) -> Table:
    """Rows under a header; a column of numbers is right-aligned, whole ones with thousands separated.

    Args:
        header: the titles of the columns.
        rows: the cells; "" in a column of numbers stands for a number that nobody knows.
    """
    from rich.table import Table
    from rich.text import Text

    made = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False, header_style="bold")
    listed = [[cell if isinstance(cell, Styled) else Styled(cell, "") for cell in row] for row in rows]
    for number, title in enumerate(header):
        values = [row[number].value for row in listed if row[number].value != ""]
        numeric = bool(values) and all(isinstance(value, int | float | Figure) for value in values)
        made.add_column(title, justify="right" if numeric else "left", no_wrap=numeric)
    for row in listed:
        # As Text: a name may look like markup.
        made.add_row(*(Text(plain(_shown(value)), style) for value, style in row))
    return made


def _shown(value: str | float) -> str:
    if isinstance(value, str):
        return value
    return f"{value:,}" if isinstance(value, int) else f"{value:,.1f}"


def text(*parts: RenderableType) -> str:
    """What rich shows, as a text whose lines are as long as they need; ``click.echo`` removes its colours
    where nobody sees them."""
    from rich.console import Console

    file = StringIO()
    Console(file=file, width=_WIDE, force_terminal=True, color_system="standard", highlight=False).print(
        *parts
    )
    return _TRAILING.sub(r"\1", file.getvalue()).rstrip("\n")


def table(header: Sequence[str], rows: Iterable[Sequence[Cell]]) -> str:
    """A ``grid`` as ``text``."""
    return text(grid(header, rows))


def plain(text: str) -> str:
    """A text in one line that does nothing to a terminal: what cannot be printed is replaced."""
    return text if text.isprintable() else "".join(c if c.isprintable() else "�" for c in text)


def duration(seconds: float) -> Figure:
    """A time in the two greatest units it has: ``3 d 4 h``, ``12 s``."""
    left = max(0, int(seconds))
    parts: list[str] = []
    for unit, length in (("d", 86400), ("h", 3600), ("min", 60), ("s", 1)):
        if left >= length or (unit == "s" and not parts):
            parts.append(f"{left // length} {unit}")
            left %= length
    return Figure(" ".join(parts[:2]))


def milliseconds(seconds: float) -> Figure:
    """A short time; "" for 0.0, which was not measured."""
    return Figure(f"{seconds * 1e3:,.2f} ms" if seconds else "")


def size(count: float, per: str = "") -> Figure:
    """So many bytes, in a unit in which few digits do: ``1.5 MB``.

    Args:
        count: the bytes.
        per: what follows the unit, such as ``/s``.
    """
    value, units = float(count), ["B", "kB", "MB", "GB", "TB"]
    while abs(value) >= 999.5 and len(units) > 1:
        value /= 1000
        del units[0]
    digits = 0 if units[0] == "B" or value >= 99.5 else 1
    return Figure(f"{value:,.{digits}f} {units[0]}{per}")


def stats_table(
    stats: Mapping[str, Mapping[str, float]],
    kinds: Mapping[str, str],
    seconds: float | None = None,
    nodes: Mapping[str, str] | None = None,
) -> str:
    """The counts of ``Flow.stats``; those that are seldom other than 0 only where they are.

    Args:
        stats: stone → count → number.
        kinds: stone → kind.
        seconds: how long the flow ran; adds events a second.
        nodes: stone → node; adds a column.
    """
    shown = ["in", "out", *(key for key in _RARE if any(counts[key] for counts in stats.values()))]
    header = ["stone", "kind", *([] if nodes is None else ["node"]), *shown, "busy ms"]
    header += [] if seconds is None else ["events/s"]
    rows: list[list[Cell]] = [
        [
            name,
            kinds.get(name, ""),
            *([] if nodes is None else [nodes.get(name, "")]),
            *(int(counts[key]) for key in shown),
            counts["busy"] * 1e3,
            *([] if seconds is None else [round(counts["in"] / max(seconds, 1e-9))]),
        ]
        for name, counts in stats.items()
    ]
    return table(header, rows)
