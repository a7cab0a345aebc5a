"""What is reported in a terminal: tables as plain text, numbers to the right, all else to the left."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import click

__all__ = ["stats_table", "table"]

_RARE = ("dropped", "queued", "errors", "unmatched")


def table(header: Sequence[str], rows: Iterable[Sequence[str | float]]) -> str:
    """Rows under a header; a column of numbers is right-aligned, whole ones with thousands separated."""
    listed = [list(row) for row in rows]
    columns = [list(column) for column in zip(*listed, strict=True)] or [[] for _ in header]
    aligned = [_align(title, column) for title, column in zip(header, columns, strict=True)]
    lines = ["  ".join(cells).rstrip() for cells in zip(*aligned, strict=True)]
    return "\n".join([click.style(lines[0], bold=True), *lines[1:]])


def _align(title: str, column: Sequence[str | float]) -> list[str]:
    numeric = bool(column) and all(isinstance(value, (int, float)) for value in column)
    cells = [title, *(value if isinstance(value, str) else _number(value) for value in column)]
    width = max(map(len, cells))
    return [cell.rjust(width) if numeric else cell.ljust(width) for cell in cells]


def _number(value: float) -> str:
    return f"{value:,}" if isinstance(value, int) else f"{value:,.1f}"


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
