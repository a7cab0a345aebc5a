"""What the steps of a store say of themselves, in one file beside theirs: so they need not all be opened.

The files of steps are the truth. A file that the index does not know, or knows with another size or another
time of its last change, is opened. So the index may be missing, old or damaged.
"""

from __future__ import annotations

import os
import zlib
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

import msgspec

from evflow.disk import read_file
from evflow.errors import StagingError
from evflow.staging.stores.direct import publish

BEHIND = 256
"""Steps that the index may lack, or an eighth of all: so many files are opened after a kill."""

_MOST_BYTES = 1 << 28


class Facts(NamedTuple):
    """What a step says of itself: its number, and writers in it, as of ``Store.done``; those that it does not
    name are as in the step before, or not known."""

    step: int
    news: dict[int, int]
    known: bool = True


class _Entry(NamedTuple):
    size: int
    changed: int
    facts: Facts


class Index:
    """The index of a store.

    Args:
        folder: has a file for each step, in the order of steps, called 0, 1, 2 and so on.
        end: the end of their names.
    """

    def __init__(self, folder: Path, end: str) -> None:
        self._folder, self._end, self._path = folder, end, folder / ".index"
        self._entries: list[_Entry] = []
        with suppress(OSError, msgspec.MsgspecError):
            data = read_file(self._path, _MOST_BYTES)[1]
            if zlib.crc32(data[4:]).to_bytes(4, "little") == data[:4]:
                self._entries = msgspec.msgpack.decode(data[4:], type=list[_Entry])
        self._saved = len(self._entries)

    def _name(self, place: int) -> str:
        return f"{place}{self._end}"

    def _state(self, place: int) -> tuple[int, int]:
        status = os.stat(f"{self._folder}/{self._name(place)}")
        return status.st_size, status.st_mtime_ns

    def steps(
        self, read: Callable[[Sequence[int]], Iterable[Facts]], count: int | None = None
    ) -> list[Facts]:
        """What all steps say. StagingError if the file of one is missing, or their numbers do not rise.

        Args:
            read: opens the files of steps at some places, of which there is one at least.
            count: how many steps there are; None for as many as there are files.
        """
        known = self._entries
        if count is None:
            count = 0
            for name in os.listdir(self._folder):
                number = name.removesuffix(self._end)
                # Whatever becomes of its file: no step may be written over.
                if number.isdecimal() and name == self._name(int(number)):
                    count = max(count, int(number) + 1)
        places = range(count)
        try:
            states = [self._state(place) for place in places]
        except OSError as error:
            why = f"{error.filename}: {error.strerror}; put it back, or choose another store"
            raise StagingError(why) from None
        new = [place for place in places if place >= len(known) or known[place][:2] != states[place]]
        opened = dict(zip(new, read(new) if new else (), strict=True))
        self._entries = [
            _Entry(*states[place], opened[place]) if place in opened else known[place] for place in places
        ]
        facts = [entry.facts for entry in self._entries]
        for place, (before, this) in enumerate(pairwise(facts), 1):
            if this.step <= before.step:
                why = f"has step {this.step}, and the one before {before.step}; put back what was there"
                raise StagingError(f"{self._folder / self._name(place)} {why}")
        if new or len(known) > len(places):
            self._save()
        return facts

    def add(self, place: int, facts: Facts) -> None:
        """A step is there, behind all others."""
        # Without a state it is opened the next time.
        state = (-1, -1)
        with suppress(OSError):
            state = self._state(place)
        self._entries[place:] = [_Entry(*state, facts)]
        # All of it is written, so less often as it grows.
        if place + 1 >= self._saved + max(BEHIND, self._saved // 8):
            self._save()

    def close(self) -> None:
        """Writes what is not written."""
        if len(self._entries) > self._saved:
            self._save()

    def _save(self) -> None:
        self._saved, made = len(self._entries), self._path.with_name(".index.new")
        # It saves time, and no more.
        with suppress(OSError, MemoryError):
            data = msgspec.msgpack.encode(self._entries)
            made.write_bytes(zlib.crc32(data).to_bytes(4, "little") + data)
            publish(made, self._path)
