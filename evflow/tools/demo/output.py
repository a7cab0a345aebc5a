"""How a demo shows how far it is and what it found: as text or as one JSON object, and as a picture."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

Progress = Callable[[int], object]


@contextmanager
def progress_bar(total: int, quiet: bool) -> Iterator[Progress]:
    """What to call with the number of flights that are done; nothing is shown where ``quiet``."""
    with live(total, quiet, "flights") as (progress, _):
        yield progress


@contextmanager
def live(total: int, quiet: bool, what: str) -> Iterator[tuple[Progress, Callable[[str], object]]]:
    """As ``progress_bar``, and what to call with a picture to be shown above the bar."""
    if quiet:
        yield lambda count: None, lambda picture: None
        return
    from rich.console import Group
    from rich.live import Live
    from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn
    from rich.progress import Progress as Bar
    from rich.text import Text

    bar = Bar(TextColumn(what), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    task = bar.add_task(what, total=total)
    with Live(bar, refresh_per_second=10) as shown:
        yield (
            lambda count: bar.advance(task, count),
            lambda picture: shown.update(Group(Text(picture), bar) if shown.console.is_terminal else bar),
        )


@dataclass(frozen=True)
class Outcome:
    """What a demo found.

    Attributes:
        result: for JSON.
        text: the same for people.
        draw: draws a picture of it to a file.
        caption: what the picture is.
        warnings: what went wrong, a line each.
    """

    result: dict[str, Any]
    text: str
    draw: Callable[[Path], object] | None = None
    caption: str = ""
    warnings: Sequence[str] = ()


def publish(outcome: Outcome, as_json: bool, picture: Path | None = None, default: str = "") -> None:
    """Prints what a demo found, and draws its picture.

    Args:
        outcome: what it found.
        as_json: print one JSON object and nothing else.
        picture: where to draw to.
        default: where to if nobody said it; with ``as_json`` nothing is drawn then.
    """
    click.echo(json.dumps(outcome.result) if as_json else outcome.text)
    picture = Path(default) if picture is None and not as_json else picture
    if picture is not None and outcome.draw is not None:
        outcome.draw(picture)
        if not as_json:
            click.echo(f"\n{outcome.caption}: {picture.resolve()}")
    for line in outcome.warnings if not as_json else ():
        click.echo(line, err=True)
