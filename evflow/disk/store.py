"""A store: keys and values in a log, of which each save is one piece.

Once most of the log is out of date it is written anew.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import chain, islice
from pathlib import Path
from typing import Any

from evflow.disk.log import Log, Meta
from evflow.errors import FlowError
from evflow.outside import shown

__all__ = ["Store"]

_SLACK = 4 << 20
"""Bytes that a log may have more than twice what it needs."""

_AT_ONCE = 1000
"""Keys in one piece of a log that is written anew."""

Key = str | bytes | int | tuple[Any, ...]


class Store:
    """Keys and values on disk. A kill at any moment leaves all of a save or nothing.

    Args:
        path: the file; made by the first save. Until ``close`` nobody else has it.
        what: what the file is, for messages, such as "journal".
        kind: what the file is, as it says so itself; see ``Log``.
        own: whether the store locks the file; False if who opens it has locked its folder.
        synced: whether a save returns when the disk itself has it.

    Attributes:
        number: saves that were made since the store began.

    Raises:
        UnwrittenError: the file cannot be used now, or another has it. Each method raises it too.
        FlowError: the file is not such a store, or is damaged.
    """

    def __init__(self, path: Path, what: str, kind: str, *, own: bool = True, synced: bool = False) -> None:
        self._log = Log(path, what, kind, own=own, synced=synced)
        self._needed = 0
        self.number = 0
        try:
            self.load()
        except BaseException:
            self.close()
            raise

    @property
    def begun(self) -> bool:
        """Whether there is a file."""
        return self._log.begun

    def load(self) -> dict[Any, Any]:
        """All keys and their values, those that were set last behind the others. Lists in keys are tuples."""
        found: dict[Any, Any] = {}
        said = 1
        with self._log.naming():
            for piece in self._log.pieces():
                number, *pairs = piece.meta
                if type(number) is not int or len(pairs) % 2:
                    raise ValueError(f"{shown(piece.meta)} is not what a store writes")
                self.number = max(self.number, number)
                said += len(pairs) // 2
                for key, value in zip(pairs[::2], pairs[1::2], strict=True):
                    name = tuple(key) if isinstance(key, list) else key
                    found.pop(name, None)
                    if value is not None:
                        found[name] = value
        self._needed = self._log.end * (len(found) + 1) // said
        return found

    def save(self, values: Mapping[Any, Any]) -> None:
        """Sets values, and forgets those that are None.

        Args:
            values: by key; keys and values are plain data.
        """
        meta = [self.number + 1, *chain.from_iterable(values.items())]
        if self._log.begun:
            self._log.append(meta)
        else:
            self._log.begin([meta])
        self.number += 1
        if self._log.end > 2 * self._needed + _SLACK:
            try:
                self.replace(self.load())
            except FlowError:
                # All is saved; there may be room when the log has grown more.
                self._needed = self._log.end

    def replace(self, values: Mapping[Any, Any]) -> None:
        """From now on exactly these keys and values are in the store; none is None."""
        self._log.begin(self._metas(values))
        self._needed = self._log.end

    def _metas(self, values: Mapping[Any, Any]) -> Iterator[Meta]:
        items = iter(values.items())
        while some := list(islice(items, _AT_ONCE)):
            yield [self.number, *chain.from_iterable(some)]

    def save_late(self, values: Mapping[Any, Any]) -> None:
        """Saves after ``close``, unless another has had the file meanwhile or it cannot be written."""
        self._log.append_late([self.number, *chain.from_iterable(values.items())])

    def sync(self) -> None:
        """Brings what was saved to the disk itself."""
        self._log.sync()

    def close(self) -> None:
        """Closes the file. Closing twice does nothing."""
        self._log.close()
