"""Looking at the subscriptions of a running match stone."""

from __future__ import annotations

import pytest

import evflow as ev
from evflow.matching import parse_subscription
from tests.flow.alerts import flight, matching


def test_subscriptions_of_a_stone_can_be_looked_at() -> None:
    with matching("delay > 45", "carrier == 'UA' and within(0, 0, 2)", lookup=True) as (flow, _):
        stone = flow["alerts"]
        mine = stone.subscribe("number == 7")
        stone.move(1, 3, 4)
        assert stone.subscription(1) == parse_subscription("carrier == 'UA' and within(3, 4, 2)")
        assert [(id, str(one)) for id, one in stone.items()] == [
            (0, "delay > 45"),
            (1, "carrier == 'UA' and within(3, 4, 2)"),
            (mine, "number == 7"),
        ]
        assert stone.find(name="number").tolist() == [mine]
        assert stone.find(around=(3, 5)).tolist() == [1]
        assert stone.find(like="delay > 45").tolist() == [0]
        stone.unsubscribe(mine)
        with pytest.raises(ev.SubscriptionError, match=f"there is no subscription {mine}"):
            stone.subscription(mine)


def test_a_stone_explains_why_an_event_matches_and_why_not() -> None:
    with matching("delay > 45", "carrier == 'UA' and within(0, 0, 2)", lookup=True) as (flow, _):
        event = flight(1, "UA", 50, x=3)
        assert [told.id for told in flow["alerts"].explain(event)] == [0]
        told = flow["alerts"].explain(event, 1)
        assert [reason.holds for reason in told.filters[0].reasons] == [True, False]
        assert "carrier is 'UA'" in str(told)
