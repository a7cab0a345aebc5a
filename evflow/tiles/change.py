"""Hosts join a system of tiles that runs, and leave it; its grid follows density."""

from __future__ import annotations

import json
import math
import secrets
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING

from evflow.errors import EvflowError, FlowError, GraphError, LinkError
from evflow.outside import from_json
from evflow.tiles.density import Crowd, balanced
from evflow.tiles.plan import Plan
from evflow.tiles.stone import Host, put

if TYPE_CHECKING:
    from evflow.deploy.handle import Deployment
    from evflow.graph.graph import Graph

__all__ = ["balance", "grow", "shrink"]

_AGAIN = 0.05


def grow(
    deployment: Deployment,
    host: str,
    contact: str | None = None,
    *,
    roles: Sequence[str] = ("frontends", "states", "tiles"),
    timeout: float = 120.0,
) -> None:
    """Lets a host join while events flow; returns once it has its share.

    It is spare, except for its Frontend, until ``replicas`` spare hosts make a group. Only keys and tiles of
    this group move. If this fails on the way, no match is lost; call it again with the same arguments.

    Args:
        deployment: the handle of a graph that ``evflow.tiles.graph`` made.
        host: the node of the host.
        contact: where the others find it; None if the deployment has it as a host already.
        roles: what it plays: ``frontends``, ``states``, ``tiles``.
        timeout: seconds.

    Raises:
        GraphError: there is no such role.
        FlowError: there is such a host already; or it took longer, or a host is dead.

    Example:
        >>> grow(deployment, "e", "tcp://10.0.0.5:7000")  # doctest: +SKIP
    """
    until = time.monotonic() + timeout
    plan = _newest(deployment)
    is_there = host in deployment.graph.stones
    if is_there and (not plan.next or host not in plan.running):
        raise FlowError(f"host {host!r}: expected one that is not there yet")
    if host not in plan.running:
        plan = _settled(deployment, until).grown(host, roles)
    if not is_there:
        if contact is not None and host not in deployment.hosts:
            deployment.add_host(host, contact)
        # All others know of it before it comes.
        _reached(deployment, plan, until)
        with deployment.change() as graph:
            silence = next(stone.silence for stone in graph.stones.values() if isinstance(stone, Host))
            put(graph, deployment.name, plan, plan.number(host), silence)
    _settled(deployment, until)


def shrink(deployment: Deployment, host: str, *, timeout: float = 120.0) -> None:
    """Lets a host leave while events flow; returns once others have what it had.

    A spare host takes its place, and no key moves. If there is none, its group ends: only keys and tiles of
    this group move, and its other hosts become spare. A host that is dead can leave if a spare one takes its
    place and most of the deployment's hosts live; its daemon must not be about to come back. If this fails on
    the way, no match is lost; call it again with the same arguments.

    Args:
        deployment: the handle of a graph that ``evflow.tiles.graph`` made.
        host: the name of the host.
        timeout: seconds.

    Raises:
        GraphError: there is no such host, or it cannot leave.
        FlowError: it took longer, or another host is dead.

    Example:
        >>> shrink(deployment, "e")  # doctest: +SKIP
    """
    until = time.monotonic() + timeout
    plan = _newest(deployment, host)
    if host in plan.settled().running:
        plan = _settled(deployment, until, leaving=host).without(host)
    _reached(deployment, plan, until, "" if plan.next else host)
    plan = _settled(deployment, until, "" if plan.next else host)
    lost = _silent(deployment, host)
    # Two changes: what is on its way over a bridge that ends is still to be handled, by a stone that is open.
    peers = list(plan.numbers.values())
    with deployment.change(lost=lost) as graph:
        _removed(graph, [f"{peer} to {host}" for peer in peers])
    with deployment.change(lost=lost) as graph:
        _removed(graph, [f"{host} to {peer}" for peer in peers])
        graph.remove(host)


def _silent(deployment: Deployment, host: str) -> list[str]:
    """The host, if it does not answer."""
    try:
        deployment.attributes(host)
    except LinkError:
        return [host]
    return []


def _removed(graph: Graph, names: Sequence[str]) -> None:
    for name in names:
        if name in graph.stones:
            graph.remove(name)


def balance(deployment: Deployment, *, most: float = 300.0, timeout: float = 120.0) -> int:
    """Splits tiles with many zones and joins those with few, while events flow; returns once that is done.

    A move costs a Tile Manager time for each zone of the other side in its tile. A tile in which a move is
    compared with more than ``most`` zones is split into four, and these again, at most 5 zooms deep, unless
    the zones are too wide for that. Four parts are joined when a move would be compared with no more than
    half of ``most``. Call it again from time to time: where nothing has to change it changes nothing. If it
    fails on the way, no match is lost.

    Args:
        deployment: the handle of a graph that ``evflow.tiles.graph`` made.
        most: zones that a move is compared with, on average.
        timeout: seconds.

    Returns:
        How many tiles are split now.

    Raises:
        GraphError: ``most`` is not a positive number.
        FlowError: it took longer, or a host is dead.

    Example:
        >>> balance(deployment)  # doctest: +SKIP
        12
    """
    if not 0 < most < math.inf:
        raise GraphError(f"most {most!r}: expected a positive number of zones")
    until = time.monotonic() + timeout
    while True:
        plan = _settled(deployment, until)
        told = _weighed(deployment, plan, most, until)
        splits = balanced(plan.layout.grid, told, most)
        if splits == plan.layout.grid.splits:
            return len(splits)
        _reached(deployment, plan.divided(splits), until)


def _weighed(deployment: Deployment, plan: Plan, most: float, until: float) -> dict[int, Crowd]:
    """What all hosts with Tile Managers tell of their tiles; of replicas the most."""
    found = dict[int, Crowd]()
    question = json.dumps([secrets.token_hex(8), most])
    for name in {host for hosts in plan.tiles.groups.values() for host in hosts}:
        attributes = deployment.attributes(name, weigh=question)
        while True:
            answer = str(attributes.get("crowds", ""))
            asked, listed = from_json(answer) if answer else ("", [])
            if asked == question:
                break
            if time.monotonic() > until:
                raise FlowError(f"host {name}: it has not told of its tiles; call this again")
            time.sleep(_AGAIN)
            attributes = deployment.attributes(name)
        deployment.attributes(name, weigh="")
        for tile, *numbers in listed:
            found[tile] = max(found.get(tile, Crowd(0, 0)), Crowd(*numbers))
    return found


def _hosts(deployment: Deployment) -> list[str]:
    return [name for name, stone in deployment.graph.stones.items() if isinstance(stone, Host)]


def _newest(deployment: Deployment, leaving: str = "") -> Plan:
    """The plan of the host that is furthest on, without one that leaves, if there is another."""
    plans, wrong, hosts = [], "", _hosts(deployment)
    for name in [name for name in hosts if name != leaving] or hosts:
        try:
            plans.append(Plan.read(str(deployment.attributes(name)["plan"])))
        except (EvflowError, KeyError) as error:
            wrong = f"{name}: {error}"
    if not plans:
        raise FlowError(
            f"deployment {deployment.name}: expected hosts of tiles that tell their plan; {wrong}"
        )
    return max(plans, key=lambda plan: plan.stage)


def _settled(deployment: Deployment, until: float, leaving: str = "") -> Plan:
    """The plan once no change is under way any more and all hosts are ready."""
    plan = _newest(deployment, leaving)
    absent = sorted(set(plan.running) - set(_hosts(deployment)))
    if absent:
        raise FlowError(f"host {absent[0]!r} was about to join: let it grow first")
    _reached(deployment, plan, until, leaving, ready=True)
    if plan.next:
        plan = plan.settled()
        _reached(deployment, plan, until, leaving, ready=True)
    return plan


def _reached(
    deployment: Deployment, plan: Plan, until: float, leaving: str = "", *, ready: bool = False
) -> None:
    """Tells all hosts a plan, and waits until they have it, and until those that play roles are ready.

    Raises:
        FlowError: it took too long; says which host lags and why.
    """
    left = [name for name in _hosts(deployment) if name != leaving]
    while left:
        name = left[0]
        try:
            told = deployment.attributes(name)
            if Plan.read(str(told.get("plan"))).stage < plan.stage:
                why = "it has not taken the change yet"
                told["change"] = plan.text()
            elif ready and name in plan.running and not told.get("ready"):
                why = "it has not caught up yet"
            else:
                left.pop(0)
                continue
        except EvflowError as error:
            why = str(error)
        if time.monotonic() > until:
            raise FlowError(f"host {name}: {why}; call this again")
        time.sleep(_AGAIN)
