"""The tiles of zones, against every tile of a coarse map."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from evflow.errors import GraphError
from evflow.tiles.grid import Grid
from evflow.tiles.kernels import zones
from evflow.tiles.messages import words
from evflow.tiles.store import Contents
from tests.tiles.rows import moves, outlines
from tests.tiles.world import Box, Circle, Polygon, Zone, gap, tile_box

LATITUDES = st.one_of(st.floats(-90, 90), st.sampled_from([-90.0, -85.1, 0.0, 85.06, 90.0]))
LONGITUDES = st.one_of(st.floats(-180, 180), st.sampled_from([-180.0, -135.0, 0.0, 179.99]))
RADII = st.one_of(st.floats(0, 3e5), st.floats(0, 2.1e7), st.sampled_from([0.0, 50.0, 1e7]))
CIRCLES = st.builds(Circle, LATITUDES, LONGITUDES, RADII)


@st.composite
def boxes(draw: st.DrawFn) -> Box:
    south, north = sorted([draw(LATITUDES), draw(LATITUDES)])
    west = draw(LONGITUDES)
    return Box(south, west, north, west + draw(st.floats(0, 360)))


@st.composite
def polygons(draw: st.DrawFn) -> Polygon:
    north, east, size = draw(LATITUDES), draw(LONGITUDES), draw(st.sampled_from([0.01, 3.0, 60.0]))
    corners = draw(st.lists(st.tuples(st.floats(-1, 1), st.floats(-1, 1)), min_size=3, max_size=6))
    return Polygon(tuple((min(max(north + size * y, -90), 90), east + size * x) for y, x in corners))


ZONES = st.one_of(CIRCLES, boxes(), polygons())


def tiles_of(zoom: int, zones: list[Zone]) -> tuple[np.ndarray, np.ndarray]:
    contents = Contents()
    contents.learn(outlines(zones))
    return Grid(zoom).tiles(moves(zones), contents)


@example(Box(0.0, -6.7e-48, 0.0, -6.7e-48), 1)
@example(Box(0.0, 0.0, 90.0, 0.0), 2)
@given(ZONES, st.integers(0, 3))
def test_a_zone_has_exactly_the_tiles_that_it_touches(zone: Zone, zoom: int) -> None:
    n = 1 << zoom
    found = tiles_of(zoom, [zone])[1].tolist()
    assert len(set(found)) == len(found)
    for row in range(n):
        for column in range(n):
            away = gap(zone, tile_box(zoom, row, column))
            if isinstance(zone, Polygon):
                touches = n * n + row * n + column in found
                inner, outer = (gap(zone, resized(zoom, row, column, by)) for by in (-1e-9, 1e-9))
                assert (touches or inner > 0) and (not touches or outer < 0), (row, column)
                continue
            if isinstance(zone, Box):
                # A tile has its northern and its western border.
                box = tile_box(zoom, row, column)
                inside = (box.west - zone.west) % 360, (zone.west - box.west) % 360
                away = (
                    0.0
                    if away < 0 and 0.0 in (zone.south - box.north, zone.north - box.south, *inside)
                    else away
                )
                away = 0.0 if away > 0 and abs(math.remainder(zone.east - box.west, 360)) < 1e-9 else away
                away = 0.0 if away < 0 and abs(math.remainder(zone.west - box.east, 360)) < 1e-9 else away
            # Beyond a quarter of the globe sines round to metres of the same.
            if abs(away) > (1e-4 if isinstance(zone, Box) or zone.radius < 9e6 else 1.0):
                assert (n * n + row * n + column in found) == (away < 0), (row, column, away)


def resized(zoom: int, row: int, column: int, degrees: float) -> Box:
    """A tile that is larger on all sides, but for the poles; smaller if that is negative."""
    south, west, north, east = tile_box(zoom, row, column)
    low, high = south - degrees * (south > -90), north + degrees * (north < 90)
    return Box(low, west - degrees, high, east + degrees)


@given(ZONES, ZONES, st.integers(0, 8))
def test_zones_that_overlap_share_a_tile(one: Zone, other: Zone, zoom: int) -> None:
    contents = Contents()
    contents.learn(outlines([one, other]))
    if Grid(zoom).counts(moves([one, other]), contents).sum() < 100_000:
        zone, tile = tiles_of(zoom, [one, other])
        shared = set(tile[zone == 0].tolist()) & set(tile[zone == 1].tolist())
        assert shared or gap(one, other) > -1e-6


@st.composite
def splits(draw: st.DrawFn) -> set[int]:
    """Tiles of a grid of zoom 1 that are split, down to zoom 5."""
    found, could = set[int](), [4, 5, 6, 7]
    for _ in range(draw(st.integers(0, 12))):
        tile = could.pop(draw(st.integers(0, len(could) - 1)))
        found.add(tile)
        could += Grid.parts(tile) if tile < 4**4 else []
    return found


@given(st.lists(ZONES, min_size=1, max_size=4), splits(), splits())
def test_a_zone_has_the_tiles_that_it_has_at_their_zooms(
    zones: list[Zone], one: set[int], other: set[int]
) -> None:
    contents, rows = Contents(), moves(zones)
    contents.learn(outlines(zones))
    touched = {
        (at, tile) for zoom in range(1, 6) for at, tile in zip(*Grid(zoom).tiles(rows, contents), strict=True)
    }
    # A tile of a grid is one of the first zoom, or a part of one that is split, unless it is split itself.
    leaves = [{4, 5, 6, 7}.union(*map(Grid.parts, each)) - each for each in (one, other)]
    for leaf, each in zip(leaves, (one, other), strict=True):
        found = list(zip(*Grid(1, each).tiles(rows, contents), strict=True))
        assert len(set(found)) == len(found) and set(found) == {(i, t) for i, t in touched if t in leaf}
    both = set(zip(*Grid(1, one).beside(Grid(1, other)).tiles(rows, contents), strict=True))
    assert both == {(i, t) for i, t in touched if t in leaves[0] | leaves[1]}


@pytest.mark.parametrize("wrong", [(), (1, 2, 3, 4), None])
def test_a_kernel_refuses_what_is_not_its_tuple(wrong: Any) -> None:
    with pytest.raises((IndexError, SystemError, TypeError)):
        zones.spans(words(moves([Circle(0, 0, 1)])), wrong, np.zeros(1, np.int64), Contents().shapes)


@pytest.mark.parametrize("wrong", [[18], [5, 18, 2**70], [0], [3], ["5"], range(4**8, 4**8 + 1025)])
def test_tiles_that_cannot_be_split_are_refused(wrong: list[int]) -> None:
    with pytest.raises(GraphError, match="expected"):
        Grid(8 if len(wrong) > 3 else 1, wrong)
    assert Grid(1, [5, 18]).splits == {5, 18}


def test_the_grid_is_that_of_web_maps() -> None:
    # OpenStreetMap's own example: slippy map tile names, zoom 10, for the place of Berlin's tower.
    rows = moves([Circle(52.520833, 13.409444, 0.0), Circle(-33.8568, 151.2153, 0.0)])
    for zoom in (0, 1, 10, 15, 20):
        n, expected = 1 << zoom, []
        for row in rows:
            latitude, longitude = math.radians(row["zone"][0]), row["zone"][1]
            x = math.floor((longitude + 180) / 360 * n)
            y = math.floor((1 - math.asinh(math.tan(latitude)) / math.pi) / 2 * n)
            expected.append(n * n + y * n + x)
        assert Grid(zoom).tiles(rows)[1].tolist() == expected


def test_borders_are_those_of_mercator() -> None:
    borders = Grid(12).tiling.borders
    rows = 1 << 12
    expected = np.degrees(np.arctan(np.sinh(np.pi * (1 - 2 * np.arange(1, rows) / rows))))
    assert np.allclose(borders[1:-1], expected, rtol=0, atol=1e-11)
    assert (borders[0], borders[-1]) == (90, -90) and (np.diff(borders) < 0).all()


def test_a_grid_by_metres_has_the_nearest_zoom() -> None:
    assert [Grid.of_metres(metres).zoom for metres in (1222, 1e-3, 4e7, 1700, 1800)] == [15, 20, 0, 15, 14]


@pytest.mark.parametrize("zoom", [-1, 21, 1.5, "2"])
def test_a_wrong_zoom_is_refused(zoom: object) -> None:
    with pytest.raises(GraphError, match="expected an integer from 0 to 20"):
        Grid(zoom)  # type: ignore[arg-type]


def test_a_wrong_width_is_refused() -> None:
    with pytest.raises(GraphError, match="expected a positive number"):
        Grid.of_metres(math.nan)
