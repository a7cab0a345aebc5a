"""The cache of kernels: one and the same tree of stages is compiled once.

A kernel's code is kept while it is among those used last, or a kernel uses it; then LLVM's memory is freed.
"""

from __future__ import annotations

import threading
from collections import OrderedDict

from evflow.codgen.kernel import Kernel, KernelCode
from evflow.codgen.llvm.stage import Stage
from evflow.codgen.native import compiling
from evflow.schema import Schema

__all__ = ["kernel"]

_KERNELS = 1024

_Key = tuple[tuple[Stage, ...], Schema | None]

_codes: OrderedDict[_Key, KernelCode] = OrderedDict()
_lock = threading.Lock()


def kernel(stages: tuple[Stage, ...], schema: Schema | None) -> Kernel:
    """A kernel that runs a tree of stages over batches.

    The machine code is made once for one and the same tree and schema, and shared.

    Args:
        stages: the stages that see the input events, each of them all, in order.
        schema: of the input events; None if all functions look at attributes alone and never at the event.

    Raises:
        GraphError: a stage was compiled for another schema than that of the events it would see.
        CodeError: it cannot be compiled.
    """
    key = (stages, schema)
    code = _known(key)
    if code is None:
        with compiling():
            code = _known(key) or KernelCode(stages, schema)
        with _lock:
            _codes[key] = code
            if len(_codes) > _KERNELS:
                _codes.popitem(last=False)
    return Kernel(code)


def _known(key: _Key) -> KernelCode | None:
    # What is known must not wait while another thread compiles.
    with _lock:
        code = _codes.get(key)
        if code is not None:
            _codes.move_to_end(key)
        return code
