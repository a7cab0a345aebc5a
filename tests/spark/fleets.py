"""Recorded moves of fleets: as rows of Spark, as moves of a live system, and matched by brute force."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from evflow.tiles.grid import Grid
from evflow.tiles.moves import asked_of
from evflow.tiles.store import content_of
from tests.tiles.rows import moves, outlines
from tests.tiles.system import System
from tests.tiles.world import Polygon, Zone, gap

__all__ = ["Found", "Move", "brute_force", "in_order", "lived", "table"]

Found = tuple[str, int, int, int, int]
"""Event, publication and its time, subscription and its time."""

_CORNERS = pa.list_(pa.list_(pa.struct({"latitude": pa.float64(), "longitude": pa.float64()})))
_SCHEMA = pa.schema(
    {
        **dict.fromkeys(("id", "time"), pa.int64()),
        "deleted": pa.bool_(),
        **dict.fromkeys(("latitude", "longitude", "radius", "south", "west", "north", "east"), pa.float64()),
        "polygon": _CORNERS,
        "attributes": pa.struct({"kind": pa.string(), "seats": pa.int64(), "free": pa.bool_()}),
    }
)


@dataclass(frozen=True)
class Move:
    """A state of a publication or subscription; without a zone it is deleted."""

    subscription: bool
    id: int
    time: int
    zone: Zone | None
    attributes: tuple[tuple[str, Any], ...] = ()


def in_order(given: Iterable[Move]) -> list[Move]:
    """As they are told to happen: by time, subscriptions first, by id."""
    return sorted(given, key=lambda move: (move.time, not move.subscription, move.id))


def table(given: Sequence[Move]) -> pa.Table:
    """Moves of one side as rows."""
    return pa.Table.from_pylist([_row(move) for move in given], _SCHEMA)


def _row(move: Move) -> dict[str, Any]:
    zone = move.zone
    row: dict[str, Any] = {"id": move.id, "time": move.time, "attributes": dict(move.attributes)}
    if zone is None:
        return {**row, "deleted": True}
    if isinstance(zone, Polygon):
        corners = [{"latitude": north, "longitude": east} for north, east in zone.corners]
        return {**row, "polygon": [corners]}
    return {**row, **zone._asdict()}


def lived(given: Iterable[Move], events: Sequence[str], grid: Grid) -> list[Found]:
    """What a live system tells when the moves reach it one by one."""
    system, asked = System(1, grid=grid), asked_of(events)
    for move in in_order(given):
        number, content = content_of(dict(move.attributes))
        row = moves(
            [move.zone], [move.id], move.time, subscriptions=move.subscription, contents=number, asked=asked
        )
        system.send(row, {**outlines([move.zone]), **({number: content} if number else {})})
    assert not system.refused
    return [(event, *match) for (event, *_), match in zip(system.events, system.matches, strict=True)]


def brute_force(given: Iterable[Move], events: Sequence[str]) -> Iterator[Found]:
    """The same, pair by pair.

    Raises:
        ValueError: nobody can tell whether two zones overlap.
    """
    live: dict[bool, dict[int, Move]] = {False: {}, True: {}}
    inside = set[tuple[int, int]]()
    for move in in_order(given):
        for other in list(live[not move.subscription].values()):
            pub, sub = (other, move) if move.subscription else (move, other)
            pair, found = (pub.id, sub.id), (pub.id, pub.time, sub.id, sub.time)
            if matches := _match(pub, sub):
                told = "match" if "match" in events else "inside" if pair in inside else "enter"
                inside.add(pair)
            else:
                told = "leave" if pair in inside and sub.zone is not None else ""
                inside.discard(pair)
            if told in events and (matches or told == "leave"):
                yield told, *found
        if move.zone is None:
            live[move.subscription].pop(move.id, None)
        else:
            live[move.subscription][move.id] = move


def _match(pub: Move, sub: Move) -> bool:
    if pub.zone is None or sub.zone is None or not _covers(dict(pub.attributes), dict(sub.attributes)):
        return False
    away = gap(pub.zone, sub.zone)
    if abs(away) < 1e-3:
        raise ValueError
    return away < 0


def _covers(pub: Mapping[str, Any], sub: Mapping[str, Any]) -> bool:
    return all(name in pub and pub[name] == value for name, value in sub.items())
