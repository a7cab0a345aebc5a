"""An application of two writers, whose steps are told by their numbers; and one that is killed."""

from __future__ import annotations

import os
import signal
import sys
from typing import Any

import numpy as np

from evflow.staging import Variable, Writer

HEAT = Variable("heat", "f8", (64, 32), ("y", "x"))
PLENTY = 1 << 20


def heat(step: int) -> np.ndarray[Any, Any]:
    """The whole of a step."""
    return np.random.default_rng(step).random((64, 32))


def write(writer: Writer, rank: int, step: int, timeout: float | None = 20) -> None:
    """One of two writers writes its half."""
    half = {"heat": (heat(step)[32 * rank : 32 * rank + 32], (32 * rank, 0))}
    writer.write(step, half, time=step / 4, timeout=timeout)


def dies() -> None:
    """A process that is killed as soon as a staging node knows of three steps."""
    writer = Writer(sys.argv[1], 0, 2, [HEAT], budget=PLENTY)
    for step in range(3):
        write(writer, 0, step)
    while "rank 1" not in writer.why():
        pass
    os.kill(os.getpid(), signal.SIGKILL)
