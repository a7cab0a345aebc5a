"""Columns of logical types, value by value."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from evflow.schema.values import Misfit

__all__ = ["stored_each"]


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
