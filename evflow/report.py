"""What is reported in a terminal: tables as plain text, numbers to the right, all else to the left.

What a table shows may come from another host, so no cell can move the cursor or begin a line of its own.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import click

__all__ = ["Figure", "duration", "milliseconds", "plain", "size", "stats_table", "table"]

_RARE = ("dropped", "queued", "errors", "unmatched")


class Figure(str):
    """A number with its unit: a text that stands to the right, as numbers do."""

    __slots__ = ()


def table(header: Sequence[str], rows: Iterable[Sequence[str | float]]) -> str:
    """Rows under a header; a column of numbers is right-aligned, whole ones with thousands separated.

    A cell of "" in such a column stands for a number that nobody knows.
    """
    listed = [list(row) for row in rows]
    columns = [list(column) for column in zip(*listed, strict=True)] or [[] for _ in header]
    aligned = [_align(title, column) for title, column in zip(header, columns, strict=True)]
    lines = ["  ".join(cells).rstrip() for cells in zip(*aligned, strict=True)]
    return "\n".join([click.style(lines[0], bold=True), *lines[1:]])


def _align(title: str, column: Sequence[str | float]) -> list[str]:
    numbers = [isinstance(value, int | float | Figure) for value in column]
    numeric = any(numbers) and all(number or not value for number, value in zip(numbers, column, strict=True))
    cells = [title, *(plain(value) if isinstance(value, str) else _number(value) for value in column)]
    width = max(map(len, cells))
    return [cell.rjust(width) if numeric else cell.ljust(width) for cell in cells]


def _number(value: float) -> str:
    return f"{value:,}" if isinstance(value, int) else f"{value:,.1f}"


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
    value = float(count)
    for unit in ("B", "kB", "MB", "GB", "TB"):
        if abs(value) < 999.5 or unit == "TB":
            break
        value /= 1000
    return Figure(
        f"{value:,.0f} {unit}{per}" if unit == "B" or value >= 99.5 else f"{value:,.1f} {unit}{per}"
    )


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
    rare = [key for key in _RARE if any(counts[key] for counts in stats.values())]
    header = ["stone", "kind", *([] if nodes is None else ["node"]), "in", "out", *rare, "busy ms"]
    if seconds is not None:
        header.append("events/s")
    rows = []
    for name, counts in stats.items():
        row: list[str | float] = [
            name,
            kinds.get(name, ""),
            *([] if nodes is None else [nodes.get(name, "")]),
            *(int(counts[key]) for key in ("in", "out", *rare)),
        ]
        row.append(counts["busy"] * 1e3)
        if seconds is not None:
            row.append(round(counts["in"] / max(seconds, 1e-9)))
        rows.append(row)
    return table(header, rows)
