"""Checking a graph against what runs already: as if all of it were checked anew."""

from __future__ import annotations

import random

import pytest

import evflow as ev
from evflow.engine.check import check_graph
from evflow.engine.topology import Topology
from evflow.graph.placed import Link, Links
from tests.examples import tried


class One(ev.Event):
    number: int


class Two(ev.Event):
    number: int
    text: ev.Str[4]


CODES = ("input.number > 1", "input.number % 2", "input.text == 'a'", "input.none", "input.number >")


def made(rng: random.Random) -> ev.Stone:
    code = rng.choice(CODES[:3] if rng.random() < 0.9 else CODES)
    return rng.choice(
        [
            lambda: ev.Filter(code),
            lambda: ev.Filter(code),
            lambda: ev.Transform("output.number = input.number; return 1;", output=One),
            lambda: ev.Split(),
            lambda: ev.Storage(10),
            lambda: ev.Router("input.number % 3"),
        ]
    )()


def start(rng: random.Random) -> ev.Graph:
    g = ev.Graph()
    for name, schema in (("ones", One), ("twos", Two)):
        g.source(name, schema) >> ev.Filter("input.number > 0") >> ev.Terminal(print)
    return g


def edit(g: ev.Graph, rng: random.Random) -> None:
    link, other = rng.choice(g.links), rng.choice(g.links)
    what = rng.randrange(7)
    if what < 2:
        g.insert(made(rng), after=g[link.source][link.port], before=link.target)
    elif what == 2:
        g.remove(link.source)
    elif what == 3:
        g.replace(link.source, made(rng))
    elif what == 4:
        # May form a cycle, or lead into a source.
        g.links.add(Link(link.source, rng.randrange(-1, 2) if rng.random() < 0.2 else 0, other.target))
    elif what == 5:
        g.links = Links([one for one in g.links if one != link])
    else:
        g.link(g[link.source][link.port], ev.Terminal(print))


def outcome(g: ev.Graph, known: Topology | None) -> tuple[Topology | None, str]:
    try:
        return check_graph(g, running=True, known=known), ""
    except ev.EvflowError as error:
        return None, "\n".join(sorted(getattr(error, "problems", None) or [str(error)]))


@pytest.mark.parametrize("seed", range(tried(60)))
def test_a_check_against_what_runs_finds_what_a_whole_check_finds(seed: int) -> None:
    rng = random.Random(seed)
    graph = start(rng)
    running = check_graph(graph)
    for _ in range(40):
        edited = graph.copy()
        try:
            edit(edited, rng)
        except (ev.EvflowError, IndexError):
            continue
        (found, wrong), (anew, expected) = outcome(edited, running), outcome(edited, None)
        assert wrong == expected
        if found is None or anew is None:
            continue
        assert list(found.slots) == list(anew.slots)
        for name, slot in anew.slots.items():
            other = found.slots[name]
            assert (other.stone, other.ports) == (slot.stone, slot.ports)
            assert set(other.arrivals) == set(slot.arrivals)
        assert (found.entrances, found.crossings, found.makers) == (
            anew.entrances,
            anew.crossings,
            anew.makers,
        )
        graph, running = edited, found
    # A check has no effect on what runs.
    again, _ = outcome(graph, None)
    assert again is not None
    assert {n: (s.stone, s.ports) for n, s in running.slots.items()} == {
        n: (s.stone, s.ports) for n, s in again.slots.items()
    }
