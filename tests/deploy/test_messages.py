"""Messages as bytes and back; what is refused, and that refusing costs little."""

from __future__ import annotations

import struct
import tracemalloc
from typing import Any

import msgpack
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import astuple

from evflow.deploy import messages as m
from evflow.deploy.register import NOBODY
from evflow.errors import DeployError
from tests.deploy.group import record_of
from tests.deploy.strategies import MESSAGE
from tests.examples import tried

ID = "0" * 32
AT = ["x", ID, 1]
BALLOT = [1, "A", ID]
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
    back = m.unpack(m.pack(message))
    assert type(back) is type(message)
    assert back == message
    wire = m.pack(message)
    if isinstance(message, m.Piece):
        assert wire == apart([14, *astuple(message)])
    else:
        number, *_ = msgpack.unpackb(wire)
        assert m.MESSAGES[number] is type(message)


def apart(fields: list[Any]) -> bytes:
    """A message whose last field lies behind the others."""
    *first, part = fields
    array = msgpack.packb(first)
    return b"\xc1" + struct.pack(">I", len(array)) + array + part


def mutated(wire: bytes, at: int, value: int) -> bytes:
    at %= len(wire)
    return wire[:at] + bytes([value]) + wire[at + 1 :]


@settings(max_examples=tried(90))
@given(
    st.binary(max_size=200)
    | ANYTHING.map(msgpack.packb)
    | st.builds(mutated, MESSAGE.map(m.pack), st.integers(0, 5000), st.integers(0, 255))
)
def test_bytes_are_a_message_or_refused(wire: bytes) -> None:
    try:
        message = m.unpack(wire)
    except DeployError as error:
        assert len(str(error)) < 3000
    else:
        assert m.unpack(m.pack(message)) == message


def record(**other: Any) -> dict[str, Any]:
    return record_of("x", "A", a="A").made_by(ID, None).data() | other


def graph(**other: Any) -> dict[str, Any]:
    return record(graph=record()["graph"] | other)


@pytest.mark.parametrize(
    "fields",
    [
        [],
        [0],
        [15, AT],
        [True, AT, BALLOT],
        [4, AT],
        [4, AT, BALLOT, 1],
        [4, ["x", ID, -1], BALLOT],
        [4, ["x", ID, 1 << 62], BALLOT],
        [4, ["", ID, 1], BALLOT],
        [4, ["x/y", ID], BALLOT],
        [4, ["x", ID.replace("0", "G"), 1], BALLOT],
        [4, AT, [1, "", ""]],
        [4, AT, [1.0, "A", ID]],
        [3, AT, BALLOT, [1, "A", ""]],
        [1, AT, BALLOT, None, record(version=2), []],
        [1, AT, BALLOT, record(), None, []],
        [1, ["x", ID, 2], BALLOT, None, None, []],
        [1, AT, BALLOT, None, record(deployment="y"), []],
        [1, AT, BALLOT, None, record(graph=None), []],
        [1, AT, BALLOT, None, record(), [1]],
        [2, AT, BALLOT, BALLOT, None],
        [2, AT, BALLOT, None, record()],
        [7, AT, BALLOT, None],
        [9, record(change="")],
        [9, record(birth="")],
        [9, record(birth="0" * 31)],
        [9, record(hosts={})],
        [9, record(hosts={"a/b": "tcp://h:1"})],
        [9, record(hosts={"A": 1})],
        [9, record(hosts={"B": ""})],
        [9, record(frozen="a")],
        [9, record(parts={"A": "x"})],
        [9, record(version=0)],
        [9, record(more=1)],
        [9, [record()]],
        [9, graph(stones=None)],
        [9, graph(stones=[{"name": "a"}])],
        [9, graph(stones=[{"name": 1, "on": "A"}])],
        [9, graph(stones=[{"name": "a", "on": "A"}] * 2)],
        [9, graph(links=[["a", 0, "b", ""]])],
        [9, graph(links=[["a", 0, "a"]])],
        [9, graph(links=[[["a"], 0, "a", ""]])],
        [9, graph(links=None)],
        [9, graph(fallbacks=[])],
        [9, graph(fallbacks={"A": {"to": "A", "after": 1.0}})],
        [9, graph(fallbacks={"A": {"to": "B", "after": 1.0}})],
        [12, [AT, ["x"]]],
        [13, AT, ID, "", 0],
        [13, AT, ID, "s", -1],
        [14, AT, ID, "s", 0, 1, b"d" * 16, b"x"],
    ],
)
def test_fields_that_cannot_be_are_refused(fields: list[Any]) -> None:
    with pytest.raises(DeployError):
        m.unpack(msgpack.packb(fields))


@pytest.mark.parametrize(
    "fields",
    [
        [14, AT, ID, "s", 0, 2, b"d" * 16, b"x"],
        [14, AT, ID, "s", 1, 2, b"d" * 16, b"x"],
        [14, AT, ID, "s", 0, m.MOST_SNAPSHOT + 1, b"d" * 16, b"x" * m.PIECE],
        [14, AT, ID, "s", m.PIECE * 2, m.PIECE, b"d" * 16, b""],
        [14, AT, ID, "s", 0, 1, b"d", b"x"],
        [14, AT, ID, "s", 0, 1, b"x"],
        [4, AT, b"x"],
    ],
)
def test_piece_that_cannot_be_is_refused(fields: list[Any]) -> None:
    with pytest.raises(DeployError):
        m.unpack(apart(fields))


def test_piece_that_was_cut_off_is_refused() -> None:
    wire = apart([14, AT, ID, "s", 0, 3, b"d" * 16, b"xyz"])
    assert bytes(m.unpack(wire).part) == b"xyz"
    for end in range(len(wire)):
        with pytest.raises(DeployError):
            m.unpack(wire[:end])


@pytest.mark.parametrize(
    "wire",
    [
        b"\xc1\xff\xff\xff\xff" + b"\x91" * 5000,
        b"\x92\x09\x81\x90\x01",  # a map whose key is a list: unhashable in Python
        b"\x92\x09\xd6\xff\x00\x00\x00\x01",
        b"\x91" * 5000,
        b"\x91" * 600 + b"\x05",
        b"\x92\x0c\xdd\xff\xff\xff\xff",
        b"\x92\x09\xdf\xff\xff\xff\xff" + b"\xc0" * 2000,
        b"\x92\x0c\x92" + b"\xdb\xff\xff\xff\xff" * 2,
    ],
)
def test_bytes_made_to_hurt_cost_little(wire: bytes) -> None:
    tracemalloc.start()
    with pytest.raises(DeployError):
        m.unpack(wire)
    assert tracemalloc.get_traced_memory()[1] < 4 << 20
    tracemalloc.stop()


def test_message_that_is_too_large_is_refused() -> None:
    with pytest.raises(DeployError, match="expected at most 25165824 bytes"):
        m.unpack(b"\xc0" * ((24 << 20) + 1))
    with pytest.raises(DeployError, match="expected at most 25165824 bytes"):
        m.packed(b"x" * (25 << 20))


def test_message_of_too_many_values_is_refused() -> None:
    with pytest.raises(DeployError, match="a message: "):
        m.unpack(b"\x92\x09\xdd" + (7 << 20).to_bytes(4, "big") + b"\x90" * (7 << 20))


def test_ballots_are_ordered() -> None:
    low, high = m.Ballot(1, "B", ID), m.Ballot(2, "A", ID)
    assert NOBODY < low < low.above() < high < high.above()
