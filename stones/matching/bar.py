"""How far a match stone is with a large file of subscriptions: bars on the terminal, a line in the log."""

from __future__ import annotations

import logging
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

from evflow.matching.columns.shapes import Track, untracked

_log = logging.getLogger("evflow.matching")

_MANY = 100_000
"""Subscriptions from which it takes a second or so."""

T = TypeVar("T")


@contextmanager
def tracking(path: Path) -> Iterator[Track]:
    """Gives what counts the items of a loop while it goes through them, a bar for each loop.

    The bars are shown on stderr if that is a terminal, and the loop is long.

    Args:
        path: the file.
    """
    if not sys.stderr.isatty():
        yield untracked
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    # The name of a file is not markup.
    described = TextColumn("{task.description}", markup=False)
    columns = described, BarColumn(), MofNCompleteColumn(), TimeElapsedColumn()
    with Progress(*columns, console=Console(stderr=True)) as bars:

        def track(items: Sequence[T], what: str) -> Iterable[T]:
            return bars.track(items, description=f"{path.name}: {what}") if len(items) >= _MANY else items

        yield track


@contextmanager
def timed(what: str) -> Iterator[None]:
    """Says in the log how long the block took.

    Args:
        what: what it did.
    """
    begun = time.monotonic()
    yield
    _log.info("%s in %.1f s", what, time.monotonic() - begun)
