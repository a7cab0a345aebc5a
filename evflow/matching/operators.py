"""The operators of constraints: the one table of their numbers, how they are written and what they mean.

A new operator is a row here, a branch of ``compare.py``, which engines on the CPU call, and one of
``gpu/kernels/values.cuh``. No engine has an index for it then: it is tested where all else holds. An operator
from ``ABSENT`` on never reaches an engine: ``evflow.matching.derived`` puts another constraint in its place.
"""

from __future__ import annotations

import enum
import operator
from collections.abc import Callable
from typing import Any

import numpy as np

from evflow.errors import SubscriptionError
from evflow.matching.folding import folded
from evflow.matching.patterns import found
from evflow.outside import shown


def _folding(holds: Callable[[bytes, bytes], Any]) -> Callable[[bytes, bytes], Any]:
    return lambda value, operand: holds(folded(value), folded(operand))


class Op(enum.IntEnum):
    """An operator of a constraint; the numbers are what columns hold.

    Attributes:
        written: how it is written, first as evflow writes it; in the table with a comma between.
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
        made.written = tuple(written.split(", "))
        made.holds = holds
        return made

    # Those up to GE compare numbers and strings, by order; the others are about strings only. Those that
    # engines see are less than 14; the GPU's kernels use 14 and 15 for themselves.
    EQ = 0, "==, =", operator.eq
    NE = 1, "!=, <>, ≠", operator.ne
    LT = 2, "<", operator.lt
    LE = 3, "<=, ≤", operator.le
    GT = 4, ">", operator.gt
    GE = 5, ">=, ≥", operator.ge
    PREFIX = 6, "startswith", bytes.startswith
    SUFFIX = 7, "endswith", bytes.endswith
    CONTAINS = 8, "contains", operator.contains
    EXISTS = 9, "exists", None
    NOT_PREFIX = 10, "not startswith", lambda value, operand: not value.startswith(operand)
    NOT_SUFFIX = 11, "not endswith", lambda value, operand: not value.endswith(operand)
    NOT_CONTAINS = 12, "not contains", lambda value, operand: operand not in value
    ABSENT = 13, "not exists", None
    # The operand is another attribute, given by its name.
    EQ_OTHER = 16, "== attribute", operator.eq
    NE_OTHER = 17, "!= attribute", operator.ne
    LT_OTHER = 18, "< attribute", operator.lt
    LE_OTHER = 19, "<= attribute", operator.le
    GT_OTHER = 20, "> attribute", operator.gt
    GE_OTHER = 21, ">= attribute", operator.ge
    MATCHES = 22, "matches", found
    NOT_MATCHES = 23, "not matches", lambda value, operand: not found(value, operand)
    # Both sides are folded first (``evflow.matching.folding``); ``_NOCASE`` says what is tested then.
    EQ_NOCASE = 24, "== nocase, = nocase", _folding(operator.eq)
    NE_NOCASE = 25, "!= nocase, <> nocase, ≠ nocase", _folding(operator.ne)
    PREFIX_NOCASE = 26, "startswith nocase", _folding(bytes.startswith)
    SUFFIX_NOCASE = 27, "endswith nocase", _folding(bytes.endswith)
    CONTAINS_NOCASE = 28, "contains nocase", _folding(operator.contains)
    NOT_PREFIX_NOCASE = 29, "not startswith nocase", _folding(NOT_PREFIX[2])
    NOT_SUFFIX_NOCASE = 30, "not endswith nocase", _folding(NOT_SUFFIX[2])
    NOT_CONTAINS_NOCASE = 31, "not contains nocase", _folding(NOT_CONTAINS[2])

    @property
    def symbol(self) -> str:
        """How the operator is written."""
        return self.written[0]

    @property
    def compares(self) -> bool:
        """True if it compares numbers too, false if it takes a string or no operand."""
        return self <= Op.GE

    @property
    def with_other(self) -> Op:
        """The comparison with another attribute that a comparison with a value has for a sibling.

        Example:
            >>> Op.LT.with_other
            <Op.LT_OTHER: 18>
        """
        return Op(self + Op.EQ_OTHER)

    @property
    def names_other(self) -> bool:
        """True if its operand is the name of another attribute."""
        return Op.EQ_OTHER <= self <= Op.GE_OTHER

    @property
    def nocase(self) -> Op | None:
        """The operator that does the same without regard to upper and lower case; None: there is none.

        Example:
            >>> Op.CONTAINS.nocase, Op.LT.nocase
            (<Op.CONTAINS_NOCASE: 28>, None)
        """
        return _NOCASE.get(self)

    @property
    def of_folded(self) -> Op:
        """What an operator without regard to case tests, once both sides are folded.

        Example:
            >>> Op.CONTAINS_NOCASE.of_folded
            <Op.CONTAINS: 8>
        """
        return _OF_FOLDED[self]

    @property
    def opposite(self) -> Op:
        """What ``not`` makes of it: true where it is false, of a value that both can be true of.

        Example:
            >>> Op.LT.opposite, Op.NOT_CONTAINS.opposite
            (<Op.GE: 5>, <Op.CONTAINS: 8>)
        """
        return _OPPOSITE[self]

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
        known = OPERATORS.get(given) if isinstance(given, str) else None
        if known is None:
            symbols = ", ".join(op.symbol for op in cls)
            raise SubscriptionError(f"expected an operator ({symbols}) but found {shown(given)}")
        return known


EQ, NE, LT, LE, GT, GE, PREFIX, SUFFIX, CONTAINS, EXISTS, NOT_PREFIX, NOT_SUFFIX, NOT_CONTAINS = range(13)
"""The same numbers, for compiled code."""

_NOCASE = {op: Op[f"{op.name}_NOCASE"] for op in Op if f"{op.name}_NOCASE" in Op.__members__}
_OF_FOLDED = {nocase: op for op, nocase in _NOCASE.items()}

_COMPARED = [(Op.EQ, Op.NE), (Op.LT, Op.GE), (Op.LE, Op.GT)]
_PAIRS = [
    *_COMPARED,
    *((one.with_other, other.with_other) for one, other in _COMPARED),
    (Op.EXISTS, Op.ABSENT),
    (Op.EQ_NOCASE, Op.NE_NOCASE),
    *((op, Op[f"NOT_{op.name}"]) for op in Op if f"NOT_{op.name}" in Op.__members__),
]
_OPPOSITE = {one: other for pair in _PAIRS for one, other in (pair, pair[::-1])}

OPERATORS: dict[str, Op] = {text: op for op in Op for text in op.written}
"""Every way to write an operator."""

COMPARISONS = tuple(text for text, op in OPERATORS.items() if op.compares)
"""Those that compare numbers and strings."""

ON_STRINGS = tuple(text for text, op in OPERATORS.items() if op.holds and not op.compares)
"""Those that take a string and nothing else."""

TAKES_STRING = np.isin(np.arange(256), [OPERATORS[text] for text in ON_STRINGS])
"""By the number of an operator: whether it takes a string and nothing else."""

KNOWN = np.isin(np.arange(256), list(Op))
"""By a number: whether it is that of an operator."""

NAMES_OTHER = np.isin(np.arange(256), [op for op in Op if op.names_other])
"""By the number of an operator: whether its operand is the name of another attribute."""

TAKES_NOTHING = np.isin(np.arange(256), [op for op in Op if op.holds is None])
"""By the number of an operator: whether it takes no operand."""
