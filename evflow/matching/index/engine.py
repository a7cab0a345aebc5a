"""The engine ``index``: what it keeps, and how its kernels are called."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import fields
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from evflow.errors import SubscriptionError
from evflow.events.gather import address_of
from evflow.matching.engine import Matches, in_pieces
from evflow.matching.index import layout as at
from evflow.matching.index.arranging import Arranging
from evflow.matching.index.change import UNSETTLED, add, move, move_one, remove
from evflow.matching.index.directory import rebuild
from evflow.matching.index.memory import Buffer
from evflow.matching.index.purge import compact, purge
from evflow.matching.index.records import DRAFT_SIZE, LONGEST
from evflow.matching.index.scratch import Scratch
from evflow.matching.index.settle import settle
from evflow.matching.moving import Moves
from evflow.matching.rows import EventRows, Filters
from evflow.matching.strings import Strings

_CHUNK = 1 << 18
"""Filters that are added before lists are settled."""

_TRIED = 16
"""Events that are matched to see what a batch costs."""

_SELDOM = 1024
"""Single events after which what they took is looked at."""

_START = {"lists": 64, "entries": 256, "records": 256, "elements": 16, "dirty": 64, "table": 256, "bloom": 16}


class Index:
    """Filters in lists that an event finds by keys: its names, its values, its place.

    Attributes:
        arranging: says when ``arrange`` should be called, by one alone, for events to cost less.

    Example:
        >>> from evflow.matching.strings import Strings
        >>> engine = Index(Strings(), 2)
        >>> engine.details()["filters"]
        0
    """

    def __init__(self, strings: Strings, dimensions: int, **options: Any) -> None:
        if options:
            raise SubscriptionError(
                f"engine index: unknown option {next(iter(options))!r}; it has none, leave it out"
            )
        self._strings = strings
        self._state = np.zeros(at.STATE_SIZE, np.int64)
        self._at = address_of(self._state)
        self._arenas = {name: Buffer() for name in at.ARENAS}
        self._draft = Buffer(max(DRAFT_SIZE, 1 << 16))
        self._state[at.DRAFT] = self._draft.address
        self._state[at.DIMENSIONS] = dimensions
        self._state[at.SEED] = int.from_bytes(os.urandom(7), "little")
        self._changes = 0
        self._scratches: list[Scratch] = []
        for name, count in _START.items():
            self._grow(name, count)
        self._grow("counts", at.COUNTS_SIZE)
        self._grow("tally", at.TALLY_SIZE)
        # 0 stands for nothing, or for the signature that has no elements.
        for used in (at.LISTS_USED, at.ENTRIES_USED, at.RECORDS_USED):
            self._state[used] = 1
        self._list_view()[0, at.L_INFO // 4] = at.I_SIGNATURE
        self._text: tuple[Any, Any] = (None, None)
        self.arranging = Arranging(self._state, self._arenas, self._grow, self._make_room)
        # Single events until one is looked at, and how many that is.
        self._until = self._often = 0

    def _list_view(self) -> NDArray[np.uint32]:
        view: NDArray[np.uint32] = self._arenas["lists"].view(np.uint32).reshape(-1, 16)
        return view

    def _grow(self, name: str, count: int) -> None:
        """Makes an arena hold at least ``count`` of its units."""
        i = at.ARENAS.index(name)
        arena = self._arenas[name]
        arena.grow(count * at.UNITS[i])
        self._state[3 * i] = arena.address
        self._state[3 * i + 2] = arena.size // at.UNITS[i]
        if name in ("table", "bloom"):
            self._state[3 * i + 2] = count
        if name == "lists":
            self._grow("dirty", int(self._state[at.LISTS_CAPACITY]))

    def _make_room(self) -> None:
        """Makes room for what a kernel could not place."""
        i, amount = int(self._state[at.WANTED]), int(self._state[at.AMOUNT])
        name = at.ARENAS[i]
        if name in ("table", "lists") and self._changes > self._state[at.LISTS_USED] // 4:
            self._purge()
            if name == "table" or self._state[at.FREE_LIST]:
                return
        if name == "table":
            self._new_table()
            return
        used = int(self._state[3 * i + 1])
        self._grow(name, max(used + amount, 2 * used))

    def _new_table(self) -> None:
        """Makes the table anew, so that a quarter of it is filled at most."""
        lists = self._list_view()[1 : self._state[at.LISTS_USED]]
        there = int(((lists[:, 0] | lists[:, 1]) != 0).sum())
        slots = max(256, 1 << (4 * there).bit_length())
        for name, size in (("table", slots), ("bloom", slots // 16)):
            self._arenas[name] = Buffer()
            self._grow(name, size)
        self._state[at.TABLE_USED] = 0
        rebuild(self._at)

    def _read_texts(self) -> None:
        """Notes where the operands' strings stand now."""
        data, offsets = self._strings.data, self._strings.offsets
        if self._text[0] is not data or self._text[1] is not offsets:
            self._state[at.TEXT_DATA] = address_of(data)
            self._state[at.TEXT_OFFSETS] = address_of(offsets)
            # Last, since other threads go by it.
            self._text = (data, offsets)

    def _settle(self) -> None:
        self._read_texts()
        while settle(self._at) == at.FULL:
            self._make_room()

    def add(self, filters: Filters) -> None:
        """Take these in; all filters of a subscription come in one call."""
        count = len(filters)
        if not count:
            return
        lengths = np.diff(filters.start)
        if int(lengths.max()) > LONGEST:
            longest = int(lengths.argmax())
            raise SubscriptionError(
                f"subscription {filters.subscription[longest]}: a filter has {lengths[longest]} constraints, "
                f"expected at most {LONGEST}; split it into several subscriptions"
            )
        self._read_texts()
        self._reach(int(filters.subscription.max()), int(filters.name.max(initial=0)))
        columns = [np.ascontiguousarray(getattr(filters, field.name)) for field in fields(Filters)]
        addresses = [address_of(column) for column in columns]
        done = 0
        while done < count:
            # Lists that wait to be split take room of their own: at most as much as is in use.
            end = min(done + min(_CHUNK, max(_CHUNK >> 6, int(self._state[at.FILTERS]))), count)
            while done < end:
                done = add(self._at, done, end, *addresses)
                if done < end:
                    self._make_room()
            self._settle()
            self.arranging.keep_up()

    def _reach(self, subscription: int, name: int) -> None:
        """Makes room for subscriptions and names up to these."""
        for arena, used, wanted in (
            ("first", at.FIRST_USED, subscription + 1),
            ("elements", at.ELEMENTS_USED, 3 * name + 3),
        ):
            if wanted > self._state[used]:
                if wanted > self._state[used + 1]:
                    self._grow(arena, max(wanted, int(1.5 * self._state[used])))
                self._state[used] = wanted

    def remove(self, ids: NDArray[np.int32]) -> None:
        """Forget subscriptions with all their filters."""
        self._read_texts()
        ids = np.ascontiguousarray(ids, np.int32)
        before = int(self._state[at.FILTERS])
        remove(self._at, address_of(ids), len(ids))
        self._changes += before - int(self._state[at.FILTERS])
        if self._changes > self._state[at.LISTS_USED]:
            self._purge()
        self.arranging.keep_up()

    def _purge(self) -> None:
        """Gives empty lists back."""
        self._changes = 0
        if purge(self._at):
            self._new_table()

    def move(self, moves: Moves) -> None:
        """Give filters other areas."""
        rows = np.ascontiguousarray(moves)
        self._changes += len(rows)
        done = 0
        while (done := move(self._at, done, len(rows), address_of(rows))) != len(rows):
            self._make_room()
        if self._state[at.DIRTY_USED]:
            self._settle()

    def move_one(self, id: int, which: int, x: float, y: float, radius: float) -> bool:
        """Give filters of one subscription another centre, sooner than ``move`` does.

        Args:
            id: the subscription; any number.
            which: the number of the filter; all if it is negative.
            x, y: the centre, on the globe in degrees.
            radius: on the globe in metres; a negative one means that it stays.

        Returns:
            Whether that was done; not if there is no such filter, place or radius.
        """
        done = move_one(self._at, id, which, x, y, radius)
        if done:
            while done == at.FULL:
                self._make_room()
                done = move_one(self._at, id, which, x, y, radius)
            if done == UNSETTLED:
                self._settle()
            elif done:
                return False
        self._changes += 1
        return True

    def match(self, events: EventRows, threads: int = 1) -> Matches:
        """What these events satisfy."""
        count = len(events)
        if count == 1:
            ids = self.match_one(events)
            return Matches(np.array([0, len(ids)], np.int64), ids)
        return in_pieces(partial(self._match, events), count, threads, min(threads, count // 64))

    def match_one(self, events: EventRows) -> NDArray[np.int32]:
        """The subscriptions that the only event of the rows satisfies, sooner than ``match`` tells."""
        try:
            scratch = self._scratches.pop()
        except IndexError:
            scratch = Scratch()
        try:
            self._until -= 1
            if self._until >= 0:
                return scratch.run_one(self._at, self._state, events)
            # More seldom from one time to the next.
            self._often = 1 if self.arranging.unsure else min(2 * self._often + 1, _SELDOM)
            self._until = self._often
            self._ask(scratch)
            ids = scratch.run_one(self._at, self._state, events)
            self.arranging.note(scratch.counts(1), self._often + 1)
            return ids
        finally:
            self._scratches.append(scratch)

    def _ask(self, scratch: Scratch) -> None:
        """Begins to count what matching takes."""
        scratch.begin_counts(self.arranging.asked)
        self.arranging.asked = False

    def weigh(self, events: EventRows, count: int) -> bool:
        """Whether ``arrange`` should be called before so many events are matched; these are some."""
        if len(events) > 4 * _TRIED and self.arranging.unsure:
            self._match(events, 0, _TRIED, count / _TRIED)
        return self.arranging.better

    def arrange(self) -> None:
        """Moves filters to where events find them at less cost, as counts of the last ones tell."""
        self._read_texts()
        # Not while filters are on their way: their signatures look empty then.
        self._purge()
        self.arranging.arrange()
        self._settle()
        self._compact()

    def _compact(self) -> None:
        """Gives the memory of entries back if most of it is free."""
        used = compact(self._at, 0)
        if 2 * used < self._state[at.ENTRIES_USED]:
            entries = Buffer(used * at.UNITS[at.ARENAS.index("entries")])
            compact(self._at, entries.address)
            self._arenas["entries"] = entries
            self._grow("entries", used)

    def _match(self, events: EventRows, start: int, stop: int, times: float = 1.0) -> Matches:
        """What the events from ``start`` to ``stop`` satisfy, in the calling thread."""
        scratch = self._free_scratch()
        try:
            self._ask(scratch)
            found = scratch.run(self._at, self._state, events, start, stop)
            self.arranging.note(scratch.counts(stop - start), times)
            return found
        finally:
            self._scratches.append(scratch)

    def _free_scratch(self) -> Scratch:
        """Working memory that no other thread uses now."""
        try:
            return self._scratches.pop()
        except IndexError:
            return Scratch()

    def memory(self) -> Mapping[str, int]:
        """Bytes held, by what for."""
        held = {name: self._used(name) for name in at.ARENAS}
        held["scratch"] = self._draft.size + sum(scratch.size for scratch in list(self._scratches))
        return held

    def _used(self, name: str) -> int:
        """Bytes of an arena that are in use."""
        i = at.ARENAS.index(name)
        whole = name in ("table", "bloom", "counts", "tally")
        return int(self._state[3 * i + (2 if whole else 1)]) * at.UNITS[i]

    def details(self) -> Mapping[str, int]:
        """How many signatures, lists and filters there are, by how an event finds them.

        Filters stand with their signature (``own``), by a sharp constraint (``sharp``), in a group of like
        radius (``group``), in a cell of one (``cell``) or in the pool (``pool``, which has rows of bits for
        ``pool.axes`` elements); those that nothing can satisfy stand nowhere.
        """
        lists = self._list_view()[: self._state[at.LISTS_USED]]
        info, length = lists[:, at.L_INFO // 4], lists[:, at.L_LENGTH // 4]
        told = {"filters": int(self._state[at.FILTERS]), "signatures": int(self._state[at.SIGNATURES])}
        told["pool.filters"], told["pool.axes"] = (
            int(self._state[slot]) if self._state[at.POOLED] else 0
            for slot in (at.POOL_FILTERS, at.AXES_USED)
        )
        kinds = {"own": at.I_SIGNATURE, "sharp": at.I_SHARP, "group": at.I_GROUP, "cell": at.I_CELL}
        for name, flag in kinds.items():
            chosen = length[(info & flag != 0) & (length > 0)]
            told[f"{name}.lists"] = len(chosen)
            told[f"{name}.filters"] = int(chosen.sum())
        return told

    def save(self, folder: Path) -> None:
        """Write all state to files in ``folder``, which is empty."""
        np.save(folder / "index_state.npy", self._state)
        for name in at.ARENAS:
            self._arenas[name].save(folder / f"index_{name}.npy", self._used(name))

    def load(self, folder: Path) -> None:
        """Take the state that ``save`` wrote, mapped copy-on-write."""
        self._state[:] = np.load(folder / "index_state.npy")
        self._state[at.DRAFT] = self._draft.address
        self._text = (None, None)
        for i, name in enumerate(at.ARENAS):
            arena = Buffer()
            arena.load(folder / f"index_{name}.npy")
            self._arenas[name] = arena
            self._state[3 * i] = arena.address
            if name not in ("table", "bloom"):
                self._state[3 * i + 2] = arena.size // at.UNITS[i]
        self._grow("dirty", int(self._state[at.LISTS_CAPACITY]))
        self._read_texts()
        self.arranging.reset()
