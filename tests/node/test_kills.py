"""Processes killed with ``kill -9`` while events flow: nothing is lost, and nothing comes twice."""

from __future__ import annotations

import os
import random
import time
from contextlib import ExitStack
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import evflow as ev
from evflow.flow import entry
from evflow.net.link.outlet import Outlet
from tests.node import graphs
from tests.node.processes import NodeProcess, free_port, running, wait_for

pytestmark = pytest.mark.slow

BEAT = 0.1
KILLS = int(os.environ.get("EVFLOW_KILLS", "5"))
EVENTS = 50_000 * KILLS
BATCH = 1_000
LITTLE = {"max_bytes": 1 << 16}
"""So that who submits waits for the chain, and the kills meet events on their way."""


def _submit(flow: ev.Flow, start: int, stop: int) -> None:
    for at in range(start, stop, BATCH):
        flow["recs"].submit_batch({"seq": list(range(at, min(at + BATCH, stop)))}, timeout=30)


def test_the_middle_process_killed_at_random_moments_loses_and_doubles_nothing() -> None:
    """Kills spread over the events: all of them arrive, once and in order."""
    randomness = random.Random(3)
    share = EVENTS // KILLS
    moments = [share * i + randomness.randrange(share // BATCH) * BATCH for i in range(KILLS)]
    settings = {"limit": 1 << 18}
    with (
        NodeProcess("chain", "last", settings=settings, listen="tcp://127.0.0.1:0", heartbeat=BEAT) as last,
        NodeProcess(
            "chain", "middle", settings=settings, listen=f"tcp://127.0.0.1:{free_port()}",
            peers={"last": last.contact}, heartbeat=BEAT,
        ) as middle,
    ):  # fmt: skip
        node = ev.Node("first", peers={"middle": middle.contact}, heartbeat=BEAT)
        with running(graphs.chain([], **settings), node, **LITTLE) as flow:
            owing = 0
            for start, stop in pairwise([0, *moments, EVENTS]):
                _submit(flow, start, stop)
                if stop < EVENTS:
                    # Started again at once, so the next kill may come while it still connects.
                    owing += node.links()["middle"]["waiting"] > 0
                    middle.kill()
                    middle.restart()
            flow.drain(30)
            sessions = node.links()["middle"]["sessions"]
        arrived = last.ask("seen")
    assert arrived == list(range(EVENTS))
    # The kills met events that were not safe yet, and each ended a session.
    assert owing > KILLS // 2
    assert sessions > KILLS // 2


def test_what_is_sent_at_once_survives_the_kills_of_its_receiver(monkeypatch: pytest.MonkeyPatch) -> None:
    """Events that the submitting thread sends itself, one by one: all arrive, once and in order."""
    at_once: list[int] = []
    went = Outlet.went

    def noting(self: Outlet, batch: ev.EventBatch, counts: list[int]) -> None:
        at_once.append(batch.rows)
        went(self, batch, counts)

    monkeypatch.setattr(Outlet, "went", noting)
    monkeypatch.setattr(entry, "_MANY", 1)
    randomness = random.Random(5)
    with (
        NodeProcess("chain", "last", listen="tcp://127.0.0.1:0", heartbeat=BEAT) as last,
        NodeProcess(
            "chain", "middle", listen=f"tcp://127.0.0.1:{free_port()}", peers={"last": last.contact},
            heartbeat=BEAT,
        ) as middle,
    ):  # fmt: skip
        node = ev.Node("first", peers={"middle": middle.contact}, heartbeat=BEAT)
        with running(graphs.chain([]), node, **LITTLE) as flow:
            number = 0
            for kill in range(KILLS):
                for _ in range(randomness.randrange(300, 600)):
                    flow["recs"].submit(graphs.Rec(number))
                    number += 1
                    if number % 10 == 0:
                        time.sleep(0.0005)
                if kill < KILLS - 1:
                    middle.kill()
                    middle.restart()
            flow.drain(30)
        arrived = last.ask("seen")
    assert arrived == list(range(number))
    assert sum(at_once) > 0


def test_the_last_process_killed_loses_nothing_and_doubles_only_what_it_had_in_hand(tmp_path: Path) -> None:
    """With a journal; what it handled is in a file, since its memory dies with it."""
    randomness = random.Random(4)
    written, batch = tmp_path / "written", 50
    settings = {"file": str(written), "limit": 1 << 16}
    with NodeProcess(
        "to_file", "there", settings=settings, listen=f"tcp://127.0.0.1:{free_port()}",
        journal=str(tmp_path / "journal"), heartbeat=BEAT,
    ) as there:  # fmt: skip
        node = ev.Node("here", peers={"there": there.contact}, heartbeat=BEAT)
        with running(graphs.to_file([], **settings), node, **LITTLE) as flow:
            count = 0
            for kill in range(5):
                goal = count + randomness.randrange(2_000, 6_000)
                for at in range(count, goal, batch):
                    flow["recs"].submit_batch({"seq": list(range(at, at + batch))}, timeout=30)
                count = at + batch
                if kill < 4:
                    there.kill()
                    there.restart()
            flow.drain(30)
    handled = [int(line) for line in written.read_text().split()]
    breaks = [i for i in range(1, len(handled)) if handled[i] != handled[i - 1] + 1]
    assert set(handled) == set(range(count))
    # Each kill goes back once at most, by no more than what was on its way.
    assert len(breaks) <= 4
    assert all(0 <= handled[i - 1] + 1 - handled[i] <= 32 * (1 << 16) // 16 for i in breaks)
    assert handled[:1] == [0]


def test_a_node_with_a_storage_file_killed_loses_nothing(tmp_path: Path) -> None:
    """What it held is in the file; what it let go and was not safe yet goes on again, recognisably."""
    settings = {"path": str(tmp_path / "store"), "limit": 500}
    with (
        NodeProcess("stored", "last", settings=settings, listen="tcp://127.0.0.1:0", heartbeat=BEAT) as last,
        NodeProcess(
            "stored", "middle", settings=settings, listen=f"tcp://127.0.0.1:{free_port()}",
            peers={"last": last.contact}, heartbeat=BEAT,
        ) as middle,
    ):  # fmt: skip
        node = ev.Node("first", peers={"middle": middle.contact}, heartbeat=BEAT)
        with running(graphs.stored([], **settings), node, **LITTLE) as flow:
            for kill in range(4):
                _submit(flow, kill * 5_000, kill * 5_000 + 5_000)
                if kill < 3:
                    middle.kill()
                    middle.restart()
            flow.drain(30)
        middle.ask("drain")
        while middle.ask("send_stored", stone="store"):
            middle.ask("drain")
        arrived: list[Any] = wait_for(lambda: last.ask("seen"), "events at the last process")
    assert set(arrived) == set(range(20_000))


def test_a_process_killed_before_it_ever_answered_delays_only() -> None:
    with NodeProcess("pair", "there", listen=f"tcp://127.0.0.1:{free_port()}", heartbeat=BEAT) as there:
        there.kill()
        node = ev.Node("here", peers={"there": there.contact}, heartbeat=BEAT)
        with running(graphs.pair([]), node) as flow:
            _submit(flow, 0, 3 * BATCH)
            there.restart()
            flow.drain(20)
        assert there.ask("seen") == list(range(3 * BATCH))


def test_the_source_process_killed_doubles_nothing_of_what_it_had_sent() -> None:
    """The new process is another source: its events are new, and those before stay as they were."""
    with NodeProcess("pair", "there", listen="tcp://127.0.0.1:0", heartbeat=BEAT) as there:
        with NodeProcess("pair", "here", peers={"there": there.contact}, heartbeat=BEAT) as here:
            for run in range(3):
                here.ask("submit", stone="recs", columns={"seq": [run * 10 + i for i in range(10)]})
                here.ask("drain")
                here.kill()
                here.restart()
        assert there.ask("seen") == list(range(30))


def test_large_frames_through_shared_memory_survive_kills() -> None:
    """Batches of half a megabyte; the middle process reads one piece of memory and writes another."""
    batch, total = 30_000, 1_800_000
    with (
        NodeProcess("chain", "last", listen="tcp://127.0.0.1:0", heartbeat=BEAT) as last,
        NodeProcess(
            "chain",
            "middle",
            listen=f"tcp://127.0.0.1:{free_port()}",
            peers={"last": last.contact},
            heartbeat=BEAT,
        ) as middle,
    ):
        node = ev.Node("first", peers={"middle": middle.contact}, heartbeat=BEAT)
        with running(graphs.chain([]), node, **LITTLE) as flow:
            for at in range(0, total, batch):
                flow["recs"].submit_batch({"seq": np.arange(at, at + batch)}, timeout=30)
                if at // batch % 20 == 9:
                    middle.kill()
                    middle.restart()
            flow.drain(30)
        assert last.ask("seen") == list(range(total))


def test_the_middle_of_a_diamond_killed_loses_and_doubles_nothing() -> None:
    """Two source processes lead to one that splits; its kills meet frames of both, for both ways on."""
    settings = {"sources": ["north", "south"], "limit": 1 << 17}
    share = 100_000
    with (
        NodeProcess(
            "gathered", "last", settings=settings, listen="tcp://127.0.0.1:0", heartbeat=BEAT
        ) as last,
        NodeProcess(
            "gathered", "middle", settings=settings, listen=f"tcp://127.0.0.1:{free_port()}",
            peers={"last": last.contact}, heartbeat=BEAT,
        ) as middle,
        ExitStack() as stack,
    ):  # fmt: skip
        sources = []
        for number, name in enumerate(settings["sources"]):
            source = NodeProcess(
                "gathered",
                name,
                settings=settings,
                peers={"middle": middle.contact},
                heartbeat=BEAT,
                flow=LITTLE,
            )
            sources.append(stack.enter_context(source))
            source.tell("submit_many", stone=name, start=number * share, stop=(number + 1) * share, batch=37)
        before = 0
        for _ in range(3):
            before = wait_for(lambda: (n := last.ask("count")) > before and n, "more events")  # noqa: B023
            middle.kill()
            middle.restart()
        assert before < 2 * share
        for source in sources:
            source.answer("submit_many", 60)
            source.ask("drain")
        arrived = last.ask("seen")
    assert sorted(arrived) == list(range(2 * share))
    # In order for each source and each way.
    for way in (0, 1):
        for number in (0, 1):
            part = [seq for seq in arrived if seq % 2 == way and seq // share == number]
            assert part == sorted(part)
