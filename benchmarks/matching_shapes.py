"""Polygons and boxes beside shapely's STRtree, which tells as exactly what intersects a point."""

from __future__ import annotations

import importlib
from typing import Any

import numpy as np
from matching_goals import Goal, Size, matches
from matching_measure import least

from evflow.matching import AreaColumns, FilterColumns, Matcher

_CORNERS = 20
_BATCH = 1_000
_WANTED = 10.0
"""Polygons that an event is in."""


def shapes(size: Size) -> list[Goal]:
    """Polygons of 20 corners, squares, and boxes 100 times as long as wide, each with 10 matches an event."""
    count, events = size(100_000), max(_BATCH, size.events // 10)
    rng = np.random.default_rng(5)
    places = rng.random((events, 2))
    found = []
    for title, areas in (
        ("polygons of 20 corners", _polygons(rng, count)),
        ("square boxes", _boxes(rng, count, 1.0)),
        ("long boxes", _boxes(rng, count, 100.0)),
    ):
        found += _beside(title, areas, places)
    return found


def _polygons(rng: np.random.Generator, count: int) -> AreaColumns:
    """Stars around random centres, of an area that gives the wanted matches."""
    angles = np.sort(rng.random((count, _CORNERS)), axis=1) * 2 * np.pi
    away = rng.uniform(0.5, 1.0, (count, _CORNERS))
    rings = np.stack([np.cos(angles) * away, np.sin(angles) * away], axis=2)
    x, y = rings[:, :, 0], rings[:, :, 1]
    area = abs((x * np.roll(y, -1, axis=1) - y * np.roll(x, -1, axis=1)).sum(axis=1) / 2).mean()
    rings *= np.sqrt(_WANTED / count / area)
    rings += rng.random((count, 1, 2))
    closed = np.concatenate([rings, rings[:, :1]], axis=1).reshape(-1, 2)
    return AreaColumns.polygons(closed, np.arange(count + 1) * (_CORNERS + 1))


def _boxes(rng: np.random.Generator, count: int, ratio: float) -> AreaColumns:
    """Boxes that are so many times as wide as high."""
    wide, high = (np.sqrt(_WANTED / count * factor) for factor in (ratio, 1 / ratio))
    x, y = rng.random((2, count))
    return AreaColumns.boxes(x - wide / 2, y - high / 2, x + wide / 2, y + high / 2)


def _beside(title: str, areas: AreaColumns, places: Any) -> list[Goal]:
    shapely = importlib.import_module("shapely")
    columns = FilterColumns.from_arrays(
        name=np.zeros(0, np.int32), names=(), op=np.zeros(0, np.uint8), start=np.zeros(len(areas) + 1, int),
        areas=areas,
    )  # fmt: skip
    matcher = Matcher()
    matcher.subscribe_many(columns)
    batches = [
        {"x": part[:, 0].copy(), "y": part[:, 1].copy()} for part in np.split(places, len(places) // _BATCH)
    ]
    tree = shapely.STRtree(_geometries(shapely, areas))
    points = [shapely.points(np.column_stack(list(batch.values()))) for batch in batches]
    told = 0
    for batch, of_tree in zip(batches, points, strict=True):
        mine = matcher.match_batch(batch)
        event, area = tree.query(of_tree, predicate="intersects")
        ours = np.column_stack([np.repeat(np.arange(_BATCH), np.diff(mine.offsets)), mine.ids])
        # The tree's polygons are the same numbers, and both are exact.
        assert np.array_equal(np.unique(ours, axis=0), np.unique(np.column_stack([event, area]), axis=0))
        told += len(mine.ids)
    note = matches(told / len(places))
    cost = least(lambda: [matcher.match_batch(batch) for batch in batches], len(places))
    single = [{"x": x, "y": y} for x, y in places[:_BATCH].tolist()]
    alone = least(lambda: [matcher.match(event) for event in single], len(single))
    peer = least(lambda: [tree.query(of, predicate="intersects") for of in points], len(places))
    first = list(points[0])
    peer_alone = least(lambda: [tree.query(point, predicate="intersects") for point in first], len(first))
    memory = sum(matcher.stats().memory.values()) / len(areas)
    return [
        Goal(f"{title}: an event, in batches", cost, 20_000.0, note=note),
        Goal(f"{title}: an event alone", alone, note=note),
        Goal(f"{title}: shapely STRtree, an event", peer, note=f"{peer / cost:.1f} x evflow"),
        Goal(f"{title}: STRtree, an event alone", peer_alone, note=f"{peer_alone / alone:.1f} x evflow"),
        Goal(f"{title}: memory each", memory, unit="B", note=f"{len(areas):,} areas"),
    ]


def _geometries(shapely: Any, areas: AreaColumns) -> Any:
    if not len(areas.corners):
        return shapely.box(*areas.numbers.T)
    return shapely.from_ragged_array(shapely.GeometryType.POLYGON, areas.corners, (areas.rings, areas.start))
