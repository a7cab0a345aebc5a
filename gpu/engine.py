"""What engines on a device share: how subscriptions change, and how long the steps of a match take.

A change that was broken off in the middle is never answered from.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from evflow.errors import DeviceError
from evflow.gpu.device import Device, Mark, Stream
from evflow.matching.engine import Matches
from evflow.matching.moving import Moves
from evflow.matching.rows import EventRows, Filters


class DeviceEngine(ABC):
    """An engine on a device. All that it asks of the device is done in the device's thread.

    Args:
        device: which CUDA device, from 0.
    """

    steps: tuple[str, ...]
    """What is done for an event or a batch, as ``times`` and ``least_bytes`` tell of it."""

    def __init__(self, device: int) -> None:
        self._device = Device.of(device)
        self._broken_off = ""
        self._marks: list[Mark] | None = None

    # -- subscriptions

    @abstractmethod
    def _add(self, filters: Filters) -> None:
        """Takes these in; after a DeviceError none of them is there."""

    @abstractmethod
    def _remove(self, ids: NDArray[np.int32]) -> None:
        """Forgets subscriptions."""

    @abstractmethod
    def _move(self, moves: Moves) -> None:
        """Gives filters other areas."""

    def add(self, filters: Filters) -> None:
        """Takes these in. After a DeviceError or an interrupt none of them is there."""
        ids = np.unique(filters.subscription)
        self._change("subscribing", lambda: self._add(filters), lambda: self.remove(ids))

    def remove(self, ids: NDArray[np.int32]) -> None:
        """Forgets subscriptions."""
        self._change("unsubscribing", lambda: self._remove(ids))

    def move(self, moves: Moves) -> None:
        """Gives filters other areas."""
        self._change("moving", lambda: self._move(moves))

    def _change(
        self, doing: str, change: Callable[[], object], undo: Callable[[], object] | None = None
    ) -> None:
        def job() -> None:
            with self._changing():
                change()

        self._device.do(doing, job, undo)

    @contextmanager
    def _changing(self) -> Iterator[None]:
        """Makes a change in there, which a DeviceError leaves undone; whatever else ends it breaks it off."""
        self._check()
        try:
            yield
        except DeviceError:
            raise
        except BaseException as error:
            self._broken_off = repr(error)
            raise

    def _check(self) -> None:
        """Raises a DeviceError if a change was broken off."""
        if self._broken_off:
            raise DeviceError(
                f"a change of subscriptions was broken off by {self._broken_off}, and what the matcher holds "
                "is not known any more: make another one from the subscriptions"
            )

    # -- events

    @abstractmethod
    def match(self, events: EventRows, threads: int = 1) -> Matches:
        """What these events satisfy.

        Raises:
            DeviceError: the device has failed. Subscriptions are as before, and the next call tries again.
        """

    def times(self, events: EventRows) -> NDArray[np.float64]:
        """Milliseconds that the device takes, by its own clock.

        Returns:
            A row for each event or batch, a column for each of ``steps``.

        Raises:
            DeviceError: the device has failed.
        """
        self._marks = []
        try:
            self.match(events)
            found = self._device.do("timing steps", partial(self._read_marks, self._marks))
            return np.array(found).reshape(-1, len(self.steps))
        finally:
            self._marks = None

    def _mark(self, stream: Stream) -> None:
        """Notes the time at this point of a stream, if wanted: before the first step, and after each."""
        if self._marks is not None:
            self._marks.append(self._device.mark(timing=True))
            self._marks[-1].record(stream)

    def _read_marks(self, marks: list[Mark]) -> list[list[float]]:
        count = len(self.steps) + 1
        groups = [marks[first : first + count] for first in range(0, len(marks), count)]
        for group in groups:
            group[-1].synchronize()
        return [self._device.milliseconds(group) for group in groups]

    # -- the rest

    @abstractmethod
    def _save(self, folder: Path) -> None:
        """Writes all state to files in ``folder``."""

    def save(self, folder: Path) -> None:
        """Writes all state to files in ``folder``.

        Raises:
            DeviceError: a change was broken off, so that the state is not known.
        """
        self._check()
        self._save(folder)

    def details(self) -> dict[str, str]:
        """What it runs on."""
        return {"device": self._device.name}
