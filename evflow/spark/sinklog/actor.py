"""The running half of a Spark sink: rows go into its log, and Spark's readers ask for them."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, cast

import msgpack
import numpy as np
from msgspec import Struct

from evflow.disk import Trouble
from evflow.errors import FlowError, SchemaError, UnwrittenError
from evflow.events.batch import EventBatch
from evflow.outside import from_msgpack, shown
from evflow.spark.questions import (
    CommitRead,
    First,
    Page,
    Range,
    Read,
    SinkQuestion,
    There,
    asked,
    packed,
)
from evflow.spark.sinklog.log import Book, Frame, RowLog
from evflow.stone import Actor, Checkpoint, Context, Held, Stone

if TYPE_CHECKING:
    from evflow.spark.sink import SparkSink

_log = logging.getLogger("evflow.spark")

DROP = "drop oldest"
"""The policy of a sink that lets the oldest rows go when it is full."""

MOST_BYTES = 4 << 20
"""Bytes of rows in one answer, at most, unless one row alone has more."""

_MOST_QUERIES = 1_000
"""Queries that are remembered; of more, one that was quiet for too long is forgotten."""

_LAYOUT = "log of a Spark sink 1"
_LARGEST, _FILES = 16 << 20, 8


def segment_of(limit: int) -> int:
    """Bytes of one file of a log that is to have ``limit`` at most."""
    return min(max(limit // _FILES, 1), _LARGEST)


class SinkActor(Actor):
    """The running half of a ``SparkSink``; see ``evflow.stone.Actor``."""

    def __init__(self, context: Context, stone: SparkSink, log: RowLog) -> None:
        super().__init__(context)
        self._stone = stone
        self._log = log
        self._queries = Queries(log, stone.patience, time.monotonic())
        self._taken = 0
        self._deleting = Trouble(_log)
        self._answers: dict[type[Struct], Callable[[Any], Struct]] = {
            Range: self._range,
            Read: self._read,
            CommitRead: self._commit,
        }
        self._tell()

    # --- rows come and go

    def receive(self, batch: EventBatch, input: str) -> None:
        schema = self._log.schema
        if schema is not None and batch.schema is not schema and batch.schema != schema:
            reason = f"the sink has rows of {schema!r}, expected these, found {batch.schema!r}"
            if batch.schema.origin != schema.origin:
                reason += "; they had other types in Spark: say which, as in ev.SparkSink(df.schema)"
            self.context.fault(batch, reason)
            return
        first = self._log.next
        try:
            self._log.append(batch, self._frame())
        finally:
            self._taken += self._log.next - first
        self._make_room()
        self._tell()

    def _make_room(self) -> None:
        try:
            while self._stone.policy == DROP and self._too_much:
                self._drop(self._log.let_go(self._log.oldest_end))
            self._deleting.over()
        except UnwrittenError as error:
            # The rows that came are kept; the oldest go with the next ones.
            self._deleting.failed(str(error))

    def _frame(self) -> Frame | None:
        # Without a file nothing is left of what came before a kill.
        return self.context.frame if self.keeps else None

    @property
    def _too_much(self) -> bool:
        return self._log.nbytes > self._stone.limit and self._log.oldest_end < self._log.next

    def _drop(self, count: int) -> None:
        self.context.drop(count)
        told = self.context.attributes
        before = told.get("let go unread", 0)
        # Anyone may set an attribute to anything.
        told["let go unread"] = count + (before if isinstance(before, int) else 0)

    @property
    def full(self) -> bool:
        return self._stone.policy != DROP and self._log.nbytes >= self._stone.limit

    def _let_go(self, first: int) -> None:
        """Lets rows go that nobody needs; who waits for room is told."""
        full = self.full
        if self._log.let_go(first):
            self._tell()
        if full and not self.full:
            self.context.wake()

    def _tell(self) -> None:
        """Says in the stone's attributes what there is."""
        self.context.attributes.update(
            {"first": self._log.first, "next": self._log.next, "bytes": self._log.nbytes}
        )

    # --- questions

    def answer(self, question: dict[str, Any]) -> Any:
        found = asked(question, SinkQuestion)
        return packed(self._answers[type(found)](found))

    def _range(self, question: Range) -> There:
        """From where to where there are rows; a query says where it reads on."""
        if question.query:
            now = time.monotonic()
            self._queries.hear(question.query, self._up_to(question.spool, question.at), now)
            self._let_go(self._queries.committed(now))
        log, schema = self._log, self._log.schema
        described = None if schema is None else schema.description
        return There(log.spool, log.first, log.next, log.nbytes, described)

    def _read(self, question: Read) -> Page:
        """Rows of a range, from its start on, as many as go into an answer."""
        self._check_spool(question.spool)
        batch = self._log.read(question.start, question.stop, min(question.most, MOST_BYTES))
        return Page(len(batch), batch.to_bytes())

    def _commit(self, question: CommitRead) -> First:
        """A query has done with all rows before an offset."""
        now = time.monotonic()
        self._queries.commit(question.query, self._up_to(question.spool, question.to), now)
        self._let_go(self._queries.committed(now))
        return First(self._log.first)

    def _up_to(self, spool: str, row: int) -> int:
        """An offset that a query has read up to; all rows before it have come."""
        self._check_spool(spool)
        if row > self._log.next:
            raise FlowError(
                f"rows up to {row} cannot be committed: the sink has those up to {self._log.next}"
            )
        return row

    def _check_spool(self, spool: str) -> None:
        if spool != self._log.spool:
            raise FlowError(
                "the sink is not the one whose rows were read before: that one was lost or deleted, and its "
                "rows with it; the query can only begin anew, with another checkpoint"
            )

    # --- what the engine asks

    @property
    def keeps(self) -> bool:
        return self._stone.path is not None

    @property
    def taken(self) -> int:
        return 0 if self.keeps else self._taken

    @property
    def oldest(self) -> int:
        return 0 if self.keeps else self._taken - len(self._log)

    @property
    def queued(self) -> int:
        return len(self._log)

    def extract(self, count: int | None = None) -> list[EventBatch]:
        taken = self._log.held(count)
        self._let_go(self._log.first + sum(map(len, taken)))
        return taken

    def sync(self) -> None:
        self._log.sync()

    def close(self) -> None:
        self._log.close()

    def checkpoint(self) -> Checkpoint:
        book = self._log.book()
        if book is None:
            return Checkpoint()
        held = tuple(Held("rows", batch) for batch in self._log.held())
        return Checkpoint(held, np.frombuffer(msgpack.packb(book.plain()), np.uint8), _LAYOUT)

    def restore(self, checkpoint: Checkpoint) -> bool:
        if checkpoint.state is None:
            return not checkpoint.held
        if checkpoint.layout != _LAYOUT:
            raise FlowError(f"expected a {_LAYOUT}, found {shown(checkpoint.layout)}")
        book = _unpacked(checkpoint.state.tobytes())
        if self._stone.schema is not None and self._stone.schema != book.schema:
            raise FlowError(
                f"the sink has rows of {self._stone.schema!r}, and is given some of {book.schema!r}"
            )
        rows = [held.batch for held in checkpoint.held]
        if any(batch.schema != book.schema for batch in rows):
            raise FlowError("the rows of a snapshot are not of its schema")
        self._log.become(book, rows)
        self._queries = Queries(self._log, self._stone.patience, time.monotonic())
        self._taken = len(self._log)
        self._tell()
        return True

    def become(self, stone: Stone) -> bool:
        # What takes the place of a Spark sink is one, if it is of its kind.
        wanted = cast("SparkSink", stone)
        if stone.kind != self._stone.kind or wanted.path != self._stone.path:
            return False
        if wanted.schema != self._stone.schema:
            return False
        self._stone = wanted
        self._queries.patience = wanted.patience
        self.context.wake()
        return True


class Queries:
    """The queries that read a log.

    A row is kept until all queries that were heard of lately have committed it. One that was not heard of for
    ``patience`` seconds holds back nothing; when none was heard of, nothing goes.

    Args:
        log: what they read. Those that it knows have just been heard of.
        patience: see above.
        now: seconds on a clock that only goes forward.
    """

    def __init__(self, log: RowLog, patience: float, now: float) -> None:
        self.patience = patience
        self._log = log
        self._heard = dict.fromkeys(log.queries, now)

    def hear(self, query: str, at: int, now: float) -> None:
        """A query reads on at an offset: it is new, goes on, or has gone back to an older checkpoint."""
        self._admit(query, now)
        known = self._log.queries.get(query)
        if known is None or at < known:
            self._log.commit(query, at)
        self._heard[query] = now

    def commit(self, query: str, row: int, now: float) -> None:
        """A query has done with all rows before an offset."""
        self._admit(query, now)
        self._log.commit(query, max(row, self._log.queries.get(query, 0)))
        self._heard[query] = now

    def _admit(self, query: str, now: float) -> None:
        """Sees to it that there is room for a query: one that is waited for does not make way."""
        if query in self._heard or len(self._heard) < _MOST_QUERIES:
            return
        quiet = min(self._heard, key=self._heard.__getitem__)
        if now - self._heard[quiet] <= self.patience:
            raise FlowError(
                f"{_MOST_QUERIES} queries read from the sink, expected fewer; wait until some have ended"
            )
        self.leave(quiet)

    def leave(self, query: str) -> None:
        """A query does not read any more."""
        self._heard.pop(query, None)
        self._log.forget(query)

    def committed(self, now: float) -> int:
        """The offset up to which all queries that were heard of lately have committed."""
        heard = [query for query, at in self._heard.items() if now - at <= self.patience]
        return min((self._log.queries[query] for query in heard), default=self._log.first)


def _unpacked(data: bytes) -> Book:
    """The book of a snapshot, which comes from outside."""
    try:
        return Book.parsed(from_msgpack(data))
    except (ValueError, TypeError, SchemaError) as error:
        raise FlowError(f"the log of a snapshot is malformed: {shown(error, 200)}") from None
