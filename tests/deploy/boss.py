"""A program that deploys and changes a graph from another host, told what to do over a pipe."""

from __future__ import annotations

import json
import os
import random
import select
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from types import TracebackType
from typing import Any

import evflow as ev
from tests import preloaded
from tests.deploy.agreement import agreed
from tests.deploy.handlers import __name__ as handlers
from tests.deploy.yard import Feeder, chain
from tests.node.processes import ProcessError


class Boss:
    """The program, as the test has it.

    Args:
        name: its name.
        keys: the folder of its keys.
        hosts: where the daemons are.
        host: the network namespace that it runs in.
    """

    def __init__(self, name: str, keys: Path, hosts: dict[str, str], host: str) -> None:
        plan = json.dumps({"name": name, "keys": str(keys), "hosts": hosts})
        self._log = tempfile.TemporaryFile("w+")  # noqa: SIM115  closed by __exit__
        self._process = preloaded.start(
            "tests.deploy.boss:main", [plan], host=host, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            stderr=self._log, encoding="utf-8",
        )  # fmt: skip

    def tell(self, what: str, **arguments: Any) -> None:
        """Has it do something; ``answer`` waits for it."""
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps([what, arguments]) + "\n")
        self._process.stdin.flush()

    def answer(self, within: float = 60.0) -> Any:
        """What came of it.

        Raises:
            DeployError: what it raised, of whatever class.
        """
        assert self._process.stdout is not None
        ready = select.select([self._process.stdout], [], [], within)[0]
        line = self._process.stdout.readline() if ready else ""
        if not line:
            self._log.seek(0)
            raise ProcessError(f"no answer within {within} s\n{self._log.read()}")
        value, error = json.loads(line)
        if error is not None:
            raise ev.DeployError(error)
        return value

    def ask(self, what: str, **arguments: Any) -> Any:
        """Has it do something, and waits."""
        self.tell(what, **arguments)
        return self.answer()

    def __enter__(self) -> Boss:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._process.kill()
        for pipe in (self._process.stdin, self._process.stdout):
            assert pipe is not None
            pipe.close()
        self._process.wait()
        self._log.close()


class Commands:
    """What it does when it is told."""

    def __init__(self, name: str, keys: str, hosts: dict[str, str]) -> None:
        self._settings: dict[str, Any] = {"name": name, "keys": keys}
        self._hosts = hosts
        self._handle: ev.Deployment | None = None
        self._feeder: Feeder | None = None

    @property
    def _held(self) -> ev.Deployment:
        assert self._handle is not None
        return self._handle

    def deploy(self, nodes: str = "abc", timeout: float = 10.0) -> None:
        """Deploys a chain over nodes, each of which is a letter."""
        graph = chain(*nodes, handler=f"{handlers}:note")
        self._handle = graph.deploy(self._hosts, timeout=timeout, **self._settings)

    def take(self) -> None:
        """Takes a handle of what runs already."""
        self._handle = ev.Deployment("chain", self._hosts, timeout=2.0, **self._settings)

    def feed(self) -> None:
        """Begins to submit."""
        self._feeder = Feeder(self._held["recs"], batch=50)

    def more(self, count: int = 500) -> None:
        """Returns when so many more were submitted."""
        assert self._feeder is not None
        self._feeder.more(count)

    def end(self) -> int:
        """Ends submitting; returns how many events were, once all are handled."""
        assert self._feeder is not None
        count = self._feeder.end()
        self._held.drain(30)
        return count

    def move(self, stone: str, node: str, timeout: float = 10.0) -> None:
        """Moves a stone."""
        self._held.move(stone, node, timeout)

    def roam(self, seconds: float, seed: str, nodes: str) -> list[int]:
        """Moves filters to nodes at random for a while; returns how many moves were made, and refused."""
        chosen, until, made = random.Random(seed), time.monotonic() + seconds, [0, 0]
        steps = [name for name in self._held.graph.stones if name.startswith("step")]
        while time.monotonic() < until:
            try:
                self._held.move(chosen.choice(steps), chosen.choice(nodes), timeout=3.0)
                made[0] += 1
            except ev.EvflowError:
                made[1] += 1
            time.sleep(chosen.random() * 0.1)
        return made

    def agreed(self) -> dict[str, str]:
        """Which stone runs where."""
        return agreed(self._held)

    def status(self) -> dict[str, Any]:
        """What the nodes say."""
        return self._held.status()


def main() -> None:
    """The program."""
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)
    commands = Commands(**json.loads(sys.argv[1]))
    for line in sys.stdin:
        what, arguments = json.loads(line)
        try:
            answers.write(json.dumps([getattr(commands, what)(**arguments), None]) + "\n")
        except (ev.EvflowError, AssertionError) as error:
            answers.write(json.dumps([None, str(error)]) + "\n")
