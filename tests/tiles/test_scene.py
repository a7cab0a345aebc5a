"""What the browsers of a map are told, and what is made of what they say."""

from __future__ import annotations

import json
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from evflow.errors import EvflowError
from evflow.matching import GlobeCircle, GlobePolygon
from evflow.tiles import MATCH
from evflow.tiles.map.scene import HEAD, Add, Drop, Look, Scene, parse
from evflow.tiles.moves import moves_of

NUMBER = st.floats() | st.integers() | st.text() | st.none()
MESSAGE = st.fixed_dictionaries(
    {"type": st.sampled_from(["look", "add", "drop", "x"])},
    optional={
        "box": st.lists(NUMBER | st.floats(-200, 200), max_size=5),
        "latitude": NUMBER | st.floats(-100, 100),
        "longitude": NUMBER | st.floats(-200, 200),
        "radius": NUMBER | st.floats(-1, 1e8),
        "id": NUMBER | st.integers(0, 1 << 65).map(str),
        "more": NUMBER,
    },
)


@given(st.binary(max_size=200) | st.text(max_size=200) | MESSAGE.map(json.dumps))
def test_a_message_is_within_bounds_or_an_error(text: Any) -> None:
    try:
        message = parse(text)
    except EvflowError:
        return
    if isinstance(message, Look):
        south, west, north, east = message.box
        assert -90 <= south < north <= 90 and -180 <= west < east <= 180
    elif isinstance(message, Add):
        assert abs(message.latitude) <= 90 and abs(message.longitude) <= 180 and 0 < message.radius <= 1e7
    else:
        assert isinstance(message, Drop) and 0 <= int(message.id) < 1 << 63


@given(st.floats(-89, 0), st.floats(-179, 0), st.floats(1, 89), st.floats(1, 179), st.integers(0, 1 << 62))
def test_right_messages_are_understood(a: float, b: float, c: float, d: float, number: int) -> None:
    assert parse(json.dumps({"type": "look", "box": [a, b, c, d]})) == Look((a, b, c, d))
    added = {"type": "add", "latitude": a, "longitude": b, "radius": d}
    assert parse(json.dumps(added)) == Add(a, b, d)
    assert parse(json.dumps({"type": "drop", "id": str(number)})) == Drop(str(number))


def test_deep_nesting_and_boxes_without_inside_are_errors() -> None:
    for text in (
        "[" * 4000,
        '{"type":"look","box":' + "[" * 4000,
        '{"type":"look","box":[1,0,1,5]}',
        "\ud800",
    ):
        with pytest.raises(EvflowError, match=r"message of a browser|expected south"):
            parse(text)


def test_polygons_are_told_by_their_rings_until_they_are_hidden() -> None:
    outer, hole, other = [[0, 0], [0, 8], [8, 0]], [[1, 1], [1, 2], [2, 1]], [[5, 5], [5, 6], [6, 5]]
    scene = Scene(100)
    browser = scene.join()
    shapes = [GlobePolygon(outer, [hole]), GlobeCircle(1, 2, 3), GlobePolygon(other)]
    scene.show(*moves_of(1, [1, 2, 3], shapes))
    scene.show(*moves_of(1, [4], GlobePolygon(outer)))
    scene.hide(np.array([4]))
    told = {row[0]: row[1:] for row in _read(scene.frame(browser))[2]}
    assert told[2] == (0, 1, 2, 3, 0) and told[4][0] == 3
    for number, rings in ((1, [outer, hole]), (3, [other])):
        wanted = [corner for ring in rings for corner in (*ring, ring[0], [np.nan, np.nan])]
        np.testing.assert_array_equal(told[number][1], wanted)
    late = _read(scene.frame(scene.join()))[2]
    assert [row[:2] for row in late] == [(1, 2), (2, 0), (3, 2)]
    with patch("evflow.tiles.map.scene.MOST_CORNERS", 19), pytest.raises(EvflowError, match="20 corners"):
        scene.show(*moves_of(1, [5], GlobePolygon(other)))
    scene.show(*moves_of(1, [3], GlobeCircle(1, 2, 3)))
    assert _read(scene.frame(browser))[2] == [(3, 0, 1, 2, 3, 0)]


def _matches(pubs: list[int], sub: int, latitudes: list[float]) -> np.ndarray:
    rows = np.zeros(len(pubs), MATCH)
    rows["pub"], rows["sub"], rows["zone"][:, 0] = pubs, sub, latitudes
    return rows


def _read(frame: bytes) -> tuple[list[float], list[Any], list[Any], list[Any]]:
    """A frame: head, then rows of things, areas and matches."""
    words, whole = np.frombuffer(frame, "<f8"), np.frombuffer(frame, "<i8")
    head, at, tables = words[:HEAD].tolist(), HEAD, []
    for count, width, ids in ((head[0], 3, 1), (head[1], 6, 1), (head[2], 2, 2)):
        rows = range(at, at + int(count) * width, width)
        tables.append([(*whole[i : i + ids].tolist(), *words[i + ids : i + width].tolist()) for i in rows])
        at += int(count) * width
    corners = words[at:].reshape(-1, 2)
    assert len(corners) == head[11]
    for row, (id, kind, *numbers) in enumerate(tables[1]):
        if kind == 2:
            tables[1][row] = (id, kind, corners[int(numbers[0]) : int(numbers[1])].tolist())
    return head, *tables


IDS = st.integers(0, (1 << 62) - 1)


@given(st.lists(st.lists(st.tuples(st.integers(0, 5) | IDS, st.floats(-90, 90)), max_size=9), max_size=6))
def test_the_latest_place_of_each_thing_is_told(batches: list[list[tuple[int, float]]]) -> None:
    scene = Scene(7 << 58)
    browser, other = scene.join(), scene.join()
    wanted: dict[int, float] = {}
    for batch in batches:
        # What comes twice in a batch is the later one there, too.
        scene.take(_matches([i for i, _ in batch], browser.number, [place for _, place in batch]))
        wanted.update(batch)
    assert {row[0]: row[1] for row in _read(scene.frame(browser))[1]} == wanted
    assert _read(scene.frame(browser))[1] == _read(scene.frame(other))[1] == []


def test_what_is_too_much_for_a_frame_is_counted() -> None:
    with patch("evflow.tiles.map.scene.MOST_THINGS", 10), patch("evflow.tiles.map.scene._MOST_FLASHES", 3):
        scene = Scene(100)
        browser = scene.join()
        scene.show(moves_of(1, [1, 2], [(0, 0, 5), (0, 0, 6)])[0])
        for start in range(0, 60, 20):
            scene.take(_matches(list(range(start, start + 20)), browser.number, [0.0] * 20))
            scene.take(_matches(list(range(start, start + 2)), 1, [0.0] * 2))
            scene.take(_matches([1], 3, [0.0]))
        head, things, areas, pairs = _read(scene.frame(browser))
        assert (len(things), len(areas), pairs) == (10, 2, [(0, 1), (1, 1), (20, 1)])
        assert head[3:5] == [6, 50]
        assert not browser.is_changed and _read(scene.frame(browser))[0][:5] == [0] * 5


def test_a_browser_gets_all_areas_when_it_comes_and_their_changes_afterwards() -> None:
    scene = Scene(100)
    scene.show(moves_of(1, [1, 2], [(1, 2, 3), (4, 5, 6)])[0])
    scene.show(moves_of(1, 2, (7, 8, 9, 10))[0])
    browser = scene.join()
    assert _read(scene.frame(browser))[2] == [(1, 0, 1, 2, 3, 0), (2, 1, 7, 8, 9, 10)]
    scene.hide(np.array([1, 5]))
    assert _read(scene.frame(browser))[2] == [(1, 3, 0, 0, 0, 0)]
    with patch("evflow.tiles.map.scene.MOST_AREAS", 2), pytest.raises(EvflowError, match="at most 2"):
        scene.show(moves_of(1, [3, 4], [(1, 2, 3)] * 2)[0])
    assert _read(scene.frame(browser))[2] == []
    scene.leave(browser)
    for _ in range(100):
        browser.take(Drop("1"))
    with pytest.raises(EvflowError, match="wait"):
        browser.take(Drop("1"))
