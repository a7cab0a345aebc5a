"""Filter functions on a device: one thread an event, over batches of events of fixed width."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from evflow.codgen.cuda.function import device_function, most_steps
from evflow.codgen.cuda.prelude import PASSED, PRELUDE
from evflow.codgen.front import Input, build
from evflow.codgen.tree import Fault, Function
from evflow.errors import CodeError, SchemaError
from evflow.events.batch import EventBatch
from evflow.events.event import Event
from evflow.gpu.device import Device, Kernel, Memory
from evflow.gpu.nvrtc import compile_ptx
from evflow.schema import Schema

__all__ = ["MOST_FUEL", "GpuFilter", "Verdicts", "compile_filter", "filters_on", "kernel_source"]

MOST_FUEL = 1_000_000
"""What one event may spend on a device: an event cannot be split, and its thread is slower than a CPU's."""

MOST_EVENTS = 1 << 30
"""Of a launch, where nothing else bounds them."""

LAUNCH_STEPS = 50_000_000_000
"""The most steps of a launch. A slow card is taken to make so many in a second or two; not measured."""

_KERNEL = """\
extern "C" __global__ void {name}(const u8 *__restrict__ events, const i32 *__restrict__ rows, u32 count,
                                  u32 *__restrict__ verdicts)
{{
    u32 i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < count)
        verdicts[i] = {name}_function(events + (u64)(rows ? (u32)rows[i] : i) * {stride});
}}
"""


@dataclass(frozen=True, slots=True, eq=False)
class Verdicts:
    """What a filter says of the selected events of a batch, in their order.

    Attributes:
        passed: bool.
        faults: uint8: why an event was given up (``tree.Fault``), 0 for most.
        lines: int32: where in the source, 0 without a fault.
    """

    passed: NDArray[np.bool_]
    faults: NDArray[np.uint8]
    lines: NDArray[np.int32]

    @classmethod
    def of(cls, words: NDArray[np.uint32]) -> Verdicts:
        """As the kernel gives them: ``PASSED``, 0, or a fault in the low 8 bits and the line above."""
        low = (words & 0xFF).astype(np.uint8)
        passed = low == PASSED
        return cls(passed, np.where(passed, 0, low).astype(np.uint8), (words >> 8).astype(np.int32))

    def fault(self, position: int) -> Fault:
        """Why one event was given up, or ``Fault.NONE``."""
        return Fault(int(self.faults[position]))


def kernel_source(functions: Sequence[Function]) -> str:
    """CUDA C with a kernel for each function: ``filter_0``, ``filter_1``, ….

    Raises:
        CodeError: a function has what cannot run on a GPU.
    """
    parts = [PRELUDE]
    for number, function in enumerate(functions):
        name, schema = f"filter_{number}", function.inputs[0][1]
        parts.append(device_function(function, f"{name}_function"))
        assert schema is not None
        parts.append(_KERNEL.format(name=name, stride=schema.width))
    return "\n".join(parts)


def compile_filter(
    code: str | Callable[..., object], schema: Schema | type[Event], *, device: int = 0, fuel: int = MOST_FUEL
) -> GpuFilter:
    """A filter function on a device.

    Args:
        code: Cod or a Python function, as ``Filter`` takes it.
        schema: the schema (or ``Event`` class) of its events, all of whose fields have a fixed width.
        device: which card.
        fuel: what one event may spend, at most ``MOST_FUEL``; a unit pays for a short turn of a loop.

    Raises:
        SchemaError: ``schema`` is none.
        CodeError: the code is refused, has what cannot run on a GPU, or too much fuel.
        DeviceError: there is no device or no NVRTC, or the driver refuses what it made.
    """
    function = build(code, "filter", [Input("input", Schema.of(schema))], [], fuel=fuel)
    return filters_on(Device.of(device), [function])[0]


def filters_on(device: Device, functions: Sequence[Function]) -> list[GpuFilter]:
    """Compiles functions to one module, and loads it.

    Args:
        device: where they will run.
        functions: filters, as ``front.build`` gives them.

    Raises:
        CodeError: a function has what cannot run on a GPU, or too much fuel.
        DeviceError: there is no NVRTC, or the driver refuses what it made.
    """
    for function in functions:
        if function.fuel > MOST_FUEL and most_steps(function):
            raise CodeError(
                f"fuel {function.fuel:,}: expected at most {MOST_FUEL:,} on a device, where a long launch "
                "holds up all others and the driver may end it; give less, or filter on the CPU",
                function.source,
            )
    kernels = device.load(compile_ptx(kernel_source(functions)), f"{len(functions)} filters")
    return [GpuFilter(device, f, kernels[f"filter_{n}"]) for n, f in enumerate(functions)]


class GpuFilter:
    """A filter on a device. Any thread may use it.

    Args:
        device: where it runs.
        function: its typed tree.
        kernel: its code.
    """

    def __init__(self, device: Device, function: Function, kernel: Kernel) -> None:
        self.function = function
        self._device = device
        self._kernel = kernel
        self._stream = device.stream()
        self._held: dict[str, tuple[NDArray[np.uint8], Memory]] = {}
        steps = most_steps(function)
        self._most = max(1, LAUNCH_STEPS // steps) if steps else MOST_EVENTS

    def run(self, batch: EventBatch) -> Verdicts:
        """Asks the function about every selected event of a batch.

        Raises:
            SchemaError: the events are of another schema.
            DeviceError: the device has no memory, or a call failed; the next call starts afresh.
        """
        schema = self.function.inputs[0][1]
        if batch.schema != schema:
            raise SchemaError(f"this filter takes events of {schema!r}, found {batch.schema!r}")
        return Verdicts.of(self._device.do(f"filtering {len(batch)} events", lambda: self._verdicts(batch)))

    def select(self, batch: EventBatch) -> EventBatch:
        """The events that pass, as a selection of the same batch. One with a fault does not."""
        return batch.select(np.flatnonzero(self.run(batch).passed))

    def _verdicts(self, batch: EventBatch) -> NDArray[np.uint32]:
        count, stride = len(batch), batch.schema.width
        assert stride is not None
        if not count:
            return np.empty(0, np.uint32)
        try:
            events = self._sent("events", batch.data)
            rows = 0 if batch.selection is None else self._sent("rows", batch.selection)
            pinned, verdicts = self._room("verdicts", 4 * count)
            for first in range(0, count, self._most):
                here = min(self._most, count - first)
                # Rows count from the first event of all.
                start, which = (events, rows + 4 * first) if rows else (events + stride * first, 0)
                self._kernel(self._stream, here, start, which, here, verdicts.address + 4 * first)
            self._device.fetch(pinned[: 4 * count], verdicts.address, self._stream)
            self._stream.synchronize()
        except BaseException:
            self._held.clear()
            raise
        return pinned[: 4 * count].view(np.uint32).copy()

    def _sent(self, name: str, values: NDArray[Any]) -> int:
        """The address on the device of a copy of an array."""
        pinned, memory = self._room(name, values.nbytes)
        pinned[: values.nbytes] = values.view(np.uint8)
        self._device.send(memory.address, pinned[: values.nbytes], self._stream)
        return memory.address

    def _room(self, name: str, nbytes: int) -> tuple[NDArray[np.uint8], Memory]:
        """Pinned memory and memory of the device for so many bytes, kept for the next batch."""
        held = self._held.get(name)
        if held is None or held[1].nbytes < nbytes:
            self._held.pop(name, None)
            held = self._held[name] = self._device.pinned(nbytes), self._device.allocate(nbytes)
        return held
