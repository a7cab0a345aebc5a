"""``evflow run``: a graph, or the part of it on one node, from its first event to its table of counts."""

from __future__ import annotations

import signal
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any

import click

from evflow.engine.letters import DeadLetters
from evflow.engine.placement import bridged
from evflow.engine.topology import crossing_of
from evflow.errors import EvflowError, GraphError, LinkError
from evflow.flow.flow import Flow
from evflow.graph.graph import Graph
from evflow.graph.kinds import own_kind
from evflow.outside import shown
from evflow.tools.cli.program import Program
from evflow.tools.report import stats_table

if TYPE_CHECKING:
    from evflow.net.node.node import Node

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
        and not any(own_kind(stone) == "generator" for stone in program.graph.stones.values())
    ):
        raise GraphError(
            f"{program.file} defines no feed(flow), and its graph has no generator: no event would enter it"
        )
    interrupted, failure = False, None
    with _ended_by_sigterm():
        with ExitStack() as unused:
            if node is not None:
                unused.callback(node.close)
            flow = program.graph.run(node=node)
            unused.pop_all()
        try:
            with _ended_by_failure(flow):
                if node is not None:
                    for contact in node.contacts:
                        click.echo(f"node {node.name} listens at {contact}")
                _feed(program, flow)
                with _hints(node):
                    flow.drain()
        except KeyboardInterrupt as cause:
            interrupted = not isinstance(cause, _Terminated)
            what = "interrupted" if interrupted else "asked to end"
            if flow.failure is None:
                click.echo(f"\n{what}: handling what was submitted", err=True)
        except EvflowError as error:
            failure = error
        flow.close(timeout=_PATIENCE)
    click.echo(stats_table(flow.stats(), {name: stone.kind for name, stone in flow.graph.stones.items()}))
    if letters := flow.dead_letters():
        click.echo("\n" + "\n".join(_letter_lines(letters)))
    if picture is not None:
        flow.draw(str(picture))
        click.echo(f"\ngraph drawn to {picture}")
    if failure is not None:
        raise failure
    if flow.failed and not keep_going:
        return 1
    return 130 if interrupted else 0


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
def _beside(look: Callable[[], bool], seconds: float) -> Iterator[None]:
    """Within the ``with`` block a thread calls ``look`` every so many seconds, until that returns False."""
    done = threading.Event()

    def watch() -> None:
        while not done.wait(seconds) and look():
            pass

    watcher = threading.Thread(target=watch, name="evflow watch", daemon=True)
    watcher.start()
    try:
        yield
    finally:
        done.set()
        watcher.join()


@contextmanager
def _ended_by_failure(flow: Flow) -> Iterator[None]:
    """Within the ``with`` block a flow that breaks ends what the main thread does, as SIGTERM would."""

    def look() -> bool:
        if flow.failure is not None:
            signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGTERM)
        return flow.failure is None

    if threading.current_thread() is not threading.main_thread():
        yield
        return
    with _beside(look, _GLANCE):
        yield


def _feed(program: Program, flow: Flow) -> None:
    has_source = any(own_kind(flow.graph.stones[name]) == "source" for name in flow.stats())
    if program.feed is not None and has_source:
        program.call_feed(flow)
        return
    click.echo("running until Ctrl-C", err=True)
    # In short waits, since a signal that comes just before a wait does not end it.
    forever = threading.Event()
    while not forever.wait(0.5):
        pass


@contextmanager
def _hints(node: Node | None) -> Iterator[None]:
    """Within the ``with`` block it is told after a while which nodes are waited for."""
    told = ""

    def look() -> bool:
        nonlocal told
        assert node is not None
        missing = [
            f"{peer} ({link['waiting']:,} events{', ' + link['trouble'] if link['trouble'] else ''})"
            for peer, link in node.links().items()
            if link["waiting"]
        ]
        text = f"waiting for {'; '.join(missing)}"
        if missing and text != told:
            told = text
            click.echo(text, err=True)
        return True

    if node is None:
        yield
        return
    with _beside(look, _HINT_AFTER):
        yield


def _letter_lines(letters: DeadLetters) -> Iterable[str]:
    total = len(letters) + letters.lost
    yield f"{total:,} dead letter{'s' if total > 1 else ''}"
    for letter in letters[:_SHOWN]:
        yield f"  {letter.stone}: {letter.reason}"
        yield f"    {shown(letter.event, 160)}"
    if len(letters) > _SHOWN:
        groups = Counter(letter.stone for letter in letters)
        yield "  … in all: " + ", ".join(f"{count:,} at {stone}" for stone, count in groups.items())
    if letters.lost:
        yield f"  {letters.lost:,} of them were no longer kept"


# --- a node of a graph


def make_node(
    graph: Graph,
    name: str,
    listen: tuple[str, ...] = (),
    peers: Iterable[tuple[str, str]] = (),
    **settings: Any,
) -> Node:
    """The node that runs its part of a graph.

    Args:
        graph: the graph.
        name: the node.
        listen: contacts to listen at.
        peers: names of nodes, and where they listen.
        settings: keys, plain, journal and memory; see ``evflow.Node``.

    Raises:
        EvflowError: the graph has no such node, an option is wrong, or a peer could not be reached.
    """
    from evflow.net.node.node import Node

    contacts, stones = dict(peers), graph.stones.values()
    # The nodes of the graph, and those that its bridges lead out to by name.
    known = {crossing.peer for crossing in map(crossing_of, stones) if crossing is not None}
    known |= {stone.on for stone in stones if stone.on is not None}
    if name not in known:
        raise LinkError(f"graph {graph.name} has no stone on node {name!r}; {_listed(known)}")
    for peer in contacts:
        if peer not in known:
            raise LinkError(f"--peer {peer}: graph {graph.name} has no node {peer!r}; {_listed(known)}")
    # A node that neither dials a peer nor can be dialled would wait forever.
    sent_to, sent_by = _neighbours(graph, name)
    for peer in sorted(sent_to - contacts.keys()) if not listen else ():
        raise LinkError(f"node {name} sends to {peer}: give --peer {peer}=CONTACT, where {peer} listens")
    for peer in sorted(sent_by - contacts.keys()) if not listen else ():
        raise LinkError(
            f"node {name} gets events from {peer}: give --listen CONTACT, and --peer {name}=CONTACT there"
        )
    return Node(name, listen, peers=contacts, **settings)


def _neighbours(graph: Graph, node: str) -> tuple[set[str], set[str]]:
    """The nodes that a node sends to, and those that send to it, by name."""
    whole = bridged(graph)
    ends = {(whole.stones[link.source].on, whole.stones[link.target].on) for link in whole.links}
    sent_to = {end for start, end in ends if start == node != end and end is not None}
    sent_by = {start for start, end in ends if end == node != start and start is not None}
    crossings = [crossing_of(stone) for stone in whole.stones.values() if stone.on == node]
    return sent_to | {c.peer for c in crossings if c is not None and "://" not in c.peer}, sent_by


def _listed(nodes: set[str]) -> str:
    names = ", ".join(sorted(name for name in nodes if "://" not in name))
    return f"its nodes are {names}" if names else "it places no stone; do it with 'with g.on(NAME):'"
