"""Filters and constraints as kernels read them.

Constraints stand in rows, one for each attribute name: ``Constraints`` of CCM (section 4.1, figure 2a).
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from evflow.gpu.column import Column
from evflow.gpu.device import Device
from evflow.gpu.pack import blooms
from evflow.matching.operators import Op
from evflow.matching.rows import Filters

AREA = 14
ALWAYS = 15
"""Operators beside those of ``Op``: the place lies in the filter's area; true."""

TEXT_OPERAND = 16
"""Added to an operator whose operand is a string."""

NEEDS_CHARS = np.zeros(64, bool)
NEEDS_CHARS[[TEXT_OPERAND + op for op in Op if op.holds and op > Op.NE]] = True
"""Which codes compare the bytes of strings, by code."""


def coded(op: NDArray[np.uint8], number: NDArray[np.float64], text: NDArray[np.int32]) -> tuple[Any, Any]:
    """Operators and operands as kernels read them.

    Args:
        op: as in ``Filters``, like the others.
        number: the operands that are numbers.
        text: the operands that are strings, or -1.

    Returns:
        uint8 codes, and float64 operands: numbers, or the numbers of strings.
    """
    is_text = text >= 0
    return op + np.uint8(TEXT_OPERAND) * is_text, np.where(is_text, text, number)


class ConstraintTable:
    """Rows with room to grow, one behind the other.

    A row that is full moves to the end, into twice the room. Constraints of filters that are gone stay until
    ``fill``; their filters are never satisfied.

    Attributes:
        start: int64: where the row of a name starts.
        count: int64: how many constraints it has.
        needs_chars: bool: whether some of them compare the bytes of strings.
    """

    def __init__(self, device: Device) -> None:
        self.code = Column(np.uint8, 1, device)
        self.operand = Column(np.float64, 1, device)
        self.filter = Column(np.int32, 1, device)
        self.start = np.zeros(0, np.int64)
        self.count = np.zeros(0, np.int64)
        self._room = np.zeros(0, np.int64)
        self.needs_chars = np.zeros(0, bool)

    @property
    def columns(self) -> dict[str, Column]:
        """All columns."""
        return {"code": self.code, "operand": self.operand, "filter": self.filter}

    def __len__(self) -> int:
        return int(self.count.sum())

    def has(self, rows: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Whether there are constraints in these rows, which need not be there."""
        found = rows < len(self.start)
        found[found] = self.count[rows[found]] > 0
        return found

    def reserve(self, names: NDArray[np.int32]) -> None:
        """Makes room for constraints with these names; after a DeviceError no row has changed."""
        if not len(names):
            return
        rows = int(names.max()) + 1
        if rows > len(self.start):
            missing = rows - len(self.start)
            self.start, self.count, self._room, self.needs_chars = (
                np.append(column, np.zeros(missing, column.dtype))
                for column in (self.start, self.count, self._room, self.needs_chars)
            )
        more = np.bincount(names, minlength=len(self.start))
        short = np.flatnonzero(self.count + more > self._room)
        # The first constraints of a row get the room they need, later ones twice that.
        rooms = np.where(self.count[short] > 0, 2, 1) * (self.count + more)[short]
        for column in self.columns.values():
            column.reserve(self.code.length + int(rooms.sum()))
        for row, room in zip(short.tolist(), rooms.tolist(), strict=True):
            self._move_row(row, room)

    def _move_row(self, row: int, room: int) -> None:
        first, count, to = int(self.start[row]), int(self.count[row]), self.code.length
        for column in self.columns.values():
            values = np.zeros(room, column.host.dtype)
            values[:count] = column.host[first : first + count]
            column.extend(values)
        self.start[row], self._room[row] = to, room

    def add(
        self,
        names: NDArray[np.int32],
        codes: NDArray[np.uint8],
        operands: NDArray[np.float64],
        filters: NDArray[np.int64],
    ) -> None:
        """Puts constraints, for which there is room, into the rows of their names."""
        order = np.argsort(names, kind="stable")
        names = names[order]
        first = np.flatnonzero(np.append(True, names[1:] != names[:-1])[: len(names)])
        bounds = np.append(first, len(names)).tolist()
        rows = names[first].tolist()
        for row, begin, end in zip(rows, bounds[:-1], bounds[1:], strict=True):
            part = order[begin:end]
            at = int(self.start[row] + self.count[row])
            where = slice(at, at + len(part))
            self.code.write(where, codes[part])
            self.operand.write(where, operands[part])
            self.filter.write(where, filters[part])
            self.count[row] += len(part)
            self.needs_chars[row] |= NEEDS_CHARS[codes[part]].any()

    def fill(
        self,
        names: NDArray[np.int32],
        codes: NDArray[np.uint8],
        operands: NDArray[np.float64],
        filters: NDArray[np.int64],
    ) -> None:
        """Puts constraints, for which there is room, in the place of all."""
        for column in self.columns.values():
            column.length = 0
        for rows in (self.start, self.count, self._room):
            rows[:] = 0
        self.reserve(names)
        self.add(names, codes, operands, filters)


NOBODY = -1
"""The reach of a filter that is gone: no place is so near."""

GONE = {"subscription": -1, "size": 0xFFFFFFFF, "centre": 0, "reach": NOBODY}
"""A filter that is gone: nobody's, of so many constraints that it is never satisfied, near to no place."""


def filter_columns(dimensions: int, device: Device) -> dict[str, Column]:
    """What kernels read of filters: ``size`` is how many constraints there are, ``bloom`` bits of names."""
    return {
        "subscription": Column(np.int32, 1, device),
        "size": Column(np.uint32, 1, device),
        "bloom": Column(np.uint32, 1, device),
        "centre": Column(np.float64, dimensions, device),
        "reach": Column(np.float64, 1, device),
    }


def filter_values(filters: Filters) -> dict[str, NDArray[Any]]:
    """The values of ``filter_columns`` for some filters."""
    start = filters.start
    return {
        "subscription": filters.subscription,
        "size": np.diff(start),
        "bloom": blooms(filters.name[start[0] : start[-1]], start - start[0]),
        "centre": filters.centre,
        "reach": filters.reach,
    }
