"""What the roles say to one another: batches of rows, as structured arrays whose every row is whole words.

Kernels read a row as 64-bit words, so the order and the widths of these fields are theirs too.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

__all__ = [
    "AGAIN",
    "BOX",
    "CIRCLE",
    "ELSEWHERE",
    "ENTER",
    "EVENTS",
    "GONE",
    "INSIDE",
    "LEAVE",
    "MATCH",
    "MOST_ROWS",
    "MOVE",
    "SILENT",
    "SUBSCRIPTION",
    "POLYGON",
    "Message",
    "Outbox",
    "Place",
    "Rows",
]

Rows = NDArray[np.void]
"""Rows of ``MOVE`` or ``MATCH``, (N,)."""

CIRCLE, BOX, POLYGON = 0, 1, 2
"""Kinds of zones: latitude, longitude, radius in metres; south, west, north, east (this may exceed 180).

Of a polygon a move has the number of its outline in the bits of the first; a match has the box around it.
"""

SUBSCRIPTION, GONE, SILENT = 1, 2, 4
"""Flags of a move: of a subscription, not of a publication; a deletion; a copy that triggers no match."""

ENTER, INSIDE, LEAVE, ELSEWHERE, AGAIN = 8, 16, 32, 64, 128
"""Further ones: events that a subscription asks for; it has left this tile, and the zone is the new one; only
the connection of its client is new."""

EVENTS = ("match", "enter", "inside", "leave")
"""What the field ``event`` of a match says, by number."""

MOVE = np.dtype(
    [
        ("id", "<i8"),
        ("version", "<i8"),
        ("kind", "u1"),
        ("flags", "u1"),
        ("grid", "<u2"),
        ("home", "<u4"),
        ("content", "<i8"),
        ("issuer", "<i8"),
        ("sender", "<i8"),
        ("zone", "<f8", (4,)),
        ("tile", "<i8"),
    ]
)
"""The state of a publication or subscription: what a client, a Frontend and a State Manager send.

``home`` counts how often its client has connected anew; ``sender`` is where matches go: ``home``, and in 16
bits each the life and the number of the Frontend. ``content`` is the number of a set of attributes, ``tile``
the tile that a State Manager tells, ``grid`` the stage of its layout.
"""

MATCH = np.dtype(
    [
        ("pub", "<i8"),
        ("pub_version", "<i8"),
        ("sub", "<i8"),
        ("sub_version", "<i8"),
        ("sender", "<i8"),
        ("issuer", "<i8"),
        ("kind", "<i4"),
        ("event", "<i4"),
        ("zone", "<f8", (4,)),
    ]
)
"""A match: its key (the first four), where its client is connected, the client, the publication's zone.

``event`` is a number of ``EVENTS``. Until it gets to the client it has the events that its subscription asks
for as bits, 1 for *enter* to 4 for *leave*, and 8 if the zones have come apart.
"""

MOST_ROWS = 100_000
"""Rows of one message, where a role has many to send: those of a client that was away, or came anew; what one
that starts again has to know."""

MOST_POLYGONS = 200
"""Polygons of one message, where there are many: they may have 1,000 corners each."""


def words(rows: Rows) -> NDArray[np.int64]:
    """The same memory as 64-bit words, (N, words of a row).

    Args:
        rows: contiguous rows of ``MOVE`` or ``MATCH``.
    """
    return rows.view(np.int64).reshape(len(rows), rows.dtype.itemsize // 8)


def copied(rows: Rows) -> Rows:
    """A copy of rows, whole words at a time: numpy's own copies structured rows field by field.

    For the same reason rows are chosen by ``rows.compress`` and ``rows.take``, which copy them as they lie.

    Args:
        rows: contiguous rows of ``MOVE`` or ``MATCH``.
    """
    return words(rows).copy().reshape(-1).view(rows.dtype)


class Place(NamedTuple):
    """Where a process is in the layout.

    Attributes:
        role: ``frontend``, ``state``, ``tile`` or ``client``.
        group: the number of its replica group; of a Frontend or client its own number.
        replica: its number in the group.
    """

    role: str
    group: int
    replica: int = 0


@dataclass(frozen=True, slots=True)
class Message:
    """What goes over a link at once. Links keep the order; there is none between links.

    Attributes:
        kind: ``moves``, ``matches``, ``ack``, ``refused``, ``moved``, ``hello``, ``welcome``, ``ask``,
            ``snapshot``, ``sync``; while the layout changes ``gains``, ``handed``, ``kept``, too.
        rows: of ``MOVE`` or ``MATCH``.
        number: of the message on its link, where it is acknowledged; or the number that is; or the stage of
            the sender's layout, where it catches up or helps another to.
        contents: attribute sets and outlines that the receiver may not know, by number.
        at: where this part of all that is told begins, or is to begin, among the sender's entities.
        then: where the next part begins; 0 after the last one.
    """

    kind: str
    rows: Rows = field(default_factory=lambda: np.empty(0, MOVE))
    number: int = 0
    contents: dict[int, tuple[Any, ...]] = field(default_factory=dict)
    at: int = 0
    then: int = 0


Outbox = list[tuple[Place, Message]]
"""What a role wants to be sent, in this order."""
