"""A daemon whose storage folder cannot be written: it says so once, and makes the change when it can be."""

from __future__ import annotations

import logging
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

import evflow as ev
from evflow.disk import Store
from evflow.errors import UnwrittenError
from evflow.tools.watch.status import NodeStatus
from tests.node.processes import wait_for

pytestmark = pytest.mark.slow


class Ping(ev.Event):
    number: int


def _graph() -> ev.Graph:
    g = ev.Graph("pings")
    _ = g.source("pings", Ping, on="edge") >> ev.Storage(10, name="store", on="edge") >> ev.Filter(
        "return 1;", name="all", on="edge"
    ) >> ev.Terminal("desk:show", on="edge")  # fmt: skip
    return g


def test_a_change_waits_until_the_store_can_be_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    failing = threading.Event()
    tries: list[int] = []

    save = Store.save

    def unsure(store: Store, values: Mapping[Any, Any], late: bool = False) -> None:
        if failing.is_set():
            tries.append(1)
            raise UnwrittenError("planted; make room on its disk")
        save(store, values, late)

    monkeypatch.setattr(Store, "save", unsure)
    show = {"desk:show": lambda event: None}
    with (
        ev.Daemon("edge", "tcp://127.0.0.1:0", storage=tmp_path, handlers=show) as edge,
        caplog.at_level(logging.INFO),
    ):
        failing.set()
        clearing = threading.Timer(2.5, failing.clear)
        clearing.start()
        told = threading.Thread(
            target=lambda: wait_for(lambda: edge.unwritten(), "the trouble to be told"), daemon=True
        )
        told.start()
        with _graph().deploy({"edge": edge.contact}) as pings:
            assert not failing.is_set()
            told.join()
            pings["pings"].submit(Ping(1))
            pings.drain(timeout=10)
        clearing.join()
        assert not edge.unwritten()
        assert NodeStatus.parse(edge.rpc.status()).unwritten == ()
    lines = [record.getMessage() for record in caplog.records if "planted" in record.getMessage()]
    assert sum("make room" in line and "tries again" in line for line in lines) == 1, lines
    # Not as fast as it can.
    assert len(tries) < 60
