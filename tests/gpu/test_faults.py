"""Positive controls: each fault that is planted is caught by at least one check.

A fault is an edit of a kernel's source, compiled as the kernels are, or of the host's code. What catches
it is the answer compared with the oracle's, in some order of threads, or the stand-in itself.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import pytest

from evflow.errors import DeviceError
from evflow.matching.matcher import Matcher
from tests.gpu.nvrtc import KERNELS, ptx_of
from tests.gpu.standin import StandIn
from tests.gpu.workload import Workload, differences

pytestmark = pytest.mark.slow


@dataclass(frozen=True)
class Fault:
    """An edit of a kernel file, and how the stand-in has to run for it to be seen."""

    engine: str
    file: str
    old: str
    new: str
    order: str = "in order"
    interleave: bool = False

    def plant(self, ptx: str) -> str:
        """The PTX of the module that is loaded: of the changed source, if it is that of the file."""
        source = (KERNELS / f"{self.file}.cu").read_text()
        assert source.count(self.old) == 1, f"{self.file}.cu: {self.old!r}"
        if ptx != ptx_of(self.file):
            return ptx
        return ptx_of(self.file, source.replace(self.old, self.new))


BARRIER = "    __syncthreads();\n"
FAULTS = {
    "ccm counts without an atomic": Fault(
        "ccm",
        "ccm",
        "atomicAdd(&counts[filter], 1u) + 1 ==",
        "(counts[filter] += 1) ==",
        "shuffled",
        interleave=True,
    ),
    "ccm marks without an atomic": Fault(
        "ccm",
        "ccm",
        "atomicOr(&found[subscription >> 5], 1u << (subscription & 31))",
        "found[subscription >> 5] |= 1u << (subscription & 31)",
        "shuffled",
        interleave=True,
    ),
    "ccm has no barrier": Fault("ccm", "ccm", BARRIER, "", "reversed"),
    "ccm clears no counters": Fault("ccm", "ccm", "        next_counts[i] = 0;\n", "        ;\n"),
    "ccm clears no results": Fault("ccm", "ccm", "        next_found[i] = 0;\n", "        ;\n"),
    "ccm clears one counter too many": Fault("ccm", "ccm", "i < filter_count", "i <= filter_count"),
    "ccm reads beyond a row": Fault("ccm", "ccm", "if (column >= (", "if (column > ("),
    "ccm is off by one at the last constraint": Fault("ccm", "ccm", "1u) + 1 == sizes", "1u) == sizes"),
    "clcb counts without an atomic": Fault(
        "clcb",
        "clcb",
        "(atomicAdd(&counts[filter], 1u << shift) >> shift)",
        "(((counts[filter] += 1u << shift) - (1u << shift)) >> shift)",
        "shuffled",
        interleave=True,
    ),
    "clcb has no barrier": Fault("clcb", "clcb", BARRIER, "", "reversed"),
    "clcb does not clear its counters": Fault("clcb", "clcb", "if (run == 0)\n", "if (run == 9)\n"),
    "clcb does not clear its results": Fault("clcb", "clcb", "        matched[id] = 0;\n", ""),
    "clcb does not clear its count": Fault("clcb", "clcb", "*result = 0;", ";"),
    "clcb locates one filter too many": Fault("clcb", "clcb", "if (id >= filters)", "if (id > filters)"),
    "clcb zips one subscription too many": Fault(
        "clcb", "clcb", "if (id >= subscriptions)", "if (id > subscriptions)"
    ),
    "grid reports without an atomic": Fault(
        "clcb-grid",
        "grid",
        "unsigned at = atomicAdd(result, 1u);",
        "unsigned at = result[0]; result[0] = at + 1;",
        "shuffled",
        interleave=True,
    ),
    "grid sees nothing twice": Fault("clcb-grid", "grid", "if (atomicOr(", "if (0 & atomicOr("),
    "grid does not clear what was seen": Fault("clcb-grid", "grid", "atomicExch(&seen", "atomicOr(&seen"),
    "grid clears one bit too few": Fault("clcb-grid", "grid", "i < count; i +=", "i + 1 < count; i +="),
    "grid looks at one cell too few": Fault("clcb-grid", "grid", "+ (corner & 1)", "+ 0"),
    "grid tests one filter too few": Fault(
        "clcb-grid", "grid", "i < end; i += step", "i + 1 < end; i += step"
    ),
    "grid matches one event too many": Fault(
        "clcb-grid", "grid", "if (number >= events)", "if (number > events)"
    ),
    "one change too few is scattered": Fault(
        "clcb", "scatter", "i < count * words", "i + words < count * words"
    ),
    "a change too many is scattered": Fault("clcb", "scatter", "i < count * words", "i <= count * words"),
}


def check(engine: str) -> list[str]:
    """A few batches with a growing and moving set, sized so that no array has a row to spare."""
    work = Workload(5, names=3, area=0.3, most=3, hit=0.9)
    wrong: list[str] = []
    for count in (35, 91):
        matcher, oracle = Matcher(engine), Matcher("reference")
        filters = [work.filter() for _ in range(count)] + ["n0 > -9 and n1 > -9 and n2 > -9"] * 5
        for one in (matcher, oracle):
            one.subscribe_many(filters)
        for _ in range(3):
            events = [*work.events(8), {"n0": 1, "n1": 1, "n2": 1, "x": 0.0, "y": 0.0}]
            wrong += differences(matcher, oracle, events)
            gone = [i for i in range(0, count, 5) if i in matcher]
            for one in (matcher, oracle):
                one.unsubscribe_many(gone)
    return wrong + check_few(engine)


def check_few(engine: str) -> list[str]:
    """One match a batch, and areas that move together."""
    matcher, oracle = Matcher(engine), Matcher("reference")
    for one in (matcher, oracle):
        one.subscribe_many(["lone > 0", *["within(90, 90, 1)"] * 20])
    wrong = [*differences(matcher, oracle, [{"lone": 1}]), *differences(matcher, oracle, [{"lone": 2}])]
    for one in (matcher, oracle):
        one.move_many(range(2, 21, 2), [50.0] * 10, [60.0] * 10)
    return wrong + differences(matcher, oracle, [{"x": 50.0, "y": 60.0}, {"x": 90.0, "y": 90.0}])


def caught(call: Callable[[], list[str]]) -> bool:
    try:
        return bool(call())
    except (DeviceError, ValueError):
        return True


@pytest.mark.parametrize("name", FAULTS)
def test_a_fault_in_a_kernel_is_caught(nvrtc: None, standin: StandIn, name: str) -> None:
    fault = FAULTS[name]
    standin.configure(order=fault.order, interleave=fault.interleave, seed=3)
    standin.edit = fault.plant
    assert caught(lambda: check(fault.engine)), standin.message


@pytest.mark.parametrize("mode", sorted({(f.engine, f.order, f.interleave) for f in FAULTS.values()}))
def test_the_same_checks_pass_without_a_fault(standin: StandIn, mode: tuple[str, str, bool]) -> None:
    engine, order, interleave = mode
    standin.configure(order=order, interleave=interleave, seed=3)
    assert check(engine) == []


@pytest.mark.parametrize("engine", ["ccm", "clcb", "clcb-grid"])
def test_an_answer_that_is_read_before_it_is_there_is_caught(
    standin: StandIn, monkeypatch: pytest.MonkeyPatch, engine: str
) -> None:
    import pycuda.driver as cuda

    for kind in (cuda.Stream, cuda.Event):
        monkeypatch.setattr(kind, "synchronize", lambda self: self)
    assert caught(lambda: check(engine))
