"""Changes of a node's part of a graph while events come from other nodes and go to them."""

from __future__ import annotations

import threading

import pytest

import evflow as ev
from tests.node.processes import wait_for


class Rec(ev.Event):
    seq: int


def graph(seen: list[int]) -> ev.Graph:
    """recs on node a, led over a bridge to gate and end on node b."""
    g = ev.Graph("g")
    recs = g.source("recs", Rec, on="a")
    with g.on("b"):
        recs >> ev.Filter("1", name="gate") >> ev.Terminal(lambda e: seen.append(e.seq), name="end")
    return g


def nodes() -> tuple[ev.Node, ev.Node]:
    there = ev.Node("b", listen="tcp://127.0.0.1:0", heartbeat=0.1)
    return ev.Node("a", peers={"b": there.contact}, heartbeat=0.1), there


def test_the_error_of_a_stone_of_another_node_names_the_node() -> None:
    g, (here, there) = graph([]), nodes()
    with g.run(node=there) as far, g.run(node=here) as flow:
        with pytest.raises(
            ev.FlowError, match="flow g has no stone 'recs', which is on node a; it has gate, end"
        ):
            far["recs"]
        with pytest.raises(ev.FlowError, match="flow g has no stone 'gate', which is on node b; it has recs"):
            flow.freeze("gate")


@pytest.mark.slow
def test_a_part_changes_while_frames_come() -> None:
    """Each event goes through one version, none is lost, doubled or overtaken."""
    seen: list[int] = []
    g, (here, there) = graph(seen), nodes()
    stop, begun = threading.Event(), threading.Event()
    submitted: list[int] = []

    def submit() -> None:
        seq = 0
        while not stop.is_set():
            flow["recs"].submit(Rec(seq))
            seq += 1
            if seq == 500:
                begun.set()
        submitted.append(seq)

    with g.run(node=there) as far, g.run(node=here) as flow:
        thread = threading.Thread(target=submit)
        thread.start()
        begun.wait()
        for number in range(3):
            before = f"new{number - 1}" if number else "end"
            far.insert(ev.Filter("1", name=f"new{number}"), after="gate", before=before)
            far.replace("gate", ev.Filter(f"input.seq >= {-number - 1}"))
        for number in range(3):
            far.remove(f"new{number}")
        stop.set()
        thread.join()
        flow.drain(timeout=30)
        assert set(far.stats()) == {"gate", "end"}
        assert len(far.dead_letters()) == len(flow.dead_letters()) == 0
    assert seen == list(range(submitted[0]))


def test_a_bridge_ends_once_all_has_been_handled() -> None:
    """What was sent before the change arrives; what comes after it stays here."""
    seen: list[int] = []
    near: list[int] = []
    g, (here, there) = graph(seen), nodes()
    with g.run(node=there), g.run(node=here) as flow:
        flow["recs"].submit_batch({"seq": list(range(1000))})
        with flow.change() as changed:
            changed.unlink("recs", "gate")
            changed.link("recs", ev.Terminal(lambda e: near.append(e.seq), name="near"))
        assert seen == list(range(1000))
        flow["recs"].submit(Rec(1000))
        flow.drain(timeout=10)
        assert set(flow.stats()) == {"recs", "near"}
    assert near == [1000] and len(seen) == 1000


def test_a_change_that_is_not_quiet_in_time_is_given_up() -> None:
    """The peer is not there: the error says so, nothing has changed, and no event is lost."""
    seen: list[int] = []
    near: list[int] = []
    g, (here, there) = graph(seen), nodes()
    flow = g.run(node=here)
    flow["recs"].submit(Rec(1))

    def edit(settled: bool, timeout: float) -> None:
        with flow.change(settled=settled, timeout=timeout) as changed:
            changed.unlink("recs", "gate")
            changed.link("recs", ev.Terminal(lambda e: near.append(e.seq), name="near"))

    with pytest.raises(ev.FlowError, match=r"not quiet within 0.05 s; bridge 'recs→gate' to b: 1"):
        edit(True, 0.05)
    assert set(flow.stats()) == {"recs", "recs→gate"}
    flow["recs"].submit(Rec(2))
    with g.run(node=there):
        flow.drain(timeout=10)
        assert seen == [1, 2]
    flow["recs"].submit(Rec(3))
    edit(False, 10)
    flow["recs"].submit(Rec(4))
    flow.close(timeout=0.1)
    assert near == [4]
    assert [letter.event.seq for letter in flow.dead_letters()] == [3]


def test_a_stone_that_is_linked_on_a_node_is_placed_there() -> None:
    seen: list[int] = []
    near: list[int] = []
    g, (here, there) = graph(seen), nodes()
    with g.run(node=there), g.run(node=here) as flow:
        flow.link("recs", ev.Terminal(lambda e: near.append(e.seq), name="near"))
        assert flow.graph.stones["near"].on == "a"
        flow["recs"].submit(Rec(1))
        flow.drain(timeout=10)
    assert seen == near == [1]


def test_a_change_waits_for_bridges_to_stones_that_other_nodes_close() -> None:
    """What they were given must be handled there, though nothing changes here."""

    class Held(list[int]):
        def append(self, seq: int) -> None:
            assert go.wait(20)
            super().append(seq)

    seen, go = Held(), threading.Event()
    g, (here, there) = graph(seen), nodes()
    with g.run(node=there), g.run(node=here) as flow:
        flow["recs"].submit(Rec(1))
        alteration = flow.alteration(flow.engine.topology)
        flow.call(lambda: alteration.begin(draining={"recs→gate"}))
        assert "bridge 'recs→gate' to b: 1 event waits" in (flow.call(alteration.waiting) or "")
        go.set()
        wait_for(lambda: not flow.call(alteration.waiting), "the bridge to be drained")
        flow.call(alteration.cancel)
    assert seen == [1]
