"""The stone of a staging node: writers of its host connect to it, and it commits what they write."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from evflow.errors import EvflowError, StagingError
from evflow.events.batch import EventBatch
from evflow.outside import shown
from evflow.schema import Schema
from evflow.schema.types import f64, i64
from evflow.staging.area import Incomplete, Root, StagingNode
from evflow.staging.model import MOST_WRITERS, Variable, by_name
from evflow.staging.schedulers import Scheduler, scheduler_of
from evflow.staging.serving import NODE, Serving
from evflow.staging.stores import open_store
from evflow.stone import Acting, Actor, Context, checked_integer

__all__ = ["Committed", "Stage"]

Committed = Schema("committed", {"step": i64, "time": f64})
"""The event of a ``Stage`` for each step that it has committed."""


class Stage(Acting):
    """Pulls the steps of writers on its host, puts them together and commits them; emits an event for each.

    Args:
        variables: what the writers write, as they declare it.
        writers: how many there are.
        listen: the path at which it listens for them, at most 100 bytes.
        store: a file ``NAME.h5`` or a folder ``NAME.zarr``; on a daemon within the daemon's folder.
        scheduler: when it pulls what; by default at once, in the order of announcements.
        piece: bytes that it pulls at a time, at most.
        memory: bytes of steps that it may hold. The oldest step is pulled even beyond that.
        incomplete: what becomes of a step that lacks the part of a writer: "drop", or "fill" with NaN or the
            lowest number.
        patience: seconds that a step waits for a writer that is not connected.
        name: the stone's name.
        on: the node it is placed on.

    Raises:
        StagingError: a setting is wrong.

    Example:
        >>> import tempfile
        >>> import evflow as ev
        >>> from evflow import staging
        >>> heat = staging.Variable("heat", "f8", (4, 3))
        >>> g = ev.Graph("heat")
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     stage = staging.Stage([heat], 1, f"{folder}/socket", f"{folder}/heat.h5", name="stage")
        ...     _ = g.add(stage) >> ev.Terminal(lambda done: print("step", done.step, "is on the disk"))
        ...     with g.run(), staging.Writer(f"{folder}/socket", 0, 1, [heat], budget=1 << 16) as writer:
        ...         with writer.step(7, [heat.block((4, 3))]) as arrays:
        ...             arrays["heat"][...] = 1.5
        step 7 is on the disk
    """

    kind = "stage"
    linked_ports = "free"
    wakes = True

    def __init__(
        self,
        variables: Iterable[Variable | list[Any]],
        writers: int,
        listen: str | Path,
        store: str | Path,
        *,
        scheduler: Scheduler | list[Any] | None = None,
        piece: int = 1 << 20,
        memory: int = 1 << 30,
        incomplete: Incomplete = "drop",
        patience: float = 60.0,
        name: str | None = None,
        on: str | None = None,
    ) -> None:
        super().__init__(name=name, on=on)
        what = f"stage {name or ''}".strip()
        self.variables = by_name(
            one
            if isinstance(one, Variable)
            else Variable(one[0], one[1], tuple(one[2]), tuple(one[3]), one[4])
            for one in variables
        )
        self.writers = checked_integer(f"{what}: writers", writers)
        if writers > MOST_WRITERS:
            raise StagingError(f"{what}: writers {writers}: expected at most {MOST_WRITERS}")
        self.listen, self.store = Path(listen), Path(store)
        if not self.listen.name or len(os.fsencode(self.listen)) > 100 or "\0" in str(self.listen):
            raise StagingError(
                f"{what}: listen {shown(str(listen), 200)}: expected a path of at most 100 bytes"
            )
        if self.store.suffix not in (".h5", ".zarr"):
            raise StagingError(f"{what}: store {self.store}: expected a name that ends in .h5 or .zarr")
        if scheduler is None:
            scheduler = Scheduler()
        self.scheduler = scheduler if isinstance(scheduler, Scheduler) else scheduler_of(scheduler)
        self.piece = checked_integer(f"{what}: piece", piece, 4096)
        self.memory = checked_integer(f"{what}: memory", memory)
        if incomplete not in ("drop", "fill"):
            raise StagingError(f"{what}: incomplete {incomplete!r}: expected 'drop' or 'fill'")
        if not isinstance(patience, int | float) or not patience >= 0:
            raise StagingError(f"{what}: patience {patience!r}: expected seconds, 0 or more")
        self.incomplete, self.patience = incomplete, patience

    @property
    def inputs(self) -> Mapping[str, Schema | None]:
        return {}

    def emits(self, schema: Schema | None) -> tuple[Schema | None, ...]:
        return (Committed,)

    @property
    def files(self) -> tuple[Path, ...]:
        return (self.store,)

    def keep_in(self, folder: Path) -> None:
        self.store = folder / self.store

    def settings(self) -> dict[str, Any]:
        return {
            "variables": [
                [v.name, v.dtype, list(v.shape), list(v.dimensions), dict(v.attributes)]
                for v in self.variables.values()
            ],
            "writers": self.writers, "listen": str(self.listen), "store": str(self.store),
            "scheduler": self.scheduler.plain(), "piece": self.piece, "memory": self.memory,
            "incomplete": self.incomplete, "patience": self.patience,
        }  # fmt: skip

    def open(self, context: Context) -> Actor:
        return _Stage(context, self)


# Daemons allow it by this name.
Stage.__module__ = "evflow.staging"


class _Stage(Actor):
    def __init__(self, context: Context, stone: Stage) -> None:
        super().__init__(context)
        ranks = range(stone.writers)
        scheduler = scheduler_of(stone.scheduler.plain())
        try:
            store = open_store(stone.store, stone.variables)
        except OSError as error:
            raise StagingError(f"store {stone.store} cannot be opened: {error}") from None
        node = StagingNode(
            stone.variables,
            ranks,
            stone.writers,
            scheduler,
            stone.piece,
            stone.memory,
            stone.patience,
            store.done,
        )
        root = Root(stone.variables, {NODE: ranks}, stone.incomplete, stone.patience, store.done)
        try:
            self._serving = Serving(stone.listen, node, root, store, context.wake)
        except OSError as error:
            store.close()
            raise StagingError(f"stage cannot listen at {stone.listen}: {error}") from None

    def wake(self, now: float) -> float | None:
        serving, told = self._serving, self.context.attributes
        told["why"] = serving.why
        if not serving.committed:
            return None
        rows = [serving.committed.popleft() for _ in range(len(serving.committed))]
        told["committed"] = rows[-1][0]
        steps, times = zip(*rows, strict=True)
        self.context.take(len(rows))
        self.context.emit(EventBatch.from_columns(Committed, {"step": list(steps), "time": list(times)}))
        return None

    @property
    def busy(self) -> str:
        serving = self._serving
        if serving.committed:
            return f"{len(serving.committed)} committed steps are told of"
        return "" if serving.failure else serving.why

    @property
    def failure(self) -> EvflowError | None:
        failure = self._serving.failure
        return None if failure is None else StagingError(f"the stage has ended: {failure!r}")

    def close(self) -> None:
        self._serving.close()
