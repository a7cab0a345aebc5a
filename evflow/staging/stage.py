"""The stone of a staging node: writers of its host connect to it, and it commits what they write."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from copy import deepcopy
from pathlib import Path
from typing import Any

import msgspec

from evflow.errors import StagingError
from evflow.schema import Schema
from evflow.staging.above import Near
from evflow.staging.area import Incomplete, Root, Settings, StagingNode
from evflow.staging.committing import Committed, Committing
from evflow.staging.linking import NODE
from evflow.staging.model import MOST_WRITERS, Variable, by_name, check_path, expect
from evflow.staging.schedulers import Scheduler
from evflow.staging.serving import Serving
from evflow.staging.stores import Store, open_store
from evflow.stone import Acting, Actor, Context, checked_integer

__all__ = ["Committed", "Stage"]


class Stage(Acting):
    """Pulls the steps of writers on its host, puts them together and commits them.

    Port 0 emits an event ``Committed`` for each step that is in the store. The blocks of the variables in
    ``live`` leave by the ports 1, 2, … when the step is whole, before it is committed.

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
        live: variables whose blocks leave, and the shape that all their blocks have. The events have the
            schema ``variable.event(shape)``. They come again if the node is killed before the commit.
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
    emits_by_port = True
    wakes = True

    def __init__(
        self,
        variables: Iterable[Variable],
        writers: int,
        listen: str | Path,
        store: str | Path,
        *,
        scheduler: Scheduler | None = None,
        piece: int = 1 << 20,
        memory: int = 1 << 30,
        incomplete: Incomplete = "drop",
        patience: float = 60.0,
        live: Mapping[str, Sequence[int]] | None = None,
        name: str | None = None,
        on: str | None = None,
    ) -> None:
        super().__init__(name=name, on=on)
        what = f"stage {name or ''}".strip()
        check_path(f"{what}: listen", listen)
        self.listen, self.store = Path(listen), checked_store(what, store)
        given = (variables, writers, scheduler, piece, memory, incomplete, patience, live)
        self._settings, self._events = checked(what, *given)

    @property
    def inputs(self) -> Mapping[str, Schema | None]:
        return {}

    def emits(self, schema: Schema | None) -> tuple[Schema | None, ...]:
        return (Committed, *self._events)

    @property
    def files(self) -> tuple[Path, ...]:
        return (self.store,)

    def keep_in(self, folder: Path) -> None:
        self.store = folder / self.store

    def settings(self) -> dict[str, Any]:
        return plain(self._settings) | {"listen": str(self.listen), "store": str(self.store)}

    def open(self, context: Context) -> Actor:
        settings, ranks = fresh(self._settings), range(self._settings.writers)
        store = opened(self.store, settings)
        node, root = StagingNode(settings, ranks), Root(settings, {NODE: ranks}, store.done)

        def near(ring: Callable[[], None]) -> Near:
            return Near(node, Committing(context, root, store, self._events, ring))

        try:
            return Serving(context, self.listen, node, near)
        except OSError as error:
            store.close()
            raise StagingError(f"stage cannot listen at {self.listen}: {error}") from None


def checked_store(what: str, store: object) -> Path:
    """The path of a store."""
    named = isinstance(store, str | Path) and Path(store).suffix in (".h5", ".zarr")
    expect(named, f"{what}: store", str(store), "a name that ends in .h5 or .zarr")
    return Path(str(store))


def checked(
    what: str,
    variables: Any,
    writers: Any,
    scheduler: Any,
    piece: Any,
    memory: Any,
    incomplete: Any,
    patience: Any,
    live: Any,
) -> tuple[Settings, tuple[Schema, ...]]:
    """Settings as ``Stage`` has them, and the schemas of live blocks. Variables and the scheduler are plain
    data if they come from ``settings``."""
    checked_integer(f"{what}: writers", writers)
    checked_integer(f"{what}: piece", piece, 4096)
    checked_integer(f"{what}: memory", memory)
    expect(isinstance(variables, Iterable), f"{what}: variables", variables, "a list of Variable")
    patient = isinstance(patience, int | float) and patience >= 0
    expect(writers <= MOST_WRITERS, f"{what}: writers", writers, f"at most {MOST_WRITERS}")
    expect(incomplete in ("drop", "fill"), f"{what}: incomplete", incomplete, "'drop' or 'fill'")
    expect(patient, f"{what}: patience", patience, "seconds, 0 or more")
    scheduler = Scheduler() if scheduler is None else scheduler
    live = {} if live is None else live
    found = (list(variables), writers, scheduler, piece, memory, incomplete, float(patience), live)
    given = dict(zip(Settings.__struct_fields__, found, strict=True))
    try:
        settings = msgspec.convert(given, Settings)
    except (msgspec.ValidationError, RecursionError) as error:
        raise StagingError(f"{what}: a setting is wrong: {error}") from None
    known = by_name(settings.variables)
    for one in settings.live:
        expect(one in known, f"{what}: live", one, f"one of {', '.join(known)}")
    return settings, tuple(known[one].event(shape) for one, shape in settings.live.items())


def plain(settings: Settings) -> dict[str, Any]:
    """Settings as plain data."""
    found: dict[str, Any] = msgspec.msgpack.decode(msgspec.msgpack.encode(settings))
    return found


def fresh(settings: Settings) -> Settings:
    """Settings for one run: a scheduler counts what it allows."""
    return msgspec.structs.replace(settings, scheduler=deepcopy(settings.scheduler))


def opened(path: Path, settings: Settings) -> Store:
    """The store; StagingError if it cannot be opened."""
    try:
        return open_store(path, by_name(settings.variables))
    except OSError as error:
        raise StagingError(f"store {path} cannot be opened: {error}") from None


# Daemons allow it by this name.
Stage.__module__ = "evflow.staging"
