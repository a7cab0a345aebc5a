"""The Frontend (algorithm 1): between clients and the replicas of the State and Tile Managers."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from evflow.errors import EvflowError
from evflow.tiles.layout import Layout, split
from evflow.tiles.messages import (
    ENTER,
    GONE,
    INSIDE,
    LEAVE,
    MATCH,
    SUBSCRIPTION,
    Message,
    Outbox,
    Place,
    Rows,
    copied,
)
from evflow.tiles.moves import MOST_ID, MOST_TILES, are_zones
from evflow.tiles.store import Content, Contents, Seen

__all__ = ["Frontend"]


@dataclass(slots=True)
class _Request:
    """A message of a client.

    Attributes:
        client: who sent it.
        number: its number.
        left: groups that have not acknowledged their part.
    """

    client: Place
    number: int
    left: int


@dataclass(slots=True)
class _UnderWay:
    """A message to a group of State Managers.

    Attributes:
        group: the group.
        message: the message.
        waiting: the replicas that have not acknowledged it.
        request: what it is a part of.
    """

    group: int
    message: Message
    waiting: set[Place]
    request: _Request


@dataclass(slots=True)
class _Delivery:
    """A message of a Tile Manager.

    Attributes:
        manager: who sent it.
        number: its number.
        left: messages to clients that have some of its matches, and are not acknowledged.
        stayed: matches whose clients have gone.
    """

    manager: Place
    number: int
    left: int = 0
    stayed: list[Rows] = field(default_factory=list)


class Frontend:
    """A Frontend without sockets: messages in, messages out.

    A client's message is acknowledged once every State Manager that lives and is concerned has it; a Tile
    Manager's once the clients have. Of a match that several Tile Managers send, the client gets the first
    copy. All of them keep theirs until this is acknowledged, and get them back if the client goes before.

    Args:
        place: where it is.
        layout: the grid and the rings.
        life: how often it was started before.
        most_tiles: the tiles that a zone may touch.
        copies: of how many matches the keys are remembered, to drop those that come again.

    Attributes:
        copies: matches that came again.
    """

    def __init__(
        self,
        place: Place,
        layout: Layout,
        *,
        life: int = 0,
        most_tiles: int = MOST_TILES,
        copies: int = 1 << 20,
    ) -> None:
        self.place, self.layout = place, layout
        self.contents, self.copies = Contents(), 0
        self._sender, self._most_tiles = (life & 0xFFFF) << 16 | place.group, most_tiles
        self._number = life << 40
        self._down: set[Place] = set()
        self._under_way: dict[int, _UnderWay] = {}
        self._seen = Seen(copies)
        # While the layout changes, two Tile Managers may find a match.
        self._is_replicated = (
            any(len(hosts) > 1 for hosts in layout.tiles.groups.values()) or layout.stage > 0
        )
        # Messages to clients that are not acknowledged, by number: whose matches they have, and which.
        self._clients: dict[int, dict[int, list[tuple[_Delivery, Rows]]]] = {}
        self._unacknowledged = Counter[int]()

    def disconnect(self, client: Place) -> Outbox:
        """A client has gone, or connects anew: the Tile Managers keep what it has not acknowledged.

        Args:
            client: who.
        """
        outbox = Outbox()
        del self._unacknowledged[client.group]
        for waiting in self._clients.pop(client.group, {}).values():
            self._seen.drop(waiting[0][1])
            for delivery, rows in waiting:
                delivery.stayed.append(rows)
                outbox += self._settled(delivery)
        return outbox

    def unacknowledged(self, client: int) -> int:
        """How many matches a client was told of that it has not acknowledged, which its host bounds.

        Args:
            client: its number.
        """
        return self._unacknowledged[client]

    def down(self, place: Place) -> Outbox:
        """Somebody has died: a State Manager, for which nothing waits any more.

        Args:
            place: where.
        """
        self._down.add(place)
        return [done for number in list(self._under_way) for done in self._acknowledged(place, number)]

    def adopt(self, layout: Layout) -> Outbox:
        """Takes the next step of a change: what is under way goes to those that get it, too.

        Args:
            layout: that of this step.
        """
        if layout.stage <= self.layout.stage:
            return []
        before, self.layout, self._is_replicated = self.layout.groups("state"), layout, True
        # Nothing waits for a group that comes before it has greeted this Frontend.
        for group in set(layout.groups("state")) - set(before):
            self._down |= set(layout.replicas("state", group))
        outbox = Outbox()
        for number, sent in list(self._under_way.items()):
            if sent.group not in layout.groups("state"):
                # Another group has had all of this since the step before.
                sent.waiting.clear()
                outbox += self._ended(number)
        for group in layout.last.states.groups if layout.next else ():
            outbox += self._given(group)
        return outbox

    def receive(self, sender: Place, message: Message) -> Outbox:
        """Takes a message.

        Args:
            sender: who sent it.
            message: ``moves``, ``moved`` and ``ack`` of clients, ``ack`` and ``hello`` of State Managers,
                ``matches`` of Tile Managers.
        """
        if message.kind == "moves":
            return self._route(sender, message)
        if message.kind == "moved":
            return self._connected(sender, message)
        if message.kind == "matches":
            return self._deliver(sender, message)
        if message.kind == "ack" and sender.role == "client":
            return self._taken(sender, message.number)
        if message.kind == "ack":
            return self._acknowledged(sender, message.number)
        return self._greeted(sender) if message.kind == "hello" else []

    def _greeted(self, state: Place) -> Outbox:
        """A State Manager catches up: it gets what its group has not acknowledged."""
        is_new = self._down >= set(self.layout.replicas("state", state.group))
        self._down.discard(state)
        outbox = Outbox()
        for sent in self._under_way.values():
            if sent.group == state.group:
                sent.waiting.add(state)
                outbox.append((state, sent.message))
        if is_new and self.layout.next:
            outbox += self._given(state.group)
        return [*outbox, (state, Message("welcome"))]

    def _given(self, group: int) -> Outbox:
        """What is under way to others and will be a group's goes there, too."""
        outbox = Outbox()
        for sent in list(self._under_way.values()):
            rows = sent.message.rows
            rows = rows[self.layout.last.states.owners(rows["id"]) == group]
            if sent.group != group and len(rows):
                outbox += self._requested(group, rows, sent.message.contents, sent.request)
        return outbox

    def _route(self, client: Place, message: Message) -> Outbox:
        outbox = Outbox()
        rows = copied(message.rows)
        self._clients.setdefault(client.group, {})
        rows["issuer"], rows["sender"] = client.group, self._senders(rows)
        rows["grid"], rows["tile"] = self.layout.mark, -1
        rows["flags"] &= SUBSCRIPTION | GONE | ENTER | INSIDE | LEAVE
        try:
            self.contents.forget()
            self.contents.learn(message.contents)
            good = self._is_good(rows)
        except EvflowError:
            good = np.zeros(len(rows), np.bool_)
        if not good.all():
            outbox.append((client, Message("refused", message.rows[~good], message.number)))
            rows = rows[good]
        parts = self._parts(rows)
        if not parts:
            return [*outbox, (client, Message("ack", number=message.number))]
        request = _Request(client, message.number, 0)
        for group, part in parts:
            outbox += self._requested(group, part, self._named(part, message), request)
        return outbox

    def _parts(self, rows: Rows) -> list[tuple[int, Rows]]:
        """Moves by the groups that have their entities, or get them."""
        owners = self.layout.states.owners(rows["id"])
        if not self.layout.next:
            return split(rows, owners)
        others = self.layout.next.states.owners(rows["id"])
        moved = owners != others
        return split(rows, owners) + split(rows[moved], others[moved])

    def _requested(self, group: int, rows: Rows, contents: dict[int, Content], request: _Request) -> Outbox:
        """A part of a request for all replicas of a group."""
        replicas = self.layout.replicas("state", group)
        waiting = {place for place in replicas if place not in self._down}
        if not waiting and group not in self.layout.states.groups:
            # It gets this once it greets, if this is still under way to those that have it now.
            return []
        self._number += 1
        sent = Message("moves", rows, self._number, contents)
        self._under_way[self._number] = _UnderWay(group, sent, waiting, request)
        request.left += 1
        return [(place, sent) for place in replicas]

    def _senders(self, rows: Rows) -> NDArray[np.int64]:
        return rows["home"].astype(np.int64) << 32 | self._sender

    def _connected(self, client: Place, message: Message) -> Outbox:
        """A client has connected anew: the Tile Managers send here what it has not acknowledged."""
        outbox, rows = self.disconnect(client), copied(message.rows)
        self._clients[client.group] = {}
        rows["issuer"], rows["sender"] = client.group, self._senders(rows)
        groups = self.layout.groups("tile")
        places = [place for group in groups for place in self.layout.replicas("tile", group)]
        return outbox + [(place, Message("moved", rows)) for place in places]

    def _named(self, rows: Rows, message: Message) -> dict[int, Content]:
        return self.contents.of(rows) if message.contents else {}

    def _is_good(self, rows: Rows) -> NDArray[np.bool_]:
        """Which moves may be taken: the others have numbers that are none, or too many tiles."""
        gone = rows["flags"] & GONE > 0
        good: NDArray[np.bool_] = (are_zones(rows, self.contents) | gone) & (rows["version"] >= 0)
        good &= (rows["id"] >= 0) & (rows["id"] <= MOST_ID)
        # What is deleted has no zone, but goes through the same arithmetic.
        rows["zone"][gone], rows["kind"][gone] = 0.0, 0
        rows["zone"][~good], rows["kind"][~good] = 0.0, 0
        good &= self.layout.grids.counts(rows, self.contents) <= self._most_tiles
        return good

    def _acknowledged(self, state: Place, number: int) -> Outbox:
        sent = self._under_way.get(number)
        if sent is None or state not in sent.waiting:
            return []
        sent.waiting.discard(state)
        return self._ended(number)

    def _ended(self, number: int) -> Outbox:
        """Acknowledges what nobody is waited for any more."""
        sent = self._under_way[number]
        if sent.waiting:
            return []
        del self._under_way[number]
        sent.request.left -= 1
        if sent.request.left:
            return []
        return [(sent.request.client, Message("ack", number=sent.request.number))]

    def _deliver(self, manager: Place, message: Message) -> Outbox:
        rows, delivery, before = message.rows, _Delivery(manager, message.number), self._number
        issuers, numbers = rows["issuer"], np.full(len(rows), before + 1)
        if (issuers != issuers[:1]).any():
            numbers += np.unique(issuers, return_inverse=True)[1]
        self._number = int(numbers.max(initial=before))
        if self._is_replicated:
            numbers = self._seen.first(rows, numbers)
            self.copies += int((numbers <= before).sum())
        outbox = Outbox()
        for number, part in split(rows, numbers):
            issuer = int(part["issuer"][0])
            held = self._clients.get(issuer)
            if number <= before:
                self._wait(delivery, number, part)
            elif held is None:
                self._seen.drop(part)
                delivery.stayed.append(part)
            else:
                held[number] = [(delivery, part)]
                self._unacknowledged[issuer] += len(part)
                delivery.left += 1
                outbox.append((Place("client", issuer), Message("matches", part, number)))
        return outbox if delivery.left else [*outbox, self._answer(delivery)]

    def _wait(self, delivery: _Delivery, number: int, copies: Rows) -> None:
        """What came before waits for the acknowledgement of the message that has it, if this is to come."""
        waiting = self._clients.get(int(copies["issuer"][0]), {}).get(number)
        if waiting is not None:
            waiting.append((delivery, copies))
            delivery.left += 1

    def _taken(self, client: Place, number: int) -> Outbox:
        waiting = self._clients.get(client.group, {}).pop(number, [])
        self._unacknowledged[client.group] -= len(waiting[0][1]) if waiting else 0
        return [done for delivery, _ in waiting for done in self._settled(delivery)]

    def _settled(self, delivery: _Delivery) -> Outbox:
        """One message less that matches of a Tile Manager wait for."""
        delivery.left -= 1
        return [] if delivery.left else [self._answer(delivery)]

    def _answer(self, delivery: _Delivery) -> tuple[Place, Message]:
        rows = np.concatenate(delivery.stayed) if delivery.stayed else np.empty(0, MATCH)
        return delivery.manager, Message("ack", rows, delivery.number)
