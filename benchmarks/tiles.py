"""What a move costs each role of ``evflow.tiles`` alone: one process, no sockets, one replica.

Entities at 20 km/h, 100 a km², circles of 50 m, tiles of 1222 m, a move every 10 s; the share k publishes.
Thread CPU time, so that other load counts little.
"""

from __future__ import annotations

import argparse
import time
from collections import Counter

import numpy as np

from evflow.tiles import MOVE, Client, Frontend, Grid, Layout, Place, Ring, StateManager, TileManager

STEP = 20 / 3.6 * 10
DEGREES = 1 / 111_195


def fleet(n: int, k: float, random: np.random.Generator) -> np.ndarray:
    rows = np.zeros(n, MOVE)
    side = np.sqrt(n / 100) * 1000
    rows["id"], rows["flags"] = np.arange(n), random.random(n) >= k
    rows["zone"][:, 0] = 46 + random.uniform(0, side, n) * DEGREES
    rows["zone"][:, 1] = 6 + random.uniform(0, side, n) * DEGREES / np.cos(np.radians(46))
    rows["zone"][:, 2] = 50
    return rows


def moved(rows: np.ndarray, random: np.random.Generator) -> None:
    rows["version"] += 1
    angle = random.uniform(0, 2 * np.pi, len(rows))
    rows["zone"][:, 0] += np.sin(angle) * STEP * DEGREES
    rows["zone"][:, 1] += np.cos(angle) * STEP * DEGREES / np.cos(np.radians(46))


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--entities", type=int, default=200_000)
    parser.add_argument("--batch", type=int, default=5000)
    parser.add_argument("--moves", type=int, default=600_000)
    options = parser.parse_args()
    print(
        "k    "
        + "".join(f"{name:>10}" for name in ("client", "frontend", "state", "tile", "all"))
        + "  ns a move"
    )
    for k in (0.2, 0.5, 0.8):
        measure(k, options)


def measure(k: float, options: argparse.Namespace) -> None:
    random = np.random.default_rng(1)
    ring = Ring({0: ("host",)})
    layout = Layout(Grid(15), ring, ring)
    front, state, tile = (Place(role, 0) for role in ("frontend", "state", "tile"))
    roles = {
        front: Frontend(front, layout),
        state: StateManager(state, layout),
        tile: TileManager(tile, layout),
    }
    client = Client(Place("client", 0), front)
    spent, rows = Counter[str](), Counter[str]()

    def send(part: np.ndarray) -> None:
        begin = time.thread_time()
        waiting = [(client.place, *sent) for sent in client.send(part)]
        spent["client"] += time.thread_time() - begin
        for sender, target, message in waiting:
            rows[f"{message.kind} to {target.role}"] += len(message.rows)
            begin = time.thread_time()
            if target == client.place:
                outbox = client.receive(sender, message)[1]
            else:
                outbox = roles[target].receive(sender, message)
            spent[target.role] += time.thread_time() - begin
            waiting += [(target, *sent) for sent in outbox]

    entities = fleet(options.entities, k, random)
    for start in range(0, len(entities), options.batch):
        send(entities[start : start + options.batch])
    spent.clear()
    rows.clear()
    count = 0
    while count < options.moves:
        moved(entities, random)
        order = random.permutation(len(entities))
        for start in range(0, len(order), options.batch):
            send(entities[order[start : start + options.batch]])
        count += len(order)
    costs = [spent[role] / count * 1e9 for role in ("client", "frontend", "state", "tile")]
    print(
        f"{k:<5}" + "".join(f"{cost:10.0f}" for cost in (*costs, sum(costs))),
        f"; {rows['moves to tile'] / count:.2f} to tiles, {rows['matches to client'] / count:.2f} matches",
    )


if __name__ == "__main__":
    main()
