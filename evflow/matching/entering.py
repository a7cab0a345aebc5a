"""Subscriptions on their way in: from whatever the user gives to the columns that engines get."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from evflow.errors import SubscriptionError
from evflow.matching.columns.bulk import FilterColumns
from evflow.matching.columns.shapes import columns_of_texts
from evflow.matching.derived import lowered
from evflow.matching.encoding.values import Vocabulary
from evflow.matching.model import Filter, Subscription
from evflow.matching.names import Names
from evflow.matching.rows import Filters
from evflow.matching.space import Space
from evflow.matching.strings import Strings

Int32s = NDArray[np.int32]


def columns_of(given: Any, space: Space) -> FilterColumns:
    """Subscriptions as checked columns, the filters of each next to each other.

    Args:
        given: a list of texts, filters and subscriptions, columns, or a table of pyarrow.
        space: where the areas must be.

    Raises:
        SubscriptionError: one is malformed, or it is none of these.
    """
    if isinstance(given, FilterColumns):
        columns = given
    elif type(given).__module__.partition(".")[0] == "pyarrow":
        columns = FilterColumns.from_arrow(given, space.name)
    elif isinstance(given, Iterable):
        columns = _columns_of_many(given)
    else:
        raise SubscriptionError(
            "expected subscriptions: a list of texts, filters and subscriptions, FilterColumns, or a table "
            f"of pyarrow; found {type(given).__name__}"
        )
    columns.check(space.name)
    return columns.grouped()


def _columns_of_many(given: Any) -> FilterColumns:
    if isinstance(given, str | bytes | Filter | Subscription):
        refused: Any = given
        return FilterColumns.from_subscriptions(refused)  # which says what is wrong
    many = list(given)
    if all(isinstance(one, str) for one in many):
        return columns_of_texts(many)
    return FilterColumns.from_subscriptions(many)


def counts_of(columns: FilterColumns) -> tuple[Int32s, Int32s, NDArray[np.bool_]]:
    """How many filters and constraints each subscription has, and which filters have a circle."""
    located = np.zeros(len(columns), bool) if columns.x is None else ~np.isnan(columns.x)
    sizes = np.diff(columns.start)
    if columns.subscription is None:
        return np.ones(len(columns), np.int32), sizes.astype(np.int32), located
    n = columns.subscriptions
    filters = np.bincount(columns.subscription, minlength=n)
    constraints = np.bincount(columns.subscription, sizes, minlength=n)
    return filters.astype(np.int32), constraints.astype(np.int32), located


def filters_of(columns: FilterColumns, ids: Int32s, known: Vocabulary) -> Filters:
    """Checked columns as engines get them; new names and strings get numbers.

    Args:
        columns: the columns, checked and grouped.
        ids: one a subscription.
        known: names and strings, to be added to, and where the areas are.
    """
    name = renumbered(columns.name, columns.names, known.names)
    name, op, number, text, texts = lowered(columns, name, known.names, known.strings)
    text = renumbered(text, texts, known.strings)
    centre, reach = _areas(columns, known.space)
    return Filters(
        subscription=ids if columns.subscription is None else ids[columns.subscription],
        start=columns.start,
        name=name,
        op=op,
        number=number,
        text=text,
        centre=centre,
        reach=reach,
    )


def renumbered(column: Int32s, words: Sequence[str], known: Names | Strings) -> Int32s:
    """The numbers that words have; new words get new ones.

    Args:
        column: an index of ``words`` each, or -1, which stays.
        words: names or strings.
        known: the numbers, to be added to.
    """
    used = np.zeros(len(words) + 1, bool)
    used[column] = True  # -1 is the one too many
    chosen = np.flatnonzero(used[:-1])
    numbers = np.full(len(words) + 1, -1, np.int32)
    numbers[chosen] = known.intern([words[i] for i in chosen.tolist()])
    return numbers[column]


def _areas(columns: FilterColumns, space: Space) -> tuple[NDArray[Any], NDArray[Any]]:
    n = len(columns)
    centre = np.full((n, space.dimensions), np.nan)
    reach = np.full(n, np.nan)
    if columns.x is None or columns.y is None or columns.radius is None:
        return centre, reach
    there = np.flatnonzero(~np.isnan(columns.x))
    centre[there] = space.places(columns.x[there], columns.y[there])
    reach[there] = space.reaches(columns.radius[there])
    return centre, reach
