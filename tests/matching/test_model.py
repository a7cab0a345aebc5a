from __future__ import annotations

import copy
import math
import pickle
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from evflow.errors import EvflowError, SubscriptionError
from evflow.matching import Circle, Constraint, Filter, GlobeCircle, Op, Subscription

HOT = Constraint("temp", ">", 30)

OPERATORS = [
    (Op.EQ, ["==", "="]),
    (Op.NE, ["!=", "<>", "≠"]),
    (Op.LT, ["<"]),
    (Op.LE, ["<=", "≤"]),
    (Op.GT, [">"]),
    (Op.GE, [">=", "≥"]),
    (Op.PREFIX, ["startswith"]),
    (Op.SUFFIX, ["endswith"]),
    (Op.CONTAINS, ["contains"]),
    (Op.EXISTS, ["exists"]),
    (Op.NOT_PREFIX, ["not startswith"]),
    (Op.NOT_SUFFIX, ["not endswith"]),
    (Op.NOT_CONTAINS, ["not contains"]),
    (Op.ABSENT, ["not exists"]),
    (Op.EQ_OTHER, ["== attribute"]),
    (Op.NE_OTHER, ["!= attribute"]),
    (Op.LT_OTHER, ["< attribute"]),
    (Op.LE_OTHER, ["<= attribute"]),
    (Op.GT_OTHER, ["> attribute"]),
    (Op.GE_OTHER, [">= attribute"]),
    (Op.MATCHES, ["matches"]),
    (Op.NOT_MATCHES, ["not matches"]),
    (Op.EQ_NOCASE, ["== nocase", "= nocase"]),
    (Op.NE_NOCASE, ["!= nocase", "<> nocase", "≠ nocase"]),
    (Op.PREFIX_NOCASE, ["startswith nocase"]),
    (Op.SUFFIX_NOCASE, ["endswith nocase"]),
    (Op.CONTAINS_NOCASE, ["contains nocase"]),
    (Op.NOT_PREFIX_NOCASE, ["not startswith nocase"]),
    (Op.NOT_SUFFIX_NOCASE, ["not endswith nocase"]),
    (Op.NOT_CONTAINS_NOCASE, ["not contains nocase"]),
]


def refused(make: Callable[[], Any]) -> str:
    with pytest.raises(SubscriptionError) as caught:
        make()
    return caught.value.message


def test_every_operator_has_its_texts() -> None:
    assert [op for op, _ in OPERATORS] == list(Op)
    for op, texts in OPERATORS:
        assert op.symbol == texts[0]
        assert [Op.of(text) for text in texts] == [op] * len(texts)
        assert Op.of(op) is op


@pytest.mark.parametrize("operator", ["", "=<", "is", 3, None])
def test_unknown_operator_is_refused(operator: Any) -> None:
    assert refused(lambda: Op.of(operator)).startswith("expected an operator (==, !=, <")


@pytest.mark.parametrize(
    "value",
    [30, 30.0, np.int8(30), np.uint64(30), np.float16(30), np.float32(30), np.longdouble(30)],
    ids=lambda value: type(value).__name__,
)
def test_numbers_of_python_and_numpy_become_float(value: Any) -> None:
    made = Constraint("temp", Op.GT, value)
    assert type(made.value) is float
    assert made == HOT and hash(made) == hash(HOT)


def test_booleans_are_one_and_zero() -> None:
    assert [Constraint("a", "==", value).value for value in (True, False, np.bool_(True))] == [1.0, 0.0, 1.0]


def test_strings_become_plain_strings() -> None:
    class Name(str):
        def __str__(self) -> str:
            return "something else"

    for value in (np.str_("x"), Name("x")):
        made = Constraint(Name("a"), "==", value)
        assert type(made.value) is str and type(made.name) is str
        assert made == Constraint("a", "==", "x")


@pytest.mark.parametrize(
    "value",
    [2**53 + 1, -(2**53) - 1, 10**400, -(10**5000), np.int64(2**60 + 1)],
    ids=["2**53+1", "negative", "10**400", "-10**5000", "int64"],
)
def test_integer_that_float64_does_not_hold_is_refused(value: Any) -> None:
    assert "not exact as float64" in refused(lambda: Constraint("a", "==", value))


@given(st.integers(-(2**70), 2**70))
def test_integer_is_held_exactly_or_refused(value: int) -> None:
    # Exactly those whose odd part has at most 53 bits are held.
    odd = abs(value) // (abs(value) & -abs(value)) if value else 0
    if odd < 2**53:
        assert Constraint("a", "==", value).value == value
    else:
        refused(lambda: Constraint("a", "==", value))


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Constraint("temp", ">", None), "temp >: the value is missing"),
        (lambda: Constraint("temp", ">", b"x"), "temp >: expected a number but found b'x' (bytes)"),
        (lambda: Constraint("temp", ">", [1]), "temp >: expected a number but found [1] (list)"),
        (lambda: Constraint("temp", ">", 1j), "expected a number"),
        (lambda: Constraint("temp", ">", Fraction(1, 3)), "expected a number"),
        (lambda: Constraint("temp", ">", np.array([1.0, 2.0])), "expected a number"),
        (lambda: Constraint("temp", ">", np.datetime64("2020")), "expected a number"),
        (lambda: Constraint("temp", "startswith", 3), "temp startswith: expected a string but found 3 (int)"),
        (lambda: Constraint("temp", "endswith", None), "temp endswith: expected a string but found None"),
        (
            lambda: Constraint("temp", "contains", 3.0),
            "temp contains: expected a string but found 3.0 (float)",
        ),
        (lambda: Constraint("temp", "exists", 3), "exists temp takes no value but found 3 (int)"),
        (lambda: Constraint("temp", "==", "a\ud800"), "lone surrogates"),
        (lambda: Constraint("\udfff", "==", 1), "lone surrogates"),
        (lambda: Constraint("", "==", 1), "name of a constraint's attribute is empty"),
        (lambda: Constraint(3, "==", 1), "name of a constraint's attribute: expected a string but found 3"),
        (lambda: Constraint("a", "~", 1), "expected an operator"),
        (lambda: Filter(HOT), "a filter's constraints: expected a list of Constraint but found Constraint"),
        (lambda: Filter("a > 3"), "a filter's constraints: expected a list of Constraint but found 'a > 3'"),
        (lambda: Filter(3), "expected a list of Constraint but found 3 (int)"),
        (lambda: Filter([HOT, 3]), "a filter's constraints: number 1 is no Constraint but 3 (int)"),
        (
            lambda: Filter([HOT], (3, 4, 5)),
            "a filter's area: expected a Circle, Box, Polygon, GlobeCircle, GlobeBox or GlobePolygon",
        ),
        (lambda: Subscription(Filter()), "a subscription's filters: expected a list of Filter"),
        (lambda: Subscription([HOT]), "a subscription's filters: number 0 is no Filter but Constraint("),
        (
            lambda: Circle(math.nan, 0, 1),
            "x of a Circle: expected a number up to 3.4028235e+38 but found nan",
        ),
        (
            lambda: Circle(0, 3.5e38, 1),
            "y of a Circle: expected a number up to 3.4028235e+38 but found 3.5e+38",
        ),
        (
            lambda: Circle(0, 0, math.inf),
            "radius of a Circle: expected a number up to 3.4028235e+38 but found inf",
        ),
        (lambda: Circle(0, 0, -1), "radius of a Circle: expected 0 or more but found -1.0"),
        (lambda: Circle(0, 0, "1"), "radius of a Circle: expected a number but found '1'"),
        (lambda: GlobeCircle(90.1, 0, 1), "latitude of a GlobeCircle: expected -90 to 90 degrees"),
        (lambda: GlobeCircle(-90.1, 0, 1), "expected -90 to 90 degrees but found -90.1"),
        (lambda: GlobeCircle(0, math.inf, 1), "longitude of a GlobeCircle: expected a finite number"),
        (lambda: GlobeCircle(0, 0, -0.1), "radius of a GlobeCircle: expected 0 or more but found -0.1"),
    ],
)
def test_what_does_not_fit_is_refused_by_name(make: Callable[[], Any], message: str) -> None:
    assert message in refused(make)


def test_largest_float32_is_a_coordinate_and_what_is_beyond_it_is_not() -> None:
    largest = float(np.finfo(np.float32).max)
    assert Circle(largest, -largest, largest) == Circle(largest, -largest, largest)
    refused(lambda: Circle(math.nextafter(largest, math.inf), 0, 0))


@pytest.mark.parametrize(
    ("given", "kept"),
    [
        (0, 0),
        (-180, -180),
        (180, -180),
        (179.5, 179.5),
        (190, -170),
        (-190, 170),
        (360, 0),
        (540, -180),
        (1e6, -80),
    ],
)
def test_longitude_goes_round(given: float, kept: float) -> None:
    assert GlobeCircle(0, given, 1).longitude == kept


@given(st.floats(allow_nan=False, allow_infinity=False))
def test_longitude_is_the_same_meridian_exactly(degrees: float) -> None:
    kept = GlobeCircle(0, degrees, 1).longitude
    assert -180 <= kept < 180
    assert (Fraction(degrees) - Fraction(kept)) % 360 == 0


def test_negative_zero_is_a_radius() -> None:
    assert math.copysign(1, Circle(0, 0, -0.0).radius) == 1


def test_equal_means_the_same_and_hashes_alike() -> None:
    same = [Constraint("a", "<", 1), Constraint("a", Op.LT, 1.0), Constraint("a", "<", True)]
    assert len(set(same)) == 1
    assert Constraint("a", "<", 1) != Constraint("a", "<", "1")
    assert Constraint("a", "<", 1) != Constraint("a", "<=", 1)
    assert Constraint("a", "<", 1) != ("a", Op.LT, 1.0)
    assert Constraint("a", "<", 0.0) == Constraint("a", "<", -0.0)
    nans = {Constraint("a", "<", float("nan")), Constraint("a", "<", np.float32("nan"))}
    assert len(nans) == 1
    assert len({Subscription([Filter(nans)]), Subscription((Filter(tuple(nans)),))}) == 1
    assert Filter([HOT]) == Filter((HOT,)) != Filter([HOT], Circle(1, 2, 3))
    assert Circle(1, 2, 3) != GlobeCircle(1, 2, 3)


def test_objects_are_copied_and_pickled() -> None:
    made = Subscription([Filter([HOT, Constraint("a", "!=", math.nan)], Circle(1, 2, 3)), Filter()])
    assert pickle.loads(pickle.dumps(made)) == copy.deepcopy(made) == made
    assert hash(pickle.loads(pickle.dumps(made))) == hash(made)


def test_objects_cannot_be_changed() -> None:
    for thing, field in (
        (HOT, "value"),
        (Circle(1, 2, 3), "x"),
        (Filter(), "area"),
        (Subscription([]), "filters"),
    ):
        with pytest.raises(AttributeError):
            setattr(thing, field, None)


def test_objects_say_what_they_are() -> None:
    made = Subscription(
        [Filter([HOT, Constraint("in", "exists")], Circle(1, 2.5, 3)), Filter(), Filter([HOT])]
    )
    assert str(made) == "temp > 30 and exists `in` and within(1, 2.5, 3) or true or temp > 30"
    assert repr(HOT) == "Constraint(name='temp', op=<Op.GT: 4>, value=30.0)"


def test_error_of_a_subscription_may_be_plain() -> None:
    error = SubscriptionError("no room")
    assert isinstance(error, EvflowError)
    assert (str(error), error.message, error.source, error.line, error.column) == (
        "no room",
        "no room",
        "",
        1,
        1,
    )
    assert str(error.within("filter 3")) == "filter 3: no room"
    again = pickle.loads(pickle.dumps(SubscriptionError("bad", "a b", 1, 3)))
    assert (again.message, again.source, again.line, again.column) == ("bad", "a b", 1, 3)
    assert (
        str(again)
        == str(SubscriptionError("bad", "a b", 1, 3))
        == "bad\n   1 | a b\n         ^ line 1, column 3"
    )
