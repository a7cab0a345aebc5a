"""How far a Spark job has come, as data and as a line on the terminal."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace

import click

ENDED = ("done", "failed", "stopped")
"""The states that a job does not leave again."""

_MOVE_SECONDS = 0.2
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

    On a terminal it is a line that moves; else a line now and then.

    Args:
        name: of the stone.
        read: gives how far it has come; called in a thread of its own.
    """
    done = threading.Event()
    tell = _moving if sys.stderr.isatty() else _lines
    thread = threading.Thread(
        target=tell, args=(name, read, done), name=f"evflow progress {name}", daemon=True
    )
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()
        click.echo(f"{name}: {read()}", err=True)


def _lines(name: str, read: Callable[[], Progress], done: threading.Event) -> None:
    said = None
    while not done.wait(_LINE_SECONDS):
        # While nothing happens only the lag differs.
        if (news := replace(read(), lag=0.0)) != said:
            click.echo(f"{name}: {read()}", err=True)
        said = news


def _moving(name: str, read: Callable[[], Progress], done: threading.Event) -> None:
    from rich.console import Console
    from rich.text import Text

    with Console(stderr=True).status(name) as line:
        while not done.wait(_MOVE_SECONDS):
            line.update(Text(f"{name}: {read()}"))
