"""What deployments do to the flow of their node: a controller decides, its site does.

For a change the controller calls ``check`` and ``begin``, asks ``waiting`` until it is "", calls ``settle``
when all nodes are quiet, asks ``waiting`` again until it is "", then ``leaving``; ``expect`` when the node is
ready; and in the end, whenever that is, exactly one of ``commit`` and ``cancel``. A version that changed the
node's part without it comes by ``overtake``; of one that did not change it, the site is not told.

Called by one thread, that of the daemon's control; what touches the engine is done as a task of the flow's
own thread.
"""

from __future__ import annotations

import logging
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from functools import partial

from evflow import mishaps
from evflow.deploy.admission import Admission
from evflow.deploy.frontier import Frontier, frontier
from evflow.deploy.part import EMPTY, checked_graph, qualified, read_part, union
from evflow.deploy.record import Record, differences, moves, stones_of
from evflow.deploy.taps import Tapped, with_taps
from evflow.disk import remove
from evflow.engine.actors import text
from evflow.engine.change import Difference
from evflow.engine.snapshot import Parsed, Parts, Snapshot, parse, take_parts
from evflow.engine.topology import Slot, Topology
from evflow.errors import EvflowError
from evflow.events.wirecheck import compile_check
from evflow.flow.changing import Alteration, compile_ahead
from evflow.flow.flow import Flow
from evflow.graph.handlers import own_handlers
from evflow.graph.kinds import is_own
from evflow.mishaps import CONTAINED, named
from evflow.net.link.inlet import Hold
from evflow.stone import Actor

_POLL = 0.01

_MOST_BRIDGES = 4000
"""Bridges to one peer; it takes some more channels of a node."""

_MOST_LINES = 100
"""Lines of the log about the stones of one version."""

_log = logging.getLogger("evflow.deploy")


class _Told(Actor):
    """Somebody who waits until what was emitted is safe."""

    def __init__(self, call: Callable[[], None]) -> None:
        self._call = call

    def settled(self, mark: object) -> None:
        self._call()


class Site:
    """The deployments on one node.

    No step of a change raises: ``check`` says all that is wrong in advance. A deployment is named by
    ``Record.deployment``; a node has one of each name at a time.

    Args:
        flow: the node's flow.
        node: the node's name.
        admission: what the node admits.

    Attributes:
        released: called with a deployment and a stone when all that came with the stone has gone on safely.
        taps: who watches what, by number.
        troubles: deployment → why its newest version does not run here.
        thought_dead: whether a node is taken for dead.
    """

    def __init__(self, flow: Flow, node: str, admission: Admission) -> None:
        self.taps: dict[int, Tapped] = {}
        self.admission = admission
        self.troubles: dict[str, str] = {}
        self.released: Callable[[str, str], None] = lambda deployment, stone: None
        self.thought_dead: Callable[[str], bool] = lambda node: False
        assert flow.links is not None
        self._flow = flow
        self._links = flow.links
        self._node = node
        self._parts: dict[str, Topology] = {}
        self._adopted: dict[str, Record] = {}
        self._candidates: dict[str, tuple[Record, Topology]] = {}
        self._frontiers: dict[str, tuple[Record | None, Record, Frontier]] = {}
        self._begun: dict[str, tuple[Alteration, Record | None, Record]] = {}
        self._parsed: dict[str, dict[str, tuple[Snapshot, Parsed]]] = {}
        self._starting: list[str] = []
        self._sealed: dict[str, list[str]] = {}
        self._held: dict[tuple[str, str], Hold] = {}
        self._feeders: dict[str, list[tuple[str, str]]] = {}

    # --- the steps of a change

    def check(self, old: Record | None, new: Record) -> str:
        """Why this node cannot do its part of a change, naming the stone; "" if it can. It has no effect."""
        try:
            refusal = self._crowded(self._whole(new)) or self._untold(old, new)
            if not refusal:
                self._expect(old, new)
                self._frontier(old, new)
            return refusal
        except EvflowError as error:
            return str(error)
        except CONTAINED as error:
            # A stranger's graph may not end the daemon.
            mishaps.tell(_log, f"deployment {new.deployment}", "a version of it cannot be read here", error)
            return f"it cannot be read here: {named(error)}"

    def _untold(self, old: Record | None, new: Record) -> str:
        """Why a stone that leaves cannot be taken along: tried before anything is closed, unless its class is
        evflow's own."""
        slots = self._flow.engine.topology.slots
        names = [qualified(new.deployment, name) for name in self._moving(old, new)]
        strange = [slots[name] for name in names if name in slots and not is_own(slots[name].stone)]

        def tried() -> str:
            for slot in strange:
                try:
                    take_parts(self._flow.engine, slot)
                except EvflowError as error:
                    return str(error)
            return ""

        return (self._flow.call(tried) or "") if strange else ""

    def _crowded(self, whole: Topology) -> str:
        """Why a peer could not take all bridges that lead to it."""
        for peer, count in Counter(crossing.peer for crossing in whole.crossings.values()).items():
            if count > _MOST_BRIDGES:
                return (
                    f"it would have {count} bridges to node {peer}; expected at most {_MOST_BRIDGES}, of all "
                    "deployments together"
                )
        return ""

    def _expect(self, old: Record | None, new: Record) -> None:
        """Compiles, while events still flow, what stones that come here and their snapshots will need."""
        part = self._part(new)
        compile_ahead(self._parts.get(new.deployment, EMPTY), part)
        slots = part.slots
        for name, (_, end) in moves(old, new).items():
            slot = slots.get(qualified(new.deployment, name)) if end == self._node else None
            for schema in () if slot is None else slot.arrivals:
                if schema is not None:
                    compile_check(schema)

    def begin(
        self, old: Record | None, new: Record, settled: bool = False, lost: Collection[str] = ()
    ) -> None:
        """Closes, at once, the entries from which events reach what the change touches here.

        Args:
            old: the version that is.
            new: the version to be.
            settled: whether all nodes were quiet for it already, so that no event at all may move.
            lost: nodes that are dead for good.
        """
        wanted = self._whole(new)
        self._clear_files(new)
        alteration = self._flow.alteration(wanted)
        self._begun[new.deployment] = (alteration, old, new)
        left = self._frontier(old, new)
        self._flow.call(lambda: alteration.begin(left.passing, left.draining, settled, lost))
        if not settled:
            self._feeders[new.deployment] = sorted(left.feeders)

    def _frontier(self, old: Record | None, new: Record) -> Frontier:
        """Where a change closes; found out when it is checked, since that takes long in a large graph."""
        known = self._frontiers.get(new.deployment)
        if known is None or known[:2] != (old, new):
            known = (old, new, frontier(old, new, self._node))
            self._frontiers[new.deployment] = known
        return known[2]

    def waiting(self, deployment: str) -> str:
        """What it waits for until what it has closed is quiet; "" once it is.

        After ``settle`` it stays so; before, it may still have to take what comes from other nodes.
        """
        alteration, _, _ = self._begun[deployment]
        return self._missing(deployment) or self._flow.call(alteration.waiting) or ""

    def _missing(self, deployment: str) -> str:
        """A bridge to what was closed over which may come again what was sent before this node's process
        began."""
        feeders = self._feeders.get(deployment, [])
        for peer, bridge in list(feeders):
            if self._links.caught_up(peer, bridge):
                feeders.remove((peer, bridge))
            elif not self.thought_dead(peer):
                return f"bridge {bridge!r} of {peer}: what was sent over it before has not come again yet"
        return ""

    def settle(self, deployment: str) -> str:
        """Closes what ``begin`` has left open for other nodes that were not quiet yet: now all were.

        Returns:
            What ``waiting`` would give then.
        """
        alteration, _, _ = self._begun[deployment]
        self._feeders.pop(deployment, None)

        def settle() -> str:
            alteration.seal()
            return alteration.waiting()

        return self._flow.call(settle) or ""

    def leaving(self, deployment: str) -> dict[str, Parts]:
        """The snapshots of the stones that leave this node; asked once it is quiet."""
        _, old, new = self._begun[deployment]

        def snapshots() -> dict[str, Parts]:
            return {name: self._taken(qualified(deployment, name)) for name in self._moving(old, new)}

        return self._flow.call(snapshots) or {}

    def _moving(self, old: Record | None, new: Record) -> list[str]:
        return [name for name, (start, _) in moves(old, new).items() if start == self._node]

    def _taken(self, name: str) -> Parts:
        slot = self._flow.engine.topology.slots[name]
        return take_parts(self._flow.engine, slot, self._links.seen(name))

    def expect(self, new: Record, arrived: Mapping[str, Snapshot]) -> None:
        """Reads the snapshots that have come for a ``commit`` that may come; without any effect."""
        # What is wrong with one is told when it is needed.
        with suppress(EvflowError):
            self._parsed[new.deployment] = {
                stone: (data, self._parse(new, stone, data)) for stone, data in arrived.items()
            }

    def _parse(self, new: Record, stone: str, data: Snapshot) -> Parsed:
        known, parsed = self._parsed.get(new.deployment, {}).get(stone, (None, None))
        if parsed is not None and known is data:
            return parsed
        return parse(data, qualified(new.deployment, stone))

    def commit(self, new: Record, arrived: Mapping[str, Snapshot]) -> None:
        """The change was decided: adopts the new part and opens the entries.

        Args:
            new: the version to be at; perhaps a later one than ``begin`` told, with the same part here.
            arrived: the snapshots of the stones that come to this node, but for those of lost nodes.
        """
        alteration, old, _ = self._begun.pop(new.deployment)
        self._feeders.pop(new.deployment, None)
        moved = [qualified(new.deployment, name) for name in self._moving(old, new)]
        self._adopt(new, moved, arrived, alteration)
        self._parsed.pop(new.deployment, None)

    def overtake(self, new: Record) -> None:
        """This node's part was changed without it, while it was thought dead: adopts what it is now.

        What is on this node no longer is thrown away: it has gone on elsewhere. A stone that is here as
        before has been here all the time, so it keeps what it holds. Nothing can have come here without this
        node's doing, unless it has lost what it knew; then stones begin anew.
        """
        self._clear_files(new)
        # What its stones hold here has gone on elsewhere, or will.
        own = f"{new.deployment}/"
        self._adopt(new, [name for name in self._flow.stats() if name.startswith(own)], {}, None)

    def cancel(self, deployment: str) -> None:
        """The change was not decided: opens the entries again, as if nothing had been."""
        begun = self._begun.pop(deployment, None)
        self._feeders.pop(deployment, None)
        self._parsed.pop(deployment, None)
        if begun is not None:
            self._flow.call(begun[0].cancel)

    def _clear_files(self, new: Record) -> None:
        """Removes the files of stones that come: what is in them was left by ones of the same name. Those of
        a stone that goes altogether stay, for one that takes its place."""
        if new.deployment in self.troubles or new.graph is None:
            # In trouble it is not known which are those of stones that should be running.
            return
        try:
            before, after = self._parts.get(new.deployment, EMPTY).slots, self._part(new).slots
            gone = before.keys() - checked_graph(new).stones.keys()
        except EvflowError:
            return
        kept = {file for name in gone for file in before[name].stone.files}
        for name in after.keys() - before.keys():
            for file in set(after[name].stone.files) - kept:
                remove(file)

    def start(self, records: Iterable[Record], arrived: Mapping[str, Mapping[str, bytes]]) -> None:
        """Takes up all there was before a restart; called once, first.

        Changes that this node is prepared for are begun again (``begin``) before ``go`` is called, from which
        on events move. They are quiet from the start, since snapshots may have been given away.

        Args:
            records: the version that each deployment is at.
            arrived: deployment → stone → the snapshot it came with, of those not yet released.
        """
        listed = list(records)
        self._starting = [name for record in listed for name in self._entries_of(record)]
        self._flow.call(lambda: self._links.close_entries(self._starting))
        for record in listed:
            self._adopt(record, [], arrived.get(record.deployment, {}), None)

    def _entries_of(self, record: Record) -> set[str]:
        """Where events come into a deployment on this node."""
        try:
            return _entries(self._part(record))
        except EvflowError:
            return set()

    def go(self) -> None:
        """All that was under way before a restart has been begun again: from now on events move."""
        names, self._starting = self._starting, []
        self._flow.call(lambda: self._links.open_entries(names))

    def _adopt(
        self, new: Record, moved: Sequence[str], arrived: Mapping[str, Snapshot], begun: Alteration | None
    ) -> None:
        """Makes the node's part of a version what runs; why it cannot is logged, and told by ``troubles``."""
        try:
            whole = self._whole(new)
            part = self._part(new)
            parsed = {stone: self._parse(new, stone, data) for stone, data in arrived.items()}
            came = {stone: content.seen for stone, content in parsed.items()}
            alteration = self._flow.alteration(
                whole, moved=moved, done=lambda made: self._arrive(made, new, came)
            )
            snapshots = {
                name: content
                for stone, content in parsed.items()
                if (slot := part.slots.get(name := qualified(new.deployment, stone))) is not None
                # A file that is there was given the snapshot before a restart.
                and not any(file.exists() for file in slot.stone.files)
            }
            self._flow.call(lambda: self._commit(alteration, whole, snapshots, begun))
        except EvflowError as error:
            if begun is not None:
                self._flow.call(begun.cancel)
            self.troubles[new.deployment] = str(error)
            _log.error("deployment %s, version %d: %s", new.deployment, new.version, error)
        except CONTAINED as error:
            if begun is not None:
                self._flow.call(begun.cancel)
            self.troubles[new.deployment] = named(error)
            mishaps.tell(_log, f"deployment {new.deployment}", "its newest version does not run here", error)
        else:
            self.troubles.pop(new.deployment, None)
            self._parts[new.deployment] = part
            _say_adopted(self._node, self._adopted.get(new.deployment), new)
            self._adopted[new.deployment] = new
            if new.graph is None:
                # It is gone, and is not to be kept in memory. Another one of its name begins unsealed.
                self.unseal(new.deployment)
                for known in (self._candidates, self._frontiers, self._parts, self._adopted):
                    known.pop(new.deployment, None)

    def _commit(
        self,
        alteration: Alteration,
        whole: Topology,
        snapshots: Mapping[str, Parsed] | None = None,
        begun: Alteration | None = None,
    ) -> None:
        with own_handlers(self.admission.own):
            alteration.commit(whole, snapshots)
        if begun is not None:
            # Only to open what it has closed.
            begun.cancel()

    def _arrive(self, made: Difference, new: Record, came: Mapping[str, bytes]) -> None:
        """Sees to stones that came, each with what it had seen, and freezes what is to be frozen."""
        slots = self._flow.engine.topology.slots
        for stone, what in came.items():
            name = qualified(new.deployment, stone)
            if name in made.new:
                self._links.learn(what)
                self._held[new.deployment, stone] = Hold(slots[name], *slots[name].kept_ever)
        for entry in (new.graph or {}).get("stones", ()):
            if entry["on"] != self._node:
                self._links.follow(qualified(new.deployment, entry["name"]), entry["on"])
        for name, slot in slots.items():
            if name.startswith(f"{new.deployment}/"):
                self._set_frozen(slot, name.partition("/")[2] in new.frozen)

    def _set_frozen(self, slot: Slot, frozen: bool) -> None:
        if frozen and not slot.frozen:
            self._flow.engine.freeze(slot)
        elif slot.frozen and not frozen:
            self._flow.engine.unfreeze(slot)

    def refresh(self) -> None:
        """Makes what runs match the taps there are."""
        whole = with_taps(union(self._parts.values()), list(self.taps.values()))
        alteration = self._flow.alteration(whole)
        self._flow.call(lambda: self._commit(alteration, whole))

    def seal(self, deployment: str) -> None:
        """From now on the deployment's own sources and generators take and make nothing."""
        if deployment in self._sealed:
            return
        own = f"{deployment}/"
        names = [name for name in self._flow.engine.topology.makers if name.startswith(own)]
        self._sealed[deployment] = names
        self._flow.call(lambda: self._links.close_entries(names))

    def unseal(self, deployment: str) -> None:
        """They go on."""
        names = self._sealed.pop(deployment, [])
        self._flow.call(lambda: self._links.open_entries(names))

    def busy(self, deployment: str) -> str:
        """What of a deployment is under way here; "" if nothing is but what stones hold."""
        own, topology = f"{deployment}/", self._flow.engine.topology
        entries = [name for name in topology.entrances if name.startswith(own)]
        bridges = [name for name in topology.crossings if name.startswith(own)]

        def busy() -> str:
            for name, slot in topology.slots.items():
                if name.startswith(own) and not slot.ports and slot.handles and slot.actor is not None:
                    return f"stone {name!r}: {slot.busy_with}"
            return self._links.waiting_for(entries, bridges)

        return self._flow.call(busy) or ""

    def put_away(self, timeout: float) -> dict[str, dict[str, bytes]]:
        """Brings the node to rest for good, and takes snapshots of its stones; for the end of the daemon.

        Returns:
            Deployment → stone → snapshot, without those that files keep; nothing if it did not come to rest
            within ``timeout`` seconds: then all that is not safe comes again from the nodes before.
        """
        topology = self._flow.engine.topology
        entries = _entries(topology)

        def close() -> None:
            self._links.close_entries(entries)
            for slot in topology.slots.values():
                slot.asked("pause", lambda actor: actor.pause(), None)

        def waiting() -> str:
            # A stone with a file has no snapshot: the nodes before have to keep what waits for the file.
            before_files = (
                f"stone {slot.name!r}: {slot.stalled or 'it is frozen, and its file lacks what waits there'}"
                for slot in topology.slots.values()
                if slot.parked and slot.stone.files
            )
            at_work = (text(slot.name, slot.actor, "at_work") for slot in topology.slots.values())
            return next(filter(None, (*at_work, *before_files)), "") or self._links.waiting_for(
                entries, topology.crossings.keys()
            )

        self._flow.call(close)
        deadline = time.monotonic() + timeout
        while why := self._flow.call(waiting):
            if time.monotonic() > deadline:
                _log.warning(
                    "this node ends as if it were killed, since it has not come to rest: %s; what other "
                    "nodes sent and is not safe comes again, and statics begin anew", why,
                )  # fmt: skip
                return {}
            time.sleep(_POLL)
        return self._flow.call(self._all_taken) or {}

    def _all_taken(self) -> dict[str, dict[str, bytes]]:
        taken: dict[str, dict[str, bytes]] = {}
        for deployment, part in self._parts.items():
            for name in part.slots.keys() - part.crossings.keys():
                slot = self._flow.engine.topology.slots[name]
                if slot.keeps:
                    continue
                try:
                    snapshot = b"".join(self._taken(name))
                except CONTAINED as error:
                    mishaps.tell(_log, f"stone {name!r}", "it begins anew, as after a kill", error)
                else:
                    taken.setdefault(deployment, {})[name.removeprefix(f"{deployment}/")] = snapshot
        return taken

    def end_taps(self, numbers: Iterable[int]) -> None:
        """Takes taps away."""
        gone = [number for number in numbers if self.taps.pop(number, None) is not None]
        if gone:
            self.refresh()

    def look(self) -> list[int]:
        """Finds which stones have let go all that came with them; called in the flow's thread.

        Returns:
            The taps whose watchers have left.
        """
        for key, hold in list(self._held.items()):
            if hold.slot.has_released(hold.parked, hold.taken):
                del self._held[key]
                # Safe further on too, or it would be lost with this node.
                self._links.settle_actors([(_Told(partial(self.released, *key)), None)])
        return [number for number, tap in list(self.taps.items()) if not self._links.connected(tap.peer)]

    # --- what runs

    def _part(self, record: Record) -> Topology:
        if record.graph is None:
            return EMPTY
        known = self._candidates.get(record.deployment)
        if known is None or known[0] != record:
            known = (record, read_part(record, self._node, self.admission))
            self._candidates[record.deployment] = known
        return known[1]

    def _whole(self, new: Record) -> Topology:
        parts = {**self._parts, new.deployment: self._part(new)}
        return with_taps(union(parts.values()), list(self.taps.values()))


def _entries(topology: Topology) -> set[str]:
    """Where events come in."""
    return topology.makers | topology.entrances


def _say_adopted(node: str, old: Record | None, new: Record) -> None:
    """Says in the log that a version runs here, and what differs from the one before.

    Args:
        node: this node.
        old: what ran here before; None if nothing did.
        new: what runs now.
    """
    head = f"deployment {new.deployment}, version {new.version}"
    if new.graph is None:
        _log.info("%s: it is undeployed", head)
        return
    if old is None:
        _log.info("%s runs here: %d stones on %s", head, len(stones_of(new)), ", ".join(sorted(new.hosts)))
    else:
        _log.info("%s runs here, after version %d", head, old.version)
    lines = differences(node, old, new)
    for line in lines[:_MOST_LINES]:
        _log.info("%s: %s", head, line)
    if len(lines) > _MOST_LINES:
        _log.info("%s: and %d more differences", head, len(lines) - _MOST_LINES)
