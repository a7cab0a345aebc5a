"""The way of one task's rows to a stone: a node of the task's own, a bridge, and questions to the stone.

The node lives as long as the task. What the bridge has taken, and the stone not yet, is bounded: then
``send`` waits, the task stops reading, and Spark's own back-pressure does the rest. Every wait ends
``timeout`` seconds after the last progress at the latest.
"""

from __future__ import annotations

import fcntl
import logging
import math
import time
import uuid
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from evflow.errors import EvflowError, FlowError, LinkError, SparkError
from evflow.events.attributes import AttributeColumn, Attributes
from evflow.events.gather import Place
from evflow.flow.flow import Flow
from evflow.graph import Graph
from evflow.link.outlet import Terms
from evflow.node.node import Node
from evflow.schema import Schema
from evflow.spark.format import answers
from evflow.spark.format.options import Options
from evflow.stones.bridge import Bridge

if TYPE_CHECKING:
    from io import TextIOWrapper

    import pyarrow as pa

__all__ = ["Line", "Way"]

_FRAME = 1 << 20
"""Bytes of rows that are sent at once, if they come in time: a frame costs both ends as much as many rows."""

_IN_TIME = 0.1

_WAITING = 2 << 20
"""Bytes of rows that may wait to be taken by the bridge."""

_OWED = 16 << 20
"""Bytes of rows that the bridge has and the stone not yet."""

_MOMENT = 2.0
"""Seconds of waiting after which the stone is asked why."""

_log = logging.getLogger("evflow.spark")

_POLL = 0.05
_SOURCE = "rows"


class _Bulk(Bridge):
    """A bridge on which nothing has to be quick: its frames stay large where the receiver is slow."""

    def terms(self) -> Terms:
        return replace(super().terms(), least=_FRAME)


class Line:
    """A connection to a node, to ask its stones.

    Args:
        options: where it is, and how this end is called.
        label: what the node of this end is called beside ``options.name``.

    Raises:
        EvflowError: the keys are wrong, or the contact needs some.
    """

    def __init__(self, options: Options, label: str = "") -> None:
        self.options = options
        self._stack = ExitStack()
        try:
            self._node = self._stack.enter_context(_node(options, label))
            self.flow = self._flow()
        except BaseException:
            self._stack.close()
            raise

    def _flow(self) -> Flow:
        return Flow.empty("spark", node=self._node)

    def ask(self, question: dict[str, Any], timeout: float | None = None) -> dict[str, Any]:
        """Asks the stone.

        Args:
            question: as the stone has it.
            timeout: seconds to wait; by default the option's.

        Raises:
            EvflowError: what the stone raised.
            SparkError: it did not answer in time, or with something else; says why.
        """
        options = self.options
        seconds = options.timeout if timeout is None else timeout
        try:
            return answers.answered(self.flow.ask(options.there, options.stone, question, seconds))
        except LinkError as error:
            raise SparkError(
                f"option 'contact' {options.contact!r}: no answer from stone {options.stone!r} within "
                f"{seconds:g} s ({error}); is the overlay running, and can this host reach it?"
            ) from None

    def close(self) -> None:
        """Ends the connection; what was not delivered by then is not."""
        self.flow.close(0.0)
        self._stack.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class Way(Line):
    """A connection on which the rows of one task are sent, too.

    Attributes:
        rows: how many were sent.
    """

    rows = 0

    def _flow(self) -> Flow:
        self._task: tuple[int, Schema] | None = None
        self._gathered: list[pa.RecordBatch] = []
        self._size, self._since = 0, 0.0
        graph = Graph("spark")
        bridge = _Bulk(self.options.there, self.options.stone, input="rows", limit=_OWED, name="bridge")
        with graph.on(self._node.name):
            graph.source(_SOURCE) >> bridge
        return graph.run(node=self._node, max_bytes=_WAITING)

    def begin(self, task: int, schema: Schema) -> None:
        """Says what is sent, once.

        Args:
            task: the number that the stone has given the task.
            schema: what its rows are sent as.
        """
        self._task = task, schema

    def send(self, batch: pa.RecordBatch) -> None:
        """Sends rows, in order and some batches together; waits while there is no room.

        Raises:
            EvflowError: what the stone raised, as when it knows nothing of the task any more.
            SchemaError: rows of this batch, or of those before, are not what the stone takes.
            SparkError: there was no room in time, so the stone takes nothing.
        """
        width = self._begun[1].width or 0
        # As events or as Arrow has them, whichever is more.
        size = max(batch.nbytes, batch.num_rows * width)
        step = max(1, math.ceil(batch.num_rows / max(1, math.ceil(size / _FRAME))))
        for start in range(0, batch.num_rows, step):
            self._gather(batch.slice(start, step), size * step // batch.num_rows)

    def _gather(self, batch: pa.RecordBatch, size: int) -> None:
        now = time.monotonic()
        if self._gathered and (self._size + size > _FRAME or now > self._since + _IN_TIME):
            self._submit()
        if not self._gathered:
            self._size, self._since = 0, now
        self._gathered.append(batch)
        self._size += size

    @property
    def _begun(self) -> tuple[int, Schema]:
        assert self._task is not None, "begin comes first"
        return self._task

    def _submit(self) -> None:
        """Sends what was gathered."""
        from evflow.spark.columns.arrow import encode_all

        links, gathered = self.flow.links, self._gathered
        if not gathered:
            return
        assert links is not None
        task, schema = self._begun

        def room(length: int) -> Place | None:
            """Where frames are sent from, so that nobody copies them again."""
            links.pace(length)
            return links.reserve(length)

        batch = encode_all(schema, gathered, room)
        gathered.clear()
        numbered = batch.with_attributes(_numbers(task, self.rows, len(batch)))
        until = time.monotonic() + self.options.timeout
        while True:
            try:
                self.flow[_SOURCE].submit_batch(numbered, timeout=self._moment)
                break
            except FlowError as error:
                self._staged()
                if time.monotonic() > until:
                    raise self._stuck(error) from None
        self.rows += len(batch)

    def finish(self) -> None:
        """Waits until the stone has all rows.

        Raises:
            EvflowError: what the stone raised, as when it knows nothing of the task any more.
            SparkError: they do not get there.
        """
        self._submit()
        staged, until = -1, time.monotonic() + self.options.timeout
        while True:
            waits: EvflowError | None = None
            try:
                self.flow.drain(self._moment)
            except FlowError as error:
                waits = error
            found = self._staged()
            if found == self.rows:
                return
            if found is not None and found != staged:
                staged, until = found, time.monotonic() + self.options.timeout
            elif time.monotonic() > until:
                raise self._stuck(waits) if waits else self._short(staged)
            elif waits is None:
                time.sleep(_POLL)

    def give_up(self) -> None:
        """Has the stone throw away what it has of a task that fails. Never raises an error of evflow's, which
        would hide the one for which it fails."""
        task, _ = self._begun
        try:
            self.ask({"ask": "drop", "task": task}, self._moment)
        except EvflowError as error:
            _log.warning("the stone was not told that task %d fails: %s", task, error)

    @property
    def _moment(self) -> float:
        return min(_MOMENT, self.options.timeout)

    def _staged(self) -> int | None:
        """How many rows of the task the stone has; None if it does not answer now.

        Raises:
            EvflowError: why it takes no more.
        """
        try:
            return answers.count(self.ask({"ask": "end", "task": self._begun[0]}, self._moment), "rows")
        except SparkError:
            return None

    def _short(self, staged: int) -> SparkError:
        return SparkError(
            f"stone {self.options.stone!r} has {staged} of {self.rows} rows of a task, and no more came "
            f"within {self.options.timeout:g} s; its dead letters say which it refused"
        )

    def _stuck(self, error: EvflowError) -> SparkError:
        options = self.options
        links = self._node.links().get(options.there, {})
        trouble = links.get("trouble") or f"its link is {links.get('state', 'not there')}"
        return SparkError(
            f"stone {options.stone!r} at {options.contact} took no rows within {options.timeout:g} s: "
            f"{trouble} ({error}); give a longer option 'timeout' if it may stand still for longer"
        )


def _numbers(task: int, first: int, count: int) -> Attributes:
    """The attributes that say which rows of which task a batch has."""
    present = np.broadcast_to(np.True_, count)
    tasks = np.broadcast_to(np.int64(task), count)
    rows = np.arange(first, first + count, dtype=np.int64)
    return Attributes(
        {"task": AttributeColumn("i", tasks, present), "row": AttributeColumn("i", rows, present)}
    )


@contextmanager
def _node(options: Options, label: str) -> Iterator[Node]:
    """A node that does not listen, under a name that no other has now."""
    peers = {options.peer: options.contact} if options.peer else None
    with ExitStack() as stack:
        if options.keys is None:
            name = f"{options.name}-{label or 'driver'}-{uuid.uuid4().hex[:12]}"
        else:
            name = stack.enter_context(_own_key(Path(options.keys), options))
        node = Node(name, peers=peers, keys=options.keys, plain=options.plain)
        stack.callback(node.close)
        yield node


@contextmanager
def _own_key(folder: Path, options: Options) -> Iterator[str]:
    """The name of a key that no other process of this host uses: ``NAME.key`` or ``NAME-….key``.

    A peer is known by its key, so what runs at the same time needs one each.
    """
    until = time.monotonic() + options.timeout
    while True:
        paths = sorted([*folder.glob(f"{options.name}.key"), *folder.glob(f"{options.name}-*.key")])
        if not paths:
            raise SparkError(
                f"option 'keys' {str(folder)!r}: this host has no {options.name}.key there; tasks and driver "
                "need keys whose names begin with option 'name', one for each task that runs at a time: "
                "see `evflow keygen`"
            )
        for file in _opened(paths):
            with file:
                try:
                    fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                except BlockingIOError:
                    continue
                yield Path(file.name).stem
                return
        if time.monotonic() > until:
            raise SparkError(
                f"option 'keys' {str(folder)!r}: all {len(paths)} keys of {options.name!r} are in use on "
                "this host; make one for each task that runs at the same time, and one for the driver"
            )
        time.sleep(_POLL)


def _opened(paths: Iterable[Path]) -> Iterator[TextIOWrapper]:
    for path in paths:
        yield path.open()
