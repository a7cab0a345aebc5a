"""Machine code: tiers, the cache, sharing between kernels, and threads."""

from __future__ import annotations

import gc
import os
import threading
import time
import weakref
from unittest.mock import Mock

import numpy as np
import pytest

from evflow.codgen import kernel as kernels
from evflow.codgen import native
from evflow.codgen.front import Input, build
from evflow.codgen.kernel import Kernel, Port, Stage, kernel
from evflow.codgen.native import HOT, Code, Native, compiling
from evflow.codgen.runtime import new_state
from evflow.events.batch import EventBatch
from evflow.schema import Schema
from evflow.schema.types import f64, i64
from tests.codgen.oracle import rows_at, run_kernel
from tests.codgen.test_kernel import batch_of
from tests.node.processes import wait_for

REC = Schema("rec", {"seq": i64, "price": f64, "tag": "str[8]"})


OUT = (Port((), 0),)


def stage(code: str) -> Stage:
    return Stage(build(code, "filter", [Input("input", REC)]), 0, OUT)


def test_code_is_optimised_when_it_is_hot() -> None:
    made = kernel((stage("input.seq % 7 == 3 /* hot */"),), REC)
    batch = batch_of(1000)
    first = rows_at(run_kernel(made, batch), 0)
    assert not made.code.optimised
    for _ in range(HOT // 1000):
        run_kernel(made, batch)
    wait_for(lambda: made.code.optimised, "another thread to optimise the code")
    assert rows_at(run_kernel(made, batch), 0) == first


def test_a_batch_of_a_million_waits_until_the_code_is_optimised() -> None:
    made = kernel((stage("input.seq % 7 == 4 /* large */"),), REC)
    made.code.saw(1_000_000)
    assert made.code.optimised
    assert rows_at(run_kernel(made, batch_of(20)), 0) == [4, 11, 18]


def test_code_that_cannot_be_optimised_runs_as_it_is(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    made = kernel((stage("input.seq % 7 == 5 /* stays */"),), REC)
    monkeypatch.setattr(native, "_optimise", Mock(side_effect=RuntimeError("no such pass")))
    made.code.saw(HOT + 1)
    wait_for(lambda: made.code.settled, "the attempt")
    made.code.saw(HOT + 1)
    assert not made.code.optimised
    assert rows_at(run_kernel(made, batch_of(20)), 0) == [5, 12, 19]
    assert [record.getMessage() for record in caplog.records] == [
        "LLVM could not optimise the code of a function, which runs as it is"
    ]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
def test_code_is_optimised_in_a_fork_too() -> None:
    made = kernel((stage("input.seq % 7 == 6 /* fork */"),), REC)
    made.code.saw(HOT + 1)
    child = os.fork()
    if not child:
        until = time.monotonic() + 20
        while not made.code.optimised and time.monotonic() < until:
            made.code.saw(1)
            time.sleep(0.01)
        os._exit(0 if made.code.optimised else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


@pytest.mark.slow
def test_very_large_code_is_not_optimised() -> None:
    text = "{ long x = input.seq; " + "x = x * 3 + input.seq;" * 2000 + " return x > 0; }"
    made = kernel((stage(text),), REC)
    made.code.saw(HOT + 1)
    assert not made.code.optimised


def test_same_tree_is_compiled_once() -> None:
    first, second = kernel((stage("input.seq > 1"),), REC), kernel((stage("input.seq > 1"),), REC)
    assert first is not second
    assert first.code is second.code
    assert kernel((stage("input.seq > 2"),), REC).code is not first.code


def test_tree_of_another_shape_is_other_code() -> None:
    one = stage("input.seq > 1")
    other = Stage(one.function, 0, (Port((), 1),))
    assert kernel((one,), REC).code is not kernel((other,), REC).code


def test_constants_that_differ_only_in_sign_of_zero_or_type_are_other_code() -> None:
    texts = [
        "1 / copysign(1, 0.0) > 0",
        "1 / copysign(1, -0.0) > 0",
        "input.seq > 1",
        "input.seq > 1.0",
        "input.seq > true",
    ]
    codes = {id(kernel((stage(text),), REC).code) for text in texts}
    assert len(codes) == len(texts)


LIMITS: dict[str, list[float]] = {
    **{f"i{bits}": [1 - (1 << bits - 1), -1, 0, 1, (1 << bits - 1) - 1] for bits in (8, 16, 32, 64)},
    **{f"u{bits}": [0, 1, 1 << bits - 1, (1 << bits) - 1] for bits in (8, 16, 32, 64)},
    "f32": [-1.5, -0.0, 0.1, 3.4e38],
    "f64": [-1.5, 0.0, 0.1, 1.7e308],
}
"""Values of each type."""
SUFFIX = {"i64": "L", "u32": "u", "u64": "ul", "f32": "f"}


@pytest.mark.parametrize("kind", LIMITS)
def test_filters_that_differ_in_the_numbers_they_compare_with_share_the_code_of_the_first_tier(
    kind: str,
) -> None:
    schema = Schema("one", {"x": kind})
    batch = EventBatch.from_columns(schema, {"x": np.array(LIMITS[kind], schema["x"].type.dtype)})
    values = batch["x"].tolist()
    codes = [f"input.x < {value}{SUFFIX.get(kind, '')}" for value in values]
    made = [
        kernel((Stage(build(code, "filter", [Input("input", schema)]), 0, OUT),), schema) for code in codes
    ]
    for value, one in zip(values, made, strict=True):
        expected = [row for row, other in enumerate(values) if other < value]
        assert rows_at(run_kernel(one, batch), 0) == expected
        one.code.optimise()
        assert rows_at(run_kernel(one, batch), 0) == expected
    assert len({id(one.code) for one in made}) == len(values)
    assert len({id(one.code.called) for one in made}) < len(values)


def test_kernels_of_one_code_do_not_disturb_each_other() -> None:
    one = stage("{ static long n = 0; n += 1; return n > 2; }")
    first, second = kernel((one,), REC), kernel((one,), REC)
    states = [new_state(one.function)], [new_state(one.function)]
    batch = batch_of(4)
    counts = []
    for made, state in ((first, states[0]), (second, states[1]), (first, states[0])):
        result = made.run(batch.data, None, None, 4, None, state, [{}], {})
        counts.append(int(result.counts[0, 1]))
    assert counts == [2, 2, 4]


def test_code_is_freed_with_the_last_kernel_that_uses_it() -> None:
    made: Kernel | None = kernel((stage("input.seq > 77"),), REC)
    assert made is not None
    code = weakref.ref(made.code)
    kernels._code.cache_clear()
    gc.collect()
    assert code() is not None
    assert rows_at(run_kernel(made, batch_of(80)), 0) == [78, 79]
    made = None
    gc.collect()
    assert code() is None


@pytest.mark.slow
def test_threads_may_compile_and_run_at_once() -> None:
    batch, wrong = batch_of(5000), []

    def work(number: int) -> None:
        for turn in range(10):
            made = kernel((stage(f"input.seq % {turn + 2} == {number % 2}"),), REC)
            expected = [row for row in range(5000) if row % (turn + 2) == number % 2]
            for _ in range(6):
                if rows_at(run_kernel(made, batch), 0) != expected:
                    wrong.append((number, turn))

    threads = [threading.Thread(target=work, args=(n,)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


def test_dumps_show_the_code() -> None:
    made = kernel((stage("input.price > 1.5"),), REC)
    assert "fcmp ogt double" in made.code.dump_ir()
    assert "@s0" not in made.code.dump_ir(optimised=True)


def test_module_that_is_no_ir_is_an_error() -> None:
    with pytest.raises(RuntimeError):
        Native("define nonsense", optimised=False)


def test_code_runs_its_entry() -> None:
    code = Code("define void @go(ptr %p) {\n store i64 5, ptr %p\n ret void\n}", "go")
    words = np.zeros(1, np.int64)
    code.held(words.ctypes.data)
    assert words.tolist() == [5]


def test_code_stays_while_its_neighbours_go() -> None:
    text = "define void @run(ptr %p) {{\n store i64 {n}, ptr %p\n ret void\n}}"
    codes: list[Code | None] = [Code(text.format(n=n)) for n in range(100)]
    codes[::3] = [None] * len(codes[::3])
    gc.collect()
    word = np.zeros(1, np.int64)
    for n, code in enumerate(codes):
        if code is not None:
            code.held(word.ctypes.data)
            assert word.tolist() == [n]


def test_fork_waits_until_the_compiler_rests() -> None:
    """A fork with a copy of half a compilation would be aborted by LLVM when it ends."""
    begun, over = threading.Event(), threading.Event()

    def compile_slowly() -> None:
        with compiling():
            begun.set()
            time.sleep(0.2)
            over.set()

    thread = threading.Thread(target=compile_slowly)
    thread.start()
    begun.wait()
    fork = os.fork()
    if not fork:
        run_kernel(kernel((stage("input.seq % 7 == 5 /* in a fork */"),), REC), batch_of(10))
        os._exit(0 if over.is_set() else 1)
    thread.join()
    assert os.waitstatus_to_exitcode(os.waitpid(fork, 0)[1]) == 0
