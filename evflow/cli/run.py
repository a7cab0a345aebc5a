"""``evflow run``: a graph from its first event to its table of counts."""

from __future__ import annotations

import threading
from collections.abc import Iterable
from pathlib import Path

import click

from evflow.cli.program import Program, located
from evflow.engine.letters import DeadLetters
from evflow.errors import EvflowError, GraphError
from evflow.flow.flow import Flow
from evflow.report import stats_table

__all__ = ["run_program"]

_SHOWN = 10


def run_program(program: Program, picture: Path | None) -> bool:
    """Runs a graph until its ``feed`` returns or the user interrupts it, and prints what happened.

    Returns:
        Whether it was interrupted.

    Raises:
        EvflowError: the graph is wrong, ``feed`` failed, or nothing would ever enter the graph.
    """
    if program.feed is None and not any(s.kind == "generator" for s in program.graph.stones.values()):
        raise GraphError(
            f"{program.file} defines no feed(flow), and its graph has no generator: no event would enter it"
        )
    flow = program.graph.run()
    interrupted, failure = False, None
    try:
        _feed(program, flow)
        flow.drain()
    except KeyboardInterrupt:
        interrupted = True
        click.echo("\ninterrupted: handling what was submitted", err=True)
    except EvflowError as error:
        failure = error
    flow.close()
    _report(flow, picture)
    if failure is not None:
        raise failure
    return interrupted


def _feed(program: Program, flow: Flow) -> None:
    if program.feed is None:
        click.echo("running until Ctrl-C", err=True)
        threading.Event().wait()
        return
    try:
        program.feed(flow)
    except Exception as error:
        raise located(program.file, error) from error


def _report(flow: Flow, picture: Path | None) -> None:
    kinds = {name: stone.kind for name, stone in flow.graph.stones.items()}
    click.echo(stats_table(flow.stats(), kinds))
    if letters := flow.dead_letters():
        click.echo("\n" + "\n".join(_letter_lines(letters)))
    if picture is not None:
        flow.draw(str(picture))
        click.echo(f"\ngraph drawn to {picture}")


def _letter_lines(letters: DeadLetters) -> Iterable[str]:
    total = len(letters) + letters.lost
    yield f"{total:,} dead letter{'s' if total > 1 else ''}"
    for letter in letters[:_SHOWN]:
        yield f"  {letter.stone}: {letter.reason}"
        yield f"    {letter.event!r:.160}"
    if len(letters) > _SHOWN:
        groups: dict[str, int] = {}
        for letter in letters:
            groups[letter.stone] = groups.get(letter.stone, 0) + 1
        yield "  … in all: " + ", ".join(f"{count:,} at {stone}" for stone, count in groups.items())
    if letters.lost:
        yield f"  {letters.lost:,} of them were no longer kept"
