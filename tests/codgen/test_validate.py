"""The native validator against the plain msgpack package and a straightforward reading of the wire format."""

from __future__ import annotations

from typing import Any

import llvmlite.binding as llvm
import msgpack
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from evflow.codgen.validate import Validator, validator
from evflow.errors import SchemaError
from evflow.events.encode import encode_dict
from evflow.schema import Schema
from evflow.schema.types import (
    BLOB,
    MAX_DEPTH,
    TEXT,
    Array,
    Blob,
    Bytes,
    FieldType,
    ListOf,
    Maybe,
    Number,
    Record,
    Str,
    Text,
    boolean,
    f32,
    f64,
    i16,
    i64,
    u8,
)
from tests.codgen.programs import random_event, random_schema
from tests.examples import tried

SUB = Schema("Sub", {"x": i16, "y": Str[3]})
TREE = Schema("Tree", {"v": i64, "next": "optional(Tree)", "kids": "list(Tree)", "s": TEXT})
ALL = Schema(
    "All",
    {
        "n": i64, "x": f64, "u": u8, "flag": boolean, "s": Str[6], "raw": Bytes[5], "fixed": Array[f32, 2, 2],
        "flags": Array[boolean, 3], "t": TEXT, "blob": BLOB, "l": ListOf(i64), "ls": ListOf(TEXT),
        "m": Maybe(f64), "mt": Maybe(TEXT), "v": Array[i16, None, 2], "vb": Array[boolean, None], "sub": SUB,
        "subs": ListOf(Record("Sub", {"Sub": SUB})), "tree": TREE,
    },
)  # fmt: skip


class Reader:
    """Reads one event as a stranger would who knows the format; ValueError where it cannot."""

    def __init__(self, data: bytes, at: int) -> None:
        self.data = data
        self.at = at

    def take(self, n: int) -> bytes:
        if self.at + n > len(self.data):
            raise ValueError("data ends")
        self.at += n
        return self.data[self.at - n : self.at]

    def expect(self, wanted: bytes) -> None:
        if self.take(len(wanted)) != wanted:
            raise ValueError("marker")

    def read(self, kind: FieldType, depth: int) -> None:
        if isinstance(kind, Number):
            if kind.kind == "b":
                if self.take(1) not in (b"\xc2", b"\xc3"):
                    raise ValueError("bool")
            else:
                self.expect(bytes([kind.marker]))
                self.take(kind.size)
        elif isinstance(kind, Str):
            self.expect(head(0xD9, kind.capacity))
            self.take(kind.capacity).decode()
        elif isinstance(kind, Bytes):
            self.expect(head(0xC4, kind.capacity + 2))
            n = int.from_bytes(self.take(2), "little")
            if n > kind.capacity or any(self.take(kind.capacity)[n:]):
                raise ValueError("bytes")
        elif isinstance(kind, (Text, Blob)):
            self.expect(b"\xdb" if isinstance(kind, Text) else b"\xc6")
            content = self.take(int.from_bytes(self.take(4), "big"))
            if isinstance(kind, Text):
                content.decode()
        elif isinstance(kind, Array):
            self.array(kind)
        elif isinstance(kind, ListOf):
            self.expect(b"\xdd")
            for _ in range(int.from_bytes(self.take(4), "big")):
                self.read(kind.element, depth)
        elif isinstance(kind, Maybe):
            if self.data[self.at : self.at + 1] == b"\xc0":
                self.at += 1
            else:
                self.read(kind.element, depth)
        elif isinstance(kind, Record):
            self.record(kind.schema, depth + 1)

    def array(self, kind: Array) -> None:
        self.expect(b"\xc9")
        size = int.from_bytes(self.take(4), "big")
        self.expect(bytes([kind.element.code, len(kind.shape)]))
        shape = [int.from_bytes(self.take(4), "little") for _ in kind.shape]
        if any(n is not None and n != m for n, m in zip(kind.shape, shape, strict=True)):
            raise ValueError("shape")
        elements = 1
        for n in shape:
            elements *= n
        if size != 1 + 4 * len(shape) + elements * max(kind.element.size, 1):
            raise ValueError("length")
        content = self.take(elements * max(kind.element.size, 1))
        if kind.element.kind == "b" and any(byte > 1 for byte in content):
            raise ValueError("booleans")

    def record(self, schema: Schema, depth: int) -> None:
        if depth > MAX_DEPTH:
            raise ValueError("depth")
        self.expect(
            bytes([0x90 | len(schema)]) if len(schema) < 16 else b"\xdc" + len(schema).to_bytes(2, "big")
        )
        for field in sorted(schema.fields, key=lambda f: f.type.width is None):
            self.read(field.type, depth)


def head(marker: int, size: int) -> bytes:
    return bytes([marker, size]) if size < 256 else bytes([marker + 1]) + size.to_bytes(2, "big")


def oracle(schema: Schema, data: bytes) -> list[int] | None:
    """Where each event starts and the last ends, or None if the data are not valid."""
    offsets = [0]
    while offsets[-1] < len(data):
        reader = Reader(data, offsets[-1])
        try:
            reader.record(schema, 1)
        except (ValueError, UnicodeDecodeError):
            return None
        offsets.append(reader.at)
    return offsets


def native(schema: Schema, data: bytes, count: int | None = None) -> list[int] | None:
    """What the validator says; offsets of a schema of fixed width are computed."""
    try:
        offsets = validator(schema).check(np.frombuffer(data, np.uint8), count)
    except SchemaError:
        return None
    if offsets is None:
        assert schema.width is not None
        return list(range(0, len(data) + 1, schema.width))
    found: list[int] = offsets.tolist()
    return found


def tree(depth: int) -> dict[str, Any]:
    event: dict[str, Any] = {"v": 0, "next": None, "kids": [], "s": ""}
    for n in range(depth - 1):
        event = {
            "v": n,
            "next": event if n % 2 else None,
            "kids": [] if n % 2 else [event],
            "s": "é" * (n % 3),
        }
    return event


def sample(n: int) -> bytes:
    return encode_dict(
        ALL,
        {
            "n": n, "x": n / 3, "u": n, "flag": n % 2 == 0, "s": "ab" * (n % 4), "raw": b"\xff" * (n % 6),
            "fixed": np.full((2, 2), n), "flags": [True, False, n > 2], "t": "é漢😀"[: n % 4],
            "blob": b"\x80" * n, "l": list(range(n)), "ls": ["q" * k for k in range(n)],
            "m": None if n % 2 else 2.5, "mt": "ü" if n % 3 else None, "v": np.ones((n, 2)),
            "vb": np.ones(n, bool), "sub": {"x": n, "y": "é"}, "subs": [{"x": 1, "y": ""}] * n,
            "tree": tree(n + 1),
        },
    )  # fmt: skip


def test_generated_code_is_well_formed() -> None:
    llvm.parse_assembly(Validator(ALL).dump_ir()).verify()


def test_valid_events_are_accepted_and_found() -> None:
    data = b"".join(map(sample, range(6)))
    offsets = native(ALL, data)
    assert offsets is not None and len(offsets) == 7
    unpacker = msgpack.Unpacker(strict_map_key=False)
    unpacker.feed(data)
    ends = []
    for _ in range(6):
        unpacker.skip()
        ends.append(unpacker.tell())
    assert offsets[1:] == ends
    assert native(ALL, data, 6) == offsets
    assert native(ALL, data, 5) is None
    assert native(ALL, data, 7) is None


def test_no_bytes_are_no_events() -> None:
    assert native(ALL, b"") == [0]
    assert native(ALL, b"", 0) == [0]
    assert native(SUB, b"") == [0]
    assert native(SUB, b"", 1) is None


@pytest.mark.parametrize("count", [-1, 2**40, 2**62])
def test_hostile_count_is_refused(count: int) -> None:
    with pytest.raises(SchemaError, match="events of at least"):
        validator(SUB).check(np.frombuffer(encode_dict(SUB, {"x": 1, "y": ""}), np.uint8), count)


def test_every_cut_is_refused() -> None:
    data = sample(3)
    assert [n for n in range(1, len(data)) if native(ALL, data[:n]) is not None] == []


def test_depth_is_bounded() -> None:
    assert native(TREE, encode_dict(TREE, tree(MAX_DEPTH))) is not None
    deeper = (
        b"\x94\xd3" + bytes(8) + b"\xc0\xdd\0\0\0\1" + encode_dict(TREE, tree(MAX_DEPTH)) + b"\xdb\0\0\0\0"
    )
    assert native(TREE, deeper) is None
    endless = (b"\x94\xd3" + bytes(8)) * 100_000
    assert native(TREE, endless) is None


@pytest.mark.slow
def test_records_within_records_of_fixed_width_count_towards_the_depth() -> None:
    inner = Schema("Inner", {"x": i64})
    place = Schema("Place", {"inner": inner})
    chain = Schema("Chain", {"place": place, "next": "optional(Chain)"})
    event: dict[str, Any] | None = None
    for depth in range(1, MAX_DEPTH + 1):
        event = {"place": {"inner": {"x": depth}}, "next": event}
        if depth > MAX_DEPTH - 2:
            break
        data = encode_dict(chain, event)
        assert native(chain, data) == [0, len(data)]
    head = data[: -len(b"\xc0")]
    assert native(chain, head + encode_dict(chain, {"place": {"inner": {"x": 0}}, "next": None})) is None


def test_error_names_event_field_byte_expected_and_found() -> None:
    good = sample(3)
    bad = bytearray(sample(3))
    at = bad.index(b"\xdb\0\0\0\2qq") + 5
    bad[at] = 0xFF
    with pytest.raises(SchemaError) as error:
        validator(ALL).check(np.frombuffer(good + bytes(bad), np.uint8))
    assert (
        f"bytes of All: event 1, field ls[2], byte {len(good) + at}: expected text in UTF-8, found ff 71"
        in str(error.value)
    )


def test_error_names_a_field_of_a_nested_record() -> None:
    data = bytearray(encode_dict(TREE, tree(4)))
    at = data.rindex(b"\xd3")
    data[at] = 0xD2
    with pytest.raises(
        SchemaError, match=rf"field kids\[0\].next.kids\[0\].v, byte {at}: expected 0xd3, found d2"
    ):
        validator(TREE).check(np.frombuffer(bytes(data), np.uint8))


def test_shape_that_overflows_is_refused() -> None:
    schema = Schema("V", {"v": Array[f64, None, None, None]})
    shape = b"".join(n.to_bytes(4, "little") for n in (1 << 31, 1 << 31, 16))
    for dimensions in (shape, shape[:8] + bytes(4)):
        data = b"\x91\xc9" + (13).to_bytes(4, "big") + bytes([f64.code, 3]) + dimensions
        assert native(schema, data) is None


def test_list_longer_than_the_data_is_refused_at_once() -> None:
    schema = Schema("L", {"l": ListOf(i64)})
    with pytest.raises(SchemaError, match="no more elements than there are bytes"):
        validator(schema).check(np.frombuffer(b"\x91\xdd\xff\xff\xff\xff" + bytes(20), np.uint8))


@pytest.mark.parametrize(
    "text",
    [
        b"\xc0\x80", b"\xed\xa0\x80", b"\xf4\x90\x80\x80", b"\xe0\x80\x80", b"\xf0\x80\x80\x80",
        b"\xf8\x88\x80\x80\x80", b"\x80", b"\xc3", b"\xe6\xbc", b"abcdefg\xc3", b"abcdefgh\xff",
        b"\xf4\x8f\xbf\xbf", b"\xef\xbf\xbf", b"\xed\x9f\xbf",
        b"\xc2\x80", b"\xe0\xa0\x80", b"\xf0\x90\x80\x80", b"abcdefg\xc3\xa9abcdefgh", b"a\0b",
    ],
)  # fmt: skip
def test_text_is_valid_exactly_where_python_says_so(text: bytes) -> None:
    schema = Schema("T", {"t": TEXT})
    try:
        text.decode()
        valid = True
    except UnicodeDecodeError:
        valid = False
    data = b"\x91\xdb" + len(text).to_bytes(4, "big") + text
    assert (native(schema, data) is not None) == valid


@settings(max_examples=tried(90), deadline=None)
@given(st.binary(max_size=24))
def test_any_bytes_are_utf8_exactly_where_python_says_so(text: bytes) -> None:
    schema = Schema("T", {"t": TEXT})
    data = b"\x91\xdb" + len(text).to_bytes(4, "big") + text
    assert native(schema, data) == oracle(schema, data)


@settings(max_examples=tried(90), deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.integers(0, 5), st.data())
def test_mutated_events_are_judged_as_by_the_format(n: int, data: st.DataObject) -> None:
    event = bytearray(sample(n))
    for _ in range(data.draw(st.integers(1, 3))):
        at = data.draw(st.integers(0, len(event) - 1))
        choice = data.draw(st.integers(0, 4))
        if choice == 0:
            del event[at]
        elif choice == 1:
            event.insert(at, data.draw(st.integers(0, 255)))
        else:
            event[at] = data.draw(
                st.one_of(st.integers(0, 255), st.sampled_from([0, 0xC0, 0xC2, 0xDD, 0xFF]))
            )
    assert native(ALL, bytes(event)) == oracle(ALL, bytes(event))


@settings(max_examples=tried(30), deadline=None)
@given(st.randoms(use_true_random=False), st.data())
def test_events_of_any_schema_are_judged_as_by_the_format(random: Any, data: st.DataObject) -> None:
    schema = random_schema(random, "S")
    events = bytearray(b"".join(encode_dict(schema, random_event(random, schema)) for _ in range(2)))
    assert native(schema, bytes(events)) == oracle(schema, bytes(events))
    events[random.randrange(len(events))] = random.randrange(256)
    assert native(schema, bytes(events)) == oracle(schema, bytes(events))


def test_optimised_validator_gives_the_same() -> None:
    data = b"".join(map(sample, range(6))) * 5000
    offsets = Validator(ALL).check(np.frombuffer(data, np.uint8))
    assert offsets is not None
    assert offsets.tolist()[:7] == oracle(ALL, b"".join(map(sample, range(6))))
    assert offsets[-1] == len(data)
