"""Engine `auto` uses a device where there is one and enough to do, and goes on without it."""

from __future__ import annotations

import sys
from functools import partial
from pathlib import Path
from random import Random

import pytest

from evflow.gpu import device
from evflow.matching.matcher import Matcher
from tests.gpu.standin import LAUNCH_FAILED, OUT_OF_MEMORY, UNAVAILABLE, StandIn
from tests.gpu.test_interrupts import interrupted
from tests.gpu.workload import Workload, differences
from tests.matching.play import Play

pytest.importorskip("numba", reason="needs numba, for engine index")


def used(standin: StandIn, matcher: Matcher) -> bool:
    """Whether the device answers."""
    before = standin.counter("launches")
    matcher.match_batch([{"a": 1}])
    return standin.counter("launches") > before


def test_random_calls_give_what_the_oracle_says(standin: StandIn, tmp_path: Path) -> None:
    for seed in range(4):
        Play(Random(seed), partial(Matcher, "auto", least=5), tmp_path / str(seed)).run(8)


def test_the_device_is_used_from_enough_filters_on(standin: StandIn) -> None:
    matcher = Matcher("auto", least=10)
    matcher.subscribe_many(["a > 0"] * 9)
    assert not used(standin, matcher)
    assert matcher.stats().details == {"auto": "index: fewer than 10 filters"}
    matcher.subscribe("a > 0")
    assert used(standin, matcher)
    assert matcher.stats().details["auto"] == "clcb-grid"
    matcher.unsubscribe(3)
    assert not used(standin, matcher)


def test_where_the_device_cannot_be_had_the_cpu_answers(
    standin: StandIn, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(device, "_devices", {})
    monkeypatch.setattr(device, "_contexts", {})
    standin.fail("retain", UNAVAILABLE)
    matcher = Matcher("auto", least=0)
    matcher.subscribe("a > 0")
    assert matcher.match({"a": 1}).tolist() == [0]
    assert "cannot be used" in matcher.stats().details["auto"]


def test_without_a_device_the_cpu_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pycuda", None)
    monkeypatch.delitem(sys.modules, "pycuda.driver", raising=False)
    matcher = Matcher("auto", least=0)
    matcher.subscribe("a > 0")
    assert matcher.match({"a": 1}).tolist() == [0]
    assert "need PyCUDA" in matcher.stats().details["auto"]


@pytest.mark.parametrize(("kind", "code"), [("launch", LAUNCH_FAILED), ("kernel", LAUNCH_FAILED)])
def test_where_the_device_fails_the_cpu_answers(standin: StandIn, kind: str, code: int) -> None:
    work = Workload(1, hit=0.9)
    matcher, oracle = Matcher("auto", least=0), Matcher("reference")
    subscriptions = work.subscriptions(50)
    matcher.subscribe_many(subscriptions)
    oracle.subscribe_many(subscriptions)
    events = work.events(5)
    standin.fail(kind, code)
    for _ in range(4):
        assert differences(matcher, oracle, events) == []
    # A failed call is over with the next; a lost context stays lost.
    assert used(standin, matcher) == (kind == "launch")


def test_what_does_not_fit_a_device_is_matched_without_it(standin: StandIn) -> None:
    matcher = Matcher("auto", least=0)
    standin.fail("alloc", OUT_OF_MEMORY)
    matcher.subscribe_many(["a > 0"] * 100)
    assert len(matcher.match({"a": 1})) == 100
    assert not used(standin, matcher)
    assert "out of memory" in matcher.stats().details["auto"]


@pytest.mark.parametrize("least", [0, 1000])
def test_what_auto_was_interrupted_with_is_not_there(standin: StandIn, least: int) -> None:
    """Neither where the device answers nor where the CPU does."""
    matcher = Matcher("auto", least=least)
    matcher.subscribe("a > 1")
    interrupted(standin, lambda: matcher.subscribe("a > 2"))
    assert matcher.subscribe("a > 3") == 1
    assert matcher.match({"a": 2.5}).tolist() == [0]
    assert sorted(matcher.match({"a": 5}).tolist()) == [0, 1]
    assert "broken off" in matcher.stats().details["auto"]
