"""What threads that submit send by themselves, while the flow's thread sleeps.

The thread of a flow that is idle would have to be woken for each event, and to get the interpreter from the
thread that has submitted it. So before it sleeps it lends the sending side of bridges to the submit buffers
of sources that lead to nothing else: machine code sends from there (``evflow.codgen.express``). When it is
awake again it takes that back before anything else, and notes what was sent: it is as if it had sent that
itself.
"""

from __future__ import annotations

from collections.abc import Iterable

from msgspec import Struct

from evflow.engine.engine import Engine
from evflow.engine.gate import Gate, Way, way_of
from evflow.engine.topology import IN
from evflow.flow.net import Net
from evflow.flow.source_queue import SourceQueue

_MANY = 256
"""Events between two times that the thread sleeps, beyond which its flow is busy and better has batches."""

_CALM = 8
"""Times that the thread sleeps after that, before something is lent again."""


class _Known(Struct):
    """What is known of a source queue.

    Attributes:
        gate: the gate that was asked there when the way was found.
        way: the way from there to a bridge, if there is one that may be lent.
        came: events that have come there so far.
        busy: for how many times nothing is lent, since many events came.
    """

    gate: Gate | None
    way: Way | None
    came: int = 0
    busy: int = 0


class Lender:
    """Lends bridges to source queues; used by the flow's thread.

    Args:
        engine: the engine.
        net: the node's links.

    Attributes:
        lent: what is lent now: the queues, and the ways from there.
    """

    def __init__(self, engine: Engine, net: Net) -> None:
        self._engine = engine
        self._net = net
        # Where there are no links, there is nothing to lend.
        self._lends = net.patience is not None
        self._version = -1
        self._known: dict[SourceQueue, _Known] = {}
        self.lent: list[tuple[SourceQueue, Way]] = []

    def lend(self, queues: Iterable[SourceQueue]) -> None:
        """Lends what can be; the flow's thread is about to sleep."""
        if not self._lends:
            return
        if self._version != self._engine.version:
            self._version = self._engine.version
            self._known.clear()
        for queue in queues:
            buffer, slot = queue.buffer, queue.slot
            if buffer.schema is None:
                continue
            known = self._known.get(queue)
            if known is None or known.gate is not buffer.gate:
                way = way_of(slot, buffer.schema, self._engine.topology, buffer.gate)
                known = self._known[queue] = _Known(buffer.gate, way)
            way, before, known.came = known.way, known.came, slot.counts[IN]
            known.busy = _CALM if known.came - before > _MANY else max(known.busy - 1, 0)
            if way is None or known.busy or self._net.blocked(slot):
                continue
            express = self._net.express(way.bridge.name, buffer.schema)
            if express is not None:
                queue.lend(express)
                self.lent.append((queue, way))

    def settle(self) -> None:
        """Takes back what was lent, and notes what was sent; the flow's thread is awake."""
        for queue, way in self.lent:
            gone = queue.gone()
            if gone is not None:
                batch, counts = gone
                self._net.went(way.bridge.name, batch, counts)
                way.passed(batch.rows)
                self._known[queue].came += batch.rows
        self.lent.clear()
