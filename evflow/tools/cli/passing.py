"""``evflow tap``, ``record`` and ``replay``: events that pass a stone."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from evflow.tools.cli.options import FILE, OUT, Asked, speaking

if TYPE_CHECKING:
    from evflow.events.batch import EventBatch
    from evflow.tools.watch.recording import Recorder

_log = logging.getLogger("evflow.watch")

_AT = click.option(
    "--at", "contact", required=True, metavar="CONTACT", help="The node; or its name in the file of --hosts."
)
_COUNT = click.option("--count", type=click.IntRange(1), help="End after so many events.")


class _Speed(click.ParamType):  # type: ignore[type-arg]
    """A number above 0, or "max", which is None."""

    name = "float"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float | None:
        """The factor."""
        if value == "max":
            return None
        with suppress(ValueError):
            if 0 < float(value) < 1e9:
                return float(value)
        self.fail(f"expected a number above 0, or max, found {value!r}", param, ctx)


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
    from evflow.tools.watch.tap import Lines, Rows, Watched, watch

    show = (Lines if how == "json" else Rows)(click.echo).show
    done = Watched()
    with (
        asked.client(contact) as client,
        closing(client.tap(stone)) as tapped,
        _until_interrupted(lambda: done.passed, lambda: str(done)),
    ):
        watch(tapped, show, count=count, rate=rate, done=done)


@click.command()
@click.argument("stone")
@click.argument("file", type=OUT)
@_AT
@_COUNT
@speaking
def record(asked: Asked, stone: str, file: Path, contact: str, count: int | None) -> None:
    """Write the events that pass a stone to a file.

    STONE is DEPLOYMENT/STONE. Events are written with the times they came at, until Ctrl-C. A recording
    that is there is continued. It survives a kill at any moment.
    """
    from evflow.tools.watch.recording import Recorder

    def summary() -> str:
        return f"{recorder.events:,} events recorded in {file}, {tapped.missed:,} left out"

    with (
        asked.client(contact) as client,
        closing(client.tap(stone)) as tapped,
        Recorder(file, stone=stone, node=client.node) as recorder,
        _until_interrupted(lambda: recorder.events, summary),
    ):
        while count is None or recorder.events < count:
            batch = tapped.next(0.25)
            if batch is not None:
                left = len(batch) if count is None else count - recorder.events
                _write(recorder, batch[:left])


def _write(recorder: Recorder, batch: EventBatch) -> None:
    """Writes events; while the file cannot be written they wait, and others are left out and counted."""
    from evflow.disk import AGAIN, Trouble
    from evflow.errors import UnwrittenError

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


@click.command()
@click.argument("file", type=FILE)
@click.argument("stone")
@_AT
@click.option(
    "--speed", type=_Speed(), default="1", show_default=True,
    help="2.0: twice as fast; or max.",
)  # fmt: skip
@click.option("--loop", is_flag=True, help="Begin again at the end, until Ctrl-C.")
@speaking
def replay(asked: Asked, file: Path, stone: str, contact: str, speed: float | None, loop: bool) -> None:
    """Submit the events of a recording to a stone.

    They are submitted as far apart in time as they came. STONE is DEPLOYMENT/STONE, one that others may
    send to. All events are handed over before this ends.
    """
    from evflow.tools.watch.recording import Recording, Replayed, replay

    recording, done = Recording(file), Replayed()

    def summary() -> str:
        torn = f"; the last {recording.torn:,} bytes are of an event cut short" if recording.torn else ""
        return f"{done.events:,} events submitted to {stone}{torn}"

    with asked.client(contact) as client:
        source = client.source(stone)
        with _until_interrupted(lambda: done.events, summary):
            replay(recording, source.submit_batch, speed=speed, loop=loop, done=done)
