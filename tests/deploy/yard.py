"""Daemons in the test's own process, whose terminals fill a list, and somebody who submits without end."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from types import TracebackType
from typing import Any, Protocol

import evflow as ev
from tests.node.processes import wait_for

BEAT = 0.1


class Rec(ev.Event):
    """What is submitted: a number, counted up."""

    seq: int


class Entrance(Protocol):
    """What a feeder submits to."""

    def submit_batch(self, data: Any, *, timeout: float | None = None) -> object:
        """Submits a batch."""


class Yard:
    """Daemons of this process.

    Attributes:
        daemons: name → daemon.
        seen: what the handler ``desk:note`` was given, in order.
    """

    def __init__(self, folder: Path, names: Sequence[str], **settings: Any) -> None:
        self.folder = folder
        self.seen: list[int] = []
        self.others: dict[str, list[int]] = {}
        self.settings = {"heartbeat": BEAT} | settings
        self.daemons: dict[str, ev.Daemon] = {}
        for name in names:
            self.start(name)

    def start(self, name: str, **settings: Any) -> ev.Daemon:
        """Starts a daemon on its folder."""
        daemon = ev.Daemon(
            name,
            settings.pop("listen", "tcp://127.0.0.1:0"),
            storage=self.folder / name,
            handlers=settings.pop("handlers", self.handlers()),
            **(self.settings | settings),
        )
        self.daemons[name] = daemon
        return daemon

    def handlers(self) -> dict[str, Callable[..., object]]:
        """What deployed graphs may call."""
        # A list for each of some terminals beside the usual one.
        others = {f"desk:{name}": self._filling(name) for name in ("one", "two", "three")}
        return {"desk:note": lambda batch: self.seen.extend(batch["seq"].tolist()), **others}

    def _filling(self, name: str) -> Callable[..., object]:
        numbers = self.others.setdefault(name, [])
        return lambda batch: numbers.extend(batch["seq"].tolist())

    @property
    def hosts(self) -> dict[str, str]:
        """Where they are."""
        return {name: daemon.contact for name, daemon in self.daemons.items()}

    def placed(self, deployment: str) -> dict[str, str]:
        """Stone → the daemon whose engine has it, for each stone but the bridges."""
        own, found = f"{deployment}/", {}
        for name, daemon in self.daemons.items():
            for stone, slot in daemon.flow.engine.topology.slots.items():
                if stone.startswith(own) and slot.stone.kind != "bridge":
                    assert stone not in found, f"{stone} is on {name} and {found[stone]}"
                    found[stone] = name
        return {stone.removeprefix(own): name for stone, name in found.items()}

    def is_bare(self) -> bool:
        """Whether no daemon has any deployment or stone."""
        return not any(
            d.rpc.status()["deployments"] or d.flow.engine.topology.slots for d in self.daemons.values()
        )

    def close(self) -> None:
        """Ends all."""
        for daemon in self.daemons.values():
            daemon.close(2.0)

    def __enter__(self) -> Yard:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class Feeder:
    """Submits 0, 1, 2, … in a thread, until it is ended.

    Attributes:
        sent: how many were submitted.
    """

    def __init__(self, entrance: Entrance, batch: int = 20, pause: float = 0.002) -> None:
        self.sent = 0
        self._entrance = entrance
        self._batch = batch
        self._pause = pause
        self._ended = threading.Event()
        self._error: ev.EvflowError | None = None
        self._thread = threading.Thread(target=self._work, daemon=True)
        self._thread.start()

    def _work(self) -> None:
        try:
            while not self._ended.wait(self._pause):
                numbers = list(range(self.sent, self.sent + self._batch))
                self._entrance.submit_batch({"seq": numbers}, timeout=60)
                self.sent += self._batch
        except ev.EvflowError as error:
            self._error = error

    def more(self, count: int = 100) -> None:
        """Returns when so many more were submitted."""
        goal = self.sent + count
        wait_for(lambda: self.sent >= goal or self._error, f"{count} more events submitted", 60)
        if self._error is not None:
            raise self._error

    def end(self) -> int:
        """Ends it; returns how many were submitted."""
        self._ended.set()
        self._thread.join(70)
        if self._error is not None:
            raise self._error
        return self.sent


@contextmanager
def feeding(entrance: Entrance, **settings: Any) -> Iterator[Feeder]:
    """A feeder that ends with the block, at the latest."""
    feeder = Feeder(entrance, **settings)
    try:
        yield feeder
    finally:
        with suppress(ev.EvflowError):
            feeder.end()


def chain(*nodes: str, name: str = "chain", handler: str = "desk:note") -> ev.Graph:
    """A source on the first node, a filter that passes all on each between, a terminal on the last."""
    graph = ev.Graph(name)
    at = graph.source("recs", Rec, on=nodes[0])
    for number, node in enumerate(nodes[1:-1], 1):
        at = at >> ev.Filter("input.seq >= 0", name=f"step{number}", on=node)
    _ = at >> ev.Terminal(handler, batch=True, name="end", on=nodes[-1])
    return graph
