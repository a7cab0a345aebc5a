"""What the values of events are to constraints: numbers, text, something else, or nothing."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from evflow.errors import SchemaError
from evflow.events.event import Event
from evflow.events.view import View
from evflow.matching.names import Names
from evflow.matching.rows import NUMBER, OTHER, TEXT
from evflow.matching.space import Space
from evflow.matching.strings import Strings
from evflow.schema.logical import logical_of
from evflow.schema.types import FieldType, Logical
from evflow.schema.values import describe


@dataclass(frozen=True, slots=True)
class Vocabulary:
    """What events are read for.

    Attributes:
        names: the attributes that constraints use; others are left out.
        strings: the strings that constraints compare with.
        space: where events happen.
        location: the two attributes that tell where.
    """

    names: Names
    strings: Strings
    space: Space
    location: tuple[str, str]

    @property
    def version(self) -> tuple[int, int]:
        """How many names and strings there are; rows of before are of no use once it has changed."""
        return len(self.names), len(self.strings)


MISSING = 0
"""The kind of what is not there."""

KINDS: dict[type, int] = {
    float: NUMBER,
    int: NUMBER,
    bool: NUMBER,
    str: TEXT,
    type(None): MISSING,
    dict: OTHER,
    list: OTHER,
    bytes: OTHER,
}
"""Kinds of the most frequent types; ``kind_of`` knows the others."""

NUMBER_KINDS = "biuf"
"""The kinds of numpy's types that are numbers."""

_NUMBERS = (float, int, np.floating, np.integer, np.bool_)


def kind_of(value: Any) -> int:
    """The kind of a value: ``NUMBER``, ``TEXT``, ``OTHER`` or ``MISSING``.

    Example:
        >>> kind_of(np.float32(1)), kind_of("a"), kind_of(b"a"), kind_of(None), kind_of(np.ma.masked)
        (1, 2, 3, 0, 0)
    """
    kind = KINDS.get(type(value))
    if kind is not None:
        return kind
    if isinstance(value, str):
        return TEXT
    if isinstance(value, np.timedelta64):  # which is an integer of numpy's
        return OTHER
    if isinstance(value, _NUMBERS):
        return NUMBER
    # pandas is not imported for the sake of its NA.
    return MISSING if value is np.ma.masked or type(value).__name__ in ("NAType", "NaTType") else OTHER


def number_of(value: Any) -> float:
    """A number as float64, the nearest; infinite if there is none."""
    try:
        return float(value)
    except OverflowError:
        return float("inf") if value > 0 else float("-inf")


def coordinate_of(value: Any) -> float:
    """A number that tells a place; NaN if it is none."""
    if kind_of(value) == OTHER:
        value = seen_by_itself(value)
    return number_of(value) if kind_of(value) == NUMBER else float("nan")


def unmasked(values: list[Any], present: NDArray[np.bool_] | None) -> list[Any]:
    """The values that are present, None for the others; without ``present`` all are."""
    if present is None:
        return values
    return [value if there else None for value, there in zip(values, present.tolist(), strict=True)]


def attributes_of(event: Any) -> Mapping[str, Any]:
    """The attributes of an event by name: its fields and what goes along; nested records as they are.

    Raises:
        SchemaError: it is not an event.
    """
    if type(event) is dict:
        return event
    if isinstance(event, Event | View):
        fields = {field.name: seen(field.type, getattr(event, field.name)) for field in event.schema.fields}
        return {**event.attrs, **fields} if isinstance(event, View) else fields
    if isinstance(event, Mapping):
        return event
    raise SchemaError(f"expected an event: a dict, an Event or a view; found {describe(event)}")


def is_converted(kind: FieldType) -> bool:
    """Whether constraints see something else than a field's value."""
    return isinstance(kind.held, Logical)


def seen(kind: FieldType, value: Any) -> Any:
    """What constraints see of a field's value."""
    held = kind.held
    if not isinstance(held, Logical):
        return value
    return None if held.is_missing(value) else held.constrained(value)


def seen_by_itself(value: Any) -> Any:
    """What constraints see of a time, duration, decimal or UUID that is in no typed event."""
    kind = logical_of(type(value))
    return value if kind is None else kind.seen_alone(value)


def dig(value: Any, path: str) -> Any:
    """What a nested record holds by a dotted name; None if nothing.

    Example:
        >>> dig({"x": 1, "inner": {"y": 2}}, "inner.y")
        2
    """
    for step in path.split("."):
        if isinstance(value, Mapping):
            value = value.get(step)
        elif isinstance(value, Event | View):
            inside = step in value.schema
            value = seen(value.schema[step].type, getattr(value, step, None)) if inside else None
        else:
            return None
    return value
