"""Rows of a DataFrame to another process, beside what Spark itself needs to hand them to Python.

The floor is an empty ``mapInArrow``: it takes the same rows, and does nothing with them. Every way to send
ends when the other process has all rows. CPU is that of all processes: Java, Spark's Python workers, the
receiver.

    python benchmarks/spark.py [--quick]
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import tempfile
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from multiprocessing.connection import Connection
from typing import Any

import psutil
import table
import zmq

import evflow as ev
from evflow.spark.session import configure_spark_with_evflow

FLOOR = "an empty mapInArrow"
STONE = "rows"
TIMEOUT = 120.0


def land(counted: list[int], stack: ExitStack) -> str:
    """A Spark source before a terminal."""

    def count(batch: ev.EventBatch) -> None:
        counted[0] += len(batch)

    graph = ev.Graph("receiver")
    graph.add(ev.SparkSource(name=STONE)) >> ev.Terminal(count, batch=True)
    flow = stack.enter_context(graph.run())
    assert flow.node is not None
    return flow.node.contact


def pull(counted: list[int], stack: ExitStack) -> str:
    """A socket from which a thread takes Arrow streams."""
    import threading

    import pyarrow as pa

    socket: zmq.Socket[bytes] = stack.enter_context(zmq.Context.instance().socket(zmq.PULL))
    port = socket.bind_to_random_port("tcp://127.0.0.1")

    def take() -> None:
        while True:
            with pa.ipc.open_stream(socket.recv(copy=False).buffer) as stream:
                counted[0] += sum(batch.num_rows for batch in stream)

    threading.Thread(target=take, daemon=True).start()
    return f"tcp://127.0.0.1:{port}"


def receiver(way: str, pipe: Connection) -> None:
    """The program of a receiving process: tells its contact, then answers how many rows it has."""
    counted = [0]
    with ExitStack() as stack:
        pipe.send({"land": land, "pull": pull}[way](counted, stack))
        while pipe.recv():
            pipe.send(counted[0])
        os._exit(0)


@contextmanager
def receiving(way: str) -> Iterator[tuple[str, Callable[[], int]]]:
    """A receiving process: its contact, and what asks it how many rows it has."""
    context = multiprocessing.get_context("spawn")
    here, there = context.Pipe()
    process = context.Process(target=receiver, args=(way, there))
    process.start()

    def count() -> int:
        here.send(True)
        number: int = here.recv()
        return number

    try:
        yield here.recv(), count
    finally:
        here.send(False)
        process.join(TIMEOUT)


def wait(count: Callable[[], int], wanted: int) -> None:
    """Returns when so many rows are there."""
    until = time.monotonic() + TIMEOUT
    while (found := count()) < wanted:
        if time.monotonic() > until:
            raise SystemExit(f"{found} of {wanted} rows came within {TIMEOUT} s")
        time.sleep(0.01)


def nothing(batches: Iterator[Any]) -> Iterator[Any]:
    """Takes rows and gives none."""
    for _ in batches:
        continue
    return iter(())


def pushing(contact: str) -> Callable[[Iterator[Any]], Iterator[Any]]:
    """Sends each batch as an Arrow stream, by hand."""

    def push(batches: Iterator[Any]) -> Iterator[Any]:
        import pyarrow as pa
        import zmq

        with zmq.Context() as context, context.socket(zmq.PUSH) as socket:
            socket.connect(contact)
            for batch in batches:
                sink = pa.BufferOutputStream()
                with pa.ipc.new_stream(sink, batch.schema) as writer:
                    writer.write_batch(batch)
                socket.send(sink.getvalue(), copy=False)
        return iter(())

    return push


def run(frame: Any, step: Callable[[Iterator[Any]], Iterator[Any]]) -> None:
    """Runs a step over all rows."""
    frame.mapInArrow(step, "nothing int").write.format("noop").mode("overwrite").save()


def save(frame: Any, contact: str) -> None:
    """Writes with evflow."""
    writer = frame.write.format("evflow").option("contact", contact).option("stone", STONE)
    writer.option("jobid", uuid.uuid4().hex).mode("append").save()


def cpu() -> float:
    """Seconds of CPU of this process and all that it started, those that have ended included."""
    total = 0.0
    for process in [psutil.Process(), *psutil.Process().children(recursive=True)]:
        try:
            times = process.cpu_times()
        except psutil.Error:
            continue
        total += times.user + times.system + times.children_user + times.children_system
    return total


def ways(frame: Any, rows: int, stack: ExitStack) -> dict[str, Callable[[], None]]:
    """All that is measured, by name."""
    landing, landed = stack.enter_context(receiving("land"))
    pulling, pulled = stack.enter_context(receiving("pull"))

    def written() -> None:
        before = landed()
        save(frame, landing)
        wait(landed, before + rows)

    def pushed() -> None:
        before = pulled()
        run(frame, pushing(pulling))
        wait(pulled, before + rows)

    return {
        FLOOR: lambda: run(frame, nothing),
        "evflow: df.write.format('evflow')": written,
        "mapInArrow, Arrow streams by pyzmq": pushed,
        "df.toArrow(), not sent": lambda: frame.toArrow() and None,
    }


def measured(cases: dict[str, Callable[[], None]], rows: int, rounds: int) -> list[table.Row]:
    """ns of CPU and on the wall a row, the least of ``rounds`` in turn, and one to warm up."""
    found: dict[str, list[table.Row]] = {name: [] for name in cases}
    for _ in range(rounds + 1):
        for name, case in cases.items():
            start, wall = cpu(), time.perf_counter()
            case()
            wall = time.perf_counter() - wall
            found[name].append(table.Row(name, (cpu() - start) / rows * 1e9, wall / rows * 1e9))
    return [
        table.Row(name, min(row.cpu for row in kept[1:]), min(row.wall for row in kept[1:]))
        for name, kept in found.items()
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="few rows, and no results are written")
    quick = parser.parse_args().quick
    rows, rounds = (2_000_000, 2) if quick else (20_000_000, 5)
    from pyspark.sql import SparkSession

    with ExitStack() as stack:
        builder = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
        for key in ("spark.driver.host", "spark.driver.bindAddress"):
            builder = builder.config(key, "127.0.0.1")
        builder = builder.config("spark.driver.memory", "2g").config("spark.ui.showConsoleProgress", "false")
        folder = stack.enter_context(tempfile.TemporaryDirectory())
        spark = configure_spark_with_evflow(builder.config("spark.local.dir", folder)).getOrCreate()
        stack.callback(spark.stop)
        frame = spark.range(0, rows, 1, 4).selectExpr(
            "id", "id * 0.5D price", "cast(id % 1000 as string) symbol", "cast(id % 97 as int) size"
        )
        found = table.compare(measured(ways(frame, rows, stack), rows, rounds), FLOOR)
    table.show(f"{rows:,} rows of 4 columns to another process, a row", found, FLOOR)
    if not quick:
        table.save("spark", found, "evflow: ")


if __name__ == "__main__":
    main()
