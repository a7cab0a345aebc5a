"""A graph is rolled out over daemons."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from evflow.deploy.client import Cluster
from evflow.deploy.handle import ANSWER, Deployment
from evflow.deploy.record import Record
from evflow.engine.check import check_graph
from evflow.engine.placement import bridged
from evflow.errors import DeployError
from evflow.graph.graph import Graph


def deploy(
    graph: Graph,
    hosts: Mapping[str, str],
    *,
    replace: bool = False,
    timeout: float = 10.0,
    **settings: Any,
) -> Deployment:
    """Rolls a graph out over daemons, all of it or nothing; see ``Graph.deploy``."""
    record = Record.first(graph.name, graph.to_dict(), hosts)
    # What is there only where the stone runs is looked at there.
    check_graph(bridged(graph), lambda stone: not stone.imports and not stone.reads)
    cluster = Cluster(hosts, timeout=timeout, **settings)
    try:
        roll_out(cluster, record, replace, timeout)
    except BaseException:
        cluster.close(0.0)
        raise
    return Deployment(graph.name, hosts, cluster=cluster)


def roll_out(cluster: Cluster, record: Record, replace: bool, timeout: float) -> None:
    """Asks the first host for the first version of a deployment, or for a new one of one that runs.

    Raises:
        DeployError: it runs already and is not to be replaced; or a host refuses, and why.
        LinkError: a host does not answer.
    """
    host = next(iter(record.hosts))
    found = cluster.ask(host, "record", deployment=record.deployment, known=0)
    if found is not None:
        before = Record.from_data(found)
        if not replace:
            raise DeployError(
                f"deployment {record.deployment} runs already, at version {before.version}; change it with "
                "its handle, take it down with undeploy, or say replace=True"
            )
        record = before.edited(record.graph, hosts=record.hosts, frozen=[])
    cluster.ask(host, "propose", record=record.data(), patience=timeout, seconds=timeout + ANSWER)
