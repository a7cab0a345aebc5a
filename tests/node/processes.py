"""Processes that each run one node of a graph, told what to do over a pipe; none outlives its test.

The graph is a function of ``tests.node.graphs``, called with the list that its handlers fill. A process does
what it is asked, one request after the other, and ends when its standard input does.
"""

from __future__ import annotations

import importlib
import json
import os
import random
import select
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np

import evflow as ev
from tests import preloaded

ROOT = Path(__file__).parents[2]

_ENVIRONMENT = {"PYTHONPATH": str(ROOT), "PYTHONWARNINGS": "error"}

_PORTS = random.Random()
"""Not that of ``random``, which hypothesis seeds, in every process alike."""

_LOCKS: list[socket.socket] = []
"""One for each port that this process chose."""


class ProcessError(AssertionError):
    """A process ended, did not answer, or answered with an error."""


def wait_for(condition: Callable[[], Any], what: str, timeout: float = 20.0) -> Any:
    """Waits until ``condition()`` is true and returns what it gave.

    Raises:
        ProcessError: it was not within ``timeout`` seconds.
    """
    began = time.monotonic()
    while not (found := condition()):
        waited = time.monotonic() - began
        if waited > timeout:
            raise ProcessError(f"not within {timeout} s: {what}")
        # What takes long is looked at less often.
        time.sleep(min(max(0.01, waited / 20), 0.1))
    return found


def free_port() -> int:
    """A port that nobody uses, and that no other test gets while this process lives: to restart nodes at."""
    while True:
        # Below those that a host gives to whoever asks for any: nobody gets it while its node is down.
        port = _PORTS.randrange(10_000, 32_000)
        lock = socket.socket(socket.AF_UNIX)
        try:
            # An abstract address, which only one process has and which goes with it.
            lock.bind(f"\0evflow tests port {port}")
            with socket.socket() as probe:
                probe.bind(("127.0.0.1", port))
        except OSError:
            lock.close()
            continue
        _LOCKS.append(lock)
        return port


class NodeProcess:
    """A process that runs the stones of a graph that are placed on one node.

    Args:
        graph: the graph's name in ``module``.
        name: the node's name.
        settings: arguments of the graph's function.
        flow: arguments of ``Graph.run``.
        host: the network namespace that it runs in; see ``tests.preloaded.start``.
        module: where the graph's function is.
        ready: wait until it runs.
        node: arguments of ``Node``.
    """

    _PROGRAM = "tests.node.processes"

    def __init__(
        self,
        graph: str,
        name: str,
        *,
        settings: dict[str, Any] | None = None,
        flow: dict[str, Any] | None = None,
        host: str = "",
        module: str = "tests.node.graphs",
        ready: bool = True,
        **node: Any,
    ) -> None:
        self.name = name
        plan = {"module": module, "graph": graph, "settings": settings or {}, "flow": flow or {}}
        plan["node"] = {"name": name} | node
        self._log = tempfile.TemporaryFile("w+")  # noqa: SIM115  closed by end()
        self._plan = json.dumps(plan)
        self._host = host
        self._start()
        if ready:
            self.wait_ready()

    def _start(self) -> None:
        settings: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": self._log}
        settings["env"] = os.environ | _ENVIRONMENT
        self._process = preloaded.start(f"{self._PROGRAM}:main", [self._plan], host=self._host, **settings)
        self._pending = b""
        self.contact = ""

    def wait_ready(self) -> None:
        """Returns when it runs."""
        self.contact = self.answer("begin", 30.0)

    @property
    def pid(self) -> int:
        """The process's number."""
        return self._process.pid

    @property
    def ended(self) -> bool:
        """Whether it no longer runs."""
        return self._process.poll() is not None

    @property
    def rss(self) -> int:
        """Bytes of memory that it has in use now."""
        pages = Path(f"/proc/{self.pid}/statm").read_text().split()[1]
        return int(pages) * os.sysconf("SC_PAGE_SIZE")

    @property
    def log(self) -> str:
        """What it wrote to standard error."""
        self._log.seek(0)
        return self._log.read()

    def tell(self, what: str, **arguments: Any) -> None:
        """Has it do something; ``answer`` waits for it."""
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps([what, arguments]).encode() + b"\n")
        self._process.stdin.flush()

    def ask(self, what: str, *, within: float = 30.0, **arguments: Any) -> Any:
        """Has it do something and returns the answer; see ``Commands``.

        Raises:
            ProcessError: it ended, or did not answer ``within`` seconds.
            FlowError: what the flow raised.
        """
        self.tell(what, **arguments)
        return self.answer(what, within)

    def answer(self, what: str, within: float = 30.0) -> Any:
        """The answer to what it was told to do; see ``ask``."""
        value, error = json.loads(self._line(what, within))
        if error is not None:
            raise ev.FlowError(error)
        return value

    def _line(self, what: str, within: float) -> bytes:
        assert self._process.stdout is not None
        deadline = time.monotonic() + within
        chunks = [self._pending]
        while b"\n" not in chunks[-1]:
            left = deadline - time.monotonic()
            if left <= 0 or not select.select([self._process.stdout], [], [], left)[0]:
                raise ProcessError(
                    f"process {self.name} did not answer {what!r} within {within} s\n{self.log}"
                )
            chunk = os.read(self._process.stdout.fileno(), 1 << 20)
            if not chunk:
                raise ProcessError(f"process {self.name} ended, asked for {what!r}\n{self.log}")
            chunks.append(chunk)
        line, _, self._pending = b"".join(chunks).partition(b"\n")
        return line

    def kill(self) -> None:
        """Kills it as ``kill -9`` does."""
        self._process.kill()
        self._reap()

    def restart(self, ready: bool = True) -> None:
        """Starts it again, after ``kill`` or ``end``."""
        self._start()
        if ready:
            self.wait_ready()

    def stop(self) -> None:
        """Stops it (SIGSTOP) until ``resume``."""
        os.kill(self.pid, signal.SIGSTOP)

    def resume(self) -> None:
        """Lets it go on (SIGCONT)."""
        os.kill(self.pid, signal.SIGCONT)

    def end(self, timeout: float = 20.0) -> int:
        """Ends it in good order; returns its exit code."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        try:
            self._process.wait(timeout)
        except subprocess.TimeoutExpired:
            self.kill()
            raise ProcessError(f"process {self.name} did not end within {timeout} s\n{self.log}") from None
        self._reap()
        return self._process.returncode

    def _reap(self) -> None:
        for pipe in (self._process.stdin, self._process.stdout):
            assert pipe is not None
            try:
                pipe.close()
            except BrokenPipeError:
                continue
        self._process.wait()

    def __enter__(self) -> NodeProcess:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._process.poll() is None:
            self.kill()
        self._reap()
        self._log.close()


@contextmanager
def running(graph: ev.Graph, node: ev.Node, timeout: float = 10.0, **settings: Any) -> Iterator[ev.Flow]:
    """A flow in this process that is closed within ``timeout`` seconds."""
    flow = graph.run(node=node, **settings)
    try:
        yield flow
    finally:
        flow.close(timeout)


class Commands:
    """What a process may be asked to do."""

    def __init__(self, flow: ev.Flow, seen: list[Any]) -> None:
        self._flow = flow
        self._seen = seen

    def seen(self, start: int = 0) -> list[Any]:
        """What the handlers noted, from ``start`` on."""
        return self._seen[start:]

    def count(self) -> int:
        """How much the handlers noted."""
        return len(self._seen)

    def submit(self, stone: str, columns: dict[str, Any], timeout: float | None = None) -> None:
        """Submits a batch."""
        self._flow[stone].submit_batch(columns, timeout=timeout)

    def submit_many(
        self, stone: str, stop: int, batch: int, start: int = 0, timeout: float | None = None
    ) -> None:
        """Submits the numbers from ``start`` to ``stop``, a batch at a time."""
        for at in range(start, stop, batch):
            self.submit(stone, {"seq": np.arange(at, min(at + batch, stop))}, timeout)

    def fill(self, stones: list[str], frames: int) -> None:
        """Submits one event at a time to each of these stones, until so many frames are in flight."""
        assert self._flow.node is not None
        outlets = self._flow.node._hub.outlets
        for stone in stones:
            self.submit(stone, {"seq": [-1]})
        self.drain()
        seq = 0
        while sum(outlet._last_sent - outlet._consumed for outlet in list(outlets.values())) < frames:
            for stone in stones:
                self.submit(stone, {"seq": [seq]})
            seq += 1

    def drain(self, timeout: float = 20.0) -> None:
        """Waits until all is handled."""
        self._flow.drain(timeout)

    def stats(self) -> dict[str, dict[str, float]]:
        """The flow's counts."""
        return self._flow.stats()

    def links(self) -> dict[str, dict[str, Any]]:
        """The node's links."""
        assert self._flow.node is not None
        return self._flow.node.links()

    def refused(self) -> dict[str, int]:
        """What the node refused."""
        assert self._flow.node is not None
        return self._flow.node.refused

    def send_stored(self, stone: str) -> int:
        """Lets go what a storage stone holds."""
        return self._flow.send_stored(stone)

    def freeze(self, stone: str) -> None:
        """Freezes a stone."""
        self._flow.freeze(stone)

    def unfreeze(self, stone: str) -> None:
        """Unfreezes a stone."""
        self._flow.unfreeze(stone)


def main() -> None:
    """A process's program."""
    # Whatever else prints must not get between the answers.
    with os.fdopen(os.dup(1), "w", buffering=1) as answers:
        os.dup2(2, 1)
        _serve(json.loads(sys.argv[1]), lambda *answer: answers.write(json.dumps(answer) + "\n"))


def _serve(plan: dict[str, Any], answer: Callable[[Any, str | None], Any]) -> None:
    seen: list[Any] = []
    graph: ev.Graph = getattr(importlib.import_module(plan["module"]), plan["graph"])(
        seen, **plan["settings"]
    )
    with graph.run(node=ev.Node(**plan["node"]), **plan["flow"]) as flow:
        commands = Commands(flow, seen)
        assert flow.node is not None
        answer(flow.node.contact, None)
        for line in sys.stdin:
            what, arguments = json.loads(line)
            try:
                answer(getattr(commands, what)(**arguments), None)
            except ev.EvflowError as failure:
                answer(None, str(failure))
