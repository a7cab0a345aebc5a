"""Which ids of subscriptions are taken, and what the matcher itself remembers of each."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from evflow.errors import SubscriptionError
from evflow.matching.mapped import mapped
from evflow.matching.textids import TextIds, checked_id, numbers_of, texts_of

LARGEST = 2**31 - 2
"""The largest id; memory is proportional to the largest in use."""

NONE, SOME, ALL = 1, 2, 3
"""How many filters of a subscription have an area; 0 marks a free id."""

_SHIFT = 12
_BLOCK = 1 << _SHIFT

_OR_TEXTS = "whole numbers, or texts alone,"

Int32s = NDArray[np.int32]


class Ids:
    """The ids in use, and for each how many filters and constraints it has and which filters have an area.

    Finding the smallest free id looks at one count for every 4,096 ids.

    Attributes:
        areas: uint8, one an id: 0, ``NONE``, ``SOME`` or ``ALL``.
        filters: int32, one an id.
        constraints: int32, one an id.
        count: how many ids are in use.
        texts: those that the user knows by texts.
    """

    def __init__(self) -> None:
        self.areas = np.zeros(_BLOCK, np.uint8)
        self.filters = np.zeros(_BLOCK, np.int32)
        self.constraints = np.zeros(_BLOCK, np.int32)
        self.count = 0
        self.texts = TextIds()
        self._used = np.zeros(1, np.int32)
        # One number of a view is read sooner.
        self._view = self.areas.data
        # Of subscriptions where only some filters have an area: which ones.
        self._some: dict[int, bytes] = {}

    def __len__(self) -> int:
        return self.count

    def __contains__(self, id: object) -> bool:
        if not isinstance(id, int | np.integer) or isinstance(id, bool):
            return isinstance(id, str) and id in self.texts
        return bool(0 <= id < len(self.areas) and self.areas[id])

    def all(self) -> Int32s:
        """The ids in use, ascending."""
        return np.flatnonzero(self.areas).astype(np.int32)

    @property
    def nbytes(self) -> int:
        """Bytes of memory, about."""
        arrays = self.areas.nbytes + self.filters.nbytes + self.constraints.nbytes
        return arrays + sum(len(bits) + 130 for bits in self._some.values()) + self.texts.nbytes

    def next(self) -> int:
        """The smallest free id.

        Raises:
            SubscriptionError: there is none.
        """
        block = int((self._used < _BLOCK).argmax())
        if self._used[block] == _BLOCK:
            return self._fitting(len(self.areas))
        return block * _BLOCK + int((self.areas[block * _BLOCK : (block + 1) * _BLOCK] == 0).argmax())

    def next_many(self, n: int) -> Int32s:
        """The n smallest free ids.

        Raises:
            SubscriptionError: there are not so many.
        """
        free = np.flatnonzero(self.areas == 0)[:n]
        behind = np.arange(len(self.areas), len(self.areas) + n - len(free))
        if len(behind):
            self._fitting(int(behind[-1]))
        return np.concatenate([free, behind]).astype(np.int32)

    def free(self, given: Any) -> Int32s:
        """Ids as the user gave them, for new subscriptions.

        Raises:
            SubscriptionError: one is not an id, is in use, or is given twice.
        """
        ids = checked_ids(given)
        for_known = ids[ids < len(self.areas)]
        taken = for_known[self.areas[for_known] != 0]
        if len(taken):
            raise SubscriptionError(f"id {int(taken[0])} is in use; unsubscribe it, or choose another")
        refuse_repeats(ids)
        return ids.astype(np.int32)

    def known(self, given: Any, repeats: bool = True) -> Int32s:
        """Ids as the user gave them, integers or texts, of subscriptions that are there, as integers.

        Raises:
            SubscriptionError: one is not there, or twice where that makes no sense.
        """
        ids = _whole(numbers_of(given, self.texts))
        inside = (ids >= 0) & (ids < len(self.areas))
        if inside.all():
            inside = self.areas[ids] != 0
        if not inside.all():
            raise SubscriptionError(f"there is no subscription {int(ids[np.argmin(inside)])}")
        if not repeats:
            refuse_repeats(ids)
        return ids.astype(np.int32)

    def next_of(self, given: Any) -> Int32s:
        """The same as ``known``, but texts may be new: these have the integers that they would get now.

        Raises:
            SubscriptionError: an integer is not there, or a text is not one that an id may be.
        """
        named = texts_of(given)
        if named is None:
            return self.known(given)
        new = dict.fromkeys(checked_id(text) for text in named if text not in self.texts)
        numbers = dict(zip(new, self.next_many(len(new)).tolist(), strict=True))
        found = [numbers[text] if text in numbers else self.texts.number(text) for text in named]
        return np.array(found, np.int32)

    def add(self, ids: Int32s, filters: Int32s, constraints: Int32s, located: NDArray[np.bool_]) -> None:
        """Marks free ids as taken.

        Args:
            ids: the ids.
            filters: how many filters each has.
            constraints: how many constraints each has, over its filters.
            located: one a filter, those of the first id first: whether it has an area.
        """
        self._grow(int(ids.max(initial=-1)) + 1)
        ends = np.cumsum(filters)
        sums = np.concatenate([[0], np.cumsum(located)])
        areas = sums[ends] - sums[ends - filters]
        self.filters[ids], self.constraints[ids] = filters, constraints
        self.areas[ids] = np.where(areas == 0, NONE, np.where(areas == filters, ALL, SOME))
        for i in np.flatnonzero((areas > 0) & (areas < filters)).tolist():
            bits = located[ends[i] - filters[i] : ends[i]]
            self._some[int(ids[i])] = bits.astype(np.uint8).tobytes()
        self._count(ids, 1)

    def _count(self, ids: Int32s, change: int) -> None:
        blocks = ids >> _SHIFT
        if len(ids) > len(self._used):
            self._used += change * np.bincount(blocks, minlength=len(self._used)).astype(np.int32)
        else:
            np.add.at(self._used, blocks, change)
        self.count += change * len(ids)

    def remove(self, ids: Int32s) -> None:
        """Marks ids that are taken as free."""
        self.texts.remove(ids.tolist() if len(self.texts) else [])
        if self._some:
            for id in ids[self.areas[ids] == SOME].tolist():
                del self._some[id]
        self._count(ids, -1)
        self.areas[ids] = 0
        self.filters[ids] = self.constraints[ids] = 0

    def has_area(self, id: int, which: int) -> bool:
        """Whether filter ``which`` of a subscription has an area; -1: whether any has."""
        areas = self.areas[id]
        if which < 0:
            return bool(areas != NONE)
        if which >= self.filters[id]:
            return False
        return bool(areas == ALL or (areas == SOME and self._some[id][which]))

    def moves(self, id: int | str) -> bool:
        """Whether this is for certain an id of which all filters have an area; quicker than ``has_area``."""
        return type(id) is int and 0 <= id < len(self._view) and self._view[id] == ALL

    def totals(self) -> tuple[int, int]:
        """How many filters and constraints there are."""
        return int(self.filters.sum(dtype=np.int64)), int(self.constraints.sum(dtype=np.int64))

    def _fitting(self, id: int) -> int:
        if id > LARGEST:
            raise SubscriptionError(f"id {id}: expected 0 to {LARGEST}")
        return id

    def _grow(self, size: int) -> None:
        if size <= len(self.areas):
            return
        room = -(-max(size, len(self.areas) * 3 // 2) // _BLOCK) * _BLOCK
        for name in ("areas", "filters", "constraints"):
            old = getattr(self, name)
            larger = np.zeros(room, old.dtype)
            larger[: len(old)] = old
            setattr(self, name, larger)
        more = np.zeros(room // _BLOCK - len(self._used), np.int32)
        self._used, self._view = np.concatenate([self._used, more]), self.areas.data

    def save(self, folder: Path) -> None:
        """Writes all this to files in ``folder``."""
        for name in ("areas", "filters", "constraints"):
            np.save(folder / f"id_{name}.npy", getattr(self, name))
        self.texts.save(folder)
        np.save(folder / "id_some.npy", np.array(list(self._some), np.int64))
        np.save(folder / "id_some_filters.npy", np.frombuffer(b"".join(self._some.values()), np.uint8))

    def load(self, folder: Path) -> None:
        """Takes what ``save`` wrote, mapped copy-on-write."""
        for name in ("areas", "filters", "constraints"):
            setattr(self, name, mapped(folder / f"id_{name}.npy"))
        self.texts.load(folder)
        blocks = self.areas.reshape(-1, _BLOCK)
        self._used = (blocks != 0).sum(axis=1, dtype=np.int32)
        self.count = int(self._used.sum())
        self._view = self.areas.data
        bits = mapped(folder / "id_some_filters.npy").tobytes()
        at = 0
        for id in mapped(folder / "id_some.npy").tolist():
            self._some[id] = bits[at : at + int(self.filters[id])]
            at += int(self.filters[id])


def checked_ids(given: Any, expected: str = _OR_TEXTS) -> NDArray[np.int64]:
    """Integers that may be ids.

    Args:
        given: as the user gave them.
        expected: what an error says that they are.

    Raises:
        SubscriptionError: one may not, or they are not integers in one dimension.
    """
    ids = _whole(given, expected)
    least, most = int(ids.min(initial=0)), int(ids.max(initial=0))
    if least < 0 or most > LARGEST:
        raise SubscriptionError(f"id {least if least < 0 else most}: expected 0 to {LARGEST}")
    return ids


def _whole(given: Any, expected: str = _OR_TEXTS) -> NDArray[np.int64]:
    array = np.asarray(given)
    if array.size == 0 and array.ndim == 1:
        return np.empty(0, np.int64)
    if array.ndim != 1 or array.dtype.kind not in "iu":
        raise SubscriptionError(
            f"ids: expected {expected} in one dimension, found {array.dtype}, shape {array.shape}"
        )
    if array.dtype == np.uint64 and int(array.max()) > LARGEST:
        raise SubscriptionError(f"id {int(array.max())}: expected 0 to {LARGEST}")
    return array.astype(np.int64)


def refuse_repeats(ids: NDArray[Any]) -> None:
    """Refuses ids, as integers, of which one stands twice.

    Raises:
        SubscriptionError: one does.
    """
    ordered = np.sort(ids)
    twice = ordered[1:][ordered[1:] == ordered[:-1]]
    if len(twice):
        raise SubscriptionError(f"id {int(twice[0])} stands twice; each may be given once")
