"""How a demo shows how far it is and what it found: as text or as one JSON object, and as a picture."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import click

__all__ = ["Progress", "progress_bar", "publish"]

Progress = Callable[[int], object]


@contextmanager
def progress_bar(total: int, quiet: bool) -> Iterator[Progress]:
    """What to call with the number of flights that are done; nothing is shown where ``quiet``."""
    if quiet:
        yield lambda count: None
        return
    from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn
    from rich.progress import Progress as Bar

    with Bar(TextColumn("flights"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn()) as bar:
        task = bar.add_task("flights", total=total)
        yield lambda count: bar.advance(task, count)


def publish(
    result: dict[str, Any],
    text: str,
    *,
    as_json: bool,
    draw: Callable[[Path], object] | None = None,
    picture: Path | None = None,
    caption: str = "",
) -> None:
    """Prints a result and draws its picture.

    Args:
        result: what it found, for JSON.
        text: the same for people.
        as_json: print one JSON object and nothing else.
        draw: draws the picture to a file.
        picture: where to draw to; None for nowhere.
        caption: what the picture is.
    """
    click.echo(json.dumps(result) if as_json else text)
    if picture is not None and draw is not None:
        draw(picture)
        if not as_json:
            click.echo(f"\n{caption}: {picture.resolve()}")
