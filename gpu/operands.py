"""The strings that constraints compare with, on the device."""

from __future__ import annotations

import numpy as np

from evflow.gpu.column import Column, Staging
from evflow.gpu.device import Device
from evflow.matching.strings import Strings

__all__ = ["Operands"]


class Operands:
    """A copy of the matcher's ``Strings``, to which strings are only ever added."""

    def __init__(self, strings: Strings, device: Device) -> None:
        self._strings = strings
        self.data = Column(np.uint8, 1, device)
        self.offsets = Column(np.int64, 1, device)

    def reserve(self) -> None:
        """Makes room for all strings that there are; after a DeviceError nothing has changed."""
        self.data.reserve(max(len(self._strings.data), 1))
        self.offsets.reserve(len(self._strings.offsets))

    def update(self) -> None:
        """Takes in the strings that have come since."""
        self.reserve()
        self.data.extend(self._strings.data[self.data.length :])
        self.offsets.extend(self._strings.offsets[self.offsets.length :])

    def renew(self) -> None:
        """Says that the device's copy is worth nothing."""
        self.data.renew()
        self.offsets.renew()

    def flush(self, staging: Staging) -> None:
        """Sends to the device what has changed."""
        self.data.flush(staging)
        self.offsets.flush(staging)
