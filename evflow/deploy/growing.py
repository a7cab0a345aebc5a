"""A value that comes bit by bit, and is written as it comes: little is left to do once it is whole."""

from __future__ import annotations

import numpy as np

from evflow.deploy.large import Draft

__all__ = ["Growing"]


class Growing:
    """A value of which some has come; a ``Store`` takes it as a value once all has.

    Args:
        total: its bytes.
        draft: the file that it is written to meanwhile, if it has one.

    Attributes:
        size: bytes that have come.
        draft: as given; None if it could not be written.

    Example:
        >>> value = Growing(5)
        >>> value.add(b"abc")
        >>> value.add(b"de")
        >>> bytes(value.data), value.size
        (b'abcde', 5)
    """

    def __init__(self, total: int, draft: Draft | None = None) -> None:
        self.size = 0
        self.draft = draft
        # Unlike that of a bytearray its memory is not touched before something comes.
        self._data = np.empty(total, np.uint8).data

    @property
    def data(self) -> memoryview:
        """All of it; what has not come yet is anything."""
        return self._data.toreadonly()

    def add(self, part: bytes | memoryview) -> None:
        """Takes what comes next; there must be room for it."""
        end = self.size + len(part)
        self._data[self.size : end] = part
        self.size = end
        if self.draft is not None:
            try:
                self.draft.add(part)
            except OSError:
                # Who saves the value will write it, and be told why that cannot be.
                self.draft = None
