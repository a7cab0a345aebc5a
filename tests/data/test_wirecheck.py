from __future__ import annotations

from itertools import pairwise
from typing import Any
from uuid import UUID

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from strategies import events, schemas, some, unpacked

import evflow as ev
from evflow.codgen.validate import validator
from evflow.errors import SchemaError
from evflow.events.batch import EventBatch
from evflow.events.encode import encode_dict
from evflow.events.wirecheck import check, is_one
from evflow.schema import Schema
from evflow.schema.types import Array, Bytes, ListOf, Maybe, Str, f64, i8, u8
from tests.data.walking import walk
from tests.examples import tried


class Trade(ev.Event):
    symbol: ev.Str[8]
    price: float
    size: int


def array(data: bytes) -> Any:
    return np.frombuffer(data, np.uint8)


@some
@given(st.data())
def test_check_accepts_what_was_encoded(data: st.DataObject) -> None:
    schema = data.draw(schemas())
    encoded = [encode_dict(schema, e) for e in data.draw(st.lists(events(schema), max_size=3))]
    whole = array(b"".join(encoded))
    count = data.draw(st.sampled_from([None, len(encoded)]))
    rows, offsets = check(schema, whole, count)
    assert rows == len(encoded)
    walked = walk(schema, whole, count)
    assert np.diff(walked).tolist() == [len(e) for e in encoded]
    assert offsets is None if schema.width is not None else np.array_equal(offsets, walked)


def mutations(data: bytes) -> st.SearchStrategy[bytes]:
    """The bytes with a few changed, inserted, left out or repeated."""
    n = max(len(data), 1)
    edits = st.one_of(
        st.tuples(st.just("set"), st.integers(0, n - 1), st.integers(0, 255)),
        st.tuples(st.just("flip"), st.integers(0, n - 1), st.integers(0, 7)),
        st.tuples(st.just("cut"), st.integers(0, n - 1), st.integers(1, 4)),
        st.tuples(st.just("add"), st.integers(0, n), st.integers(0, 255)),
        st.tuples(st.just("end"), st.integers(0, n), st.just(0)),
        st.tuples(st.just("copy"), st.integers(0, n - 1), st.integers(1, 40)),
    )
    return st.lists(edits, min_size=1, max_size=3).map(lambda found: _edit(data, found))


def _edit(data: bytes, edits: list[tuple[str, int, int]]) -> bytes:
    content = bytearray(data)
    for kind, at, value in edits:
        if kind in ("set", "flip") and at < len(content):
            content[at] = value if kind == "set" else content[at] ^ 1 << value
        elif kind == "cut":
            del content[at : at + value]
        elif kind == "add":
            content.insert(at, value)
        elif kind == "end":
            del content[at:]
        elif kind == "copy":
            content[at:at] = content[at : at + value]
    return bytes(content)


@pytest.mark.slow
@given(st.data())
@settings(some, max_examples=tried(60))
def test_check_of_changed_bytes_accepts_exactly_what_msgpack_reads_as_events(data: st.DataObject) -> None:
    schema = data.draw(schemas(depth=data.draw(st.integers(0, 2))))
    valid = b"".join(encode_dict(schema, e) for e in data.draw(st.lists(events(schema), max_size=2)))
    changed = data.draw(mutations(valid))
    count = data.draw(st.sampled_from([None, None, 1, 2]))
    walked: Any
    try:
        walked = walk(schema, array(changed), count).tolist()
    except SchemaError:
        walked = None
    try:
        batch = EventBatch.from_bytes(schema, changed, count)
    except SchemaError as error:
        assert str(error).startswith(f"bytes of {schema.name}: ")
        assert walked is None
        return
    assert walked is not None
    assert len(unpacked(changed)) == len(batch)
    assert [encode_dict(schema, event.to_dict()) for event in batch] == [
        changed[a:b] for a, b in pairwise(walked)
    ]


@pytest.mark.slow
def test_check_of_few_events_refuses_just_the_bits_that_the_walk_refuses() -> None:
    """Before anything is compiled, small events are compared with the bits that all of them have."""
    inner = Schema("inner", {"x": u8, "ok": bool})
    fields: dict[str, Any] = {"n": i8, "f": f64, "ok": bool, "a": Array[f64, 2], "inner": inner}
    values = {"n": -3, "f": 1.5, "ok": True, "a": [1.0, 2.0], "inner": {"x": 7, "ok": False}}
    for kind, value, bits_decide in [
        (Array[bool, 2], [True, False], True),
        (ev.UUID, UUID(int=7), True),
        (Str[4], "ab", False),
        (Str[4], "ä", False),
        (Bytes[3], b"x", False),
        (ev.Decimal[3, 1], "12.5", False),
    ]:
        data = encode_dict(Schema("plain", fields | {"more": kind}), values | {"more": value})
        for bit in range(8 * len(data)):
            schema = Schema("plain", fields | {"more": kind})
            changed = bytearray(data)
            changed[bit // 8] ^= 1 << bit % 8
            try:
                right = len(walk(schema, array(bytes(changed)), 1)) == 2
            except SchemaError:
                right = False
            assert right or not is_one(schema, bytes(changed))
            assert is_one(schema, bytes(changed)) == right or not bits_decide
            for few, n in [(bytes(changed), 1), (data + changed + data, 3)]:
                if right:
                    assert EventBatch.from_bytes(schema, few, n).to_bytes() == few
                else:
                    with pytest.raises(SchemaError, match=f"event {n // 2}, "):
                        EventBatch.from_bytes(schema, few, n)


@some
@given(st.data(), st.binary(max_size=60))
def test_check_of_any_bytes_is_events_or_an_error(data: st.DataObject, content: bytes) -> None:
    schema = data.draw(schemas(depth=1))
    try:
        batch = EventBatch.from_bytes(schema, content)
    except SchemaError:
        return
    assert batch.to_bytes() == content


TRADES = b"".join(encode_dict(Trade.schema, {"symbol": s, "price": 1.0, "size": 2}) for s in ("IBM", "ä", ""))


def test_check_of_much_is_compiled_and_refuses_the_same() -> None:
    schema = Schema("much", {"name": str, "ok": bool})
    whole = b"".join(encode_dict(schema, {"name": "n" * (i % 50), "ok": True}) for i in range(4000))
    assert len(whole) > 100_000
    batch = EventBatch.from_bytes(schema, whole, 4000)
    assert batch.offsets is not None
    assert batch.offsets.tolist() == walk(schema, array(whole)).tolist()
    broken = bytearray(whole)
    broken[int(batch.offsets[3999]) + 1] = 0
    with pytest.raises(SchemaError, match="bytes of much: event 3999, field ok, byte"):
        EventBatch.from_bytes(schema, bytes(broken))


@pytest.mark.parametrize(
    ("at", "byte", "message"),
    [
        (0, 0x94, "event 0, byte 0: expected 0x93, found 94 d9"),
        (30, 0xD8, "event 1, field symbol, byte 30: expected 0xd908, found d8 08"),
        (31, 0x07, "event 1, field symbol, byte 30: expected 0xd908, found d9 07"),
        (32, 0xFF, "event 1, field symbol, byte 32: expected text in UTF-8, found ff a4"),
        (69, 0xCA, "event 2, field price, byte 69: expected 0xcb, found ca"),
    ],
)
def test_check_names_event_field_byte_expected_and_found(at: int, byte: int, message: str) -> None:
    content = bytearray(TRADES)
    content[at] = byte
    with pytest.raises(SchemaError) as caught:
        check(Trade.schema, array(bytes(content)))
    assert str(caught.value).startswith(f"bytes of Trade: {message}")


@pytest.mark.parametrize(
    ("content", "count", "reason"),
    [
        (TRADES[:-1], None, "expected a multiple of 29 bytes"),
        (TRADES, 2, r"expected 58 bytes \(events of 29\), found 87"),
        (TRADES, 4, "expected 116 bytes"),
        (TRADES, -1, "expected a count of events, found -1"),
        (b"", 1, "expected 29 bytes"),
    ],
)
def test_check_of_fixed_width_refuses_other_lengths(content: bytes, count: int | None, reason: str) -> None:
    with pytest.raises(SchemaError, match=reason):
        check(Trade.schema, array(content), count)


def test_check_text_cut_within_a_character_is_not_completed_by_the_next_event() -> None:
    schema = Schema("s", {"x": Str[2]})
    head = b"\x91\xd9\x02"
    assert check(schema, array(head + b"\xc3\xa4")) == (1, None)
    with pytest.raises(SchemaError, match=r"event 1, field x, byte 8: expected text in UTF-8, found 61 c3"):
        check(schema, array(head + b"ab" + head + b"a\xc3" + head + b"\xa4b"))


@pytest.mark.parametrize(
    ("kind", "wire", "reason"),
    [
        (bool, "c0", "expected 0xc2 or 0xc3"),
        (Bytes(2), "c404 0300 0000", "a length of at most 2"),
        (Bytes(2), "c404 0100 0061", "zeros behind the value"),
        (Array[bool, 2], "c9 00000007 0b 01 02000000 0102", "booleans of 0 or 1"),
        (str, "db 00000005 61", "5 bytes, 4 more than there are"),
        (str, "db 00000001 ff", "text in UTF-8"),
        (str, "a161", "expected 0xdb"),
        (bytes, "c6 ffffffff", "4294967295 bytes"),
        (bytes, "c6 0000", "4 bytes, 2 more than there are"),
        (ListOf(i8), "dd ffffffff", "no more elements than there are bytes"),
        (ListOf(i8), "dd 00000002 d001 d1", r"field x\[1\], byte 8: expected 0xd0"),
        (ListOf(i8), "dd 00000001", "no more elements than there are bytes"),
        (Maybe(i8), "c1", "expected 0xd0"),
        (Array[u8, None], "c9 00000006 05 01 02000000 00", "the length of 6 bytes says, not 2"),
        (Array[u8, None], "c9 00000007 05 01 02000000 00", "2 bytes, 1 more than there are"),
        (Array[u8, None], "c9 00000007 06 01 02000000 0000", "expected 0x0501"),
        (Array[u8, None], "c9 00000007 05 02 02000000 0000", "expected 0x0501"),
        (Array[u8, None, 3], "c9 0000000b 05 02 01000000 02000000 0000", "a dimension of 3"),
        (Array[f64, None, None], "c9 00000009 0a 02 ffffffff ffffffff", "memory can hold"),
    ],
)  # fmt: skip
def test_check_refuses_values_that_break_a_rule(kind: Any, wire: str, reason: str) -> None:
    schema = Schema("s", {"x": kind, "rest": ListOf(i8)} if Schema("s", {"x": kind}).width else {"x": kind})
    head = schema.header + bytes.fromhex(wire)
    with pytest.raises(SchemaError, match=reason):
        walk(schema, array(head + (b"\xdd\0\0\0\0" if len(schema) == 2 else b"")))


def test_check_refuses_what_stands_behind_the_events() -> None:
    schema = Schema("s", {"x": str})
    one = encode_dict(schema, {"x": "a"})
    with pytest.raises(
        SchemaError, match="event 1, byte 7: expected the end of the bytes after 1 events, found 91 db"
    ):
        walk(schema, array(one + one), 1)
    with pytest.raises(SchemaError, match="event 1, byte 7: expected 0x91, found the end of the bytes"):
        walk(schema, array(one), 2)


def test_check_allows_500_records_within_each_other_and_no_more() -> None:
    node = Schema("node", {"next": "optional(node)"})
    deep = lambda n: b"\x91" * n + b"\xc0"  # noqa: E731
    assert walk(node, array(deep(500))).tolist() == [0, 501]
    with pytest.raises(SchemaError, match="at most 500 records within each other"):
        walk(node, array(deep(501)))
    tree = Schema("tree", {"kids": "list(tree)"})
    kids = lambda n: b"\x91\xdd\0\0\0\1" * (n - 1) + b"\x91\xdd\0\0\0\0"  # noqa: E731
    assert len(walk(tree, array(kids(500)))) == 2
    with pytest.raises(SchemaError, match="at most 500 records"):
        walk(tree, array(kids(501)))


def test_check_of_records_within_names_the_path() -> None:
    leg = Schema("leg", {"ok": bool, "note": str})
    order = Schema("order", {"legs": ListOf(Schema("s", {"x": leg})["x"].type)})
    wire = bytearray(encode_dict(order, {"legs": [{"ok": True, "note": "a"}, {"ok": False, "note": "b"}]}))
    wire[-7] = 0xC0
    with pytest.raises(
        SchemaError, match=r"field legs\[1\]\.ok, byte 15: expected 0xc2 or 0xc3 \(bool\), found c0 db"
    ):
        walk(order, array(bytes(wire)))


def test_empty_array_of_an_impossible_shape_is_refused() -> None:
    """Both validators refuse an array without elements whose other dimensions no memory could hold."""
    schema = Schema("a", {"x": Array[f64, None, None, None]})
    big = (2**32 - 1).to_bytes(4, "little")
    data = b"\x91\xc9" + (13).to_bytes(4, "big") + b"\x0a\x03" + bytes(4) + big + big
    for validate in (check, lambda s, d, n: validator(s).check(d, n)):
        with pytest.raises(SchemaError, match="memory can hold"):
            validate(schema, np.frombuffer(data, np.uint8), 1)
    fine = data[:-4] + bytes(4)
    check(schema, np.frombuffer(fine, np.uint8), 1)
    validator(schema).check(np.frombuffer(fine, np.uint8), 1)
