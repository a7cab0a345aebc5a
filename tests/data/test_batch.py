from __future__ import annotations

from typing import Any

import msgpack
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from strategies import events, schemas, some

import evflow as ev
from evflow.errors import SchemaError
from evflow.events.attributes import Attributes
from evflow.events.batch import EventBatch
from evflow.events.encode import encode_dict, encoder
from evflow.events.gather import Place
from evflow.schema import Schema
from evflow.schema.types import f32, i16


class Point(ev.Event):
    x: float
    y: i16  # type: ignore[valid-type]


class Fixed(ev.Event):
    n: int
    name: ev.Str[6]
    at: Point
    ok: bool
    key: ev.Bytes[4]
    grid: ev.Array[f32, 2, 3]


class Varied(ev.Event):
    n: int
    title: str
    at: Point
    name: ev.Str[6]
    ok: bool
    track: list[Point]
    grid: ev.Array[f32, 2, 3]
    note: str | None = None


def fixed(n: int) -> Fixed:
    return Fixed(n, f"né{n}", Point(n / 2, -n), n % 2 == 0, bytes(n % 4), np.full((2, 3), n))


def varied(n: int) -> Varied:
    return Varied(
        n, "t" * n, Point(n / 2, -n), f"né{n}", n % 2 == 0, [Point(1.0, 1)] * (n % 3), np.full((2, 3), n),
        None if n % 2 else "even",
    )  # fmt: skip


@pytest.fixture(params=[fixed, varied])
def originals(request: pytest.FixtureRequest) -> list[Any]:
    return [request.param(n) for n in range(7)]


@pytest.fixture
def batch(originals: list[Any]) -> EventBatch:
    return EventBatch.from_events(originals)


def numbers(batch: EventBatch) -> list[int]:
    return [event.n for event in batch]


@pytest.mark.slow
@some
@given(st.data())
def test_batch_bytes_are_the_events_bytes_and_plain_msgpack(data: st.DataObject) -> None:
    schema = data.draw(schemas())
    encoded = [encode_dict(schema, e) for e in data.draw(st.lists(events(schema), max_size=4))]
    batch = EventBatch.from_encoded(schema, encoded)
    assert len(batch) == len(encoded)
    assert batch.to_bytes() == b"".join(encoded)
    assert list(map(encoder(schema), batch)) == encoded
    assert list(map(encoder(schema), batch.to_events())) == encoded
    unpacker = msgpack.Unpacker()
    unpacker.feed(batch.to_bytes())
    assert sum(1 for _ in unpacker) == len(encoded)


@some
@given(st.data())
def test_batch_takes_selects_and_joins_as_lists_do(data: st.DataObject) -> None:
    schema = data.draw(schemas(depth=1))
    encoded = [encode_dict(schema, e) for e in data.draw(st.lists(events(schema), min_size=1, max_size=6))]
    batch = EventBatch.from_encoded(
        schema, encoded, Attributes.from_rows([{"i": i} for i in range(len(encoded))])
    )
    expected = list(range(len(encoded)))
    for _ in range(data.draw(st.integers(1, 4))):
        step = data.draw(st.sampled_from(["select", "take", "slice", "concat", "compact"]))
        if step == "select":
            kept = [i for i in range(len(expected)) if data.draw(st.booleans())]
            batch, expected = batch.select(np.array(kept, np.int64)), [expected[i] for i in kept]
        elif step == "take":
            kept = data.draw(st.lists(st.integers(0, len(expected) - 1), max_size=5)) if expected else []
            batch, expected = batch.take(kept), [expected[i] for i in kept]
        elif step == "slice":
            start, stop = sorted(data.draw(st.tuples(st.integers(0, 7), st.integers(0, 7))))
            batch, expected = batch.slice(start, stop), expected[start:stop]
        elif step == "concat":
            times, room = data.draw(st.integers(1, 2)), data.draw(st.sampled_from([nowhere, somewhere]))
            batch, expected = EventBatch.concat([batch] * times, room), expected * times
            assert batch.selection is None
        else:
            batch = batch.compact()
        assert batch.to_bytes() == b"".join(encoded[i] for i in expected)
        assert batch.nbytes == len(batch.to_bytes())
        assert [e.attrs for e in batch] == [{"i": i} for i in expected]
        assert not batch.data.flags.writeable
        assert batch.data.flags.c_contiguous
        if batch.offsets is not None:
            assert batch.offsets.dtype == np.int64
            assert (batch.offsets[0], batch.offsets[-1], len(batch.offsets)) == (
                0,
                len(batch.data),
                batch.rows + 1,
            )
        else:
            assert len(batch.data) == batch.rows * (schema.width or 0)


def test_batch_is_a_sequence_of_views(batch: EventBatch, originals: list[Any]) -> None:
    assert list(batch) == originals
    assert (batch[0], batch[-1]) == (originals[0], originals[-1])
    assert list(batch[2:5]) == originals[2:5]
    assert list(batch[::-2]) == originals[::-2]
    assert (len(batch), bool(batch), bool(batch[:0])) == (7, True, False)
    with pytest.raises(IndexError, match="event 7 is out of range: the batch has 7"):
        batch[7]
    with pytest.raises(IndexError):
        batch[-8]


def test_batch_selection_refers_to_the_same_bytes(batch: EventBatch) -> None:
    chosen = batch.select(np.array([1, 3, 6])).select(np.array([0, 2]))
    assert chosen.data is batch.data
    assert chosen.selection is not None
    assert (chosen.selection.dtype, chosen.selection.tolist()) == (np.int32, [1, 6])
    assert numbers(chosen) == [1, 6]
    assert chosen[1].n == chosen[-1].n == 6
    assert numbers(chosen[1:]) == [6]
    assert numbers(chosen.compact()) == [1, 6]


def test_batch_columns_are_the_fields_of_its_events(batch: EventBatch, originals: list[Any]) -> None:
    for chosen, events_ in (
        (batch, originals),
        (batch.select(np.array([1, 4])), [originals[1], originals[4]]),
    ):
        assert chosen["n"].tolist() == [e.n for e in events_]
        assert chosen["name"].tolist() == [e.name.encode() for e in events_]
        assert chosen["ok"].tolist() == [e.ok for e in events_]
        assert chosen["ok"].dtype == np.bool_
        assert chosen["at.x"].tolist() == [e.at.x for e in events_]
        assert chosen["at"]["y"].tolist() == [e.at.y for e in events_]
        assert chosen["grid"].tolist() == [e.grid.tolist() for e in events_]
        columns = chosen.to_columns()
        assert columns["name"].tolist() == [e.name for e in events_]
        assert columns["at"].tolist() == [e.at.to_dict() for e in events_]
        assert columns["n"].dtype == np.dtype("=i8")
        assert list(columns) == [f.name for f in chosen.schema.fields]


def test_batch_columns_of_variable_width_are_objects() -> None:
    batch = EventBatch.from_events([varied(n) for n in range(3)])
    assert batch["title"].tolist() == ["", "t", "tt"]
    assert batch["note"].tolist() == ["even", None, "even"]
    assert [len(t) for t in batch["track"]] == [0, 1, 2]
    assert batch["title"].dtype == object


def test_batch_columns_of_bytes_keep_their_length() -> None:
    batch = EventBatch.from_events([fixed(n) for n in range(4)])
    assert batch["key"].tolist() == [b"", b"\0", b"\0\0", b"\0\0\0"]


@pytest.mark.parametrize("name", ["n", "name", "at", "at.x", "grid"])
def test_batch_column_of_fixed_width_is_a_view_without_a_copy(name: str) -> None:
    batch = EventBatch.from_events([fixed(n) for n in range(3)])
    column = batch[name]
    assert np.shares_memory(column, batch.data)
    assert not column.flags.writeable
    assert column.strides[0] == Fixed.schema.width


def test_batch_to_numpy_is_a_view_without_a_copy() -> None:
    batch = EventBatch.from_events([fixed(n) for n in range(3)])
    rows = batch.to_numpy()
    assert np.shares_memory(rows, batch.data)
    assert rows.dtype == Fixed.schema.dtype
    assert rows["n"].tolist() == [0, 1, 2]
    with pytest.raises(SchemaError, match=r"title, track, note vary in width; use to_columns\(\)"):
        EventBatch.from_events([varied(1)]).to_numpy()


@pytest.mark.parametrize("name", ["nope", "at.z", "n.x", ""])
def test_batch_column_that_is_no_field_is_refused(batch: EventBatch, name: str) -> None:
    with pytest.raises(SchemaError, match="no field"):
        batch[name]


def test_batch_of_no_events_has_everything_empty(originals: list[Any]) -> None:
    schema = type(originals[0]).schema
    for batch in (
        EventBatch.from_events([], schema),
        EventBatch.from_events(originals).select(np.array([], int)),
    ):
        assert (len(batch), list(batch), batch.to_bytes(), batch.nbytes) == (0, [], b"", 0)
        assert [len(c) for c in batch.to_columns().values()] == [0] * len(schema)
        assert len(EventBatch.concat([batch, batch])) == 0
        assert EventBatch.from_table(schema, batch.to_columns()).to_bytes() == b""
    with pytest.raises(SchemaError, match="expected schema= to say of what"):
        EventBatch.from_events([])
    with pytest.raises(SchemaError, match="expected events, such as a list of them, found 5"):
        EventBatch.from_events(5)  # type: ignore[arg-type]


def test_batch_of_events_of_another_class_is_refused() -> None:
    with pytest.raises(SchemaError, match="schema Fixed: expected a Fixed with field"):
        EventBatch.from_events([fixed(1), Point(1.0, 1)])


@pytest.mark.parametrize("events", [[Point], [Point(1.0, 1), Point]])
@pytest.mark.parametrize("given", [True, False])
def test_a_class_in_the_place_of_an_event_is_told_so(events: list[Any], given: bool) -> None:
    kind = events[-1]
    told = rf"expected an event, made with {kind.__name__}\(…\), found the class {kind.__name__}$"
    with pytest.raises(SchemaError, match=told):
        EventBatch.from_events(events, kind if given else None)


def nowhere(length: int) -> None:
    """No place for bytes."""


def somewhere(length: int) -> Place:
    """A place for bytes, with others around it."""
    target = np.full(length + 2, 7, np.uint8)[1:-1]
    held = target.view()
    held.flags.writeable = False
    return Place(target, held)


def test_batch_concat_copies_what_is_selected_to_the_place_given() -> None:
    points = [Point(float(i), i) for i in range(5)]
    whole = EventBatch.from_events(points)
    places: list[Place] = []

    def room(length: int) -> Place:
        places.append(somewhere(length))
        return places[-1]

    for batches, kept in (
        ([whole.select([0, 1, 4])], [0, 1, 4]),
        ([whole.select([1]), whole, whole.select([]), whole.select([2, 3])], [1, 0, 1, 2, 3, 4, 2, 3]),
    ):
        joined = EventBatch.concat(batches, room)
        assert joined.data is places.pop().held
        assert joined.to_bytes() == b"".join(encoder(Point.schema)(points[i]) for i in kept)
    assert EventBatch.concat([whole], room) is whole
    assert places == []


def test_batch_slice_of_a_selection_holds_only_what_lies_between() -> None:
    batch = EventBatch.from_events([Point(float(i), i) for i in range(9)]).select([1, 2, 5, 6, 8])
    part = batch.slice(1, 4)
    assert [event.y for event in part] == [2, 5, 6]
    assert (part.rows, len(part.data)) == (5, 5 * (Point.schema.width or 0))
    assert len(batch.slice(2, 2)) == 0


def test_batch_slice_of_a_selection_in_another_order_gives_the_same_events() -> None:
    chosen = [4, 1, 0, 7, 7]
    batch = EventBatch.from_events([Point(float(i), i) for i in range(9)]).select(chosen)
    for start in range(5):
        for stop in range(start, 6):
            assert [event.y for event in batch.slice(start, stop)] == chosen[start:stop]


def test_batch_concat_refuses_other_schemas_and_nothing() -> None:
    points = EventBatch.from_events([Point(1.0, 1)])
    with pytest.raises(SchemaError, match="batches of two schemas"):
        EventBatch.concat([points, EventBatch.from_events([fixed(1)])])
    with pytest.raises(SchemaError, match="no batches"):
        EventBatch.concat([])
    again = Schema.from_description(Point.schema.description)
    assert len(EventBatch.concat([points, EventBatch(again, points.data, 1)])) == 2


def test_batch_from_bytes_needs_no_copy_of_bytes_that_cannot_change() -> None:
    encoded = EventBatch.from_events([fixed(n) for n in range(3)]).to_bytes()
    batch = EventBatch.from_bytes(Fixed.schema, encoded, 3)
    assert np.shares_memory(batch.data, np.frombuffer(encoded, np.uint8))
    changing = bytearray(encoded)
    batch = EventBatch.from_bytes(Fixed.schema, changing)
    changing[:] = bytes(len(changing))
    assert numbers(batch) == [0, 1, 2]


def test_batch_repr_says_what_and_how_many(batch: EventBatch) -> None:
    assert (
        repr(batch.slice(0, 1))
        == f"EventBatch({batch.schema.name}: 1 events, {batch.slice(0, 1).nbytes} bytes)"
    )


def test_an_event_class_stands_for_its_schema() -> None:
    """Whatever makes a batch takes a class as well as its schema."""

    class Ping(ev.Event):
        number: int

    batch = EventBatch.from_table(Ping, {"number": [1, 2]})
    assert EventBatch.from_bytes(Ping, batch.to_bytes()).to_bytes() == batch.to_bytes()
    assert EventBatch.from_events(batch, Ping).to_bytes() == batch.to_bytes()
    assert EventBatch.from_table(Ping, [Ping(1), Ping(2)]).to_bytes() == batch.to_bytes()


def test_bytes_that_are_text_are_refused() -> None:
    """The error says what was expected."""
    schema = ev.Schema("ping", {"number": ev.i64})
    with pytest.raises(SchemaError, match="bytes of ping: expected bytes, found 'abc'"):
        EventBatch.from_bytes(schema, "abc")  # type: ignore[arg-type]


@pytest.mark.parametrize("way", [EventBatch.take, EventBatch.select])
def test_masks_choose_what_they_are_true_for(originals: list[Any], way: Any) -> None:
    batch = EventBatch.from_events(originals)
    wanted = [event.n for event in originals if event.n % 3 == 1]
    mask = batch["n"] % 3 == 1
    assert [event.n for event in way(batch, mask)] == wanted
    assert [event.n for event in way(batch, mask.tolist())] == wanted
    later = way(batch, mask)
    assert [event.n for event in way(later, later["n"] > 1)] == [n for n in wanted if n > 1]
    assert len(way(batch, [])) == 0
    for wrong in ([True, False], [1.5], ["0"], np.ones((7, 1), bool)):
        with pytest.raises(SchemaError, match="expected whole positions, or a mask of 7 bools, found"):
            way(batch, wrong)


def _positions_in_memory(chosen: list[int]) -> list[np.ndarray[Any, Any]]:
    """The same positions, laid out in memory in every way."""
    read_only = np.array(chosen, np.int32)
    read_only.flags.writeable = False
    wide = np.full(2 * len(chosen), 10**6, np.int32)
    wide[::2] = chosen
    table = np.full((len(chosen), 3), 10**6, np.int32, order="C")
    table[:, 1] = chosen
    packed = np.zeros(len(chosen), [("skipped", "i1"), ("position", "i4")])
    packed["position"] = chosen
    forms = [np.array(chosen, dtype) for dtype in "i1 i2 >i2 i4 >i4 i8 >i8 u1 u4 >u4 u8 >u8".split()]
    return [
        *forms,
        read_only,
        wide[::2],
        np.array(chosen[::-1], np.int32)[::-1],
        table[:, 1],
        packed["position"],
    ]


@pytest.mark.parametrize("make", [fixed, varied])
def test_positions_mean_the_same_however_they_lie_in_memory(make: Any) -> None:
    """Machine code reads a selection as int32 back to back, so that is what a selection is."""
    batch = EventBatch.from_events([make(n) for n in range(12)])
    chosen = [0, 2, 3, 7, 11]
    code = "input.n % 2 == 1"
    for laid in _positions_in_memory(chosen):
        selected = batch.select(laid)
        assert selected.selection is not None
        assert (selected.selection.dtype, selected.selection.flags.c_contiguous) == (np.int32, True)
        assert selected.selection.flags.aligned
        assert numbers(selected) == numbers(batch.take(laid)) == chosen
        assert numbers(selected.select(np.array([0, 9, 2, 9, 4], np.int32)[::2])) == [0, 3, 11]
        assert _passed(selected, code) == [3, 7, 11]


def _passed(batch: EventBatch, code: str) -> list[int]:
    """The numbers of the events that a compiled filter lets through."""
    arrived: list[int] = []
    g = ev.Graph()
    _ = g.source("in", batch.schema) >> ev.Filter(code) >> ev.Terminal(lambda event: arrived.append(event.n))
    with g.run() as flow:
        flow["in"].submit_batch(batch)
        flow.drain()
    return arrived


def test_a_selection_is_not_changed_with_the_positions_that_were_given() -> None:
    """Positions that were checked must not change before machine code reads them."""
    batch = EventBatch.from_events([fixed(n) for n in range(5)])
    positions = np.array([1, 3], np.int32)
    selected = batch.select(positions)
    positions[:] = 10**6
    assert numbers(selected) == [1, 3]


@pytest.mark.parametrize("make", [fixed, varied])
@pytest.mark.parametrize("way", [EventBatch.take, EventBatch.select])
@pytest.mark.parametrize(
    ("wrong", "found"),
    [
        ([0, 7], "7 at index 1"),
        ([3, 2**31], "2147483648 at index 1"),
        (np.array([1, 2, 2**32 + 1]), "4294967297 at index 2"),
        (np.array([2**64 - 1], np.uint64), "18446744073709551615 at index 0"),
        ([1, 9, 8], "9 at index 1"),
        ([-1], "-1 at index 0; batch[-1] counts from the end, positions do not"),
        ([-8], "-8 at index 0"),
    ],
)
def test_positions_that_the_batch_does_not_have_are_refused(
    make: Any, way: Any, wrong: Any, found: str
) -> None:
    """They would lead machine code beyond the memory of the batch."""
    batch = EventBatch.from_events([make(n) for n in range(9)])
    name = batch.schema.name
    for seven in (batch.slice(0, 7), batch.select([0, 1, 2, 3, 4, 5, 8])):
        with pytest.raises(SchemaError) as error:
            way(seven, wrong)
        assert str(error.value) == f"events of {name}: expected positions from 0 to 6, found {found}"
    message = f"events of {name}: expected no positions, since there are no events, found 0 at index 0"
    with pytest.raises(SchemaError) as error:
        way(batch.slice(0, 0), [0])
    assert str(error.value) == message


@pytest.mark.parametrize("way", [EventBatch.take, EventBatch.select])
@pytest.mark.parametrize(
    "wrong",
    [
        3, None, {1, 2}, np.array([[0, 1], [1, 2]]), [[0], [1, 2]], [2**64], ["1"], [None], np.zeros(0, bool),
        np.zeros((0, 2), int), np.array([0, 1], object), np.array([1.0, float("nan")]), iter([0]), "12",
    ],
)  # fmt: skip
def test_what_is_no_positions_is_refused(way: Any, wrong: Any) -> None:
    batch = EventBatch.from_events([fixed(n) for n in range(3)])
    with pytest.raises(SchemaError, match="expected whole positions, or a mask of 3 bools, found"):
        way(batch, wrong)
