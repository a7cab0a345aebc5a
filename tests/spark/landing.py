"""What the tests of the Spark source share: rows, an engine that only notes, and a graph over two nodes."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

import evflow as ev
from evflow.spark.landing.actor import SourceActor


class Row(ev.Event):
    """A row of fixed width."""

    seq: int
    price: float = 0.0


class Note(ev.Event):
    """A row whose width varies."""

    seq: int
    text: str = ""


def rows(first: int, count: int, kind: Any = Row) -> ev.EventBatch:
    """Rows numbered from ``first`` on."""
    seq = np.arange(first, first + count)
    other = {"price": seq / 2} if kind is Row else {"text": ["x" * (n % 7) for n in seq.tolist()]}
    return ev.EventBatch.from_columns(kind, {"seq": seq, **other})


def appending(batch: ev.EventBatch, task: int, first: int) -> dict[str, Any]:
    """The question with which a task of Spark sends rows."""
    return {"ask": "append", "task": task, "first": first, "rows": len(batch), "data": batch.to_bytes()}


class Notes:
    """A context that notes what an actor does."""

    home = ("", "rows")

    def __init__(self) -> None:
        self.attributes: dict[str, int | float | str] = {}
        self.emitted: list[tuple[int | None, list[int]]] = []
        self.faults: list[int] = []
        self.dropped = self.taken = 0
        self.woken = 0

    def emit(self, batch: ev.EventBatch, port: int = 0, number: int | None = None) -> None:
        self.emitted.append((number, batch["seq"].tolist()))

    def fault(self, batch: ev.EventBatch, reason: object) -> None:
        self.faults += batch["seq"].tolist()

    def drop(self, count: int) -> None:
        self.dropped += count

    def take(self, count: int) -> None:
        self.taken += count

    def wake(self) -> None:
        self.woken += 1

    @property
    def seen(self) -> list[int]:
        """All that was emitted."""
        return [seq for _, batch in self.emitted for seq in batch]


class Desk:
    """A Spark source with such a context, and what Spark does with it."""

    def __init__(self, folder: Path | None = None, kind: Any = Row, **settings: Any) -> None:
        self.notes = Notes()
        self.kind = kind
        self.stone = ev.SparkSource(kind, folder=folder, **settings)
        self.actor: SourceActor = self.stone.open(self.notes)  # type: ignore[arg-type, assignment]

    def ask(self, ask: str, **question: Any) -> Any:
        return self.actor.answer({"ask": ask, **question})

    def begin(self, job: str = "job", epoch: int = 0, partition: int = 0, attempt: int = 0) -> int:
        schema = self.kind.schema.description
        found = self.ask("begin", job=job, epoch=epoch, partition=partition, attempt=attempt, schema=schema)
        assert not found["done"]
        return int(found["task"])

    def send(self, task: int, first: int, count: int, seq: int | None = None) -> None:
        self.append(task, first, rows(first if seq is None else seq, count, self.kind))

    def append(self, task: int, first: int, batch: ev.EventBatch) -> None:
        found = self.actor.answer(appending(batch, task, first))
        assert found["rows"] >= first + len(batch)

    def landed(self, task: int) -> int:
        return int(self.ask("end", task=task)["rows"])

    def commit(self, tasks: list[tuple[int, int, int]], job: str = "job", epoch: int = 0) -> int:
        listed = [list(one) for one in tasks]
        return int(self.ask("commit", job=job, epoch=epoch, tasks=listed)["rows"])

    def release(self, settle: bool = True) -> list[int]:
        """Has all leave that can."""
        before = len(self.notes.seen)
        while self.actor.busy:
            self.actor.wake(time.monotonic())
        if settle:
            self.actor.settled(self.actor.mark())
        return self.notes.seen[before:]

    def tasks(self) -> list[int]:
        """The tasks that are not decided."""
        return sorted(self.actor._store.ledger.tasks)

    def files(self) -> list[Path]:
        """The files of rows that are there."""
        return list((self.actor._store.folder.path / "rows").iterdir())


def killed(folder: Path, to: Path) -> Path:
    """A folder as a kill at this moment leaves it."""
    shutil.rmtree(to, ignore_errors=True)
    shutil.copytree(folder, to)
    return to


def flowing(
    seen: list[Any], folder: str | None = None, last: str = "last", slow: float = 0.0, kind: str = "Row"
) -> ev.Graph:
    """A Spark source on the node "middle", whose rows go to a terminal on another."""
    graph = ev.Graph("rows")
    source = ev.SparkSource(globals()[kind], folder=folder, name="rows", on="middle")
    graph.add(source) >> ev.Terminal(_noting(seen, slow), batch=True, name="end", on=last)
    return graph


def _noting(seen: list[Any], slow: float) -> Callable[[ev.EventBatch], None]:
    def note(batch: ev.EventBatch) -> None:
        time.sleep(slow)
        seen.extend(batch["seq"].tolist())

    return note
