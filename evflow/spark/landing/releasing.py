"""Releasing: committed rows leave in order, each emission with a number that always means the same rows.

An emission is a file of rows, and its number was given when these were committed. The ledger has the place up
to which all has been handled further on; after a kill rows go out from there again, under the same numbers,
so that whoever had them knows.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator

from evflow.errors import FlowError
from evflow.events.batch import EventBatch
from evflow.spark.landing.folder import Folder
from evflow.spark.landing.ledger import Ledger, Place, Waiting


class Releasing:
    """The committed rows.

    Args:
        folder: where they are.
        ledger: which they are.
        whole: the files that are there.

    Raises:
        FlowError: one is not there.

    Attributes:
        place: up to where rows were released.
        rows: committed rows that are still to be released.
    """

    def __init__(self, folder: Folder, ledger: Ledger, whole: Collection[str]) -> None:
        self._folder, self._ledger = folder, ledger
        self.place = ledger.place
        if ledger.waiting:
            # A flow may have heard that rows are settled only after it was closed.
            ledger.settle(self.place)
        for one in ledger.waiting.values():
            if one.file not in whole:
                path = folder.path_of(one.file)
                raise FlowError(f"{path}, {one.rows} committed rows of job {one.job!r}, is gone or cut")
        self.rows = sum(one.rows for one in ledger.waiting.values()) - self.place.row

    def next(self, most: int | None = None) -> tuple[EventBatch, int] | None:
        """The next rows and their number; None if there are none.

        Args:
            most: take no more rows than this. Then all that was released has to be settled before anything
                else is, or numbers would mean other rows after a kill.

        Raises:
            FlowError: they cannot be read; nothing has changed.
        """
        if not self.rows:
            return None
        number, row = self.place
        one = self._ledger.waiting[number]
        end = one.rows if most is None else min(row + most, one.rows)
        batch = self._read(one).slice(row, end)
        self.rows -= len(batch)
        self.place = Place(number + 1) if end == one.rows else Place(number, end)
        return batch, number

    def _read(self, one: Waiting) -> EventBatch:
        return self._folder.read(one.file, one.schema, one.rows)

    def settled(self, place: Place) -> None:
        """All that was released before a place has been handled: its files are deleted."""
        self._folder.remove([one.file for one in self._ledger.settle(place)])

    def left(self) -> Iterator[tuple[Waiting, EventBatch]]:
        """What is still to be released, a batch for each emission."""
        number, row = self.place
        for one in self._ledger.waiting.values():
            if one.number >= number:
                yield one, self._read(one).slice(row if one.number == number else 0, one.rows)
