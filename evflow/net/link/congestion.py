"""Congestion handlers: a user's function that thins, merges or re-orders what waits at a bridge.

It is called when events wait because the link cannot take them now, and is shown them together with what is
known of the network. A handler is Python, or a function that is compiled like that of a queue stone. One
that fails costs nothing: then everything goes on waiting as it was.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import takewhile
from typing import Any, Protocol

import numpy as np

from evflow.codgen.front import FUEL, Input, build, refuse_requests
from evflow.codgen.queuekernel import QueueKernel, QueueResult, QueueState, queue_kernel
from evflow.codgen.runtime import new_state
from evflow.engine.host import system_values
from evflow.engine.passes import reason_of, sent
from evflow.errors import GraphError, LinkError
from evflow.events.batch import EventBatch
from evflow.net.link.waiting import Entry, Waiting
from evflow.schema import Schema
from evflow.schema.values import describe

_SHARE = 16
"""A handler is called when one in so many of the events that wait is new."""


@dataclass(slots=True, eq=False)
class Congestion:
    """What a congestion handler is shown: the events that wait at its bridge, and the state of the link.

    The handler returns the batches to keep instead, in the order in which to send them, or None to leave
    everything as it is. It is called when an event has to wait; while more than 16 wait, when
    one in 16 of them is new.

    Attributes:
        waiting: the batches that wait, the oldest first.
        bandwidth: bytes a second that the link carries, as measured; 0.0 if not known yet.
        round_trip: seconds to the peer and back, as measured; 0.0 if not known yet.
        queued_bytes: bytes of the events that wait.
        queued_events: how many events wait.
        in_flight_bytes: bytes that were sent and are not acknowledged yet.
        link: the bridge's name.

    Example:
        A handler that sends of each batch only the event of the highest price, once more waits than the link
        carries in a second.

        >>> import evflow as ev
        >>> from evflow.net.link.congestion import Congestion
        >>> class Trade(ev.Event):
        ...     price: float
        >>> def peaks(congestion):
        ...     if congestion.queued_bytes < congestion.bandwidth:
        ...         return None
        ...     return [batch.take([batch["price"].argmax()]) for batch in congestion.waiting]
        >>> batch = ev.EventBatch.from_columns(Trade.schema, {"price": [1.5, 3.5, 2.5]})
        >>> [list(b["price"]) for b in peaks(Congestion([batch], bandwidth=10.0, queued_bytes=batch.nbytes))]
        [[np.float64(3.5)]]
    """

    waiting: list[EventBatch] = field(default_factory=list)
    bandwidth: float = 0.0
    round_trip: float = 0.0
    queued_bytes: int = 0
    queued_events: int = 0
    in_flight_bytes: int = 0
    link: str = ""


class CongestionHandler(Protocol):
    """A handler of either kind."""

    def __call__(self, congestion: Congestion) -> list[EventBatch] | None:
        """The batches to keep instead, or None to leave all as it is.

        Raises:
            LinkError: it failed, or gave something else.
        """


def python_handler(function: Callable[[Congestion], object]) -> CongestionHandler:
    """A handler that is a Python function; what it returns may be any iterable of batches, or None.

    Raises:
        GraphError: it cannot be called.
    """
    if not callable(function):
        raise GraphError(f"congestion handler {describe(function)}: expected a function of a Congestion")

    def handle(congestion: Congestion) -> list[EventBatch] | None:
        given = function(congestion)
        if given is None:
            return None
        if isinstance(given, EventBatch) or not isinstance(given, Iterable):
            raise _wrong(congestion, describe(given))
        batches = list(given)
        for batch in batches:
            if not isinstance(batch, EventBatch):
                raise _wrong(congestion, describe(batch))
            columns = {} if batch.attributes is None else batch.attributes.columns
            if any(len(column.values) != len(batch) for column in columns.values()):
                raise _wrong(congestion, f"{len(batch)} events with attributes of another number of events")
        return batches

    return handle


def _wrong(congestion: Congestion, found: str) -> LinkError:
    return LinkError(
        f"bridge {congestion.link}: its congestion handler returned {found}: "
        "expected the batches to keep, a list of EventBatch, or None to leave all as it is"
    )


def compiled_handler(
    code: str | Callable[..., object],
    inputs: Mapping[str, Any],
    outputs: Mapping[str, Any] | None = None,
    fuel: int = FUEL,
) -> CongestionHandler:
    """A handler that is a compiled function, of the kind that a queue stone has.

    It runs once for all that waits, and sees it as queues: ``count(a)``, ``a[0].field``, ``discard(a, 0)``,
    ``submit(0, a[0])``, ``submit(0, out)``. What it submits is sent first, then what still waits in the
    queues, in the order in which it waited. Events of other schemas stay where they are: those that waited
    before all events of the inputs go first. Static variables keep their values from call to call.

    Args:
        code: Cod, or a Python function of the inputs and outputs in order.
        inputs: input name → schema (or ``Event`` class); an input takes the events of exactly its schema.
        outputs: output name → schema of the records that the function makes.
        fuel: what one call may spend; a unit pays for a short turn of a loop.

    Raises:
        GraphError: there is no input, or two are of one schema.
        CodeError: the function is wrong; carries line and column.
    """
    schemas = {name: Schema.of(spec) for name, spec in inputs.items()}
    if len(set(schemas.values())) < max(len(schemas), 1):
        raise GraphError(
            "congestion handler: expected inputs, each of a schema of its own, "
            f"found {', '.join(f'{name} of {schema.name}' for name, schema in schemas.items()) or 'none'}"
        )
    made = [(name, Schema.of(spec)) for name, spec in (outputs or {}).items()]
    return _Compiled(code, [Input(name, schema) for name, schema in schemas.items()], made, fuel)


class _Queues(QueueState):
    """Queues that tell which of their events still wait."""

    def numbers(self) -> list[int]:
        """The numbers of the events in all queues, increasing."""
        slots = range(len(self.schemas))
        return sorted(number for slot in slots for number in self._waiting(slot)[:, 2].tolist())


class _Loader:
    """Puts batches into queues without running a function on them."""

    def __init__(self, inputs: list[Input]) -> None:
        # A function that does nothing queues whatever arrives, natively.
        function = build("{}", "queue", inputs)
        self._kernel, self._state = queue_kernel(function), new_state(function)

    def load(self, queues: QueueState, slot: int, batch: EventBatch) -> None:
        """Puts a batch behind the other events of a queue."""
        _arrive(self._kernel, slot, batch, queues, self._state, {})


class _Compiled:
    def __init__(
        self,
        code: str | Callable[..., object],
        inputs: list[Input],
        outputs: list[tuple[str, Schema]],
        fuel: int,
    ) -> None:
        function = build(code, "queue", inputs, outputs, fuel=fuel)
        refuse_requests(function, "a congestion handler")
        self._kernel, self._state = queue_kernel(function), new_state(function)
        self._loader = _Loader(inputs)
        self._system = function.system
        self._slots = {schema: slot for slot, schema in enumerate(self._kernel.schemas)}

    def __call__(self, congestion: Congestion) -> list[EventBatch] | None:
        seen = [batch for batch in congestion.waiting if len(batch) and batch.schema in self._slots]
        if not seen:
            return None
        total = sum(map(len, seen))
        queues = _Queues(self._kernel.schemas, total)
        result = self._run(queues, seen, congestion)
        _check(result, congestion)
        numbers = queues.numbers()
        if not result.segments and len(numbers) == total:
            return None
        return self._after(congestion.waiting, [sent(segment) for segment in result.segments], numbers)

    def _run(self, queues: QueueState, seen: list[EventBatch], congestion: Congestion) -> QueueResult:
        """Queues all events but the last, which then arrives."""
        *others, last = seen
        for batch in others:
            self._loader.load(queues, self._slots[batch.schema], batch)
        slot, end = self._slots[last.schema], len(last)
        if end > 1:
            self._loader.load(queues, slot, last.slice(0, end - 1))
        system = {
            **system_values(self._system),
            "bandwidth": congestion.bandwidth,
            "round_trip": congestion.round_trip,
            "queued_bytes": float(congestion.queued_bytes),
            "queued_events": float(congestion.queued_events),
        }
        return _arrive(self._kernel, slot, last.slice(end - 1, end), queues, self._state, system)

    def _after(
        self, waiting: list[EventBatch], sent: list[EventBatch], numbers: list[int]
    ) -> list[EventBatch]:
        """What is to wait: the events sent, and those whose numbers are left, by reference."""
        before = list(takewhile(lambda batch: batch.schema not in self._slots, waiting))
        behind = waiting[len(before) :]
        return [*before, *sent, *self._left(behind, np.array(numbers, np.int64))]

    def _left(self, waiting: list[EventBatch], numbers: np.ndarray[Any, Any]) -> Iterator[EventBatch]:
        first = 0
        for batch in waiting:
            if batch.schema not in self._slots:
                yield batch
                continue
            start, stop = np.searchsorted(numbers, (first, first + len(batch)))
            kept = numbers[start:stop] - first
            first += len(batch)
            if len(kept) == len(batch):
                yield batch
            elif len(kept):
                yield batch.select(kept)


def _arrive(
    kernel: QueueKernel,
    slot: int,
    batch: EventBatch,
    queues: QueueState,
    state: np.ndarray[Any, np.dtype[np.uint8]],
    system: Mapping[str, float],
) -> QueueResult:
    columns = None if batch.attributes is None else batch.attributes.columns
    return kernel.run(
        slot, batch.data, batch.offsets, batch.selection, batch.rows, columns, queues, state, {}, system
    )


def _check(result: QueueResult, congestion: Congestion) -> None:
    for note in result.faults:
        raise LinkError(f"bridge {congestion.link}: its congestion handler: {reason_of(note)}")
    for segment in result.segments:
        if segment.port != 0:
            raise LinkError(
                f"bridge {congestion.link}: its congestion handler submitted to port {segment.port}: "
                "expected port 0, the only one"
            )


def relieve(
    waiting: Waiting, handler: CongestionHandler, congestion: Congestion
) -> tuple[int, BaseException | None]:
    """Lets a handler decide what waits, once enough new events wait.

    If it changes anything, all that waits then stands for all that waited: each entry gets the ``low`` of
    the first, and no tag.

    Args:
        waiting: changed in place.
        handler: see ``python_handler`` and ``compiled_handler``.
        congestion: the state of the link; the rest is filled in.

    Returns:
        How many events fewer wait (negative if it made some), and what it raised; then all is as it was.
    """
    # A handler looks at everything: if it were called for each event, many events would cost their square.
    if not waiting or waiting.fresh * _SHARE < waiting.events:
        return 0, None
    waiting.fresh = 0
    before = [entry.batch for entry in waiting]
    congestion.waiting = list(before)
    congestion.queued_bytes, congestion.queued_events = waiting.bytes, waiting.events
    try:
        after = handler(congestion)
        if after is None or _same(before, after):
            return 0, None
        low = waiting.entries[0].low
        return waiting.replace(Entry(batch, low) for batch in after), None
    except BaseException as error:  # noqa: BLE001  a handler may raise anything, sys.exit() too
        return 0, error


def _same(before: list[EventBatch], after: list[EventBatch]) -> bool:
    return len(before) == len(after) and all(a is b for a, b in zip(before, after, strict=True))
