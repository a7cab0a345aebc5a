"""Changes of subscriptions at a match stone, by call and by event; what is refused changes nothing."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
import pytest

import evflow as ev
from evflow.matching.columns.bulk import FilterColumns
from evflow.matching.model import Circle, Constraint, Filter, Op
from tests.flow.alerts import Change, Flight, flight, found, match, matching, submit


def test_calls_change_what_is_subscribed_for_all_that_is_submitted_later() -> None:
    with matching("number == 0") as (flow, seen):
        alerts = flow["alerts"]
        flow["events"].submit(flight(1))
        assert alerts.subscribe("number == 1") == 1
        assert alerts.subscribe(Filter([Constraint("delay", ">", 5)], Circle(0, 0, 1)), id=7) == 7
        submit(flow, flight(1), flight(2, delay=6), flight(3, delay=6, x=4))
        assert found(seen) == [(1, [1]), (2, [7])]
        alerts.move(7, 4.0, 0.0)
        alerts.unsubscribe(1)
        submit(flow, flight(1), flight(2, delay=6), flight(3, delay=6, x=4))
        assert found(seen) == [(3, [7])]
        alerts.move(7, 0.0, 0.0, 9.0, filter=0)
        submit(flow, flight(2, delay=6), flight(3, delay=6, x=4))
        assert found(seen) == [(2, [7]), (3, [7])]


def test_many_come_go_and_move_at_once_or_not_at_all() -> None:
    with matching() as (flow, seen):
        alerts = flow["alerts"]
        ids = alerts.subscribe_many(["within(0, 0, 1)", "within(5, 0, 1)", "number == 3"])
        assert (ids.dtype, ids.tolist()) == (np.dtype("int32"), [0, 1, 2])
        columns = FilterColumns.from_arrays(name=["number"] * 2, op=Op.EQ, number=[8, 9])
        assert alerts.subscribe_many(columns, ids=[20, 10]).tolist() == [20, 10]
        for wrong in (
            lambda: alerts.subscribe_many(["number == 1", "number =="]),
            lambda: alerts.subscribe_many(["number == 1"] * 2, ids=[30, 20]),
            lambda: alerts.subscribe_many(["number == 1"] * 2, ports=[1]),
            lambda: alerts.unsubscribe_many([0, 99]),
            lambda: alerts.unsubscribe_many([0, 0]),
            lambda: alerts.move_many([0, 2], [7.0, 7.0], [0.0, 0.0]),
            lambda: alerts.move_many([0, 1], [7.0, np.inf], [0.0, 0.0]),
            lambda: alerts.subscribe("within(1, 2, 3 m)"),
            lambda: alerts.subscribe("number == 1", id=10_000_000),
            lambda: alerts.subscribe("number == 1", port=-1),
        ):
            with pytest.raises(ev.SubscriptionError):
                wrong()
        with pytest.raises(ev.SubscriptionError, match="id 0 stands twice"):
            alerts.unsubscribe_many([0, 0])
        submit(flow, flight(1), flight(8, x=5), flight(3, x=9))
        assert found(seen) == [(1, [0]), (8, [1, 20]), (3, [2])]
        alerts.move_many(ids[:2], [5.0, 0.0], [0.0, 0.0], 2)
        alerts.unsubscribe_many(ids[2:])
        submit(flow, flight(1, x=2), flight(8, x=5), flight(3, x=9))
        assert found(seen) == [(1, [1]), (8, [0, 20])]


def test_calls_come_from_any_thread_and_from_handlers() -> None:
    seen: list[list[int]] = []
    g = ev.Graph()
    alerts = g.source("events", Flight) >> match(["number > 0"])

    def handle(event: Any) -> None:
        seen.append(event.subscriptions.tolist())
        if event.number == 1:
            # In the engine's thread; it has its answer at once.
            assert flow["alerts"].subscribe("number == 2") == 81

    alerts >> ev.Terminal(handle)

    def subscribe(carrier: str) -> None:
        for _ in range(20):
            flow["alerts"].subscribe(f"carrier == '{carrier}'")

    with g.run() as flow:
        threads = [
            threading.Thread(target=subscribe, args=(carrier,)) for carrier in ("AA", "BB", "CC", "DD")
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert flow["alerts"].statistics().subscriptions == 81
        submit(flow, flight(1, "AA"))
        submit(flow, flight(2))
    assert len(seen[0]) == 21
    assert sorted(seen[1]) == [0, 81]


def test_what_a_stone_does_not_offer_is_no_attribute() -> None:
    with matching() as (flow, _):
        with pytest.raises(AttributeError, match=r"stone 'events' \(source\) has no 'subscribe'"):
            flow["events"].subscribe("number == 1")
        with pytest.raises(AttributeError, match=r"stone 'alerts' \(match\) has no 'subscrib'"):
            _ = flow["alerts"].subscrib
        with pytest.raises(TypeError):
            flow["alerts"].subscribe()
        alerts = flow["alerts"]
        submit(flow, flight(1))
    with pytest.raises(ev.FlowError, match="closed"):
        alerts.subscribe("number == 1")


def test_changes_come_as_events_in_their_order() -> None:
    changes = [
        Change.subscribe(3, "number == 1 and within(0, 0, 1)", port=2),
        Change.subscribe(4, "number == 1"),
        Change.subscribe(4, "number == 2"),
        Change.move(3, 5.0, 0.0),
        Change.move(3, 6.0, 0.0, 2.0),
        Change.subscribe(5, "number == 1"),
        Change.unsubscribe(5),
    ]
    for submit_all in (
        lambda flow: flow["changes"].submit_batch(changes),
        lambda flow: submit(flow, *changes, to="changes"),
    ):
        with matching() as (flow, seen):
            submit_all(flow)
            flow.drain()
            submit(flow, flight(1), flight(1, x=8), flight(2, x=8.5))
            assert found(seen) == [(1, [3]), (2, [4])]
            assert flow.stats()["alerts"]["errors"] == 0


WRONG: dict[str, tuple[ev.Event, str]] = {
    "text": (Change.subscribe(1, "number >"), "expected a value or an attribute after > but found the end"),
    "area": (Change.subscribe(1, "within(1, 2, 3 km)"), "globe"),
    "id": (Change.subscribe(-1, "number > 0"), "id -1: expected 0 to 9999999"),
    "high id": (Change.subscribe(1 << 40, "number > 0"), "id 1099511627776: expected 0 to 9999999; limit="),
    "port": (Change.subscribe(1, "number > 0", port=-3), "output port -3: expected 0 or more"),
    "unknown": (Change.unsubscribe(5), "there is no subscription 5"),
    "unknown moved": (Change.move(5, 1.0, 2.0), "there is no subscription 5"),
    "no area": (Change.move(0, 1.0, 2.0), "subscription 0 has no area to move"),
    "nowhere": (Change.move(7, float("nan"), 2.0), "finite"),
    "radius": (Change.move(7, 1.0, 2.0, -1.0), "radius"),
    "action": (Change("resubscribe", 0, 0, 0.0, 0.0, 0.0, ""), "action 'resubscribe': expected one of 'sub"),
}


@pytest.mark.parametrize("case", WRONG)
def test_a_wrong_change_is_a_dead_letter_and_changes_nothing(case: str) -> None:
    wrong, reason = WRONG[case]
    right = [Change.subscribe(20, "number == 20"), Change.subscribe(21, "number == 21")]
    with matching("number == 0", {"subscription": "within(0, 0, 1)", "id": 7}) as (flow, seen):
        flow["changes"].submit_batch([right[0], wrong, right[1]])
        flow.drain()
        (letter,) = flow.dead_letters()
        assert (letter.stone, repr(letter.event.to_event())) == ("alerts", repr(wrong))
        assert reason in letter.reason
        submit(flow, flight(0), flight(20, x=9), flight(21, x=9), flight(5, x=9))
        assert found(seen) == [(0, [0, 7]), (20, [20]), (21, [21])]
        assert flow.attributes("alerts")["subscriptions"] == 4


def test_changes_and_events_over_one_link_are_told_apart() -> None:
    g, seen = ev.Graph(), []
    both = g.source("both", Flight, Change)
    both >> match() >> ev.Terminal(lambda event: seen.append(event.number))
    with g.run() as flow:
        submit(
            flow, flight(1), Change.subscribe(0, "number > 0"), flight(2), Change.unsubscribe(0), to="both"
        )
        submit(flow, flight(3), to="both")
    assert seen == [2]


def test_an_event_that_looks_a_little_like_a_change_is_none() -> None:
    class Action(ev.Event):
        action: str
        id: int

    g, seen = ev.Graph(), []
    g.source("actions", Action) >> match(["id == 1"]) >> ev.Terminal(lambda event: seen.append(event.action))
    with g.run() as flow:
        flow["actions"].submit(Action("subscribe", 1))
    assert seen == ["subscribe"]


def test_changes_come_over_a_bridge() -> None:
    seen: list[Any] = []
    far, near = ev.Graph("far"), ev.Graph("near")
    with far.on("there"):
        alerts = far.source("events", Flight) >> match()
        far.source("changes", Change) >> alerts["changes"]
        alerts >> ev.Terminal(lambda event: seen.append(event.to_event()))
    there = ev.Node("there", listen="tcp://127.0.0.1:0")
    _ = near.source("wishes", Change) >> ev.Bridge(there.contact, "changes")
    with far.run(node=there) as flow, near.run() as asking:
        asking["wishes"].submit(Change.subscribe(5, "number == 1"))
        asking["wishes"].submit(Change.subscribe(6, "number =="))
        asking.drain(timeout=10)
        submit(flow, flight(1), flight(2))
        assert found(seen) == [(1, [5])]
        assert [letter.event.id for letter in flow.dead_letters()] == [6]
