"""What a bridge does when its peer is down or slow: which events arrive, how many are dropped."""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import evflow as ev
from evflow.net.link.congestion import Congestion
from tests.node import graphs
from tests.node.graphs import Rec
from tests.node.processes import NodeProcess, free_port, running, wait_for

pytestmark = pytest.mark.slow

WIDTH = 19
"""Bytes of a record: its head, and two numbers of nine."""

ROOM = (1 << 16) // WIDTH
"""Records within the least limit of a bridge."""

SENT = 10_000

Arrived = list[int]


def _after_an_outage(batch: int = 500, **bridge: Any) -> tuple[Arrived, int, int]:
    """Events for a peer that is not there yet: which arrive later, how many are dropped, how many left."""
    contact = f"tcp://127.0.0.1:{free_port()}"
    node = ev.Node("here", peers={"there": contact}, heartbeat=0.2)
    settings = {"limit": 1 << 16} | bridge
    with running(graphs.pair([], **settings), node) as flow:
        for at in range(0, SENT, batch):
            flow["recs"].submit_batch({"seq": np.arange(at, at + batch)}, timeout=10)
            flow["recs"].submit(Rec(-1))
            # Each batch by itself, so what waits does not depend on how the thread is scheduled.
            goal = (at // batch + 1) * (batch + 1)
            wait_for(lambda goal=goal: flow.stats()["bridge of here"]["in"] == goal, "a batch at the bridge")
        with NodeProcess("pair", "there", listen=contact, heartbeat=0.2) as there:
            flow.drain(20)
            arrived = there.ask("seen")
        stats = flow.stats()["bridge of here"]
    return arrived, int(stats["dropped"]), int(stats["out"])


def _emitted(batch: int = 500) -> Arrived:
    return [seq for at in range(0, SENT, batch) for seq in (*range(at, at + batch), -1)]


def _oldest_dropped(emitted: Arrived) -> Arrived:
    return emitted[-ROOM:]


def _newest_dropped(emitted: Arrived) -> Arrived:
    return emitted[:ROOM]


def _latest_kept(emitted: Arrived) -> Arrived:
    return emitted[-1:]


@pytest.mark.parametrize(
    ("policy", "rest"),
    [("drop oldest", _oldest_dropped), ("drop newest", _newest_dropped), ("keep latest", _latest_kept)],
)
def test_a_policy_keeps_what_it_says_while_the_peer_is_away(
    policy: str, rest: Callable[[Arrived], Arrived]
) -> None:
    """What arrives afterwards is that, in order, and the rest was counted."""
    arrived, dropped, out = _after_an_outage(policy=policy)
    assert arrived == rest(_emitted())
    assert dropped == len(_emitted()) - len(arrived)
    assert out == len(arrived)


def test_sampling_thins_evenly_while_the_peer_is_away() -> None:
    """Something of every part arrives, in order, within the limit; the rest was counted."""
    arrived, dropped, _ = _after_an_outage(policy="sample")
    assert len(arrived) <= ROOM
    assert len(arrived) + dropped == len(_emitted())
    numbers = [seq for seq in arrived if seq >= 0]
    assert numbers == sorted(set(numbers))
    assert all(sum(at <= seq < at + 1000 for seq in numbers) > 10 for at in range(0, SENT, 1000))


def test_blocking_keeps_everything_and_submitters_wait() -> None:
    """A submitter with a timeout hears of it; all that was taken arrives later, and nothing is counted."""
    contact = f"tcp://127.0.0.1:{free_port()}"
    node = ev.Node("here", peers={"there": contact}, heartbeat=0.2)
    with running(graphs.pair([], limit=1 << 16), node, max_bytes=1 << 16) as flow:
        sent = 0
        with pytest.raises(ev.FlowError, match=r"stone 'recs' is full.*bridge of here.*events wait"):
            while sent < 100 * ROOM:
                flow["recs"].submit_batch({"seq": np.arange(sent, sent + 500)}, timeout=0.5)
                sent += 500
        assert sent <= 3 * ROOM
        with NodeProcess("pair", "there", listen=contact, heartbeat=0.2) as there:
            flow.drain(20)
            assert there.ask("seen") == list(range(sent))
        assert flow.stats()["bridge of here"]["dropped"] == 0


def test_a_slow_peer_gets_the_newest_events_and_nobody_waits() -> None:
    """With "drop oldest" a stopped peer holds nobody up; it gets a start, then the end, each in order."""
    with NodeProcess("pair", "there", listen="tcp://127.0.0.1:0", heartbeat=30) as there:
        node = ev.Node("here", peers={"there": there.contact}, heartbeat=30, window=1 << 16)
        with running(graphs.pair([], limit=1 << 16, policy="drop oldest"), node) as flow:
            flow["recs"].submit(Rec(0))
            flow.drain(20)
            there.stop()
            for at in range(1, 3_000_001, 100_000):
                flow["recs"].submit_batch({"seq": np.arange(at, at + 100_000)}, timeout=10)
            wait_for(lambda: flow.stats()["bridge of here"]["in"] == 3_000_001, "all events at the bridge")
            there.resume()
            flow.drain(20)
        arrived = there.ask("seen")
        dropped = flow.stats()["bridge of here"]["dropped"]
    assert arrived[0] == 0
    assert arrived[-1] == 3_000_000
    assert arrived == sorted(set(arrived))
    assert len(arrived) + dropped == 3_000_001
    assert dropped > 1_000_000


def _every_hundredth(congestion: Congestion) -> list[Any]:
    return [batch.take(np.flatnonzero(batch["seq"] % 100 == 0)) for batch in congestion.waiting]


COMPILED = """{
    while (count(recs) > 10) {
        discard(recs, 0);
    }
}"""


def test_a_python_congestion_handler_thins_what_waits() -> None:
    """It is called when one in sixteen of the events that wait is new, so some newer ones remain whole."""
    arrived, dropped, _ = _after_an_outage(policy="block", congestion=_every_hundredth)
    assert set(range(0, SENT, 100)) <= set(arrived)
    assert len(arrived) + dropped == len(_emitted())
    assert len(arrived) < SENT // 10


def test_a_compiled_congestion_handler_thins_what_waits() -> None:
    """It leaves the ten newest of those that it sees."""
    arrived, dropped, _ = _after_an_outage(policy="block", congestion=COMPILED, inputs={"recs": Rec})
    assert arrived == _emitted()[-len(arrived) :]
    assert 10 <= len(arrived) < 1_000
    assert len(arrived) + dropped == len(_emitted())


def _broken(congestion: Congestion) -> list[Any]:
    raise ValueError("broken")


def test_a_congestion_handler_that_raises_costs_nothing(caplog: pytest.LogCaptureFixture) -> None:
    """All events wait as they did, and the log names the bridge."""
    caplog.set_level(logging.WARNING, logger="evflow.flow")
    arrived, dropped, _ = _after_an_outage(policy="block", congestion=_broken, limit=1 << 20)
    assert arrived == _emitted()
    assert dropped == 0
    assert "stone 'bridge of here': its congestion handler failed: ValueError: broken" in caplog.text


def test_at_most_once_loses_what_was_on_its_way_and_counts_it(tmp_path: Path) -> None:
    """The peer is killed again and again: no event is handled twice, none vanishes uncounted."""
    written = tmp_path / "written"
    written.touch()
    settings = {"file": str(written), "delivery": "at_most_once", "limit": 1 << 16}
    with NodeProcess(
        "to_file", "there", settings=settings, listen=f"tcp://127.0.0.1:{free_port()}", heartbeat=0.1
    ) as there:
        node = ev.Node("here", peers={"there": there.contact}, heartbeat=0.1)
        with running(graphs.to_file([], **settings), node, max_bytes=1 << 16) as flow:
            for sent in range(0, 20_000, 100):
                if sent in (5_000, 9_000, 16_000):
                    there.kill()
                    there.restart()
                flow["recs"].submit_batch({"seq": np.arange(sent, sent + 100)}, timeout=20)
            sent = 20_000

            def goes_on() -> bool:
                # All that was sent before may have been on its way when the peer died.
                nonlocal sent
                flow["recs"].submit_batch({"seq": [sent]}, timeout=20)
                sent += 1
                return any(int(line) >= 20_000 for line in written.read_text().split())

            wait_for(goes_on, "an event that was sent after the last kill")
            flow.drain(20)
            # Over this bridge, `drain` waits until the last event is sent, not until it is handled.
            wait_for(lambda: written.read_text().endswith(f"{sent - 1}\n"), "the last event")
            dropped = int(flow.stats()["bridge"]["dropped"])
        handled = [int(line) for line in written.read_text().split()]
    assert handled == sorted(set(handled))
    assert len(handled) + dropped >= sent
    # What was handled and not acknowledged when the peer died is counted as lost, too.
    assert len(handled) + dropped < sent + 3 * 32 * (1 << 16) // WIDTH


def test_at_most_once_goes_on_after_a_session_with_the_same_process() -> None:
    """The peer was stopped until the link was given up; what comes after arrives, and nothing twice."""
    with NodeProcess("pair", "there", listen="tcp://127.0.0.1:0", heartbeat=0.1) as there:
        node = ev.Node("here", peers={"there": there.contact}, heartbeat=0.1)
        with running(graphs.pair([], delivery="at_most_once"), node) as flow:
            flow["recs"].submit_batch({"seq": np.arange(100)})
            wait_for(lambda: there.ask("count") == 100, "the first events")
            there.stop()
            flow["recs"].submit_batch({"seq": np.arange(100, 200)})
            wait_for(lambda: node.links()["there"]["state"] != "up", "the end of the session")
            there.resume()
            wait_for(lambda: node.links()["there"]["state"] == "up", "another session")
            flow["recs"].submit_batch({"seq": np.arange(200, 300)})
            wait_for(lambda: there.ask("seen")[-1:] == [299], "the last events")
            dropped = flow.stats()["bridge of here"]["dropped"]
        arrived = there.ask("seen")
    assert arrived in ([*range(300)], [*range(100), *range(200, 300)])
    assert dropped in (0, 100)
    assert dropped + len(arrived) >= 300
