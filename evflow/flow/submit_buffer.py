"""The submit buffer of a source: events that were submitted one by one, encoded, back to back, in order.

Machine code writes them (``evflow.codgen.objects``), each in one step of the interpreter, and large ones one
at a time, so threads need no lock. The engine's thread takes all of them as one batch: a few small events are
copied out, more become a batch in place. Masses of events lie in memory that links send from, if there is
room.
"""

from __future__ import annotations

import sys
import time
from ctypes import c_int64
from typing import Any

import numpy as np

from evflow.codgen.express import Express
from evflow.codgen.llvm.append_ir import WORDS
from evflow.engine.gate import Gate
from evflow.events.batch import EventBatch
from evflow.events.encode import LARGE
from evflow.events.gather import ByteArray, Offsets, Room, address_of, no_room, own_place
from evflow.schema import Schema

SMALL = 4096
"""Bytes that an event of varying width is reckoned with, and up to which one of fixed width is small."""

MOST = 2 << 20
"""Bytes of the largest event that lies here."""

_CHUNK = 1 << 20
"""Bytes of the memory that is filled before another is taken."""

_LARGE_CHUNK = 2 << 20
"""The same where events are large."""

_LITTLE = 16 << 10
"""Bytes of its memory that a source of few events goes on to use, at least."""

_MARKS = _CHUNK // 64
"""Events of varying width that may lie here, for which as many ends are noted."""

_MANY = 20_000
"""Events after which a gate pays."""

_WINK = 20e-6
"""Seconds between two looks whether a large event is written."""

_AT, _END, _THREAD, _GATE, _REJECTED, _WRITING, _MARK, _MARKS_END, _ROW, _EXPRESS = map(WORDS.index, WORDS)


class SubmitBuffer:
    """Memory that the events of one schema are encoded to when they are submitted one by one.

    Attributes:
        words: int64, one for each of ``append_ir.WORDS``; see ``evflow.codgen.objects``.
        schema: the schema; None while there is no room for any.
        least: bytes that an event takes at least; for varying widths, those of a small one.
        wanted: bytes of the events that there was to be room for last.
        many: whether enough events came for a gate to pay.
        gate: the filter that is asked for each event; None if none is.
        gone: the events that were sent at once, and how many each message has; None if there are none.
    """

    def __init__(self) -> None:
        self.words = np.zeros(len(WORDS), np.int64)
        # The same words; to read one of them so takes half the time.
        self._words: Any = (c_int64 * len(WORDS)).from_buffer(self.words.data)
        # Tables are taken whole.
        self._words[_ROW] = -1
        self.schema: Schema | None = None
        self.least = self.wanted = 0
        self.many = False
        self._room: Room = no_room
        # What is written to, and the same bytes as they are handed on.
        self._chunk = self._held = np.empty(0, np.uint8)
        # The chunk's address, and how far it may be filled before it begins anew.
        self._base = self._far = 0
        # Whether batches lie in the chunk, so that it must not be written to again.
        self._lent = False
        # Where events of varying width end, by address; and how many of those are taken out.
        self._ends: Offsets = np.empty(0, np.int64)
        self._ended = 0
        # Where the events begin that were not taken out.
        self._start = 0
        self._taken = 0
        self.gate: Gate | None = None
        self._counted = 0
        self.gone: tuple[EventBatch, list[int]] | None = None
        self._express: Express | None = None

    def begin(self, schema: Schema, thread: int, room: Room) -> None:
        """Says whose events will lie here; see ``renew``.

        Args:
            schema: the events'.
            thread: the one thread that does not put any here.
            room: gives memory from which links send, if there is any.
        """
        self.schema = schema
        self.least = schema.width or SMALL
        self._room = room
        self._words[_THREAD] = thread
        if schema.width is None:
            self._ends = np.empty(_MARKS, np.int64)

    @property
    def waiting(self) -> int:
        """Bytes that lie here."""
        waiting: int = self._words[_AT] - self._start
        return waiting

    def lacks(self, size: int, rows: int = 1) -> bool:
        """Whether there is no room for so many further events of so many bytes together."""
        lacks: bool = self._words[_END] - self._words[_AT] < size
        return lacks or (self.schema is not None and not self.schema.width and self._marks_left < rows)

    @property
    def _marks_left(self) -> int:
        left: int = self._words[_MARKS_END] - self._words[_MARK]
        return left // self._ends.itemsize

    def lend(self, express: Express) -> None:
        """From now on events are sent at once, as far as they can be, until something is taken out."""
        express.lend(self._start, None if self.schema is None else self.schema.width)
        self._express = express
        self._words[_EXPRESS] = express.address

    def take(self) -> EventBatch | None:
        """Takes out what lies here and was not sent at once."""
        if self._express is None:
            return self._take()
        self._words[_EXPRESS] = 0
        frames, self._express = self._express.settle(), None
        taken = self._take()
        if not frames:
            return taken
        assert taken is not None
        count = sum(frames)
        if count == taken.rows:
            self.gone = taken, frames
            return None
        self.gone = taken.slice(0, count), frames
        return taken.slice(count, taken.rows)

    def _take(self) -> EventBatch | None:
        size = self.waiting
        if not size:
            return None
        schema = self.schema
        assert schema is not None
        offsets = None
        if schema.width is None:
            offsets = self._offsets()
            size = int(offsets[-1])
        first = self._start - self._base
        self._start += size
        self._taken += size
        self.many = self._taken > _MANY * self.least
        data: ByteArray | bytes
        if size >= LARGE:
            self._lent = True
            data = self._held[first : first + size]
        else:
            data = self._chunk[first : first + size].tobytes()
        rows = len(offsets) - 1 if offsets is not None else size // (schema.width or 1)
        return EventBatch(schema, data, rows, offsets)

    def _offsets(self) -> Offsets:
        # Read at once: another thread may put in an event meanwhile.
        ended = len(self._ends) - self._marks_left
        offsets = np.zeros(ended - self._ended + 1, np.int64)
        np.subtract(self._ends[self._ended : ended], self._start, out=offsets[1:])
        self._ended = ended
        return offsets

    def shut(self) -> EventBatch | None:
        """From now on there is no room; takes out what lies here, also what is just being written."""
        self._words[_END] = 0
        # When Python ends, other threads stand still.
        while self._words[_WRITING] and not sys.is_finalizing():
            time.sleep(_WINK)
        return self.take()

    def renew(self, room: int, size: int) -> None:
        """Gives room again, after ``shut``.

        Args:
            room: the most bytes that may lie here.
            size: bytes of the events that come.
        """
        self.wanted = size
        length = size * -(-_LARGE_CHUNK // size) if size >= LARGE else _CHUNK
        if self._lent or len(self._chunk) < length:
            self._take_chunk(length)
        self._start = self._words[_AT] = self._base
        if len(self._ends):
            self._ended = 0
            self._words[_MARK] = address_of(self._ends)
            self._words[_MARKS_END] = address_of(self._ends) + self._ends.nbytes
        length = max(0, min(len(self._chunk), room))
        self._words[_END] = self._base + length
        self._far = self._base + min(_LITTLE, length // 2)

    def _take_chunk(self, length: int) -> None:
        # A source of few events need not have any of the memory that others send from.
        place = self._room(length) if self._lent or length > _CHUNK else None
        self._chunk, self._held = place or own_place(length)
        self._base = address_of(self._chunk)
        self._lent = False

    @property
    def few(self) -> bool:
        """Whether the chunk should begin anew, and could without another one."""
        few: bool = self._words[_AT] >= self._far and not self._lent and not self._words[_WRITING]
        return few and self.schema is not None

    # --- the gate

    def set_gate(self, gate: Gate | None) -> None:
        """From now on a filter is asked for each event; called by the engine's thread, as ``sync``."""
        self._words[_GATE] = 0
        self.sync()
        self.gate = gate
        self._words[_GATE] = 0 if gate is None else gate.code.address

    def sync(self) -> None:
        """Has the gate count what it has rejected."""
        rejected = self._words[_REJECTED] - self._counted
        if rejected and self.gate is not None:
            self.gate.rejected(rejected)
            self._counted += rejected
