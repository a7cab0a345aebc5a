"""How long the steps of a match take on a device, by marks that know when the device has come to them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

import numpy as np
from numpy.typing import NDArray

from evflow.gpu.device import Device, Mark, Stream

__all__ = ["StepTimer"]


class StepTimer:
    """Marks between the steps of an engine, made only while times are wanted.

    Args:
        device: where the engine is.
        steps: what its steps are called.
    """

    def __init__(self, device: Device, steps: Sequence[str]) -> None:
        self._device, self._steps = device, steps
        self._marks: list[Mark] | None = None

    def mark(self, stream: Stream) -> None:
        """Notes the time at this point of a stream: before the first step, and after each."""
        if self._marks is not None:
            self._marks.append(self._device.mark(timing=True))
            self._marks[-1].record(stream)

    def times(self, match: Callable[[], object]) -> NDArray[np.float64]:
        """What the steps take.

        Args:
            match: goes through them, once or more often, and waits.

        Returns:
            Milliseconds: a row for each time, a column for each step.

        Raises:
            DeviceError: the device has failed.
        """
        self._marks = []
        try:
            match()
            found = self._device.do("timing steps", partial(self._read, self._marks))
            return np.array(found).reshape(-1, len(self._steps))
        finally:
            self._marks = None

    def _read(self, marks: list[Mark]) -> list[list[float]]:
        count = len(self._steps) + 1
        groups = [marks[first : first + count] for first in range(0, len(marks), count)]
        for group in groups:
            group[-1].synchronize()
        return [self._device.milliseconds(group) for group in groups]
