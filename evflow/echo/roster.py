"""A roster: what one process knows of one channel, and up to where the others have confirmed what it is
there."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable
from typing import Any

from evflow.echo.notes import LEFT, MOST_ENTRIES, SUBSCRIBED, Entry, Known, Version
from evflow.echo.record import Record, morph_from, packed_morph
from evflow.errors import LinkError
from evflow.graph.morph import Morph

NEVER: Version = (0, 0)
"""The version of an entry that is not known."""

_MOST_MORPHS = 64


class Roster:
    """What a process knows of a channel in which it takes part.

    Args:
        record: what the channel is.
        own: the process's own entry.

    Attributes:
        entries: process → the newest entry of it, those that have left and its own among them.
        forgotten: process → the version by which it was given up; only itself brings it back.
        morphs: the channel's morphs, by what they are.
        applied: process → the version of its entry that this process's stones are linked by.
        confirmed: process → the version of the own entry that its stones are linked by.
        refusals: process → why it does not take part.
        digests: process → the digest that it told last.
        claimed: whether the process subscribed before it was started again, and not since.
        waiting: once the process has left: who has to confirm that it knows.
        until: when that is given up.
    """

    def __init__(self, record: Record, own: Entry) -> None:
        self.record = record
        self.own = own
        self.entries: dict[str, Entry] = {own.process: own}
        self.forgotten: dict[str, Version] = {}
        self.morphs: dict[str, Morph] = {}
        self.applied: dict[str, Version] = {}
        self.confirmed: dict[str, Version] = {}
        self.refusals: dict[str, str] = {}
        self.digests: dict[str, bytes] = {}
        self.claimed = False
        self.waiting: set[str] = set()
        self.until = 0.0
        self._digest: bytes | None = None

    @property
    def key(self) -> str:
        """The channel's key."""
        return self.record.key

    def is_member(self, process: str) -> bool:
        """True if a process takes part, as far as is known."""
        entry = self.entries.get(process)
        return entry is not None and entry.state != LEFT and process not in self.forgotten

    def members(self) -> list[Entry]:
        """The processes that take part, itself among them, by name."""
        return [self.entries[name] for name in sorted(self.entries) if self.is_member(name)]

    def subscribers(self) -> list[str]:
        """The other processes to which events go, by name."""
        own = self.own.process
        return [e.process for e in self.members() if e.state == SUBSCRIBED and e.process != own]

    def set_own(self, entry: Entry) -> None:
        """The process is something else in the channel from now on."""
        self.own = self.entries[entry.process] = entry
        self._digest = None

    # --- what others say

    def merge(self, entry: Entry, itself: bool) -> bool:
        """Takes up what a process is said to be; not for the own one.

        Args:
            entry: that.
            itself: whether it was the process itself that said so.

        Returns:
            Whether anything has changed.
        """
        name = entry.process
        known = self.entries.get(name)
        self._digest = None
        if itself and self.forgotten.pop(name, None) is not None:
            if known is None or entry.version >= known.version:
                self.entries[name] = entry
            return True
        if entry.version <= self.forgotten.get(name, (-1, -1)):
            return False
        if known is not None and entry.version <= known.version:
            return False
        if known is None and len(self.entries) >= MOST_ENTRIES and not self._make_room():
            raise LinkError(f"channel {self.key}: more than {MOST_ENTRIES} processes")
        self.forgotten.pop(name, None)
        self.entries[name] = entry
        return True

    def _make_room(self) -> bool:
        """Forgets one that has left; gives whether there was one."""
        gone = next((name for name in self.entries if not self.is_member(name)), None)
        if gone is not None:
            self.drop_departed(gone)
        return gone is not None

    def add_morph(self, morph: Morph) -> bool:
        """Adds a morph; gives whether it is new.

        Raises:
            LinkError: there are too many.
        """
        identity = json.dumps(packed_morph(morph))
        if identity in self.morphs:
            return False
        if len(self.morphs) >= _MOST_MORPHS:
            raise LinkError(f"channel {self.key}: more than {_MOST_MORPHS} morphs")
        self.morphs[identity] = morph
        self._digest = None
        return True

    def merge_morphs(self, rows: Iterable[Any]) -> bool:
        """Takes up morphs from outside; gives whether any was new.

        Raises:
            LinkError: one is wrong, or there are too many.
        """
        known = [packed_morph(morph) for morph in self.morphs.values()]
        new = [morph_from(row) for row in rows if row not in known]
        return sum(map(self.add_morph, new)) > 0

    def forget(self, process: str) -> None:
        """Gives a process up, until it says something itself."""
        self.forgotten[process] = self.entries[process].version
        self._digest = None
        self.applied.pop(process, None)
        self.confirmed.pop(process, None)

    def drop_departed(self, process: str) -> None:
        """Forgets that a process has left, or was given up."""
        for known in (
            self.entries,
            self.forgotten,
            self.applied,
            self.confirmed,
            self.refusals,
            self.digests,
        ):
            known.pop(process, None)

    # --- what it says

    def digest(self) -> bytes:
        """16 bytes that are the same for two who know the same members and morphs."""
        if self._digest is not None:
            return self._digest
        known = [[list(entry.version), entry.process, entry.state] for entry in self.members()]
        text = json.dumps([known, sorted(self.morphs)])
        self._digest = hashlib.blake2b(text.encode(), digest_size=16).digest()
        return self._digest

    def known(self, age: Callable[[str], int]) -> Known:
        """All that is known, with the milliseconds since each process was heard."""
        entries = [(e, age(e.process)) for e in self.entries.values() if e.process not in self.forgotten]
        return Known(entries, [packed_morph(m) for m in self.morphs.values()])
