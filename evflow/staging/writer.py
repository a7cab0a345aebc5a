"""The application's side: steps go into memory of a fixed size, from which a staging node takes them."""

from __future__ import annotations

import contextlib
import fcntl
import math
import mmap
import operator
import os
import secrets
import select
import socket
import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from numbers import Real
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from msgspec.structs import replace

from evflow.closing import Closing
from evflow.disk import advice
from evflow.errors import StagingError
from evflow.forked import leave_to_parent, renew
from evflow.net.node.arena import SEALS
from evflow.outside import shown
from evflow.staging.messages import MOST_BYTES, VERSION, Hello, Ready, ToWriter, decode, encode, layout
from evflow.staging.model import (
    MOST_PATH,
    MOST_WRITERS,
    Block,
    Variable,
    by_name,
    check_blocks,
    check_path,
    expect,
)
from evflow.staging.sending import MOST_SPILLED, MOST_STEPS, TABLE, Full, Held, Sending

__all__ = ["Writer"]

_PAUSE = 0.05
"""Seconds between two attempts to connect."""

T = TypeVar("T")

Array = np.ndarray[Any, np.dtype[Any]]


class Writer(Closing):
    """Writes the steps of one process of an application, and never waits for a disk.

    Its memory is one anonymous file, which ends with the last process that has it open. A thread sleeps until
    the staging node says something. In a fork of the process the writer is closed; arrays of a step that is
    being written are the parent's there too.

    Args:
        at: the path at which the staging node listens (``Stage(listen=)``); it may begin to do so later.
        rank: which of the writers this is, from 0.
        writers: how many there are.
        variables: what all of them write.
        budget: bytes of memory that the writer takes, 4096 for itself included; never more.
        full: what becomes of a step for which there is no room: "block" waits; "drop oldest" gives up the
            oldest steps that are not safe yet; "spill" writes it to a file in ``spill``.
        spill: the folder for such files; they have no name, and end with the processes that use them.
        disk: bytes that may be in such files at a time.

    Raises:
        StagingError: a setting is wrong.

    Example:
        >>> import tempfile
        >>> from evflow import staging
        >>> heat = staging.Variable("heat", "f8", (4, 3))
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     writer = staging.Writer(f"{folder}/socket", 0, 1, [heat], budget=1 << 16)
        ...     with writer.step(0, [heat.block((4, 3))]) as arrays:
        ...         arrays["heat"][...] = 1.5
        ...     print(writer.why().replace(folder, "FOLDER"))
        ...     writer.close(timeout=0)
        step 0 of rank 0 is not safe yet: no staging node is connected at FOLDER/socket
    """

    def __init__(
        self,
        at: str | Path,
        rank: int,
        writers: int,
        variables: Iterable[Variable],
        *,
        budget: int,
        full: Full = "block",
        spill: str | os.PathLike[str] | None = None,
        disk: int = 1 << 40,
    ) -> None:
        self._variables = by_name(variables)
        fits = isinstance(writers, int) and 1 <= writers <= MOST_WRITERS
        expect(fits, "writer: writers", writers, f"1 to {MOST_WRITERS}")
        expect(isinstance(rank, int) and 0 <= rank < writers, "writer: rank", rank, f"0 to {writers - 1}")
        fits = isinstance(budget, int) and budget > TABLE
        expect(fits, "writer: budget", budget, f"bytes, more than {TABLE}")
        fits = full in ("block", "drop oldest", "spill") and (full == "spill") == (spill is not None)
        expected = "'block', 'drop oldest', or 'spill' with a folder"
        expect(fits, "writer: full and spill", (full, spill), expected)
        fits = spill is None or (isinstance(spill, str | os.PathLike) and os.path.isdir(spill))
        expect(fits, "writer: spill", spill, "a folder that exists")
        expect(isinstance(disk, int) and disk >= 0, "writer: disk", disk, "bytes, 0 or more")
        check_path("writer: at", at)
        # The working directory of the process may change.
        whole = Path(at).absolute()
        self._at = str(whole if len(os.fsencode(whole)) <= MOST_PATH else at)
        self._spill = None if spill is None else Path(spill).absolute()
        life = 1 + secrets.randbits(61)
        hello = Hello(VERSION, rank, writers, tuple(self._variables.values()), -1, (), life)
        # With all that the writer may ever hold it has to fit into a message.
        most = MOST_STEPS + MOST_SPILLED * (full == "spill")
        encode(replace(hello, held=(1 << 61,) * most))
        self._file = os.memfd_create("evflow-staging", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        try:
            os.ftruncate(self._file, budget)
            fcntl.fcntl(self._file, fcntl.F_ADD_SEALS, SEALS)
            self._memory = mmap.mmap(self._file, budget)
        except (OSError, OverflowError) as error:
            os.close(self._file)
            raise StagingError(f"writer: budget {budget}: no memory of this size: {error}") from None
        self._table = np.frombuffer(self._memory, np.int64, TABLE // 8)
        self._sending = Sending(hello, budget, full, disk, self._table, self._at)
        self._socket: socket.socket | None = None
        self._closed = False
        self._lock = threading.Condition()
        self._bell = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        self._thread = threading.Thread(target=self._run, name=f"evflow-writer-{rank}", daemon=True)
        self._thread.start()
        leave_to_parent(self)

    def forsake(self) -> None:
        """In a fork: memory and connection are the parent's, whose end must be seen at once."""
        renew(self._lock)
        self._closed = True
        self._table = self._sending.table = self._table.copy()
        if self._socket is not None:
            self._socket.close()

    # --- steps

    @contextlib.contextmanager
    def step(
        self, number: int, blocks: Sequence[Block], *, time: float = 0.0, timeout: float | None = None
    ) -> Iterator[dict[str, Array]]:
        """Gives arrays to write a step into, in the place from which it is pulled; it is complete at the end
        of the ``with`` block, and given up if that raises; its number may be used again then.

        Do not write to the arrays afterwards. They hold whatever was there before, so write every element.

        Args:
            number: of the step; it rises from step to step. All writers give a step the same number.
            blocks: at most one of each variable, as ``Variable.block`` makes them.
            time: of the simulation; all writers give a step the same.
            timeout: seconds to wait for room; None for ever. Only ``full="drop oldest"`` never waits.

        Returns:
            name of the variable → array of the shape of its block.

        Raises:
            StagingError: a block is not one of these variables, the number does not rise, the time is not
                finite, the step before is not complete, the writer is closed, the step is larger than the
                budget, there was no room in time (the error says why), a file cannot be written to
                ``spill``, or the staging node refuses the writer.
        """
        number, time = self._numbers(number, time)
        with self._lock:
            self._check_open()
            check_blocks(f"step {number}", self._variables, blocks)
            try:
                held = self._wait(lambda: self._sending.begin(number, time, tuple(blocks)), timeout)
            except BaseException:
                self._sending.forget_wait()
                raise
        try:
            memory: Any = self._memory
            if held.spilled:
                memory = self._file_of(held)
            places = layout(held.ready.blocks)[0]
            yield {
                block.variable: block.view(memory, held.ready.start + start)
                for block, start in zip(held.ready.blocks, places, strict=True)
            }
        except BaseException:
            with self._lock:
                self._sending.give_up(number)
            raise
        with self._lock:
            self._check_open()
            self._sending.announce(number)
            self._send()

    def write(
        self,
        number: int,
        arrays: Mapping[str, tuple[Array, Sequence[int]]],
        *,
        time: float = 0.0,
        timeout: float | None = None,
    ) -> None:
        """Copies arrays into a step, and completes it.

        Args:
            number: as of ``step``.
            arrays: name of the variable → a block of it, and its offset in the global array.
            time: as of ``step``.
            timeout: as of ``step``.

        Raises:
            StagingError: as of ``step``; an array has another dtype than its variable or masked elements, an
                offset is not of integers.

        Example:
            >>> import numpy as np
            >>> from evflow import staging
            >>> heat = staging.Variable("heat", "f8", (4, 3))
            >>> writer = staging.Writer("none", 0, 1, [heat], budget=1 << 16)
            >>> writer.write(0, {"heat": (np.ones((2, 3)), (2, 0))})
            >>> writer.used
            4160
            >>> writer.close(timeout=0)
        """
        expect(isinstance(arrays, Mapping), f"step {shown(number)}: arrays", arrays, "a dict of them by name")
        blocks = [_block(f"step {shown(number)}: {name}", name, given) for name, given in arrays.items()]
        with self.step(number, blocks, time=time, timeout=timeout) as places:
            for name, (array, _) in arrays.items():
                places[name][...] = array

    def _file_of(self, held: Held) -> mmap.mmap:
        """Makes the file of a step that is spilled."""
        try:
            held.file = tempfile.TemporaryFile(dir=self._spill)  # noqa: SIM115  closed with the step
            # All of it now: writing to a mapped file on a full disk would end the process.
            os.posix_fallocate(held.file.fileno(), 0, held.size)
            return mmap.mmap(held.file.fileno(), held.size)
        except OSError as error:
            what = f"step {held.ready.step} of rank {self._sending.hello.rank}"
            why = f"cannot be written to a file in {self._spill}: {error}; {advice(error)}"
            raise StagingError(f"{what} {why}") from None

    def _numbers(self, number: Any, time: Any) -> tuple[int, float]:
        with contextlib.suppress(TypeError, ValueError, OverflowError):
            if math.isfinite(found := float(time)):
                return operator.index(number), found
        expected = f"expected an integer as its number and a finite time, found the time {shown(time)}"
        raise StagingError(f"step {shown(number)}: {expected}")

    def _check_open(self) -> None:
        if self._closed:
            raise StagingError(f"rank {self._sending.hello.rank}: the writer is closed")

    @contextlib.contextmanager
    def communicating(self) -> Iterator[None]:
        """Marks a communication phase of the application: ``AvoidCongestion`` pulls nothing from it
        meanwhile."""
        self._table[0] = 1
        try:
            yield
        finally:
            self._table[0] = 0

    # --- what becomes of them

    @property
    def safe(self) -> int:
        """The newest step that is known to be on the disk, with the part of this writer; -1 if none."""
        return self._sending.safe

    @property
    def used(self) -> int:
        """Bytes of the budget that are in use, 4096 for the writer itself included."""
        with self._lock:
            return self._sending.used

    def fates(self) -> list[tuple[int, str]]:
        """What became of steps since the last call: number and reason; "" for one that is safe."""
        with self._lock:
            found = list(self._sending.fates)
            self._sending.fates.clear()
            return found

    def why(self) -> str:
        """What waits, and for what, in words; "" if nothing does."""
        with self._lock:
            return self._sending.why()

    def drain(self, timeout: float | None = None) -> None:
        """Waits until each step is safe or gone; ``fates`` says which.

        Args:
            timeout: seconds; None for ever.

        Raises:
            StagingError: it was not in time; says why.
        """
        with self._lock:
            self._wait(lambda: None if self._sending.held else True, timeout)

    def close(self, timeout: float | None = 10.0) -> None:
        """Ends the writer: there are no more steps. Closing twice does nothing.

        Args:
            timeout: seconds to wait for steps that are not safe yet; None for ever.

        Raises:
            StagingError: some step was not safe in time. If it was announced to a staging node that lives,
                that still commits it. Or the timeout is not one; then the writer stays open.
        """
        if self._closed:
            return
        _end(timeout)
        with self._lock:
            self._sending.leave()
            self._send()
        try:
            if timeout != 0:
                self.drain(timeout)
        finally:
            self._closed = True
            os.eventfd_write(self._bell, 1)
            self._thread.join()
            self._hang_up()
            for held in self._sending.held.values():
                held.close()
            os.close(self._file)
            os.close(self._bell)

    # --- the connection

    def _wait(self, ready: Callable[[], T | None], timeout: float | None) -> T:
        """What ``ready`` gives, once that is not None; the lock is held."""
        end = _end(timeout)
        # Who waits for room is not disturbed.
        phase = int(self._table[0])
        try:
            while (found := ready()) is None:
                self._table[0] = 0
                # A step that was dropped to make room is told before more is.
                self._send()
                if self._sending.refused or time.monotonic() >= end:
                    raise StagingError(self._sending.why())
                self._lock.wait(min(end - time.monotonic(), threading.TIMEOUT_MAX))
                self._check_open()
        finally:
            self._table[0] = phase
        return found

    def _run(self) -> None:
        """Connects, sends what could not be sent at once, and takes what the staging node says. Nobody else
        closes a connection: its number could become that of another file, for which this would wait."""
        connection: socket.socket | None = None
        while not self._closed:
            with self._lock:
                if connection is not None and connection is not self._socket:
                    connection.close()
                if self._socket is None and not self._sending.refused:
                    self._connect()
                connection = self._socket
                self._send()
                more = bool(self._sending.outbox)
            poll = select.poll()
            poll.register(self._bell, select.POLLIN)
            if connection is not None:
                poll.register(connection, select.POLLIN | (select.POLLOUT if more else 0))
            poll.poll(_PAUSE * 1000 if connection is None else None)
            with self._lock:
                self._receive()
                self._lock.notify_all()
        if connection is not None:
            connection.close()

    def _receive(self) -> None:
        while self._socket is not None:
            try:
                data = self._socket.recv(MOST_BYTES)
                if not data:
                    raise ConnectionResetError
                self._sending.receive(decode(data, ToWriter))
            except BlockingIOError:
                break
            except (OSError, StagingError):
                self._hang_up()

    def _connect(self) -> None:
        made = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET | socket.SOCK_CLOEXEC)
        made.setblocking(False)
        try:
            made.connect(self._at)
        except OSError:
            made.close()
        else:
            self._socket = made
            self._sending.connected()

    def _send(self) -> None:
        outbox = self._sending.outbox
        while self._socket is not None and outbox:
            message = outbox[0]
            files = [self._file] if isinstance(message, Hello) else []
            if isinstance(message, Ready) and message.slot < 0:
                held = self._sending.held.get(message.step)
                if held is None:
                    # The staging node knew of it, and has told its fate.
                    outbox.popleft()
                    continue
                files = [held.file.fileno()]
            try:
                socket.send_fds(self._socket, [encode(message)], files, socket.MSG_NOSIGNAL)
                outbox.popleft()
            except BlockingIOError:
                os.eventfd_write(self._bell, 1)
                return
            except OSError:
                self._hang_up()

    def _hang_up(self) -> None:
        if self._socket is not None:
            # It wakes who waits for it.
            with contextlib.suppress(OSError):
                self._socket.shutdown(socket.SHUT_RDWR)
            self._socket = None
            self._sending.disconnected()


def _end(timeout: Any) -> float:
    """When a wait of so many seconds ends, on the clock that only goes forward."""
    end = math.inf if timeout is None else math.nan
    if not isinstance(timeout, bool) and isinstance(timeout, Real):
        with contextlib.suppress(OverflowError):
            end = time.monotonic() + float(timeout)
    expect(not math.isnan(end), "writer: timeout", timeout, "seconds, or None")
    return end


def _block(what: str, name: str, given: Any) -> Block:
    """An array and its offset, as ``write`` takes them."""
    with contextlib.suppress(AttributeError, TypeError, ValueError):
        array, offset = given
        if not np.ma.is_masked(array):
            return Block(name, tuple(map(operator.index, offset)), array.shape, array.dtype.str[1:])
    raise StagingError(
        f"{what}: expected an array of numpy without masked elements, and its offset, an integer for each "
        f"dimension, found {shown(given)}"
    )
