"""The engine of the two-phase paper (Shah, Doijad, Kulkarni: Efficient Two-Phase Parallel Content Matching).

Phase one finds the predicates that an event satisfies, each once however many filters have it. Phase two
counts them a filter. A filter whose counter reaches its number of predicates is satisfied; its area is tested
last. Many events are matched at once, each by one thread (ME-IP).

The structures are built of all filters at once. Filters that are added stand apart and are tested one by one,
until they are an eighth as many as those built; removed ones are passed over, until they are the majority.
Then all is built anew, so that a change costs constant time on average, apart from sorting.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from evflow.errors import SubscriptionError
from evflow.matching.engine import Matches
from evflow.matching.filters import Filters
from evflow.matching.rows import EventRows
from evflow.matching.strings import Strings
from evflow.matching.twophase.accounting import Accounting
from evflow.matching.twophase.cluster import Clusters
from evflow.matching.twophase.compiled import load_arrays, nbytes, rows_of, save_arrays, words_of
from evflow.matching.twophase.count import Counters
from evflow.matching.twophase.grow_trie import Trie
from evflow.matching.twophase.held import Held
from evflow.matching.twophase.pairs import UNREACHABLE, pairs_of
from evflow.matching.twophase.parallel import Run, run_parallel
from evflow.matching.twophase.predicates import NEVER
from evflow.matching.twophase.scratch import INCREMENTS, MATCHED, SATISFIED, SCANNED
from evflow.matching.twophase.search_tree import SearchTree
from evflow.matching.twophase.table import Table

__all__ = ["TwoPhase", "TwoPhaseEngine"]


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
        held = self._held
        held.compact()
        columns, filters, constraints = held.columns, held.filters, held.constraints
        lengths = np.diff(columns.start[: filters + 1])
        owner = np.repeat(np.arange(filters, dtype=np.int32), lengths)
        never = np.zeros(filters, bool)
        never[owner[columns.test[:constraints] == NEVER]] = True
        wide = lengths >= UNREACHABLE
        countable = ~(never | wide)
        rows = countable[owner]
        name = columns.name[:constraints][rows]
        test = columns.test[:constraints][rows]
        number, text = columns.number[:constraints][rows], columns.text[:constraints][rows]
        structure = self._structure(name, test, number, text, self._strings, **self._options)
        predicates = structure.sizes(structure.arrays)["predicates"]
        pairs = pairs_of(owner[rows], structure.predicate, name, predicates, countable)
        self._one, self._two = structure.arrays, self._lists(pairs).arrays
        self._apart_always = np.flatnonzero(wide & ~never).astype(np.int32)
        self._built = filters
        self._refresh()

    def _refresh(self) -> None:
        late = np.arange(self._built, self._held.filters, dtype=np.int32)
        self._apart = np.concatenate([self._apart_always, late])
        self._free: list[Any] = []

    def add(self, filters: Filters) -> None:
        """Takes filters in."""
        self._held.add(filters)
        if self._held.filters - self._built > self._built // 8:
            self._build()
        else:
            self._refresh()

    def remove(self, ids: NDArray[np.int32]) -> None:
        """Forgets subscriptions."""
        self._held.remove(ids)
        if self._held.filters > 2 * self._held.live:
            self._build()

    def move(
        self,
        ids: NDArray[np.int32],
        which: NDArray[np.int32],
        centre: NDArray[Any],
        reach: NDArray[Any] | None,
    ) -> None:
        """Gives areas another centre, and reach unless None."""
        self._held.move(ids, which, centre, reach)

    def match(self, events: EventRows, threads: int = 1) -> Matches:
        """What these events satisfy, several events at once (ME-IP)."""
        run = Run(
            self._structure.find,
            self._lists.match,
            rows_of(events),
            words_of(self._strings),
            self._held,
            self._one,
            self._two,
            self._apart,
            self._structure.sizes(self._one)["predicates"],
            self._lists.counters(self._two),
            self._free,
        )
        matches, tally = run_parallel(run, len(events), threads)
        with self._lock:
            self._events += len(events)
            self._tally += tally
        return matches

    def accounting(self) -> Accounting:
        """What the structures hold, and what events cost so far.

        Example:
            >>> engine = TwoPhase(Strings(), 2, phase1="trie")
            >>> engine.accounting().predicates
            0
        """
        one, two = self._structure.sizes(self._one), self._lists.sizes(self._two)
        tally = self._tally.tolist()
        columns, held = self._held.columns, self._held
        return Accounting(
            filters=two["filters"],
            constraints=held.constraints,
            predicates=one["predicates"],
            attributes=len(np.unique(columns.name[: held.constraints])),
            nodes=one.get("nodes", 0),
            characters=one.get("characters", 0),
            tables=one.get("tables", 0),
            cells=one.get("cells", 0),
            entries=two["entries"],
            clusters=two["clusters"],
            apart=len(self._apart),
            phase1_bytes=nbytes(self._one),
            phase2_bytes=nbytes(self._two),
            events=self._events,
            satisfied=tally[SATISFIED],
            incremented=tally[INCREMENTS],
            scanned=tally[SCANNED],
            matched=tally[MATCHED],
        )

    def details(self) -> Mapping[str, Any]:
        """The accounting by name, for ``Matcher.stats``."""
        return asdict(self.accounting())

    def memory(self) -> Mapping[str, int]:
        """Bytes held, by what for."""
        scratch = sum(nbytes(satisfied) + nbytes(scratch) for satisfied, scratch in list(self._free))
        return {
            "filters": self._held.nbytes(),
            "phase one": nbytes(self._one),
            "phase two": nbytes(self._two) + self._apart.nbytes,
            "scratch": scratch,
        }

    def save(self, folder: Path) -> None:
        """Writes filters and structures."""
        self._held.save(folder)
        save_arrays(folder, "one", self._one)
        save_arrays(folder, "two", self._two)
        save_arrays(folder, "apart", (self._apart_always, np.array([self._built])))

    def load(self, folder: Path) -> None:
        """Takes what ``save`` wrote, mapped copy-on-write."""
        self._held.load(folder)
        one, two = self._structure.kind, self._lists.kind
        self._one = load_arrays(folder, "one", one, len(one._fields))
        self._two = load_arrays(folder, "two", two, len(two._fields))
        self._apart_always, built = load_arrays(folder, "apart", lambda *arrays: arrays, 2)
        self._built = int(built[0])
        self._refresh()


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
