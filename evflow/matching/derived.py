"""Attributes that events get while they are read, since some constraints ask for more than one value.

``not exists x`` holds for an event without x. To engines it is ``exists`` on an attribute of its own, which
each event gets that lacks x. ``x < y`` is ``< 0`` on an attribute that tells how x and y are ordered: -1, 0
or 1, NaN if one of them is NaN, and missing where they do not compare. So all engines know such constraints,
and index them as they do others.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from evflow.events.gather import starts_of
from evflow.matching.columns.bulk import FilterColumns
from evflow.matching.names import Derived, Names
from evflow.matching.operators import Op
from evflow.matching.rows import NUMBER, OTHER, TEXT, EventRows

_Ints = NDArray[np.int32]
_Lowered = tuple[_Ints, NDArray[np.uint8], NDArray[np.float64], _Ints]


def lowered(columns: FilterColumns, name: _Ints, names: Names) -> _Lowered:
    """Constraints as engines take them; new attributes get numbers.

    Args:
        columns: the constraints, checked.
        name: their attributes, by number.
        names: the numbers, to be added to.

    Returns:
        The attributes, operators, numbers and indices of ``columns.texts``.

    Example:
        >>> columns = FilterColumns.from_subscriptions(["not exists b and a < b and a < 3"])
        >>> name, op, number, text = lowered(columns, np.array([1, 0, 0], np.int32), Names(["a", "b"]))
        >>> name, [Op(one).symbol for one in op], number
        (array([2, 3, 0], dtype=int32), ['exists', '<', '<'], array([0., 0., 3.]))
    """
    op, number, text = columns.op, columns.number, columns.text
    asked = np.flatnonzero(op >= Op.ABSENT)
    if not len(asked):
        return name, op, number, text
    name, op, number, text = name.copy(), op.copy(), number.copy(), text.copy()
    ordered = op[asked] >= Op.EQ_OTHER
    kind = np.where(ordered, Op.EQ_OTHER, Op.ABSENT)
    keys, inverse = np.unique(np.stack([kind, name[asked], text[asked]]), axis=1, return_inverse=True)
    found = [_derive(names, *key, texts=columns.texts) for key in keys.T.tolist()]
    name[asked] = np.array(found, np.int32)[inverse.reshape(-1)]
    op[asked] = np.where(ordered, op[asked] - Op.EQ_OTHER, Op.EXISTS)
    number[asked] = 0.0
    text[asked] = -1
    return name, op, number, text


def _derive(names: Names, op: int, name: int, text: int, *, texts: Sequence[str]) -> int:
    other = -1 if op == Op.ABSENT else int(names.intern([texts[text]])[0])
    return names.derive(Derived(op, name, other))


class _Added(NamedTuple):
    """An attribute that some events get: which events, and the columns of ``EventRows``."""

    event: NDArray[np.int64]
    name: _Ints
    kind: NDArray[np.uint8]
    number: NDArray[np.float64]
    text: _Ints
    char_start: NDArray[np.int64]
    char_length: _Ints


def with_derived(rows: EventRows, names: Names) -> EventRows:
    """Events with the attributes that are derived from others.

    Args:
        rows: the events; they stay as they are.
        names: what constraints ask for.

    Example:
        >>> names = Names(["a"])
        >>> names.derive(Derived(Op.ABSENT, 0))
        1
        >>> none = np.zeros(0, np.int32)
        >>> empty = EventRows(
        ...     np.zeros(2, np.int64), none, none.astype(np.uint8), none.astype(float), none,
        ...     none.astype(np.uint8), none.astype(np.int64), none, np.zeros((1, 2)),
        ... )
        >>> with_derived(empty, names).name
        array([1], dtype=int32)
    """
    owner = np.repeat(np.arange(len(rows)), np.diff(rows.start))
    makers = {Op.ABSENT: _absent, Op.EQ_OTHER: _order}
    return _joined(
        rows, owner, [makers[Op(of.op)](rows, owner, of, number) for of, number in names.derived.items()]
    )


def _places(rows: EventRows, owner: NDArray[np.int64], name: int) -> NDArray[np.int64]:
    """Which row of each event is the attribute of a name; -1: none."""
    found = np.full(len(rows), -1)
    at = np.flatnonzero(rows.name == name)
    found[owner[at]] = at
    return found


def _absent(rows: EventRows, owner: NDArray[np.int64], of: Derived, number: int) -> _Added:
    return _added(np.flatnonzero(_places(rows, owner, of.name) < 0), number, OTHER)


def _order(rows: EventRows, owner: NDArray[np.int64], of: Derived, number: int) -> _Added:
    left, right = _places(rows, owner, of.name), _places(rows, owner, of.other)
    event = np.flatnonzero((left >= 0) & (right >= 0))
    kinds, others = rows.kind[left[event]], rows.kind[right[event]]
    event = event[(kinds == others) & (kinds != OTHER)]
    left, right = left[event], right[event]
    one, two = rows.number[left], rows.number[right]
    way = np.where(np.isnan(one) | np.isnan(two), np.nan, (one > two) * 1.0 - (one < two))
    for i in np.flatnonzero(rows.kind[left] == TEXT).tolist():
        a, b = _text(rows, left[i]), _text(rows, right[i])
        way[i] = (a > b) - (a < b)
    return _added(event, number, NUMBER, number=way)


def _text(rows: EventRows, row: int) -> bytes:
    """The UTF-8 bytes of a text, which are ordered as texts are."""
    at = int(rows.char_start[row])
    return rows.chars[at : at + int(rows.char_length[row])].tobytes()


def _added(event: NDArray[np.int64], name: int, kind: int, **columns: NDArray[Any]) -> _Added:
    count = len(event)
    filled: dict[str, Any] = {
        "number": np.zeros(count),
        "text": np.full(count, -1, np.int32),
        "char_start": np.zeros(count, np.int64),
        "char_length": np.zeros(count, np.int32),
        **columns,
    }
    return _Added(event, np.full(count, name, np.int32), np.full(count, kind, np.uint8), **filled)


def _joined(rows: EventRows, owner: NDArray[np.int64], added: list[_Added]) -> EventRows:
    event = np.concatenate([owner, *(part.event for part in added)])
    order = np.argsort(event, kind="stable")
    columns = {
        column: np.concatenate([getattr(rows, column), *(getattr(part, column) for part in added)])[order]
        for column in _Added._fields[1:]
    }
    start = starts_of(np.bincount(event, minlength=len(rows)))
    return EventRows(start=start, chars=rows.chars, place=rows.place, **columns)
