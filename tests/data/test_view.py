from __future__ import annotations

import pickle
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from strategies import events, schemas, some

import evflow as ev
from evflow.events.batch import EventBatch
from evflow.events.encode import encode_dict
from evflow.events.view import view_class
from evflow.schema import Schema
from evflow.schema.types import f32, i16


class Point(ev.Event):
    x: float
    y: i16  # type: ignore[valid-type]


class Shape(ev.Event):
    name: str
    at: Point
    tag: ev.Str[4]
    key: ev.Bytes[3]
    solid: bool
    grid: ev.Array[f32, 2, 2]
    track: list[Point]
    marks: list[str]
    owner: Point | None = None
    note: str | None = None


def shape() -> Shape:
    return Shape(
        name="ring",
        at=Point(1.5, -2),
        tag="ab",
        key=b"k\0",
        solid=True,
        grid=np.array([[1, 2], [3, 4]]),
        track=[Point(0.0, 0), Point(1.0, 1)],
        marks=["a", "", "ccc"],
        note="näh",
    )


def view_of(event: Any) -> Any:
    return EventBatch.from_events([event])[0]


@some
@given(st.data())
def test_view_reads_what_was_encoded(data: st.DataObject) -> None:
    schema = data.draw(schemas())
    encoded = encode_dict(schema, data.draw(events(schema)))
    expected = view_class(schema)(encoded).to_dict()
    view = view_class(schema)(encoded)
    names = data.draw(st.permutations([f.name for f in schema.fields]))
    for name in names:
        assert _same(_plain(getattr(view, name)), expected[name]), name
    assert _same(_plain(view_class(schema)(encoded).to_event()), expected)
    assert _same(view.to_dict(), expected)


def _plain(value: Any) -> Any:
    if hasattr(value, "to_dict"):
        return value.to_dict()
    return (
        value
        if isinstance(value, (str, bytes, np.ndarray)) or not hasattr(value, "__len__")
        else list(map(_plain, value))
    )


def _same(one: Any, other: Any) -> bool:
    if isinstance(other, dict):
        return set(one) == set(other) and all(_same(one[k], other[k]) for k in other)
    if isinstance(other, list):
        return len(one) == len(other) and all(map(_same, one, other))
    if isinstance(other, np.ndarray):
        return bool(
            one.dtype == other.dtype and one.shape == other.shape and one.tobytes() == other.tobytes()
        )
    return bool(one == other) or (one != one and other != other)


def test_view_has_the_fields_of_its_event() -> None:
    view = view_of(shape())
    assert (view.name, view.tag, view.key, view.solid, view.note, view.owner) == (
        "ring",
        "ab",
        b"k\0",
        True,
        "näh",
        None,
    )
    assert (view.at.x, view.at.y) == (1.5, -2)
    assert view.grid.tolist() == [[1, 2], [3, 4]]
    assert [p.x for p in view.track] == [0.0, 1.0]
    assert view.schema is Shape.schema


def test_view_of_a_list_is_a_sequence() -> None:
    marks = view_of(shape()).marks
    assert (len(marks), marks[-1], marks[1:], list(reversed(marks))) == (
        3,
        "ccc",
        ["", "ccc"],
        ["ccc", "", "a"],
    )
    assert marks == ["a", "", "ccc"]
    assert marks != ["a", ""]
    assert repr(marks) == "['a', '', 'ccc']"
    with pytest.raises(IndexError, match="the list has 3 elements"):
        marks[3]
    with pytest.raises(TypeError, match="unhashable"):
        hash(marks)


def test_view_shows_arrays_without_a_copy_and_read_only() -> None:
    batch = EventBatch.from_events([shape()])
    grid = batch[0].grid
    assert np.shares_memory(grid, batch.data)
    with pytest.raises(ValueError, match="read-only"):
        grid[0, 0] = 9


@pytest.mark.parametrize("name", ["name", "tag", "solid", "grid", "at", "schema_", "attrs"])
def test_view_cannot_be_changed(name: str) -> None:
    view = view_of(shape())
    with pytest.raises(AttributeError):
        setattr(view, name, 1)


def test_view_refusing_a_change_says_what_to_do() -> None:
    view = view_of(shape())
    with pytest.raises(AttributeError, match=r"views are read-only: Shape\.tag .*to_event\(\)"):
        view.tag = "x"
    with pytest.raises(AttributeError, match="views are read-only"):
        del view.tag


def test_view_to_event_is_a_copy_that_can_be_changed() -> None:
    view = view_of(shape())
    event = view.to_event()
    assert isinstance(event, Shape)
    assert isinstance(event.at, Point)
    assert event == view == shape()
    event.at.x = 7.0
    event.grid[0, 0] = 7
    event.marks.append("d")
    assert view == shape()


def test_view_equals_events_and_views_of_the_same_values_only() -> None:
    view = view_of(shape())
    other = shape()
    other.track[1].y = 5
    assert view == view_of(shape())
    assert shape() == view
    assert view != other
    assert view != view_of(other)
    assert view != 5
    assert view.at == Point(1.5, -2)
    assert view.at != Schema("Point", {"x": float})(x=1.5)


def test_view_repr_is_its_events() -> None:
    assert repr(view_of(Point(1.5, 2))) == repr(Point(1.5, 2)) == "Point(x=1.5, y=2)"


def test_view_attrs_are_a_copy_of_its_events_attributes() -> None:
    batch = EventBatch.from_events([Point(1.0, 1), Point(2.0, 2)])
    assert batch[0].attrs == {}
    batch.attributes = ev_attributes([{"k": 45678}, {"s": "x"}])
    views = list(batch.select(np.array([1], np.int32)))
    assert [v.attrs for v in batch] == [{"k": 45678}, {"s": "x"}]
    assert [v.attrs for v in views] == [{"s": "x"}]
    batch[0].attrs["k"] = 0
    assert batch[0].attrs == {"k": 45678}


def ev_attributes(rows: list[dict[str, Any]]) -> Any:
    from evflow.events.attributes import Attributes

    return Attributes.from_rows(rows)


def test_view_of_a_deep_record_is_read_without_recursion() -> None:
    node = Schema("node", {"next": "optional(node)", "kids": "list(node)", "last": int})
    fields: dict[str, Any] = {"next": None, "kids": [], "last": 499}
    for n in range(498, -1, -1):
        fields = (
            {"next": fields, "kids": [], "last": n} if n % 2 else {"next": None, "kids": [fields], "last": n}
        )
    encoded = encode_dict(node, fields)
    view = view_class(node)(encoded)
    assert view.last == 0
    event = view.to_event()
    assert encode_dict(node, view.to_dict()) == encoded
    assert event == view
    assert encode_dict(node, event.to_dict()) == encoded


def test_view_refuses_pickling_with_advice() -> None:
    with pytest.raises(TypeError, match=r"to_event\(\)"):
        pickle.dumps(view_of(Point(1.0, 1)))
