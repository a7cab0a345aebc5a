"""What subscriptions ask for that no event has: refused in a graph, told once in the log while it runs."""

from __future__ import annotations

from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

import evflow as ev
from tests.flow.alerts import Change, Flight, match, matching, submit


class Point(ev.Event):
    x: float
    label: str


State = ev.Enum["open", "shut"]


class Ship(ev.Event):
    name: str
    tons: int
    at: Point
    maybe: Point | None
    flags: list[int]
    price: ev.Decimal[8, 2]
    seen: ev.Timestamp
    state: State
    raw: bytes
    big: bool


def refused(*subscriptions: Any, schemas: tuple[Any, ...] = (Ship,), **settings: Any) -> str:
    """What is wrong with a graph; "" if nothing is."""
    g = ev.Graph()
    g.source("events", *schemas) >> match(subscriptions, **settings) >> ev.Terminal(print)
    try:
        g.check()
    except ev.EvflowError as error:
        return str(error)
    return ""


@pytest.mark.parametrize(
    "text",
    [
        "name == 'a' and tons > 3 and big == true",
        "at.x > 1 and at.label startswith 'a' and exists at",
        "maybe.x > 1 and exists flags and exists raw and not exists maybe",
        "price > 1.5 and seen > 3 and state == nocase 'OPEN'",
        "tons > at.x and name == at.label and seen < price",
        "number == 3 or carrier == 'UA' or words contains 'a'",
    ],
)
def test_what_some_event_may_have_is_taken(text: str) -> None:
    assert (
        refused(text, schemas=(Ship, ev.Schema("More", {"number": int, "carrier": str, "words": str}))) == ""
    )


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("tonns > 3", "Ship has no tonns (did you mean 'tons'?)"),
        ("not exists nam", "Ship has no nam (did you mean 'name'?)"),
        ("at.labl == 'a'", "Ship has no at.labl (did you mean 'at.label'?)"),
        ("at.x.y > 1", "Ship has no at.x.y"),
        ("tons > weight", "Ship has no weight"),
        ("`a b` > 1", "Ship has no `a b`; name what events carry beside their fields in attributes=['a b']"),
        ("name > 3", "expected a number, found name of Ship, str"),
        ("tons == '3'", "expected a string, found tons of Ship, i64"),
        ("price == '3'", "expected a string, found price of Ship, decimal(8,2)"),
        ("state == 1", "expected a number, found state of Ship"),
        ("seen contains '1'", "expected a string, found seen of Ship"),
        ("flags == 1", "expected a number, found flags of Ship"),
        ("raw == 'a'", "expected a string, found raw of Ship"),
        ("tons == name", "do not compare: tons of Ship, i64 and name of Ship, str"),
        ("raw == raw", "do not compare"),
        ("within(1, 2, 3)", "Ship has no x"),
        ("inside(1, 2, 3, 4)", "Ship has no x"),
        ("inside(1, 2, 3, 4) and tons > 3 or tons < 2", "Ship has no y"),
    ],
)
def test_what_no_event_has_is_refused_with_the_graph(text: str, said: str) -> None:
    told = refused("tons > 3", f"tons > 4 or {text}")
    assert told.startswith("stone 'alerts' (match): subscriptions: number 1: ")
    assert said in told


def test_all_that_is_wrong_is_told_and_where(tmp_path: Path) -> None:
    file = tmp_path / "subscriptions"
    file.write_text("tons > 3\n7: tonns > 3\nnam > 'a' and tonns > 4\n")
    told = refused(file=file).splitlines()
    assert [line.partition(" has no")[0].rpartition("subscriptions")[2] for line in told] == [
        ", line 2: Ship",
        ", line 3: Ship",
    ]
    assert refused(*(f"n{number} > 1" for number in range(12))).endswith("\nand 2 more")


def test_names_beside_the_fields_are_told_to_the_stone() -> None:
    assert refused("hops > 1 and from == 'b' and hops == tons", attributes=["hops", "from"]) == ""
    assert "Ship has no hop (did you mean 'hops'?)" in refused("hop > 1", attributes=["hops"])
    assert refused("within(1, 2, 3)", attributes=["x", "y"]) == ""
    assert refused("within(1, 2, 3)", location=("tons", "at.x")) == ""
    assert "expected a number, found name of Ship" in refused("within(1, 2, 3)", location=("tons", "name"))
    stone = match(["hops > 1"], attributes=["hops"])
    assert ev.Match.from_settings(stone.settings()).settings() == stone.settings()
    with pytest.raises(ev.GraphError, match="attributes 'hops': expected a list of names"):
        match(attributes="hops")
    with pytest.raises(ev.GraphError, match="attributes: 3: expected the name of an attribute"):
        match(attributes=[3])


def test_of_events_that_nothing_is_known_of_nothing_is_refused() -> None:
    assert refused("tonns > 3", schemas=()) == ""


def test_what_comes_while_the_stone_runs_is_taken_and_told_once(caplog: pytest.LogCaptureFixture) -> None:
    with matching("delay > 45", attributes=["hops"]) as (flow, seen):
        first = flow["alerts"].subscribe("dlay > 45 or hops > 3 or exists words")
        flow["alerts"].subscribe_many(["dlay > 50", "carrier == 3"])
        submit(flow, Change.subscribe(9, "delay == 'x' and carrier == 3"), to="changes")
        flow["events"].submit(Flight(1, "UA", 50.0), attrs={"gate": "B"})
        flow.drain()
        flow["alerts"].subscribe("gate == 'B'")
        assert len(seen) == 1
    told = [record.getMessage() for record in caplog.records if record.name == "evflow.matching"]
    asks = "match alerts: subscription {} asks for what no event has so far: "
    assert [line.partition(";")[0].partition(" of ")[0] for line in told] == [
        asks.format(first) + "Flight, Note have no dlay (did you mean 'delay'?)",
        asks.format(3) + "expected a number, found carrier",
        asks.format(9) + "expected a string, found delay",
    ]


def test_events_of_unknown_schemas_tell_what_there_is(caplog: pytest.LogCaptureFixture) -> None:
    g = ev.Graph()
    g.source("events") >> match(["dlay > 45", "delay > 45"]) >> ev.Terminal(print)
    with g.run() as flow:
        assert not caplog.records
        submit(flow, Flight(1, "UA", 5.0), Flight(2, "UA", 5.0))
    (told,) = [record.getMessage() for record in caplog.records if record.name == "evflow.matching"]
    assert "subscription 0 asks for what no event has so far: Flight has no dlay" in told


def test_values_are_of_the_kinds_that_types_promise() -> None:
    point = Point(1.0, "a")
    ship = Ship(
        "a", 1, point, None, [1], Decimal("2.50"), datetime(2020, 1, 1, tzinfo=UTC), "open", b"a", True
    )
    texts = ["price == 2.5", "seen > 1e9", "state == 'open'", "big == 1", "at.x == 1 and at.label == 'a'"]
    g, found = ev.Graph(), list[Any]()
    g.source("events", Ship) >> match(texts) >> ev.Terminal(lambda e: found.append(e.subscriptions.tolist()))
    with g.run() as flow:
        submit(flow, ship)
    assert found == [[0, 1, 2, 3, 4]]


def test_a_key_that_no_event_has_or_that_is_not_one_is_refused() -> None:
    assert refused(track="name") == refused(track="at.x") == refused(track="call", attributes=["call"]) == ""
    assert "track: Ship has no nane (did you mean 'name'?)" in refused(track="nane")
    assert "track: expected a number or a string, found flags of Ship" in refused(track="flags")
