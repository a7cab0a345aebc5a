"""Daemons killed with ``kill -9`` while events flow and graphs change: each event arrives once."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

import evflow as ev
from tests.deploy.agreement import agreed
from tests.deploy.daemons import DaemonProcess, hosts_of
from tests.deploy.yard import Feeder, Yard, chain, feeding
from tests.node.processes import ROOT, wait_for

pytestmark = pytest.mark.slow

KILLS = int(os.environ.get("EVFLOW_DEPLOY_KILLS", "2"))
SEED = int(os.environ.get("EVFLOW_SEED", "1"))


class Field:
    """Daemons that are processes, and one in this process, ``desk``, with the terminals.

    Attributes:
        processes: name → process.
        desk: the daemon here, and what its terminals were given.
        hosts: where all are.
    """

    def __init__(self, folder: Path, names: str, stack: ExitStack) -> None:
        self.processes = {name: stack.enter_context(DaemonProcess(name, folder)) for name in names}
        self.desk = stack.enter_context(Yard(folder, ["desk"], dead_after=1.0))
        self.hosts = hosts_of(*self.processes.values()) | self.desk.hosts

    @property
    def seen(self) -> list[int]:
        """What the terminal was given."""
        return self.desk.seen

    def check(self, handle: ev.Deployment, feeder: Feeder) -> None:
        """All that was submitted arrived, once and in order."""
        count = feeder.end()
        handle.drain(30)
        assert handle.dead_letters() == []
        assert self.seen == list(range(count))


@contextmanager
def _field(folder: Path, names: str) -> Iterator[Field]:
    with ExitStack() as stack:
        yield Field(folder, names, stack)


@pytest.mark.parametrize("victim", ["a", "b"])
def test_a_daemon_killed_and_started_again_loses_and_doubles_nothing(tmp_path: Path, victim: str) -> None:
    """The one with the source, and the one in the middle."""
    with _field(tmp_path, "ab") as field, chain("a", "b", "desk").deploy(field.hosts) as handle:
        with feeding(handle["recs"], batch=100) as feeder:
            for _ in range(KILLS):
                feeder.more(1_000)
                seen = len(field.seen)
                field.processes[victim].kill()
                field.processes[victim].restart()
                wait_for(lambda: len(field.seen) > seen, "events again")  # noqa: B023
            field.check(handle, feeder)
        assert agreed(handle) == {"recs": "a", "step1": "b", "end": "desk"}
        assert handle.version == 1


class Attempt(threading.Thread):
    """A change that somebody tries meanwhile.

    Attributes:
        error: why it was not made, as far as is known.
    """

    def __init__(self, handle: ev.Deployment, stone: str, node: str) -> None:
        super().__init__(daemon=True)
        self.error: ev.EvflowError | None = None
        self._move = (handle, stone, node)
        self.start()

    def run(self) -> None:
        handle, stone, node = self._move
        try:
            handle.move(stone, node, timeout=3.0)
        except ev.EvflowError as error:
            self.error = error


@pytest.mark.parametrize("role", ["leaves", "comes", "proposes"])
def test_a_kill_during_a_change_leaves_the_old_graph_or_the_new_one(tmp_path: Path, role: str) -> None:
    """A filter goes from b to c and back; what is killed meanwhile is one of the two, or who proposes."""
    moments = random.Random(f"{SEED} {role}")
    outcomes = []
    with (
        _field(tmp_path, "abc") as field,
        chain("a", "b", "desk").deploy(field.hosts) as handle,
        feeding(handle["recs"], batch=50) as feeder,
    ):
        at, to = "b", "c"
        for _ in range(KILLS):
            feeder.more()
            attempt = Attempt(handle, "step1", to)
            time.sleep(moments.random() * 0.08)
            victim = field.processes[{"leaves": at, "comes": to, "proposes": "a"}[role]]
            victim.kill()
            time.sleep(moments.random() * 0.5)
            victim.restart()
            attempt.join(60)
            placed = agreed(handle)
            assert placed in [{"recs": "a", "step1": node, "end": "desk"} for node in (at, to)]
            outcomes.append((placed["step1"] == to, attempt.error))
            if placed["step1"] == to:
                at, to = to, at
        feeder.more()
        handle.move("step1", to)
        assert agreed(handle)["step1"] == to
        feeder.more()
        field.check(handle, feeder)
    # What is said to have been made was made.
    assert all(made or error is not None for made, error in outcomes)


class Mover(threading.Thread):
    """Moves filters about at random, one or several in a change, until it is ended.

    Attributes:
        made: how many changes came about, as far as is known.
    """

    def __init__(self, handle: ev.Deployment, seed: str, nodes: str) -> None:
        super().__init__(daemon=True)
        self.made = 0
        self._changed, self._random, self._nodes = handle, random.Random(seed), nodes
        self._ended = threading.Event()
        self.start()

    def run(self) -> None:
        while not self._ended.is_set():
            try:
                with self._changed.change(timeout=3.0) as graph:
                    for name in self._random.sample(
                        ["step1", "step2", "step3"], self._random.choice([1, 1, 2, 3])
                    ):
                        graph.move(name, self._random.choice(self._nodes))
                self.made += 1
            except ev.EvflowError:
                continue

    def end(self) -> None:
        """Ends it."""
        self._ended.set()
        self.join(60)
        assert not self.is_alive()


def test_random_kills_during_random_changes_lose_double_and_reorder_nothing(tmp_path: Path) -> None:
    """Three filters move about between three daemons, any of which is killed at any time."""
    moments = random.Random(SEED)
    graph = chain("a", "a", "b", "c", "desk")
    with (
        _field(tmp_path, "abc") as field,
        graph.deploy(field.hosts) as handle,
        ev.Deployment("chain", field.hosts, timeout=3.0) as other,
        feeding(handle["recs"], batch=20) as feeder,
    ):
        mover = Mover(other, f"mover {SEED}", "abc")
        for kill in range(KILLS):
            # So some of them come about between the kills.
            wait_for(lambda: mover.made > kill, "another change", 60)  # noqa: B023
            time.sleep(moments.random())
            victim = field.processes[moments.choice("abc")]
            victim.kill()
            time.sleep(moments.random() * 0.3)
            victim.restart()
        mover.end()
        assert set(agreed(handle)) == {"recs", "step1", "step2", "step3", "end"}
        feeder.more()
        field.check(handle, feeder)
        assert agreed(handle)["end"] == "desk"


_MOVER = """
import json, sys
import evflow as ev
with ev.Deployment("chain", json.loads(sys.argv[1])) as handle:
    while True:
        for node in "cb":
            handle.move("step1", node)
            print(node, flush=True)
"""

_DEPLOYER = """
import json, os, signal, sys
import evflow as ev
from tests.deploy.yard import chain
chain("a", "b", "desk").deploy(json.loads(sys.argv[1]))
os.kill(os.getpid(), signal.SIGKILL)
"""


@contextmanager
def _program(text: str, hosts: dict[str, str]) -> Iterator[subprocess.Popen[str]]:
    process = subprocess.Popen(
        [sys.executable, "-c", text, json.dumps(hosts)], stdout=subprocess.PIPE, encoding="utf-8",
        env=os.environ | {"PYTHONPATH": str(ROOT)},
    )  # fmt: skip
    try:
        with process:
            yield process
            process.kill()
    finally:
        process.kill()


def test_a_program_killed_while_it_changes_a_deployment_leaves_it_whole(tmp_path: Path) -> None:
    moments = random.Random(SEED)
    with (
        _field(tmp_path, "abc") as field,
        chain("a", "b", "desk").deploy(field.hosts) as handle,
        feeding(handle["recs"], batch=50) as feeder,
    ):
        for _ in range(KILLS):
            with _program(_MOVER, field.hosts) as program:
                assert program.stdout is not None
                program.stdout.readline()
                time.sleep(moments.random() * 0.3)
                program.kill()
            placed = agreed(handle)
            assert placed in [{"recs": "a", "step1": node, "end": "desk"} for node in "bc"]
        handle.move("step1", "a")
        feeder.more()
        field.check(handle, feeder)
        assert agreed(handle)["step1"] == "a"


def test_a_deployment_outlives_the_program_that_deployed_it(tmp_path: Path) -> None:
    """It is killed as soon as ``deploy`` returned; another one takes a handle by name."""
    with _field(tmp_path, "ab") as field:
        with _program(_DEPLOYER, field.hosts) as program:
            assert program.wait(30) == -9
        with ev.Deployment("chain", {"b": field.hosts["b"]}) as handle:
            assert agreed(handle) == {"recs": "a", "step1": "b", "end": "desk"}
            with feeding(handle["recs"]) as feeder:
                feeder.more()
                handle.move("step1", "a")
                feeder.more()
                field.check(handle, feeder)


def test_a_whole_deployment_killed_and_started_again_goes_on(tmp_path: Path) -> None:
    """All daemons at once; the terminal is on one of them, and notes what it is given in a file."""
    graph = chain("a", "b", "c", handler="tests.deploy.handlers:note")
    with ExitStack() as stack:
        daemons = [stack.enter_context(DaemonProcess(name, tmp_path)) for name in "abc"]
        handle = stack.enter_context(graph.deploy(hosts_of(*daemons)))
        with feeding(handle["recs"], batch=50) as feeder:
            for _ in range(3):
                feeder.more(500)
                for daemon in daemons:
                    daemon.kill()
                for daemon in daemons:
                    daemon.restart(ready=False)
                for daemon in daemons:
                    daemon.wait_ready()
                feeder.more(500)
            count = feeder.end()
            handle.drain(30)
        assert agreed(handle) == {"recs": "a", "step1": "b", "end": "c"}
    noted = daemons[2].noted
    assert set(noted) == set(range(count))
    # What the terminal had in hand when it was killed may come again, at once and in order.
    breaks = [i for i in range(1, len(noted)) if noted[i] != noted[i - 1] + 1]
    assert len(breaks) <= 3
    assert all(noted[i] <= noted[i - 1] for i in breaks)


def test_a_daemon_that_ends_in_good_order_takes_its_stones_up_again(tmp_path: Path) -> None:
    """With a storage stone in memory and a frozen one: what they hold is there again."""
    with _field(tmp_path, "ab") as field:
        graph = chain("a", "b", "desk")
        graph.insert(ev.Storage(200, name="held", on="b", path="held.db"), after="step1", before="end")
        with graph.deploy(field.hosts) as handle, feeding(handle["recs"]) as feeder:
            feeder.more(1_000)
            assert field.processes["b"].end() == 0
            feeder.more(100)
            field.processes["b"].restart()
            feeder.more(500)
            count = feeder.end()
            handle.drain(30)
            wait_for(lambda: len(field.seen) >= count - 200, "all but what is held")
            assert handle.send_stored("held") == 200
            wait_for(lambda: len(field.seen) >= count, "what was held")
            assert field.seen == list(range(count))
