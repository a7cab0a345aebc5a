"""One native pass over a batch for a whole tree of stages, and the cache of its code."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache

from evflow.codgen.llvm.stage import Port, Routes, Stage
from evflow.codgen.llvm.stage_ir import write_kernel
from evflow.codgen.memory import Array
from evflow.codgen.native import compiling
from evflow.codgen.result import ExitReader, Records, Result, Segment
from evflow.codgen.runtime import AttributeColumn, LoopCode, Runtime
from evflow.schema import Schema

__all__ = ["Kernel", "KernelCode", "Port", "Records", "Result", "Segment", "Stage", "kernel"]


class KernelCode(LoopCode):
    """The code of a tree of stages, which any number of kernels share.

    Attributes:
        routes: the tree.
    """

    def __init__(self, stages: tuple[Stage, ...], schema: Schema | None) -> None:
        self.routes = Routes(stages, schema)
        super().__init__(write_kernel(self.routes), [node.function for node in self.routes.nodes])


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
        super().__init__(code, ways)
        self.buffers = [buffer.schema for buffer in routes.buffers]
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
        return Result(self._counts.copy(), exits, buffers, self._noted_faults())

    def _records(self, number: int) -> Records:
        vectors, schema = self._vectors, self.buffers[number]
        assert schema is not None
        rows = vectors.count(vectors.word("origin", number))
        offsets = vectors.offsets(number, rows) if schema.width is None else None
        data = vectors.take(vectors.word("bytes", number))
        data.flags.writeable = False
        return Records(schema, data, offsets, rows)


def kernel(stages: tuple[Stage, ...], schema: Schema | None) -> Kernel:
    """A kernel that runs a tree of stages over batches.

    The machine code is made once for one and the same tree and schema, and shared. It is kept while it is
    among those used last, or a kernel uses it; then LLVM's memory is freed.

    Args:
        stages: the stages that see the input events, each of them all, in order.
        schema: of the input events; None if all functions look at attributes alone and never at the event.

    Raises:
        GraphError: a stage was compiled for another schema than that of the events it would see.
        CodeError: it cannot be compiled.
    """
    return Kernel(_code(stages, schema))


@lru_cache(maxsize=1024)
def _code(stages: tuple[Stage, ...], schema: Schema | None) -> KernelCode:
    with compiling():
        return KernelCode(stages, schema)
