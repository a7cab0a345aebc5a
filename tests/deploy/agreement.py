"""What the nodes of a deployment say of it: whether all are at one version, and what runs where."""

from __future__ import annotations

from typing import Any

import evflow as ev
from tests.node.processes import wait_for

WITHIN = 30.0


def agreed(handle: ev.Deployment, within: float = WITHIN) -> dict[str, str]:
    """Waits until all nodes are at one version; gives stone → node as their engines have it."""
    told: dict[str, Any] = {}
    deployment = handle.name

    def look() -> bool:
        told.clear()
        for host in handle.hosts:
            try:
                told[host] = handle.cluster.ask(host, "status", seconds=5.0)
            except ev.LinkError as error:
                told[host] = str(error)
                return False
        found = [status["deployments"].get(deployment) for status in told.values()]
        if any(one is None or one["changing"] or one["trouble"] for one in found):
            return False
        return len({(one["version"], one["change"]) for one in found}) == 1

    try:
        wait_for(look, "one version on all nodes", within)
    except AssertionError as error:
        raise AssertionError(f"{error}\n{_summary(told, deployment)}") from None
    placed = _placed(told, deployment)
    graph = next(iter(told.values()))["deployments"][deployment]["graph"]
    assert placed == {stone["name"]: stone["on"] for stone in graph["stones"]}
    return placed


def _placed(told: dict[str, Any], deployment: str) -> dict[str, str]:
    own = f"{deployment}/"
    placed: dict[str, str] = {}
    for host, status in told.items():
        for name, stone in status["stones"].items():
            if name.startswith(own) and stone["kind"] != "bridge":
                short = name.removeprefix(own)
                assert short not in placed, f"{short} runs on {placed[short]} and {host}"
                placed[short] = host
    return placed


def _summary(told: dict[str, Any], deployment: str) -> str:
    lines = []
    for host, status in told.items():
        if isinstance(status, str):
            lines.append(f"{host}: {status}")
            continue
        one = status["deployments"].get(deployment) or {}
        said = {key: one.get(key) for key in ("version", "change", "changing", "trouble", "members")}
        lines.append(f"{host}: {said}")
    return "\n".join(lines)
