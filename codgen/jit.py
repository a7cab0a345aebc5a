"""The cache of kernels: one and the same tree of stages is compiled once.

A kernel's code is kept while it is among those used last, or a kernel uses it; then LLVM's memory is freed.
"""

from __future__ import annotations

from collections import OrderedDict

from evflow.codgen.kernel import Kernel, KernelCode
from evflow.codgen.llvm.stage import Stage
from evflow.codgen.native import LOCK
from evflow.schema import Schema

__all__ = ["kernel"]

_KERNELS = 1024

_codes: OrderedDict[tuple[tuple[Stage, ...], Schema | None], KernelCode] = OrderedDict()


def kernel(stages: tuple[Stage, ...], schema: Schema | None) -> Kernel:
    """A kernel that runs a tree of stages over batches.

    The machine code is made once for one and the same tree and schema, and shared.

    Args:
        stages: the stages that see the input events, each of them all, in order.
        schema: of the input events; None if all functions look at attributes alone and never at the event.

    Raises:
        GraphError: a stage was compiled for another schema than that of the events it would see.
    """
    key = (stages, schema)
    with LOCK:
        code = _codes.get(key)
        if code is None:
            code = _codes[key] = KernelCode(stages, schema)
            if len(_codes) > _KERNELS:
                _codes.popitem(last=False)
        else:
            _codes.move_to_end(key)
    return Kernel(code)
