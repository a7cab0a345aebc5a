"""Staging nodes and their root in several flows and processes, which are killed."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import h5py
import msgspec
import numpy as np
import pytest
from msgspec.structs import replace

import evflow as ev
from evflow.errors import StagingError
from evflow.staging import LeafStage, RootStage, Scheduler, Variable, Writer, tree
from evflow.staging.area import Root, Settings
from evflow.staging.linking import Downlinks, Here, Offered, Sent
from evflow.staging.messages import VERSION
from tests.examples import tried
from tests.node.processes import NodeProcess, free_port, wait_for
from tests.staging.application import HEAT, PLENTY, ROWS, heat, quarter, spread
from tests.staging.test_stage import read

QUARTER = 16 * 32 * 8


def four(folder: Path, budget: int = PLENTY, **settings: Any) -> list[Writer]:
    at = [folder / "left", folder / "left", folder / "right", folder / "right"]
    return [Writer(at[rank], rank, 4, [HEAT, ROWS], budget=budget, **settings) for rank in range(4)]


@pytest.fixture
def writers(tmp_path: Path) -> Iterator[list[Writer]]:
    made = four(tmp_path)
    yield made
    for writer in made:
        writer.close(timeout=0)


def check(folder: Path, steps: list[int]) -> None:
    """Exactly these steps are there, with the bytes that the writers had."""
    found = read(folder / "run.h5")
    assert found.step.values.tolist() == steps
    assert found.heat.values.tobytes() == np.array([heat(step) for step in steps]).tobytes()
    for place, step in enumerate(steps):
        rows = [quarter(rank, step)["rows"][0] for rank in range(4)]
        with h5py.File(folder / f"run.steps/{place}.h5") as file:
            assert np.array_equal(file["rows"][0], np.concatenate(rows))


def test_parts_of_two_staging_nodes_are_joined(tmp_path: Path, writers: list[Writer]) -> None:
    seen: list[Any] = []
    # Small pieces, and less memory than a step has at the root.
    graph = spread(seen, str(tmp_path), piece=5000, root_memory=2 * QUARTER)
    with graph.run() as flow:
        for step in (2, 3, 7):
            for rank, writer in enumerate(writers):
                writer.write(step, quarter(rank, step))
        for writer in writers:
            writer.drain(20)
            assert writer.fates() == [(2, ""), (3, ""), (7, "")]
        flow.drain(20)
    check(tmp_path, [2, 3, 7])
    assert seen == [one for step in (2, 3, 7) for one in (*([step, rank] for rank in range(4)), step)]


def test_staging_nodes_may_listen_at_relative_paths(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    rows = Variable("rows", "i4", (None,))
    graph = tree([rows], {"left": ("left", range(1)), "right": ("right", range(1, 2))}, "run.h5", root="disk")
    with graph.run():
        made = [Writer(name, rank, 2, [rows], budget=PLENTY) for rank, name in enumerate(("left", "right"))]
        for writer in made:
            writer.write(0, {"rows": (np.zeros(3, "i4"), (0,))})
        for writer in made:
            writer.close(20)
            assert writer.fates() == [(0, "")]


def test_a_wait_is_told_to_writers_of_other_staging_nodes(tmp_path: Path, writers: list[Writer]) -> None:
    with spread([], str(tmp_path)).run():
        for rank in (0, 1, 3):
            writers[rank].write(0, quarter(rank, 0))
        why = "right: rank 2 has not announced step 0 yet"
        wait_for(lambda: why in writers[0].why(), "the reason")
        writers[2].write(0, quarter(2, 0))
        writers[0].drain(20)


def test_without_a_root_budgets_fill_and_the_wait_has_a_reason(tmp_path: Path) -> None:
    made = four(tmp_path, 4096 + 2 * (QUARTER + 128))
    graph = spread([], str(tmp_path), memory=3 * QUARTER)
    left = ev.Node("left", peers={"disk": "tcp://127.0.0.1:9"})
    flow = graph.run(node=left)
    why = "the root has not been reached yet"
    # A writer that begins later is told the same.
    for rank in (1, 0):
        for step in range(2):
            made[rank].write(step, quarter(rank, step))
        wait_for(lambda rank=rank: why in made[rank].why(), "the reason")  # type: ignore[misc]
    with pytest.raises(StagingError, match=f"step 2 of rank 0 waits for .* {why}"):
        made[0].write(2, quarter(0, 2), timeout=0.05)
    flow.close(timeout=0)
    for writer in made:
        writer.close(timeout=0)


@pytest.mark.parametrize("other", [{"writers": 5}, {"variables": [HEAT]}])
def test_a_staging_node_of_another_area_is_refused(tmp_path: Path, other: dict[str, Any]) -> None:
    graph, (one, *_) = spread([], str(tmp_path)), four(tmp_path)
    leaf = graph.stones["leaf of left"]
    changed = LeafStage.from_settings(leaf.settings() | other)
    mixed = ev.Graph("mixed")
    mixed.add(RootStage.from_settings(graph.stones["root"].settings()))
    changed.name = "leaf"
    mixed.add(changed) >> mixed[next(iter(mixed.stones))]
    with mixed.run() as flow:
        wait_for(lambda: "expected the" in str([d.reason for d in flow.dead_letters()]), "the refusal")
    one.close(timeout=0)


@pytest.mark.parametrize(
    ("nodes", "words"),
    [
        ({}, "nodes"), ({"a": ("a", range(1, 2))}, "a range from 0 on"), ({"a": ("a", [0, 0])}, "a range of"),
        ({"a": ("a", range(2)), "b": ("b", range(3, 4))}, "a range from 2 on"),
        ({"a": ("a", 7)}, "a range of"), ({"a": "a"}, "nodes"), ({"a": ("a",)}, "nodes"), (["a"], "nodes"),
        (None, "nodes None: expected name of a node"),
        ({"a": ("a", range(65_537))}, "a range of ranks below 65536"),
        ({"a": ("a" * 101, range(1))}, "a path of 1 to 100 bytes"),
    ],
)  # fmt: skip
def test_staging_nodes_have_all_ranks_in_order(nodes: Any, words: str) -> None:
    with pytest.raises(StagingError, match=words):
        tree([Variable("heat", "f8", (4,))], nodes, "run.h5", root="disk")


@pytest.mark.parametrize("wrong", [{"root": None}, {"root": 5}, {"variables": None}, {"variables": 5}])
def test_a_tree_without_a_root_or_variables_is_refused(wrong: Any) -> None:
    given = {"variables": [HEAT], "nodes": {"a": ("a", range(2))}, "store": "run.h5", "root": "a"} | wrong
    with pytest.raises(StagingError, match=rf"tree: {next(iter(wrong))} (None|5): expected"):
        tree(**given)


def test_a_staging_node_that_makes_no_sense_is_refused() -> None:
    area, ranks = Settings([HEAT], 1, Scheduler(), 4096, PLENTY, "drop", 1.0), {"left": range(1)}
    links = Downlinks(Root(area, ranks, {}), area, ranks)
    told = Here(7, "", 1, (0,), (HEAT,))
    with pytest.raises(StagingError, match="version of staging 1: expected 2"):
        links.receive("left", Sent(0, 0, msgspec.msgpack.encode(told)), 0.0)
    for life in (0, 1 << 62):
        links.receive("left", Sent(0, 0, msgspec.msgpack.encode(replace(told, version=VERSION))), 0.0)
        session = [sent.session for _, sent in links.turn(None, 0.0)][-1]
        offered = Offered(0, (0.0,), ((0, life, (HEAT.block((64, 32)),)),), ())
        with pytest.raises(StagingError, match=f"rank 0: life {life}: expected a number of 62 bits"):
            links.receive("left", Sent(session, 1, msgspec.msgpack.encode(offered)), 0.0)


def test_settings_that_a_stone_does_not_have_are_refused_by_name() -> None:
    with pytest.raises(
        StagingError, match=r"leaf stage x: setting 'incomplete': expected one of scheduler, "
    ):
        LeafStage([HEAT], 4, "left", "left", range(2), name="x", incomplete="fill")
    with pytest.raises(StagingError, match=r"root stage: setting 'piece': expected one of memory, "):
        RootStage([HEAT], {"left": range(4)}, "run.h5", piece=5000)


def test_settings_describe_the_stones(tmp_path: Path) -> None:
    graph = spread([], str(tmp_path))
    for name in ("root", "leaf of left", "fates of right"):
        stone = graph.stones[name]
        assert type(stone).from_settings(stone.settings()).settings() == stone.settings()


@pytest.mark.slow
def test_killing_staging_nodes_and_the_root_loses_no_step(tmp_path: Path, writers: list[Writer]) -> None:
    common: dict[str, Any] = {"module": "tests.staging.application", "heartbeat": 0.5}
    common["settings"] = {"folder": str(tmp_path)}
    at, safe = f"tcp://127.0.0.1:{free_port()}", set[int]()
    with ExitStack() as stack:
        nodes = [stack.enter_context(NodeProcess("spread", "disk", listen=at, **common))]
        for name in ("left", "right"):
            nodes.append(stack.enter_context(NodeProcess("spread", name, peers={"disk": at}, **common)))
        ending = threading.Event()

        def kill() -> None:
            for number in range(tried(2)):
                wait_for(lambda before=writers[0].safe: writers[0].safe > before, "progress")
                victim = nodes[(1, 0, 2)[number % 3]]
                victim.kill()
                victim.restart()
            ending.set()

        killer = threading.Thread(target=kill)
        killer.start()
        step = 0
        while step < 30 or not ending.is_set():
            for rank, writer in enumerate(writers):
                writer.write(step, quarter(rank, step), timeout=60)
                safe |= {number for number, reason in writer.fates() if not reason}
            step += 1
            time.sleep(0.01)
        killer.join()
        for writer in writers:
            writer.close(60)
        assert writers[0].safe == step - 1
    assert safe
    check(tmp_path, list(range(step)))
