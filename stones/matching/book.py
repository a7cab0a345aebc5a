"""The book of a match stone: its matcher, the port of each subscription, and the ledger that outlives it.

A change is checked first, then made in all three. Called by the engine's thread only.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from itertools import count
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from evflow.errors import EvflowError, FlowError, SubscriptionError
from evflow.matching.columns.bulk import FilterColumns
from evflow.matching.ids import refuse_repeats
from evflow.matching.textids import texts_of
from evflow.outside import shown
from evflow.stones.matching.asked import Asked
from evflow.stones.matching.ledger import ALL, Entry, Forgotten, Ledger, Moved
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
        # What the graph itself subscribes comes again when the stone does.
        self._own = set(matcher.texts())
        # Whether there may be texts: where there are none nobody is asked for them.
        self._named = bool(self._own)
        self._set_ports(np.array(list(ports), np.int32), list(ports.values()))
        if ledger is not None:
            kept = ledger.read()
            made = self.overlay(*kept)
            if made != kept:
                ledger.take(*made)

    def overlay(self, entries: Sequence[Entry], moves: Sequence[Moved]) -> tuple[list[Entry], list[Moved]]:
        """Makes changes that a ledger holds, without writing them again.

        Returns:
            The same changes. A text has another integer than before if the graph has given that one away.

        Raises:
            FlowError: they do not fit the matcher.
        """
        try:
            plain = [entry.id for entry in entries if entry.text is None and entry.id in self.matcher]
            self._refuse_named(plain)
            texts = [entry.text for entry in entries]
            self._named |= any(texts)
            self.matcher.unsubscribe_many(
                [text for text in texts if text is not None and text in self.matcher]
            )
            self.matcher.unsubscribe_many(plain)
            entries = self._placed(entries)
            there = [entry for entry in entries if entry.filters is not None]
            ids = np.array([entry.id for entry in there], np.int32)
            self._check_ids(ids)
            columns = unpack([entry.filters for entry in there if entry.filters is not None], self.space)
            named = [entry.text for entry in there] if any(texts) else None
            self.asked.subscribed(columns, self.matcher.subscribe_many(columns, ids, texts=named))
        except SubscriptionError as error:
            raise FlowError(
                f"what was subscribed while the stone ran does not fit it any more: {error}"
            ) from error
        self._set_ports(ids, [entry.port for entry in there])
        moves = [self._found(move) for move in moves]
        fitting = []
        for move, text in zip(moves, self._texts([move.id for move in moves]), strict=True):
            if text == move.text:
                fitting.append(move)
            else:
                _not_there(move)
        # What moved all filters of a subscription comes before what moved one.
        for moved_all in (True, False):
            for kept in (True, False):
                alike = [m for m in fitting if (m.filter == ALL) is moved_all and (m.radius is None) is kept]
                if alike:
                    self._move_again(alike)
        return entries, moves

    def _placed(self, entries: Sequence[Entry]) -> list[Entry]:
        """The same, but texts have integers that nothing else has or is to have."""
        if not any(entry.text for entry in entries):
            return list(entries)
        taken = {entry.id for entry in entries if entry.text is None and entry.filters is not None}
        free = (id for id in count() if id not in taken and id not in self.matcher)
        found = []
        for entry in entries:
            if entry.text is not None and entry.filters is not None:
                if entry.id in taken or entry.id in self.matcher:
                    entry = entry._replace(id=next(free))
                taken.add(entry.id)
            found.append(entry)
        return found

    def _found(self, move: Moved) -> Moved:
        """The same, with the integer that its text stands for now."""
        if move.text is None or move.text not in self.matcher:
            return move
        return move._replace(id=int(self.matcher.numbers([move.text])[0]))

    def _move_again(self, moves: Sequence[Moved]) -> None:
        """Moves areas, all of which or none give a radius and a filter."""
        ids, which, x, y, radii, _ = (list(column) for column in zip(*moves, strict=True))
        radius = None if radii[0] is None else radii
        try:
            self.matcher.move_many(ids, x, y, radius, filters=None if which[0] == ALL else which)
        except SubscriptionError as error:
            if len(moves) == 1:
                _not_there(moves[0], f": {error}")
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
        ids = columns.ids if ids is None else ids
        if ids is not None:
            if texts_of(ids) is None:
                self._check_ids(np.asarray(ids))
            else:
                self._named = True
        found = self.matcher.subscribe_many(columns, ids)
        try:
            if len(found) and int(found.max()) >= self._limit:
                self._check_ids(found)
            self._note(found, self._texts(found.tolist()), port_list, columns)
        except EvflowError:
            self.matcher.unsubscribe_many(found)
            raise
        self._set_ports(found, port_list)
        self.asked.subscribed(columns, found)
        return found

    def put(self, columns: FilterColumns, ids: Sequence[int] | Sequence[str], ports: Sequence[int]) -> None:
        """Subscribes under ids, each given once, in place of what has them.

        Raises:
            SubscriptionError: a number, id or port is wrong; nothing has changed.
            FlowError: it cannot be kept; nothing has changed.
        """
        texts = texts_of(ids)
        numbers = np.array(ids) if texts is None else self.matcher.numbers(texts, new=True)
        self._check_ids(numbers)
        self._port_list(ports, len(ids))
        columns.check(self.space)
        listed = numbers.tolist()
        if texts is None:
            self._refuse_named(listed)
        self._named |= texts is not None
        self._note(listed, [None] * len(ids) if texts is None else texts, ports, columns)
        self._end([id for id in listed if id in self.matcher])
        found = self.matcher.subscribe_many(columns, listed, texts=texts)
        self._set_ports(found, ports)
        self.asked.subscribed(columns, found)

    def remove(self, ids: ArrayLike) -> None:
        """Ends subscriptions.

        Raises:
            SubscriptionError: there is no such subscription; nothing has changed.
            FlowError: it cannot be kept; nothing has changed.
        """
        # One by itself is found sooner without arrays.
        if isinstance(ids, list) and len(ids) == 1 and type(ids[0]) is int and ids[0] in self.matcher:
            listed = ids
        else:
            numbers = self.matcher.numbers(ids)
            refuse_repeats(numbers)
            listed = numbers.tolist()
        self._note(listed, self._texts(listed), [0] * len(listed), None)
        self._end(listed)

    def _end(self, ids: Sequence[int]) -> None:
        self.matcher.unsubscribe_many(ids)
        if self.tracker is not None:
            self.tracker.end(ids)

    def move(
        self,
        ids: ArrayLike,
        x: ArrayLike,
        y: ArrayLike,
        radius: ArrayLike | None = None,
        filters: ArrayLike | None = None,
    ) -> None:
        """Moves areas; see ``Matcher.move_many``.

        Raises:
            SubscriptionError: there is no such subscription or area; nothing has changed.
            FlowError: it cannot be kept, and holds until the node ends.
        """
        self.matcher.move_many(ids, x, y, radius, filters=filters)
        if self.ledger is not None:
            given = ids if texts_of(ids) is None else self.matcher.numbers(ids)
            numbers = np.asarray(given).tolist()
            which = _each(ALL if filters is None else filters, np.int32, len(numbers))
            places = (_each(column, np.float64, len(numbers)) for column in (x, y))
            reach = [None] * len(numbers) if radius is None else _each(radius, np.float64, len(numbers))
            rows = zip(numbers, which, *places, reach, self._texts(numbers), strict=True)
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

    def _note(
        self, ids: ArrayLike, texts: Sequence[str | None], ports: Sequence[int], columns: FilterColumns | None
    ) -> None:
        """Keeps that subscriptions came, or (None) went."""
        if self.ledger is not None:
            pieces: Sequence[bytes | None] = (
                [None] * len(texts) if columns is None else pack(columns, self.space)
            )
            self.ledger.subscribed(
                Forgotten(text)
                if piece is None and text is not None and text not in self._own
                else Entry(id, port, piece, text)
                for id, port, piece, text in zip(np.asarray(ids).tolist(), ports, pieces, texts, strict=True)
            )

    def _refuse_named(self, ids: Sequence[int]) -> None:
        """Refuses integers of subscriptions that are known by texts, which others are not to replace."""
        for id, text in zip(ids, self._texts(ids), strict=True):
            if text is not None:
                raise SubscriptionError(f"id {id} is that of {shown(text)}; choose another")

    def _texts(self, ids: Sequence[int]) -> list[str | None]:
        return self.matcher.texts(ids) if self._named else [None] * len(ids)

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


def _each(given: ArrayLike, dtype: type[np.generic], count: int) -> list[Any]:
    """A number for each of ``count``, where one may be given for all."""
    found = np.asarray(given, dtype)
    return found.tolist() if found.ndim else [found.item()] * count


def _not_there(move: Moved, why: str = "") -> None:
    """Says that a moved area is of a subscription that the graph no longer has."""
    id = move.id if move.text is None else shown(move.text)
    _log.warning("subscription %s: its area was moved, and is no longer there%s", id, why)
