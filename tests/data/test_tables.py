"""Machine code makes of tables, row by row, the bytes that the wire format says, or leaves them to Python."""

from __future__ import annotations

import threading
from typing import Any
from unittest import mock

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import evflow as ev
from evflow.codgen import objects, tables
from evflow.errors import SchemaError
from evflow.events.columns import direct, reading, writing
from tests.data.strategies import events, schemas, some, tiers, wire_event


@pytest.fixture
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Has machine code made for the first row."""
    monkeypatch.setattr(direct, "_MANY", 0)


@pytest.fixture
def alone(monkeypatch: pytest.MonkeyPatch, at_once: None) -> None:
    """Has nothing but machine code write columns."""
    for name in ("_record_parts", "_fixed_rows", "_fill_record", "fill_rows"):
        monkeypatch.setattr(
            writing, name, mock.Mock(side_effect=AssertionError("taken row by row in Python"))
        )


@some
@given(st.data())
def test_columns_of_any_schema_become_the_bytes_of_the_wire_format(data: st.DataObject) -> None:
    schema = data.draw(schemas())
    rows = data.draw(st.lists(events(schema), min_size=1, max_size=6))
    columns = {field.name: [row[field.name] for row in rows] for field in schema.fields}
    with mock.patch.object(direct, "_MANY", 0), data.draw(tiers):
        batch = ev.EventBatch.from_columns(schema, columns)
    assert batch.to_bytes() == b"".join(wire_event(schema, row) for row in rows)
    assert len(batch) == len(ev.EventBatch.from_bytes(schema, batch.to_bytes())) == len(rows)


@some
@given(st.data())
def test_a_value_of_a_wrong_type_is_the_same_error_as_without_machine_code(data: st.DataObject) -> None:
    schema = data.draw(schemas(depth=1))
    rows = data.draw(st.lists(events(schema), min_size=1, max_size=4))
    columns = {field.name: [row[field.name] for row in rows] for field in schema.fields}
    name = data.draw(st.sampled_from(sorted(columns)))
    wrong = data.draw(
        st.sampled_from([None, 1.5, 300, -1, "text", b"bytes", [1], object(), 2**70, np.zeros(2)])
    )
    columns[name][data.draw(st.integers(0, len(rows) - 1))] = wrong

    def outcome() -> Any:
        try:
            return ev.EventBatch.from_columns(schema, columns).to_bytes()
        except SchemaError as error:
            return str(error)

    expected = outcome()
    with mock.patch.object(direct, "_MANY", 0):
        assert outcome() == expected


Side = ev.Enum["buy", "sell"]


class Leg(ev.Event):
    side: Side  # type: ignore[valid-type]
    size: int


class Order(ev.Event):
    name: str
    key: bytes
    price: float | None
    samples: ev.Array[ev.f32, None, 2]  # type: ignore[valid-type]
    counts: list[ev.u16]  # type: ignore[valid-type]
    words: list[str | None]
    short: ev.Str[4]  # type: ignore[valid-type]
    raw: ev.Bytes[3]  # type: ignore[valid-type]
    due: ev.Timestamp | None
    paid: ev.Decimal[10, 2]  # type: ignore[valid-type]
    owner: ev.UUID
    leg: Leg


def _orders(n: int, seed: int) -> dict[str, list[Any]]:
    import decimal
    import random
    import uuid

    r = random.Random(seed)
    return {
        "name": ["é" * r.randrange(30) for _ in range(n)],
        "key": [r.randbytes(r.randrange(60)) for _ in range(n)],
        "price": [r.choice([None, 1.5, 7, float("inf")]) for _ in range(n)],
        "samples": [np.full((r.randrange(4), 2), r.random(), np.float32) for _ in range(n)],
        "counts": [[r.randrange(65536) for _ in range(r.randrange(4))] for _ in range(n)],
        "words": [[r.choice([None, "", "abc"]) for _ in range(r.randrange(3))] for _ in range(n)],
        "short": [r.choice(["", "a", "éé", "abcd"]) for _ in range(n)],
        "raw": [r.choice([b"", b"a\0", b"\0\0\0"]) for _ in range(n)],
        "due": [r.choice([None, np.datetime64(r.randrange(10**18), "ns")]) for _ in range(n)],
        "paid": [decimal.Decimal(r.randrange(10**10)).scaleb(-2) for _ in range(n)],
        "owner": [uuid.UUID(int=r.getrandbits(128)) for _ in range(n)],
        "leg": [{"side": r.choice(["buy", "sell"]), "size": r.randrange(2**40)} for _ in range(n)],
    }


def _wire(schema: ev.Schema, columns: dict[str, list[Any]]) -> bytes:
    rows = [dict(zip(columns, values, strict=True)) for values in zip(*columns.values(), strict=True)]
    return b"".join(wire_event(schema, row) for row in rows)


@pytest.mark.slow
def test_thousands_of_rows_of_every_type_are_written_by_machine_code_alone(alone: None) -> None:
    columns = _orders(9_000, 1)
    batch = ev.EventBatch.from_columns(Order, columns)
    assert batch.to_bytes() == _wire(Order.schema, columns)
    assert ev.EventBatch.from_bytes(Order, batch.to_bytes()).offsets.tolist() == batch.offsets.tolist()  # type: ignore[union-attr]


def test_rows_may_be_larger_than_any_memory_that_was_there(alone: None) -> None:
    schema = ev.Schema("large", {"number": int, "content": bytes, "text": str})
    sizes = [10, 70_000, 0, 9 << 20, 3, 5 << 20, 1]
    columns = {
        "number": list(range(7)),
        "content": [bytes([n]) * size for n, size in enumerate(sizes)],
        "text": ["x" * (size // 3) for size in sizes],
    }
    assert ev.EventBatch.from_columns(schema, columns).to_bytes() == _wire(schema, columns)


def test_a_list_of_events_is_written_as_each_of_them(at_once: None) -> None:
    class Place(ev.Event):
        x: float
        y: float | None

    class Tour(ev.Event):
        name: str
        start: Place
        places: list[Place]

    tours = [
        Tour(name="a" * n, start=Place(x=n, y=None), places=[Place(x=i, y=1.5) for i in range(n % 4)])
        for n in range(50)
    ]
    with mock.patch("evflow.events.batch.encoder", side_effect=AssertionError("taken one by one in Python")):
        batch = ev.EventBatch.from_events(tours)
    assert batch.to_bytes() == b"".join(wire_event(Tour.schema, tour.to_dict()) for tour in tours)


@pytest.mark.parametrize(
    ("kind", "column"),
    [
        (ev.Decimal[10, 2], np.array([5, 6])),
        (ev.Decimal[10, 2], [5, 6]),
        (ev.UUID, [b"0" * 16] * 2),
        (ev.Enum["a", "b"], np.array([0, 1], np.uint8)),
        (ev.Timestamp, np.array([1, -(2**63)])),
        (str, (np.arange(3), np.arange(3))),
        (list[int], np.arange(4).reshape(2, 2)),
        (list[int], ([1], [2, 3])),
        (float, np.float64(1.5)),
        (float, []),
        (float, [1.5]),
        (ev.Array[ev.f64, None], np.zeros((2, 3, 1))),
        (ev.Array[ev.f64, 3], np.zeros((2, 3), ">f8")),
        (int, np.zeros((2, 1), int)),
        (int | None, np.array([1.0, np.nan])),
        (float | None, np.array([1.0, np.nan])),
        (int | None, [1, float("nan")]),
        (ev.Array[ev.f64, None], np.broadcast_to(np.zeros(1), (2, 1 << 31))),
        (ev.Array[ev.f64, None, None], np.zeros((2, 0, 1 << 32))),
        (ev.Array[ev.f64, None], np.array([[1, 2], [3, 4]]).view(np.matrix)),
        (ev.Array[bool, None], np.array([[1, 0], [0, 1]]).view(np.matrix)),
    ],
)
def test_odd_columns_mean_what_they_mean_without_machine_code(kind: Any, column: Any) -> None:
    schema = ev.Schema("odd", {"n": int, "x": kind})

    def outcome() -> Any:
        try:
            return ev.EventBatch.from_columns(schema, {"n": [1, 2], "x": column}).to_bytes()
        except SchemaError as error:
            return str(error)

    expected = outcome()
    with mock.patch.object(direct, "_MANY", 0):
        assert outcome() == expected


@pytest.mark.slow
def test_columns_that_another_thread_changes_are_taken_or_refused(at_once: None) -> None:
    schema = ev.Schema("changing", {"text": str, "numbers": list[int]})
    texts, numbers, done = ["abc"] * 5_000, [[1, 2, 3] for _ in range(5_000)], threading.Event()

    def change() -> None:
        while not done.is_set():
            del texts[2_500:], numbers[0][:]
            texts.extend(["abc"] * 2_500)
            numbers[0] = [1, 2, 3]

    changer = threading.Thread(target=change)
    changer.start()
    try:
        for _ in range(80):
            try:
                batch = ev.EventBatch.from_columns(schema, {"text": texts, "numbers": numbers})
            except SchemaError:
                continue
            ev.EventBatch.from_bytes(schema, batch.to_bytes(), len(batch))
    finally:
        done.set()
        changer.join()


@pytest.mark.parametrize("kind", [str, ev.Bytes[4]], ids=["varying", "fixed"])
@pytest.mark.parametrize("change", [lambda column: column.clear(), lambda column: column.extend(column)])
def test_a_table_whose_length_changes_while_it_is_written_is_refused(
    at_once: None, kind: Any, change: Any
) -> None:
    schema, column = ev.Schema("alone", {"x": kind}), (["abc"] if kind is str else [b"abc"]) * 5_000
    encoder = tables.table_encoder(schema)
    assert encoder is not None
    assert encoder.encode([column], len(column)) is not None
    run = encoder._runs[-1]
    write = run.append

    def write_and_change(given: list[Any]) -> bool:
        # As another thread does that runs once the first rows are written.
        run.append = write
        written: bool = write(given)
        change(column)
        return written

    run.append = write_and_change
    assert encoder.encode([column], 5_000) is None


@pytest.mark.slow
def test_code_for_hundreds_of_fields_is_not_optimised_which_would_take_many_seconds(alone: None) -> None:
    schema = ev.Schema("broad", {f"f{i}": int | None for i in range(300)})
    columns = {f"f{i}": [i, None] for i in range(300)}
    with mock.patch("evflow.codgen.native._optimise", side_effect=AssertionError("optimised")):
        batch = ev.EventBatch.from_columns(schema, columns)
    assert batch.to_bytes() == _wire(schema, columns)


def test_threads_encode_tables_of_one_schema_at_the_same_time(at_once: None) -> None:
    schema = ev.Schema("shared", {"name": str, "n": int})
    wrong: list[int] = []

    def encode(seed: int) -> None:
        for n in range(1, 60):
            columns = {"name": [f"{seed}.{i}" * (i % 7) for i in range(n)], "n": list(range(n))}
            if ev.EventBatch.from_columns(schema, columns).to_bytes() != _wire(schema, columns):
                wrong.append(seed)

    threads = [threading.Thread(target=encode, args=(seed,)) for seed in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_where_python_keeps_objects_in_another_way_tables_are_the_same(
    at_once: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(objects, "_known_layout", lambda: False)
    monkeypatch.setattr(reading, "_MANY", 0)
    schema = ev.Schema("elsewhere", {"text": str, "number": int, "words": list[str], "some": int | None})
    columns = {"text": ["é", ""], "number": [1, 2], "words": [["a"], []], "some": [None, 5]}
    batch = ev.EventBatch.from_columns(schema, columns)
    assert batch.to_bytes() == _wire(schema, columns)
    assert {name: column.tolist() for name, column in batch.to_columns().items()} == columns
