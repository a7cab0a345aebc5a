"""The other libraries of ``local.py``: source → filter → a sink that counts, on one event after the other.

Each function builds a pipeline over the same rows and gives a call that sends them all through and
returns how many passed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

Rows = Sequence[tuple[str, float, int]]
Run = Callable[[], int]


@dataclass(slots=True)
class Trade:
    """The event of the libraries that move Python objects."""

    symbol: str
    trade_price: float
    size: int


class Counter:
    """A sink that counts what it gets."""

    def __init__(self) -> None:
        self.count = 0

    def __call__(self, event: object) -> None:
        self.count += 1


def outlier(trade: Trade) -> bool:
    return trade.trade_price < 75.5 or trade.trade_price > 78.5


def trades(rows: Rows) -> Iterator[Trade]:
    for symbol, price, size in rows:
        yield Trade(symbol, price, size)


def plain_calls(rows: Rows) -> Run:
    def run() -> int:
        handler = Counter()
        for trade in trades(rows):
            if outlier(trade):
                handler(trade)
        return handler.count

    return run


def streamz(rows: Rows) -> Run:
    from streamz import Stream

    def run() -> int:
        handler = Counter()
        source = Stream()
        source.filter(outlier).sink(handler)
        for trade in trades(rows):
            source.emit(trade)
        return handler.count

    return run


def reactivex_subject(rows: Rows) -> Run:
    from reactivex import operators
    from reactivex.subject import Subject

    def run() -> int:
        handler = Counter()
        source: Any = Subject()
        source.pipe(operators.filter(outlier)).subscribe(handler)
        for trade in trades(rows):
            source.on_next(trade)
        return handler.count

    return run


def reactivex_iterable(rows: Rows) -> Run:
    import reactivex
    from reactivex import operators

    def run() -> int:
        handler = Counter()
        reactivex.from_iterable(trades(rows)).pipe(operators.filter(outlier)).subscribe(handler)
        return handler.count

    return run


def bytewax(batch_size: int) -> Callable[[Rows], Run]:
    """Bytewax with sources that give ``batch_size`` events at a time."""

    def prepare(rows: Rows) -> Run:
        from bytewax import operators
        from bytewax.dataflow import Dataflow
        from bytewax.outputs import DynamicSink, StatelessSinkPartition
        from bytewax.testing import TestingSource, run_main

        class Count(StatelessSinkPartition[Trade], DynamicSink[Trade]):
            def __init__(self) -> None:
                self.count = 0

            def build(self, *_: object) -> Count:
                return self

            def write_batch(self, items: list[Trade]) -> None:
                self.count += len(items)

        def run() -> int:
            flow, sink = Dataflow("trades"), Count()
            source = operators.input("source", flow, TestingSource(trades(rows), batch_size))
            operators.output("sink", operators.filter("filter", source, outlier), sink)
            run_main(flow)
            return sink.count

        return run

    return prepare
