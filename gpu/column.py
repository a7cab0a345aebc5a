"""Arrays that live on the host and, as a copy, on the device; what changes is sent before it is read."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from evflow.gpu.device import Device, Memory
from evflow.matching.strings import Strings

FEW = 8
"""Up to so many scattered elements are copied one by one, more are scattered by a kernel."""

MANY = 1024
"""So many separate changes are sent as one, of all that there is."""

Where = slice | NDArray[np.int64]


class Staging:
    """Pinned memory for small changes on their way, and as much memory on the device where they arrive.

    What was put into it stays until its stream is waited for, by ``wait``.
    """

    def __init__(self, device: Device, nbytes: int = 1 << 20) -> None:
        self.device = device
        self.stream = device.stream()
        self.scatter = device.kernels("scatter")["scatter"]
        self._pinned = device.pinned(nbytes)
        self._memory = device.allocate(nbytes)
        self._used = 0

    def wait(self) -> None:
        """Waits for the stream; then nothing of it is on its way any more."""
        self.stream.synchronize()
        self._used = 0

    def put(self, values: NDArray[Any]) -> tuple[NDArray[np.uint8], int] | None:
        """Copies values in; gives the pinned bytes and the address where they may arrive. None: no room."""
        begin, end = self._used, self._used + values.nbytes
        if end > len(self._pinned):
            return None
        self._used = -(-end // 8) * 8
        here = self._pinned[begin:end]
        here[:] = np.ascontiguousarray(values).reshape(-1).view(np.uint8)
        return here, self._memory.address + begin


class Column:
    """An array of rows that grows, with a copy on a device.

    Args:
        dtype: of the elements.
        width: how many elements a row has.
        device: where the copy is.

    Attributes:
        host: as many rows as there is room for; changed by ``write`` and ``extend`` only.
        length: how many rows are used.
    """

    def __init__(self, dtype: DTypeLike, width: int, device: Device) -> None:
        self._shape = (width,) if width > 1 else ()
        self.host: NDArray[Any] = np.zeros((0, *self._shape), dtype)
        self.length = 0
        self._device = device
        self._memory: Memory | None = None
        self._stale: list[Where] = []

    @property
    def address(self) -> int:
        """Where the copy on the device is; 0 as long as there are no rows."""
        return self._memory.address if self._memory else 0

    @property
    def nbytes(self) -> int:
        """Bytes of the host's memory."""
        return self.host.nbytes

    @property
    def device_bytes(self) -> int:
        """Bytes of the device's memory."""
        return self._memory.nbytes if self._memory else 0

    @property
    def used(self) -> NDArray[Any]:
        """The rows in use, not to be written to."""
        return self.host[: self.length]

    def reserve(self, rows: int) -> None:
        """Makes room for so many rows in all; after a DeviceError nothing has changed."""
        if rows <= len(self.host):
            return
        capacity = max(rows, 2 * self.length)
        row_bytes = self.host.dtype.itemsize * int(np.prod(self._shape, dtype=np.int64))
        memory = self._device.allocate(capacity * row_bytes)
        host = np.zeros((capacity, *self._shape), self.host.dtype)
        host[: self.length] = self.used
        self.renew()
        self.host, self._memory = host, memory

    def renew(self) -> None:
        """Says that the device's copy is worth nothing."""
        self._stale = [slice(0, self.length)]

    def write(self, where: Where, values: Any) -> None:
        """Sets rows."""
        self.host[where] = values
        if not isinstance(where, slice) and len(where) > FEW and (np.diff(where) == 1).all():
            where = slice(int(where[0]), int(where[-1]) + 1)
        self._stale.append(where)
        if len(self._stale) > MANY:
            self.renew()

    def extend(self, values: NDArray[Any]) -> None:
        """Appends rows, for which there is room."""
        first = self.length
        self.length += len(values)
        self.write(slice(first, self.length), values)

    def replace(self, values: NDArray[Any]) -> None:
        """Puts these in the place of all rows; there is room for them."""
        self.length = len(values)
        self.host[: self.length] = values
        self.renew()

    def flush(self, staging: Staging) -> None:
        """Sends to the device what has changed, in the staging's stream."""
        if not self._stale or self._memory is None:
            return
        slices = [where for where in self._stale if isinstance(where, slice)]
        scattered = [where for where in self._stale if not isinstance(where, slice)]
        for where in slices:
            self._send_range(where, staging)
        if scattered and not self._send_scattered(np.unique(np.concatenate(scattered)), staging):
            self._send_range(slice(0, self.length), staging)
        self._stale = []

    def _send_range(self, where: slice, staging: Staging) -> None:
        assert self._memory is not None
        values = self.host[where]
        offset = where.start * self.host.strides[0]
        staged = staging.put(values)
        if staged is None:
            staging.device.put(self._memory, values, offset)
        elif values.nbytes:
            staging.device.send(self._memory.address + offset, staged[0], staging.stream)

    def _send_scattered(self, rows: NDArray[np.int64], staging: Staging) -> bool:
        """Whether there was room in the staging."""
        assert self._memory is not None
        row_bytes, values = self.host.strides[0], staging.put(self.host[rows])
        if values is None:
            return False
        pinned, arrives = values
        device, stream = staging.device, staging.stream
        if len(rows) <= FEW:
            for i, row in enumerate(rows.tolist()):
                part = pinned[i * row_bytes : (i + 1) * row_bytes]
                device.send(self._memory.address + row * row_bytes, part, stream)
            return True
        index = staging.put(rows.astype(np.uint32))
        if index is None:
            return False
        device.send(arrives, pinned, stream)
        device.send(index[1], index[0], stream)
        words = row_bytes // 4
        staging.scatter(stream, len(rows) * words, len(rows), words, index[1], arrives, self.address)
        return True


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
