"""``evflow tap``, ``record`` and ``replay``: events that pass a stone."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import click

from evflow.cli.asking import Asked, speaking
from evflow.errors import UnwrittenError
from evflow.trouble import AGAIN, Trouble

if TYPE_CHECKING:
    from evflow.events.batch import EventBatch
    from evflow.watch.contract import Tap
    from evflow.watch.recording import Recorder

__all__ = ["record", "replay", "tap"]

_log = logging.getLogger("evflow.watch")

_AT = click.option(
    "--at", "contact", required=True, metavar="CONTACT", help="The node; or its name in the file of --hosts."
)
_COUNT = click.option("--count", type=click.IntRange(1), help="End after so many events.")


@contextmanager
def _until_interrupted(done: Callable[[], int], summary: Callable[[], str]) -> Iterator[None]:
    """Ctrl-C is the usual end here, so it is none of the errors.

    Args:
        done: how many events it was about so far.
        summary: what is told at the end; not before an error, if there were no events.
    """
    try:
        yield
    except KeyboardInterrupt:
        click.echo(err=True)
    except BaseException:
        if done():
            click.echo(f"until then: {summary()}", err=True)
        raise
    click.echo(summary(), err=True)


@click.command()
@click.argument("stone")
@_AT
@_COUNT
@click.option(
    "--rate", type=click.FloatRange(0, min_open=True), help="Print at most so many events a second."
)
@click.option(
    "--format", "how", type=click.Choice(["json", "table"]), default="json", show_default=True,
    help="How to print them.",
)  # fmt: skip
@speaking
def tap(asked: Asked, stone: str, contact: str, count: int | None, rate: float | None, how: str) -> None:
    """Print the events that pass a stone, decoded.

    STONE is DEPLOYMENT/STONE as evflow status shows it. Events are printed as JSON, an object a line, until
    Ctrl-C. The stone is not held up: what is not printed in time is counted and left out.
    """
    from evflow.watch.tap import Lines, Rows, Watched, watch

    shower = Lines(click.echo) if how == "json" else Rows(click.echo)
    done = Watched()
    with (
        asked.client(contact) as client,
        closing(client.tap(stone)) as tapped,
        _until_interrupted(lambda: done.passed, lambda: str(done)),
    ):
        watch(tapped, shower.show, count=count, rate=rate, done=done)


@click.command()
@click.argument("stone")
@click.argument("file", type=click.Path(dir_okay=False, path_type=Path))
@_AT
@_COUNT
@speaking
def record(asked: Asked, stone: str, file: Path, contact: str, count: int | None) -> None:
    """Write the events that pass a stone to a file, with the times they came at, until Ctrl-C.

    STONE is DEPLOYMENT/STONE. A recording that is there is continued. It survives a kill at any moment.
    """
    from evflow.watch.recording import Recorder

    with (
        asked.client(contact) as client,
        closing(client.tap(stone)) as tapped,
        Recorder(file, stone=stone, node=client.node) as recorder,
        _until_interrupted(lambda: recorder.events, lambda: _recorded(recorder, file, tapped)),
    ):
        while count is None or recorder.events < count:
            batch = tapped.next(0.25)
            if batch is not None:
                left = len(batch) if count is None else count - recorder.events
                _write(recorder, batch[:left])


def _write(recorder: Recorder, batch: EventBatch) -> None:
    """Writes events; while the file cannot be written they wait, and others are left out and counted."""
    trouble = Trouble(_log)
    while True:
        try:
            recorder.write(batch)
        except UnwrittenError as error:
            trouble.failed(str(error))
            batch = batch[error.taken :]
            time.sleep(AGAIN)
        else:
            trouble.over()
            return


def _recorded(recorder: Recorder, file: Path, tapped: Tap) -> str:
    return f"{recorder.events:,} events recorded in {file}, {tapped.missed:,} left out"


def _speed(context: click.Context, parameter: click.Parameter, text: str) -> float | None:
    if text == "max":
        return None
    try:
        speed = float(text)
    except ValueError:
        speed = 0.0
    if not 0 < speed < 1e9:
        raise click.BadParameter(f"expected a number above 0, or max, found {text!r}")
    return speed


@click.command()
@click.argument("file", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.argument("stone")
@_AT
@click.option("--speed", callback=_speed, default="1", show_default=True, help="2.0: twice as fast; or max.")
@click.option("--loop", is_flag=True, help="Begin again at the end, until Ctrl-C.")
@speaking
def replay(asked: Asked, file: Path, stone: str, contact: str, speed: float | None, loop: bool) -> None:
    """Submit the events of a recording to a stone, as far apart in time as they came.

    STONE is DEPLOYMENT/STONE, one that others may send to. All events are handed over before this ends.
    """
    from evflow.watch.recording import Recording
    from evflow.watch.replay import Replayed, replay

    recording, done = Recording(file), Replayed()

    def summary() -> str:
        torn = f"; the last {recording.torn:,} bytes are of an event cut short" if recording.torn else ""
        return f"{done.events:,} events submitted to {stone}{torn}"

    with asked.client(contact) as client:
        source = client.source(stone)
        with _until_interrupted(lambda: done.events, summary):
            replay(recording, source.submit_batch, speed=speed, loop=loop, done=done)
