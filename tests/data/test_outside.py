"""What comes from outside is unpacked and shown within bounds."""

from __future__ import annotations

import json
import tracemalloc
from typing import Any

import msgpack
import pytest
from hypothesis import given
from hypothesis import strategies as st

import evflow as ev
from evflow.outside import MOST_DEPTH, Malformed, from_json, from_msgpack, shown

PLAIN = st.recursive(
    st.none() | st.booleans() | st.integers(-(1 << 63), (1 << 63) - 1) | st.floats(allow_nan=False)
    | st.text() | st.binary(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
)  # fmt: skip


def nested(depth: int) -> Any:
    value: Any = 5
    for _ in range(depth):
        value = [value]
    return value


@given(PLAIN)
def test_value_comes_back_from_msgpack(value: Any) -> None:
    assert from_msgpack(msgpack.packb(value)) == value


@given(PLAIN, st.integers(1, 200))
def test_shown_is_the_beginning_of_repr(value: Any, most: int) -> None:
    whole = repr(value)
    told = shown(value, most)
    assert len(told) <= most + 1
    # A text that is cut may be quoted in another way, and what is very deep is left out.
    if "'" not in whole.replace("'", "", 2) and whole.count("[") + whole.count("{") < 20:
        assert told == (whole if len(whole) <= most else whole[:most] + "…")


@pytest.mark.parametrize("value", [(), (1,), (1, 2), ValueError("a"), KeyError(1, "b"), range(3)])
def test_shown_is_repr_of_what_is_short(value: object) -> None:
    assert shown(value) == repr(value)


@pytest.mark.parametrize("error", [OverflowError, SystemExit, MemoryError])
def test_shown_tells_of_a_value_that_cannot_be_shown(error: type[BaseException]) -> None:
    class Shy:
        def __repr__(self) -> str:
            raise error("on purpose")

    assert shown(Shy()) == f"<Shy whose repr raises {error.__name__}>"
    assert shown([1, Shy()]) == f"<list whose repr raises {error.__name__}>"


def test_an_event_with_a_value_that_cannot_be_shown_is_refused_with_its_field() -> None:
    class Shy:
        def __repr__(self) -> str:
            raise OverflowError

    ping = ev.Schema("ping", {"number": int})
    with pytest.raises(ev.SchemaError, match=r"field number: .*Shy whose repr raises OverflowError"):
        ev.EventBatch.from_events([ping(number=Shy())])


def test_shown_table_is_its_first_line() -> None:
    class Table:
        def __repr__(self) -> str:
            return "shape: (2, 1)\n┌───┐\n│ a │"

    class Named(ev.Event):
        a: int

    assert shown(Table()) == "shape: (2, 1)…"
    assert shown([Table(), 1]) == "[shape: (2, 1)…, 1]"
    with pytest.raises(
        ev.SchemaError, match=r"columns by name, such as a dict, found shape: \(2, 1\)… \(Table\)"
    ):
        ev.EventBatch.from_columns(Named, Table())  # type: ignore[arg-type]


def test_shown_event_is_its_construction() -> None:
    class Trade(ev.Event):
        price: float
        name: str

    event = Trade(1.5, "IBM")
    assert shown(event) == repr(event)
    assert shown(Trade(1.5, "x" * 1_000_000), 30) == repr(Trade(1.5, "x" * 100))[:30] + "…"


@pytest.mark.parametrize(
    "value",
    [
        nested(100_000),
        ["x" * 1000] * 1_000_000,
        b"x" * 30_000_000,
        {n: [n] * 10 for n in range(100_000)},
        ValueError(b"x" * 30_000_000),
        UnicodeDecodeError("utf-8", b"\xff" * 30_000_000, 0, 1, "invalid start byte"),
        1 << 1_000_000,
    ],
    ids=["nested", "long texts", "bytes", "map", "error", "text", "number"],
)
def test_shown_makes_no_more_than_is_shown(value: object) -> None:
    tracemalloc.start()
    assert len(shown(value)) <= 101
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 1_000_000


@pytest.mark.parametrize("depth", [MOST_DEPTH + 1, 500, 1000, 1023, 5000, 100_000])
def test_what_is_nested_too_deeply_is_refused(depth: int) -> None:
    with pytest.raises(Malformed) as refused:
        from_msgpack(b"\x91" * depth + b"\xc0")
    assert len(str(refused.value)) < 300
    with pytest.raises(Malformed) as refused:
        from_json("[" * depth + "]" * depth)
    assert len(str(refused.value)) < 300


def test_what_may_be_nested_is_taken() -> None:
    assert from_msgpack(msgpack.packb(nested(MOST_DEPTH))) == nested(MOST_DEPTH)
    assert from_json(json.dumps(nested(MOST_DEPTH))) == nested(MOST_DEPTH)
    assert from_msgpack(b"\x91\x91\xc0", depth=2) == [[None]]
    with pytest.raises(Malformed, match="at most 1 lists"):
        from_msgpack(b"\x91\x91\xc0", depth=1)
    with pytest.raises(Malformed, match="at most 1 lists"):
        from_msgpack(b"\x81\xa1a\x91\xc0", depth=1)


@pytest.mark.parametrize(
    "data",
    [b"", b"\xc1", b"\x91", b"\x05\x05", b"\xd4\x01\x00", b"\xa1\xff", b"\x81\x90\x01", b"\x81\x01\x02"],
)
def test_bytes_that_are_no_plain_value_are_refused(data: bytes) -> None:
    with pytest.raises(Malformed, match="expected msgpack"):
        from_msgpack(data)


def test_lists_that_claim_much_are_given_no_memory() -> None:
    data = (b"\xdd" + (1 << 20).to_bytes(4, "big")) * 90 + bytes(1 << 20)
    tracemalloc.start()
    with pytest.raises(Malformed):
        from_msgpack(data)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 4 * len(data)


def test_too_many_bytes_and_maps_are_refused() -> None:
    with pytest.raises(Malformed, match="at most 10 bytes, found 11"):
        from_msgpack(bytes(11), 10)
    with pytest.raises(Malformed):
        from_msgpack(b"\x81\xa1a\x01", maps=False)


@pytest.mark.parametrize("text", ["", "{", "nul", "9" * 5000, '"\\ud8', "[" + "1," * 100_000])
def test_text_that_is_no_json_is_refused_in_short(text: str) -> None:
    with pytest.raises(Malformed, match="expected JSON") as refused:
        from_json(text)
    assert len(str(refused.value)) < 400


@pytest.mark.parametrize("one", [b"\x90", b"\x80", b"\x81\xa0\xc0", b"\x91\xc0", b"\xa2ab"])
def test_small_values_are_counted_before_they_fill_the_memory(one: bytes) -> None:
    count = (1 << 18) // len(one) - 2
    data = b"\xdd" + count.to_bytes(4, "big") + one * count
    lists = b"\xdc\x00\xff" + (b"\xdd" + (count // 256).to_bytes(4, "big") + one * (count // 256)) * 255
    for body in (data, lists):
        tracemalloc.start()
        with pytest.raises(Malformed, match=r"more than 32768 values|exceeds max_array_len"):
            from_msgpack(body, values=1 << 15)
        assert tracemalloc.get_traced_memory()[1] < 19 << 18
        tracemalloc.stop()


def test_as_many_values_as_there_may_be_are_taken() -> None:
    value = [[0] * 20 for _ in range(90)]
    assert from_msgpack(msgpack.packb(value), values=90 * 21 + 91) == value
    with pytest.raises(Malformed, match="more than 1889 values"):
        from_msgpack(msgpack.packb(value), values=90 * 21 - 1)
