"""Changes of a graph while events flow: each event arrives once, in order, by the old graph or the new."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

import evflow as ev
from tests.deploy.yard import Feeder, Rec, Yard, chain, feeding
from tests.node.processes import wait_for

pytestmark = pytest.mark.slow

Edit = Callable[[ev.Deployment], object]


def _end(yard: Yard, handle: ev.Deployment, feeder: Feeder) -> None:
    """All that was submitted has arrived, once and in order."""
    count = feeder.end()
    handle.drain(20)
    assert yard.seen == list(range(count))


EDITS: dict[str, Edit] = {
    "insert": lambda d: d.insert(ev.Filter("input.seq > -5", name="more"), after="step1", before="end"),
    "insert elsewhere": lambda d: d.insert(ev.Filter("1", name="more", on="a"), after="step1", before="end"),
    "remove": lambda d: d.remove("step1"),
    "replace": lambda d: d.replace("step1", ev.Filter("input.seq > -9")),
    "move on": lambda d: d.move("step1", "c"),
    "move back": lambda d: d.move("step1", "a"),
    "move the terminal": lambda d: d.move("end", "a"),
    "move the source": lambda d: d.move("recs", "c"),
    "freeze and unfreeze": lambda d: (d.freeze("step1"), d.unfreeze("step1")),
}


@pytest.mark.parametrize("edit", EDITS.values(), ids=EDITS.keys())
def test_a_change_under_load_loses_doubles_and_reorders_nothing(tmp_path: Path, edit: Edit) -> None:
    with (
        Yard(tmp_path, "abc") as yard,
        chain("a", "b", "c").deploy(yard.hosts) as handle,
        feeding(handle["recs"]) as feeder,
    ):
        feeder.more()
        edit(handle)
        assert handle.version > 1
        feeder.more()
        _end(yard, handle, feeder)


def test_edits_with_one_change_are_one_version(tmp_path: Path) -> None:
    with (
        Yard(tmp_path, "abc") as yard,
        chain("a", "b", "c").deploy(yard.hosts) as handle,
        feeding(handle["recs"]) as feeder,
    ):
        feeder.more()
        with handle.change() as graph:
            graph.insert(ev.Filter("1", name="more", on="c"), after="recs", before="step1")
            graph.move("step1", "c")
            graph.replace("step1", ev.Filter("input.seq > -3"))
        assert handle.version == 2
        assert yard.placed("chain") == {"recs": "a", "more": "c", "step1": "c", "end": "c"}
        feeder.more()
        _end(yard, handle, feeder)


def test_a_change_that_is_refused_changes_nothing(tmp_path: Path) -> None:
    with (
        Yard(tmp_path, "abc") as yard,
        chain("a", "b", "c").deploy(yard.hosts) as handle,
        feeding(handle["recs"]) as feeder,
    ):
        before = handle.graph.to_dict()
        edits: list[tuple[Edit, str]] = [
            (lambda d: d.move("step1", "nowhere"), r"'step1' is placed on 'nowhere'; expected one of"),
            (lambda d: d.replace("step1", ev.Filter("input.nothing")), "no field 'nothing'"),
            (lambda d: d.remove("nothing"), "no stone 'nothing'"),
            (lambda d: d.unlink("recs", "end"), "'end' is not a target of 'recs'; its targets are step1"),
            (lambda d: d.replace("end", ev.Terminal("shop:sell")), "node c.*'shop:sell' is not on this"),
            (lambda d: d.freeze("nothing"), "no stone 'nothing'"),
            (lambda d: d.insert(ev.Filter("1"), after="recs", before="end"), "'end' is not a target of"),
        ]
        for edit, words in edits:
            with pytest.raises(ev.EvflowError, match=f"(?s){words}"):
                edit(handle)
            feeder.more(40)
        assert handle.version == 1
        assert handle.graph.to_dict() == before
        assert yard.placed("chain") == {"recs": "a", "step1": "b", "end": "c"}
        _end(yard, handle, feeder)


def test_split_targets_come_and_go_and_each_gets_what_passed_while_it_was_one(tmp_path: Path) -> None:
    with (
        Yard(tmp_path, "abc") as yard,
        chain("a", "b", "c").deploy(yard.hosts) as handle,
        feeding(handle["recs"]) as feeder,
    ):
        for name, node in (("one", "a"), ("two", "b"), ("three", "c")):
            feeder.more()
            handle.link("step1", ev.Terminal(f"desk:{name}", batch=True, name=name, on=node))
        feeder.more()
        handle.unlink("step1.split", "two")
        with pytest.raises(ev.FlowError, match=r"'two' is not a target of 'step1\.split'"):
            handle.unlink("step1.split", "two")
        handle.remove("two")
        feeder.more()
        _end(yard, handle, feeder)
    count = len(yard.seen)
    for name in ("one", "three"):
        got = yard.others[name]
        assert got == list(range(got[0], count))
    two = yard.others["two"]
    assert two == list(range(two[0], two[-1] + 1))
    assert yard.others["one"][0] < two[0] < yard.others["three"][0] <= two[-1] < count - 1


ROUTE = "return input.seq % 3 == 0 ? 0 : 1;"


def test_a_router_and_a_split_move_and_each_way_stays_whole(tmp_path: Path) -> None:
    graph = ev.Graph("ways")
    both = graph.source("recs", Rec, on="a") >> ev.Split(name="both", on="b")
    _ = both >> ev.Terminal("desk:note", batch=True, name="end", on="c")
    ways = both >> ev.Router(ROUTE, name="ways", on="b")
    _ = ways[0] >> ev.Terminal("desk:one", batch=True, name="thirds", on="c")
    _ = ways[1] >> ev.Terminal("desk:two", batch=True, name="others", on="a")
    with Yard(tmp_path, "abc") as yard, graph.deploy(yard.hosts) as handle, feeding(handle["recs"]) as feeder:
        for stone, node in (("ways", "c"), ("both", "c"), ("ways", "a"), ("thirds", "b"), ("both", "a")):
            feeder.more()
            handle.move(stone, node)
        assert yard.placed("ways") == {
            "recs": "a", "both": "a", "end": "c", "ways": "a", "thirds": "b", "others": "a",
        }  # fmt: skip
        feeder.more()
        _end(yard, handle, feeder)
    numbers = yard.seen
    assert yard.others["one"] == [n for n in numbers if n % 3 == 0]
    assert yard.others["two"] == [n for n in numbers if n % 3]


@pytest.mark.parametrize("path", [None, "held.db"])
def test_a_storage_stone_moves_with_what_it_holds(tmp_path: Path, path: str | None) -> None:
    graph = ev.Graph("chain")
    held = graph.source("recs", Rec, on="a") >> ev.Storage(500, path=path, name="held", on="b")
    _ = held >> ev.Terminal("desk:note", batch=True, name="end", on="c")
    with Yard(tmp_path, "abc") as yard, graph.deploy(yard.hosts) as handle, feeding(handle["recs"]) as feeder:
        for node in "acb":
            feeder.more(1_000)
            handle.move("held", node)
            assert yard.placed("chain") == {"recs": "a", "held": node, "end": "c"}
        feeder.more(1_000)
        count = feeder.end()
        handle.drain(20)
        wait_for(lambda: len(yard.seen) >= count - 500, "all but what is held")
        assert yard.seen == list(range(count - 500))
        assert handle.stats()["held"]["queued"] == 500
        assert handle.send_stored("held") == 500
        wait_for(lambda: len(yard.seen) >= count, "what was held")
        assert yard.seen == list(range(count))


@pytest.mark.parametrize("moved", [False, True])
def test_a_storage_stone_in_the_place_of_another_goes_on_with_its_file_unless_that_moved(
    tmp_path: Path, moved: bool
) -> None:
    graph = ev.Graph("chain")
    held = graph.source("recs", Rec, on="a") >> ev.Storage(500, path="held.db", name="held", on="b")
    _ = held >> ev.Terminal("desk:note", batch=True, name="end", on="c")
    with Yard(tmp_path, "abc") as yard, graph.deploy(yard.hosts) as handle, feeding(handle["recs"]) as feeder:
        feeder.more(100)
        count = feeder.end()
        handle.drain(20)
        assert handle.stats()["held"]["queued"] == count
        with handle.change() as edited:
            edited.insert(ev.Storage(500, path="held.db", name="new", on="b"), after="held", before="end")
            if moved:
                edited.move("held", "a")
            else:
                edited.remove("held")
        stats = handle.stats()
        assert stats["new"]["queued"] == (0 if moved else count)
        assert handle.send_stored("held" if moved else "new") == count
        if moved:
            handle.drain(20)
            assert handle.send_stored("new") == count
        wait_for(lambda: len(yard.seen) >= count, "what was held")
        assert yard.seen == list(range(count))


PAIRS = """{
    if (count(recs) == 10) {
        while (count(recs) > 0) {
            submit(0, recs[0]);
            discard(recs, 0);
        }
    }
}"""


def test_a_queue_stone_moves_with_the_events_that_wait(tmp_path: Path) -> None:
    """It lets ten at a time go: what it has of the next ten goes along."""
    graph = ev.Graph("chain")
    tens = graph.source("recs", Rec, on="a") >> ev.Queue(PAIRS, inputs={"recs": Rec}, name="tens", on="b")
    _ = tens >> ev.Terminal("desk:note", batch=True, name="end", on="c")
    with (
        Yard(tmp_path, "abc") as yard,
        graph.deploy(yard.hosts) as handle,
        feeding(handle["recs"], batch=7) as feeder,
    ):
        for node in "acb":
            feeder.more()
            handle.move("tens", node)
        feeder.more()
        count = feeder.end()
        handle.drain(20)
        wait_for(lambda: len(yard.seen) >= count // 10 * 10, "all whole tens")
        assert yard.seen == list(range(count // 10 * 10))
        assert handle.stats()["tens"]["queued"] == count % 10
        assert handle.stats()["tens"]["in"] == count


def test_a_frozen_stone_moves_with_its_queue_and_stays_frozen(tmp_path: Path) -> None:
    with (
        Yard(tmp_path, "abc") as yard,
        chain("a", "b", "c").deploy(yard.hosts) as handle,
        feeding(handle["recs"]) as feeder,
    ):
        feeder.more()
        handle.freeze("step1")
        stopped = handle.stats()["step1"]["out"]
        wait_for(lambda: len(yard.seen) == stopped, "what had left it before")
        feeder.more()
        handle.move("step1", "c")
        feeder.more()
        assert handle.stats()["step1"]["frozen"] and handle.stats()["step1"]["queued"] >= 100
        assert len(yard.seen) == stopped
        handle.move("step1", "a")
        assert len(yard.seen) == stopped
        handle.unfreeze("step1")
        feeder.more()
        _end(yard, handle, feeder)


def test_a_stone_that_comes_under_the_name_of_a_frozen_one_is_not_frozen(tmp_path: Path) -> None:
    with Yard(tmp_path, "abc") as yard, chain("a", "b", "c").deploy(yard.hosts) as handle:
        handle.freeze("step1")
        handle.remove("step1")
        handle.insert(ev.Filter("1", name="step1"), after="recs", before="end")
        handle["recs"].submit_batch({"seq": range(10)})
        handle.drain(20)
        assert yard.seen == list(range(10))


def test_a_change_between_stones_that_hold_events_on_nodes_in_turn_comes_to_rest(tmp_path: Path) -> None:
    """What one node lets go comes to it again further on, where the way is closed meanwhile."""
    graph = ev.Graph("chain")
    at = graph.source("recs", Rec, on="b") >> ev.Storage(50, name="held1", on="a")
    at = at >> ev.Filter("1", name="step1", on="b") >> ev.Storage(50, name="held2", on="a")
    at = at >> ev.Storage(50, name="held3", on="c") >> ev.Storage(50, name="held4", on="a")
    _ = at >> ev.Terminal("desk:note", batch=True, name="end", on="b")
    with (
        Yard(tmp_path, "abc") as yard,
        graph.deploy(yard.hosts) as handle,
        feeding(handle["recs"]) as feeder,
    ):
        for number in range(3):
            feeder.more(300)
            handle.insert(ev.Filter("1", name=f"more{number}", on="a"), after="held2", before="held3")
            handle.remove(f"more{number}")
        count = feeder.end()
        handle.drain(20)
        wait_for(lambda: len(yard.seen) == count - 200, "all but what is held")
        assert yard.seen == list(range(count - 200))


COUNTING = "{ static long n = 0; n = n + 1; return n % 2; }"


def test_a_filter_moves_with_its_static_variables(tmp_path: Path) -> None:
    """It passes every second event: one would be doubled or lost in the pattern if it began anew."""
    graph = chain("a", "b", "c")
    graph.replace("step1", ev.Filter(COUNTING))
    with (
        Yard(tmp_path, "abc") as yard,
        graph.deploy(yard.hosts) as handle,
        feeding(handle["recs"], batch=7) as feeder,
    ):
        for node in "cbcb":
            feeder.more(49)
            handle.move("step1", node)
        feeder.more()
        count = feeder.end()
        handle.drain(20)
        assert yard.seen == list(range(0, count, 2))


def test_two_programs_change_one_deployment(tmp_path: Path) -> None:
    """Each sees the other's changes; what was submitted through either arrives."""
    with (
        Yard(tmp_path, "abc") as yard,
        chain("a", "b", "c").deploy(yard.hosts) as handle,
        ev.Deployment("chain", {"c": yard.hosts["c"]}) as other,
        feeding(handle["recs"]) as feeder,
    ):
        handle.insert(ev.Filter("1", name="first"), after="recs", before="step1")
        other.insert(ev.Filter("1", name="second"), after="recs", before="first")
        handle.remove("first")
        other.move("recs", "c")
        feeder.more()
        assert {(link.source, link.target) for link in handle.graph.links} == {
            ("recs", "second"), ("second", "step1"), ("step1", "end"),
        }  # fmt: skip
        assert handle.version == 5
        _end(yard, handle, feeder)


def test_a_host_joins_takes_stones_and_leaves(tmp_path: Path) -> None:
    with Yard(tmp_path, "abc") as yard, chain("a", "b", "c").deploy(yard.hosts) as handle:
        yard.start("d")
        with feeding(handle["recs"]) as feeder:
            with pytest.raises(ev.DeployError, match="placed on 'd'; expected one of its hosts"):
                handle.move("step1", "d")
            handle.add_host("d", yard.daemons["d"].contact)
            with pytest.raises(
                ev.DeployError, match=r"d is a host already, at .*, not at tcp://127\.0\.0\.1:1;"
            ):
                handle.add_host("d", "tcp://127.0.0.1:1")
            handle.move("step1", "d")
            assert yard.placed("chain")["step1"] == "d"
            handle.remove_host("b")
            feeder.more()
            with pytest.raises(ev.DeployError, match="'step1' is placed on 'd'"):
                handle.remove_host("d")
            assert sorted(handle.hosts) == ["a", "c", "d"]
            assert yard.daemons["b"].rpc.status()["deployments"] == {}
            _end(yard, handle, feeder)
