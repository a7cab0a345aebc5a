"""Where a staging node has steps: in the memory of their writers, or in copies."""

from __future__ import annotations

import fcntl
import gc
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from evflow.net.node.arena import SEALS
from evflow.staging import All, ConstantDrain, InOrder, RateLimit, Writer
from evflow.staging.messages import Ready
from evflow.staging.pulling import Transfer
from evflow.staging.serving import Source
from tests.node.processes import wait_for
from tests.staging.application import HEAT, PLENTY, write
from tests.staging.test_stage import HALF, check, staged, writers

__all__ = ["writers"]


def test_memory_that_cannot_be_had_is_waited_for(
    tmp_path: Path, writers: list[Writer], monkeypatch: Any
) -> None:
    real, tries = np.empty, list[int]()
    monkeypatch.setattr("evflow.staging.serving.AGAIN", 0.05)

    def empty(*arguments: Any) -> Any:
        if arguments == (HALF, np.uint8) and len(tries) < 3:
            tries.append(HALF)
            raise MemoryError
        return real(*arguments)

    graph, _ = staged(tmp_path, scheduler=RateLimit(1e12))
    with graph.run():
        monkeypatch.setattr(np, "empty", empty)
        for step in range(3):
            for rank, writer in enumerate(writers):
                write(writer, rank, step)
        writers[0].drain(20)
    assert len(tries) == 3
    check(tmp_path / "run.h5", [0, 1, 2])


@pytest.mark.parametrize(
    ("full", "scheduler", "copies"),
    [
        ("block", ConstantDrain(1), 0),
        ("block", All([InOrder(), RateLimit(1e12)]), 2),
        ("drop oldest", ConstantDrain(1), 2),
    ],
)
def test_what_stays_where_it_is_is_not_copied(
    tmp_path: Path, monkeypatch: Any, full: Any, scheduler: Any, copies: int
) -> None:
    copied: list[int] = []

    def copy(size: int) -> Any:
        copied.append(size)
        return np.empty(size, np.uint8)

    monkeypatch.setattr("evflow.staging.serving.aligned", copy)
    graph, _ = staged(tmp_path, scheduler=scheduler, live={"heat": (32, 32)})
    with graph.run():
        made = [Writer(tmp_path / "socket", rank, 2, [HEAT], budget=PLENTY, full=full) for rank in range(2)]
        for rank, writer in enumerate(made):
            write(writer, rank, 0)
        for writer in made:
            writer.close()
    check(tmp_path / "run.h5", [0])
    assert copied == [HALF] * copies


def test_memory_of_a_writer_goes_with_the_writer(tmp_path: Path) -> None:
    def mapped() -> int:
        gc.collect()
        return Path("/proc/self/maps").read_text().count("evflow-staging")

    before = mapped()
    graph, _ = staged(tmp_path)
    with graph.run():
        made = [Writer(tmp_path / "socket", rank, 2, [HEAT], budget=PLENTY) for rank in range(2)]
        for rank, writer in enumerate(made):
            write(writer, rank, 0)
        assert mapped() > before
        for writer in made:
            writer.close()
        del made, writer
        wait_for(lambda: mapped() <= before, "the memory to be let go of")


def test_memory_that_could_go_is_not_used_where_it_is() -> None:
    block = HEAT.block((32, 32))
    for seals in (0, SEALS):
        file = os.memfd_create("test", os.MFD_ALLOW_SEALING)
        os.ftruncate(file, 4096 + HALF)
        fcntl.fcntl(file, fcntl.F_ADD_SEALS, seals)
        source = Source(file, True, True)
        for start in (4096, 4097, 1 << 61):
            there = Transfer(0, 1, Ready(0, 0.0, (block,), start, 1, 0), source, 0.0, {})
            assert [len(found) for found in source.blocks(there)] == [HALF] * (start == 4096 and seals > 0)
            assert source.read(np.empty(HALF, np.uint8), start) == (start == 4096)
