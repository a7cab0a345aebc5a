"""Events that machine code encodes where they lie."""

from __future__ import annotations

import gc
import sys
import threading
from itertools import accumulate
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from strategies import events, schemas, some, wire_event

import evflow as ev
from evflow.codgen import objects
from evflow.codgen.llvm.append_ir import WORDS
from evflow.codgen.objects import append_bytes, append_event
from evflow.events.careful import encode_careful
from evflow.events.event import event_class
from evflow.schema import Schema
from evflow.schema.types import Array, Number, Record


class Point(ev.Event):
    x: float
    y: ev.f32 = 0.0


class Mixed(ev.Event):
    """Every type of fixed width."""

    flag: bool
    small: ev.i8
    large: ev.u64
    name: ev.Str[6]
    blob: ev.Bytes[4]
    grid: ev.Array[ev.f64, 2, 2]
    point: Point


class Note(ev.Event):
    text: str


class Further(Note):
    more: int = 0


class Loose(ev.Event):
    """Every type of varying width, between fields of fixed width."""

    text: str
    number: int
    blob: bytes
    note: Note
    grid: ev.Array[ev.f64, None, 2]
    point: Point


GRID = np.array([[1.0, 2.0], [3.0, 4.0]])
FIELDS = {
    "flag": True,
    "small": -5,
    "large": 7,
    "name": "näme",
    "blob": b"a\0",
    "grid": GRID,
    "point": {"x": 1.5, "y": 2.5},
}


LOOSE = {
    "text": "größer",
    "number": 5,
    "blob": b"a\0b",
    "note": {"text": ""},
    "grid": np.array([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]]),
    "point": {"x": 1.5, "y": 2.5},
}


def loose(**changed: Any) -> Loose:
    return Loose(**(LOOSE | {"note": Note(""), "point": Point(1.5, 2.5)} | changed))


class Memory:
    """Memory with a margin, and the function that fills it.

    Args:
        schema: of the events; None for a function that takes bytes.
        size: bytes of the memory.
        thread: whose events are not taken.
        marks: of events of varying width, how many may come.
    """

    def __init__(self, schema: Schema | None, size: int, thread: int = 0, marks: int = 0) -> None:
        self.data = np.full(size + 8, 0xAA, np.uint8)
        self.start = self.data.ctypes.data
        self.ends = np.zeros(marks, np.int64)
        mark = self.ends.ctypes.data
        self.words = np.zeros(len(WORDS), np.int64)
        self.words[:3] = self.start, self.start + size, thread
        self.words[6:8] = mark, mark + self.ends.nbytes
        append = append_bytes(self.words, bool(marks)) if schema is None else append_event(schema, self.words)
        assert append is not None, "this Python keeps objects in another way"
        self.append = append

    def taken(self) -> bytes:
        """What was written so far; nothing was written behind the end."""
        assert set(self.data[-8:].tolist()) == {0xAA}
        return bytes(self.data[: int(self.words[0]) - self.start])

    def marked(self) -> list[int]:
        """Where the events end, as far as that was noted."""
        noted = (int(self.words[WORDS.index("mark")]) - self.ends.ctypes.data) // 8
        return [end - self.start for end in self.ends[:noted].tolist()]


def made(schema: Schema, fields: dict[str, Any]) -> Any:
    """An event from the fields of a strategy, whose records are dicts."""
    values: dict[str, Any] = {}
    for field in schema.fields:
        value = fields[field.name]
        if isinstance(field.type, Record):
            value = made(field.type.schema, value)
        elif isinstance(field.type, Array):
            value = np.array(value, field.type.element.dtype)
        values[field.name] = value
    return event_class(schema)(**values)


def beyond_i64(schema: Schema, fields: dict[str, Any]) -> bool:
    """Whether a number of an event needs all bits of a u64, which is left to the other encoders."""
    for field in schema.fields:
        value = fields[field.name]
        if isinstance(field.type, Record) and beyond_i64(field.type.schema, value):
            return True
        if isinstance(field.type, Number) and field.type.kind == "u" and value >= 1 << 63:
            return True
    return False


def mixed(**changed: Any) -> Mixed:
    return Mixed(**(FIELDS | {"point": Point(1.5, 2.5)} | changed))


@pytest.mark.slow
@some
@given(st.data())
def test_objects_are_encoded_to_the_documented_bytes(data: st.DataObject) -> None:
    schema = data.draw(schemas(fixed=True, logical=False))
    fields = [data.draw(events(schema)) for _ in range(3)]
    listed = [made(schema, one) for one in fields]
    width = schema.width
    assert width is not None
    memory = Memory(schema, 3 * width)
    taken = [memory.append(event) for event in listed]
    assert taken == [not beyond_i64(schema, one) for one in fields]
    expected = [wire_event(schema, one) for one, there in zip(fields, taken, strict=True) if there]
    assert memory.taken() == b"".join(expected)


@pytest.mark.slow
@some
@given(st.data())
def test_objects_of_varying_width_are_encoded_and_their_ends_noted(data: st.DataObject) -> None:
    schema = data.draw(schemas(listless=True, logical=False).filter(lambda drawn: drawn.width is None))
    fields = [data.draw(events(schema)) for _ in range(3)]
    listed = [made(schema, one) for one in fields]
    wires = [wire_event(schema, one) for one in fields]
    memory = Memory(schema, sum(map(len, wires)), marks=3)
    taken = [memory.append(event) for event in listed]
    assert taken == [not beyond_i64(schema, one) for one in fields]
    expected = [wire for wire, there in zip(wires, taken, strict=True) if there]
    assert memory.taken() == b"".join(expected)
    assert memory.marked() == list(accumulate(map(len, expected)))


def test_objects_of_a_class_are_encoded_with_every_type() -> None:
    memory = Memory(Mixed.schema, Mixed.schema.width or 0)
    assert memory.append(mixed())
    assert memory.taken() == wire_event(Mixed.schema, FIELDS)
    memory = Memory(Loose.schema, 1000, marks=1)
    assert memory.append(loose())
    assert memory.taken() == wire_event(Loose.schema, LOOSE)


@pytest.mark.parametrize(
    "changed",
    [
        {"text": "\ud800"},
        {"text": b"abc"},
        {"text": None},
        {"blob": "abc"},
        {"blob": bytearray(b"abc")},
        {"grid": np.zeros((2, 3))},
        {"grid": np.zeros((3, 2), np.float32)},
        {"grid": np.zeros((3, 2), ">f8")},
        {"grid": np.zeros((2, 3)).T},
        {"grid": np.zeros(2)},
        {"grid": [[1.0, 2.0]]},
        {"note": None},
        {"note": Further("x")},
        {"point": None},
    ],
)  # fmt: skip
def test_objects_of_varying_width_that_leave_a_doubt_are_refused(changed: dict[str, Any]) -> None:
    memory = Memory(Loose.schema, 1000, marks=3)
    assert memory.append(loose())
    before = memory.taken()
    assert memory.append(loose(**changed)) is False
    assert memory.taken() == before
    assert memory.marked() == [len(before)]


def test_objects_of_varying_width_are_refused_where_there_is_no_room_for_them_or_their_end() -> None:
    size = len(wire_event(Note.schema, {"text": "abc"}))
    memory = Memory(Note.schema, 2 * size, marks=3)
    assert [memory.append(Note("abc")) for _ in range(3)] == [True, True, False]
    assert memory.marked() == [size, 2 * size]
    memory = Memory(Note.schema, 1000, marks=2)
    assert [memory.append(Note("abc")) for _ in range(3)] == [True, True, False]
    assert memory.marked() == [size, 2 * size]


@pytest.mark.parametrize(
    "changed",
    [
        {"small": 5.0},
        {"small": 128},
        {"small": True},
        {"large": -1},
        {"large": 1 << 64},
        {"flag": 1},
        {"flag": np.True_},
        {"name": "sevensy"},
        {"name": "ab\0"},
        {"name": "\0"},
        {"name": "\ud800"},
        {"name": b"abc"},
        {"blob": b"12345"},
        {"blob": "a"},
        {"grid": GRID.T},
        {"grid": GRID.astype(np.float32)},
        {"grid": GRID.astype(">f8")},
        {"grid": GRID[:1]},
        {"grid": GRID.tolist()},
        {"point": None},
        {"point": {"x": 1.0, "y": 2.0}},
        {"point": Point(1e300, 1e300)},
        {"point": Point((1 << 53) + 1)},
        {"point": Point(np.float64(1.5))},
        {"point": Point("1.5")},
    ],
)  # fmt: skip
def test_objects_that_leave_a_doubt_are_refused_and_nothing_is_taken(changed: dict[str, Any]) -> None:
    memory = Memory(Mixed.schema, 3 * (Mixed.schema.width or 0))
    assert memory.append(mixed())
    before = memory.taken()
    assert memory.append(mixed(**changed)) is False
    assert memory.taken() == before


@pytest.mark.parametrize("number", [0, -1, 1 << 24, -(1 << 24), 0.1, 1e-50, -0.0, 3.4e38])
def test_objects_may_hold_an_int_for_a_float_and_floats_are_rounded(number: float) -> None:
    memory = Memory(Point.schema, Point.schema.width or 0)
    assert memory.append(Point(number, number))
    assert memory.taken() == encode_careful(Point.schema, {"x": number, "y": number})


def test_objects_without_a_value_and_of_other_classes_are_refused() -> None:
    class Further(Point):
        pass

    class Other(ev.Event):
        x: float
        y: ev.f32

    memory = Memory(Point.schema, 100)
    incomplete = Point(1.0)
    del incomplete.y
    for thing in (incomplete, Further(1.0), Other(1.0, 2.0), Point, {"x": 1.0, "y": 1.0}, None):
        assert memory.append(thing) is False
    assert memory.taken() == b""


def test_objects_are_refused_where_there_is_no_room_and_in_the_thread_that_takes_them() -> None:
    width = Point.schema.width or 0
    memory = Memory(Point.schema, 2 * width - 1)
    assert [memory.append(Point(1.0)) for _ in range(2)] == [True, False]
    assert len(memory.taken()) == width
    assert Memory(Point.schema, width, threading.get_ident()).append(Point(1.0)) is False


class Wave(ev.Event):
    samples: ev.Array[ev.f64, None]


class Grid(ev.Event):
    samples: ev.Array[ev.f64, 300, 300]


@pytest.mark.parametrize("kind", [Wave, Grid])
def test_large_objects_are_encoded_while_other_threads_run_and_one_at_a_time(kind: type[ev.Event]) -> None:
    shape = (300, 300) if kind is Grid else (90_000,)
    samples = np.random.default_rng(3).normal(size=shape)
    wire = wire_event(kind.schema, {"samples": samples})
    memory = Memory(kind.schema, 2 * len(wire), marks=2 if kind is Wave else 0)
    event = kind(samples)  # type: ignore[call-arg]
    before = sys.getrefcount(samples)
    memory.words[WORDS.index("writing")] = 1
    assert memory.append(event) is False
    memory.words[WORDS.index("writing")] = 0
    assert [memory.append(event) for _ in range(3)] == [True, True, False]
    assert memory.taken() == 2 * wire
    assert memory.words[WORDS.index("writing")] == 0
    assert sys.getrefcount(samples) == before


def test_objects_with_lists_or_what_may_be_missing_or_without_a_class_have_no_such_function() -> None:
    class Listed(ev.Event):
        texts: list[str]

    class Perhaps(ev.Event):
        inner: Listed
        x: float | None

    words = np.zeros(8, np.int64)
    assert append_event(Listed.schema, words) is None
    assert append_event(Perhaps.schema, words) is None
    assert append_event(Schema("bare", {"x": float}), words) is None


def test_bytes_are_appended_as_they_are() -> None:
    memory = Memory(None, 10, marks=4)
    assert [memory.append(data) for data in (b"abc", b"12", b"123456")] == [True, True, False]
    assert memory.marked() == [3, 5]
    memory = Memory(None, 10)
    assert [memory.append(data) for data in (b"abc", b"", b"12345678", bytearray(b"ab"), b"defg")] == [
        True, True, False, False, True,
    ]  # fmt: skip
    assert memory.taken() == b"abcdefg"


def test_functions_outlive_what_they_were_made_with() -> None:
    """Machine code and words stay as long as the function."""

    def append_of() -> tuple[Any, np.ndarray[Any, Any]]:
        class Short(ev.Event):
            x: int

        data = np.zeros(100, np.uint8)
        words = np.zeros(len(WORDS), np.int64)
        words[:2] = data.ctypes.data, data.ctypes.data + 100
        append = append_event(Short.schema, words)
        assert append is not None
        assert append(Short(5))
        return append, data

    append, data = append_of()
    gc.collect()
    assert append(Point(1.0)) is False
    assert data[: 1 + 1].any()


@pytest.mark.parametrize("odd", [None, Point(np.float64(0.5)), Point(2.0, 3)])
def test_batches_of_many_events_are_as_if_each_was_encoded_alone(odd: Point | None) -> None:
    many = [Point(i / 2, i) for i in range(3000)]
    if odd is not None:
        many[1234] = odd
    batch = ev.EventBatch.from_events(many)
    assert batch.to_bytes() == b"".join(encode_careful(Point.schema, point) for point in many)


def test_flow_takes_events_where_this_python_keeps_objects_in_another_way(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """That it is slower is said once, however many flows there are."""
    monkeypatch.setattr(objects, "_known_layout", lambda: False)
    objects._say_slow.cache_clear()
    caplog.set_level("WARNING", "evflow")
    seen: list[float] = []
    g = ev.Graph()
    g.source("points", Point) >> ev.Terminal(lambda event: seen.append(event.x))
    for start in 0, 1500:
        with g.run() as flow:
            for i in range(start, start + 1500):
                flow["points"].submit(Point(i))
    assert seen == list(range(3000))
    (said,) = [record.getMessage() for record in caplog.records]
    assert said.startswith("events and tables are encoded the slow way: Python 3.")
