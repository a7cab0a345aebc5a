"""A stone's label names it in pictures, tables and errors; what the stone is, its class says."""

from __future__ import annotations

import json
from typing import Any

import pytest

import evflow as ev
from evflow.engine.check import check_graph
from evflow.engine.placement import bridged, placed_on
from evflow.engine.snapshot import restore, take
from evflow.graph import kinds
from evflow.graph.draw import draw
from evflow.stone import Stone
from tests.engine.rig import Rec, Rig
from tests.flow.ownstones import Every

LABELS = [*kinds.KINDS]


class Ping(ev.Event):
    number: int


class Thin(ev.Bridge):
    """A bridge of a user's own."""

    def settings(self) -> dict[str, Any]:
        return {}

    @classmethod
    def from_settings(cls, settings: Any) -> Thin:
        return cls()


def labelled(label: str, **settings: Any) -> Every:
    """A stone of a user's own class, called what stones of evflow are."""
    stone = Every(2, **settings)
    stone.kind = label
    return stone


def handler(event: object) -> None:
    """A handler that can be named."""


def around(stone: Stone) -> ev.Graph:
    g = ev.Graph()
    g.source("pings", Ping, on="a") >> stone >> ev.Terminal(f"{__name__}:handler", name="end", on="b")
    return g


@pytest.mark.parametrize("label", LABELS)
def test_stone_is_linked_and_placed_alike_whatever_its_label(label: str) -> None:
    graph, plain = (around(labelled(kind, name="own", on="a")) for kind in (label, "own"))
    assert list(bridged(graph).stones) == list(bridged(plain).stones)
    for each in (graph, plain):
        each.link("own", ev.Terminal(handler, name="other", on="b"))
        # The split goes with the stone that it was added for.
        each.move("own", "b")
        each.move("own", "a")
    assert graph.links == plain.links
    assert list(graph.stones) == list(plain.stones)
    assert list(bridged(graph).stones) == list(bridged(plain).stones)
    graph.check()


def test_stones_are_drawn_whatever_their_labels() -> None:
    g = ev.Graph()
    source = g.source("pings", Ping)
    for label in LABELS:
        source >> labelled(label) >> ev.Terminal(handler)
    assert all(f">{label}<" in draw(g).svg.replace("&#45;", "-") for label in ("match", "bridge"))


@pytest.mark.parametrize("label", ["source", "generator"])
def test_stone_with_inputs_takes_links_whatever_its_label(label: str) -> None:
    around(labelled(label, name="own")).check()


@pytest.mark.parametrize("label", LABELS)
def test_split_of_a_port_is_a_split_whatever_bears_its_name(label: str) -> None:
    graph = around(labelled(label, name="pings.split", on="a"))
    moved = graph.copy()
    moved.move("pings", "b")
    assert moved.stones["pings.split"].on == "a"


@pytest.mark.parametrize("here", [kinds.made, lambda entry: kinds.made(entry, kinds.absent)])
def test_class_that_derives_from_a_bridge_is_one_also_where_it_is_not_there(here: Any) -> None:
    g = around(Thin(name="thin", on="a"))
    graph = ev.Graph.from_dict(json.loads(json.dumps(g.to_dict())), here)
    assert list(bridged(graph).stones) == ["pings", "thin", "end"]
    draw(graph)
    there = placed_on(check_graph(bridged(graph), lambda stone: stone.on == "b"), "b")
    assert there.entrances == {"end"}


class Sums(Every):
    """Has another state than the class whose label it bears."""

    kind = "every"


@pytest.mark.parametrize(("stone", "passed"), [(Every(2, name="x"), [2]), (Sums(2, name="x"), [])])
def test_state_goes_to_a_stone_of_the_same_class_not_of_the_same_label(
    stone: Every, passed: list[int]
) -> None:
    first, seen = Rig(_behind(Every(2, name="x"), [])), []
    first.send("recs", 1)
    second = Rig(_behind(stone, seen))
    restore(second.engine, second.slot("x"), take(first.engine, first.slot("x")))
    second.send("recs", 2)
    assert seen == passed


def _behind(stone: Every, seen: list[int]) -> ev.Graph:
    g = ev.Graph()
    g.source("recs", Rec) >> stone >> ev.Terminal(lambda event: seen.append(event.seq))
    return g
