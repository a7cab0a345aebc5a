"""The matcher: subscriptions in, ids of those that an event satisfies out.

It numbers names and strings, turns subscriptions into columns and events into rows, and keeps the ids; an
engine does the rest. Many threads match at once; who changes subscriptions waits until none does.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from threading import Lock
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from evflow.errors import SubscriptionError
from evflow.matching import saved
from evflow.matching.columns.bulk import FilterColumns, as_subscription
from evflow.matching.encoding.reader import EventReader
from evflow.matching.encoding.values import Vocabulary
from evflow.matching.engine import ENGINES, Matches, Stats, engine_class, in_pieces
from evflow.matching.entering import columns_of, counts_of, filters_of
from evflow.matching.guard import Guard
from evflow.matching.ids import Ids
from evflow.matching.kept import Kept
from evflow.matching.looking import Looking
from evflow.matching.model import Filter, Subscription
from evflow.matching.moving import ALONE, SingleMoves, checked_moves
from evflow.matching.names import Names
from evflow.matching.rows import EventRows, PreparedEvents
from evflow.matching.shaped import Shaped, both, shaped_filters
from evflow.matching.space import LOCATIONS, space_of
from evflow.matching.strings import Strings
from evflow.matching.textids import texts_of

Int32s = NDArray[np.int32]
_MOST_NOTED = 1024
_PIECE = 1024
_MANY = 4 * _PIECE
"""Objects that a thread reads at least before it matches them, and from how many on threads share that."""


class Matcher(Looking):
    """Decides which subscriptions an event satisfies.

    Args:
        engine: a name of ``evflow.matching.ENGINES``.
        space: ``plane`` or ``globe``: what areas and places are on.
        location: the two attributes that say where an event happened; by default ``x`` and ``y``, on the
            globe ``latitude`` and ``longitude``.
        threads: how many threads share the events of a batch.
        lookup: whether subscriptions can be looked at (``matcher[id]``, ``items``, ``find``, ``explain``).
            The matcher then keeps them as they were given, in 17 bytes a constraint and 44 a filter.
        **options: of the engine.

    Raises:
        SubscriptionError: there is no such engine, space or option, or the engine needs a package that is not
            there.

    Example:
        >>> matcher = Matcher("reference")
        >>> matcher.subscribe("area == 'area1' and temp > 30 or wind > 20")
        0
        >>> matcher.subscribe("within(3, 4, 5)")
        1
        >>> matcher.match({"area": "area1", "temp": 31, "x": 0, "y": 0})
        array([0, 1], dtype=int32)
        >>> matcher.move(1, 20, 20)
        >>> matcher.match({"wind": 25.5, "x": 0, "y": 0})
        array([0], dtype=int32)
    """

    def __init__(
        self,
        engine: str = "index",
        *,
        space: str = "plane",
        location: tuple[str, str] | None = None,
        threads: int = 1,
        lookup: bool = False,
        **options: Any,
    ) -> None:
        if engine not in ENGINES:
            raise SubscriptionError(f"engine {engine!r}: expected one of {', '.join(ENGINES)}")
        self.engine = engine
        self.options = options
        self.threads = _checked_threads(threads)
        self._space = space_of(space)
        self.location = _checked_location(location or LOCATIONS[space])
        self._names, self._strings = Names(), Strings()
        self._known = Vocabulary(self._names, self._strings, self._space, self.location)
        self._ids = Ids()
        self._kept = Kept(self._known) if lookup else None
        # Engines that find out while matching that their filters had better stand elsewhere.
        self._arranging: list[Any] = []
        self._engine = self._new_engine()
        self._reader = EventReader(self._known)
        # Some engines answer for one event sooner than ``match`` could.
        self._match_one = getattr(self._engine, "match_one", None)
        # Subscriptions with boxes or polygons, once there are any.
        self._shaped: Shaped | None = None
        self._counting = Lock()
        self._events = self._matches = 0
        # How many ids single events had that are not counted in these yet: to append takes no lock.
        self._noted: list[int] = []
        self._note: Callable[[Any], None] = self._kept.note if self._kept else lambda moves: None
        single = SingleMoves(self._ids, self._space, self._engine, self._note)
        self._guard = Guard(single.rows, single.make)
        self._move_one, self._move_later = single.move, single.wait
        # How many events had been matched at the last move, and how many moves are made at once still.
        self._moved_at, self._alone = 0, ALONE

    @property
    def space(self) -> str:
        """What areas and places are on: ``plane`` or ``globe``."""
        return self._space.name

    def __len__(self) -> int:
        """How many subscriptions there are."""
        return len(self._ids)

    def __contains__(self, id: object) -> bool:
        return id in self._ids

    def subscribe(self, subscription: str | Filter | Subscription, id: int | str | None = None) -> int:
        """Takes in a subscription.

        Args:
            subscription: a text, a filter or several.
            id: what matches will call it, 0 to 2**31 - 2; by default the smallest that is free. Memory is
                proportional to the largest in use. A text, of 1 to 255 bytes of UTF-8, is another name of
                the smallest that is free: every method takes it, and ``texts`` gives it back.

        Returns:
            The id, an integer.

        Raises:
            SubscriptionError: the subscription is malformed, or the id in use.
        """
        columns = FilterColumns.from_subscriptions([as_subscription(subscription)])
        columns.check(self.space)
        with self._guard.writing():
            texts = self._ids.texts.free([id]) if isinstance(id, str) else None
            ids = self._ids.free([self._ids.next() if id is None or texts else id])
            self._enter(columns, ids, texts)
        return int(ids[0])

    def subscribe_many(
        self,
        subscriptions: Any,
        ids: ArrayLike | None = None,
        *,
        texts: Sequence[str | None] | None = None,
    ) -> Int32s:
        """Takes in many subscriptions, or none if one of them is wrong.

        Args:
            subscriptions: a list of texts, filters and subscriptions, ``FilterColumns``, or a table of
                pyarrow (``FilterColumns.from_arrow``).
            ids: one each, integers or texts; by default those that the columns hold, else the smallest that
                are free.
            texts: beside ``ids`` that are integers, the texts that stand for them, None for those without.

        Returns:
            int32: the ids as integers, in the order of the subscriptions.

        Raises:
            SubscriptionError: a subscription is malformed, or an id in use; names it.
        """
        columns = columns_of(subscriptions, self._space)
        given = columns.ids if ids is None else ids
        if (named := texts_of(given)) is not None:
            if texts is not None:
                raise SubscriptionError("ids and texts: expected ids that are integers, found texts in both")
            texts, given = named, None
        with self._guard.writing():
            n = columns.subscriptions
            free = None if texts is None else self._ids.texts.free(texts)
            count = n if free is None else len(free)
            chosen = self._ids.next_many(count) if given is None else self._ids.free(given)
            for what, found in (("ids", len(chosen)), ("texts", count)):
                if found != n:
                    raise SubscriptionError(f"{n} subscriptions and {found} {what}: expected one each")
            self._enter(columns, chosen, free)
        return chosen

    def _enter(self, columns: FilterColumns, ids: Int32s, texts: list[str | None] | None) -> None:
        counts = counts_of(columns)
        try:
            filters = rest = filters_of(columns, ids, self._known)
            if columns.area is not None and (shaped := shaped_filters(columns)).any():
                assert columns.areas is not None
                which = np.flatnonzero(shaped)
                self._shapes().add(filters.take(which), columns.area[which], columns.areas)
                counts[2][shaped] = False
                rest = filters.take(np.flatnonzero(~shaped))
        finally:
            # Names and strings may be new even if the filters are refused.
            self._reader.renew()
        try:
            if len(rest):
                self._engine.add(rest)
        except BaseException:
            if self._shaped is not None:
                self._shaped.remove(ids)
            raise
        self._ids.add(ids, *counts)
        if texts:
            self._ids.texts.put(ids.tolist(), texts)
        if self._kept is not None:
            self._kept.add(filters, columns)

    def _new_engine(self) -> Any:
        engine = _made(self.engine, self._strings, self._space.dimensions, self.options)
        if hasattr(engine, "arranging"):
            self._arranging.append(engine)
        return engine

    def _shapes(self) -> Shaped:
        """What holds subscriptions with boxes or polygons."""
        if self._shaped is None:
            self._shaped = Shaped(self._known, self._new_engine())
            if self._kept is not None:
                self._kept.shaped = self._shaped
        return self._shaped

    def unsubscribe(self, id: int | str) -> None:
        """Forgets a subscription; its id is free again.

        Args:
            id: of the subscription.

        Raises:
            SubscriptionError: there is no such subscription.
        """
        self.unsubscribe_many([id])

    def unsubscribe_many(self, ids: ArrayLike) -> None:
        """Forgets many subscriptions, or none if one of them is not there.

        Args:
            ids: integers or texts, each once.

        Raises:
            SubscriptionError: one is not there, or stands twice.
        """
        with self._guard.writing():
            known = self._ids.known(ids, repeats=False)
            held = known[self._ids.filters[known] > 0]
            if self._shaped is not None:
                own = self._shaped.holds(held)
                self._shaped.remove(held[own])
                held = held[~own]
            if len(held):
                self._engine.remove(held)
            self._ids.remove(known)
            if self._kept is not None:
                self._kept.remove(known)

    def move(
        self, id: int | str, x: float, y: float, radius: float | None = None, *, filter: int | None = None
    ) -> None:
        """Gives the area of a subscription another centre.

        Args:
            id: the subscription.
            x: the centre; on the globe its latitude in degrees.
            y: likewise; on the globe its longitude.
            radius: another radius, on the globe in metres; by default it stays.
            filter: which of its filters, from 0; by default all that have an area.

        Raises:
            SubscriptionError: there is no such subscription or filter, it has no area, or a number is wrong.
        """
        if self._moved_at != (events := self._events + len(self._noted)):
            self._moved_at, self._alone = events, ALONE
        elif self._alone > 0:
            self._alone -= 1
        elif self._move_later(id, x, y, radius, filter):
            return
        guard = self._guard
        guard.enter_alone()
        try:
            self._move_one(id, x, y, radius, filter)
        finally:
            guard.leave_alone()

    def move_many(
        self,
        ids: ArrayLike,
        x: ArrayLike,
        y: ArrayLike,
        radius: ArrayLike | None = None,
        *,
        filters: ArrayLike | None = None,
    ) -> None:
        """Gives the areas of many subscriptions other centres, or none if a number is wrong; see ``move``.

        Args:
            ids: N subscriptions, by integers or texts; one may stand several times, and the last counts.
            x, y: N centres, or one for all.
            radius: N radii, or one for all; by default they stay.
            filters: N numbers of filters, -1 for all of a subscription that have an area; by default -1.

        Raises:
            SubscriptionError: see ``move``; names the first that is wrong.
        """
        with self._guard.writing():
            moves = checked_moves(self._ids, self._space, ids, x, y, radius, filters)
            if len(moves):
                self._engine.move(moves)
                self._note(moves.view(np.uint8).data)

    def match(self, event: Any) -> Int32s:
        """The ids of the subscriptions that an event satisfies, int32, each once, in no order.

        Args:
            event: a dict, an ``Event`` or a view. None is as if the attribute was missing; the fields of a
                nested record are attributes with dotted names.

        Raises:
            SchemaError: ``event`` is none of these.
        """
        guard = self._guard
        guard.enter()
        try:
            rows = self._reader.read(event)
            ids: Int32s = self._match_one(rows) if self._match_one else self._engine.match(rows).ids
            if self._shaped is not None:
                others = self._shaped.match_one(rows)
                if len(others):
                    ids = np.concatenate([ids, others]) if len(ids) else others
        finally:
            guard.leave()
        self._noted.append(len(ids))
        if len(self._noted) > _MOST_NOTED:
            self._count_noted()
        for engine in self._arranging:
            if engine.arranging.better:
                self._arrange()
        return ids

    def _count_noted(self) -> None:
        with self._counting:
            noted = self._noted[:]
            # What other threads append meanwhile stands behind.
            del self._noted[: len(noted)]
            self._events += len(noted)
            self._matches += sum(noted)

    def _arrange(self) -> None:
        with self._guard.writing():
            for engine in self._arranging:
                if engine.arranging.better:
                    engine.arrange()

    def match_batch(self, batch: Any, threads: int | None = None) -> Matches:
        """The ids of the subscriptions that each of many events satisfies.

        Args:
            batch: an ``EventBatch``, a list of events, a dict of columns, a structured array, a DataFrame, a
                table of pyarrow, or what ``prepare`` gave; ``EventRows`` are taken as they are.
            threads: how many share the work; by default as the matcher was told.

        Returns:
            The ids (int32) of all events together, and where (int64) those of each event start and end.

        Raises:
            SchemaError: ``batch`` is none of these.
        """
        count = self.threads if threads is None else _checked_threads(threads)
        matches = self._match_rows(batch, count)
        while matches is None:
            self._arrange()
            matches = self._match_rows(batch, count)
        with self._counting:
            self._events += len(matches)
            self._matches += len(matches.ids)
        return matches

    def _match_rows(self, batch: Any, threads: int) -> Matches | None:
        """What events satisfy; None: the engine is to be arranged first."""
        guard = self._guard
        guard.enter()
        try:
            # To read objects takes the interpreter's lock, so each thread reads what it is about to match.
            apart = threads > 1 and isinstance(batch, list | tuple) and len(batch) >= _MANY
            # Another thread may change a list meanwhile.
            batch = tuple(batch) if apart else batch
            pieces = min(4 * threads, len(batch) // _PIECE) if apart else 1
            first = batch[: len(batch) // pieces] if apart else batch
            rows = first if isinstance(first, EventRows) else self._rows(first)
            count = len(batch) if apart else len(rows)
            if count > 1 and any(engine.weigh(rows, count) for engine in self._arranging):
                return None
            if not apart:
                return self._matched(rows, threads)

            def match(start: int, stop: int) -> Matches:
                read = self._reader.read_list(batch[start:stop], start) if start else rows
                return self._matched(read, 1)

            return in_pieces(match, count, threads, pieces)
        finally:
            guard.leave()

    def _matched(self, rows: EventRows, threads: int) -> Matches:
        matches: Matches = self._engine.match(rows, threads)
        return matches if self._shaped is None else both(matches, self._shaped.match(rows, threads))

    def prepare(self, batch: Any) -> PreparedEvents:
        """Events as engines read them, to be matched more than once.

        Args:
            batch: the events; see ``match_batch``.

        Returns:
            What ``match_batch`` takes in place of ``batch``.

        Raises:
            SchemaError: see ``match_batch``.
        """
        with self._guard.reading():
            return PreparedEvents(batch, self._rows(batch), self._known.version)

    def _rows(self, batch: Any) -> EventRows:
        if isinstance(batch, PreparedEvents):
            if batch.version == self._known.version:
                return batch.rows
            batch = batch.events
        return self._reader.read_many(batch)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes everything to a folder, from which ``load`` takes it.

        A matcher that was saved there is replaced at the end and at once, so that whoever is killed while
        saving leaves the old one. One process at a time may save to a folder.

        Args:
            path: the folder; made if it is not there.

        Raises:
            SubscriptionError: the folder holds something else, or cannot be written.
        """

        def save(folder: Path) -> None:
            self._ids.save(folder)
            self._strings.save(folder)
            parts = {"engine": self._engine, "kept": self._kept, "shaped": self._shaped}
            for name, part in parts.items():
                if part is not None:
                    (folder / name).mkdir()
                    part.save(folder / name)

        with self._guard.writing():
            content = {
                "engine": self.engine,
                "options": self.options,
                "space": self.space,
                "location": self.location,
                "threads": self.threads,
                "lookup": self._kept is not None,
                "shaped": self._shaped is not None,
                "names": self._names.in_order(),
            }
            saved.write(Path(path), content, save)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Matcher:
        """The matcher that was saved in a folder; load only from folders that you trust.

        Its arrays are mapped copy-on-write: processes that load one folder share the memory of what they do
        not change, and the folder does not change.

        Args:
            path: the folder.

        Raises:
            SubscriptionError: there is no matcher, it is not whole, or a later version of evflow wrote it.
        """
        content, arrays = saved.read(Path(path))
        try:
            matcher = cls(
                content["engine"],
                space=content["space"],
                location=content["location"],
                threads=content["threads"],
                lookup=content["lookup"],
                **content["options"],
            )
            matcher._names.restore(content["names"])
            matcher._strings.load(arrays)
            matcher._reader.renew()
            matcher._ids.load(arrays)
            matcher._engine.load(arrays / "engine")
            if matcher._kept is not None:
                matcher._kept.load(arrays / "kept")
            if content["shaped"]:
                matcher._shapes().load(arrays / "shaped")
        except (LookupError, TypeError, ValueError, AttributeError, OSError, EOFError) as error:
            raise SubscriptionError(f"{path} holds a damaged matcher: {error!r}; save it again") from error
        return matcher

    def stats(self) -> Stats:
        """What the matcher holds and has done so far, in numbers."""
        self._count_noted()
        with self._guard.reading():
            filters, constraints = self._ids.totals()
            memory = {
                "ids": self._ids.nbytes,
                "strings": self._strings.nbytes,
                "kept": 0 if self._kept is None else self._kept.nbytes,
            }
            memory.update({f"engine.{what}": size for what, size in self._engine.memory().items()})
            if self._shaped is not None:
                memory.update(self._shaped.memory())
            describe = getattr(self._engine, "details", dict)
            return Stats(
                self.engine,
                len(self._ids),
                filters,
                constraints,
                len(self._names),
                len(self._strings),
                self._events,
                self._matches,
                memory,
                describe(),
            )

    def __repr__(self) -> str:
        return f"Matcher({self.engine!r}, space={self.space!r}): {len(self)} subscriptions"


def _made(engine: str, strings: Strings, dimensions: int, options: Mapping[str, Any]) -> Any:
    try:
        return engine_class(engine)(strings, dimensions, **options)
    except ModuleNotFoundError as missing:
        if missing.name != "numba":
            raise
        raise SubscriptionError(
            f"engine {engine!r} needs numba: pip install 'evflow[matching]' (engine 'reference' does without)"
        ) from None
    except TypeError as error:
        if "unexpected keyword" not in str(error):
            raise
        raise SubscriptionError(f"engine {engine!r}: {error}") from None


def _checked_threads(threads: int) -> int:
    if type(threads) is not int or threads < 1:
        raise SubscriptionError(f"threads {threads!r}: expected a whole number from 1")
    return threads


def _checked_location(location: tuple[str, str]) -> tuple[str, str]:
    pair = tuple(location)
    if len(pair) != 2 or not all(isinstance(name, str) and name for name in pair) or pair[0] == pair[1]:
        raise SubscriptionError(f"location {location!r}: expected the names of two attributes")
    return pair[0], pair[1]
