"""What the two phases cost, counted: so that the paper's formulae (section IV) can be compared with it."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["Accounting"]


@dataclass(frozen=True, slots=True)
class Accounting:
    """Counts of an engine, of its structures now and of the events since it was made.

    Attributes:
        filters: N, those that counters stand for.
        constraints: of these filters, repeats included: what pre-processing goes through.
        predicates: P, distinct constraints.
        attributes: A, distinct attributes.
        nodes: of a trie or search tree, the root included; 0 for tables.
        characters: W, the total length of the predicates as the trie spells them; 0 for others.
        tables: how many tables there are; 0 for others.
        cells: of all tables.
        entries: of the lists that say which filters have a predicate.
        clusters: of phase two; counting without clustering is one.
        apart: filters that are tested one by one: added lately, or with more predicates than a counter
            counts.
        phase1_bytes: of the structure of phase one.
        phase2_bytes: of lists and clusters.
        events: how many were matched.
        satisfied: predicates that they satisfied (NPsat, summed over events).
        incremented: how often a counter was incremented.
        scanned: how many counters were reset and looked at.
        matched: filters whose counters said that all predicates are satisfied; areas are tested after that.
    """

    filters: int
    constraints: int
    predicates: int
    attributes: int
    nodes: int
    characters: int
    tables: int
    cells: int
    entries: int
    clusters: int
    apart: int
    phase1_bytes: int
    phase2_bytes: int
    events: int
    satisfied: int
    incremented: int
    scanned: int
    matched: int

    @property
    def satisfied_per_event(self) -> float:
        """NPsat."""
        return self.satisfied / self.events if self.events else 0.0

    @property
    def filters_per_predicate(self) -> float:
        """How many filters have a predicate, on average: S_avg, if a predicate's filters are its cluster."""
        return self.entries / self.predicates if self.predicates else 0.0

    @property
    def filters_per_cluster(self) -> float:
        """How many filters a cluster has, on average: S_avg, if clusters are those of phase two."""
        return self.filters / self.clusters if self.clusters else 0.0

    @property
    def steps_per_event(self) -> float:
        """Counters that an event touched: what ``formula`` is an estimate of."""
        return (self.incremented + self.scanned) / self.events if self.events else 0.0

    @property
    def formula(self) -> float:
        """NPsat * S_avg + N, the paper's matching time in steps (section IV C), S_avg by predicate."""
        return self.satisfied_per_event * self.filters_per_predicate + self.filters
