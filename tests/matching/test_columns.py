from __future__ import annotations

import math
from collections.abc import Callable
from random import Random
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from evflow.errors import SubscriptionError
from evflow.matching import Circle, Constraint, Filter, FilterColumns, GlobeCircle, Op, Subscription
from evflow.matching.columns.bulk import as_subscription
from tests.examples import tried
from tests.matching import phrases

HOT = Filter([Constraint("temp", ">", 30), Constraint("kind", "==", "sensor")])
NEAR = Filter([Constraint("temp", "exists")], Circle(1, 2, 3))


def raw(**changed: Any) -> FilterColumns:
    """Three filters: ``a < 1 and b == 'x'``, every event, ``b startswith 'y' and within(4, 5, 6)``."""
    given: dict[str, Any] = {
        "names": ["a", "b"],
        "texts": ["x", "y"],
        "start": [0, 2, 2, 3],
        "name": [0, 1, 1],
        "op": [Op.LT, Op.EQ, Op.PREFIX],
        "number": [1, 0, 0],
        "text": [-1, 0, 1],
        "x": [math.nan, math.nan, 4],
        "y": [math.nan, math.nan, 5],
        "radius": [math.nan, math.nan, 6],
    }
    return FilterColumns(**given | changed)


def refused(make: Callable[[], Any]) -> str:
    with pytest.raises(SubscriptionError) as caught:
        make()
    return caught.value.message


def texts(columns: FilterColumns) -> list[str]:
    return [str(subscription) for subscription in columns.to_subscriptions()]


def test_columns_hold_what_their_attributes_say() -> None:
    columns = raw()
    columns.check()
    assert [
        columns.start.dtype,
        columns.name.dtype,
        columns.op.dtype,
        columns.number.dtype,
        columns.text.dtype,
    ] == [
        np.int64,
        np.int32,
        np.uint8,
        np.float64,
        np.int32,
    ]
    assert (len(columns), columns.subscriptions) == (3, 3)
    assert texts(columns) == ["a < 1 and b == 'x'", "true", "b startswith 'y' and within(4, 5, 6)"]


def test_arrays_of_the_right_type_are_not_copied() -> None:
    number = np.zeros(3)
    assert raw(number=number).number is number


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"names": "ab"}, "names: expected a list of strings but found 'ab'"),
        ({"names": None}, "names: expected a list of strings but found None"),
        ({"texts": {"x", "y"}}, "texts: expected a list of strings"),
        ({"names": ["a", 3]}, "names[1]: expected a string but found 3"),
        ({"names": ["a", "\ud800"]}, "names[1]: '\\ud800' has lone surrogates"),
        ({"names": ["a", ""]}, "names[1] is empty"),
        ({"texts": ["x", b"y"]}, "texts[1]: expected a string but found b'y'"),
        ({"start": []}, "start is empty"),
        ({"start": [1, 2, 2, 3]}, "start[0] is 1; expected 0"),
        ({"start": [0, 2, 1, 3]}, "filter 1: start falls from 2 to 1"),
        ({"start": [0, 2, 2, 4]}, "start ends with 4; there are 3 constraints"),
        ({"start": [0, 2, 3]}, "x has length 3; start says 2 filters"),
        ({"start": [0.0, 2.0, 2.0, 3.0]}, "start: expected an array of integers (int64) but found float64"),
        ({"start": [[0, 2, 2, 3]]}, "start: expected an array of one dimension but found shape (1, 4)"),
        ({"op": [2, 0]}, "op has length 2, name 3"),
        ({"number": [1, 2]}, "number has length 2, name 3"),
        ({"text": [-1, 0, 1, 1]}, "text has length 4, name 3"),
        ({"name": [0, 2, 1]}, "filter 0, constraint 1: name is 2; expected 0 to 1, an index of names"),
        ({"name": [0, 1, -1]}, "filter 2, constraint 0: name is -1"),
        ({"name": [0, 1, 2**40]}, "name[2]: 1099511627776 does not fit int32 exactly"),
        ({"name": ["a", "b", "b"]}, "name: expected an array of integers (int32) but found <U1"),
        (
            {"op": [2, 0, Op.MATCHES], "texts": ["b", "a("]},
            "filter 2, constraint 0: 'a(' is not a regular expression of RE2: missing ): a(",
        ),
        ({"op": [2, 0, 14]}, "filter 2, constraint 0: op is 14; expected the number of an Op"),
        ({"op": [2, 0, 99]}, "filter 2, constraint 0: op is 99; expected the number of an Op"),
        ({"op": [2, 0, 256]}, "op[2]: 256 does not fit uint8 exactly"),
        ({"text": [-1, 2, 1]}, "filter 0, constraint 1: text is 2; expected -1 to 1"),
        ({"text": [-1, -2, 1]}, "filter 0, constraint 1: text is -2"),
        ({"text": [-1, 0, -1]}, "filter 2, constraint 0: startswith takes a string, but text is -1"),
        ({"op": [2, 9, 6]}, "filter 0, constraint 1: exists takes no operand, but text is 0"),
        ({"op": [2, 0, 10], "name": [0, 5, 1]}, "filter 0, constraint 1: name is 5"),
        ({"number": [2**53 + 1, 0, 0]}, "number[0]: 9007199254740993 does not fit float64 exactly"),
        ({"number": ["1", "2", "3"]}, "number: expected an array of numbers (float64) but found <U1"),
        ({"number": [None, 1, 2]}, "number: expected an array of numbers (float64) but found object"),
        ({"number": [1j, 1, 2]}, "number: expected an array of numbers (float64) but found complex128"),
        ({"number": [[1], [1, 2]]}, "number: expected an array but found"),
        ({"subscription": [0, 1]}, "subscription has length 2; start says 3 filters"),
        ({"subscription": [0, -1, 1]}, "filter 1: subscription is -1; expected 0 to 1"),
        ({"subscription": [0, 9, 1]}, "filter 1: subscription is 9, but there are 3 filters"),
        ({"subscription": [0, 2, 1], "count": 2}, "filter 1: subscription is 2; expected 0 to 1"),
        ({"count": 2}, "count is 2, but without subscription each of 3 filters is one"),
        ({"count": "3"}, "count: expected an integer but found '3'"),
        ({"count": -1}, "there are -1 subscriptions"),
        ({"count": 2**31, "subscription": [0, 0, 0]}, "there are 2147483648 subscriptions"),
        ({"ids": [1, 2]}, "there are 3 subscriptions but 2 ids"),
        ({"ids": [1, 2, -1]}, "subscription 2: the id is -1; expected 0 to 2147483646"),
        ({"ids": [1, 2, 2**31 - 1]}, "subscription 2: the id is 2147483647"),
        ({"ids": [4, 2, 4]}, "id 4 is given to two subscriptions"),
        ({"y": None}, "an area takes x, y and radius but only x and radius is given"),
        ({"y": [math.nan, math.nan, math.nan]}, "filter 2: its y is nan; expected a finite float64"),
        ({"x": [math.nan, math.inf, 4]}, "filter 1: its x is inf; expected a finite float64"),
        ({"radius": [0, 0, math.nan]}, "filter 2: its radius is nan"),
        ({"radius": [0, 0, -1e-300]}, "filter 2: its radius is -1e-300; expected 0 or more"),
        ({"radius": [0, 0, 1e39], "space": "plane"}, "its radius is 1e+39; expected a number up to 3.40"),
        ({"x": [0, 0, 91], "y": [0, 0, 0], "radius": [0, 0, 0], "space": "globe"}, "its latitude x is 91.0"),
        ({"space": "moon"}, "space is 'moon'; expected 'plane' or 'globe'"),
    ],
)  # fmt: skip
def test_wrong_columns_are_refused_by_place(changed: dict[str, Any], message: str) -> None:
    assert message in refused(lambda: raw(**changed).check())


def test_space_of_a_matcher_is_checked() -> None:
    raw().check("globe")
    raw(space="globe").check("globe")
    message = (
        "filter 2: its area is on the plane, the matcher on the globe; "
        "write the radius with a unit, such as 50 km, or make the matcher with space='plane'"
    )
    assert message in refused(lambda: raw(space="plane").check("globe"))
    message = "write the radius without a unit, or make the matcher with space='globe'"
    assert message in refused(lambda: raw(space="globe").check("plane"))
    raw(space="plane", x=[math.nan] * 3).check("globe")
    assert "filter 2: its latitude x is 100.0" in refused(
        lambda: raw(x=[math.nan, math.nan, 100]).check("globe")
    )
    assert "number up to 3.4028235e+38" in refused(lambda: raw(y=[0, 0, 1e300]).check("plane"))


def test_no_filters_are_columns_too() -> None:
    for columns in (
        FilterColumns.from_subscriptions([]),
        FilterColumns(names=[], texts=[], start=[0], name=[], op=[], number=[], text=[]),
        FilterColumns.from_arrays(names=[], name=[], op=[], number=[], start=[0]),
    ):
        columns.check()
        assert (len(columns), columns.subscriptions, columns.to_subscriptions()) == (0, 0, [])


def test_subscriptions_of_every_kind_become_columns() -> None:
    given = ["temp > 3 or wind < 4", HOT, Subscription([]), Subscription([NEAR, HOT]), "within(7, 8, 9)"]
    columns = FilterColumns.from_subscriptions(given)
    columns.check("plane")
    assert columns.space == "plane" and columns.subscriptions == 5
    assert columns.subscription is not None and columns.subscription.tolist() == [0, 0, 1, 3, 3, 4]
    assert columns.to_subscriptions() == [as_subscription(item) for item in given]
    assert sorted(columns.names) == ["kind", "temp", "wind"] and list(columns.texts) == ["sensor"]


def test_areas_of_the_globe_become_latitude_and_longitude() -> None:
    columns = FilterColumns.from_subscriptions([Filter(), Filter(area=GlobeCircle(10, 20, 30))])
    assert columns.x is not None and columns.y is not None and columns.radius is not None
    assert (columns.space, columns.x[1], columns.y[1], columns.radius[1]) == ("globe", 10, 20, 30)
    assert math.isnan(columns.x[0])
    assert columns.to_subscriptions()[1].filters[0].area == GlobeCircle(10, 20, 30)


def test_columns_without_areas_are_for_every_space() -> None:
    columns = FilterColumns.from_subscriptions([HOT])
    assert columns.space is None and columns.x is None
    columns.check("globe")


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (["a = 1", "a >"], "subscription 1: expected a value or an attribute after > but found the end"),
        (["a = 1", 3], "subscription 1: expected a text, a Filter or a Subscription but found 3 (int)"),
        (["within(1, 2, 3)", "within(1, 2, 3 km)"], "subscription 1: its area is on the globe, those before"),
        (["within(1, 2, 3 m) or within(1, 2, 3)"], "subscription 0: its area is on the plane"),
        ("a = 1", "expected a list of subscriptions but found 'a = 1'"),
        (HOT, "expected a list of subscriptions but found Filter("),
    ],
)
def test_malformed_subscription_is_refused_by_number(given: Any, message: str) -> None:
    assert message in refused(lambda: FilterColumns.from_subscriptions(given))


def test_place_in_the_text_survives_the_number() -> None:
    with pytest.raises(SubscriptionError) as caught:
        FilterColumns.from_subscriptions(["true", "a = 1\nand b >"])
    assert (caught.value.line, caught.value.column, caught.value.source) == (2, 8, "a = 1\nand b >")
    assert str(caught.value).endswith("^ line 2, column 8")


@settings(max_examples=tried(60))
@given(st.integers(0, 2**32), st.integers(0, 4))
def test_subscriptions_survive_columns(seed: int, count: int) -> None:
    random = Random(seed)
    given = [as_subscription(phrases.written(random, phrases.tree(random))) for _ in range(count)]
    columns = FilterColumns.from_subscriptions(given)
    columns.check()
    assert columns.to_subscriptions() == given


@settings(max_examples=tried(60))
@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3)), min_size=1, max_size=8))
def test_filters_are_grouped_by_subscription_in_their_order(rows: list[tuple[int, int]]) -> None:
    # Filter n has the constraint n == n, the given number of times.
    start = np.cumsum([0, *(size for _, size in rows)])
    numbers = [n for n, (_, size) in enumerate(rows) for _ in range(size)]
    x = np.arange(len(rows), dtype=np.float64)
    columns = FilterColumns(
        names=["a"], texts=[], start=start, name=[0] * len(numbers), op=[0] * len(numbers), number=numbers,
        text=[-1] * len(numbers), subscription=[of for of, _ in rows], x=x, y=x, radius=x, count=4,
    )  # fmt: skip
    grouped = columns.grouped()
    grouped.check()
    order = [n for of in range(4) for n, row in enumerate(rows) if row[0] == of]
    assert grouped.subscription is not None and grouped.x is not None
    assert grouped.subscription.tolist() == sorted(of for of, _ in rows)
    assert grouped.x.tolist() == order
    assert grouped.number.tolist() == [n for n in order for _ in range(rows[n][1])]
    assert grouped.to_subscriptions() == columns.to_subscriptions()


def test_columns_that_are_grouped_stay_themselves() -> None:
    for columns in (raw(), raw(subscription=[0, 0, 1])):
        assert columns.grouped() is columns


def test_arrays_of_two_dimensions_are_filters_of_equal_length() -> None:
    columns = FilterColumns.from_arrays(
        name=[[0, 1], [1, 0]],
        names=["a", "b"],
        op=np.array([["<", "≥"], ["=", "<>"]]),
        number=[[1, 2], [3, 4]],
    )
    assert texts(columns) == ["a < 1 and b >= 2", "b == 3 and a != 4"]


def test_scalars_stand_for_all() -> None:
    columns = FilterColumns.from_arrays(
        name="a", op=">", number=np.arange(3), x=0, y=[1, 2, 3], radius=np.float32(4)
    )
    assert texts(columns) == [
        "a > 0 and within(0, 1, 4)",
        "a > 1 and within(0, 2, 4)",
        "a > 2 and within(0, 3, 4)",
    ]


def test_arrays_of_strings_and_numbers_are_mixed() -> None:
    columns = FilterColumns.from_arrays(
        start=[0, 3, 3, 4],
        name=np.array(["a", "b", "a", "c"]),
        op=[Op.EQ, "startswith", "exists", Op.GT],
        number=[1, np.nan, np.nan, np.nan],
        text=np.array([None, "y", None, None], object),
    )
    assert texts(columns) == ["a == 1 and b startswith 'y' and exists a", "true", "c > nan"]


def test_strings_in_lists_are_taken_as_they_are() -> None:
    columns = FilterColumns.from_arrays(name=["a\0", "a"], op="==", text=["x\0", "x"])
    assert [c.filters[0].constraints for c in columns.to_subscriptions()] == [
        (Constraint("a\0", "==", "x\0"),),
        (Constraint("a", "==", "x"),),
    ]
    assert "expected strings but found ['int', 'str']" in refused(
        lambda: FilterColumns.from_arrays(name=["a", 3], op="<", number=1)
    )


@pytest.mark.parametrize("kind", ["U", "T", "O"])
def test_strings_of_numpy_are_operands(kind: str) -> None:
    dtype: Any = np.dtypes.StringDType() if kind == "T" else np.dtype(kind)
    columns = FilterColumns.from_arrays(
        name=np.array(["b", "a", "b"], dtype),
        op=np.array(["==", "≠", "<="], dtype),
        text=np.array(["é", "", "é"], dtype),
    )
    assert texts(columns) == ["b == 'é'", "a != ''", "b <= 'é'"]


def test_subscription_in_arrays_holds_ids() -> None:
    columns = FilterColumns.from_arrays(name="a", op="<", number=[1, 2, 3, 4], subscription=[70, 5, 70, 9])
    assert columns.ids is not None and columns.ids.tolist() == [5, 9, 70]
    assert texts(columns) == ["a < 2", "a < 4", "a < 1 or a < 3"]
    assert texts(columns.grouped()) == texts(columns)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"name": [0, 1], "op": "<", "number": 1}, "names is missing"),
        ({"name": ["a"], "names": ["a"], "op": "<", "number": 1}, "name holds strings, so names must be"),
        ({"name": ["a"], "op": "~", "number": 1}, "expected an operator"),
        ({"name": ["a", "b"], "op": ["<", "~"], "number": 1}, "but found '~'"),
        ({"name": ["a", None], "op": "<", "number": 1}, "name[1]: expected a string but found None"),
        ({"name": "a", "op": "<", "number": np.array([1, None])}, "expected an array of numbers"),
        ({"name": np.array(["a", 3], object), "op": "<", "number": 1}, "expected strings but found ['int'"),
        ({"name": ["a", "b"], "op": "<", "number": [1, 2, 3]}, "the shapes of the columns do not go"),
        ({"name": [["a", "b"]], "op": "<", "number": 1, "start": [0, 2]}, "either start or arrays of more"),
        ({"name": ["a", "b"], "op": "<", "number": 1, "start": [0, 1]}, "start ends with 1; there are 2"),
        ({"name": ["a", "b"], "op": "contains", "number": 1}, "contains takes a string, but text is -1"),
        ({"name": ["a", "b"], "op": "<", "number": 1, "x": [1, 2, 3], "y": 1, "radius": 1}, "x has length 3"),
        ({"name": ["a", "b"], "op": "<", "number": 1, "subscription": [1, 2**40]}, "the id is 1099511627776"),
        ({"name": ["a"], "op": "<", "number": 2**64 - 1}, "18446744073709551615 does not fit float64"),
    ],
)  # fmt: skip
def test_arrays_that_do_not_fit_are_refused(given: dict[str, Any], message: str) -> None:
    assert message in refused(lambda: FilterColumns.from_arrays(**given))


@given(st.integers(-(2**63), 2**64 - 1))
def test_integers_in_arrays_are_exact_or_refused(value: int) -> None:
    def make() -> FilterColumns:
        return FilterColumns.from_arrays(name="a", op="<", number=np.array([value]))

    if int(float(value)) == value:
        assert make().number[0] == value
    else:
        assert f"{value} does not fit float64 exactly" in refused(make)
