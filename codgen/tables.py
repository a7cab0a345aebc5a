"""Tables to encoded rows, by machine code made for the schema: columns, or a list of events."""

from __future__ import annotations

from ctypes import c_int64
from typing import Any

import numpy as np

from evflow.codgen.llvm.append_ir import WORDS
from evflow.codgen.llvm.table_ir import (
    Laid,
    can_encode_events,
    can_encode_table,
    write_table_encoder,
)
from evflow.codgen.memory import Array, address
from evflow.codgen.native import Native, Tiers
from evflow.codgen.objects import Append, Words, builtin, is_usable, layouts_of, slots_of
from evflow.schema import Schema
from evflow.schema.description import held_records

__all__ = ["Laid", "TableEncoder", "append_listed", "events_encoder", "table_encoder"]

Rows = tuple[Array | bytes, Array | None]
"""Encoded rows, which nobody changes, and where each starts and the last ends: int64, or None."""

_AT, _END, _MARK, _MARKS, _ROW = (WORDS.index(name) for name in ("at", "end", "mark", "marks", "row"))

_SMALL = 64 << 10
"""Bytes up to which rows are written to memory that is used again."""

_FEW = 1024
"""Rows of varying width that may lie there."""

_TABLE = 20
"""Rows that a table counts as at least."""

_STRETCH = 4 << 20
"""Bytes that are written before another thread can take over: about a millisecond."""


class _Run:
    """The function with words and memory of its own, for one call at a time."""

    def __init__(self, code: Native) -> None:
        self.code = code
        words = np.zeros(len(WORDS), np.int64)
        self.append = builtin(code, words)
        # The same words; to set one of them so takes half the time.
        self.words: Any = (c_int64 * len(WORDS)).from_buffer(words.data)
        self.memory = np.empty(_SMALL, np.uint8)
        self.ends = np.empty(_FEW + 1, np.int64)


class TableEncoder:
    """Encodes rows of a schema; any number of threads may use it.

    Args:
        schema: the schema.
        code: the machine code, of ``write_table_encoder``.
    """

    def __init__(self, schema: Schema, code: Tiers) -> None:
        self._width = schema.width
        self._code = code
        self._runs: list[_Run] = []

    @property
    def settled(self) -> bool:
        """Whether the code is as fast as it will be, since many rows came."""
        return self._code.settled

    def optimise(self) -> None:
        """Has the code optimised at once."""
        self._code.optimise()

    def bound(self, words: Words) -> Append:
        """The function that puts rows where ``words`` say, all or none; their ``row`` has to be -1.

        Args:
            words: int64, one for each of ``append_ir.WORDS``.
        """
        return builtin(self._code.native, words)

    def encode(self, given: list[Any], rows: int, target: Array | None = None) -> Rows | None:
        """Rows back to back, and where each starts if they vary in width.

        Args:
            given: a column for each of ``table_ir.leaves``, or the events; all of this length.
            rows: how many rows.
            target: uint8, 1-D, where rows of one width go; None for memory of their own.

        Returns:
            None if a row leaves a doubt.
        """
        self._code.saw(max(rows, _TABLE))
        native = self._code.native
        # Threads take one each; popping and appending are single steps of the interpreter.
        run = self._runs.pop() if self._runs else _Run(native)
        if run.code is not native:
            run = _Run(native)
        try:
            return self._encode(run, given, rows, target)
        finally:
            self._runs.append(run)

    def _encode(self, run: _Run, given: list[Any], rows: int, target: Array | None) -> Rows | None:
        words, varies = run.words, self._width is None
        size = rows * (self._width or 0)
        memory = target if target is not None else run.memory if size <= _SMALL else np.empty(size, np.uint8)
        ends = run.ends if rows <= _FEW else np.empty(rows + 1, np.int64)
        start = words[_AT] = address(memory)
        if varies:
            ends[0] = start
            words[_MARK] = address(ends) + 8
            words[_MARKS] = words[_MARK] + 8 * rows
        stretch = _STRETCH
        end = words[_END] = start + min(len(memory), stretch)
        taken = words[_ROW] = 0
        while not run.append(given):
            done, used = words[_ROW], words[_AT] - start
            if words[_END] and done == taken:
                return None
            if not words[_END] and end == start + len(memory):
                memory = _longer(memory, used, used // done * rows if done else stretch)
                ends[: done + 1] += address(memory) - start
                start = address(memory)
                words[_AT] = start + used
            elif done == taken:
                stretch *= 4
            taken = done
            end = words[_END] = min(start + len(memory), words[_AT] + stretch)
        if words[_ROW] != rows:
            # Another thread has changed the lists meanwhile.
            return None
        used = words[_AT] - start
        offsets = ends[: rows + 1] - start if varies else None
        if memory is run.memory:
            return memory[:used].tobytes(), offsets
        kept = memory[:used] if 8 * used > 7 * len(memory) else memory[:used].copy()
        kept.flags.writeable = False
        return kept, offsets


def _longer(memory: Array, used: int, wanted: int) -> Array:
    """Longer memory with the same bytes in it."""
    longer = np.empty(max(2 * len(memory), wanted + wanted // 16 + _SMALL), np.uint8)
    longer[:used] = memory[:used]
    return longer


def table_encoder(schema: Schema) -> TableEncoder | None:
    """The encoder of columns of a schema, made when it is asked for first; None if there can be none."""
    return _made(schema, "table_encoder", can_encode_table, events=False)


def events_encoder(schema: Schema) -> TableEncoder | None:
    """The encoder of lists of a schema's events, made when it is asked for first; None if there is none."""
    return _made(schema, "events_encoder", can_encode_events, events=True)


def append_listed(schema: Schema, words: Words) -> Append | None:
    """``objects.append_event`` for a schema with lists, or with fields that may be missing.

    Args:
        schema: the events' schema.
        words: int64, one for each of ``append_ir.WORDS``; their ``row`` has to be -1.
    """
    encoder = events_encoder(schema)
    if encoder is None:
        return None
    append = encoder.bound(words)
    return lambda event: append([event])


def _made(schema: Schema, key: str, can_encode: Any, *, events: bool) -> TableEncoder | None:
    if key not in schema.made:
        made = None
        layouts = layouts_of(schema, *held_records(schema).values()) if is_usable() else {}
        if is_usable() and schema.fields and can_encode(schema, layouts.__contains__):
            ir = write_table_encoder(schema, layouts, slots_of(Laid), events=events)
            made = TableEncoder(schema, Tiers(ir))
        schema.made.setdefault(key, made)
    encoder: TableEncoder | None = schema.made[key]
    return encoder
