"""Subscriptions as text and as columns: right ones mean what they say, and wrong ones are refused."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any

import numpy as np

from evflow import SubscriptionError
from evflow.matching import FilterColumns, Subscription, parse_subscription
from evflow.matching.tokens import LONGEST
from tests.fuzz import hostile, samples
from tests.matching import phrases

__all__ = ["check", "checked_text", "mutated_columns"]

_NUMBERS = [-(2**40), -129, -1, 0, 1, 2, 3, 9, 10, 255, 256, 2**31, 2**53 + 1, 0.5, 1e39, np.nan, np.inf]
_MOST = 10_000
_WRAPPINGS = ["(", "((", "not (", "true and (", "false and (", "(a < 1 or b < 1) and (", "a in ("]


def check(random: Random, tell: Callable[[str], None]) -> tuple[int, int]:
    """Reads some texts and columns; gives how many, and how many were accepted."""
    accepted = 0
    for _ in range(samples.INPUTS):
        tree = phrases.tree(random)
        text = phrases.written(random, tree)
        tell(repr(text))
        subscription = parse_subscription(text)
        for _ in range(samples.INPUTS):
            event, place = phrases.event(random)
            expected = phrases.decided(tree, event, place)
            assert phrases.satisfied(subscription, event, place) == expected, (event, place)
        _check_again([subscription])
        changed = _changed(random, text)
        tell(repr(changed))
        found = checked_text(changed)
        columns = mutated_columns(random, subscription)
        tell(f"{columns!r}")
        accepted += (found is not None) + _check_columns(columns)
    return samples.INPUTS, accepted


def _changed(random: Random, text: str) -> str:
    changed = hostile.mutated(random, text)
    if random.randrange(20) == 0:
        changed = random.choice(_WRAPPINGS) * random.choice([1, 40, 51, 1000]) + changed
    if random.randrange(20) == 0:
        changed = random.choice([" or ", " and ", "", ", "]).join([changed] * random.choice([2, 20, 100]))
    return changed


def checked_text(text: str) -> Subscription | None:
    """What a text means, or None if it is refused as it should be."""
    try:
        found = parse_subscription(text)
    except SubscriptionError as error:
        assert error.message and error.column >= 1
        assert 1 <= error.line <= max(1, len(error.source.splitlines()))
        assert str(error).startswith(error.message) and error.source == text
        error.message.encode()
        return None
    _check_again([found])
    return found


def _check_again(subscriptions: list[Subscription]) -> None:
    """They are the same after they went through text, and through columns."""
    for subscription in subscriptions:
        text = str(subscription)
        if len(text) <= LONGEST:
            assert parse_subscription(text) == subscription
    try:
        columns = FilterColumns.from_subscriptions(subscriptions)
    except SubscriptionError as error:
        assert "a matcher has one space" in str(error)
        return
    columns.check()
    assert columns.to_subscriptions() == subscriptions


def mutated_columns(random: Random, subscription: Subscription) -> dict[str, Any]:
    """The arguments of columns, with some numbers exchanged for others."""
    columns = FilterColumns.from_subscriptions([subscription, *_OTHERS])
    fields = [*FilterColumns.__dataclass_fields__]
    given = {field: getattr(columns, field) for field in fields}
    for _ in range(random.choice([1, 1, 2, 4])):
        field = random.choice(fields)
        held = given[field]
        choice = random.randrange(8)
        if isinstance(held, np.ndarray) and held.ndim == 1 and len(held) and choice < 5:
            place = random.randrange(len(held))
            values: list[Any] = held.tolist()
            values[place] = random.choice([*_NUMBERS, *values])
            given[field] = values if random.randrange(2) else _array(values, held.dtype)
        elif isinstance(held, (list, np.ndarray)) and choice == 5:
            given[field] = held[:-1]
        elif choice == 6:
            given[field] = (
                None if field not in ("names", "texts", "start", "name", "op", "number", "text") else []
            )
        elif choice == 7:
            given[field] = random.choice([["a"], ["\ud800"], [""], [3], "plane", "globe", 3, -1, [[1]]])
    return given


_OTHERS = [parse_subscription("a == 'x' and exists b or within(1, 2, 3)"), parse_subscription("false")]


def _array(values: list[Any], dtype: Any) -> Any:
    try:
        return np.array(values, dtype)
    except (OverflowError, ValueError):
        return values


def _check_columns(given: dict[str, Any]) -> bool:
    """Whether columns are accepted; then objects accept what is in them too."""
    try:
        columns = FilterColumns(**given)
        columns.check()
        columns.check("plane")
    except SubscriptionError as error:
        assert str(error)
        return False
    if columns.subscriptions > _MOST:
        return True
    found = columns.to_subscriptions()
    grouped = columns.grouped()
    grouped.check()
    assert grouped.to_subscriptions() == found
    again = FilterColumns.from_subscriptions(found)
    assert again.to_subscriptions() == found
    return True
