"""How a match stone treats events, and where its own subscriptions come from."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import evflow as ev
from evflow.matching.matcher import Matcher
from evflow.matching.model import Constraint, Filter
from tests.flow.alerts import Flight, Note, flight, found, graph, match, matching, submit


def test_events_leave_with_the_ids_that_they_satisfy() -> None:
    with matching("delay > 45", "carrier == 'UA' and within(0, 0, 2)", "carrier == 'XX'") as (flow, seen):
        submit(flow, flight(1, delay=50), flight(2, delay=50, x=9), flight(3, "AA", 3), flight(4, "UA", 1, 2))
        assert found(seen) == [(1, [0, 1]), (2, [0]), (4, [1])]
        stats = flow.stats()["alerts"]
    assert (stats["in"], stats["out"], stats["dropped"], stats["errors"]) == (4, 3, 1, 0)


def test_events_of_other_schemas_satisfy_what_they_have_attributes_for() -> None:
    with matching("exists words", "delay > 0", "number == 7") as (flow, seen):
        submit(flow, Note("hello", 7), flight(7), Note("", 1), flight(8, delay=1))
        assert [event.schema.name for event in seen] == ["Note_matched", "Flight_matched"] * 2
        assert found(seen) == [(7, [0, 2]), (7, [2]), (1, [0]), (8, [1])]


def test_fields_and_attributes_go_along_with_the_ids() -> None:
    g, seen = ev.Graph(), []
    alerts = g.source("events", Note) >> match(["number > 1"])
    alerts >> ev.Terminal(lambda event: seen.append((event.to_dict(), dict(event.attrs))))
    with g.run() as flow:
        flow["events"].submit(Note("no", 1), attrs={"k": 1})
        flow["events"].submit(Note("yes", 2), attrs={"k": 2})
    assert [(f["words"], f["number"], f["subscriptions"].tolist(), a) for f, a in seen] == [
        ("yes", 2, [0], {"k": 2})
    ]


@pytest.mark.parametrize("engine", [pytest.param("reference", marks=pytest.mark.slow), "index"])
def test_a_large_batch_behind_a_filter_matches_as_single_events_do(engine: str) -> None:
    pytest.importorskip("numba") if engine == "index" else None
    numbers = np.arange(2_000)
    seen: list[tuple[int, list[int]]] = []
    g = ev.Graph()
    odd = g.source("events", Flight) >> ev.Filter("input.number % 2 == 1")
    alerts = odd >> match(["number < 100", "number > 1900", "number >= 0 and carrier == 'AA'"], engine=engine)
    alerts >> ev.Terminal(lambda e: seen.append((e.number, sorted(e.subscriptions.tolist()))))
    with g.run() as flow:
        carriers = np.where(numbers % 1000 == 1, "AA", "UA").tolist()
        flow["events"].submit_batch({"number": numbers, "carrier": carriers, "delay": numbers * 0.0})
    expected = []
    for n in range(1, 2_000, 2):
        ids = [0] * (n < 100) + [1] * (n > 1900) + [2] * (n % 1000 == 1)
        expected += [(n, ids)] if ids else []
    assert seen == expected


def test_events_without_a_match_go_where_they_are_told() -> None:
    with matching("number == 1", others=0) as (flow, seen):
        submit(flow, flight(1), flight(2))
        assert found(seen) == [(1, [0]), (2, [])]
    g, left, rest = ev.Graph(), [], []
    alerts = g.source("events", Flight) >> match(["number == 1"], others=3)
    alerts >> ev.Terminal(lambda event: left.append(event.schema.name))
    alerts[3] >> ev.Terminal(lambda event: rest.append(event.schema.name))
    with g.run() as flow:
        submit(flow, flight(1), flight(2))
    assert (left, rest) == (["Flight_matched"], ["Flight"])


def test_a_routed_event_leaves_once_by_each_port_of_its_subscriptions() -> None:
    g = ev.Graph()
    ends: dict[int, list[int]] = {0: [], 2: [], 5: []}
    given = [
        {"subscription": "number < 10", "port": 2},
        {"subscription": "number < 5", "port": 2},
        {"subscription": "number == 3"},
        {"subscription": "number == 4", "port": 7},
    ]
    alerts = g.source("events", Flight) >> match(given, route=True, others=5)
    for port, end in ends.items():
        alerts[port] >> ev.Terminal(lambda event, end=end: end.append(event.number))
    with g.run() as flow:
        flow["events"].submit_batch([flight(n) for n in (3, 4, 8, 40)])
        flow.drain()
        stats = flow.stats()["alerts"]
    assert ends == {0: [3], 2: [3, 4, 8], 5: [40]}
    # What left by the port that leads nowhere.
    assert (stats["in"], stats["out"], stats["dropped"]) == (4, 5, 1)


def test_ids_may_have_a_field_of_another_name() -> None:
    class Taken(ev.Event):
        subscriptions: int

    g = ev.Graph()
    g.source("events", Taken) >> match(["subscriptions > 1"]) >> ev.Terminal(print)
    with pytest.raises(ev.GraphError, match="alerts: events of Taken have a field 'subscriptions' already"):
        g.check()
    g, seen = ev.Graph(), []
    alerts = g.source("events", Taken) >> match(["subscriptions > 1"], field="ids")
    alerts >> ev.Terminal(lambda event: seen.append(event.ids.tolist()))
    with g.run() as flow:
        flow["events"].submit(Taken(2))
    assert seen == [[0]]


def test_events_that_nobody_declared_fail_alone_where_they_have_the_field() -> None:
    g, seen = ev.Graph(), []
    alerts = g.source("events") >> match(["subscriptions > 1 or number > 0"])
    alerts >> ev.Terminal(lambda event: seen.append(event.number))
    with g.run() as flow:
        flow["events"].submit(ev.Schema("Taken", {"subscriptions": int})(subscriptions=2))
        flow["events"].submit(flight(1))
        flow.drain()
        (letter,) = flow.dead_letters()
    assert seen == [1]
    assert "have a field 'subscriptions' already" in letter.reason


def test_subscriptions_come_from_a_file_of_lines(tmp_path: Path) -> None:
    file = tmp_path / "wanted.txt"
    lines = ["# mine", "number == 1", "", "7: number == 2", "@3: number == 3", "8@4 : number == 4"]
    file.write_text("\n".join([*lines, json.dumps({"subscription": "number == 5", "id": 0})]))
    with matching("number == 6", file=file) as (flow, seen):
        submit(flow, *(flight(n) for n in range(1, 7)))
        assert found(seen) == [(1, [2]), (2, [7]), (3, [3]), (4, [8]), (5, [0]), (6, [1])]


def test_a_file_is_read_once_unless_it_changes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    reads: list[Path] = []
    read = Path.read_text
    monkeypatch.setattr(Path, "read_text", lambda path, *given: reads.append(path) or read(path, *given))
    file = tmp_path / "wanted.txt"
    file.write_text("number == 1\n")
    g = graph([], file=file, lookup=True)
    g.check()
    with g.run() as flow:
        assert flow["alerts"].find(like="number == 1").tolist() == [0]
    assert reads.count(file) == 1
    g.check()
    file.write_text("number == 2 or number == 22\n")
    with g.run() as flow:
        assert flow["alerts"].find(like="number == 2 or number == 22").tolist() == [0]
    assert reads.count(file) == 3


def test_subscriptions_come_from_a_saved_matcher(tmp_path: Path) -> None:
    matcher = Matcher("reference", location=("number", "delay"))
    matcher.subscribe_many(["carrier == 'UA'", "within(3, 0, 1)"], ids=[4, 1])
    matcher.save(tmp_path / "saved")
    with matching(file=tmp_path / "saved", route=True) as (flow, seen):
        submit(flow, flight(9), flight(3, "AA"))
        assert [event.number for event in seen] == [9, 3]
    with matching("number == 9", file=tmp_path / "saved") as (flow, seen):
        submit(flow, flight(9), flight(3, "AA"))
        assert found(seen) == [(9, [0, 4]), (3, [1])]
    g = graph([], file=tmp_path / "saved", space="globe")
    with pytest.raises(ev.SubscriptionError, match="areas are on the plane"):
        g.run()


def test_wrong_subscriptions_are_found_when_the_graph_is_checked(tmp_path: Path) -> None:
    file = tmp_path / "wanted.txt"
    cases: list[tuple[tuple[Any, ...], dict[str, Any], str]] = [
        (
            ("number == 1", "number =>"),
            {},
            r"(?s)'alerts' \(match\): subscriptions: number 1: .*line 1, column 9",
        ),
        (("within(1, 2, 3 km)",), {}, "globe"),
        (
            ({"subscription": "number > 1", "id": 3}, {"subscription": "number > 1", "id": 3}),
            {},
            "number 1: id 3 is in use",
        ),
        (({"subscription": "number > 1", "id": 3},), {"limit": 3}, "id 3: expected 0 to 2; see limit"),
        (("number > 1",) * 4, {"limit": 3}, "4 subscriptions: expected at most 3"),
        ((), {"file": file}, "(?s)wanted.txt, line 2: .*column 4"),
        ((), {"file": tmp_path / "none"}, "subscriptions of .*none cannot be read"),
        ((), {"location": ("x", "x")}, "location"),
        ((), {"wings": 2}, "wings"),
    ]
    file.write_text("number == 1\na >")
    for given, settings, words in cases:
        with pytest.raises(ev.SubscriptionError, match=words):
            graph([], *given, **settings).check()


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"engine": "magic"}, "engine 'magic': expected one of index, reference"),
        ({"threads": 0}, "threads 0"),
        ({"threads": 100_000}, "threads 100000: expected at most 256"),
        ({"limit": 0}, "limit 0"),
        ({"others": -1}, "others -1"),
        ({"field": "no field"}, "no field"),
        ({"file": 3}, "file 3"),
        ({"path": 3}, "path 3"),
        ({"location": "xy"}, "location 'xy'"),
    ],
)
def test_a_wrong_setting_is_refused_at_once(settings: dict[str, Any], words: str) -> None:
    with pytest.raises(ev.GraphError, match=f"match alerts: {words}|match alerts: field"):
        match(**settings)
    for given in ("number == 1", [3], [{"text": "a > 1"}], [{"subscription": "a > 1", "id": -1}]):
        with pytest.raises(ev.SubscriptionError, match="match alerts: subscriptions"):
            match(given)


def test_the_graph_travels_as_data() -> None:
    settings = {"route": True, "others": 4, "threads": 2, "limit": 50, "location": ("a", "b"), "path": "kept"}
    g = ev.Graph()
    stone = match([Filter([Constraint("number", "==", 1)]), {"subscription": "a > 1", "port": 3}], **settings)
    g.source("events", Flight) >> stone >> ev.Terminal("builtins:print")
    data = g.to_dict()
    copied = ev.Graph.from_dict(json.loads(json.dumps(data)))
    assert copied.to_dict() == data
    assert [one.text for one in copied.stones["alerts"].given] == ["number == 1", "a > 1"]  # type: ignore[attr-defined]
