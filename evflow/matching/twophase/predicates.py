"""Predicates: distinct constraints, grouped to families, in the order of their operands.

A family is all predicates with the same attribute and test; a test is an operator together with the kind of
its operand. Where operands have an order, those that a value satisfies stand next to each other: all that is
to be found is the place of the value among the operands. The ways to find it are the structures of phase one.

Phase two gets pairs: which predicates each filter has, each once.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from evflow.events.gather import starts_of
from evflow.matching.operators import Op
from evflow.matching.strings import Strings

TEXTS, NEVER = 16, 32
PREFIX, SUFFIX, CONTAINS, EXISTS = (TEXTS + op for op in (Op.PREFIX, Op.SUFFIX, Op.CONTAINS, Op.EXISTS))
"""Tests: an ``Op`` as it is has a number, one from ``TEXTS`` on a string; ``NEVER`` is true for nothing."""

_TOP = np.uint64(1 << 63)


def codes_of(
    op: NDArray[np.uint8], number: NDArray[np.float64], text: NDArray[np.int32]
) -> NDArray[np.uint8]:
    """The tests of constraints.

    Example:
        >>> codes_of(np.array([2, 2, 9], np.uint8), np.zeros(3), np.array([-1, 7, -1]))
        array([ 2, 18, 25], dtype=uint8)
    """
    textual = (text >= 0) | (op == Op.EXISTS)
    test = np.where(textual, op + TEXTS, op)
    never = ~textual & ((op > Op.GE) | (np.isnan(number) & (op != Op.NE)))
    return np.where(never, NEVER, test).astype(np.uint8)


def number_keys(number: NDArray[np.float64]) -> NDArray[np.uint64]:
    """Integers in the order of these numbers; zeros are one, and NaN, which is one too, comes last.

    Example:
        >>> keys = number_keys(np.array([-np.inf, -1.5, -0.0, 0.0, 2.0, np.inf, np.nan]))
        >>> bool((keys[1:] > keys[:-1]).sum() == 5), bool(keys[2] == keys[3])
        (True, True)
    """
    bits = np.where(np.isnan(number), np.nan, number + 0.0).view(np.uint64)
    return np.where(bits >= _TOP, ~bits, bits | _TOP)


def text_keys(
    text: NDArray[np.int32], strings: Strings, backwards: NDArray[np.bool_] | None = None
) -> NDArray[np.uint64]:
    """Integers in the order of the bytes of these strings, of some read backwards; 0 for -1."""
    code = 2 * text.astype(np.int64)
    used, inverse = np.unique(code if backwards is None else code + backwards, return_inverse=True)
    operands = [
        strings.bytes_of(code >> 1)[:: -1 if code & 1 else 1] if code >= 0 else b"" for code in used.tolist()
    ]
    keys = np.zeros(len(used), np.uint64)
    keys[sorted(range(len(used)), key=operands.__getitem__)] = np.arange(len(used), dtype=np.uint64)
    return keys[inverse]


def stable_order(keys: NDArray[Any], limit: int) -> NDArray[np.intp]:
    """What sorts integers from 0 up to ``limit``, equal ones in the order in which they stand.

    Example:
        >>> stable_order(np.array([2, 0, 2, 1]), 3)
        array([1, 3, 0, 2])
    """
    # numpy sorts 16 bits by radix, and everything longer by merging, which is slower even than two rounds.
    order = np.argsort(keys.astype(np.uint16), kind="stable")
    if limit > 1 << 16:
        order = order[np.argsort((keys >> 16).astype(np.uint16)[order], kind="stable")]
    return order


class Families(NamedTuple):
    """F families of P predicates in all, ordered by name and test.

    Attributes:
        name: F: the attribute.
        test: uint8, F: the test.
        first: int32, F + 1: where the predicates of a family start and end.
        number: float64, P: the operand where it is a number.
        text: int32, P: the operand where it is a string.
    """

    name: NDArray[Any]
    test: NDArray[np.uint8]
    first: NDArray[np.int32]
    number: NDArray[np.float64]
    text: NDArray[np.int32]


class Constraints(NamedTuple):
    """C constraints.

    Attributes:
        name: C: the attribute of each.
        test: uint8, C: likewise; see ``codes_of``.
        number: float64, C: the operand where it is a number.
        text: int32, C: the operand where it is a string.
        strings: the operands that are strings.
    """

    name: NDArray[Any]
    test: NDArray[np.uint8]
    number: NDArray[np.float64]
    text: NDArray[np.int32]
    strings: Strings

    def take(self, rows: NDArray[np.bool_]) -> Constraints:
        """Some of these."""
        name, test, number, text, strings = self
        return Constraints(name[rows], test[rows], number[rows], text[rows], strings)


def arrange(of: Constraints) -> tuple[Families, NDArray[np.int32]]:
    """Sorts constraints; operands of ``endswith`` are in the order of their bytes read backwards.

    Returns:
        The families, and of each constraint its predicate.
    """
    name, test, number, text, strings = of
    key = np.where(test < TEXTS, number_keys(number), text_keys(text, strings, test == SUFFIX))
    key[test == EXISTS] = 0
    group = name.astype(np.int64) * NEVER + test
    order = np.lexsort((key, group))
    key, sorted_group = key[order], group[order]
    new_family = np.ones(len(order), bool)
    new_family[1:] = sorted_group[1:] != sorted_group[:-1]
    new = new_family.copy()
    new[1:] |= key[1:] != key[:-1]
    predicate = np.empty(len(order), np.int32)
    predicate[order] = np.cumsum(new) - 1
    one, of_family = order[new], order[new_family]
    first = np.append(predicate[of_family], np.int32(len(one)))
    return Families(name[of_family], test[of_family], first, number[one], text[one]), predicate


UNREACHABLE = 255
"""The number of predicates of a filter that no counter is to find; others have fewer: counters are bytes."""


@dataclass(frozen=True, slots=True)
class Pairs:
    """All pairs of a predicate and a filter, ordered by predicate, then filter.

    Attributes:
        predicate: int32: of each pair.
        filter: int32: of each pair.
        predicates: how many predicates there are.
        needed: uint8, one a filter: how many predicates it has, or ``UNREACHABLE``.
        attributes: uint8, one a filter: how many attributes these are about.
    """

    predicate: NDArray[np.int32]
    filter: NDArray[np.int32]
    predicates: int
    needed: NDArray[np.uint8]
    attributes: NDArray[np.uint8]

    def starts(self) -> NDArray[np.int64]:
        """Where the pairs of each predicate start and end."""
        return starts_of(np.bincount(self.predicate, minlength=self.predicates))


def pairs_of(
    filter_: NDArray[np.int32],
    predicate: NDArray[np.int32],
    name: NDArray[np.int32],
    predicates: int,
    countable: NDArray[np.bool_],
) -> Pairs:
    """The pairs of C constraints.

    Args:
        filter_: the filter of each, ascending.
        predicate: the predicate of each.
        name: the attribute of each.
        predicates: how many predicates there are.
        countable: of each filter, whether a counter is to find it; the others' constraints are left out here.
    """
    predicate, filter_of = _distinct(predicate, filter_, predicates)
    _, named = _distinct(name, filter_, int(name.max(initial=-1)) + 1)
    filters = len(countable)
    needed = np.bincount(filter_of, minlength=filters)
    needed[~countable] = UNREACHABLE
    attributes = np.bincount(named, minlength=filters)
    return Pairs(predicate, filter_of, predicates, needed.astype(np.uint8), attributes.astype(np.uint8))


def _distinct(
    keys: NDArray[np.int32], filter_: NDArray[np.int32], limit: int
) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
    """Keys and filters, ordered by key, then filter, without repeats."""
    order = stable_order(keys, limit)
    keys, filter_ = keys[order], filter_[order]
    new = np.ones(len(keys), bool)
    new[1:] = (keys[1:] != keys[:-1]) | (filter_[1:] != filter_[:-1])
    return keys[new], filter_[new]
