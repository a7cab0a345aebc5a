"""What threads that submit send by themselves, while the flow's thread sleeps.

The thread of a flow that is idle would have to be woken for each event, and to get the interpreter from the
thread that has submitted it. So before it sleeps it lends the sending side of bridges to the submit buffers
of sources that lead to nothing else: machine code sends from there (``evflow.codgen.express``). When it is
awake again it takes that back before anything else, and notes what was sent: it is as if it had sent that
itself.
"""

from __future__ import annotations

from collections.abc import Iterable

from evflow.engine.engine import Engine
from evflow.engine.gate import Way, way_of
from evflow.engine.topology import IN
from evflow.flow.net import Net
from evflow.flow.source_queue import Onward, SourceQueue

_MANY = 256
"""Events between two times that the thread sleeps, beyond which its flow is busy and better has batches."""

_CALM = 8
"""Times that the thread sleeps after that, before something is lent again."""


class Lender:
    """Lends bridges to source queues; used by the flow's thread.

    Args:
        engine: the engine.
        net: the node's links.

    Attributes:
        lent: what is lent now: the queues, the ways from there, and what is known of these.
    """

    def __init__(self, engine: Engine, net: Net) -> None:
        self._engine = engine
        self._net = net
        # Where there are no links, there is nothing to lend.
        self._lends = net.patience is not None
        self.lent: list[tuple[SourceQueue, Way, Onward]] = []

    def lend(self, queues: Iterable[SourceQueue]) -> None:
        """Lends what can be; the flow's thread is about to sleep."""
        if not self._lends:
            return
        for queue in queues:
            buffer, slot, onward = queue.buffer, queue.slot, queue.onward
            if buffer.schema is None:
                continue
            if onward is None:
                way = way_of(slot, buffer.schema, self._engine.topology, buffer.gate)
                onward = queue.onward = Onward(way)
            way, before, onward.came = onward.way, onward.came, slot.counts[IN]
            onward.busy = _CALM if onward.came - before > _MANY else max(onward.busy - 1, 0)
            if way is None or onward.busy or self._net.blocked(slot):
                continue
            express = self._net.express(way.bridge.name, buffer.schema)
            if express is not None:
                queue.lend(express)
                self.lent.append((queue, way, onward))

    def settle(self) -> None:
        """Takes back what was lent, and notes what was sent; the flow's thread is awake."""
        for queue, way, onward in self.lent:
            gone = queue.gone()
            if gone is not None:
                batch, counts = gone
                self._net.went(way.bridge.name, batch, counts)
                way.passed(batch.rows)
                onward.came += batch.rows
        self.lent.clear()
