"""How events leave a match stone: each with the ids that it satisfies, or out of the ports of these.

Whole batches at a time. An event with ids is the event's own bytes with arrays behind them: the fields of
ids are declared last, and what varies in width stands last in an event, so nothing else moves.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import chain
from typing import Any

import numpy as np
from numpy.typing import NDArray

from evflow.errors import SchemaError
from evflow.events.batch import EventBatch
from evflow.events.gather import frozen, starts_of
from evflow.matching.engine import Matches
from evflow.schema import Schema
from evflow.schema.description import held_records
from evflow.schema.types import Array, i32

_IDS = Array(i32, (None,))
_HEAD = np.dtype([("mark", "u1"), ("length", ">u4"), ("code", "u1"), ("dimensions", "u1"), ("count", "<u4")])
# Ids an event from which one copy an event is cheaper than one index an id.
_MANY = 64
# Bytes from which a piece is not copied needlessly.
_LONG = 1024
# Bytes of a table of events and ports that are always cheaper than sorting.
_TABLE = 1 << 20


Counts = NDArray[np.int64]
Columns = Mapping[str, Matches]
"""Ids to go along with events, by the field that is to have them."""


def matched_schema(schema: Schema, *fields: str) -> Schema:
    """The schema of events with their ids: ``schema`` with a field ``array(i32,?)`` more for each of
    ``fields``, and another name.

    Raises:
        SchemaError: it has a field of that name already.

    Example:
        >>> from evflow import Schema, f64
        >>> matched_schema(Schema("Trade", {"price": f64}), "subscriptions")
        Schema(Trade_matched: price f64, subscriptions array(i32,?))
    """
    key = f"with ids in {' '.join(fields)}"
    made = schema.made.get(key)
    if made is None:
        made = schema.made[key] = _with_fields(schema, fields)
    found: Schema = made
    return found


def _with_fields(schema: Schema, fields: Sequence[str]) -> Schema:
    for field in fields:
        if field in schema:
            raise SchemaError(
                f"events of {schema.name} have a field {field!r} already; give the ids another name, field=…"
            )
    described, records = schema.description, held_records(schema)
    name = f"{schema.name}_matched"
    while name in records:
        name += "_"
    held = dict(described.get("records", {}))
    if schema.name in records:
        held[schema.name] = described["fields"]
    more = [[field, _IDS.text] for field in fields]
    described = {**described, "name": name, "fields": [*described["fields"], *more]}
    return Schema.from_description(described | ({"records": held} if held else {}))


def with_ids(batch: EventBatch, columns: Columns, all_events: bool = False) -> EventBatch:
    """The events with the ids that they satisfy.

    Args:
        batch: N events.
        columns: the ids of these; one field at least.
        all_events: also those without any id, with empty arrays.

    Returns:
        The events with an id, or all, in order, with their attributes.

    Raises:
        SchemaError: they have a field of that name already.
    """
    schema = matched_schema(batch.schema, *columns)
    counts = [np.diff(matches.offsets) for matches in columns.values()]
    if not all_events:
        chosen = np.flatnonzero(_total(counts))
        if len(chosen) < len(batch):
            batch, counts = batch.select(chosen), [of_column[chosen] for of_column in counts]
    whole = batch.compact()
    ids = [np.ascontiguousarray(matches.ids, "<i4") for matches in columns.values()]
    many = max(map(len, ids)) > _MANY * len(batch)
    make = _ragged if whole.offsets is not None or many else _even
    data, offsets = make(whole, schema, counts, ids)
    return EventBatch(schema, data, len(batch), offsets, None, whole.attributes)


def ids_each(columns: Columns) -> Counts:
    """How many ids each event has in all columns together."""
    return _total([np.diff(matches.offsets) for matches in columns.values()])


def _total(counts: Sequence[Counts]) -> Counts:
    # Of one column without a copy.
    first, *others = counts
    for more in others:
        first = first + more
    return first


def _array_heads(counts: Counts) -> NDArray[np.uint8]:
    """What stands before the ids of each event: the bytes, (N, length)."""
    heads = np.empty(len(counts), _HEAD)
    heads["mark"], heads["code"], heads["dimensions"] = 0xC9, i32.code, 1
    heads["length"] = 5 + 4 * counts
    heads["count"] = counts
    return heads.view(np.uint8).reshape(-1, _HEAD.itemsize)


def _even(
    batch: EventBatch, schema: Schema, counts: Sequence[Counts], ids: Sequence[NDArray[np.int32]]
) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    """Events of one width, with few ids: everything is put where it belongs by arrays of places."""
    width, before, header = batch.schema.width or 0, len(batch.schema.header), schema.header
    fronts = np.empty((len(batch), len(header) + width - before), np.uint8)
    fronts[:, : len(header)] = np.frombuffer(header, np.uint8)
    fronts[:, len(header) :] = batch.data.reshape(-1, width)[:, before:]
    return _tailed(fronts, counts, ids)


def _tailed(
    fronts: NDArray[np.uint8], counts: Sequence[Counts], ids: Sequence[NDArray[np.int32]]
) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    """Rows of bytes, each with its arrays of ids behind it."""
    # The first array's head goes with the bytes before it.
    fixed = np.concatenate([fronts, _array_heads(counts[0])], axis=1)
    offsets = starts_of(fixed.shape[1] + (len(ids) - 1) * _HEAD.itemsize + 4 * _total(counts))
    out = np.empty(int(offsets[-1]), np.uint8)
    at = offsets[:-1]
    for column, (of_column, listed) in enumerate(zip(counts, ids, strict=True)):
        piece = _array_heads(of_column) if column else fixed
        _put(out, at, piece)
        at = at + piece.shape[1]
        # Where an id goes: its own place among all ids, moved on by what stands before it.
        before = 4 * (np.cumsum(of_column) - of_column)
        places = np.arange(len(listed)) * 4 + np.repeat(at - before, of_column)
        _put(out, places, listed.view(np.uint8).reshape(-1, 4))
        at = at + 4 * of_column
    return frozen(out), offsets


def _put(out: NDArray[np.uint8], starts: NDArray[np.int64], pieces: NDArray[np.uint8]) -> None:
    """Copies rows of equal length to where each starts."""
    length = pieces.shape[1]
    if len(pieces):
        # A view in which every byte begins an item, so that one assignment copies items and not bytes.
        items: NDArray[Any] = np.ndarray((len(out) - length + 1,), f"V{length}", out, 0, (1,))
        items[starts] = pieces.view(f"V{length}").reshape(-1)


def _ragged(
    batch: EventBatch, schema: Schema, counts: Sequence[Counts], ids: Sequence[NDArray[np.int32]]
) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    """Events of any width, with any number of ids, put together piece by piece."""
    rows, before, header = len(batch), len(batch.schema.header), schema.header
    starts = batch.offsets
    if starts is None:
        starts = np.arange(rows + 1) * (batch.schema.width or 0)
    bodies = _slices(batch.data, starts[:-1] + before, starts[1:])
    if max(map(len, ids)) > _MANY * rows:
        behind = []
        for of_column, listed in zip(counts, ids, strict=True):
            ends = starts_of(4 * of_column)
            heads, edges = _array_heads(of_column).reshape(-1), np.arange(rows + 1) * _HEAD.itemsize
            behind.append(_slices(heads, edges[:-1], edges[1:]))
            behind.append(_slices(listed.view(np.uint8), ends[:-1], ends[1:]))
    else:
        tails, ends = _tailed(np.empty((rows, 0), np.uint8), counts, ids)
        behind = [_slices(tails, ends[:-1], ends[1:])]
    pieces = zip([header] * rows, bodies, *behind, strict=True)
    more = len(header) - before + len(ids) * _HEAD.itemsize
    offsets = starts_of(np.diff(starts) + more + 4 * _total(counts))
    return np.frombuffer(b"".join(chain.from_iterable(pieces)), np.uint8), offsets


def _slices(
    data: NDArray[np.uint8], starts: NDArray[np.int64], ends: NDArray[np.int64]
) -> list[bytes] | list[memoryview]:
    places = zip(starts.tolist(), ends.tolist(), strict=True)
    if len(data) > _LONG * len(starts):
        memory = data.data
        return [memory[start:end] for start, end in places]
    # Short pieces of bytes are copied faster than a view of memory is made.
    whole = data.tobytes()
    return [whole[start:end] for start, end in places]


def ports_of(matches: Matches, ports: NDArray[np.int32]) -> Iterator[tuple[int, NDArray[np.intp]]]:
    """Each port that some event leaves by, and the positions of these events, increasing, each once.

    Args:
        matches: what N events satisfy.
        ports: the port of each subscription, by id.

    Example:
        >>> matches = Matches(np.array([0, 2, 2, 3]), np.array([0, 1, 1], np.int32))
        >>> [(port, events.tolist()) for port, events in ports_of(matches, np.array([0, 7], np.int32))]
        [(0, [0]), (7, [0, 2])]
    """
    if not len(matches.ids):
        return
    counts, leaving = np.diff(matches.offsets), ports[matches.ids]
    events, top = len(counts), int(leaving.max())
    if int(leaving.min()) == top:
        yield top, np.flatnonzero(counts)
        return
    of_event = np.repeat(np.arange(events), counts)
    if (top + 1) * events <= max(_TABLE, 8 * len(leaving)):
        table = np.zeros((top + 1, events), np.bool_)
        table[leaving, of_event] = True
        for port in np.flatnonzero(table.any(axis=1)).tolist():
            yield port, np.flatnonzero(table[port])
        return
    pairs = np.unique(leaving.astype(np.int64) * events + of_event)
    found, begin = np.unique(pairs // events, return_index=True)
    for port, positions in zip(found.tolist(), np.split(pairs % events, begin[1:]), strict=True):
        yield port, positions


def columns_by_port(
    columns: Columns, ports: NDArray[np.int32]
) -> Iterator[tuple[int, NDArray[np.intp], dict[str, Matches]]]:
    """Each port that some event leaves by, the positions of these events, and their ids for this port.

    Args:
        columns: the ids of N events.
        ports: the port of each subscription, by id.

    Example:
        >>> enter = Matches(np.array([0, 2, 2, 3]), np.array([0, 1, 1], np.int32))
        >>> ports = np.array([0, 7], np.int32)
        >>> for port, events, held in columns_by_port({"enter": enter}, ports):
        ...     print(port, events.tolist(), held["enter"].ids.tolist())
        0 [0] [0]
        7 [0, 2] [1, 1]
    """
    events: dict[str, NDArray[np.intp]] = {}
    ids: dict[str, NDArray[np.int32]] = {}
    leaving: list[NDArray[np.int32]] = []
    for name, matches in columns.items():
        of_event = np.repeat(np.arange(len(matches)), np.diff(matches.offsets))
        # Stable, so the ids of a port are in the order of the events.
        order = np.argsort(ports[matches.ids], kind="stable")
        events[name], ids[name] = of_event[order], matches.ids[order]
        leaving.append(ports[ids[name]])
    for port in np.unique(np.concatenate(leaving)).tolist():
        parts = {
            name: slice(*np.searchsorted(of_name, [port, port + 1]))
            for name, of_name in zip(columns, leaving, strict=True)
        }
        positions = np.unique(np.concatenate([events[name][part] for name, part in parts.items()]))
        held = {}
        for name, part in parts.items():
            counts = np.bincount(np.searchsorted(positions, events[name][part]), minlength=len(positions))
            held[name] = Matches(starts_of(counts), ids[name][part])
        yield port, positions, held
