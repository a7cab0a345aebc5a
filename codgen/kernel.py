"""One native pass over a batch for a whole tree of stages."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from evflow.codgen.arrivals import ExitReader
from evflow.codgen.llvm.context import Context
from evflow.codgen.llvm.kernel_ir import write_kernel
from evflow.codgen.llvm.stage import Port, Routes, Stage
from evflow.codgen.memory import Array
from evflow.codgen.native import Code
from evflow.codgen.result import NO_FAULTS, Column, FaultNote, Faults, Records, Result, Segment
from evflow.codgen.runtime import (
    AttributeColumn,
    Runtime,
    kept_state,
    layout_of,
    new_state,
    request_at,
    take_request,
)
from evflow.codgen.tree import Loop, walk
from evflow.schema import Schema

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
    "kept_state",
    "layout_of",
    "new_state",
    "request_at",
    "take_request",
]


class KernelCode(Code):
    """The code of a tree of stages, which any number of kernels share.

    Attributes:
        routes: the tree.
        context: what the words of a kernel's context are.
        loops: whether a function has loops, so that few events may take long.
        scratch: bytes of memory that a kernel needs for large arrays.
        names: what faults are about, by number.
    """

    def __init__(self, stages: tuple[Stage, ...], schema: Schema | None) -> None:
        self.routes = Routes(stages, schema)
        self.loops = any(isinstance(node, Loop) for stage in stages for node in walk(stage.function.body))
        text = write_kernel(self.routes)
        self.context: Context = text.context
        self.scratch = text.scratch
        self.names = text.names
        super().__init__(text.ir)


class Kernel(Runtime):
    """A tree of compiled stages; one thread at a time may run it.

    Args:
        code: the machine code, shared with other kernels of the same tree.

    Attributes:
        code: as given.
        buffers: the schema of each buffer; the first is that of the input.
    """

    code: KernelCode

    def __init__(self, code: KernelCode) -> None:
        routes = code.routes
        ways = {n: len(edges) for n, edges in enumerate(routes.exits) if edges and routes.form(n) == "rows"}
        super().__init__(code, code.context, code.scratch, ways)
        self.buffers = tuple(buffer.schema for buffer in routes.buffers)
        self._made = range(1, len(self.buffers))
        self._result_word = code.context.at("result")
        counts = code.context.at("counts")
        self._counts = self._block[counts : counts + 4 * routes.stones].reshape(-1, 4)
        self._exits = [ExitReader(routes, number, self._vectors) for number in range(len(routes.exits))]

    @property
    def last_result(self) -> int:
        """What the function that ran last returned for the last event that it did not give up."""
        result: int = self._words[self._result_word]
        return result

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
            MemoryError: there is no memory for what the functions send; some of it may have taken effect on
                statics.
        """
        events = rows if selection is None else len(selection)
        self._call(data, offsets, selection, events, attributes, states, stone_attributes, system)
        return self._result(events, selection)

    def _result(self, events: int, selection: Array | None) -> Result:
        exits = [reader.read(events, selection) for reader in self._exits]
        buffers: list[Records | None] = [None]
        for number in self._made:
            buffers.append(self._records(number))
        faults = NO_FAULTS
        if self._faults >= 0 and self._vectors.count(self._faults):
            faults = Faults(self._vectors.take(self._faults), self.code.names)
        return Result(self._counts.copy(), exits, buffers, faults)

    def _records(self, number: int) -> Records:
        vectors, schema = self._vectors, self.buffers[number]
        assert schema is not None
        rows = vectors.count(vectors.word("origin", number))
        offsets = vectors.offsets(number, rows) if schema.width is None else None
        data = vectors.take(vectors.word("bytes", number))
        data.flags.writeable = False
        return Records(schema, data, offsets, rows)
