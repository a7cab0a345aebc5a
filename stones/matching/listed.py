"""What a graph itself subscribes at a match stone: a list in the program, or a file.

A file of text has a subscription a line. Before it may stand an id, a port or both, and a colon; a line of
JSON says the same by name; empty lines and those that begin with ``#`` are left out::

    delay > 45
    7: delay > 45 and carrier == 'UA'
    8@2: within(40.64, -73.78, 50 km)
    {"subscription": "delay > 90", "id": 9, "port": 1}
"""

from __future__ import annotations

import re
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from evflow.errors import SubscriptionError
from evflow.matching.columns.bulk import FilterColumns, as_subscription
from evflow.matching.model import Filter, Subscription
from evflow.outside import Malformed, from_json, shown

_NUMBERED = re.compile(r"(?P<id>\d+)?\s*(?:@\s*(?P<port>\d+))?\s*:\s*(?P<text>.*)")
_KEYS = {"subscription", "id", "port"}


class Listed(NamedTuple):
    """A subscription of a graph.

    Attributes:
        text: what it says.
        id: its id; None for a free one.
        port: the port that matching events leave by.
        where: where it stands, for errors.
    """

    text: str
    id: int | None
    port: int
    where: str


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
        id, port = one.get("id"), one.get("port")
        return Listed(_text(one["subscription"], where), _whole(id, where), _whole(port, where) or 0, where)
    return Listed(_text(one, where), None, 0, where)


def _text(one: object, where: str) -> str:
    if not isinstance(one, str | Filter | Subscription):
        raise SubscriptionError(f"{where}: expected a subscription as text or object, found {shown(one)}")
    return str(one)


def _whole(value: object, where: str) -> int | None:
    if value is None or (isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 1 << 31):
        return value
    raise SubscriptionError(f"{where}: id or port {shown(value)}: expected a whole number from 0 on")


def read_lines(path: Path) -> tuple[Listed, ...]:
    """The subscriptions of a file of text.

    Raises:
        SubscriptionError: it cannot be read, or a line is malformed; names the line.
    """
    try:
        lines = path.read_text("utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise SubscriptionError(f"subscriptions of {path} cannot be read: {error}") from None
    return tuple(_of_lines(lines, path))


def _of_lines(lines: Sequence[str], path: Path) -> Iterator[Listed]:
    for number, line in enumerate(lines, 1):
        text, where = line.strip(), f"{path}, line {number}"
        if text.startswith("{"):
            try:
                read = from_json(text)
            except Malformed as error:
                raise SubscriptionError(f"{where}: {error}") from None
            yield _listed(read, where)
        elif text and not text.startswith("#"):
            begun = _NUMBERED.fullmatch(text)
            if begun is None:
                yield Listed(text, None, 0, where)
            else:
                id, port = (None if begun[key] is None else int(begun[key]) for key in ("id", "port"))
                yield Listed(begun["text"], _whole(id, where), _whole(port, where) or 0, where)


def numbered(many: Sequence[Listed], limit: int, known: Container[int] = ()) -> list[int]:
    """The ids: those that are given, and for the others the smallest that are free, in order.

    Args:
        many: the subscriptions.
        limit: ids must be below it.
        known: ids that are in use.

    Raises:
        SubscriptionError: an id is in use, stands twice, or is not below ``limit``.
    """
    taken: set[int] = set()
    for one in many:
        if one.id is None:
            continue
        if one.id in taken or one.id in known:
            raise SubscriptionError(f"{one.where}: id {one.id} is in use already")
        if one.id >= limit:
            raise SubscriptionError(f"{one.where}: id {one.id}: expected 0 to {limit - 1}; see limit=…")
        taken.add(one.id)
    free = (id for id in range(limit) if id not in taken and id not in known)
    found = [next(free, -1) if one.id is None else one.id for one in many]
    if -1 in found:
        raise SubscriptionError(f"{len(many)} subscriptions: expected at most {limit}; see limit=…")
    return found


def columns_of_listed(many: Sequence[Listed], space: str) -> FilterColumns:
    """Subscriptions as columns, checked.

    Raises:
        SubscriptionError: one is malformed; it says where it stands.
    """
    parsed = [_parsed(one) for one in many]
    columns = FilterColumns.from_subscriptions(parsed)
    columns.check(space)
    return columns


def _parsed(one: Listed) -> Subscription:
    try:
        return as_subscription(one.text)
    except SubscriptionError as error:
        raise error.within(one.where) from None
