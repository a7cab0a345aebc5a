"""Messages as events and as plain data: what goes between hosts, and between a client and its Frontend."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import msgpack
import numpy as np

from evflow.errors import EvflowError
from evflow.events.batch import EventBatch
from evflow.events.event import Event
from evflow.outside import from_msgpack
from evflow.schema import Schema
from evflow.schema.types import Array, i64
from evflow.tiles.messages import MATCH, MOVE, Message, Place, Rows, words
from evflow.tiles.store import Content, content_of, outline_of

__all__ = ["ENVELOPE", "PART_ROWS", "contents_of", "envelope", "message_of", "packed", "parts", "unpacked"]

PART_ROWS = 20_000
"""Rows in one part of a message to or from a client, so that it is well below the 8 MiB of an answer."""

_MOST_GATHERED = 64 << 20


ENVELOPE = Schema(
    "tiles_message",
    {
        **dict.fromkeys(("origin", "host", "life", "to", "sequence"), int),
        "kind": str,
        "sender": str,
        "sender_group": int,
        "sender_replica": int,
        "target": str,
        "target_group": int,
        "target_replica": int,
        **dict.fromkeys(("number", "at", "then"), int),
        "contents": bytes,
        "rows": Array(i64, (None, None)),
    },
)
"""A message between hosts: its rows are one array, which is used as it lies.

``origin``, ``life`` and ``host`` say who sends: the random number of an incarnation, how often the host began
anew, its position. ``to`` is the incarnation that it is meant for, ``sequence`` counts the messages from one
incarnation to another. The rest is a ``Message``, the sender's ``Place`` and the receiver's; ``contents`` is
msgpack.
"""


_FROM = ("sender", "sender_group", "sender_replica")
_TO = ("target", "target_group", "target_replica")
_NOWHERE = Place("", 0)
_EMPTY = np.empty((0, 0), np.int64)


def envelope(
    kind: str,
    number: int = 0,
    *,
    origin: int,
    host: int,
    life: int,
    to: int = 0,
    sequence: int = 0,
    text: str = "",
    sender: Place = _NOWHERE,
    target: Place = _NOWHERE,
    message: Message | None = None,
) -> Event:
    """An envelope of a message, or one without a message, by which hosts know each other.

    Args:
        kind: of the message, or ``join``, ``joined``, ``alive``, ``dead``.
        number: see ``Message``.
        origin: the incarnation that sends.
        host: its position.
        life: its life.
        to: the incarnation that it is meant for.
        sequence: how many went there before.
        text: a contact, where it has no message.
        sender: see ``Message``.
        target: where it goes.
        message: the message.
    """
    rows, contents, at, then = _EMPTY, text.encode(), 0, 0
    if message is not None:
        rows, contents = words(np.ascontiguousarray(message.rows)), packed(message.contents)
        at, then = message.at, message.then
    made: Event = ENVELOPE(
        origin=origin,
        host=host,
        life=life,
        to=to,
        sequence=sequence,
        kind=kind,
        **dict(zip(_FROM, sender, strict=True)),
        **dict(zip(_TO, target, strict=True)),
        number=number,
        at=at,
        then=then,
        contents=contents,
        rows=rows,
    )
    return made


def batch_of(envelopes: Iterable[Event]) -> EventBatch:
    """Envelopes as a batch."""
    return EventBatch.from_events(envelopes, ENVELOPE)


def message_of(view: Any) -> tuple[Place, Place, Message]:
    """Sender, target and message of an envelope.

    Args:
        view: the event.

    Raises:
        EvflowError: its rows or contents are not those of a message.
    """
    kind = str(view.kind)
    dtype = MATCH if kind in ("matches", "ack", "kept") else MOVE
    held = np.array(view.rows, np.int64, order="C")
    if held.size and held.shape[1:] != (dtype.itemsize // 8,):
        raise EvflowError(
            f"message {kind!r}: expected rows of {dtype.itemsize // 8} words, found {held.shape}"
        )
    rows = held.reshape(-1).view(dtype)
    given = contents_of(bytes(view.contents))
    message = Message(kind, rows, int(view.number), given, int(view.at), int(view.then))
    sender = Place(str(view.sender), int(view.sender_group), int(view.sender_replica))
    return sender, Place(str(view.target), int(view.target_group), int(view.target_replica)), message


def packed(contents: dict[int, Content]) -> bytes:
    """Sets of attributes and outlines as msgpack; empty if there are none.

    Args:
        contents: by number.
    """
    return bytes(msgpack.packb(list(contents.values()))) if contents else b""


def contents_of(data: bytes) -> dict[int, Content]:
    """Sets and outlines by number, which is computed anew: nobody can give one the number of another.

    Args:
        data: what ``packed`` gave.

    Raises:
        EvflowError: it is something else.
    """
    if not data:
        return {}
    listed = from_msgpack(data, most=1 << 30)
    try:
        return dict(_content_of(content) for content in listed)
    except (TypeError, ValueError, LookupError) as error:
        raise EvflowError(
            f"contents of a message: expected lists of names and values, or of rings: {error}"
        ) from None


def _content_of(listed: list[Any]) -> tuple[int, Content]:
    if not isinstance(listed[0], bytes):
        return content_of(dict(listed))
    corners = np.frombuffer(b"".join(listed), np.float64).reshape(-1, 2)
    return outline_of(corners, np.cumsum([0, *(len(ring) // 16 for ring in listed)]))


def parts(message: Message) -> list[dict[str, Any]]:
    """A message to or from a client as plain data, in parts of at most ``PART_ROWS`` rows.

    Args:
        message: the message.
    """
    found = []
    for start in range(0, max(len(message.rows), 1), PART_ROWS):
        rows = message.rows[start : start + PART_ROWS]
        more = start + PART_ROWS < len(message.rows)
        part = {"kind": message.kind, "number": message.number, "rows": rows.tobytes(), "more": more}
        found.append(part if start else {**part, "contents": packed(message.contents)})
    return found


def unpacked(given: list[dict[str, Any]]) -> Message:
    """The message of which these are the parts.

    Args:
        given: all its parts, in order.

    Raises:
        EvflowError: they are not those of a message.
    """
    try:
        kind = str(given[0]["kind"])
        dtype = MATCH if kind == "matches" else MOVE
        rows: Rows = np.frombuffer(b"".join(part["rows"] for part in given), dtype)
        message = Message(kind, rows, int(given[0]["number"]))
        return replace(message, contents=contents_of(bytes(given[0].get("contents", b""))))
    except (TypeError, ValueError, KeyError, IndexError) as error:
        raise EvflowError(f"message of a client: expected kind, number and rows: {error!r}") from None


class Gathering:
    """Puts the parts of messages together."""

    def __init__(self) -> None:
        self._parts: list[dict[str, Any]] = []
        self._size = 0

    def take(self, listed: Iterable[dict[str, Any]]) -> list[Message]:
        """The messages that are whole now.

        Args:
            listed: parts, in order.
        """
        found = []
        for part in listed:
            self._parts.append(part)
            self._size += len(part.get("rows", b""))
            if self._size > _MOST_GATHERED:
                raise EvflowError(f"message: expected at most {_MOST_GATHERED} bytes, found more")
            if not part.get("more"):
                found.append(unpacked(self._parts))
                self._parts, self._size = [], 0
        return found
