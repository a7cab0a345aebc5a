"""One native pass over a batch for a whole tree of stages: the run time of a kernel.

Native code and Python share a block of words (``context.py``). Before a run Python writes addresses into it; native code
fills vectors and calls back when one is full; after it Python hands out what the vectors hold. What is handed
out is never written to again. A kernel that made large vectors lets go of them, and keeps small ones.
"""

from __future__ import annotations

import ctypes
from collections.abc import Mapping, Sequence
from typing import Any, Protocol
from weakref import WeakValueDictionary

import numpy as np

from evflow.codgen.arrivals import ExitReader
from evflow.codgen.context import Context
from evflow.codgen.kernel_ir import write_kernel
from evflow.codgen.layout import statics_layout
from evflow.codgen.memory import Array, address, packed_texts
from evflow.codgen.native import Code
from evflow.codgen.result import NO_FAULTS, Column, FaultNote, Faults, Records, Result, Segment
from evflow.codgen.stage import Port, Routes, Stage
from evflow.codgen.tree import Function
from evflow.codgen.vectors import Vectors
from evflow.schema import Schema
from evflow.types import NUMBERS

__all__ = [
    "Column",
    "FaultNote",
    "Faults",
    "Kernel",
    "KernelCode",
    "Port",
    "Records",
    "Result",
    "Segment",
    "Stage",
    "new_state",
]

_SHORT = 2048
"""Events up to which a run keeps the interpreter lock: giving it away costs more than the run."""


class AttributeColumn(Protocol):
    """One attribute of all selected events: kind ``i`` (int64), ``f`` (float64) or ``s`` (object array of str)."""

    @property
    def kind(self) -> str: ...

    @property
    def values(self) -> Array: ...

    @property
    def present(self) -> Array: ...


def new_state(function: Function) -> np.ndarray[Any, np.dtype[np.uint8]]:
    """The static variables of a function with their initial values.

    One block serves every kernel that runs the function, whatever the schema of its events: its layout
    depends on the variables alone.
    """
    offsets, size = statics_layout(function.statics)
    state = np.zeros(size, np.uint8)
    for variable, offset in zip(function.statics, offsets, strict=True):
        values = np.asarray(variable.initial, dtype=NUMBERS[variable.type].dtype)
        cells = np.broadcast_to(values.reshape(-1), int(np.prod(variable.shape))) if variable.shape else values
        data = np.frombuffer(cells.tobytes(), np.uint8)
        state[offset : offset + len(data)] = data
    return state


class KernelCode(Code):
    """The code of a tree of stages, which any number of kernels share.

    Attributes:
        routes: the tree.
        context: what the words of a kernel's context are.
        scratch: bytes of memory that a kernel needs for large arrays.
    """

    def __init__(self, stages: tuple[Stage, ...], schema: Schema | None) -> None:
        self.routes = Routes(stages, schema)
        text = write_kernel(self.routes)
        self.context: Context = text.context
        self.scratch = text.scratch
        super().__init__(text.ir)


class Kernel:
    """A tree of compiled stages; one thread at a time may run it.

    Args:
        code: the machine code, shared with other kernels of the same tree.

    Attributes:
        buffers: the schema of each buffer; the first is that of the input.
    """

    def __init__(self, code: KernelCode) -> None:
        self.code = code
        routes, context = code.routes, code.context
        self.buffers = tuple(buffer.schema for buffer in routes.buffers)
        self._block = np.zeros(context.size, np.int64)
        self._words = memoryview(self._block)
        self._address = address(self._block)
        self._scratch = np.zeros(max(code.scratch, 1), np.uint8)
        counts = context.at("counts")
        self._counts = self._block[counts : counts + 4 * routes.stones].reshape(-1, 4)
        self._vectors = Vectors(self._block, context, routes)
        self._exits = [ExitReader(routes, exit_, self._vectors) for exit_ in range(len(routes.exits))]
        self._states = [(w, key[1]) for key, w in context.words.items() if key[0] == "state"]
        self._held: dict[int, Array] = {}
        words = context.words.items()
        self._faults = self._vectors.word("faults")
        self._failed = False
        self._attributes = [(key[1], word) for key, word in words if key[0] == "attribute"]
        self._stone_attributes = [(key[1], key[2], word) for key, word in words if key[0] == "stone attribute"]
        self._system = [(key[1], word) for key, word in words if key[0] == "system"]
        self._inputs = bool(self._attributes or self._stone_attributes or self._system)
        if ("scratch",) in context.words:
            self._words[context.at("scratch")] = address(self._scratch)
        self._words[context.at("grow")] = ctypes.cast(_grow, ctypes.c_void_p).value or 0
        _kernels[self._address] = self

    def run(
        self,
        data: Array,
        offsets: Array | None,
        selection: Array | None,
        rows: int,
        attributes: Mapping[str, AttributeColumn] | None,
        states: Sequence[Array],
        stone_attributes: Sequence[Mapping[str, object]],
        system: Mapping[str, float],
    ) -> Result:
        """Takes every selected event through the tree, one after the other.

        Args:
            data: uint8, C-contiguous: valid events of the input schema, back to back.
            offsets: int64[rows + 1]: where each event starts, if their width varies.
            selection: int32: the rows that are meant; None for all.
            rows: events in ``data``.
            attributes: columns as long as the selected events.
            states: for each stone what ``new_state`` gave; changed in place.
            stone_attributes: for each stone its attributes, int, float or str.
            system: the system values that the functions read, by name.

        Raises:
            MemoryError: there is no memory for what the functions send; some of it may have taken effect on statics.
        """
        words, events = self._words, rows if selection is None else len(selection)
        code = self.code
        if not code.optimised:
            code.saw(events)
        words[0] = address(data)
        words[1] = 0 if offsets is None else address(offsets)
        words[2] = 0 if selection is None else address(selection)
        words[3] = events
        for word, stone in self._states:
            state = states[stone]
            if self._held.get(word) is not state:
                self._held[word] = state
                words[word] = address(state)
        self._vectors.begin(events)
        kept = self._fill(attributes, stone_attributes, system) if self._inputs else None
        self._failed = False
        if events <= _SHORT:
            code.held(self._address)
        else:
            code.free(self._address)
        del kept
        if self._failed:
            raise MemoryError("a kernel found no memory for the events that its functions send")
        return self._result(events, selection)

    def _result(self, events: int, selection: Array | None) -> Result:
        vectors = self._vectors
        exits = [reader.read(events, selection) for reader in self._exits]
        buffers = [None, *(self._records(number) for number in range(1, len(self.buffers)))]
        faults = NO_FAULTS
        if vectors.count(self._faults):
            faults = Faults(vectors.take(self._faults))
        return Result(self._counts.copy(), exits, buffers, faults)

    def _records(self, number: int) -> Records:
        vectors, schema = self._vectors, self.buffers[number]
        assert schema is not None
        rows = vectors.count(vectors.word("origin", number))
        offsets = vectors.offsets(number, rows) if schema.width is None else None
        return Records(schema, vectors.take(vectors.word("bytes", number)), offsets, rows)

    def _fill(
        self,
        attributes: Mapping[str, AttributeColumn] | None,
        stone_attributes: Sequence[Mapping[str, object]],
        system: Mapping[str, float],
    ) -> list[object]:
        """Writes attributes and system values; gives what has to live as long as the run."""
        kept: list[object] = []
        for name, word in self._attributes:
            column = attributes.get(name) if attributes else None
            self._words[word : word + 3] = _NOTHING if column is None else _column_words(column, kept)
        for stone, name, word in self._stone_attributes:
            self._words[word : word + 3] = _value_words(stone_attributes[stone].get(name), kept)
        for name, word in self._system:
            self._block[word : word + 1].view(np.float64)[0] = system.get(name, 0.0)
        return kept

    def grow(self, vector: int, need: int) -> int:
        """Makes room in a vector while native code waits; 0 if there is no memory."""
        try:
            self._vectors.grow(vector, need)
        except MemoryError:
            self._failed = True
            return 0
        return 1

    def dump_ir(self, *, optimised: bool = False) -> str:
        """LLVM IR of the kernel: as it was written, or as the optimiser leaves it."""
        return self.code.dump_ir(optimised=optimised)


_NOTHING = memoryview(np.zeros(3, np.int64))


def _words3(*values: int) -> memoryview:
    return memoryview(np.array(values, np.int64))


def _column_words(column: AttributeColumn, kept: list[object]) -> memoryview:
    present = np.ascontiguousarray(column.present, np.bool_)
    if column.kind == "s":
        values, data = packed_texts([v if p else "" for v, p in zip(column.values, present, strict=True)])
        kept.append(data)
    else:
        values = np.ascontiguousarray(column.values, np.int64 if column.kind == "i" else np.float64)
    kept.extend((values, present))
    return _words3(_KINDS[column.kind], address(values), address(present))


def _value_words(value: object, kept: list[object]) -> memoryview:
    if isinstance(value, str):
        pairs, data = packed_texts([value])
        kept.append(data)
        return _words3(_KINDS["s"], *pairs[0].tolist())
    if isinstance(value, float):
        return _words3(_KINDS["f"], int(np.float64(value).view(np.int64)), 0)
    return _words3(_KINDS["i"], int(value), 0) if isinstance(value, int) else _NOTHING


_KINDS = {"i": 1, "f": 2, "s": 3}

_kernels: WeakValueDictionary[int, Kernel] = WeakValueDictionary()


@ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_int64, ctypes.c_int64, ctypes.c_int64)
def _grow(block: int, vector: int, need: int) -> int:
    """Native code calls this with its context when a vector is full."""
    kernel = _kernels.get(block)
    return 0 if kernel is None else kernel.grow(vector, need)
