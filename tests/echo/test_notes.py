"""What comes from other processes and is wrong costs nothing: it is refused, and counted."""

from __future__ import annotations

import contextlib
import random
from collections.abc import Callable
from typing import Any

import msgpack
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

import evflow as ev
from evflow import echo
from evflow.echo.membership import Membership
from evflow.echo.notes import TOPIC, Absent, Entry, Find, Here, Known, Refused, State, pack, unpack
from evflow.echo.record import ChannelContact, Derivation, Record, morph_from, packed_morph
from tests.examples import tried
from tests.node.processes import wait_for


class Trade(ev.Event):
    symbol: ev.Str[8]
    size: int


TRADE = ev.Schema.of(Trade)
RECORD = Record("trades", "ada", "00000000", (TRADE,))
RECORD_DATA = msgpack.unpackb(msgpack.packb(RECORD.packed()))
ENTRY = Entry("bob", "tcp://127.0.0.1:7", 1, 1, 2)


def derived(code: str = "input.size > 1", **more: Any) -> Record:
    values = {"kind": "filter", "input": None, "output": None, "fuel": 100} | more
    return Record("big", "bob", "11111111", (TRADE,), derivation=Derivation(RECORD.key, code=code, **values))


def state(**more: Any) -> State:
    values = {
        "key": RECORD.key, "want": True, "own": ENTRY, "applied": (1, 2), "digest": bytes(16),
        "children": ["x"], "record": RECORD_DATA, "known": Known([(ENTRY, 5)], []),
    }  # fmt: skip
    return State(**(values | more))


def test_messages_come_as_they_were_sent() -> None:
    messages = [Find("trades"), Here("trades", RECORD.key), Absent("x", "why"), Refused("x", "why"), state()]
    (body,) = pack(messages)
    assert unpack(body) == messages


def test_many_messages_become_several_notes() -> None:
    messages = [state(key=f"{n}") for n in range(1000)]
    bodies = list(pack(messages))
    assert len(bodies) > 1
    assert [message for body in bodies for message in unpack(body)] == messages


@pytest.mark.parametrize(
    "record",
    [RECORD, derived(), derived(kind="transform", code="output.size = 1; return 1;", output=TRADE)],
)
def test_records_come_as_they_were_sent(record: Record) -> None:
    assert Record.unpacked(msgpack.unpackb(msgpack.packb(record.packed()))) == record


@settings(max_examples=tried(90), deadline=None)
@given(st.binary(max_size=200))
def test_bytes_are_messages_or_refused(data: bytes) -> None:
    try:
        unpack(data)
    except ev.LinkError:
        return


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-1, 1 << 60) | st.text(max_size=5) | st.binary(max_size=20),
    lambda inner: st.lists(inner, max_size=5),
    max_leaves=10,
)


def _places(value: Any, path: tuple[int, ...] = ()) -> list[tuple[int, ...]]:
    if not isinstance(value, list):
        return [path]
    return [path, *(place for i, part in enumerate(value) for place in _places(part, (*path, i)))]


@settings(max_examples=tried(150), deadline=None)
@given(st.randoms(use_true_random=False), VALUES)
def test_a_message_with_a_wrong_value_is_refused_or_harmless(random: random.Random, value: Any) -> None:
    membership = Membership("ada", "", 5)
    membership.add(RECORD, 0.0)
    original = random.choice([state(), state(key=derived().key, record=derived().packed()), state(own=None)])
    (body,) = pack([original])
    rows = msgpack.unpackb(body)
    place = random.choice(_places(rows)[1:])
    at = rows
    for index in place[:-1]:
        at = at[index]
    at[place[-1]] = value
    with contextlib.suppress(ev.LinkError):
        membership.receive("bob", unpack(msgpack.packb(rows)), 1.0)
    membership.tick(2.0)
    for _, body in membership.outgoing():
        unpack(body)


WRONG: list[tuple[Callable[[], Any], str]] = [
    (lambda: state(own=ENTRY._replace(process="eve")), "it speaks for 'eve'"),
    (lambda: state(key="other"), "is said to be"),
    (lambda: state(key=derived("input.sise").key, record=derived("input.sise").packed()), "sise"),
    (lambda: _with(derived(), 7, 5, 1 << 40), "fuel cannot be"),
    (lambda: _with(derived(), 7, 1, "queue"), "kind cannot be 'queue'"),
    (lambda: _with(derived(), 7, 2, "1" * 70_000), "code cannot be"),
    (lambda: _with(derived(), 3, None, ["{"]), "schema of a channel"),
    (lambda: state(known=Known([], [["{}", "{}", "1"]])), "the schema of a channel"),
]


def _with(record: Record, at: int, inner: int | None, value: Any) -> State:
    packed = record.packed()
    if inner is None:
        packed[at] = value
    else:
        packed[at][inner] = value
    return state(key=record.key, record=packed)


@pytest.mark.parametrize(("make", "why"), WRONG)
def test_what_is_wrong_is_said(make: Callable[[], State], why: str) -> None:
    membership = Membership("ada", "", 5)
    membership.add(RECORD, 0.0)
    with pytest.raises(ev.LinkError, match=why):
        membership.receive("bob", [replace(make(), want=False)], 1.0)
    assert membership.refused["malformed"] == 1
    assert membership.rosters.keys() == {RECORD.key}


def test_a_process_refuses_hostile_notes_and_goes_on() -> None:
    seen: list[int] = []
    with echo.Process("desk") as desk, echo.Process("office") as office:
        trades = desk.create("trades", Trade)
        there = office.open(trades.contact)
        there.subscribe(lambda trade: seen.append(trade.size))
        links = office.flow.links
        assert links is not None
        bad = Record(
            "bad",
            "office",
            "22222222",
            (TRADE,),
            derivation=Derivation(trades.key, "filter", "input.x", None, None, 9),
        )
        hostile = state(key=bad.key, record=bad.packed(), own=ENTRY._replace(process="office"))
        for body in [b"\xc1", b"\x91\x91\x09", *pack([hostile]), *pack([state()])]:
            office.flow.call(lambda: links.tell("desk", TOPIC, body))  # noqa: B023
        wait_for(lambda: desk.refused.get("malformed", 0) >= 4, "all are refused")
        assert desk.channels().keys() == {trades.key}
        trades.publish(Trade("A", 1))
        desk.drain(timeout=10)
        assert seen == [1]


def test_a_function_that_loops_is_ended() -> None:
    with echo.Process("desk") as desk, echo.Process("office") as office:
        trades = desk.create("trades", Trade)
        loop = ev.Filter("while (1) { } return 1;", fuel=10_000)
        big = office.open(trades.contact).derive("loop", loop)
        trades.publish(Trade("A", 1))
        desk.drain(timeout=10)
        assert len(desk.flow.dead_letters()) == 1
        with pytest.raises(ev.LinkError, match="fuel cannot be"):
            big.derive("longer", ev.Filter("1", fuel=1 << 40))


def test_morphs_come_as_they_were_sent() -> None:
    graph = ev.Graph()
    graph.morph(Trade, Trade, "output.size = 1; return 1;")
    assert morph_from(packed_morph(graph.morphs[0])) == graph.morphs[0]


def test_contacts_come_as_they_were_said() -> None:
    for contact in (
        ChannelContact("tcp://10.0.0.1:7000", "desk", "trades"),
        ChannelContact("ipc:///run/desk", "a/b", "c d@é#0"),
    ):
        assert ChannelContact.parse(str(contact)) == contact
