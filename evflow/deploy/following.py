"""What others do to a deployment, as a handle of it learns: it changes, so that sources move, or it ends."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from evflow.deploy.client import Cluster
from evflow.deploy.record import Record

__all__ = ["Following"]

_EVERY = 1.0
"""Seconds after which a node is asked again."""


class Following:
    """Asks the nodes of a deployment for a newer version; called by the thread of the handle's flow.

    Args:
        cluster: the connections to its nodes.
        record: gives the newest version that is known.
        changed: takes a newer one.
        ended: called once each node says that it does not have the deployment.
    """

    def __init__(
        self,
        cluster: Cluster,
        record: Callable[[], Record],
        changed: Callable[[Record], None],
        ended: Callable[[], None],
    ) -> None:
        self._cluster = cluster
        self._record = record
        self._changed = changed
        self._ended = ended
        self._next = 0.0
        # The nodes that said that they do not have the deployment, since a node last said that it does.
        self._without: set[str] = set()

    def turn(self, now: float) -> float:
        """Asks if it is time; returns when it is next."""
        if now >= self._next:
            self._next = now + _EVERY
            self._ask()
        return self._next

    def _ask(self) -> None:
        record, links = self._record(), self._cluster.node.links()
        for host in record.hosts:
            if host not in self._without and links.get(host, {}).get("state") == "up":
                asked = {"deployment": record.deployment, "known": record.version, "birth": record.birth}
                self._cluster.ask_later(host, "record", asked, partial(self._came, host))
                return

    def _came(self, host: str, answer: Any) -> None:
        if not isinstance(answer, dict):
            return
        if "gone" in answer:
            self._without.add(host)
            if self._without >= self._record().hosts.keys():
                self._ended()
            else:
                self._ask()
            return
        self._without.clear()
        if "graph" in answer:
            record = Record.from_data(answer)
            if record.version > self._record().version:
                self._changed(record)
