"""A daemon that is closed while events wait for the file of a stone: who sent them keeps them."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

import evflow as ev
from evflow.disk import Log, Store
from evflow.errors import UnwrittenError
from tests.node.processes import free_port, wait_for

pytestmark = pytest.mark.slow


class Ping(ev.Event):
    number: int


@pytest.fixture
def full(monkeypatch: pytest.MonkeyPatch) -> dict[str, threading.Event]:
    """Each file of which the event is set cannot be written: those of stones, and that of deployments."""
    failing = {"stones": threading.Event(), "deployments": threading.Event()}

    append, begin = Log.append, Log.begin

    def planted(write: Callable[..., None]) -> Callable[..., None]:
        def unsure(log: Log, *arguments: Any) -> None:
            if failing["stones"].is_set() and log._kind.startswith("storage"):
                raise UnwrittenError("planted")
            write(log, *arguments)

        return unsure

    monkeypatch.setattr(Log, "append", planted(append))
    monkeypatch.setattr(Log, "begin", planted(begin))
    save = Store.save

    def unsaved(store: Store, values: Mapping[Any, Any], late: bool = False) -> None:
        if failing["deployments"].is_set():
            raise UnwrittenError("planted")
        save(store, values, late)

    monkeypatch.setattr(Store, "save", unsaved)
    return failing


def graph(path: str | None) -> ev.Graph:
    g = ev.Graph("pings")
    with g.on("edge"):
        kept = g.source("pings", Ping) >> ev.Storage(1000, path=path, name="kept")
        _ = kept >> ev.Terminal("desk:show")
    return g


@pytest.mark.parametrize("why", ["its file", "every file", "frozen", "every file, and it has none"])
def test_what_waits_for_a_file_comes_again(
    tmp_path: Path, full: dict[str, threading.Event], caplog: pytest.LogCaptureFixture, why: str
) -> None:
    seen: list[int] = []
    contact = f"tcp://127.0.0.1:{free_port()}"

    def daemon() -> ev.Daemon:
        show = {"desk:show": lambda event: seen.append(event.number)}
        return ev.Daemon("edge", contact, storage=tmp_path, handlers=show)

    edge = daemon()
    with graph(None if "none" in why else "kept").deploy({"edge": contact}) as pings:
        pings["pings"].submit(Ping(0))
        pings.drain(timeout=30)
        if why == "frozen":
            pings.freeze("kept")
        elif "none" not in why:
            full["stones"].set()
        for number in range(1, 11):
            pings["pings"].submit(Ping(number))
        if "none" not in why:
            # Frames that come while the first one waits stay at the link: how many, is a matter of timing.
            wait_for(lambda: edge.flow.stats()["pings/kept"]["queued"] > 1, "the events to wait")
        else:
            pings.drain(timeout=30)
        with caplog.at_level(logging.WARNING, "evflow.deploy"):
            if "none" in why:
                full["deployments"].set()
                with pytest.raises(ev.DeployError, match="deployments cannot be written: planted"):
                    edge.close()
            else:
                if why == "every file":
                    full["deployments"].set()
                edge.close()
                assert "this node ends as if it were killed" in caplog.text
                assert "stone 'pings/kept'" in caplog.text
        for event in full.values():
            event.clear()
        with daemon():
            if why == "frozen":
                pings.unfreeze("kept")
            pings["pings"].submit(Ping(11))
            pings.drain(timeout=30)
            pings.send_stored("kept")
            wait_for(lambda: len(seen) >= 12, "all events")
            pings.drain(timeout=30)
            assert seen == list(range(12))
