"""The demo on several nodes, each in a process of its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

import evflow as ev
from evflow.demo.graph import NODES, build, ignore

__all__ = ["Parts", "parts"]

_PATIENCE = 60
"""Seconds to wait for the other nodes."""
_ENDING = 15.0
"""Seconds that a process has to end by itself."""


class Parts:
    """The processes of all nodes but the first.

    Args:
        processes: the number of nodes, the first one included.

    Attributes:
        running: node → its process.
    """

    def __init__(self, processes: int) -> None:
        self.count = processes
        self.running: dict[str, subprocess.Popen[str]] = {}
        self._contacts: dict[str, str] = {}

    def start(self) -> None:
        """Starts them; ``connect`` waits until they listen."""
        # They find the same modules as this process.
        environment = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
        for name in NODES[1 : self.count]:
            self.running[name] = subprocess.Popen(
                [sys.executable, "-m", "evflow.demo.part", name, str(self.count)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
                env=environment,
            )

    def connect(self) -> ev.Flow:
        """Tells each the contacts of those that it sends to, and starts the first node in this process.

        Raises:
            EvflowError: one of them has ended.
        """
        # Events go from earlier nodes to later ones only.
        for name in reversed(self.running):
            self._contacts[name] = self._ask(name, self._contacts)
        node = ev.Node(NODES[0], peers=self._contacts)
        return build(ignore, self.count).run(node=node)

    def reports(self) -> dict[str, dict[str, Any]]:
        """What each has counted, by node.

        Raises:
            EvflowError: one of them has ended.
        """
        return {name: self._ask(name, "report") for name in self.running}

    def drain(self, flow: ev.Flow) -> None:
        """Waits until all nodes have handled what was submitted.

        Raises:
            EvflowError: one of them has ended, or it takes too long.
        """
        for _ in range(_PATIENCE):
            try:
                flow.drain(timeout=1.0)
                return
            except ev.FlowError:
                self._check(*self.running)
        flow.drain(timeout=1.0)

    def _ask(self, name: str, question: object) -> Any:
        process = self.running[name]
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            process.stdin.write(json.dumps(question) + "\n")
            process.stdin.flush()
        except OSError:
            self._check(name)
        answer = process.stdout.readline()
        if not answer:
            process.wait()
            self._check(name)
        return json.loads(answer)

    def _check(self, *names: str) -> None:
        for name in names:
            code = self.running[name].poll()
            if code is not None:
                raise ev.EvflowError(f"the demo's process of node {name} has ended, with code {code}")

    def end(self) -> None:
        """Ends them."""
        for process in self.running.values():
            assert process.stdin is not None
            # What could not be written to a process that has ended is of no use any more.
            with suppress(OSError):
                process.stdin.close()
        for process in self.running.values():
            try:
                process.wait(_ENDING)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
            assert process.stdout is not None
            process.stdout.close()


@contextmanager
def parts(processes: int) -> Iterator[Parts]:
    """The processes of all nodes but the first; they have ended when the block has.

    Args:
        processes: the number of nodes, the first one included.
    """
    started = Parts(processes)
    try:
        started.start()
        yield started
    finally:
        started.end()
