"""What a flow of one process does when its stones ask for reconfiguration: freeze stones, and let them go on.

Stones move only in a deployment, so a rule that moves any is refused where the graph is run by itself.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING

from evflow.engine.topology import Topology
from evflow.errors import GraphError

if TYPE_CHECKING:
    from evflow.engine.engine import Engine
    from evflow.graph import Graph
    from evflow.rules import Rule

__all__ = ["Obeying", "check_rules_here"]

_log = logging.getLogger("evflow.flow")


def check_rules_here(graph: Graph, here: Topology) -> None:
    """Refuses rules that a flow without a deployment could not follow.

    Args:
        graph: the graph.
        here: what of it runs in this process.

    Raises:
        GraphError: a stone here asks for what concerns other nodes.
    """
    for rule in graph.rules.values():
        if rule.stone not in here.slots:
            continue
        for name, node in rule.move.items():
            raise GraphError(
                f"{rule.text} moves {name!r} to node {node!r}, which only a deployment can do; use "
                "graph.deploy(…), or leave the rule out"
            )
        for name in rule.targets:
            if name not in here.slots:
                raise GraphError(
                    f"{rule.text} concerns {name!r}, which runs on another node; use graph.deploy(…), or "
                    "leave the rule out"
                )


class Obeying:
    """Does what the rules of a graph say; used by the thread that drives the engine.

    Args:
        engine: the engine.
        graph: gives the graph as it is now.
    """

    def __init__(self, engine: Engine, graph: Callable[[], Graph]) -> None:
        self._engine = engine
        self._graph = graph

    def look(self, now: float) -> float | None:
        """Does what stones have asked for; gives ``now`` if that changed anything, to be called again."""
        rules = self._graph().rules
        if not rules:
            return None
        changed = False
        for name, request in self._engine.requests():
            rule = rules.get((name, request))
            if rule is None:
                _log.info("stone %s asks for reconfiguration %d, for which there is no rule", name, request)
            else:
                changed = self._obey(rule) or changed
        return now if changed else None

    def _obey(self, rule: Rule) -> bool:
        slots = self._engine.topology.slots
        frozen = [slots[name] for name in rule.freeze if name in slots and not slots[name].frozen]
        going = [slots[name] for name in rule.unfreeze if name in slots and slots[name].frozen]
        for slot in frozen:
            self._engine.freeze(slot)
        for slot in going:
            self._engine.unfreeze(slot)
        return bool(frozen or going)
