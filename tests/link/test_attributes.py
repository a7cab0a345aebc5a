"""Attributes on the wire, against rows, ``struct`` and bits counted by hand."""

from __future__ import annotations

import math
import struct
from typing import Any

import msgpack
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from evflow.errors import LinkError
from evflow.events.attributes import MOST_ATTRIBUTES, AttributeColumn, Attributes
from evflow.net.link.attributes import pack, unpack
from tests.examples import tried

some = settings(deadline=None, max_examples=tried(20))

_VALUES: dict[str, st.SearchStrategy[Any]] = {
    "i": st.integers(-(2**63), 2**63 - 1),
    "f": st.floats(),
    "s": st.text(max_size=3),
}
_EMPTY: dict[str, Any] = {"i": 0, "f": 0.0, "s": ""}


@st.composite
def tables(draw: st.DrawFn) -> tuple[int, dict[str, tuple[str, list[Any]]]]:
    """A number of events, and name → (kind, a value or None for each event)."""
    count = draw(st.integers(0, 20))
    table = {}
    for name in draw(st.sets(st.text(max_size=3), max_size=4)):
        kind = draw(st.sampled_from("ifs"))
        value = draw(
            st.sampled_from([_VALUES[kind], st.just(draw(_VALUES[kind])), st.none() | _VALUES[kind]])
        )
        values = draw(st.lists(value, min_size=count, max_size=count))
        if kind == "i" and draw(st.booleans()):
            first = draw(st.integers(-(1 << 63), (1 << 63) - count - 1))
            values = list(range(first, first + count))
        table[name] = kind, values
    return count, table


def attributes_of(table: dict[str, tuple[str, list[Any]]]) -> Attributes:
    columns = {}
    for name, (kind, values) in table.items():
        filled = [_EMPTY[kind] if value is None else value for value in values]
        dtype: Any = {"i": np.int64, "f": np.float64, "s": object}[kind]
        present = np.array([value is not None for value in values], np.bool_)
        columns[name] = AttributeColumn(kind, np.array(filled, dtype), present)
    return Attributes(columns)


def bits_of(value: Any) -> Any:
    """A value that equals only what is the same to the bit."""
    return struct.pack("<d", value) if isinstance(value, float) else value


def table_of(attributes: Attributes | None) -> dict[str, tuple[str, list[Any]]]:
    return {
        name: (c.kind, [bits_of(v) if p else None for v, p in zip(c.values.tolist(), c.present, strict=True)])
        for name, c in ({} if attributes is None else attributes.columns).items()
    }


def by_hand(name: str, kind: str, values: list[Any]) -> list[Any]:
    if values and None not in values and len({bits_of(value) for value in values}) == 1:
        return [name, kind.upper(), None, values[0]]
    if kind == "i" and len(values) > 1 and values == [(values[0] or 0) + n for n in range(len(values))]:
        return [name, "n", None, values[0]]
    bits = None
    if None in values:
        held = sum(1 << place for place, value in enumerate(values) if value is not None)
        bits = held.to_bytes((len(values) + 7) // 8, "little")
    filled = [_EMPTY[kind] if value is None else value for value in values]
    form = {"i": "q", "f": "d"}.get(kind)
    return [name, kind, bits, filled if form is None else struct.pack(f"<{len(filled)}{form}", *filled)]


@some
@given(tables())
def test_pack_writes_columns_in_order_of_their_names(
    case: tuple[int, dict[str, tuple[str, list[Any]]]],
) -> None:
    _, table = case
    expected = [by_hand(name, *table[name]) for name in sorted(table)]
    assert bytes(pack(attributes_of(table))) == msgpack.packb(expected or None)


@some
@given(tables())
def test_unpack_reads_what_pack_wrote(case: tuple[int, dict[str, tuple[str, list[Any]]]]) -> None:
    count, table = case
    found = unpack(pack(attributes_of(table)), count)
    expected = {
        name: (kind, [None if value is None else bits_of(value) for value in values])
        for name, (kind, values) in table.items()
    }
    assert table_of(found) == expected
    for column in () if found is None else found.columns.values():
        assert column.values.dtype == {"i": np.int64, "f": np.float64, "s": object}[column.kind]
        assert column.present.dtype == np.bool_
        assert len(column.values) == len(column.present) == count
        assert not any(column.values[~column.present])


def test_unpacked_attributes_can_be_taken_apart_and_joined() -> None:
    given = Attributes.from_rows([{"a": 1, "b": "x", "c": 1.5}, {"a": 1, "b": "x"}, {"a": 1, "b": "x"}])
    found = unpack(pack(given), 3)
    assert found is not None
    assert [found.take(np.array([2, 0])).of(position) for position in range(2)] == [given.of(2), given.of(0)]
    joined = Attributes.concat([(found.take(slice(1, 3)), 2), (None, 1), (found, 3)])
    assert joined is not None
    assert [joined.of(position) for position in range(6)] == [
        *(given.of(position) for position in (1, 2)), {}, *(given.of(position) for position in range(3))
    ]  # fmt: skip


@pytest.mark.parametrize("first", [-(1 << 63), (1 << 63) - 3])
def test_integers_count_up_to_the_greatest(first: int) -> None:
    table = {"a": ("i", [first, first + 1, first + 2])}
    packed = pack(attributes_of(table))
    assert msgpack.unpackb(packed) == [["a", "n", None, first]]
    assert table_of(unpack(packed, 3)) == table


def test_no_attributes_are_none() -> None:
    assert unpack(b"\x90", 3) is None
    assert unpack(b"\xc0", 3) is None
    assert bytes(pack(Attributes({}))) == bytes(pack(None)) == b"\xc0"


def test_what_stands_where_there_is_no_value_is_not_sent() -> None:
    present = np.array([True, False])
    columns = {
        "f": AttributeColumn("f", np.array([math.nan, math.nan]), present),
        "i": AttributeColumn("i", np.array([5, 6]), present),
        "s": AttributeColumn("s", np.array(["x", "y"], object), present),
    }
    assert [row[3] for row in msgpack.unpackb(pack(Attributes(columns)))] == [
        struct.pack("<2d", math.nan, 0.0), struct.pack("<2q", 5, 0), ["x", ""]
    ]  # fmt: skip


def test_a_value_that_all_events_share_takes_no_memory_for_each() -> None:
    found = unpack(msgpack.packb([["hops", "I", None, 7], ["text", "S", None, "long" * 100]]), 1 << 40)
    assert found is not None
    assert found.of((1 << 40) - 1) == {"hops": 7, "text": "long" * 100}


def test_pack_refuses_more_columns_than_a_peer_accepts() -> None:
    rows = [{f"a{number}": 1 for number in range(MOST_ATTRIBUTES)}]
    packed = pack(Attributes.from_rows(rows))
    found = unpack(packed, 1)
    assert found is not None
    assert len(found.columns) == MOST_ATTRIBUTES
    with pytest.raises(LinkError, match="at most 1000"):
        pack(Attributes.from_rows([{**rows[0], "z": 1}]))
    with pytest.raises(LinkError, match=r"attributes: .*length <= 1000"):
        unpack(msgpack.packb([*msgpack.unpackb(packed), ["z", "I", None, 1]]), 1)


_EIGHT = b"\1" + b"\0" * 7
_WRONG: list[tuple[str, Any, str]] = [
    ("no list", {}, r"attributes: Expected `array"),
    ("a text", "abcd", r"attributes: Expected `array"),
    ("a number", 7, r"attributes: Expected `array"),
    ("no row", [7], r"attributes: Expected `array`, got `int` - at `\$\[0\]`"),
    ("a short row", [["a", "i", None]], r"at least length 4"),
    ("a long row", [["a", "i", None, _EIGHT * 3, 1]], r"at most length 4"),
    ("a name of bytes", [[b"a", "I", None, 1]], r"Expected `str`, got `bytes`"),
    ("a name that is not text", [["\ud800", "I", None, 1]], r"utf-8"),
    ("a name twice", [["a", "I", None, 1], ["a", "I", None, 1]], "once and in order"),
    ("names out of order", [["b", "I", None, 1], ["a", "I", None, 1]], "once and in order"),
    ("an unknown kind", [["a", "x", None, 1]], r"Invalid enum value 'x'"),
    ("an empty kind", [["a", "", None, 1]], r"Invalid enum value ''"),
    ("a kind that is not text", [["a", ["i"], None, 1]], r"Expected `str`, got `array`"),
    ("two kinds", [["a", "if", None, 1]], r"Invalid enum value 'if'"),
    ("bits of a shared value", [["a", "I", b"\7", 1]], r"expected nil for the bits"),
    (
        "a bool for an integer",
        [["a", "I", None, True]],
        r"'a' of kind I: Expected `int`, got `bool`",
    ),
    ("a float for an integer", [["a", "I", None, 1.0]], r"Expected `int`, got `float`"),
    ("a great integer", [["a", "I", None, 1 << 63]], r"of kind I: Expected `int` <= 9223372036854775807"),
    ("bytes for a text", [["a", "S", None, b"x"]], r"Expected `str`, got `bytes`"),
    ("half a character", [["a", "S", None, "\udfff"]], r"attribute 'a' of kind S.*utf-8"),
    ("no bytes", [["a", "i", None, [1, 2, 3]]], r"Expected `bytes`, got `array`"),
    ("bits of numbers that count", [["a", "n", b"\7", 1]], r"expected nil for the bits"),
    ("a float to count from", [["a", "n", None, 1.0]], r"Expected `int`, got `float`"),
    ("a last number that is too great", [["a", "n", None, (1 << 63) - 2]], "3 integers of 64 bits"),
    ("many that count", [[name, "n", None, 1] for name in "abcde"], "at most 4 attributes of kind n"),
    ("too few bytes", [["a", "i", None, _EIGHT * 2]], r"expected 24 bytes.*a length of 16"),
    ("a byte more", [["a", "f", None, _EIGHT * 3 + b"x"]], r"expected 24 bytes.*a length of 25"),
    ("bits that are a number", [["a", "i", 7, _EIGHT * 3]], r"Expected `bytes | null`, got `int`"),
    ("no bits", [["a", "i", b"", _EIGHT * 3]], r"nil or 1 bytes"),
    ("too many bits", [["a", "i", b"\7\0", _EIGHT * 3]], r"nil or 1 bytes"),
    ("bits behind the events", [["a", "i", b"\x0f", _EIGHT * 3]], "zeros behind them"),
    ("a number that is absent", [["a", "i", b"\3", _EIGHT * 3]], "no value where an event has none"),
    ("minus zero that is absent", [["a", "f", b"\0", struct.pack("<3d", 0, 0, -0.0)]], "no value where"),
    ("a text that is absent", [["a", "s", b"\1", ["x", "", "y"]]], "no value where"),
    ("texts that are bytes", [["a", "s", None, b"abc"]], r"a list of 3 texts"),
    ("too few texts", [["a", "s", None, ["x", "y"]]], r"a list of 3 texts.*a length of 2"),
    ("a number among texts", [["a", "s", None, ["x", 1, "y"]]], r"Expected `str`, got `int`"),
    ("half a character of many", [["a", "s", None, ["x", "\ud800", "\udc00"]]], r"utf-8"),
]


@pytest.mark.parametrize(("data", "message"), [case[1:] for case in _WRONG], ids=[case[0] for case in _WRONG])
def test_unpack_refuses(data: Any, message: str) -> None:
    with pytest.raises(LinkError, match=message):
        unpack(msgpack.packb(data, unicode_errors="surrogatepass"), 3)


_PLAIN = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | st.floats() | st.text(max_size=3)
    | st.binary(max_size=24) | st.sampled_from([*"ifsIFSn", "\ud800", b"\7", bytes(24)]),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=2), inner, max_size=2),
    max_leaves=6,
)  # fmt: skip


@st.composite
def damaged(draw: st.DrawFn) -> tuple[int, Any]:
    """What ``pack`` wrote, with one place changed."""
    count, table = draw(tables())
    data: Any = msgpack.unpackb(pack(attributes_of(table))) or []
    place = draw(st.integers(-1, len(data) - 1))
    if place < 0 or not data:
        return count, draw(_PLAIN)
    how = draw(st.integers(-1, 3))
    if how < 0:
        data[place] = draw(_PLAIN)
    else:
        data[place][how] = draw(_PLAIN)
    return draw(st.just(count) | st.integers(0, 30)), data


@settings(deadline=None, max_examples=tried(90))
@given(damaged())
def test_damaged_attributes_are_refused_or_whole(case: tuple[int, Any]) -> None:
    count, data = case
    try:
        found = unpack(msgpack.packb(data, unicode_errors="surrogatepass"), count)
    except LinkError:
        return
    for name, column in ({} if found is None else found.columns).items():
        name.encode()
        assert len(column.values) == len(column.present) == count
        assert not any(column.values[~column.present])
        wanted = {"i": int, "f": float, "s": str}[column.kind]
        assert all(type(value) is wanted for value in column.values.tolist())
        if column.kind == "s":
            "".join(column.values.tolist()).encode()


def test_pack_tells_no_more_than_four_columns_as_counting() -> None:
    table = {name: ("i", [7, 8, 9]) for name in "abcdef"}
    packed = pack(attributes_of(table))
    assert [row[1] for row in msgpack.unpackb(packed)] == ["n", "n", "n", "n", "i", "i"]
    assert table_of(unpack(packed, 3)) == table
