"""Events that are objects of Python: attributes as constraints see them, and rows without machine code."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any, TypeAlias

import numpy as np

from evflow.errors import SchemaError
from evflow.matching.encoding.builder import RowBuilder
from evflow.matching.encoding.values import (
    KINDS,
    Vocabulary,
    attributes_of,
    coordinate_of,
    dig,
    kind_of,
    number_of,
    seen_by_itself,
)
from evflow.matching.rows import NUMBER, OTHER, TEXT, EventRows
from evflow.matching.strings import utf8

Usual: TypeAlias = dict[str, float | str | bytes | None]
_NAN = float("nan")
_SURROGATES = re.compile("[\ud800-\udfff]")


class Utf8(bytes):
    """The bytes of a text that UTF-8 has none for: one with lone surrogates."""


def usual(event: Any, known: Vocabulary) -> Usual:
    """The attributes of an event that constraints use, and those that tell its place.

    Args:
        event: an event of any form.
        known: what it is read for.

    Returns:
        Floats, strings, ``Utf8``, empty bytes for what is none of these, and None for what is not there;
        fields of nested records by dotted names.

    Raises:
        SchemaError: it is not an event.
    """
    attributes = attributes_of(event)
    numbers, inner = known.names.numbers, known.names.inner
    found: Usual = {}
    for name, value in attributes.items():
        if name in numbers:
            if type(value) is float and type(name) is str:  # the most frequent, without a call
                found[name] = value
            else:
                _put(found, name, value)
        if inner and name in inner and kind_of(value) == OTHER:
            for rest, _ in inner[name]:
                full = f"{name}.{rest}"
                if full not in attributes:
                    held = value.get(rest) if type(value) is dict and "." not in rest else dig(value, rest)
                    _put(found, full, held)
    for name in known.location:
        if name not in numbers:
            found[name] = coordinate(attributes, name)
        elif name not in found:
            found[name] = None
    return found


def _put(found: Usual, name: str, value: Any) -> None:
    if type(name) is str and (type(value) is float or (type(value) is str and value.isascii())):
        found[name] = value
        return
    kind = KINDS.get(type(value))
    if kind is None:
        kind = kind_of(value)
    if kind == OTHER:
        value = seen_by_itself(value)
        kind = kind_of(value)
    # Neither a name nor a text is of a class of its own then.
    name = str.__str__(name)
    if kind == NUMBER:
        found[name] = number_of(value)
    elif kind == TEXT:
        text = str.__str__(value)
        found[name] = Utf8(utf8(text)) if _SURROGATES.search(text) else text
    elif kind == OTHER:
        found[name] = b""


def coordinate(attributes: Mapping[str, Any], name: str) -> float:
    """A number that tells a place; NaN if there is none."""
    value = attributes.get(name)
    if type(value) is float:
        return value
    if value is None and "." in name and name not in attributes:
        value = dig(attributes, name)
    return _NAN if value is None else coordinate_of(value)


def encode_events(events: Iterable[Any], known: Vocabulary, before: int = 0) -> EventRows:
    """The rows of events, read by Python; errors count them from ``before`` on.

    Raises:
        SchemaError: one is not an event; names it.
    """
    found: list[Usual] = []
    for number, event in enumerate(events, before):
        try:
            found.append(usual(event, known))
        except SchemaError as error:
            raise SchemaError(f"event {number}: {error}") from None
    builder = RowBuilder(len(found), known.strings)
    for name in dict.fromkeys(name for one in found for name in one if name in known.names.numbers):
        builder.add_objects(known.names.numbers[name], [_shown(one.get(name)) for one in found])
    first, second = (np.array([coordinate(one, name) for one in found]) for name in known.location)
    return builder.build(known.space.places(first, second))


def _shown(value: Any) -> Any:
    """A text in place of its bytes."""
    return value.decode("utf-8", "surrogatepass") if isinstance(value, Utf8) else value
