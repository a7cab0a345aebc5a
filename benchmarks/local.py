"""What an event costs inside one process: evflow beside streamz, reactivex, bytewax and plain calls.

Every case takes the same trades through figure 6 of the EVPath paper (a filter on the price, which about
half of them pass) to something that counts them, and must count what numpy counts.

    python benchmarks/local.py [--quick]
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass
from functools import cache, partial
from typing import Any

import numpy as np
import peers
import table

import evflow as ev

FIGURE_6 = "{ if ((input.trade_price < 75.5) || (input.trade_price > 78.5)) { return 1; } return 0; }"
BATCH = 65_536
Columns = dict[str, np.ndarray[Any, Any]]


class Trade(ev.Event):
    """The event of all cases."""

    symbol: ev.Str[8]
    trade_price: float
    size: int


@cache
def trades(n: int) -> Columns:
    """Columns of n trades, the same in every run."""
    random = np.random.default_rng(6)
    return {
        "symbol": random.choice(np.array([b"IBM", b"AAPL", b"MSFT", b"NVDA"], "S8"), n),
        "trade_price": random.uniform(74, 80, n),
        "size": random.integers(100, 10_000, n),
    }


def outliers(columns: Columns) -> int:
    """How many trades pass figure 6, as numpy counts them."""
    price = columns["trade_price"]
    return int(((price < 75.5) | (price > 78.5)).sum())


@cache
def rows(n: int) -> list[tuple[str, float, int]]:
    """The same trades as tuples of Python values."""
    columns = trades(n)
    symbols = [symbol.decode() for symbol in columns["symbol"].tolist()]
    return list(zip(symbols, columns["trade_price"].tolist(), columns["size"].tolist(), strict=True))


Build = Callable[[Any, peers.Counter], None]


def to_handler(source: Any, counter: peers.Counter) -> None:
    source >> ev.Filter(FIGURE_6) >> ev.Terminal(counter)


def to_batches(source: Any, counter: peers.Counter, filters: int = 1, targets: int = 1) -> None:
    """A chain of filters, those after figure 6 let everything pass, and terminals that take batches."""
    last = source >> ev.Filter(FIGURE_6)
    for i in range(1, filters):
        last = last >> ev.Filter(f"input.size > {i} && input.trade_price < {80 + i}.0")
    for _ in range(targets):
        last >> ev.Terminal(partial(count_batch, counter), batch=True)


def count_batch(counter: peers.Counter, batch: Any) -> None:
    counter.count += len(batch)


@contextmanager
def running(build: Build) -> Iterator[tuple[ev.Flow, peers.Counter]]:
    counter = peers.Counter()
    graph = ev.Graph("trades")
    build(graph.source("trades", Trade), counter)
    with graph.run() as flow:
        yield flow, counter


@contextmanager
def one_by_one(build: Build, columns: Columns) -> Iterator[peers.Run]:
    """A new event object, submitted, for each trade."""
    values = rows(len(columns["size"]))
    with running(build) as (flow, counter):

        def run() -> int:
            counter.count, submit = 0, flow["trades"].submit
            for symbol, price, size in values:
                submit(Trade(symbol, price, size))
            flow.drain()
            return counter.count

        yield run


@contextmanager
def in_batches(build: Build, columns: Columns, encoded: bool = False) -> Iterator[peers.Run]:
    """The columns in pieces of ``BATCH``; where ``encoded``, as batches that were encoded before."""
    starts = range(0, len(columns["size"]), BATCH)
    pieces: list[Any] = [{key: c[i : i + BATCH] for key, c in columns.items()} for i in starts]
    if encoded:
        pieces = [ev.EventBatch.from_columns(Trade.schema, piece) for piece in pieces]
    with running(build) as (flow, counter):

        def run() -> int:
            counter.count, submit = 0, flow["trades"].submit_batch
            for piece in pieces:
                submit(piece)
            flow.drain()
            return counter.count

        yield run


@contextmanager
def peer(prepare: Callable[[peers.Rows], peers.Run], columns: Columns) -> Iterator[peers.Run]:
    yield prepare(rows(len(columns["size"])))


@dataclass(frozen=True)
class Way:
    """A way to send columns through; each outlier is counted ``factor`` times."""

    name: str
    prepare: Callable[[Columns], AbstractContextManager[peers.Run]]
    events: int
    factor: int = 1

    def checked(self, quick: bool, stack: ExitStack) -> table.Case:
        """The way, ready to be measured, after a look at what it counts; ``stack`` ends it."""
        columns = trades(self.events // 10 if quick else self.events)
        run = stack.enter_context(self.prepare(columns))
        counted, expected = run(), self.factor * outliers(columns)
        if counted != expected:
            raise SystemExit(f"{self.name}: counted {counted}, expected {expected}")
        return table.Case(self.name, run, len(columns["size"]))


ONE_BY_ONE = [
    Way("evflow, submit(Trade(...)) to a handler", partial(one_by_one, to_handler), 200_000),
    Way("evflow, submit(Trade(...)) to batches", partial(one_by_one, to_batches), 200_000),
    Way("streamz", partial(peer, peers.streamz), 200_000),
    Way("reactivex, subject", partial(peer, peers.reactivex_subject), 200_000),
    Way("reactivex, iterable", partial(peer, peers.reactivex_iterable), 200_000),
    Way("bytewax, one by one", partial(peer, peers.bytewax(1)), 200_000),
    Way("bytewax, batches of 1,000", partial(peer, peers.bytewax(1_000)), 200_000),
    Way("plain Python calls", partial(peer, peers.plain_calls), 200_000),
]
CHAIN_8 = partial(to_batches, filters=8)
SPLIT_4 = partial(to_batches, targets=4)
BATCHES = [
    Way("evflow, columns", partial(in_batches, to_batches), 4_000_000),
    Way("evflow, encoded batches", partial(in_batches, to_batches, encoded=True), 4_000_000),
    Way("evflow, columns, 8 filters", partial(in_batches, CHAIN_8), 4_000_000),
    Way("evflow, encoded batches, 8 filters", partial(in_batches, CHAIN_8, encoded=True), 4_000_000),
    Way("evflow, columns, split to 4", partial(in_batches, SPLIT_4), 4_000_000, 4),
    Way("evflow, encoded batches, split to 4", partial(in_batches, SPLIT_4, encoded=True), 4_000_000, 4),
]


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    arguments.add_argument("--quick", action="store_true", help="a tenth of the events, three repetitions")
    quick = arguments.parse_args().quick
    with ExitStack() as stack:
        cases = [way.checked(quick, stack) for way in BATCHES + ONE_BY_ONE]
        costs = table.compare(table.measure(cases, 3 if quick else 7), "streamz")
    batches, singles = costs[: len(BATCHES)], costs[len(BATCHES) :]
    table.show(f"An event in batches of {BATCH:,}", batches, "streamz")
    table.show("An event at a time", singles, "streamz")
    table.save("local", costs, "Source → filter → terminal, one process")


if __name__ == "__main__":
    main()
