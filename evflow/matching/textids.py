"""Ids that are texts: names of the ids that the engines know, which are integers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from evflow.errors import SubscriptionError
from evflow.events.gather import starts_of
from evflow.matching.literals import checked_text, shown
from evflow.matching.mapped import mapped

LONGEST = 255
"""Bytes of UTF-8 that a text may have."""

_FILES = ("id_text_data.npy", "id_text_lengths.npy", "id_text_numbers.npy")


def texts_of(given: Any) -> list[str] | None:
    """Ids as the user gave them, if they are texts; None if they are something else.

    Args:
        given: a list, a tuple, an array of numpy, a column of pandas or pyarrow.

    Raises:
        SubscriptionError: some are texts and others are not.

    Example:
        >>> texts_of(["alice/7", "bob/1"]), texts_of([7, 1])
        (['alice/7', 'bob/1'], None)
    """
    if hasattr(given, "__array__"):
        held = np.asarray(given)
        given = held.tolist() if held.dtype.kind in "UOT" and held.ndim == 1 else ()
    if not isinstance(given, list | tuple) or not given or not isinstance(given[0], str):
        return None
    for id in given:
        if not isinstance(id, str):
            raise SubscriptionError(f"ids: expected texts or whole numbers, not both, found {shown(id)}")
    return list(given)


def checked_id(text: object) -> str:
    """A text that an id may be, as a plain ``str``.

    Raises:
        SubscriptionError: it is not one.

    Example:
        >>> checked_id("alice/7")
        'alice/7'
    """
    found = checked_text(text, "id")
    if not 0 < (size := len(found.encode())) <= LONGEST:
        raise SubscriptionError(f"id {shown(found)}: expected 1 to {LONGEST} bytes of UTF-8, found {size}")
    return found


class TextIds:
    """Which integer each text stands for, and the other way around.

    Example:
        >>> texts = TextIds()
        >>> texts.put([3], texts.free(["alice/7"]))
        >>> texts.number("alice/7"), texts.of([3, 4])
        (3, ['alice/7', None])
    """

    def __init__(self) -> None:
        self._numbers: dict[str, int] = {}
        self._texts: dict[int, str] = {}

    def __len__(self) -> int:
        return len(self._numbers)

    def __iter__(self) -> Iterator[str]:
        return iter(self._numbers)

    def __contains__(self, text: str) -> bool:
        return text in self._numbers

    def number(self, text: str) -> int:
        """The integer that a text stands for.

        Raises:
            SubscriptionError: there is none.
        """
        found = self._numbers.get(text)
        if found is None:
            raise SubscriptionError(f"there is no subscription {shown(text)}")
        return found

    def of(self, ids: list[int]) -> list[str | None]:
        """The text of each id, None where it has none."""
        return [self._texts.get(id) for id in ids] if self._texts else [None] * len(ids)

    def free(self, given: Sequence[str | None]) -> list[str | None]:
        """Texts for new subscriptions, as plain ``str``; None for those that have none.

        Raises:
            SubscriptionError: one is not a text that an id may be, is in use, or is given twice.
        """
        found = [None if one is None else checked_id(one) for one in given]
        seen: set[str] = set()
        for text in found:
            if text is None:
                continue
            if text in self._numbers:
                raise SubscriptionError(f"id {shown(text)} is in use; unsubscribe it, or choose another")
            if text in seen:
                raise SubscriptionError(f"id {shown(text)} stands twice; each may be given once")
            seen.add(text)
        return found

    def put(self, ids: list[int], texts: Sequence[str | None]) -> None:
        """Notes texts that are free, one or None for each id."""
        named = {text: id for text, id in zip(texts, ids, strict=True) if text is not None}
        self._numbers.update(named)
        self._texts.update(zip(named.values(), named, strict=True))

    def remove(self, ids: list[int]) -> None:
        """Forgets the texts of ids, of those that have one."""
        for id in ids if self._texts else ():
            text = self._texts.pop(id, None)
            if text is not None:
                del self._numbers[text]

    @property
    def nbytes(self) -> int:
        """Bytes of memory, about."""
        return sum(len(text) + 250 for text in self._numbers)

    def save(self, folder: Path) -> None:
        """Writes all this to files in ``folder``, if there is something."""
        if self._numbers:
            pieces = [text.encode() for text in self._numbers]
            lengths = np.array([len(piece) for piece in pieces], np.uint8)
            columns = np.frombuffer(b"".join(pieces), np.uint8), lengths, list(self._numbers.values())
            for name, column in zip(_FILES, columns, strict=True):
                np.save(folder / name, np.asarray(column))

    def load(self, folder: Path) -> None:
        """Takes what ``save`` wrote."""
        if (folder / _FILES[0]).exists():
            data, lengths, numbers = (mapped(folder / name) for name in _FILES)
            whole, ends = data.tobytes(), starts_of(lengths.astype(np.int64)).tolist()
            texts = [whole[a:b].decode() for a, b in pairwise(ends)]
            self.put(numbers.tolist(), texts)


def numbers_of(given: Any, texts: TextIds) -> Any:
    """Ids as integers where they are texts, else as they were given.

    Raises:
        SubscriptionError: there is no subscription of a text.
    """
    named = texts_of(given)
    return given if named is None else np.array([texts.number(text) for text in named], np.int64)
