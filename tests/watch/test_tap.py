from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

import evflow as ev
from evflow.events.attributes import Attributes
from evflow.tools.watch.tap import Lines, Rows, Watched, plain_value, watch
from tests.watch.fake import FakeTap, Trade


class Scan(ev.Event):
    pixels: ev.Array[float, 2, 2]
    name: str
    raw: bytes
    maybe: float | None = None


def trades(*prices: float) -> ev.EventBatch:
    return ev.EventBatch.from_columns(Trade.schema, {"symbol": ["IBM"] * len(prices), "price": prices})


class Clock:
    """A clock that each question moves on."""

    def __init__(self, step: float = 0.0) -> None:
        self.now, self.step = 0.0, step

    def __call__(self) -> float:
        self.now += self.step
        return self.now


def watched(*batches: ev.EventBatch, missed: int = 0, **options: Any) -> tuple[list[float], Watched]:
    shown: list[float] = []
    tap = FakeTap(batches, missed=missed)
    done = watch(tap, lambda event: shown.append(event.price), ended=lambda: True, **options)
    return shown, done


def test_all_that_passes_is_shown() -> None:
    shown, done = watched(trades(1.0, 2.0), trades(3.0))
    assert shown == [1.0, 2.0, 3.0]
    assert str(done) == "3 events passed, 0 of them left out"
    assert str(watched(trades(1.0))[1]) == "1 event passed, 0 of them left out"


def test_count_ends_it_within_a_batch() -> None:
    shown, done = watched(trades(1.0, 2.0, 3.0), trades(4.0), count=2)
    assert shown == [1.0, 2.0]
    assert (done.passed, done.shown) == (2, 2)


def test_rate_leaves_out_what_is_too_much_and_counts_it() -> None:
    # A question every half second, at most four a second: four at first, then two each time.
    shown, done = watched(trades(*range(10)), trades(*range(10, 20)), rate=4.0, clock=Clock(0.5))
    assert shown == [0, 1, 2, 3, 10, 11]
    assert str(done) == "20 events passed, 14 of them left out"


def test_rate_of_less_than_one_a_second_shows_one_at_first() -> None:
    shown, _ = watched(trades(*range(5)), trades(7.0), rate=0.1, clock=Clock(1.0))
    assert shown == [0]


def test_events_that_did_not_get_here_are_counted_too() -> None:
    _, done = watched(trades(1.0), missed=5)
    assert str(done) == "6 events passed, 5 of them left out"


def test_line_is_a_json_object_with_schema_time_and_attributes() -> None:
    lines: list[str] = []
    batch = trades(78.5).with_attributes(Attributes.from_rows([{"hops": 2}]))
    watch(FakeTap([batch]), Lines(lines.append, lambda: 1234.5).show, count=1)
    assert [json.loads(line) for line in lines] == [
        {
            "time": 1234.5,
            "schema": "Trade",
            "event": {"symbol": "IBM", "price": 78.5},
            "attributes": {"hops": 2},
        }
    ]


def test_every_kind_of_field_is_json() -> None:
    lines: list[str] = []
    scan = Scan(np.array([[1.0, np.nan], [np.inf, 4.0]]), "ä", b"\x00\xff")
    watch(FakeTap([ev.EventBatch.from_events([scan])]), Lines(lines.append).show, count=1)
    assert json.loads(lines[0])["event"] == {
        "pixels": [[1.0, "nan"], ["inf", 4.0]], "name": "ä", "raw": "00ff", "maybe": None
    }  # fmt: skip


@pytest.mark.parametrize(
    ("value", "plain"),
    [
        (np.float64(1.5), 1.5),
        (np.int64(7), 7),
        ([b"a"], ["61"]),
        ({"x": (1, 2)}, {"x": [1, 2]}),
        (True, True),
    ],
)
def test_value_is_made_plain(value: Any, plain: Any) -> None:
    assert plain_value(value) == plain


def test_table_repeats_its_header_for_another_schema() -> None:
    lines: list[str] = []
    scans = ev.EventBatch.from_events([Scan(np.ones((2, 2)), "a\x1b[2J", b"")])
    watch(FakeTap([trades(1.0, 2.0), scans, trades(3.0)]), Rows(lines.append, lambda: 0.0).show, count=4)
    assert [line.split()[:2] for line in lines if line.startswith("time")] == [
        ["time", "symbol"], ["time", "pixels"], ["time", "symbol"]
    ]  # fmt: skip
    assert lines[1].split()[1:] == ["IBM", "1.0"]
    assert "\x1b" not in "".join(lines)


def test_long_values_are_cut_in_a_table() -> None:
    lines: list[str] = []
    batch = ev.EventBatch.from_events([Scan(np.ones((2, 2)), "x" * 1000, b"y" * 1000)])
    watch(FakeTap([batch]), Rows(lines.append).show, count=1)
    assert len(lines[1]) < 200
