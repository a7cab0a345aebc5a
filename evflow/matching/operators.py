"""The operators of constraints: the one table of their numbers, how they are written and what they mean.

A new operator is a row here, a branch of ``compare.py``, which engines on the CPU call, and one of
``gpu/kernels/values.cuh``. No engine has an index for it then: it is tested where all else holds.
"""

from __future__ import annotations

import enum
import operator
from collections.abc import Callable
from typing import Any

import numpy as np

from evflow.errors import SubscriptionError
from evflow.outside import shown


class Op(enum.IntEnum):
    """An operator of a constraint; the numbers are what columns hold.

    Attributes:
        written: how it is written, first as evflow writes it.
        holds: whether it is true of a value and an operand, numbers or bytes; None: it takes no operand.

    Example:
        >>> Op.GE.symbol, Op.PREFIX.symbol
        ('>=', 'startswith')
    """

    written: tuple[str, ...]
    holds: Callable[[Any, Any], Any] | None

    def __new__(cls, number: int, written: str = "", holds: Callable[[Any, Any], Any] | None = None) -> Op:
        made = int.__new__(cls, number)
        made._value_ = number
        made.written = tuple(written.split())
        made.holds = holds
        return made

    # Those up to GE compare numbers and strings, by order; the others are about strings only. Numbers are
    # less than 16, of which the GPU's kernels use 14 and 15 for themselves.
    EQ = 0, "== =", operator.eq
    NE = 1, "!= <> ≠", operator.ne
    LT = 2, "<", operator.lt
    LE = 3, "<= ≤", operator.le
    GT = 4, ">", operator.gt
    GE = 5, ">= ≥", operator.ge
    PREFIX = 6, "startswith", bytes.startswith
    SUFFIX = 7, "endswith", bytes.endswith
    CONTAINS = 8, "contains", operator.contains
    EXISTS = 9, "exists", None

    @property
    def symbol(self) -> str:
        """How the operator is written."""
        return self.written[0]

    @property
    def compares(self) -> bool:
        """True if it compares numbers too, false if it is about strings only or takes no operand."""
        return self <= Op.GE

    @classmethod
    def of(cls, given: Op | str) -> Op:
        """The operator that a text means.

        Args:
            given: a text such as ``"<="``, or an ``Op``, which is itself.

        Raises:
            SubscriptionError: there is no such operator.

        Example:
            >>> Op.of("<>")
            <Op.NE: 1>
        """
        if isinstance(given, cls):
            return given
        found = OPERATORS.get(given) if isinstance(given, str) else None
        if found is None:
            symbols = " ".join(op.symbol for op in cls)
            raise SubscriptionError(f"expected an operator ({symbols}) but found {shown(given)}")
        return found


EQ, NE, LT, LE, GT, GE, PREFIX, SUFFIX, CONTAINS, EXISTS = range(10)
"""The same numbers, for compiled code."""

OPERATORS: dict[str, Op] = {text: op for op in Op for text in op.written}
"""Every way to write an operator."""

COMPARISONS = tuple(text for text, op in OPERATORS.items() if op.compares)
"""Those that compare numbers and strings."""

ON_STRINGS = tuple(text for text, op in OPERATORS.items() if op.holds and not op.compares)
"""Those that take a string."""

TAKES_STRING = np.isin(np.arange(256), [OPERATORS[text] for text in ON_STRINGS])
"""By the number of an operator: whether it takes a string and nothing else."""
