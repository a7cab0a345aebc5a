"""One function compiled by itself: to try it on an event, or to filter a batch without a graph."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from evflow.codgen.front import Input, build
from evflow.codgen.kernel import Kernel, KernelCode, Port, Result, Segment, Stage, kernel
from evflow.codgen.memory import Array
from evflow.codgen.runtime import new_state
from evflow.codgen.tree import Const, Fault, Function, Submit, walk
from evflow.schema import Schema

__all__ = ["Compiled", "Outcome", "Sent", "compile"]

_MAX_PORTS = 64


class Sent(NamedTuple):
    """An event that a function sent.

    Attributes:
        port: where to.
        event: its bytes.
    """

    port: int
    event: bytes


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a function did with one event.

    Attributes:
        result: the number it returned; 0 after a fault.
        fault: why it gave the event up, or ``Fault.NONE``.
        line: where in the source, after a fault.
        sent: what it sent, by port, and in order for one port; also the event itself where it passed.
    """

    result: int
    fault: Fault
    line: int
    sent: list[Sent]


class Compiled:
    """A compiled filter, transform or router; one thread at a time may use it.

    Its static variables keep their values from one event to the next.

    Args:
        function: the typed tree.
        code: its machine code, as the only stage of a kernel, with an exit for each port.

    Attributes:
        function: as given.
    """

    def __init__(self, function: Function, code: KernelCode) -> None:
        self.function = function
        self._kernel = Kernel(code)
        schema = self._kernel.buffers[0]
        self._width = None if schema is None else schema.width
        self._state = [new_state(function)]

    def __call__(
        self,
        event: bytes,
        attributes: Mapping[str, object] | None = None,
        system: Mapping[str, float] | None = None,
    ) -> Outcome:
        """Runs the function for one valid event; ``attributes`` are those of the stone."""
        data = np.frombuffer(event, np.uint8)
        offsets = None if self._width is not None else np.array([0, len(data)], np.int64)
        result = self._run(data, 1, offsets, attributes, system)
        for note in result.faults:
            return Outcome(0, note.fault, note.line, [])
        sent = [
            Sent(port, bytes(sent))
            for port, segments in enumerate(result.exits)
            for segment in segments
            for sent in _events(result, segment, event)
        ]
        return Outcome(self._kernel.last_result, Fault.NONE, 0, sent)

    def select(self, data: Array, rows: int, offsets: Array | None = None) -> Array:
        """The rows of a batch that a filter passes; an event with a fault is not among them.

        Args:
            data: uint8: valid events, back to back.
            rows: how many.
            offsets: int64[rows + 1]: where each starts, if their width varies.

        Returns:
            int32, increasing.
        """
        segments = self._run(data, rows, offsets, None, None).exits[0]
        if not segments:
            return np.empty(0, np.int32)
        found = segments[0].rows
        return np.arange(rows, dtype=np.int32) if found is None else found

    def _run(
        self,
        data: Array,
        rows: int,
        offsets: Array | None,
        attributes: Mapping[str, object] | None,
        system: Mapping[str, float] | None,
    ) -> Result:
        return self._kernel.run(
            data, offsets, None, rows, None, self._state, [attributes or {}], system or {}
        )


def _ports(function: Function) -> int:
    """How many ports a function can be seen to use; all there are, where it computes them."""
    if function.kind == "router":
        return _MAX_PORTS
    ports = [node.port for node in walk(function.body) if isinstance(node, Submit)]
    if any(not isinstance(port, Const) for port in ports):
        return _MAX_PORTS
    known = (port.value for port in ports if isinstance(port, Const))
    return min(1 + max(known, default=0), _MAX_PORTS) if ports else 1


def _events(result: Result, segment: Segment, event: bytes) -> list[bytes]:
    records = result.buffers[segment.buffer]
    if records is None:
        return [event] * len(segment)
    data, width = records.data.tobytes(), records.schema.width
    rows = range(len(segment)) if segment.rows is None else segment.rows.tolist()
    if records.offsets is not None:
        starts = records.offsets.tolist()
        return [data[starts[row] : starts[row + 1]] for row in rows]
    assert width is not None
    return [data[row * width : (row + 1) * width] for row in rows]


def compile(
    code: str | Callable[..., object],
    input: Schema | None = None,
    output: Schema | None = None,
    kind: str | None = None,
) -> Compiled:
    """Compiles a stone function.

    Args:
        code: Cod or a Python function, as a stone takes it.
        input: the schema of its events; None for a function of attributes only.
        output: the schema of what it fills.
        kind: "filter", "transform" or "router"; by default a transform where there is an output, else a
            filter.

    Raises:
        CodeError: the code is refused.
    """
    outputs = [] if output is None else [("output", output)]
    kind = kind or ("filter" if output is None else "transform")
    function = build(code, kind, [Input("input", input)], outputs)
    ports = tuple(Port((), n) for n in range(_ports(function)))
    return Compiled(function, kernel((Stage(function, 0, ports),), input).code)
