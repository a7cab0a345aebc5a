"""What is kept as a log of changes: a store of keys and values, and whatever else changes lead to.

Once most of the log is out of date it is written anew.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping
from itertools import chain, islice
from pathlib import Path
from typing import Any, Generic, TypeVar

from evflow.disk.log import Log, Meta
from evflow.errors import FlowError
from evflow.outside import shown

_SLACK = 4 << 20
"""Bytes that a log may have more than twice what it needs."""

_AT_ONCE = 1000
"""Keys in one piece of a log that is written anew."""

State = TypeVar("State")


class Changes(ABC, Generic[State]):
    """A state on disk, as the changes that led to it. A kill leaves all of a change or nothing.

    Args:
        path: the file; made by the first change. Until ``close`` nobody else has it.
        what: what the file is, for messages, such as "journal".
        kind: what the file is, as it says so itself; see ``Log``.
        own: whether the file is locked; False if who opens it has locked its folder.
        synced: whether a change returns when the disk itself has it.

    Attributes:
        number: changes that were made since the log began, known once it is loaded.

    Raises:
        UnwrittenError: the file cannot be used now, or another has it. Each method raises it too.
        FlowError: the file is not what ``kind`` says, or is damaged.
    """

    def __init__(self, path: Path, what: str, kind: str, *, own: bool = True, synced: bool = False) -> None:
        self._log = Log(path, what, kind, own=own, synced=synced)
        self._needed = 0
        self.number = 0

    @abstractmethod
    def _none(self) -> State:
        """The state before any change."""

    @abstractmethod
    def _apply(self, state: State, change: Meta) -> None:
        """Makes a change to a state.

        Raises:
            ValueError: it is not one, as in a file of somebody else. So does TypeError.
        """

    @abstractmethod
    def _changes(self, state: State) -> Iterable[Meta]:
        """Changes that lead to a state."""

    @property
    def begun(self) -> bool:
        """Whether there is a file."""
        return self._log.begun

    def load(self) -> State:
        """The state that all changes have led to."""
        state = self._none()
        said = 1
        with self._log.naming():
            for piece in self._log.pieces():
                number, *change = piece.meta
                if type(number) is not int:
                    raise ValueError(f"{shown(piece.meta)} is not a change")
                self.number = max(self.number, number)
                said += len(change)
                self._apply(state, change)
        self._needed = self._log.end * (1 + sum(map(len, self._changes(state)))) // said
        return state

    def change(self, change: Iterable[Any]) -> None:
        """Makes a change; what it is said with is plain data."""
        if not self._log.known:
            self.load()
        meta = [self.number + 1, *change]
        if self._log.begun:
            self._log.append(meta)
        else:
            self._log.begin([[(meta, b"")]])
        self.number += 1
        if self._log.end > 2 * self._needed + _SLACK:
            try:
                self.replace(self.load())
            except FlowError:
                # All is saved; there may be room when the log has grown more.
                self._needed = self._log.end

    def replace(self, state: State) -> None:
        """From now on exactly this is the state."""
        self._log.begin([[([self.number, *change], b"") for change in self._changes(state)]])
        self._needed = self._log.end

    def change_late(self, change: Iterable[Any]) -> None:
        """Makes a change after ``close``, unless another has had the file since or it cannot be written."""
        self._log.append_late([self.number, *change])

    def sync(self) -> None:
        """Brings all changes to the disk itself."""
        self._log.sync()

    def close(self) -> None:
        """Closes the file. Closing twice does nothing."""
        self._log.close()


class Store(Changes[dict[Any, Any]]):
    """Keys and values on disk; those that were set last stand behind the others.

    A key that is a list is a tuple when it is loaded. A change is keys and values in turn.
    """

    def _none(self) -> dict[Any, Any]:
        return {}

    def _apply(self, state: dict[Any, Any], change: Meta) -> None:
        for key, value in zip(change[::2], change[1::2], strict=True):
            name = tuple(key) if isinstance(key, list) else key
            state.pop(name, None)
            if value is not None:
                state[name] = value

    def _changes(self, state: dict[Any, Any]) -> Iterator[Meta]:
        items = iter(state.items())
        while some := list(islice(items, _AT_ONCE)):
            yield list(chain.from_iterable(some))

    def save(self, values: Mapping[Any, Any], late: bool = False) -> None:
        """Sets values, and forgets those that are None.

        Args:
            values: by key; keys and values are plain data.
            late: after ``close``; see ``change_late``.
        """
        (self.change_late if late else self.change)(chain.from_iterable(values.items()))
