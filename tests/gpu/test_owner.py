"""Any thread may make, use and drop what lies on a device; forks, and the end of the process."""

from __future__ import annotations

import multiprocessing
import os
import subprocess
import sys
import threading
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from evflow.errors import DeviceError
from evflow.gpu.device import Device
from evflow.gpu.owner import Owner
from evflow.gpu.scenarios import ENGINES
from evflow.matching.matcher import Matcher
from tests.gpu.standin import StandIn, load
from tests.gpu.workload import Workload, answers, differences

every_engine = pytest.mark.parametrize("engine", ENGINES)


def in_thread(call: Callable[[], object]) -> None:
    """Calls it in a thread of its own; a warning there is an error."""
    errors: list[BaseException] = []

    def run() -> None:
        try:
            call()
        except BaseException as error:  # noqa: BLE001 - raised below
            errors.append(error)

    thread = threading.Thread(target=run)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        thread.start()
        thread.join()
    if errors:
        raise errors[0]


@every_engine
def test_what_other_threads_change_and_drop_is_freed(standin: StandIn, engine: str) -> None:
    before = standin.held()
    taken = []
    for elsewhere in (False, True):
        run = in_thread if elsewhere else lambda call: call()
        work = Workload(3, hit=0.9)
        matchers = [Matcher(engine), Matcher("reference")]

        def grow(matchers: list[Matcher] = matchers, work: Workload = work) -> None:
            for count in (10, 200, 3000):
                new = work.subscriptions(count)
                for matcher in matchers:
                    matcher.subscribe_many(new)
                assert differences(*matchers, work.events(3)) == []

        def shrink(matchers: list[Matcher] = matchers, work: Workload = work) -> None:
            for matcher in matchers:
                matcher.unsubscribe_many(list(range(0, 3000, 2)))
            assert differences(*matchers, work.events(3)) == []

        run(grow)
        run(shrink)
        taken.append(standin.held()[1] - before[1])
        run(matchers.clear)
        assert standin.held() == before
    assert taken[0] == taken[1]


@every_engine
def test_threads_match_and_change_at_the_same_time(standin: StandIn, engine: str) -> None:
    work = Workload(5, hit=0.9)
    matcher, oracle = Matcher(engine), Matcher("reference")
    subscriptions, events = work.subscriptions(50), work.events(4)
    matcher.subscribe_many(subscriptions)
    oracle.subscribe_many(subscriptions)
    wanted = answers(oracle, events)
    wrong: list[Any] = []

    def use(number: int) -> None:
        for _ in range(10):
            id = matcher.subscribe("n0 > 1e9")
            found = matcher.match_batch(events)
            here = [sorted(i for i in found[k].tolist() if i < 50) for k in range(4)]
            if here != wanted:
                wrong.append((number, here))
            matcher.unsubscribe(id)

    threads = [threading.Thread(target=use, args=(i,)) for i in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


def test_an_error_keeps_nothing_of_the_device(standin: StandIn) -> None:
    before = standin.held()
    device, errors = Device.of(), []

    def failing() -> None:
        memory, pinned = device.allocate(64), device.pinned(64)
        view = pinned[:8]
        raise ValueError(f"{memory.nbytes} {len(view)}")

    for _ in range(3):
        with pytest.raises(ValueError, match="64 8") as caught:
            device.do("failing", failing)
        errors.append(caught.value)
    assert standin.held() == before


def test_a_view_of_pinned_memory_keeps_it(standin: StandIn) -> None:
    before = standin.held()
    pinned = Device.of().pinned(64)
    pinned[:] = 5
    view = pinned[8:16].view("u4")
    del pinned
    assert standin.held()[0] == before[0] + 1
    assert view.tolist() == [0x05050505] * 2
    del view
    assert standin.held() == before


def test_there_is_one_device_for_each_number(standin: StandIn) -> None:
    assert Device.of() is Device.of(0)
    for _ in range(3):
        matcher = Matcher("clcb")
        matcher.subscribe("a > 1")
        assert matcher.match({"a": 2}).tolist() == [0]
        del matcher
    assert standin.counter("contexts") == 1
    # It is current in the device's own thread, and in none of ours.
    cuda = sys.modules["pycuda.driver"]
    Device.of().do("asking", cuda.Context.get_device)
    assert Device.of().do("asking", lambda: threading.current_thread().name) == "evflow device"
    with pytest.raises(cuda.LogicError):
        cuda.Context.get_device()


def script(text: str, *arguments: str) -> str:
    """Runs a program on the stand-in; gives what it prints. It must end well and say nothing else."""
    begin = "import os, sys, threading, time\nfrom tests.gpu.standin import load\nstandin = load()\n"
    begin += "from evflow.errors import DeviceError\nfrom evflow.matching.matcher import Matcher\n"
    command = [sys.executable, "-W", "error", "-c", begin + text, *arguments]
    root = Path(__file__).parents[2]
    done = subprocess.run(command, capture_output=True, text=True, cwd=root, timeout=100, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


def do_elsewhere(owner: Owner, job: Callable[[], object]) -> list[str]:
    """Asks in a daemon thread, which may wait for ever; gives what it was told within some seconds."""
    said: list[str] = []

    def ask() -> None:
        try:
            owner.do(job)
        except DeviceError as error:
            said.append(str(error))

    thread = threading.Thread(target=ask, daemon=True)
    thread.start()
    thread.join(30)
    return said


ENDED = "the process ends, and its work on the device has ended already"


def test_a_job_that_comes_when_the_thread_has_just_ended_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    owner = Owner(lambda: None, lambda: None)
    monkeypatch.setattr(owner, "check", owner.end)
    assert do_elsewhere(owner, lambda: None) == [ENDED]


def test_a_job_that_comes_while_the_thread_ends_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[str] = []

    def leave() -> None:
        waiting = threading.Thread(target=lambda: said.extend(do_elsewhere(owner, lambda: None)))
        waiting.start()
        threads.append(waiting)
        while owner._queue.empty():
            time.sleep(0.001)

    threads: list[threading.Thread] = []
    owner = Owner(lambda: None, leave)
    monkeypatch.setattr(owner, "check", lambda: None)
    owner.end()
    threads[0].join()
    assert said == [ENDED]


class Held:
    """Something that can be dropped."""


def test_where_nothing_can_be_freed_calls_are_answered_and_it_is_tried_again(
    caplog: pytest.LogCaptureFixture,
) -> None:
    failing: list[Exception] = []

    def settle() -> None:
        if failing:
            raise failing[0]

    def fail() -> None:
        raise ValueError("a job's own")

    owner = Owner(settle, lambda: None)
    try:
        cells: list[list[Any]] = []

        def wrap(cell: list[Any]) -> Held:
            cells.append(cell)
            return Held()

        kept = owner.do(lambda: owner.own(Held, wrap))
        assert len(cells[0]) == 1
        failing.append(OSError("nothing settles"))
        del kept
        assert owner.do(lambda: 5) == 5
        with pytest.raises(ValueError, match="a job's own"):
            owner.do(fail)
        assert len(cells[0]) == 1
        assert "nothing settles" in caplog.text
        failing.clear()
        owner.do(lambda: None)
        owner.do(lambda: None)
        assert cells == [[]]
    finally:
        failing.clear()
        owner.end()


@every_engine
def test_a_process_may_end_while_a_daemon_thread_matches(standin: StandIn, engine: str) -> None:
    said = script(
        """
matcher = Matcher(sys.argv[1])
matcher.subscribe_many(["a > 0"] * 3000)
going = threading.Event()

def work():
    try:
        while True:
            assert len(matcher.match({"a": 1})) == 3000
            going.set()
    except DeviceError as error:
        os.write(1, f"{error}".encode())

threading.Thread(target=work, daemon=True).start()
going.wait()
time.sleep(0.01)
""",
        engine,
    )
    assert said in ("", "the process ends, and its work on the device has ended already")


def test_the_end_of_a_process_waits_for_what_is_under_way(standin: StandIn) -> None:
    said = script(
        """
import atexit
from evflow.gpu.device import Device

def late():
    try:
        matcher.match({"a": 1})
    except DeviceError as error:
        print(error)

# What was registered first comes last, so that the device has ended by then.
atexit.register(late)
matcher = Matcher("clcb-grid")
matcher.subscribe("a > 0")
begun = threading.Event()

def work():
    begun.set()
    time.sleep(0.3)
    print("done")

threading.Thread(target=Device.of().do, args=("working", work), daemon=True).start()
begun.wait()
"""
    )
    assert said == f"done\n{ENDED}\n"


@every_engine
@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_fork_is_told_and_can_save(standin: StandIn, engine: str, tmp_path: Path) -> None:
    said = script(
        """
engine, path = sys.argv[1:]
matcher = Matcher(engine)
matcher.subscribe("a > 0")
assert matcher.match({"a": 1}).tolist() == [0]
sys.stdout.flush()
child = os.fork()
if not child:
    subscribe = lambda: matcher.subscribe("b > 0")
    for call in (lambda: matcher.match({"a": 1}), lambda: Matcher(engine), subscribe):
        try:
            call()
        except DeviceError as error:
            print(str(error)[:51])
    matcher.save(path)
    del matcher
    print("misuse:", standin.misuse)
    sys.exit(0)
assert os.waitpid(child, 0)[1] == 0
assert matcher.match({"a": 1}).tolist() == [0]
assert Matcher.load(path).match({"a": 1}).tolist() == [0]
""",
        engine,
        str(tmp_path / "saved"),
    )
    assert said == "this process was forked from one that uses the devi\n" * 3 + "misuse: \n"


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_fork_of_a_process_that_only_looked_for_a_device_is_told(standin: StandIn) -> None:
    said = script(
        """
from evflow.gpu.device import available

assert available()
child = os.fork()
if not child:
    print(available())
    try:
        Matcher("clcb")
    except DeviceError as error:
        print(str(error)[:51])
    print("misuse:", standin.misuse)
    sys.stdout.flush()
    os._exit(0)
assert os.waitpid(child, 0)[1] == 0
matcher = Matcher("clcb")
matcher.subscribe("a > 0")
print(matcher.match({"a": 1}).tolist())
"""
    )
    assert said == "False\nthis process was forked from one that uses the devi\nmisuse: \n[0]\n"


def test_a_process_that_is_spawned_from_one_that_uses_a_device_may_use_it(standin: StandIn) -> None:
    matcher = Matcher("clcb")
    matcher.subscribe("a > 0")
    assert matcher.match({"a": 1}).tolist() == [0]
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        assert pool.apply(matched_elsewhere) == [0]
    assert matcher.match({"a": 1}).tolist() == [0]


def matched_elsewhere() -> list[int]:
    load()
    matcher = Matcher("clcb")
    matcher.subscribe("a > 0")
    found: list[int] = matcher.match({"a": 1}).tolist()
    return found
