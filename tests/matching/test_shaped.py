"""Subscriptions with boxes and polygons, through every engine, beside those that have none."""

from __future__ import annotations

import pickle
import random
import subprocess
import sys
from pathlib import Path
from typing import Any

import msgpack
import numpy as np
import pyarrow as pa
import pytest

import evflow as ev
from evflow.errors import FlowError, SubscriptionError
from evflow.matching import (
    AreaColumns,
    Box,
    Filter,
    FilterColumns,
    Matcher,
    Polygon,
    Subscription,
    parse_subscription,
)
from evflow.stones.matching.packing import pack, unpack
from tests.matching.drawn_areas import drawn, drawn_events, satisfied
from tests.matching.engines import Case, each_engine


@pytest.mark.slow
@pytest.mark.parametrize("space", ["plane", "globe"])
@each_engine
def test_engines_find_what_fractions_say(case: Case, space: str, tmp_path: Path) -> None:
    chance = random.Random(7)
    matcher = Matcher(case.engine, space=space, lookup=True, **case.options)
    held: dict[int, Subscription] = {}

    def check(found: Matcher) -> None:
        events = drawn_events(chance, space, 12)
        expected = [satisfied(held, event, space) for event in events]
        batch = found.match_batch(events)
        assert [sorted(batch[n].tolist()) for n in range(len(events))] == expected
        assert [sorted(found.match(event).tolist()) for event in events[:4]] == expected[:4]
        for explanation in found.explain(events[0]):
            assert explanation.holds and explanation.id in expected[0]

    for _ in range(3):
        more = [drawn(chance, space) for _ in range(12)]
        held |= dict(zip(matcher.subscribe_many(more).tolist(), more, strict=True))
        check(matcher)
        gone = chance.sample(sorted(held), 5)
        matcher.unsubscribe_many(gone)
        for id in gone:
            del held[id]
        check(matcher)
    assert dict(matcher.items()) == held
    some = next(iter(held))
    assert some in matcher.find(like=held[some])
    matcher.save(tmp_path / "saved")
    loaded = Matcher.load(tmp_path / "saved")
    check(loaded)
    assert dict(loaded.items()) == held
    one = drawn(chance, space)
    held[loaded.subscribe(one)] = one
    check(loaded)
    loaded.unsubscribe_many(sorted(held))
    held.clear()
    check(loaded)


def test_a_subscription_is_found_once_however_many_of_its_areas_hold_a_place() -> None:
    matcher = Matcher()
    matcher.subscribe("inside(0, 0, 9, 9) or inside(1, 1, 8, 8) or within(2, 2, 5) or a > 1")
    batch = matcher.match_batch({"a": [2.0, 0.0], "x": [2.0, 50.0], "y": [2.0, 50.0]})
    assert batch.ids.tolist() == [0] and batch.offsets.tolist() == [0, 1, 1]


def test_a_subscription_of_a_shape_does_not_move() -> None:
    matcher = Matcher()
    matcher.subscribe("inside(0, 0, 9, 9) or within(2, 2, 5)")
    for move in (lambda: matcher.move(0, 1, 1), lambda: matcher.move_many([0], 1.0, 1.0)):
        with pytest.raises(SubscriptionError, match="subscription 0 has no area to move; only circles move"):
            move()
    with pytest.raises(SubscriptionError, match="filter 1 of subscription 0 has no area to move"):
        matcher.move(0, 1.0, 1.0, filter=1)


def test_places_in_records_are_places_of_shapes_on_the_globe() -> None:
    matcher = Matcher("reference", space="globe", location=("at.lat", "at.lon"))
    matcher.subscribe("inside(0, 170, 9, -170 degrees)")
    events = [{"at": {"lat": 1, "lon": lon}} for lon in (169, 170.0, 190, np.float32(191))]
    assert np.diff(matcher.match_batch(events).offsets).tolist() == [0, 1, 1, 0]
    assert matcher.match({"at.lat": 1, "at.lon": 180}).tolist() == [0]
    assert matcher.match({"at.lat": "1", "at.lon": 180}).tolist() == []


def test_memory_of_removed_polygons_is_used_again() -> None:
    matcher = Matcher("reference")
    ring = [(np.cos(n / 10), np.sin(n / 10)) for n in range(60)]
    for _ in range(40):
        ids = matcher.subscribe_many([Filter(area=Polygon(ring))] * 10)
        assert sorted(matcher.match({"x": 0, "y": 0}).tolist()) == sorted(ids.tolist())
        matcher.unsubscribe_many(ids)
    assert matcher.stats().memory["shapes"] < 200_000


def test_columns_of_arrays_tables_and_texts_are_the_same() -> None:
    texts = ["a > 1 and inside('POLYGON ((0 0, 4 0, 0 3, 0 0))')", "a > 2", "a > 3 and within(3, 4, 5)"]
    plain = FilterColumns.from_subscriptions(texts)
    row = [[{"name": "a", "op": ">", "number": n}] for n in (1, 2, 3)]
    table = pa.table(
        {
            "constraints": row,
            "area": ["POLYGON ((0 0, 4 0, 0 3, 0 0))", None, None],
            "x": [None, None, 3], "y": [None, None, 4], "radius": [None, None, 5],
        }
    )  # fmt: skip
    of_table = FilterColumns.from_arrow(table, space="plane")
    nan = np.nan
    of_arrays = FilterColumns.from_arrays(
        name="a", op=">", number=[1, 2, 3], area=[0, -1, -1],
        areas=AreaColumns.of([Polygon([(0, 0), (4, 0), (0, 3)])]),
        x=[nan, nan, 3], y=[nan, nan, 4], radius=[nan, nan, 5],
    )  # fmt: skip
    for columns in (plain, of_table, of_arrays, pickle.loads(pickle.dumps(plain))):
        assert list(map(str, columns.to_subscriptions())) == texts
    first, second = Matcher(), Matcher()
    first.subscribe_many(table)
    second.subscribe_many([Filter(area=Box(n, 0, n + 1, 1)) for n in range(9)])
    assert first.match({"a": 2, "x": 1, "y": 1}).tolist() == [0]
    assert sorted(second.match({"x": 3, "y": 1}).tolist()) == [2, 3]


def test_polygons_of_a_table_are_named_by_their_rows() -> None:
    def columns(*area: str | None) -> FilterColumns:
        kind = pa.list_(pa.struct({"name": pa.string(), "op": pa.string(), "number": pa.float64()}))
        table = pa.table({"constraints": pa.array([[]] * len(area), kind), "area": pa.array(area)})
        return FilterColumns.from_arrow(table, space="plane")

    assert [str(one) for one in columns(None, None).to_subscriptions()] == ["true", "true"]
    with pytest.raises(SubscriptionError, match="polygon 2: expected POLYGON"):
        columns(None, "POLYGON ((0 0, 4 0, 0 3, 0 0))", "POLYGON ((nan 0, 4 0, 0 3, nan 0))")
    with pytest.raises(SubscriptionError, match="polygon 1: it is empty"):
        columns(None, "POLYGON EMPTY")


def test_many_texts_with_few_shapes_keep_them() -> None:
    texts = [f"a > {n}" for n in range(9)]
    texts[3:3] = ["inside(0, 0, 1, 1)", "a > 7 and inside(5, 5, 6, 6)"]
    texts += [f"within({n}, 3, 1)" for n in range(7)] + ["inside('POLYGON ((0 0, 4 0, 0 3, 0 0))')"]
    matcher = Matcher("reference", lookup=True)
    matcher.subscribe_many(texts)
    assert [str(one) for _, one in matcher.items()] == texts


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"area": [0, 1]}, "filter 1: area is 1; expected -1 to 0, a number of areas, or -1 for none"),
        ({"area": [0]}, "area has length 1; start says 2 filters"),
        ({"areas": None}, "areas: expected AreaColumns but found None"),
        ({"areas": AreaColumns.circles(1, 1, 1)}, "filter 0: area is a point or a circle; expected boxes"),
        ({"areas": AreaColumns.boxes(1, 1, 2, 2, "globe"), "space": "plane"}, "its area is on the globe"),
        ({"x": [1, np.nan], "y": 1, "radius": 1}, "filter 0: it has a circle and a box or polygon"),
    ],
)
def test_columns_with_wrong_areas_are_refused(change: dict[str, Any], message: str) -> None:
    good = {"name": "a", "op": ">", "number": [1, 2], "area": [0, -1], "areas": AreaColumns.boxes(0, 0, 1, 1)}
    with pytest.raises(SubscriptionError) as found:
        FilterColumns.from_arrays(**{**good, **change})
    assert message in str(found.value)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("inside(1, 2, 3)", "expected a comma, as in inside(x1, y1, x2, y2)"),
        ("inside(1, 2, 3, 4 km)", "expected degrees but found km"),
        ("inside(3, 0, 1, 1)", "x1 of a Box: expected at most x2 1.0 but found 3.0"),
        ("inside('POINT (1 2)')", "polygon 0: expected POLYGON"),
        ("inside('rubbish')", "polygon 0: expected POLYGON"),
        ("inside('POLYGON EMPTY')", "polygon 0: it is empty"),
        ("inside('POLYGON Z ((0 0 1, 1 0 1, 1 1 1, 0 0 1))')", "it has a third coordinate"),
        ("inside('POLYGON ((0 0, 1 0, 1 95, 0 0))' degrees)", "corner 2: expected finite coordinates"),
        ("not inside(0, 0, 1, 1)", "inside has no opposite"),
        ("inside(0, 0, 1, 1) and within(0, 0, 1)", "expected within or inside once between two or"),
        (
            "inside(0, 0, 1, 1) or within(0, 0, 1 km)",
            "its area is on the globe, those before it on the plane",
        ),
    ],
)
def test_wrong_text_is_refused(text: str, message: str) -> None:
    with pytest.raises(SubscriptionError) as found:
        FilterColumns.from_subscriptions([text])
    assert message in str(found.value)


def test_inside_may_be_an_attribute() -> None:
    assert str(parse_subscription("inside > 3 and Inside(0, 0, 1, 1)")) == "inside > 3 and inside(0, 0, 1, 1)"


def test_a_multipolygon_holds_what_its_parts_hold() -> None:
    matcher = Matcher("reference")
    matcher.subscribe("inside('MULTIPOLYGON (((0 0, 1 0, 0 1, 0 0)), ((5 5, 6 5, 5 6, 5 5)))')")
    found = matcher.match_batch({"x": [0.0, 5.25, 3.0], "y": [0.0, 5.25, 3.0]})
    assert np.diff(found.offsets).tolist() == [1, 1, 0]


@pytest.mark.slow
def test_a_polygon_without_shapely_is_an_error_that_names_the_extra() -> None:
    code = """
import sys
sys.modules["shapely"] = None
from evflow.matching import Matcher, Polygon, Filter
matcher = Matcher("reference")
matcher.subscribe("inside(0, 0, 1, 1)")
matcher.subscribe(Filter(area=Polygon([(0, 0), (1, 0), (0, 1)])))
print(matcher.match({"x": 0, "y": 0}).tolist())
try:
    matcher.subscribe("inside('POLYGON ((0 0, 1 0, 0 1, 0 0))')")
except Exception as error:
    print(error)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.startswith(
        "[0, 1]\npolygons as well-known text need shapely: pip install 'evflow[shapes]'"
    )


def test_kept_changes_have_shapes() -> None:
    chance = random.Random(3)
    for space in ("plane", "globe"):
        many = [drawn(chance, space) for _ in range(40)]
        again = unpack(pack(FilterColumns.from_subscriptions(many), space), space)
        assert again.to_subscriptions() == many
    with pytest.raises(FlowError, match="is not where the stone's areas are"):
        unpack(pack(FilterColumns.from_subscriptions(["inside(0, 0, 1, 1)"]), "plane"), "globe")
    corners = [0, 0, 1, 0, 0, 1]
    for area in (
        ["polygon"], ["polygon", 5], ["polygon", []], ["polygon", corners[1:]], ["polygon", corners, []],
        ["box"], ["box", 0, 0, 1], ["box", 0, 0, 1, None], ["moon", 1], [[]], {}, 5,
    ):  # fmt: skip
        with pytest.raises(FlowError, match="subscriptions that were kept"):
            unpack([msgpack.packb([[area]])], "plane")


def test_a_stone_takes_shapes_of_the_graph_by_call_and_by_event(tmp_path: Path) -> None:
    class Spot(ev.Event):
        x: float
        y: float

    seen: list[list[int]] = []

    def run(*places: tuple[float, float]) -> None:
        g = ev.Graph()
        spots = g.source("spots", Spot)
        given = [Filter(area=Polygon([(0, 0), (4, 0), (0, 3)]))]
        stone = spots >> ev.Match(given, path=tmp_path / "kept", engine="reference", name="m")
        stone >> ev.Terminal(lambda spot: seen.append(sorted(spot.subscriptions.tolist())))
        g.source("wishes", ev.SubscriptionChange) >> stone
        with g.run() as flow:
            if not seen:
                flow["m"].subscribe("inside(0, 0, 1, 1)")
                text = "inside('POLYGON ((0 0, 9 0, 9 9, 0 0))')"
                flow["wishes"].submit(ev.SubscriptionChange.subscribe(7, text))
                flow.drain()
            for place in places:
                flow["spots"].submit(Spot(*place))

    run((1, 1))
    run((1, 1), (8, 1))
    assert seen == [[0, 1, 7], [0, 1, 7], [7]]
