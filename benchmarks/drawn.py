"""Work that nobody chose: shapes, sizes, rates, chains and splits drawn at random, each beside its best peer.

    python benchmarks/drawn.py [--seed N] [--cases N] [--quick]

It prints the ten cases in which evflow is worst, and how all of them are spread. A ratio is evflow's cost by
the peer's: below 1 evflow is ahead. A seed and a case's number give the same case again.

- encode, read: a table of 1 to 50 fields of any types and 1 to 100,000 rows, in and out. Peers pack and
  unpack each record: msgpack, and pickle for all of them at once; the faster counts.
- chain, split: events in batches of 1 to 100,000 through 1 to 8 filters, or to 1 to 16 handlers. Peers do it
  with plain Python functions, a loop over records.
- rate: single events between two processes at 1,000 to 200,000 a second, the median time to the handler. The
  peer is pyzmq.
"""

from __future__ import annotations

import argparse
import math
import pickle
import random
import threading
import time
from collections.abc import Callable
from typing import Any, NamedTuple

import latency
import msgpack
import numpy as np
import table

import evflow as ev

ENOUGH = 0.05
"""Seconds that each measurement of a case takes at least."""


TURNS = 600
"""How often 50 rows go in and out before a table counts; after 20,000 rows evflow has machine code optimised,
beside, in a thread."""


class Case(NamedTuple):
    """What was drawn, and what it costs in ns, evflow and the faster peer."""

    name: str
    evflow: float
    peer: float
    by: str

    @property
    def ratio(self) -> float:
        """evflow's cost by the peer's."""
        return self.evflow / self.peer


def log_uniform(r: random.Random, least: int, most: int) -> int:
    """A number of any magnitude."""
    return round(math.exp(r.uniform(math.log(least), math.log(most))))


def field(r: random.Random, n: int) -> tuple[Any, list[Any], Any]:
    """A type, values of it, and the same as a numpy column where there is one."""
    kind = r.choice(
        ["int", "i16", "float", "bool", "str", "Str", "bytes", "Array", "int?", "list", "text list"]
    )
    numbers = np.random.default_rng(r.randrange(2**32))
    if kind == "int":
        column = numbers.integers(-(2**40), 2**40, n)
        return int, column.tolist(), column
    if kind == "i16":
        column = numbers.integers(-(2**15), 2**15, n).astype(np.int16)
        return ev.i16, column.tolist(), column
    if kind == "float":
        column = numbers.uniform(size=n)
        return float, column.tolist(), column
    if kind == "bool":
        column = numbers.uniform(size=n) < 0.5
        return bool, column.tolist(), column
    texts = ["abcdefghijklmnopqrstuvwxyz"[: r.randrange(27)] for _ in range(min(n, 1_000))]
    texts = (texts * (n // len(texts) + 1))[:n]
    if kind == "str":
        return str, texts, texts
    if kind == "Str":
        short = [text[:8] for text in texts]
        return ev.Str[8], short, r.choice([short, np.array(short, "S8")])
    if kind == "bytes":
        return bytes, [text.encode() for text in texts], [text.encode() for text in texts]
    if kind == "Array":
        arrays = [numbers.uniform(size=len(text)) for text in texts]
        return ev.Array[ev.f64, None], [array.tobytes() for array in arrays], arrays
    if kind == "int?":
        some: list[int | None] = [len(text) if len(text) % 3 else None for text in texts]
        return int | None, some, some
    lists: list[Any] = [list(range(len(text) % 5)) for text in texts]
    if kind == "list":
        return list[int], lists, lists
    words = [[text] * (len(text) % 4) for text in texts]
    return list[str], words, words


def cost(run: Callable[[], object]) -> float:
    """ns of the fastest of some runs, after one that warms up."""
    run()
    best, spent = float("inf"), 0.0
    while spent < ENOUGH or best == float("inf"):
        start = time.perf_counter_ns()
        run()
        taken = time.perf_counter_ns() - start
        best, spent = min(best, taken), spent + taken * 1e-9
    return best


def best_of(peers: dict[str, Callable[[], object]]) -> tuple[float, str]:
    """The cost of the fastest peer, and its name."""
    return min((cost(run), name) for name, run in peers.items())


def tables(r: random.Random, number: int) -> list[Case]:
    """A table in, and out."""
    width, n = log_uniform(r, 1, 50), log_uniform(r, 1, 100_000)
    n = min(n, 400_000 // width)
    drawn = [field(r, n) for _ in range(width)]
    schema = ev.Schema("drawn", {f"f{i}": kind for i, (kind, _, _) in enumerate(drawn)})
    columns = {f"f{i}": column for i, (_, _, column) in enumerate(drawn)}
    records = list(zip(*(values for _, values, _ in drawn), strict=True))
    small = {
        name: np.resize(column, 50) if isinstance(column, np.ndarray) else (column * 50)[:50]
        for name, column in columns.items()
    }
    for _ in range(TURNS):
        ev.EventBatch.from_columns(schema, small).to_columns()
    for thread in threading.enumerate():
        if thread.name == "evflow compiler":
            thread.join()
    batch, pack = ev.EventBatch.from_columns(schema, columns), msgpack.Packer().pack
    packed, pickled = b"".join(map(pack, records)), pickle.dumps(records)

    def unpack() -> object:
        unpacker = msgpack.Unpacker(max_buffer_size=0)
        unpacker.feed(packed)
        return list(unpacker)

    writers = {"msgpack": lambda: b"".join(map(pack, records)), "pickle": lambda: pickle.dumps(records)}
    readers = {"msgpack": unpack, "pickle": lambda: pickle.loads(pickled)}
    kinds = ", ".join(sorted({kind.text if hasattr(kind, "text") else str(kind) for kind, _, _ in drawn}))
    what = f"{n:,} rows of {width} fields ({kinds[:60]})"
    found = []
    for name, run, peers in (
        ("encode", lambda: ev.EventBatch.from_columns(schema, columns), writers),
        ("read", batch.to_columns, readers),
    ):
        peer, by = best_of(peers)
        found.append(Case(f"{number} {name} {what}", cost(run) / n, peer / n, by))
    return found


class Trade(ev.Event):
    """What goes through chains and splits."""

    symbol: ev.Str[8]
    price: float
    size: int


def graphs(r: random.Random, number: int) -> list[Case]:
    """A chain of filters to batches, and a split to handlers."""
    n, filters, handlers = log_uniform(r, 1, 100_000), r.randint(1, 8), log_uniform(r, 1, 16)
    limits = [r.uniform(0.0, 0.5) for _ in range(filters)]
    rows = [("IBM", r.random(), size) for size in range(n)]
    columns = {"symbol": ["IBM"] * n, "price": np.array([row[1] for row in rows]), "size": np.arange(n)}
    repeats = max(1, 2_000 // n)
    count = [0]

    def add(_: object) -> None:
        count[0] += 1

    def chain_peer() -> None:
        for _ in range(repeats):
            for row in rows:
                if all(row[1] > limit for limit in limits):
                    add(row)

    def split_peer() -> None:
        for _ in range(repeats):
            for row in rows:
                for handler in [add] * handlers:
                    handler(row)

    graph = ev.Graph("drawn")
    last: Any = graph.source("chain", Trade)
    for limit in limits:
        last = last >> ev.Filter(f"return input.price > {limit};")
    last >> ev.Terminal(add, batch=True)
    split = graph.source("split", Trade)
    for _ in range(handlers):
        split >> ev.Terminal(lambda event: add(event))
    found = []
    with graph.run() as flow:
        for name, what, peer in (
            ("chain", f"{filters} filters", chain_peer),
            ("split", f"{handlers} handlers", split_peer),
        ):

            def run(name: str = name) -> None:
                for _ in range(repeats):
                    flow[name].submit_batch(columns)
                flow.drain()

            for _ in range(60):
                run()
            costs = cost(run), cost(peer)
            text = f"{number} {name} batches of {n:,}, {what}"
            found.append(Case(text, *(ns / n / repeats for ns in costs), by="plain calls"))
    return found


def rates(r: random.Random, number: int) -> list[Case]:
    """Single events between processes, at a rate."""
    rate, busy = log_uniform(r, 1_000, 200_000), r.random() < 0.5
    between = (latency.busily if busy else latency.paced)(rate)
    medians = [
        float(np.median(way(max(500, rate // 4), 1_500, between)))
        for way in (latency.evflow_between, latency.zmq_between)
    ]
    text = f"{number} rate {rate:,} a second, the thread {'computes' if busy else 'sleeps'} between"
    return [Case(text, *medians, by="pyzmq")]


def main() -> None:
    """Prints the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, default=1, help="of the first case")
    parser.add_argument("--cases", type=int, default=60, help="how many; three quarters are tables")
    parser.add_argument("--quick", action="store_true", help="ten cases")
    options = parser.parse_args()
    found: list[Case] = []
    for number in range(10 if options.quick else options.cases):
        r = random.Random(options.seed + number)
        draw = [tables, graphs, tables, rates][number % 4]
        found += draw(r, options.seed + number)
    found.sort(key=lambda case: -case.ratio)
    lines = [["case", "evflow", "peer", "", "ratio"]]
    for case in found[:10]:
        costs = map(table.duration, (case.evflow, case.peer))
        lines.append([case.name, *costs, case.by, f"{case.ratio:.2f}"])
    table.markdown("The ten worst", lines)
    for kind in ("encode", "read", "chain", "split", "rate"):
        ratios = [case.ratio for case in found if case.name.split()[1] == kind]
        if ratios:
            ahead = sum(ratio < 1 for ratio in ratios)
            print(f"{kind}: ahead in {ahead} of {len(ratios)}, median ratio {np.median(ratios):.3f}")


if __name__ == "__main__":
    main()
