"""Messages as bytes and back; what is refused, and that refusing costs little."""

from __future__ import annotations

import tracemalloc
from typing import Any

import msgpack
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from evflow.errors import LinkError
from evflow.link import messages as m
from tests.examples import tried

NUMBER = st.integers(0, (1 << 63) - 1)
IDENTITY = st.binary(min_size=16, max_size=16)
NAME = st.text(max_size=50)
FIELDS: dict[Any, st.SearchStrategy[Any]] = {
    m._NUMBER: NUMBER,
    m._TEXT: st.text(max_size=200),
    m._NAME: NAME,
    m._IDENTITY: IDENTITY,
    m._NUMBERS: st.lists(NUMBER, max_size=5),
    m._PATH: st.lists(NUMBER, max_size=m.MOST_PATH),
    m._ROUTE: st.just(b"") | IDENTITY,
    m._LIST_OR_NIL: st.none() | st.lists(st.none() | st.text() | NUMBER | st.binary(), max_size=4),
    m._PLACE: st.none() | st.binary(max_size=20) | st.lists(NUMBER, min_size=3, max_size=3),
    m._FLAG: st.booleans(),
}
MESSAGE = st.sampled_from(list(m.MESSAGES.values())).flatmap(
    lambda entry: st.builds(entry[0], *(FIELDS[check] for check in entry[1]))
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
    assert m.MESSAGES[number][0] is type(message)
    assert fields == list(message)
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


def test_header_that_is_too_long_is_refused_before_it_is_read() -> None:
    with pytest.raises(LinkError, match=f"at most {m.MOST_HEADER} bytes"):
        m.unpack(memoryview(bytes(m.MOST_HEADER + 1)))


def test_names_have_a_limit() -> None:
    assert m.unpack(m.pack(m.Bye("x" * 4096))) == m.Bye("x" * 4096)
    with pytest.raises(LinkError, match=r"message Bye: field 1"):
        m.unpack(m.pack(m.Bye("x" * 4097)))
