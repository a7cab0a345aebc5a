"""A node with a Spark source is killed with ``kill -9`` at any moment: every row leaves it once, in order."""

from __future__ import annotations

import os
import random
import threading
import time
from pathlib import Path

import pytest

import evflow as ev
from evflow.flow.flow import Flow
from tests.node.processes import NodeProcess, free_port, running
from tests.spark.landing import Row, appending, flowing, rows

pytestmark = pytest.mark.slow

BEAT = 0.1
KILLS = int(os.environ.get("EVFLOW_KILLS", "3"))
PARTITIONS, ROWS, PIECE = 3, 60_000, 10_000


class Driver:
    """What Spark does: tasks that are tried again until their rows are there, and a commit of each epoch."""

    def __init__(self, flow: ev.Flow, contact: str, again: random.Random) -> None:
        self._flow, self._contact, self._random = flow, contact, again
        self.attempts = 0

    def ask(self, ask: str, **question: object) -> dict[str, int]:
        return self.answer({"ask": ask, **question})

    def answer(self, question: dict[str, object]) -> dict[str, int]:
        while True:
            try:
                answer: dict[str, int] = self._flow.ask(self._contact, "rows", question, 2.0)
                return answer
            except ev.LinkError:
                continue

    def epoch(self, epoch: int, first: int) -> None:
        done = False
        while not done:
            tasks = [self._task(epoch, p, first + p * ROWS) for p in range(PARTITIONS)]
            self._random.shuffle(tasks)
            try:
                answer = self.ask("commit", job="query", epoch=epoch, tasks=tasks)
                assert answer == {"rows": PARTITIONS * ROWS}
                done = True
            except ev.FlowError as error:
                assert "not known" in str(error)

    def _task(self, epoch: int, partition: int, seq: int) -> list[int]:
        while True:
            self.attempts += 1
            begun = self.ask(
                "begin",
                job="query",
                epoch=epoch,
                partition=partition,
                attempt=self.attempts,
                schema=Row.schema.description,
            )
            task = begun["task"]
            if begun["done"]:
                return [partition, task, ROWS]
            try:
                for at in range(0, ROWS, PIECE):
                    self.answer(appending(rows(seq + at, PIECE), task, at))
                assert self.ask("end", task=task)["rows"] == ROWS
                return [partition, task, ROWS]
            except ev.FlowError as error:
                assert "not known" in str(error)


@pytest.mark.parametrize("seed", [1, 2])
def test_a_source_killed_at_random_moments_loses_and_doubles_nothing(tmp_path: Path, seed: int) -> None:
    """Rows land, are committed and leave meanwhile; a terminal on another node has each of them once."""
    randomness = random.Random(seed)
    seen: list[int] = []
    last = ev.Node("last", listen="tcp://127.0.0.1:0", heartbeat=BEAT)
    settings = {"folder": str(tmp_path / "kept")}
    with (
        running(flowing(seen, slow=0.002), last),
        NodeProcess(
            "flowing", "middle", module="tests.spark.landing", settings=settings,
            listen=f"tcp://127.0.0.1:{free_port()}", peers={"last": last.contact}, heartbeat=BEAT,
        ) as middle,
    ):  # fmt: skip
        epochs = 0
        over = threading.Event()

        def kill() -> None:
            for _ in range(KILLS):
                time.sleep(randomness.uniform(0.02, 0.7))
                middle.kill()
                middle.restart()
            over.set()

        with Flow.empty("driver", node=ev.Node("driver", heartbeat=BEAT)) as flow:
            driver = Driver(flow, middle.contact, random.Random(seed))
            killing = threading.Thread(target=kill)
            killing.start()
            while not over.is_set() or not epochs:
                driver.epoch(epochs, epochs * PARTITIONS * ROWS)
                epochs += 1
            killing.join()
            middle.ask("drain")
        left = list((tmp_path / "kept" / "rows").iterdir())
    assert seen == list(range(epochs * PARTITIONS * ROWS))
    assert left == []
