"""Small tables enter a flow as single events do: whole or not at all, in order, counted."""

from __future__ import annotations

import random
import sys
import threading
from typing import Any

import numpy as np
import pytest

import evflow as ev
from evflow.errors import FlowError, SchemaError
from tests.node.processes import wait_for


class Trade(ev.Event):
    symbol: ev.Str[8]  # type: ignore[valid-type]
    price: float
    size: int


class Note(ev.Event):
    number: int
    text: str
    stars: int | None = None


def _warm(entry: Any, table: Any, times: int = 100) -> None:
    """Submits so many tables that they take the short way from then on."""
    for _ in range(times):
        entry.submit_batch(table)


def _trades(first: int, n: int) -> dict[str, Any]:
    return {"symbol": ["IBM"] * n, "price": [1.5] * n, "size": list(range(first, first + n))}


def test_tables_of_any_kind_and_single_events_arrive_in_the_order_of_submission() -> None:
    seen: list[int] = []
    g = ev.Graph()
    _ = g.source("trades", Trade) >> ev.Terminal(lambda trade: seen.append(trade.size))
    r, at = random.Random(5), 0
    with g.run() as flow:
        entry = flow["trades"]
        _warm(entry, _trades(-1, 1))
        for _ in range(1_500):
            n = r.choice([1, 2, 5, 30, 300])
            sizes = range(at, at + n)
            columns = _trades(at, n)
            match r.randrange(8):
                case 0:
                    entry.submit_batch(columns)
                case 1:
                    entry.submit_batch([Trade(symbol="IBM", price=1.5, size=size) for size in sizes])
                case 2:
                    entry.submit_batch({name: np.array(column) for name, column in columns.items()})
                case 3:
                    entry.submit_batch(columns | {"symbol": np.array(["IBM"] * n, "S8")})
                case 4:
                    order = np.dtype(np.int64).newbyteorder(r.choice("=S"))
                    entry.submit_batch(columns | {"size": np.array(sizes, np.int64).astype(order)})
                case 5:
                    entry.submit_batch(columns | {"ignored": [None] * n})
                case 6:
                    entry.submit_batch(ev.EventBatch.from_columns(Trade, columns))
                case _:
                    for size in sizes:
                        entry.submit(Trade(symbol="IBM", price=1.5, size=size))
            at += n
        flow.drain()
    assert [size for size in seen if size >= 0] == list(range(at))


def test_events_of_varying_width_in_small_tables_arrive_whole() -> None:
    seen: list[tuple[int, str, int | None]] = []
    g = ev.Graph()
    _ = g.source("notes", Note) >> ev.Terminal(lambda note: seen.append((note.number, note.text, note.stars)))
    expected = []
    with g.run() as flow:
        entry = flow["notes"]
        for i in range(3_000):
            texts = ["é" * (i % 40), "", "x" * (i % 900)]
            stars = [None, i, 5]
            entry.submit_batch({"number": [i] * 3, "text": texts, "stars": stars})
            expected += list(zip([i] * 3, texts, stars, strict=True))
            entry.submit_batch({"number": [i], "text": ["default"]})
            expected.append((i, "default", None))
        flow.drain()
    assert seen == expected


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"price": [1.0, "much", 2.0]}, r"column price: expected numbers"),
        ({"size": [1, 2, 2**63]}, r"column size: row 2"),
        ({"symbol": ["IBM", "far too long", "IBM"]}, r"column symbol: row 1: expected text of at most 8"),
        ({"price": [1.0, 2.0]}, "columns of different length"),
        ({"price": 1.0}, "expected a column"),
    ],
)
def test_nothing_of_a_small_table_with_a_wrong_value_is_submitted(wrong: Any, message: str) -> None:
    seen: list[int] = []
    g = ev.Graph()
    _ = g.source("trades", Trade) >> ev.Terminal(lambda trade: seen.append(trade.size))
    with g.run() as flow:
        entry = flow["trades"]
        _warm(entry, _trades(0, 3))
        with pytest.raises(SchemaError, match=message):
            entry.submit_batch(_trades(0, 3) | wrong)
        with pytest.raises(SchemaError, match="size"):
            entry.submit_batch(
                [Trade(symbol="A", price=1.0, size=7), Trade(symbol="A", price=1.0, size=2**70)]
            )
        flow.drain()
        assert seen == [0, 1, 2] * 100
        entry.submit_batch({"symbol": [], "price": [], "size": []})
        entry.submit_batch([])
        entry.submit_batch(_trades(50, 1))
        flow.drain()
    assert seen[300:] == [50]


def test_a_column_of_what_a_record_holds_is_no_column_of_records() -> None:
    class Size(ev.Event):
        shares: int

    class Sale(ev.Event):
        number: int
        size: Size

    seen: list[tuple[int, int]] = []
    g = ev.Graph()
    _ = g.source("sales", Sale) >> ev.Terminal(lambda sale: seen.append((sale.number, sale.size.shares)))
    with g.run() as flow:
        entry = flow["sales"]
        _warm(entry, {"number": [0], "size": [{"shares": 5}]})
        for wrong in ([7], np.array([7])):
            with pytest.raises(SchemaError, match=r"column size: row 0: expected a"):
                entry.submit_batch({"number": [1], "size": wrong})
        entry.submit_batch({"number": [2], "size.shares": [7]})
        flow.drain()
    assert seen == [(0, 5)] * 100 + [(2, 7)]


def test_a_filter_counts_every_event_of_small_tables() -> None:
    seen: list[int] = []
    g = ev.Graph()
    large = g.source("trades", Trade) >> ev.Filter("return input.size % 10 == 3;", name="threes")
    _ = large >> ev.Terminal(lambda trade: seen.append(trade.size))
    with g.run() as flow:
        for i in range(5_000):
            flow["trades"].submit_batch(_trades(10 * i, 10))
        flow.drain()
        counts = flow.stats()["threes"]
    assert seen == list(range(3, 50_000, 10))
    assert (counts["in"], counts["out"], counts["dropped"]) == (50_000, 5_000, 45_000)


def test_threads_submit_small_tables_each_in_its_order() -> None:
    seen: list[tuple[float, int]] = []
    g = ev.Graph()
    _ = g.source("trades", Trade) >> ev.Terminal(lambda trade: seen.append((trade.price, trade.size)))
    with g.run() as flow:
        entry = flow["trades"]
        _warm(entry, {"symbol": ["A"], "price": [-1.0], "size": [0]})

        def submit(number: int) -> None:
            for i in range(1_000):
                table = {
                    "symbol": ["A"] * 4,
                    "price": [float(number)] * 4,
                    "size": list(range(4 * i, 4 * i + 4)),
                }
                entry.submit_batch(table)

        threads = [threading.Thread(target=submit, args=(number,)) for number in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        flow.drain()
    for number in range(4):
        assert [size for price, size in seen if price == number] == list(range(4_000))


def test_handlers_submit_small_tables_and_a_closed_flow_refuses_them() -> None:
    seen: list[int] = []
    g = ev.Graph()
    trades, notes = g.source("trades", Trade), g.source("notes", Note)
    _ = trades >> ev.Terminal(
        lambda trade: flow["notes"].submit_batch({"number": [trade.size] * 2, "text": ["a", "b"]})
    )
    _ = notes >> ev.Terminal(lambda note: seen.append(note.number))
    with g.run() as flow:
        _warm(flow["notes"], {"number": [-1], "text": ["warm"]})
        flow["trades"].submit_batch(_trades(0, 500))
        flow.drain()
    assert [number for number in seen if number >= 0] == [n for n in range(500) for _ in range(2)]
    with pytest.raises(FlowError, match="closed"):
        flow["notes"].submit_batch({"number": [1], "text": ["late"]})


def test_a_full_source_makes_small_tables_wait_or_fail_whole() -> None:
    gate, seen = threading.Event(), []

    def slow(trade: Any) -> None:
        gate.wait(30)
        seen.append(trade.size)

    g = ev.Graph()
    _ = g.source("trades", Trade) >> ev.Terminal(slow)
    accepted: list[int] = []
    with g.run(max_events=100) as flow:
        gate.set()
        _warm(flow["trades"], _trades(-1, 1))
        flow.drain()
        gate.clear()
        with pytest.raises(FlowError, match="full"):
            for i in range(1_000):
                flow["trades"].submit_batch(_trades(3 * i, 3), timeout=0.05)
                accepted += range(3 * i, 3 * i + 3)
        gate.set()
        flow.drain()
    assert [size for size in seen if size >= 0] == accepted


def test_no_more_bytes_wait_whichever_way_tables_come() -> None:
    gate = threading.Event()
    g = ev.Graph()
    _ = g.source("trades", Trade) >> ev.Terminal(lambda trade: trade.size < 0 or gate.wait(60))
    table, width = _trades(0, 100), Trade.schema.width or 0
    with g.run(max_bytes=1 << 16) as flow:
        _warm(flow["trades"], _trades(-1, 1))
        flow.drain()
        accepted = 0
        with pytest.raises(FlowError, match="full"):
            for i in range(1_000):
                # Every other one is a batch of its own.
                given = ev.EventBatch.from_columns(Trade, table) if i % 2 else table
                flow["trades"].submit_batch(given, timeout=0.05)
                accepted += 100
        gate.set()
        flow.drain()
    # What the handler has taken, and one table beyond the bound.
    assert accepted * width <= 2 * (1 << 16) + 2 * 100 * width


def test_single_events_with_lists_and_fields_that_are_missing_arrive_whole_or_are_refused() -> None:
    class Leg(ev.Event):
        carrier: str
        hours: float | None = None

    class Trip(ev.Event):
        number: int
        legs: list[Leg]
        first: Leg | None = None

    def trip(number: int) -> Trip:
        legs = [Leg(carrier="é" * (number % 7), hours=None if n % 2 else n / 4) for n in range(number % 5)]
        return Trip(number=number, legs=legs, first=legs[-1] if legs else None)

    def shown(leg: Any) -> Any:
        return None if leg is None else (leg.carrier, leg.hours)

    seen: list[Any] = []
    g = ev.Graph()
    _ = g.source("trips", Trip) >> ev.Terminal(
        lambda trip: seen.append((trip.number, [shown(leg) for leg in trip.legs], shown(trip.first)))
    )
    with g.run() as flow:
        submit = flow["trips"].submit
        for number in range(3_000):
            submit(trip(number))
            if number % 500 == 499:
                with pytest.raises(SchemaError, match="hours"):
                    submit(Trip(number=-1, legs=[Leg(carrier="UA", hours="two")]))  # type: ignore[arg-type]
        flow.drain()
        last = trip(2)
        assert _calls(lambda: submit(last)) < 8
        flow.drain()
    expected = [trip(number) for number in range(3_000)]
    assert seen[:3_000] == [(t.number, [shown(leg) for leg in t.legs], shown(t.first)) for t in expected]


def test_values_that_are_not_plainly_of_a_fields_type_arrive_in_order_among_others() -> None:
    seen: list[tuple[float, int]] = []
    g = ev.Graph()
    _ = g.source("trades", Trade) >> ev.Terminal(lambda trade: seen.append((trade.price, trade.size)))
    r, expected = random.Random(3), []
    with g.run() as flow:
        submit = flow["trades"].submit
        for number in range(20_000):
            price = r.choice([0.5, 2, np.float64(number), np.float32(0.25), np.int16(7)])
            size = r.choice([number, np.int64(number), np.uint8(number % 256)])
            submit(Trade(symbol="IBM", price=price, size=size))
            expected.append((float(price), int(size)))
            if number % 4_000 == 2_000:
                with pytest.raises(SchemaError, match="size"):
                    submit(Trade(symbol="IBM", price=1.0, size=1.5))  # type: ignore[arg-type]
        flow.drain()
    assert seen == expected


def _calls(of: Any) -> int:
    """The calls of Python functions that something takes in this thread; the least of several times."""
    found = []
    for _ in range(20):
        calls: list[str] = []
        sys.setprofile(lambda frame, event, _, calls=calls: calls.append(event) if event == "call" else None)
        try:
            of()
        finally:
            sys.setprofile(None)
        found.append(len(calls))
    return min(found)


def test_it_makes_no_difference_which_object_says_the_type_of_a_column() -> None:
    class Point(ev.Event):
        x: float
        y: float

    g = ev.Graph()
    _ = g.source("points", Point) >> ev.Terminal(lambda batch: None, batch=True)
    one = np.arange(10.0)
    other = one.astype(np.dtype(np.float64).newbyteorder("="))
    assert other.dtype is not one.dtype
    with g.run() as flow:
        submit = flow["points"].submit_batch
        _warm(flow["points"], {"x": one, "y": one}, 3_000)
        # Another thread has the machine code optimised; from then on it takes few calls.
        wait_for(lambda: _calls(lambda: submit({"x": one, "y": one})) < 12, "the short way")
        usual = _calls(lambda: submit({"x": one, "y": one}))
        assert _calls(lambda: submit({"x": other, "y": other})) == usual
