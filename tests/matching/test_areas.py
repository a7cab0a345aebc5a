"""Areas as objects and columns, and which of them overlap."""

from __future__ import annotations

import math
import pickle
from fractions import Fraction
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
import shapely
from hypothesis import example, given
from hypothesis import strategies as st

from evflow.errors import SubscriptionError
from evflow.matching import (
    AreaColumns,
    Box,
    Circle,
    GlobeBox,
    GlobeCircle,
    GlobePolygon,
    Polygon,
    overlaps,
    parse_filter,
)
from evflow.matching.areas.columns import joined
from evflow.matching.areas.cover import cover
from evflow.matching.areas.flat import WORK
from evflow.matching.areas.overlap import arrays
from evflow.matching.model import LIMIT
from evflow.matching.native import KERNELS
from evflow.matching.space import EARTH_RADIUS, Globe, Plane
from evflow.spark.matching.bounds import boxes_of_shapes, places_of
from tests.matching.flat import away, globe_rings_of, holds, inside, meet, rings_of

small = st.integers(-6, 6).map(float)
eighths = st.integers(-48, 48).map(lambda n: n / 8)
triangle = [(0, 0), (4, 0), (0, 3)]


def rings(numbers: Any) -> Any:
    corner = st.tuples(numbers, numbers)
    ring = st.lists(corner, min_size=3, max_size=7).filter(lambda c: len(set(c)) > 2 and c[0] != c[-1])
    return ring


polygons = st.builds(Polygon, rings(small), st.lists(rings(small), max_size=2))


@st.composite
def boxes(draw: Any) -> Box:
    x1, x2 = sorted([draw(small), draw(small)])
    y1, y2 = sorted([draw(small), draw(small)])
    return Box(x1, y1, x2, y2)


shapes = polygons | boxes()


@given(shapes, eighths, eighths)
def test_a_shape_holds_the_points_that_fractions_say(area: Any, x: float, y: float) -> None:
    expected = holds(rings_of(area), (Fraction(x), Fraction(y)))
    assert overlaps(area, Circle(x, y, 0)) is expected
    assert overlaps(AreaColumns.points(x, y), AreaColumns.of([area])).tolist() == [expected]


@given(shapes, shapes)
@example(Polygon(triangle), Box(2, 1.5, 5, 5))
@example(Box(0, 0, 1, 1), Box(1, 1, 2, 2))
@example(Polygon([(0, 0), (6, 0), (6, 6), (0, 6)], [[(1, 1), (5, 1), (5, 5), (1, 5)]]), Box(2, 2, 3, 3))
def test_shapes_overlap_as_fractions_say(one: Any, other: Any) -> None:
    expected = meet(rings_of(one), rings_of(other))
    assert overlaps(one, other) is expected is overlaps(other, one)


@given(shapes, small, small, st.integers(0, 6))
@example(Polygon(triangle), 4.0, 3.0, 2)
def test_circles_overlap_shapes_as_fractions_say(area: Any, x: float, y: float, radius: int) -> None:
    square = away(rings_of(area), (Fraction(x), Fraction(y)))
    # The nearest point of an edge is rounded; what differs by more must be told.
    if square == radius * radius or abs(square - radius * radius) > Fraction(1, 10**9):
        tied = square == radius * radius and square.denominator != 1
        assert tied or overlaps(area, Circle(x, y, radius)) is (square <= radius * radius)


@given(polygons, polygons)
def test_shapely_says_the_same_of_valid_polygons(one: Polygon, other: Polygon) -> None:
    peers = [shapely.Polygon(area.rings[0], area.rings[1:]) for area in (one, other)]
    if all(peer.is_valid and peer.area > 0 for peer in peers):
        assert overlaps(one, other) is bool(shapely.intersects(*peers))
        spots = shapely.points(*np.mgrid[-6:6:7j, -6:6:7j].reshape(2, -1))
        found = overlaps(AreaColumns.points(*shapely.get_coordinates(spots).T), AreaColumns.of([one]))
        assert found.tolist() == shapely.intersects(peers[0], spots).tolist()


tiny = st.sampled_from([0.0, 1e-200, -3e-160, 1e-250, 2.0**-830, 5e-324, -1e-300])
anything = st.floats(-1e3, 1e3) | st.floats(-LIMIT, LIMIT) | tiny


def flushed(number: float) -> Fraction:
    return Fraction(0) if abs(number) < 1e-250 else Fraction(number)


@given(st.tuples(*[anything] * 6), st.floats(0, 1), st.integers(-2, 2))
def test_which_side_of_an_edge_is_told_exactly(corners: Any, share: float, steps: int) -> None:
    a, b, c = corners[:2], corners[2:4], corners[4:]
    if len({tuple(map(flushed, corner)) for corner in (a, b, c)}) < 3:
        return
    area = Polygon([a, b, c])
    # A point as near the edge from a to b as float64 has, and some steps beside.
    x, y = a[0] + share * (b[0] / 2 - a[0] / 2) * 2, a[1] + share * (b[1] / 2 - a[1] / 2) * 2
    x, y = (min(max(number, -LIMIT), LIMIT) for number in (x, y))
    for _ in range(abs(steps)):
        y = min(max(math.nextafter(y, math.copysign(math.inf, steps)), -LIMIT), LIMIT)
    expected = holds(rings_of(area), (flushed(x), flushed(y)))
    assert overlaps(AreaColumns.points(x, y), AreaColumns.of([area])).tolist() == [expected]


latitudes = st.sampled_from([-90.0, 90.0, 0.0]) | st.integers(-720, 720).map(lambda n: n / 8)
longitudes = st.sampled_from([-180.0, 180.0, 179.875]) | st.integers(-1440, 1440).map(lambda n: n / 8)


@st.composite
def globe_boxes(draw: Any) -> GlobeBox:
    south, north = sorted([draw(latitudes), draw(latitudes)])
    return GlobeBox(south, draw(longitudes), north, draw(longitudes))


@st.composite
def globe_polygons(draw: Any) -> GlobePolygon:
    west = draw(st.integers(-360, 180))
    span = st.integers(0, 8 * min(360, 360 - west)).map(lambda n: west + n / 8)
    corner = st.tuples(latitudes, span)
    return GlobePolygon(draw(st.lists(corner, min_size=3, max_size=6).filter(lambda c: c[0] != c[-1])))


globe_shapes = globe_boxes() | globe_polygons()


@given(globe_shapes, latitudes, longitudes | st.integers(-1000, 1000).map(float))
@example(GlobeBox(-20, 170, -10, -170), -15.0, 180.0)
@example(GlobeBox(80, 0, 90, 10), 90.0, 77.0)
@example(GlobePolygon([(0, 170), (0, 190), (9, 180)]), 0.0, -170.0)
@example(GlobePolygon([(0, -360), (9, -350), (0, -340)]), 1.0, 10.0)
def test_a_shape_holds_the_places_that_fractions_say(area: Any, x: float, y: float) -> None:
    expected = inside(area, x, y)
    assert overlaps(AreaColumns.points(x, y, "globe"), AreaColumns.of([area])).tolist() == [expected]


@given(globe_shapes, globe_shapes)
@example(GlobeBox(0, 170, 9, 180), GlobeBox(0, -180, 9, -170))
@example(GlobeBox(80, 0, 90, 10), GlobeBox(85, 90, 90, 91))
@example(GlobePolygon([(0, 350), (9, 350), (0, 360)]), GlobePolygon([(0, -360), (0, -350), (9, -360)]))
def test_shapes_on_the_globe_overlap_as_fractions_say(one: Any, other: Any) -> None:
    first, others = globe_rings_of(one)[2], globe_rings_of(other)
    poles = [
        {abs(corner[0]) / corner[0] for ring in found for corner in ring if abs(corner[0]) == 90}
        for found in (first, others[0])
    ]
    expected = bool(poles[0] & poles[1]) or any(meet(first, copy) for copy in others)
    assert overlaps(one, other) is expected is overlaps(other, one)


def metres(a: float, b: float, c: Any, d: Any) -> Any:
    """Along the surface, by the haversine."""
    a, b, c, d = (np.radians(number) for number in (a, b, c, d))
    square = np.sin((c - a) / 2) ** 2 + np.cos(a) * np.cos(c) * np.sin((d - b) / 2) ** 2
    return 2 * EARTH_RADIUS * np.arcsin(np.sqrt(np.minimum(square, 1)))


@given(globe_shapes, latitudes, longitudes, st.floats(0.01, 1.2))
@example(GlobeBox(60, -90, 60, 90), 70.0, 180.0, 0.9)
@example(GlobePolygon([(89, 0), (89, 180), (89, 360)]), 90.0, 0.0, 0.999)
def test_circles_on_the_globe_reach_as_far_as_they_say(area: Any, x: float, y: float, factor: float) -> None:
    if inside(area, x, y):
        assert overlaps(area, GlobeCircle(x, y, 0))
        return
    steps = np.linspace(0, 1, 4001)
    nearest, longest = math.inf, 0.0
    for ring in globe_rings_of(area)[2]:
        corners = np.array(ring, np.float64)
        for (a, b), (c, d) in pairwise(corners):
            nearest = min(nearest, float(metres(x, y, a + steps * (c - a), b + steps * (d - b)).min()))
            longest = max(longest, math.hypot(c - a, d - b))
    # The nearest of the places looked at may be so much further away than the nearest of all.
    slack = 1 + longest * 111_200 / 4000
    radius = factor * nearest
    if radius > nearest + 1:
        assert overlaps(area, GlobeCircle(x, y, radius))
    elif radius < nearest - slack:
        assert not overlaps(area, GlobeCircle(x, y, radius))


@given(shapes, small, small)
def test_what_covers_a_shape_holds_all_that_it_holds(area: Any, x: float, y: float) -> None:
    _, centre, reach = cover(AreaColumns.of([area]), Plane())
    if inside(area, x, y):
        assert (((centre - [x, y]) ** 2).sum(axis=1) <= reach).any()


@given(globe_shapes, latitudes, longitudes)
def test_what_covers_a_shape_on_the_globe_holds_all_that_it_holds(area: Any, x: float, y: float) -> None:
    _, centre, reach = cover(AreaColumns.of([area]), Globe())
    if inside(area, x, y):
        place = Globe().places(np.array([x]), np.array([y]))
        assert (((centre - place) ** 2).sum(axis=1) <= reach).any()


@given(globe_shapes, latitudes, longitudes)
def test_tiles_of_spark_hold_all_that_a_shape_on_the_globe_holds(area: Any, x: float, y: float) -> None:
    if inside(area, x, y):
        boxes = boxes_of_shapes(AreaColumns.of([area]))
        place = places_of("globe", np.array([x]), np.array([y]))
        assert ((boxes.low <= place) & (place <= boxes.high)).all(axis=1).any()


def test_code_that_is_not_compiled_says_the_same() -> None:
    rng = np.random.default_rng(2)
    for space in ("plane", "globe"):
        x, y = rng.integers(-40, 40, (2, 30))
        corners = rng.integers(-40, 40, (6, 4, 2)).astype(float)
        corners[:, 3] = corners[:, 0]
        areas = joined(
            [
                AreaColumns.points(x[:6], y[:6], space),
                AreaColumns.circles(x[:6], y[:6], 10 if space == "plane" else 1e6, space),
                AreaColumns.boxes(x[:6], y[:6], x[:6] + 9, y[:6] + 30, space),
                AreaColumns.polygons(corners.reshape(-1, 2), np.arange(7) * 4, space=space),
            ],
            space,
        )
        pairs = np.indices((24, 24)).reshape(2, -1)
        out = np.zeros(pairs.shape[1], np.uint8)
        plain = KERNELS["evflow.matching.areas.meeting.pairs_meet"].function
        with np.errstate(all="ignore"):
            plain(int(space == "globe"), *arrays(areas), *arrays(areas), *pairs, np.zeros(WORK), out)
        expected = overlaps(areas, areas, (pairs[0], pairs[1]))
        assert out.view(bool).tolist() == expected.tolist() and 0.1 < expected.mean() < 0.9
        assert expected.reshape(24, 24).T.tolist() == expected.reshape(24, 24).tolist()


@given(shapes | globe_shapes)
def test_a_shape_is_the_same_as_text_bytes_and_column(area: Any) -> None:
    assert parse_filter(str(area)).area == area
    assert pickle.loads(pickle.dumps(area)) == area
    columns = AreaColumns.of([area, area]).take([1])
    assert columns[0] == area and hash(columns[0]) == hash(area)


def test_columns_hold_areas_of_all_kinds() -> None:
    given = [Circle(3, 4, 5), Box(0, 0, 4, 3), Polygon(triangle, [[(1, 1), (2, 1), (1, 1.5)]])]
    columns = AreaColumns.of(given)
    assert [columns[n] for n in range(3)] == given
    assert AreaColumns.boxes(0, 0, 4, 3)[0] == given[1]
    assert AreaColumns.circles([3], 4, 5)[0] == given[0]
    ragged = shapely.to_ragged_array([shapely.Polygon(*given[2].rings[:1], given[2].rings[1:])])
    assert AreaColumns.polygons(ragged[1], *ragged[2])[0] == given[2]
    every = [(i, j) for i in range(3) for j in range(3)]
    pairs = np.array(every).T
    expected = [overlaps(given[i], given[j]) for i, j in every]
    assert overlaps(columns, columns, (pairs[0], pairs[1])).tolist() == expected


def columns_of(**changed: Any) -> AreaColumns:
    """A triangle in its internal form, with some of it changed."""
    held = AreaColumns.of([Polygon(triangle)])
    fields = ("space", "kind", "numbers", "start", "rings", "corners")
    given = {field: getattr(held, field) for field in fields} | changed
    if len(given["rings"]) == 1:
        given |= {"start": np.zeros(2, np.int64), "corners": np.zeros((0, 2))}
    elif given["rings"][-1] == 3:
        given["corners"] = held.corners[:3]
    return AreaColumns(**given)


def test_columns_are_counted_from_their_end_too() -> None:
    columns = AreaColumns.of([Polygon(triangle), Box(0, 0, 4, 3)])
    assert columns[-2] == columns[0] == Polygon(triangle)
    assert list(columns) == [columns[0], columns[1]]
    for number in (2, -3):
        with pytest.raises(IndexError):
            columns[number]
    assert len(AreaColumns.polygons([], [0])) == len(columns.take([])) == 0
    assert AreaColumns.points(1, 2).numbers.tolist() == [[1, 2, 0, 0]]


def test_a_place_that_is_none_is_in_nothing() -> None:
    box = AreaColumns.boxes(-LIMIT, -LIMIT, LIMIT, LIMIT)
    places = AreaColumns.points([math.nan, math.inf, 0, -LIMIT], [0, 0, math.nan, LIMIT])
    assert overlaps(places, box).tolist() == [False, False, False, True]
    globe = AreaColumns.points([91, math.nan, 90, 0], [0, 0, 1e9, math.inf], "globe")
    whole = AreaColumns.boxes(-90, -180, 90, 180, "globe")
    assert overlaps(globe, whole).tolist() == [False, False, True, False]


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Box(1, 0, 0, 1), "x1 of a Box: expected at most x2 0.0 but found 1.0"),
        (lambda: Box(0, 0, math.inf, 1), "x2 of a Box: expected a number up to 3.4028235e+38 but found inf"),
        (lambda: GlobeBox(0, 0, 91, 1), "north of a GlobeBox: expected -90 to 90 degrees but found 91"),
        (lambda: GlobeBox(5, 0, 1, 1), "south of a GlobeBox: expected at most north 1.0 but found 5.0"),
        (lambda: GlobeBox(0, 190, 1, 200), "west of a GlobeBox: expected -180 to 180 degrees"),
        (lambda: Polygon([(0, 0), (1, 1), (0, 0)]), "ring 0 of a Polygon: expected three corners or more"),
        (
            lambda: Polygon([(0, 0), (1, 1), (0, "a")]),
            "y of corner 2 of ring 0 of a Polygon: expected a number",
        ),
        (
            lambda: Polygon([(0, 0), (1, 1), (0, 1, 2)]),
            "corner 2 of ring 0 of a Polygon: expected two numbers",
        ),
        (lambda: Polygon(3), "ring 0 of a Polygon: expected a list"),
        (lambda: Polygon([(n, n * n) for n in range(65_537)]), "a Polygon: expected at most 65,536 corners"),
        (lambda: GlobePolygon([(0, -190), (1, 190), (2, 0)]), "expected longitudes within 360 degrees"),
        (lambda: AreaColumns.boxes(1, 0, 0, 1), "are not the numbers of a box"),
        (lambda: AreaColumns.circles(1, 0, -1), "are not the numbers of a circle"),
        (
            lambda: AreaColumns.polygons([(0, 0), (1, 0), (1, 1), (2, 2)], [0, 4]),
            "its first corner once more",
        ),
        (lambda: AreaColumns.polygons([(0, 0), (1, 0), (0, 0)], [0, 3]), "ring 0: expected three corners"),
        (lambda: AreaColumns.polygons([(0, 0), (1, 0), (0, 0)], [0, 4]), "rings: expected offsets"),
        (lambda: AreaColumns.of([Box(0, 0, 1, 1), GlobeBox(0, 0, 1, 1)]), "area 1: it is on the globe"),
        (lambda: AreaColumns.of(Box(0, 0, 1, 1)), "areas: expected a list of areas but found Box"),
        (lambda: AreaColumns.polygons([("a", "b")], [0, 1]), "corners: expected two columns of numbers"),
        (lambda: AreaColumns.polygons([(1, 2), (3,)], [0, 2]), "corners: expected two columns of numbers"),
        (lambda: AreaColumns.polygons(np.zeros((4, 2, 2)), [0, 4]), "found shape (4, 2, 2)"),
        (lambda: AreaColumns.circles(0, math.nan, 1), "area 0: [0.0, nan, 1.0, 0.0] are not the numbers"),
        (lambda: AreaColumns.boxes(0, 0, 1, 1).take([1]), "expected the numbers of 1 areas, found 1 to 1"),
        (lambda: AreaColumns.boxes(0, 0, 1, 1).take([-1]), "found -1 to -1"),
        (lambda: AreaColumns.boxes(0, 0, 1, 1).take([0.7]), "expected the numbers of areas but found [0.7]"),
        (
            lambda: AreaColumns.boxes(0, 0, 1, 1).take([True]),
            "expected the numbers of areas but found [True]",
        ),
        (lambda: overlaps(AreaColumns.of([]), AreaColumns.of([]), 5), "pairs as two columns of integers"),
        (lambda: overlaps(AreaColumns.of([]), AreaColumns.of([]), ([0],)), "pairs as two columns"),
        (lambda: columns_of(kind=[1]), "kind: expected an array of numpy but found [1] (list)"),
        (lambda: columns_of(rings=np.zeros(1, np.int64)), "area 0: expected rings of polygons"),
        (lambda: columns_of(kind=np.array([3], np.uint8)), "area 0: expected rings of polygons"),
        (lambda: columns_of(rings=np.array([0, 3])), "ring 0: expected three corners or more"),
        (lambda: columns_of(rings=np.array([0, 9])), "rings: expected offsets that rise from 0 to 4"),
        (lambda: overlaps(Box(0, 0, 1, 1), GlobeBox(0, 0, 1, 1)), "an area is on the plane, the other on"),
        (lambda: overlaps(3, Box(0, 0, 1, 1)), "expected an area or AreaColumns but found 3"),
        (lambda: overlaps(AreaColumns.points([1, 2], 0), AreaColumns.points([1, 2, 3], 0)), "2 areas and 3"),
        (
            lambda: overlaps(AreaColumns.points(1, 0), AreaColumns.points(1, 0), ([0], [1])),
            "expected numbers of 1 areas in pairs",
        ),
    ],
)
def test_what_is_wrong_is_named(make: Any, message: str) -> None:
    with pytest.raises(SubscriptionError) as found:
        make()
    assert message in str(found.value)
