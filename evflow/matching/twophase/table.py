"""Phase one by tables: one a test of an attribute, indexed by the value (two-phase paper, section III B).

And by a parallel search tree: attribute, then test, then operand (section III D).

A cell says how many of the test's operands are less than its value. Predicates are numbered in the order of
their operands, so one look finds all that are satisfied, as in Ashayer et al., on which the paper builds.

A table holds integers of a domain that is fixed beforehand. The paper names that as its limit, and it is
lifted here: other operands (fractions, integers outside of the domain, strings) stand in ordered lists beside
the tables, one a test of an attribute, in which a value's place is found by halving. Values of events may be
any. With such lists alone this is the search tree.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from evflow.errors import SubscriptionError
from evflow.events.gather import starts_of
from evflow.matching.native import compiled
from evflow.matching.rows import NUMBER, TEXT
from evflow.matching.twophase.compiled import Int, Rows, Words, kernel
from evflow.matching.twophase.predicates import EXISTS, NEVER, PREFIX, TEXTS, Constraints, arrange
from evflow.matching.twophase.scratch import Attribute, Satisfied, append, emit, order_of, satisfies


class TableArrays(NamedTuple):
    """F families of P predicates in all, T of them tables.

    Attributes:
        shape: int64, 4: the least integer of a table, how many there are, P, predicates that tables hold.
        family: int32: where the families of an attribute start and end, by its number.
        test: uint8, F.
        first: int32, F: the first predicate of a family.
        last: int32, F: the one behind its last.
        row: int32, F: its table, or -1.
        cells: uint16, (T, domain + 1): how many operands of the table are less than the value of the cell.
        number: float64: operands of predicates that no table holds; these have the highest numbers.
        text: int32, likewise.
    """

    shape: NDArray[np.int64]
    family: NDArray[np.int32]
    test: NDArray[np.uint8]
    first: NDArray[np.int32]
    last: NDArray[np.int32]
    row: NDArray[np.int32]
    cells: NDArray[np.uint16]
    number: NDArray[np.float64]
    text: NDArray[np.int32]


@compiled
def _look_up(
    test: Int,
    first: Int,
    last: Int,
    row: Int,
    cells: NDArray[np.uint16],
    low: Int,
    value: float,
    firsts: NDArray[np.int32],
    lasts: NDArray[np.int32],
    n: Int,
) -> Int:
    """Appends what a number satisfies of a table."""
    if value != value:
        return emit(test, first, last, 0, last, firsts, lasts, n) if test == 1 else n
    if value < low:
        return emit(test, first, first, 0, last, firsts, lasts, n)
    if value >= low + cells.shape[1] - 1:
        return emit(test, first, last, 0, last, firsts, lasts, n)
    cell = np.int64(math.floor(value)) - low
    below, upto = np.int64(cells[row, cell]), np.int64(cells[row, cell + 1])
    if value != cell + low:
        return emit(test, first, first + upto, 0, last, firsts, lasts, n)
    return emit(test, first, first + below, upto - below, last, firsts, lasts, n)


@compiled
def emit_family(
    test: Int,
    first: Int,
    last: Int,
    skip: Int,
    number: NDArray[np.float64],
    text: NDArray[np.int32],
    words: Words,
    attribute: Attribute,
    chars: NDArray[np.uint8],
    firsts: NDArray[np.int32],
    lasts: NDArray[np.int32],
    n: Int,
) -> Int:
    """Appends what an attribute satisfies of predicates ``first`` up to ``last``, whose operands are in
    order.

    Args:
        test: their test.
        first: the first.
        last: the one behind the last.
        skip: the predicate that the first operand belongs to.
        number: operands that are numbers.
        text: operands that are strings.
        words: their bytes.
        attribute: the attribute.
        chars: the bytes of its string.
        firsts: of the ranges of what is satisfied.
        lasts: likewise.
        n: how many ranges there are.

    Returns:
        How many ranges there are then.
    """
    if test >= PREFIX:
        if test == EXISTS or attribute.kind == TEXT:
            for p in range(first, last):
                if satisfies(test, 0.0, text[p - skip], words, attribute, chars):
                    n = append(p, p + 1, firsts, lasts, n)
        return n
    if attribute.kind != (NUMBER if test < TEXTS else TEXT):
        return n
    value = attribute.number
    if test < TEXTS and value != value:
        return emit(test, first, last, 0, last, firsts, lasts, n) if test == 1 else n
    at, length = attribute.start, attribute.length
    low, high = first, last
    while low < high:
        middle = (low + high) >> 1
        if test < TEXTS:
            # NaN, the last operand, is less than nothing.
            less = number[middle - skip] < value
        else:
            less = order_of(chars, at, length, words, text[middle - skip]) > 0
        if less:
            low = middle + 1
        else:
            high = middle
    equal = 0
    if low < last:
        if test < TEXTS:
            equal = int(number[low - skip] == value)
        else:
            equal = int(order_of(chars, at, length, words, text[low - skip]) == 0)
    return emit(test, first, low, equal, last, firsts, lasts, n)


@kernel
def find_in_tables(
    events: Rows, words: Words, tables: TableArrays, event: Int, stop: Int, satisfied: Satisfied
) -> Int:
    """Phase one for events from ``event`` up to ``stop``; returns the event it came to."""
    firsts, lasts, starts, n, base = satisfied.first, satisfied.last, satisfied.start, 0, event
    families, tests, begins, ends = tables.family, tables.test, tables.first, tables.last
    rows, cells, number, text = tables.row, tables.cells, tables.number, tables.text
    low, total, skip = tables.shape[0], tables.shape[2], tables.shape[3]
    event_names, event_start, kinds, numbers = events.name, events.start, events.kind, events.number
    chars, char_starts, char_lengths = events.chars, events.char_start, events.char_length
    starts[0] = 0
    for e in range(event, stop):
        if n + total >= len(firsts):
            return e
        attributes = 0
        for i in range(event_start[e], event_start[e + 1]):
            name, before = event_names[i], n
            if name + 1 >= len(families):
                continue
            attribute = Attribute(np.int64(kinds[i]), numbers[i], char_starts[i], np.int64(char_lengths[i]))
            for f in range(families[name], families[name + 1]):
                test, first, last = np.int64(tests[f]), np.int64(begins[f]), np.int64(ends[f])
                if rows[f] < 0:
                    n = emit_family(
                        test, first, last, skip, number, text, words, attribute, chars, firsts, lasts, n
                    )
                elif attribute.kind == NUMBER:
                    n = _look_up(test, first, last, rows[f], cells, low, attribute.number, firsts, lasts, n)
            attributes += n > before
        satisfied.attributes[e - base] = attributes
        starts[e - base + 1] = n
    return stop


_SIX = 6
_LARGEST = 1 << 16


class Table:
    """The predicates of constraints as tables.

    Args:
        of: the constraints.
        domain: the least and the greatest integer that a table holds.

    Attributes:
        arrays: the tables.
        predicate: int32: the predicate of each constraint.

    Raises:
        SubscriptionError: the domain is none.
    """

    last_test = NEVER
    find = staticmethod(find_in_tables)

    def __init__(self, of: Constraints, domain: tuple[int, int] = (0, 127)) -> None:
        name, test, number = of.name, of.test, of.number
        low, size = domain[0], domain[1] - domain[0] + 1
        inside = (test < TEXTS) & (number >= low) & (number <= domain[1])
        inside &= np.floor(number, where=inside, out=np.zeros(len(number))) == number
        self.predicate = np.empty(len(name), np.int32)
        group = name[inside] * _SIX + test[inside]
        cells, tables, held, self.predicate[inside] = _tabulate(group, number[inside] - low, size)
        beside, predicate = arrange(of.take(~inside))
        self.predicate[~inside] = predicate + held
        names = np.concatenate([tables // _SIX, beside.name])
        order = np.argsort(names, kind="stable")
        first = np.concatenate([starts_of(cells[:, -1].astype(np.int64)), beside.first + held])
        row = np.full(len(names), -1, np.int32)
        row[: len(tables)] = np.arange(len(tables))
        total = held + len(beside.number)
        # Without the end of the last list where the lists beside the tables begin.
        begins = np.delete(first, [len(tables), len(first) - 1])
        ends = np.delete(first, [0, len(tables) + 1])
        self.arrays = TableArrays(
            np.array([low, size, total, held]),
            np.searchsorted(names[order], np.arange(names.max(initial=-1) + 2)).astype(np.int32),
            np.concatenate([tables % _SIX, beside.test]).astype(np.uint8)[order],
            begins[order].astype(np.int32),
            ends[order].astype(np.int32),
            row[order],
            cells,
            beside.number,
            beside.text,
        )

    @staticmethod
    def checked(domain: object) -> tuple[int, int]:
        """A domain as the user gave it."""
        if isinstance(domain, list | tuple) and len(domain) == 2:
            low, high = domain
            if isinstance(low, int) and isinstance(high, int) and 0 <= high - low < _LARGEST - 1:
                return low, high
        raise SubscriptionError(
            f"domain {domain!r}: expected the least and the greatest integer of a table, at most"
            f" {_LARGEST - 1} integers in all, such as domain=(0, 99)"
        )

    @staticmethod
    def sizes(arrays: TableArrays) -> dict[str, int]:
        """What the tables are made of: of A attributes at most 6 A tables with as many cells each, O(A)."""
        attributes = int((np.diff(arrays.family) > 0).sum())
        return {
            "predicates": int(arrays.shape[2]),
            "attributes": attributes,
            "tables": len(arrays.cells),
            "cells": arrays.cells.size,
        }


class SearchTree(Table):
    """The predicates of constraints as a parallel search tree.

    Args:
        of: the constraints.
    """

    def __init__(self, of: Constraints) -> None:
        super().__init__(of, domain=(0, -1))

    @staticmethod
    def sizes(arrays: TableArrays) -> dict[str, int]:
        """What the tree is made of: with A attributes and P predicates it has 1 + A + F + P nodes, O(P)."""
        of_lists = Table.sizes(arrays)
        predicates, attributes = of_lists["predicates"], of_lists["attributes"]
        nodes = 1 + attributes + len(arrays.test) + predicates
        return {"predicates": predicates, "attributes": attributes, "nodes": nodes}


def _tabulate(
    group: NDArray[Any], value: NDArray[np.float64], size: int
) -> tuple[NDArray[np.uint16], NDArray[np.intp], int, NDArray[np.int32]]:
    """Marks each constraint in the table of its group, and numbers what is marked.

    Returns:
        The cells; the group of each table; how many predicates they hold; the predicate of each constraint.
    """
    tables = np.flatnonzero(np.bincount(group)) if len(group) else np.empty(0, np.intp)
    table_of = np.zeros(int(tables.max(initial=-1)) + 1, np.int64)
    table_of[tables] = np.arange(len(tables))
    place = table_of[group] * size + value.astype(np.int64)
    marked = np.zeros(len(tables) * size, bool)
    marked[place] = True
    numbers = np.cumsum(marked, dtype=np.int32)
    cells = np.zeros((len(tables), size + 1), np.uint16)
    np.cumsum(marked.reshape(len(tables), size), axis=1, out=cells[:, 1:])
    return cells, tables, int(numbers[-1]) if len(numbers) else 0, numbers[place] - 1
