"""Filters as bytes that travel through Spark: one row of Arrow, whose columns are lists."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from evflow.matching import FilterColumns

__all__ = ["Piece", "chosen", "pack", "unpack"]

Int64s = NDArray[np.int64]

_ARRAYS = ("start", "name", "op", "number", "text", "subscription", "x", "y", "radius")
_WORDS = ("names", "texts")


@dataclass(frozen=True, slots=True)
class Piece:
    """Some subscriptions of a DataFrame, checked.

    Attributes:
        columns: their filters, those of a subscription next to each other.
        ids: int64, one a subscription: what the DataFrame calls them.
    """

    columns: FilterColumns
    ids: Int64s

    @property
    def of(self) -> Int64s:
        """int64, one a filter: which of the ``ids`` it belongs to."""
        given = self.columns.subscription
        return np.arange(len(self.columns)) if given is None else given


def pack(piece: Piece) -> bytes:
    """The bytes of a piece.

    Example:
        >>> columns = FilterColumns.from_subscriptions(["temp > 30 or within(0, 0, 1)"])
        >>> there = unpack(pack(Piece(columns, np.array([7]))))
        >>> print(there.ids, *there.columns.to_subscriptions())
        [7] temp > 30 or within(0, 0, 1)
    """
    columns = piece.columns
    lists = {name: pa.array(getattr(columns, name), pa.large_string()) for name in _WORDS}
    for name in _ARRAYS:
        held = getattr(columns, name)
        if held is not None:
            lists[name] = pa.array(held)
    lists["ids"] = pa.array(piece.ids)
    row = {name: pa.LargeListArray.from_arrays([0, len(held)], held) for name, held in lists.items()}
    batch = pa.record_batch(row).replace_schema_metadata({"space": columns.space or ""})
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema) as writer:
        writer.write_batch(batch)
    found: bytes = sink.getvalue().to_pybytes()
    return found


def unpack(data: Any) -> Piece:
    """The piece of its bytes, without a copy of its numbers.

    Args:
        data: bytes, or a buffer of pyarrow.
    """
    with pa.ipc.open_stream(data) as reader:
        batch = reader.read_next_batch()
    lists = {name: batch.column(name).flatten() for name in batch.schema.names}
    arrays = {name: held.to_numpy() for name, held in lists.items() if name not in _WORDS}
    ids = arrays.pop("ids")
    words = {name: lists[name].to_pylist() for name in _WORDS}
    space = batch.schema.metadata[b"space"].decode() or None
    return Piece(FilterColumns(**words, **arrays, space=space, count=len(ids)), ids)


def chosen(piece: Piece, which: Int64s) -> Piece:
    """Some of the subscriptions of a piece, with all of their filters.

    Args:
        piece: all of them.
        which: indices of its ``ids``, rising.
    """
    columns, of = piece.columns, piece.of
    first = np.searchsorted(of, which)
    lengths = np.searchsorted(of, which, "right") - first
    filters = _ranges(first, lengths)
    sizes = np.diff(columns.start)[filters]
    at = _ranges(columns.start[:-1][filters], sizes)
    taken: dict[str, Any] = {name: getattr(columns, name)[at] for name in ("name", "op", "number")}
    taken["text"], taken["texts"] = _used(columns.text[at], columns.texts)
    for name in ("x", "y", "radius"):
        held = getattr(columns, name)
        taken[name] = None if held is None else held[filters]
    taken["start"] = np.concatenate([[0], np.cumsum(sizes)])
    taken["subscription"] = np.repeat(np.arange(len(which)), lengths)
    return Piece(replace(columns, **taken, count=len(which)), piece.ids[which])


def _ranges(start: Int64s, lengths: Int64s) -> Int64s:
    """The numbers from each start on, so many as its length says, one range after the other."""
    ends = np.cumsum(lengths)
    total = int(ends[-1]) if len(ends) else 0
    found: Int64s = np.arange(total) + np.repeat(start - (ends - lengths), lengths)
    return found


def _used(text: NDArray[np.int32], texts: Any) -> tuple[NDArray[np.int32], list[str]]:
    """Operands and only those strings that they are."""
    used, numbers = np.unique(text, return_inverse=True)
    kept = [texts[number] for number in used.tolist() if number >= 0]
    return (numbers - (len(used) - len(kept))).astype(np.int32), kept
