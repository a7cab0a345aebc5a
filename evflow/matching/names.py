"""Numbers for the names of attributes."""

from __future__ import annotations

from collections.abc import Iterable
from operator import itemgetter
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray


class Derived(NamedTuple):
    """An attribute that events get while they are read (``evflow.matching.derived``).

    Attributes:
        op: the ``Op`` that asks for it.
        name: the number of the attribute that it is derived from.
        other: the number of what else it is derived from, -1 for nothing.
    """

    op: int
    name: int
    other: int = -1


class Names:
    """Gives each name that a constraint uses a number, from 0. A name keeps its number for good.

    Attributes:
        numbers: name → number.
        derived: attribute that events only get while they are read → number.
        inner: a name that others begin with, a dot behind it → the rest of these names, and their numbers:
            ``position.x`` is the ``x`` of a record ``position``.

    Example:
        >>> names = Names()
        >>> names.intern(["area", "position.x", "area"])
        array([0, 1, 0], dtype=int32)
        >>> names.inner
        {'position': [('x', 1)]}
    """

    __slots__ = ("derived", "inner", "numbers")

    def __init__(self, names: Iterable[str] = ()) -> None:
        self.numbers: dict[str, int] = {}
        self.derived: dict[Derived, int] = {}
        self.inner: dict[str, list[tuple[str, int]]] = {}
        self.intern(names)

    def __len__(self) -> int:
        return len(self.numbers) + len(self.derived)

    def intern(self, names: Iterable[str]) -> NDArray[np.int32]:
        """The numbers of these names, new ones for those that are new."""
        return np.array([self._number(name) for name in names], np.int32)

    def _number(self, name: str) -> int:
        known = self.numbers.get(name)
        if known is not None:
            return known
        number = self.numbers[name] = len(self)
        at = name.find(".")
        while at >= 0:
            self.inner.setdefault(name[:at], []).append((name[at + 1 :], number))
            at = name.find(".", at + 1)
        return number

    def derive(self, attribute: Derived) -> int:
        """The number of an attribute that is derived from others, a new one if it is new."""
        known = self.derived.get(attribute)
        if known is None:
            known = self.derived[attribute] = len(self)
        return known

    def in_order(self) -> list[str | Derived]:
        """All names and derived attributes, by number.

        Example:
            >>> names = Names(["area"])
            >>> names.derive(Derived(13, 0))
            1
            >>> names.in_order()
            ['area', Derived(op=13, name=0, other=-1)]
        """
        held: list[tuple[int, str | Derived]] = [(number, name) for name, number in self.numbers.items()]
        held += [(number, attribute) for attribute, number in self.derived.items()]
        return [one for _, one in sorted(held, key=itemgetter(0))]

    def restore(self, known: Iterable[str | list[int]]) -> None:
        """Takes what ``in_order`` gave, perhaps with lists for tuples, as JSON has it.

        Example:
            >>> names = Names()
            >>> names.restore(["area", [13, 0, -1]])
            >>> len(names)
            2
        """
        for one in known:
            if isinstance(one, str):
                self._number(one)
            else:
                self.derive(Derived(*one))
