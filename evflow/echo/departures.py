"""The channels that a process has left, and who does not know yet.

It goes on noting who takes part, and tells that with each farewell: two who are about to join by it must not
miss each other.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from evflow.echo.notes import Entry, Version
from evflow.echo.roster import Roster

__all__ = ["Departures"]

_REMEMBERED = 3600.0


@dataclass
class _Departed:
    roster: Roster
    entry: Entry
    waiting: set[str]
    until: float


class Departures:
    """What one process has left."""

    def __init__(self) -> None:
        self._departed: dict[str, _Departed] = {}

    def __contains__(self, key: str) -> bool:
        return key in self._departed

    def leave(self, roster: Roster, entry: Entry, waiting: set[str], until: float) -> None:
        """The process has left a channel.

        Args:
            roster: what it knew of it.
            entry: the process's last entry.
            waiting: who has to confirm that it knows.
            until: when that is given up.
        """
        roster.set_own(entry)
        self._departed[roster.key] = _Departed(roster, entry, waiting, until)

    def enter(self, key: str) -> None:
        """It takes part again; what is derived from the channel comes back with it."""
        self._departed = {
            k: gone for k, gone in self._departed.items() if key not in (k, gone.roster.record.parent)
        }

    def roster(self, key: str) -> Roster | None:
        """What is known of a channel; None if it was not left."""
        gone = self._departed.get(key)
        return None if gone is None else gone.roster

    def confirm(self, key: str, process: str, applied: Version) -> bool:
        """A process's stones are linked by a version of this one's entry; gives whether that is the last."""
        gone = self._departed.get(key)
        told = gone is not None and applied >= gone.entry.version
        if gone is not None and told:
            gone.waiting.discard(process)
        return told

    def waiting(self, key: str) -> set[str]:
        """Who has not confirmed that this process left a channel."""
        gone = self._departed.get(key)
        return set() if gone is None else gone.waiting

    def late(self, now: float) -> Iterator[tuple[str, Roster]]:
        """Whom to tell again, and of what."""
        for key, gone in list(self._departed.items()):
            if now < gone.until:
                for name in sorted(gone.waiting):
                    yield name, gone.roster
            else:
                gone.waiting.clear()
                if now > gone.until + _REMEMBERED:
                    del self._departed[key]

    def processes(self) -> set[str]:
        """All who have not confirmed something."""
        return {name for gone in self._departed.values() for name in gone.waiting}
