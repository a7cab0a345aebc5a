"""``evflow draw --live``: the graph of a deployment with its nodes as frames, its counts and its rates."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from msgspec import to_builtins

from evflow.choices import suggestion
from evflow.errors import DeployError
from evflow.graph.draw import Live, Picture, draw
from evflow.graph.graph import Graph
from evflow.graph.kinds import absent, made
from evflow.outside import shown
from evflow.tools.watch.status import DeploymentStatus, StoneStatus
from evflow.tools.watch.survey import Survey, rates
from evflow.tools.watch.view import notes_of


def chosen(survey: Survey, name: str | None = None) -> str:
    """The deployment that is meant: the one named, or the only one there is.

    Raises:
        DeployError: there is none, or there are several and none is named.
    """
    found = [key for key, known in survey.deployments().items() if known.graph is not None]
    if name is None and len(found) == 1:
        return found[0]
    if name in found:
        return str(name)
    if name is None and not found:
        raise DeployError("nothing is deployed on the nodes that were asked and answer")
    there = f"there are {', '.join(found)}" if found else "no node that answers has any"
    asked = "several deployments" if name is None else f"no deployment {name!r}{suggestion(str(name), found)}"
    raise DeployError(f"{asked}: {there}{'; say which with --deployment NAME' if found else ''}")


def picture(before: Survey | None, after: Survey, deployment: str) -> Picture:
    """A picture of a deployment as it is now.

    Args:
        before: a look before, for the rates; None for a picture without.
        after: the look now.
        deployment: its name.

    Raises:
        DeployError: there is no such deployment, or its graph cannot be read.
        GraphError: the library for the layout is not installed.
    """
    known = after.deployments()[chosen(after, deployment)]
    graph = _graph(deployment, known)
    prefix = f"{deployment}/"
    stones = {
        name.removeprefix(prefix): stone
        for status in after.alive.values()
        for name, stone in status.stones.items()
        if name.startswith(prefix)
    }
    live = Live(
        {
            name.removeprefix(prefix): {"in": rate.taken, "out": rate.left}
            for (_, name), rate in rates(before, after).items()
            if name.startswith(prefix)
        },
        {name: note for name, stone in stones.items() if (note := _note(name, stone, known))},
        {node: _caption(node, after, known) for node in known.hosts},
        frozenset(node for node, state in known.members.items() if state.startswith("dead")),
    )
    stats = {name: to_builtins(stone) for name, stone in stones.items()}
    return draw(graph, None, stats, live)


def _graph(deployment: str, known: DeploymentStatus) -> Graph:
    data: Mapping[str, Any] = known.graph or {}
    try:
        # What turns one schema into another is not part of the picture, and would be compiled.
        return Graph.from_dict({**data, "morphs": []}, lambda entry: made(entry, absent))
    except (KeyError, TypeError, ValueError, LookupError) as error:
        raise DeployError(
            f"deployment {deployment}: its graph cannot be read: {shown(error, 200)}"
        ) from error


def _note(name: str, stone: StoneStatus, known: DeploymentStatus) -> str:
    frozen = "frozen" if name in known.frozen and not stone.frozen else ""
    return " ".join(filter(None, [frozen, notes_of(stone)]))


def _caption(node: str, after: Survey, known: DeploymentStatus) -> str:
    status = after.alive.get(node)
    state = known.members.get(node, "")
    parts = [node]
    if status is not None and status.host and status.host != node:
        parts.append(status.host)
    parts.append(known.hosts[node])
    if state and state != "alive":
        parts.append(state)
    elif status is None:
        parts.append("not asked, or no answer")
    return " · ".join(parts)
