"""Filters on the stand-in agree with the interpreter and with LLVM: each construct, and random programs."""

from __future__ import annotations

import math
import threading
from collections.abc import Iterator
from random import Random
from typing import Any

import numpy as np
import pytest

from evflow.codgen.cuda.function import device_function
from evflow.codgen.front import Input, build
from evflow.codgen.tree import Fault, Function
from evflow.errors import CodeError, DeviceError, SchemaError
from evflow.events.batch import EventBatch
from evflow.events.event import Event
from evflow.gpu import filter as filter_module
from evflow.gpu.device import Device
from evflow.gpu.filter import MOST_FUEL, GpuFilter, compile_filter, filters_on
from evflow.gpu.nvrtc import compile_ptx
from evflow.schema import Schema
from evflow.schema.types import (
    TEXT,
    Str,
    f32,
    f64,
    i8,
    i64,
)
from tests.codgen.programs import random_event
from tests.gpu.constructs import COD, CONVERTED, INNER, PYTHON, WIDE
from tests.gpu.functions import batch_of, by_interpreter, compare, random_events, random_filters, said
from tests.gpu.nvrtc import SHIPPED
from tests.gpu.standin import LAUNCH_FAILED, OUT_OF_MEMORY, StandIn
from tests.gpu.test_failures import until_it_passes
from tests.gpu.test_owner import in_thread
from tests.gpu.toolchain import library
from tests.gpu.toolchain import nvrtc as folder_of
from tests.gpu.workload import NUMBERS


@pytest.fixture
def device(standin: StandIn, nvrtc: None, monkeypatch: pytest.MonkeyPatch) -> Iterator[Device]:
    monkeypatch.setenv("EVFLOW_NVRTC", library(folder_of(SHIPPED[0]), "libnvrtc.so.*"))
    yield Device.of()


def built(code: str, schema: Schema = WIDE, **options: Any) -> Function:
    return build(code, "filter", [Input("input", schema)], [], **({"fuel": MOST_FUEL} | options))


def test_every_construct_means_what_the_interpreter_says(device: Device) -> None:
    random = Random(1)
    events = [random_event(random, WIDE) for _ in range(60)]
    functions = [built(code, fuel=300) for code in COD + PYTHON]
    found = compare(filters_on(device, functions), [events] * len(functions))
    assert found == {"NONE", "DIVISION", "INDEX", "FUEL", "RANGE"}


def test_numbers_at_the_edge_convert_as_the_interpreter_says(device: Device) -> None:
    random = Random(2)
    functions, events = [], []
    for declared, actual in CONVERTED:
        slot = Input("input", declared, actual)
        functions.append(build("input.x > 2 || input.y < 3", "filter", [slot], []))
        events.append([edge(random, actual) for _ in range(60)])
    assert compare(filters_on(device, functions), events) == {"NONE", "RANGE"}


def edge(random: Random, schema: Schema) -> dict[str, Any]:
    made = random_event(random, schema)
    for field in schema.fields:
        if field.type in (f32, f64) and random.random() < 0.5:
            power = float(random.choice((1, -1)) * 2 ** random.choice((0, 7, 8, 15, 16, 31, 32, 63, 64)))
            value = random.choice(
                (power, math.nextafter(power, 0), -0.0, 1e30, math.inf, -math.inf, math.nan)
            )
            made[field.name] = float(np.float32(value)) if field.type == f32 else value
    return made


def test_floats_divide_and_round_at_every_edge(device: Device) -> None:
    pair = Schema("pair", {"x": f64, "y": f64})
    codes = ["fmod(input.x, input.y) > 0.3", "round(input.x) == input.y", "copysign(input.x, input.y) < 0"]
    codes += ["lambda e: e.x // e.y > 0", "lambda e: math.copysign(1.0, e.x % e.y) < 0"]
    codes += ["lambda e: math.copysign(1.0, e.x // e.y) < 0", "lambda e: (e.x % e.y) * 4.0 > e.y"]
    values = [*NUMBERS, 0.5, 1.5, -2.5, 0.49999999999999994, 4503599627370497.5, 5e-324, 1e-310, -3e-308, 7.1]
    events = [{"x": x, "y": y} for x in values for y in values]
    functions = [built(code, pair) for code in codes]
    assert compare(filters_on(device, functions), [events] * len(codes)) == {"NONE", "DIVISION"}


def test_remainders_are_exact(device: Device) -> None:
    pair = Schema("pair", {"x": f64, "y": f64, "z": f64})
    random = np.random.default_rng(3)
    bits = random.integers(0, 1 << 64, (2000, 2), np.uint64)
    bits[::2] &= np.uint64(0x803FFFFFFFFFFFFF)
    pairs = bits.view(np.float64).tolist()
    events = [
        {"x": x, "y": y, "z": math.fmod(x, y)}
        for x, y in pairs
        if math.isfinite(x) and math.isfinite(y) and y
    ]
    (one,) = filters_on(device, [built("fmod(input.x, input.y) == input.z", pair)])
    assert one.run(batch_of(pair, events)).passed.all()


def test_random_filters_agree(device: Device) -> None:
    random = Random(4)
    functions = random_filters(random, 40)
    events = [random_events(random, function, 20) for function in functions]
    assert "NONE" in compare(filters_on(device, functions), events)


@pytest.mark.parametrize("order", ["in order", "reversed", "shuffled"])
@pytest.mark.parametrize("count", [0, 1, 31, 32, 33, 257])
def test_batches_of_every_size(device: Device, standin: StandIn, count: int, order: str) -> None:
    standin.configure(order=order, seed=count)
    random = Random(count)
    events = [random_event(random, WIDE) for _ in range(count)]
    (one,) = filters_on(device, [built("input.a / input.g > 1 || input.r.e[2]")])
    batch = batch_of(WIDE, events)
    wanted = by_interpreter(one.function, events)
    assert said(one.run(batch)) == wanted
    rows = np.arange(count - 1, -1, -3)[::-1]
    chosen = batch.select(rows)
    assert said(one.run(chosen)) == [wanted[row] for row in rows]
    assert len(one.select(chosen)) == sum(wanted[row][0] for row in rows)


def test_nothing_but_the_event_is_read(device: Device) -> None:
    random = Random(5)
    code = 'input.s == "abc" || contains(input.t, input.y) || input.m[1][2] + input.n[3] > input.r.c'
    (one,) = filters_on(device, [built(code)])
    width = WIDE.width or 0
    for _ in range(5):
        batch = batch_of(WIDE, [random_event(random, WIDE) for _ in range(3)])
        middle = said(one.run(batch.select(np.array([1]))))
        noise = np.frombuffer(random.randbytes(3 * width), np.uint8).copy()
        noise[width : 2 * width] = batch.data[width : 2 * width]
        assert said(one.run(EventBatch(WIDE, noise, 3, None, np.array([1], np.int32)))) == middle


def beyond(one: GpuFilter, batch: EventBatch) -> set[int]:
    """What stands behind the verdicts of a batch afterwards, in memory that was full of ones before."""
    memory = one._held["verdicts"][1]
    one._device.put(memory, np.full(memory.nbytes, 1, np.uint8))
    one.run(batch)
    found = one._device.pinned(memory.nbytes)
    stream = one._device.stream()
    one._device.fetch(found, memory.address, stream)
    stream.synchronize()
    return set(found[4 * len(batch) :].tolist())


def test_nothing_is_written_behind_the_verdicts(device: Device) -> None:
    (one,) = filters_on(device, [built("input.a > 3 || input.k")])
    batch = batch_of(WIDE, [random_event(Random(8), WIDE) for _ in range(257)])
    one.run(batch)
    for count in (31, 32, 33):
        assert beyond(one, batch.select(np.arange(count))) == {1}


def test_a_bound_that_is_off_by_one_is_caught(device: Device, monkeypatch: pytest.MonkeyPatch) -> None:
    wrong = filter_module._KERNEL.replace("i < count", "i <= count")
    monkeypatch.setattr(filter_module, "_KERNEL", wrong)
    (one,) = filters_on(device, [built("input.a > 3 || input.k")])
    with pytest.raises(DeviceError, match="touched memory that is not allocated"):
        one.run(batch_of(WIDE, [random_event(Random(8), WIDE) for _ in range(257)]))


def test_fields_up_to_the_end_of_the_batch_are_read(device: Device) -> None:
    """The stand-in puts the last byte of what is allocated before a page that cannot be touched."""
    last = Schema("last", {"head": i8, "tail": Str[7]})
    (one,) = filters_on(device, [built('input.tail == "abcdefg" && input.head', last)])
    events = [{"head": 1, "tail": "abcdefg"}] * 33
    assert one.run(batch_of(last, events)).passed.all()


def test_a_fault_names_its_line(device: Device) -> None:
    (one,) = filters_on(device, [built("{\n  int i = 0;\n  return 1 /\n input.c; }")])
    verdicts = one.run(batch_of(WIDE, [random_event(Random(6), WIDE) | {"c": c} for c in (0, 1, 2)]))
    assert verdicts.fault(0) is Fault.DIVISION and verdicts.fault(1) is Fault.NONE
    assert verdicts.lines.tolist() == [3, 0, 0] and verdicts.passed.tolist() == [False, True, False]


def test_work_in_texts_is_bounded(device: Device) -> None:
    long = Schema("long", {"x": Str[60000], "y": Str[60000]})
    code = "{ int i; for (i = 0; i < 9; i++) if (contains(input.x, input.y)) return 1; return 0; }"
    (one,) = filters_on(device, [built(code, long)])
    assert one.run(batch_of(long, [{"x": "a" * 60000, "y": "b" * 40000}])).fault(0) is Fault.FUEL


@pytest.mark.parametrize(
    ("code", "why"),
    [
        ("{ submit(1, input); return 1; }", "cannot submit"),
        ("{ static int n; n++; return n > 3; }", "cannot keep 'n' from event to event"),
        ('attr_ivalue(event_attrs, "hops") > 1', "cannot see attributes.*'hops'"),
        ('{ set_int_attr(event_attrs, "hops", 1); return 1; }', "cannot see attributes"),
        ("time() > 3.0", r"cannot call time\(\), which is a value of the host"),
        ("sin(input.b) > 0.5", r"cannot call sin\(\): CUDA rounds it otherwise"),
        ("pow(input.b, 2.0) > 0.5", r"cannot call pow\(\)"),
        ("{ reconfigure(1); return 1; }", "cannot ask for reconfiguration"),
        ("{ double x[1000]; return x[1] > input.b; }", "4096 bytes in all, found 8000 .*'x'"),
    ],
)
def test_what_a_gpu_cannot_do_is_refused(code: str, why: str) -> None:
    with pytest.raises(CodeError, match=why):
        device_function(built(code), "f")


def test_events_of_variable_width_are_refused() -> None:
    loose = Schema("loose", {"a": i64, "note": TEXT})
    with pytest.raises(CodeError, match=r"fields of variable width \('note'\)"):
        device_function(built("input.a > 1", loose), "f")


def test_what_is_no_filter_is_refused() -> None:
    router = build("input.c", "router", [Input("input", WIDE)], [])
    with pytest.raises(CodeError, match="found a router"):
        device_function(router, "f")
    with pytest.raises(CodeError, match="needs the schema"):
        device_function(build("1", "filter", [Input("input", None)], []), "f")


def test_a_refusal_names_the_place() -> None:
    with pytest.raises(CodeError) as caught:
        device_function(built("input.a > 1 &&\n  exp(input.b) > 2.0"), "f")
    assert (caught.value.line, caught.value.column) == (2, 3)


def test_a_filter_is_made_of_its_text(device: Device) -> None:
    class Trade(Event):
        price: float
        size: int

    trade = Trade.schema
    assert compile_filter("1", Trade).run(batch_of(trade, [{"price": 1.0, "size": 1}])).passed.all()
    with pytest.raises(SchemaError, match="expected a Schema, an Event class"):
        compile_filter("1", 5)  # type: ignore[arg-type]
    large = compile_filter("input.size > 100 && input.price < 75.5", trade)
    batch = batch_of(trade, [{"price": 70.0, "size": size} for size in (5, 500, 50, 5000)])
    assert [event.size for event in large.select(batch)] == [500, 5000]
    assert compile_filter("{ while (1); return 1; }", trade, fuel=9).run(batch).fault(3) is Fault.FUEL


LOOP = "{ int i; int n = 0; for (i = 0; i < 3; i++) n += input.a > i; return n > 1 || input.k; }"


@pytest.mark.parametrize("selection", [None, [6, 0, 5, 5, 3, 2, 1]])
def test_a_launch_has_no_more_steps_than_a_second_takes(
    device: Device, standin: StandIn, monkeypatch: pytest.MonkeyPatch, selection: list[int] | None
) -> None:
    loop, straight = built(LOOP), built("input.a > 3 || input.k")
    monkeypatch.setattr(filter_module, "LAUNCH_STEPS", 3 * 10 * MOST_FUEL + 5)
    events = [random_event(Random(seed), WIDE) for seed in range(7)]
    batch = batch_of(WIDE, events) if selection is None else batch_of(WIDE, events).select(selection)
    for one, launches in zip(filters_on(device, [loop, straight]), (3, 1), strict=True):
        before = standin.counter("launches")
        wanted = by_interpreter(one.function, events)
        assert said(one.run(batch)) == [wanted[row] for row in selection or range(7)]
        assert standin.counter("launches") == before + launches


def test_more_fuel_than_a_launch_may_have_is_refused(device: Device) -> None:
    with pytest.raises(CodeError, match="fuel 1,000,001: expected at most 1,000,000 on a device"):
        filters_on(device, [built(LOOP, fuel=MOST_FUEL + 1)])
    # There is nothing that spends it.
    filters_on(device, [built("input.a > 3", fuel=MOST_FUEL + 1)])


def test_events_of_another_schema_are_refused(device: Device) -> None:
    (one,) = filters_on(device, [built("input.a > 3")])
    with pytest.raises(SchemaError, match="takes events of"):
        one.run(batch_of(INNER, []))


def test_any_thread_may_use_and_drop_a_filter(device: Device, standin: StandIn) -> None:
    before = standin.held()
    events = [random_event(Random(seed), WIDE) for seed in range(9)]
    filters = filters_on(device, [built(LOOP), built("input.a > 3")])
    wanted = [by_interpreter(one.function, events) for one in filters]
    found: list[bool] = []

    def use(number: int) -> None:
        for size in (3, 9, 5):
            batch = batch_of(WIDE, events[:size])
            found.append(said(filters[number].run(batch)) == wanted[number][:size])

    threads = [threading.Thread(target=use, args=(i % 2,)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [True] * 12
    in_thread(filters.clear)
    assert standin.held() == before


@pytest.mark.parametrize("kind", ["alloc", "pinned", "copy", "launch", "sync"])
def test_a_failure_leaves_the_filter_usable(device: Device, standin: StandIn, kind: str) -> None:
    events = [random_event(Random(7), WIDE) for _ in range(5)]
    batch = batch_of(WIDE, events).select([4, 2, 0])
    (one,) = filters_on(device, [built("input.a > 3")])
    code = OUT_OF_MEMORY if kind in ("alloc", "pinned") else LAUNCH_FAILED
    errors = until_it_passes(standin, kind, code, lambda: one.run(batch))
    assert len(errors) >= 1 and all(
        "while filtering 3 events" in str(e) or kind in ("alloc", "pinned") for e in errors
    )
    wanted = by_interpreter(one.function, events)
    assert said(one.run(batch)) == [wanted[row] for row in (4, 2, 0)]


def test_code_that_nvrtc_refuses_is_told(device: Device) -> None:
    with pytest.raises(DeviceError, match="NVRTC refuses the code"):
        compile_ptx("nonsense")


def test_nvrtc_is_found_where_pip_installs_it(nvrtc: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("EVFLOW_NVRTC", raising=False)
    monkeypatch.syspath_prepend(folder_of(SHIPPED[0]).parents[2])
    assert ".entry f" in compile_ptx('extern "C" __global__ void f() {}')


def test_nvrtc_that_is_missing_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EVFLOW_NVRTC", "/nowhere/libnvrtc.so")
    with pytest.raises(DeviceError, match="EVFLOW_NVRTC"):
        compile_ptx("")
