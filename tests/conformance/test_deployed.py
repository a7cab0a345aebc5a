"""The behaviour cases of graphs over processes, through ``deploy`` to daemons, each by its name."""

from __future__ import annotations

from contextlib import ExitStack
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

import evflow as ev
from tests.conformance.bridge_graphs import HOP, Rec
from tests.deploy.daemons import DaemonProcess, hosts_of
from tests.deploy.yard import BEAT
from tests.node.processes import wait_for

pytestmark = pytest.mark.slow

SOME = f"if (input.seq % 10 == 3) return 0; if (input.seq == 77) return 1 / (input.seq - 77); {HOP}"


class Hosts:
    """Daemons that are processes, and a last one in this process, whose terminal fills a list.

    Attributes:
        processes: name → process.
        contacts: name → contact, of all.
        seen: [sequence number, hops] of each event at the terminal.
    """

    def __init__(self, folder: Path, names: list[str], stack: ExitStack) -> None:
        self.seen: list[list[Any]] = []
        self.processes = {name: stack.enter_context(DaemonProcess(name, folder)) for name in names[:-1]}
        handlers = {"end:note": lambda event: self.seen.append([event.seq, event.attrs["hops"]])}
        last = ev.Daemon(
            names[-1], "tcp://127.0.0.1:0", storage=folder / names[-1], handlers=handlers, heartbeat=BEAT
        )
        stack.enter_context(last)
        self.contacts = hosts_of(*self.processes.values()) | {names[-1]: last.contact}


def _hops(names: list[str]) -> ev.Graph:
    """Each node but the first adds a hop."""
    graph = ev.Graph("hops")
    at = graph.source("events", Rec, on=names[0])
    for before, node in pairwise(names):
        at = at >> ev.Filter(HOP, name=f"from {before}", on=node)
    _ = at >> ev.Terminal("end:note", name="end", on=names[-1])
    return graph


@pytest.mark.parametrize("length", [2, 5])
def test_graph_chain(tmp_path: Path, length: int) -> None:
    """Over a chain of N processes an event that gains a hop in each but the first has N - 1."""
    names = [f"node-{number}" for number in range(length)]
    with ExitStack() as stack:
        hosts = Hosts(tmp_path, names, stack)
        handle = stack.enter_context(_hops(names).deploy(hosts.contacts))
        handle["events"].submit_batch({"seq": [0, 1, 2]})
        handle.drain(20)
        assert hosts.seen == [[seq, length - 1] for seq in range(3)]


@pytest.mark.parametrize("node", ["middle", "other"])
def test_graph_insert(tmp_path: Path, node: str) -> None:
    """No event is lost, and hops grow from some event on."""
    with ExitStack() as stack:
        hosts = Hosts(tmp_path, ["first", "middle", "other", "last"], stack)
        handle = stack.enter_context(_hops(["first", "middle", "last"]).deploy(hosts.contacts))
        sent = 0
        for batch in range(200):
            handle["events"].submit_batch({"seq": range(sent, sent + 10)})
            sent += 10
            if batch == 100:
                stone = ev.Filter(HOP, name="one more", on=node)
                handle.insert(stone, after="from first", before="from middle")
        handle.drain(20)
        assert [seq for seq, _ in hosts.seen] == list(range(sent))
        hops = [count for _, count in hosts.seen]
        # What was submitted after it has one more; of what was submitted before some was on its way.
        assert hops[1_010:] == [3] * (sent - 1_010)
        assert hops[:1_010] == sorted(hops[:1_010])
        assert hops[0] == 2


def test_node_failure(tmp_path: Path) -> None:
    """The middle process of a chain is killed and started again: every event arrives at the terminal."""
    with ExitStack() as stack:
        hosts = Hosts(tmp_path, ["first", "middle", "last"], stack)
        handle = stack.enter_context(_hops(["first", "middle", "last"]).deploy(hosts.contacts))
        middle = hosts.processes["middle"]
        handle["events"].submit(Rec(0))
        handle.drain(20)
        handle["events"].submit(Rec(1))
        middle.kill()
        handle["events"].submit(Rec(2))
        middle.restart()
        handle["events"].submit(Rec(3))
        handle.drain(20)
        assert hosts.seen == [[seq, 2] for seq in range(4)]


def test_shutdown_collects_what_every_node_did(tmp_path: Path) -> None:
    """A coordinated end: all that was submitted is handled first, then the nodes are bare."""
    names = ["first", "middle", "last"]
    graph = _hops(names)
    graph.replace("from middle", ev.Filter(SOME))
    with ExitStack() as stack:
        hosts = Hosts(tmp_path, names, stack)
        handle = stack.enter_context(graph.deploy(hosts.contacts))
        for at in range(0, 1_000, 100):
            handle["events"].submit_batch({"seq": range(at, at + 100)})
        handle.drain(20)
        last = handle.shutdown()
        counts = {
            name: (node, stone["in"], stone["out"], stone["dropped"], stone["errors"])
            for node, status in last.items()
            for name, stone in status["stones"].items()
            if stone["kind"] != "bridge"
        }
        assert counts == {
            "hops/events": ("first", 1000, 1000, 0, 0),
            "hops/from first": ("middle", 1000, 1000, 0, 0),
            "hops/from middle": ("last", 1000, 899, 100, 1),
            "hops/end": ("last", 899, 0, 0, 0),
        }
        assert {node: status["dead_letters"] for node, status in last.items()} == {
            "first": 0, "middle": 0, "last": 1,
        }  # fmt: skip
        assert [seq for seq, _ in hosts.seen] == [n for n in range(1_000) if n % 10 != 3 and n != 77]
        for node in names:
            status = handle.ask(node, "status")
            assert (status["deployments"], status["stones"]) == ({}, {})
        with pytest.raises(ev.DeployError, match="no deployment 'hops' on"):
            ev.Deployment("hops", hosts.contacts)


def test_shutdown_handles_first_what_is_under_way(tmp_path: Path) -> None:
    """Nobody waited before; what was submitted through the handle is handed over all the same."""
    names = ["first", "middle", "last"]
    with ExitStack() as stack:
        hosts = Hosts(tmp_path, names, stack)
        handle = stack.enter_context(_hops(names).deploy(hosts.contacts))
        handle["events"].submit_batch({"seq": range(1_000)})
        wait_for(lambda: hosts.seen, "the first event")
        handle["events"].submit_batch({"seq": range(1_000, 5_000)})
        last = handle.shutdown()
        count = last["first"]["stones"]["hops/events"]["in"]
        assert count >= 1_000
        assert [seq for seq, _ in hosts.seen] == list(range(count))
