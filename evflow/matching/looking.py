"""What a matcher tells of its subscriptions: what each says, which are like something, and why they match."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, overload

import numpy as np
from numpy.typing import ArrayLike, NDArray

from evflow.errors import SubscriptionError
from evflow.matching.columns.bulk import FilterColumns, as_subscription
from evflow.matching.encoding.values import Vocabulary
from evflow.matching.explain import Explanation, explained
from evflow.matching.guard import Guard
from evflow.matching.ids import Ids
from evflow.matching.kept import Kept
from evflow.matching.literals import shown
from evflow.matching.model import Filter, Subscription
from evflow.matching.outlines import SHAPES
from evflow.matching.space import Space

_PIECE = 1024
"""Subscriptions that ``items`` makes at once."""

Int32s = NDArray[np.int32]


def _shapes(subscription: Subscription) -> list[object]:
    """The boxes and polygons of the filters of a subscription."""
    return [part.area if isinstance(part.area, SHAPES) else None for part in subscription.filters]


def _place(around: object) -> tuple[float, float]:
    """A place as the user gave it; NaN is none."""
    try:
        x, y = np.asarray(around).astype(np.float64, casting="same_kind").tolist()
    except (TypeError, ValueError, OverflowError):
        raise SubscriptionError(f"around: expected two numbers, found {shown(around)}") from None
    return x, y


class Looking:
    """The part of ``Matcher`` that looks at subscriptions, and changes nothing."""

    _ids: Ids
    _kept: Kept | None
    _known: Vocabulary
    _guard: Guard
    _space: Space

    @property
    def _looked_at(self) -> Kept:
        """The subscriptions.

        Raises:
            SubscriptionError: the matcher keeps none to look at.
        """
        if self._kept is None:
            raise SubscriptionError(
                "this matcher keeps no subscriptions to look at; make it, or the Match stone, with "
                "lookup=True"
            )
        return self._kept

    def match(self, event: Any) -> Int32s:
        """See ``Matcher.match``, which takes an ``event``."""
        raise NotImplementedError

    def __iter__(self) -> Iterator[int]:
        """The ids of the subscriptions there are now, ascending."""
        with self._guard.reading():
            ids = self._ids.all()
        yield from ids.tolist()

    def texts(self, ids: ArrayLike | None = None) -> list[str | None]:
        """The texts that ids were given as when they were subscribed.

        Args:
            ids: integers, as matches have them; by default those of all subscriptions that have a text.

        Returns:
            One each, None for an id that has no text.

        Raises:
            SubscriptionError: one is not a whole number.

        Example:
            >>> from evflow.matching import Matcher
            >>> matcher = Matcher("reference")
            >>> _ = matcher.subscribe("temp > 30", "alice/7"), matcher.subscribe("wind > 2")
            >>> matcher.texts(sorted(matcher.match({"temp": 31, "wind": 3})))
            ['alice/7', None]
        """
        if ids is None:
            with self._guard.reading():
                return list(self._ids.texts)
        numbers = np.asarray(ids)
        if numbers.size and numbers.dtype.kind not in "iu":
            raise SubscriptionError(f"ids: expected whole numbers, found {numbers.dtype}")
        with self._guard.reading():
            return self._ids.texts.of(numbers.reshape(-1).tolist())

    def numbers(self, ids: ArrayLike, *, new: bool = False) -> Int32s:
        """The integers that ids stand for, as matches have them.

        Args:
            ids: integers or texts.
            new: whether a text may be new; it then has the integer that ``subscribe`` would give it now.

        Returns:
            int32: one each.

        Raises:
            SubscriptionError: there is no such subscription.

        Example:
            >>> from evflow.matching import Matcher
            >>> matcher = Matcher("reference")
            >>> _ = matcher.subscribe("temp > 30", 0), matcher.subscribe("wind > 2", "alice/7")
            >>> matcher.numbers(["alice/7"]), matcher.numbers(["bob", "alice/7"], new=True)
            (array([1], dtype=int32), array([2, 1], dtype=int32))
        """
        with self._guard.reading():
            return self._ids.next_of(ids) if new else self._ids.known(ids)

    def __getitem__(self, id: int | str) -> Subscription:
        """What was subscribed under an id, with its areas where they are now.

        Args:
            id: of the subscription.

        Raises:
            SubscriptionError: there is no such subscription, or the matcher keeps none to look at.

        Example:
            >>> from evflow.matching import Matcher
            >>> matcher = Matcher("reference", lookup=True)
            >>> print(matcher[matcher.subscribe("temp > 30 and within(3, 4, 5)")])
            temp > 30 and within(3, 4, 5)
        """
        with self._guard.writing():
            ids = self._ids.known([id])
            return self._looked_at.subscriptions(ids)[0]

    def items(self) -> Iterator[tuple[int, Subscription]]:
        """The subscriptions with their ids, ascending.

        One that somebody ends meanwhile may be left out.

        Raises:
            SubscriptionError: the matcher keeps none to look at.

        Example:
            >>> from evflow.matching import Matcher
            >>> matcher = Matcher("reference", lookup=True)
            >>> _ = matcher.subscribe_many(["temp > 30", "exists urgent"], ids=[7, 3])
            >>> [(id, str(subscription)) for id, subscription in matcher.items()]
            [(3, 'exists urgent'), (7, 'temp > 30')]
        """
        with self._guard.reading():
            ids = self._ids.all()
        for start in range(0, len(ids), _PIECE):
            piece = ids[start : start + _PIECE]
            with self._guard.writing():
                piece = piece[self._ids.areas[piece] != 0]
                found = self._looked_at.subscriptions(piece)
            yield from zip(piece.tolist(), found, strict=True)

    def find(
        self,
        *,
        name: str | None = None,
        around: tuple[float, float] | None = None,
        like: str | Filter | Subscription | None = None,
    ) -> Int32s:
        """The ids of subscriptions for which all that is given is true; of all if nothing is given.

        Args:
            name: they have a constraint on this attribute, or compare another one with it.
            around: they have an area that holds this place: x and y, or latitude and longitude.
            like: they are equal to this subscription, with the same filters in the same order.

        Returns:
            int32: the ids, ascending.

        Raises:
            SubscriptionError: ``like`` is malformed, ``around`` is not two numbers, or the matcher keeps none
                to look at.

        Example:
            >>> from evflow.matching import Matcher
            >>> matcher = Matcher("reference", lookup=True)
            >>> _ = matcher.subscribe_many(["temp > 30", "within(3, 4, 5)", "wind > 2 or temp > 30"])
            >>> matcher.find(name="temp").tolist(), matcher.find(around=(0, 0)).tolist()
            ([0, 2], [1])
            >>> matcher.find(like="temp > 30").tolist()
            [0]
        """
        place = None if around is None else _place(around)
        columns = None
        if like is not None:
            columns = FilterColumns.from_subscriptions([as_subscription(like)])
            columns.check(self._space.name)
        with self._guard.writing():
            ids = self._ids.all()
            if name is not None:
                kept = self._looked_at
                ids = np.intersect1d(ids, kept.owners(kept.naming(name)), assume_unique=True)
            if place is not None:
                kept = self._looked_at
                found = kept.owners(kept.around(*place))
                if kept.shaped is not None:
                    found = np.union1d(found, kept.shaped.around(*place))
                ids = np.intersect1d(ids, found, assume_unique=True)
            if columns is not None:
                alike = self._ids.filters[ids] == len(columns)
                alike &= self._ids.constraints[ids] == len(columns.name)
                kept = self._looked_at
                ids = kept.like(columns, ids[alike])
                if kept.shaped is not None or columns.area is not None:
                    wanted = _shapes(columns.to_subscriptions()[0])
                    held = kept.subscriptions(ids)
                    ids = ids[np.array([_shapes(one) == wanted for one in held], np.bool_)]
        return ids

    @overload
    def explain(self, event: Any) -> list[Explanation]: ...

    @overload
    def explain(self, event: Any, id: int | str) -> Explanation: ...

    def explain(self, event: Any, id: int | str | None = None) -> list[Explanation] | Explanation:
        """Why an event satisfies a subscription, or why it does not.

        Args:
            event: the event; see ``match``.
            id: the subscription; by default all that the event satisfies.

        Returns:
            What became of each constraint of each filter, to be printed or read: of ``id``, or without it a
            list, ascending by id.

        Raises:
            SubscriptionError: there is no such subscription, or the matcher keeps none to look at.
            SchemaError: ``event`` is not an event.

        Example:
            >>> from evflow.matching import Matcher
            >>> matcher = Matcher("reference", lookup=True)
            >>> hot = matcher.subscribe("temp > 30 and within(3, 4, 5)")
            >>> print(matcher.explain({"temp": "31", "x": 0, "y": 0}, hot))
            subscription 0 does not match
              filter 0 fails: temp > 30 and within(3, 4, 5)
                temp > 30: fails, temp is '31', a string and not a number
                within(3, 4, 5): holds, the event is at (0, 0), 5 from the centre
        """
        found: list[Any] = np.sort(self.match(event)).tolist() if id is None else [id]
        with self._guard.writing():
            if id is None:
                found = [one for one in found if one in self._ids]
            ids = self._ids.known(found)
            texts = self._ids.texts.of(ids.tolist())
            explanations = explained(event, ids, texts, self._looked_at, self._known)
        return explanations if id is None else explanations[0]
