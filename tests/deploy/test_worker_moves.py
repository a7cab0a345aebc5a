"""A terminal with workers moves: what they had begun ends where it began, and the rest goes along."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest

import evflow as ev
from tests.deploy.yard import Rec, Yard
from tests.node.processes import wait_for

pytestmark = pytest.mark.slow


def test_what_no_worker_has_begun_goes_along(tmp_path: Path) -> None:
    hold, seen = threading.Event(), []

    def handle(event: Any) -> None:
        seen.append((threading.current_thread().name, event.seq))
        assert hold.wait(60)

    g = ev.Graph("worked")
    g.source("recs", Rec, on="a") >> ev.Terminal("desk:slow", workers=2, key="seq", name="end", on="b")
    with Yard(tmp_path, "") as yard:
        for name in "abc":
            yard.start(name, handlers={"desk:slow": handle})
        with g.deploy(yard.hosts) as handle_:
            handle_["recs"].submit_batch({"seq": list(range(10))})
            wait_for(lambda: len(seen) == 2, "both workers")
            moved = threading.Thread(target=lambda: handle_.move("end", "c", timeout=60))
            moved.start()
            try:
                moved.join(0.5)
                assert moved.is_alive()
                assert len(seen) == 2
            finally:
                hold.set()
            moved.join(60)
            assert yard.placed("worked")["end"] == "c"
            wait_for(lambda: len(seen) == 10, "the rest")
            handle_["recs"].submit_batch({"seq": list(range(10, 20))})
            handle_.drain(30)
            assert sorted(seq for _, seq in seen) == list(range(20))
            stats = yard.daemons["c"].flow.stats()["worked/end"]
            assert (stats["in"], stats["errors"], stats["queued"]) == (20, 0, 0)
