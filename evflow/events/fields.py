"""Going through the fields of events and views alike: comparing, showing, turning into dicts.

Comparing and turning keep a stack of their own, so that deeply nested events do not exhaust Python's.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from difflib import get_close_matches
from typing import Any, TypeVar

import numpy as np

from evflow.errors import SchemaError
from evflow.schema import Schema
from evflow.schema.logical import logical_of
from evflow.schema.types import MAX_DEPTH


def has_fields(value: Any) -> bool:
    """Whether a value is an event or a view."""
    return not isinstance(value, type) and isinstance(getattr(value, "schema", None), Schema)


def same(one: Any, other: Any) -> bool:
    """Whether two values are equal: events by schema and fields, sequences and arrays by elements."""
    waiting = [(one, other)]
    # Events may hold themselves. The pairs are kept, since the place of one that is gone may be used again.
    met: dict[tuple[int, int], Any] = {}
    while waiting:
        a, b = waiting.pop()
        if has_fields(a) and has_fields(b):
            if a.schema is not b.schema and a.schema != b.schema:
                return False
            if (id(a), id(b)) in met:
                continue
            met[id(a), id(b)] = a, b
            waiting.extend((getattr(a, f.name), getattr(b, f.name)) for f in a.schema.fields)
        elif isinstance(a, np.ndarray) or isinstance(b, np.ndarray):
            if not np.array_equal(a, b):
                return False
        elif _is_list(a) and _is_list(b):
            if len(a) != len(b):
                return False
            waiting.extend(zip(a, b, strict=True))
        elif not _equal(a, b):
            return False
    return True


def _equal(a: Any, b: Any) -> bool:
    try:
        return bool(a == b)
    except (TypeError, ArithmeticError):  # pandas' NA, a signalling NaN of decimal
        return False


def parts(event: Any) -> tuple[str, Iterator[tuple[str, Any]]]:
    """The name of an event's or view's schema, and its fields by name."""
    return event.schema.name, ((f.name, getattr(event, f.name)) for f in event.schema.fields)


def show(event: Any) -> str:
    """An event or view as Python would write its construction."""
    name, fields = parts(event)
    return f"{name}({', '.join(f'{key}={value!r}' for key, value in fields)})"


E = TypeVar("E", bound=BaseException)


def explained(error: E) -> E:
    """An exception, with a note of the fields if it says that an event, view or batch lacks an attribute.

    They do not say so themselves, since a class with ``__getattr__`` is slower at all others.
    """
    event: Any = error.obj if isinstance(error, AttributeError) else None
    if event is None or not has_fields(event) or hasattr(error, "__notes__"):
        return error
    names = [field.name for field in event.schema.fields]
    close = get_close_matches(str(error.name), names, 1) if isinstance(error, AttributeError) else ()
    note = f"{event.schema.name} has the fields {', '.join(names) or 'none'}"
    # The fields of a batch are not attributes but columns.
    meant = 'batch["{}"]' if hasattr(type(event), "__getitem__") else "{!r}"
    # It would keep the memory of all events that came together.
    error.obj = None  # type: ignore[attr-defined]
    error.add_note("; ".join([note, *(f"did you mean {meant.format(name)}?" for name in close)]))
    return error


def as_json(value: Any) -> Any:
    """A value of a logical type as JSON can have it: a time, a decimal or a UUID as text, a duration as
    nanoseconds. Any other value as it is."""
    kind = logical_of(type(value))
    return value if kind is None else kind.as_json(value)


def to_dict(event: Any) -> dict[str, Any]:
    """The fields of an event by name; events within are dicts too, lists and read-only arrays are copied.

    Raises:
        SchemaError: it holds itself, or more events within each other than an event may.
    """

    def new(value: Any) -> tuple[Any, Put | None]:
        flat = getattr(type(value), "_flat", None)
        if flat is not None:
            return flat(value._buffer, value._at), None
        fields: dict[str, Any] = dict.fromkeys(f.name for f in value.schema.fields)
        return fields, fields.__setitem__

    fields: dict[str, Any] = copied(event, new)
    return fields


# Values that are told at once to be no event, list or array.
_SINGLE = frozenset({int, float, bool, str, bytes, type(None)})

Put = Callable[[Any, Any], None]
"""Sets a field, by its name."""


def copied(event: Any, new: Callable[[Any], tuple[Any, Put | None]]) -> Any:
    """A copy of an event and all that it holds.

    Args:
        event: an event or a view.
        new: makes the copy of an event or view, and what sets its fields; None if it has set them.

    Raises:
        SchemaError: it holds itself, or more events within each other than an event may.
    """
    result: list[Any] = [None]
    # What is still to be copied, where it goes, and how many events it stands in.
    waiting: list[tuple[Any, Put, Any, int]] = [(event, result.__setitem__, 0, 0)]
    while waiting:
        value, put, key, depth = waiting.pop()
        if depth > MAX_DEPTH:
            raise SchemaError(
                f"schema {event.schema.name}: expected at most {MAX_DEPTH} records within each other"
            )
        if value.__class__ in _SINGLE:
            put(key, value)
        elif has_fields(value):
            made, inner = new(value)
            put(key, made)
            if inner is not None:
                waiting += [(getattr(value, f.name), inner, f.name, depth + 1) for f in value.schema.fields]
        elif _is_list(value):
            items = list(value)
            put(key, items)
            if not _SINGLE.issuperset(map(type, items)):
                waiting += [(item, items.__setitem__, i, depth) for i, item in enumerate(items)]
        else:
            put(key, value.copy() if isinstance(value, np.ndarray) and not value.flags.writeable else value)
    return result[0]


def _is_list(value: Any) -> bool:
    return isinstance(value, Sequence) and not isinstance(value, (str, bytes, bytearray, memoryview))
