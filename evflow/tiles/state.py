"""The State Manager (algorithm 2): the latest state of entities, and which tiles each enters and leaves."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from evflow.tiles.kernels import fields, state
from evflow.tiles.layout import Layout, split
from evflow.tiles.messages import GONE, MOVE, SILENT, Message, Outbox, Place, Rows, words
from evflow.tiles.store import Contents, Entities

__all__ = ["StateManager"]


class StateManager:
    """A replica of a group of State Managers, without sockets: messages in, messages out.

    One that was restarted has to catch up. It greets the Frontends, which send again what its peers have not
    acknowledged; then it asks its peers for a snapshot, and gives the Tile Managers of its replica number
    what that says.

    Args:
        place: where it is.
        layout: the grid and the rings.
        ready: whether it has nothing to catch up with.

    Attributes:
        ready: whether it counts as a replica.
        entities: what it holds.
    """

    def __init__(self, place: Place, layout: Layout, *, ready: bool = True) -> None:
        self.place, self.layout, self.ready = place, layout, ready
        self.entities, self.contents = Entities(), Contents()
        self._awaited: set[Place] = set()
        self._widest = 1

    @property
    def counts(self) -> dict[str, int]:
        """Entities, moves that came late, moves of others' entities that were refused."""
        count = self.entities.count
        live = len(self.entities) - int(count[fields.GONE_COUNT])
        return {"live": live, "late": int(count[fields.LATE]), "refused": int(count[fields.REFUSED])}

    def start(self, frontends: set[Place]) -> Outbox:
        """Begins to catch up, after a restart.

        Args:
            frontends: those that run.
        """
        self._awaited = set(frontends)
        return [(frontend, Message("hello")) for frontend in sorted(frontends)]

    def down(self, place: Place) -> Outbox:
        """Somebody has died.

        Args:
            place: where.
        """
        return self._welcomed(place) if place in self._awaited else []

    def receive(self, sender: Place, message: Message) -> Outbox:
        """Takes a message.

        Args:
            sender: who sent it.
            message: ``moves`` and ``welcome`` of Frontends, ``ask`` and ``snapshot`` of peers, ``hello`` of
                Tile Managers.
        """
        if message.kind == "moves":
            self.contents.learn(message.contents)
            return [*self._advance(message.rows), (sender, Message("ack", number=message.number))]
        if message.kind == "welcome":
            return self._welcomed(sender)
        if message.kind == "ask" and self.ready:
            rows = self.entities.rows
            return [(sender, Message("snapshot", rows, contents=self.contents.of(rows)))]
        if message.kind == "snapshot":
            return self._caught_up(message)
        if message.kind == "hello" and self.ready:
            return self._sync({sender.group})
        return []

    def _advance(self, rows: Rows) -> Outbox:
        store, grid = self.entities, self.layout.grid
        store.room(len(rows))
        taken, outbox, given = 0, Outbox(), words(rows)
        size = 2 * len(rows) + 64
        scratch = np.empty(self._most(rows), np.int64)
        while taken < len(rows):
            out = np.empty(size, MOVE)
            arrays = (store.table, store.held, grid.borders, grid.guess, store.count, words(out), scratch)
            taken = state.advance(given, taken, *arrays)
            outbox += self._told(out[: store.count[fields.OUT]])
            size = max(size, len(scratch))
        return outbox

    def _most(self, rows: Rows) -> int:
        """Tiles of two zones at most."""
        self._widest = max(self._widest, int(self.layout.grid.counts(rows).max(initial=1)))
        return 2 * self._widest

    def _told(self, rows: Rows) -> Outbox:
        if not self.ready:
            return []
        groups = self.layout.tiles.owners(rows["tile"])
        return [
            (
                Place("tile", group, self.place.replica),
                Message("moves", part, contents=self.contents.of(part)),
            )
            for group, part in split(rows, groups)
        ]

    def _welcomed(self, frontend: Place) -> Outbox:
        self._awaited.discard(frontend)
        if self._awaited or self.ready:
            return []
        peers = self.layout.replicas("state", self.place.group)
        return [(peer, Message("ask")) for peer in peers if peer != self.place]

    def _caught_up(self, message: Message) -> Outbox:
        if self.ready:
            # What it has that this replica lacks is under way here too, and has to be told then.
            return []
        self.contents.learn(message.contents)
        self._advance(message.rows)
        self.ready = True
        return self._sync(set(self.layout.tiles.groups))

    def _sync(self, groups: set[int]) -> Outbox:
        """All that Tile Managers should hold of this group: it replaces what they have of it."""
        rows = self.entities.rows
        rows = rows[rows["flags"] & GONE == 0]
        zone, tile = self.layout.grid.tiles(rows)
        rows = rows[zone]
        rows["tile"] = tile
        rows["flags"] |= SILENT
        empty = Message("sync", rows[:0])
        found = {
            group: replace(empty, rows=part) for group, part in split(rows, self.layout.tiles.owners(tile))
        }
        return [
            (
                Place("tile", group, self.place.replica),
                replace(found.get(group, empty), contents=self.contents.of(found.get(group, empty).rows)),
            )
            for group in sorted(groups)
        ]
