"""The benchmark of devices, on the stand-in: its times mean nothing there, its form and its checks do."""

from __future__ import annotations

import importlib.util
import json
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from evflow.gpu.device import Device
from evflow.gpu.grid import Grid
from evflow.gpu.scenarios import mixed_scenario
from evflow.matching.engine import Matches
from evflow.matching.index.engine import Index
from evflow.matching.matcher import Matcher
from tests.gpu.standin import LAUNCH_FAILED, StandIn
from tests.gpu.test_failures import until_it_passes

pytestmark = pytest.mark.slow

FILE = Path(__file__).parents[2] / "benchmarks" / "matching_gpu.py"

STEPS = {
    "ccm": ["copy input", "count", "copy results"],
    "clcb": ["copy input", "Loc", "Cont", "Zip", "copy results"],
    "clcb-grid": ["copy input", "match", "clear", "copy results"],
}


@dataclass
class Result:
    exit_code: int
    output: str


class Run:
    """Runs the benchmark at a small size."""

    def __init__(self, bench: ModuleType, capsys: pytest.CaptureFixture[str]) -> None:
        self.bench, self._capsys = bench, capsys

    def __call__(self, *arguments: str) -> Result:
        with pytest.raises(SystemExit) as ended:
            self.bench.main(["--scale", "0.0002", "--events", "20", *arguments])
        text = self._capsys.readouterr().out
        failed = isinstance(ended.value.code, str)
        return Result(1, f"{text}{ended.value.code}\n") if failed else Result(ended.value.code, text)


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    spec = importlib.util.spec_from_file_location("matching_gpu", FILE)
    assert spec is not None and spec.loader is not None
    bench = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(bench)
    monkeypatch.setattr(bench, "COPIED", 1 << 20)
    return Run(bench, capsys)


def test_bench_writes_all_figures_and_finds_nothing_wrong(standin: StandIn, run: Run, tmp_path: Path) -> None:
    file = tmp_path / "figures.json"
    done = run("--json", str(file))
    assert done.exit_code == 0, done.output
    assert done.output.endswith("\n0 wrong\n")
    report = json.loads(file.read_text())
    assert (report["wrong"], report["left_out"], report["complete"]) == (0, [], True)
    assert report["device"]["name"] == "stand-in on the CPU, not a GPU"
    assert set(report["copies"]) == {"on the device", "to the device", "to the host"}
    names = [scenario["name"] for scenario in report["scenarios"]]
    assert names == [
        "CCM, table 2, uniform names",
        "CCM, table 2, Zipf names",
        "CLCB, table 2, with location",
        "CLCB, table 2, content only",
        "CLCB, figure 6b, any content",
        "ranges and areas at random",
    ]
    for scenario in report["scenarios"]:
        assert list(scenario["engines"]) == ["index", *STEPS]
        located = scenario["name"] in (*names[2:3], *names[4:])
        for engine, row in scenario["engines"].items():
            assert (row["wrong"], row["compared"]) == (0, scenario["events"])
            assert row["deployed_seconds"] > 0 and all(row["us_of_an_event"].values())
            assert ("moves" in row) == located
            assert engine == "index" or list(row["steps"]) == STEPS[engine]
    slots = report["scenarios"][-1]["slots"]
    assert (list(slots["us_of_an_event"]), slots["wrong"]) == (["1", "2", "3", "4"], 0)
    assert "clcb-grid by slots, 0 wrong, µs an event: " in done.output


def test_a_wrong_answer_makes_it_fail(
    standin: StandIn, run: Run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    match = Grid.match

    def without_the_last(self: Grid, events: Any, threads: int = 1) -> Matches:
        found = match(self, events, threads)
        last = max(0, len(found.ids) - 1)
        return Matches(np.minimum(found.offsets, last), found.ids[:last])

    monkeypatch.setattr(Grid, "match", without_the_last)
    monkeypatch.setattr(run.bench, "ENGINES", ["clcb-grid"])
    done = run("--json", str(tmp_path / "figures.json"))
    assert done.exit_code == 1
    wrong = json.loads((tmp_path / "figures.json").read_text())["wrong"]
    assert wrong > 0 and done.output.endswith(f"\n{wrong} wrong\n")


def test_a_wrong_index_is_found_by_brute_force(
    standin: StandIn, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    match = Index.match

    def without_the_last(self: Index, events: Any, threads: int = 1) -> Matches:
        found = match(self, events, threads)
        return Matches(np.minimum(found.offsets, max(0, len(found.ids) - 1)), found.ids)

    monkeypatch.setattr(Index, "match", without_the_last)
    monkeypatch.setattr(run.bench, "ENGINES", [])
    assert run().exit_code == 1


def test_what_there_is_no_time_for_is_told(standin: StandIn, run: Run, tmp_path: Path) -> None:
    file = tmp_path / "figures.json"
    done = run("--json", str(file), "--seconds", "0")
    assert done.exit_code == 0
    report = json.loads(file.read_text())
    assert len(report["left_out"]) == 6 and not report["complete"]
    assert "left out: ranges and areas at random: 0 seconds were over\n" in done.output


def test_a_file_that_cannot_be_written_is_told(standin: StandIn, run: Run, tmp_path: Path) -> None:
    done = run("--json", str(tmp_path / "missing" / "figures.json"))
    assert done.exit_code == 1
    assert "No such file or directory" in done.output and "figures.json" in done.output


@pytest.mark.parametrize("engine", STEPS)
def test_steps_of_every_engine_are_timed_and_moved_bytes_counted(standin: StandIn, engine: str) -> None:
    columns, made = mixed_scenario(300, 5)
    matcher = Matcher(engine)
    matcher.subscribe_many(columns)
    rows = matcher.prepare(made).rows
    times, moved = matcher._engine.times(rows), matcher._engine.least_bytes(rows)
    assert times.shape == moved.shape == (1 if engine == "clcb-grid" else 5, len(STEPS[engine]))
    assert (times >= 0).all()


@pytest.mark.parametrize("engine", STEPS)
@pytest.mark.parametrize("kind", ["copy", "sync"])
def test_a_device_that_fails_while_steps_are_timed_is_told(standin: StandIn, engine: str, kind: str) -> None:
    columns, made = mixed_scenario(20, 2)
    matcher = Matcher(engine)
    matcher.subscribe_many(columns)
    rows = matcher.prepare(made).rows
    errors = until_it_passes(standin, kind, LAUNCH_FAILED, lambda: matcher._engine.times(rows))
    assert len(errors) > 1


@pytest.mark.parametrize("kind", ["copy", "sync"])
def test_a_device_that_fails_while_copies_are_timed_is_told(standin: StandIn, run: Run, kind: str) -> None:
    standin.fail(kind, LAUNCH_FAILED)
    done = run()
    assert done.exit_code == 1
    assert "Error: stand-in on the CPU, not a GPU: failed while timing copies: " in done.output


def test_copies_take_no_more_memory_than_there_is(standin: StandIn, run: Run) -> None:
    standin.configure(limit=standin.held()[1] + (1 << 20))
    assert set(run.bench._copies(Device.of())) == {"on the device", "to the device", "to the host"}
