from __future__ import annotations

from itertools import accumulate
from typing import Any

import numpy as np
import pytest

from evflow.errors import SubscriptionError
from evflow.matching import FilterColumns, Op

pa = pytest.importorskip("pyarrow")

ROWS = [
    [
        {"name": "temp", "op": ">", "number": 30, "text": None},
        {"name": "kind", "op": "==", "number": None, "text": "sensor"},
    ],
    [],
    [{"name": "kind", "op": "exists", "number": None, "text": None}],
    [{"name": "a", "op": "≤", "number": -1, "text": None}],
]
MEANT = ["temp > 30 and kind == 'sensor'", "true", "exists kind", "a <= -1"]

words = pa.dictionary(pa.int8(), pa.string())
KINDS = {
    "plain": (pa.string(), pa.string(), pa.float64(), pa.string()),
    "dictionaries": (words, words, pa.float32(), words),
    "large": (pa.large_string(), pa.large_string(), pa.int64(), pa.dictionary(pa.int32(), pa.large_string())),
    "views": (pa.string_view(), pa.string_view(), pa.float16(), pa.string_view()),
}
LISTS = {"list": pa.list_, "large list": pa.large_list, "view": pa.list_view}


def structs(kind: str = "plain") -> Any:
    return pa.struct(list(zip(("name", "op", "number", "text"), KINDS[kind], strict=True)))


def column(values: list[Any], type: Any) -> Any:
    """An array of a type; not every pyarrow makes dictionaries and halves from Python's values."""
    if pa.types.is_float16(type):
        return pa.array([None if value is None else np.float16(value) for value in values], type)
    if not pa.types.is_dictionary(type):
        return pa.array(values, type)
    plain = pa.array(values, type.value_type).dictionary_encode()
    return pa.DictionaryArray.from_arrays(plain.indices.cast(type.index_type), plain.dictionary)


def listed(rows: list[list[dict[str, Any]]], kind: str, lists: str) -> Any:
    """Rows as an array of lists of structs."""
    fields = list(structs(kind))
    columns = [column([each[field.name] for row in rows for each in row], field.type) for field in fields]
    values = pa.StructArray.from_arrays(columns, fields=fields)
    sizes = [len(row) for row in rows]
    offsets = list(accumulate(sizes, initial=0))
    if lists == "view":
        return pa.ListViewArray.from_arrays(
            pa.array(offsets[:-1], pa.int32()), pa.array(sizes, pa.int32()), values
        )
    return {"list": pa.ListArray, "large list": pa.LargeListArray}[lists].from_arrays(offsets, values)


def texts(table: Any) -> list[str]:
    return [str(subscription) for subscription in FilterColumns.from_arrow(table).to_subscriptions()]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("lists", LISTS)
def test_table_of_every_type_becomes_columns(kind: str, lists: str) -> None:
    array = listed(ROWS, kind, lists)
    assert array.type == LISTS[lists](structs(kind))
    assert texts(pa.table({"constraints": array})) == MEANT
    assert texts(pa.record_batch({"constraints": array})) == MEANT
    # Slices and chunks, of which one is empty and each has dictionaries of its own.
    again = listed(ROWS[::-1], kind, lists)
    chunks = pa.chunked_array([array.slice(2, 1), array.slice(0, 0), array.slice(0, 2), again.slice(1)])
    expected = [MEANT[n] for n in (2, 0, 1, 2, 1, 0)]
    assert texts(pa.table({"constraints": chunks})) == expected


def test_list_of_fixed_size_becomes_columns() -> None:
    array = pa.array(ROWS[:1], pa.list_(structs())).cast(pa.list_(structs(), 2))
    assert texts(pa.table({"constraints": array})) == MEANT[:1]


def test_operators_may_be_numbers() -> None:
    rows = [[{"name": "a", "op": int(op), "number": 1.0}] for op in (Op.LT, Op.NE)]
    assert texts(pa.table({"constraints": rows})) == ["a < 1", "a != 1"]


def test_lists_that_are_all_empty_need_no_type() -> None:
    assert texts(pa.table({"constraints": [[], []]})) == ["true", "true"]
    assert texts(pa.table({"constraints": pa.array([], pa.list_(structs()))})) == []
    assert texts(pa.table({"constraints": pa.chunked_array([], pa.list_(structs()))})) == []


def test_areas_and_ids_come_from_their_columns() -> None:
    table = pa.table(
        {
            "constraints": pa.array(ROWS, pa.list_(structs())),
            "x": [1, None, 3, 4],
            "y": pa.array([5, None, 7, 8], pa.float32()),
            "radius": [0.5, 1.0, 2.0, 3.0],
            "subscription": pa.array([7, 3, 7, 0], pa.uint16()),
            "remark": ["not", "read", "at", "all"],
        }
    )
    columns = FilterColumns.from_arrow(table, space="globe")
    assert columns.ids is not None and columns.ids.tolist() == [0, 3, 7]
    assert [str(subscription) for subscription in columns.to_subscriptions()] == [
        f"{MEANT[3]} and within(4, 8, 3 m)",
        "true",
        f"{MEANT[0]} and within(1, 5, 0.5 m) or {MEANT[2]} and within(3, 7, 2 m)",
    ]


GOOD = {"name": "a", "op": "<", "number": 2, "text": None}


def one(**changed: Any) -> Any:
    """A table of two filters, the second with one constraint that is changed."""
    return pa.table({"constraints": pa.array([[GOOD, GOOD], [GOOD | changed]])})


@pytest.mark.parametrize(
    ("table", "message"),
    [
        (3, "expected a Table or RecordBatch of pyarrow but found int"),
        (pa.table({"x": [3]}), "the table has no column constraints; it has x"),
        (pa.table({"constraints": [3]}), "column constraints: expected lists of structs but found int64"),
        (pa.table({"constraints": [[3]]}), "column constraints: expected lists of structs but found list<"),
        (pa.table({"constraints": [[{"name": "a"}]]}), "the structs of constraints have no field op"),
        (pa.table({"constraints": [[GOOD], None]}), "filter 1: constraints is null"),
        (pa.table({"constraints": [[GOOD], [GOOD, None]]}), "filter 1, constraint 1: it is null"),
        (one(name=None), "filter 1, constraint 0: its name is null"),
        (one(op=None), "filter 1, constraint 0: its op is null"),
        (one(op="~"), "filter 1, constraint 0: expected an operator"),
        (one(number=None), "filter 1, constraint 0: its operand is missing: number and text are null"),
        (one(text="x"), "filter 1, constraint 0: it has a number and a text; one must be null"),
        (one(op="exists"), "filter 1, constraint 0: exists takes no operand, but it has a number"),
        (one(op="not exists"), "filter 1, constraint 0: not exists takes no operand, but it has a number"),
        (one(op="exists", number=None, text="x"), "filter 1, constraint 0: exists takes no operand"),
        (one(op="contains"), "filter 1, constraint 0: contains takes a string"),
        (one(number=2**53 + 1), "9007199254740993 does not fit float64 exactly"),
        (pa.table({"constraints": [[GOOD | {"number": "2"}]]}), "number: expected numbers but found string"),
        (pa.table({"constraints": [[GOOD | {"name": 3}]]}), "name of constraints: expected strings but"),
        (pa.table({"constraints": [[GOOD | {"op": 99}]]}), "filter 0, constraint 0: op is 99"),
        (pa.table({"constraints": [[], []], "x": [1, 2]}), "an area takes x, y and radius"),
        (pa.table({"constraints": [[]], "x": [1], "y": [None], "radius": [1]}), "filter 0: its y is nan"),
        (pa.table({"constraints": [[]], "x": ["1"], "y": [1], "radius": [1]}), "x: expected numbers but"),
        (pa.table({"constraints": [[], []], "subscription": [1, None]}), "filter 1: subscription is null"),
        (pa.table({"constraints": [[], []], "subscription": [1, -2]}), "the id is -2"),
        (pa.table({"constraints": [[]], "subscription": [1.5]}), "subscription: expected an array of"),
    ],
)  # fmt: skip
def test_table_that_does_not_fit_is_refused(table: Any, message: str) -> None:
    with pytest.raises(SubscriptionError) as caught:
        FilterColumns.from_arrow(table)
    assert message in caught.value.message
