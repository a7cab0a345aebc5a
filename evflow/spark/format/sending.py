"""Sends the rows of one task to a stone, in order: one question for each frame of rows.

The next frame is encoded while the stone answers for the one before. A stone that is full, or cannot write,
is asked again until ``timeout``; meanwhile the task reads nothing, and Spark's own back-pressure does the
rest.
"""

from __future__ import annotations

import logging
import time
from concurrent.futures import Future, ThreadPoolExecutor
from types import TracebackType
from typing import TYPE_CHECKING, Self

from evflow.errors import EvflowError, SparkError, UnwrittenError
from evflow.events.batch import EventBatch
from evflow.events.joining import pieces
from evflow.schema import Schema
from evflow.spark.format.connection import Connection
from evflow.spark.questions import Append, Done, Drop, End, Landed

if TYPE_CHECKING:
    import pyarrow as pa

_FRAME = 1 << 20
"""Bytes of rows that are sent at once, if they come in time: a frame costs both ends as much as many rows."""

_IN_TIME = 0.1
_MOMENT = 2.0
"""Seconds that a task which fails waits for the stone to hear of it."""

_AGAIN = 0.1
"""Seconds until a stone that is full is asked again."""

_log = logging.getLogger("evflow.spark")


class Sender:
    """Sends the rows of a task; as a context it tells the stone if the task fails.

    Args:
        connection: to the stone's node.
        task: the number that the stone has given the task.
        schema: what its rows are sent as.

    Attributes:
        rows: how many were sent.
    """

    def __init__(self, connection: Connection, task: int, schema: Schema) -> None:
        self.rows = 0
        self._connection, self._task, self._schema = connection, task, schema
        self._gathered: list[pa.RecordBatch] = []
        self._size, self._since = 0, 0.0
        self._pool = ThreadPoolExecutor(1, "evflow send")
        self._under_way: Future[None] | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is not None:
            self._give_up()
        # A node that is gone holds up nobody.
        self._pool.shutdown(wait=False, cancel_futures=True)

    def send(self, batch: pa.RecordBatch) -> None:
        """Sends rows, some batches together; waits while the stone is full.

        Raises:
            EvflowError: what the stone raised, as when it knows nothing of the task any more.
            SchemaError: rows of this batch, or of those before, are not what the stone takes.
            SparkError: the stone has not taken rows in time.
        """
        # As events or as Arrow has them, whichever is more.
        size = max(batch.nbytes, batch.num_rows * (self._schema.width or 0))
        now = time.monotonic()
        if self._gathered and (self._size + size > _FRAME or now > self._since + _IN_TIME):
            self._submit()
        if not self._gathered:
            self._size, self._since = 0, now
        self._gathered.append(batch)
        self._size += size

    def _submit(self) -> None:
        """Sends what was gathered, each frame once the one before is there."""
        from evflow.spark.columns.encoder import encode

        batch = encode(self._schema, *self._gathered)
        self._gathered.clear()
        for frame in pieces(batch, 2 * _FRAME):
            self._wait()
            self._under_way = self._pool.submit(self._deliver, self.rows, frame)
            self.rows += len(frame)

    def _wait(self) -> None:
        if self._under_way is not None:
            self._under_way.result()

    def _deliver(self, first: int, batch: EventBatch) -> None:
        options = self._connection.options
        question = Append(self._task, first, len(batch), batch.to_bytes())
        until = time.monotonic() + options.timeout
        while True:
            try:
                self._connection.ask(question, Landed)
                return
            except UnwrittenError as error:
                if time.monotonic() > until:
                    raise SparkError(
                        f"stone {options.stone!r} at {options.contact} took no rows within "
                        f"{options.timeout:g} s: {error}; give a longer option 'timeout' if it may stand "
                        "still for longer"
                    ) from None
            time.sleep(_AGAIN)

    def finish(self) -> None:
        """Waits until the stone has all rows.

        Raises:
            EvflowError: see ``send``.
        """
        if self._gathered:
            self._submit()
        self._wait()
        found = self._connection.ask(End(self._task), Landed).rows
        if found != self.rows:
            raise SparkError(
                f"stone {self._connection.options.stone!r} has {found} of {self.rows} rows of a task"
            )

    def _give_up(self) -> None:
        """Has the stone delete what it has of the task. Never raises an error of evflow's, which would hide
        the one for which the task fails."""
        try:
            timeout = min(_MOMENT, self._connection.options.timeout)
            self._connection.ask(Drop(self._task), Done, timeout)
        except EvflowError as error:
            _log.warning("the stone was not told that task %d fails: %s", self._task, error)
