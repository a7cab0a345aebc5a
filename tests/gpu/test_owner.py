"""Any thread may make, use and drop what lies on a device; interrupts, forks, and the end of the process."""

from __future__ import annotations

import multiprocessing
import os
import signal
import subprocess
import sys
import threading
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

import evflow.gpu
from evflow.errors import DeviceError
from evflow.gpu import device
from evflow.gpu.device import Device
from evflow.gpu.owner import Owner
from evflow.gpu.scenarios import ENGINES
from evflow.matching.matcher import Matcher
from tests.gpu.standin import StandIn, load
from tests.gpu.workload import Workload, answers, differences

every_engine = pytest.mark.parametrize("engine", ENGINES)
FOLDER = str(Path(evflow.gpu.__file__).parent)


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


def test_a_device_that_is_interrupted_while_it_is_opened_leaves_no_thread(
    standin: StandIn, monkeypatch: pytest.MonkeyPatch
) -> None:
    Device.of()
    threads, main, retain = threading.active_count(), threading.get_ident(), Device._retain

    def retaining(self: Device, *arguments: Any) -> None:
        signal.pthread_kill(main, signal.SIGINT)
        time.sleep(0.02)
        retain(self, *arguments)

    monkeypatch.setattr(device, "_devices", {})
    monkeypatch.setattr(Device, "_retain", retaining)
    with pytest.raises(KeyboardInterrupt):
        Device.of()
    assert threading.active_count() == threads
    assert standin.counter("contexts") == 1


class Raiser:
    """Raises an error at one line of the package's GPU part, counted from 0; counts lines.

    Args:
        kind: of the error.
        at: which line; -1: none.

    Attributes:
        first: at which count each line, of a file's stem and a number, was met for the first time.
    """

    def __init__(self, kind: type[BaseException], at: int) -> None:
        self.kind, self.at, self.lines = kind, at, 0
        self.skipped: tuple[str, ...] = ()
        self.stopped = False
        self.first: dict[tuple[str, int], int] = {}

    def __call__(self, frame: FrameType, event: str, argument: object) -> Any:
        if self.stopped or not frame.f_code.co_filename.startswith(FOLDER):
            return None
        # What runs outside of any job is interrupted by nobody.
        if frame.f_code.co_name in self.skipped and frame.f_code.co_filename.endswith("owner.py"):
            return None
        if event == "line" and not self.stopped:
            self.first.setdefault((Path(frame.f_code.co_filename).stem, frame.f_lineno), self.lines)
            self.lines += 1
            if self.lines == self.at + 1:
                raise self.kind
        return self


def traced(raiser: Raiser, elsewhere: bool, call: Callable[[], object]) -> None:
    """Calls it, with the raiser in this thread or in that of the device."""

    def start() -> None:
        sys.settrace(raiser)

    before = sys.gettrace()
    if elsewhere:
        raiser.skipped = ("_answer", "_clear", "_run", "sweep", "own", "do")
        Device.of().do("tracing", start)
    else:
        start()
    try:
        call()
    except (raiser.kind, DeviceError):
        pass
    finally:
        sys.settrace(before)
        raiser.stopped = True
        Device.of().do("tracing", lambda: sys.settrace(None))


@every_engine
@pytest.mark.parametrize("elsewhere", [True, False])
@pytest.mark.parametrize("kind", [KeyboardInterrupt, MemoryError])
def test_an_error_at_any_line_leaves_later_answers_right(
    standin: StandIn, engine: str, elsewhere: bool, kind: type[BaseException]
) -> None:
    work = Workload(7, hit=0.9)
    matcher, oracle = Matcher(engine), Matcher("reference")
    new = [*work.subscriptions(40), "within(0, 0, 1)"]
    events = [*work.events(2), {"x": 1.0, "y": 0.0}]
    matcher.subscribe_many(new)
    oracle.subscribe_many(new)
    expected = []
    for place in range(2):
        oracle.move(40, 2.0 * place, 0.0, 1.0 - place)
        expected.append(answers(oracle, events))
    assert expected[0] != expected[1]
    at = 0
    while True:
        matcher.move(40, 2.0 * (at % 2), 0.0, 1.0 - at % 2)
        raiser = Raiser(kind, at)
        traced(raiser, elsewhere, lambda: matcher.match_batch(events))
        if raiser.lines <= at:
            break
        assert answers(matcher, events) == expected[at % 2], at
        at += 1
    assert at > (100 if elsewhere else 10)


CHANGING = ("ccm", "cells", "clcb", "column", "operands", "ordered", "single", "store", "table")
"""Files whose code changes what an engine holds."""


@every_engine
@pytest.mark.parametrize("change", ["subscribe", "unsubscribe", "move", "first match"])
def test_a_change_that_is_broken_off_is_never_answered_from(
    standin: StandIn, engine: str, change: str, tmp_path: Path
) -> None:
    """Where the host's memory ends in the middle, answers are as before the change, or refused."""
    work = Workload(7, hit=0.9)
    old, new, events = [*work.subscriptions(20), "within(0, 0, 1)"], work.subscriptions(10), work.events(3)
    # So many go that the tables are made anew.
    many = ["n0 > 1e9 and n1 > 1e9"] * (1000 if change == "unsubscribe" else 0)
    calls: dict[str, Callable[[Matcher], object]] = {
        "subscribe": lambda matcher: matcher.subscribe_many(new),
        "unsubscribe": lambda matcher: matcher.unsubscribe_many(
            [*range(0, 20, 2), *range(21, len(many) + 21)]
        ),
        "move": lambda matcher: matcher.move(20, 5.0, 5.0, 0.5),
        "first match": lambda matcher: matcher.match_batch(events),
    }
    oracle = Matcher("reference")
    oracle.subscribe_many(old + many)
    expected = answers(oracle, events)

    def broken_off(at: int) -> tuple[Matcher, Raiser]:
        matcher, raiser = Matcher(engine), Raiser(MemoryError, at)
        matcher.subscribe_many(old + many)
        if change != "first match":
            assert answers(matcher, events) == expected
        traced(raiser, True, lambda: calls[change](matcher))
        return matcher, raiser

    places = broken_off(-2)[1].first
    chosen = sorted(at for (stem, _), at in places.items() if stem in CHANGING)
    refused = 0
    for at in chosen[::9]:
        matcher, _ = broken_off(at)
        try:
            assert answers(matcher, events) == expected, at
        except DeviceError as error:
            assert "broken off by MemoryError" in str(error)
            with pytest.raises(DeviceError, match="make another one from the subscriptions"):
                matcher.subscribe("a > 1")
            with pytest.raises(DeviceError, match="make another one from the subscriptions"):
                matcher.save(tmp_path / "saved")
            refused += 1
    assert refused > 0 or (change == "first match" and engine != "clcb-grid")


def interrupted(standin: StandIn, call: Callable[[], object]) -> None:
    """Calls it, with an interrupt while the device's thread is at work."""
    main, device = threading.get_ident(), Device.of()
    told = threading.Event()

    def interrupt() -> None:
        told.wait()
        signal.pthread_kill(main, signal.SIGINT)

    thread = threading.Thread(target=device.do, args=("interrupting", interrupt))
    thread.start()
    threading.Timer(0.02, told.set).start()
    with pytest.raises(KeyboardInterrupt):
        call()
    thread.join()


@every_engine
def test_a_call_that_is_interrupted_before_it_begins_is_left_out(standin: StandIn, engine: str) -> None:
    matcher = Matcher(engine)
    matcher.subscribe("a > 1")
    interrupted(standin, lambda: matcher.subscribe("a > 2"))
    assert len(matcher) == 1
    assert matcher.match({"a": 5}).tolist() == [0]
    interrupted(standin, lambda: matcher.match({"a": 5}))
    assert matcher.subscribe("a > 3") == 1
    assert sorted(matcher.match({"a": 5}).tolist()) == [0, 1]


@every_engine
@pytest.mark.parametrize("times", [1, 3])
def test_a_subscription_that_is_interrupted_while_it_is_made_is_not_there(
    standin: StandIn, engine: str, times: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    matcher = Matcher(engine)
    matcher.subscribe("a > 1")
    main, made = threading.get_ident(), matcher._engine
    target, name = (made._filters, "add") if engine == "clcb-grid" else (made, "_add")
    add = getattr(target, name)

    def adding(filters: Any) -> None:
        for _ in range(times):
            signal.pthread_kill(main, signal.SIGINT)
            time.sleep(0.02)
        add(filters)
        over.append(filters)

    over: list[Any] = []
    monkeypatch.setattr(target, name, adding)
    with pytest.raises(KeyboardInterrupt):
        matcher.subscribe("a > 2")
    # Nobody who was interrupted goes on beside what has begun.
    assert len(over) == 1
    monkeypatch.undo()
    assert len(matcher) == 1
    assert matcher.match({"a": 5}).tolist() == [0]
    assert matcher.subscribe("a > 3") == 1
    assert sorted(matcher.match({"a": 5}).tolist()) == [0, 1]


@every_engine
@pytest.mark.parametrize("name", ["unsubscribe", "move"])
def test_a_change_that_is_interrupted_while_it_is_made_may_be_called_again(
    standin: StandIn, engine: str, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    matcher = Matcher(engine)
    matcher.subscribe_many(["a > 1", "a > 2 and within(0, 0, 1)"])
    here, there = {"a": 5.0, "x": 0.0, "y": 0.0}, {"a": 5.0, "x": 9.0, "y": 9.0}
    assert answers(matcher, [here, there]) == [[0, 1], [0]]
    main, made = threading.get_ident(), matcher._engine
    target = made._filters if engine == "clcb-grid" else made._store
    inner = {"unsubscribe": "remove", "move": "move" if engine == "clcb-grid" else "moved"}[name]
    change = getattr(target, inner)

    def changing(*arguments: Any) -> Any:
        signal.pthread_kill(main, signal.SIGINT)
        time.sleep(0.02)
        return change(*arguments)

    monkeypatch.setattr(target, inner, changing)
    calls = {"unsubscribe": lambda: matcher.unsubscribe(1), "move": lambda: matcher.move(1, 9.0, 9.0)}
    with pytest.raises(KeyboardInterrupt):
        calls[name]()
    monkeypatch.undo()
    assert 1 in matcher
    calls[name]()
    assert answers(matcher, [here, there]) == [[0], [0, 1] if name == "move" else [0]]
    id = matcher.subscribe("a > 6")
    assert id == len(matcher) - 1
    assert id not in matcher.match(here) and id in matcher.match({"a": 7.0})


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
