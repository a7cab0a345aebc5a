"""The stone of a staging node: writers of its host connect to it, and it commits what they write."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from copy import deepcopy
from pathlib import Path
from typing import Any, get_args

import msgspec

from evflow.errors import StagingError
from evflow.schema import Schema
from evflow.staging.above import Near
from evflow.staging.area import Incomplete, Root, Settings, StagingNode
from evflow.staging.committing import Committed, Committing
from evflow.staging.linking import NODE
from evflow.staging.model import MOST_WRITERS, Variable, by_name, check_path, expect
from evflow.staging.schedulers import Kind, Scheduler
from evflow.staging.serving import Serving
from evflow.staging.stores import Store, open_store
from evflow.stone import Acting, Actor, Context, checked_integer, titled

__all__ = ["Area", "Committed", "Stage", "Storing"]


class Area(Acting):
    """A stone of a staging area.

    Args:
        variables: as of ``Stage``, or as plain data; so are the others.
        writers: as of ``Stage``.
        settings: those of ``Stage`` that are given.
        name: the stone's name.
        on: the node it is placed on.

    Attributes:
        has: names of the settings that may be left out.
    """

    wakes = True
    has: tuple[str, ...] = ("scheduler", "piece", "memory", "incomplete", "patience", "live", "compression")

    def __init__(
        self, variables: Any, writers: Any, settings: Mapping[str, Any], name: str | None, on: str | None
    ) -> None:
        super().__init__(name=name, on=on)
        what = titled(self.kind, name)
        for one in settings:
            expect(one in self.has, f"{what}: setting", one, f"one of {', '.join(self.has)}")
        self._settings = _checked(what, variables, writers, settings)

    @property
    def inputs(self) -> Mapping[str, Schema | None]:
        return {}

    def settings(self) -> dict[str, Any]:
        found: dict[str, Any] = msgspec.msgpack.decode(msgspec.msgpack.encode(self._settings))
        return {name: found[name] for name in ("variables", "writers", *self.has)}

    def _fresh(self) -> Settings:
        """Settings for one run: a scheduler counts what it allows."""
        return msgspec.structs.replace(self._settings, scheduler=deepcopy(self._settings.scheduler))


class Storing(Area):
    """A stone that commits steps: port 0 tells of each, and blocks of live variables leave by the others.

    Args:
        store: as of ``Stage``.
        given: as of ``Area``.
    """

    linked_ports = "free"
    emits_by_port = True

    def __init__(self, store: Any, *given: Any) -> None:
        super().__init__(*given)
        named = isinstance(store, str | Path) and Path(store).suffix in (".h5", ".zarr")
        what = f"{titled(self.kind, self.name)}: store"
        expect(named, what, str(store), "a name that ends in .h5 or .zarr")
        self.store, known = Path(store), by_name(self._settings.variables)
        self._events = tuple(known[one].event(shape) for one, shape in self._settings.live.items())

    def emits(self, schema: Schema | None) -> tuple[Schema | None, ...]:
        return (Committed, *self._events)

    @property
    def files(self) -> tuple[Path, ...]:
        return (self.store,)

    def keep_in(self, folder: Path) -> None:
        self.store = folder / self.store

    def settings(self) -> dict[str, Any]:
        return super().settings() | {"store": str(self.store)}

    def _opened(self) -> Store:
        try:
            settings = self._settings
            return open_store(self.store, by_name(settings.variables), settings.compression)
        except OSError as error:
            raise StagingError(f"store {self.store} cannot be opened: {error}") from None


class Stage(Storing):
    """Pulls the steps of writers on its host, puts them together and commits them.

    Port 0 emits an event ``Committed`` for each step that is in the store. The blocks of the variables in
    ``live`` leave by the ports 1, 2, … when the step is whole, before it is committed.

    Args:
        variables: what the writers write, as they declare it.
        writers: how many there are.
        listen: the path at which it listens for them, at most 100 bytes.
        store: a file ``NAME.h5`` or a folder ``NAME.zarr``; on a daemon within the daemon's folder.
        scheduler: when it pulls what; by default at once, in the order of announcements.
        piece: bytes that it copies at a time, at most, where it copies steps.
        memory: bytes of steps that it may hold. The oldest step is pulled even beyond that.
        incomplete: what becomes of a step that lacks the part of a writer: "drop", or "fill" with NaN or the
            lowest number.
        patience: seconds that a step waits for a writer that is not connected.
        live: variables whose blocks leave, and the shape that all their blocks have. The events have the
            schema ``variable.event(shape)``. They come again if the node is killed before the commit.
        compression: of what is stored, without loss: 0 for none, or a level of 1, which is fast, to 9, which
            makes it small.
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
        compression: int = 0,
        name: str | None = None,
        on: str | None = None,
    ) -> None:
        given: dict[str, Any] = {
            "scheduler": scheduler, "piece": piece, "memory": memory, "incomplete": incomplete,
            "patience": patience, "live": live, "compression": compression,
        }  # fmt: skip
        super().__init__(store, variables, writers, given, name, on)
        check_path(f"{titled(self.kind, name)}: listen", listen)
        self.listen = Path(listen)

    def settings(self) -> dict[str, Any]:
        return super().settings() | {"listen": str(self.listen)}

    def open(self, context: Context) -> Actor:
        settings, ranks, store = self._fresh(), range(self._settings.writers), self._opened()
        node, root = StagingNode(settings, ranks), Root(settings, {NODE: ranks}, store.done)

        def near(ring: Callable[[], None]) -> Near:
            return Near(node, Committing(context, root, store, self._events, ring))

        try:
            return Serving(context, self.listen, node, near)
        except OSError as error:
            store.close()
            raise StagingError(f"stage cannot listen at {self.listen}: {error}") from None


def _checked(what: str, variables: Any, writers: Any, given: Mapping[str, Any]) -> Settings:
    expect(isinstance(variables, Iterable), f"{what}: variables", variables, "a list of Variable")
    # None stands for the default of two.
    given = {
        one: value for one, value in given.items() if value is not None or one not in ("scheduler", "live")
    }
    found = msgspec.structs.asdict(Settings(list(variables), writers)) | given
    for one, least in (("writers", 1), ("piece", 4096), ("memory", 1), ("compression", 0)):
        checked_integer(f"{what}: {one}", found[one], least)
    patience, scheduler = found["patience"], found["scheduler"]
    kind = scheduler.get("type") if isinstance(scheduler, dict) else type(scheduler).__name__
    kinds = [one.__name__ for one in get_args(Kind)]
    for one, fits, expected in (
        ("writers", writers <= MOST_WRITERS, f"at most {MOST_WRITERS}"),
        ("incomplete", found["incomplete"] in ("drop", "fill"), "'drop' or 'fill'"),
        ("patience", isinstance(patience, int | float) and patience >= 0, "seconds, 0 or more"),
        ("compression", found["compression"] <= 9, "a level of 0 to 9"),
        ("scheduler", kind in kinds, f"one of {', '.join(kinds)}"),
    ):
        expect(fits, f"{what}: {one}", found[one], expected)
    try:
        settings = msgspec.convert(found | {"patience": float(patience)}, Settings)
    except (msgspec.ValidationError, RecursionError) as error:
        raise StagingError(f"{what}: a setting is wrong: {error}") from None
    known = by_name(settings.variables)
    for one in settings.live:
        expect(one in known, f"{what}: live", one, f"one of {', '.join(known)}")
    return settings


# Daemons allow it by this name.
Stage.__module__ = "evflow.staging"
