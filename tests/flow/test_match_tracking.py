"""A match stone that tracks: what things enter, stay inside and leave, while subscriptions change."""

from __future__ import annotations

import json
import logging
from pathlib import Path
from typing import Any

import msgpack
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import evflow as ev
from evflow.engine.snapshot import restore, take
from tests.examples import tried
from tests.flow.alerts import Change, Flight, Note, flight, graph, match, matching, submit
from tests.matching.test_tracking import Oracle


def told(seen: list[Any], *states: str) -> list[tuple[Any, ...]]:
    """Number and ids of each event that left, which are forgotten."""
    states = states or ("enter", "inside", "leave")
    rows = [(event.number, *(getattr(event, state).tolist() for state in states)) for event in seen]
    seen.clear()
    return rows


ID = st.integers(0, 4)
NUMBER = st.integers(0, 3)
STEP = st.one_of(
    st.tuples(st.just("events"), st.lists(st.tuples(NUMBER, st.integers(0, 6)), min_size=1, max_size=6)),
    st.tuples(st.sampled_from(["subscribe", "move"]), ID, st.integers(0, 6)),
    st.tuples(st.just("unsubscribe"), ID),
)


@settings(max_examples=tried(15), deadline=None)
@given(st.lists(STEP, max_size=12), st.sampled_from([2, 100]))
def test_changes_between_events_are_tracked(steps: list[tuple[Any, ...]], limit: int) -> None:
    oracle, areas = Oracle(limit), {}
    with matching(track="number", track_limit=limit, others=0) as (flow, seen):
        for step in steps:
            match step:
                case ("events", moves):
                    flow["events"].submit_batch([flight(number, x=float(x)) for number, x in moves])
                    lists = [[id for id, at in areas.items() if abs(x - at) <= 1] for _, x in moves]
                    numbers = [number for number, _ in moves]
                    expected = oracle.track(numbers, lists)
                    flow.drain()
                    assert told(seen) == [(n, *row) for n, row in zip(numbers, expected, strict=True)]
                case ("subscribe", id, x):
                    # It takes the place of what has the id.
                    flow["changes"].submit(Change.subscribe(id, f"within({x}, 0, 1)"))
                    oracle.end([id])
                    areas[id] = x
                case ("move", id, x) if id in areas:
                    flow["alerts"].move(id, x, 0)
                    areas[id] = x
                case ("unsubscribe", id) if id in areas:
                    flow["alerts"].unsubscribe(id)
                    oracle.end([id])
                    del areas[id]
            flow.drain()
        attributes = flow.attributes("alerts")
    assert (attributes["tracked"], attributes["forgotten"]) == (len(oracle.known), oracle.forgotten)


def test_only_what_is_asked_for_is_told() -> None:
    area = "within(0, 0, 1)"
    with matching(area, track="number", track_states=("leave", "enter")) as (flow, seen):
        submit(flow, *(flight(1, x=x) for x in (5, 0, 0, 5, 5)))
        assert [(event.x, event.enter.tolist(), event.leave.tolist()) for event in seen] == [
            (0, [0], []), (5, [], [0]),
        ]  # fmt: skip
        assert [field.name for field in seen[0].schema][-2:] == ["enter", "leave"]
        stats = flow.stats()["alerts"]
    assert (stats["in"], stats["out"], stats["dropped"], stats["errors"]) == (5, 2, 3, 0)


CAME = [("A", 0), ("B", 0), ("A", 9), ("A", 9), ("A", 0), ("A", 0)]


def test_events_of_a_key_in_one_batch_follow_each_other_and_one_that_comes_again_is_inside() -> None:
    with matching("within(0, 0, 1)", track="carrier") as (flow, seen):
        events = [flight(n, carrier, x=float(x)) for n, (carrier, x) in enumerate(CAME)]
        flow["events"].submit_batch(events)
        flow.drain()
        assert told(seen) == [
            (0, [0], [], []), (1, [0], [], []), (2, [], [], [0]), (4, [0], [], []), (5, [], [0], []),
        ]  # fmt: skip


@pytest.mark.parametrize("route", [False, True])
def test_events_without_a_key_are_dead_letters_with_the_reason(route: bool) -> None:
    with matching("number > 0", track="carrier", route=route) as (flow, seen):
        submit(flow, Note("a", 1), flight(2), Note("b", 3))
        assert told(seen) == [(2, [0], [], [])]
        assert [(letter.event.words, letter.reason) for letter in flow.dead_letters()] == [
            (words, "the event has no carrier, which track= names") for words in "ab"
        ]
        flow["events"].submit(Note("c", 4), attrs={"carrier": "LH"})
        flow.drain()
        assert told(seen) == [(4, [0], [], [])]
    with matching("number > 0", track="word", attributes=["word"]) as (flow, seen):
        submit(flow, Note("a", 1))
        assert flow.dead_letters()[0].reason.endswith("(did you mean 'words'?)")
    with matching("number > 0", track="words") as (flow, seen):
        submit(flow, Note("a" * 257, 1))
        assert flow.dead_letters()[0].reason == (
            "words, which track= names: expected at most 256 bytes of text, or a number of 64 bits"
        )


def test_each_port_gets_the_ids_of_its_subscriptions() -> None:
    g = ev.Graph()
    ends: dict[int, list[Any]] = {0: [], 3: [], 7: []}
    wanted = [
        {"subscription": "within(0, 0, 1)", "port": 3},
        {"subscription": "within(0, 0, 2)", "port": 3},
        "within(0, 0, 3)",
    ]
    alerts = g.source("events", Flight) >> match(wanted, route=True, track="number", others=7)
    for port, end in ends.items():
        alerts[port] >> ev.Terminal(lambda event, end=end: end.append(event.to_event()))
    with g.run() as flow:
        flow["events"].submit_batch(
            [flight(n, x=float(x)) for n, x in [(1, 0), (2, 3), (1, 2), (1, 9), (1, 9)]]
        )
        flow.drain()
    assert told(ends[0]) == [(1, [2], [], []), (2, [2], [], []), (1, [], [2], []), (1, [], [], [2])]
    assert told(ends[3]) == [(1, [0, 1], [], []), (1, [], [1], [0]), (1, [], [], [1])]
    assert [(event.number, event.schema.name) for event in ends[7]] == [(1, "Flight")]


def test_fields_of_other_names_stand_behind_one_of_your_own() -> None:
    class Door(ev.Event):
        number: int
        enter: int

    g = ev.Graph()
    g.source("events", Door) >> match(["number > 0"], track="number") >> ev.Terminal(print)
    with pytest.raises(
        ev.GraphError, match="events of Door have a field 'enter' already; give the ids another"
    ):
        g.check()
    seen: list[Any] = []
    g = ev.Graph()
    alerts = g.source("events") >> match(["number > 0"], track="number", field="zone")
    alerts >> ev.Terminal(lambda event: seen.append((event.enter, event.zone_enter.tolist())))
    with g.run() as flow:
        flow["events"].submit(Door(1, 5))
    assert seen == [(5, [0])]
    # What cannot leave is not tracked either.
    with graph([], "number > 0", track="number").run() as flow:
        flow["events"].submit(Note("a", 1))
        flow.drain()
        assert flow.attributes("alerts")["tracked"] == 1


def test_keys_beyond_the_limit_are_forgotten_and_told_once(caplog: pytest.LogCaptureFixture) -> None:
    with (
        caplog.at_level(logging.WARNING, "evflow.matching"),
        matching("within(0, 0, 1)", track="number", track_limit=2) as (flow, seen),
    ):
        submit(flow, flight(1), flight(2), flight(1), flight(3), flight(4))
        submit(flow, flight(1, x=9), flight(4))
        assert told(seen)[2:] == [(1, [], [0], []), (3, [0], [], []), (4, [0], [], []), (4, [], [0], [])]
        assert flow.attributes("alerts")["forgotten"] == 3
    (record,) = [record for record in caplog.records if record.name == "evflow.matching"]
    assert "match alerts: there are more than 2 different number; those seen" in record.getMessage()


@pytest.mark.parametrize(
    ("given_settings", "words"),
    [
        ({"track": 3}, "track 3: expected the name of an attribute"),
        ({"track": ""}, "track '': expected the name"),
        ({"track_states": "enter"}, "track_states 'enter': expected a list of some of enter, inside, leave"),
        ({"track_states": ()}, r"track_states \(\)"),
        ({"track_states": 5}, "track_states 5: expected a list"),
        ({"track_states": [["enter"]]}, r"track_states \[\['enter'\]\]"),
        ({"track_states": ["exit"]}, r"track_states \['exit'\]"),
        ({"track_limit": 0}, "track_limit 0"),
        ({"track_limit": 1 << 31}, "track_limit 2147483648: expected at most 1073741824"),
    ],
)
def test_a_wrong_setting_is_refused_at_once(given_settings: dict[str, Any], words: str) -> None:
    with pytest.raises(ev.GraphError, match=f"match alerts: {words}"):
        match(**given_settings)


def test_the_graph_travels_as_data() -> None:
    stone = match(["a > 1"], track="icao24", track_states=("leave", "enter"), track_limit=7)
    g = ev.Graph()
    g.source("events", Flight) >> stone >> ev.Terminal("builtins:print")
    data = g.to_dict()
    copied = ev.Graph.from_dict(json.loads(json.dumps(data)))
    assert copied.to_dict() == data
    assert copied.stones["alerts"].track_states == ("enter", "leave")  # type: ignore[attr-defined]


AREA = "within(0, 0, 1)"


def test_another_stone_in_its_place_goes_on_if_it_tracks_the_same() -> None:
    with matching(AREA, track="number") as (flow, seen):
        submit(flow, flight(1))
        flow.replace("alerts", match([AREA], track="number", track_states=("inside", "leave")))
        submit(flow, flight(1), flight(1, x=9))
        assert told(seen[1:], "inside", "leave") == [(1, [0], []), (1, [], [0])]
        seen.clear()
        for changed in ({"track": "carrier"}, {"track": "carrier", "track_limit": 9}):
            flow.replace("alerts", match([AREA], **changed))
            submit(flow, flight(1), flight(1))
            assert told(seen) == [(1, [0], [], []), (1, [], [0], [])]
        flow.replace("alerts", match([AREA]))
        submit(flow, flight(1))
        assert seen[0].subscriptions.tolist() == [0]


@pytest.mark.parametrize("kept", [False, True])
def test_a_snapshot_has_what_was_tracked(kept: bool, tmp_path: Path) -> None:
    def stone(name: str, **changed: Any) -> dict[str, Any]:
        path = {"path": tmp_path / name} if kept else {}
        return {"track": "number", **path, **changed}

    with matching(AREA, **stone("a")) as (flow, seen):
        if kept:
            flow["alerts"].subscribe("x < 5", id=7)
        submit(flow, flight(1), flight(2))
        snapshot = flow.call(lambda: take(flow.engine, flow.engine.topology.slots["alerts"]))
    more = [7] if kept else []
    with matching(AREA, **stone("b")) as (flow, seen):
        flow.call(lambda: restore(flow.engine, flow.engine.topology.slots["alerts"], snapshot))
        submit(flow, flight(1), flight(2, x=9), flight(3))
        assert told(seen) == [(1, [], [0, *more], []), (2, [], [], [0, *more]), (3, [0, *more], [], [])]
    # It tracks something else, or the ids may be others.
    for own, changed in ((AREA, {"track": "carrier"}), ("number > 0", {})):
        with matching(own, **stone("c", **changed)) as (flow, seen):
            flow.call(lambda: restore(flow.engine, flow.engine.topology.slots["alerts"], snapshot))
            submit(flow, flight(1))
            assert told(seen) == [(1, [0, *more], [], [])]


@pytest.mark.parametrize(
    "state",
    [b"", b"\xc1", msgpack.packb([None]), msgpack.packb([1, "", b""]), msgpack.packb([None, b"", b""]), None],
)
def test_a_snapshot_that_is_malformed_changes_nothing(state: bytes | None) -> None:
    with matching(AREA, track="number") as (flow, seen):
        slot = flow.engine.topology.slots["alerts"]
        submit(flow, flight(1))
        snapshot = flow.call(lambda: take(flow.engine, slot))
        content = msgpack.unpackb(snapshot[4:])
        if state is None:
            before, tracking, _ = msgpack.unpackb(content["state"])
            state = msgpack.packb([before, tracking, b"\xc1"])
        content["state"] = state
        packed = msgpack.packb(content)
        with pytest.raises(ev.FlowError, match="malformed"):
            flow.call(lambda: restore(flow.engine, slot, len(packed).to_bytes(4, "big") + packed))
        submit(flow, flight(1))
        assert told(seen)[1:] == [(1, [], [0], [])]
