"""Checks columns of filters, with numpy, and names what is wrong first."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from operator import itemgetter
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from evflow.errors import SubscriptionError
from evflow.matching.areas.columns import BOX
from evflow.matching.literals import checked_text, first_of
from evflow.matching.model import LIMIT
from evflow.matching.operators import KNOWN, TAKES_NOTHING, TAKES_STRING, Op
from evflow.matching.patterns import searcher

if TYPE_CHECKING:
    from evflow.matching.columns.bulk import FilterColumns

_SPACES = ("plane", "globe")
_HIGHEST_ID = 2**31 - 2

_Problem = tuple[int, str]


def check(columns: FilterColumns, space: str | None = None) -> None:
    """Checks everything that ``FilterColumns`` says of its attributes.

    Raises:
        SubscriptionError: it names the first filter, and constraint, that is wrong, counted from 0.
    """
    _check_dictionary(columns.names, "names")
    _check_dictionary(columns.texts, "texts")
    if "" in columns.names:
        raise SubscriptionError(f"names[{columns.names.index('')}] is empty; an attribute has a name")
    _check_lengths(columns)
    _check_start(columns)
    _check_constraints(columns)
    _check_subscriptions(columns)
    _check_areas(columns, space)


def _check_dictionary(given: Sequence[str], what: str) -> None:
    try:
        # One pass over all of them; only the first that is wrong is looked for one by one.
        "".join(given).encode()
    except (TypeError, UnicodeEncodeError):
        for number, text in enumerate(given):
            checked_text(text, f"{what}[{number}]")
        raise


def _check_lengths(columns: FilterColumns) -> None:
    if not len(columns.start):
        raise SubscriptionError("start is empty; it holds one more than there are filters, so at least 0")
    of_filters = {field: getattr(columns, field) for field in ("subscription", "x", "y", "radius", "area")}
    for field, held in of_filters.items():
        if held is not None and len(held) != len(columns):
            raise SubscriptionError(f"{field} has length {len(held)}; start says {len(columns)} filters")
    for field in ("op", "number", "text"):
        length = len(getattr(columns, field))
        if length != len(columns.name):
            raise SubscriptionError(
                f"{field} has length {length}, name {len(columns.name)}; both are constraints"
            )
    present = [field for field in ("x", "y", "radius") if of_filters[field] is not None]
    if len(present) not in (0, 3):
        raise SubscriptionError(f"an area takes x, y and radius but only {' and '.join(present)} is given")


def _check_start(columns: FilterColumns) -> None:
    start = columns.start
    if start[0] != 0:
        raise SubscriptionError(f"start[0] is {start[0]}; expected 0")
    for at in first_of(start[1:] < start[:-1]):
        raise SubscriptionError(f"filter {at}: start falls from {start[at]} to {start[at + 1]}")
    if start[-1] != len(columns.name):
        raise SubscriptionError(f"start ends with {start[-1]}; there are {len(columns.name)} constraints")


def _check_constraints(columns: FilterColumns) -> None:
    problems = list(_problems(columns))
    if problems:
        at, what = min(problems, key=itemgetter(0))
        number = int(np.searchsorted(columns.start, at, "right")) - 1
        raise SubscriptionError(f"filter {number}, constraint {at - int(columns.start[number])}: {what}")


def _problems(columns: FilterColumns) -> Iterator[_Problem]:
    """The first problem of each kind, by the constraint's place."""
    op, text = columns.op, columns.text
    yield from _outside(columns.name, 0, len(columns.names) - 1, "name", "an index of names")
    yield from _outside(text, -1, len(columns.texts) - 1, "text", "an index of texts, or -1 for none")
    for at in first_of(TAKES_STRING[op] & (text < 0)):
        yield at, f"{Op(int(op[at])).symbol} takes a string, but text is -1"
    for at in first_of(TAKES_NOTHING[op] & (text >= 0)):
        yield at, f"{Op(int(op[at])).symbol} takes no operand, but text is {text[at]}; expected -1"
    if op.max(initial=0) >= Op.ABSENT:
        yield from _special_problems(columns)


def _special_problems(columns: FilterColumns) -> Iterator[_Problem]:
    """The first problem of each kind that only operators have which engines do not see."""
    op, text = columns.op, columns.text
    for at in first_of(~KNOWN[op]):
        yield at, f"op is {op[at]}; expected the number of an Op, such as {int(Op.LT)} for {Op.LT.symbol}"
    if "" in columns.texts:
        nameless = (op >= Op.EQ_OTHER) & (op <= Op.GE_OTHER) & (text == columns.texts.index(""))
        for at in first_of(nameless):
            yield at, f"{Op(int(op[at])).symbol} takes the name of an attribute, but its text is empty"
    expression = (op == Op.MATCHES) | (op == Op.NOT_MATCHES)
    asked = np.flatnonzero(expression & (text >= 0) & (text < len(columns.texts)))
    for number in np.unique(text[asked]).tolist():
        try:
            searcher(columns.texts[number])
        except SubscriptionError as error:
            yield int(asked[text[asked] == number][0]), error.message


def _outside(held: NDArray[Any], least: int, most: int, what: str, meaning: str) -> Iterator[_Problem]:
    for at in first_of((held < least) | (held > most)):
        yield at, f"{what} is {held[at]}; expected {least} to {most}, {meaning}"


def _check_subscriptions(columns: FilterColumns) -> None:
    of, count = columns.subscription, columns.subscriptions
    if not 0 <= count <= _HIGHEST_ID + 1:
        raise SubscriptionError(f"there are {count} subscriptions; expected 0 to {_HIGHEST_ID + 1}")
    if of is None and count != len(columns):
        raise SubscriptionError(
            f"count is {count}, but without subscription each of {len(columns)} filters is one"
        )
    if of is not None:
        for at, what in _outside(of, 0, count - 1, "subscription", "as count says"):
            raise SubscriptionError(f"filter {at}: {what}")
        if columns.count is None and count > len(columns):
            at = int(of.argmax())
            raise SubscriptionError(
                f"filter {at}: subscription is {count - 1}, but there are {len(columns)} filters; they "
                f"are numbered from 0 here, their ids are in ids (or given to from_arrays)"
            )
    if columns.ids is not None:
        _check_ids(columns.ids, count)


def _check_ids(ids: NDArray[np.int64], count: int) -> None:
    if len(ids) != count:
        raise SubscriptionError(f"there are {count} subscriptions but {len(ids)} ids")
    for at, what in _outside(ids, 0, _HIGHEST_ID, "the id", "that an id may be"):
        raise SubscriptionError(f"subscription {at}: {what}")
    ordered = np.sort(ids)
    for at in first_of(ordered[1:] == ordered[:-1]):
        raise SubscriptionError(f"id {ordered[at]} is given to two subscriptions")


def _check_areas(columns: FilterColumns, space: str | None) -> None:
    for given in (columns.space, space):
        if given is not None and not (isinstance(given, str) and given in _SPACES):
            raise SubscriptionError(f"space is {given!r}; expected 'plane' or 'globe'")
    _check_shapes(columns, space)
    x, y, radius = columns.x, columns.y, columns.radius
    if x is None or y is None or radius is None:
        return
    there = ~np.isnan(x)
    for at in first_of(there) if space and columns.space and space != columns.space else ():
        unit = "with a unit, such as 50 km" if space == "globe" else "without a unit"
        raise SubscriptionError(
            f"filter {at}: its area is on the {columns.space}, the matcher on the {space}; "
            f"write the radius {unit}, or make the matcher with space='{columns.space}'"
        )
    problems = list(_area_problems(x, y, radius, there, space or columns.space))
    if problems:
        at, what = min(problems, key=itemgetter(0))
        raise SubscriptionError(f"filter {at}: {what}")


def _check_shapes(columns: FilterColumns, space: str | None) -> None:
    area, areas = columns.area, columns.areas
    if area is None and areas is None:
        return
    if area is None or areas is None:
        raise SubscriptionError("boxes and polygons take area and areas, but only one of the two is given")
    for at, what in _outside(area, -1, len(areas) - 1, "area", "a number of areas, or -1 for none"):
        raise SubscriptionError(f"filter {at}: {what}")
    there = np.flatnonzero(area >= 0)
    for wanted in (columns.space, space):
        if wanted is not None and wanted != areas.space and len(there):
            unit = "with degrees" if wanted == "globe" else "without degrees"
            raise SubscriptionError(
                f"filter {there[0]}: its area is on the {areas.space}, expected on the {wanted}; "
                f"write inside {unit}, or make the matcher with space='{areas.space}'"
            )
    round = there[areas.kind[area[there]] < BOX]
    if len(round):
        raise SubscriptionError(
            f"filter {round[0]}: area is a point or a circle; expected boxes and polygons in areas, and "
            "circles in x, y and radius"
        )
    if columns.x is not None and not np.isnan(columns.x[there]).all():
        at = there[~np.isnan(columns.x[there])][0]
        raise SubscriptionError(f"filter {at}: it has a circle and a box or polygon; expected one area")


def _area_problems(
    x: NDArray[np.float64],
    y: NDArray[np.float64],
    radius: NDArray[np.float64],
    there: NDArray[np.bool_],
    space: str | None,
) -> Iterator[_Problem]:
    names = ("latitude x", "longitude y", "radius") if space == "globe" else ("x", "y", "radius")
    limit, expected = (
        (LIMIT, f"number up to {LIMIT:.8g}") if space == "plane" else (math.inf, "finite float64")
    )
    for what, held in zip(names, (x, y, radius), strict=True):
        for at in first_of(there & ~(np.isfinite(held) & (np.abs(held) <= limit))):
            yield at, f"its {what} is {held[at]}; expected a {expected}"
    for at in first_of(there & (radius < 0)):
        yield at, f"its radius is {radius[at]}; expected 0 or more"
    for at in first_of(there & (np.abs(x) > 90)) if space == "globe" else ():
        yield at, f"its latitude x is {x[at]}; expected -90 to 90 degrees"
