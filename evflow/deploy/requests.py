"""Requests: what the stones of a node have asked for, and the changes that are proposed because of it.

Sans-I/O: it is told what was asked, and proposes through the node's controller. A request for which the graph
has a rule becomes one change of its deployment; others are only kept, to be looked at.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from evflow.deploy.proposal import Outcome
from evflow.deploy.record import Record, stones_of
from evflow.errors import DeployError, GraphError
from evflow.graph.editable import split_name
from evflow.graph.rules import Rule, rules_of

if TYPE_CHECKING:
    from evflow.deploy.controller import Controller

_log = logging.getLogger("evflow.deploy")

_KEPT = 100
_TRIES = 2


@dataclass
class _Wish:
    """A request that waits for its change.

    Attributes:
        request: the number.
        tries: how often it was proposed.
    """

    request: int
    tries: int = 0


class Requests:
    """The requests on one node. Used by one thread, that of the controller.

    Args:
        controller: the node's controller.
    """

    def __init__(self, controller: Controller) -> None:
        self._controller = controller
        self._kept: dict[str, deque[list[Any]]] = {}
        self._wishes: dict[str, dict[str, _Wish]] = {}
        self._proposed: set[str] = set()

    def listed(self, deployment: str) -> list[list[Any]]:
        """The newest requests for which there was no rule: [stone, number, seconds since 1970 (UTC)]."""
        return list(self._kept.get(deployment, ()))

    def look(self, asked: Iterable[tuple[str, int]], wall: float) -> None:
        """Takes what was asked for, and proposes what is due; to be called once a second or sooner.

        Args:
            asked: stones, as ``deployment/stone``, and numbers, as ``Engine.requests`` gives them.
            wall: seconds since 1970 (UTC).
        """
        records = self._controller.records
        for known in (self._kept, self._wishes):
            for deployment in known.keys() - records.keys():
                del known[deployment]
        for qualified, request in asked:
            deployment, _, stone = qualified.partition("/")
            if deployment in records:
                self._note(records[deployment], stone, request, wall)
        for deployment, wishes in self._wishes.items():
            if deployment not in self._proposed:
                self._propose(records[deployment], wishes)

    def _note(self, record: Record, stone: str, request: int, wall: float) -> None:
        deployment = record.deployment
        if _rule(record, stone, request) is not None:
            # A newer request of the same stone takes the place of the one before.
            wishes = self._wishes.setdefault(deployment, {})
            wishes.pop(stone, None)
            wishes[stone] = _Wish(request)
            return
        what = f"deployment {deployment}: stone {stone} asks for reconfiguration {request}"
        _log.info("%s, for which there is no rule", what)
        self._kept.setdefault(deployment, deque(maxlen=_KEPT)).append([stone, request, wall])

    def _propose(self, record: Record, wishes: dict[str, _Wish]) -> None:
        """Proposes the oldest wish that changes anything, unless another change is under way."""
        while wishes and not self._controller.changing(record.deployment):
            stone, wish = next(iter(wishes.items()))
            rule = _rule(record, stone, wish.request)
            wish.tries += 1
            try:
                wanted = None if rule is None else obeyed(record, rule)
                if wanted is None:
                    del wishes[stone]
                    continue
                self._proposed.add(record.deployment)
                self._controller.propose(wanted, done=partial(self._done, record.deployment, stone, wish))
            except DeployError as error:
                self._done(record.deployment, stone, wish, Outcome(None, error))
            return

    def _done(self, deployment: str, stone: str, wish: _Wish, outcome: Outcome) -> None:
        self._proposed.discard(deployment)
        wishes = self._wishes.get(deployment, {})
        again = outcome.record is None and wish.tries < _TRIES
        if again or wishes.get(stone) is not wish:
            return
        del wishes[stone]
        if outcome.record is None:
            what = f"deployment {deployment}: what stone {stone} asked for by {wish.request}"
            _log.warning("%s was not done: %s", what, outcome.error)
        else:
            _log.info("deployment %s: stone %s has asked for %d: done", deployment, stone, wish.request)


def _rule(record: Record, stone: str, request: int) -> Rule | None:
    """The rule for a request; a graph of malformed rules has none."""
    try:
        return rules_of(record.graph or {}).get((stone, request))
    except GraphError as error:
        _log.warning("deployment %s: %s", record.deployment, error)
        return None


def obeyed(record: Record, rule: Rule) -> Record | None:
    """The next version by a rule, to be proposed; None if all is as the rule says.

    Raises:
        DeployError: a stone would move to a node that is none of the hosts.
    """
    if record.graph is None:
        return None
    frozen = [name for name in record.frozen if name not in rule.unfreeze]
    frozen += [name for name in rule.freeze if name in stones_of(record) and name not in frozen]
    wanted = record.moved(_with_splits(record.graph, rule.move), frozen)
    return None if (wanted.graph, wanted.frozen) == (record.graph, record.frozen) else wanted


def _with_splits(graph: Mapping[str, Any], move: Mapping[str, str]) -> dict[str, str]:
    """Stones and where they go, with the splits that the graph has added behind them."""
    stones = {stone["name"]: stone for stone in graph["stones"]}
    goes = dict(move)
    for source, port, target, _ in graph["links"]:
        own = source in move and target == split_name(source, port) and stones[target].get("kind") == "split"
        if own and stones[target]["on"] == stones[source]["on"]:
            goes.setdefault(target, move[source])
    return goes
