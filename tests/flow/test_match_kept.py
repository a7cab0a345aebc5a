"""What a match stone tells of itself, and what is there again after a restart or in another stone."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

import evflow as ev
from evflow.matching.columns.bulk import FilterColumns
from evflow.matching.model import Op
from tests.flow.alerts import Change, Flight, flight, found, graph, match, matching, submit


def test_a_picture_says_what_the_graph_subscribes() -> None:
    g = ev.Graph()
    alerts = g.source("events", Flight) >> match(["number > 1"], route=True)
    alerts[3] >> ev.Terminal(print)
    with g.run() as flow:
        submit(flow, flight(1))
        picture = flow.draw().svg
    assert "number &gt; 1" in picture
    # What satisfies nothing is dropped by intention, and is not trouble.
    assert "1 dropped" not in picture


def test_the_stone_tells_what_there_is_and_what_was_matched() -> None:
    with matching("number > 0", "number > 1") as (flow, _):
        submit(flow, flight(0), flight(1), flight(2))
        flow["alerts"].unsubscribe(1)
        told = flow.attributes("alerts")
        assert {name: told[name] for name in ("subscriptions", "matched", "matches")} == {
            "subscriptions": 1, "matched": 2, "matches": 3,
        }  # fmt: skip
        flow.attributes("alerts")["matches"] = "none of it"
        submit(flow, flight(1))
        assert flow.attributes("alerts")["matches"] == 1
        statistics = flow["alerts"].statistics()
    assert (statistics.engine, statistics.subscriptions, statistics.events) == ("reference", 1, 4)


def change_much(flow: ev.Flow) -> None:
    """Every kind of change, at a stone with subscriptions 0 to 3 of its own."""
    alerts = flow["alerts"]
    alerts.unsubscribe(0)
    alerts.subscribe("number == 10 or number == 11", id=0)
    alerts.unsubscribe(1)
    alerts.subscribe("number == 12 and (within(0, 0, 1) or within(50, 0, 1))", id=9)
    alerts.move(9, 5.0, 0.0, filter=1)
    alerts.move(3, 7.0, 0.0)
    flow["changes"].submit(Change.subscribe(10, "number == 13 and within(0, 0, 1)"))
    flow["changes"].submit(Change.move(10, 5.0, 0.0, 2.0))
    flow["changes"].submit(Change.move(10, 8.0, 0.0))
    columns = FilterColumns.from_arrays(name=["number"] * 2, op=Op.EQ, number=[14, 15])
    assert alerts.subscribe_many(columns).tolist() == [1, 4]
    flow.drain()


OWN = ("number == 0", "number == 1", "number == 2", "number == 3 and within(0, 0, 1)")
AFTER = {
    (2, 0): [2], (10, 0): [0], (11, 9): [0], (12, 0): [9], (12, 5): [9], (12, 50): [], (0, 0): [],
    (1, 0): [], (3, 0): [], (3, 7): [3], (13, 0): [], (13, 6): [10], (13, 9.5): [10], (13, 5.5): [],
    (14, 0): [1], (15, 0): [4],
}  # fmt: skip


def check_after(flow: ev.Flow, seen: list[Any]) -> None:
    for (number, x), ids in AFTER.items():
        submit(flow, flight(number, x=x))
        assert found(seen) == ([(number, ids)] if ids else []), (number, x)


def test_changes_are_there_again_after_a_restart_on_the_same_file(tmp_path: Path) -> None:
    path = tmp_path / "alerts.db"
    with matching(*OWN, path=path) as (flow, seen):
        assert not path.exists()
        change_much(flow)
        check_after(flow, seen)
    for _ in range(2):
        with matching(*OWN, path=path) as (flow, seen):
            check_after(flow, seen)
    # The graph has another subscription and one less; what was changed holds all the same.
    own = (*OWN[:3], "number == 99", "number == 98")
    with matching(*own, path=path) as (flow, seen):
        submit(flow, flight(99), flight(98), flight(15), flight(3, x=7), flight(10))
        assert found(seen) == [(99, [3]), (15, [4]), (10, [0])]


def test_a_file_that_does_not_fit_is_named(tmp_path: Path) -> None:
    path = tmp_path / "alerts.db"
    with matching(path=path) as (flow, _):
        flow["alerts"].subscribe("within(1, 2, 3)")
    with pytest.raises(ev.FlowError, match=r"do not fit: area .* has its space changed"):
        graph([], path=path, space="globe").run()
    path.write_bytes(b"something else")
    with pytest.raises(ev.FlowError, match=r"alerts\.db cannot be used"):
        graph([], path=path).run()


@pytest.mark.usefixtures("soon")
def test_what_cannot_be_kept_is_not_subscribed(tmp_path: Path) -> None:
    folder = tmp_path / "none"
    with pytest.raises(ev.FlowError, match="cannot be used"):
        graph([], path=folder / "alerts.db").run()
    folder.mkdir()
    with matching(path=folder / "alerts.db") as (flow, seen):
        shutil.rmtree(folder)
        with pytest.raises(ev.FlowError, match="cannot be used"):
            flow["alerts"].subscribe("number == 1")
        flow["changes"].submit(Change.subscribe(5, "number == 1"))
        with pytest.raises(ev.FlowError, match=r"alerts.db cannot be used"):
            flow.drain(timeout=0.3)
        folder.mkdir()
        flow.drain(timeout=20)
        submit(flow, flight(1))
        assert (found(seen), len(flow.dead_letters())) == ([(1, [5])], 0)


def test_another_match_stone_in_its_place_goes_on_with_what_was_changed(tmp_path: Path) -> None:
    with matching(*OWN, path=tmp_path / "alerts.db") as (flow, seen):
        change_much(flow)
        flow.replace("alerts", match(OWN, path=tmp_path / "alerts.db", others=0))
        submit(flow, flight(77))
        assert found(seen) == [(77, [])]
        flow.replace("alerts", match((*OWN, "number == 77"), path=tmp_path / "alerts.db"))
        submit(flow, flight(2))
        assert found(seen) == [(2, [2])]
        with pytest.raises(ev.FlowError, match="do not fit"):
            flow.replace("alerts", match(path=tmp_path / "alerts.db", space="globe"))
        check_after(flow, seen)


def test_without_a_file_another_match_stone_keeps_the_matcher_if_it_has_the_same() -> None:
    with matching("number == 1") as (flow, seen):
        flow["alerts"].subscribe("number == 2")
        flow.replace("alerts", match(["number == 1"], others=0))
        submit(flow, flight(2), flight(3))
        assert found(seen) == [(2, [1]), (3, [])]
        flow.replace("alerts", match(["number == 3"]))
        submit(flow, flight(2), flight(3))
        assert found(seen) == [(3, [0])]
