"""What is wrong with a graph as it would be deployed on hosts, and what each would get; nothing is asked."""

from __future__ import annotations

from collections import Counter

from evflow.deploy.hosts import Hosts
from evflow.engine.check import check_graph
from evflow.engine.placement import bridged
from evflow.errors import CodeError, EvflowError, GraphError
from evflow.graph.graph import Graph
from evflow.graph.kinds import described, imports_of, made
from evflow.stone import Stone
from evflow.tools.report import table

_OWN = ("__main__", "evflow_program")
"""What a file is called that is run, or loaded by the command line."""


def placement_problems(graph: Graph, hosts: Hosts) -> list[str]:
    """Everything that keeps a graph from being deployed on these hosts, one text each.

    Handlers that are named by a text are not imported: the host has them, and this one need not.

    Args:
        graph: the graph; it is checked too.
        hosts: where its nodes are.
    """
    problems: list[str] = []
    try:
        check_graph(graph, lambda stone: not stone.imports)
    except GraphError as error:
        problems += error.problems or (str(error),)
    except EvflowError as error:
        problems.append(str(error))
    known = ", ".join(hosts.contacts)
    for name, stone in graph.stones.items():
        where = f"stone {name!r} ({stone.kind})"
        if stone.on is None:
            problems.append(f"{where} is placed on no host; place it with on=, on one of {known}")
        elif stone.on not in hosts.contacts:
            problems.append(f"{where} is placed on {stone.on!r}, which is none of the hosts {known}")
        problems += [f"{where}: {text}" for text in _unsaid(name, stone)]
    return list(dict.fromkeys(problems))


def _unsaid(name: str, stone: Stone) -> list[str]:
    """Why a stone cannot be written as data that another host can read, as a deployed one has to be."""
    try:
        again = made({"name": name, "on": stone.on, **described(name, stone)})
    except (GraphError, CodeError) as error:
        return [str(error)]
    return [
        f"{'handler' if text in again.imports else 'class'} {text.partition(':')[2]} is defined in the "
        "graph's own file, which its host does not have; put it into a module of its own there"
        for text in imports_of(again)
        if text.partition(":")[0] in _OWN
    ]


def placement_table(graph: Graph, hosts: Hosts) -> str:
    """What each host would get: stones by kind, what it sends to whom, and the modules of its handlers.

    Args:
        graph: a graph without ``placement_problems``.
        hosts: where its nodes are.
    """
    # As data and back: so handlers are known by their names.
    whole = bridged(Graph.from_dict(graph.to_dict()))
    header = ["host", "contact", "stones", "kinds", "sends to", "handlers to allow"]
    rows: list[list[str | float]] = []
    for host, contact in hosts.contacts.items():
        stones = {name: stone for name, stone in whole.stones.items() if stone.on == host}
        kinds = Counter(stone.kind for stone in stones.values())
        sends = {
            str(whole.stones[link.target].on)
            for link in whole.links
            if link.source in stones and whole.stones[link.target].on != host
        }
        modules = {text.partition(":")[0] for stone in stones.values() for text in imports_of(stone)}
        listed = ", ".join(f"{count} {kind}" for kind, count in sorted(kinds.items()))
        rows.append([host, contact, len(stones), listed, _names(sends), _names(modules)])
    return table(header, rows)


def _names(names: set[str]) -> str:
    return ", ".join(sorted(names)) or "–"
