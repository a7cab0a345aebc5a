"""What a staging node has above it: the root in the same process, or the way to one in another."""

from __future__ import annotations

import contextlib
import logging
import time
from collections import deque
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import ClassVar

from evflow.errors import EvflowError, StagingError
from evflow.events.batch import EventBatch
from evflow.staging.area import StagingNode
from evflow.staging.committing import Committing
from evflow.staging.linking import NODE, TOLD, Sent, Uplink
from evflow.staging.schedulers import Hold
from evflow.stone import Context

_MOST_EMITTED = 4 << 20
"""Bytes of blocks that a node gives to its bridge at a time."""

_log = logging.getLogger("evflow.staging")


def told(name: str, messages: Sequence[Sent]) -> EventBatch:
    """Messages between the root and a staging node, as events."""
    columns = dict(zip(Sent._fields, map(list, zip(*messages, strict=True)), strict=True))
    return EventBatch.from_columns(TOLD, {"node": [name] * len(messages), **columns})


class Near:
    """The root is in the same process.

    Args:
        node: the staging node.
        committing: has the root.
    """

    def __init__(self, node: StagingNode, committing: Committing) -> None:
        self._node, self._committing = node, committing
        committing.root.joined(NODE, time.monotonic())

    def turn(self, now: float, own: str) -> Hold | None:
        """Lets node and root tell each other what there is. Why the oldest step waits at the root; ``own`` is
        why it waits at the node."""
        node, root = self._node, self._committing.root
        while True:
            while node.up:
                root.receive(NODE, node.up.popleft(), now)
            found = self._committing.turn(now)
            if not root.outbox:
                return found
            while root.outbox:
                if part := node.hear(root.outbox.popleft()[1], now):
                    root.arrived(NODE, part)

    def emit(self, now: float) -> float | None:
        """Emits what there is; as ``Actor.wake``."""
        self._committing.emit()
        return None

    @property
    def busy(self) -> str:
        """As of ``Actor``."""
        return self._committing.busy

    @property
    def failure(self) -> EvflowError | None:
        """As of ``Actor``."""
        return self._committing.failure

    def close(self) -> None:
        """Ends it."""
        self._committing.close()


class Far(Near):
    """The root is in another process, or at least behind links.

    Args:
        context: of the stone, which emits.
        listen: where the staging node listens.
        name: of the staging node.
        uplink: the way there.
        ring: has ``turn`` called soon.

    Attributes:
        there: those of this process, by where their staging nodes listen.
    """

    busy, failure = "", None
    there: ClassVar[dict[Path, Far]] = {}

    def __init__(
        self, context: Context, listen: Path, name: str, uplink: Uplink, ring: Callable[[], None]
    ) -> None:
        self._listen = listen.absolute()
        self.there[self._listen] = self
        self._context, self._name, self._uplink, self._ring = context, name, uplink, ring
        self._inbox: deque[Sent] = deque()

    def hear(self, sent: Sent) -> None:
        """The root has said something; called in any thread."""
        self._inbox.append(sent)
        self._ring()

    def turn(self, now: float, own: str) -> Hold | None:
        while self._inbox:
            try:
                self._uplink.receive(self._inbox.popleft(), now)
            except StagingError as error:
                _log.warning("staging node %s: what the root says: %s", self._name, error)
                self._uplink.end()
        hold = self._uplink.turn(now, own)
        if self._uplink.outbox:
            self._context.wake()
        return hold

    def emit(self, now: float) -> float | None:
        found, size = list[Sent](), 0
        # The other thread may begin a new session meanwhile, which empties it.
        with contextlib.suppress(IndexError):
            while size < _MOST_EMITTED:
                found.append(self._uplink.outbox.popleft())
                size += len(found[-1].values)
        if found:
            self._context.take(len(found))
            self._context.emit(told(self._name, found))
        return now if size >= _MOST_EMITTED else None

    def close(self) -> None:
        self.there.pop(self._listen, None)
