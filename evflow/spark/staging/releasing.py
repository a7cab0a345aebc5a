"""Releasing: committed rows leave in order, each emission with a number that always means the same rows.

How far they have come is a place. The ledger has the place up to which all has been handled further on; after
a kill rows go out from there again, cut as before and under the same numbers, so that whoever had them knows.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from evflow.errors import FlowError
from evflow.events.batch import EventBatch
from evflow.spark.rowfile import RowFile
from evflow.spark.staging.folder import Folder
from evflow.spark.staging.ledger import Ledger, Place, Waiting


class Releasing:
    """The files of committed rows.

    Args:
        folder: where they are.
        ledger: which they are.

    Raises:
        FlowError: one is not there, or lacks rows.

    Attributes:
        place: up to where rows were released.
        rows: committed rows that are still to be released.
        files: files that are not settled, so still there.
    """

    def __init__(self, folder: Folder, ledger: Ledger) -> None:
        self._folder, self._ledger = folder, ledger
        self.place = ledger.place
        self._current: tuple[Waiting, RowFile] | None = None
        # A flow may have heard that they are settled only after it was closed.
        for one in ledger.settle(self.place) if ledger.files() else ():
            folder.remove(one.task)
        waiting = ledger.files()
        self.files = len(waiting)
        folder.used += sum(self._checked(one) for one in waiting)
        if self.place.row and not (
            waiting and waiting[0].id == self.place.file and self.place.row < waiting[0].rows
        ):
            raise FlowError(f"{ledger} says that rows were released which it does not have; it is damaged")
        self.rows = sum(one.rows for one in waiting) - self.place.row

    def _checked(self, one: Waiting) -> int:
        """Refuses a file that lacks rows; returns its bytes."""
        path = self._folder.file(one.task)
        if not path.exists():
            raise FlowError(f"{path}, {one.rows} committed rows of job {one.job!r}, is gone")
        file = RowFile(path)
        file.close()
        if file.rows < one.rows:
            raise FlowError(f"{path} has {file.rows} of {one.rows} committed rows of job {one.job!r}")
        return file.size

    def committed(self, counts: Sequence[int]) -> None:
        """Files of so many rows each were added to the ledger."""
        self.files += len(counts)
        self.rows += sum(counts)

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
        one, file = self._file()
        row = self.place.row
        batch = file.read(row)
        count = min(one.rows - row, len(batch) if most is None else most)
        if count < len(batch):
            batch = batch.slice(0, count)
        number, row = self.place.number, row + len(batch)
        self.rows -= len(batch)
        if row == one.rows:
            self._end_file()
            self.place = Place(number + 1, one.id + 1, 0)
        else:
            self.place = Place(number + 1, one.id, row)
        return batch, number

    def _file(self) -> tuple[Waiting, RowFile]:
        if self._current is None or self._current[0].id != self.place.file:
            self._end_file()
            found = self._ledger.file_from(self.place.file)
            if found is None:
                raise FlowError(f"{self.rows} committed rows are not in the ledger")
            self.place = self.place._replace(file=found.id)
            self._current = (
                found,
                RowFile(self._folder.file(found.task), own=found.task not in self._folder.found),
            )
        return self._current

    def _end_file(self) -> None:
        if self._current is not None:
            self._current[1].close()
            self._current = None

    def settled(self, place: Place) -> None:
        """All that was released before a place has been handled: its files are deleted."""
        done = self._ledger.settle(place)
        self.files -= len(done)
        for one in done:
            self._folder.remove(one.task)

    def left(self) -> Iterator[tuple[Waiting, EventBatch]]:
        """What is still to be released, a batch for each emission, and the file that it is in."""
        for one in self._ledger.files():
            if one.id >= self.place.file:
                row = self.place.row if one.id == self.place.file else 0
                file = RowFile(self._folder.file(one.task))
                while row < one.rows:
                    batch = file.read(row).slice(0, one.rows - row)
                    row += len(batch)
                    yield one, batch
                file.close()

    def close(self) -> None:
        """Closes the file that is being released."""
        self._end_file()
