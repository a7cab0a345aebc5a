"""Moves from what a program gives: ids, zones, and the events that it asks for."""

from __future__ import annotations

from collections.abc import Collection, Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray

from evflow.errors import EvflowError
from evflow.matching.areas.columns import AreaColumns
from evflow.matching.model import Area
from evflow.tiles.kernels import zones as kernels
from evflow.tiles.kernels.fields import ZONE
from evflow.tiles.messages import BOX, ENTER, INSIDE, LEAVE, MOVE, POLYGON, Rows, words
from evflow.tiles.store import Contents, outline_of

__all__ = ["ASKED", "MOST_ID", "MOST_TILES", "Zones", "are_zones", "asked_of", "drawn", "moves_of"]

Zones = ArrayLike | Area | Sequence[Area] | AreaColumns
"""One zone or many: see ``Connection``."""

ASKED = ENTER | INSIDE | LEAVE
"""The flags of the events that a subscription may ask for."""

MOST_ID = (1 << 62) - 1
MOST_TILES = 4096
"""Tiles that a zone may touch."""

_EVENTS = {"enter": ENTER, "inside": INSIDE, "leave": LEAVE}


def asked_of(events: Collection[str]) -> int:
    """The flags of the events that a subscription asks for; 0 for matches.

    Args:
        events: ``match``, or some of ``enter``, ``inside`` and ``leave``.

    Raises:
        EvflowError: they are neither.
    """
    named = set() if isinstance(events, str) else set(events)
    if named == {"match"}:
        return 0
    if not named or not named <= _EVENTS.keys():
        raise EvflowError(f"events {events!r}: expected ('match',), or some of enter, inside and leave")
    return sum(_EVENTS[event] for event in named)


def are_zones(rows: Rows, contents: Contents) -> NDArray[np.bool_]:
    """Which moves have the numbers of a circle or a box, or a polygon whose outline is known.

    Args:
        rows: the moves.
        contents: has the outlines.
    """
    found = np.empty(len(rows), np.uint8)
    kernels.are_zones(words(rows), found, contents.shapes)
    return found.view(np.bool_)


def moves_of(flags: int, ids: ArrayLike, zones: Zones | None) -> tuple[Rows, dict[int, tuple[bytes, ...]]]:
    """Moves of these ids to these zones, and the outlines of polygons by number.

    Args:
        flags: of all of them, such as ``SUBSCRIPTION``.
        ids: one integer, or (N,).
        zones: one zone or many: see ``Connection``; None for none.

    Raises:
        EvflowError: they do not fit together, or a number is none.
    """
    listed = np.atleast_1d(np.asarray(ids))
    if listed.ndim != 1 or listed.dtype.kind not in "iu" or (len(listed) and int(listed.min()) < 0):
        raise EvflowError(f"ids {ids!r}: expected an integer of at least 0, or an array of them")
    rows = np.zeros(len(listed), MOVE)
    rows["id"], rows["flags"] = listed, flags
    if zones is None:
        return rows, {}
    if isinstance(zones, Area):
        zones = [zones]
    if isinstance(zones, AreaColumns) or (
        isinstance(zones, Sequence) and zones and isinstance(zones[0], Area)
    ):
        areas = zones if isinstance(zones, AreaColumns) else AreaColumns.of(zones, "globe")  # type: ignore[arg-type]
        return rows, drawn(rows, areas)
    try:
        held = np.atleast_2d(np.asarray(zones, np.float64))
    except (TypeError, ValueError) as error:
        raise EvflowError(f"zones: expected (N, 3) or (N, 4) numbers, or areas: {error}") from None
    n, width = held.shape[0], held.shape[1]
    if held.ndim != 2 or n != len(rows) or width not in (3, 4):
        raise EvflowError(
            f"zones of shape {held.shape}: expected ({len(rows)}, 3) for circles, ({len(rows)}, 4) for boxes"
        )
    if not np.isfinite(held).all():
        raise EvflowError(f"zone {held[~np.isfinite(held).all(1)][0].tolist()}: expected finite numbers")
    rows["zone"][:, :width] = held
    if width == 4:
        rows["kind"] = BOX
    return rows, {}


def drawn(rows: Rows, areas: AreaColumns) -> dict[int, tuple[bytes, ...]]:
    """Writes areas as the zones of moves.

    Args:
        rows: the moves.
        areas: as many.

    Returns:
        The outlines of polygons by number.

    Raises:
        EvflowError: there are more or fewer, some are not on the globe, or a polygon has too many corners.
    """
    if areas.space != "globe" or len(areas) != len(rows) or not areas.kind.all():
        raise EvflowError(
            f"zones: expected {len(rows)} areas on the globe, found {len(areas)}, {areas.space}"
        )
    # A point is a circle without a radius.
    rows["kind"], rows["zone"] = np.maximum(areas.kind, 2) - 2, areas.numbers
    over = (rows["kind"] == BOX) & (areas.numbers[:, 3] < areas.numbers[:, 1])
    rows["zone"][over, 3] += 360.0
    found = {}
    for at in np.flatnonzero(rows["kind"] == POLYGON).tolist():
        first, last = areas.start[at : at + 2]
        rings = areas.rings[first : last + 1]
        number, outline = outline_of(areas.corners[rings[0] : rings[-1]], rings - rings[0])
        found[number], words(rows)[at, ZONE] = outline, number
    return found
