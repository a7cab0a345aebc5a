"""Random changes of a running graph while a thread submits, against a model in plain Python.

Each stone stamps the events that it passes on, so that what reaches a terminal tells the way it took. Every
event must have gone through the graph of one version as a whole, and later events through no earlier version.
"""

from __future__ import annotations

import os
import threading
from collections import defaultdict
from collections.abc import Callable
from random import Random

import pytest

import evflow as ev
from tests.examples import tried

MASK = (1 << 63) - 1
SEEDS = int(os.environ.get("EVFLOW_FLOW_SEEDS", "12"))

Outcome = list[tuple[str, int]]
"""What came of one event: terminal and stamp, sorted."""

Model = Callable[[int], Outcome]


class Rec(ev.Event):
    seq: int
    stamp: int = 0


class World:
    """A flow, the versions that its graph had, and what came to its terminals."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.seen: dict[str, list[tuple[int, int]]] = defaultdict(list)
        self.rules: dict[str, tuple[int, int, int]] = {}
        self.number = 0
        graph = ev.Graph("changing")
        graph.source("recs", Rec) >> self.stage() >> self.terminal()
        self.versions = [self.model(graph)]
        self.flow = graph.run(max_events=4096)

    # --- stones

    def rule(self) -> ev.Transform:
        """A stone without a name that stamps events, and drops some."""
        key, divisor, rest = self.random.randrange(1, 1000), self.random.choice([1, 1, 2, 3, 5]), 0
        if divisor > 1:
            rest = self.random.randrange(divisor)
        stays = f"input.seq % {divisor} == {rest}" if divisor > 1 else "1"
        stamped = f"output.stamp = (input.stamp * 31 + {key}) & {MASK};"
        code = f"{{ output.seq = input.seq; {stamped} return {stays}; }}"
        stone = ev.Transform(code, output=Rec, input=Rec)
        stone.rule = (key, divisor, rest)  # type: ignore[attr-defined]
        return stone

    def stage(self) -> ev.Transform:
        stone = self.rule()
        self.number += 1
        stone.name = f"stage{self.number}"
        return stone

    def terminal(self) -> ev.Terminal:
        self.number += 1
        name = f"end{self.number}"
        into = self.seen[name]
        return ev.Terminal(lambda event: into.append((event.seq, event.stamp)), name=name)

    # --- the model

    def model(self, graph: ev.Graph) -> Model:
        onward: dict[str, list[str]] = defaultdict(list)
        for link in graph.links:
            onward[link.source].append(link.target)
        stones = dict(graph.stones)

        def walk(name: str, seq: int, stamp: int) -> Outcome:
            stone = stones[name]
            if stone.kind == "terminal":
                return [(name, stamp)]
            if stone.kind == "transform":
                key, divisor, rest = stone.rule  # type: ignore[attr-defined]
                if seq % divisor != rest:
                    return []
                stamp = (stamp * 31 + key) & MASK
            return [found for target in onward[name] for found in walk(target, seq, stamp)]

        return lambda seq: sorted(walk("recs", seq, 0))

    # --- changes

    def edit(self, graph: ev.Graph) -> None:
        """One random edit; it may be refused, or make a graph that cannot run."""
        random = self.random
        stages = [name for name, stone in graph.stones.items() if stone.kind == "transform"]
        ends = [name for name, stone in graph.stones.items() if stone.kind == "terminal"]
        how = random.choice(["insert", "insert", "remove", "replace", "fan", "cross", "unlink", "end"])
        if how == "insert" and graph.links:
            link = random.choice(graph.links)
            graph.insert(self.stage(), after=link.source, before=link.target)
        elif how == "remove" and stages:
            graph.remove(random.choice(stages))
        elif how == "replace" and stages:
            graph.replace(random.choice(stages), self.rule())
        elif how == "fan":
            graph.link(random.choice([*stages, "recs"]), self.terminal())
        elif how == "cross":
            graph.link(random.choice([*stages, "recs"]), random.choice([*stages, *ends]))
        elif how == "unlink" and graph.links:
            link = random.choice(graph.links)
            graph.unlink(link.source, link.target)
        elif len(ends) > 1:
            graph.remove(random.choice(ends))

    def change(self) -> None:
        before = names_of(self.flow.graph)
        try:
            with self.flow.change() as graph:
                for _ in range(self.random.choice([1, 1, 2, 4])):
                    self.edit(graph)
                if len(graph.stones) > 14:
                    raise Enough
        except (ev.GraphError, Enough):
            assert names_of(self.flow.graph) == before
            return
        assert self.flow.graph is graph
        self.versions.append(self.model(graph))

    # --- what must hold

    def check(self, total: int) -> None:
        outcomes: dict[int, Outcome] = defaultdict(list)
        for name, events in self.seen.items():
            by_way: dict[int, int] = {}
            for seq, stamp in events:
                outcomes[seq].append((name, stamp))
                # A stamp tells the way, and along one way no event is overtaken.
                late = seq <= by_way.get(stamp, -1)
                assert not late or stamp in self.doubled(seq), (name, seq, by_way[stamp])
                by_way[stamp] = seq
        version = 0
        for seq in range(total):
            found = sorted(outcomes[seq])
            while version < len(self.versions) and self.versions[version](seq) != found:
                version += 1
            assert version < len(self.versions), f"event {seq}: no version gives {found}"
        assert len(self.flow.dead_letters()) == 0

    def doubled(self, seq: int) -> set[int]:
        """The stamps of which an event has two copies: two ways look alike."""
        return {
            stamp
            for model in self.versions
            for name, stamp in model(seq)
            if model(seq).count((name, stamp)) > 1
        }


class Enough(Exception):
    """The graph has grown too large."""


def names_of(graph: ev.Graph) -> tuple[list[str], list[object]]:
    return list(graph.stones), list(graph.links)


def feed(world: World, allowed: threading.Semaphore, stop: threading.Event) -> int:
    """Submits numbered events, single and in batches, as often as allowed; gives how many."""
    random, entry, seq = Random(1), world.flow["recs"], 0
    while allowed.acquire() and not stop.is_set():
        if random.random() < 0.5:
            entry.submit(Rec(seq))
            seq += 1
        else:
            count = random.randrange(1, 40)
            entry.submit_batch({"seq": list(range(seq, seq + count))})
            seq += count
    return seq


@pytest.mark.parametrize("seed", range(tried(4)))
def test_every_event_goes_through_one_version_of_the_graph(seed: int) -> None:
    run(seed, 25)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(100, 100 + SEEDS))
def test_every_event_goes_through_one_version_of_the_graph_many_times(seed: int) -> None:
    run(seed, 60)


def run(seed: int, changes: int) -> None:
    world = World(seed)
    submitted: list[int] = []
    stop, allowed = threading.Event(), threading.Semaphore(0)
    feeder = threading.Thread(target=lambda: submitted.append(feed(world, allowed, stop)))
    with world.flow:
        feeder.start()
        try:
            for _ in range(changes):
                allowed.release(40)
                world.change()
        finally:
            stop.set()
            allowed.release()
            feeder.join()
        world.flow.drain()
        world.check(submitted[0])
    assert len(world.versions) > changes // 4
