"""A peer: the counting algorithm in its plain form, the family of Siena's SFF.

Distinct constraints stand in a list for each attribute, each with the filters that have it (Yan and
Garcia-Molina; CCM, section 4). Every constraint on an attribute of an event is evaluated, each once, and
those that hold are counted a filter. A filter is satisfied when its count is the number of its constraints;
its area is tested then.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from evflow.matching.strings import Strings
from evflow.matching.twophase.cluster import Counters
from evflow.matching.twophase.compiled import Int, Rows, Words, kernel
from evflow.matching.twophase.engine import TwoPhaseEngine
from evflow.matching.twophase.predicates import NEVER, Constraints, arrange
from evflow.matching.twophase.scratch import Attribute, Satisfied, append, satisfies

__all__ = ["ConstraintLists", "Counting", "ListArrays", "find_in_lists"]


class ListArrays(NamedTuple):
    """P distinct constraints.

    Attributes:
        start: int32: where the constraints on an attribute start and end, by its number.
        test: uint8, P: operator and kind of operand.
        number: float64, P: the operand where it is a number.
        text: int32, P: the operand where it is a string.
    """

    start: NDArray[np.int32]
    test: NDArray[np.uint8]
    number: NDArray[np.float64]
    text: NDArray[np.int32]


@kernel
def find_in_lists(
    events: Rows, words: Words, lists: ListArrays, event: Int, stop: Int, satisfied: Satisfied
) -> Int:
    """Phase one for events from ``event`` up to ``stop``; returns the event it came to."""
    firsts, lasts, starts, n, base = satisfied.first, satisfied.last, satisfied.start, 0, event
    list_start, tests, number, text = lists.start, lists.test, lists.number, lists.text
    event_names, event_start, kinds, numbers = events.name, events.start, events.kind, events.number
    chars, char_starts, char_lengths = events.chars, events.char_start, events.char_length
    starts[0] = 0
    for e in range(event, stop):
        if n + len(tests) >= len(firsts):
            return e
        attributes = 0
        for i in range(event_start[e], event_start[e + 1]):
            name, before = event_names[i], n
            if name + 1 >= len(list_start):
                continue
            attribute = Attribute(np.int64(kinds[i]), numbers[i], char_starts[i], np.int64(char_lengths[i]))
            for p in range(list_start[name], list_start[name + 1]):
                if satisfies(tests[p], number[p], text[p], words, attribute, chars):
                    n = append(p, p + 1, firsts, lasts, n)
            attributes += n > before
        satisfied.attributes[e - base] = attributes
        starts[e - base + 1] = n
    return stop


class ConstraintLists:
    """Distinct constraints, one list an attribute."""

    last_test = NEVER
    find = staticmethod(find_in_lists)

    def __init__(self, of: Constraints) -> None:
        families, self.predicate = arrange(of)
        sizes = np.diff(families.first)
        names = np.repeat(families.name, sizes)
        start = np.searchsorted(names, np.arange(int(names.max(initial=-1)) + 2)).astype(np.int32)
        self.arrays = ListArrays(start, np.repeat(families.test, sizes), families.number, families.text)

    @staticmethod
    def sizes(arrays: ListArrays) -> dict[str, int]:
        """What the lists are made of."""
        return {"predicates": len(arrays.test)}


class Counting(TwoPhaseEngine):
    """The engine ``counting``."""

    def __init__(self, strings: Strings, dimensions: int) -> None:
        super().__init__(strings, dimensions, ConstraintLists, Counters)
