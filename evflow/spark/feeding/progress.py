"""How far a Spark job has come, as data and as a line on the terminal."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import click

__all__ = ["ENDED", "Progress", "shown"]

ENDED = ("done", "failed", "stopped")
"""The states that a job does not leave again."""

_BAR_SECONDS = 0.2
_LINE_SECONDS = 2.0


@dataclass(frozen=True)
class Progress:
    """How far the job of a ``SparkSource`` has come.

    Attributes:
        rows: rows that have come to the stone.
        batches: epochs that Spark has committed: one for a batch job, one for each micro-batch of a stream.
        lag: seconds for which rows have been waiting at most: for a batch job since it began; for a stream
            since its last micro-batch ended, and 0 where nothing waits.
        state: "starting", "running", "done" (a batch job, or a stream that has come to its end), "failed" or
            "stopped"; "open" where others write to the stone.
        error: why it failed; "" if it did not.
    """

    rows: int
    batches: int
    lag: float
    state: str
    error: str = ""

    def __str__(self) -> str:
        told = f"{self.state}, {self.rows:,} rows, {self.batches:,} batches, lag {self.lag:.1f} s"
        return f"{told}: {self.error}" if self.error else told


@contextmanager
def shown(name: str, read: Callable[[], Progress]) -> Iterator[None]:
    """Shows how far a job has come, on stderr, for as long as the block runs.

    On a terminal it is a line that moves, if the package ``rich`` is installed; else a line now and then.

    Args:
        name: of the stone.
        read: gives how far it has come; called in a thread of its own.
    """
    done = threading.Event()
    draw = _bar if sys.stderr.isatty() and _has_rich() else _lines
    thread = threading.Thread(target=draw, args=(name, read, done), name=f"evflow bar {name}", daemon=True)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()


def _has_rich() -> bool:
    try:
        import rich  # noqa: F401
    except ImportError:
        return False
    return True


def _lines(name: str, read: Callable[[], Progress], done: threading.Event) -> None:
    said = ""
    while True:
        ended = done.wait(_LINE_SECONDS)
        progress = read()
        # While nothing happens only the lag differs.
        news = f"{progress.state} {progress.rows} {progress.batches}"
        if ended or news != said:
            click.echo(f"{name}: {progress}", err=True)
        said = news
        if ended:
            return


def _bar(name: str, read: Callable[[], Progress], done: threading.Event) -> None:
    from rich.console import Console
    from rich.progress import BarColumn, SpinnerColumn, TextColumn, TimeElapsedColumn
    from rich.progress import Progress as Bar

    columns = (
        SpinnerColumn(finished_text="·"),
        TextColumn("{task.description}"),
        BarColumn(bar_width=20),
        TextColumn(
            "{task.fields[rows]:,} rows  {task.fields[batches]:,} batches  {task.fields[rate]:,.0f}/s"
        ),
        TextColumn("lag {task.fields[lag]:.1f} s  {task.fields[state]}"),
        TimeElapsedColumn(),
    )
    begin = time.monotonic()
    with Bar(*columns, console=Console(stderr=True), refresh_per_second=5) as bar:
        task = bar.add_task(name, total=None, rows=0, batches=0, rate=0.0, lag=0.0, state="starting")
        while True:
            ended = done.wait(_BAR_SECONDS)
            progress = read()
            rate = progress.rows / max(time.monotonic() - begin, _BAR_SECONDS)
            bar.update(
                task,
                rows=progress.rows,
                batches=progress.batches,
                rate=rate,
                lag=progress.lag,
                state=progress.state,
            )
            if ended:
                bar.update(task, total=1, completed=1 if progress.state == "done" else 0)
                return
