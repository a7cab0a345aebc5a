"""How ``evflow.tiles`` scales to 1,000 nodes: a discrete-event simulation from measured costs.

1. ``tiles_costs`` gives each kind of message a cost.
2. Runs over one and four daemons give what links, clients and waking up cost on top.
3. Other runs, over one, two and four daemons, with one and two replicas, say how far off the simulation is.
4. The simulation plays up to 1,000 nodes, on the axes of figures 9, 10 and 12 of the paper.

A node has two cores, as in the paper: a daemon with all roles on one, a client with its share of the fleet on
the other. Each is a queue, first come first served. Groups are those of ``Ring``, tiles go to them by chance,
and signs of life take their share of each daemon. The fleet is what keeps the busiest core below ``--load``.
"""

from __future__ import annotations

import argparse
import heapq
import json
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, replace
from pathlib import Path

import numpy as np
from numba import njit
from table import RESULTS, machine, markdown, write
from tiles_costs import NEAR, ROLES, Costs, costs_of_roles, fitted
from tiles_evaluation import Fleet, system

from evflow.tiles import Ring

TO_FRONTEND, TO_STATE, STATE_ACK, TO_TILE, MATCHES, CLIENT_ACK, TILE_ACK, TO_CLIENT, CALL = range(9)
"""Kinds of messages: those of ``ROLES``, and matches to a client and its calls."""

BEATS = 8 / 3
"""Signs of life a second to each other host."""

NETWORK, BYTES, ROW = 100e-6, 1.25e9, 96
"""Seconds that a message is on its way, bytes a second, bytes of a row."""

CROWDED = 50 / 16
"""Half of all are in 1 % of the area, whose tiles ``tiles.balance`` splits twice: so many times the zones."""

NODES = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000)
PAPER = {"moves": 190e3, "matches": 130e3, "p99": 50.0, "max": 100.0}
"""At 200 nodes."""


@njit(cache=True)
def play(
    hosts, r, clients, tick, calls, rows_a_call, k, seconds, warm, slots, spread, hot, share, near,
    told, found, roles, link, ends, seed,
):  # fmt: skip
    """Plays it.

    Args:
        hosts, r: hosts, and replicas a group; hosts ``g * r`` and on are those of group g.
        clients: the hosts that have a client.
        tick, calls, rows_a_call: a client's seconds between two turns, calls of each side then, and moves of
            two calls, one of each side.
        k: the share of publications.
        seconds, warm: how long, and from when it counts.
        slots: the group of each slot of the ring.
        spread, hot, share: groups of tiles, and of those that a share of the moves is in.
        near: zones that a move is compared with, in the one and in the other.
        told, found: rows that tiles get and matches, of a move.
        roles, link: see ``Costs``.
        ends: those of clients and of daemons.
        seed: a number.

    Returns:
        For hosts and then their clients, a second: seconds busy; in roles; messages and rows on links, which
        count at both ends; messages and rows between client and daemon; how often it woke up. Then moves and
        matches a second, and how many matches came within 0.1 ms, 0.2 ms and so on.
    """
    np.random.seed(seed)
    beats = BEATS * (hosts - 1) * link[0]
    free, stats, late = np.zeros(2 * hosts), np.zeros((2 * hosts, 7)), np.zeros(20_001, np.int64)
    counts, sums, touched = np.zeros(hosts, np.int64), np.zeros(hosts), np.zeros(hosts, np.int64)
    moves, matches = 0, 0
    # Kind, where, from, the Tile Manager of matches, rows; when the move was, comparisons.
    what, when = np.zeros((1 << 12, 5), np.int64), np.zeros((1 << 12, 2))
    unused, queue = list(range(1 << 12)), [(0.0, 0)]
    queue.clear()
    for h in range(clients):
        i = unused.pop()
        what[i, 0], what[i, 1] = CALL, hosts + h
        heapq.heappush(queue, (np.random.random() * tick, i))
    while queue:
        now, i = heapq.heappop(queue)
        if now > seconds:
            break
        kind, at, source, tile, rows = what[i]
        began, compared = when[i]
        unused.append(i)
        # Where its rows go: groups of State or Tile Managers, or the hosts of clients.
        parts, each, n = 0, r if kind == TO_FRONTEND else 1, 0
        if kind == TO_FRONTEND:
            parts = rows
        elif kind == TO_STATE:
            parts = rows + np.random.poisson((told - 1) * rows)
        elif kind == TO_TILE:
            parts = np.random.poisson(found / told * rows)
        for _ in range(parts):
            if kind == TO_FRONTEND:
                g = slots[np.random.randint(len(slots))]
            elif kind == TO_TILE:
                g = np.random.randint(clients)
            else:
                is_hot = np.random.random() < share
                g = hot[np.random.randint(len(hot))] if is_hot else spread[np.random.randint(len(spread))]
                sums[g] += near[1] if is_hot else near[0]
            if counts[g] == 0:
                touched[n] = g
                n += 1
            counts[g] += 1
        # What it is answered with; of what replicas find, the first goes on.
        answer, to = -1, 0
        if kind == TO_STATE:
            answer, to = STATE_ACK, source
        elif kind == MATCHES and np.random.random() * r < 1:
            answer, to, tile = TO_CLIENT, at + hosts, source
        elif kind == MATCHES:
            answer, to = TILE_ACK, source
        elif kind == TO_CLIENT:
            answer, to = CLIENT_ACK, at - hosts
        elif kind == CLIENT_ACK:
            answer, to = TILE_ACK, tile
        links, on_links, said, rows_said = 0.0, 0.0, 0.0, 0.0
        if at < hosts:
            is_between = answer in (STATE_ACK, TILE_ACK)
            links = 1.0 * (source != at) + 1.0 * (is_between and to != at)
            on_links = float(rows) if source != at else 0.0
            for j in range(n * each):
                g = touched[j // each]
                to_host = g if kind == TO_TILE else g * r + (j % each if kind == TO_FRONTEND else at % r)
                if to_host != at:
                    links += 1
                    on_links += counts[g]
        if kind in (CALL, TO_FRONTEND, TO_CLIENT) or answer == TO_CLIENT:
            # With the acknowledgement.
            said, rows_said = 2.0, float(rows)
        if kind == CALL:
            said, rows_said = 4.0 * calls, rows_a_call * calls
        end, is_woken = ends[int(at < hosts)], now >= free[at]
        cost = links * link[0] / 2 + on_links * link[1] / 2
        cost += said * end[0] + rows_said * end[1] + is_woken * end[2]
        own = 0.0
        if at < hosts:
            sent = n * each + (answer >= 0 and answer != TO_CLIENT)
            own = roles[kind, 0] + roles[kind, 1] * rows + roles[kind, 2] * sent + roles[kind, 3] * compared
            cost = (cost + own) / (1 - min(beats, 0.9))
        done = max(now, free[at]) + cost
        free[at] = done
        if now >= warm:
            stats[at] += np.array([cost, own, links, on_links, said, rows_said, 1.0 * is_woken])
            if kind == TO_CLIENT:
                matches += rows
                late[min(int((done - began + np.random.random() * tick) * 1e4), 20_000)] += rows
        while len(unused) < n * each + 2 * calls + 2:
            unused.extend(list(range(len(what), 2 * len(what))))
            what, when = np.concatenate((what, what)), np.concatenate((when, when))
        for j in range(n * each):
            g, i = touched[j // each], unused.pop()
            to_host = g if kind == TO_TILE else g * r + (j % each if kind == TO_FRONTEND else at % r)
            next = TO_STATE if kind == TO_FRONTEND else TO_TILE if kind == TO_STATE else MATCHES
            what[i], when[i] = np.array([next, to_host, at, at, counts[g]]), np.array([began, sums[g]])
            away = 0.0 if to_host == at else NETWORK + counts[g] * ROW / BYTES
            heapq.heappush(queue, (done + away, i))
        for j in range(n):
            counts[touched[j]], sums[touched[j]] = 0, 0.0
        if answer >= 0:
            i = unused.pop()
            # Between a client and its daemon there is no link of hosts.
            by, carried = to if answer == CLIENT_ACK else at, rows if answer == TO_CLIENT else 0
            what[i], when[i] = np.array([answer, to, by, tile, carried]), np.array([began, 0.0])
            heapq.heappush(queue, (done + (0.0 if to == at else NETWORK), i))
        if kind == CALL:
            for j in range(2 * calls):
                i, count = unused.pop(), int(rows_a_call * (1 - k if j % 2 else k) + np.random.random())
                moves += count * (now >= warm)
                what[i] = np.array([TO_FRONTEND, at - hosts, at - hosts, 0, count])
                when[i] = np.array([now, 0.0])
                heapq.heappush(queue, (done, i))
            i = unused.pop()
            what[i] = np.array([CALL, at, 0, 0, 0])
            heapq.heappush(queue, (now + tick, i))
    lasted = seconds - warm
    return stats / lasted, moves / lasted, matches / lasted, late


def simulated(
    costs: Costs,
    hosts: int,
    r: int,
    rate: float,
    k: float = 0.5,
    *,
    clients: int = 0,
    tick: float = 0.02,
    calls: int = 1,
    seconds: float = 4.0,
    is_skewed: bool = False,
) -> tuple[np.ndarray, float, float, np.ndarray]:
    """Plays hosts whose clients make ``rate`` moves a second each; see ``play``."""
    ring = Ring({g: tuple(f"{g} {i}" for i in range(r)) for g in range(hosts // r)})
    slots, random, clients = ring.slots.astype(np.int64), np.random.default_rng(1), clients or hosts
    tiles = max(1, round(rate * clients * 10 / 2 / NEAR))
    spread, hot = (random.choice(slots, size) for size in (tiles, max(1, tiles // 100) * 16))
    near, ends = np.array([1, CROWDED]) * NEAR * 4 * k * (1 - k), np.array([costs.client, costs.daemon])
    numbers = costs.told, costs.found[str(k)], np.array(costs.roles), np.array(costs.link), ends
    places, times = (slots, spread, hot, 0.5 * is_skewed, near), (seconds, seconds / 4)
    found: tuple[np.ndarray, float, float, np.ndarray] = play(
        hosts, r, clients, tick, calls, rate * tick / calls, k, *times, *places, *numbers, 1
    )
    return found


def on_cpu(pid: int) -> float:
    """Seconds that the threads of a process have run, to the nanosecond."""
    listed = Path(f"/proc/{pid}/task").glob("*/schedstat")
    return sum(int(path.read_text().split()[0]) for path in listed) / 1e9


def real(hosts: int, r: int, entities: int, cases: Sequence[tuple[int, int]], turns: int) -> list[np.ndarray]:
    """Runs over daemons, a turn at a time: all that it causes is through before the next one.

    So other load of the machine changes neither how many messages there are nor how many come at once.

    Args:
        hosts, r: daemons, and replicas.
        entities: of the fleet.
        cases: calls of each side in a turn, and moves of all of these together.
        turns: how many of each.

    Returns:
        For each case CPU of the client and of each daemon in a turn, less what they take when idle: the lower
        quartile of all turns, since other load makes some dearer.
    """
    found: list[list[np.ndarray]] = []
    with system(hosts, r) as (client, arrivals, pids):
        fleet = Fleet(client, arrivals, entities, 0.5, 1.0)
        fleet.settle()

        def spent(act: Callable[[], object]) -> np.ndarray:
            begin, before = time.monotonic(), np.array([on_cpu(pid) for pid in pids])
            act()
            return np.append(np.array([on_cpu(pid) for pid in pids]) - before, time.monotonic() - begin)

        for calls, moves in cases:
            took = [spent(lambda: (fleet.turn(moves, calls), fleet.settle())) for _ in range(turns)]  # noqa: B023
            # The first ones warm it up.
            found.append(took[turns // 4 :])
        idle = spent(lambda: time.sleep(3))
    each = idle[:-1] / idle[-1]
    return [np.quantile([x[:-1] - each * x[-1] for x in took], 0.25, axis=0) for took in found]


def with_links(costs: Costs, turns: int, rounds: int) -> tuple[Costs, list[list[str]]]:
    """Adds what real runs take besides roles, by the messages, rows and wake-ups that the simulation counts.

    Returns:
        The costs, and a table of other real runs beside the simulation: CPU a move.
    """
    cases = ((1, 40), (1, 1000), (1, 6000), (10, 2000))
    runs = []
    for hosts, r in ((1, 1), (2, 1), (2, 2), (4, 1), (4, 2)):
        every = [real(hosts, r, 30_000, cases, turns) for _ in range(rounds)]
        least = [min(each, key=np.sum) for each in zip(*every, strict=True)]
        runs += [(hosts, r, case, cpu) for case, cpu in zip(cases, least, strict=True)]
    known = [run for run in runs if run[:2] in ((1, 1), (4, 1)) and run[2] != (1, 1000)]

    def played(hosts: int, r: int, case: tuple[int, int]) -> np.ndarray:
        calls, moves = case
        stats = simulated(costs, hosts, r, moves, clients=1, tick=1.0, calls=calls, seconds=40)[0]
        return stats[[hosts, *range(hosts)]]

    for _ in range(5):
        rows, left = [], []
        for hosts, r, case, cpu in known:
            for at, (stats, used) in enumerate(zip(played(hosts, r, case), cpu, strict=True)):
                ends = np.zeros((2, 3))
                ends[min(at, 1)] = stats[4:]
                rows.append([stats[2] / 2, stats[3] / 2, *ends.ravel()])
                left.append(used - stats[1])
        a = fitted(np.array(rows), np.array(left))
        costs = replace(costs, link=a[:2], client=a[2:5], daemon=a[5:])
    head = ["daemons, replicas", "calls, moves at once", "taken for the costs"]
    lines = [[*head, *(part for name in ("client", "daemons", "all") for part in (name, "simulated")), "off"]]
    for hosts, r, (calls, moves), cpu in runs:
        busy = played(hosts, r, (calls, moves))[:, 0]
        pairs = [(cpu[0], busy[0]), (cpu[1:].sum(), busy[1:].sum()), (cpu.sum(), busy.sum())]
        line = [
            f"{hosts}, {r}",
            f"{2 * calls}, {moves}",
            "yes" if (hosts, r, (calls, moves)) in [k[:3] for k in known] else "",
        ]
        line += [f"{x / moves * 1e6:.1f} µs" for pair in pairs for x in pair]
        lines.append([*line, f"{pairs[2][1] / pairs[2][0] - 1:+.0%}"])
    return costs, lines


def curve(
    costs: Costs, load: float, nodes: Sequence[int], r: int, k: float, is_skewed: bool, tick: float
) -> list[dict[str, float]]:
    """For each number of nodes what the fleet comes to with which the busiest core has this load."""
    found, rate = [], 10_000.0
    for n in nodes:
        seconds, tried = min(2.0, max(0.12, 40 / n)), list[tuple[float, float]]()
        for _ in range(8):
            stats, moves, matches, late = simulated(
                costs, n, r, rate, k, tick=tick, seconds=seconds, is_skewed=is_skewed
            )
            busiest = float(stats[:, 0].max())
            if abs(busiest / load - 1) < 0.03:
                break
            # Part of the load does not grow with the rate: by the secant.
            (x0, y0), (x1, y1) = (tried or [(0.0, 0.0)])[-1], (rate, busiest)
            tried.append((rate, busiest))
            rate = min(3 * rate, max(rate / 4, x1 + (load - y1) * (x1 - x0) / (y1 - y0 or 1.0)))
        share = np.cumsum(late) / max(late.sum(), 1)
        latency = {f"p{q}": float(np.searchsorted(share, q / 100 - 1e-12)) / 10 for q in (50, 90, 99, 100)}
        mean = float(stats[:n, 0].mean())
        found.append(
            {"nodes": n, "moves": moves, "matches": matches, "load": mean, "busiest": busiest, **latency}
        )
    return found


def plotted(results: dict[str, list[dict[str, float]]], load: float) -> None:
    """Figures 9, 10 and 12, with what the paper says of 200 nodes."""
    import matplotlib

    matplotlib.use("svg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(2, 3, figsize=(12, 6.4), layout="constrained")
    panels = [("k = 0.2", "k = 0.5", "k = 0.8", "k = 0.5, skewed"), ("k = 0.5", "r = 2", "r = 3")]
    for row, y in enumerate(("moves", "matches")):
        for column, names in enumerate(panels):
            here = axes[row, column]
            for name in names:
                points = results[name]
                here.plot([p["nodes"] for p in points], [p[y] for p in points], marker=".", label=name)
            here.plot([200], [PAPER[y]], "kx", label="the paper, 200 nodes")
            here.set(xscale="log", yscale="log", xlabel="nodes", ylabel=f"{y} a second")
            here.set_title(("figure 9: k", "figure 10: r")[column])
            here.legend(frameon=False, fontsize=8)
    points = results["k = 0.5"]
    x = [p["nodes"] for p in points]
    for key in ("load", "busiest"):
        axes[0, 2].plot(x, [p[key] for p in points], marker=".", label=f"{key}, of a core")
    for key, name in (("p50", "p50"), ("p90", "p90"), ("p99", "p99"), ("p100", "max")):
        axes[1, 2].plot(x, [p[key] for p in points], marker=".", label=name)
    axes[1, 2].plot([200, 200], [PAPER["p99"], PAPER["max"]], "kx", label="the paper: below, p99 and max")
    for here, label in ((axes[0, 2], "load"), (axes[1, 2], "ms from a move to its match")):
        here.set(xscale="log", xlabel="nodes", ylabel=label, title="figure 12", ylim=(0, None))
        here.legend(frameon=False, fontsize=8)
    write("tiles_scale", figure, load=load, results=results)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--quick", action="store_true", help="to 100 nodes")
    parser.add_argument("--load", type=float, default=0.7, help="of the busiest core")
    parser.add_argument("--tick", type=float, default=0.02, help="seconds between two batches of a client")
    parser.add_argument("--jobs", type=int, default=2, help="processes that simulate")
    parser.add_argument("--turns", type=int, default=40, help="of each real run")
    parser.add_argument("--rounds", type=int, default=3, help="real runs of each kind; the cheapest counts")
    parser.add_argument(
        "--costs", type=Path, default=RESULTS / "tiles_costs.json", help="measured if it is not there"
    )
    options = parser.parse_args()
    if not options.costs.exists():
        costs, checks = with_links(costs_of_roles(), options.turns, options.rounds)
        record = {"machine": machine(), "costs": asdict(costs), "checks": checks}
        options.costs.parent.mkdir(exist_ok=True)
        options.costs.write_text(json.dumps(record, indent=2))
    record = json.loads(options.costs.read_text())
    costs = Costs(**record["costs"])
    lines = [["", "message", "row", "message it causes", "zone compared"]]
    lines += [
        [" ".join(key), *(f"{x * 1e9:,.0f} ns" for x in own)]
        for key, own in zip(ROLES, costs.roles, strict=True)
    ]
    markdown("CPU of messages in the roles", lines)
    lines = [["", "message", "row", "waking up"]]
    for name, own in (("link", costs.link), ("client", costs.client), ("daemon of a client", costs.daemon)):
        lines.append([name, *(f"{x * 1e9:,.0f} ns" for x in own), *[""] * (3 - len(own))])
    markdown("CPU besides", lines)
    markdown("Real runs and the simulation: CPU a move", record["checks"])
    cases = {f"k = {k}": (1, k, False) for k in (0.2, 0.5, 0.8)}
    cases |= {f"r = {r}": (r, 0.5, False) for r in (2, 3)} | {"k = 0.5, skewed": (1, 0.5, True)}
    lines = [
        ["", "nodes", "moves/s", "a node", "of linear", "matches/s", "mean load", "p50", "p99", "max, ms"]
    ]
    with ProcessPoolExecutor(options.jobs) as pool:
        jobs = {}
        for name, (r, k, is_skewed) in cases.items():
            nodes = [n // r * r for n in NODES if n >= r and (n <= 100 or not options.quick)]
            jobs[name] = pool.submit(curve, costs, options.load, nodes, r, k, is_skewed, options.tick)
        results = {name: job.result() for name, job in jobs.items()}
    for name, points in results.items():
        least = points[0]["moves"] / points[0]["nodes"]
        for p in points:
            each = p["moves"] / p["nodes"]
            numbers = (f"{p['nodes']:,}", f"{p['moves']:,.0f}", f"{each:,.0f}", f"{each / least:.2f}")
            rest = (
                f"{p['matches']:,.0f}",
                f"{p['load']:.2f}",
                *(f"{p[q]:.1f}" for q in ("p50", "p99", "p100")),
            )
            lines.append([name, *numbers, *rest])
    markdown(f"The busiest core at {options.load}", lines)
    plotted(results, options.load)


if __name__ == "__main__":
    main()
