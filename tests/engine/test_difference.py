"""What a change touches, as a comparison of two topologies."""

from __future__ import annotations

from collections.abc import Callable
from itertools import permutations

import pytest
from msgspec.structs import replace

import evflow as ev
from evflow.engine.change import Difference, difference, same_stone
from evflow.engine.check import check_graph
from evflow.engine.placement import bridged, placed_on
from evflow.engine.topology import Crossing, Topology
from evflow.stone import Acting, Actor, Context
from tests.engine.rig import Rec


def handler(event: object) -> None:
    """A handler that can be named."""


def graph() -> ev.Graph:
    """Two paths: recs → gate → end on node a, and beats → far, which is on node b."""
    g = ev.Graph()
    with g.on("a"):
        g.source("recs", Rec) >> ev.Filter("1", name="gate") >> ev.Terminal(handler, name="end")
        beats = g.add(ev.Generator("return 1;", output=Rec, period=1, name="beats"))
        g.source("other", Rec) >> ev.Filter("1", name="apart") >> ev.Terminal(handler, name="edge")
    beats >> ev.Terminal(handler, name="far", on="b")
    return g


def part(g: ev.Graph, node: str = "a") -> Topology:
    return placed_on(check_graph(bridged(g)), node)


def changed(edit: Callable[[ev.Graph], object], node: str = "a") -> Difference:
    before, after = graph(), graph()
    edit(after)
    return but_leading(difference(part(before, node), part(after, node)))


def but_leading(made: Difference) -> Difference:
    """The same without what most of these tests do not look at."""
    return replace(made, leading=frozenset())


def names(*listed: str) -> frozenset[str]:
    return frozenset(listed)


def test_the_same_graph_made_again_differs_in_nothing() -> None:
    assert changed(lambda g: None) == Difference()


def test_an_inserted_stone_closes_only_what_leads_there() -> None:
    made = changed(lambda g: g.insert(ev.Filter("1", name="new"), after="gate", before="end"))
    assert made == Difference(new=names("new"), relinked=names("gate"), entries=names("recs"))


def test_another_function_replaces_a_stone() -> None:
    made = changed(lambda g: g.replace("apart", ev.Filter("0")))
    assert made == Difference(replaced=names("apart"), entries=names("other"))


def test_a_bridge_to_a_stone_that_moves_is_only_readdressed() -> None:
    made = changed(lambda g: g.move("far", "c"))
    assert made == Difference(readdressed={"beats→far": Crossing("c", "far", "")})


def test_a_stone_that_moves_away_leaves_a_bridge_behind() -> None:
    made = changed(lambda g: g.move("gate", "b"))
    assert made == Difference(
        new=names("recs→gate"),
        gone=names("gate"),
        relinked=names("recs"),
        appearing=names("recs→gate"),
        entered=names("end"),
        entries=names("recs"),
    )


def test_a_stone_that_comes_ends_the_bridge_to_it() -> None:
    made = changed(lambda g: g.move("far", "a"))
    assert made == Difference(
        new=names("far"),
        gone=names("beats→far"),
        relinked=names("beats"),
        vanishing=names("beats→far"),
        entries=names("beats"),
    )


def test_where_a_stone_goes_it_is_no_longer_sent_to() -> None:
    edit = lambda g: g.move("beats", "b")  # noqa: E731  the same for both parts
    assert changed(edit, "b") == Difference(new=names("beats"), left=names("far"))


def test_what_leads_to_a_change_is_known_though_nothing_comes_in_there() -> None:
    before, after = part(graph()), graph()
    after.replace("end", ev.Terminal(print))
    made = difference(before, part(after))
    assert made.leading == names("recs", "gate", "end")
    assert made.entries == names("recs")


def test_a_bridge_with_other_terms_is_another() -> None:
    def policy(g: ev.Graph, policy: str) -> ev.Graph:
        g.remove("far")
        way = g["beats"] >> ev.Bridge(policy=policy, name="way", on="a")
        way >> ev.Terminal(handler, name="far", on="b")
        return g

    made = difference(part(policy(graph(), "block")), part(policy(graph(), "drop oldest")))
    assert but_leading(made) == Difference(
        replaced=names("way"), appearing=names("way"), vanishing=names("way"), entries=names("beats")
    )


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        (ev.Filter("1"), ev.Filter("1", on="x", name="y"), True),
        (ev.Filter("1"), ev.Filter("1", fuel=5), False),
        (ev.Filter("1"), ev.Router("1"), False),
        (ev.Terminal(handler), ev.Terminal(handler), True),
        (ev.Terminal(lambda e: None), ev.Terminal(lambda e: None), False),
        (ev.Split(), ev.Split(), True),
        (ev.Storage(3), ev.Storage(4), False),
    ],
)
def test_stones_are_the_same_by_what_they_say(one: ev.Filter, other: ev.Filter, same: bool) -> None:
    assert same_stone(one, other) is same
    assert same_stone(one, one)


class Silent(Acting):
    """Has a parameter, or none, and does not say so in its settings."""

    def __init__(self, *given: object) -> None:
        super().__init__()
        if given:
            (self.given,) = given

    def open(self, context: Context) -> Actor:
        return Actor(context)


def test_stones_that_say_nothing_are_the_same_if_they_hold_the_same_objects() -> None:
    word = object()
    one, other, none = Silent(word), Silent(object()), Silent()
    assert same_stone(one, Silent(word)) and same_stone(none, Silent())
    for first, second in permutations((one, other, none), 2):
        assert same_stone(first, second) is False
