"""The engine of the two-phase paper (Shah, Doijad, Kulkarni: Efficient Two-Phase Parallel Content Matching).

Phase one finds the predicates that an event satisfies, each once however many filters have it. Phase two
counts them a filter. A filter whose counter reaches its number of predicates is satisfied; its area is tested
last. Many events are matched at once, each by one thread (ME-IP, section IV): each thread has counters of its
own, so nothing is shared that is written to.

The structures are built of all filters at once. Filters that are added stand apart and are tested one by one,
until they are an eighth as many as those built; removed ones are passed over, until they are the majority.
Then all is built anew, so that a change costs constant time on average, apart from sorting.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from evflow.errors import SubscriptionError
from evflow.events.gather import starts_of
from evflow.matching.engine import Matches, in_pieces
from evflow.matching.held import Held
from evflow.matching.moving import Moves
from evflow.matching.rows import EventRows, Filters
from evflow.matching.strings import Strings
from evflow.matching.twophase.cluster import Clusters, Counters
from evflow.matching.twophase.compiled import Columns, Rows, Words, nbytes, rows_of, words_of
from evflow.matching.twophase.predicates import NEVER, UNREACHABLE, Constraints, codes_of, pairs_of
from evflow.matching.twophase.scratch import (
    BLOCK,
    INCREMENTS,
    MATCHED,
    SATISFIED,
    SCANNED,
    Satisfied,
    Scratch,
    new_scratch,
    room_for,
)  # fmt: skip
from evflow.matching.twophase.table import SearchTree, Table
from evflow.matching.twophase.trie import Trie

_PIECES = 4
"""Pieces of a batch for each thread, so that none waits long for the last."""


class TwoPhaseEngine:
    """What engines with two phases have in common.

    Args:
        strings: operands that are strings.
        dimensions: of places.
        structure: makes the structure of phase one.
        lists: the kind of phase two.
        options: of the structure.
    """

    def __init__(self, strings: Strings, dimensions: int, structure: Any, lists: Any, **options: Any) -> None:
        self._strings = strings
        self._structure = structure
        self._lists = lists
        self._options = options
        self._held = Held(dimensions)
        self._events = 0
        self._tally = np.zeros(4, np.int64)
        self._lock = threading.Lock()
        self._build()

    def _build(self) -> None:
        """Makes both structures of all filters."""
        self._held.compact()
        held = self._held.used()
        lengths = np.diff(held.start)
        owner = np.repeat(np.arange(len(held), dtype=np.int32), lengths)
        never = np.zeros(len(held), bool)
        never[owner[held.op == NEVER]] = True
        apart = lengths >= UNREACHABLE
        unknown = (held.op > self._structure.last_test) & (held.op != NEVER)
        apart[owner[unknown]] = True
        countable = ~(never | apart)
        rows = countable[owner]
        of = Constraints(held.name, held.op, held.number, held.text, self._strings).take(rows)
        structure = self._structure(of, **self._options)
        predicates = structure.sizes(structure.arrays)["predicates"]
        pairs = pairs_of(owner[rows], structure.predicate, of.name, predicates, countable)
        self._one, self._two = structure.arrays, self._lists(pairs).arrays
        self._apart_always = np.flatnonzero(apart & ~never).astype(np.int32)
        self._built = len(held)
        self._refresh()

    def _refresh(self) -> None:
        late = np.arange(self._built, self._held.filters, dtype=np.int32)
        self._apart = np.concatenate([self._apart_always, late])
        # What threads need, made for these structures, and not in use now.
        self._free: list[tuple[Satisfied, Scratch]] = []

    def add(self, filters: Filters) -> None:
        """Takes filters in."""
        self._held.add(replace(filters, op=codes_of(filters.op, filters.number, filters.text)))
        if self._held.filters - self._built > self._built // 8:
            self._build()
        else:
            self._refresh()

    def remove(self, ids: NDArray[np.int32]) -> None:
        """Forgets subscriptions."""
        self._held.remove(ids)
        if self._held.filters > 2 * self._held.live:
            self._build()

    def move(self, moves: Moves) -> None:
        """Gives filters other areas."""
        self._held.move(moves)

    def match(self, events: EventRows, threads: int = 1) -> Matches:
        """What these events satisfy, several events at once (ME-IP); the same whatever ``threads`` is."""
        rows, words, held = rows_of(events), words_of(self._strings), self._held.columns
        columns = Columns(
            held.subscription, held.start, held.name, held.op, held.number, held.text, held.centre, held.reach
        )
        counts = np.zeros(len(events), np.int64)

        def match(begin: int, end: int) -> Matches:
            ids = self._match(rows, words, columns, begin, end, counts)
            return Matches(starts_of(counts[begin:end]), ids)

        return in_pieces(match, len(events), threads, _PIECES * threads)

    def _match(
        self, events: Rows, words: Words, held: Columns, begin: int, end: int, counts: NDArray[np.int64]
    ) -> NDArray[np.int32]:
        """The ids that events ``begin`` up to ``end`` match, and in ``counts`` how many each matches."""
        satisfied, scratch = self._take_scratch()
        find, match, most = self._structure.find, self._lists.match, self._held.live
        found: list[NDArray[np.int32]] = []
        first, used = begin, 0
        while first < end:
            stop = find(events, words, self._one, first, min(first + BLOCK, end), satisfied)
            at = first
            while at < stop:
                at, used = match(
                    events, held, words, self._two, self._apart, satisfied, first, at, stop, scratch, used,
                    most, counts,
                )  # fmt: skip
                if at < stop:
                    found.append(scratch.ids[:used].copy())
                    used = 0
            first = stop
        found.append(scratch.ids[:used].copy())
        with self._lock:
            self._events += end - begin
            self._tally += scratch.tally
        scratch.tally[:] = 0
        self._free.append((satisfied, scratch))
        return np.concatenate(found)

    def _take_scratch(self) -> tuple[Satisfied, Scratch]:
        try:
            return self._free.pop()
        except IndexError:
            held, counters = self._held, self._lists.counters(self._two)
            names = int(held.used().name.max(initial=-1)) + 1
            predicates = self._structure.sizes(self._one)["predicates"]
            return room_for(predicates), new_scratch(counters, len(held.first), names, held.live)

    def details(self) -> Mapping[str, int]:
        """What the structures hold, and what events cost so far.

        With A attributes, P predicates and N filters, the paper's matching time in steps (section IV C) is
        ``satisfied / events * entries / predicates + filters``; an event touched ``(incremented + scanned) /
        events`` counters.

        Returns:
            filters: N, those that counters stand for; constraints: theirs, repeats included; predicates: P,
            distinct constraints; attributes: A; nodes: of a trie or search tree; characters: of predicates as
            the trie spells them; tables, cells: of tables; entries: of the lists that say which filters have
            a predicate; clusters: of phase two; apart: filters that are tested one by one; phase1_bytes,
            phase2_bytes: of the structures; events: how many were matched; satisfied: predicates that they
            satisfied; incremented: how often a counter was; scanned: counters that were reset and looked at;
            matched: filters whose counters were complete, before areas were tested.

        Example:
            >>> TwoPhase(Strings(), 2, phase1="trie").details()["predicates"]
            0
        """
        held, tally = self._held, self._tally.tolist()
        return {
            **dict.fromkeys(("nodes", "characters", "tables", "cells"), 0),
            **self._structure.sizes(self._one),
            **self._lists.sizes(self._two),
            "constraints": held.constraints,
            "attributes": len(np.unique(held.used().name)),
            "apart": len(self._apart),
            "phase1_bytes": nbytes(self._one),
            "phase2_bytes": nbytes(self._two),
            "events": self._events,
            "satisfied": tally[SATISFIED],
            "incremented": tally[INCREMENTS],
            "scanned": tally[SCANNED],
            "matched": tally[MATCHED],
        }

    def memory(self) -> Mapping[str, int]:
        """Bytes held, by what for."""
        scratch = sum(nbytes(satisfied) + nbytes(scratch) for satisfied, scratch in list(self._free))
        return {
            "filters": self._held.nbytes,
            "phase one": nbytes(self._one),
            "phase two": nbytes(self._two) + self._apart.nbytes,
            "scratch": scratch,
        }

    def save(self, folder: Path) -> None:
        """Writes the filters."""
        self._held.save(folder)

    def load(self, folder: Path) -> None:
        """Takes what ``save`` wrote, and builds both structures of it."""
        self._held.load(folder)
        self._build()


class TwoPhase(TwoPhaseEngine):
    """The engine ``two-phase``.

    Args:
        strings: operands that are strings.
        dimensions: of places.
        phase1: ``table``, ``trie`` or ``search-tree``, all about as fast with many filters.
        phase2: ``counting``, or ``clustering`` (counting with clustering).
        domain: the least and the greatest integer that a table holds; for ``table`` only.

    Raises:
        SubscriptionError: an option that there is not.

    Example:
        >>> TwoPhase(Strings(), 2, phase1="hash")
        Traceback (most recent call last):
        evflow.errors.SubscriptionError: phase1 'hash': expected 'table', 'trie' or 'search-tree'
    """

    def __init__(
        self,
        strings: Strings,
        dimensions: int,
        *,
        phase1: str = "table",
        phase2: str = "clustering",
        domain: tuple[int, int] | None = None,
    ) -> None:
        if phase1 not in _PHASE1:
            raise SubscriptionError(f"phase1 {phase1!r}: expected 'table', 'trie' or 'search-tree'")
        if phase2 not in _PHASE2:
            raise SubscriptionError(f"phase2 {phase2!r}: expected 'counting' or 'clustering'")
        options = {}
        if domain is not None:
            if phase1 != "table":
                raise SubscriptionError(f"domain {domain!r}: only phase1='table' has one, not {phase1!r}")
            options["domain"] = Table.checked(domain)
        super().__init__(strings, dimensions, _PHASE1[phase1], _PHASE2[phase2], **options)


_PHASE1 = {"table": Table, "trie": Trie, "search-tree": SearchTree}
_PHASE2 = {"counting": Counters, "clustering": Clusters}
