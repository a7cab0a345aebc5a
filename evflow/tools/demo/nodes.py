"""The demo's graph on one node or on several, each of which is a process of its own."""

from __future__ import annotations

import multiprocessing
import signal
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from multiprocessing.connection import Connection
from multiprocessing.context import SpawnProcess
from typing import Any, NamedTuple

import evflow as ev
from evflow.tools.demo.graph import NODES, build

_PATIENCE = 60
"""Seconds to wait for the other nodes."""
_ENDING = 15.0
"""Seconds that a process has to end by itself."""


class Report(NamedTuple):
    """What the stones of a node have done.

    Attributes:
        stats: their counts, as ``Flow.stats`` gives them.
        averages: what the stone "averages" got, as bytes, and how many events these are.
        dead: the events that were given up, one text each.
    """

    stats: dict[str, dict[str, float]]
    averages: list[tuple[bytes, int]]
    dead: list[str]


def _report(flow: ev.Flow, averages: list[ev.EventBatch]) -> Report:
    dead = [f"{letter.stone}: {letter.reason}" for letter in flow.dead_letters()]
    return Report(flow.stats(), [(batch.to_bytes(), len(batch)) for batch in averages], dead)


def _part(name: str, processes: int, pipe: Connection) -> None:
    """Runs a node of the demo until the other end of the pipe is closed, so that it outlives nobody."""
    # Ctrl-C reaches every process of the terminal; the first one ends the others in order.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    averages: list[ev.EventBatch] = []
    with suppress(EOFError):
        node = ev.Node(name, listen="tcp://127.0.0.1:0", peers=pipe.recv())
        with build(averages.append, processes).run(node=node) as flow, suppress(EOFError):
            pipe.send(node.contact)
            # It is asked when all is handled, so the counts are exact.
            while pipe.recv():
                pipe.send(_report(flow, averages))


class Parts:
    """The nodes of the demo; the first is in this process.

    Args:
        processes: the number of nodes, the first one included.

    Attributes:
        running: node → its process, of all but the first.
    """

    def __init__(self, processes: int) -> None:
        self.running: dict[str, SpawnProcess] = {}
        self._processes = processes
        self._pipes: dict[str, Connection] = {}
        self._averages: list[ev.EventBatch] = []
        context = multiprocessing.get_context("spawn")
        for name in NODES[1:processes]:
            self._pipes[name], theirs = context.Pipe()
            self.running[name] = context.Process(target=_part, args=(name, processes, theirs), daemon=True)
            self.running[name].start()
            theirs.close()

    def connect(self) -> ev.Flow:
        """Tells each the contacts of those that it sends to, and starts the first node.

        Raises:
            EvflowError: a process has ended.
        """
        contacts: dict[str, str] = {}
        # Events go from earlier nodes to later ones only.
        for name in reversed(self.running):
            contacts[name] = self._ask(name, contacts)
        node = ev.Node(NODES[0], peers=contacts) if self.running else None
        return build(self._averages.append, self._processes).run(node=node)

    def drain(self, flow: ev.Flow) -> None:
        """Waits until all nodes have handled what was submitted.

        Raises:
            EvflowError: a process has ended, or it takes too long.
        """
        for left in reversed(range(_PATIENCE)):
            try:
                flow.drain(timeout=1.0)
                return
            except ev.FlowError:
                for name in self.running:
                    self._check(name)
                if not left:
                    raise

    def report(self, flow: ev.Flow) -> Report:
        """What all nodes together have done, stones in the order of the graph.

        Raises:
            EvflowError: a process has ended.
        """
        reports = [_report(flow, self._averages), *(self._ask(name, True) for name in self.running)]
        stats = {name: counts for report in reports for name, counts in report.stats.items()}
        return Report(
            {name: stats[name] for name in flow.graph.stones},
            [batch for report in reports for batch in report.averages],
            [text for report in reports for text in report.dead],
        )

    def _ask(self, name: str, question: object) -> Any:
        try:
            self._pipes[name].send(question)
            return self._pipes[name].recv()
        except (EOFError, OSError):
            self.running[name].join()
            self._check(name)
            raise

    def _check(self, name: str) -> None:
        code = self.running[name].exitcode
        if code is not None:
            raise ev.EvflowError(f"the demo's process of node {name} has ended, with code {code}")

    def end(self) -> None:
        """Ends the processes."""
        for pipe in self._pipes.values():
            pipe.close()
        for process in self.running.values():
            process.join(_ENDING)
            process.kill()
            process.join()


@contextmanager
def parts(processes: int) -> Iterator[Parts]:
    """The nodes of the demo; their processes have ended when the block has.

    Args:
        processes: the number of nodes, the first one included.
    """
    started = Parts(processes)
    try:
        yield started
    finally:
        started.end()
