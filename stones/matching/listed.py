"""What a graph itself subscribes at a match stone: a list in the program, or a file.

A file of text has a subscription a line. Before it may stand an id, a port or both, and a colon; a line of
JSON says the same by name, with ids that may be texts; empty lines and those that begin with ``#`` are left
out::

    delay > 45
    7: delay > 45 and carrier == 'UA'
    8@2: within(40.64, -73.78, 50 km)
    {"subscription": "delay > 90", "id": 9, "port": 1}
    {"subscription": "delay > 60", "id": "alice/7"}
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from evflow.errors import SubscriptionError
from evflow.matching.columns.bulk import FilterColumns
from evflow.matching.columns.shapes import Track, columns_of_texts, untracked
from evflow.matching.model import Filter, Subscription
from evflow.matching.text import parse_subscription
from evflow.matching.textids import checked_id
from evflow.outside import Malformed, from_json, shown

_NUMBERED = re.compile(r"(?P<id>\d+)?\s*(?:@\s*(?P<port>\d+))?\s*:\s*(?P<text>.*)")
_KEYS = {"subscription", "id", "port"}
_SHORT = 10
"""Digits from which an id may be too high."""


class Listed(NamedTuple):
    """A subscription that a program gives.

    Attributes:
        text: what it says.
        id: its id, an integer or a text; None for a free one.
        port: the port that matching events leave by.
        where: where it stands, for errors.
    """

    text: str
    id: int | str | None
    port: int
    where: str


class Listing:
    """Many subscriptions in columns: an object for each line of a large file takes longer than to read it.

    Args:
        many: those that a program gives.

    Attributes:
        texts, ids, ports: as in ``Listed``.
    """

    def __init__(self, many: Iterable[Listed] = ()) -> None:
        self.texts: list[str] = []
        self.ids: list[int | str | None] = []
        self.ports: list[int] = []
        # Texts, or numbers of lines of the file.
        self._places: list[str | int] = []
        self._path: Path | None = None
        for one in many:
            self._add(*one)

    def __len__(self) -> int:
        return len(self.texts)

    @property
    def named(self) -> list[str | None] | None:
        """The ids that are texts, None for the others; None if there is none."""
        found = [id if isinstance(id, str) else None for id in self.ids]
        return found if any(found) else None

    def _add(self, text: str, id: int | str | None, port: int, place: str | int) -> None:
        self.texts.append(text)
        self.ids.append(id)
        self.ports.append(port)
        self._places.append(place)

    def where(self, number: int) -> str:
        """Where one stands, for errors."""
        place = self._places[number]
        return place if isinstance(place, str) else f"{self._path}, line {place}"

    def read(self, path: Path, track: Track = untracked) -> None:
        """Adds the subscriptions of a file of text.

        Args:
            path: the file.
            track: is told of long loops.

        Raises:
            SubscriptionError: it cannot be read, or a line is malformed; names the line.
        """
        self._path = path
        try:
            lines = path.read_text("utf-8").splitlines()
        except (OSError, UnicodeDecodeError) as error:
            raise SubscriptionError(f"subscriptions of {path} cannot be read: {error}") from None
        for number, line in enumerate(track(lines, "lines read"), 1):
            text = line.strip()
            if text.startswith("{"):
                try:
                    read = from_json(text)
                except Malformed as error:
                    raise SubscriptionError(f"{path}, line {number}: {error}") from None
                self._add(*_listed(read, f"{path}, line {number}"))
            elif text and not text.startswith("#"):
                begun = _NUMBERED.fullmatch(text)
                id, port, rest = (None, None, text) if begun is None else begun.groups()
                if port is None and (id is None or len(id) < _SHORT):
                    self._add(rest, None if id is None else int(id), 0, number)
                    continue
                where = f"{path}, line {number}"
                whole = [None if one is None else _whole(int(one), where) for one in (id, port)]
                self._add(rest, whole[0], whole[1] or 0, where)


def listed(given: Iterable[Any], where: str) -> tuple[Listed, ...]:
    """Subscriptions that a program gives: texts, objects, or mappings with ``subscription``, ``id``,
    ``port``.

    Args:
        given: them.
        where: what they are a part of, for errors.

    Raises:
        SubscriptionError: one is none of these. What a text says is not looked at.

    Example:
        >>> both = listed(["x > 1", {"subscription": "y > 2", "id": 7}], "here")
        >>> [(one.text, one.id, one.port) for one in both]
        [('x > 1', None, 0), ('y > 2', 7, 0)]
    """
    if isinstance(given, str | bytes | Mapping | Filter | Subscription) or not isinstance(given, Iterable):
        raise SubscriptionError(f"{where}: expected a list of subscriptions, found {shown(given)}")
    return tuple(_listed(one, f"{where}: number {number}") for number, one in enumerate(given))


def _listed(one: Any, where: str) -> Listed:
    if isinstance(one, Mapping):
        unknown = [key for key in one if key not in _KEYS]
        if unknown or "subscription" not in one:
            raise SubscriptionError(
                f"{where}: expected 'subscription', and 'id' and 'port' if you like, found {shown(list(one))}"
            )
        id, port = _id(one.get("id"), where), _whole(one.get("port"), where)
        return Listed(_text(one["subscription"], where), id, port or 0, where)
    return Listed(_text(one, where), None, 0, where)


def _text(one: object, where: str) -> str:
    if not isinstance(one, str | Filter | Subscription):
        raise SubscriptionError(f"{where}: expected a subscription as text or object, found {shown(one)}")
    return str(one)


def _id(value: object, where: str) -> int | str | None:
    if not isinstance(value, str):
        return _whole(value, where)
    try:
        return checked_id(value)
    except SubscriptionError as error:
        raise error.within(where) from None


def _whole(value: object, where: str) -> int | None:
    if value is None or (isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 1 << 31):
        return value
    raise SubscriptionError(f"{where}: id or port {shown(value)}: expected a whole number from 0 on")


def numbered(many: Listing, limit: int, known: Collection[int] = ()) -> list[int]:
    """The ids as integers: those that are given, and for the others the smallest that are free, in order.

    Args:
        many: the subscriptions.
        limit: ids must be below it.
        known: ids that are in use.

    Raises:
        SubscriptionError: an id is in use, stands twice, or is not below ``limit``.
    """
    taken: set[int | str] = set()
    known = known if known else ()
    for number, id in enumerate(many.ids):
        if id is None:
            continue
        if id in taken or id in known:
            raise SubscriptionError(f"{many.where(number)}: id {shown(id)} is in use already")
        if isinstance(id, int) and id >= limit:
            raise SubscriptionError(f"{many.where(number)}: id {id}: expected 0 to {limit - 1}; see limit=…")
        taken.add(id)
    free = (id for id in range(limit) if id not in taken and id not in known)
    found = [id if isinstance(id, int) else next(free, -1) for id in many.ids]
    if -1 in found:
        raise SubscriptionError(f"{len(many)} subscriptions: expected at most {limit}; see limit=…")
    return found


def columns_of_listed(many: Listing, space: str, track: Track = untracked) -> FilterColumns:
    """Subscriptions as columns, checked.

    Args:
        many: the subscriptions.
        space: where areas must be.
        track: is told of long loops.

    Raises:
        SubscriptionError: one is malformed; it says where it stands.
    """
    try:
        columns = columns_of_texts(many.texts, track)
    except SubscriptionError:
        for number, text in enumerate(many.texts):
            try:
                parse_subscription(text)
            except SubscriptionError as error:
                raise error.within(many.where(number)) from None
        raise
    columns.check(space)
    return columns
