"""What tables cost: columns of varying width beside msgpack, and small tables beside a loop of ``submit``.

msgpack packs each record as a list, and unpacks all of them from one buffer; so it writes the same values, an
array as its bytes. evflow encodes a dict of columns, and reads one column of objects.

    python benchmarks/tables.py [--quick]
"""

from __future__ import annotations

import argparse
import random
import time
from collections.abc import Callable, Iterator
from typing import Any

import msgpack
import numpy as np
import table

import evflow as ev

ROWS = 20_000


class Trade(ev.Event):
    """What small tables are of."""

    symbol: ev.Str[8]
    price: float
    size: int


def columns(n: int) -> Iterator[tuple[str, Any, list[Any]]]:
    """A type of a field, and values of it."""
    r = random.Random(1)
    yield "bytes", bytes, [r.randbytes(r.randrange(40)) for _ in range(n)]
    yield "str", str, ["x" * r.randrange(40) for _ in range(n)]
    yield "Array[f64, None]", ev.Array[ev.f64, None], [np.random.rand(r.randrange(20)) for _ in range(n)]
    yield "int | None", int | None, [r.choice([None, r.randrange(1000)]) for _ in range(n)]
    yield "list[int]", list[int], [[r.randrange(100) for _ in range(r.randrange(6))] for _ in range(n)]
    yield "list[str]", list[str], [["a", "bc", "def"][: r.randrange(4)] for _ in range(n)]


def varying(n: int, rounds: int) -> list[list[str]]:
    """A line for each type: evflow's costs and msgpack's, and the ratios."""
    lines = [["field", "encode", "msgpack", "ratio", "read", "msgpack", "ratio"]]
    for name, kind, values in columns(n):
        schema = ev.Schema("record", {"number": int, "value": kind})
        numbers = np.arange(n)
        plain = [value.tobytes() if isinstance(value, np.ndarray) else value for value in values]
        records = [[number, value] for number, value in enumerate(plain)]
        pack = msgpack.Packer().pack
        packed = b"".join(map(pack, records))
        batch = ev.EventBatch.from_columns(schema, {"number": numbers, "value": values})
        given = {"number": numbers, "value": values}

        def unpack(packed: bytes = packed) -> object:
            unpacker = msgpack.Unpacker(max_buffer_size=0)
            unpacker.feed(packed)
            return list(unpacker)

        rows = table.measure(
            [
                table.Case("encode", lambda s=schema, g=given: ev.EventBatch.from_columns(s, g), n),  # type: ignore[misc]
                table.Case("pack", lambda p=pack, r=records: b"".join(map(p, r)), n),  # type: ignore[misc]
                table.Case("read", lambda b=batch: b["value"], n),  # type: ignore[misc]
                table.Case("unpack", unpack, n),
            ],
            rounds,
        )
        encode, packing, read, unpacking = (row.cpu for row in rows)
        lines.append(
            [
                f"`{name}`",
                table.duration(encode),
                table.duration(packing),
                f"{encode / packing:.2f}",
                table.duration(read),
                table.duration(unpacking),
                f"{read / unpacking:.2f}",
            ]
        )
    return lines


def small(events: int, rounds: int) -> list[list[str]]:
    """A line for each size of a table: what ``submit_batch`` costs the calling thread, an event."""
    lines = [["rows", "loop of `submit`", "the same, making the events", "list of events", "lists", "arrays"]]
    graph = ev.Graph("tables")
    _ = graph.source("trades", Trade) >> ev.Terminal(lambda batch: None, batch=True)
    with graph.run() as flow:
        entry = flow["trades"]
        for rows in (1, 2, 5, 10, 100, 1_000):
            made = [Trade(symbol="IBM", price=1.5, size=size) for size in range(rows)]
            lists = {"symbol": ["IBM"] * rows, "price": [1.5] * rows, "size": list(range(rows))}
            arrays = lists | {"price": np.full(rows, 1.5), "size": np.arange(rows)}

            def loop(made: list[Trade] = made) -> None:
                for event in made:
                    entry.submit(event)

            def making(rows: int = rows) -> None:
                for size in range(rows):
                    entry.submit(Trade(symbol="IBM", price=1.5, size=size))

            calls: list[Callable[[], None]] = [
                loop,
                making,
                lambda made=made: entry.submit_batch(made),  # type: ignore[misc]
                lambda lists=lists: entry.submit_batch(lists),  # type: ignore[misc]
                lambda arrays=arrays: entry.submit_batch(arrays),  # type: ignore[misc]
            ]
            costs = [_least(flow, call, max(1, events // rows), rounds) / rows for call in calls]
            lines.append([f"{rows:,}", *map(table.duration, costs)])
    return lines


def _least(flow: Any, call: Callable[[], None], times: int, rounds: int) -> float:
    """ns on the wall of a call, the least of some rounds; the flow is idle before each."""
    best = float("inf")
    for _ in range(rounds):
        flow.drain()
        start = time.perf_counter_ns()
        for _ in range(times):
            call()
        best = min(best, (time.perf_counter_ns() - start) / times)
    return best


def main() -> None:
    """Prints both tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="fewer rounds")
    rounds = 3 if parser.parse_args().quick else 9
    table.markdown(f"Columns of {ROWS:,} records, a record; ns of CPU", varying(ROWS, rounds))
    table.markdown("Small tables, an event; ns on the wall", small(20_000, rounds))


if __name__ == "__main__":
    main()
