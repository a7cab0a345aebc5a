"""The counting algorithm: what is peculiar to it; that it is right is in test_engines."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from evflow.errors import SubscriptionError
from evflow.matching.matcher import Matcher


def held_engine(matcher: Matcher) -> Any:
    return matcher._engine


def test_counting_holds_each_distinct_constraint_once() -> None:
    matcher = Matcher("counting")
    matcher.subscribe_many(["a > 1 and b == 'x'", "a > 1", "a > 1 and a > 1 and b == 'x' and b == 'y'"])
    matcher.match({"a": 2, "b": "x"})
    accounts = held_engine(matcher).accounting()
    assert matcher.stats().details["entries"] == accounts.entries
    assert (accounts.predicates, accounts.entries, accounts.filters) == (3, 6, 3)
    assert (accounts.satisfied, accounts.incremented, accounts.scanned) == (2, 5, 3)


def test_counting_counts_a_repeated_constraint_once() -> None:
    matcher = Matcher("counting")
    matcher.subscribe("a > 1 and a > 1 and a > 1.0")
    matcher.subscribe("a > 1 and a > 2")
    assert matcher.match({"a": 1.5}).tolist() == [0]
    assert sorted(matcher.match({"a": 3})) == [0, 1]


@pytest.mark.parametrize("constraints", [253, 254, 255, 256, 257, 1000])
def test_filters_with_more_constraints_than_a_byte_counts_are_matched(constraints: int) -> None:
    matcher = Matcher("counting")
    matcher.subscribe(" and ".join(f"a > {number}" for number in range(constraints)))
    matcher.subscribe("a > 0")
    assert matcher.match({"a": constraints - 1}).tolist() == [1]
    assert sorted(matcher.match({"a": constraints})) == [0, 1]


def test_counting_takes_no_options() -> None:
    with pytest.raises(SubscriptionError, match="phase1"):
        Matcher("counting", phase1="trie")


def test_filters_added_lately_are_tested_apart_until_they_are_an_eighth() -> None:
    matcher = Matcher("counting")
    matcher.subscribe_many([f"a > {number}" for number in range(80)])
    engine = held_engine(matcher)
    for added in range(1, 11):
        matcher.subscribe("a > 100")
        assert engine.accounting().apart == added
    matcher.subscribe("a > 100")
    assert (engine.accounting().apart, engine.accounting().filters) == (0, 91)


def test_removed_filters_are_forgotten_when_they_are_the_majority() -> None:
    matcher = Matcher("counting")
    matcher.subscribe_many([f"a > {number}" for number in range(100)])
    engine = held_engine(matcher)
    for number in range(50):
        matcher.unsubscribe(number)
        assert matcher.match({"a": 1e6}).tolist() == list(range(number + 1, 100))
    assert engine.accounting().filters == 100
    matcher.unsubscribe(50)
    assert engine.accounting().filters == 49
    assert matcher.match({"a": 1e6}).tolist() == list(range(51, 100))


def test_a_subscription_of_several_filters_is_reported_once_and_moves_by_filter() -> None:
    matcher = Matcher("counting")
    matcher.subscribe("a > 0 and within(0, 0, 1) or a > 1 and within(5, 5, 1) or b > 0")
    assert matcher.match({"a": 2, "b": 1, "x": 0, "y": 0}).tolist() == [0]
    assert matcher.match({"a": 2, "x": 5, "y": 5}).tolist() == [0]
    matcher.move(0, 9, 9, filter=1)
    assert matcher.match({"a": 2, "x": 5, "y": 5}).tolist() == []
    assert matcher.match({"a": 2, "x": 9, "y": 9}).tolist() == [0]
    matcher.move(0, 7, 7, 2)
    assert matcher.match({"a": 1, "x": 8, "y": 8}).tolist() == [0]
    assert matcher.match({"a": 1, "x": 9, "y": 9}).tolist() == []


def test_memory_counts_what_the_engine_holds() -> None:
    matcher = Matcher("counting")
    matcher.subscribe_many([f"a > {number} and b > 1 and c > 2 and d > 3" for number in range(2000)])
    matcher.match({"a": 1})
    memory = held_engine(matcher).memory()
    assert set(memory) == {"filters", "phase one", "phase two", "scratch"}
    # Four constraints of 17 bytes, a filter of 36, and five entries of its id; with room to grow.
    assert 2000 * 104 <= memory["filters"] <= 2000 * 104 * 2
    assert np.array(list(memory.values())).min() > 0
