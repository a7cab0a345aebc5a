"""A node's status for Prometheus: an endpoint that is opened only where it is asked for.

Names and units are those of Prometheus' conventions: what only grows ends in ``_total``, times are seconds,
sizes bytes. A scrape is one look at the node's status.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any

from evflow import mishaps
from evflow.errors import LinkError
from evflow.tools.watch.endpoint import Endpoint
from evflow.tools.watch.status import NodeStatus

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry
    from prometheus_client.core import Metric

__all__ = ["Collector", "Endpoint", "registry", "serve"]

_log = logging.getLogger("evflow.watch")

Status = Callable[[], Any]
"""Gives what the node answers to "status"."""

_NODE = (
    ("evflow_node_uptime_seconds", "uptime", "Seconds since the node began."),
    ("evflow_node_memory_bytes", "memory", "Resident memory of the node's process."),
    ("evflow_host_load1", "load", "The host's load, the average of a minute."),
    ("evflow_dead_letters_total", "dead_letters", "Events that were given up, by any stone."),
)
_STONE = (
    ("evflow_stone_queued_events", "queued", "Events that wait in a stone."),
    ("evflow_stone_busy_seconds_total", "busy", "Time spent in a stone."),
    ("evflow_stone_frozen", "frozen", "Whether a stone is frozen."),
)
_LINK = (
    ("evflow_link_bandwidth_bytes_per_second", "bandwidth", "What goes to a peer."),
    ("evflow_link_waiting_events", "waiting", "Events that a peer has not handled."),
    ("evflow_link_sessions_total", "sessions", "Sessions with a peer so far."),
)
"""Metrics that are an attribute of a node, of its stones and of its links: name, attribute, help."""

_DIRECTIONS = {
    "in": "taken",
    "out": "left",
    "dropped": "dropped",
    "error": "errors",
    "unmatched": "unmatched",
}

Samples = Iterable[tuple[tuple[str, ...], float]]
"""Values of labels, and the value that they have."""


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
        status: NodeStatus | None
        try:
            with self._one:
                status = NodeStatus.parse(self._status())
        except mishaps.CONTAINED as error:
            mishaps.tell(_log, "metrics", "the node's status cannot be had", error)
            status = None
        yield _family("evflow_up", "Whether the node says its status.", "", [((), status is not None)])
        if status is None:
            return
        yield from _of_node(status)
        yield from _of_stones(status)
        yield from _of_links(status)
        yield from _of_deployments(status)


def _of_node(said: NodeStatus) -> Iterator[Metric]:
    info = (said.node, said.version, said.host)
    yield _family("evflow_node_info", "The node, always 1.", "node version host", [(info, 1)])
    for name, attribute, help in _NODE:
        yield _family(name, help, "", [((), getattr(said, attribute))])
    budget = (((of,), count) for of, count in said.budget.items())
    help = "Memory for events of peers: used, and the most that they may use."
    yield _family("evflow_node_events_bytes", help, "of", budget)
    refused = (((kind,), count) for kind, count in said.refused.items())
    yield _family("evflow_refused_total", "What came from peers and was refused.", "kind", refused)


def _of_stones(said: NodeStatus) -> Iterator[Metric]:
    stones = {_split(name): stone for name, stone in said.stones.items()}
    labels = "deployment stone"
    for name, attribute, help in _STONE:
        yield _family(name, help, labels, ((key, getattr(stone, attribute)) for key, stone in stones.items()))
    events = (
        ((*key, way), getattr(stone, attribute))
        for key, stone in stones.items()
        for way, attribute in _DIRECTIONS.items()
    )
    help = "Events at a stone: in, out, dropped, error, unmatched."
    yield _family("evflow_stone_events_total", help, f"{labels} direction", events)
    numbers = (
        ((*key, name), value)
        for key, stone in stones.items()
        for name, value in stone.attributes.items()
        if isinstance(value, int | float)
    )
    help = "Attributes of a stone that are numbers."
    yield _family("evflow_stone_attribute", help, f"{labels} name", numbers)


def _of_links(said: NodeStatus) -> Iterator[Metric]:
    # Each visitor has a name of its own, which would be a time series for ever.
    links = {(peer,): link for peer, link in said.links.items() if not link.left}
    up = ((key, link.state == "up") for key, link in links.items())
    yield _family("evflow_link_up", "Whether the link to a peer is up.", "peer", up)
    # What was not measured is left out, as 0 would be a very good link.
    trips = ((key, link.round_trip) for key, link in links.items() if link.round_trip)
    yield _family("evflow_link_round_trip_seconds", "Round trip to a peer, smoothed.", "peer", trips)
    for name, attribute, help in _LINK:
        yield _family(name, help, "peer", ((key, getattr(link, attribute)) for key, link in links.items()))


def _of_deployments(said: NodeStatus) -> Iterator[Metric]:
    versions = (((name,), known.version) for name, known in said.deployments.items())
    yield _family("evflow_deployment_version", "Version of a deployment's record.", "deployment", versions)
    members = (
        ((name, member), state == "alive")
        for name, known in said.deployments.items()
        for member, state in known.members.items()
        if state != "unknown"
    )
    help = "Whether a member of a deployment is alive."
    yield _family("evflow_member_up", help, "deployment member", members)


def _split(name: str) -> tuple[str, str]:
    deployment, slash, stone = name.partition("/")
    return (deployment, stone) if slash else ("", name)


def _family(name: str, help: str, labels: str, samples: Samples) -> Metric:
    from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

    kind = CounterMetricFamily if name.endswith("_total") else GaugeMetricFamily
    family = kind(name, help, labels=labels.split())
    for values, value in samples:
        # Half of a surrogate pair has no bytes, and would cost the whole scrape.
        family.add_metric([text.encode("utf-8", "replace").decode() for text in values], float(value))
    return family


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
            "at that port, or does this host not have that address?"
        ) from error
