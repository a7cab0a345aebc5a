"""Which bridges a change leaves open while it waits for quiet: worked examples, and random graphs."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

import evflow as ev
from evflow.deploy.frontier import Frontier, frontier
from evflow.deploy.part import checked_graph
from evflow.deploy.record import Record
from evflow.engine.change import difference
from evflow.engine.check import build_topology
from evflow.engine.placement import bridged, placed_on
from evflow.engine.topology import Topology
from tests.examples import tried

HOSTS = dict.fromkeys("abc", "tcp://127.0.0.1:1")


class Ping(ev.Event):
    number: int


def _chain(*places: str) -> ev.Graph:
    """source → f1 → f2 … → end, each on its node."""
    g = ev.Graph("chain")
    at = g.source("source", Ping, on=places[0])
    for number, place in enumerate(places[1:-1], 1):
        at = at >> ev.Filter("1", name=f"f{number}", on=place)
    _ = at >> ev.Terminal("desk:end", name="end", on=places[-1])
    return g


def _record(graph: ev.Graph) -> Record:
    return Record.first("d", graph.to_dict(), HOSTS)


def _open(old: ev.Graph, new: ev.Graph) -> dict[str, frozenset[str]]:
    found = {node: frontier(_record(old), _record(new), node) for node in HOSTS}
    passing = frozenset().union(*(at.passing for at in found.values()))
    assert passing == frozenset().union(*(at.draining for at in found.values()))
    return {node: at.passing for node, at in found.items() if at.passing}


def test_a_chain_that_comes_back_to_a_node_stays_open_behind_the_first_closed_entry() -> None:
    """f2 is taken out from between two stones of c: it must take what f1 has sent on, or f1 never rests."""
    old, new = _chain("a", "c", "a", "c"), _chain("a", "c", "a", "c")
    new.remove("f2")
    assert _open(old, new) == {"a": {"d/f1→d/f2"}}


def test_a_stone_that_moves_is_closed_to_those_who_go_on() -> None:
    """f1 moves; the source before it goes on, so the way to f1 is closed, and nothing else is concerned."""
    old, new = _chain("a", "b", "c"), _chain("a", "b", "c")
    new.move("f1", "c")
    # The end on c gets its events from f1 of another node no more, which comes to rest.
    assert _open(old, new) == {}


def test_two_stones_in_a_row_that_move_at_once() -> None:
    """The second must take what the first has sent on before."""
    old, new = _chain("a", "b", "c", "a"), _chain("a", "b", "c", "a")
    new.move("f1", "c")
    new.move("f2", "b")
    assert _open(old, new) == {"c": {"d/f1→d/f2"}}


def test_a_stone_that_others_feed_too_is_closed_to_these_only() -> None:
    """Of two ways to a stone that is replaced one comes to rest, from its source on; the other goes on."""

    def graph(place: str, kept: str) -> ev.Graph:
        g = ev.Graph("two")
        first = g.source("first", Ping, on="a") >> ev.Filter("1", name="f", on=place)
        end = first >> ev.Filter(kept, name="g", on="c") >> ev.Terminal("desk:end", name="end", on="c")
        g.link(g.source("second", Ping, on="a") >> ev.Filter("1", name="h", on="b"), g["g"])
        _ = end
        return g

    assert _open(graph("b", "1"), graph("a", "2")) == {"b": {"d/first→d/f"}, "c": {"d/f→d/g"}}


def test_a_stone_of_which_one_source_goes_on_does_not_rest() -> None:
    """Of the two sources of m, first is closed, as it also leads to k, which moves; second is not."""

    def graph(place: str, kept: str) -> ev.Graph:
        g = ev.Graph("two")
        first, second = g.source("first", Ping, on="a"), g.source("second", Ping, on="a")
        _ = first >> ev.Filter("1", name="k", on=place) >> ev.Terminal("desk:end", name="k end", on=place)
        m = first >> ev.Filter("1", name="m", on="a")
        g.link(second, m)
        _ = m >> ev.Filter(kept, name="t", on="b") >> ev.Terminal("desk:end", name="end", on="b")
        return g

    assert _open(graph("a", "1"), graph("c", "2")) == {}


Stones = list[tuple[str, list[int], str]]
"""Of each stone the node, the stones before it (none for a source), and its code."""


@st.composite
def _changes(draw: st.DrawFn) -> tuple[Stones, Stones]:
    """A graph, and the same with some stones moved or with other code."""
    nodes, old = st.sampled_from("abc"), []
    for number in range(draw(st.integers(2, 9))):
        before = draw(st.lists(st.integers(0, number - 1), max_size=2, unique=True)) if number else []
        old.append((draw(nodes), before, "1"))
    changed = draw(st.lists(st.integers(0, len(old) - 1), min_size=1, max_size=3, unique=True))
    new = list(old)
    for number in changed:
        # A source has no code, so it is moved.
        moved = draw(nodes) if draw(st.booleans()) or not old[number][1] else old[number][0]
        new[number] = (moved, old[number][1], draw(st.sampled_from("12")))
    return old, new


def _graph(stones: Stones) -> ev.Graph:
    g = ev.Graph("random")
    for number, (node, before, code) in enumerate(stones):
        if not before:
            g.source(f"s{number}", Ping, on=node)
            continue
        filter = g.add(ev.Filter(code, name=f"s{number}", on=node))
        for source in before:
            g.link(g[f"s{source}"], filter)
    fed = {source for _, before, _ in stones for source in before}
    for number, (node, _, _) in enumerate(stones):
        if number not in fed:
            _ = g[f"s{number}"] >> ev.Terminal("desk:end", name=f"end{number}", on=node)
    return g


def _closed(old: ev.Graph, new: ev.Graph) -> set[str]:
    """The entries that are closed on some node."""
    closed: set[str] = set()
    for node in HOSTS:
        parts = [
            placed_on(build_topology(graph), node)
            if any(stone.on == node for stone in graph.stones.values())
            else Topology({})
            for graph in (old, new)
        ]
        closed |= set(difference(*parts).entries)
    return closed


@settings(max_examples=tried(30), deadline=None)
@given(_changes())
def test_bridges_stay_open_to_what_no_open_source_reaches(change: tuple[Stones, Stones]) -> None:
    """A bridge to a closed entry stays open, at both ends, if no events come to it any more.

    That is: from no source that stays open a path leads to the bridge which does not cross a closed bridge.
    """
    old, new = map(_graph, change)
    flat, after = (bridged(checked_graph(_record(graph))) for graph in (old, new))
    closed, on = _closed(flat, after), {name: stone.on for name, stone in flat.stones.items()}
    crossing = {
        (link.source, link.target)
        for link in flat.links
        if link.target in closed and on[link.source] != on[link.target]
    }
    flowing = set(flat.stones) - {link.target for link in flat.links} - closed
    todo = list(flowing)
    while todo:
        at = todo.pop()
        found = {
            link.target for link in flat.links if link.source == at and (at, link.target) not in crossing
        }
        todo += found - flowing
        flowing |= found
    for node in HOSTS:
        opened = {(source, target) for source, target in crossing if source not in flowing}
        assert frontier(_record(old), _record(new), node) == Frontier(
            passing=frozenset(source for source, target in opened if on[target] == node),
            draining=frozenset(source for source, target in opened if on[source] == node),
            feeders=frozenset((str(on[source]), source) for source, target in crossing if on[target] == node),
        )


def test_the_first_version_leaves_nothing_open() -> None:
    """Where nothing ran, nothing is under way."""
    assert frontier(None, _record(_chain("a", "b", "c")), "b") == Frontier()


def test_a_node_knows_which_bridges_of_others_lead_to_what_it_closes() -> None:
    old, new = _chain("a", "b", "c"), _chain("a", "b", "c")
    new.move("f1", "c")
    feeders = {node: frontier(_record(old), _record(new), node).feeders for node in HOSTS}
    assert feeders == {"a": set(), "b": {("a", "d/source→d/f1")}, "c": set()}
