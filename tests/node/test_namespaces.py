"""Nodes on hosts of their own: network namespaces joined by a switch, whose cables the test cuts."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import evflow as ev
from evflow.net.node.keyfile import generate
from tests import preloaded
from tests.node.network import Network, hosts, keys_for
from tests.node.processes import NodeProcess, wait_for

pytestmark = pytest.mark.slow

NAMES = ("first", "middle", "last")
BEAT = 0.2


@pytest.fixture
def network() -> Iterator[Network]:
    """Three hosts."""
    with hosts(NAMES) as made:
        yield made


@pytest.fixture
def keys(tmp_path: Path) -> Path:
    """A folder with a folder of keys for each host, all known to all."""
    return keys_for(tmp_path, NAMES)


def _node(network: Network, keys: Path, host: str, peer: str = "", **settings: Any) -> NodeProcess:
    return NodeProcess(
        "chain", host, host=network.space(host), keys=str(keys / host), heartbeat=BEAT,
        peers={peer: f"tcp://{network.address(peer)}:7000"} if peer else {},
        listen=f"tcp://{network.address(host)}:7000", **settings,
    )  # fmt: skip


@pytest.mark.parametrize("victim", ["middle", "last"])
def test_events_arrive_once_over_hosts_whose_cables_are_cut(
    network: Network, keys: Path, victim: str
) -> None:
    """A chain of three hosts with keys; one cable is cut and mended three times while events flow."""
    total = 300_000
    with (
        _node(network, keys, "last") as last,
        _node(network, keys, "middle", "last") as middle,
        _node(network, keys, "first", "middle", flow={"max_bytes": 1 << 16}) as first,
    ):
        ends = {"middle": (first, "middle"), "last": (middle, "last")}
        watcher, peer = ends[victim]
        first.ask("submit_many", stone="recs", stop=1_000, batch=1_000)
        wait_for(lambda: last.ask("count") == 1_000, "the first events")
        for cut in range(3):
            share = (total - 1_000) // 3
            first.ask(
                "submit_many", stone="recs", start=1_000 + cut * share, stop=2_000 + cut * share, batch=500
            )
            network.cut(victim)
            wait_for(lambda: watcher.ask("links")[peer]["state"] != "up", "the end of the session")
            assert watcher.ask("links")[peer]["trouble"]
            first.tell(
                "submit_many",
                stone="recs",
                start=2_000 + cut * share,
                stop=1_000 + (cut + 1) * share,
                batch=500,
            )
            network.mend(victim)
            first.answer("submit_many", 40)
        first.ask("drain", timeout=30, within=40)
        assert last.ask("seen") == list(range(1_000 + 3 * share))
        assert watcher.ask("links")[peer]["sessions"] > 1
        assert [p.ask("refused") for p in (first, middle, last)] == [{}, {}, {}]


def test_a_host_with_the_wrong_key_gets_nothing_and_gives_nothing(network: Network, keys: Path) -> None:
    """It calls itself by a name that is allowed; its key is another one."""
    shutil.rmtree(keys / "first")
    generate(keys / "first", "first")
    shutil.copy(keys / "middle" / "middle.pub", keys / "first" / "middle.pub")
    with (
        _node(network, keys, "last") as last,
        _node(network, keys, "middle", "last") as middle,
        _node(network, keys, "first", "middle") as first,
    ):
        first.ask("submit", stone="recs", columns={"seq": [1]})
        with pytest.raises(ev.FlowError, match="it does not let in the key of first"):
            first.ask("drain", timeout=2)
        assert "first" not in middle.ask("links")
        assert last.ask("count") == 0


def test_an_advertised_contact_is_where_others_dial_back(network: Network, keys: Path) -> None:
    """The last host listens everywhere and says at which address; the first one only knows how to answer."""
    network.rename("last", "10.83.0.77")
    listening = {"listen": "tcp://*:7000", "advertise": "tcp://10.83.0.77:7000"}
    with NodeProcess(
        "chain", "last", host=network.space("last"), keys=str(keys / "last"), heartbeat=BEAT, **listening
    ) as last:
        assert last.contact == "tcp://10.83.0.77:7000"
        with (
            NodeProcess(
                "chain", "middle", host=network.space("middle"), keys=str(keys / "middle"), heartbeat=BEAT,
                peers={"last": last.contact}, listen=f"tcp://{network.address('middle')}:7000",
            ) as middle,
            _node(network, keys, "first", "middle") as first,
        ):  # fmt: skip
            first.ask("submit", stone="recs", columns={"seq": [1, 2]})
            first.ask("drain")
            assert last.ask("seen") == [1, 2]
            assert middle.ask("links")["last"]["contact"] == "tcp://10.83.0.77:7000"


SILENT = """
import signal, sys, zmq
dealer = zmq.Context().socket(zmq.DEALER)
dealer.connect(sys.argv[1])
dealer.send(b"")
print("sent", flush=True)
signal.pause()
"""


def _connections(process: NodeProcess) -> int:
    """The TCP connections of a process's host that the system takes for established."""
    lines = Path(f"/proc/{process.pid}/net/tcp").read_text().splitlines()[1:]
    return sum(line.split()[3] == "01" for line in lines)


def test_connections_of_hosts_that_vanished_do_not_stay(network: Network, tmp_path: Path) -> None:
    """One with a session, so with pings on the way that nobody acknowledges, and one that says nothing."""
    contact = f"tcp://{network.address('last')}:7000"
    with NodeProcess(
        "chain", "last", host=network.space("last"), plain=True, listen=contact, heartbeat=BEAT
    ) as last:
        with NodeProcess(
            "chain", "middle", host=network.space("middle"), peers={"last": contact}, plain=True,
            heartbeat=BEAT,
        ):  # fmt: skip
            (tmp_path / "silent.py").write_text(SILENT)
            silent = preloaded.start(
                tmp_path / "silent.py", [contact], host=network.space("first"), stdout=subprocess.PIPE
            )
            assert silent.stdout is not None
            assert silent.stdout.readline() == b"sent\n"
            wait_for(lambda: last.ask("links").get("middle", {}).get("state") == "up", "the session")
            wait_for(lambda: _connections(last) == 2, "both connections")
            network.cut("middle")
            network.cut("first")
            silent.kill()
            silent.communicate()
        assert _connections(last) == 2
        # Ten times the least pause of the system's clocks, which is a second.
        wait_for(lambda: _connections(last) == 0, "the end of both connections", 60)
        assert last.ask("refused").keys() <= {"malformed"}
