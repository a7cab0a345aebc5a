"""What subscriptions ask of events, held against what the events of a match stone have.

What the graph itself subscribes is refused if no schema that the graph declares has an attribute, or none has
it of the type that is asked for. What comes while the stone runs is taken, since events of another schema may
come, and is told once.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from evflow.choices import suggestion
from evflow.events.batch import EventBatch
from evflow.matching.columns.bulk import FilterColumns
from evflow.matching.literals import name_text
from evflow.matching.operators import NAMES_OTHER, TAKES_NOTHING
from evflow.schema import Schema
from evflow.schema.types import FieldType, Logical, Number, Record, Str, Text

_log = logging.getLogger("evflow.matching")

_NUMBER, _TEXT, _OTHER = 1, 2, 4
_ANY = _NUMBER | _TEXT | _OTHER
COMPARED = _NUMBER | _TEXT
"""What compares with its like, and may be the key of an event."""
_WANTED = {_NUMBER: "a number", _TEXT: "a string", COMPARED: "a number or a string"}

_MOST_SCHEMAS = 64
"""Schemas that are looked at; where more come, nothing is told any more."""
_MOST_ASKED = 1000
"""Different things that are looked at, and attributes beside fields."""
_SHOWN = 4
_DEEPEST = 3


class Ask(NamedTuple):
    """Something that a constraint, or the key of tracking, asks of events.

    Attributes:
        name: an attribute that they are to have.
        kinds: what it is to be, as bits.
        other: another attribute that it is compared with, or "".
    """

    name: str
    kinds: int
    other: str = ""


def asks(columns: FilterColumns, location: tuple[str, str]) -> Iterator[tuple[int, Ask]]:
    """What subscriptions ask for, each once, with the number of the first subscription that does.

    Args:
        columns: the subscriptions, checked.
        location: the two attributes that say where an event happened.
    """
    op, text = columns.op, columns.text
    compared, rows = NAMES_OTHER[op], np.arange(len(op))
    kind = np.where(TAKES_NOTHING[op] | compared, 0, np.where(text >= 0, 2, 1))
    # Without sorting: numpy assigns in order, so that of those that ask the same the first stays.
    first = np.full(3 * len(columns.names), -1)
    first[(3 * columns.name + kind)[::-1]] = rows[::-1]
    for code in np.flatnonzero(first >= 0).tolist():
        yield _owner(columns, first[code]), Ask(columns.names[code // 3], (_ANY, _NUMBER, _TEXT)[code % 3])
    if len(rows := rows[compared]):
        found, at = np.unique([columns.name[rows], text[rows]], axis=1, return_index=True)
        for (name, other), row in zip(found.T.tolist(), rows[at].tolist(), strict=True):
            yield _owner(columns, row), Ask(columns.names[name], _ANY, columns.texts[other])
    located = np.zeros(len(columns), np.bool_)
    if columns.x is not None:
        located |= ~np.isnan(columns.x)
    if columns.area is not None:
        located |= columns.area >= 0
    if located.any():
        number = _subscription(columns, int(located.argmax()))
        yield from ((number, Ask(name, _NUMBER)) for name in location)


def _owner(columns: FilterColumns, constraint: int) -> int:
    return _subscription(columns, int(np.searchsorted(columns.start, constraint, "right")) - 1)


def _subscription(columns: FilterColumns, filter: int) -> int:
    return filter if columns.subscription is None else int(columns.subscription[filter])


class Known:
    """What is known of the events that reach a stone.

    Args:
        schemas: their schemas.
        attributes: names that they may have beside, with values of any type.

    Example:
        >>> known = Known([Schema("Flight", {"carrier": str, "delay": float})], ["hops"])
        >>> known.lacks(Ask("dlay", 1)).partition(";")[0]
        "Flight has no dlay (did you mean 'delay'?)"
        >>> known.lacks(Ask("hops", 1))
        ''
    """

    def __init__(self, schemas: Iterable[Schema], attributes: Iterable[str]) -> None:
        self.schemas = {schema.fingerprint: schema for schema in schemas}
        self.attributes = set(attributes)

    def lacks(self, ask: Ask) -> str:
        """What is wrong with something that is asked for; "" if some event may have it."""
        for name in filter(None, (ask.name, ask.other)):
            if not self._kinds(name):
                near = suggestion(name, self._names())
                return (
                    f"{self._said()} no {name_text(name)}{near}; name what events carry beside their fields "
                    f"in attributes={[name]}"
                )
        if ask.other and not self._kinds(ask.name) & self._kinds(ask.other) & COMPARED:
            return f"two attributes of these types do not compare: {self._types(ask.name, ask.other)}"
        if not ask.other and not self._kinds(ask.name) & ask.kinds:
            return f"expected {_WANTED[ask.kinds]}, found {self._types(ask.name)}"
        return ""

    def _kinds(self, name: str) -> int:
        if name in self.attributes:
            return _ANY
        found = 0
        for schema in self.schemas.values():
            found |= _kind(_field(schema, name))
        return found

    def _types(self, *names: str) -> str:
        found = [
            f"{name_text(name)} of {schema.name}, {kind.text}"
            for name in names
            for schema in self.schemas.values()
            if (kind := _field(schema, name)) is not None
        ]
        return " and ".join(dict.fromkeys(found[:_SHOWN]))

    def _names(self) -> list[str]:
        inner = [name for schema in self.schemas.values() for name in _names(schema)]
        return list(dict.fromkeys([*inner, *self.attributes]))

    def _said(self) -> str:
        names = list(dict.fromkeys(schema.name for schema in self.schemas.values()))
        return f"{names[0]} has" if len(names) == 1 else f"{', '.join(names[:_SHOWN])} have"


class Asked:
    """Tells in the log, once, of each thing that subscriptions ask for and no event has so far.

    Args:
        where: the stone, for the log.
        known: what is known of its events when it begins.
        location: the two attributes that say where an event happened.
    """

    def __init__(self, where: str, known: Known, location: tuple[str, str]) -> None:
        self._where, self._known, self._location = where, known, location
        self._asked: dict[Ask, int] = {}

    def subscribed(self, columns: FilterColumns, ids: NDArray[np.int32]) -> None:
        """Subscriptions came.

        Args:
            columns: they, checked.
            ids: their ids, one each.
        """
        for number, ask in asks(columns, self._location):
            if ask not in self._asked and len(self._asked) < _MOST_ASKED:
                self._asked[ask] = int(ids[number])
                self._tell(ask)

    def arrived(self, batch: EventBatch) -> None:
        """Events came."""
        known = self._known
        if batch.attributes is not None and len(known.attributes) < _MOST_ASKED:
            known.attributes.update(batch.attributes.columns)
        first = not known.schemas
        if batch.schema.fingerprint not in known.schemas and len(known.schemas) < _MOST_SCHEMAS:
            known.schemas[batch.schema.fingerprint] = batch.schema
            for ask in self._asked if first else ():
                self._tell(ask)

    def _tell(self, ask: Ask) -> None:
        # Before there is an event to look at, or where there are many kinds of them, nothing is known.
        if 0 < len(self._known.schemas) < _MOST_SCHEMAS and (what := self._known.lacks(ask)):
            _log.warning(
                "%s: subscription %d asks for what no event has so far: %s",
                self._where,
                self._asked[ask],
                what,
            )


def _field(schema: Schema, name: str) -> FieldType | None:
    """The type of a field by its dotted name; None if there is none."""
    kind: FieldType | None = None
    inside: Schema | None = schema
    for step in name.split("."):
        if inside is None or step not in inside:
            return None
        kind = inside[step].type.held
        inside = kind.schema if isinstance(kind, Record) else None
    return kind


def _kind(kind: FieldType | None) -> int:
    """What the values of a type are to constraints, as a bit; 0 for None."""
    if isinstance(kind, Logical):
        return _NUMBER if kind.numeric else _TEXT
    if isinstance(kind, Number):
        return _NUMBER
    return _TEXT if isinstance(kind, Str | Text) else _OTHER if kind is not None else 0


def _names(schema: Schema, before: str = "", depth: int = 0) -> Iterator[str]:
    for field in schema.fields:
        yield before + field.name
        if isinstance(held := field.type.held, Record) and depth < _DEEPEST:
            yield from _names(held.schema, f"{before}{field.name}.", depth + 1)
