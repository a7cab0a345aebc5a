"""What each kind of message costs the roles of ``evflow.tiles``, for the simulation of ``tiles_scale``.

The roles of 1 and of 16 hosts run in this process, without sockets, with messages of a few and of many rows.
Least squares then give CPU for the message, for a row, for a message that it makes others get, and for a zone
that a row is compared with.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass

import numpy as np
from tiles import Role, fleet, moved, played

from evflow.tiles import Client, Frontend, Grid, Layout, Place, Ring, StateManager, TileManager

ROLES = (
    ("moves", "client", "frontend"),
    ("moves", "frontend", "state"),
    ("ack", "state", "frontend"),
    ("moves", "state", "tile"),
    ("matches", "tile", "frontend"),
    ("ack", "client", "frontend"),
    ("ack", "frontend", "tile"),
)
"""Kind, sender and receiver of all messages that daemons get."""

TO_TILE, MATCHES = ROLES.index(("moves", "state", "tile")), ROLES.index(("matches", "tile", "frontend"))
NEAR = 36.0
"""Zones of the other side in a tile of 0.72 km², with k = 0.5."""


@dataclass(frozen=True)
class Costs:
    """Seconds of CPU.

    Attributes:
        roles: of each of ``ROLES``: for the message, a row, a message that it causes, a comparison.
        link: of a message between hosts and of a row of it, both ends together.
        client: a client's, for a message to or from its daemon, for a row, and for each time it wakes up.
        daemon: the same of the daemon.
        told: rows that tiles get of a move.
        found: matches of a move, by k.
    """

    roles: list[list[float]]
    link: list[float]
    client: list[float]
    daemon: list[float]
    told: float
    found: dict[str, float]


def fitted(rows: np.ndarray, seconds: np.ndarray) -> list[float]:
    """Least squares of relative errors, without negative numbers."""
    weights, kept = 1 / np.maximum(seconds, 1e-6), list(range(rows.shape[1]))
    while True:
        found = np.linalg.lstsq(rows[:, kept] * weights[:, None], seconds * weights, rcond=None)[0]
        if (found >= 0).all():
            whole = np.zeros(rows.shape[1])
            whole[kept] = found
            return whole.tolist()
        kept.pop(int(np.argmin(found)))


def costs_of_roles(entities: int = 60_000) -> Costs:
    """Costs without links and clients."""
    seen: dict[int, list[tuple[float, ...]]] = defaultdict(list)
    told, found = 0.0, dict[str, float]()
    for hosts, batch, k in ((1, 2000, 0.5), (1, 100, 0.5), (16, 2000, 0.5), (16, 100, 0.2), (16, 100, 0.8)):
        for is_dense in (False, True) if k == 0.5 else (False,):
            rates = _sampled(hosts, batch, k, entities, is_dense, seen)
            if not is_dense:
                told, found[str(k)] = rates
    samples = [np.array(seen[kind]) for kind in range(len(ROLES))]
    nothing = [0.0] * 3
    return Costs([fitted(s[:, 1:], s[:, 0]) for s in samples], nothing[:2], nothing, nothing, told, found)


def _sampled(
    hosts: int, batch: int, k: float, n: int, is_dense: bool, seen: dict[int, list[tuple[float, ...]]]
) -> tuple[float, float]:
    """Runs the roles of some hosts, adds samples by kind; returns rows to tiles and matches, both a move."""
    random, ring = np.random.default_rng(1), Ring({g: (f"h{g}",) for g in range(hosts)})
    layout, front = Layout(Grid(15), ring, ring), Place("frontend", 0)
    roles: dict[Place, Role] = {front: Frontend(front, layout)}
    for g in range(hosts):
        roles[Place("state", g)] = StateManager(Place("state", g), layout)
        roles[Place("tile", g)] = TileManager(Place("tile", g), layout)
    client, entities = Client(Place("client", 0), front), fleet(n, k, random)
    if is_dense:
        # 16 times as many zones a tile, with as many matches each.
        entities["zone"][:, :2] = (46, 6) + (entities["zone"][:, :2] - (46, 6)) / 4
        entities["zone"][:, 2] = 50 / 4
    near, rows = NEAR * (16 if is_dense else 1), np.zeros(len(ROLES))
    # The first round fills the roles, the second one warms them up.
    for round, count in enumerate((n, n, batch * (300 if batch < 1000 else 20))):
        if round:
            moved(entities["zone"], random)
            entities["version"] += 1
        order = random.permutation(n)[:count]
        for start in range(0, len(order), batch):
            sent = client.send(entities[order[start : start + batch]])
            for sender, target, message, took, outbox in played(client, roles, sent):
                if target != client.place and round == 2:
                    kind, size = ROLES.index((message.kind, sender.role, target.role)), len(message.rows)
                    away = sum(place.role != "client" for place, _ in outbox)
                    seen[kind].append((took, 1.0, size, away, size * near * (kind == TO_TILE)))
                    rows[kind] += size
    return rows[TO_TILE] / len(order), rows[MATCHES] / len(order)
