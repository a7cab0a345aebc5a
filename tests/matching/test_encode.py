"""Events of every form become the same rows."""

from __future__ import annotations

import math
from decimal import Decimal
from functools import cache
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import evflow as ev
from evflow.errors import SchemaError
from evflow.events.attributes import Attributes
from evflow.matching.matcher import Matcher
from evflow.matching.native import HAS_CODE
from evflow.matching.rows import NUMBER, OTHER, TEXT, EventRows

NAMES = "number size flag short long maybe title blob track pos pos.x pos.inner.y kind list".split()
STRINGS = ["", "a", "ab", "é𝄞", "operand"]


class Inner(ev.Event):
    y: float


class Position(ev.Event):
    x: float
    inner: Inner


class Everything(ev.Event):
    number: float
    size: int
    flag: bool
    short: ev.Str[8]
    pos: Position
    track: ev.Array[ev.f32, 2]
    long: str
    maybe: float | None
    title: ev.Str[6] | None
    blob: bytes
    list: list[int]
    x: ev.f32 = 1.5
    y: int = 2


class Narrow(ev.Event):
    number: ev.f32
    size: ev.u8
    short: ev.Str[3]
    other: int = 0


def make(
    space: str = "plane", names: list[str] = NAMES, engine: str = "reference", **options: Any
) -> Matcher:
    matcher = Matcher(engine, space=space, **options)
    matcher.subscribe_many([f"exists `{name}`" for name in names])
    matcher.subscribe_many([f"number == '{text}'" for text in STRINGS])
    return matcher


def shown(matcher: Matcher, rows: EventRows) -> list[dict[str, Any]]:
    """The attributes of rows by name, after a check of the form of the rows."""
    names = list(matcher._names.numbers)
    n = len(rows.name)
    kinds = [np.int64, np.int32, np.uint8, np.float64, np.int32, np.uint8, np.int64, np.int32]
    fields = ["start", "name", "kind", "number", "text", "chars", "char_start", "char_length"]
    for field, kind in zip(fields, kinds, strict=True):
        array = getattr(rows, field)
        assert type(array) is np.ndarray and array.dtype == kind and array.ndim == 1, field
        assert array.flags.c_contiguous, field
        assert field in ("start", "chars") or len(array) == n
    assert rows.start[0] == 0 and rows.start[-1] == n and rows.place.shape[0] == len(rows)
    found = []
    for first, last in zip(rows.start[:-1].tolist(), rows.start[1:].tolist(), strict=True):
        held = rows.name[first:last].tolist()
        assert len(set(held)) == len(held), "a name stands twice"
        found.append({names[rows.name[at]]: value(matcher, rows, at) for at in range(first, last)})
    return found


def value(matcher: Matcher, rows: EventRows, at: int) -> Any:
    if rows.kind[at] == NUMBER:
        return float(rows.number[at])
    if rows.kind[at] == OTHER:
        return OTHER
    assert rows.kind[at] == TEXT
    start, length = int(rows.char_start[at]), int(rows.char_length[at])
    text = rows.chars[start : start + length].tobytes().decode("utf-8", "surrogatepass")
    known = text in STRINGS
    assert rows.text[at] == (STRINGS.index(text) if known else -1)
    assert matcher._strings.number(text) == rows.text[at]
    return text


def encoded(matcher: Matcher, batch: Any) -> list[dict[str, Any]]:
    return shown(matcher, matcher.prepare(batch).rows)


def one(matcher: Matcher, event: Any) -> dict[str, Any]:
    (found,) = shown(matcher, matcher._reader.read(event))
    return found


def everything() -> tuple[list[Everything], list[dict[str, Any]]]:
    position = Position(2.5, Inner(-0.0))
    events = [
        Everything(1.5, 7, True, "é𝄞", position, [1, 2], "operand", 0.25, "ab", b"x", [1, 2]),
        Everything(float("inf"), -(2**60) - 1, False, "", position, [1, 2], "", None, None, b"", []),
        Everything(5e-324, 0, True, "a", Position(0.0, Inner(1.0)), [1, 2], "x" * 300, -1.0, "", b"", [3]),
    ]
    constant = {"pos": OTHER, "track": OTHER, "blob": OTHER, "list": OTHER}
    expected = [
        {
            "number": 1.5,
            "size": 7.0,
            "flag": 1.0,
            "short": "é𝄞",
            "long": "operand",
            "maybe": 0.25,
            "title": "ab",
        },
        {"number": float("inf"), "size": -(2.0**60), "flag": 0.0, "short": "", "long": ""},
        {
            "number": 5e-324,
            "size": 0.0,
            "flag": 1.0,
            "short": "a",
            "long": "x" * 300,
            "maybe": -1.0,
            "title": "",
        },
    ]
    inner = [{"pos.x": 2.5, "pos.inner.y": -0.0}] * 2 + [{"pos.x": 0.0, "pos.inner.y": 1.0}]
    return events, [{**held, **constant, **more} for held, more in zip(expected, inner, strict=True)]


def test_every_form_of_typed_events_gives_the_same_rows() -> None:
    events, expected = everything()
    matcher, batch = make(), ev.EventBatch.from_events(events)
    forms = [batch, list(batch), events, batch.to_pandas(), batch.to_arrow(), [e.to_dict() for e in events]]
    for form in [*forms, batch.select(np.array([0, 1, 2]))]:
        assert encoded(matcher, form) == expected, type(form)
        assert matcher.prepare(form).rows.place.tolist() == [[1.5, 2.0]] * 3
    for i, held in enumerate(expected):
        for event in (events[i], batch[i], events[i].to_dict()):
            assert one(matcher, event) == held
    assert encoded(matcher, batch.select(np.array([0, 2]))) == [expected[0], expected[2]]
    assert encoded(matcher, batch[1:]) == expected[1:]
    assert encoded(matcher, batch[:0]) == []


def test_fields_of_fixed_width_are_read_in_place() -> None:
    matcher = make()
    events = [Narrow(0.1, 255, "ab"), Narrow(-1, 0, ""), Narrow(3, 1, "abc")]
    batch = ev.EventBatch.from_events(events)
    expected = [
        {"number": float(np.float32(0.1)), "size": 255.0, "short": "ab"},
        {"number": -1.0, "size": 0.0, "short": ""},
        {"number": 3.0, "size": 1.0, "short": "abc"},
    ]
    assert encoded(matcher, batch) == expected
    assert encoded(matcher, batch.to_numpy()) == expected
    assert encoded(matcher, batch.select(np.array([2]))) == expected[2:]
    rows = matcher.prepare(batch).rows
    assert np.isnan(rows.place).all()
    assert np.shares_memory(rows.chars, batch.data)


def test_attributes_count_and_fields_go_first() -> None:
    matcher = make()
    attributes = Attributes.from_rows(
        [{"kind": "a", "size": 9, "maybe": 1}, {"x": 3.0}, {"kind": "zz", "y": 4, "x": 1}]
    )
    batch = ev.EventBatch.from_events([Narrow(1, 2, "a")] * 3).with_attributes(attributes)
    shared = {"number": 1.0, "size": 2.0, "short": "a"}
    expected = [{**shared, "kind": "a", "maybe": 1.0}, shared, {**shared, "kind": "zz"}]
    assert encoded(matcher, batch) == expected
    assert encoded(matcher, list(batch)) == expected
    assert [one(matcher, view) for view in batch] == expected
    places = matcher.prepare(batch).rows.place
    assert np.array_equal(places, [[np.nan, np.nan], [np.nan, np.nan], [1, 4]], equal_nan=True)


def test_columns_of_numpy_keep_nan_and_lose_what_is_masked() -> None:
    matcher = make()
    table = {
        "number": np.ma.MaskedArray([1.0, 2.0, 3.0], [False, True, False]),
        "size": np.array([1, 2, 3], ">i2"),
        "flag": np.array([True, False, True]),
        "short": np.char.encode(np.array(["a", "", "é𝄞"]), "utf-8"),
        "kind": np.array(["x", None, 3], object),
        "maybe": np.array([0.5, np.nan, -np.inf]),
        "blob": np.array([b"a", b"b", "c"], object),
        "long": np.array(["a", "", "é𝄞"]).astype(object),
        "track": np.zeros((3, 2)),
        "title": np.array(["2020", "2021", "2022"], "datetime64[Y]"),
        "list": np.array([1j, 2j, 3j]),
        "pos": {"x": [1, 2, None], "inner": {"y": np.array([1.0, 2.0, 3.0])}},
        "unused": ["a", 1, None],
    }
    first, second, third = encoded(matcher, table)
    assert third.pop("blob") == "c"
    assert [held.pop("long") for held in (first, second, third)] == ["a", "", "é𝄞"]
    assert [held.pop("title") for held in (first, second, third)] == [
        1577836800.0,
        1609459200.0,
        1640995200.0,
    ]
    others = {"blob": OTHER, "track": OTHER, "list": OTHER, "pos": OTHER}
    inner = {"pos.x": 1.0, "pos.inner.y": 1.0}
    plain = {"number": 1.0, "size": 1.0, "flag": 1.0, "short": "a", "kind": "x", "maybe": 0.5}
    assert first == {**plain, **others, **inner}
    assert np.isnan(second.pop("maybe"))
    assert second == {"size": 2.0, "flag": 0.0, "short": "", **others, "pos.x": 2.0, "pos.inner.y": 2.0}
    assert (third["kind"], third["maybe"], "pos.x" in third) == (3.0, -np.inf, False)


def test_columns_of_pandas_and_pyarrow_lose_what_is_missing() -> None:
    matcher = make(names=["a", "b", "c", "d", "e", "f", "g"])
    frame = pd.DataFrame(
        {
            "a": ["x", None, "ab"],
            "b": pd.array([1, None, 3], "Int64"),
            "c": [1.0, float("nan"), 3.0],
            "d": pd.Categorical(["u", "v", None]),
            "e": pd.array([True, None, False], "boolean"),
            "f": np.array([{"x": 1}, None, "s"], object),
            "g": pd.to_datetime(["2020-01-01", None, "2020-01-02"]),
        }
    )
    first, second, third = encoded(matcher, frame)
    assert first == {"a": "x", "b": 1.0, "c": 1.0, "d": "u", "e": 1.0, "f": OTHER, "g": 1577836800.0}
    assert second.keys() == {"c", "d"} and second["d"] == "v" and np.isnan(second["c"])
    assert third == {"a": "ab", "b": 3.0, "c": 3.0, "e": 0.0, "f": "s", "g": 1577923200.0}
    table = pa.table(
        {
            "a": pa.array(["x", None, "ab"]).dictionary_encode(),
            "b": pa.array([1, None, 3], pa.int8()),
            "c": pa.array([1.0, float("nan"), None]),
            "d": pa.chunked_array([["é𝄞"], [], ["", None]], pa.large_string()),
            "e": pa.array([b"u", None, b""]),
            "f": pa.array([[1], None, []]),
            "g": pa.array([{"x": 1}, None, {"x": None}]),
        }
    )
    for form in (table, table.to_batches()[0] if table.num_rows and len(table.to_batches()) == 1 else table):
        first, second, third = encoded(matcher, form)
        assert first == {"a": "x", "b": 1.0, "c": 1.0, "d": "é𝄞", "e": OTHER, "f": OTHER, "g": OTHER}
        assert second.keys() == {"c", "d"} and second["d"] == "" and np.isnan(second["c"])
        assert third == {"a": "ab", "b": 3.0, "e": OTHER, "f": OTHER, "g": OTHER}


values = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(),
    st.text(max_size=5),
    st.sampled_from(
        [b"a", [1], Decimal(1), np.float32(0.1), np.int8(3), np.str_("ab"), 10**400, "x" * 5000, "\ud800"]
    ),
    st.sampled_from([np.bool_(True), np.ma.masked, pd.NA, 1j, (), float("nan")]),
)
events = st.dictionaries(st.sampled_from([*NAMES[:9], "x", "y", "pos.x", 3]), values, max_size=12)
nested = st.builds(
    lambda event, inner: {**event, "pos": inner},
    events,
    values | st.dictionaries(st.sampled_from("xyz"), values),
)


def expected_of(event: dict[Any, Any]) -> dict[str, Any]:
    found = {}
    inner = event.get("pos")
    flat = {f"pos.{name}": held for name, held in inner.items()} if isinstance(inner, dict) else {}
    for name, held in {**flat, **event}.items():
        if name not in NAMES or held is None or held is np.ma.masked or held is pd.NA:
            continue
        if isinstance(held, Decimal):
            found[name] = float(held)
        elif isinstance(held, str):
            found[name] = str(held)
        elif isinstance(held, bool | int | float | np.number | np.bool_) and not isinstance(held, complex):
            huge = isinstance(held, int) and abs(held) >= 2**1024
            found[name] = math.copysign(math.inf, held > 0 or -1) if huge else float(held)
        else:
            found[name] = OTHER
    return found


MATCHER = make()


@given(st.lists(events | nested, max_size=4))
def test_dicts_give_the_attributes_that_constraints_use(batch: list[dict[Any, Any]]) -> None:
    for found, event in zip(encoded(MATCHER, batch), batch, strict=True):
        assert same(found, expected_of(event))
        assert same(one(MATCHER, event), expected_of(event))
    for event in batch:
        alone, many = MATCHER._reader.read(event).place, MATCHER.prepare([event]).rows.place
        assert np.array_equal(alone, many, equal_nan=True)


FLAT = NAMES[:9]


@cache
def direct(space: str) -> Matcher:
    """A matcher that reads dicts in compiled code; made on demand, as that may compile for half a minute."""
    return make(space, FLAT, "index")


class Name(str):
    """A string that is not of the usual type."""


@pytest.mark.skipif(not HAS_CODE, reason="there is no machine code, and numba is not installed")
@given(events, st.tuples(values, values))
@pytest.mark.parametrize("space", ["plane", "globe"])
def test_compiled_code_reads_dicts_as_python_does(
    space: str, event: dict[Any, Any], place: tuple[Any, Any]
) -> None:
    matcher = direct(space)
    event = event | dict(zip(matcher.location, place, strict=True))
    for seen in (event, {Name(name): held for name, held in event.items() if name != 3}):
        expected = {name: held for name, held in expected_of(seen).items() if name in FLAT}
        # Strings are known from the second time on.
        for _ in range(2):
            rows = matcher._reader.read(seen)
            assert same(shown(matcher, rows)[0], expected)
            assert np.array_equal(rows.place, matcher.prepare([seen]).rows.place, equal_nan=True)


@pytest.mark.skipif(not HAS_CODE, reason="there is no machine code, and numba is not installed")
def test_compiled_code_leaves_to_python_what_it_does_not_know() -> None:
    from evflow.matching.encoding import dicts

    matcher = make(names=FLAT, engine="index")
    alone = matcher._reader._alone
    wide: dict[Any, Any] = {f"other{i}": i for i in range(100)} | {"size": 2}
    assert dicts.read_one(alone.columns.at, id(wide)) == 1
    usual: dict[Any, Any] = {"number": 1.5, "size": 3, "flag": True, "maybe": None, "x": 1, "title": "new"}
    assert dicts.read_one(alone.columns.at, id(usual)) == 4
    for key, held in ((3, 3), ("size", 10**400), ("size", 1j), ("x", []), ("title", "\ud800")):
        event = usual | {key: held}
        assert dicts.read_one(alone.columns.at, id(event)) == -1
        assert alone.columns.ended == dicts.UNUSUAL
        assert one(matcher, event) == {name: x for name, x in expected_of(event).items() if name in FLAT}
    assert one(make(names=["pos.x"], engine="index"), {"pos": {"x": 3}}) == {"pos.x": 3.0}


@pytest.mark.parametrize("engine", ["reference", "index"])
def test_lists_of_many_different_events_are_read_as_each_alone(engine: str) -> None:
    if engine == "index" and not HAS_CODE:
        pytest.skip("there is no machine code, and numba is not installed")
    names = [f"n{i}" for i in range(40)]
    matcher = make(names=names, engine=engine)
    batch: list[dict[Any, Any]] = []
    for i in range(1500):
        held: list[Any] = [
            i,
            float(i),
            "ab" * (i % 7),
            None,
            np.float64(i),
            b"",
            "x" * (i * 5 % 4001),
            i % 2 == 0,
        ]
        held += [10**400, "\ud800", [i], np.float32(0.5), Name("é𝄞")] if i % 100 == 0 else []
        batch.append({name: held[(i + k) % len(held)] for k, name in enumerate(names[: i % 41])})
    found = encoded(matcher, batch)
    for event, attributes in zip(batch, found, strict=True):
        expected = {name: alone(value) for name, value in event.items() if value is not None}
        assert same(attributes, expected)
    assert encoded(matcher, tuple(batch[:3])) == found[:3]
    with pytest.raises(SchemaError, match="event 1400: expected an event"):
        matcher.match_batch([*batch[:1400], 3])


def alone(value: Any) -> Any:
    """What constraints see of a value."""
    if isinstance(value, str):
        return str(value)
    if isinstance(value, bytes | list):
        return OTHER
    return math.inf if type(value) is int and value > 2**1024 else float(value)


@pytest.mark.parametrize("engine", [pytest.param("reference", marks=pytest.mark.slow), "index"])
def test_what_is_derived_of_one_event_is_so_of_many(engine: str) -> None:
    """Also where there is no room for it beside the attributes, or beside the bytes of texts."""
    if engine == "index" and not HAS_CODE:
        pytest.skip("there is no machine code, and numba is not installed")
    matcher = Matcher(engine)
    matcher.subscribe_many(
        ["a == nocase 'STRASSE'", "not exists b", "n0 < n1", "n0 < a", "a contains nocase 'ß'", "b > a"]
    )
    matcher.subscribe_many([f"n{i} > 0" for i in range(70)])
    wide = {f"n{i}": -1.0 for i in range(70)}
    texts = ["Straße", "strasse", "STRASSE" * 400, "x" * 4000, "\ud800ß", "", 3]
    for more in (
        {},
        {"n0": 1, "n1": 2.0},
        {"n0": "a", "n1": "ab", "b": "zz"},
        wide,
        dict(list(wide.items())[:62]),
    ):
        for text in texts:
            event = {**more, "a": text}
            folded = text.casefold() if isinstance(text, str) else ""
            n0, n1 = event.get("n0"), event.get("n1")
            b = event.get("b")
            expected = [folded == "strasse", b is None, n0 is not None and n1 is not None and n0 < n1]
            expected += [(type(n0) is type(text) and n0 < text) or (text == 3 and n0 in (1, -1.0))]
            expected += ["ss" in folded, isinstance(text, str) and b is not None and b > text]
            expected += [
                isinstance(event.get(f"n{i}"), int | float) and event[f"n{i}"] > 0 for i in range(70)
            ]
            wanted = [id for id, holds in enumerate(expected) if holds]
            assert sorted(matcher.match(event).tolist()) == wanted, event
            assert sorted(matcher.match_batch([event, {}])[0].tolist()) == wanted


def same(one: dict[str, Any], other: dict[str, Any]) -> bool:
    return one.keys() == other.keys() and all(repr(one[name]) == repr(other[name]) for name in one)


def test_more_attributes_than_buffers_hold_are_encoded_too() -> None:
    names = [f"n{i}" for i in range(200)]
    matcher = make(names=names)
    event = {name: float(i) if i % 2 else "ab" * i for i, name in enumerate(names)}
    assert one(matcher, event) == event
    assert one(matcher, {"n1": 3}) == {"n1": 3.0}


def test_new_names_and_strings_reach_events_that_were_prepared() -> None:
    matcher = make(names=["kind"])
    events = [{"kind": "new", "late": 3}]
    prepared = matcher.prepare(events)
    assert matcher.match(events[0]).tolist() == matcher.match_batch(prepared)[0].tolist() == [0]
    ids = matcher.subscribe_many(["kind == 'new'", "late == 3"])
    assert sorted(matcher.match_batch(prepared)[0]) == sorted(matcher.match(events[0])) == [0, *ids]
    assert len(prepared) == 1


@pytest.mark.slow
def test_prepared_events_stay_when_others_are_matched() -> None:
    matcher = make()
    matcher.subscribe_many([f"number == {i}" for i in range(10)], range(100, 110))
    batches = [{"number": np.arange(n) % 100, "short": np.array(["a"] * n)} for n in (300, 10, 1000)]
    prepared = [matcher.prepare(batch) for batch in batches]
    for batch, held in zip(batches, prepared, strict=True):
        for matches in (matcher.match_batch(held), matcher.match_batch(batch)):
            found = [ids[ids >= 100].tolist() for ids in (matches[i] for i in range(10))]
            assert found == [[100 + i] for i in range(10)]


def test_a_location_may_have_other_names_also_within_records() -> None:
    matcher = Matcher("reference", location=("pos.x", "pos.inner.y"))
    matcher.subscribe("within(2.5, 1, 1) and pos.x > 2")
    held, _ = everything()
    batch = ev.EventBatch.from_events(held)
    for form in (batch, held, batch.to_arrow(), batch.to_pandas(), {"pos.x": [2.5], "pos.inner.y": [0]}):
        assert matcher.match_batch(form)[0].tolist() == [0]
    assert matcher.match(batch[0]).tolist() == matcher.match(held[0]).tolist() == [0]
    assert matcher.match({"pos.x": 2.5, "pos.inner.y": 1}).tolist() == [0]
    assert matcher.match({"pos.x": 2.5}).tolist() == []


@pytest.mark.parametrize(
    ("batch", "message"),
    [
        (3, "expected a table"),
        ([{}, 3], r"event 1: expected an event.*found 3"),
        ({"a": [1, 2], "b": [1]}, "column b: expected 2 rows"),
        ({"a": 5}, "column a: expected a column"),
        ("text", "expected a table"),
    ],
)
def test_what_is_no_batch_is_refused(batch: Any, message: str) -> None:
    with pytest.raises(SchemaError, match=message):
        make().match_batch(batch)


def test_what_is_no_event_is_refused() -> None:
    for wrong in (3, "text", None, [1]):
        with pytest.raises(SchemaError, match="expected an event: a dict, an Event or a view"):
            make().match(wrong)


class Crowded(ev.Event):
    names: list[str]
    title: str
    number: float | None


def test_fields_behind_a_list_of_very_many_values_are_found() -> None:
    """More than 65,535: their number takes four bytes."""
    matcher = Matcher("reference")
    matcher.subscribe_many(["title == 'b' and number > 1", "title == 'a'"])
    events = [Crowded(["x"] * 70_000, "a", None), Crowded(["y"] * 65_536, "b", 2.0), Crowded([], "b", 2.0)]
    found = matcher.match_batch(ev.EventBatch.from_events(events))
    assert [found[i].tolist() for i in range(3)] == [[1], [0], [0]]


class Behind(ev.Event):
    names: list[ev.Str[60_000]]
    codes: list[ev.Str[300]]
    blob: bytes
    key: ev.Bytes[300]
    maybe: ev.Str[300] | None
    title: str


@pytest.mark.parametrize("size", [0, 31, 32, 255, 256, 300])
def test_fields_behind_texts_and_bytes_of_any_length_are_found(size: int) -> None:
    matcher = Matcher("reference")
    matcher.subscribe_many(["title == 'a'", "title == 'b'"])
    text, data = "\x93" * (size // 2) + "x" * (size % 2), b"\x93" * size
    events = [
        Behind([text] * 2, [text], data, data, text, "b"),
        Behind([], [text] * 3, data * 300, b"", None, "a"),
    ]
    found = matcher.match_batch(ev.EventBatch.from_events(events))
    assert [found[i].tolist() for i in range(2)] == [[1], [0]]
