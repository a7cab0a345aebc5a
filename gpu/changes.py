"""Changes of an engine's subscriptions: one that was broken off in the middle is never answered from."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from evflow.errors import DeviceError

__all__ = ["Changes"]


class Changes:
    """Knows whether each change was made as a whole, or not at all."""

    def __init__(self) -> None:
        self._broken_off = ""

    @contextmanager
    def making(self) -> Iterator[None]:
        """Makes a change in there, which a DeviceError leaves undone; whatever else ends it breaks it off.

        Raises:
            DeviceError: a change before was broken off.
        """
        self.check()
        try:
            yield
        except DeviceError:
            raise
        except BaseException as error:
            self._broken_off = repr(error)
            raise

    def check(self) -> None:
        """Raises a DeviceError if a change was broken off."""
        if self._broken_off:
            raise DeviceError(
                f"a change of subscriptions was broken off by {self._broken_off}, and what the matcher holds "
                "is not known any more: make another one from the subscriptions"
            )
