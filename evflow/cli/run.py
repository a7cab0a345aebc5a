"""``evflow run``: a graph, or the part of it on one node, from its first event to its table of counts."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING

import click

from evflow.cli.program import Program, located
from evflow.engine.letters import DeadLetters
from evflow.errors import EvflowError, GraphError
from evflow.flow.flow import Flow
from evflow.kinds import own_kind
from evflow.outside import shown
from evflow.report import stats_table

if TYPE_CHECKING:
    from evflow.node.node import Node

__all__ = ["run_program"]

_SHOWN = 10
_HINT_AFTER = 2.0
"""Seconds without an end after which the user is told what is missing."""
_GLANCE = 0.2
"""Seconds between two looks at whether the flow still runs."""
_PATIENCE = 5.0
"""Seconds that other nodes have to handle what they were sent, when a node is asked to end."""


class _Terminated(KeyboardInterrupt):
    """SIGTERM came: the same as Ctrl-C, but asked for."""


def run_program(
    program: Program, picture: Path | None, node: Node | None = None, keep_going: bool = False
) -> int:
    """Runs a graph until its ``feed`` returns or the user interrupts it, and prints what happened.

    Args:
        program: the graph and its ``feed``.
        picture: where to draw the graph to, or None.
        node: run the stones that are placed on this node; ``feed`` is called where a source is.
        keep_going: whether it ends well though stones have failed on events.

    Returns:
        The exit code: 1 if stones have failed on events, however it ended, else 130 if it was interrupted by
        Ctrl-C (SIGTERM ends it too, as orderly), else 0.

    Raises:
        EvflowError: the graph is wrong, ``feed`` failed, or nothing would ever enter the graph.
    """
    if (
        node is None
        and program.feed is None
        and not any(own_kind(s) == "generator" for s in program.graph.stones.values())
    ):
        raise GraphError(
            f"{program.file} defines no feed(flow), and its graph has no generator: no event would enter it"
        )
    interrupted, failure = False, None
    with _ended_by_sigterm():
        flow = _begun(program, node)
        try:
            with _ended_by_failure(flow):
                _announce(node)
                _feed(program, flow)
                _drain(flow, node)
        except KeyboardInterrupt as cause:
            interrupted = not isinstance(cause, _Terminated)
            what = "interrupted" if interrupted else "asked to end"
            if flow.failure is None:
                click.echo(f"\n{what}: handling what was submitted", err=True)
        except EvflowError as error:
            failure = error
        flow.close(timeout=_PATIENCE)
    _report(flow, picture)
    if failure is not None:
        raise failure
    if flow.failed and not keep_going:
        return 1
    return 130 if interrupted else 0


def _begun(program: Program, node: Node | None) -> Flow:
    try:
        return program.graph.run(node=node)
    except BaseException:
        if node is not None:
            node.close()
        raise


@contextmanager
def _ended_by_sigterm() -> Iterator[None]:
    def end(number: int, frame: FrameType | None) -> None:
        # A second one must not disturb the orderly end.
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        raise _Terminated

    # Signals are the main thread's; whoever calls this from another has his own way to end it.
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGTERM, end)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


@contextmanager
def _ended_by_failure(flow: Flow) -> Iterator[None]:
    """Within the ``with`` block a flow that breaks ends what the main thread does, as SIGTERM would."""
    done = threading.Event()

    def watch() -> None:
        while not done.wait(_GLANCE):
            if flow.failure is not None:
                signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGTERM)
                return

    if threading.current_thread() is not threading.main_thread():
        yield
        return
    watcher = threading.Thread(target=watch, name="evflow watch", daemon=True)
    watcher.start()
    try:
        yield
    finally:
        done.set()
        watcher.join()


def _announce(node: Node | None) -> None:
    for contact in () if node is None else node.contacts:
        assert node is not None
        click.echo(f"node {node.name} listens at {contact}")


def _feed(program: Program, flow: Flow) -> None:
    has_source = any(own_kind(flow.graph.stones[name]) == "source" for name in flow.stats())
    if program.feed is None or not has_source:
        click.echo("running until Ctrl-C", err=True)
        # In short waits, since a signal that comes just before a wait does not end it.
        forever = threading.Event()
        while not forever.wait(0.5):
            pass
    try:
        assert program.feed is not None
        program.feed(flow)
    except Exception as error:
        raise located(program.file, error) from error


def _drain(flow: Flow, node: Node | None) -> None:
    """Waits until all is handled; tells after a while which nodes it waits for."""
    if node is None:
        flow.drain()
        return
    done = threading.Event()
    hints = threading.Thread(target=_hint, args=(node, done), daemon=True)
    hints.start()
    try:
        flow.drain()
    finally:
        done.set()
        hints.join()


def _hint(node: Node, done: threading.Event) -> None:
    told = ""
    while not done.wait(_HINT_AFTER):
        missing = [
            f"{peer} ({link['waiting']:,} events{', ' + link['trouble'] if link['trouble'] else ''})"
            for peer, link in node.links().items()
            if link["waiting"]
        ]
        text = f"waiting for {'; '.join(missing)}"
        if missing and text != told:
            told = text
            click.echo(text, err=True)


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
        yield f"    {shown(letter.event, 160)}"
    if len(letters) > _SHOWN:
        groups: dict[str, int] = {}
        for letter in letters:
            groups[letter.stone] = groups.get(letter.stone, 0) + 1
        yield "  … in all: " + ", ".join(f"{count:,} at {stone}" for stone, count in groups.items())
    if letters.lost:
        yield f"  {letters.lost:,} of them were no longer kept"
