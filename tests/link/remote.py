"""What every transport of the tests has in common: its two ends are on different hosts."""

from __future__ import annotations

from typing import Any

from evflow.errors import LinkError

__all__ = ["Remote"]


class Remote:
    """The part of a ``Transport`` that needs one host: shared memory and shortcuts; there are none."""

    def room(self, length: int) -> None:
        return None

    def share(self, connection: Any) -> tuple[str, int, bytes] | None:
        return None

    def shared(self, connection: Any, opened: bool) -> None:
        pass

    def place(self, connection: Any, body: memoryview) -> list[int] | None:
        return None

    def release(self, connection: Any, blocks: list[int]) -> None:
        pass

    def open_share(self, connection: Any, name: str, size: int, nonce: bytes) -> bool:
        return False

    def view(self, connection: Any, place: list[int]) -> Any:
        raise LinkError("a frame in shared memory: there is none with this peer")

    def keep(self, connection: Any, block: int, start: int, stop: int) -> None:
        pass

    def released(self, connection: Any) -> list[int]:
        return []

    def offer_shortcut(self, connection: Any) -> tuple[str, bytes] | None:
        return None

    def open_shortcut(self, connection: Any, name: str, token: bytes) -> bool:
        return False

    def joined(self, connection: Any, opened: bool) -> None:
        pass

    def lend(self, connection: Any, express: Any) -> bytes | None:
        return None

    def leave_shortcut(self, connection: Any) -> None:
        pass
