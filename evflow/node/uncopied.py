"""Memory that ZeroMQ sends without a copy, and that is kept as long as it reads there.

pyzmq can do the same (``copy=False``), but loads a module, and opens files for a thread of its own, when the
first such message is sent, which fails where no file is left to open. Here native code notes it in a byte,
and the thread of the node reads these bytes when it takes a turn anyway.
"""

from __future__ import annotations

import ctypes
import errno
from collections.abc import Callable
from functools import cache
from importlib import import_module
from typing import Any, NamedTuple

import numpy as np
import zmq

from evflow.codgen.memory import address
from evflow.codgen.native import Native

__all__ = ["Uncopied"]

MOST = 1024
"""Bodies that ZeroMQ may read at one time in this way; more go in pyzmq's."""

# As a plain number: those of zmq are enumerations, which take their time.
_NOW = int(zmq.NOBLOCK)

_FUNCTIONS = ("zmq_msg_init_data", "zmq_msg_send", "zmq_msg_close", "zmq_errno")

_IR = """
define internal void @left(ptr %body, ptr %flag) nounwind {{
  store atomic i8 1, ptr %flag release, align 1
  ret void
}}

define i32 @run(ptr %socket, ptr %body, i64 %size, ptr %flag) nounwind {{
  %message = alloca [64 x i8], align 8
  %made = call i32 {zmq_msg_init_data}(ptr %message, ptr %body, i64 %size, ptr @left, ptr %flag)
  %unmade = icmp ne i32 %made, 0
  br i1 %unmade, label %nothing, label %send
send:
  %sent = call i32 {zmq_msg_send}(ptr %message, ptr %socket, i32 {now})
  %gone = icmp sge i32 %sent, 0
  br i1 %gone, label %done, label %failed
failed:
  %error = call i32 {zmq_errno}()
  %interrupted = icmp eq i32 %error, {interrupted}
  br i1 %interrupted, label %send, label %refused
refused:
  %closed = call i32 {zmq_msg_close}(ptr %message)
  ret i32 %error
nothing:
  store i8 1, ptr %flag
  %reason = call i32 {zmq_errno}()
  ret i32 %reason
done:
  ret i32 0
}}
"""
"""Sends a body as the last part of a message; returns 0, or ZeroMQ's error. The byte at ``flag`` becomes 1
when ZeroMQ, in whatever thread, reads the body no more; also where it has refused it."""


class _Sender(NamedTuple):
    """The function of ``_IR``, and what holds its code."""

    send: Callable[[int, int, int, int], int]
    native: Native


@cache
def _sender() -> _Sender | None:
    """The compiled function; None where ZeroMQ's own functions are not to be found beneath pyzmq."""
    try:
        library = ctypes.CDLL(import_module("zmq.backend.cython._zmq").__file__)
        found = {name: ctypes.cast(getattr(library, name), ctypes.c_void_p).value for name in _FUNCTIONS}
    except (ImportError, AttributeError, OSError):
        return None
    places = {name: f"inttoptr (i64 {place} to ptr)" for name, place in found.items()}
    native = Native(_IR.format(now=_NOW, interrupted=errno.EINTR, **places), optimised=False)
    function = ctypes.CFUNCTYPE(ctypes.c_int, *[ctypes.c_size_t] * 4)
    return _Sender(function(native.address), native)


class Uncopied:
    """Bodies that the sockets of one context send without a copy; used by one thread.

    To be kept until the context has ended: ZeroMQ writes here until then.
    """

    def __init__(self) -> None:
        self._flags = np.zeros(MOST, np.uint8)
        self._first_flag = address(self._flags)
        self._free = list(range(MOST))
        # By their flags, the bodies that are being read.
        self._kept: dict[int, Any] = {}

    def send(self, socket: zmq.Socket[bytes], body: memoryview) -> None:
        """Sends the last part of a message.

        Args:
            socket: where the parts before went.
            body: contiguous bytes; kept, and not to be changed, until ZeroMQ has sent them.

        Raises:
            zmq.ZMQError: it was not sent.
        """
        sender = _sender()
        if sender is None or not self._free:
            socket.send(body, _NOW, copy=False)
            return
        data = np.frombuffer(body, np.uint8)
        flag = self._free.pop()
        self._kept[flag] = data
        error = sender.send(socket.underlying, address(data), data.size, self._first_flag + flag)
        if error:
            raise zmq.ZMQError(error)

    def collect(self) -> None:
        """Lets go of the bodies that ZeroMQ has sent, or given up."""
        if not self._kept:
            return
        # As they are now: others become 1 meanwhile.
        flags = self._flags.tobytes()
        flag = flags.find(1)
        while flag >= 0:
            self._flags[flag] = 0
            del self._kept[flag]
            self._free.append(flag)
            flag = flags.find(1, flag + 1)
