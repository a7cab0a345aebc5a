"""Which bridges a change leaves open while it waits for quiet: worked examples."""

from __future__ import annotations

import evflow as ev
from evflow.deploy.frontier import Frontier, frontier
from evflow.deploy.record import Record

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


def test_the_first_version_leaves_nothing_open() -> None:
    """Where nothing ran, nothing is under way."""
    assert frontier(None, _record(_chain("a", "b", "c")), "b") == Frontier()


def test_a_node_knows_which_bridges_of_others_lead_to_what_it_closes() -> None:
    old, new = _chain("a", "b", "c"), _chain("a", "b", "c")
    new.move("f1", "c")
    feeders = {node: frontier(_record(old), _record(new), node).feeders for node in HOSTS}
    assert feeders == {"a": set(), "b": {("a", "d/source→d/f1")}, "c": set()}
