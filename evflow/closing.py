"""What a program has open until it closes it."""

from __future__ import annotations

from typing import Self


class Closing:
    """A context manager at whose end ``close`` is called."""

    def close(self) -> None:
        """Ends it."""
        raise NotImplementedError

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *raised: object) -> None:
        self.close()
