"""Who waits for what was submitted, while a link takes no more."""

from __future__ import annotations

import pytest

import evflow as ev
from evflow.engine.topology import Slot
from evflow.events.batch import EventBatch
from evflow.flow.inbox import Intake
from evflow.flow.lane import Lane, Marks
from evflow.stones.source import Source

NUMBER = ev.Schema("number", {"number": ev.i64})


def _put(lane: Lane) -> None:
    lane.intake.put(EventBatch.from_columns(NUMBER, {"number": [1]}))


def _marked(lane: Lane) -> Marks:
    marks = Marks()
    marks.mark([lane])
    return marks


@pytest.fixture
def lane() -> Lane:
    return Lane(Slot("source", Source()), Intake("source", 10, 1 << 20))


def test_a_drain_of_nothing_is_done(lane: Lane) -> None:
    assert _marked(lane).done


def test_a_drain_waits_for_what_is_in_the_intake(lane: Lane) -> None:
    _put(lane)
    drain = _marked(lane)
    lane.fill([drain])
    _put(lane)
    assert not drain.done
    lane.next()
    assert drain.done


def test_a_drain_waits_for_a_backlog_and_no_longer(lane: Lane) -> None:
    """Nothing more need come for it to end."""
    _put(lane)
    _put(lane)
    lane.fill([])
    drain = _marked(lane)
    lane.next()
    assert not drain.done
    lane.next()
    assert drain.done


def test_a_drain_waits_for_a_backlog_and_what_is_behind_it(lane: Lane) -> None:
    _put(lane)
    lane.fill([])
    _put(lane)
    drain = _marked(lane)
    lane.fill([drain])
    lane.next()
    assert not drain.done
    lane.fill([drain])
    lane.next()
    assert drain.done
