"""Terminals with workers behind a bridge: nothing is acknowledged before its handler has returned."""

from __future__ import annotations

import random
import threading
from pathlib import Path
from typing import Any

import pytest

import evflow as ev
from tests.node import graphs
from tests.node.processes import NodeProcess, free_port, running, wait_for

BEAT = 0.1
LANES = 7


def _between_nodes(handler: Any, **settings: Any) -> ev.Graph:
    g = ev.Graph("between")
    recs = g.source("recs", graphs.Laned, on="here")
    recs >> ev.Terminal(handler, name="end", on="there", **settings)
    return g


@pytest.mark.slow
def test_a_drain_waits_for_workers_of_another_node() -> None:
    begun, hold, seen = threading.Event(), threading.Event(), []

    def handle(event: Any) -> None:
        begun.set()
        assert hold.wait(60)
        seen.append(event.seq)

    g = _between_nodes(handle, workers=2)
    there = ev.Node("there", listen="tcp://127.0.0.1:0", heartbeat=BEAT)
    here = ev.Node("here", peers={"there": there.contact}, heartbeat=BEAT)
    with running(g, there), running(g, here) as flow:
        try:
            flow["recs"].submit_batch({"seq": [0, 1, 2], "lane": [0, 0, 0]})
            assert begun.wait(30)
            with pytest.raises(ev.FlowError, match="'recs→end' to there: 3 events wait"):
                flow.drain(0.5)
        finally:
            hold.set()
        flow.drain(30)
        assert seen == [0, 1, 2]


def test_bridges_of_two_stones_are_two_entrances() -> None:
    """Their events are handled at the same time."""
    both = threading.Barrier(2, timeout=30)
    g = ev.Graph("two ways")
    end = g.add(ev.Terminal(lambda event: both.wait(), workers=2, name="end", on="there"))
    for name in ("a", "b"):
        g.source(name, graphs.Laned, on="here") >> end
    there = ev.Node("there", listen="tcp://127.0.0.1:0", heartbeat=BEAT)
    here = ev.Node("here", peers={"there": there.contact}, heartbeat=BEAT)
    with running(g, there) as far, running(g, here) as flow:
        for name in ("a", "b"):
            flow[name].submit(graphs.Laned(seq=1, lane=0))
        flow.drain(30)
        stats = far.stats()["end"]
        assert (stats["in"], stats["errors"]) == (2, 0)


@pytest.mark.slow
def test_a_process_killed_while_its_workers_are_busy_loses_nothing(tmp_path: Path) -> None:
    """What it had in hand comes again, in order for each key."""
    randomness = random.Random(7)
    written, batch, kills = tmp_path / "written", 50, 4
    settings = {"file": str(written), "limit": 1 << 16}
    with NodeProcess(
        "worked", "there", settings=settings, listen=f"tcp://127.0.0.1:{free_port()}",
        journal=str(tmp_path / "journal"), heartbeat=BEAT,
    ) as there:  # fmt: skip
        node = ev.Node("here", peers={"there": there.contact}, heartbeat=BEAT)
        with running(graphs.worked([], **settings), node, max_bytes=1 << 16) as flow:
            count = 0
            for kill in range(kills + 1):
                goal = count + randomness.randrange(1_000, 3_000)
                for at in range(count, goal, batch):
                    numbers = list(range(at, at + batch))
                    flow["recs"].submit_batch(
                        {"seq": numbers, "lane": [number % LANES for number in numbers]}, timeout=60
                    )
                count = at + batch
                wait_for(written.exists, "the first events")
                if kill < kills:
                    there.kill()
                    there.restart()
            flow.drain(60)
    handled = [int(line) for line in written.read_text().split()]
    assert set(handled) == set(range(count))
    for lane in range(LANES):
        own = [number for number in handled if number % LANES == lane]
        # Each kill goes back once at most.
        backwards = [i for i in range(1, len(own)) if own[i] <= own[i - 1]]
        assert len(backwards) <= kills
        # Nothing is left out, but what had been handled before the kill.
        most = -1
        for number in own:
            assert number <= most or number == (lane if most < 0 else most + LANES)
            most = max(most, number)
