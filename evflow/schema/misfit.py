"""What is said of a value that does not fit a type."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from evflow.errors import SchemaError
from evflow.outside import shown

_SHOWN = 60


class Misfit(SchemaError):
    """A value does not fit a type.

    Attributes:
        expected: what would fit, in words.
        found: the value.
        index: where it stands in an array (flat, in C order) or column; None for a single value.
    """

    def __init__(self, expected: str, found: object, index: int | None = None) -> None:
        self.expected = expected
        self.found = found
        self.index = index
        super().__init__(f"expected {expected}, found {describe(found)}")


def describe(value: object) -> str:
    """A value and its type, short enough for an error; of a class that it is one."""
    if isinstance(value, type):
        return f"the class {value.__name__}"
    return f"{shown(value, _SHOWN)} ({type(value).__name__})"


def stored_each(store: Callable[[Any], Any], values: Any) -> list[Any]:
    """What each value of a column is kept as.

    Raises:
        Misfit: a value does not fit; carries its row.
    """
    listed: Iterable[Any] = values.tolist() if isinstance(values, np.ndarray) else values
    found = []
    for row, value in enumerate(listed):
        try:
            found.append(store(value))
        except Misfit as error:
            raise Misfit(error.expected, value, row) from None
    return found
