"""A change of a running graph as a transaction: entries close, all is quiet, the change is made, they open.

Each step is taken in the thread that drives the engine. Where no entry leads to other nodes nothing has to be
waited for, and all steps are one.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping

from evflow.engine.actors import asked, text
from evflow.engine.change import adopt
from evflow.engine.difference import Difference, difference
from evflow.engine.engine import Engine
from evflow.engine.snapshot import Parsed
from evflow.engine.topology import Topology
from evflow.errors import EvflowError, FlowError
from evflow.flow.net import Net
from evflow.mishaps import Broken
from evflow.stone import Actor

__all__ = ["Alteration"]


class Alteration:
    """A change of what an engine runs: ``begin``, then once nothing is ``waiting`` ``commit``, or ``cancel``.

    Used in the engine's thread only.

    Args:
        engine: the engine.
        net: the links.
        wanted: the stones and links as they shall be.
        moved: stones that go, and go on elsewhere with what they held.
        submitted: stones that programs submit to, besides the sources.
        done: called with what was changed, once it is.
        drop: ends a bridge that goes; by default what it still owes becomes dead letters.

    Attributes:
        changes: what is changed.
        entries: the stones that are closed meanwhile.
    """

    def __init__(
        self,
        engine: Engine,
        net: Net,
        wanted: Topology,
        moved: Collection[str] = frozenset(),
        *,
        submitted: Collection[str] = (),
        done: Callable[[Difference], None] = lambda made: None,
        drop: Callable[[str], None] | None = None,
    ) -> None:
        self._drop = net.drop if drop is None else drop
        self._engine = engine
        self._net = net
        self._wanted = wanted
        self._moved = frozenset(moved)
        self._done = done
        self._adoptions = engine.adoptions
        self._closed = False
        self._passing: frozenset[str] = frozenset()
        self._draining: frozenset[str] = frozenset()
        self._repeating: Collection[str] = ()
        self._paused: list[tuple[str, Actor]] = []
        self.changes: Difference = difference(engine.topology, wanted, submitted)
        self.entries = self.changes.entries

    def begin(
        self, passing: Collection[str] = (), draining: Collection[str] = (), sealed: bool = False
    ) -> None:
        """Closes the entries; from now on what comes there waits, but for what had been sent there before.

        Args:
            passing: bridges of other nodes whose events are taken all the same, until ``seal``.
            draining: bridges to such entries of other nodes, which must have handled what they were given.
            sealed: whether nothing at all is taken, from the start.
        """
        if not self._closed:
            self._closed = True
            self._passing = frozenset(() if sealed else passing)
            self._repeating = () if sealed else self.entries
            self._draining = frozenset(draining)
            self._net.close_entries(self.entries, self._passing, self._repeating)
            slots = self._engine.topology.slots
            ending = [slots[name] for name in sorted(self.changes.gone | self.changes.replaced)]
            self._paused = [(slot.name, slot.actor) for slot in ending if slot.actor is not None]
            for name, actor in self._paused:
                asked(name, actor, "pause", lambda actor: actor.pause(), None)

    def waiting(self) -> str:
        """What has to be done before the change can be made; "" if it can be made now."""
        for name, actor in self._paused:
            if at_work := text(name, actor, "at_work"):
                return f"stone {name!r}: {at_work}"
        return self._net.waiting_for(self.entries, self.changes.vanishing | self._draining)

    def seal(self) -> None:
        """From now on nothing is taken any more."""
        passing, self._passing = self._passing, frozenset()
        repeating, self._repeating = self._repeating, ()
        self._net.open_entries((), passing, repeating)

    def commit(
        self, wanted: Topology | None = None, snapshots: Mapping[str, Parsed] | None = None
    ) -> Difference:
        """Makes the change and opens the entries.

        Args:
            wanted: as the stones and links shall be by now, where others than those of this change have
                become others since it was begun.
            snapshots: of the stones that come from other nodes, by name; see ``evflow.engine.snapshot``.

        Returns:
            What was changed.

        Raises:
            FlowError: the graph was changed meanwhile, and ``wanted`` is not given.
            EvflowError: a stone cannot be opened, or a snapshot is malformed.

        In either case nothing has changed, and the entries are open.
        """
        try:
            if wanted is None and self._engine.adoptions != self._adoptions:
                raise FlowError("the graph was changed by another change meanwhile; make this change again")
            topology = self._wanted if wanted is None else wanted
            made = adopt(self._engine, topology, self._moved, self._drop, snapshots or {})
        except BaseException:
            self.cancel()
            raise
        try:
            self._tell(made)
            self._done(made)
        except EvflowError:
            raise
        except Exception as error:
            raise Broken("the links were told of a change of the graph only in part") from error
        finally:
            self.cancel()
        return made

    def _tell(self, made: Difference) -> None:
        """Tells the links what was changed."""
        topology = self._engine.topology
        slots = topology.slots
        for name in sorted(made.left):
            why = "is led to from this node only" if name in slots else "has moved or was removed"
            self._net.leave(name, f"stone {name!r} {why}")
        # What came for a stone that was replaced may be for an input that it has not.
        for name in sorted(made.entered | (made.replaced & topology.entrances)):
            self._net.enter(name, slots[name])
        for bridge, crossing in made.readdressed.items():
            self._net.readdress(bridge, crossing)

    def cancel(self) -> None:
        """Opens the entries; what was not committed is as if it had not been begun."""
        if self._closed:
            self._closed = False
            self._net.open_entries(self.entries, self._passing, self._repeating)
            for name, actor in self._paused:
                asked(name, actor, "resume", lambda actor: actor.resume(), None)
            self._paused = []
