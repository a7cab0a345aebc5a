"""A second emulation beside the stand-in: the kernels' source on fibers, a device without PyCUDA or a driver.

Kernels run under a schedule drawn from a seed, and each allocation ends at a page that cannot be touched.
Copies and launches wait in their streams as long as is legal; those of several streams mix at random.
Long runs compare random sequences of calls with the oracle:

python -m tests.gpu.fibers [--engine NAME] [--seed N] [--examples N]
"""

from __future__ import annotations

import ctypes
import mmap
import re
import struct
import weakref
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from random import Random
from typing import Any, TypeVar
from unittest import mock

import numpy as np
from numpy.typing import NDArray

import evflow.gpu.device
from evflow.gpu.device import BLOCK
from evflow.matching.matcher import Matcher
from tests.gpu.nvrtc import KERNELS, ptx_of
from tests.gpu.plays import command
from tests.gpu.toolchain import compiled
from tests.gpu.workload import Workload, differences
from tests.matching.play import Play

__all__ = ["Fibers", "Wrong", "play"]

T = TypeVar("T")

HEADER = Path(__file__).parent / "driver" / "fibers.h"
OPTIONS = ["-O1", "-w", "-ffp-contract=off", "-U_FORTIFY_SOURCE", "-fsanitize-undefined-trap-on-error"]
OPTIONS += ["-fsanitize=alignment,shift,signed-integer-overflow,float-cast-overflow"]
POISON = 0xCD
ORDERS = 4
Edit = Callable[[str, str], str]


class Wrong(Exception):
    """A kernel, or a call of the host, does what no device allows."""


class Memory:
    """Bytes on the device, which end at a page that cannot be touched, up to alignment."""

    def __init__(self, nbytes: int) -> None:
        held = -(-max(nbytes, 1) // 8) * 8
        pages = -(-held // mmap.PAGESIZE) * mmap.PAGESIZE
        self.pages = mmap.mmap(-1, pages + mmap.PAGESIZE)
        end = ctypes.addressof(ctypes.c_char.from_buffer(self.pages)) + pages
        ctypes.CDLL(None).mprotect(ctypes.c_void_p(end), mmap.PAGESIZE, 0)
        self.address, self.nbytes, self.spare = end - held, nbytes, held - nbytes
        ctypes.memset(self.address, POISON, held)


class Stream:
    """Work that waits."""

    def __init__(self, device: Fibers) -> None:
        self.device, self.work = device, deque[Callable[[], object]]()

    def put(self, work: Callable[[], object]) -> None:
        self.work.append(work)
        self.device.perhaps()

    def synchronize(self) -> None:
        while self.work:
            self.device.step()


class Mark:
    """A point in a stream."""

    def __init__(self, device: Fibers) -> None:
        self.device, self.wanted, self.reached = device, 0, 0

    def record(self, stream: Stream) -> None:
        self.wanted += 1
        stream.put(partial(setattr, self, "reached", self.wanted))

    def synchronize(self) -> None:
        while self.reached < self.wanted:
            self.device.step()


class Fibers:
    """A device, as ``evflow.gpu.device.Device`` is one.

    Args:
        seed: of all that is left to chance.
        edit: gets the name and the text of a kernel file, and gives the text to be used; to plant faults.
    """

    name = "fibers on the CPU, not a GPU"

    def __init__(self, seed: int, edit: Edit = lambda file, text: text) -> None:
        self.random, self.edit = Random(seed), edit
        self.order, self.percent = self.random.randrange(ORDERS), self.random.choice((0, 10, 50))
        self.early = self.random.choice((0.0, 0.0, 0.3, 0.9))
        self.streams: list[Stream] = []
        self.there: dict[int, Memory] = {}
        self.dropped: deque[int] = deque()

    # -- work that waits

    def step(self) -> None:
        """Does the first work of some stream."""
        self.random.choice([stream for stream in self.streams if stream.work]).work.popleft()()

    def perhaps(self) -> None:
        while self.random.random() < self.early and any(stream.work for stream in self.streams):
            self.step()

    def drain(self) -> None:
        while any(stream.work for stream in self.streams):
            self.step()

    def do(self, doing: str, job: Callable[[], T], undo: object = None) -> T:
        return job()

    @contextmanager
    def doing(self, what: str) -> Iterator[None]:
        yield

    def stream(self) -> Stream:
        self.streams.append(Stream(self))
        return self.streams[-1]

    def mark(self, timing: bool = False) -> Mark:
        return Mark(self)

    # -- memory

    def allocate(self, nbytes: int) -> Any:
        self.sweep()
        memory = Memory(nbytes)
        # As the engines see it; its pages stay until nothing that waits can need them.
        given = evflow.gpu.device.Memory(memory.address, nbytes)
        self.there[memory.address] = memory
        weakref.finalize(given, self.dropped.append, memory.address)
        return given

    def sweep(self) -> None:
        """Frees what was dropped, once all work is done; nothing may have written behind it."""
        if self.dropped:
            self.drain()
        while self.dropped:
            memory = self.there.pop(self.dropped.popleft())
            behind = ctypes.string_at(memory.address + memory.nbytes, memory.spare)
            if behind != bytes([POISON]) * memory.spare:
                raise Wrong("something was written behind an allocation")

    def held(self, address: int, nbytes: int) -> int:
        """The address, if so many bytes are allocated there."""
        if any(
            m.address <= address and address + nbytes <= m.address + m.nbytes for m in self.there.values()
        ):
            return address
        raise Wrong(f"a copy of {nbytes} bytes does not lie within an allocation")

    def pinned(self, nbytes: int) -> NDArray[np.uint8]:
        return np.full(max(nbytes, 1), POISON, np.uint8)

    # -- copies

    def put(self, memory: Any, values: NDArray[Any], offset: int = 0) -> None:
        self.drain()
        self._write(memory.address + offset, np.ascontiguousarray(values))

    def send(self, address: int, pinned: NDArray[Any], stream: Stream) -> None:
        stream.put(partial(self._write, address, pinned))

    def fetch(self, pinned: NDArray[Any], address: int, stream: Stream) -> None:
        stream.put(partial(self._read, address, pinned))

    def clear(self, memory: Any, stream: Stream) -> None:
        stream.put(partial(self._write, memory.address, np.zeros(memory.nbytes // 4, np.uint32)))

    def _write(self, address: int, values: NDArray[Any]) -> None:
        if values.nbytes:
            ctypes.memmove(self.held(address, values.nbytes), values.ctypes.data, values.nbytes)

    def _read(self, address: int, values: NDArray[Any]) -> None:
        if values.nbytes:
            ctypes.memmove(values.ctypes.data, self.held(address, values.nbytes), values.nbytes)

    # -- kernels

    def kernels(self, file: str) -> dict[str, Callable[..., None]]:
        signatures = dict(evflow.gpu.device._signatures(ptx_of(file)))
        library = ctypes.CDLL(str(self._compiled(file, list(signatures))))
        return {name: partial(self._start, library, name, kinds) for name, kinds in signatures.items()}

    def _compiled(self, file: str, entries: list[str]) -> Path:
        values, text = ((KERNELS / name).read_text() for name in ("values.cuh", f"{file}.cu"))
        text = text.replace('#include "values.cuh"', self.edit("values", values))
        text = re.sub(r"__shared__ (\w+) (\w+);", r"\1 &\2 = fibers::of_block<\1>();", self.edit(file, text))
        lines = ['#include "fibers.h"', text, *(f"ENTRY({name})" for name in entries)]
        return compiled([HEADER], OPTIONS, text="\n".join(lines))

    def _start(
        self, library: Any, name: str, kinds: str, stream: Stream, columns: int, *arguments: Any,
        rows: int = 1, block: int = BLOCK,
    ) -> None:  # fmt: skip
        packed = struct.pack(kinds, *arguments)
        how = struct.pack(
            "5IQ", -(-columns // block), rows, block, self.order, self.percent, self.random.getrandbits(63)
        )
        start = library[f"launch_{name}"]
        start.restype = ctypes.c_char_p

        def run() -> None:
            if (fault := start(how, packed)) is not None:
                raise Wrong(f"{name}: {fault.decode()}")

        stream.put(run)

    @contextmanager
    def installed(self) -> Iterator[None]:
        """Lets engines that are made in there use it."""
        with mock.patch.object(evflow.gpu.device.Device, "of", lambda ordinal=0: self):
            yield
        self.drain()
        self.sweep()


def play(engine: str, seed: int, device: Fibers, folder: Path | None = None) -> None:
    """A random sequence of calls, and some events among more subscriptions, against the oracle."""
    options: dict[str, Any] = {"batch": 3, "slots": 3} if engine == "clcb-grid" and seed % 4 else {}
    make = partial(Matcher, engine, **options)
    with device.installed():
        Play(Random(seed), make, folder).run(6)
        space = ("plane", "globe")[seed % 2]
        work = Workload(seed, space=space, hit=0.9)
        matcher, oracle = make(space=space), Matcher("reference", space=space)
        for _ in range(2):
            new = work.subscriptions(150)
            matcher.subscribe_many(new)
            oracle.subscribe_many(new)
            assert differences(matcher, oracle, work.events(7)) == []


def main() -> None:
    command(
        __doc__,
        lambda engine, seed, folder: play(engine, seed, Fibers(seed), folder if seed % 3 == 0 else None),
    )


if __name__ == "__main__":
    main()
