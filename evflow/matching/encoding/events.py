"""Rows out of lists of events: dicts, event objects, views, in any mixture."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from evflow.errors import SchemaError
from evflow.matching.encoding.values import (
    KINDS,
    MISSING,
    Vocabulary,
    attributes_of,
    coordinate_of,
    dig,
    kind_of,
    number_of,
    seen_by_itself,
)
from evflow.matching.names import Names
from evflow.matching.rows import NUMBER, OTHER, TEXT, EventRows
from evflow.matching.strings import Strings, utf8


def encode_events(events: Iterable[Any], known: Vocabulary) -> EventRows:
    """The rows of events.

    Raises:
        SchemaError: one is not an event; names it.
    """
    rows = _Rows(known.names)
    first: list[float] = []
    second: list[float] = []
    for number, event in enumerate(events):
        try:
            attributes = attributes_of(event)
        except SchemaError as error:
            raise SchemaError(f"event {number}: {error}") from None
        rows.add(attributes)
        first.append(coordinate(attributes, known.location[0]))
        second.append(coordinate(attributes, known.location[1]))
    return rows.build(known.strings, known.space.places(np.array(first), np.array(second)))


def coordinate(attributes: Mapping[str, Any], name: str) -> float:
    """A number that tells a place; NaN if there is none."""
    value = attributes.get(name)
    if type(value) is float:
        return value
    if value is None and "." in name:
        value = dig(attributes, name)
    return coordinate_of(value)


class _Rows:
    """Columns of attributes while they are collected."""

    def __init__(self, names: Names) -> None:
        self._names = names
        self._bounds = [0]
        self._name: list[int] = []
        self._kind: list[int] = []
        self._number: list[float] = []
        self._texts: list[int] = []
        self._pieces: list[bytes] = []

    def add(self, attributes: Mapping[str, Any]) -> None:
        """Takes in one event."""
        number_of_name, inner = self._names.numbers.get, self._names.inner
        names, kinds, numbers = self._name, self._kind, self._number
        for name, value in attributes.items():
            number = number_of_name(name)
            if number is not None:
                if type(value) is float:  # the most frequent, without a call
                    names.append(number)
                    kinds.append(NUMBER)
                    numbers.append(value)
                else:
                    self._append(number, value)
            if inner and name in inner and kind_of(value) == OTHER:
                self._add_inner(attributes, name, value)
        self._bounds.append(len(names))

    def _add_inner(self, attributes: Mapping[str, Any], name: str, record: Any) -> None:
        """The fields of a nested record, unless the event has something of their full name."""
        for rest, number in self._names.inner[name]:
            if f"{name}.{rest}" not in attributes:
                self._append(number, dig(record, rest))

    def _append(self, name: int, value: Any) -> None:
        kind = KINDS.get(type(value))
        if kind is None:
            kind = kind_of(value)
        if kind == OTHER:
            value = seen_by_itself(value)
            kind = kind_of(value)
        if kind == MISSING:
            return
        if kind == TEXT:
            self._texts.append(len(self._name))
            self._pieces.append(utf8(value))
        self._number.append(number_of(value) if kind == NUMBER else 0.0)
        self._name.append(name)
        self._kind.append(kind)

    def build(self, strings: Strings, place: NDArray[Any]) -> EventRows:
        """The rows, with the places of the events."""
        n = len(self._name)
        text, start, length = np.full(n, -1, np.int32), np.zeros(n, np.int64), np.zeros(n, np.int32)
        sizes = np.fromiter(map(len, self._pieces), np.int32, len(self._pieces))
        chars = np.frombuffer(bytearray(b"".join(self._pieces)), np.uint8)
        first = np.cumsum(sizes, dtype=np.int64) - sizes
        texts = np.array(self._texts, np.intp)
        text[texts], start[texts], length[texts] = strings.find(chars, first, sizes), first, sizes
        bounds, name = np.array(self._bounds, np.int64), np.array(self._name, np.int32)
        kind, number = np.array(self._kind, np.uint8), np.array(self._number, np.float64)
        return EventRows(bounds, name, kind, number, text, chars, start, length, place)
