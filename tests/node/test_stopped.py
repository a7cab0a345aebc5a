"""A receiver that is stopped (SIGSTOP): the sender waits within bounds, and nothing else does."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import ExitStack

import pytest

import evflow as ev
from tests.node import graphs
from tests.node.processes import NodeProcess, running, wait_for

pytestmark = pytest.mark.slow

STOPPED = float(os.environ.get("EVFLOW_STOPPED_SECONDS", "4"))
LIMIT = 1 << 20
INTAKE = 1 << 20
JOINED = 1 << 20
"""Bytes that small tables come to at most which the flow takes at once: the bridge gets them as one batch."""
BATCH = 1_000
WIDTH = 19
"""Bytes of a record: its head, and two numbers of nine."""


@pytest.fixture
def ends() -> Iterator[tuple[NodeProcess, NodeProcess]]:
    """Two receivers of a graph that fans out."""
    with ExitStack() as stack:
        yield (
            stack.enter_context(NodeProcess("fan", "one", listen="tcp://127.0.0.1:0", heartbeat=0.2)),
            stack.enter_context(NodeProcess("fan", "two", listen="tcp://127.0.0.1:0", heartbeat=0.2)),
        )


def _node(ends: tuple[NodeProcess, NodeProcess]) -> ev.Node:
    return ev.Node("here", peers={end.name: end.contact for end in ends}, heartbeat=0.2)


def test_a_stopped_receiver_bounds_the_sender_and_stalls_nobody_else(
    ends: tuple[NodeProcess, NodeProcess],
) -> None:
    """While one receiver is stopped the other one gets its events; afterwards each has all of them once."""
    one, two = ends
    node = _node(ends)
    with running(graphs.fan([], limit=LIMIT), node, timeout=30, max_bytes=INTAKE) as flow:
        one.stop()
        until = time.monotonic() + STOPPED
        sent, refusal = _fill(flow, node)
        assert "stone 'first' is full" in refusal
        assert "bridge 'to one' to one: " in refusal
        assert "silent for more than 1 s" in refusal or "no answer from" in refusal
        assert node.links()["one"]["waiting"] * WIDTH <= LIMIT + JOINED
        others = 0
        while time.monotonic() < until:
            flow["second"].submit_batch({"seq": list(range(others, others + BATCH))}, timeout=10)
            others += BATCH
            wait_for(
                lambda goal=others: two.ask("count") == goal, "events at the receiver that is not stopped"
            )
        assert node.links()["two"]["state"] == "up"
        one.resume()
        flow.drain(30)
        assert one.ask("seen") == list(range(sent))
        assert two.ask("seen") == list(range(others))
        assert others > 10 * BATCH


def _fill(flow: ev.Flow, node: ev.Node) -> tuple[int, str]:
    """Submits until the way is blocked; returns how many events that took, and what the refusal says."""
    sent = 0
    while sent * WIDTH < 16 * (LIMIT + INTAKE):
        try:
            flow["first"].submit_batch({"seq": list(range(sent, sent + BATCH))}, timeout=1.5)
        except ev.FlowError as error:
            return sent, str(error)
        sent += BATCH
    raise AssertionError(f"{sent} events went into a bridge that is blocked")


def test_the_memory_of_the_sender_stays_bounded_while_its_peer_is_stopped() -> None:
    """A sender in a process of its own tries to get rid of 256 MB and grows by a part of that."""
    with (
        NodeProcess("fan", "one", listen="tcp://127.0.0.1:0", heartbeat=0.2) as one,
        NodeProcess(
            "fan", "here", settings={"limit": LIMIT}, peers={"one": one.contact, "two": "tcp://127.0.0.1:1"},
            flow={"max_bytes": INTAKE}, heartbeat=0.2,
        ) as here,
    ):  # fmt: skip
        here.ask("submit_many", stone="first", stop=BATCH, batch=BATCH)
        here.ask("drain")
        before = here.rss
        one.stop()
        here.tell(
            "submit_many", stone="first", start=BATCH, stop=16_000_000, batch=BATCH, timeout=STOPPED / 2
        )
        with pytest.raises(ev.FlowError, match="is full"):
            here.answer("submit_many", 60)
        assert here.rss - before < 32 << 20
        one.resume()
        here.ask("drain")
        seen = one.ask("seen")
        assert seen == list(range(len(seen)))
        assert len(seen) >= LIMIT // WIDTH


def test_a_sender_that_was_stopped_goes_on_where_it_was() -> None:
    """Its peer gave it up meanwhile; the session begins anew and nothing is lost or doubled."""
    with (
        NodeProcess("pair", "there", listen="tcp://127.0.0.1:0", heartbeat=0.1) as there,
        NodeProcess("pair", "here", peers={"there": there.contact}, heartbeat=0.1) as here,
    ):
        here.tell("submit_many", stone="recs", stop=300_000, batch=BATCH)
        for _ in range(3):
            wait_for(lambda: there.ask("count") > 0, "the first events")
            here.stop()
            wait_for(lambda: there.ask("links")["here"]["state"] == "down", "the end of the session")
            here.resume()
            wait_for(lambda: there.ask("links")["here"]["state"] == "up", "another session")
        here.answer("submit_many", 30)
        here.ask("drain")
        assert there.ask("seen") == list(range(300_000))


def test_a_handler_that_blocks_for_long_does_not_lose_the_sessions_events() -> None:
    """It blocks for longer than its peers wait for a silent node; all events arrive once, in order."""
    settings = {"seconds": 1.0, "every": 100}
    with NodeProcess(
        "slow_handler", "there", settings=settings, listen="tcp://127.0.0.1:0", heartbeat=0.05
    ) as there:
        node = ev.Node("here", peers={"there": there.contact}, heartbeat=0.05)
        with running(graphs.slow_handler([], 1.0, 100), node, timeout=30) as flow:
            for at in range(0, 300, 10):
                flow["recs"].submit_batch({"seq": list(range(at, at + 10))})
            flow.drain(30)
        assert there.ask("seen") == list(range(300))
