"""Engine `auto`: the CPU's `index`, and beside it `clcb-grid` where there is a device and enough to do.

A GPU pays a fixed cost for each launch and copy, so a few filters are matched sooner without it; CLCB,
section 5, found the point at 4,000 filters. Both engines hold all subscriptions, so that either can answer at
any time.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from evflow.errors import DeviceError
from evflow.gpu.grid import Grid
from evflow.matching.engine import Engine, Matches, engine_class
from evflow.matching.moving import Moves
from evflow.matching.rows import EventRows, Filters
from evflow.matching.strings import Strings

LEAST_FILTERS = 4000
PATIENCE = 3
"""After so many failures in a row the device is left alone."""


class Auto:
    """Takes a GPU if that may pay, and goes on without it if it fails.

    Args:
        strings: the strings that constraints compare with.
        dimensions: 2 on the plane, 3 on the globe.
        device: which CUDA device, from 0.
        least: from how many filters the device is used.

    Example:
        >>> from evflow.matching import Matcher
        >>> matcher = Matcher("auto")  # doctest: +SKIP
        >>> matcher.stats().details["auto"]  # doctest: +SKIP
        'index: fewer than 4,000 filters'
    """

    def __init__(
        self, strings: Strings, dimensions: int, *, device: int = 0, least: int = LEAST_FILTERS
    ) -> None:
        self._cpu: Engine = engine_class("index")(strings, dimensions)
        self._gpu: Grid | None = None
        self._why = ""
        self._least = least
        self._failures = 0
        try:
            self._gpu = Grid(strings, dimensions, device=device)
        except DeviceError as error:
            self._why = str(error)

    def _give_up(self, error: DeviceError) -> None:
        self._gpu, self._why = None, str(error)

    def _change(self, change: Callable[[Engine], None]) -> None:
        """Changes both engines; if the device cannot it is not used any more.

        The device comes first: who is interrupted there has changed nothing for the CPU, which goes on alone.
        """
        if self._gpu is not None:
            try:
                change(self._gpu)
            except DeviceError as error:
                self._give_up(error)
            except BaseException as error:
                self._give_up(DeviceError(f"a change was broken off: {error!r}"))
                raise
        change(self._cpu)

    def add(self, filters: Filters) -> None:
        """Takes these in; if the device has no room for them it is not used any more."""
        self._change(lambda engine: engine.add(filters))

    def remove(self, ids: NDArray[np.int32]) -> None:
        """Forgets subscriptions."""
        self._change(lambda engine: engine.remove(ids))

    def move(self, moves: Moves) -> None:
        """Gives filters other areas."""
        self._change(lambda engine: engine.move(moves))

    def match(self, events: EventRows, threads: int = 1) -> Matches:
        """What these events satisfy: as the device says or, where it fails, as the CPU does."""
        gpu = self._gpu
        if gpu is not None and gpu.filters >= self._least:
            try:
                matches = gpu.match(events)
            except DeviceError as error:
                self._failures += 1
                if self._failures >= PATIENCE:
                    self._give_up(error)
            else:
                self._failures = 0
                return matches
        return self._cpu.match(events, threads)

    def memory(self) -> Mapping[str, int]:
        """Bytes held, by what for; those of the GPU's engine begin with ``gpu.``."""
        gpu = self._gpu.memory() if self._gpu else {}
        return {**self._cpu.memory(), **{f"gpu.{what}": size for what, size in gpu.items()}}

    def details(self) -> dict[str, str]:
        """Which engine answers, and why."""
        if self._gpu is None:
            return {"auto": f"index: {self._why}"}
        if self._gpu.filters < self._least:
            return {"auto": f"index: fewer than {self._least:,} filters"}
        return {"auto": "clcb-grid", **self._gpu.details()}

    def save(self, folder: Path) -> None:
        """Writes all state of both engines to folders in ``folder``."""
        for name, engine in (("cpu", self._cpu), ("gpu", self._gpu)):
            if engine is not None:
                (folder / name).mkdir()
                engine.save(folder / name)

    def load(self, folder: Path) -> None:
        """Takes the state that ``save`` wrote; without the part of a device the device is not used."""
        self._cpu.load(folder / "cpu")
        if self._gpu is None:
            return
        if not (folder / "gpu").is_dir():
            self._give_up(DeviceError("what was loaded was saved without a device"))
            return
        try:
            self._gpu.load(folder / "gpu")
        except DeviceError as error:
            self._give_up(error)
