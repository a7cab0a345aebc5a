"""Numbers for the names of attributes."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray


class Names:
    """Gives each name that a constraint uses a number, from 0. A name keeps its number for good.

    Attributes:
        numbers: name → number.
        inner: a name that others begin with, a dot behind it → the rest of these names, and their numbers:
            ``position.x`` is the ``x`` of a record ``position``.

    Example:
        >>> names = Names()
        >>> names.intern(["area", "position.x", "area"])
        array([0, 1, 0], dtype=int32)
        >>> names.inner
        {'position': [('x', 1)]}
    """

    __slots__ = ("inner", "numbers")

    def __init__(self, names: Iterable[str] = ()) -> None:
        self.numbers: dict[str, int] = {}
        self.inner: dict[str, list[tuple[str, int]]] = {}
        self.intern(names)

    def __len__(self) -> int:
        return len(self.numbers)

    def intern(self, names: Iterable[str]) -> NDArray[np.int32]:
        """The numbers of these names, new ones for those that are new."""
        return np.array([self._number(name) for name in names], np.int32)

    def _number(self, name: str) -> int:
        known = self.numbers.get(name)
        if known is not None:
            return known
        number = self.numbers[name] = len(self.numbers)
        at = name.find(".")
        while at >= 0:
            self.inner.setdefault(name[:at], []).append((name[at + 1 :], number))
            at = name.find(".", at + 1)
        return number
