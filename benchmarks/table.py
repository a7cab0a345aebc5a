"""What the benchmarks share: how a cost is measured, and how a table of costs is shown and kept."""

from __future__ import annotations

import gc
import json
import os
import platform
import resource
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

RESULTS = Path(__file__).parent / "results"


@dataclass(frozen=True)
class Row:
    """What one case costs: the least of its repetitions.

    Attributes:
        cpu: ns of CPU an event (or a call), of all threads of the process.
        wall: ns an event as the clock on the wall sees it.
        ratio: how many times cheaper it is than the case that the table compares with.
    """

    name: str
    cpu: float
    wall: float
    ratio: float | None = None


@dataclass(frozen=True)
class Case:
    """Something to measure: ``run`` handles ``events`` events."""

    name: str
    run: Callable[[], object]
    events: int


def measure(cases: Sequence[Case], rounds: int = 7) -> list[Row]:
    """Runs all cases once to warm up, then ``rounds`` times in turn.

    In turn, so that a time in which the machine is slow meets all cases alike. Objects made before are
    taken from the garbage collector, which would otherwise walk the events of all cases in each.
    """
    for case in cases:
        case.run()
    gc.collect()
    gc.freeze()
    cpu: dict[str, list[float]] = {case.name: [] for case in cases}
    wall: dict[str, list[float]] = {case.name: [] for case in cases}
    for _ in range(rounds):
        for case in cases:
            cpu_start, wall_start = time.process_time_ns(), time.perf_counter_ns()
            case.run()
            cpu[case.name].append((time.process_time_ns() - cpu_start) / case.events)
            wall[case.name].append((time.perf_counter_ns() - wall_start) / case.events)
    gc.unfreeze()
    return [Row(case.name, min(cpu[case.name]), min(wall[case.name])) for case in cases]


def fresh(program: str, bytecode: str) -> tuple[str, float, float]:
    """Runs a program in a fresh interpreter, in the checkout.

    Args:
        program: Python text.
        bytecode: a folder for the bytecode of what it imports, so that the next run finds it compiled.

    Returns:
        What it printed, ns of CPU and ns on the wall.
    """
    environment = os.environ | {"PYTHONPYCACHEPREFIX": bytecode, "PYTHONDONTWRITEBYTECODE": ""}
    before, start = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter_ns()
    done = subprocess.run(
        [sys.executable, "-c", program],
        cwd=Path(__file__).parents[1],
        env=environment,
        check=True,
        stdout=subprocess.PIPE,
        text=True,
    )
    wall, after = time.perf_counter_ns() - start, resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return done.stdout, cpu * 1e9, wall


def compare(rows: Sequence[Row], with_name: str) -> list[Row]:
    """The rows with their ratios of CPU to the row called ``with_name``."""
    (base,) = (row.cpu for row in rows if row.name == with_name)
    return [Row(row.name, row.cpu, row.wall, base / row.cpu) for row in rows]


def show(title: str, rows: Sequence[Row], ratio_to: str = "") -> str:
    """The rows as a Markdown table, which it prints too."""
    head = ["", "CPU", "wall"] + ([f"against {ratio_to}"] if ratio_to else [])
    body = [
        [row.name, duration(row.cpu), duration(row.wall)]
        + ([f"{row.ratio:.4g} x" if row.ratio else ""] if ratio_to else [])
        for row in rows
    ]
    return markdown(title, [head, *body])


def markdown(title: str, lines: Sequence[Sequence[str]]) -> str:
    """A table in Markdown, the first line its head; prints it too, under its title."""
    widths = [max(len(line[i]) for line in lines) for i in range(len(lines[0]))]
    rule = ["-" * widths[0]] + ["-" * (width - 1) + ":" for width in widths[1:]]
    aligned = [
        [f"{cell:{'<' if i == 0 else '>'}{widths[i]}}" for i, cell in enumerate(line)]
        for line in [lines[0], rule, *lines[1:]]
    ]
    text = "\n".join("| " + " | ".join(cells) + " |" for cells in aligned)
    print(f"\n{title}\n\n{text}", flush=True)
    return text


def duration(ns: float) -> str:
    """``ns`` nanoseconds in the unit that suits their size."""
    for unit, size in (("s", 1e9), ("ms", 1e6), ("µs", 1e3)):
        if ns >= size:
            return f"{ns / size:.3g} {unit}"
    return f"{ns:.3g} ns"


def machine() -> dict[str, Any]:
    """What the figures were measured on."""
    return {"python": platform.python_version(), "system": platform.platform(), "cores": os.cpu_count()}


def save(name: str, rows: Sequence[Row], title: str, **more: Any) -> None:
    """Writes ``results/NAME.json`` and a plot of the CPU costs, ``results/NAME.svg``."""
    figure, axes = axes_of(title, 0.8 + 0.3 * len(rows))
    names, values = [row.name for row in rows], [row.cpu for row in rows]
    bars = axes.barh(names, values, color=["#c25b12" if n.startswith("evflow") else "#8a99a8" for n in names])
    axes.bar_label(bars, [duration(value) for value in values], padding=3, fontsize=8)
    axes.set(xscale="log", xlabel="ns of CPU")
    axes.set_xlim(right=max(values) * 4)
    axes.invert_yaxis()
    write(name, figure, title=title, rows=[asdict(row) for row in rows], **more)


def save_lines(
    name: str, title: str, x: Sequence[int], lines: Mapping[str, Sequence[float]], xlabel: str, ylabel: str
) -> None:
    """Writes ``results/NAME.json`` and a plot of values over x, ``results/NAME.svg``."""
    figure, axes = axes_of(title, 3)
    for label, values in lines.items():
        axes.plot(x, values, label=label)
    axes.set(xlabel=xlabel, ylabel=ylabel)
    axes.set_ylim(bottom=0)
    axes.legend(frameon=False)
    write(name, figure, title=title, x=list(x), lines={label: list(v) for label, v in lines.items()})


def axes_of(title: str, height: float) -> tuple[Any, Any]:
    """An empty figure, 8 inches wide, and its axes."""
    import matplotlib

    matplotlib.use("svg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(8, height), layout="constrained")
    axes.set_title(title)
    axes.spines[["top", "right"]].set_visible(False)
    return figure, axes


def write(name: str, figure: Any, **record: Any) -> None:
    """The record as JSON and the figure as SVG, in ``results/``."""
    RESULTS.mkdir(exist_ok=True)
    (RESULTS / f"{name}.json").write_text(json.dumps({"machine": machine()} | record, indent=2) + "\n")
    figure.savefig(RESULTS / f"{name}.svg")
    print(f"\nwritten: {RESULTS / name}.json and .svg")
