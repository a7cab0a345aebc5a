"""What a deployment's handle takes from a program, and what it says where it can take nothing."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import evflow as ev
from tests.deploy.yard import Rec, Yard, chain
from tests.node.processes import wait_for


def test_only_a_source_takes_events(tmp_path: Path) -> None:
    """The error of any other stone names the sources."""
    with Yard(tmp_path, "ab") as yard, chain("a", "a", "b").deploy(yard.hosts) as handle:
        for name in ("step1", "end"):
            with pytest.raises(ev.FlowError, match=f"stone {name!r} of deployment chain is .*; .*: recs$"):
                _ = handle[name]
        handle["recs"].submit(Rec(1))
        handle.drain(20)
        assert yard.seen == [1]


def test_a_source_takes_attributes_along(tmp_path: Path) -> None:
    """As that of a flow, for one event and for a table."""
    seen: list[dict[str, Any]] = []
    with Yard(tmp_path, "") as yard:
        yard.start("a", handlers={"desk:note": lambda batch: seen.extend(event.attrs for event in batch)})
        with chain("a", "a").deploy(yard.hosts) as handle:
            handle["recs"].submit(Rec(1), attrs={"hops": 1, "from": "Athens"})
            handle["recs"].submit_batch({"seq": [2, 3]}, attrs={"share": 0.5})
            handle.drain(20)
    assert seen == [{"hops": 1, "from": "Athens"}, {"share": 0.5}, {"share": 0.5}]


def test_nobody_waits_for_a_node_that_the_deployment_does_not_have(tmp_path: Path) -> None:
    """The error names those it has; one that joined over another handle is known."""
    with Yard(tmp_path, "ab") as yard, chain("a", "a").deploy({"a": yard.hosts["a"]}, timeout=60) as handle:
        with pytest.raises(ev.DeployError, match=r"deployment chain has no host 'b'; it has a$"):
            handle.ask("b", "name")
        with pytest.raises(ev.DeployError, match=r"deployment chain has no host 'b'; it has a$"):
            handle.remove_host("b")
        assert handle.version == 1
        with pytest.raises(ev.LinkError, match=r"no host 'c' is known here; expected one of a$"):
            handle.cluster.ask("c", "name")
        with ev.Deployment("chain", {"a": yard.hosts["a"]}) as other:
            other.add_host("b", yard.hosts["b"])
        assert handle.ask("b", "name") == "b"
        handle.remove_host("b")
        assert handle.hosts == {"a": yard.hosts["a"]}


@pytest.mark.parametrize("way", ["shutdown", "undeploy"])
def test_a_deployment_that_has_ended_takes_no_events(way: str, tmp_path: Path) -> None:
    """Neither over its handle nor over what that gave before; what did not get there is a dead letter."""
    with Yard(tmp_path, "a") as yard, chain("a", "a").deploy(yard.hosts, name="clerk") as handle:
        recs = handle["recs"]
        recs.submit(Rec(1))
        handle.drain(20)
        if way == "undeploy":
            handle.ask("a", "seal", deployment="chain")
            recs.submit(Rec(2))
        getattr(handle, way)()
        for name in ("recs", "end"):
            with pytest.raises(ev.DeployError, match=f"deployment chain has ended: {way} was called"):
                _ = handle[name]
        with pytest.raises(ev.FlowError, match="deployment chain has ended"):
            recs.submit(Rec(3))
        handle.drain(20)
        given_up = [(letter.stone, letter.node, letter.event.seq) for letter in handle.dead_letters()]
        assert given_up == [("recs", "clerk", 2)] * (way == "undeploy")
        assert yard.seen == [1]


@pytest.mark.slow
def test_a_graph_that_was_shut_down_can_be_deployed_again(tmp_path: Path) -> None:
    """Its sources take events again; that they took none any more was the end of the one before."""
    with Yard(tmp_path, "ab") as yard:
        for count in (1, 2):
            with chain("a", "b").deploy(yard.hosts) as handle:
                handle["recs"].submit(Rec(count))
                handle.drain(20)
                handle.shutdown(20)
        assert yard.seen == [1, 2]
        assert yard.is_bare()


@pytest.mark.slow
def test_a_shutdown_waits_for_what_was_submitted_through_its_handle(tmp_path: Path) -> None:
    """All of it has been handled; where that cannot be, the deployment goes on."""
    count = 200_000
    with Yard(tmp_path, "ab") as yard:
        with chain("a", "b").deploy(yard.hosts) as handle:
            handle["recs"].submit_batch({"seq": range(count)})
            handle.shutdown()
            assert yard.seen == list(range(count))
        with chain("a", "b").deploy(yard.hosts) as handle:
            handle.ask("a", "seal", deployment="chain")
            handle["recs"].submit(Rec(count))
            with pytest.raises(ev.DeployError, match=r"not all is handled within 0\.5 s; .* 1 event waits"):
                handle.shutdown(0.5)
            handle.ask("a", "unseal", deployment="chain")
            handle.shutdown()
            assert yard.seen[count:] == [count]


@pytest.mark.slow
def test_a_deployment_that_somebody_else_has_ended_takes_no_events(tmp_path: Path) -> None:
    """Its nodes say so to the handle; as long as one of them has it, it goes on."""
    with Yard(tmp_path, "ab") as yard, chain("a", "b").deploy(yard.hosts, name="clerk") as handle:
        recs = handle["recs"]
        with ev.Deployment("chain", yard.hosts) as other:
            # Node b leaves, which then does not have it any more, and comes back.
            other.move("end", "a")
            other.remove_host("b")
            wait_for(lambda: handle.version == 3, "what the other handle has changed")
            recs.submit(Rec(1))
            handle.drain(20)
            other.undeploy()
        wait_for(
            lambda: _refuses(lambda: handle["recs"], "chain has ended: none of its nodes has it"), "the end"
        )
        # A source that is at hand already may take events a little longer; they are given up.
        wait_for(
            lambda: _refuses(lambda: recs.submit(Rec(2)), "chain has ended: none of its nodes has it"),
            "the same",
        )
        handle.drain()
        assert yard.seen == [1]


@pytest.mark.slow
@pytest.mark.parametrize("changes", [0, 2], ids=["of a lower version", "of a higher version"])
def test_another_deployment_that_takes_the_name_is_left_alone(changes: int, tmp_path: Path) -> None:
    """The handle of the one before learns that it has ended, and cannot take the new one down."""
    with Yard(tmp_path, "a") as yard, chain("a", "a").deploy(yard.hosts, name="clerk") as old:
        recs = old["recs"]
        if not changes:
            old.freeze("end")
            old.unfreeze("end")
        with ev.Deployment("chain", yard.hosts) as other:
            other.undeploy()
        with chain("a", "a").deploy(yard.hosts, name="heir") as new:
            for _ in range(changes):
                new.freeze("end")
                new.unfreeze("end")
            wait_for(lambda: _refuses(lambda: old["recs"], "chain has ended"), "the end")
            wait_for(
                lambda: _refuses(lambda: recs.submit(Rec(2)), "chain has ended"), "the end of the source"
            )
            with contextlib.suppress(ev.EvflowError):
                old.undeploy()
            new["recs"].submit(Rec(1))
            new.drain(20)
            assert yard.seen == [1]


def _refuses(call: Callable[[], object], why: str) -> bool:
    try:
        call()
    except ev.EvflowError as error:
        return why in str(error)
    return False
