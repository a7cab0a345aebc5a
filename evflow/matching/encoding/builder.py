"""Puts columns of values together to rows of attributes, in memory that each thread keeps for the next."""

from __future__ import annotations

import threading
from dataclasses import dataclass
from itertools import accumulate
from typing import Any

import numpy as np
from numpy.typing import NDArray

from evflow.matching.encoding.values import MISSING, kind_of, number_of
from evflow.matching.rows import NUMBER, OTHER, TEXT, EventRows
from evflow.matching.strings import Strings, utf8

_LARGEST = 32 << 20
"""Bytes that a thread keeps at most."""

_ALIGNED = 64

_KINDS = (np.int32, np.uint8, np.float64, np.int32, np.int64, np.int32)
Present = NDArray[np.bool_] | None


class _Memory(threading.local):
    """A block for each thread: to fetch pages from the system takes longer than to fill them."""

    def __init__(self) -> None:
        self._block = np.empty(0, np.uint8)

    def arrays(self, n: int) -> list[NDArray[Any]]:
        """Arrays of n zeros for each of ``_KINDS``, which are good until this thread's next call."""
        widths = [-(-n * np.dtype(kind).itemsize // _ALIGNED) * _ALIGNED for kind in _KINDS]
        total = sum(widths)
        if total > _LARGEST:
            return [np.zeros(n, kind) for kind in _KINDS]
        if total > len(self._block):
            self._block = np.empty(max(1 << total.bit_length(), 1 << 16), np.uint8)
        self._block[:total] = 0
        starts = accumulate(widths, initial=0)
        return [np.ndarray((n,), kind, self._block, at) for kind, at in zip(_KINDS, starts, strict=False)]


_memory = _Memory()


@dataclass(slots=True)
class _Part:
    """One attribute of all events; a column is None where all values are of the other kind."""

    name: int
    kind: int | NDArray[np.uint8]
    number: Any = None
    text: Any = None
    start: Any = None
    length: Any = None


class RowBuilder:
    """Collects the attributes of N events, one column each.

    Args:
        n: how many events.
        strings: what texts are looked up in.
    """

    def __init__(self, n: int, strings: Strings) -> None:
        self._n = n
        self._strings = strings
        self._parts: list[_Part] = []
        self._chars: list[NDArray[np.uint8]] = []

    def add_numbers(self, name: int, values: NDArray[Any], present: Present = None) -> None:
        """A column of numbers of any type; where ``present`` is false there is none."""
        self._parts.append(_Part(name, _kinds(NUMBER, present), number=values))

    def add_others(self, name: int, present: Present = None) -> None:
        """A column of which is only known that there is something."""
        self._parts.append(_Part(name, _kinds(OTHER, present)))

    def add_texts(
        self,
        name: int,
        chars: NDArray[np.uint8],
        start: NDArray[np.int64],
        length: NDArray[np.int32],
        present: Present = None,
    ) -> None:
        """A column of pieces of ``chars``; where ``present`` is false the piece is nonsense, but within."""
        text = self._strings.find(chars, start, length)
        self._parts.append(
            _Part(name, _kinds(TEXT, present), None, text, self._shifted(chars, start), length)
        )

    def add_objects(self, name: int, values: list[Any]) -> None:
        """A column of values of any kinds."""
        kinds = np.fromiter(map(kind_of, values), np.uint8, len(values))
        part = _Part(name, kinds)
        if (kinds == NUMBER).any():
            pairs = zip(values, (kinds == NUMBER).tolist(), strict=True)
            part.number = np.array([number_of(v) if chosen else 0.0 for v, chosen in pairs])
        if (kinds == TEXT).any():
            pairs = zip(values, (kinds == TEXT).tolist(), strict=True)
            pieces = [utf8(v) if chosen else b"" for v, chosen in pairs]
            part.length = np.fromiter(map(len, pieces), np.int32, len(pieces))
            ends = np.cumsum(part.length, dtype=np.int64)
            chars, start = np.frombuffer(b"".join(pieces), np.uint8), ends - part.length
            part.text = self._strings.find(chars, start, part.length)
            part.text[kinds != TEXT] = -1
            part.start = self._shifted(chars, start)
        self._parts.append(part)

    def _shifted(self, chars: NDArray[np.uint8], start: NDArray[np.int64]) -> NDArray[np.int64]:
        """Where pieces start when all bytes stand together."""
        before = 0
        for held in self._chars:
            if held is chars:
                break
            before += len(held)
        else:
            self._chars.append(chars)
        return start + before if before else start

    def build(self, place: NDArray[Any]) -> EventRows:
        """The rows, with the places of the events; good until this thread builds the next ones."""
        n, parts = self._n, self._parts
        arrays = _memory.arrays(n * len(parts))
        name, kind, number, text, start, length = (array.reshape(n, len(parts)) for array in arrays)
        name[:] = [part.name for part in parts]
        text[:] = -1
        for i, part in enumerate(parts):
            kind[:, i] = part.kind
            if part.number is not None:
                number[:, i] = part.number
            if part.text is not None:
                text[:, i], start[:, i], length[:, i] = part.text, part.start, part.length
        bounds = np.arange(n + 1, dtype=np.int64) * len(parts)
        if any(isinstance(part.kind, np.ndarray) for part in parts):
            there = kind != MISSING
            np.cumsum(there.sum(axis=1), out=bounds[1:])
            arrays = [array[there.reshape(-1)] for array in arrays]
        names, kinds, numbers, texts, starts, lengths = arrays
        return EventRows(bounds, names, kinds, numbers, texts, self._bytes(), starts, lengths, place)

    def _bytes(self) -> NDArray[np.uint8]:
        if len(self._chars) == 1:
            return self._chars[0]
        return np.concatenate([np.empty(0, np.uint8), *self._chars])


def _kinds(kind: int, present: Present) -> int | NDArray[np.uint8]:
    return kind if present is None else np.where(present, np.uint8(kind), np.uint8(MISSING))
