"""The Tile Manager (algorithm 3): tiles as columns, matched a batch at a time."""

from __future__ import annotations

from collections.abc import Collection, Iterator

import numpy as np
from numpy.typing import NDArray

from evflow.tiles.kernels import fields, tables, tile
from evflow.tiles.layout import Layout, split
from evflow.tiles.messages import MATCH, MOST_ROWS, SILENT, Message, Outbox, Place, Rows, words
from evflow.tiles.store import Contents, Entities, grown, table_of

__all__ = ["TileManager"]


class TileManager:
    """A replica of a group of Tile Managers, without sockets: messages in, messages out.

    It keeps the matches that it sent until the Frontend has acknowledged them, which this does once the
    client has. If the client connects to another Frontend, they are sent there.

    Args:
        place: where it is.
        layout: the grid and the rings.
        life: how often it was started before; one that was restarted catches up with the State Managers.
        most: matches that it keeps at most; older ones are counted as ``lost``.
        gone: entities without tiles here, whose versions it remembers, at most.

    Attributes:
        entities: the zones that it holds.
        lost: matches that it gave up, because nobody acknowledged them.
    """

    def __init__(
        self, place: Place, layout: Layout, *, life: int = 0, most: int = 1 << 22, gone: int = 1 << 16
    ) -> None:
        self.place, self.layout = place, layout
        self.entities, self.contents = Entities(fields.HELD_WORDS), Contents()
        self.lost = 0
        self._most, self._gone = most, gone
        self._numbers, self._tiles = table_of(0), np.zeros((0, 8), np.int64)
        self._places = np.zeros((0, 4, fields.BLOCK), np.float32)
        self._slots, self._nexts = np.zeros((0, fields.BLOCK), np.int32), np.zeros(0, np.int64)
        self._states = np.zeros((4, fields.HELD_WORDS), np.int64)
        self._number = life << 40
        self._kept: dict[int, Rows] = {}
        self._moved: dict[int, int] = {}
        self._keeps = 0
        self._room = 1024
        # Groups of State Managers of which it lacks all, or what is in the tiles that it gets by a change, or
        # the rest of that: where the next part begins.
        self._missing = dict.fromkeys(layout.groups("state") if life else (), 0)
        self._gaining = dict[int, int]()
        # The layout before the last change, and the groups that tell of what they got by this.
        self._before = layout if layout.next else None
        self._handed = set[int]()

    @property
    def ready(self) -> bool:
        """Whether it counts as a replica: the State Managers of its replica number have told it all."""
        is_done = not self._before or self.layout.next or self._handed >= self.layout.states.groups.keys()
        return self._is_whole and bool(is_done)

    @property
    def _is_whole(self) -> bool:
        return not (self._missing or self._gaining)

    @property
    def lacks(self) -> set[int]:
        """The groups of State Managers whose entities it waits for."""
        return {*self._missing, *self._gaining}

    @property
    def counts(self) -> dict[str, int]:
        """Entities, moves that came late, matches that are not acknowledged, matches given up."""
        count = self.entities.count
        live = len(self.entities) - int(count[fields.GONE_COUNT])
        return {"live": live, "late": int(count[fields.LATE]), "kept": self._keeps, "lost": self.lost}

    @property
    def tiles(self) -> NDArray[np.int64]:
        """Its tiles; see ``kernels.fields``."""
        return self._tiles[: int(self.entities.count[fields.LISTS])]

    def reach(self, at: int) -> float:
        """Metres from the middle of a zone to its furthest place: the median of some zones of a tile.

        Args:
            at: where ``tiles`` has the tile.
        """
        blocks = [self._places[self._tiles[at, head]] for head in (0, 2) if self._tiles[at, head] != -1]
        there = [block[3, np.isfinite(block[0])] for block in blocks]
        return float(np.median(np.concatenate(there))) if there else 0.0

    def start(self) -> Outbox:
        """Begins to catch up, after a restart."""
        return self._asked("hello", self._missing)

    def _asked(self, kind: str, groups: Collection[int]) -> Outbox:
        question = Message(kind, number=self.layout.stage)
        return [(Place("state", group, self.place.replica), question) for group in sorted(groups)]

    def adopt(self, layout: Layout) -> Outbox:
        """Takes the next step of a change.

        Args:
            layout: that of this step.
        """
        if layout.stage <= self.layout.stage:
            return []
        is_ready, before, own = self.ready, self.layout, self.place.group
        for group in [group for group, at in self._missing.items() if at]:
            # What has come of it comes again.
            self._forget(group)
        self._missing = dict.fromkeys(self._missing, 0)
        self.layout = layout
        if layout.next:
            self._before, self._handed = layout, set()
            if not is_ready:
                self._missing |= dict.fromkeys(layout.states.groups, 0)
            if layout.comes_to(own):
                self._gaining = dict.fromkeys(layout.states.groups, 0)
            return self._asked("hello", self._missing) + self._asked("gains", self._gaining)
        if not before.next:
            return self._asked("hello", self._missing)
        # Who lacks something now was started again meanwhile.
        self._missing = {} if self._is_whole else dict.fromkeys(layout.states.groups, 0)
        self._gaining = {}
        store = self.entities
        numbers = self.tiles[:, fields.NUMBER]
        self._drop(np.zeros(len(store), bool), layout.owners(numbers)[0] != own)
        if own in layout.tiles.groups:
            return self._asked("hello", self._missing)
        # It plays no role any more: another one of its replica number sends what clients have not taken.
        kept, self._kept, self._keeps = list(self._kept.values()), {}, 0
        heir = Place("tile", min(layout.tiles.groups), self.place.replica)
        return [(heir, Message("kept", rows)) for rows in kept]

    def receive(self, sender: Place, message: Message) -> Outbox:
        """Takes a message.

        Args:
            sender: who sent it.
            message: ``moves``, ``sync``, ``gains`` and ``handed`` of State Managers, ``ack`` and ``moved`` of
                Frontends, ``kept`` of Tile Managers.
        """
        if message.kind == "moved":
            return self._follow(message.rows)
        if message.kind == "ack":
            return self._settle(message)
        if message.kind == "kept":
            return self._send(message.rows)
        self._learn(message)
        rows = message.rows
        if message.kind != "moves":
            # Of what comes now another replica may have found matches that its client has not acknowledged.
            self.entities.held[: len(self.entities), fields.TOLD] = -1
        if message.kind == "sync":
            return self._synced(sender, message)
        if self._missing.get(sender.group) == 0 or not self._knows(sender.group):
            # What its replica will tell once it has caught up has this in it.
            return []
        if message.kind == "gains":
            return self._filled(sender, message, self._gaining)
        if message.kind == "handed":
            rows = self._got(sender.group, rows)
        elif self._before is not None and not self._is_steady(rows):
            rows = rows[self._tellers(rows["id"]) == sender.group]
        return self._match(self._mine(rows))

    def _knows(self, group: int) -> bool:
        """Whether there is such a group of State Managers now, or next."""
        return group in self.layout.states.groups or group in self.layout.last.states.groups

    def _synced(self, state: Place, message: Message) -> Outbox:
        """A State Manager tells everything: what it told before the first part is forgotten."""
        group, stage = state.group, self.layout.stage
        if message.at == 0 and message.number == stage:
            if self._before is not None and stage > self._before.stage:
                self._handed.add(group)
            self._forget(group)
            self._missing[group] = 0
            self._gaining.pop(group, None)
        return self._filled(state, message, self._missing)

    def _filled(self, state: Place, message: Message, lacking: dict[int, int]) -> Outbox:
        """Takes the part that comes next of what it lacks, and asks for the one after it."""
        group, stage = state.group, self.layout.stage
        if message.number != stage or lacking.get(group) != message.at:
            # It has asked anew since.
            return []
        outbox = self._match(self._mine(message.rows))
        if not message.then:
            del lacking[group]
            return outbox
        lacking[group] = message.then
        question = "hello" if message.kind == "sync" else message.kind
        return [*outbox, (state, Message(question, number=stage, at=message.then))]

    def _got(self, group: int, rows: Rows) -> Rows:
        """A State Manager tells what it got by a change: news is matched, what was known before is not."""
        marks, store = np.zeros(len(rows), np.uint8), self.entities
        tables.news(words(rows), store.table, store.held, marks)
        ids = store.held[: len(store), fields.ID].copy()
        before = self._tellers(ids)
        self._handed.add(group)
        self._drop((before != group) & (self._tellers(ids) == group))
        # What was known comes first, so that news finds it; where something lacks, another replica tells.
        is_news = (marks > 0) & self._is_whole
        told = rows[is_news]
        told["flags"] &= ~SILENT & 0xFF
        return np.concatenate([rows[~is_news], told])

    def _mine(self, rows: Rows) -> Rows:
        """Rows without those of tiles that others have, or that no grid has any more."""
        if self._is_steady(rows):
            return rows
        owners, others = self.layout.owners(rows["tile"])
        mine: Rows = rows[(owners == self.place.group) | (others == self.place.group)]
        return mine

    def _is_steady(self, rows: Rows) -> bool:
        """Whether nothing changes, and who tells these rows knows that, too."""
        return not len(rows) or bool(rows["grid"][0] == self.layout.mark and not self.layout.next)

    def _tellers(self, ids: NDArray[np.int64]) -> NDArray[np.int32]:
        """The groups of State Managers that tell of entities."""
        owners = self.layout.last.states.owners(ids)
        if self._before is None:
            return owners
        return np.where(np.isin(owners, list(self._handed)), owners, self._before.states.owners(ids))

    def down(self, place: Place) -> Outbox:
        """Somebody has died: what a State Manager told grows old, and is forgotten until it is told anew.

        Args:
            place: where.
        """
        if place.role == "state" and place.replica == self.place.replica:
            if self._knows(place.group):
                self._missing[place.group] = 0
            self._forget(place.group)
        return []

    def _learn(self, message: Message) -> None:
        self.contents.forget(self.entities.held[: len(self.entities)], self._states)
        self.contents.learn(message.contents)

    def _match(self, rows: Rows) -> Outbox:
        rehomed = np.empty(len(rows), np.int64)
        outbox = [sent for found in self._found(rows, rehomed) for sent in self._send(found)]
        count = self.entities.count[fields.REHOMED]
        return outbox + self._follow(rows[rehomed[:count]]) if count else outbox

    def matches(self, message: Message) -> Iterator[Rows]:
        """Takes moves in tiles, and tells the matches that they make; none is kept for a Frontend.

        Args:
            message: ``moves`` of a State Manager.

        Returns:
            Rows of ``MATCH``, in parts, as Frontends get them.
        """
        self._learn(message)
        return self._found(message.rows, np.empty(len(message.rows), np.int64))

    def _found(self, rows: Rows, rehomed: NDArray[np.int64]) -> Iterator[Rows]:
        """Matches, in parts; ``rehomed`` gets which moves say that a client is connected elsewhere."""
        store, contents = self.entities, self.contents
        self._make_room(len(rows))
        store.count[fields.REHOMED] = 0
        taken, given = 0, words(rows)
        while taken < len(rows):
            before, out = taken, np.empty(self._room, MATCH)
            lists = self._numbers, self._tiles, self._places, self._slots, self._nexts
            taken = tile.match(
                given,
                taken,
                store.table,
                store.held,
                *lists,
                self.layout.grids.tiling,
                contents.ends,
                contents.attributes,
                store.count,
                words(out),
                rehomed,
                self._states,
                contents.shapes,
            )
            if taken < len(rows):
                self._room *= 2 if taken - before < len(rows) // 4 else 1
            yield out[: store.count[fields.OUT]]

    def _make_room(self, more: int) -> None:
        store = self.entities
        if store.count[fields.GONE_COUNT] > self._gone + len(store) // 4:
            self._purge()
        store.room(more)
        tiles = int(store.count[fields.LISTS]) + more
        self._tiles = grown(self._tiles, tiles)
        if 2 * tiles > len(self._numbers):
            self._numbers = table_of(2 * tiles)
            tables.enter(self._tiles[: tiles - more, fields.NUMBER].copy(), 0, self._numbers)
        blocks = int(store.count[fields.BLOCKS]) + more
        self._places, self._slots = grown(self._places, blocks), grown(self._slots, blocks)
        self._nexts = grown(self._nexts, blocks)

    def _purge(self) -> None:
        """Drops what has no tile here any more."""
        store = self.entities
        kept = store.held[: len(store), fields.TILES] > 0
        self._slots = (np.cumsum(kept) - 1).astype(np.int32)[np.minimum(self._slots, len(store) - 1)]
        store.keep(kept)
        store.count[fields.GONE_COUNT] = 0

    def _forget(self, group: int) -> None:
        """Takes the entities of a group of State Managers out of all tiles."""
        ids = self.entities.held[: len(self.entities), fields.ID].copy()
        self._drop(self._tellers(ids) == group)

    def _drop(self, which: NDArray[np.bool_], whole: NDArray[np.bool_] | None = None) -> None:
        """Takes some entities out of all tiles, and all of them out of some tiles."""
        store = self.entities
        if whole is None:
            whole = np.zeros(int(store.count[fields.LISTS]), bool)
        arrays = (store.held, self._tiles, self._places, self._slots, self._nexts, store.count)
        tile.forget(which.view(np.uint8), whole.view(np.uint8), *arrays)

    def _send(self, rows: Rows) -> Outbox:
        """Matches for Frontends, kept until these acknowledge them."""
        outbox = Outbox()
        np.maximum(rows["sender"], self._connected(rows), out=rows["sender"])
        for frontend, found in split(rows, rows["sender"] & 0xFFFF):
            for start in range(0, len(found), MOST_ROWS):
                part = found[start : start + MOST_ROWS]
                self._number += 1
                self._keep(self._number, part)
                outbox.append((Place("frontend", frontend), Message("matches", part, self._number)))
        while self._keeps > self._most:
            lost = self._kept.pop(next(iter(self._kept)))
            self._keeps -= len(lost)
            self.lost += len(lost)
        return outbox

    def _keep(self, number: int, rows: Rows) -> None:
        if len(rows):
            self._kept[number] = rows
            self._keeps += len(rows)

    def _settle(self, message: Message) -> Outbox:
        """A Frontend has acknowledged matches, but those whose clients have gone."""
        rows = self._kept.pop(message.number, None)
        if rows is None:
            return []
        self._keeps -= len(rows)
        if not len(message.rows):
            return []
        # What was sent elsewhere meanwhile is kept under another number.
        left = message.rows[np.isin(message.rows["issuer"], rows["issuer"])]
        moved = self._connected(left) > left["sender"]
        self._keep(message.number, left[~moved])
        return self._send(left[moved])

    def _follow(self, moves: Rows) -> Outbox:
        """Sends matches that were not acknowledged to where their clients are connected now."""
        for issuer, sender in zip(moves["issuer"].tolist(), moves["sender"].tolist(), strict=True):
            self._moved[issuer] = max(sender, self._moved.get(issuer, sender))
        again = []
        for number, rows in list(self._kept.items()):
            moved = self._connected(rows) > rows["sender"]
            if moved.any():
                again.append(rows[moved])
                self._keeps -= len(self._kept.pop(number))
                self._keep(number, rows[~moved])
        return self._send(np.concatenate(again)) if again else []

    def _connected(self, matches: Rows) -> NDArray[np.int64]:
        """Where the clients of matches are known to be connected; -1 for those that stay where they are."""
        senders = np.full(len(matches), -1, np.int64)
        for issuer in set(matches["issuer"].tolist()) & self._moved.keys() if self._moved else ():
            senders[matches["issuer"] == issuer] = self._moved[issuer]
        return senders
