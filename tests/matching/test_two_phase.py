"""The two phases: their structures by hand, their costs by formula, many events in parallel."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from evflow.errors import SubscriptionError
from evflow.matching.matcher import Matcher
from evflow.matching.strings import Strings
from evflow.matching.twophase.predicates import (
    Constraints,
    arrange,
    codes_of,
    number_keys,
    stable_order,
    text_keys,
)
from evflow.matching.twophase.table import SearchTree, Table
from evflow.matching.twophase.trie import Trie

PHASE1 = ("table", "trie", "search-tree")
PHASE2 = ("counting", "clustering")
BOTH = [(one, two) for one in PHASE1 for two in PHASE2]

both = pytest.mark.parametrize(("phase1", "phase2"), BOTH)

pytestmark = pytest.mark.slow  # numba compiles the kernels


def columns(*constraints: tuple[int, str, float | str]) -> Constraints:
    """Constraints as the structures of phase one take them."""
    strings = Strings()
    ops = ("==", "!=", "<", "<=", ">", ">=", "startswith", "endswith", "contains")
    name = np.array([constraint[0] for constraint in constraints], np.int32)
    op = np.array([ops.index(constraint[1]) for constraint in constraints], np.uint8)
    operands = [constraint[2] for constraint in constraints]
    number = np.array([0.0 if isinstance(operand, str) else operand for operand in operands])
    text = np.array(
        [strings.intern([operand])[0] if isinstance(operand, str) else -1 for operand in operands], np.int32
    )
    return Constraints(name, codes_of(op, number, text), number, text, strings)


def account(matcher: Matcher) -> SimpleNamespace:
    return SimpleNamespace(**matcher.stats().details)


# 3.0 is 4008000000000000 in hexadecimal and 4.0 is 4010000000000000, so their keys are c008 and c01.
FIVE = columns((0, "<", 3.0), (0, "<", 4.0), (0, "<", 3.0), (0, "==", 3.0), (9, "startswith", "AB"))


def test_a_trie_spells_attribute_test_and_operand() -> None:
    trie = Trie(FIVE)
    # Attribute 0 is the digit 0, attribute 9 the digits 1 + more and 1; ``==`` is 0, ``<`` 2, startswith 22.
    # root; 0, 9; 0, 2 and 1; c, c, 22; 0, 0, 4; 0, 0+1, 1; 8, 8, 4; and 2 ends AB (41 42).
    assert trie.arrays.digit.tolist() == [0, 0, 9, 0, 2, 1, 12, 12, 22, 0, 0, 4, 0, 0, 1, 1, 8, 8, 4, 2]
    assert trie.arrays.start.tolist() == [
        1,
        3,
        5,
        6,
        7,
        8,
        9,
        10,
        11,
        12,
        13,
        15,
        16,
        17,
        18,
        18,
        19,
        19,
        19,
        20,
        20,
    ]
    assert trie.predicate.tolist() == [1, 2, 1, 0, 3]
    assert Trie.sizes(trie.arrays) == {"predicates": 4, "nodes": 20, "characters": 6 + 6 + 5 + 7}


def test_a_search_tree_has_a_node_for_attribute_test_and_operand() -> None:
    tree = SearchTree(FIVE)
    assert tree.arrays.family.tolist() == [0, *[2] * 9, 3]
    assert tree.arrays.test.tolist() == [0, 2, 22]
    assert tree.arrays.first.tolist() == [0, 1, 3]
    assert tree.arrays.last.tolist() == [1, 3, 4]
    assert tree.arrays.number[:3].tolist() == [3.0, 3.0, 4.0]
    assert tree.predicate.tolist() == [1, 2, 1, 0, 3]
    assert SearchTree.sizes(tree.arrays) == {"predicates": 4, "attributes": 2, "nodes": 1 + 2 + 3 + 4}


def test_a_table_says_how_many_operands_are_less() -> None:
    tables = Table(FIVE, domain=(2, 5))
    assert tables.arrays.cells.tolist() == [[0, 0, 1, 1, 1], [0, 0, 1, 2, 2]]
    assert tables.arrays.row.tolist() == [0, 1, -1]
    assert tables.arrays.first.tolist() == [0, 1, 3]
    assert tables.arrays.last.tolist() == [1, 3, 4]
    assert tables.predicate.tolist() == [1, 2, 1, 0, 3]
    assert Table.sizes(tables.arrays) == {"predicates": 4, "attributes": 2, "tables": 2, "cells": 10}


def test_operands_that_no_table_holds_stand_beside() -> None:
    tables = Table(columns((0, "<", 3.0), (0, "<", 3.5), (0, "<", 9.0), (0, "<", -1.0)), domain=(0, 8))
    assert tables.arrays.row.tolist() == [0, -1]
    assert tables.arrays.number.tolist() == [-1.0, 3.5, 9.0]
    assert tables.predicate.tolist() == [0, 2, 3, 1]


VALUES = [
    -np.inf,
    -1e300,
    -2.0,
    -0.5,
    -0.0,
    0.0,
    5e-324,
    0.5,
    1.0,
    3.0,
    3.5,
    127.0,
    128.0,
    1e300,
    np.inf,
    np.nan,
]


@both
def test_numbers_are_compared_as_python_does(phase1: str, phase2: str) -> None:
    from evflow.matching.columns.bulk import FilterColumns

    operands = [(op, number) for op in range(6) for number in VALUES]
    count = len(operands)
    matcher = Matcher("two-phase", phase1=phase1, phase2=phase2)
    matcher.subscribe_many(
        FilterColumns(
            names=["a"],
            texts=[],
            start=np.arange(count + 1),
            name=np.zeros(count, np.int32),
            op=np.array([op for op, _ in operands], np.uint8),
            number=np.array([number for _, number in operands]),
            text=np.full(count, -1, np.int32),
        )
    )
    compare = [
        lambda a, b: a == b,
        lambda a, b: a != b,
        lambda a, b: a < b,
        lambda a, b: a <= b,
        lambda a, b: a > b,
        lambda a, b: a >= b,
    ]
    for value in VALUES:
        expected = [i for i, (op, number) in enumerate(operands) if compare[op](value, number)]
        assert sorted(matcher.match({"a": value})) == expected, value


WORDS = ["", "a", "ab", "abc", "b", "ba", "bab", "c", "ä", "äb", "日", "日本", "a\x00", "\x7f", "𝕒"]


@both
def test_strings_are_compared_as_python_does(phase1: str, phase2: str) -> None:
    tests = {
        "==": lambda a, b: a == b,
        "!=": lambda a, b: a != b,
        "<": lambda a, b: a < b,
        "<=": lambda a, b: a <= b,
        ">": lambda a, b: a > b,
        ">=": lambda a, b: a >= b,
        "startswith": str.startswith,
        "endswith": str.endswith,
        "contains": lambda a, b: b in a,
    }
    from evflow.matching.model import Constraint, Filter

    operands = [(op, word) for op in tests for word in WORDS]
    matcher = Matcher("two-phase", phase1=phase1, phase2=phase2)
    matcher.subscribe_many([Filter([Constraint("a", op, word)]) for op, word in operands])
    for value in [*WORDS, "xabx", "bababab", "x日本x", "zz"]:
        expected = [i for i, (op, word) in enumerate(operands) if tests[op](value, word)]
        assert sorted(matcher.match({"a": value})) == expected, value


@given(st.lists(st.floats(), max_size=40))
def test_keys_sort_as_numbers_do(numbers: list[float]) -> None:
    keys = number_keys(np.array(numbers, np.float64)).tolist()
    for a, left in zip(numbers, keys, strict=True):
        for b, right in zip(numbers, keys, strict=True):
            if a != a or b != b:
                assert (left == right) == (a != a and b != b)
            else:
                assert (left < right, left == right) == (a < b, a == b)


@given(st.lists(st.text(max_size=4), max_size=20))
def test_keys_sort_as_strings_do(texts: list[str]) -> None:
    strings = Strings()
    keys = text_keys(strings.intern(texts), strings).tolist()
    assert [texts[i] for i in np.argsort(keys, kind="stable")] == sorted(texts, key=str.encode)


@given(st.lists(st.integers(0, 200_000), max_size=50))
def test_a_stable_order_is_that_of_sorted(keys: list[int]) -> None:
    expected = sorted(range(len(keys)), key=keys.__getitem__)
    assert stable_order(np.array(keys, np.int64), 200_001).tolist() == expected


def test_equal_constraints_are_one_predicate() -> None:
    zero = columns((1, "<", 0.0), (1, "<", -0.0), (0, "<", 0.0), (1, "<=", 0.0), (1, "<", "0"))
    families, predicate = arrange(zero)
    assert predicate.tolist() == [1, 1, 0, 2, 3]
    assert (families.name.tolist(), families.test.tolist()) == ([0, 1, 1, 1], [2, 2, 3, 18])


def paper_workload(
    subscriptions: int, events: int, attributes: int = 20
) -> tuple[list[str], list[dict[str, int]]]:
    """The paper's kind: integers of 0 to 99, six operators, three to five attributes a subscription."""
    random = np.random.default_rng(7)
    pool = [
        [
            f"a{name} {random.choice(['<', '<=', '==', '!=', '>=', '>'])} {random.integers(100)}"
            for _ in range(16)
        ]
        for name in range(40)
    ]
    made = [
        " and ".join(
            pool[name][random.integers(16)]
            for name in random.permutation(40)[: random.integers(3, 6)].tolist()
        )
        for _ in range(subscriptions)
    ]
    rows = [
        {f"a{name}": int(random.integers(100)) for name in random.permutation(40)[:attributes].tolist()}
        for _ in range(events)
    ]
    return made, rows


@both
def test_costs_are_what_the_paper_says(phase1: str, phase2: str) -> None:
    made, events = paper_workload(1000, 50)
    matcher = Matcher("two-phase", phase1=phase1, phase2=phase2)
    matcher.subscribe_many(made)
    matcher.match_batch(events)
    found = account(matcher)
    # What it has to be, counted from the texts.
    filters = [set(text.split(" and ")) for text in made]
    predicates = sorted(set().union(*filters))
    true = [
        {p for p in predicates if p.split()[0] in event and eval(p, {p.split()[0]: event[p.split()[0]]})}
        for event in events
    ]
    assert found.predicates == len(predicates)
    assert found.attributes == len({p.split()[0] for p in predicates})
    assert found.entries == found.constraints == sum(map(len, filters))
    assert found.satisfied == sum(map(len, true))
    assert found.incremented == sum(len(held & holds) for held in filters for holds in true)
    assert found.matched == sum(held <= holds for held in filters for holds in true)
    assert found.scanned == len(made) * len(events)
    # NPsat * S_avg + N, where S_avg is an average.
    steps = (found.incremented + found.scanned) / found.events
    formula = found.satisfied / found.events * found.entries / found.predicates + found.filters
    assert steps == pytest.approx(formula, rel=0.1)
    assert found.clusters == (3 if phase2 == "clustering" else 1)


def test_space_grows_as_the_paper_says() -> None:
    made, _ = paper_workload(2000, 0)
    accounts = {}
    for phase1 in PHASE1:
        for count in (50, 2000):
            matcher = Matcher("two-phase", phase1=phase1)
            matcher.subscribe_many(made[:count])
            accounts[phase1, count] = account(matcher)
    for found in accounts.values():
        # O(A): as many tables as an attribute has operators; O(W); O(P).
        assert found.tables <= 6 * found.attributes
        assert found.cells == found.tables * 129
        assert found.nodes <= 1 + max(found.characters, 3 * found.predicates)
    trie, tree = accounts["trie", 2000], accounts["search-tree", 2000]
    assert trie.nodes > tree.nodes > tree.predicates
    assert trie.phase1_bytes > tree.phase1_bytes
    assert accounts["trie", 50].nodes < trie.nodes


def test_clusters_with_more_predicates_than_the_event_are_passed_over() -> None:
    matcher = Matcher("two-phase", phase2="clustering")
    matcher.subscribe_many(
        ["a > 0", "a > 0 and b > 0", "a > 0 and a < 9", "a > 0 and b > 0 and c > 0", "b > 0 and c > 0"]
    )
    assert account(matcher).clusters == 4
    assert sorted(matcher.match({"a": 1})) == [0, 2]
    # One attribute, and two predicates on it: two clusters of a filter each.
    assert account(matcher).scanned == 2
    assert sorted(matcher.match({"a": 1, "b": 1, "c": -1})) == [0, 1, 2]
    # Of c nothing is satisfied, so the filter with three attributes is passed over.
    assert account(matcher).scanned == 2 + 4
    matcher.match({"d": 1})
    assert account(matcher).scanned == 2 + 4


@both
def test_many_threads_find_what_one_finds(phase1: str, phase2: str) -> None:
    made, events = paper_workload(300, 1000)
    matcher = Matcher("two-phase", phase1=phase1, phase2=phase2)
    matcher.subscribe_many(made)
    alone = matcher.match_batch(events)
    tally = account(matcher)
    for threads in (2, 3, 8):
        together = matcher.match_batch(events, threads=threads)
        assert np.array_equal(together.offsets, alone.offsets)
        assert np.array_equal(together.ids, alone.ids)
    assert account(matcher).satisfied == 4 * tally.satisfied
    assert account(matcher).events == 4 * tally.events


def test_more_matches_than_there_is_room_for_come_in_several_parts() -> None:
    matcher = Matcher("two-phase")
    matcher.subscribe_many([f"a > {number % 7}" for number in range(3000)])
    found = matcher.match_batch([{"a": value % 10} for value in range(100)])
    sizes = [sum(number % 7 < value % 10 for number in range(3000)) for value in range(100)]
    assert np.diff(found.offsets).tolist() == sizes
    assert found[9].tolist() == list(range(3000))


@pytest.mark.slow
def test_counters_in_several_parts_find_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    from evflow.matching.twophase import cluster

    made, events = paper_workload(3000, 200, 30)
    expected = Matcher("two-phase", phase2="counting")
    expected.subscribe_many(made)
    monkeypatch.setattr(cluster, "PART", 640)
    matcher = Matcher("two-phase", phase2="clustering")
    matcher.subscribe_many(made)
    engine: Any = matcher._engine
    assert len(engine._two.list) == 5
    for rows in (events, [dict(list(event.items())[:4]) for event in events]):
        found, wanted = matcher.match_batch(rows), expected.match_batch(rows)
        assert all(set(found[i]) == set(wanted[i]) for i in range(len(rows)))
    assert account(matcher).scanned < account(expected).scanned


def test_structures_are_the_same_when_loaded(tmp_path: Path) -> None:
    made, events = paper_workload(400, 20)
    matcher = Matcher("two-phase", phase1="table", domain=(0, 99))
    matcher.subscribe_many(made)
    matcher.save(tmp_path / "saved")
    again = Matcher.load(tmp_path / "saved")
    assert account(again).cells == account(matcher).cells == account(matcher).tables * 101
    for event in events:
        assert np.array_equal(again.match(event), matcher.match(event))
    again.unsubscribe_many(range(0, 400, 2))
    assert not any(set(again.match(event)) & set(range(0, 400, 2)) for event in events)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"phase1": "hash"}, "phase1 'hash': expected 'table', 'trie' or 'search-tree'"),
        ({"phase2": "guess"}, "phase2 'guess': expected 'counting' or 'clustering'"),
        ({"phase1": "table", "domain": (5, 4)}, r"domain \(5, 4\): expected the least and the greatest"),
        ({"phase1": "table", "domain": (0, 1 << 16)}, "at most 65535 integers"),
        ({"phase1": "table", "domain": 9}, "domain 9: expected"),
        ({"phase1": "trie", "domain": (0, 9)}, "only phase1='table' has one"),
        ({"phase3": "x"}, "phase3"),
    ],
)
def test_wrong_options_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(SubscriptionError, match=message):
        Matcher("two-phase", **options)


@pytest.mark.parametrize("constraints", [253, 254, 255, 256, 257, 1000])
def test_filters_with_more_constraints_than_a_byte_counts_are_matched(constraints: int) -> None:
    matcher = Matcher("two-phase", phase2="counting")
    matcher.subscribe(" and ".join(f"a > {number}" for number in range(constraints)))
    matcher.subscribe("a > 0")
    assert matcher.match({"a": constraints - 1}).tolist() == [1]
    assert sorted(matcher.match({"a": constraints})) == [0, 1]


def test_filters_added_lately_are_tested_apart_until_they_are_an_eighth() -> None:
    matcher = Matcher("two-phase", phase2="counting")
    matcher.subscribe_many([f"a > {number}" for number in range(80)])
    for added in range(1, 11):
        matcher.subscribe("a > 100")
        assert account(matcher).apart == added
    matcher.subscribe("a > 100")
    assert (account(matcher).apart, account(matcher).filters) == (0, 91)


def test_removed_filters_are_forgotten_when_they_are_the_majority() -> None:
    matcher = Matcher("two-phase", phase2="counting")
    matcher.subscribe_many([f"a > {number}" for number in range(100)])
    for number in range(50):
        matcher.unsubscribe(number)
        assert matcher.match({"a": 1e6}).tolist() == list(range(number + 1, 100))
    assert account(matcher).filters == 100
    matcher.unsubscribe(50)
    assert account(matcher).filters == 49
    assert matcher.match({"a": 1e6}).tolist() == list(range(51, 100))


def test_a_subscription_of_several_filters_is_reported_once_and_moves_by_filter() -> None:
    matcher = Matcher("two-phase", phase2="counting")
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
    matcher = Matcher("two-phase", phase2="counting")
    matcher.subscribe_many([f"a > {number} and b > 1 and c > 2 and d > 3" for number in range(2000)])
    matcher.match({"a": 1})
    memory = {name: held for name, held in matcher.stats().memory.items() if name.startswith("engine.")}
    assert set(memory) == {f"engine.{name}" for name in ("filters", "phase one", "phase two", "scratch")}
    # Four constraints of 17 bytes, a filter of 36, and five entries of its id; with room to grow.
    assert 2000 * 104 <= memory["engine.filters"] <= 2000 * 104 * 2
    assert np.array(list(memory.values())).min() > 0
