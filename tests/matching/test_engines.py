"""Every engine says what the oracle says."""

from __future__ import annotations

import sys
from functools import partial
from pathlib import Path
from random import Random

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from evflow.errors import SubscriptionError
from evflow.matching.matcher import Matcher
from evflow.matching.model import Circle, Constraint, Filter, Op, Subscription
from tests.examples import tried
from tests.matching.engines import Case, every_engine
from tests.matching.play import Play


def matcher(case: Case, space: str = "plane") -> Matcher:
    return Matcher(case.engine, space=space, **case.options)


@pytest.mark.slow
@every_engine
def test_random_calls_give_what_the_oracle_says(case: Case) -> None:
    for seed in range(case.examples):
        Play(Random(seed), partial(matcher, case)).run(8)


@every_engine
def test_a_matcher_that_was_saved_and_loaded_goes_on(case: Case, tmp_path: Path) -> None:
    for seed in range(tried(4)):
        Play(Random(seed), partial(matcher, case), tmp_path / str(seed)).run(10)


@every_engine
@settings(max_examples=tried(10), deadline=None, suppress_health_check=list(HealthCheck))
@given(random=st.randoms(use_true_random=False))
def test_calls_of_hypothesis_give_what_the_oracle_says(case: Case, random: Random) -> None:
    Play(random, partial(matcher, case)).run(4)


@every_engine
def test_duplicate_and_empty_filters_count_once(case: Case) -> None:
    matching = matcher(case)
    one = Filter((Constraint("a", Op.EQ, 1.0),))
    ids = matching.subscribe_many(
        [Subscription((one, one)), Subscription(()), Subscription((Filter(), Filter(), one)), one]
    )
    assert sorted(matching.match({"a": 1})) == [ids[0], ids[2], ids[3]]
    assert matching.match({"a": 2}).tolist() == [ids[2]]
    matching.unsubscribe(int(ids[2]))
    assert matching.match({}).tolist() == []


@every_engine
def test_duplicate_and_contradicting_constraints_all_count(case: Case) -> None:
    matching = matcher(case)
    matching.subscribe_many(
        [
            "a > 1 and a > 1",
            "a > 1 and a < 1",
            "a >= 1 and a <= 1",
            "a != 1 and a != 2",
            "a == 1 and a == 'x'",
        ]
    )
    assert sorted(matching.match({"a": 2})) == [0]
    assert sorted(matching.match({"a": 1})) == [2]
    assert sorted(matching.match({"a": 3})) == [0, 3]
    assert sorted(matching.match({"a": "x"})) == []


@every_engine
def test_a_value_of_another_type_satisfies_only_exists(case: Case) -> None:
    matching = matcher(case)
    matching.subscribe_many(["a == '1'", "a != '1'", "a < 'z'", "exists a", "a == 1", "a != 2", "a <= 9"])
    assert sorted(matching.match({"a": 1})) == [3, 4, 5, 6]
    assert sorted(matching.match({"a": "1"})) == [0, 2, 3]
    assert sorted(matching.match({"a": b"1"})) == [3]
    assert sorted(matching.match({"a": None})) == []


@every_engine
def test_neither_a_constraint_nor_its_not_holds_without_a_value_of_its_type(case: Case) -> None:
    matching = matcher(case)
    conditions = ["a < 3", "a == 'b'", "a contains 'b'", "a startswith 'b'", "a endswith 'b'", "a < 'b'"]
    both = [text for condition in conditions for text in (condition, f"not {condition}")]
    matching.subscribe_many([*both, "a not between 1 and 3", "a not in (1, 2)", "a not in ('b', 'c')"])
    assert sorted(matching.match({"other": 1})) == []
    assert sorted(matching.match({"a": None})) == []
    assert sorted(matching.match({"a": [1]})) == []
    assert sorted(matching.match({"a": 2})) == [0]
    assert sorted(matching.match({"a": 4})) == [1, 12, 13]
    assert sorted(matching.match({"a": float("nan")})) == [13]
    assert sorted(matching.match({"a": "b"})) == [2, 4, 6, 8, 11]
    assert sorted(matching.match({"a": "cbc"})) == [3, 4, 7, 9, 11, 14]


@every_engine
def test_absence_is_asked_for_and_stays_so_when_saved(case: Case, tmp_path: Path) -> None:
    matching = matcher(case)
    matching.subscribe_many(["not exists a", "not (exists a or exists b.c)", "not exists a and d == 1"])
    prepared = matching.prepare([{"d": 1}])
    matching.subscribe("not exists d")
    matching.save(tmp_path / "saved")
    events = [{}, {"a": None, "d": 1}, {"a": float("nan")}, {"a": [1]}, {"b": {"c": 1}}, {"d": "x"}]
    for one in (matching, Matcher.load(tmp_path / "saved")):
        expected = [[0, 1, 3], [0, 1, 2], [3], [3], [0, 3], [0, 1]]
        assert [sorted(one.match(event)) for event in events] == expected
        assert [sorted(one.match_batch(events)[i]) for i in range(6)] == expected
        assert sorted(one.match_batch({"a": [1, 2], "d": [1.0, 2.0]})[0]) == []
    assert sorted(matching.match_batch(prepared)[0]) == [0, 1, 2]


@every_engine
def test_attributes_are_compared_with_each_other(case: Case) -> None:
    matching = matcher(case)
    operators = ["==", "!=", "<", "<=", ">", ">="]
    matching.subscribe_many([f"a {operator} b" for operator in operators])
    matching.subscribe_many(["not a < b", "a < b and c == 1", "a < a", "a == a", "b > a.b", "1 < a < b"])
    events: list[tuple[dict[str, object], list[int]]] = [
        ({"a": 1, "b": 2}, [1, 2, 3, 9]),
        ({"a": 2, "b": 3, "c": 1}, [1, 2, 3, 7, 9, 11]),
        ({"a": 2, "b": 2}, [0, 3, 5, 6, 9]),
        ({"a": -0.0, "b": 0}, [0, 3, 5, 6, 9]),
        ({"a": 0.3, "b": 0.1 + 0.2}, [1, 2, 3, 9]),
        ({"a": 2**53, "b": float("-inf")}, [1, 4, 5, 6, 9]),
        ({"a": float("nan"), "b": 1}, [1]),
        ({"a": "ab", "b": "b"}, [1, 2, 3, 9]),
        ({"a": "𝄞", "b": "\uffff"}, [1, 4, 5, 6, 9]),
        ({"a": "", "b": "\0"}, [1, 2, 3, 9]),
        ({"a": "1", "b": 2}, [9]),
        ({"a": [1], "b": [1]}, []),
        ({"a": {"b": 3}, "b": 4}, [10]),
        ({"a": 1}, [9]),
        ({"b": 1}, []),
    ]
    for event, expected in events:
        assert sorted(matching.match(event)) == expected, event
    matches = matching.match_batch([event for event, _ in events])
    assert [sorted(matches[i]) for i in range(len(events))] == [expected for _, expected in events]
    matches = matching.match_batch({"a": [1.0, 3.0], "b": np.array([2, 2], np.int8), "c": [1, 1]})
    assert [sorted(matches[i]) for i in range(2)] == [[1, 2, 3, 7, 9], [1, 4, 5, 6, 9]]


@every_engine
def test_regular_expressions_are_found_anywhere_in_a_string(case: Case, tmp_path: Path) -> None:
    matching = matcher(case)
    matching.subscribe_many(
        [
            "a matches 'b+'",
            "a matches '^b+$'",
            "a not matches 'b'",
            "a matches '(?i)É' and b > 1",
            "a matches ''",
        ]
    )
    events = [{"a": "abba"}, {"a": "bb"}, {"a": ""}, {"a": "caé", "b": 2}, {"a": 1}, {"b": 2}, {"a": [1]}]
    expected = [[0, 4], [0, 1, 4], [2, 4], [2, 3, 4], [], [], []]
    matching.save(tmp_path / "saved")
    for one in (matching, Matcher.load(tmp_path / "saved")):
        assert [sorted(one.match(event)) for event in events] == expected
        assert [sorted(one.match_batch(events)[i]) for i in range(len(events))] == expected
        assert sorted(one.match_batch({"a": ["xbx"] * 3})[2]) == [0, 4]


@every_engine
def test_case_is_folded_as_unicode_says(case: Case, tmp_path: Path) -> None:
    matching = matcher(case)
    prepared = matching.prepare([{"a": "STRASSE"}])
    conditions = [
        "a == nocase 'Straße'",
        "a != nocase 'straße'",
        "a in nocase ('ΌΣΟΣ', 'x')",
        "a startswith nocase 'STRAS'",
        "a endswith nocase 'Σ'",
        "a contains nocase 'ſs'",
        "a not contains nocase 'É'",
        "a == 'STRASSE' and b == nocase 'Y'",
        "a contains nocase ''",
        "b not startswith nocase 'y'",
    ]
    matching.subscribe_many(conditions)
    matching.save(tmp_path / "saved")
    events: list[tuple[dict[str, object], list[int]]] = [
        ({"a": "STRASSE"}, [0, 3, 5, 6, 8]),
        ({"a": "straße", "b": "z"}, [0, 3, 5, 6, 8, 9]),
        ({"a": "STRASSE", "b": "y"}, [0, 3, 5, 6, 7, 8]),
        ({"a": "όσος", "b": "Yz"}, [1, 2, 4, 6, 8]),
        ({"a": "cafÉ"}, [1, 8]),
        # An e and an accent: nothing is normalised.
        ({"a": "cafÉ"}, [1, 6, 8]),
        # The folded i has a dot above it.
        ({"a": "İ"}, [1, 6, 8]),
        ({"a": ""}, [1, 6, 8]),
        ({"a": "k" * 5000 + "ẞ" * 5000}, [1, 5, 6, 8]),
        ({"a": 3, "b": [1]}, []),
        ({}, []),
    ]
    for one in (matching, Matcher.load(tmp_path / "saved")):
        for event, expected in events:
            assert sorted(one.match(event)) == expected, event
        matches = one.match_batch([event for event, _ in events])
        assert [sorted(matches[i]) for i in range(len(events))] == [expected for _, expected in events]
        table = {"a": ["STRASSE", "Cafe", "straße"], "b": np.array(["y", "Y", "x"])}
        assert [sorted(one.match_batch(table)[i]) for i in range(3)] == [
            [0, 3, 5, 6, 7, 8],
            [1, 6, 8],
            [0, 3, 5, 6, 8, 9],
        ]
    assert sorted(matching.match_batch(prepared)[0]) == [0, 3, 5, 6, 8]


def test_an_expression_that_would_take_exponential_time_takes_none() -> None:
    matching = Matcher("reference")
    matching.subscribe("a matches '^(a|a)*(a*)*$'")
    assert sorted(matching.match({"a": "a" * 100_000 + "b"})) == []


def test_without_re2_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "re2", None)
    with pytest.raises(SubscriptionError, match=r"need google-re2.*pip install 'evflow\[regex\]'"):
        Matcher("reference").subscribe("a matches 'never seen before'")
    Matcher("reference").subscribe("a contains 'never seen before'")


@every_engine
def test_a_rim_and_a_point_lie_within(case: Case) -> None:
    matching = matcher(case)
    matching.subscribe_many([Filter((), Circle(0, 0, 5)), Filter((), Circle(3, 4, 0))])
    matches = matching.match_batch({"x": [3, 3, -3, 3.0000002, 1e39], "y": [4, -4, 4, 4.0000005, 0]})
    assert [sorted(matches[i]) for i in range(5)] == [[0, 1], [0], [0], [], []]


@every_engine
def test_ids_are_used_again_for_something_else(case: Case) -> None:
    matching = matcher(case)
    assert matching.subscribe_many(["a > 0"] * 5 + ["b == 'x' or within(0, 0, 1)"]).tolist() == list(range(6))
    matching.unsubscribe_many([1, 5, 3])
    assert matching.subscribe("b == 'x'") == 1
    assert matching.subscribe_many(["a > 5", "a > 7", "c contains 'q'"]).tolist() == [3, 5, 6]
    assert sorted(matching.match({"a": 6, "b": "x", "x": 0, "y": 0})) == [0, 1, 2, 3, 4]
    assert sorted(matching.match({"c": "aqa", "x": 0, "y": 0})) == [6]


@every_engine
def test_wide_events_match_filters_on_few_of_their_names(case: Case) -> None:
    random = Random(5)
    matching = matcher(case)
    chosen = [random.sample(range(60), 3) for _ in range(300)]
    matching.subscribe_many([" and ".join(f"n{name} >= {name % 7}" for name in names) for names in chosen])
    for width in (0, 1, 9, 20, 60):
        event = {f"n{name}": name % 7 for name in random.sample(range(60), width)}
        expected = [id for id, names in enumerate(chosen) if all(f"n{name}" in event for name in names)]
        assert sorted(matching.match(event)) == expected
