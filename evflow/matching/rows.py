"""Events as engines read them: attributes by number, row after row, and a place for each event."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

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
