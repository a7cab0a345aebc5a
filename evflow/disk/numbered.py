"""Things with numbers from 0 on, such as rows, in a log of which the oldest files go.

A thing keeps its number for good. Each file begins with the state: from which number on things count, and
what the owner has to know beside them. So a file goes without being read.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from msgspec import Struct, field

from evflow.disk.log import Body, Log, Meta, Piece
from evflow.outside import shown

END = 1 << 62
"""A number is less."""

_MARK = 64 << 10
"""Bytes of a file between two things of which the place is known."""

Things = tuple[int, Sequence[Any], Body]
"""Things that follow one another: how many there are, what is said of them, and their bytes."""


class _File(Struct):
    """A file: its number, its things from ``first`` to ``next``, their bytes, and where some of them are."""

    number: int
    first: int
    next: int
    nbytes: int = 0
    marks: list[tuple[int, int]] = field(default_factory=list)


class Numbered(ABC):
    """Things in a log. Nothing is written before there is something to write.

    Args:
        path: the newest file; see ``Log``.
        what: what it is, for messages.
        kind: what it is, as it says so itself.
        size: bytes of things after which another file is begun.
        own: whether the log is locked.

    Attributes:
        first: the number of the oldest thing that counts.
        nbytes: bytes of the things in files.

    Raises:
        FlowError: the files cannot be used; each method raises it too.
    """

    def __init__(self, path: Path, what: str, kind: str, size: int, own: bool = True) -> None:
        self.first = self.nbytes = 0
        self._size = size
        self._files: list[_File] = []
        self._log = Log(path, what, kind, own=own)
        try:
            self._read()
        except BaseException:
            self._log.close()
            raise

    # --- what the owner has beside the things; these raise ValueError for what is not theirs

    @abstractmethod
    def _state(self) -> list[Any]:
        """All of it, as plain data."""

    @abstractmethod
    def _restore(self, state: list[Any]) -> None:
        """Takes what ``_state`` gave."""

    @abstractmethod
    def _added(self, count: int, said: Sequence[Any]) -> None:
        """Things are in the log, of which this is said."""

    @abstractmethod
    def _noted(self, meta: Meta) -> None:
        """What ``note`` wrote is in the log."""

    # --- the files

    def _read(self) -> None:
        self._files, self.nbytes = [], 0
        with self._log.naming():
            for piece in self._log.pieces():
                self._take(piece)
            if self._files and not self._files[0].first <= self.first <= self.next:
                raise ValueError(
                    f"{self.first} and those behind it are missing, there are those from "
                    f"{self._files[0].first} to {self.next}; bring back its files, or move them away"
                )
        if self._files:
            self._drop()

    def _take(self, piece: Piece) -> None:
        match piece.meta:
            case ["state", int(first), int(next), *state] if 0 <= first <= next < END:
                if self._files and self.next != next:
                    raise ValueError(f"those from {self.next} to {next} are missing; bring back its files")
                self.first = first
                self._restore(state)
                self._files.append(_File(piece.segment, next, next))
            case ["things", int(count), *said] if self._files and 0 < count < END - self.next:
                self._added(count, said)
                self._add(count, piece.at, piece.size)
            case ["first", int(first)] if self._files and first <= self.next:
                self.first = max(self.first, first)
            case [str(), *_] if self._files:
                self._noted(piece.meta)
            case _:
                raise ValueError(f"{shown(piece.meta)} is not what is written there")

    def _add(self, count: int, at: int, nbytes: int) -> None:
        """Things are at a byte of the newest file."""
        file = self._files[-1]
        if not file.marks or at - file.marks[-1][1] >= _MARK:
            file.marks.append((file.next, at))
        file.next += count
        file.nbytes += nbytes
        self.nbytes += nbytes

    def _begun(self) -> Log:
        if not self._files:
            self._log.begin([[(self._beginning(), b"")]])
            self._files.append(_File(self._log.segment, self.first, self.first))
        return self._log

    def _beginning(self) -> Meta:
        return ["state", self.first, self.next, *self._state()]

    def _roll(self) -> None:
        """Goes on in another file."""
        self._log.roll([self._beginning()])
        self._files.append(_File(self._log.segment, self.next, self.next))

    @property
    def next(self) -> int:
        """The number that the next thing will have."""
        return self._files[-1].next if self._files else self.first

    @property
    def oldest_end(self) -> int:
        """The number up to which things have to be let go so that a file goes."""
        return self._files[0].next if self._files else self.next

    # --- things come and go

    def put(self, count: int, said: Sequence[Any], body: Body) -> None:
        """Appends things, all or none.

        Args:
            count: how many.
            said: what is said of them; plain data.
            body: their bytes.
        """
        log, newest = self._begun(), self._files[-1]
        # A file whose state is large has as much beside it.
        if newest.nbytes >= self._size and log.end >= 2 * newest.marks[0][1]:
            self._roll()
        at = log.end
        log.append(["things", count, *said], body)
        self._add(count, at, memoryview(body).nbytes)
        self._added(count, said)

    def note(self, meta: Meta) -> None:
        """Writes something else, which begins with what it is."""
        self._begun().append(meta)
        self._noted(meta)

    def since(self, number: int) -> Iterator[tuple[int, Piece]]:
        """The pieces of things from a number on, each with the number of its first; that may be less."""
        if not self._files:
            return
        file = self._files[max(bisect_right(self._files, number, key=lambda file: file.first) - 1, 0)]
        found = bisect_right(file.marks, number, key=lambda mark: mark[0]) - 1
        at, byte = file.marks[found] if found >= 0 else (file.first, 0)
        for piece in self._log.pieces(file.number, byte):
            if piece.meta[0] == "things":
                if at + piece.meta[1] > number:
                    yield at, piece
                at += piece.meta[1]

    def let_go(self, first: int) -> int:
        """Lets the things before a number go, and deletes files of which none is left.

        Returns:
            How many went.
        """
        gone = min(first, self.next) - self.first
        if gone <= 0:
            return 0
        self._begun().append(["first", self.first + gone])
        self.first += gone
        self._drop()
        return gone

    def _drop(self) -> None:
        if self._files[-1].next <= self.first and 2 * self._files[-1].nbytes >= self._size:
            self._roll()
        gone = 0
        while self._files[gone].next <= self.first and gone < len(self._files) - 1:
            gone += 1
        if gone:
            self._log.drop(self._files[gone].number)
            self.nbytes -= sum(file.nbytes for file in self._files[:gone])
            del self._files[:gone]

    def replace(self, first: int, state: list[Any], things: Iterable[Things]) -> None:
        """From now on exactly these things are there; after a kill before that, what was there.

        Args:
            first: the number of the first.
            state: as ``_state`` gives it.
            things: the things.
        """
        self._log.begin(self._split(first, state, things))
        self._read()

    def _split(
        self, first: int, state: list[Any], things: Iterable[Things]
    ) -> Iterator[list[tuple[Meta, Body]]]:
        """The pieces of each file."""
        next, size = first, 0
        file: list[tuple[Meta, Body]] = [(["state", first, next, *state], b"")]
        for count, said, body in things:
            if size >= self._size:
                yield file
                file, size = [(["state", first, next, *state], b"")], 0
            file.append((["things", count, *said], body))
            size, next = size + memoryview(body).nbytes, next + count
        yield file

    def sync(self) -> None:
        """Brings all that was appended to the disk itself."""
        self._log.sync()

    def close(self) -> None:
        """Closes the files. Closing twice does nothing."""
        self._log.close()
