"""Dead nodes: reported in time, and their stones go on where the graph says, if most nodes agree."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path

import pytest

import evflow as ev
from tests.deploy.agreement import agreed
from tests.deploy.daemons import DaemonProcess, hosts_of
from tests.deploy.yard import Yard, chain, feeding
from tests.node.processes import wait_for

pytestmark = pytest.mark.slow

DEAD_AFTER = 1.0


def _graph(after: float = 2.0) -> ev.Graph:
    graph = chain("a", "b", "d")
    graph.fallback("b", to="c", after=after)
    return graph


def _members(handle: ev.Deployment, node: str) -> dict[str, str]:
    told = handle.ask(node, "status")["deployments"].get("chain", {})
    return dict(told.get("members", {}))


def test_the_stones_of_a_dead_node_go_on_at_its_fallback_and_all_arrives_once(tmp_path: Path) -> None:
    """The node comes back and finds that it has no stones any more; one can be moved to it again."""
    with ExitStack() as stack:
        processes = {name: stack.enter_context(DaemonProcess(name, tmp_path)) for name in "abc"}
        yard = stack.enter_context(Yard(tmp_path, "d", dead_after=DEAD_AFTER))
        hosts = hosts_of(*processes.values()) | yard.hosts
        handle = stack.enter_context(_graph().deploy(hosts, timeout=3.0))
        feeder = stack.enter_context(feeding(handle["recs"], batch=50, pause=0.01))
        feeder.more(500)
        processes["b"].kill()
        for node in "acd":
            wait_for(lambda: _members(handle, node)["b"].startswith("dead for"), "it is reported", 5)  # noqa: B023
        assert "no answer" in handle.status()["b"]["trouble"]
        seen = len(yard.seen)
        wait_for(lambda: len(yard.seen) > seen + 500, "events go on")
        assert handle.graph.stones["step1"].on == "c"
        assert handle.version == 2
        processes["b"].restart()
        assert agreed(handle) == {"recs": "a", "step1": "c", "end": "d"}
        wait_for(lambda: _members(handle, "a")["b"] == "alive", "it is heard again")
        handle.move("step1", "b")
        assert agreed(handle)["step1"] == "b"
        feeder.more(500)
        count = feeder.end()
        handle.drain(30)
        assert yard.seen == list(range(count))


def test_a_node_that_comes_back_in_time_keeps_its_stones(tmp_path: Path) -> None:
    with ExitStack() as stack:
        processes = {name: stack.enter_context(DaemonProcess(name, tmp_path)) for name in "abc"}
        yard = stack.enter_context(Yard(tmp_path, "d", dead_after=DEAD_AFTER))
        hosts = hosts_of(*processes.values()) | yard.hosts
        handle = stack.enter_context(_graph(after=60.0).deploy(hosts))
        feeder = stack.enter_context(feeding(handle["recs"], batch=50, pause=0.01))
        feeder.more(500)
        processes["b"].kill()
        wait_for(lambda: _members(handle, "a")["b"].startswith("dead for"), "it is reported", 5)
        processes["b"].restart()
        wait_for(lambda: _members(handle, "a")["b"] == "alive", "it is heard again")
        assert agreed(handle) == {"recs": "a", "step1": "b", "end": "d"}
        assert handle.version == 1
        count = feeder.end()
        handle.drain(30)
        assert yard.seen == list(range(count))


def test_a_minority_falls_back_to_nothing(tmp_path: Path) -> None:
    """Two of four are stopped: nobody can tell which half is alive, so nothing changes until they go on."""
    with ExitStack() as stack:
        processes = {name: stack.enter_context(DaemonProcess(name, tmp_path)) for name in "abc"}
        yard = stack.enter_context(Yard(tmp_path, "d", dead_after=DEAD_AFTER))
        hosts = hosts_of(*processes.values()) | yard.hosts
        handle = stack.enter_context(_graph(after=1.0).deploy(hosts))
        feeder = stack.enter_context(feeding(handle["recs"], batch=50, pause=0.01))
        feeder.more(500)
        processes["b"].stop()
        processes["a"].stop()
        for node in "cd":
            wait_for(lambda: _members(handle, node)["b"].startswith("dead for 4"), "silence", 15)  # noqa: B023
            assert handle.ask(node, "status")["deployments"]["chain"]["version"] == 1
        processes["b"].resume()
        processes["a"].resume()
        feeder.more(500)
        assert agreed(handle) in [{"recs": "a", "step1": node, "end": "d"} for node in "bc"]
        count = feeder.end()
        handle.drain(30)
        assert yard.seen == list(range(count))


def test_a_node_that_was_only_stopped_gives_its_stones_up_when_it_goes_on(tmp_path: Path) -> None:
    """It held events; what it sends when it wakes is recognised where it comes."""
    with ExitStack() as stack:
        processes = {name: stack.enter_context(DaemonProcess(name, tmp_path)) for name in "abc"}
        yard = stack.enter_context(Yard(tmp_path, "d", dead_after=DEAD_AFTER))
        hosts = hosts_of(*processes.values()) | yard.hosts
        handle = stack.enter_context(_graph(after=1.0).deploy(hosts))
        feeder = stack.enter_context(feeding(handle["recs"], batch=50, pause=0.01))
        for _ in range(2):
            feeder.more(500)
            processes["b"].stop()
            wait_for(lambda: handle.graph.stones["step1"].on == "c", "the fallback")
            feeder.more(500)
            processes["b"].resume()
            assert agreed(handle) == {"recs": "a", "step1": "c", "end": "d"}
            handle.move("step1", "b")
        feeder.more(500)
        count = feeder.end()
        handle.drain(30)
        assert yard.seen == list(range(count))
