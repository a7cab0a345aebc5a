"""A client, without sockets: what it has published and subscribed to, and which matches it has seen."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from evflow.tiles.kernels import tables
from evflow.tiles.messages import (
    ENTER,
    GONE,
    INSIDE,
    LEAVE,
    MOST_POLYGONS,
    MOST_ROWS,
    MOVE,
    POLYGON,
    SUBSCRIPTION,
    Message,
    Outbox,
    Place,
    Rows,
    copied,
    words,
)
from evflow.tiles.store import Content, Contents, Entities, Pairs, Seen

__all__ = ["Client"]


class Client:
    """What a client does with messages.

    Args:
        place: its number, by which others know it.
        frontend: where it is connected.
        seen: of how many matches it remembers the keys, to drop those that come again.

    Attributes:
        copies: matches that came again.
    """

    def __init__(self, place: Place, frontend: Place, *, seen: int = 1 << 20) -> None:
        self.place, self.frontend = place, frontend
        self.copies = 0
        self._home, self._number = 0, 0
        self._seen, self._latest, self._contents = Seen(seen), Entities(), Contents()
        self._pairs = Pairs(seen)
        self._unacknowledged: dict[int, Message] = {}

    @property
    def idle(self) -> bool:
        """Whether all that it sent is acknowledged."""
        return not self._unacknowledged

    def send(self, rows: Rows, contents: dict[int, Content] | None = None) -> Outbox:
        """Sends moves.

        Args:
            rows: ids, versions, kinds, flags, zones and contents; the rest is filled in.
            contents: the attribute sets and outlines that the moves name and that were not named before.
        """
        sent = [words(message.rows) for message in self._unacknowledged.values()]
        self._contents.forget(self._latest.held[: len(self._latest)], *sent)
        self._contents.learn(contents or {})
        rows = copied(rows)
        rows["home"], rows["issuer"] = self._home, self.place.group
        subscriptions = rows.compress(rows["flags"] & SUBSCRIPTION > 0)
        self._latest.room(len(subscriptions))
        tables.keep(words(subscriptions), self._latest.table, self._latest.held, self._latest.count)
        gone = subscriptions.compress(subscriptions["flags"] & GONE > 0)
        self._pairs.delete(gone["id"], gone["version"])
        ended = (subscriptions["flags"] & GONE > 0) | (subscriptions["flags"] & (ENTER | INSIDE | LEAVE) == 0)
        self._pairs.end(subscriptions["id"][ended])
        return self._sent(rows, contents or {})

    def _sent(self, rows: Rows, contents: dict[int, Content]) -> Outbox:
        self._number += 1
        message = Message("moves", rows, self._number, contents)
        self._unacknowledged[self._number] = message
        return [(self.frontend, message)]

    def moved_to(self, frontend: Place) -> Outbox:
        """Connects to another Frontend, or again: sends what was not acknowledged, and where matches go now.

        Args:
            frontend: which.
        """
        self.frontend = frontend
        self._home += 1
        connected = np.zeros(1, MOVE)
        connected["home"] = self._home
        outbox: Outbox = [(frontend, Message("moved", connected))]
        for number, message in self._unacknowledged.items():
            rows = copied(message.rows)
            rows["home"] = self._home
            self._unacknowledged[number] = replace(message, rows=rows, contents=self._contents.of(rows))
            outbox.append((frontend, self._unacknowledged[number]))
        held = self._latest.rows
        held = held.compress(held["flags"] & GONE == 0)
        held["home"] = self._home
        most = MOST_POLYGONS if (held["kind"] == POLYGON).any() else MOST_ROWS
        for start in range(0, len(held), most):
            part = held[start : start + most]
            outbox += self._sent(part, self._contents.of(part))
        return outbox

    def receive(self, sender: Place, message: Message) -> tuple[Rows, Outbox]:
        """Takes a message.

        Args:
            sender: who sent it.
            message: ``ack``, ``matches`` or ``refused`` of the Frontend.

        Returns:
            The matches that have not come before, and what is to be sent.
        """
        if message.kind == "matches":
            fresh = self._seen.fresh(message.rows)
            self.copies += len(fresh) - int(fresh.sum())
            rows = message.rows.compress(fresh)
            rows = rows.compress(~self._pairs.are_over(rows))
            rows = rows.compress(self._pairs.follow(rows, self._latest))
            return rows, [(sender, Message("ack", number=message.number))]
        if message.kind == "ack" and sender == self.frontend:
            self._unacknowledged.pop(message.number, None)
        return message.rows[:0], []
