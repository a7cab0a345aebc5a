"""Edits of a graph: what each makes of stones and links, and what is refused and leaves it as it was."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from types import FrameType
from typing import Any

import pytest

import evflow as ev


class Rec(ev.Event):
    seq: int


def handler(event: object) -> None:
    """A handler that can be named."""


def chain() -> ev.Graph:
    """recs → even → end, on the node edge."""
    g = ev.Graph("g")
    with g.on("edge"):
        even = g.source("recs", Rec) >> ev.Filter("input.seq % 2 == 0", name="even")
        even >> ev.Terminal(handler, name="end")
    return g


def links(g: ev.Graph) -> list[str]:
    return [f"{k.source}[{k.port}]>{k.target}" + (f"[{k.input}]" if k.input else "") for k in g.links]


def test_a_stone_is_inserted_between_two() -> None:
    g = chain()
    placed = g.insert(ev.Filter("1", name="new"), after="even", before="end")
    assert (placed.name, placed.stone.on) == ("new", "edge")
    assert links(g) == ["recs[0]>even", "even[0]>new", "new[0]>end"]


def test_an_inserted_stone_keeps_its_own_node() -> None:
    g = chain()
    assert g.insert(ev.Filter("1", on="center"), after=g["even"], before=g["end"]).stone.on == "center"


def test_a_stone_is_inserted_behind_a_split_that_the_graph_added() -> None:
    g = chain()
    g.link("even", ev.Terminal(handler, name="other"))
    g.insert(ev.Filter("1", name="new"), after="even", before="other")
    assert links(g) == [
        "recs[0]>even", "even[0]>even.split", "even.split[0]>end", "even.split[0]>new", "new[0]>other",
    ]  # fmt: skip


def test_a_stone_is_inserted_at_a_port_and_an_input() -> None:
    g = ev.Graph()
    router = g.source("recs", Rec) >> ev.Router("return input.seq % 2;", name="router")
    queue = g.add(ev.Queue("{ discard(a, 0); }", inputs={"a": Rec, "b": Rec}, name="queue"))
    router[0] >> queue["a"]
    router[1] >> queue["b"]
    queue >> ev.Terminal(handler, name="end")
    g.insert(ev.Filter("1", name="new"), after="router", before="queue", port=1)
    g.insert(ev.Filter("1", name="own"), after=router[0], before=queue["a"])
    assert set(links(g)[1:]) == {
        "router[0]>own", "own[0]>queue[a]", "router[1]>new", "new[0]>queue[b]", "queue[0]>end",
    }  # fmt: skip


def test_a_removed_stone_is_healed_over() -> None:
    """All that led to it leads to what it led to, at the same input."""
    g = ev.Graph()
    gate = ev.Filter("1", name="gate", input=Rec)
    g.source("left", Rec) >> gate
    g.source("right", Rec) >> gate
    queue = g.add(ev.Queue("{ discard(a, 0); }", inputs={"a": Rec, "b": Rec}, name="queue"))
    g["gate"] >> queue["b"]
    g.remove("gate")
    assert links(g) == ["left[0]>queue[b]", "right[0]>queue[b]"]
    assert list(g.stones) == ["left", "right", "queue"]


def test_a_removed_stone_that_fans_out_leaves_its_split() -> None:
    g = chain()
    g.link("even", ev.Terminal(handler, name="other"))
    g.remove(g["even"])
    assert links(g) == ["recs[0]>even.split", "even.split[0]>end", "even.split[0]>other"]


def test_a_removed_terminal_goes_with_its_links() -> None:
    g = chain()
    g.link("even", ev.Terminal(handler, name="other"))
    g.remove("other")
    assert links(g) == ["recs[0]>even", "even[0]>even.split", "even.split[0]>end"]
    g.check()


def test_a_removed_source_goes_with_the_split_behind_it() -> None:
    g = chain()
    extra = g.source("extra", Rec)
    extra >> g["even"]
    extra >> g["end"]
    assert "extra.split" in g.stones
    g.remove("extra")
    assert g.to_dict() == chain().to_dict()


def test_a_replaced_stone_keeps_name_links_and_node() -> None:
    g = chain()
    placed = g.replace("even", ev.Router("return 0;"))
    assert (placed.stone.kind, placed.stone.on) == ("router", "edge")
    assert (list(g.stones), links(g)) == (["recs", "even", "end"], ["recs[0]>even", "even[0]>end"])


def test_a_moved_stone_takes_its_split_along() -> None:
    g = chain()
    g.link("even", ev.Terminal(handler, name="other", on="edge"))
    g.move("even", "center")
    assert {name: stone.on for name, stone in g.stones.items()} == {
        "recs": "edge", "even": "center", "end": "edge", "other": "edge", "even.split": "center",
    }  # fmt: skip


def test_edits_of_a_copy_leave_the_graph_as_it_was() -> None:
    """Copies share the stones, so no edit may change one."""
    g = chain()
    before = g.to_dict()
    other = g.copy()
    other.insert(ev.Filter("1", name="new"), after="even", before="end")
    other.move("even", "center")
    other.replace("end", ev.Terminal(handler))
    other.remove("new")
    other.fallback("edge", to="backup")
    other.link("recs", "end")
    other.unlink("recs", "even")
    assert g.to_dict() == before


def test_a_link_over_an_added_split_is_taken_away() -> None:
    g = chain()
    g.link("even", ev.Terminal(handler, name="other"))
    g.unlink("even", "end")
    assert links(g) == ["recs[0]>even", "even[0]>even.split", "even.split[0]>other"]


def test_fallbacks_are_a_part_of_the_data() -> None:
    g = chain()
    g.fallback("edge", to="backup", after=2)
    again = ev.Graph.from_dict(json.loads(json.dumps(g.to_dict())))
    assert (again.fallbacks["edge"].to, again.fallbacks["edge"].after) == ("backup", 2.0)
    assert again.copy().fallbacks == g.fallbacks


def test_data_without_fallbacks_is_read() -> None:
    data = chain().to_dict()
    del data["fallbacks"]
    assert ev.Graph.from_dict(data).fallbacks == {}


WRONG: list[tuple[Callable[[ev.Graph], Any], str]] = [
    (lambda g: g.insert(ev.Filter("1"), after="nope", before="end"), "no stone 'nope'; it has recs, even"),
    (lambda g: g.insert(ev.Filter("1"), after="recs", before="end"), "'end' is not a target of 'recs'; its"),
    (lambda g: g.insert(ev.Filter("1"), after="even", before="end", port=3), "target of 'even' port 3"),
    (
        lambda g: g.insert(ev.Filter("1", name="recs"), after="even", before="end"),
        "two stones are named 'recs'",
    ),
    (lambda g: g.insert(ev.Terminal(handler), after="even", before="end"), "has no output, so it cannot"),
    (lambda g: g.insert(5, after="even", before="end"), "expected a stone such as"),
    (lambda g: g.insert(g.stones["recs"], after="even", before="end"), "stands in the graph already"),
    (lambda g: g.remove("nope"), "no stone 'nope'"),
    (lambda g: g.remove(7), "expected the name of a stone, found 7"),
    (lambda g: g.remove(chain()["even"]), "belongs to graph 'g'"),
    (lambda g: g.replace("even", print), "expected a stone such as .* in place of 'even'"),
    (lambda g: g.replace("even", ev.Filter("1", name="odd")), "keeps that name, .*found 'odd'"),
    (lambda g: g.replace("nope", ev.Filter("1")), "no stone 'nope'"),
    (lambda g: g.move("even", ""), "node '': expected the name of a node"),
    (lambda g: g.move("nope", "center"), "no stone 'nope'"),
    (lambda g: g.link("recs", "even"), "'recs' is linked to 'even' already"),
    (lambda g: g.link("recs", "nope"), "no stone 'nope'"),
    (lambda g: g.link(5, "even"), "expected the name of a stone, found 5"),
    (lambda g: g.unlink("recs", "end"), "'end' is not a target of 'recs'; its targets are even"),
    (lambda g: g.fallback("edge", to="edge"), "expected another node"),
    (lambda g: g.fallback("edge", to=""), "'': expected the name of a node"),
    (lambda g: g.fallback("edge", to="backup", after=-1), "after -1: expected seconds, 0 or more"),
    (lambda g: g.fallback("edge", to="backup", after=float("nan")), "after nan"),
]


@pytest.mark.parametrize(("edit", "words"), WRONG)
def test_a_wrong_edit_is_refused_and_changes_nothing(edit: Callable[[ev.Graph], Any], words: str) -> None:
    g = chain()
    before = g.to_dict()
    with pytest.raises(ev.GraphError, match=words):
        edit(g)
    assert g.to_dict() == before


def test_a_stone_with_several_ways_out_is_not_removed() -> None:
    g = ev.Graph()
    router = g.source("recs", Rec) >> ev.Router("return 0;", name="router")
    router[0] >> ev.Terminal(handler, name="zero")
    router[1] >> ev.Terminal(handler, name="one")
    with pytest.raises(ev.GraphError, match=r"leads to several stones .port 0 to 'zero', port 1 to 'one'"):
        g.remove("router")


def test_a_stone_whose_removal_would_double_a_link_is_not_removed() -> None:
    g = chain()
    g.link("recs", "end")
    with pytest.raises(ev.GraphError, match=r"'recs.split' would be linked to 'end' twice; unlink one"):
        g.remove("even")


def test_a_link_at_one_of_several_inputs_has_to_be_named() -> None:
    g = ev.Graph()
    recs = g.source("recs", Rec)
    queue = g.add(ev.Queue("{ discard(a, 0); }", inputs={"a": Rec, "b": Rec}, name="queue"))
    recs >> queue["a"]
    recs >> queue["b"]
    with pytest.raises(ev.GraphError, match="at the inputs 'a', 'b'; say which one is meant"):
        g.unlink("recs", "queue")
    g.unlink("recs", queue["b"])
    assert links(g) == ["recs[0]>recs.split", "recs.split[0]>queue[a]"]


def _cost_of_describing(stones: int) -> int:
    """Comparisons of stones and links, and calls of Python functions, that describing so many takes."""
    steps = 0

    class Counted(str):
        def __eq__(self, other: object) -> bool:
            nonlocal steps
            steps += 1
            return str.__eq__(self, other)

        __hash__ = str.__hash__

    def count(frame: FrameType, event: str, argument: object) -> None:
        nonlocal steps
        steps += event == "call"

    before = sys.getprofile()
    sys.setprofile(count)
    try:
        g = ev.Graph()
        at = g.source("recs", Rec)
        for number in range(stones):
            at = at >> ev.Filter("1", name=Counted(f"f{number}"))
            at >> ev.Terminal(handler)
    finally:
        sys.setprofile(before)
    assert len(g.stones) == 3 * stones
    return steps


def test_describing_a_graph_costs_as_much_for_each_stone_in_a_large_one_as_in_a_small_one() -> None:
    small, large = _cost_of_describing(100), _cost_of_describing(800)
    assert large < 8 * small * 1.2
