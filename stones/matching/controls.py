"""What a program does with a match stone that runs in its process: the methods of ``flow["name"]``.

Texts are read and columns are made by whoever calls; the engine's thread only takes them in, between two
batches. So all that was submitted before is matched by what was subscribed before.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, overload

import numpy as np
from numpy.typing import ArrayLike, NDArray

from evflow.matching.columns.bulk import as_subscription
from evflow.matching.engine import Stats
from evflow.matching.entering import columns_of
from evflow.matching.explain import Explanation
from evflow.matching.model import Filter, Subscription
from evflow.matching.space import space_of
from evflow.stones.matching.book import Book

Int32s = NDArray[np.int32]
Call = Callable[[Callable[[Book], Any]], Any]
"""Has the engine's thread do a task with the stone's book, and gives its result."""


class Controls:
    """Subscribing and unsubscribing at a match stone, from any thread.

    Every method raises ``SubscriptionError`` for what is malformed, and then nothing has changed, and
    ``FlowError`` if the flow is closed or a change cannot be kept.

    Args:
        call: see ``Call``.
        space: where areas are.
    """

    def __init__(self, call: Call, space: str) -> None:
        self._call = call
        self._space = space

    def subscribe(
        self, subscription: str | Filter | Subscription, *, id: int | str | None = None, port: int = 0
    ) -> int:
        """Subscribes.

        Args:
            subscription: as text or object.
            id: a free id, an integer or a text; by default the smallest. A text, of 1 to 255 bytes of UTF-8,
                is another name of the smallest: every method takes it, and ``texts`` gives it back.
            port: the port that matching events leave by, where the stone routes.

        Returns:
            The id, an integer.
        """
        ids = None if id is None else [id]
        return int(self.subscribe_many([as_subscription(subscription)], ids=ids, ports=port)[0])

    def subscribe_many(
        self, subscriptions: Any, *, ids: ArrayLike | None = None, ports: int | Sequence[int] = 0
    ) -> Int32s:
        """Subscribes many at once, all or none.

        Args:
            subscriptions: texts and objects, ``FilterColumns``, or a table of pyarrow.
            ids: free ids, one each, integers or texts; by default the smallest, or those of the columns.
            ports: the port that matching events leave by, for all or one each.

        Returns:
            int32: the ids as integers, in the order of the subscriptions.
        """
        columns = columns_of(subscriptions, space_of(self._space))
        found: Int32s = self._call(lambda book: book.add(columns, ids, ports))
        return found

    def unsubscribe(self, id: int | str) -> None:
        """Ends the subscription ``id``."""
        self.unsubscribe_many([id])

    def unsubscribe_many(self, ids: ArrayLike) -> None:
        """Ends the subscriptions ``ids`` (integers or texts), all or none."""
        self._call(lambda book: book.remove(ids))

    def move(
        self, id: int | str, x: float, y: float, radius: float | None = None, *, filter: int | None = None
    ) -> None:
        """Moves the areas of a subscription.

        Args:
            id: of the subscription.
            x, y: the new centre (on the globe latitude and longitude, in degrees).
            radius: the new radius (on the globe in metres); None: as before.
            filter: which filter of the subscription, from 0; by default all that have an area.
        """
        self.move_many([id], [x], [y], None if radius is None else [radius], filters=_one(filter))

    def move_many(self, ids: Any, x: Any, y: Any, radius: Any = None, *, filters: Any = None) -> None:
        """Moves the areas of many subscriptions, all or none.

        Args:
            ids: of N subscriptions, integers or texts.
            x, y: the new centres, N or one for all (on the globe latitudes and longitudes, in degrees).
            radius: the new radii, N or one for all (on the globe in metres); None: as before.
            filters: which filter of each subscription, from 0; by default all that have an area.
        """
        self._call(lambda book: book.move(ids, x, y, radius, filters))

    def texts(self, ids: ArrayLike | None = None) -> list[str | None]:
        """The texts that ids were given as; see ``Matcher.texts``.

        Args:
            ids: integers, as events have them; by default those of all subscriptions that have a text.

        Returns:
            One each, None for an id that has no text.
        """
        found: list[str | None] = self._call(lambda book: book.matcher.texts(ids))
        return found

    def subscription(self, id: int | str) -> Subscription:
        """What is subscribed under an id, with its areas where they are now.

        Args:
            id: of the subscription.
        """
        found: Subscription = self._call(lambda book: book.matcher[id])
        return found

    def items(self) -> list[tuple[int, Subscription]]:
        """All subscriptions with their ids, ascending; the stone handles no events meanwhile."""
        found: list[tuple[int, Subscription]] = self._call(lambda book: list(book.matcher.items()))
        return found

    def find(
        self,
        *,
        name: str | None = None,
        around: tuple[float, float] | None = None,
        like: str | Filter | Subscription | None = None,
    ) -> Int32s:
        """The ids of subscriptions for which all that is given is true; of all if nothing is given.

        Args:
            name: they have a constraint on this attribute.
            around: they have an area that holds this place: x and y, or latitude and longitude.
            like: they are equal to this subscription, with the same filters in the same order.

        Returns:
            int32: the ids, ascending.
        """
        like = None if like is None else as_subscription(like)
        found: Int32s = self._call(lambda book: book.matcher.find(name=name, around=around, like=like))
        return found

    @overload
    def explain(self, event: Any) -> list[Explanation]: ...

    @overload
    def explain(self, event: Any, id: int | str) -> Explanation: ...

    def explain(self, event: Any, id: int | str | None = None) -> list[Explanation] | Explanation:
        """Why an event satisfies a subscription, or why it does not; see ``Matcher.explain``.

        Args:
            event: a dict, an ``Event`` or a view.
            id: the subscription; by default all that the event satisfies.

        Returns:
            What became of each constraint of each filter: of ``id``, or without it a list, ascending by id.
        """
        task = (
            (lambda book: book.matcher.explain(event))
            if id is None
            else (lambda book: book.matcher.explain(event, id))
        )
        found: list[Explanation] | Explanation = self._call(task)
        return found

    def statistics(self) -> Stats:
        """What the matcher says of itself: subscriptions, filters, memory, what it has matched so far."""
        found: Stats = self._call(lambda book: book.matcher.stats())
        return found


def _one(filter: int | None) -> list[int] | None:
    return None if filter is None else [filter]
