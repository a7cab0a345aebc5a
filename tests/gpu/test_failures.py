"""Failures of a device are DeviceErrors, and the matcher goes on where that is possible."""

from __future__ import annotations

import sys
from collections.abc import Callable

import pytest

from evflow.errors import DeviceError, EvflowError, SubscriptionError
from evflow.gpu import device
from evflow.gpu.scenarios import ENGINES
from evflow.matching.matcher import Matcher
from tests.gpu.standin import ILLEGAL_ADDRESS, LAUNCH_FAILED, OUT_OF_MEMORY, UNAVAILABLE, StandIn
from tests.gpu.workload import Workload, differences

every_engine = pytest.mark.parametrize("engine", ENGINES)


def pair(engine: str, count: int = 200) -> tuple[Matcher, Matcher, Workload]:
    work = Workload(7, hit=0.9)
    subscriptions = work.subscriptions(count)
    matcher, oracle = Matcher(engine), Matcher("reference")
    matcher.subscribe_many(subscriptions)
    oracle.subscribe_many(subscriptions)
    return matcher, oracle, work


def until_it_passes(standin: StandIn, kind: str, code: int, call: Callable[[], object]) -> list[DeviceError]:
    """Lets the first, second, third… call of a kind fail, until none is left; gives all errors."""
    errors: list[DeviceError] = []
    while len(errors) < 200:
        standin.fail(kind, code, after=len(errors))
        try:
            call()
        except DeviceError as error:
            errors.append(error)
        else:
            standin.fail(kind, code, after=1 << 40)
            return errors
    raise AssertionError(f"the call never passes: {errors[-1]}")


@every_engine
@pytest.mark.parametrize("kind", ["alloc", "pinned"])
def test_a_subscription_that_does_not_fit_is_not_there(standin: StandIn, engine: str, kind: str) -> None:
    matcher, oracle, work = pair(engine)
    new = work.subscriptions(900)

    def subscribe() -> None:
        assert len(matcher) == 200
        assert differences(matcher, oracle, work.events(1)) == []
        matcher.subscribe_many(new)

    errors = until_it_passes(standin, kind, OUT_OF_MEMORY, subscribe)
    assert len(errors) > 3 or kind == "pinned"
    assert all("out of memory while" in str(error) for error in errors)
    oracle.subscribe_many(new)
    assert differences(matcher, oracle, work.events(10)) == []


@every_engine
@pytest.mark.parametrize(
    ("kind", "code"),
    [("launch", LAUNCH_FAILED), ("copy", LAUNCH_FAILED), ("sync", LAUNCH_FAILED), ("alloc", OUT_OF_MEMORY)],
)
def test_a_call_that_fails_is_forgotten_by_the_next(
    standin: StandIn, engine: str, kind: str, code: int
) -> None:
    matcher, oracle, work = pair(engine)
    events = work.events(5)
    seen = 0
    for step in range(4):
        matcher.subscribe("n0 > 1")
        oracle.subscribe("n0 > 1")
        errors = until_it_passes(standin, kind, code, lambda: matcher.match_batch(events))
        seen += len(errors)
        assert differences(matcher, oracle, events) == [], step
    assert seen > 5 or kind == "alloc"


@every_engine
@pytest.mark.parametrize("kind", ["alloc", "pinned"])
def test_a_large_event_that_does_not_fit_may_come_again(standin: StandIn, engine: str, kind: str) -> None:
    matcher, oracle, work = pair(engine)
    long = "contains " * 20_000
    for each in (matcher, oracle):
        each.subscribe_many(["n0 contains 'tains'", f"n0 == '{long}'"])
    events = [*work.events(2), {"n0": long}]
    standin.held()
    assert until_it_passes(standin, kind, OUT_OF_MEMORY, lambda: matcher.match_batch(events))
    assert differences(matcher, oracle, events) == []


@every_engine
def test_a_device_too_small_says_so(standin: StandIn, engine: str) -> None:
    standin.configure(limit=standin.counter("used") + (2 << 20))
    matcher = Matcher(engine)
    with pytest.raises(DeviceError, match=r"not a GPU: out of memory while allocating \d+ bytes.*use a CPU"):
        matcher.subscribe_many(["a > 1 and b > 2"] * 20_000)
    assert len(matcher) == 0
    matcher.subscribe("a > 1")
    assert matcher.match({"a": 2}).tolist() == [0]


@every_engine
@pytest.mark.parametrize("code", [LAUNCH_FAILED, ILLEGAL_ADDRESS])
def test_a_lost_context_is_told_and_subscriptions_can_be_saved(
    standin: StandIn, engine: str, code: int, tmp_path: object
) -> None:
    matcher, oracle, work = pair(engine)
    events = work.events(5)
    standin.fail("kernel", code, after=1)
    for _ in range(2):
        with pytest.raises(DeviceError, match="context is lost for this process"):
            matcher.match_batch(events)
    assert len(matcher) == 200
    matcher.save(f"{tmp_path}/saved")
    standin.configure()
    for again in (matcher, Matcher.load(f"{tmp_path}/saved")):
        assert differences(again, oracle, events) == []


@pytest.mark.parametrize("kind", ["sync", "launch", "copy"])
def test_a_call_that_fails_fails_alone(standin: StandIn, kind: str) -> None:
    matcher, oracle, work = pair("clcb-grid")
    matcher._engine._batch = 1
    events = work.events(5)
    assert differences(matcher, oracle, events) == []
    # The second of five batches, with the first in flight.
    standin.fail(kind, LAUNCH_FAILED, after={"sync": 1, "launch": 2, "copy": 3}[kind])
    with pytest.raises(DeviceError, match="failed while matching"):
        matcher.match_batch(events)
    assert differences(matcher, oracle, events) == []
    assert differences(matcher, oracle, work.events(3)) == []


def test_without_pycuda_the_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pycuda", None)
    monkeypatch.delitem(sys.modules, "pycuda.driver", raising=False)
    assert not device.available()
    for engine in ENGINES:
        with pytest.raises(EvflowError, match=r"need PyCUDA .*pip install 'evflow\[gpu\]'.*docs/gpu.md"):
            Matcher(engine)


@pytest.mark.parametrize("kind", ["retain", "push"])
def test_a_device_that_others_hold_is_told(
    standin: StandIn, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    monkeypatch.setattr(device, "_devices", {})
    monkeypatch.setattr(device, "_contexts", {} if kind == "retain" else device._contexts)
    for engine in ENGINES:
        standin.fail(kind, UNAVAILABLE)
        with pytest.raises(DeviceError, match=r"device 0 cannot be used: .*nvidia-smi"):
            Matcher(engine)


@every_engine
def test_a_card_that_is_too_old_is_told(
    standin: StandIn, monkeypatch: pytest.MonkeyPatch, engine: str
) -> None:
    monkeypatch.setattr(device, "_devices", {})
    standin.capability(7, 2)
    with pytest.raises(DeviceError, match=r"need compute capability 7\.5 \(Turing\), found 7\.2"):
        Matcher(engine)


def test_a_device_that_is_not_there_is_refused(standin: StandIn) -> None:
    with pytest.raises(DeviceError, match="device 3: there are 1, numbered from 0"):
        Matcher("clcb", device=3)
    with pytest.raises(DeviceError, match="device '0': there are 1"):
        Matcher("ccm", device="0")
    with pytest.raises(DeviceError, match=r"device \[0\]: there are 1"):
        Matcher("ccm", device=[0])


@pytest.mark.parametrize("options", [{"batch": 0}, {"slots": 1.5}, {"batches": 3}])
def test_an_option_that_is_wrong_is_named(standin: StandIn, options: dict[str, object]) -> None:
    with pytest.raises(SubscriptionError, match=f"engine '?clcb-grid'?: .*{next(iter(options))}"):
        Matcher("clcb-grid", **options)
