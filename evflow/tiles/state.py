"""The State Manager (algorithm 2): the latest state of entities, and which tiles each enters and leaves."""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable
from dataclasses import replace

import numpy as np

from evflow.tiles.kernels import fields, state, zones
from evflow.tiles.layout import Layout, split
from evflow.tiles.messages import (
    GONE,
    MOST_POLYGONS,
    MOST_ROWS,
    MOVE,
    POLYGON,
    SILENT,
    Message,
    Outbox,
    Place,
    Rows,
    words,
)
from evflow.tiles.store import Contents, Entities

__all__ = ["StateManager"]

_log = logging.getLogger("evflow.tiles")


class StateManager:
    """A replica of a group of State Managers, without sockets: messages in, messages out.

    One that was restarted has to catch up. It greets the Frontends, which send again what its peers have not
    acknowledged; then it asks its peers for a snapshot, and gives the Tile Managers of its replica number
    what that says. In the same way one that gets keys by a change of the layout has them from those that had
    them before; it tells nothing of these until the change is through.

    All of this goes in parts: whoever has taken one asks for the next. What changes meanwhile is told as
    always, and the newer version counts.

    Args:
        place: where it is.
        layout: the grid and the rings.
        ready: whether it has nothing to catch up with.

    Attributes:
        entities: what it holds.
    """

    def __init__(self, place: Place, layout: Layout, *, ready: bool = True) -> None:
        self.place, self.layout = place, layout
        self.entities, self.contents = Entities(), Contents()
        self._awaited: set[Place] = set()
        self._widest = 1
        # The groups of which it lacks a snapshot: who gives one, and where the next part begins.
        self._lacks: dict[int, tuple[Place, int] | None] = {} if ready else self._all()
        # Questions of those that have heard of a later step of a change.
        self._early: dict[tuple[Place, str], Message] = {}

    @property
    def ready(self) -> bool:
        """Whether it counts as a replica."""
        return not self._lacks

    @property
    def lacks(self) -> set[int]:
        """The groups of State Managers whose entities it waits for."""
        return set(self._lacks)

    @property
    def counts(self) -> dict[str, int]:
        """Entities, moves that came late, moves of others' entities that were refused."""
        count = self.entities.count
        live = len(self.entities) - int(count[fields.GONE_COUNT])
        return {"live": live, "late": int(count[fields.LATE]), "refused": int(count[fields.REFUSED])}

    @property
    def _tells(self) -> bool:
        """Whether it has all that its group had before the change under way, if there is one."""
        return self.place.group not in self._lacks

    def _all(self) -> dict[int, tuple[Place, int] | None]:
        own = self.place.group
        return dict.fromkeys([*self.layout.gains("state", own), *({own} & self.layout.states.groups.keys())])

    def start(self, frontends: Collection[Place]) -> Outbox:
        """Begins to catch up, after a restart or a change.

        Args:
            frontends: those that run.
        """
        self._awaited = set(frontends)
        hello = Message("hello", number=self.layout.stage)
        return [(frontend, hello) for frontend in sorted(frontends)] or self._welcomed()

    def adopt(self, layout: Layout, frontends: Collection[Place]) -> Outbox:
        """Takes the next step of a change.

        Args:
            layout: that of this step.
            frontends: those that run.
        """
        if layout.stage <= self.layout.stage:
            return []
        before, self.layout = self.layout, layout
        outbox = Outbox()
        if layout.next:
            self._lacks = dict.fromkeys([*self._lacks, *layout.gains("state", self.place.group)])
        elif before.next:
            # Who lacks something now was started again meanwhile: its peers have it all.
            self._lacks = self._all() if self._lacks else {}
            outbox += self._settle(before)
        else:
            self._lacks = dict.fromkeys(self._lacks)
        outbox += self.start(frontends) if self._lacks else []
        early, self._early = self._early, {}
        for (sender, _), message in early.items():
            outbox += self.receive(sender, message)
        return outbox

    def _settle(self, before: Layout) -> Outbox:
        """Drops the entities that others have now, and tells of those that it has got."""
        store, own = self.entities, self.place.group
        ids = store.held[: len(store), fields.ID].copy()
        store.keep(self.layout.states.owners(ids) == own)
        store.count[fields.GONE_COUNT] = int((store.rows["flags"] & GONE > 0).sum())
        if not self._tells or own not in self.layout.states.groups:
            return []
        rows = store.rows
        gained = rows[before.states.owners(rows["id"]) != own]
        return self._spread("handed", gained, self.layout.groups("tile"))

    def down(self, place: Place) -> Outbox:
        """Somebody has died: of whom it was to get a snapshot, of that another one gives it.

        Args:
            place: where.
        """
        # What it asked its next life asks anew, once that is welcome.
        self._early = {asked: message for asked, message in self._early.items() if asked[0] != place}
        if self._awaited:
            self._awaited.discard(place)
            return self._welcomed()
        # Where nobody has answered yet, others may have what they lacked when they were asked.
        lost = [
            group
            for group, source in self._lacks.items()
            if place.role == "state" and (source[0] == place if source else group == place.group)
        ]
        self._lacks.update(dict.fromkeys(lost))
        return self._asked(lost)

    def receive(self, sender: Place, message: Message) -> Outbox:
        """Takes a message.

        Args:
            sender: who sent it.
            message: ``moves`` and ``welcome`` of Frontends, ``ask`` and ``snapshot`` of peers, ``hello`` and
                ``gains`` of Tile Managers.
        """
        if message.kind == "moves":
            self._learn(message)
            rows = self._own(message.rows)
            return [*self._advance(rows), (sender, Message("ack", number=message.number))]
        if message.kind == "welcome":
            self._awaited.discard(sender)
            return self._welcomed()
        if message.kind == "snapshot":
            return self._caught_up(sender, message)
        if message.number > self.layout.stage:
            self._early[sender, message.kind] = message
            return []
        if not self._tells or message.number < self.layout.stage:
            # Who asks is behind, and will ask anew.
            if message.kind == "ask" and sender.group == self.place.group and not self._tells:
                _log.warning(
                    "replicas %d and %d of group %d of State Managers both lack its entities: expected "
                    "another one that has them; if there is none, stop all hosts and start them again",
                    *(self.place.replica, sender.replica, sender.group),
                )
            return []
        if message.kind == "ask":
            return self._answered(sender, message.at)
        if message.kind == "hello":
            return self._sync(message.at, [sender.group])
        return self._gained(message.at, sender.group)

    def _learn(self, message: Message) -> None:
        self.contents.forget(self.entities.held[: len(self.entities)])
        self.contents.learn(message.contents)

    def _own(self, rows: Rows) -> Rows:
        """Moves without those of entities that others have, who get them from the same Frontend."""
        if not len(rows) or rows["grid"][0] == self.layout.mark:
            return rows
        own, layout = self.place.group, self.layout
        owners = layout.states.owners(rows["id"]), layout.last.states.owners(rows["id"])
        mine: Rows = rows[(owners[0] == own) | (owners[1] == own)]
        return mine

    def _advance(self, rows: Rows) -> Outbox:
        store, tiling = self.entities, self.layout.grids.tiling
        store.room(len(rows))
        taken, outbox, given = 0, Outbox(), words(rows)
        size = 2 * len(rows) + 64
        scratch = np.empty(self._most(rows), np.int64)
        while taken < len(rows):
            out = np.empty(size, MOVE)
            arrays = (store.table, store.held, tiling, store.count, words(out), scratch)
            taken = state.advance(given, taken, *arrays, self.contents.shapes)
            if self._tells:
                outbox += self._told(out[: store.count[fields.OUT]])
            size = max(size, len(scratch))
        return outbox

    def _most(self, rows: Rows) -> int:
        """Tiles of two zones at most."""
        grids = self.layout.grids
        self._widest = max(self._widest, int(grids.counts(rows, self.contents).max(initial=1)))
        return 2 * (self._widest + int(grids.tiling.counts[zones.NODES]))

    def _told(self, rows: Rows) -> Outbox:
        return [
            (
                Place("tile", group, self.place.replica),
                Message("moves", part, contents=self.contents.of(part)),
            )
            for group, part in self._parts(rows)
        ]

    def _parts(self, rows: Rows) -> list[tuple[int, Rows]]:
        """Rows by the groups of Tile Managers of their tiles, and by those that get these."""
        layout, own = self.layout, self.place.group
        rows["grid"] = layout.mark
        if not layout.next:
            return split(rows, layout.tiles.owners(rows["tile"]))
        rows = rows[layout.states.owners(rows["id"]) == own]
        owners, others = layout.owners(rows["tile"])
        here, moved = np.flatnonzero(owners >= 0), np.flatnonzero((others >= 0) & (owners != others))
        # In order, and together: a Tile Manager takes all tiles of a move at once.
        at, keys = np.concatenate([here, moved]), np.concatenate([owners[here], others[moved]])
        order = np.argsort(at, kind="stable")
        return split(rows[at[order]], keys[order])

    def _welcomed(self) -> Outbox:
        """Asks for what it lacks, once all Frontends send what they have to this replica, too."""
        if self._awaited or self.ready:
            return []
        own, stage = self.place.group, self.layout.stage
        outbox = self._asked(sorted(self._lacks))
        if own in self._lacks and len(self.layout.replicas("state", own)) == 1:
            # Nobody else has what it had.
            outbox += self._caught_up(self.place, Message("snapshot", number=stage))
        return outbox

    def _asked(self, groups: Iterable[int]) -> Outbox:
        """Questions for snapshots: whoever answers first gives the other parts, too."""
        question = Message("ask", number=self.layout.stage)
        peers = [peer for group in groups for peer in self.layout.replicas("state", group)]
        return [(peer, question) for peer in peers if peer != self.place]

    def _from(self, at: int) -> tuple[Rows, int]:
        """Entities from a position on, as many as go at once, and where the next part begins.

        Where an entity stands changes only as a change of the layout ends; new ones come last.
        """
        rows = self.entities.part(at, at + MOST_ROWS)
        sizes = self.layout.grids.counts(rows, self.contents)
        sizes += (rows["kind"] == POLYGON) * (MOST_ROWS // MOST_POLYGONS)
        stop = max(1, int(np.searchsorted(np.cumsum(sizes), MOST_ROWS, "right")))
        return rows[:stop], at + stop if at + stop < len(self.entities) else 0

    def _answered(self, peer: Place, at: int) -> Outbox:
        """A part of a snapshot of what a peer has, or gets."""
        (rows, then), layout = self._from(at), self.layout
        mine = layout.states.owners(rows["id"]) == self.place.group
        if peer.group != self.place.group:
            mine &= layout.last.states.owners(rows["id"]) == peer.group
        rows = rows[mine]
        return [(peer, Message("snapshot", rows, layout.stage, self.contents.of(rows), at, then))]

    def _caught_up(self, peer: Place, message: Message) -> Outbox:
        own, group, stage = self.place.group, peer.group, self.layout.stage
        if self._awaited or group not in self._lacks or message.number != stage:
            # What it has that this replica lacks is under way here too, and has to be told then; so is what
            # Frontends that have not welcomed this replica sent to others only.
            return []
        if (self._lacks[group] or (peer, 0)) != (peer, message.at):
            return []
        self._learn(message)
        outbox = self._advance(message.rows)
        if message.then:
            self._lacks[group] = peer, message.then
            return [*outbox, (peer, Message("ask", number=stage, at=message.then))]
        del self._lacks[group]
        # One that had nothing before the change says that.
        if group == own or (self.ready and own not in self.layout.states.groups):
            outbox += self._sync(0, self.layout.groups("tile"))
        return outbox

    def _sync(self, at: int, groups: Collection[int]) -> Outbox:
        """A part of all that Tile Managers should hold of this group: it replaces what they have of it."""
        rows, then = self._from(at)
        told = self._spread("sync", rows, groups)
        return [(place, replace(message, at=at, then=then)) for place, message in told]

    def _gained(self, at: int, group: int) -> Outbox:
        """A part of what is in the tiles that a Tile Manager gets."""
        rows, then = self._from(at)
        ((place, message),) = self._spread("gains", rows, [group])
        gained = self.layout.owners(message.rows["tile"])[0] != group
        return [(place, replace(message, rows=message.rows[gained], at=at, then=then))]

    def _spread(self, kind: str, rows: Rows, groups: Collection[int]) -> Outbox:
        """Entities by the Tile Managers of their tiles: a message for each of some groups."""
        rows = rows[rows["flags"] & GONE == 0]
        zone, tile = self.layout.grids.tiles(rows, self.contents)
        rows = rows[zone]
        rows["tile"] = tile
        rows["flags"] |= SILENT
        found = dict(self._parts(rows))
        empty = Message(kind, rows[:0], self.layout.stage)
        return [
            (
                Place("tile", group, self.place.replica),
                replace(
                    empty,
                    rows=found.get(group, empty.rows),
                    contents=self.contents.of(found.get(group, empty.rows)),
                ),
            )
            for group in sorted(groups)
        ]
