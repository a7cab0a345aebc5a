"""What a program has open until it closes it."""

from __future__ import annotations

from typing import Self

from evflow.errors import EvflowError


class Closing:
    """A context manager at whose end ``close`` is called. What the ``with`` block raises is not replaced by
    an error of ``close``, which becomes a note of it."""

    def close(self) -> None:
        """Ends it."""
        raise NotImplementedError

    def __enter__(self) -> Self:
        return self

    def __exit__(self, _: object, raised: BaseException | None, trace: object) -> None:
        try:
            self.close()
        except EvflowError as error:
            if raised is None:
                raise
            raised.add_note(f"closing failed too: {error}")
