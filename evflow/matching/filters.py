"""Filters as columns, with numbers for names and strings: the form in which engines get subscriptions."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from evflow.events.gather import places_of, starts_of


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
