"""Changes of subscriptions as events, so that they come from any node, over any bridge, as all events do."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from itertools import groupby
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, Self, TypeVar

from evflow.errors import EvflowError, UnwrittenError
from evflow.events.batch import EventBatch
from evflow.events.event import Event
from evflow.matching.columns.bulk import FilterColumns, as_subscription
from evflow.schema import Schema
from evflow.schema.notation import Str, i32

if TYPE_CHECKING:
    from evflow.stones.matching.book import Book

SUBSCRIBE, UNSUBSCRIBE, MOVE = "subscribe", "unsubscribe", "move"

Id = TypeVar("Id", int, str)

_NAN = math.nan


class _Changing(Event, Generic[Id]):
    """How a change is made, whatever ids are."""

    @classmethod
    def subscribe(cls, id: Id, text: str, port: int = 0) -> Self:
        """The change that subscribes.

        Args:
            id: of the subscription; what has the id already ends.
            text: the subscription.
            port: the port that matching events leave by, where the stone routes.
        """
        return cls._made(SUBSCRIBE, id, port, _NAN, _NAN, _NAN, str(text))

    @classmethod
    def unsubscribe(cls, id: Id) -> Self:
        """The change that ends the subscription ``id``."""
        return cls._made(UNSUBSCRIBE, id, 0, _NAN, _NAN, _NAN, "")

    @classmethod
    def move(cls, id: Id, x: float, y: float, radius: float = _NAN) -> Self:
        """The change that moves all areas of a subscription to another centre.

        Args:
            id: of the subscription.
            x, y: the new centre (on the globe latitude and longitude, in degrees).
            radius: the new radius (on the globe in metres); NaN: as before.
        """
        return cls._made(MOVE, id, 0, x, y, radius, "")

    @classmethod
    def _made(cls, *values: object) -> Self:
        made: Callable[..., Self] = cls
        return made(*values)


class SubscriptionChange(_Changing[int]):
    """A change of what is subscribed at a match stone, as an event that goes to its input ``changes``.

    Make one by ``subscribe``, ``unsubscribe`` or ``move``. All fields are needed, so that no other event
    passes for one. Ids are chosen by who subscribes: two subscribers that share a stone must not choose the
    same.

    Attributes:
        action: "subscribe", "unsubscribe" or "move".
        id: of the subscription.
        port: the port that matching events leave by, where the stone routes.
        x, y: the new centre of a move (on the globe latitude and longitude, in degrees).
        radius: the new radius (on the globe in metres); NaN: as before.
        text: what is subscribed.

    Example:
        >>> import evflow as ev
        >>> ev.SubscriptionChange.subscribe(7, "delay > 45", port=2)
        SubscriptionChange(action='subscribe', id=7, port=2, x=nan, y=nan, radius=nan, text='delay > 45')
        >>> ev.SubscriptionChange.move(7, 3.0, 4.0).radius
        nan
    """

    action: Str[16]
    id: int
    port: i32
    x: float
    y: float
    radius: float
    text: str


class NamedSubscriptionChange(_Changing[str]):
    """A ``SubscriptionChange`` by a text that is the id, of 1 to 255 bytes of UTF-8.

    It goes to the input ``named`` of a match stone, which a link to the stone finds by itself.

    Attributes:
        action, port, x, y, radius, text: as in ``SubscriptionChange``.
        id: of the subscription, a text.

    Example:
        >>> import evflow as ev
        >>> ev.NamedSubscriptionChange.unsubscribe("taxi-7").id
        'taxi-7'
    """

    action: Str[16]
    id: str
    port: i32
    x: float
    y: float
    radius: float
    text: str


CHANGING: dict[str, Schema] = {
    "changes": SubscriptionChange.schema,
    "named": NamedSubscriptionChange.schema,
}
"""The inputs of a match stone that take changes, with their schemas."""


class Change(NamedTuple):
    """What one event says, and which of its batch it is."""

    position: int
    action: str
    id: int | str
    port: int
    x: float
    y: float
    radius: float
    text: str


Fault = Callable[[int, str], None]
"""Gives an event up, by its position, with the reason."""


def apply_changes(book: Book, batch: EventBatch, fault: Fault) -> None:
    """Makes changes in order, many alike at once; one that cannot be made is given up and changes nothing.

    Args:
        book: what they change.
        batch: the changes.
        fault: gives one up.

    Raises:
        UnwrittenError: one cannot be kept now; those before it are made, and the error says how many.
    """
    for _, run in groupby(_changes(batch), key=_alike):
        alike = list(run)
        work = _WORK.get(alike[0].action)
        if work is None:
            for change in alike:
                actions = ", ".join(map(repr, _WORK))
                fault(change.position, f"action {change.action!r}: expected one of {actions}")
        elif len(alike) == 1 or not _done(work, book, alike):
            # Some are wrong, and nothing was changed: one by one it is seen which.
            for change in alike:
                try:
                    work(book, [change])
                except UnwrittenError as error:
                    raise UnwrittenError(str(error), change.position) from error
                except EvflowError as error:
                    fault(change.position, str(error))


def _alike(change: Change) -> tuple[str, bool]:
    return change.action, math.isnan(change.radius)


def _done(work: _Work, book: Book, alike: Sequence[Change]) -> bool:
    try:
        work(book, alike)
    except UnwrittenError as error:
        raise UnwrittenError(str(error), alike[0].position) from error
    except EvflowError:
        return False
    return True


def _changes(batch: EventBatch) -> list[Change]:
    columns = [batch[field.name] for field in SubscriptionChange.schema.fields]
    columns[0] = [action.decode() for action in columns[0].tolist()]
    rows = zip(*(column if isinstance(column, list) else column.tolist() for column in columns), strict=True)
    return [Change(position, *row) for position, row in enumerate(rows)]


def _subscribe(book: Book, run: Sequence[Change]) -> None:
    # Of several with one id the last holds.
    latest: Any = {change.id: change for change in run}.values()
    columns = FilterColumns.from_subscriptions([as_subscription(change.text) for change in latest])
    book.put(columns, [change.id for change in latest], [change.port for change in latest])


def _unsubscribe(book: Book, run: Sequence[Change]) -> None:
    book.remove([change.id for change in run])


def _move(book: Book, run: Sequence[Change]) -> None:
    radius = None if math.isnan(run[0].radius) else [change.radius for change in run]
    book.move([change.id for change in run], [c.x for c in run], [c.y for c in run], radius)


_Work = Callable[["Book", Sequence[Change]], None]
_WORK: dict[str, _Work] = {SUBSCRIBE: _subscribe, UNSUBSCRIBE: _unsubscribe, MOVE: _move}
