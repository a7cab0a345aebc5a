"""Roll-out of a graph over daemons: all of it or nothing, and whoever refuses says what, where and why."""

from __future__ import annotations

import gc
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

import evflow as ev
from evflow.deploy.record import Record
from tests.deploy.yard import Rec, Yard, chain
from tests.node.processes import free_port


@pytest.fixture
def yard(tmp_path: Path) -> Iterator[Yard]:
    """Three daemons."""
    with Yard(tmp_path, "abc") as yard:
        yield yard


def _runs(yard: Yard, graph: ev.Graph) -> None:
    """A deployment works: ten events go through."""
    yard.seen.clear()
    with graph.deploy(yard.hosts) as handle:
        handle["recs"].submit_batch({"seq": range(10)})
        handle.drain(20)
        assert yard.seen == list(range(10))
        handle.undeploy()


def test_a_chain_over_three_daemons_handles_each_event_once(yard: Yard) -> None:
    with chain("a", "b", "c").deploy(yard.hosts) as handle:
        assert yard.placed("chain") == {"recs": "a", "step1": "b", "end": "c"}
        for at in range(0, 3_000, 100):
            handle["recs"].submit_batch({"seq": range(at, at + 100)})
        handle["recs"].submit(Rec(3_000))
        handle.drain(20)
        assert yard.seen == list(range(3_001))
        counts = {
            name: (counts["node"], counts["in"], counts["out"]) for name, counts in handle.stats().items()
        }
        assert counts == {
            "recs": ("a", 3001, 3001), "recs→step1": ("a", 3001, 3001),
            "step1": ("b", 3001, 3001), "step1→end": ("b", 3001, 3001), "end": ("c", 3001, 0),
        }  # fmt: skip
        assert handle.version == 1
        assert handle.dead_letters() == []


def test_undeploy_leaves_nothing_and_the_name_is_free_again(yard: Yard) -> None:
    for _ in range(3):
        _runs(yard, chain("a", "b", "c"))
        assert yard.is_bare()


@pytest.mark.slow
def test_graphs_that_are_undeployed_are_not_kept_in_memory(yard: Yard) -> None:
    for number in range(4):
        graph = chain("a", "b", "c")
        graph.name = f"chain{number}"
        _runs(yard, graph)
    assert yard.is_bare()
    gc.collect()
    kept = {it.deployment for it in gc.get_objects() if isinstance(it, Record) and it.graph is not None}
    # Somebody may still be about to be told of the last one.
    assert kept <= {"chain3"}


def _bad_code() -> ev.Graph:
    graph = chain("a", "b", "c")
    graph.insert(ev.Filter("input.seq > input.nothing", name="bad", on="b"), after="step1", before="end")
    return graph


def _unlisted() -> ev.Graph:
    return chain("a", "b", "c", handler="shop:sell")


def _without_host() -> ev.Graph:
    return chain("a", "b", "nowhere")


def _unplaced() -> ev.Graph:
    graph = chain("a", "b", "c")
    graph.insert(ev.Filter("1", name="loose"), after="step1", before="end")
    graph.stones["loose"].on = None
    return graph


@pytest.mark.parametrize(
    ("graph", "error", "words"),
    [
        (_bad_code, ev.CodeError, [r"'bad'", "line 1, column 19", "no field 'nothing'", "seq"]),
        (_unlisted, ev.DeployError, ["node c", "'chain/end'", "'shop:sell' is not on this node's list"]),
        (_without_host, ev.DeployError, ["'end'", "'nowhere'", "expected one of its hosts, a, b, c"]),
        (
            _unplaced,
            ev.DeployError,
            ["'loose'", "no node (on= places it)", "expected one of its hosts, a, b, c"],
        ),
    ],
)
def test_a_graph_that_is_refused_leaves_all_nodes_as_they_were(
    yard: Yard, graph: object, error: type[ev.EvflowError], words: list[str]
) -> None:
    with pytest.raises(error) as caught:
        graph().deploy(yard.hosts)  # type: ignore[operator]
    for word in words:
        assert word in str(caught.value), str(caught.value)
    assert yard.is_bare()
    _runs(yard, chain("a", "b", "c"))


def test_a_bad_function_that_only_the_node_finds_is_told_with_stone_host_line_and_column(yard: Yard) -> None:
    """The program that deploys does not check: a change of plain data."""
    graph = chain("a", "b", "c")
    with graph.deploy(yard.hosts) as handle:
        handle["recs"].submit_batch({"seq": range(10)})
        record = handle._newest()
        assert record is not None and record.graph is not None
        stones = [
            {**stone, "settings": {**stone["settings"], "code": "input.seq >"}}
            if stone["name"] == "step1" else stone
            for stone in record.graph["stones"]
        ]  # fmt: skip
        bad = record.edited({**record.graph, "stones": stones})
        with pytest.raises(ev.DeployError, match=r"(?s)node b: .*'chain/step1'.*line 1, column"):
            handle.ask("a", "propose", record=bad.data(), patience=5.0)
        assert handle.version == 1
        handle["recs"].submit_batch({"seq": range(10, 20)})
        handle.drain(20)
        assert yard.seen == list(range(20))


@pytest.mark.slow
@pytest.mark.parametrize("handlers", [["nosuchmodule"], ["tests.deploy.handlers"]])
def test_a_handler_that_a_node_cannot_import_is_told_with_stone_and_host(
    tmp_path: Path, handlers: list[str]
) -> None:
    with Yard(tmp_path, "ab") as yard:
        yard.start("c", handlers=handlers)
        text = f"{handlers[0]}:missing"
        with pytest.raises(ev.DeployError) as caught:
            chain("a", "b", "c", handler=text).deploy(yard.hosts)
        told = str(caught.value)
        assert "node c" in told and "end" in told and text in told
        assert yard.is_bare()
        yard.daemons["c"].close()
        yard.start("c")
        _runs(yard, chain("a", "b", "c"))


@pytest.mark.slow
@pytest.mark.parametrize("missing", ["a", "c"])
def test_a_host_that_cannot_be_reached_is_named_with_what_was_tried(yard: Yard, missing: str) -> None:
    contact = f"tcp://127.0.0.1:{free_port()}"
    hosts = yard.hosts | {missing: contact}
    with pytest.raises(ev.EvflowError) as caught:
        chain("a", "b", "c").deploy(hosts, timeout=2.0)
    assert re.search(rf"(host|node) {missing}\b", str(caught.value)), str(caught.value)
    assert contact in str(caught.value), str(caught.value)
    assert "no answer from" in str(caught.value), str(caught.value)
    assert yard.is_bare()
    _runs(yard, chain("a", "b", "c"))


def test_a_second_deployment_of_a_name_is_refused_and_the_first_goes_on(yard: Yard) -> None:
    with chain("a", "b", "c").deploy(yard.hosts) as handle:
        handle["recs"].submit_batch({"seq": range(10)})
        for first in "abc":
            hosts = {first: yard.hosts[first]} | yard.hosts
            with pytest.raises(ev.DeployError, match=r"chain runs already, at version 1.*replace=True"):
                chain("a", "c").deploy(hosts)
        handle["recs"].submit_batch({"seq": range(10, 20)})
        handle.drain(20)
        assert yard.seen == list(range(20))
        assert handle.version == 1


def test_a_namesake_on_other_hosts_is_refused_where_they_meet(yard: Yard) -> None:
    """The host that is asked first knows nothing of the first one."""
    with chain("b", "c").deploy({name: yard.hosts[name] for name in "bc"}) as handle:
        with pytest.raises(ev.DeployError, match=r"(?s)node [bc]: .*chain"):
            chain("a", "b").deploy({name: yard.hosts[name] for name in "ab"}, timeout=2)
        handle["recs"].submit_batch({"seq": range(10)})
        handle.drain(20)
        assert yard.seen == list(range(10))
        assert yard.placed("chain") == {"recs": "b", "end": "c"}


@pytest.mark.slow
def test_replace_lets_a_graph_take_the_place_of_the_one_before(yard: Yard) -> None:
    with chain("a", "b", "c").deploy(yard.hosts) as handle:
        handle["recs"].submit_batch({"seq": range(10)})
        handle.drain(20)
        with chain("c", "a").deploy(yard.hosts, replace=True) as newer:
            assert newer.version == 2
            assert yard.placed("chain") == {"recs": "c", "end": "a"}
            newer["recs"].submit_batch({"seq": range(10, 20)})
            newer.drain(20)
    assert yard.seen == list(range(20))


def test_a_version_that_is_not_the_next_is_refused(yard: Yard) -> None:
    """Somebody's change came first."""
    with chain("a", "b", "c").deploy(yard.hosts) as handle:
        old = handle._newest()
        assert old is not None
        handle.remove("step1")
        stale = old.edited(old.graph, frozen=["end"])
        for node in "abc":
            with pytest.raises(ev.DeployError, match=r"chain.*version"):
                handle.ask(node, "propose", record=stale.data(), patience=2.0)
        assert handle.version == 2
        handle["recs"].submit_batch({"seq": range(10)})
        handle.drain(20)
        assert yard.seen == list(range(10))


def test_another_program_takes_a_handle_by_name(yard: Yard) -> None:
    chain("a", "b", "c").deploy(yard.hosts).close()
    with ev.Deployment("chain", {"b": yard.hosts["b"]}) as handle:
        assert handle.hosts == yard.hosts
        handle["recs"].submit_batch({"seq": range(10)})
        handle.drain(20)
        assert yard.seen == list(range(10))
    with pytest.raises(ev.DeployError, match="no deployment 'other' on b"):
        ev.Deployment("other", {"b": yard.hosts["b"]})


def test_many_deployments_share_daemons_and_mix_nothing(yard: Yard) -> None:
    graphs = [chain("a", "b", "c", name=f"part {n}", handler=f"desk:{n}") for n in ("one", "two", "three")]
    handles = [graph.deploy(yard.hosts) for graph in graphs]
    for handle, start in zip(handles, (0, 100, 200), strict=True):
        handle["recs"].submit_batch({"seq": range(start, start + 100)})
    for handle in handles:
        handle.drain(20)
        handle.close()
    assert yard.others == {
        "one": list(range(100)), "two": list(range(100, 200)), "three": list(range(200, 300)),
    }  # fmt: skip
