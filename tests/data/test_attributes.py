from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from strategies import some

import evflow as ev
from evflow.errors import SchemaError
from evflow.events.attributes import Attributes, alike, row_of

_ROWS = st.lists(
    st.fixed_dictionaries(
        {},
        optional={
            "i": st.integers(-(2**63), 2**63 - 1),
            "f": st.floats(allow_nan=False),
            "s": st.text(max_size=4),
            "mixed": st.one_of(st.integers(-(2**53), 2**53), st.floats(allow_nan=False)),
        },
    ),
    max_size=6,
)


class Note(ev.Event):
    n: int


def rows_of(attributes: Attributes, n: int) -> list[dict[str, Any]]:
    return [attributes.of(i) for i in range(n)]


@some
@given(_ROWS)
def test_attributes_from_rows_are_the_rows(rows: list[dict[str, Any]]) -> None:
    attributes = Attributes.from_rows(rows)
    assert rows_of(attributes, len(rows)) == rows
    for column in attributes.columns.values():
        assert column.values.dtype == {"i": np.int64, "f": np.float64, "s": object}[column.kind]
        assert column.present.dtype == np.bool_
        assert len(column.values) == len(column.present) == len(rows)


@some
@given(_ROWS)
def test_attributes_of_events_that_are_alike_are_their_rows(rows: list[dict[str, Any]]) -> None:
    made = [row_of(row) for row in rows]
    for one, row in zip(made, rows, strict=True):
        together = [other for other in zip(made, rows, strict=True) if alike(one, other[0])]
        attributes = Attributes.from_alike([other for other, _ in together])
        assert rows_of(attributes, len(together)) == [found for _, found in together]
        assert "".join(column.kind for column in attributes.columns.values()) == one.kinds
        assert one.values == tuple(row.values())


@pytest.mark.parametrize("value", [2**63, -(2**63) - 1, "\ud800", b"b", [1], 1j])
def test_attribute_that_cannot_be_one_is_refused_for_one_event_too(value: Any) -> None:
    with pytest.raises(SchemaError, match="attribute wrong"):
        row_of({"fine": 1, "wrong": value})


@some
@given(_ROWS, st.data())
def test_attributes_take_is_take_of_the_rows(rows: list[dict[str, Any]], data: st.DataObject) -> None:
    positions = data.draw(st.lists(st.integers(0, len(rows) - 1), max_size=5)) if rows else []
    taken = Attributes.from_rows(rows).take(np.array(positions, np.int32))
    assert rows_of(taken, len(positions)) == [rows[p] for p in positions]


@some
@given(_ROWS, st.integers(0, 3), _ROWS)
def test_attributes_concat_is_the_rows_one_after_the_other(one: Any, between: int, other: Any) -> None:
    parts = [
        (Attributes.from_rows(one), len(one)),
        (None, between),
        (Attributes.from_rows(other), len(other)),
    ]
    joined = Attributes.concat(parts)
    expected = [*one, *[{}] * between, *other]
    assert ([{}] * len(expected) if joined is None else rows_of(joined, len(expected))) == expected


def test_attributes_of_none_are_none() -> None:
    assert Attributes.concat([(None, 3), (None, 2)]) is None
    assert Attributes.from_rows([None, {}]).columns == {}


def test_attributes_constant_are_alike_for_all() -> None:
    attributes = Attributes.constant({"k": 45678, "s": "x", "b": True}, 3)
    assert rows_of(attributes, 3) == [{"k": 45678, "s": "x", "b": 1}] * 3
    assert rows_of(Attributes.constant({"k": 1}, 0), 0) == []


def test_attributes_of_several_kinds_become_floats_where_that_is_exact() -> None:
    assert Attributes.from_rows([{"a": 1}, {"a": 0.5}]).columns["a"].kind == "f"
    with pytest.raises(SchemaError, match="attribute a: expected an integer that f64 holds exactly"):
        Attributes.from_rows([{"a": 2**53 + 1}, {"a": 0.5}])
    joined = Attributes.concat(
        [(Attributes.from_rows([{"a": 1}]), 1), (Attributes.from_rows([{"a": 0.5}]), 1)]
    )
    assert joined is not None
    assert rows_of(joined, 2) == [{"a": 1.0}, {"a": 0.5}]


@pytest.mark.parametrize(
    ("rows", "reason"),
    [
        ([{"a": 1}, {"a": "x"}], "text for some events, numbers for others"),
        ([{"a": None}, {"a": [1]}], r"expected an int, a float, a bool or a str, found \[1\]"),
        ([{"a": 2**63}], "an integer from -9223372036854775808"),
        ([{"a": b"x"}], "found b'x'"),
        ([{5: 1}], "attribute 5: expected a name that is text"),
    ],
)
def test_attributes_refuse_other_values(rows: Any, reason: str) -> None:
    with pytest.raises(SchemaError, match=reason):
        Attributes.from_rows(rows)


def test_columns_go_through_lists() -> None:
    """What ``to_lists`` gives ``from_lists`` takes, whatever the events have; wrong values are refused."""
    rows = [{"i": 1, "f": 0.5, "s": "x"}, {"i": 1, "f": 1.0}, {"i": 2, "f": 2.0, "s": "x"}]
    lists = Attributes.from_rows(rows).to_lists()
    assert lists == {"i": [1, 1, 2], "f": [0.5, 1.0, 2.0], "s": ["x", None, "x"]}
    again = Attributes.from_lists(lists)
    assert [again.of(n) for n in range(3)] == rows
    assert {name: column.values.dtype.kind for name, column in again.columns.items()} == {
        "i": "i", "f": "f", "s": "O",
    }  # fmt: skip
    for wrong in ([1 << 63], ["a", 1], [[]], ["\udc80"]):
        with pytest.raises(SchemaError, match="attribute k"):
            Attributes.from_lists({"k": wrong})


@pytest.mark.parametrize("count", [1, 3])
def test_a_batch_refuses_attributes_of_another_length(count: int) -> None:
    attributes = Attributes.from_rows([{"hops": 1}] * count)
    columns = {"n": [1, 2]}
    batch = ev.EventBatch.from_columns(Note, columns)
    events = [bytes(batch.take([0]).data), bytes(batch.take([1]).data)]
    for refused in (
        lambda: batch.with_attributes(attributes),
        lambda: ev.EventBatch.from_columns(Note, columns, attributes),
        lambda: ev.EventBatch.from_encoded(Note.schema, events, attributes),
    ):
        with pytest.raises(ev.SchemaError, match=f"Note: attribute 'hops' has {count} values, expected 2"):
            refused()
