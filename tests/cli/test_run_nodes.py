"""``evflow run --node``: nodes of one graph, each in a process of its own."""

from __future__ import annotations

import os
import re
import shlex
import signal
import socket
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from click.testing import CliRunner

from evflow.tools.cli import main
from tests import preloaded
from tests.node.processes import wait_for
from tests.preloaded import Process

CHECKOUT = Path(__file__).parents[2]

STATIONS = """
import evflow as ev

class Reading(ev.Event):
    station: ev.Str[16]
    temperature: float

g = ev.Graph("stations")
with g.on("station"):
    hot = g.source("readings", Reading) >> ev.Filter("input.temperature > 30", name="hot")
with g.on("office"):
    hot >> ev.Terminal(lambda reading: print("got", reading.temperature, flush=True), name="show")
"""

FEED = """
def feed(flow):
    for number in range(40):
        flow["readings"].submit(Reading("Jena", number))
"""

Start = Callable[..., Process]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Starts an evflow command in a process of its own, in the test's folder."""
    begun: list[Process] = []

    def start(*arguments: str) -> Process:
        process = preloaded.start(
            "evflow.tools.cli:main", arguments, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
            encoding="utf-8", env=os.environ | {"PYTHONWARNINGS": "error"}, cwd=tmp_path,
        )  # fmt: skip
        begun.append(process)
        return process

    yield start
    for process in begun:
        process.kill()
        process.communicate(60)


@pytest.fixture
def stations(tmp_path: Path) -> Path:
    """A graph file of two nodes."""
    path = tmp_path / "stations.py"
    path.write_text(STATIONS + FEED)
    return path


def contact(process: Process) -> str:
    """Where a node that was just started listens."""
    assert process.stdout is not None
    found = re.fullmatch(r"node (\S+) listens at (\S+)\n", process.stdout.readline())
    assert found is not None
    return found[2]


def ended(process: Process, code: int = 0) -> tuple[str, str]:
    out, err = process.communicate(timeout=60)
    assert process.returncode == code, out + err
    assert "Traceback" not in err
    return out, err


def rows(output: str) -> dict[str, list[str]]:
    """A printed table by its first column."""
    return {line.split()[0]: line.split()[1:] for line in output.splitlines() if line.strip()}


@pytest.mark.slow
def test_events_cross_between_two_commands(start: Start, stations: Path) -> None:
    office = start("run", "stations.py", "--node", "office", "--listen", "tcp://127.0.0.1:0")
    station = start("run", "stations.py", "--node", "station", "--peer", f"office={contact(office)}")
    table = rows(ended(station)[0])
    assert table["readings"][:3] == ["source", "40", "40"]
    assert table["hot→show"][:3] == ["bridge", "9", "9"]
    assert "show" not in table
    office.send_signal(signal.SIGTERM)
    out, _ = ended(office)
    assert [line for line in out.splitlines() if line.startswith("got")] == [
        f"got {float(number)}" for number in range(31, 40)
    ]
    assert rows(out)["show"][:2] == ["terminal", "9"]


@pytest.mark.slow
@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 0)])
def test_node_without_a_source_runs_until_it_is_asked_to_end(
    start: Start, stations: Path, number: signal.Signals, code: int
) -> None:
    office = start("run", "stations.py", "--node", "office", "--listen", "tcp://127.0.0.1:0")
    contact(office)
    assert office.stderr is not None
    assert office.stderr.readline() == "running until Ctrl-C\n"
    office.send_signal(number)
    out, err = ended(office, code)
    assert rows(out)["show"][:2] == ["terminal", "0"]
    assert "handling what was submitted" in err


@pytest.mark.slow
def test_station_waits_for_an_office_that_comes_later(start: Start, stations: Path, tmp_path: Path) -> None:
    office = start("run", "stations.py", "--node", "office", "--listen", "tcp://127.0.0.1:0")
    address = contact(office)
    office.kill()
    office.communicate()
    station = start("run", "stations.py", "--node", "station", "--peer", f"office={address}")
    assert station.stderr is not None
    while "waiting for office (9 events" not in station.stderr.readline():
        assert station.poll() is None
    office = start("run", "stations.py", "--node", "office", "--listen", address)
    assert rows(ended(station)[0])["hot→show"][:3] == ["bridge", "9", "9"]
    office.send_signal(signal.SIGTERM)
    assert ended(office)[0].count("got") == 9


@pytest.mark.slow
def test_station_gives_up_what_nobody_took_when_it_is_ended(start: Start, stations: Path) -> None:
    hasty = "from evflow.tools.cli import run\nrun._PATIENCE = 0.5\n"
    stations.write_text(hasty + stations.read_text())
    station = start("run", "stations.py", "--node", "station", "--peer", "office=tcp://127.0.0.1:9")
    assert station.stderr is not None
    while "waiting for office" not in station.stderr.readline():
        assert station.poll() is None
    station.send_signal(signal.SIGTERM)
    out, err = ended(station, 1)
    assert "asked to end" in err
    assert "9 dead letters" in out
    assert "9 events wait" in out


@pytest.mark.slow
def test_keys_let_two_commands_talk_and_keep_a_third_out(
    start: Start, stations: Path, tmp_path: Path
) -> None:
    for name in ("office", "station"):
        assert CliRunner().invoke(main, ["keygen", name, "--dir", str(tmp_path / "keys")]).exit_code == 0
    keys = ("--keys", "keys")
    office = start("run", "stations.py", "--node", "office", "--listen", "tcp://127.0.0.1:0", *keys)
    address = f"office={contact(office)}"
    stranger = start("run", "stations.py", "--node", "station", "--peer", address)
    assert stranger.stderr is not None
    while "waiting for office" not in stranger.stderr.readline():
        assert stranger.poll() is None
    stranger.kill()
    ended(start("run", "stations.py", "--node", "station", "--peer", address, *keys))
    office.send_signal(signal.SIGTERM)
    assert rows(ended(office)[0])["show"][:2] == ["terminal", "9"]


@contextmanager
def alone_with_the_port() -> Iterator[None]:
    """The port in the README is fixed, so whoever else runs the test on this host, as any user, waits."""
    with socket.socket(socket.AF_UNIX) as taken:

        def free() -> bool:
            try:
                # A name that is not a file: other users could not lock a file of this one.
                taken.bind("\0evflow, port of the README")
            except OSError:
                return False
            return True

        wait_for(free, "the port of the README", 200)
        yield


@pytest.mark.slow
def test_two_commands_of_the_readme_work_as_they_stand(start: Start, tmp_path: Path) -> None:
    readme = (CHECKOUT / "README.md").read_text()
    for name, text in re.findall(r"<!-- file: (\S+) -->\n+```\w+\n(.*?)```", readme, re.DOTALL):
        (tmp_path / name).write_text(text)
    first, second = re.findall(r"^\$ (evflow run stations\.py --node .+)$", readme, re.MULTILINE)
    with alone_with_the_port():
        office = start(*shlex.split(first)[1:])
        assert contact(office) in first
        station = start(*shlex.split(second)[1:])
        assert rows(ended(station)[0])["rows"][:3] == ["source", "4", "4"]
        office.send_signal(signal.SIGINT)
        out, _ = ended(office, 130)
    assert re.findall(r"temperature=(\S+),", out) == ["30.2", "31.9"]


@pytest.mark.slow
def test_sigterm_ends_a_graph_in_one_process_orderly(start: Start, tmp_path: Path) -> None:
    waiting = "    import time\n    print('waiting', flush=True)\n    while True:\n        time.sleep(0.1)\n"
    (tmp_path / "one.py").write_text(STATIONS + FEED + waiting)
    process = start("run", "one.py")
    assert process.stdout is not None
    while process.stdout.readline() != "waiting\n":
        assert process.poll() is None
    process.send_signal(signal.SIGTERM)
    out, err = ended(process)
    assert rows(out)["show"][:2] == ["terminal", "9"]
    assert "asked to end" in err


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ("--node station", "station sends to office: give --peer office=CONTACT"),
        ("--node office", "office gets events from station: give --listen CONTACT"),
        ("--node statio", "no stone on node 'statio'; its nodes are office, station"),
        (
            "--node station --peer ofice=tcp://127.0.0.1:7000",
            "no node 'ofice'; its nodes are office, station",
        ),
        ("--node station --peer office", "expected NAME=CONTACT"),
        ("--node station --peer office=127.0.0.1:7000", "tcp://"),
        ("--node office --listen tcp://0.0.0.0:0", "evflow keygen"),
        ("--listen tcp://127.0.0.1:0", "add --node NAME"),
        ("--plain", "add --node NAME"),
    ],
)
def test_wrong_options_are_refused_with_what_to_do(stations: Path, options: str, message: str) -> None:
    done = CliRunner().invoke(main, ["run", str(stations), *options.split()])
    assert done.exit_code != 0
    assert type(done.exception) is SystemExit
    assert message in done.output


def test_node_of_a_graph_that_is_not_placed_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "free.py"
    path.write_text(STATIONS.replace('with g.on("office"):\n    ', ""))
    done = CliRunner().invoke(main, ["run", str(path), "--node", "station"])
    assert done.exit_code == 1
    assert "every stone needs one, and show has none" in done.output


def test_wrong_function_is_found_before_the_node_begins(stations: Path) -> None:
    stations.write_text(stations.read_text().replace("input.temperature", "input.temperatur"))
    done = CliRunner().invoke(
        main, ["run", str(stations), "--node", "office", "--listen", "tcp://127.0.0.1:0"]
    )
    assert done.exit_code == 1
    assert "stone 'hot' (filter)" in done.output
    assert "listens" not in done.output
