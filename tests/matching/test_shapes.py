"""Many texts at once mean what each of them means alone."""

from __future__ import annotations

import re
from random import Random

import pytest

from evflow.errors import SubscriptionError
from evflow.matching import Matcher, Subscription, parse_subscription
from evflow.matching.columns.shapes import columns_of_texts
from tests.examples import tried
from tests.matching.phrases import tree, written


def accepted(text: str) -> Subscription | None:
    try:
        return parse_subscription(text)
    except SubscriptionError:
        return None


def variants(random: Random, text: str, count: int) -> list[str]:
    """The text with other digits and letters in strings; those of them that the parser takes."""
    made = [text]
    for _ in range(count):
        other = re.sub(r"[0-9]", lambda _: random.choice("0123456789"), text)
        made.append(re.sub(r"'[ab ]*'", lambda _: f"'{random.choice(['', 'a', 'B c', 'ß', '7'])}'", other))
    return [one for one in made if accepted(one) is not None]


@pytest.mark.parametrize("seed", range(tried(25)))
def test_many_texts_mean_what_each_means(seed: int) -> None:
    random = Random(seed)
    texts = []
    for _ in range(12):
        texts += variants(random, written(random, tree(random, 2)), random.choice([2, 12]))
    random.shuffle(texts)
    assert columns_of_texts(texts).to_subscriptions() == [parse_subscription(text) for text in texts]


TEMPLATES = [
    "a == {0}",
    "a == '{0}' or a == \"{1}\"",
    "-{0} <= a < {1}",
    "a > -{0} and b in ({1}, 'x{0}', +{0})",
    "(a = {0} or b = {1}) and {0} < c",
    "a1 > {0} and b.c2 == {1} and `7 x` != {0}",
    "a > .{0} and b < {0}. and c == {0}e-{1} and d == 1.{0}E2",
    "a contains 'it\\'s {0}' and b == {1}",
    "a == {0}{0}{0}{0}5.5",
    "true or a > {0}",
    "a > nan and b != {0}",
    "a startswith 'x' and exists b",
]
AREAS = {
    "plane": ["within({0}, -{1}, {0}.5)", "a > {0} and within(-{0}, {1}, 1) or within({0}, 0, {0})"],
    "globe": [
        "within({0}, -{1}, {0} km)",
        "within(-{0}.25, {1}1, {0}.3 mi) or a > {0}",
        "within(1, 2, {0} m)",
    ],
}


@pytest.mark.parametrize("space", ["plane", "globe"])
def test_texts_of_each_form_mean_what_each_means(space: str) -> None:
    random = Random(3)
    numbers = [random.randrange(90) for _ in range(60)]
    texts = [
        template.format(first, second)
        for template in TEMPLATES + AREAS[space]
        for first, second in zip(numbers[::2], numbers[1::2], strict=True)
    ]
    random.shuffle(texts)
    assert columns_of_texts(texts).to_subscriptions() == [parse_subscription(text) for text in texts]


WRONG = [
    "a > ", "a > 9007199254740993", "a > 1e999", "a == 'x", "within(91, 3, 5 km)", "within(1, 2, -3 km)", "",
]  # fmt: skip


@pytest.mark.parametrize("wrong", WRONG)
def test_the_first_text_that_is_wrong_is_named(wrong: str) -> None:
    texts = [f"a > {n} or within({n}, 3, 5 km)" for n in range(50)]
    texts += [f"within({n}, 2, 3 km)" for n in range(9)]
    texts += [wrong, "b ?"]
    texts += [f"a > {n}" for n in range(50)]
    with pytest.raises(SubscriptionError, match=f"^subscription {texts.index(wrong)}: "):
        columns_of_texts(texts)


def test_areas_of_both_spaces_are_refused_and_the_first_named() -> None:
    texts = [*(f"within({n}, 3, 5 km)" for n in range(9)), *(f"within({n}, 3, 5)" for n in range(9))]
    with pytest.raises(SubscriptionError, match=r"^subscription 9: its area is on the plane"):
        columns_of_texts(texts)


def test_a_list_of_texts_is_subscribed_as_each_text_is() -> None:
    many, single = Matcher("reference", lookup=True), Matcher("reference", lookup=True)
    texts = [f"a > {n % 7} and kind == 'k{n % 3}'" for n in range(300)]
    many.subscribe_many(texts)
    for text in texts:
        single.subscribe(text)
    assert list(many.items()) == list(single.items())
    assert columns_of_texts([]).subscriptions == 0
