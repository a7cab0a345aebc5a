"""Why an event satisfies a subscription or does not: what became of each constraint, and why."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from evflow.choices import suggestion
from evflow.matching.areas.columns import AreaColumns
from evflow.matching.areas.overlap import overlaps
from evflow.matching.derived import with_derived
from evflow.matching.encoding.events import coordinate, encode_events
from evflow.matching.encoding.values import Vocabulary, attributes_of
from evflow.matching.kept import Kept
from evflow.matching.literals import name_text, number_text, string_text
from evflow.matching.model import Area, Constraint, Filter
from evflow.matching.outlines import SHAPES
from evflow.matching.reference import Reference
from evflow.matching.rows import NUMBER, TEXT, EventRows
from evflow.matching.space import EARTH_RADIUS

_LONGEST = 60


@dataclass(frozen=True, slots=True)
class Reason:
    """What became of one constraint or area.

    Attributes:
        constraint: the constraint, or the area.
        holds: whether the event satisfies it.
        why: what the event has there, as a text.
    """

    constraint: Constraint | Area
    holds: bool
    why: str

    def __str__(self) -> str:
        return f"{self.constraint}: {'holds' if self.holds else 'fails'}, {self.why}"


@dataclass(frozen=True, slots=True)
class FilterExplanation:
    """What became of one filter.

    Attributes:
        filter: the filter.
        reasons: one for each constraint, and a last one for the area if there is one.
    """

    filter: Filter
    reasons: tuple[Reason, ...]

    @property
    def holds(self) -> bool:
        """Whether the event satisfies the filter: all of its constraints, and its area."""
        return all(reason.holds for reason in self.reasons)


@dataclass(frozen=True, slots=True)
class Explanation:
    """Why an event satisfies a subscription, or why not; ``str`` writes it for people.

    Attributes:
        id: of the subscription: its text if it has one.
        filters: what became of each of its filters.

    Example:
        >>> from evflow.matching import Matcher
        >>> matcher = Matcher("reference", lookup=True)
        >>> late = matcher.subscribe("delay > 45 and carrier == 'UA' or exists urgent")
        >>> print(matcher.explain({"delay": 50, "carier": "UA"}, late))
        subscription 0 does not match
          filter 0 fails: delay > 45 and carrier == 'UA'
            delay > 45: holds, delay is 50
            carrier == 'UA': fails, the event has no carrier (did you mean 'carier'?)
          filter 1 fails: exists urgent
            exists urgent: fails, the event has no urgent
    """

    id: int | str
    filters: tuple[FilterExplanation, ...]

    @property
    def holds(self) -> bool:
        """Whether the event satisfies the subscription: one of its filters."""
        return any(part.holds for part in self.filters)

    def __str__(self) -> str:
        lines = [f"subscription {self.id!r} {'matches' if self.holds else 'does not match'}"]
        if not self.filters:
            lines.append("  it has no filters, so no event satisfies it")
        for number, part in enumerate(self.filters):
            lines.append(f"  filter {number} {'holds' if part.holds else 'fails'}: {part.filter}")
            lines += [f"    {reason}" for reason in part.reasons]
        return "\n".join(lines)


def explained(
    event: Any, ids: NDArray[np.int32], texts: list[str | None], kept: Kept, known: Vocabulary
) -> list[Explanation]:
    """Why an event satisfies subscriptions or does not.

    Args:
        event: the event.
        ids: the subscriptions.
        texts: their ids where these are texts, else None.
        kept: what they say.
        known: names, strings and the space.

    Raises:
        SchemaError: it is not an event.
    """
    subscriptions, filters = kept.subscriptions(ids), kept.filters(ids)
    # The reference says what holds; here is only said what the event has.
    engine = Reference(known.strings, known.space.dimensions)
    engine.add(filters)
    rows = with_derived(encode_events([attributes_of(event)], known), known.names, known.strings)
    true, inside = (column.tolist() for column in engine.tests(rows))
    seen = _Seen(event, rows, known)
    found, row, number = [], 0, 0
    for id, name, subscription in zip(ids.tolist(), texts, subscriptions, strict=True):
        parts = []
        for part in subscription.filters:
            reasons = []
            for constraint in part.constraints:
                reasons.append(Reason(constraint, true[row], seen.value(constraint)))
                row += 1
            if part.area is not None:
                shaped = isinstance(part.area, SHAPES)
                holds = seen.inside(part.area) if shaped else inside[number]
                told = seen.place(None if shaped else filters.centre[number])
                reasons.append(Reason(part.area, holds, told))
            parts.append(FilterExplanation(part, tuple(reasons)))
            number += 1
        found.append(Explanation(id if name is None else name, tuple(parts)))
    return found


class _Seen:
    """What an event has, as texts."""

    def __init__(self, event: Any, rows: EventRows, known: Vocabulary) -> None:
        self._attributes = attributes_of(event)
        self._rows, self._known = rows, known
        self._at = {name: at for at, name in enumerate(rows.name.tolist())}

    def value(self, constraint: Constraint) -> str:
        """What it has where a constraint looks."""
        if constraint.op.names_other:
            names = constraint.name, str(constraint.value)
            kinds = {self._kind(name) for name in names}
            other = ", a number and a string" if kinds == {NUMBER, TEXT} else ""
            return " and ".join(map(self._told, names)) + other
        kind = self._kind(constraint.name)
        other = ""
        if kind == NUMBER and isinstance(constraint.value, str):
            other = ", a number and not a string"
        if kind == TEXT and isinstance(constraint.value, float):
            other = ", a string and not a number"
        return self._told(constraint.name) + other

    def _kind(self, name: str) -> int | None:
        at = self._at.get(self._known.names.numbers[name])
        return None if at is None else int(self._rows.kind[at])

    def _told(self, attribute: str) -> str:
        name, kind = name_text(attribute), self._kind(attribute)
        if kind is None:
            return f"the event has no {name}{suggestion(attribute, list(map(str, self._attributes)))}"
        rows, at = self._rows, self._at[self._known.names.numbers[attribute]]
        if kind == NUMBER:
            return f"{name} is {number_text(float(rows.number[at]))}"
        if kind == TEXT:
            start = int(rows.char_start[at])
            text = rows.chars[start : start + int(rows.char_length[at])].tobytes()
            shown = string_text(text.decode("utf-8", "replace"))
            return f"{name} is {shown if len(shown) <= _LONGEST else f'{shown[:_LONGEST]}…'}"
        return f"{name} is there, neither a number nor a string"

    def inside(self, area: Area) -> bool:
        """Whether it happened in a box or a polygon."""
        x, y = (coordinate(self._attributes, name) for name in self._known.location)
        place = AreaColumns.points(x, y, self._known.space.name)
        return bool(overlaps(place, AreaColumns.of([area]))[0])

    def place(self, centre: NDArray[np.float64] | None) -> str:
        """Where it happened, and how far from the centre of an area if that is a circle."""
        names = self._known.location
        x, y = (coordinate(self._attributes, name) for name in names)
        place = self._rows.place[0]
        if np.isnan(place[0]):
            wrong = [name_text(name) for name, value in zip(names, (x, y), strict=True) if math.isnan(value)]
            there = f"it has no number {' and no number '.join(wrong)}" if wrong else f"({x}, {y}) is nowhere"
            return f"the event has no place: {there}"
        at = f"the event is at ({number_text(x)}, {number_text(y)})"
        if centre is None:
            return at
        away = math.dist(place.tolist(), centre.tolist())
        if len(place) == 2:
            return f"{at}, {away:.6g} from the centre"
        metres = 2 * EARTH_RADIUS * math.asin(min(away / 2, 1.0))
        return f"{at}, {metres:.6g} m from the centre"
