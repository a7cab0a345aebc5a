"""All that is asked of CUDA, in one place: memory, copies, streams, kernels, and what their failures mean.

Work is given to a stream and does not wait; the host waits once, for what it reads. All of it happens in one
thread of the device's own (``owner.py``), where its primary context is current until the process ends.
"""

from __future__ import annotations

import ctypes
import os
import re
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from itertools import pairwise
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from evflow.errors import DeviceError
from evflow.gpu.nvrtc import compile_ptx, kernel_source
from evflow.gpu.owner import FORKED, Owner

T = TypeVar("T")
A = TypeVar("A", bound="_Asked")

BLOCK = 256
"""Threads of a block, as in CLCB, section 4.3."""

LEAST_CAPABILITY = (7, 5)
"""What the kernels are compiled for."""

_KEPT = (
    "subscriptions are kept on the host, so save them and load them in another process, or use a CPU engine"
)
_PARAMETER = re.compile(r"\.param \.(\w+)")
_LETTERS = {"u32": "I", "u64": "P", "f64": "d"}


_started_by: int | None = None
"""The process that has started the driver."""

_opening = threading.Lock()
_devices: dict[int, Device] = {}
_contexts: dict[int, Any] = {}
"""Kept for ever: PyCUDA puts a context that is dropped on the stack of its thread, and leaves it there."""


class OutOfMemory(DeviceError):
    """There is not enough memory on the device, or that can be pinned; less may fit."""


def _driver() -> tuple[Any, int]:
    """PyCUDA's driver module, with the driver started, and how many devices there are."""
    global _started_by
    if _started_by not in (None, os.getpid()):
        raise DeviceError(FORKED)
    try:
        import pycuda.driver as driver
    except ImportError as error:
        raise DeviceError(
            f"GPU engines need PyCUDA and NVIDIA's driver: {error}; pip install 'evflow[gpu]' builds PyCUDA "
            "from source, which needs g++ and CUDA's headers (docs/gpu.md)"
        ) from error
    try:
        driver.init()
        _started_by = os.getpid()
        return driver, driver.Device.count()
    except driver.Error as error:
        raise DeviceError(f"the CUDA driver does not start: {error}; see what nvidia-smi says") from error


def available() -> bool:
    """Whether there is a driver, PyCUDA, and a device."""
    try:
        return _driver()[1] > 0
    except DeviceError:
        return False


class Memory:
    """Bytes on a device, freed with this object.

    Attributes:
        address: where they are.
        nbytes: how many.
    """

    __slots__ = ("__weakref__", "address", "nbytes")

    def __init__(self, address: int, nbytes: int) -> None:
        self.address = address
        self.nbytes = nbytes


class _Asked:
    """Something of CUDA's that has methods; they are called in the device's thread."""

    __slots__ = ("__weakref__", "_cell", "_owner")

    def __init__(self, owner: Owner, cell: list[Any]) -> None:
        self._owner = owner
        self._cell = cell

    @property
    def held(self) -> Any:
        """What PyCUDA takes; in the device's thread only, and not to be kept."""
        return self._cell[0]


class Stream(_Asked):
    """A queue of work, done in its order."""

    def synchronize(self) -> None:
        """Waits until all work in it is done."""
        self._owner.do(lambda: self.held.synchronize())


class Mark(_Asked):
    """A point in a stream that the host can wait for."""

    def record(self, stream: Stream) -> None:
        """Puts it behind the work that is in the stream now."""
        self._owner.do(lambda: self.held.record(stream.held))

    def synchronize(self) -> None:
        """Waits until the stream has come to it."""
        self._owner.do(lambda: self.held.synchronize())


class Kernel(_Asked):
    """A function on the device. Its argument types are read from its PTX."""

    def __call__(
        self, stream: Stream, columns: int, *arguments: Any, rows: int = 1, block: int = BLOCK
    ) -> None:
        """Starts it in a stream.

        Args:
            stream: as ``Device.stream`` gives it.
            columns: threads that are wanted along x, rounded up to whole blocks.
            arguments: numbers, and addresses of memory.
            rows: blocks along y.
            block: threads of a block.
        """
        grid = (-(-columns // block), rows)
        self._owner.do(lambda: self.held.prepared_async_call(grid, (block, 1, 1), stream.held, *arguments))


class Device:
    """A CUDA device, as ``Device.of`` gives it. Any thread may use it.

    Attributes:
        name: what it calls itself.
    """

    def __init__(self, cuda: Any, ordinal: int) -> None:
        self._cuda = cuda
        try:
            device = cuda.Device(ordinal)
            self.name: str = device.name()
            capability = device.compute_capability()
        except cuda.Error as error:
            raise _unusable(ordinal, error) from error
        if capability < LEAST_CAPABILITY:
            found, least = (".".join(map(str, pair)) for pair in (capability, LEAST_CAPABILITY))
            raise DeviceError(
                f"device {ordinal}, {self.name}: the kernels need compute capability {least} (Turing), "
                f"found {found}; use a CPU engine"
            )
        self._context: Any = None
        self._owner = Owner(self._settle, self._leave)
        try:
            self._owner.do(partial(self._retain, ordinal, device))
        except BaseException as error:
            self._owner.end()
            if isinstance(error, cuda.Error):
                raise _unusable(ordinal, error) from error
            raise

    @staticmethod
    def of(ordinal: int = 0) -> Device:
        """A device of this machine: always the same object for the same number, kept until the process ends.

        Args:
            ordinal: which, from 0.

        Raises:
            DeviceError: there is no PyCUDA, no driver, or no such device, it is too old, or this process is a
                fork of one that uses it; the message says what to do.
        """
        if type(ordinal) is int and ordinal in _devices:
            _devices[ordinal]._owner.check()
        cuda, there = _driver()
        if type(ordinal) is not int or not 0 <= ordinal < there:
            raise DeviceError(f"device {ordinal!r}: there are {there}, numbered from 0")
        with _opening:
            if ordinal not in _devices:
                _devices[ordinal] = Device(cuda, ordinal)
        return _devices[ordinal]

    def _retain(self, ordinal: int, device: Any) -> None:
        if ordinal not in _contexts:
            _contexts[ordinal] = device.retain_primary_context()
        _contexts[ordinal].push()
        self._context = _contexts[ordinal]

    def _leave(self) -> None:
        if self._context is not None:
            self._context.pop()

    def _settle(self) -> None:
        # A lost context waits for nothing.
        with suppress(self._cuda.Error):
            self._cuda.Context.synchronize()

    def do(self, doing: str, job: Callable[[], T], undo: Callable[[], object] | None = None) -> T:
        """Calls ``job`` in the device's thread and waits for it; jobs of other threads come before or after.

        An interrupt of the caller is raised once the job is over; a job that has not begun is left out.

        Args:
            doing: what is done, for the message.
            job: what to call.
            undo: what to call if the caller was interrupted and the job has been done all the same.

        Raises:
            DeviceError: CUDA has reported a failure, this process is a fork, or it ends.
        """
        return self._owner.do(partial(self._told, doing, job), undo)

    def _told(self, doing: str, job: Callable[[], T]) -> T:
        with self.doing(doing):
            return job()

    @contextmanager
    def doing(self, what: str) -> Iterator[None]:
        """Makes DeviceErrors of CUDA's in there, which say what was done; in the device's thread."""
        try:
            yield
        except self._cuda.MemoryError as error:
            raise OutOfMemory(
                f"{self.name}: out of memory while {what}: {error}; free some, or use a CPU engine"
            ) from error
        except self._cuda.Error as error:
            raise DeviceError(f"{self.name}: failed while {what}: {error}; {self._advice()}") from error

    def _advice(self) -> str:
        try:
            self._cuda.mem_get_info()
        except self._cuda.Error:
            return f"its context is lost for this process; {_KEPT}"
        return "the next call starts afresh"

    def kernels(self, name: str) -> dict[str, Kernel]:
        """The kernels of one file of ``gpu/kernels``, by name, compiled at first use."""
        return self.load(compile_ptx(kernel_source(name)), f"{name}.cu")

    def load(self, text: str, what: str) -> dict[str, Kernel]:
        """The kernels of a PTX text, by name.

        Args:
            text: PTX.
            what: what it is called in messages.

        Raises:
            DeviceError: the driver refuses it.
        """

        def load() -> dict[str, Kernel]:
            module = self._cuda.module_from_buffer(text.encode() + b"\0")
            return {
                entry: self._own(Kernel, _prepared, module, entry, types)
                for entry, types in _signatures(text)
            }

        return self.do(f"loading {what}", load)

    def _own(self, kind: type[A], make: Callable[..., Any], *arguments: Any) -> A:
        return self._owner.own(partial(make, *arguments), partial(kind, self._owner))

    def allocate(self, nbytes: int) -> Memory:
        """Memory on the device, of at least one byte.

        Args:
            nbytes: how many; what is in them is not known.

        Raises:
            OutOfMemory: there are not so many.
        """
        make = partial(self._cuda.mem_alloc, max(nbytes, 1))
        wrap: Callable[[list[Any]], Memory] = lambda cell: Memory(int(cell[0]), nbytes)  # noqa: E731
        return self.do(f"allocating {nbytes} bytes", partial(self._owner.own, make, wrap))

    def pinned(self, nbytes: int) -> NDArray[np.uint8]:
        """Memory of the host that stays where it is, so that the device can copy by itself.

        Args:
            nbytes: how many, one at least; what is in them is not known.

        Raises:
            OutOfMemory: so many cannot be pinned.
        """
        make = partial(self._cuda.pagelocked_empty, max(nbytes, 1), np.uint8)
        return self.do(f"pinning {nbytes} bytes of the host", partial(self._owner.own, make, _same_bytes))

    def stream(self) -> Stream:
        """A queue of work, done in its order."""
        return self.do("making a stream", lambda: self._own(Stream, self._cuda.Stream))

    def mark(self, timing: bool = False) -> Mark:
        """A point in a stream that the host can wait for; with ``timing`` it knows when it was reached."""
        flags = 0 if timing else self._cuda.event_flags.DISABLE_TIMING
        return self.do("making a mark", lambda: self._own(Mark, self._cuda.Event, flags))

    def put(self, memory: Memory, values: NDArray[Any], offset: int = 0) -> None:
        """Copies any array to the device and waits for it."""
        if values.nbytes:
            held = np.ascontiguousarray(values)
            self._owner.do(lambda: self._cuda.memcpy_htod(memory.address + offset, held))

    def send(self, address: int, pinned: NDArray[Any], stream: Stream) -> None:
        """Copies pinned memory to the device, in a stream."""
        self._owner.do(lambda: self._cuda.memcpy_htod_async(address, pinned, stream.held))

    def fetch(self, pinned: NDArray[Any], address: int, stream: Stream) -> None:
        """Copies from the device to pinned memory, in a stream."""
        self._owner.do(lambda: self._cuda.memcpy_dtoh_async(pinned, address, stream.held))

    def clear(self, memory: Memory, stream: Stream) -> None:
        """Sets memory to zeros, in a stream; its size is a multiple of 4."""
        if memory.nbytes:
            words = memory.nbytes // 4
            self._owner.do(lambda: self._cuda.memset_d32_async(memory.address, 0, words, stream.held))

    def copy(self, to: Memory, memory: Memory, stream: Stream) -> None:
        """Copies memory to as much other memory of the device, in a stream."""
        nbytes = memory.nbytes
        self._owner.do(lambda: self._cuda.memcpy_dtod_async(to.address, memory.address, nbytes, stream.held))

    def facts(self) -> dict[str, Any]:
        """What there is to be known: name, compute capability, driver, and bytes of memory, free ones too."""

        def facts() -> dict[str, Any]:
            free, total = self._cuda.mem_get_info()
            major, minor = self._cuda.Context.get_device().compute_capability()
            return {
                "name": self.name,
                "compute_capability": f"{major}.{minor}",
                "cuda_of_driver": self._cuda.get_driver_version(),
                "memory_bytes": total,
                "free_bytes": free,
            }

        return self.do("asking what it is", facts)

    def milliseconds(self, marks: Sequence[Mark]) -> list[float]:
        """Milliseconds from each mark to the next; all are made with ``timing``, and reached."""
        return self._owner.do(lambda: [last.held.time_since(first.held) for first, last in pairwise(marks)])


def _same_bytes(cell: list[Any]) -> NDArray[np.uint8]:
    """An array of the same memory that does not hold it."""
    array = cell[0]
    return np.frombuffer((ctypes.c_uint8 * array.nbytes).from_address(array.ctypes.data), np.uint8)


def _prepared(module: Any, entry: str, types: str) -> Any:
    return module.get_function(entry).prepare(types)


def _unusable(ordinal: int, error: Exception) -> DeviceError:
    return DeviceError(f"device {ordinal} cannot be used: {error}; see in nvidia-smi who has it")


def _signatures(ptx: str) -> Iterator[tuple[str, str]]:
    for name, parameters in re.findall(r"\.visible \.entry (\w+)\((.*?)\)", ptx, re.DOTALL):
        yield name, "".join(_LETTERS[kind] for kind in _PARAMETER.findall(parameters))
