"""What the benchmarks of matching print and keep: Markdown, JSON, CSV and plots."""

from __future__ import annotations

import csv
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import table

Cell = str | float | None
"""A number of a table is a cost in ns, unless its table has other units."""


def text(cell: Cell, unit: str = "") -> str:
    """A cell as it is printed: a duration, or a number with its unit."""
    if cell is None:
        return ""
    if isinstance(cell, str):
        return cell
    if unit == "ns":
        return table.duration(cell)
    return f"{cell:,.0f}{unit and ' ' + unit}" if abs(cell) >= 100 else f"{cell:.3g}{unit and ' ' + unit}"


@dataclass(frozen=True)
class Panel:
    """A figure of a paper: lines over x, costs in µs or another unit."""

    title: str
    xlabel: str
    x: list[float]
    lines: dict[str, list[float | None]]
    ylabel: str = "µs an event"
    logx: bool = False


@dataclass
class Report:
    """The tables and figures of one part of the benchmark, kept as ``results/NAME.*``."""

    name: str
    tables: list[dict[str, Any]] = field(default_factory=list)
    panels: list[Panel] = field(default_factory=list)

    def table(
        self, title: str, head: Sequence[str], rows: Sequence[Sequence[Cell]], unit: str = "ns"
    ) -> None:
        """Prints rows under a head, whose first cell is that of the names."""
        table.markdown(title, [list(head), *([text(cell, unit) for cell in row] for row in rows)])
        self.tables.append(
            {"title": title, "unit": unit, "head": list(head), "rows": [list(row) for row in rows]}
        )

    def panel(self, panel: Panel) -> None:
        """Prints the values of a figure and keeps it for the plot."""
        self.panels.append(panel)
        unit = "ns" if panel.ylabel.startswith("µs") else panel.ylabel
        scale = 1e3 if unit == "ns" else 1.0
        rows: list[list[Cell]] = [
            [f"{x:,.6g}", *(None if (y := line[i]) is None else y * scale for line in panel.lines.values())]
            for i, x in enumerate(panel.x)
        ]
        self.table(f"{panel.title}", [panel.xlabel, *panel.lines], rows, unit)

    def save(self) -> None:
        """Writes JSON, CSV (a line a cell) and the plot. Tables of an earlier run of other parts stay."""
        table.RESULTS.mkdir(exist_ok=True)
        file = table.RESULTS / f"{self.name}.json"
        tables = (
            {kept["title"]: kept for kept in json.loads(file.read_text())["tables"]} if file.exists() else {}
        )
        tables |= {kept["title"]: kept for kept in self.tables}
        file.write_text(
            json.dumps({"machine": table.machine(), "tables": [*tables.values()]}, indent=2) + "\n"
        )
        with (table.RESULTS / f"{self.name}.csv").open("w", newline="") as lines:
            out = csv.writer(lines)
            out.writerow(["table", "row", "column", "value", "unit"])
            for kept in tables.values():
                for row in kept["rows"]:
                    for column, cell in zip(kept["head"][1:], row[1:], strict=True):
                        unit = kept["unit"] if isinstance(cell, float) else ""
                        out.writerow([kept["title"], row[0], column, "" if cell is None else cell, unit])
        if self.panels:
            plot(self.name, self.panels)
        print(f"\nwritten: {table.RESULTS / self.name}.json and .csv{' and .svg' if self.panels else ''}")


COLOURS = ["#c25b12", "#e59a5c", "#8a99a8", "#2b6cb0", "#2f855a", "#6b46c1"]


def plot(name: str, panels: Sequence[Panel]) -> None:
    """All panels, two a row, with the same colour for the same line."""
    import matplotlib

    matplotlib.use("svg")
    from matplotlib import pyplot

    names = list(dict.fromkeys(line for panel in panels for line in panel.lines))
    colours: Mapping[str, str] = {line: COLOURS[i % len(COLOURS)] for i, line in enumerate(names)}
    height = (len(panels) + 1) // 2
    figure, grid = pyplot.subplots(height, 2, figsize=(9, 2.9 * height), layout="constrained", squeeze=False)
    for axes, panel in zip(grid.flat, panels, strict=False):
        for line, values in panel.lines.items():
            points = [(x, y) for x, y in zip(panel.x, values, strict=True) if y is not None]
            axes.plot(
                *zip(*points, strict=True), marker=".", label=line, color=colours[line]
            ) if points else None
        axes.set(title=panel.title, xlabel=panel.xlabel, ylabel=panel.ylabel, yscale="log")
        axes.title.set_fontsize(9)
        axes.spines[["top", "right"]].set_visible(False)
        if panel.logx:
            axes.set_xscale("log")
        axes.legend(frameon=False, fontsize=7)
    for axes in list(grid.flat)[len(panels) :]:
        axes.set_visible(False)
    figure.savefig(table.RESULTS / f"{name}.svg")
    pyplot.close(figure)
