"""Recorded moves on Spark, beside the live roles and brute force."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from itertools import product
from typing import TYPE_CHECKING, Any
from unittest.mock import patch

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st

from evflow.errors import EvflowError, SparkError
from evflow.spark import tiles
from evflow.spark.replay.columns import Form, rows_of
from evflow.spark.replay.tasks import Replay, Spread
from evflow.tiles.grid import Grid
from evflow.tiles.messages import SUBSCRIPTION
from evflow.tiles.moves import asked_of
from evflow.tiles.store import Contents
from tests.examples import tried
from tests.spark.fleets import Found, Move, brute_force, lived, table
from tests.tiles.world import Box, Circle, Polygon, Zone

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

EVENTS = [("match",), ("enter", "inside", "leave"), ("leave",)]
CENTRES = [(46.5, 6.6, 15), (0.0, 179.998, 15), (-60.0, -180.0, 12), (89.98, 10.0, 6), (-90.0, 0.0, 5)]
SETS = [(), (("kind", "taxi"),), (("kind", "taxi"), ("seats", 4)), (("free", True),)]
CUTS = st.lists(st.integers(0, 9), max_size=3)

HERE, WIDE = Circle(46.515, 6.615, 50.0), Box(46.5, 6.6, 46.52, 6.62)
TAXIS = [
    *(Move(True, id, 0, Circle(46.5 + 0.004 * id, 6.6 + 0.004 * id, 9.0), SETS[1]) for id in range(5)),
    Move(False, 1, 1, WIDE, SETS[2]),
    Move(False, 1, 2, WIDE, SETS[3]),
]
AGAIN = [
    Move(False, 1, 0, HERE),
    *(Move(True, 1, time, None if time % 3 == 0 else HERE) for time in range(9)),
]


@st.composite
def zones(draw: st.DrawFn, north: float, east: float) -> Zone:
    near = st.floats(-0.004, 0.004)
    y, x = north + draw(near), east + draw(near)
    y, x = min(max(y, -90.0), 90.0), (x + 180) % 360 - 180
    kind = draw(st.sampled_from(["circle", "circle", "box", "polygon"]))
    if kind == "circle":
        return Circle(y, x, draw(st.sampled_from([1.0, 50.0, 300.0])))
    size = draw(st.sampled_from([0.0005, 0.003]))
    if kind == "box":
        return Box(max(y - size, -90.0), x, min(y + size, 90.0), x + size)
    corners = [(y, x), (y - size if y > 0 else y + size, x), (y, x + size)]
    return Polygon(tuple(corners))


@st.composite
def fleets(draw: st.DrawFn) -> tuple[list[Move], int]:
    north, east, zoom = draw(st.sampled_from(CENTRES))
    # Few zones, so that many moves meet.
    some = draw(st.lists(zones(north, east), min_size=1, max_size=4))
    key = st.tuples(st.booleans(), st.integers(0, 1), st.integers(0, 9))
    keys = draw(st.lists(key, min_size=1, max_size=20, unique=True))
    zone, sets = st.sampled_from([*some, None]), st.sampled_from(SETS)
    return [Move(*key, draw(zone), draw(sets)) for key in keys], zoom


def parted(
    rows: pa.Table, number: np.ndarray, order: list[str], size: int
) -> Iterator[Iterator[pa.RecordBatch]]:
    """The rows of each task, as Spark hands them over."""
    for task in range(2):
        mine = rows.filter(pa.array(number % 2 == task)).sort_by([(name, "ascending") for name in order])
        yield iter(mine.combine_chunks().to_batches(max_chunksize=size))


def replayed(
    fleet: list[Move], zoom: int, asked: int, cuts: Sequence[int], size: int = 4
) -> list[tuple[Any, ...]]:
    """What two tasks of each step find that get batches of so many rows."""
    told = []
    for side in (False, True):
        rows = table([move for move in fleet if move.subscription == side])
        flags = SUBSCRIPTION | asked if side else 0
        form = Form("subscription" if side else "publication", flags, (), "bigint", False, "bigint")
        for task in parted(rows, rows["id"].to_numpy(), ["id", "time"], size):
            told += list(Spread(form, zoom, tuple(cuts))(task))
    if not told:
        return []
    moves = pa.Table.from_batches(told)
    keys = moves["tile"].to_numpy() * 7 + moves["slice"].to_numpy()
    found = []
    for task in parted(moves, keys, ["slice", "time"], size):
        for batch in Replay(zoom, asked > 0)(task):
            found += list(zip(*batch.to_pydict().values(), strict=True))
    return found


def events_of(found: list[tuple[Any, ...]], events: Sequence[str]) -> list[Found]:
    """What becomes of pairs, from those that match and those that have come apart."""
    told, inside = [], set[tuple[int, int, int]]()
    for pub, pub_time, sub, sub_time, born, apart in sorted(set(found), key=lambda row: (row[1], row[3])):
        pair = (pub, sub, born)
        event = ("leave" if pair in inside else "") if apart else ("inside" if pair in inside else "enter")
        (inside.discard if apart else inside.add)(pair)
        if event in events:
            told.append((event, pub, pub_time, sub, sub_time))
    return told


@settings(max_examples=tried(60), deadline=None)
@given(fleets(), st.sampled_from(EVENTS), st.integers(-1, 3), CUTS, st.integers(1, 4))
# In a tile of its own it is told last that the box, which was a taxi with seats, is none any more.
@example((TAXIS, 15), EVENTS[1], 0, [], 1)
# A subscription that was deleted begins anew.
@example((AGAIN, 15), EVENTS[1], 0, [], 2)
@example((AGAIN, 15), EVENTS[1], 0, [4], 3)
def test_tasks_find_what_the_live_system_and_brute_force_do(
    drawn: tuple[list[Move], int], events: Sequence[str], coarser: int, cuts: list[int], size: int
) -> None:
    fleet, zoom = drawn
    try:
        expected = sorted(brute_force(fleet, events))
    except ValueError:
        assume(False)
    # What no state names any more is forgotten at once.
    with patch("evflow.tiles.store.LEAST", 1):
        found = replayed(fleet, zoom - coarser, asked_of(events), sorted(set(cuts)), size)
    told = [("match", *row) for row in found] if events == ("match",) else events_of(found, events)
    assert sorted(told) == expected
    assert sorted(lived(fleet, events, Grid(zoom))) == expected


def drawn_fleet(moving: int, around: int, steps: int) -> list[Move]:
    """Publications and subscriptions that move about, of which some are deleted and come back."""
    random = np.random.default_rng(3)
    made: list[Move] = []
    for side, count in ((False, moving), (True, around)):
        for number, step in product(range(count), range(steps)):
            y, x = random.uniform((46.495, 6.595), (46.505, 6.605)).tolist()
            shapes = (
                Circle(y, x, float(random.choice([1, 100, 400]))),
                Box(y, x, y + 0.003, x + 0.003),
                Polygon(((y, x), (y, x + 0.004), (y + 0.004, x))),
            )
            zone = None if random.random() < 0.1 else shapes[random.choice(3, p=[0.75, 0.2, 0.05])]
            time = 10 * step + int(random.integers(0, 10))
            made.append(Move(side, 5 * number + side, time, zone, SETS[random.integers(0, 4)]))
    return made


def told_by(frame: DataFrame) -> list[Found]:
    names = ["event", "pub", "pub_time", "sub", "sub_time"]
    return sorted(zip(*(frame.toArrow()[name].to_pylist() for name in names), strict=True))


def test_spark_finds_matches_and_events_that_the_live_system_tells(spark: SparkSession) -> None:
    fleet = drawn_fleet(14, 12, 5)
    sides = [
        spark.createDataFrame(table([m for m in fleet if m.subscription == side])) for side in (False, True)
    ]
    for events, tasks in ((("match",), {"slices": 3, "partitions": 3}), (("enter", "inside", "leave"), {})):
        expected = sorted(brute_force(fleet, events))
        assert sorted(lived(fleet, events, Grid(15))) == expected and len(expected) > 100
        assert told_by(tiles(*sides, events=events, metres=600, **tasks)) == expected


def test_spark_takes_points_with_timestamps_and_subscriptions_that_stay(spark: SparkSession) -> None:
    places = "VALUES (7S, 60, 0.0, 180.0), (7S, 0, 0.0, 179.0), (8S, 0, 0.0, -179.9999)"
    trajectories = spark.sql(
        f"SELECT p Flight, timestamp_seconds(s) AT, y latitude, x longitude FROM {places} AS t(p, s, y, x)"
    )
    areas = spark.sql("SELECT 5 area, 0f latitude, -180.0 longitude, 50 radius")
    found = tiles(trajectories, areas, publication_id="flight", subscription_id="AREA", time="at")
    types = [("pub", "smallint"), ("pub_time", "timestamp"), ("sub", "int"), ("sub_time", "timestamp")]
    assert found.dtypes == [*types, ("event", "string")]
    told = found.selectExpr("pub", "unix_seconds(pub_time) t", "sub", "sub_time", "event").collect()
    assert sorted(tuple(row) for row in told) == [(7, 60, 5, None, "match"), (8, 0, 5, None, "match")]


POINT = "1 id, 1 time, 0 latitude, 0 longitude"


@pytest.mark.parametrize(
    ("side", "columns", "expected"),
    [
        (0, "'a' id, 1 time, 0 latitude, 0 longitude", "expected whole numbers in column id"),
        (0, "1 id, 0 latitude, 0 longitude", "expected timestamps or whole numbers in column time"),
        (0, "1 id, 1.5 time, 0 latitude, 0 longitude", "timestamps or whole numbers in column time"),
        (0, "1 id, 1 time, 0d latitude", "expected latitude, longitude and radius, or south"),
        (1, POINT, "expected latitude, longitude and radius, or south"),
        (1, f"{POINT}, '5' radius", "expected numbers in column radius"),
        (1, f"{POINT}, 5 radius, 1 deleted", "expected truth values in column deleted"),
        (
            1,
            f"{POINT}, array(1) polygon",
            "expected array<array<struct<lat.* in column polygon",
        ),
        (1, f"{POINT}, 5 radius, struct(now() a) attributes", "attribute a is a timestamp: expected"),
        (1, "1 id, now() time, 0 latitude, 0 longitude, 5 radius", "column time is a int of .* timestamp"),
    ],
)
def test_what_is_wrong_with_columns_is_told_at_once(
    spark: SparkSession, side: int, columns: str, expected: str
) -> None:
    sides = [POINT, f"{POINT}, 5 radius"]
    sides[side] = columns
    with pytest.raises(SparkError, match=expected):
        tiles(*(spark.sql(f"SELECT {given}") for given in sides))


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ({"slices": 0}, "slices=0: expected a whole number from 1"),
        ({"partitions": True}, "partitions=True: expected a whole number from 1"),
        ({"events": ["gone"]}, "events .*: expected .*'match',"),
        ({"metres": -1}, "tiles of -1 metres"),
    ],
)
def test_wrong_arguments_are_refused(arguments: dict[str, Any], expected: str) -> None:
    none: Any = None
    with pytest.raises(EvflowError, match=expected):
        tiles(none, none, **arguments)


def test_streams_and_other_things_are_refused(spark: SparkSession) -> None:
    stream = spark.readStream.format("rate").load()
    for wrong in (stream, [1]):
        with pytest.raises(SparkError, match="expected a DataFrame that does not stream"):
            tiles(wrong, stream)


FORM = Form("publication", 0, (), "bigint", False, "bigint")


def spread(rows: dict[str, Any]) -> list[pa.RecordBatch]:
    return list(Spread(FORM, 15)(iter([pa.record_batch(rows)])))


CIRCLE = {"id": [3], "time": [5], "latitude": [1.0], "longitude": [2.0], "radius": [0.0]}
TWICE = {name: column * 2 for name, column in CIRCLE.items()}
NOTHING = pa.array([None], pa.float64())


@pytest.mark.parametrize(
    ("row", "expected"),
    [
        ({"latitude": [91.0]}, r"publication 3 at 5: circle \[91.0, 2.0, 0.0\]: expected latitudes from"),
        ({"radius": [math.nan]}, r"circle \[1.0, 2.0, nan\]: expected"),
        ({"radius": [1e6]}, r"touches up to .* tiles, of at most 4,096: make tiles larger with metres="),
        ({"latitude": NOTHING, "longitude": NOTHING}, "publication 3 at 5 has 0 zones: expected one"),
        ({"south": [0.0], "west": [0.0], "north": [1.0], "east": [1.0]}, "has 2 zones"),
        ({"id": [-1]}, "expected ids from 0"),
        ({"id": pa.array([None], pa.int64())}, "publications: id is null in a row"),
        ({"time": pa.array([None], pa.int64())}, "publications: time is null in a row"),
        ({"attributes": [{"a": math.nan}]}, "publication 3 at 5: attribute 'a'=nan"),
        (TWICE | {"radius": [0.0, 1.0]}, "publication 3 at 5 stands in two rows, which differ"),
        (TWICE | {"time": [5, 4]}, "in no order"),
    ],
)
def test_what_is_wrong_in_a_row_ends_the_job(row: dict[str, Any], expected: str) -> None:
    with pytest.raises(SparkError, match=expected):
        spread(CIRCLE | row)


@pytest.mark.parametrize(
    ("rings", "expected"),
    [
        ([[(1.0, 2.0), (1.0, 3.0)]], "ring 0: expected three corners or more"),
        ([[(1.0, 2.0)] * 2], "ring 0: expected three corners or more"),
        ([[]], "ring 0: expected three corners or more"),
        ([None], "ring 0: expected three corners or more"),
        ([], "polygon 0 has no ring"),
        ([[(1.0, 2.0), (1.0, None), (2.0, 3.0)]], "expected finite coordinates"),
        ([[(1.0, 2.0), (91.0, 2.0), (2.0, 3.0)]], "corner 1: expected finite coordinates"),
        ([[(1.0, 2.0), None, (2.0, 3.0)]], "expected finite coordinates"),
        ([[(1 + n * 1e-6, 2.0 + n * n * 1e-6) for n in range(1001)]], "expected at most 1,000"),
    ],
)
def test_a_polygon_that_is_none_ends_the_job(rings: Any, expected: str) -> None:
    good = [[(1.0, 2.0), (1.0, 2.001), (1.001, 2.0)]]
    polygon = pa.array([corners(good), None, corners(rings)], table([]).schema.field("polygon").type)
    deleted = {"id": [1, 2, 3], "time": [5] * 3, "deleted": [False, True, False]}
    with pytest.raises(SparkError, match=f"publication 3 at 5: .*{expected}"):
        spread({**deleted, "polygon": polygon})


def corners(rings: Any) -> Any:
    names = "latitude", "longitude"
    return [ring and [corner and dict(zip(names, corner, strict=True)) for corner in ring] for ring in rings]


def test_rings_may_be_closed_and_have_holes() -> None:
    square = [(0.0, 0.0), (0.0, 0.004), (0.004, 0.004), (0.004, 0.0)]
    hole = [(0.001, 0.001), (0.001, 0.003), (0.003, 0.003), (0.003, 0.001), (0.001, 0.001)]
    kind = table([]).schema.field("polygon").type
    polygon = pa.array([corners([square]), corners([square, hole]), corners([[*square, square[0]]])], kind)
    rows, contents = rows_of(FORM, pa.record_batch({"id": [1, 2, 3], "time": [5] * 3, "polygon": polygon}))
    assert len(contents) == 2
    held = Contents()
    held.learn(contents)
    # Five by five tiles of 38 m lie in the hole.
    zone = Grid(20).tiles(rows, held)[0]
    count = np.bincount(zone)
    assert count[0] == count[2] == count[1] + 25
    assert {ring for outline in contents.values() for ring in outline} == {
        np.array([*square, square[0]]).tobytes(),
        np.array(hole).tobytes(),
    }


def test_rows_of_tiles_out_of_order_are_refused() -> None:
    first, second = spread(TWICE | {"id": [3, 4], "time": [5, 6]})
    with pytest.raises(SparkError, match="in no order"):
        list(Replay(15, False)(iter([second, first])))


def test_a_row_that_stands_twice_counts_once_and_deleted_ones_need_no_zone() -> None:
    rows = [Move(False, 1, 5, Circle(0, 0, 9))] * 2 + [
        Move(True, 2, 1, Circle(0, 0, 9)),
        Move(True, 2, 9, None),
    ]
    for size in (1, 4):
        assert replayed(rows, 15, 0, [3], size) == [(1, 5, 2, 1)]
