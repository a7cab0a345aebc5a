from __future__ import annotations

from typing import Any

import msgpack
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from strategies import events, plain_event, schemas, some, unpacked, wire_event

import evflow as ev
from evflow.errors import SchemaError
from evflow.events.careful import encode_careful
from evflow.events.encode import encode_dict, encoder
from evflow.events.view import view_class
from evflow.schema import Schema
from evflow.schema.types import f32, f64, i8, i64, u8, u64
from tests.examples import tried


class Trade(ev.Event):
    symbol: ev.Str[8]
    price: float
    size: int = 0


class Node(ev.Event):
    value: int
    next: Node | None = None


@some
@given(st.data())
def test_encode_makes_the_documented_bytes_that_plain_msgpack_reads(data: st.DataObject) -> None:
    schema = data.draw(schemas())
    event = data.draw(events(schema))
    encoded = encode_dict(schema, event)
    assert encoded == wire_event(schema, event)
    assert unpacked(encoded) == [plain_event(schema, event)]


@pytest.mark.slow
@some
@given(st.data())
def test_encode_quick_and_careful_make_the_same_bytes(data: st.DataObject) -> None:
    schema = data.draw(schemas())
    fields = data.draw(events(schema))
    event = decode_to_event(schema, fields)
    assert encoder(schema)(event) == encode_careful(schema, fields) == encoder(schema)(fields)


def decode_to_event(schema: Schema, fields: dict[str, Any]) -> Any:
    from evflow.events.view import view_class

    return view_class(schema)(encode_careful(schema, fields)).to_event()


@some
@given(st.data())
def test_encode_then_decode_gives_the_same_bytes_again(data: st.DataObject) -> None:
    schema = data.draw(schemas())
    encoded = encode_dict(schema, data.draw(events(schema)))
    assert encode_dict(schema, view_class(schema)(encoded).to_dict()) == encoded


def test_encode_trade_is_this_and_nothing_else() -> None:
    wire = bytes.fromhex("93 d9 08 49424d0000000000 cb 4054000000000000 d3 0000000000001388")
    assert encoder(Trade.schema)(Trade("IBM", 80.0, 5000)) == wire
    assert msgpack.unpackb(wire) == ["IBM\0\0\0\0\0", 80.0, 5000]


def test_encode_event_width_is_the_schemas_for_all_values() -> None:
    encode = encoder(Trade.schema)
    assert {len(encode(Trade(s, p, n))) for s in ("", "12345678") for p in (0, -0.0) for n in (0, -1)} == {29}


REFUSED = [
    (Trade("123456789", 1.0), "field symbol", "at most 8 bytes of UTF-8, not 9"),
    (Trade("äääää", 1.0), "field symbol", "at most 8 bytes of UTF-8, not 10"),
    (Trade("A\0", 1.0), "field symbol", "does not end with NUL"),
    (Trade(b"IBM", 1.0), "field symbol", "expected text (str[8]), found b'IBM' (bytes)"),  # type: ignore[arg-type]
    (Trade(None, 1.0), "field symbol", "found None (NoneType)"),  # type: ignore[arg-type]
    (Trade("\ud800", 1.0), "field symbol", "surrogates"),
    (Trade("A", "1"), "field price", "expected a float (f64), found '1' (str)"),  # type: ignore[arg-type]
    (Trade("A", None), "field price", "found None (NoneType)"),  # type: ignore[arg-type]
    (Trade("A", 2**53 + 1), "field price", "an integer that f64 holds exactly"),
    (Trade("A", 10**400), "field price", "within the range of f64"),
    (Trade("A", 1.0, 1.0), "field size", "expected an integer from -9223372036854775808"),  # type: ignore[arg-type]
    (Trade("A", 1.0, np.float32(2)), "field size", "write int(…) or round(…)"),  # type: ignore[arg-type]
    (Trade("A", 1.0, 2**63), "field size", "9223372036854775807"),
    (Trade("A", 1.0, "5"), "field size", "found '5' (str)"),  # type: ignore[arg-type]
    (Trade("A", 1.0, 1j), "field size", "found 1j (complex)"),  # type: ignore[arg-type]
]


@pytest.mark.parametrize(("event", "field", "reason"), REFUSED)
def test_encode_refuses_with_schema_field_value_and_what_was_expected(
    event: Any, field: str, reason: str
) -> None:
    with pytest.raises(SchemaError) as caught:
        encoder(Trade.schema)(event)
    message = str(caught.value)
    assert message.startswith(f"schema Trade: {field}: ")
    assert reason in message


@pytest.mark.parametrize(
    ("kind", "value", "stored"),
    [
        (f64, 80, 80.0),
        (f64, True, 1.0),
        (f64, np.float32(0.5), 0.5),
        (f64, np.int8(-3), -3.0),
        (f64, np.bool_(True), 1.0),
        (f64, -(2**53), -(2.0**53)),
        (f32, 0.1, float(np.float32(0.1))),
        (f32, 2**24, 2.0**24),
        (i64, True, 1),
        (i64, np.bool_(False), 0),
        (i64, np.uint8(200), 200),
        (i8, np.int64(-128), -128),
        (u64, 2**64 - 1, 2**64 - 1),
        (u64, np.uint64(2**64 - 1), 2**64 - 1),
        (bool, np.bool_(True), True),
        (bytes, bytearray(b"ab"), b"ab"),
        (bytes, memoryview(b"ab"), b"ab"),
        (ev.Bytes[3], bytearray(b"a\0"), b"a\0"),
        (list[int], (1, 2), [1, 2]),
        (list[int], np.array([1, 2], np.int8), [1, 2]),
        (ev.Str[4], np.str_("ab"), "ab"),
    ],
)
def test_encode_takes_values_of_like_kind(kind: Any, value: Any, stored: Any) -> None:
    schema = Schema("s", {"x": kind})
    encoded = encoder(schema)(schema(x=value))
    assert view_class(schema)(encoded).to_dict() == {"x": stored}


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        (f32, 1e39),
        (f32, 2**24 + 1),
        (f32, 10**60),
        (u8, -1),
        (u8, 256),
        (i8, 128),
        (bool, 1),
        (bool, None),
        (bool, "yes"),
        (bytes, "text"),
        (ev.Bytes[2], b"abc"),
        (ev.Bytes[2], [1]),
        (str, b"bytes"),
        (list[int], "12"),
        (list[int], {1, 2}),
        (list[int], 5),
        (list[int], [1, 2.5]),
        (list[str], ["a", None]),
        (ev.Str[4] | None, "12345"),
    ],
)
def test_encode_refuses_values_of_another_kind_or_out_of_range(kind: Any, value: Any) -> None:
    schema = Schema("s", {"x": kind})
    with pytest.raises(SchemaError, match="schema s: field x"):
        encoder(schema)(schema(x=value))


@pytest.mark.parametrize("value", [float("nan"), float("inf"), float("-inf"), -0.0])
@pytest.mark.parametrize("kind", [f32, f64])
def test_encode_keeps_nan_infinity_and_negative_zero(kind: Any, value: float) -> None:
    schema = Schema("s", {"x": kind})
    stored = view_class(schema)(encoder(schema)(schema(x=value))).to_dict()["x"]
    assert np.float64(stored).tobytes() == np.float64(value).tobytes()


@pytest.mark.parametrize(
    ("kind", "value", "expected"),
    [
        (ev.Array[f64, 2, 2], [[1, 2], [3, 4]], [[1.0, 2.0], [3.0, 4.0]]),
        (ev.Array[f64, 2], np.array([1, 2], np.int16), [1.0, 2.0]),
        (ev.Array[i8, None], np.array([1, -2], np.int64), [1, -2]),
        (ev.Array[f32, None], np.array([0.1]), [float(np.float32(0.1))]),
        (ev.Array[i64, None], np.array([2.0]), [2]),
        (ev.Array[bool, None, None], np.array([[True, False]]).view(np.matrix), [[True, False]]),
        (ev.Array[u64, None], [2**64 - 1, 0], [2**64 - 1, 0]),
        (ev.Array[bool, 2], [True, False], [True, False]),
        (ev.Array[f64, 2, None], np.arange(6.0).reshape(3, 2).T, [[0, 2, 4], [1, 3, 5]]),
        (ev.Array[f64, None], [], []),
        (ev.Array[f64, 0, 3], np.empty((0, 3)), []),
    ],
)
def test_encode_array_takes_any_exact_numbers(kind: Any, value: Any, expected: Any) -> None:
    schema = Schema("s", {"x": kind})
    array = view_class(schema)(encoder(schema)(schema(x=value))).to_dict()["x"]
    assert array.dtype == kind.element.dtype
    assert array.tolist() == expected


@pytest.mark.parametrize(
    ("kind", "value", "reason"),
    [
        (ev.Array[f64, 2, 2], [1, 2], "an array of 2 × 2 elements"),
        (ev.Array[f64, 2, None], [[1.0]], "an array of 2 × any elements"),
        (ev.Array[f64, None], [[1], [2, 3]], "one shape"),
        (ev.Array[f64, None], ["a"], "numbers (f64)"),
        (ev.Array[f64, None], "ab", "an array"),
        (ev.Array[f64, None], None, "an array"),
        (ev.Array[f64, None], np.array([1j]), "numbers"),
        (ev.Array[i8, None], [1, 300], "found 300"),
        (ev.Array[u8, None], [-1], "found -1"),
        (ev.Array[i64, None], [0.5], "found 0.5"),
        (ev.Array[i64, None], [float("nan")], "found nan"),
        (ev.Array[i64, None], np.array([2**63], np.uint64), "found 9223372036854775808"),
        (ev.Array[f64, None], [2**53 + 1, 0.5], "found 9007199254740993"),
        (ev.Array[f64, None], np.array([2**63 - 1]), "found 9223372036854775807"),
        (ev.Array[f32, None], [1e39], "found 1e+39"),
        (ev.Array[bool, None], [2], "found 2"),
        (ev.Array[f64, None, None], np.zeros((0, 1 << 32)), "elements along a dimension"),
    ],
)
def test_encode_array_refuses_what_it_would_change(kind: Any, value: Any, reason: str) -> None:
    schema = Schema("s", {"x": kind})
    with pytest.raises(SchemaError) as caught:
        encoder(schema)(schema(x=value))
    assert "schema s: field x: " in str(caught.value)
    assert reason in str(caught.value)


def chain(depth: int) -> Node:
    node = Node(depth)
    for value in range(depth - 1, 0, -1):
        node = Node(value, node)
    return node


def test_encode_nests_500_records_and_no_more() -> None:
    encode = encoder(Node.schema)
    read = msgpack.unpackb(encode(chain(500)))
    depth = 0
    while read is not None:
        depth, read = depth + 1, read[1]
    assert depth == 500
    with pytest.raises(SchemaError, match=r"schema Node: field next.*next: expected at most 500 records"):
        encode(chain(501))


def test_encode_refuses_an_event_that_holds_itself() -> None:
    node = Node(1)
    node.next = node
    with pytest.raises(SchemaError, match="at most 500 records"):
        encoder(Node.schema)(node)


def test_encode_names_the_path_to_a_value_within() -> None:
    leg = Schema("leg", {"price": f64})
    order = Schema("order", {"legs": list[leg], "first": leg})  # type: ignore[valid-type]
    with pytest.raises(SchemaError, match=r"schema order: field legs\[1\]\.price: expected a float"):
        encoder(order)({"first": {"price": 1}, "legs": [{"price": 1}, {"price": "x"}]})
    with pytest.raises(SchemaError, match=r"schema order: field first: expected a leg with field price"):
        encoder(order)({"first": 7, "legs": []})


def test_encode_dict_takes_defaults_and_names_what_is_missing() -> None:
    assert view_class(Trade.schema)(encode_dict(Trade.schema, {"symbol": "A", "price": 1.0})).to_dict() == {
        "symbol": "A",
        "price": 1.0,
        "size": 0,
    }
    with pytest.raises(SchemaError, match=r"expected a Trade with field symbol, which has no default"):
        encode_dict(Trade.schema, {"price": 1.0})


def test_encode_takes_dicts_with_keys_named_like_methods() -> None:
    schema = Schema("s", {"items": int, "keys": list[int], "get": float | None})
    fields = {"items": 1, "keys": [2], "get": None}
    assert view_class(schema)(encoder(schema)(fields)).to_dict() == fields


def test_encode_event_may_be_changed_afterwards() -> None:
    trade = Trade("A", 1.0)
    first = encoder(Trade.schema)(trade)
    trade.price = 2.0
    assert view_class(Trade.schema)(first).to_dict()["price"] == 1.0


def test_encode_array_of_no_elements_may_be_an_empty_list() -> None:
    schema = Schema("s", {"x": ev.Array[f64, None, 3]})
    assert view_class(schema)(encoder(schema)(schema(x=[]))).to_dict()["x"].shape == (0, 3)


_ODD: list[Any] = [
    None, True, False, 0, 1, -1, 255, 256, 2**31, 2**53 + 1, 2**63, 2**64, 10**400, 0.0, -0.0, 0.5, 1e39,
    1e400, float("nan"), "", "a", "a\0", "\0a", "ä" * 6, "x" * 300, "\ud800", b"", b"a", b"a\0", b"x" * 300,
    bytearray(b"b"), memoryview(b"m"), (), [], [1], [None], ["a"], [[1]], (1, 2), {1}, {}, {"a": 1}, range(3),
    object(), int, 1j, np.int8(5), np.uint64(2**64 - 1), np.float32(0.1), np.float64(2.5), np.float16(1),
    np.longdouble(1), np.bool_(True), np.str_("n"), np.bytes_(b"n"), np.array(3), np.array([1, 2]),
    np.array([1.5]), np.array(["a"]), np.array([[1]]), np.datetime64("2020"), np.array([None]),
    np.zeros((0, 2)), np.arange(6)[::2], np.array([True]),
]  # fmt: skip


@pytest.mark.slow
@given(st.data())
@settings(some, max_examples=tried(60))
def test_encode_quick_and_careful_agree_on_odd_values(data: st.DataObject) -> None:
    schema = data.draw(schemas())
    fields = data.draw(events(schema))
    for name in data.draw(st.sets(st.sampled_from(sorted(fields)))):
        fields[name] = data.draw(st.sampled_from(_ODD))
    event = schema(**fields)
    try:
        expected = encode_careful(schema, event)
    except SchemaError as error:
        with pytest.raises(SchemaError) as caught:
            encoder(schema)(event)
        assert str(caught.value) == str(error)
    else:
        assert encoder(schema)(event) == expected
        assert unpacked(expected)
