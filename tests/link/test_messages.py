"""Messages as bytes and back; what is refused, and that refusing costs little."""

from __future__ import annotations

import tracemalloc
from typing import Any

import msgpack
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import Raw
from msgspec.structs import astuple

from evflow.errors import LinkError
from evflow.net.link import messages as m
from evflow.net.link.attributes import unpack as unpack_attributes
from tests.examples import tried

NUMBER = st.integers(0, (1 << 63) - 1)
NAME = st.text(max_size=50)
IDENTITY = st.binary(min_size=16, max_size=16)
PLAIN = st.none() | st.text() | NUMBER | st.binary()
FIELDS: dict[str, st.SearchStrategy[Any]] = {
    "incarnation": IDENTITY, "stream": IDENTITY, "nonce": IDENTITY, "token": IDENTITY,
    "node": NAME, "contact": NAME, "reason": NAME, "bridge": NAME, "stone": NAME, "input": NAME, "name": NAME,
    "topic": NAME, "description": st.text(max_size=200), "opened": st.booleans(),
    "blocks": st.lists(NUMBER, max_size=5), "path": st.lists(NUMBER, max_size=m.MOST_PATH),
    "route": st.just(b"") | IDENTITY,
    "attributes": (st.none() | st.lists(PLAIN, max_size=4)).map(lambda value: Raw(msgpack.packb(value))),
    "place": st.none() | st.binary(max_size=20) | st.lists(NUMBER, min_size=3, max_size=3),
}  # fmt: skip
MESSAGE = st.sampled_from(list(m.MESSAGES.values())).flatmap(
    lambda kind: st.builds(kind, *(FIELDS.get(name, NUMBER) for name in kind.__struct_fields__))
)
ANYTHING = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(1 << 63), (1 << 64) - 1)
    | st.floats()
    | st.text()
    | st.binary(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
)


@given(MESSAGE)
def test_message_comes_back_from_its_bytes(message: m.Message) -> None:
    wire = m.pack(message)
    back = m.unpack(wire)
    assert type(back) is type(message)
    assert back == message
    number, *fields = msgpack.unpackb(wire)
    assert m.MESSAGES[number] is type(message)
    assert fields == [
        msgpack.unpackb(value) if isinstance(value, Raw) else value for value in astuple(message)
    ]
    assert m.unpack(memoryview(wire)) == message


@settings(max_examples=tried(20))
@given(st.binary(max_size=200) | ANYTHING.map(msgpack.packb))
def test_bytes_are_a_message_or_refused(wire: bytes) -> None:
    try:
        message = m.unpack(wire)
    except LinkError as error:
        assert len(str(error)) < 400
    else:
        assert m.unpack(m.pack(message)) == message


@pytest.mark.parametrize(
    "wire",
    [
        b"\x92\x05\x81\x90\x01",  # a map whose key is a list: unhashable in Python
        b"\x92\x05\x81\x01\x02",
        b"\x92\x05\xd6\xff\x00\x00\x00\x01",  # a time stamp
        b"\x92\x05\xc7\x0c\xff" + b"\xff" * 12,
        b"\x92\x05\xd4\x05\x00",
        b"\x91" * 5000,
        b"\x91" * 600 + b"\x05",
        b"\x92\x0f\x92" + b"\xdb\xff\xff\xff\xff" * 2,
    ],
)
def test_value_that_no_message_has_is_refused(wire: bytes) -> None:
    with pytest.raises(LinkError, match="message"):
        m.unpack(wire)


def test_nested_arrays_that_claim_much_are_given_no_memory() -> None:
    wire = (b"\xdd" + (1 << 20).to_bytes(4, "big")) * 500 + bytes(1 << 20)
    tracemalloc.start()
    with pytest.raises(LinkError, match="message"):
        m.unpack(wire)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 4 * len(wire)


def test_names_have_a_limit() -> None:
    assert m.unpack(m.pack(m.Bye("x" * 4096))) == m.Bye("x" * 4096)
    with pytest.raises(LinkError, match=r"message Bye: .*length <= 4096.*\[1\]"):
        m.unpack(m.pack(m.Bye("x" * 4097)))


def read(wire: bytes) -> m.Message:
    """A message, its attributes read too."""
    message = m.unpack(wire)
    if isinstance(message, m.Data):
        unpack_attributes(message.attributes, message.events)
    return message


def large(*fields: Any) -> bytes:
    """A message of more bytes than may come before a session."""
    wire: bytes = msgpack.packb(fields)
    assert len(wire) > m.MOST_GREETING
    return wire


TEXTS = ["x" * 9, "é", ""] * 3000
LARGE = [
    m.Data(0, 1, 0, 9000, b"r" * 16, [1, 2], Raw(msgpack.packb([["n", "s", None, TEXTS]])), b"abc"),
    m.Data(0, 1, 0, 9000, b"", [], Raw(msgpack.packb([["n", "i", None, b"x" * 72_000]])), [1, 64, 9]),
    m.Data(0, 1, 0, 9000, b"", [], m.NIL, b"x" * 1_000_000),
    m.SchemaText(5, "é" * m.MOST_TEXT),
    m.Released(list(range(1 << 40, (1 << 40) + m.MOST_BLOCKS))),
    m.Open(1, "é" * 4096, "ü" * 4096, "ß" * 4096, bytes(16), 1, 0),
]


@pytest.mark.parametrize("message", LARGE, ids=lambda message: type(message).__name__)
def test_large_message_comes_back_from_its_bytes(message: m.Message) -> None:
    wire = m.pack(message)
    assert len(wire) > m.MOST_GREETING
    assert m.unpack(wire) == m.unpack(memoryview(wire)) == message
    with pytest.raises(LinkError):
        m.unpack(wire + b"\xc0")
    with pytest.raises(LinkError):
        m.unpack(wire[:-1])


@pytest.mark.parametrize("kind", m.MESSAGES.values(), ids=lambda kind: kind.__name__)
def test_header_is_bounded_by_kind_before_it_is_read(kind: type[Any]) -> None:
    number = next(number for number, of in m.MESSAGES.items() if of is kind)
    most = {m.Data: 64 << 20, m.SchemaText: (64 << 10) + (4 << 20)}.get(kind, 64 << 10)
    # Not even msgpack, behind the number.
    wire = memoryview(bytes([0x92, number]) + b"\xc1" * (most - 1))
    tracemalloc.start()
    with pytest.raises(LinkError, match=f"{kind.__name__}: expected at most {most} bytes, found {most + 1}"):
        m.unpack(wire)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 100_000


@pytest.mark.parametrize(
    "fields",
    [
        [11, 0, 1, 0, 1, b"", [], [["n", "s", None, [[]] * 100_000]], None],
        [11, 0, 1, 0, 1, b"", [], [["n", "s", None, [{}] * 100_000]], None],
        [11, 0, 1, 0, 1, b"", [], [["n", "s", [[]] * 100_000, b""]], None],
        [11, 0, 1, 0, 1, b"", [], [[[]] * 100_000], None],
        [11, 0, 1, 0, 1, b"", [], [[]] * 100_000, None],
        [11, 0, 1, 0, 1, b"", [[]] * 100_000, None, None],
        [11, [[]] * 100_000, 1, 0, 1, b"", [], None, None],
        [15, [[]] * 4000 + [0] * 9000],
        [15, [1] * 60_000],
        [5, [1] * 60_000],
    ],
)  # fmt: skip
def test_lists_where_a_large_message_has_none_are_refused_before_they_are_made(fields: list[Any]) -> None:
    wire = large(*fields)
    tracemalloc.start()
    with pytest.raises(LinkError) as refused:
        read(wire)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert len(str(refused.value)) < 400
    assert peak < 2 * len(wire) + 200_000


@pytest.mark.parametrize("depth", [10, 500, 995, 1000, 1010, 1020, 3000, 20_000])
@pytest.mark.parametrize("before", [b"", b"\x92\x05", b"\x99\x0b\x00\x01\x00\x01\xc4\x00\x90"])
def test_nesting_of_any_depth_is_refused_in_short(before: bytes, depth: int) -> None:
    with pytest.raises(LinkError) as refused:
        read(before + b"\x91" * depth + b"\xc0" * 2)
    assert len(str(refused.value)) < 400


def _texts_header(columns: int, texts: int) -> bytes:
    """The header of a frame with so many columns of so many texts of two characters each."""
    values = b"\xa1s\xc0\xdd" + texts.to_bytes(4, "big") + b"\xa2ab" * texts
    rows = b"\xdc" + columns.to_bytes(2, "big")
    rows += b"".join(b"\x94\xa3%03d" % number + values for number in range(columns))
    return b"\x99\x0b\x00\x01\x00\xce" + texts.to_bytes(4, "big") + b"\xc4\x00\x90" + rows + b"\xc0"


@pytest.mark.slow
def test_texts_of_attributes_are_counted_before_they_are_made() -> None:
    header = _texts_header(1, 20 << 20)
    tracemalloc.start()
    try:
        with pytest.raises(LinkError, match="at most 1048576 texts"):
            read(header)
        assert tracemalloc.get_traced_memory()[1] < 100 << 20
    finally:
        tracemalloc.stop()
    for columns, texts in ((20, 1 << 20), (1000, 20 << 10)):
        with pytest.raises(LinkError, match="at most 1048576 texts in all"):
            read(_texts_header(columns, texts))


def test_as_many_texts_as_a_frame_may_have_are_taken() -> None:
    message = m.unpack(_texts_header(1000, m.MOST_TEXTS // 1000))
    assert isinstance(message, m.Data)
    attributes = unpack_attributes(message.attributes, message.events)
    assert attributes is not None
    assert sum(len(c.values) for c in attributes.columns.values()) == 1000 * (m.MOST_TEXTS // 1000)
