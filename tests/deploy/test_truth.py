"""The judge of the simulation: what it takes for right, and what for wrong."""

from __future__ import annotations

import pytest

from evflow.deploy.record import Record
from tests.deploy.group import graph_of, record_of
from tests.deploy.simulation.truth import Failure, Truth

CHANGES = [f"{n}" * 32 for n in range(5)]


def _decided(truth: Truth, *placed: dict[str, str]) -> list[Record]:
    """Versions with these stones, each decided."""
    records: list[Record] = []
    for number, stones in enumerate(placed):
        before = records[-1] if records else None
        wanted = record_of("x", "MN", **stones) if before is None else before.edited(graph_of(**stones))
        records.append(wanted.made_by(CHANGES[number], before))
        truth.learn(records[-1])
    return records


def test_a_node_that_missed_the_move_of_a_stone_and_restarts_does_not_begin_the_stone_anew() -> None:
    """By version 2 node M is lost and N takes over b; by version 3 node N is lost and M takes over a."""
    truth = Truth()
    _, second, third = _decided(truth, {"a": "N", "b": "M"}, {"a": "N", "b": "N"}, {"a": "M", "b": "M"})
    truth.lost = {second.change: {"M"}, third.change: {"N"}}
    truth.begins_anew("M", third, "a", "N")
    seen = [truth.sees("M", third, "a", [])]
    truth.is_empty("N", second, "a")
    truth.sees("M", third, "a", seen)


def test_a_stone_begins_anew_where_it_came_from_a_lost_node() -> None:
    truth = Truth()
    first, second = _decided(truth, {"a": "M"}, {"a": "N"})
    seen = [truth.sees("M", first, "a", [])]
    truth.lost = {second.change: {"M"}}
    truth.is_empty("N", second, "a")
    truth.sees("N", second, "a", [])
    with pytest.raises(Failure, match="stone a on N has seen"):
        truth.sees("N", second, "a", seen)


def test_a_stone_does_not_begin_anew_where_nobody_was_lost() -> None:
    truth = Truth()
    first, second = _decided(truth, {"a": "M"}, {"a": "N"})
    truth.sees("M", first, "a", [])
    truth.is_empty("N", second, "a")
    with pytest.raises(Failure, match="stone a on N has seen"):
        truth.sees("N", second, "a", [])
