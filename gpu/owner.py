"""The thread that owns a device: all that CUDA gives is made, used and freed there.

PyCUDA frees memory, streams and modules only where their context is current, and an interrupt reaches only
the main thread. In one thread of the device's own, whose context is always current, neither can go wrong.
"""

from __future__ import annotations

import atexit
import ctypes
import logging
import os
import threading
import weakref
from collections import deque
from collections.abc import Callable
from concurrent.futures import CancelledError, Future, wait
from contextlib import suppress
from queue import SimpleQueue
from traceback import clear_frames
from typing import Any, TypeVar

from evflow.errors import DeviceError

FORKED = (
    "this process was forked from one that uses the device, and CUDA does not work in a fork: start it with "
    "multiprocessing's 'spawn', or use a CPU engine"
)

_log = logging.getLogger("evflow.gpu")
_ENDED = "the process ends, and its work on the device has ended already"

T = TypeVar("T")
W = TypeVar("W")


class Owner:
    """A thread that does what others ask, one thing after the other, and frees what they have dropped.

    It ends with the process, once it has done what it was asked before.

    Args:
        settle: waits until the device uses nothing that was dropped; called before something is freed.
        leave: called at the end, when everything has been freed.
    """

    def __init__(self, settle: Callable[[], None], leave: Callable[[], None]) -> None:
        self._settle, self._leave = settle, leave
        self._queue: SimpleQueue[Any] = SimpleQueue()
        self._dead: deque[Any] = deque()
        self._held: dict[int, tuple[Any, Any, list[Any]]] = {}
        self._process = os.getpid()
        self._ended = self._over = False
        self._thread = threading.Thread(target=self._run, name="evflow device", daemon=True)
        self._thread.start()
        atexit.register(self.end)
        os.register_at_fork(after_in_child=self._forked)

    def do(self, job: Callable[[], T], undo: Callable[[], object] | None = None) -> T:
        """Calls ``job`` in the thread and waits for it.

        An interrupt of the caller is raised once the job is over; a job that has not begun is left out.

        Args:
            job: what to call.
            undo: what to call if the caller was interrupted and the job has been done all the same.

        Returns:
            What ``job`` returns.

        Raises:
            DeviceError: this process is a fork of the one that uses the device, or it ends.
        """
        if threading.get_ident() == self._thread.ident and os.getpid() == self._process:
            return job()
        self.check()
        future: Future[T] = Future()
        try:
            self._put(future, job)
            return future.result()
        except CancelledError:
            raise DeviceError(_ENDED) from None
        except BaseException:
            if not future.cancel():
                self._wait_for(future, undo)
            raise

    def _put(self, future: Future[Any], job: Callable[[], object]) -> None:
        self._queue.put((future, job))
        if self._over:
            # Too late for the thread to see it.
            future.cancel()

    def _wait_for(self, future: Future[Any], undo: Callable[[], object] | None) -> None:
        """Waits for a job whose caller was interrupted, and has it undone, whatever interrupts that."""
        last = future
        if undo is not None:
            # Put behind the job at once; the thread comes to it whatever becomes of the caller.
            last = Future()
            self._put(last, lambda: None if future.exception() else undo())
        while not last.done():
            with suppress(KeyboardInterrupt):
                wait([last])
        if last is not future and not last.cancelled():
            last.result()

    def check(self) -> None:
        """Raises a DeviceError if nothing can be asked: in a fork, and once the process ends."""
        if os.getpid() != self._process:
            raise DeviceError(FORKED)
        if self._ended:
            raise DeviceError(_ENDED)

    def own(self, make: Callable[[], Any], wrap: Callable[[list[Any]], W]) -> W:
        """Holds what CUDA gives until its wrapper is dropped, whichever thread drops it; in the thread.

        Args:
            make: asks CUDA for it.
            wrap: makes the wrapper, of a list that holds it, and that is empty once it has been freed.

        Returns:
            The wrapper. It may hold the list, but not what is in it.
        """
        self.sweep()
        cell: list[Any] = []
        try:
            try:
                cell.append(make())
            except Exception:
                # PyCUDA collects garbage where memory is short, which may have left something to free.
                if not self._dead:
                    raise
                self.sweep()
                cell.append(make())
            wrapper = wrap(cell)
            # Both callbacks are written in C, so that nothing can interrupt them. The last one comes first.
            wake = weakref.ref(wrapper, self._queue.put)
            mark = weakref.ref(wrapper, self._dead.append)
            self._held[id(mark)] = mark, wake, cell
        except BaseException:
            cell.clear()
            raise
        return wrapper

    def sweep(self) -> None:
        """Frees what has been dropped; in the thread."""
        if self._dead:
            self._settle()
        while self._dead:
            self._held.pop(id(self._dead.popleft()))[2].clear()

    def _run(self) -> None:
        while (item := self._queue.get()) is not None:
            if isinstance(item, tuple):
                _answer(*item)
            # Else a job and what it holds would stay until the next.
            del item
            try:
                self.sweep()
            except BaseException:  # noqa: BLE001 - the thread has to go on
                _log.exception("what was dropped on a device could not be freed; it is tried again")
        try:
            self._settle()
            for _, _, cell in self._held.values():
                cell.clear()
            self._leave()
        finally:
            # In this order: a job that comes after the last look is told by its caller.
            self._over = True
            while not self._queue.empty():
                if isinstance(item := self._queue.get(), tuple):
                    item[0].cancel()

    def end(self) -> None:
        """Lets the thread end after what it was asked before. Then nothing can be asked any more."""
        if os.getpid() == self._process and not self._ended:
            self._ended = True
            self._queue.put(None)
            self._thread.join()
            atexit.unregister(self.end)

    def _forked(self) -> None:
        # What the parent has may not be freed here, not even when this process ends.
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(self._held))
        self._held = {}


def _answer(future: Future[T], job: Callable[[], T]) -> None:
    if not future.set_running_or_notify_cancel():
        return
    try:
        result = job()
    except BaseException as error:  # noqa: BLE001 - the caller gets it
        _clear(error)
        future.set_exception(error)
    else:
        future.set_result(result)
    finally:
        # Else the error would keep them, and they the error.
        del future, job


def _clear(error: BaseException | None) -> None:
    """Drops the local variables of what has failed, so that no error takes something of CUDA's along."""
    seen: set[int] = set()
    while error is not None and id(error) not in seen:
        seen.add(id(error))
        clear_frames(error.__traceback__)
        error = error.__cause__ or error.__context__
