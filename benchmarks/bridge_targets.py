"""What evflow's bridges were to reach beside the peers of the same run, and what they reach."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import table


class Row(Protocol):
    """A row of a table of ``bridge.py``."""

    @property
    def name(self) -> str: ...
    @property
    def best(self) -> float: ...
    @property
    def median(self) -> float: ...


class Line(Protocol):
    """A line of ``bridge_filter.py``."""

    @property
    def name(self) -> str: ...
    @property
    def break_even(self) -> float | None: ...


@dataclass(frozen=True)
class Target:
    """A ratio between two rows of one table.

    Attributes:
        table: the table's title.
        ours, theirs: names of rows; of several of ``theirs`` the best counts.
        wanted: the ratio that ours is to have to theirs, at least, or for round trips at most.
    """

    table: str
    ours: str
    theirs: tuple[str, ...]
    wanted: float

    @property
    def at_most(self) -> bool:
        return "there and back" in self.table

    def line(self, rows: Sequence[Row]) -> list[str] | None:
        """The target and what was reached; None if not all of it was measured."""
        by_name = {row.name: row for row in rows}
        theirs = [by_name[name] for name in self.theirs if name in by_name]
        ours = by_name.get(self.ours)
        if ours is None or not theirs:
            return None
        other = (min if self.at_most else max)(theirs, key=lambda row: row.best)
        best, median = ours.best / other.best, ours.median / other.median
        met = best <= self.wanted if self.at_most else best >= self.wanted
        return [
            f"{self.table}: {self.ours} against {other.name}",
            f"{'≤' if self.at_most else '≥'} {self.wanted:g} x",
            f"{best:.2f} x",
            f"{median:.2f} x",
            "yes" if met else "no",
        ]


SINGLE = [f"{size} events, one by one" for size in ("100 B", "1 KB")]
BATCHES = [f"{size} events, batches of 1,000" for size in ("100 B", "1 KB")]
LARGE = ("1 MiB arrays", "8 MiB arrays")
BYTES = ("pyzmq", "pyzmq, copy=False")
SHARED = ("zenoh, shared memory", "zenoh, shared memory by itself")
ONCE = "at most once"
TARGETS = [
    Target(SINGLE[0], "evflow", ("pyzmq",), 1),
    Target(SINGLE[1], "evflow", ("pyzmq",), 1),
    Target(BATCHES[0], "evflow, encoded", BYTES, 0.5),
    Target(BATCHES[0], "evflow, columns", ("pyzmq, columns",), 0.5),
    Target(BATCHES[0], "evflow, TCP, encoded", BYTES, 0.5),
    *(Target(title, "evflow, TCP, encoded", ("pyzmq, copy=False",), 0.9) for title in LARGE),
    *(Target(title, "evflow, TCP", ("pyzmq, made anew",), 0.9) for title in LARGE),
    *(Target(title, "evflow, TCP, loaned", ("pyzmq, made anew",), 0.9) for title in LARGE),
    *(Target(title, "evflow, TCP", ("pyzmq, copy=False",), 0.9) for title in LARGE),
    *(Target(title, "evflow, shared memory, encoded", SHARED, 1) for title in LARGE),
    *(Target(title, "evflow, shared memory", SHARED, 1) for title in LARGE),
    *(Target(title, "evflow, shared memory, loaned", SHARED, 1) for title in LARGE),
    Target("100 B there and back", "evflow", ("pyzmq",), 1.5),
    Target(SINGLE[0], "evflow", (f"evflow, {ONCE}",), 0.85),
    *(
        Target(title, f"evflow{way}, encoded", (f"evflow{way}, encoded, {ONCE}",), 0.85)
        for title in BATCHES
        for way in ("", ", TCP")
    ),
]
BREAK_EVEN = 10
"""% of events that a filter at the source may have to reject before it saves the sender CPU."""


def show(tables: Mapping[str, Sequence[Row]], filtered: Sequence[Line] | None) -> None:
    """Prints in Markdown what was to be reached of what was measured."""
    lines = [line for target in TARGETS if (line := target.line(tables.get(target.table, ())))]
    for way in filtered or ():
        at = way.break_even
        reached = "none" if at is None else f"{at:.1f} %"
        met = at is not None and at < BREAK_EVEN
        what = f"filter at the source, {way.name}: break-even"
        lines.append([what, f"< {BREAK_EVEN} %", reached, "", "yes" if met else "no"])
    if lines:
        table.markdown("What was to be reached", [["", "wanted", "best", "median", "met"], *lines])
