"""Where small events lie that were submitted one by one: encoded, back to back, in the order they came.

Machine code puts them there (``evflow.codgen.objects``), each in one step of the interpreter, so threads need
no lock for it. The engine's thread takes what lies there as one batch.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from ctypes import c_int64
from typing import Any

import numpy as np

from evflow.codgen.llvm.object_ir import WORDS
from evflow.engine.gate import Gate
from evflow.events.batch import EventBatch
from evflow.events.gather import ByteArray, address_of, frozen
from evflow.schema import Schema

__all__ = ["FRAME", "SMALL", "Tray"]

SMALL = 4096
"""Bytes up to which events of a fixed width are small."""

FRAME = struct.Struct("<I")
"""The length before an event of varying width."""

_CHUNK = 1 << 20
"""Bytes of the memory that is filled before another is taken."""

_LENT = _CHUNK // 4
"""Bytes from which what lies there is not copied, but becomes a batch where it is."""

_MANY = 20_000
"""Events after which a gate pays."""

_AT, _END, _THREAD, _GATE, _REJECTED = map(WORDS.index, ("at", "end", "thread", "gate", "rejected"))


class Tray:
    """Memory that small events of one schema are encoded to.

    Attributes:
        words: int64[5]: where the next event goes, where the room ends (0 while there is none), the engine's
            thread, the gate, and how many events it has rejected; see ``evflow.codgen.objects``. Events of
            varying width lie behind their lengths (``FRAME``).
        schema: the schema; None while there is no room for any.
        least: bytes that an event takes at least; for varying widths, those of a small one.
        many: whether so many events came that a gate pays.
    """

    def __init__(self) -> None:
        self.words = np.zeros(len(WORDS), np.int64)
        # The same words; to read one of them so takes half the time.
        self._words: Any = (c_int64 * len(WORDS)).from_buffer(self.words.data)
        self.schema: Schema | None = None
        self.least = 0
        self.many = False
        self._chunk: ByteArray = np.empty(0, np.uint8)
        # Whether batches lie in the chunk, so that it must not be written to again.
        self._lent = False
        # Where the events begin that were not taken out.
        self._start = 0
        self._taken = 0
        self._gate: Gate | None = None
        self._counted = 0

    def begin(self, schema: Schema, thread: int) -> None:
        """Says whose events will lie here, and the one thread that does not put any; see ``renew``."""
        self.schema = schema
        self.least = schema.width or SMALL
        self._words[_THREAD] = thread

    @property
    def waiting(self) -> int:
        """Bytes that lie here."""
        waiting: int = self._words[_AT] - self._start
        return waiting

    @property
    def cramped(self) -> bool:
        """Whether there is no room for a further event."""
        cramped: bool = self._words[_END] - self._words[_AT] < self.least
        return cramped

    def take(self) -> EventBatch | None:
        """Takes out what lies here."""
        size = self.waiting
        if not size:
            return None
        first = self._start - address_of(self._chunk)
        data = self._chunk[first : first + size]
        self._start += size
        self._taken += size
        self.many = self._taken > _MANY * self.least
        schema = self.schema
        assert schema is not None
        if schema.width is None:
            return EventBatch.from_encoded(schema, list(_framed(data.tobytes())))
        if size >= _LENT:
            self._lent = True
        else:
            data = data.copy()
        return EventBatch(schema, frozen(data), size // schema.width)

    def shut(self) -> EventBatch | None:
        """From now on there is no room; takes out what lies here."""
        self._words[_END] = 0
        return self.take()

    def renew(self, room: int) -> None:
        """Gives room again, after ``shut``.

        Args:
            room: the most bytes that may lie here.
        """
        if self._lent or not len(self._chunk):
            self._chunk = np.empty(_CHUNK, np.uint8)
            self._lent = False
        self._start = self._words[_AT] = address_of(self._chunk)
        self._words[_END] = self._start + max(0, min(_CHUNK, room))

    @property
    def few(self) -> bool:
        """Whether the chunk could begin anew without another one."""
        return self.schema is not None and not self._lent

    # --- the gate

    @property
    def gated(self) -> bool:
        """Whether a filter is asked for each event."""
        return self._gate is not None

    def set_gate(self, gate: Gate | None) -> None:
        """From now on a filter is asked for each event; called by the engine's thread, as ``sync``."""
        self._words[_GATE] = 0
        self.sync()
        self._gate = gate
        self._words[_GATE] = 0 if gate is None else gate.code.address

    def sync(self) -> None:
        """Has the gate count what it has rejected."""
        rejected = self._words[_REJECTED] - self._counted
        if rejected and self._gate is not None:
            self._gate.rejected(rejected)
            self._counted += rejected


def _framed(data: bytes) -> Iterator[bytes]:
    at = 0
    while at < len(data):
        (size,) = FRAME.unpack_from(data, at)
        at += FRAME.size + size
        yield data[at - size : at]
