"""How events leave a match stone: each with the ids that it satisfies, or out of the ports of these.

Whole batches at a time. An event with ids is the event's own bytes with an array behind them: the field of
ids is declared last, and what varies in width stands last in an event, so nothing else moves.
"""

from __future__ import annotations

from collections.abc import Iterator
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


def matched_schema(schema: Schema, field: str) -> Schema:
    """The schema of events with their ids: ``schema`` with one more field, ``array(i32,?)``, and another
    name.

    Raises:
        SchemaError: it has a field of that name already.

    Example:
        >>> from evflow import Schema, f64
        >>> matched_schema(Schema("Trade", {"price": f64}), "subscriptions")
        Schema(Trade_matched: price f64, subscriptions array(i32,?))
    """
    key = f"with ids in {field}"
    made = schema.made.get(key)
    if made is None:
        made = schema.made[key] = _with_field(schema, field)
    found: Schema = made
    return found


def _with_field(schema: Schema, field: str) -> Schema:
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
    described = {**described, "name": name, "fields": [*described["fields"], [field, _IDS.text]]}
    return Schema.from_description(described | ({"records": held} if held else {}))


def with_ids(batch: EventBatch, matches: Matches, field: str, all_events: bool = False) -> EventBatch:
    """The events with the ids that they satisfy.

    Args:
        batch: N events.
        matches: what they satisfy.
        field: the name of the field of ids.
        all_events: also those that satisfy nothing, with an empty array.

    Returns:
        The events with a match, or all, in order, with their attributes.

    Raises:
        SchemaError: they have a field of that name already.
    """
    schema = matched_schema(batch.schema, field)
    counts = np.diff(matches.offsets)
    if not all_events:
        chosen = np.flatnonzero(counts)
        if len(chosen) < len(counts):
            batch, counts = batch.select(chosen), counts[chosen]
    whole = batch.compact()
    make = _ragged if whole.offsets is not None or len(matches.ids) > _MANY * len(counts) else _even
    data, offsets = make(whole, schema, counts, np.ascontiguousarray(matches.ids, "<i4"))
    return EventBatch(schema, data, len(counts), offsets, None, whole.attributes)


def _array_heads(counts: NDArray[np.int64]) -> NDArray[Any]:
    """What stands before the ids of each event."""
    heads = np.empty(len(counts), _HEAD)
    heads["mark"], heads["code"], heads["dimensions"] = 0xC9, i32.code, 1
    heads["length"] = 5 + 4 * counts
    heads["count"] = counts
    return heads


def _even(
    batch: EventBatch, schema: Schema, counts: NDArray[np.int64], ids: NDArray[np.int32]
) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    """Events of one width, with few ids: everything is put where it belongs by arrays of places."""
    width, before, header = batch.schema.width or 0, len(batch.schema.header), schema.header
    fronts = np.empty((len(counts), len(header) + width - before), np.uint8)
    fronts[:, : len(header)] = np.frombuffer(header, np.uint8)
    fronts[:, len(header) :] = batch.data.reshape(-1, width)[:, before:]
    return _tailed(fronts, counts, ids)


def _tailed(
    fronts: NDArray[np.uint8], counts: NDArray[np.int64], ids: NDArray[np.int32]
) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    """Rows of bytes, each with the array of its ids behind it."""
    rows, heads = len(counts), _array_heads(counts).view(np.uint8).reshape(-1, _HEAD.itemsize)
    fixed = np.concatenate([fronts, heads], axis=1)
    offsets = starts_of(fixed.shape[1] + 4 * counts)
    out = np.empty(int(offsets[-1]), np.uint8)
    _put(out, offsets[:-1], fixed)
    # Where an id goes: its own place among all ids, moved on by what stands before it.
    places = np.arange(len(ids)) * 4 + np.repeat(np.arange(1, rows + 1) * fixed.shape[1], counts)
    _put(out, places, ids.view(np.uint8).reshape(-1, 4))
    return frozen(out), offsets


def _put(out: NDArray[np.uint8], starts: NDArray[np.int64], pieces: NDArray[np.uint8]) -> None:
    """Copies rows of equal length to where each starts."""
    length = pieces.shape[1]
    if len(pieces):
        # A view in which every byte begins an item, so that one assignment copies items and not bytes.
        items: NDArray[Any] = np.ndarray((len(out) - length + 1,), f"V{length}", out, 0, (1,))
        items[starts] = pieces.view(f"V{length}").reshape(-1)


def _ragged(
    batch: EventBatch, schema: Schema, counts: NDArray[np.int64], ids: NDArray[np.int32]
) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    """Events of any width, with any number of ids, put together piece by piece."""
    rows, before, header = len(counts), len(batch.schema.header), schema.header
    starts = batch.offsets
    if starts is None:
        starts = np.arange(rows + 1) * (batch.schema.width or 0)
    bodies = _slices(batch.data, starts[:-1] + before, starts[1:])
    if len(ids) > _MANY * rows:
        ends = starts_of(4 * counts)
        heads, edges = _array_heads(counts).view(np.uint8), np.arange(rows + 1) * _HEAD.itemsize
        behind = [
            _slices(heads, edges[:-1], edges[1:]),
            _slices(ids.view(np.uint8), ends[:-1], ends[1:]),
        ]
    else:
        tails, ends = _tailed(np.empty((rows, 0), np.uint8), counts, ids)
        behind = [_slices(tails, ends[:-1], ends[1:])]
    pieces = zip([header] * rows, bodies, *behind, strict=True)
    offsets = starts_of(np.diff(starts) + (len(header) - before + _HEAD.itemsize) + 4 * counts)
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
