"""Code that is written for a flow works on a deployment, or says why it cannot."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest

import evflow as ev
from evflow.flow.flow import Flow
from tests.deploy.yard import Rec, Yard, chain
from tests.node.processes import wait_for

pytestmark = pytest.mark.slow

Handler = Callable[[Rec], None]
Running = Any
"""A flow or a deployment."""

LOCAL = [
    "alteration",
    "call",
    "each_turn",
    "empty",
    "end_entries",
    "extract",
    "failed",
    "failure",
    "forsake",
    "post",
    "stop",
    "when_drained",
]
"""What only a flow can do."""


@contextmanager
def _flow(graph: Callable[[Any], ev.Graph], handler: Handler, folder: Path) -> Iterator[Running]:
    with graph(handler).run() as flow:
        yield flow


@contextmanager
def _deployment(graph: Callable[[Any], ev.Graph], handler: Handler, folder: Path) -> Iterator[Running]:
    with Yard(folder, "") as yard:
        yard.start("a", handlers={"desk:note": handler})
        described = graph("desk:note")
        for name in described.stones:
            described.move(name, "a")
        with described.deploy(yard.hosts) as handle:
            yield handle


@pytest.mark.parametrize("run", [_flow, _deployment])
def test_a_program_for_flows_runs_on_both(run: Callable[..., Any], tmp_path: Path) -> None:
    """It submits, freezes, changes, looks, tries again what failed, and ends."""
    seen: list[int] = []
    broken = threading.Event()
    broken.set()

    def note(event: Rec) -> None:
        if event.seq == 13 and broken.is_set():
            raise ValueError(f"{event.seq} is unlucky")
        seen.append(event.seq)

    def graph(handler: Any) -> ev.Graph:
        graph = ev.Graph("program")
        source = graph.source("recs", Rec)
        _ = source >> ev.Storage(100, name="first") >> ev.Terminal(handler, name="end")
        _ = source >> ev.Storage(100, name="second") >> graph["end"]
        return graph

    with run(graph, note, tmp_path) as it:
        it["recs"].submit_batch({"seq": range(12, 15)})
        it.drain(20)
        it.transfer("first", "second")
        assert it.send_stored("first") == 0
        assert it.send_stored("second", 4) == 4
        it.drain(20)
        letters = it.dead_letters()
        assert (len(letters), letters.lost, letters.total) == (1, 0, 1)
        assert (letters[0].stone, letters[0].event.seq, type(letters[0].error)) == ("end", 13, ValueError)
        assert str(letters[0].error) == "13 is unlucky"
        assert sorted(seen) == [12, 12, 14]
        broken.clear()
        letters.resubmit()
        wait_for(lambda: len(seen) == 4, "the event that failed")
        it.freeze("end")
        assert it.send_stored("second") == 2
        assert [it.stats()["end"][count] for count in ("in", "queued", "errors")] == [5, 2, 1]
        it.unfreeze("end")
        it.attributes("first")["depth"] = 3
        assert it.attributes("first") == {"depth": 3}
        assert it.insert(ev.Filter("input.seq > 13", name="late"), after="recs", before="first") == "late"
        with it.change() as changed:
            changed.remove("second")
        it["recs"].submit(Rec(1))
        it.drain(20)
        assert "late" in it.graph.stones and "second" not in it.graph.stones
        assert it.stats()["late"]["dropped"] == 1
        assert "late" in it.draw().svg and "late" in it._repr_svg_()
        it.close(None)
    assert sorted(seen) == [1, 12, 12, 13, 13, 14, 14]


@pytest.mark.parametrize("end", ["a", "b"])
def test_drain_waits_for_what_this_handle_let_go(tmp_path: Path, end: str) -> None:
    """Stored, frozen and moved events that go on by its doing are handled too, on whatever node."""
    seen: list[int] = []

    def note(event: Rec) -> None:
        time.sleep(0.3)
        seen.append(event.seq)

    graph = ev.Graph("released")
    with graph.on("a"):
        store = graph.source("recs", Rec) >> ev.Storage(100, name="store") >> ev.Filter("true", name="step")
    _ = store >> ev.Terminal("desk:note", name="end", on=end, workers=1)
    with Yard(tmp_path, "") as yard:
        for name in "ab":
            yard.start(name, handlers={"desk:note": note})
        with graph.deploy(yard.hosts) as handle:
            handle["recs"].submit_batch({"seq": range(4)})
            handle.drain(20)
            assert handle.send_stored("store", 1) == 1
            handle.drain(20)
            assert seen == [0]
            handle.freeze("step")
            assert handle.send_stored("store", 1) == 1
            handle.drain(20)
            assert seen == [0]
            handle.unfreeze("step")
            handle.drain(20)
            assert seen == [0, 1]
            handle.transfer("store", "step")
            with pytest.raises(ev.FlowError, match=r"not all is handled within 0.1 s: node a"):
                handle.drain(0.1)
            handle.drain(20)
            assert seen == [0, 1, 2, 3]


def test_what_a_deployment_cannot_do_is_said(tmp_path: Path) -> None:
    """Each method of a flow is there, or a clear error says that it is not; wrong limits too."""
    with Yard(tmp_path, "ab") as yard, chain("a", "b").deploy(yard.hosts) as handle:
        there = set(dir(ev.Deployment))
        assert sorted(name for name in set(dir(Flow)) - there if name[0] != "_") == LOCAL
        for name in LOCAL:
            assert not hasattr(handle, name)
            with pytest.raises(
                ev.DeployError, match=f"a deployment has no {name!r}, which a flow has"
            ) as caught:
                getattr(handle, name)
            assert not caught.type.__name__.startswith("_"), "a traceback begins with its name"
        with pytest.raises(AttributeError, match="'Deployment' object has no attribute 'drian'"):
            _ = handle.drian  # type: ignore[attr-defined]
        with pytest.raises(ev.DeployError, match=r"'recs' is on a and 'end' is on b.* move one"):
            handle.transfer("recs", "end")
        for limit in ("x", -1, 1.5):
            with pytest.raises(ev.EvflowError, match=r"limit .*: expected an integer of 0 or more"):
                handle.dead_letters(limit)  # type: ignore[arg-type]
        for call in (
            lambda: handle.move("end", "a", timeout="soon"),  # type: ignore[arg-type]
            lambda: handle.shutdown(None),  # type: ignore[arg-type]
        ):
            with pytest.raises(ev.EvflowError, match=r"timeout .*: expected seconds"):
                call()
        assert handle.version == 1


def test_letters_tell_how_many_there_were_and_how_many_are_gone(tmp_path: Path) -> None:
    """As those of a flow do, which keeps as many; those of another deployment are not counted."""
    kept = 10_000

    def give_up(batch: ev.EventBatch) -> None:
        raise ValueError("no")

    def run(graph: ev.Graph, count: int) -> tuple[int, int]:
        with graph.run() as flow:
            flow["recs"].submit_batch({"seq": range(count)})
            flow.drain()
            letters = flow.dead_letters()
            return letters.lost, letters.total

    with Yard(tmp_path, "") as yard:
        yard.start("a", handlers={"desk:note": give_up})
        counts = {"one": 7, "two": kept + 3}
        with ExitStack() as stack:
            handles = {
                name: stack.enter_context(chain("a", "a", name=name).deploy(yard.hosts)) for name in counts
            }
            assert (handles["one"].dead_letters().lost, handles["one"].dead_letters().total) == (0, 0)
            for name, count in counts.items():
                handles[name]["recs"].submit_batch({"seq": range(count)})
                handles[name].drain(20)
            found = {name: handle.dead_letters(limit=5) for name, handle in handles.items()}
    local = ev.Graph("chain")
    _ = local.source("recs", Rec) >> ev.Terminal(give_up, batch=True)
    assert (found["two"].lost, found["two"].total) == run(local, counts["two"]) == (3, kept + 3)
    # The node keeps the newest of all its deployments, so those of the first had to go.
    assert (found["one"].lost, found["one"].total) == (7, 7)
    assert [letter.event.seq for letter in found["two"]] == list(range(kept - 2, kept + 3))
    assert found["one"] == []
