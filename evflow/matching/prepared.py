"""Events that are matched more than once."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from evflow.matching.rows import EventRows


class PreparedEvents:
    """Events whose rows a matcher made before; it makes them again when it has learned new names or strings.

    The events must not change meanwhile.

    Attributes:
        events: the events.
        rows: the events as engines read them.
        version: how many names and strings the matcher knew.
    """

    __slots__ = ("events", "rows", "version")

    def __init__(self, events: Any, rows: EventRows, version: tuple[int, int]) -> None:
        self.events = events
        # Columns that a thread writes its next events to.
        kept = ("name", "kind", "number", "text", "char_start", "char_length")
        self.rows = replace(rows, **{name: getattr(rows, name).copy() for name in kept})
        self.version = version

    def __len__(self) -> int:
        return len(self.rows)
