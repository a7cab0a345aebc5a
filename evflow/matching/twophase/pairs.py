"""Which predicates each filter has, each once."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from evflow.events.gather import starts_of
from evflow.matching.twophase.predicates import stable_order

__all__ = ["UNREACHABLE", "Pairs", "pairs_of"]

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
