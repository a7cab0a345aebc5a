"""Attributes that events get while they are read, since some constraints ask for more than one value.

``not exists x`` holds for an event without x. To engines it is ``exists`` on an attribute of its own, which
each event gets that lacks x. So all engines know such constraints, and index them as they do others.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from evflow.events.gather import starts_of
from evflow.matching.names import Derived, Names
from evflow.matching.operators import Op
from evflow.matching.rows import OTHER, EventRows

_Ints = NDArray[np.int32]


def lowered(name: _Ints, op: NDArray[np.uint8], names: Names) -> tuple[_Ints, NDArray[np.uint8]]:
    """Names and operators of constraints as engines take them; new attributes get numbers.

    Args:
        name: the attributes, by number.
        op: the operators.
        names: the numbers, to be added to.

    Example:
        >>> names = Names(["a", "b"])
        >>> lowered(np.array([1, 0], np.int32), np.array([Op.ABSENT, Op.LT], np.uint8), names)
        (array([2, 0], dtype=int32), array([9, 2], dtype=uint8))
    """
    asked = np.flatnonzero(op >= Op.ABSENT)
    if not len(asked):
        return name, op
    name, op = name.copy(), op.copy()
    found, inverse = np.unique(name[asked], return_inverse=True)
    name[asked] = np.array([names.derive(Derived(Op.ABSENT, of)) for of in found.tolist()], np.int32)[inverse]
    op[asked] = Op.EXISTS
    return name, op


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
    added = [_absent(rows, owner, of, number) for of, number in names.derived.items()]
    return _joined(rows, owner, added)


def _absent(rows: EventRows, owner: NDArray[np.int64], of: Derived, number: int) -> _Added:
    lacks = np.ones(len(rows), bool)
    lacks[owner[rows.name == of.name]] = False
    return _added(np.flatnonzero(lacks), number, OTHER)


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
