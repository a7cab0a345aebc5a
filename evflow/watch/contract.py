"""What is asked of who speaks to a node: ``evflow.deploy.client.Client`` is one, a test may have another."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from evflow.events.batch import EventBatch

__all__ = ["Client", "Opener", "Source", "Tap"]


class Tap(Protocol):
    """Batches of what passes a stone, as they come; closed at the end of its ``with`` block."""

    @property
    def missed(self) -> int:
        """Events that came and were not taken in time."""

    def next(self, timeout: float | None = None) -> EventBatch | None:
        """The next batch; None if none came within ``timeout`` seconds."""

    def close(self) -> None:
        """Ends watching."""


class Source(Protocol):
    """A stone of a node, to submit events to."""

    def submit_batch(self, table: Any, /) -> None:
        """Submits events."""


class Client(Protocol):
    """A connection to a node; what was submitted is handed over at the end of its ``with`` block."""

    @property
    def node(self) -> str:
        """The name of the node."""

    def ask(self, verb: str, *, seconds: float | None = None, **arguments: Any) -> Any:
        """The node's answer, plain data."""

    def tap(self, stone: str, /) -> Tap:
        """What passes a stone from now on."""

    def source(self, stone: str, /) -> Source:
        """A stone to submit to."""


Opener = Callable[[], AbstractContextManager[Client]]
"""Makes a connection to a node; raises a ``LinkError`` where there is none."""
