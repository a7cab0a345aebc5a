"""Replay: the events of a recording submitted again, as far apart in time as they came."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

from evflow.errors import FlowError
from evflow.events.batch import EventBatch
from evflow.watch.recording import Recording

__all__ = ["Replayed", "replay"]


@dataclass
class Replayed:
    """What was replayed so far.

    Attributes:
        events: submitted.
        rounds: how often the recording was gone through.
        late: seconds that it is behind the recording's own times: the flow took events more slowly.
    """

    events: int = 0
    rounds: int = 0
    late: float = 0.0


def replay(
    recording: Recording,
    submit: Callable[[EventBatch], object],
    *,
    speed: float | None = 1.0,
    loop: bool = False,
    done: Replayed | None = None,
    clock: Callable[[], float] = time.monotonic,
    wait: Callable[[float], object] = time.sleep,
) -> Replayed:
    """Submits the events of a recording, each batch when its time has come.

    Args:
        recording: the events.
        submit: takes each batch; it may block, then what follows is late, and not lost.
        speed: 2.0 for twice as fast; None for as fast as they are taken.
        loop: begin again at the end, until there is an exception.
        done: is brought up to date meanwhile, for whoever has to tell after an interruption.
        clock: seconds, only forward.
        wait: waits for so many seconds.

    Raises:
        FlowError: the speed is none, or the recording cannot be read.
    """
    if speed is not None and not 0 < speed < 1e9:
        raise FlowError(f"speed {speed!r}: expected a number above 0, or None for as fast as possible")
    done = Replayed() if done is None else done
    while True:
        before = done.events
        began = clock()
        for seconds, batch in recording:
            if speed is not None:
                left = began + seconds / speed - clock()
                if left > 0:
                    wait(left)
                done.late = max(0.0, -left)
            submit(batch)
            done.events += len(batch)
        done.rounds += 1
        # A recording of nothing would be gone through without an end.
        if not loop or done.events == before:
            return done
