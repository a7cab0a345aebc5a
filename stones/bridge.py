"""Bridge: carries events to a stone of another node."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from evflow.codgen.front import source_of
from evflow.errors import GraphError
from evflow.events.batch import EventBatch
from evflow.graph.handlers import handler_from, handler_text, is_handler_text
from evflow.net.link.congestion import CongestionHandler, compiled_handler, python_handler
from evflow.net.link.outlet import Terms
from evflow.net.link.waiting import POLICIES
from evflow.schema import Schema
from evflow.stone import Acting, Actor, Context, checked_integer, titled
from evflow.stones.code import Code, Described, plain

_DELIVERIES = ("at_least_once", "at_most_once")


class Bridge(Described, Acting):
    """Carries events to a stone of another node, over a link that reconnects by itself.

    A graph adds one by itself where a link crosses from node to node; put one there yourself to say how it
    treats its events. Or give ``peer`` and ``stone``, and it leads out of the graph, to a stone of whatever
    runs there.

    With ``at_least_once`` an event is kept until it has been handled where it goes, and sent again when a
    node or the network failed; the receiver recognises what it had before. With ``at_most_once`` nothing is
    kept: what is on its way when a link breaks is lost, and counted.

    While the link is busy or down, events wait. At ``limit`` bytes the policy holds: ``block`` (who submits
    waits), ``drop oldest``, ``drop newest``, ``sample`` (every second event that waits is dropped); with
    ``keep latest`` only the newest event of each schema ever waits. What is dropped is counted.

    A congestion handler (EVPath paper, section 3.4) sees what waits before the policy does, and may thin,
    merge, drop or re-order it: a Python function of a ``Congestion``, or, with ``inputs``, a compiled
    function as a queue stone has it.

    Args:
        peer: the name of a peer of the node, or a contact such as ``tcp://127.0.0.1:7000``.
        stone: the name of the stone there.
        input: its input; "" for the one that fits best.
        delivery: "at_least_once" or "at_most_once".
        policy: what happens when ``limit`` is reached.
        limit: bytes that may wait, and bytes that may be kept, 65,536 or more; with ``block``, of both.
        congestion: a congestion handler.
        inputs: for a compiled handler, input name → schema.
        outputs: for a compiled handler, output name → schema of what it makes.
        name: the stone's name.
        on: the node it is placed on.

    Raises:
        GraphError: a setting is wrong.

    Example:
        >>> import evflow as ev
        >>> class Ping(ev.Event):
        ...     number: int
        >>> seen = []
        >>> there = ev.Node("there", listen="tcp://127.0.0.1:0")
        >>> far, near = ev.Graph("far"), ev.Graph("near")
        >>> pings = far.source("pings", Ping, on="there")
        >>> end = pings >> ev.Terminal(lambda event: seen.append(event.number), on="there")
        >>> way = near.source("pings", Ping) >> ev.Bridge(there.contact, "pings", policy="drop oldest")
        >>> with far.run(node=there), near.run() as flow:
        ...     flow["pings"].submit_batch({"number": [1, 2, 3]})
        ...     flow.drain(timeout=10)
        >>> seen
        [1, 2, 3]
    """

    kind = "bridge"
    parameters = ("peer", "stone", "input", "delivery", "policy", "limit")

    def __init__(
        self,
        peer: str | None = None,
        stone: str | None = None,
        *,
        input: str = "",
        delivery: str = "at_least_once",
        policy: str = "block",
        limit: int = 64 << 20,
        congestion: Code | None = None,
        inputs: Mapping[str, Any] | None = None,
        outputs: Mapping[str, Any] | None = None,
        name: str | None = None,
        on: str | None = None,
    ) -> None:
        super().__init__(name=name, on=on)
        where = f"{titled('bridge', name)}:"
        if (peer is None) != (stone is None):
            raise GraphError(f"{where} expected both a peer and the name of a stone there, or neither")
        if delivery not in _DELIVERIES:
            raise GraphError(f"{where} delivery {delivery!r}: expected one of {', '.join(_DELIVERIES)}")
        if policy not in POLICIES:
            raise GraphError(f"{where} policy {policy!r}: expected one of {', '.join(POLICIES)}")
        if isinstance(congestion, str) and inputs is None and not is_handler_text(congestion):
            raise GraphError(
                f"{where} a compiled congestion handler needs inputs={{name: schema}}; "
                "one that is imported is named 'module:function'"
            )
        self.peer, self.stone, self.input = peer, stone, input
        self.delivery, self.policy = delivery, policy
        self.limit = checked_integer(f"{where} limit", limit, 1 << 16)
        self.congestion = congestion
        self._inputs = None if inputs is None else {key: Schema.of(spec) for key, spec in inputs.items()}
        self._outputs = {key: Schema.of(spec) for key, spec in (outputs or {}).items()}

    @property
    def linked_ports(self) -> str:  # type: ignore[override]
        """One port, unless it leads out of the graph."""
        return "one" if self.peer is None else "none"

    def check(self) -> None:
        self.terms()

    def terms(self) -> Terms:
        """How the bridge delivers its events.

        Raises:
            CodeError: the congestion handler cannot be compiled.
        """
        return Terms(self.delivery == "at_least_once", self.policy, self.limit, self._handler())

    def _handler(self) -> CongestionHandler | None:
        if self.congestion is None:
            return None
        if self._inputs is not None:
            return compiled_handler(self.congestion, self._inputs, self._outputs)
        return python_handler(handler_from(self.congestion))

    @property
    def imports(self) -> tuple[str, ...]:
        named = isinstance(self.congestion, str) and self._inputs is None
        return (str(self.congestion),) if named else ()

    def open(self, context: Context) -> Actor:
        return _Carrier(context)

    def settings(self) -> dict[str, Any]:
        congestion = self.congestion
        if congestion is not None:
            congestion = handler_text(congestion) if self._inputs is None else source_of(congestion)
        functions = {"congestion": congestion, "inputs": self._inputs, "outputs": self._outputs}
        return {**super().settings(), **plain(functions)}


class _Carrier(Actor):
    def __init__(self, context: Context) -> None:
        super().__init__(context)
        self._send: Callable[[EventBatch], None] = context.sender() or context.emit

    def receive(self, batch: EventBatch, input: str) -> None:
        self._send(batch)
