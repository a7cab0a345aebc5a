"""What a run of a kernel gives back, and how it is read from the vectors that native code wrote."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import NamedTuple

import numpy as np
from msgspec import Struct, field

from evflow.codgen.llvm.stage import Routes
from evflow.codgen.memory import Array
from evflow.codgen.tree import Fault
from evflow.codgen.vectors import Vectors
from evflow.schema import Schema

Column = tuple[str, Array, Array]
"""An attribute's kind (``i``, ``f`` or ``s``), values (int64, float64, or str objects) and presence
(bool)."""


class Segment(Struct, eq=False):
    """Records of one buffer that arrived at an exit one after the other.

    Attributes:
        buffer: 0 for the input batch, else an index into ``Result.buffers``.
        count: how many.
        rows: int32: their rows in the buffer; None for all of them (of the input batch: all its rows).
        positions: int32: for each the position, in the input's selected order, of the event it came from;
            None where these are 0, 1, 2, ….
        attributes: those that may have been set on the way, by name; the others are those of the input
            events.
    """

    buffer: int
    count: int
    rows: Array | None
    positions: Array | None
    attributes: dict[str, Column] = field(default_factory=dict)

    def __len__(self) -> int:
        return self.count


class Records(Struct, eq=False):
    """The records that one output of one stage made.

    Attributes:
        schema: theirs.
        data: uint8: the records back to back.
        offsets: int64: where each starts and the last ends, if their width varies.
        rows: how many.
    """

    schema: Schema
    data: Array
    offsets: Array | None
    rows: int


class FaultNote(NamedTuple):
    """Why a stage gave up an event.

    Attributes:
        stone: of the stage.
        position: of the input event, in the input's selected order.
        buffer, row: where the event is that the stage saw; buffer 0 is the input batch.
        fault: what happened.
        line: in the function's source.
        value, bound: of ``INDEX`` the index, and how many elements there are; of ``FUEL`` the units that the
            event could spend.
        name: of ``INDEX`` what has those elements: a field, a variable or a queue.
    """

    stone: int
    position: int
    buffer: int
    row: int
    fault: Fault
    line: int
    value: int = 0
    bound: int = 0
    name: str = ""


def fault_notes(words: Array, names: Sequence[str]) -> list[FaultNote]:
    """The faults of a run, in order.

    Args:
        words: int64: what ``write_fault`` has added.
        names: what faults are about, by number.
    """
    return [
        FaultNote(
            stone, position, buffer, row, Fault(code & 0xFF), code >> 8 & 0xFFFF_FFFF, value, bound,
            names[code >> 40],
        )
        for stone, position, buffer, row, code, value, bound in words.reshape(-1, 7).tolist()
    ]  # fmt: skip


class Result(Struct, eq=False):
    """A run of a kernel.

    Attributes:
        counts: int64[stones, 4]: events in, out, dropped and faulted of each stone. For one that does not
            submit, in = out + dropped + faulted; what is submitted counts as out, or as dropped if its port
            is not linked.
        exits: for each exit what arrived, in order.
        buffers: the records made, by buffer number; None for buffer 0, the input batch.
        faults: events given up.
    """

    counts: Array
    exits: list[list[Segment]]
    buffers: list[Records | None]
    faults: list[FaultNote]


_KINDS = {0: "i", 1: "i", 2: "f", 3: "s"}


class ExitReader:
    """Reads the arrivals at one exit.

    Args:
        routes: the tree.
        exit_: the exit.
        vectors: the kernel's vectors.
    """

    def __init__(self, routes: Routes, exit_: int, vectors: Vectors) -> None:
        edges = routes.exits[exit_]
        self._vectors = vectors
        self._form = routes.form(exit_) if edges else "none"
        self._buffer = edges[0][1] if edges else 0
        self._once = len(edges) == 1
        self._single = bool(edges) and routes.buffers[self._buffer].single
        self._word = vectors.word("exit", exit_)
        self._origins = [vectors.word("origin", n) for n in range(len(routes.buffers))]
        self._attributes = [(n, vectors.word("attribute", exit_, n)) for n in routes.attributes(exit_)]

    def read(self, events: int, selection: Array | None) -> list[Segment]:
        """The arrivals of a run over ``events`` events."""
        if self._form == "rows":
            segment = self._rows(events, selection)
        elif self._form == "whole":
            segment = self._whole(events)
        elif self._form == "mixed":
            return self._mixed(selection)
        else:
            return []
        if segment is None:
            return []
        return list(self._with_attributes(segment, 0)) if self._attributes else [segment]

    def _rows(self, events: int, selection: Array | None) -> Segment | None:
        vectors, word = self._vectors, self._word
        count = vectors.count(word)
        if count == 0:
            return None
        if self._buffer:
            rows = vectors.take(word)
            return Segment(self._buffer, count, rows, self._origin(self._buffer)[rows])
        if count == events and self._once:
            return Segment(0, count, selection, None)
        positions = vectors.take(word)
        return Segment(0, count, positions if selection is None else selection[positions], positions)

    def _origin(self, buffer: int) -> Array:
        return self._vectors.take(self._origins[buffer])

    def _whole(self, events: int) -> Segment | None:
        count = self._vectors.count(self._origins[self._buffer])
        if count == 0:
            return None
        positions = None if self._single and count == events else self._origin(self._buffer)
        return Segment(self._buffer, count, None, positions)

    def _mixed(self, selection: Array | None) -> list[Segment]:
        codes = self._vectors.view(self._word)
        if not len(codes):
            return []
        buffers = codes >> 32
        rows = (codes & 0xFFFFFFFF).astype(np.int32)
        found: list[Segment] = []
        for start, stop in runs(buffers):
            buffer, part = int(buffers[start]), rows[start:stop]
            if buffer:
                segment = Segment(buffer, stop - start, part, self._origin(buffer)[part])
            else:
                segment = Segment(0, stop - start, part if selection is None else selection[part], part)
            found.extend(self._with_attributes(segment, start))
        return found

    def _with_attributes(self, segment: Segment, first: int) -> Iterator[Segment]:
        """The segment with the attributes set on the way, cut where the kind of one changes."""
        if not self._attributes:
            yield segment
            return
        stop = first + segment.count
        words = {name: self._vectors.view(word).reshape(-1, 3)[first:stop] for name, word in self._attributes}
        for start, end in runs(*(_settled(w[:, 0]) for w in words.values())):
            part = segment
            if end - start != segment.count:
                rows = np.arange(segment.count, dtype=np.int32) if segment.rows is None else segment.rows
                positions = (
                    np.arange(segment.count, dtype=np.int32)
                    if segment.positions is None
                    else segment.positions
                )
                part = Segment(segment.buffer, end - start, rows[start:end], positions[start:end])
            part.attributes = {name: self._column(w[start:end]) for name, w in words.items()}
            yield part

    def _column(self, words: Array) -> Column:
        kinds = words[:, 0]
        kind, present = _KINDS[int(kinds.max())], kinds != 0
        if kind == "s":
            values = np.empty(len(words), object)
            values[:] = [value or "" for value in _values(self._vectors, words)]
            return kind, values, present
        raw = np.where(present, words[:, 1], 0)
        return kind, raw.view(np.float64) if kind == "f" else raw, present


def read_attributes(vectors: Vectors, word: int, start: int, stop: int) -> list[int | float | str | None]:
    """The attributes that native code kept in a vector; None where one is not set."""
    return _values(vectors, vectors.view(word).reshape(-1, 3)[start:stop])


def _values(vectors: Vectors, words: Array) -> list[int | float | str | None]:
    texts = vectors.view(vectors.word("texts")).tobytes()
    floats = words[:, 1].copy().view(np.float64).tolist()
    values: list[int | float | str | None] = []
    for (kind, bits, size), number in zip(words.tolist(), floats, strict=True):
        if kind == 3:
            values.append(texts[bits : bits + size].decode("utf-8", "surrogateescape"))
        else:
            values.append(bits if kind == 1 else number if kind == 2 else None)
    return values


def _settled(kinds: Array) -> Array:
    """Kinds where an event without the attribute counts as one of the kind before, or of the first after."""
    known = np.flatnonzero(kinds)
    if not len(known):
        return kinds
    index = np.searchsorted(known, np.arange(len(kinds)), side="right") - 1
    return kinds[known[np.maximum(index, 0)]]


def runs(*columns: Array) -> Iterator[tuple[int, int]]:
    """(start, stop) of the longest runs over which no column changes."""
    changes = np.zeros(len(columns[0]) - 1, np.bool_)
    for column in columns:
        changes |= column[1:] != column[:-1]
    cuts = [0, *(np.flatnonzero(changes) + 1).tolist(), len(columns[0])]
    yield from pairwise(cuts)
