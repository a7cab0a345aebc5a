"""What engines read: filters and events as columns, with numbers for names and strings."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from evflow.events.gather import places_of, starts_of

NUMBER = 1
TEXT = 2
OTHER = 3
"""Kinds of an attribute's value: ``OTHER`` is neither number nor string and only ``exists``."""


@dataclass(frozen=True, slots=True)
class EventRows:
    """N events with A attributes in all. Attributes that no constraint names are left out; none stands twice.

    Attributes:
        start: int64, N + 1: where the attributes of an event start and end.
        name: int32, A: the attribute, as numbered by the matcher's ``Names``.
        kind: uint8, A: ``NUMBER``, ``TEXT`` or ``OTHER``.
        number: float64, A: the value of a ``NUMBER``.
        text: int32, A: for a ``TEXT`` the operand of ``Strings`` that it equals, or -1.
        chars: uint8: the UTF-8 bytes of the values that are ``TEXT``.
        char_start: int64, A: where the bytes of a ``TEXT`` start in ``chars``.
        char_length: int32, A: how many bytes it has.
        place: float64, (N, 2) on the plane, (N, 3) (unit vectors) on the globe; NaN: nowhere.
    """

    start: NDArray[np.int64]
    name: NDArray[np.int32]
    kind: NDArray[np.uint8]
    number: NDArray[np.float64]
    text: NDArray[np.int32]
    chars: NDArray[np.uint8]
    char_start: NDArray[np.int64]
    char_length: NDArray[np.int32]
    place: NDArray[np.float64]

    def __len__(self) -> int:
        return len(self.start) - 1


@dataclass(frozen=True, slots=True)
class Filters:
    """F filters with C constraints in all; those of one subscription stand next to each other, in its order.

    Attributes:
        subscription: int32, F: the subscription that a filter belongs to.
        start: int64, F + 1: where the constraints of a filter start and end.
        name: int32, C: the attribute, as numbered by the matcher's ``Names``.
        op: uint8, C: an ``Op`` before ``Op.ABSENT``.
        number: float64, C: the operand, where ``text`` is -1.
        text: int32, C: the operand as numbered by the matcher's ``Strings``, or -1: the operand is a number,
            or there is none (``Op.EXISTS``).
        centre: float64, (F, 2) on the plane, (F, 3) (unit vectors) on the globe; NaN: no area.
        reach: float64, F: the square of the radius (of its chord on the globe) that a point's distance
            may have.
    """

    subscription: NDArray[np.int32]
    start: NDArray[np.int64]
    name: NDArray[np.int32]
    op: NDArray[np.uint8]
    number: NDArray[np.float64]
    text: NDArray[np.int32]
    centre: NDArray[np.float64]
    reach: NDArray[np.float64]

    def __len__(self) -> int:
        return len(self.subscription)

    def take(self, which: NDArray[np.intp]) -> Filters:
        """Some of these filters, by number, in this order."""
        lengths = np.diff(self.start)[which]
        at = places_of(self.start[:-1][which], lengths)
        return Filters(
            subscription=self.subscription[which],
            start=starts_of(lengths),
            name=self.name[at],
            op=self.op[at],
            number=self.number[at],
            text=self.text[at],
            centre=self.centre[which],
            reach=self.reach[which],
        )


class PreparedEvents:
    """Events whose rows a matcher made before; it makes them again when it has learned new names or strings.

    The events must not change meanwhile.

    Attributes:
        events: the events.
        rows: the events as engines read them.
        version: how many names and strings the matcher knew.
    """

    __slots__ = ("events", "rows", "version")

    def __init__(self, events: Any, rows: EventRows, version: tuple[int, int]) -> None:
        self.events = events
        # Columns that a thread writes its next events to.
        kept = ("name", "kind", "number", "text", "char_start", "char_length")
        self.rows = replace(rows, **{name: getattr(rows, name).copy() for name in kept})
        self.version = version

    def __len__(self) -> int:
        return len(self.rows)
