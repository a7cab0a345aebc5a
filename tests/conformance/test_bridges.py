"""The behaviour cases of a stone library in EVPath's style that cross processes, each by its name."""

from __future__ import annotations

import random
from contextlib import ExitStack
from typing import Any

import numpy as np
import pytest

import evflow as ev
from tests.conformance import bridge_graphs as graphs
from tests.conformance.bridge_graphs import A, B, Bulk, Cell, Place, Rec, plain
from tests.node.processes import NodeProcess, free_port, running, wait_for

pytestmark = pytest.mark.slow

BEAT = 0.2


def _process(graph: str, name: str = "there", **settings: Any) -> NodeProcess:
    return _at("tcp://127.0.0.1:0", graph, name, **settings)


def _at(contact: str, graph: str, name: str = "there", **settings: Any) -> NodeProcess:
    return NodeProcess(
        graph,
        name,
        module="tests.conformance.bridge_graphs",
        settings=settings,
        listen=contact,
        heartbeat=BEAT,
    )


def _here(there: NodeProcess) -> ev.Node:
    return ev.Node("here", peers={there.name: there.contact}, heartbeat=BEAT)


def test_bridge_typed() -> None:
    """One event with an attribute arrives in another process, all fields and the attribute equal."""
    with _process("direct", schema="Rec") as there:
        with running(graphs.direct([], "Rec"), _here(there)) as flow:
            flow["events"].submit(Rec(1, 2.5, 3, "four"), attrs={"k": 45678})
            flow.drain(20)
        assert there.ask("seen") == [[[1, 2.5, 3, "four"], {"k": 45678}]]


def _bulk(seq: int) -> Bulk:
    cells = None
    for value in range(seq % 7):
        cells = Cell(value, cells)
    return Bulk(
        seq,
        Place(seq / 3, f"place {seq}"),
        [bytes([seq, n]) * (n * seq % 50) for n in range(20)],
        "text ä " * seq,
        np.arange(12.0).reshape(3, 4) * seq,
        cells,
    )


def test_bridge_bulk_nested() -> None:
    """Thirty records with nested ones, lists of vectors, texts, arrays and linked lists arrive in order."""
    with _process("direct", schema="Bulk") as there:
        with running(graphs.direct([], "Bulk"), _here(there)) as flow:
            for seq in range(30):
                flow["events"].submit(_bulk(seq))
            flow.drain(20)
        assert there.ask("seen") == [[plain(_bulk(seq)), {}] for seq in range(30)]


@pytest.mark.parametrize("seed", range(3))
def test_queue_join_over_a_bridge(seed: int) -> None:
    """Fifty of each in any interleaving make fifty sums, each used once."""
    order = random.Random(seed)
    first, second = [A(1000 * n) for n in range(50)], [B(n) for n in range(50)]
    with _process("joined") as there:
        with running(graphs.joined([]), _here(there)) as flow:
            while first or second:
                side = first if first and (not second or order.random() < 0.5) else second
                flow["events"].submit(side.pop(0))
            flow.drain(20)
        assert there.ask("seen") == [1001 * n for n in range(50)]


@pytest.mark.parametrize("length", [2, 5])
def test_graph_chain(length: int) -> None:
    """Over a chain of N processes an event that gains a hop in each but the first has N - 1."""
    names = [f"node {i}" for i in range(length)]
    with ExitStack() as stack:
        after: dict[str, str] = {}
        processes = []
        for name in reversed(names[1:]):
            process = NodeProcess(
                "hops", name, module="tests.conformance.bridge_graphs", settings={"nodes": names},
                listen="tcp://127.0.0.1:0", peers=after, heartbeat=BEAT,
            )  # fmt: skip
            processes.append(stack.enter_context(process))
            after = {name: process.contact}
        node = ev.Node(names[0], peers=after, heartbeat=BEAT)
        with running(graphs.hops([], names), node) as flow:
            flow["events"].submit_batch({"seq": [0, 1, 2]}, schema=Rec)
            flow.drain(20)
        assert processes[0].ask("seen") == [[seq, length - 1] for seq in range(3)]


def test_node_failure() -> None:
    """The middle process of a chain is killed and started again: every event arrives at the terminal."""
    names = ["first", "middle", "last"]
    with (
        _process("hops", "last", nodes=names) as last,
        NodeProcess(
            "hops", "middle", module="tests.conformance.bridge_graphs", settings={"nodes": names},
            listen=f"tcp://127.0.0.1:{free_port()}", peers={"last": last.contact}, heartbeat=BEAT,
        ) as middle,
    ):  # fmt: skip
        node = ev.Node("first", peers={"middle": middle.contact}, heartbeat=BEAT)
        with running(graphs.hops([], names), node) as flow:
            flow["events"].submit(Rec(0))
            flow.drain(20)
            flow["events"].submit(Rec(1))
            middle.kill()
            flow["events"].submit(Rec(2))
            middle.restart()
            flow["events"].submit(Rec(3))
            flow.drain(20)
        assert last.ask("seen") == [[seq, 2] for seq in range(4)]


def test_a_message_for_an_unknown_stone_is_refused_counted_and_let_in_once_the_stone_is_there() -> None:
    """The receiver goes on serving others meanwhile."""
    contact = f"tcp://127.0.0.1:{free_port()}"
    with _at(contact, "stones", names=["known"]) as there:
        near = ev.Graph("near")
        for name in ("known", "unknown"):
            _ = near.source(name, Rec) >> ev.Bridge(contact, name, name=f"to {name}")
        with near.run() as flow:
            flow["unknown"].submit(Rec(1))
            wait_for(lambda: there.ask("refused").get("unknown stone"), "a refusal that is counted")
            flow["known"].submit(Rec(2))
            wait_for(lambda: there.ask("seen") == [["known", 2]], "the event for the stone that is there")
            assert flow.node is not None
            assert "no stone 'unknown'" in flow.node.links()[contact]["trouble"]
            with pytest.raises(ev.FlowError, match=r"'to unknown'.*1 event waits.*no stone 'unknown'"):
                flow.drain(0.1)
            assert there.end() == 0
            with _at(contact, "stones", names=["known", "unknown"]) as again:
                flow.drain(20)
                assert again.ask("seen") == [["unknown", 1]]


def test_an_unreachable_peer_gives_a_visible_error_state_and_a_bounded_queue() -> None:
    """And the events arrive once the peer is there."""
    contact, limit = f"tcp://127.0.0.1:{free_port()}", 1 << 16
    near = ev.Graph("near")
    _ = near.source("known", Rec) >> ev.Bridge(contact, "known", limit=limit)
    with near.run(max_bytes=1 << 16) as flow:
        assert flow.node is not None
        node = flow.node
        flow["known"].submit(Rec(0))
        wait_for(lambda: node.links()[contact]["state"] == "down", "a link that is down")
        wait_for(lambda: "no answer from" in node.links()[contact]["trouble"], "why it is down")
        sent = 1
        with pytest.raises(ev.FlowError, match="no answer from"):
            while sent < 1_000_000:
                flow["known"].submit_batch(
                    {"seq": range(sent, sent + 100), "tag": ["x" * 20] * 100}, timeout=0.5
                )
                sent += 100
        assert sent * 20 < 4 * limit
        with _at(contact, "stones", names=["known"]) as there:
            flow.drain(20)
            assert there.ask("seen") == [["known", seq] for seq in range(sent)]
            assert node.links()[contact]["state"] == "up"


def test_a_slow_peer_bounds_memory_and_stalls_nothing_else() -> None:
    """One of two peers is stopped: events for it wait within a limit, the other gets all."""
    limit = 1 << 16
    with _process("stones", names=["known"]) as slow, _process("stones", names=["known"]) as quick:
        near = ev.Graph("near")
        for name, peer in (("slow", slow), ("quick", quick)):
            _ = near.source(name, Rec) >> ev.Bridge(peer.contact, "known", limit=limit, name=f"to {name}")
        with near.run(max_bytes=1 << 16) as flow:
            assert flow.node is not None
            slow.stop()
            sent = 0
            with pytest.raises(ev.FlowError, match="stone 'slow' is full"):
                while sent < 1_000_000:
                    flow["slow"].submit_batch({"seq": range(sent, sent + 100)}, timeout=0.5)
                    sent += 100
            assert flow.node.links()[slow.contact]["waiting"] * 20 <= 2 * limit
            flow["quick"].submit_batch({"seq": range(10_000)}, timeout=5)
            wait_for(lambda: quick.ask("count") == 10_000, "events at the quick peer")
            slow.resume()
            flow.drain(20)
            assert slow.ask("seen") == [["known", seq] for seq in range(sent)]


def test_a_change_in_one_branch_is_not_visible_in_another_over_bridges() -> None:
    """Nor in the event that was submitted."""
    event, attributes = Rec(7, 1.0, 2, "three"), {"hops": 5, "k": 1}
    with _process("branches") as there:
        with running(graphs.branches([]), _here(there)) as flow:
            flow["events"].submit(event, attrs=attributes)
            flow.drain(20)
        assert sorted(there.ask("seen")) == [
            ["changed", 7, {"hops": 6, "k": 1}],
            ["unchanged", 7, {"hops": 5, "k": 1}],
        ]
    assert (event, attributes) == (Rec(7, 1.0, 2, "three"), {"hops": 5, "k": 1})
