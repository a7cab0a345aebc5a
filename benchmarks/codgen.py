"""What a compiled function costs: figure 6 of the EVPath paper beside numba and numpy.

numba and numpy get the prices as a column of native float64; evflow reads them out of the encoded events.
All give the numbers of the events that pass.

    python benchmarks/codgen.py [--quick]
"""

from __future__ import annotations

import argparse
import itertools
import statistics
import tempfile
from collections.abc import Callable
from typing import Any

import local
import numba
import numpy as np
import table

import evflow as ev
from evflow.codgen.front import Input, build
from evflow.codgen.kernel import Kernel, Port, Stage, kernel
from evflow.codgen.native import Native

SCHEMA = local.Trade.schema
EVENTS = 1_000_000
_numbers = itertools.count(1)


def figure_6(number: int = 0) -> str:
    """The filter; each number gives a text, and so a function, of its own."""
    return local.FIGURE_6.replace("78.5", f"78.5{number:06d}" if number else "78.5")


def other_form(number: int) -> str:
    """The filter with a number that is not compared with, so that its machine code is of its own, too."""
    return local.FIGURE_6.replace("input.trade_price >", f"input.trade_price - {number}e-9 >")


def compiled(code: str) -> Kernel:
    """From source text to something that runs."""
    function = build(code, "filter", [Input("input", SCHEMA)])
    return kernel((Stage(function, 0, (Port(exit=0),)),), SCHEMA)


def numba_loop(number: int = 0) -> Callable[[Any], Any]:
    """A loop over prices that collects the numbers of those that pass."""
    high = 78.5 + number * 1e-9

    @numba.njit("int32[:](float64[::1])")
    def passing(price: Any) -> Any:
        found, k = np.empty(len(price), np.int32), 0
        for i in range(len(price)):
            if price[i] < 75.5 or price[i] > high:
                found[k] = i
                k += 1
        return found[:k]

    return passing


def numba_ufunc(number: int = 0) -> Callable[[Any], Any]:
    """A ufunc that says whether a price passes."""
    high = 78.5 + number * 1e-9

    @numba.vectorize(["boolean(float64)"])
    def passes(price: float) -> bool:
        return price < 75.5 or price > high

    return passes


FIRST = """
import time, evflow
class Trade(evflow.Event):
    symbol: evflow.Str[8]
    trade_price: float
    size: int
wall, cpu = time.perf_counter_ns(), time.process_time_ns()
from evflow.codgen.front import Input, build
from evflow.codgen.kernel import Port, Stage, kernel
function = build({code!r}, "filter", [Input("input", Trade.schema)])
kernel((Stage(function, 0, (Port(exit=0),)),), Trade.schema)
print(time.process_time_ns() - cpu, time.perf_counter_ns() - wall)
"""


def first_of_process() -> table.Row:
    """A fresh interpreter's first filter, which loads the parser and LLVM as well."""
    program = FIRST.format(code=figure_6())
    with tempfile.TemporaryDirectory() as bytecode:
        _, *printed = [table.fresh(program, bytecode)[0].split() for _ in range(6)]
    cpu, wall = (statistics.median(map(int, column)) for column in zip(*printed, strict=True))
    return table.Row("evflow, the first of a process", cpu, wall)


def compiling(turns: int) -> list[table.Row]:
    """From source to callable; a call is one function."""

    ir = compiled(figure_6()).code.dump_ir()
    few = max(1, turns // 20)
    return table.measure(
        [
            repeated("evflow, new", lambda: compiled(other_form(next(_numbers))), turns),
            repeated("evflow, new numbers", lambda: compiled(figure_6(next(_numbers))), turns),
            repeated("evflow, cached", lambda: compiled(figure_6()), turns),
            repeated("evflow, optimised again when hot", lambda: Native(ir, optimised=True), few),
            repeated("numba @njit", lambda: numba_loop(next(_numbers)), few),
            repeated("numba @vectorize", lambda: numba_ufunc(next(_numbers)), few),
        ]
    )


def repeated(name: str, call: Callable[[], object], times: int) -> table.Case:
    def run() -> None:
        for _ in range(times):
            call()

    return table.Case(name, run, times)


def over_batch(events: int) -> list[table.Row]:
    """One event of a batch; all must find the same."""
    columns = local.trades(events)
    price = columns["trade_price"]
    batch = ev.EventBatch.from_columns(SCHEMA, columns)
    run, loop, ufunc = compiled(figure_6()), numba_loop(), numba_ufunc()
    ways: dict[str, Callable[[], Any]] = {
        "evflow, encoded events": lambda: run.run(*whole(batch)).exits[0],
        "numba @njit, a column": lambda: loop(price),
        "numba @vectorize, a column": lambda: np.flatnonzero(ufunc(price)),
        "numpy, a column": lambda: np.flatnonzero((price < 75.5) | (price > 78.5)),
    }
    expected = local.outliers(columns)
    for name, way in ways.items():
        found = way()
        passed = sum(len(s) for s in found) if isinstance(found, list) else len(found)
        assert passed == expected, f"{name}: {passed} pass, expected {expected}"
    return table.measure([table.Case(name, way, events) for name, way in ways.items()])


def by_call(calls: int) -> list[table.Row]:
    """One call with one event."""
    columns = local.trades(1)
    arguments = whole(ev.EventBatch.from_columns(SCHEMA, columns))
    run, passes = compiled(figure_6()).run, numba.njit("boolean(float64)")(passes_plain)

    return table.measure(
        [
            repeated("evflow, a batch of one", lambda: run(*arguments), calls),
            repeated("numba @njit, a float", lambda: passes(80.0), calls),
            repeated("plain Python, a float", lambda: passes_plain(80.0), calls),
        ]
    )


def passes_plain(price: float) -> bool:
    return price < 75.5 or price > 78.5


def whole(batch: ev.EventBatch) -> tuple[Any, ...]:
    """A batch as the arguments of ``Kernel.run``."""
    return (batch.data, batch.offsets, batch.selection, batch.rows, None, (np.zeros(0, np.uint8),), ({},), {})


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    arguments.add_argument("--quick", action="store_true", help="a tenth of the work")
    share = 10 if arguments.parse_args().quick else 1
    tables = {
        "Source to callable": [first_of_process(), *compiling(100 // share)],
        "An event of a batch": over_batch(EVENTS // share),
        "A call with one event": by_call(100_000 // share),
    }
    for title, rows in tables.items():
        table.show(title, rows)
    rows = [row for rows in tables.values() for row in rows]
    table.save("codgen", rows, "Figure 6 compiled: to make it, an event of a batch, a call")


if __name__ == "__main__":
    main()
