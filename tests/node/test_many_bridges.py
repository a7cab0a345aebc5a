"""Many bridges between two nodes, the receiver busy and the sender gone: ZeroMQ's queues are full then."""

from __future__ import annotations

import os
from typing import Any

import pytest

from tests.node.processes import NodeProcess, wait_for

pytestmark = pytest.mark.slow

KILLS = int(os.environ.get("EVFLOW_BRIDGE_KILLS", "2"))
BRIDGES = 64
"""Each may have 32 frames in flight: together twice as many as ZeroMQ queues for the receiver."""
QUEUED = 1_500
NEW = 1_000_000
"""Numbers from here on come from the sender that was started again; the killed one's come among them."""
BUSY = 2.5
"""Seconds, so many that every clock of the connection runs out meanwhile."""


@pytest.mark.parametrize("kill", range(KILLS))
def test_a_receiver_lives_on_when_a_sender_with_many_bridges_is_killed(kill: int) -> None:
    """ZeroMQ's queue is full, and its handler busy, when the connection breaks."""
    settings = {"bridges": BRIDGES, "seconds": BUSY}
    common: dict[str, Any] = {"settings": settings, "heartbeat": 0.2, "shared_memory": False}
    with NodeProcess("many", "there", listen="tcp://127.0.0.1:0", **common) as there:
        with NodeProcess("many", "here", peers={"there": there.contact}, **common) as here:
            here.ask("fill", stones=[f"recs {n}" for n in range(BRIDGES)], frames=QUEUED)
            here.kill()
        wait_for(lambda: there.ask("links")["here"]["state"] == "down", "the end of the session")
        with NodeProcess("many", "here", peers={"there": there.contact}, **common) as here:
            before = there.ask("count")
            here.ask("submit", stone="recs 7", columns={"seq": [NEW, NEW + 1, NEW + 2]})
            here.ask("drain")
            seen = there.ask("seen", start=before)
            assert [seq for seq in seen if seq >= NEW] == [NEW, NEW + 1, NEW + 2]
        assert there.end() == 0
