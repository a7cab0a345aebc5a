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
    assert at == len(words)
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
    assert _read(scene.frame(browser))[2] == [(1, 2, 0, 0, 0, 0)]
    with patch("evflow.tiles.map.scene.MOST_AREAS", 2), pytest.raises(EvflowError, match="at most 2"):
        scene.show(moves_of(1, [3, 4], [(1, 2, 3)] * 2)[0])
    assert _read(scene.frame(browser))[2] == []
    scene.leave(browser)
    for _ in range(100):
        browser.take(Drop("1"))
    with pytest.raises(EvflowError, match="wait"):
        browser.take(Drop("1"))
