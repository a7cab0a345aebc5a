"""All that is asked of CUDA, in one place: memory, copies, streams, kernels, and what their failures mean.

Work is given to a stream and does not wait; the host waits once, for what it reads. The device's primary
context is retained, and is current only within ``Device.current``, so that any thread may come.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib.resources import files
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from evflow.errors import DeviceError

__all__ = ["Device", "Kernel", "Memory", "available"]

BLOCK = 256
"""Threads of a block, as in CLCB, section 4.3."""

_KEPT = (
    "subscriptions are kept on the host, so save them and load them in another process, or use a CPU engine"
)
_PARAMETER = re.compile(r"\.param \.(\w+)")
_LETTERS = {"u32": "I", "u64": "P", "f64": "d"}


def _driver() -> Any:
    """PyCUDA's driver module, with the driver started."""
    try:
        import pycuda.driver as driver
    except ImportError as error:
        raise DeviceError(
            f"GPU engines need PyCUDA and NVIDIA's driver: {error}; pip install 'evflow[gpu]' builds PyCUDA "
            "from source, which needs g++ and CUDA's headers (docs/gpu.md)"
        ) from error
    try:
        driver.init()
    except driver.Error as error:
        raise DeviceError(f"the CUDA driver does not start: {error}; see what nvidia-smi says") from error
    return driver


def available() -> bool:
    """Whether there is a driver, PyCUDA, and a device."""
    try:
        return bool(_driver().Device.count())
    except DeviceError:
        return False


class Memory:
    """Bytes on a device, freed with this object.

    Attributes:
        address: where they are.
        nbytes: how many.
    """

    __slots__ = ("_held", "address", "nbytes")

    def __init__(self, held: Any, nbytes: int) -> None:
        self._held = held
        self.address = int(held)
        self.nbytes = nbytes


class Kernel:
    """A function on the device. Its argument types are read from its PTX."""

    __slots__ = ("_function", "name")

    def __init__(self, name: str, function: Any, types: str) -> None:
        self.name = name
        self._function = function.prepare(types)

    def __call__(self, stream: Any, columns: int, *arguments: Any, rows: int = 1, block: int = BLOCK) -> None:
        """Starts it in a stream.

        Args:
            stream: as ``Device.stream`` gives it.
            columns: threads that are wanted along x, rounded up to whole blocks.
            arguments: numbers, and addresses of memory.
            rows: blocks along y.
            block: threads of a block.
        """
        self._function.prepared_async_call((-(-columns // block), rows), (block, 1, 1), stream, *arguments)


class Device:
    """A CUDA device.

    Attributes:
        name: what it calls itself.

    Raises:
        DeviceError: there is no PyCUDA, no driver, or no such device; the message says what to do.
    """

    def __init__(self, ordinal: int = 0) -> None:
        self._cuda = _driver()
        there = self._cuda.Device.count()
        if type(ordinal) is not int or not 0 <= ordinal < there:
            raise DeviceError(f"device {ordinal!r}: there are {there}, numbered from 0")
        try:
            device = self._cuda.Device(ordinal)
            self.name: str = device.name()
            self._context = device.retain_primary_context()
        except self._cuda.Error as error:
            raise DeviceError(
                f"device {ordinal} cannot be used: {error}; see in nvidia-smi who has it"
            ) from error

    @contextmanager
    def current(self, doing: str) -> Iterator[None]:
        """Makes the device's context current in this thread.

        Args:
            doing: what is done with it, for the message.

        Raises:
            DeviceError: CUDA has reported a failure.
        """
        try:
            self._context.push()
            try:
                yield
            except self._cuda.MemoryError as error:
                raise DeviceError(
                    f"{self.name}: out of memory while {doing}: {error}; free some, or use a CPU engine"
                ) from error
            except self._cuda.Error as error:
                raise DeviceError(f"{self.name}: failed while {doing}: {error}; {self._advice()}") from error
            finally:
                self._cuda.Context.pop()
        except self._cuda.Error as error:
            raise DeviceError(
                f"{self.name}: its context cannot be used while {doing}: {error}; {_KEPT}"
            ) from error

    def _advice(self) -> str:
        try:
            self._cuda.mem_get_info()
        except self._cuda.Error:
            return f"its context is lost for this process; {_KEPT}"
        return "the next call starts afresh"

    def kernels(self, name: str) -> dict[str, Kernel]:
        """The kernels of one file of ``gpu/kernels``, by name; the driver compiles their PTX."""
        return self.load((files("evflow.gpu") / "kernels" / f"{name}.ptx").read_text(), f"{name}.ptx")

    def load(self, text: str, what: str) -> dict[str, Kernel]:
        """The kernels of a PTX text, by name; ``what`` it is, for the message if the driver refuses it."""
        with self.current(f"loading {what}"):
            module = self._cuda.module_from_buffer(text.encode() + b"\0")
            return {
                entry: Kernel(entry, module.get_function(entry), types) for entry, types in _signatures(text)
            }

    def allocate(self, nbytes: int) -> Memory:
        """Memory on the device, of at least one byte."""
        with self.current(f"allocating {nbytes} bytes"):
            return Memory(self._cuda.mem_alloc(max(nbytes, 1)), nbytes)

    def pinned(self, nbytes: int) -> NDArray[np.uint8]:
        """Memory of the host that stays where it is, so that the device can copy by itself."""
        with self.current(f"pinning {nbytes} bytes of the host"):
            held: NDArray[np.uint8] = self._cuda.pagelocked_empty(max(nbytes, 1), np.uint8)
            return held

    def stream(self) -> Any:
        """A queue of work, done in its order."""
        with self.current("making a stream"):
            return self._cuda.Stream()

    def event(self, timing: bool = False) -> Any:
        """A mark in a stream that the host can wait for; with ``timing`` it knows when it was reached."""
        with self.current("making an event"):
            return self._cuda.Event(0 if timing else self._cuda.event_flags.DISABLE_TIMING)

    def put(self, memory: Memory, values: NDArray[Any], offset: int = 0) -> None:
        """Copies any array to the device and waits for it."""
        if values.nbytes:
            self._cuda.memcpy_htod(memory.address + offset, np.ascontiguousarray(values))

    def send(self, address: int, pinned: NDArray[Any], stream: Any) -> None:
        """Copies pinned memory to the device, in a stream."""
        self._cuda.memcpy_htod_async(address, pinned, stream)

    def fetch(self, pinned: NDArray[Any], address: int, stream: Any) -> None:
        """Copies from the device to pinned memory, in a stream."""
        self._cuda.memcpy_dtoh_async(pinned, address, stream)

    def clear(self, memory: Memory, stream: Any) -> None:
        """Sets memory to zeros, in a stream; its size is a multiple of 4."""
        if memory.nbytes:
            self._cuda.memset_d32_async(memory.address, 0, memory.nbytes // 4, stream)

    def milliseconds(self, marks: Sequence[Any]) -> list[float]:
        """The time between each two marks."""
        return [last.time_since(first) for first, last in pairwise(marks)]


def _signatures(ptx: str) -> Iterator[tuple[str, str]]:
    for name, parameters in re.findall(r"\.visible \.entry (\w+)\((.*?)\)", ptx, re.DOTALL):
        yield name, "".join(_LETTERS[kind] for kind in _PARAMETER.findall(parameters))
