"""Attributes: named values that go along with events beside their fields, held in columns.

An attribute is an integer of 64 bits, a float or a text. Over the events of a batch one name has one kind;
integers among floats become floats where that is exact.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from evflow.errors import SchemaError
from evflow.outside import shown
from evflow.schema.types import TEXT, f64, i64
from evflow.schema.values import Misfit, describe, to_number, to_text

AttributeValue = int | float | str

MOST_ATTRIBUTES = 1_000
"""The attributes that an event may have: more are not sent to other nodes."""

_DTYPES: dict[str, Any] = {"i": np.int64, "f": np.float64, "s": object}
_EMPTY: dict[str, Any] = {"i": 0, "f": 0.0, "s": ""}
_PLAIN: dict[type, str] = {int: "i", float: "f", str: "s"}
_LOWEST, _HIGHEST = i64.bounds
_SHORT = 1 << 16


@dataclass(frozen=True, slots=True, eq=False)
class AttributeColumn:
    """The values of one attribute over the events of a batch.

    Attributes:
        kind: ``i`` (``values`` is int64), ``f`` (float64) or ``s`` (an object array of str).
        values: one value an event; 0 or "" where the event has none.
        present: one bool an event: whether it has the attribute.
    """

    kind: str
    values: np.ndarray[Any, np.dtype[Any]]
    present: np.ndarray[Any, np.dtype[np.bool_]]


class Row(NamedTuple):
    """The attributes that one event has, checked.

    Attributes:
        names: their names.
        kinds: the kind of each, see ``AttributeColumn``.
        values: the values.
    """

    names: tuple[str, ...]
    kinds: str
    values: tuple[AttributeValue, ...]


def row_of(values: Mapping[str, AttributeValue]) -> Row:
    """The attributes of one event, from a mapping that may change afterwards.

    Args:
        values: name → value.

    Raises:
        SchemaError: see ``Attributes.constant``.
    """
    kinds = ""
    if type(values) is dict and len(values) <= MOST_ATTRIBUTES:
        values = values.copy()
        for name, value in values.items():
            kind = _PLAIN.get(type(value), "")
            if kind == "i" and not _LOWEST <= value <= _HIGHEST:
                break
            if not kind or not _is_plain(name) or (kind == "s" and not _is_plain(value)):
                break
            kinds += kind
        else:
            return Row(tuple(values), kinds, tuple(values.values()))
    # What is not plainly right is looked at more closely.
    one = Attributes.constant(values, 1).present()
    return Row(tuple(one.columns), "".join(c.kind for c in one.columns.values()), (*one.of(0).values(),))


def alike(one: Row | None, other: Row | None) -> bool:
    """Whether the attributes of two events have the same names and kinds, so that they fit into the same
    columns."""
    if one is None or other is None:
        return one is other
    return one.names == other.names and one.kinds == other.kinds


class Attributes:
    """The attributes of the events of a batch.

    Args:
        columns: name → column; all of one length.
    """

    __slots__ = ("columns",)

    def __init__(self, columns: dict[str, AttributeColumn]) -> None:
        self.columns = columns

    @classmethod
    def from_rows(cls, rows: Sequence[Mapping[str, AttributeValue] | None]) -> Attributes:
        """Columns from one mapping an event.

        Raises:
            SchemaError: a value is not a 64-bit integer, a float or a text, or one name has text and numbers.
        """
        names = dict.fromkeys(name for row in rows if row for name in row)
        return cls({name: _column(name, [(row or {}).get(name) for row in rows]) for name in names})

    @classmethod
    def from_alike(cls, rows: Sequence[Row]) -> Attributes:
        """Columns from the attributes of one event or more, all of the same names and kinds."""
        names, kinds, _ = rows[0]
        present = np.ones(len(rows), np.bool_)
        columns = zip(*[row.values for row in rows], strict=True)
        return cls(
            {
                name: AttributeColumn(kind, np.array(column, _DTYPES[kind]), present)
                for name, kind, column in zip(names, kinds, columns, strict=True)
            }
        )

    @classmethod
    def from_lists(cls, lists: Mapping[str, Sequence[AttributeValue | None]]) -> Attributes:
        """Columns from one list an attribute, as long as the batch; None where an event has not got it.

        Raises:
            SchemaError: see ``from_rows``.
        """
        return cls({name: _column_of_many(name, values) for name, values in lists.items()})

    def check_length(self, schema: str, events: int) -> None:
        """Checks that there is a value for each event of a batch.

        Args:
            schema: the name of the events' schema.
            events: how many events the batch has.

        Raises:
            SchemaError: a column has another length; names schema and attribute.
        """
        for name, column in self.columns.items():
            if not len(column.values) == len(column.present) == events:
                raise SchemaError(
                    f"schema {schema}: attribute {name!r} has {len(column.values)} values, "
                    f"expected {events}, one for each event"
                )

    def to_lists(self) -> dict[str, list[AttributeValue | None]]:
        """What ``from_lists`` takes."""
        return {
            name: column.values.tolist()
            if column.present.all()
            else [
                value if held else None
                for value, held in zip(column.values.tolist(), column.present.tolist(), strict=True)
            ]
            for name, column in self.columns.items()
        }

    @classmethod
    def constant(cls, values: Mapping[str, AttributeValue], n: int) -> Attributes:
        """The same attributes for each of ``n`` events.

        Raises:
            SchemaError: a value is not an integer of 64 bits, float or text; or there are more than 1,000.
        """
        if not isinstance(values, Mapping):
            raise SchemaError(f"expected attributes, a mapping from name to value, found {describe(values)}")
        if len(values) > MOST_ATTRIBUTES:
            raise SchemaError(too_many(len(values)))
        one = cls.from_rows([values])
        return one.take(np.zeros(n, np.intp))

    @classmethod
    def concat(cls, parts: Iterable[tuple[Attributes | None, int]]) -> Attributes | None:
        """The attributes of batches one after the other: (attributes or None, number of events) each.

        Raises:
            SchemaError: a name is text in one part and a number in another.
        """
        known = [(part, n) for part, n in parts if n]
        names = dict.fromkeys(name for part, _ in known if part is not None for name in part.columns)
        if not names:
            return None
        joined = {}
        for name in names:
            columns = [
                _empty(n) if part is None else part.columns.get(name) or _empty(n) for part, n in known
            ]
            joined[name] = _join(name, columns)
        return cls(joined)

    def take(self, positions: np.ndarray[Any, np.dtype[Any]] | slice) -> Attributes:
        """The attributes of the events at these positions, in this order."""
        return Attributes(
            {
                n: AttributeColumn(c.kind, c.values[positions], c.present[positions])
                for n, c in self.columns.items()
            }
        )

    def of(self, position: int) -> dict[str, AttributeValue]:
        """The attributes of one event."""
        return {
            name: column.values[position] if column.kind == "s" else column.values[position].item()
            for name, column in self.columns.items()
            if column.present[position]
        }

    def present(self) -> Attributes:
        """Those that an event has."""
        return Attributes({name: column for name, column in self.columns.items() if column.present.any()})

    def __repr__(self) -> str:
        return f"Attributes({', '.join(f'{name} {column.kind}' for name, column in self.columns.items())})"


def too_many(count: int) -> str:
    """What is wrong with so many attributes of an event."""
    return (
        f"expected at most {MOST_ATTRIBUTES:,} attributes of an event, found {count:,}; "
        "what is more belongs into a field"
    )


def _column(name: str, values: list[Any]) -> AttributeColumn:
    if not isinstance(name, str):
        raise SchemaError(f"attribute {shown(name)}: expected a name that is text")
    try:
        to_text(TEXT, name)
    except Misfit as error:
        raise SchemaError(f"attribute {shown(name)}: its name: {error}") from None
    kinds = {_kind(name, value) for value in values if value is not None}
    if "s" in kinds and len(kinds) > 1:
        raise SchemaError(f"attribute {name}: text for some events, numbers for others; choose one")
    kind = "s" if "s" in kinds else "f" if "f" in kinds else "i"
    filled = [_EMPTY[kind] if value is None else _convert(name, kind, value) for value in values]
    present = np.fromiter((value is not None for value in values), np.bool_, len(values))
    return AttributeColumn(kind, np.array(filled, _DTYPES[kind]), present)


def _column_of_many(name: str, values: Sequence[Any]) -> AttributeColumn:
    """A column of values of which many may be equal."""
    types = set(map(type, values))
    if types not in ({int}, {str}):
        return _column(name, list(values))
    # Whether the different ones are any good says it of all.
    kind = _column(name, list(set(values))).kind
    return AttributeColumn(kind, np.array(values, _DTYPES[kind]), np.ones(len(values), np.bool_))


def _is_plain(text: object) -> bool:
    """Whether this is a text of which nothing can be wrong."""
    return type(text) is str and text.isascii() and len(text) < _SHORT


def _kind(name: str, value: object) -> str:
    if isinstance(value, str):
        return "s"
    if isinstance(value, (bool, int, np.integer, np.bool_)):
        return "i"
    if isinstance(value, (float, np.floating)):
        return "f"
    raise SchemaError(f"attribute {name}: expected an int, a float, a bool or a str, found {describe(value)}")


def _convert(name: str, kind: str, value: Any) -> AttributeValue:
    try:
        if kind == "s":
            to_text(TEXT, value)
            return str(value)
        return to_number(i64 if kind == "i" else f64, value)
    except Misfit as error:
        raise SchemaError(f"attribute {name}: {error}") from None


def _empty(n: int) -> AttributeColumn:
    return AttributeColumn("", np.zeros(n, np.int64), np.zeros(n, np.bool_))


def _join(name: str, columns: list[AttributeColumn]) -> AttributeColumn:
    kinds = {column.kind for column in columns} - {""}
    present = np.concatenate([column.present for column in columns])
    if len(kinds) == 1:
        kind = kinds.pop()
        values = [
            column.values if column.kind else np.full(len(column.values), _EMPTY[kind], _DTYPES[kind])
            for column in columns
        ]
        return AttributeColumn(kind, np.concatenate(values), present)
    rows = [
        v if p else None for c in columns for v, p in zip(c.values.tolist(), c.present.tolist(), strict=True)
    ]
    return _column(name, rows)
