"""Ids that are texts: a dict says what a matcher has to say."""

from __future__ import annotations

from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pytest

from evflow.errors import SubscriptionError
from evflow.matching import Matcher

WORDS = ["alice/7", "bob", "7", "é𝄞", " ", "x" * 255, "é" * 127, "a\0b"]


def found(matcher: Matcher, value: int) -> list[str | None]:
    return sorted(matcher.texts(matcher.match({"a": value})), key=str)


@pytest.mark.parametrize("engine", [pytest.param("reference", marks=pytest.mark.slow), "index"])
def test_what_texts_stand_for_is_what_a_dict_says(engine: str, tmp_path: Path) -> None:
    for seed in range(2):
        random, matcher, held = Random(seed), Matcher(engine, lookup=True), dict[str | None, int]()
        matcher.subscribe("a > 1000", 3)
        for step in range(40):
            free = [word for word in WORDS if word not in held]
            if free and random.random() < 0.6:
                some = random.sample(free, random.randint(1, len(free)))
                values = [random.randrange(5) for _ in some]
                texts = [f"a == {value} and within({value}, 0, 1)" for value in values]
                if len(some) == 1:
                    matcher.subscribe(texts[0], some[0])
                else:
                    matcher.subscribe_many(texts, random.choice([some, tuple(some), np.array(some, object)]))
                held |= dict(zip(some, values, strict=True))
            elif held:
                gone = random.sample(sorted(map(str, held)), random.randint(1, len(held)))
                if len(gone) == 1:
                    matcher.unsubscribe(gone[0])
                else:
                    matcher.unsubscribe_many(gone)
                held = {word: value for word, value in held.items() if word not in gone}
            if step % 10 == 9:
                matcher.save(tmp_path / str(seed))
                matcher = Matcher.load(tmp_path / str(seed))
            assert len(matcher) == len(held) + 1
            for word in WORDS:
                assert (word in matcher) is (word in held)
            for word, value in held.items():
                assert str(matcher[str(word)]) == f"a == {value} and within({value}, 0, 1)"
            for value in range(5):
                event = {"a": value, "x": value, "y": 0}
                wanted = sorted(str(word) for word in held if held[word] == value)
                assert sorted(map(str, matcher.texts(matcher.match(event)))) == wanted
                if step % 10 == 9:
                    assert sorted(str(one.id) for one in matcher.explain(event)) == wanted
            assert matcher.texts([3, 999]) == [None, None]


@pytest.mark.parametrize("engine", ["reference", "index"])
def test_areas_move_by_texts(engine: str) -> None:
    matcher = Matcher(engine, lookup=True)
    matcher.subscribe_many(["within(0, 0, 1)", "within(5, 5, 1) or a > 1"], ["one", "two"])
    for _ in range(100):
        matcher.move("one", 7.0, 7.0)
    matcher.move_many(["two", "one"], [9, 8], [9, 8])
    matcher.move("two", 9.0, 9.0, 2.0, filter=0)
    assert matcher.texts(matcher.find(around=(8, 8))) == ["one", "two"]
    assert str(matcher["two"]) == "within(9, 9, 2) or a > 1"
    assert str(matcher.explain({"a": 2}, "two")).startswith("subscription 'two' matches")
    with pytest.raises(SubscriptionError, match="has no area to move"):
        matcher.move("two", 1.0, 1.0, filter=1)


def test_columns_of_any_library_are_ids() -> None:
    pa = pytest.importorskip("pyarrow")
    pandas = pytest.importorskip("pandas")
    texts, matcher = ["x", "ü"], Matcher("reference")
    for ids in (
        (*texts,), np.array(texts), np.array(texts, object), np.array(texts, np.dtypes.StringDType()),
        pandas.Series(texts), pandas.Index(texts), pandas.Series(texts, dtype="category"),
        pa.array(texts), pa.chunked_array([texts]),
    ):  # fmt: skip
        found = matcher.subscribe_many(["a > 1", "a > 2"], ids)
        assert matcher.texts(found) == texts
        matcher.unsubscribe_many(ids)
        assert len(matcher) == 0
    with pytest.raises(SubscriptionError, match="not both, found None"):
        matcher.subscribe_many(["a > 1", "a > 2"], pa.array(["x", None]))


def test_texts_and_the_numbers_that_they_stand_for_are_given_both_ways() -> None:
    matcher, chosen = Matcher("reference"), {"one": 9, "two": 4}
    matcher.subscribe_many(["a > 1"] * 3, [9, 2, 4], texts=["one", None, "two"])
    assert sorted(map(str, matcher.texts())) == sorted(chosen)
    assert matcher.numbers(["two", "one", "two"]).tolist() == [4, 9, 4]
    assert matcher.numbers(["new", "two", "newer", "new"], new=True).tolist() == [0, 4, 1, 0]
    assert matcher.numbers([2, 9]).tolist() == [2, 9]
    assert matcher.subscribe_many(["a > 1"] * 2, texts=["new", "newer"]).tolist() == [0, 1]
    for wrong, said in (
        (lambda: matcher.numbers(["one", "three"]), "there is no subscription 'three'"),
        (lambda: matcher.numbers([3]), "there is no subscription 3"),
        (lambda: matcher.numbers([3], new=True), "there is no subscription 3"),
        (lambda: matcher.numbers([""], new=True), "expected 1 to 255 bytes"),
        (lambda: matcher.subscribe_many(["a > 1"], ["x"], texts=["y"]), "found texts in both"),
        (lambda: matcher.subscribe_many(["a > 1"], [20], texts=["x", None]), "1 subscriptions and 2 texts"),
        (lambda: matcher.subscribe_many(["a > 1"], [20], texts=["one"]), "id 'one' is in use"),
        (lambda: matcher.subscribe_many(["a > 1"] * 2, [20, 21], texts=["x", "x"]), "id 'x' stands twice"),
    ):
        with pytest.raises(SubscriptionError, match=said):
            wrong()  # type: ignore[no-untyped-call]
    assert len(matcher) == 5 and "x" not in matcher


@pytest.mark.parametrize("ids", [["x"], [None], [0.5], [True], [1 << 70], "x"])
def test_only_numbers_have_texts(ids: Any) -> None:
    with pytest.raises(SubscriptionError, match="ids: expected whole numbers, found"):
        Matcher("reference").texts(ids)


@pytest.mark.parametrize(
    ("ids", "said"),
    [
        (["", "b"], "id '': expected 1 to 255 bytes of UTF-8, found 0"),
        (["a", "é" * 128], "expected 1 to 255 bytes of UTF-8, found 256"),
        (["a", "a"], "id 'a' stands twice"),
        (["a", "used"], "id 'used' is in use"),
        (["a", 3], "expected texts or whole numbers, not both, found 3"),
        ([3, "a"], "expected whole numbers, or texts alone"),
        (["a", "\ud800"], "lone surrogates"),
        (["a"], "2 subscriptions and 1 ids"),
        (["a", "b", "c"], "2 subscriptions and 3 ids"),
    ],
)
def test_wrong_texts_change_nothing(ids: list[object], said: str) -> None:
    matcher = Matcher("reference")
    matcher.subscribe("a > 1", "used")
    with pytest.raises(SubscriptionError, match=said):
        matcher.subscribe_many(["a > 1", "a > 2"], ids)  # type: ignore[arg-type]
    assert len(matcher) == 1 and "a" not in matcher
    for call in (matcher.unsubscribe, matcher.__getitem__, lambda id: matcher.move(id, 1.0, 1.0)):
        with pytest.raises(SubscriptionError, match="there is no subscription 'a'"):
            call("a")
    matcher.unsubscribe("used")
    assert matcher.subscribe("a > 1", "used") == 0
