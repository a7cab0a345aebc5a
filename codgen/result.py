"""What a run of a kernel gives back: counts, what arrived at each exit, the records made, and the faults."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from evflow.codgen.tree import Fault
from evflow.schema import Schema

__all__ = ["Column", "FaultNote", "Faults", "Records", "Result", "Segment"]

Array = np.ndarray[Any, np.dtype[Any]]

Column = tuple[str, Array, Array]
"""An attribute's kind (``i``, ``f`` or ``s``), values (int64, float64, or str objects) and presence
(bool)."""


@dataclass(slots=True, eq=False)
class Segment:
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


@dataclass(slots=True, eq=False)
class Records:
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


class Faults:
    """The faults of a run, in order.

    Args:
        words: int64: what ``write_fault`` has added.
        names: what faults are about, by number.

    Attributes:
        stone, position, buffer, row, code, line, value, bound: int64 arrays; see ``FaultNote``.
    """

    __slots__ = ("_about", "_names", "bound", "buffer", "code", "line", "position", "row", "stone", "value")

    def __init__(self, words: Array, names: Sequence[str] = ()) -> None:
        self.stone, self.position, self.buffer, self.row, packed, self.value, self.bound = words.reshape(
            -1, 7
        ).T
        self.code, self.line, self._about = packed & 0xFF, packed >> 8 & 0xFFFF_FFFF, packed >> 40
        self._names = names

    def __len__(self) -> int:
        return len(self.stone)

    def __iter__(self) -> Iterator[FaultNote]:
        columns = (
            self.stone, self.position, self.buffer, self.row, self.code, self.line, self.value, self.bound,
            self._about,
        )  # fmt: skip
        for stone, position, buffer, row, code, line, value, bound, about in zip(
            *(column.tolist() for column in columns), strict=True
        ):
            name = self._names[about]
            yield FaultNote(stone, position, buffer, row, Fault(code), line, value, bound, name)


NO_FAULTS = Faults(np.empty(0, np.int64))


@dataclass(slots=True, eq=False)
class Result:
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
    faults: Faults
