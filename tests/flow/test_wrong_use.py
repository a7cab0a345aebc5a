"""A running flow refuses what makes no sense, says so, and goes on."""

from __future__ import annotations

from typing import Any

import pytest

import evflow as ev


class Rec(ev.Event):
    seq: int


def test_a_negative_number_of_stored_events_is_refused() -> None:
    """``send_stored`` of a number that means nothing raises, and the flow goes on."""
    seen: list[int] = []
    g = ev.Graph()
    g.source("recs", Rec) >> ev.Storage(5, name="held") >> ev.Terminal(lambda event: seen.append(event.seq))
    with g.run() as flow:
        flow["recs"].submit(Rec(1))
        with pytest.raises(ev.GraphError, match="count -1: expected an integer of 0 or more"):
            flow.send_stored("held", -1)
        assert flow.send_stored("held", 0) == 0
        assert flow.send_stored("held", 9) == 1
    assert seen == [1]


def test_attributes_that_are_no_mapping_are_refused() -> None:
    """The error says what was expected."""
    g = ev.Graph()
    g.source("recs", Rec) >> ev.Terminal(print)
    with g.run() as flow, pytest.raises(ev.SchemaError, match="mapping from name to value, found \\[1\\]"):
        flow["recs"].submit(Rec(1), attrs=[1])  # type: ignore[arg-type]


@pytest.mark.parametrize("setting", ["max_events", "max_bytes", "dead_letters"])
@pytest.mark.parametrize("value", [-1, "many", 1.5, True])
def test_a_bound_of_a_flow_is_a_whole_number(setting: str, value: Any) -> None:
    """A bound that is none is refused before anything runs."""
    g = ev.Graph()
    g.source("recs", Rec) >> ev.Terminal(print)
    with pytest.raises(ev.GraphError, match=setting):
        g.run(**{setting: value})
