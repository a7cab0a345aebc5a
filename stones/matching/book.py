"""The book of a match stone: its matcher, the port of each subscription, and the ledger that outlives it.

A change is checked first, then made in all three. Called by the engine's thread only.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from evflow.errors import EvflowError, FlowError, SubscriptionError
from evflow.matching.columns.bulk import FilterColumns
from evflow.matching.textids import texts_of
from evflow.outside import shown
from evflow.stones.matching.asked import Asked
from evflow.stones.matching.ledger import ALL, Entry, Ledger, Moved
from evflow.stones.matching.packing import pack, unpack

if TYPE_CHECKING:
    from evflow.matching.matcher import Matcher
    from evflow.matching.tracking import Tracker

_log = logging.getLogger("evflow.matching")

_MOST_PORT = (1 << 31) - 1

Int32s = NDArray[np.int32]


class Book:
    """What is subscribed at a match stone.

    Args:
        matcher: a matcher, with what the graph subscribes.
        ports: the port of each of these, by id; others have port 0.
        limit: ids must be below it.
        ledger: what has changed since, and is to be made again now; None keeps nothing.
        asked: is told what is subscribed from now on.
        tracker: what is told which subscriptions end; None tracks nothing.

    Raises:
        FlowError: the ledger does not fit the matcher, or cannot be read.

    Attributes:
        matcher: the matcher.
        ledger: the ledger.
        asked: what subscriptions ask of events.
        tracker: the tracker.
    """

    def __init__(
        self,
        matcher: Matcher,
        ports: dict[int, int],
        limit: int,
        ledger: Ledger | None,
        asked: Asked,
        tracker: Tracker | None = None,
    ) -> None:
        self.matcher = matcher
        self.asked = asked
        self.tracker = tracker
        self._ports = np.zeros(1, np.int32)
        self._limit = limit
        self.ledger = ledger
        self._set_ports(np.array(list(ports), np.int32), list(ports.values()))
        if ledger is not None:
            self.overlay(*ledger.read())

    def overlay(self, entries: Sequence[Entry], moves: Sequence[Moved]) -> None:
        """Makes changes that a ledger holds, without writing them again.

        Raises:
            FlowError: they do not fit the matcher.
        """
        try:
            replaced = [entry.id for entry in entries if entry.id in self.matcher]
            self.matcher.unsubscribe_many(replaced)
            there = [entry for entry in entries if entry.filters is not None]
            ids = np.array([entry.id for entry in there], np.int32)
            self._check_ids(ids)
            columns = unpack([entry.filters for entry in there if entry.filters is not None], self.space)
            self.asked.subscribed(columns, self.matcher.subscribe_many(columns, ids))
        except SubscriptionError as error:
            raise FlowError(
                f"what was subscribed while the stone ran does not fit it any more: {error}"
            ) from error
        self._set_ports(ids, [entry.port for entry in there])
        # What moved all filters of a subscription comes before what moved one.
        for moved_all in (True, False):
            for kept in (True, False):
                alike = [m for m in moves if (m.filter == ALL) is moved_all and (m.radius is None) is kept]
                if alike:
                    self._move_again(alike)

    def _move_again(self, moves: Sequence[Moved]) -> None:
        """Moves areas, all of which or none give a radius and a filter."""
        ids, which, x, y, radii = (list(column) for column in zip(*moves, strict=True))
        radius = None if radii[0] is None else radii
        try:
            self.matcher.move_many(ids, x, y, radius, filters=None if which[0] == ALL else which)
        except SubscriptionError as error:
            if len(moves) == 1:
                # It was of a subscription that the graph no longer has.
                _log.warning("subscription %d: its area was moved, and is no longer there: %s", ids[0], error)
                return
            for move in moves:
                self._move_again([move])

    def add(self, columns: FilterColumns, ids: ArrayLike | None, ports: int | Sequence[int]) -> Int32s:
        """Subscribes, under these ids or free ones; gives the ids.

        Raises:
            SubscriptionError: an id is in use or too high; nothing has changed.
            FlowError: it cannot be kept; nothing has changed.
        """
        port_list = self._port_list(ports, columns.subscriptions)
        _refuse_texts(ids)
        ids = columns.ids if ids is None else ids
        if ids is not None:
            self._check_ids(np.asarray(ids))
        found = self.matcher.subscribe_many(columns, ids)
        try:
            if len(found) and int(found.max()) >= self._limit:
                self._check_ids(found)
            self._note(found, port_list, columns)
        except EvflowError:
            self.matcher.unsubscribe_many(found)
            raise
        self._set_ports(found, port_list)
        self.asked.subscribed(columns, found)
        return found

    def put(self, columns: FilterColumns, ids: Sequence[int], ports: Sequence[int]) -> None:
        """Subscribes under ids, in place of what has them.

        Raises:
            SubscriptionError: a number, id or port is wrong; nothing has changed.
            FlowError: it cannot be kept; nothing has changed.
        """
        self._check_ids(np.array(ids))
        self._port_list(ports, len(ids))
        columns.check(self.space)
        self._note(ids, ports, columns)
        self._end([id for id in ids if id in self.matcher])
        found = self.matcher.subscribe_many(columns, ids)
        self._set_ports(found, ports)
        self.asked.subscribed(columns, found)

    def remove(self, ids: Sequence[int]) -> None:
        """Ends subscriptions.

        Raises:
            SubscriptionError: there is no such subscription; nothing has changed.
            FlowError: it cannot be kept; nothing has changed.
        """
        _refuse_texts(ids)
        seen: set[int] = set()
        for id in ids:
            if id not in self.matcher:
                raise SubscriptionError(f"there is no subscription {id}")
            if id in seen:
                raise SubscriptionError(f"id {id} is given twice")
            seen.add(id)
        self._note(ids, [0] * len(ids), None)
        self._end(ids)

    def _end(self, ids: Sequence[int]) -> None:
        self.matcher.unsubscribe_many(ids)
        if self.tracker is not None:
            self.tracker.end(ids)

    def move(
        self,
        ids: Sequence[int],
        x: Sequence[float],
        y: Sequence[float],
        radius: Sequence[float] | None = None,
        filters: Sequence[int] | None = None,
    ) -> None:
        """Moves areas; see ``Matcher.move_many``.

        Raises:
            SubscriptionError: there is no such subscription or area; nothing has changed.
            FlowError: it cannot be kept, and holds until the node ends.
        """
        _refuse_texts(ids)
        self.matcher.move_many(ids, x, y, radius, filters=filters)
        if self.ledger is not None:
            count = len(ids)
            columns = ids, [ALL] * count if filters is None else filters, x, y
            listed = [np.asarray(column).tolist() for column in columns]
            radii: list[float | None] = [None] * count
            if radius is not None:
                radii = np.broadcast_to(np.asarray(radius, np.float64), count).tolist()
            rows = zip(*listed[:2], *(map(float, column) for column in listed[2:]), radii, strict=True)
            self.ledger.moved([Moved(*row) for row in rows])

    @property
    def space(self) -> str:
        """Where areas are: "plane" or "globe"."""
        return self.matcher.space

    def pack(self) -> bytes | None:
        """What has changed since the graph was written, as bytes; None if nothing is kept."""
        return None if self.ledger is None else self.ledger.pack()

    def close(self) -> None:
        """Closes the ledger."""
        if self.ledger is not None:
            self.ledger.close()

    def _note(self, ids: Any, ports: Sequence[int], columns: FilterColumns | None) -> None:
        """Keeps that subscriptions came, or (None) went."""
        if self.ledger is not None:
            pieces: Sequence[bytes | None] = (
                [None] * len(ids) if columns is None else pack(columns, self.space)
            )
            listed = zip(np.asarray(ids).tolist(), ports, pieces, strict=True)
            self.ledger.subscribed([Entry(*one) for one in listed])

    def _check_ids(self, ids: NDArray[Any]) -> None:
        wrong = ids[(ids < 0) | (ids >= self._limit)] if ids.dtype.kind in "iu" else ids[:0]
        if len(wrong):
            raise SubscriptionError(
                f"id {wrong[0]}: expected 0 to {self._limit - 1}; limit=… of the stone allows higher ones"
            )

    def _port_list(self, ports: int | Sequence[int], count: int) -> list[int]:
        listed = [ports] * count if isinstance(ports, int) else list(ports)
        if len(listed) != count:
            raise SubscriptionError(f"{len(listed)} ports for {count} subscriptions; expected one each")
        for port in listed:
            if not isinstance(port, int) or isinstance(port, bool) or not 0 <= port <= _MOST_PORT:
                raise SubscriptionError(f"output port {port!r}: expected 0 or more")
        return listed

    def _set_ports(self, ids: Int32s, ports: Sequence[int]) -> None:
        self.ports_of(ids)[ids] = ports

    def ports_of(self, ids: Int32s) -> Int32s:
        """The port of each subscription, by id, as far as these ids; a view."""
        needed = int(ids.max(initial=0)) + 1
        if needed > len(self._ports):
            grown = np.zeros(max(needed, len(self._ports) * 3 // 2), np.int32)
            grown[: len(self._ports)] = self._ports
            self._ports = grown
        return self._ports


def _refuse_texts(ids: Any) -> None:
    """Refuses ids that are texts, which neither the ledger nor changes by events have."""
    if texts := texts_of(ids):
        raise SubscriptionError(f"id {shown(texts[0])}: expected a whole number; only a Matcher takes texts")
