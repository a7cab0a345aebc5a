"""How many bytes a second a channel takes, measured by what its receiver says it has taken in."""

from __future__ import annotations

__all__ = ["Meter", "smoothed"]

_SPAN = 0.02
_WEIGHT = 0.3


def smoothed(before: float, measured: float) -> float:
    """A measurement with those before it, of which 0.0 says that there was none."""
    return measured if before == 0.0 else before + _WEIGHT * (measured - before)


class Meter:
    """A smoothed rate over the times in which something was on its way.

    Attributes:
        rate: bytes a second; 0.0 until measured.
    """

    def __init__(self) -> None:
        self.rate = 0.0
        self._since: float | None = None
        self._bytes = 0

    def restart(self) -> None:
        """Begins a new measurement, keeping the rate."""
        self._since = None

    def note(self, now: float, total: int, busy: bool) -> None:
        """Hears that ``total`` bytes were taken in at ``now``; ``busy`` if more is on its way."""
        if self._since is None:
            if busy:
                self._since, self._bytes = now, total
            return
        span = now - self._since
        if span < _SPAN:
            return
        self.rate = smoothed(self.rate, (total - self._bytes) / span)
        self._since, self._bytes = (now, total) if busy else (None, 0)
