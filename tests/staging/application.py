"""An application of two writers, whose steps are told by their numbers; and one that is killed."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path
from typing import Any

import numpy as np

import evflow as ev
from evflow.staging import Variable, Writer, tree
from evflow.staging.gathering import Part
from evflow.staging.model import by_name
from evflow.staging.stores import index, open_store

HEAT = Variable("heat", "f8", (64, 32), ("y", "x"))
ROWS = Variable("rows", "i4", (None, 2))
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


def commits() -> None:
    """A process that commits steps until it is killed: of rank 0, which has all, and of rank 1, which has
    nothing, and no part in each other step."""
    index.BEHIND = 3
    store = open_store(Path(sys.argv[1]), by_name([HEAT]))
    # What the system has a kill of a process does not take away.
    os.fsync = lambda file: None
    for step in range(len(store.done), 1000):
        blocks, missing = {0: (HEAT.block((64, 32)),)}, (1,) if step % 2 else ()
        lives = {0: 7 + step // 5} if step % 2 else {0: 7 + step // 5, 1: 9}
        store.commit(Part(step, {0.0}, blocks, {0: [heat(step)]}, {}, missing, lives))
        print(step, flush=True)


def spread(seen: list[Any], folder: str, **settings: Any) -> ev.Graph:
    """Two staging nodes near two writers each, and a root that notes steps and the ranks of blocks."""
    near = {"left": (f"{folder}/left", range(2)), "right": (f"{folder}/right", range(2, 4))}
    live = {"heat": (16, 32)}
    graph = tree([HEAT, ROWS], near, f"{folder}/run.h5", root="disk", live=live, **settings)
    graph["root"] >> ev.Terminal(lambda done: seen.append(done.step), on="disk")
    graph["root"][1] >> ev.Terminal(lambda block: seen.append([block.step, block.rank]), on="disk")
    return graph


def quarter(rank: int, step: int) -> dict[str, tuple[np.ndarray[Any, Any], tuple[int, int]]]:
    """What one of four writers has."""
    rows = np.full(((rank + step) % 3, 2), 10 * step + rank, "i4")
    return {"heat": (heat(step)[16 * rank : 16 * rank + 16], (16 * rank, 0)), "rows": (rows, (0, 0))}
