"""The commands that look at nodes, with nodes that are none."""

from __future__ import annotations

import json
import socket
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

import evflow as ev
from evflow.errors import LinkError
from evflow.tools.cli import main, options
from evflow.tools.watch.recording import Recorder, Recording
from tests.watch.fake import FakeClient, FakeSource, FakeTap, Trade, deployment, status, stone

AT = "tcp://10.0.0.2:7000"
Run = Callable[..., Result]


def trades(*prices: float) -> ev.EventBatch:
    return ev.EventBatch.from_columns(Trade.schema, {"symbol": ["IBM"] * len(prices), "price": prices})


class Nodes:
    """Where clients are opened: contact → client, and what was said on the way."""

    def __init__(self) -> None:
        self.clients: dict[str, FakeClient] = {}
        self.opened: list[tuple[str, dict[str, Any]]] = []

    def open(self, contact: str, **settings: Any) -> FakeClient:
        self.opened.append((contact, settings))
        place = contact.rpartition("=")[2]
        if place not in self.clients:
            raise LinkError(f"host {contact}: no answer to 'name' within 5 s: not connected yet")
        return self.clients[place]


@pytest.fixture
def nodes(monkeypatch: pytest.MonkeyPatch) -> Nodes:
    """No nodes; a test puts some there."""
    nodes = Nodes()
    monkeypatch.setattr(options, "open_client", nodes.open)
    return nodes


@pytest.fixture
def edge(nodes: Nodes) -> FakeClient:
    """A node whose status changes each time: a second more, 500 events more."""
    times = iter(range(10_000))

    def say() -> dict[str, Any]:
        now = next(times)
        high = stone(**{"in": 1000 + 500 * now, "out": 100 * now})
        stones = {"trades/trades": stone("source"), "trades/high": high}
        return status(uptime=1000.0 + now, stones=stones)

    nodes.clients[AT] = FakeClient({"status": say}, {"trades/high": FakeTap([trades(80.0, 90.0, 99.5)])})
    return nodes.clients[AT]


@pytest.fixture
def run() -> Run:
    """Runs the command in this process."""
    return lambda *arguments: CliRunner().invoke(main, [str(a) for a in arguments])


@pytest.fixture
def hosts(tmp_path: Path) -> Path:
    path = tmp_path / "hosts.toml"
    path.write_text(f'plain = true\nname = "desk"\n[hosts]\nedge = "{AT}"\n')
    return path


@pytest.fixture
def closed_port() -> Iterator[str]:
    """A contact at which nobody listens."""
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        yield f"tcp://127.0.0.1:{held.getsockname()[1]}"


@pytest.mark.parametrize("command", sorted(main.commands))
def test_every_command_is_told_and_has_help(run: Run, command: str) -> None:
    assert f"\n  {command} " in run("--help").output
    done = run(command, "--help")
    assert done.exit_code == 0, done.output
    assert len(done.output.splitlines()) > 5


@pytest.mark.slow
def test_help_loads_none_of_what_the_commands_need(run: Run) -> None:
    import subprocess

    assert ev.__file__ is not None
    code = (
        "import sys\nfrom evflow.tools.cli import main\n"
        "try:\n    main(['--help'])\nexcept SystemExit:\n    pass\n"
        "print([n for n in ('zmq', 'rich', 'llvmlite', 'evflow.tools.watch.view') if n in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        encoding="utf-8",
        env={"PYTHONPATH": ":".join(sys.path)},
    )
    assert done.stdout.splitlines()[-1] == "[]"


def test_status_prints_tables_and_ends_with_0_if_all_is_well(run: Run, edge: FakeClient) -> None:
    done = run("status", AT)
    assert done.exit_code == 0, done.output
    assert "trades/high" in done.output
    assert "edge → office" in done.output
    assert edge.closed


def test_unreachable_node_is_told_and_the_others_are_shown(
    run: Run, edge: FakeClient, closed_port: str
) -> None:
    done = run("status", AT, f"office={closed_port}")
    assert done.exit_code == 1
    assert "trades/high" in done.output
    assert f"dials office at {closed_port}: 127.0.0.1 port" in done.output
    assert "refuses connections" in done.output
    assert "check: is the node running" in done.output


def test_hosts_say_where_nodes_are_and_how_to_speak_to_them(
    run: Run, nodes: Nodes, edge: FakeClient, hosts: Path
) -> None:
    assert run("status", "--hosts", hosts).exit_code == 0
    assert nodes.opened == [
        (f"edge={AT}", {"name": "desk", "keys": None, "plain": True, "timeout": 5.0})
    ]  # fmt: skip


def test_status_as_json_is_data(run: Run, edge: FakeClient, closed_port: str) -> None:
    done = run("status", AT, closed_port, "--json")
    data = json.loads(done.output)
    assert [node["name"] for node in data["nodes"]] == ["edge", closed_port]
    assert data["nodes"][0]["status"]["stones"]["trades/high"]["in"] == 1000
    assert done.exit_code == 1


def test_without_any_contact_it_says_what_to_give(run: Run) -> None:
    done = run("status")
    assert done.exit_code == 2
    assert "CONTACT…, such as tcp://10.0.0.2:7000, or --hosts FILE" in done.output


def test_top_prints_a_frame_with_rates(run: Run, edge: FakeClient) -> None:
    done = run("top", AT, "--once", "--every", "0.1")
    assert done.exit_code == 0, done.output
    row = next(line.split() for line in done.output.splitlines() if line.startswith("trades/high"))
    # 500 events in a tenth of a second and the time that two looks take.
    assert 100 < float(row[3].replace(",", "")) <= 5000


def test_logs_are_printed_with_time_and_level(run: Run, nodes: Nodes) -> None:
    asked: list[int] = []

    def logs(since: int) -> dict[str, Any]:
        asked.append(since)
        line = {"time": 0.0, "level": "WARNING", "logger": "evflow.link", "text": "silent\nfor\x1b[2J long"}
        return {"next": 7, "lines": [line]}

    nodes.clients[AT] = FakeClient({"logs": logs})
    done = run("logs", AT, "--lines", "5")
    assert done.exit_code == 0, done.output
    assert "WARNING evflow.link: silent\nfor�[2J long\n" in done.output
    assert asked == [-5]


def test_logs_follow_until_they_are_interrupted(
    run: Run, nodes: Nodes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("evflow.tools.cli.nodes._MORE", 0.01)
    asked: list[int] = []

    def logs(since: int) -> dict[str, Any]:
        asked.append(since)
        if len(asked) == 3:
            raise KeyboardInterrupt
        line = {"time": 0.0, "level": "INFO", "logger": "evflow", "text": f"line {len(asked)}"}
        return {"next": len(asked), "lines": [line], "lost": 4 if len(asked) == 2 else 0}

    nodes.clients[AT] = FakeClient({"logs": logs})
    done = run("logs", AT, "--follow")
    assert done.exit_code == 130
    assert "line 1" in done.output and "line 2" in done.output
    assert "4 lines are no longer kept" in done.output
    assert asked == [-200, 1, 2]


def test_command_to_one_node_says_what_was_tried_where_nobody_is(
    run: Run, nodes: Nodes, closed_port: str
) -> None:
    done = run("logs", closed_port)
    assert done.exit_code == 1
    assert "refuses connections: nobody listens there" in done.output
    assert "check: is the node running" in done.output


def test_node_is_found_by_its_name_in_the_hosts(
    run: Run, nodes: Nodes, edge: FakeClient, hosts: Path
) -> None:
    assert run("tap", "trades/high", "--at", "edge", "--hosts", hosts, "--count", 1).exit_code == 0
    assert nodes.opened[0][0] == f"edge={AT}"


@pytest.mark.parametrize("command", [["tap", "t/s", "--at", "zz"], ["logs", "zz"], ["status", "zz"]])
def test_name_that_is_not_in_the_hosts_is_told_with_those_that_are(
    run: Run, edge: FakeClient, hosts: Path, command: list[str]
) -> None:
    done = run(*command, "--hosts", hosts)
    assert done.exit_code == 1
    assert "host 'zz' is not in the file of hosts; it has edge" in done.output


def test_a_name_of_a_node_without_a_file_of_hosts_is_told_what_it_needs(run: Run) -> None:
    done = run("tap", "t/s", "--at", "edge")
    assert done.exit_code == 1
    assert "'edge' is not a contact such as tcp://" in done.output and "--hosts FILE" in done.output


# Events that pass


def test_tap_prints_events_as_json_lines_and_counts_them(run: Run, edge: FakeClient) -> None:
    done = run("tap", "trades/high", "--at", AT, "--count", "2")
    assert done.exit_code == 0, done.output
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    assert [line["event"]["price"] for line in lines] == [80.0, 90.0]
    assert "2 events passed, 0 of them left out" in done.stderr
    assert edge.tap("trades/high").closed and edge.closed


def test_tap_ends_with_ctrl_c_as_it_should(run: Run, nodes: Nodes) -> None:
    nodes.clients[AT] = FakeClient({}, {"t/s": FakeTap([trades(1.0)], KeyboardInterrupt, missed=3)})
    done = run("tap", "t/s", "--at", AT, "--format", "table")
    assert done.exit_code == 0, done.output
    assert done.stdout.splitlines()[0].split()[:3] == ["time", "symbol", "price"]
    assert "4 events passed, 3 of them left out" in done.stderr


def test_tap_of_a_stone_that_is_not_there_is_told(run: Run, edge: FakeClient) -> None:
    done = run("tap", "trades/low", "--at", AT)
    assert done.exit_code == 1
    assert "Error: node edge has no stone 'trades/low'" in done.output


def test_record_writes_what_passes(run: Run, edge: FakeClient, tmp_path: Path) -> None:
    path = tmp_path / "high.evrec"
    done = run("record", "trades/high", path, "--at", AT, "--count", "2")
    assert done.exit_code == 0, done.output
    assert f"2 events recorded in {path}" in done.stderr
    recording = Recording(path)
    assert [event.price for _, batch in recording for event in batch] == [80.0, 90.0]
    assert recording.sessions[0][1:3] == ("trades/high", "edge")


def test_record_goes_on_until_ctrl_c(run: Run, nodes: Nodes, tmp_path: Path) -> None:
    nodes.clients[AT] = FakeClient({}, {"t/s": FakeTap([trades(1.0), trades(2.0)], KeyboardInterrupt)})
    done = run("record", "t/s", tmp_path / "r", "--at", AT)
    assert done.exit_code == 0
    assert "2 events recorded" in done.stderr
    assert len(list(Recording(tmp_path / "r"))) == 2


@pytest.fixture
def recorded(tmp_path: Path) -> Path:
    path = tmp_path / "trades.evrec"
    with Recorder(path) as recorder:
        recorder.write(trades(1.0), seconds=0.0)
        recorder.write(trades(2.0, 3.0), seconds=1000.0)
    return path


def test_replay_submits_what_was_recorded(run: Run, edge: FakeClient, recorded: Path) -> None:
    done = run("replay", recorded, "trades/trades", "--at", AT, "--speed", "max")
    assert done.exit_code == 0, done.output
    assert [batch["price"].tolist() for batch in edge.sources["trades/trades"].batches] == [[1.0], [2.0, 3.0]]
    assert "3 events submitted to trades/trades" in done.stderr
    assert edge.closed


def test_replay_tells_what_was_cut_short(run: Run, edge: FakeClient, recorded: Path) -> None:
    recorded.write_bytes(recorded.read_bytes()[:-3])
    done = run("replay", recorded, "trades/trades", "--at", AT, "--speed", "max")
    assert done.exit_code == 0
    assert "1 events submitted" in done.stderr and "of an event cut short" in done.stderr


class FailingSource(FakeSource):
    """Takes so many batches, and then no more."""

    def __init__(self, taken: int) -> None:
        super().__init__()
        self._taken = taken

    def submit_batch(self, table: Any, /) -> None:
        if len(self.batches) == self._taken:
            raise ev.SchemaError("stone 'trades': expected a Quote")
        super().submit_batch(table)


@pytest.mark.parametrize(
    ("taken", "told"), [(0, ""), (1, "until then: 1 events submitted to trades/trades\n")]
)
def test_replay_that_fails_tells_what_was_submitted_until_then(
    taken: int, told: str, run: Run, edge: FakeClient, recorded: Path
) -> None:
    edge.sources["trades/trades"] = FailingSource(taken)
    done = run("replay", recorded, "trades/trades", "--at", AT, "--speed", "max")
    assert done.exit_code == 1
    assert done.output == f"{told}Error: stone 'trades': expected a Quote\n"


def test_tap_that_fails_at_once_tells_the_error_alone(run: Run, nodes: Nodes) -> None:
    nodes.clients[AT] = FakeClient({}, {"trades/high": FakeTap([], ev.LinkError)})
    done = run("tap", "trades/high", "--at", AT)
    assert (done.exit_code, done.stdout) == (1, "")
    assert "events passed" not in done.output


def test_replay_of_another_file_is_told(run: Run, edge: FakeClient, tmp_path: Path) -> None:
    (tmp_path / "diary").write_text("dear diary, today")
    done = run("replay", tmp_path / "diary", "trades/trades", "--at", AT)
    assert done.exit_code == 1
    assert "it is not a file of evflow" in done.output


@pytest.mark.parametrize("speed", ["0", "-1", "fast", "nan", "inf"])
def test_speed_that_is_none_is_refused(run: Run, recorded: Path, speed: str) -> None:
    done = run("replay", recorded, "t/s", "--at", AT, "--speed", speed)
    assert done.exit_code == 2
    assert "expected a number above 0, or max" in done.output


# Graphs


def test_live_picture_is_drawn_once(run: Run, edge: FakeClient, tmp_path: Path) -> None:
    pytest.importorskip("pygraphviz")
    path = tmp_path / "now.svg"
    done = run("draw", "--live", AT, "--once", "--every", "0.1", "-o", path)
    assert done.exit_code == 0, done.output
    svg = path.read_text()
    assert "edge" in svg and "/s" in svg
    assert list(tmp_path.glob(".*")) == []


def test_live_picture_of_several_deployments_needs_a_name(run: Run, nodes: Nodes, tmp_path: Path) -> None:
    said = status(deployments={"a": deployment(), "b": deployment()})
    nodes.clients[AT] = FakeClient({"status": lambda: said})
    done = run("draw", "--live", AT, "--once")
    assert done.exit_code == 1
    assert "there are a, b; say which with --deployment NAME" in done.output


@pytest.mark.parametrize("arguments", [[], ["a.py", "b.py"], ["none.py"]])
def test_draw_without_a_graph_file_says_what_to_give(run: Run, arguments: list[str]) -> None:
    done = run("draw", *arguments)
    assert done.exit_code == 2
    assert "--live" in done.output


GRAPH = """
import evflow as ev
class Trade(ev.Event):
    price: float
g = ev.Graph("trades")
with g.on("edge"):
    high = g.source("trades", Trade) >> ev.Filter("input.price > 78.5", name="high")
high >> ev.Terminal("alerts:show", name="show", on="office")
"""


def test_validate_with_hosts_prints_what_each_would_get(run: Run, tmp_path: Path) -> None:
    (tmp_path / "g.py").write_text(GRAPH)
    (tmp_path / "hosts.toml").write_text(f'[hosts]\nedge = "{AT}"\noffice = "tcp://10.0.0.3:7000"')
    done = run("validate", tmp_path / "g.py", "--hosts", tmp_path / "hosts.toml")
    assert done.exit_code == 0, done.output
    assert "trades: 3 stones, 2 links, nothing wrong" in done.output
    assert done.output.splitlines()[-1].split()[-1] == "alerts"


def test_validate_with_hosts_tells_all_problems(run: Run, tmp_path: Path, hosts: Path) -> None:
    (tmp_path / "g.py").write_text(GRAPH.replace("input.price", "input.prize"))
    done = run("validate", tmp_path / "g.py", "--hosts", hosts)
    assert done.exit_code == 1
    assert "2 problems" in done.output
    assert "none of the hosts edge" in done.output and "prize" in done.output


# Doctor


def test_doctor_prints_a_line_for_each_finding(run: Run) -> None:
    done = run("doctor", "--listen", "tcp://127.0.0.1:0")
    assert done.exit_code == 0, done.output
    assert "ok       listen tcp://127.0.0.1:0: a node can listen there" in done.output


def test_doctor_ends_with_1_if_anything_is_wrong(run: Run, closed_port: str, tmp_path: Path) -> None:
    done = run("doctor", "--peer", f"office={closed_port}", "--keys", tmp_path / "none")
    assert done.exit_code == 1
    assert "wrong    reach office" in done.output
    assert "         → is the node running" in done.output
    assert "Traceback" not in done.output


def test_doctor_says_how_a_peer_is_written(run: Run) -> None:
    done = run("doctor", "--peer", AT)
    assert done.exit_code == 2
    assert "expected NAME=CONTACT" in done.output


def test_doctor_greets_a_node_and_knows_no_clock_of_one_that_is_no_daemon(run: Run, nodes: Nodes) -> None:
    node = ev.Node("office", listen="tcp://127.0.0.1:0")
    g = ev.Graph("served")
    g.source("trades", Trade, on="office") >> ev.Terminal(print, on="office")
    with g.run(node=node):
        done = run("doctor", "--peer", f"office={node.contact}")
    assert done.exit_code == 0, done.output
    assert "ok       link to office: office answers" in done.output
    assert "note     clock of office" in done.output
