"""The stones of a running graph and how they are linked; what a plan reads and what a change edits."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import numpy as np
from msgspec import Struct, field

from evflow.engine import actors
from evflow.engine.fit import Fit, best_fit
from evflow.events.joining import MANY, join_last
from evflow.graph.morph import Morph
from evflow.graph.placed import Link
from evflow.schema import Schema
from evflow.stone import Acting, Actor, Compiled, Leaving, Stone

if TYPE_CHECKING:
    from evflow.codgen.tree import Function
    from evflow.events.batch import EventBatch

T = TypeVar("T")

IN, OUT, DROPPED, ERRORS = range(4)
"""Columns of ``Slot.counts``."""


class Crossing(NamedTuple):
    """Where a bridge leads: a peer (its name or contact), a stone there, its input ("" for the best fit)."""

    peer: str
    stone: str
    input: str


def crossing_of(stone: Stone) -> Crossing | None:
    """Where a stone leads out of its graph; None if it does not."""
    # A protocol is slow to ask for, and most stones have no peer.
    if getattr(stone, "peer", None) is None or not isinstance(stone, Leaving) or stone.peer is None:
        return None
    return Crossing(stone.peer, stone.stone, stone.input)


class Slot(Struct, eq=False):
    """One stone of a running graph.

    Attributes:
        name: the stone's name.
        stone: its description.
        ports: port → its links, in the order linked.
        arrivals: the schemas that are expected to arrive; None among them for any.
        separate: whether its function is a native pass of its own: it came while the graph ran, and the pass
            that it belongs to has not been compiled anew.
        counts: events in, out, dropped, errors.
        unmatched: events that no input took.
        busy: seconds spent in it.
        state: the statics of its function, once it ran (uint8 array), and their ``layout``; those that are
            ``restored`` come from elsewhere and are checked before they are used.
        attributes: its own attributes.
        frozen: whether it queues what arrives.
        parked: what it queued while frozen or stalled, in order; ``parked_bytes`` bytes of events, and
            ``parked_ever`` events that it queued so far.
        actor: the running half of an acting stone.
        sends: whether its actor gives events to a link.
        stalled: why it cannot keep what comes to it now; "" if it can. Meanwhile what comes is parked.
        functions: what it runs for events of a schema (its fingerprint) at an input: its function, and that
            of the morph before it, if any; until it changes.
        kept_before: how far ``kept_ever`` had come when its actor took the place of another.
    """

    name: str
    stone: Stone
    ports: dict[int, list[Link]] = field(default_factory=dict)
    arrivals: tuple[Schema | None, ...] = ()
    separate: bool = False
    counts: list[int] = field(default_factory=lambda: [0, 0, 0, 0])
    unmatched: int = 0
    busy: float = 0.0
    state: np.ndarray[Any, np.dtype[np.uint8]] | None = None
    layout: str = ""
    restored: bool = False
    attributes: dict[str, int | float | str] = field(default_factory=dict)
    frozen: bool = False
    parked: deque[tuple[str, EventBatch]] = field(default_factory=deque)
    parked_bytes: int = 0
    parked_ever: int = 0
    actor: Actor | None = None
    sends: bool = False
    stalled: str = ""
    functions: dict[tuple[str, str], tuple[Function, Function | None]] = field(default_factory=dict)
    kept_before: int = 0
    _loose: int = 0

    def park(self, input: str, batch: EventBatch) -> None:
        """Queues events that arrive while it is frozen."""
        self.parked.append((input, batch))
        self._loose += 1
        if self._loose >= MANY:
            join_last(self.parked, self._loose)
            self._loose = 0
        self.parked_bytes += batch.nbytes
        self.parked_ever += len(batch)

    def park_first(self, arrivals: Sequence[tuple[str, EventBatch]]) -> None:
        """Queues events before all others that it queued while frozen."""
        self.parked.extendleft(reversed(arrivals))
        self.parked_bytes += sum(batch.nbytes for _, batch in arrivals)
        self.parked_ever += sum(len(batch) for _, batch in arrivals)

    def known_input(self, input: str) -> str:
        """An input by its name; "" for the one that fits best, where it has none of that name."""
        return input if input in self.stone.inputs else ""

    def rename_inputs(self) -> None:
        """Has what it queued go to inputs that it has."""
        self.parked = deque((self.known_input(input), batch) for input, batch in self.parked)

    def unpark(self) -> list[tuple[str, EventBatch]]:
        """Takes out what it queued, in order."""
        parked = list(self.parked)
        self.parked.clear()
        self._loose = 0
        self.parked_bytes = 0
        return parked

    @property
    def queued(self) -> int:
        """Events that wait here: parked while frozen, or held by the actor."""
        return sum(len(batch) for _, batch in self.parked) + actors.count(self.name, self.actor, "queued")

    @property
    def buffers(self) -> bool:
        """Whether what comes to it waits in it, and leaves by itself."""
        return isinstance(self.stone, Acting) and self.stone.buffers

    @property
    def may_keep_events(self) -> bool:
        """Whether it keeps events in memory now, or may when more come, as long as it is not frozen."""
        return (
            self.frozen
            or bool(self.stalled or self.parked)
            or (self.actor is not None and type(self.actor).taken is not Actor.taken)
        )

    @property
    def keeps_events(self) -> bool:
        """Whether it keeps events in memory now."""
        return bool(self.parked) or (self.actor is not None and self._oldest < self._taken)

    @property
    def handles(self) -> bool:
        """Whether it is about to handle by itself what it keeps."""
        return not self.frozen and bool(self.busy_with)

    def asked(self, what: str, ask: Callable[[Actor], T], default: T) -> T:
        """What its actor says of itself.

        Args:
            what: what is asked for, for the log.
            ask: asks the actor.
            default: what counts where there is no actor, or it fails to say so.
        """
        return actors.asked(self.name, self.actor, what, ask, default)

    @property
    def busy_with(self) -> str:
        """What its actor still has to emit or to handle by itself; "" if nothing."""
        return actors.text(self.name, self.actor, "busy")

    @property
    def keeps(self) -> bool:
        """Whether what its actor holds survives its end."""
        return self.asked("keeps", lambda actor: bool(actor.keeps), False)

    @property
    def _taken(self) -> int:
        return actors.count(self.name, self.actor, "taken")

    @property
    def _oldest(self) -> int:
        return actors.count(self.name, self.actor, "oldest")

    @property
    def kept_ever(self) -> tuple[int, int]:
        """Events that it has kept in memory so far: parked, and by its actors."""
        return self.parked_ever, self.kept_before + self._taken

    def has_released(self, parked: int, taken: int) -> bool:
        """Whether all that it had kept when ``kept_ever`` was this has left it."""
        if not self.keeps_events:
            return True
        waiting = sum(len(batch) for _, batch in self.parked)
        return self.parked_ever - waiting >= parked and self.kept_before + self._oldest >= taken

    def fit(self, schema: Schema, morphs: Sequence[Morph], only: str = "") -> Fit:
        """How it takes events of ``schema``; see ``best_fit``."""
        candidates = {
            name: (self.arrivals or (None,)) if declared is None else (declared,)
            for name, declared in self.stone.inputs.items()
        }
        return best_fit(schema, candidates, morphs, only)


class Topology(Struct):
    """Every stone of a node by name, and the graph's morphs.

    Attributes:
        slots: the stones.
        morphs: what turns events of newer schemas into older ones.
        entrances: the stones that other nodes may send to.
        crossings: bridge → the stone of another node that it leads to.
    """

    slots: dict[str, Slot]
    morphs: tuple[Morph, ...] = ()
    entrances: frozenset[str] = frozenset()
    crossings: dict[str, Crossing] = field(default_factory=dict)

    @property
    def makers(self) -> set[str]:
        """The stones where events begin: a program or a peer submits them, or the stones make them."""
        return {
            name
            for name, slot in self.slots.items()
            if (stone := slot.stone).entrance
            or (isinstance(stone, Compiled) and stone.period is not None)
            or (isinstance(stone, Acting) and stone.linked_ports != "none" and stone.wakes)
        }

    def onward(self, slot: Slot) -> set[Slot]:
        """The stones that a stone is linked to; one that was removed may name others that were, too."""
        slots = self.slots
        return {slots[link.target] for links in slot.ports.values() for link in links if link.target in slots}

    def ahead(self, slot: Slot) -> list[Slot]:
        """The stones that events at a stone may get to, from that one on."""
        found = [slot]
        seen = set(found)
        for at in found:
            onward = self.onward(at) - seen
            seen |= onward
            found.extend(onward)
        return found


def behind_keepers(topology: Topology) -> set[Slot]:
    """The stones that events may get to after another has kept them, or has emitted them by itself."""
    todo = [slot for slot in topology.slots.values() if _lets_go_later(slot)]
    found: set[Slot] = set()
    while todo:
        onward = topology.onward(todo.pop()) - found
        found |= onward
        todo.extend(onward)
    return found


def _lets_go_later(slot: Slot) -> bool:
    stone = slot.stone
    keeps = slot.actor is not None and type(slot.actor).taken is not Actor.taken
    return keeps or (isinstance(stone, Acting) and stone.wakes and bool(stone.inputs))
