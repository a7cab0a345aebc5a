"""Random changes, one after the other, while events flow: each event arrives once, in order."""

from __future__ import annotations

import os
import random
from itertools import pairwise
from pathlib import Path

import pytest

import evflow as ev
from tests.deploy.yard import Yard, chain, feeding
from tests.node.processes import wait_for

pytestmark = pytest.mark.slow

SEEDS = int(os.environ.get("EVFLOW_CHANGE_SEEDS", "1"))
FIRST = int(os.environ.get("EVFLOW_SEED", "0"))
CHANGES = int(os.environ.get("EVFLOW_CHANGES", "20"))
NODES = "abc"
HELD = 300

COUNTED = '{ static long n = 0; n = n + 1; set_int_attr(event_attrs, "n", n); return 1; }'
KEPT = "{ while (count(recs) > 0) { submit(0, recs[0]); discard(recs, 0); } }"


class Changer:
    """Makes random edits of a graph whose main way leads from recs to end."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.frozen: set[str] = set()
        self.made = 0

    def edit(self, graph: ev.Graph) -> str:
        """Makes one edit; says which."""
        way = _way(graph)
        middle = way[1:-1]
        kinds = ["insert", "move", "move", "move", "replace", "side"] + ["remove"] * (len(middle) > 2)
        kind = self.random.choice(kinds)
        if kind == "insert" or (kind == "replace" and not middle):
            return self._insert(graph, way)
        if kind == "move":
            name, node = self.random.choice(list(graph.stones)), self.random.choice(NODES)
            graph.move(name, node)
            return f"move {name} to {node}"
        if kind == "side":
            return self._side(graph)
        name = self.random.choice(middle)
        if graph.stones[name].kind != "filter" or name in self.frozen:
            # What it holds would be given up.
            return self._insert(graph, way)
        if kind == "remove":
            graph.remove(name)
        else:
            graph.replace(name, ev.Filter(f"input.seq > -{self.random.randrange(1, 99)}"))
        return f"{kind} {name}"

    def _insert(self, graph: ev.Graph, way: list[str]) -> str:
        self.made += 1
        at = self.random.randrange(len(way) - 1)
        name, node = f"s{self.made}", self.random.choice(NODES)
        stones = [
            lambda: ev.Filter(COUNTED, name=name, on=node),
            lambda: ev.Filter("1", name=name, on=node),
            lambda: ev.Storage(HELD, name=name, on=node),
            lambda: ev.Storage(HELD, path=f"{name}.db", name=name, on=node),
            lambda: ev.Queue(KEPT, inputs={"recs": _schema(graph)}, name=name, on=node),
        ]
        stone = self.random.choice(stones)()
        graph.insert(stone, after=way[at], before=way[at + 1])
        return f"insert {stone.kind} {name} on {node} after {way[at]}"

    def _side(self, graph: ev.Graph) -> str:
        if "side" in graph.stones:
            graph.remove("side")
            return "remove side"
        stone = ev.Terminal("desk:one", batch=True, name="side", on=self.random.choice(NODES))
        graph.link("recs", stone)
        return f"link side on {stone.on}"


def _schema(graph: ev.Graph) -> ev.Schema:
    (schema,) = graph.stones["recs"].emits(None)
    assert schema is not None
    return schema


def _way(graph: ev.Graph) -> list[str]:
    """The stones from recs to end, without the splits that the graph adds."""
    way, at = ["recs"], "recs"
    while at != "end":
        targets = [link.target for link in graph.links if link.source == at and link.target != "side"]
        (at,) = targets
        if graph.stones[at].kind != "split":
            way.append(at)
    return way


@pytest.mark.timeout(300)
@pytest.mark.parametrize("seed", range(FIRST, FIRST + SEEDS))
def test_random_changes_under_load_lose_double_and_reorder_nothing(tmp_path: Path, seed: int) -> None:
    changer, log = Changer(seed), list[str]()
    with (
        Yard(tmp_path, NODES) as yard,
        chain(*"abc").deploy(yard.hosts) as handle,
        feeding(handle["recs"]) as feeder,
    ):
        try:
            for number in range(CHANGES):
                if changer.random.random() < 0.2:
                    _freeze(changer, handle, log)
                else:
                    with handle.change() as graph:
                        log += [changer.edit(graph) for _ in range(changer.random.choice([1, 1, 1, 2, 3]))]
                    changer.frozen &= handle.graph.stones.keys()
                feeder.more(40)
                assert yard.placed("chain") == {
                    name: stone.on for name, stone in handle.graph.stones.items()
                }, number
            for name in sorted(changer.frozen):
                handle.unfreeze(name)
            count = feeder.end()
            handle.drain(20)
            _release(yard, handle, count)
            assert yard.seen == list(range(count))
            # What the side terminal had queued when it was removed frozen.
            assert {letter.stone for letter in handle.dead_letters()} <= {"side"}
            side = yard.others["one"]
            assert all(a < b for a, b in pairwise(side))
        except BaseException:
            print("\n".join([*log, str(_way(handle.graph)), f"{feeder.sent} sent, {len(yard.seen)} seen"]))
            print("\n".join(f"{name}: {stats}" for name, stats in handle.stats().items()))
            raise


def _freeze(changer: Changer, handle: ev.Deployment, log: list[str]) -> None:
    name = changer.random.choice([n for n, s in handle.graph.stones.items() if s.kind != "source"])
    log.append(f"freeze or unfreeze {name}")
    if name in changer.frozen:
        handle.unfreeze(name)
    else:
        handle.freeze(name)
    changer.frozen ^= {name}


def _release(yard: Yard, handle: ev.Deployment, count: int) -> None:
    """Lets go what the storage stones hold, first the last of them."""

    def settled() -> bool:
        held = sum(int(stats[name]["queued"]) for stats in [handle.stats()] for name in _way(handle.graph))
        return len(yard.seen) + held == count

    wait_for(settled, "all that is not held has arrived")
    storages = [name for name in reversed(_way(handle.graph)) if handle.graph.stones[name].kind == "storage"]
    # What one lets go is held by the next one, so each round frees one more.
    for _ in storages:
        for name in storages:
            handle.send_stored(name)
            wait_for(settled, "what was let go has arrived")
