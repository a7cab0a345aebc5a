"""The commands that look at nodes, with real daemons in this process."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

import evflow as ev
from evflow.tools.cli import main
from evflow.tools.watch.recording import Recorder, Recording

pytestmark = pytest.mark.slow

Run = Callable[..., Result]


class Trade(ev.Event):
    symbol: ev.Str[8]
    price: float


class Site:
    """A deployment on two daemons, and what its end has got."""

    def __init__(self, folder: Path) -> None:
        self.got: list[float] = []
        self.refused: float | None = None
        self.came = threading.Condition()
        self.edge = ev.Daemon("edge", "tcp://127.0.0.1:0", storage=folder / "edge")
        self.office = ev.Daemon(
            "office", "tcp://127.0.0.1:0", storage=folder / "office", handlers={"alerts:show": self._take}
        )
        self.running = [self.edge, self.office]
        self.hosts = folder / "hosts.toml"
        self.hosts.write_text(f'[hosts]\nedge = "{self.edge.contact}"\noffice = "{self.office.contact}"\n')
        g = ev.Graph("trades")
        with g.on("edge"):
            high = g.source("trades", Trade) >> ev.Filter("input.price > 50", name="high")
        high >> ev.Terminal("alerts:show", name="show", on="office")
        self.handle = g.deploy({"edge": self.edge.contact, "office": self.office.contact})

    def _take(self, event: Trade) -> None:
        if event.price == self.refused:
            raise ValueError(f"{event.symbol} is no longer traded")
        with self.came:
            self.got.append(event.price)
            self.came.notify()

    def close(self) -> None:
        self.handle.close()
        for daemon in self.running:
            daemon.close()


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    site = Site(tmp_path)
    yield site
    site.close()


@pytest.fixture
def run(site: Site) -> Run:
    """Runs a command with the file of hosts."""
    return lambda *arguments: CliRunner().invoke(main, [*map(str, arguments), "--hosts", str(site.hosts)])


def test_status_shows_both_daemons_and_nothing_wrong(run: Run) -> None:
    done = run("status")
    assert done.exit_code == 0, done.output
    assert "trades/show" in done.output and "trades/high" in done.output
    data = json.loads(run("status", "--json").output)
    assert [node["status"]["node"] for node in data["nodes"]] == ["edge", "office"]


def test_nodes_whose_deployment_has_ended_have_no_trouble(site: Site, run: Run) -> None:
    site.handle.undeploy()
    site.handle.close()
    end = time.monotonic() + 60
    while "office" in site.edge.node.links() or "edge" in site.office.node.links():
        assert time.monotonic() < end, (site.edge.node.links(), site.office.node.links())
        time.sleep(0.1)
    done = run("status")
    assert done.exit_code == 0, done.output


def test_daemon_is_asked_by_its_contact_alone(site: Site) -> None:
    done = CliRunner().invoke(main, ["status", site.edge.contact])
    assert done.exit_code == 0, done.output
    assert "trades/high" in done.output


def test_dead_daemon_is_told_and_the_other_shown(site: Site, run: Run) -> None:
    contact = site.office.contact
    site.running.pop().close()
    done = run("status", "--timeout", "2")
    assert done.exit_code == 1
    assert f"dials office at {contact}: 127.0.0.1 port" in done.output
    assert "trades/high" in done.output


def test_recording_is_replayed_through_the_deployment(site: Site, run: Run, tmp_path: Path) -> None:
    path = tmp_path / "in.evrec"
    with Recorder(path) as recorder:
        batch = ev.EventBatch.from_columns(Trade.schema, {"symbol": ["IBM"] * 3, "price": [40.0, 60.0, 70.0]})
        recorder.write(batch, seconds=0.0)
    done = run("replay", path, "trades/trades", "--at", "edge")
    assert done.exit_code == 0, done.output
    with site.came:
        assert site.came.wait_for(lambda: len(site.got) == 2, 20)
    assert site.got == [60.0, 70.0]


@pytest.fixture
def fed(site: Site) -> Iterator[None]:
    """Events come all the time."""
    ended = threading.Event()

    batch = ev.EventBatch.from_columns(Trade.schema, {"symbol": ["IBM", "SAP"], "price": [40.0, 60.0]})

    def feed() -> None:
        while not ended.wait(0.02):
            site.handle["trades"].submit_batch(batch)

    thread = threading.Thread(target=feed)
    thread.start()
    yield
    ended.set()
    thread.join()


def test_tap_prints_what_leaves_a_stone(run: Run, fed: None) -> None:
    done = run("tap", "trades/high", "--at", "edge", "--count", "2")
    assert done.exit_code == 0, done.output
    events = [json.loads(line)["event"] for line in done.stdout.splitlines()]
    assert events == [{"symbol": "SAP", "price": 60.0}] * 2


def test_record_keeps_what_passes(run: Run, fed: None, tmp_path: Path) -> None:
    done = run("record", "trades/trades", tmp_path / "r", "--at", "edge", "--count", "5")
    assert done.exit_code == 0, done.output
    assert sum(len(batch) for _, batch in Recording(tmp_path / "r")) == 5


def test_top_shows_rates_of_real_nodes(run: Run, fed: None) -> None:
    done = run("top", "--once", "--every", "0.5")
    assert done.exit_code == 0, done.output
    row = next(line.split() for line in done.output.splitlines() if line.startswith("trades/trades"))
    assert float(row[3].replace(",", "")) > 0


def test_live_picture_of_real_nodes(run: Run, fed: None, tmp_path: Path) -> None:
    pytest.importorskip("pygraphviz")
    done = run("draw", "--live", "--once", "--every", "0.5", "-o", tmp_path / "now.svg")
    assert done.exit_code == 0, done.output
    assert "office" in (tmp_path / "now.svg").read_text()


def test_doctor_knows_the_clock_of_a_daemon(site: Site) -> None:
    done = CliRunner().invoke(main, ["doctor", "--peer", f"edge={site.edge.contact}"])
    assert done.exit_code == 0, done.output
    assert "ok       clock of edge" in done.output


def test_tap_of_a_misspelt_stone_lists_what_is_there(site: Site, run: Run) -> None:
    done = run("tap", "trades/hihg", "--at", "edge")
    assert done.exit_code == 1, done.output
    assert (
        "node edge has no stone 'trades/hihg' (did you mean 'trades/high'?); it has trades/trades"
        in done.output
    )


@pytest.mark.parametrize(
    ("stone", "told"),
    [
        ("high", "has no stone 'high' (did you mean 'trades/high'?)"),
        ("trades/show", "has no stone 'trades/show', which is on node office"),
        ("show", "has no stone 'show' (did you mean 'trades/show', which is on node office?)"),
        ("trades/shwo", "has no stone 'trades/shwo' (did you mean 'trades/show', which is on node office?)"),
    ],
)
def test_tap_says_which_stone_is_meant_and_where_it_is(stone: str, told: str, site: Site, run: Run) -> None:
    done = run("tap", stone, "--at", "edge")
    assert done.exit_code == 1, done.output
    assert f"node edge {told}; it has trades/trades, trades/high" in done.output


@pytest.mark.parametrize(
    "command",
    [["dead-letters", "--deployment", "trads"], ["undeploy", "trads"], ["change", "freeze", "trads", "high"]],
)
def test_a_misspelt_deployment_is_an_error(command: list[str], site: Site, run: Run) -> None:
    done = run(*command)
    assert done.exit_code == 1, done.output
    assert "no deployment 'trads' on edge, office (did you mean 'trades'?); they have trades\n" in done.output


@pytest.mark.parametrize(
    ("command", "told"),
    [
        (
            "change freeze trades hihg",
            "has no stone 'hihg' (did you mean 'high'?); it has trades, high, show",
        ),
        ("change host trades ofice", "has no host 'ofice' (did you mean 'office'?); it has edge, office"),
        ("change move trades high ofice", "'ofice'; expected one of its hosts, edge, office"),
        ("logs ofice", "host 'ofice' is not in the file of hosts (did you mean 'office'?); it has edge"),
    ],
)
def test_a_misspelt_stone_or_node_is_told_with_those_that_are_there(
    command: str, told: str, site: Site, run: Run
) -> None:
    done = run(*command.split())
    assert done.exit_code == 1, done.output
    assert told in done.output


@pytest.mark.parametrize(
    ("stone", "meant"),
    [
        ("nowhere", ""),
        ("trades/traeds", " (did you mean 'trades/trades'?)"),
        ("nope/high", ""),
        ("trades/high", ""),
    ],
)
def test_replay_to_a_stone_that_takes_nothing_fails(
    stone: str, meant: str, site: Site, run: Run, tmp_path: Path
) -> None:
    path = tmp_path / "in.evrec"
    with Recorder(path) as recorder:
        recorder.write(ev.EventBatch.from_columns(Trade.schema, {"symbol": ["IBM"], "price": [70.0]}))
    done = run("replay", path, stone, "--at", "edge", "--timeout", "1")
    assert done.exit_code == 1, done.output
    assert f"no stone '{stone}' that others may send to{meant}; it has trades/trades" in done.output


def test_dead_letters_are_printed_and_submitted_again(site: Site, run: Run) -> None:
    """With reason, event and traceback; once they were submitted again they are no longer there."""
    site.refused = 70.0
    site.handle["trades"].submit_batch({"symbol": ["IBM", "DEC", "DEC"], "price": [60.0, 70.0, 70.0]})
    site.handle.drain(60)
    done = run("dead-letters")
    assert done.exit_code == 0, done.output
    assert done.output.count("trades/show on office: ValueError: DEC is no longer traded\n") == 2
    assert "  {'symbol': 'DEC', 'price': 70.0}\n" in done.output
    assert done.output.count('raise ValueError(f"{event.symbol} is no longer traded")') == 1
    assert done.output.endswith("2 dead letters\n")
    newest = run("dead-letters", "--json", "--limit", "1")
    told = json.loads(newest.stdout)
    assert newest.stderr == "1 of 2 dead letters; --limit prints more\n"
    assert (told["node"], told["stone"], told["event"]["price"]) == ("office", "trades/show", 70.0)
    assert told["traceback"].endswith("ValueError: DEC is no longer traded\n")
    site.refused = None
    again = run("dead-letters", "--resubmit")
    assert again.exit_code == 0 and again.output.endswith("2 submitted again\n"), again.output
    with site.came:
        assert site.came.wait_for(lambda: len(site.got) == 3, 60)
    assert run("dead-letters").output == "0 dead letters\n"
