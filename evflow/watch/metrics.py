"""A node's status for Prometheus: an endpoint that is opened only where it is asked for.

Names and units are those of Prometheus' conventions: what only grows ends in ``_total``, times are seconds,
sizes bytes. A scrape is one look at the node's status.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, TypeVar

from evflow import mishaps
from evflow.errors import LinkError
from evflow.watch.endpoint import Endpoint
from evflow.watch.status import NodeStatus, StoneStatus

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry
    from prometheus_client.core import Metric

__all__ = ["Collector", "Endpoint", "registry", "serve"]

_log = logging.getLogger("evflow.watch")

Status = Callable[[], Any]
"""Gives what the node answers to "status"."""

_DIRECTIONS: tuple[tuple[str, Callable[[StoneStatus], int]], ...] = (
    ("in", lambda stone: stone.taken),
    ("out", lambda stone: stone.left),
    ("dropped", lambda stone: stone.dropped),
    ("error", lambda stone: stone.errors),
    ("unmatched", lambda stone: stone.unmatched),
)


class Collector:
    """Gives the metrics of a node each time it is scraped; for ``CollectorRegistry.register``.

    Args:
        status: gives what the node answers to "status".
    """

    def __init__(self, status: Status) -> None:
        self._status = status
        # Many who ask at once do not take more of the node's time than one.
        self._one = threading.Lock()

    def describe(self) -> list[Metric]:
        """Nothing: a registry that asks must not need the node."""
        return []

    def collect(self) -> Iterator[Metric]:
        """The metrics; only ``evflow_up`` 0 where the node cannot say its status."""
        try:
            with self._one:
                status = NodeStatus.parse(self._status())
        except mishaps.CONTAINED as error:
            mishaps.tell(_log, "metrics", "the node's status cannot be had", error)
            yield _gauge("evflow_up", "Whether the node says its status.", {(): 0.0})
            return
        yield _gauge("evflow_up", "Whether the node says its status.", {(): 1.0})
        yield from _of_node(status)
        yield from _of_stones(status)
        yield from _of_links(status)
        yield from _of_deployments(status)


def _of_node(status: NodeStatus) -> Iterator[Metric]:
    info = (status.node, status.version, status.host)
    yield _gauge(
        "evflow_node_info", "The node, always 1.", {info: 1.0}, ("node", "version", "host")
    )  # fmt: skip
    yield _gauge("evflow_node_uptime_seconds", "Seconds since the node began.", {(): status.uptime})
    yield _gauge(
        "evflow_node_memory_bytes", "Resident memory of the node's process.", {(): float(status.memory)}
    )
    yield _gauge(
        "evflow_node_events_bytes",
        "Memory for events of peers: used, and the most that they may use.",
        {(of,): float(count) for of, count in status.budget.items()},
        ("of",),
    )
    yield _gauge("evflow_host_load1", "The host's load, the average of a minute.", {(): status.load})
    yield _counter(
        "evflow_dead_letters", "Events that were given up, by any stone.", {(): float(status.dead_letters)}
    )
    refused = {(kind,): float(count) for kind, count in status.refused.items()}
    yield _counter("evflow_refused", "What came from peers and was refused.", refused, ("kind",))


def _of_stones(status: NodeStatus) -> Iterator[Metric]:
    stones = {_split(name): stone for name, stone in status.stones.items()}
    names = ("deployment", "stone")
    yield _counter(
        "evflow_stone_events",
        "Events at a stone: in, out, dropped, error, unmatched.",
        {(*key, way): float(count(s)) for key, s in stones.items() for way, count in _DIRECTIONS},
        (*names, "direction"),
    )
    queued = {key: float(stone.queued) for key, stone in stones.items()}
    yield _gauge("evflow_stone_queued_events", "Events that wait in a stone.", queued, names)
    busy = {key: stone.busy for key, stone in stones.items()}
    yield _counter("evflow_stone_busy_seconds", "Time spent in a stone.", busy, names)
    frozen = {key: float(stone.frozen) for key, stone in stones.items()}
    yield _gauge("evflow_stone_frozen", "Whether a stone is frozen.", frozen, names)
    numbers = {
        (*key, name): float(value)
        for key, stone in stones.items()
        for name, value in stone.attributes.items()
        if isinstance(value, int | float)
    }
    yield _gauge(
        "evflow_stone_attribute", "Attributes of a stone that are numbers.", numbers, (*names, "name")
    )


def _of_links(status: NodeStatus) -> Iterator[Metric]:
    # Each visitor has a name of its own, which would be a time series for ever.
    links = {(peer,): link for peer, link in status.links.items() if not link.left}
    peer = ("peer",)
    up = {key: float(link.state == "up") for key, link in links.items()}
    yield _gauge("evflow_link_up", "Whether the link to a peer is up.", up, peer)
    # What was not measured is left out, as 0 would be a very good link.
    trips = {key: link.round_trip for key, link in links.items() if link.round_trip}
    yield _gauge("evflow_link_round_trip_seconds", "Round trip to a peer, smoothed.", trips, peer)
    rates = {key: link.bandwidth for key, link in links.items()}
    yield _gauge("evflow_link_bandwidth_bytes_per_second", "What goes to a peer.", rates, peer)
    waiting = {key: float(link.waiting) for key, link in links.items()}
    yield _gauge("evflow_link_waiting_events", "Events that a peer has not handled.", waiting, peer)
    sessions = {key: float(link.sessions) for key, link in links.items()}
    yield _counter("evflow_link_sessions", "Sessions with a peer so far.", sessions, peer)


def _of_deployments(status: NodeStatus) -> Iterator[Metric]:
    found = status.deployments
    versions = {(name,): float(known.version) for name, known in found.items()}
    yield _gauge("evflow_deployment_version", "Version of a deployment's record.", versions, ("deployment",))
    members = {
        (name, member): float(state == "alive")
        for name, known in found.items()
        for member, state in known.members.items()
        if state != "unknown"
    }
    yield _gauge(
        "evflow_member_up", "Whether a member of a deployment is alive.", members, ("deployment", "member")
    )


def _split(name: str) -> tuple[str, str]:
    deployment, slash, stone = name.partition("/")
    return (deployment, stone) if slash else ("", name)


_Key = TypeVar("_Key", bound=tuple[str, ...])


def _gauge(name: str, help: str, samples: Mapping[_Key, float], labels: tuple[str, ...] = ()) -> Metric:
    from prometheus_client.core import GaugeMetricFamily

    family = GaugeMetricFamily(name, help, labels=labels)
    for values, value in samples.items():
        family.add_metric([_label(text) for text in values], value)
    return family


def _counter(name: str, help: str, samples: Mapping[_Key, float], labels: tuple[str, ...] = ()) -> Metric:
    from prometheus_client.core import CounterMetricFamily

    family = CounterMetricFamily(name, help, labels=labels)
    for values, value in samples.items():
        family.add_metric([_label(text) for text in values], value)
    return family


def _label(text: str) -> str:
    # Half of a surrogate pair has no bytes, and would cost the whole scrape.
    return text.encode("utf-8", "replace").decode()


def registry(status: Status) -> CollectorRegistry:
    """A registry of its own with the metrics of a node and nothing else.

    Args:
        status: see ``Collector``.

    Raises:
        LinkError: prometheus-client is not installed; says how to get it.
    """
    try:
        from prometheus_client import CollectorRegistry
    except ImportError:
        raise LinkError(
            "metrics need the package prometheus-client, which is not installed: "
            "pip install 'evflow[metrics]'"
        ) from None
    made = CollectorRegistry()
    made.register(Collector(status))
    return made


def serve(status: Status, address: str = "127.0.0.1", port: int = 9464) -> Endpoint:
    """Opens the endpoint. It has no keys: whoever reaches it may read it.

    Args:
        status: see ``Collector``; called by the threads that answer.
        address: where to listen.
        port: where to listen; 0 for any that is free.

    Raises:
        LinkError: the address cannot be had, or prometheus-client is not installed.
    """
    found = registry(status)
    from prometheus_client import make_wsgi_app

    try:
        return Endpoint(make_wsgi_app(found), address, port)
    except (OSError, OverflowError) as error:
        raise LinkError(
            f"metrics at {address}:{port}: this node cannot listen there: {error}; is another process "
            "at that port, or is the address none of this host's?"
        ) from error
