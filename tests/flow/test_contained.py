"""What fails while a flow runs costs the event, stone, note or task that it concerns, and nothing else."""

from __future__ import annotations

import logging
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import evflow as ev
from evflow import mishaps
from evflow.codgen.kernel import Kernel
from evflow.engine import engine as engines
from evflow.engine.fit import Adapter
from evflow.engine.letters import LetterBox
from evflow.engine.topology import Slot
from evflow.errors import EvflowError, FlowError
from evflow.flow import source_queue
from evflow.stone import Acting, Actor, Context
from tests.node.processes import wait_for

Patch = pytest.MonkeyPatch


@pytest.fixture(autouse=True)
def _nothing_was_told(monkeypatch: Patch) -> None:
    """A failure that another test has planted is new in this one."""
    monkeypatch.setattr(mishaps, "_counts", Counter())


ERRORS = [MemoryError, RecursionError, SystemExit, KeyboardInterrupt, GeneratorExit]


class Number(ev.Event):
    n: int


class Wide(ev.Event):
    n: int
    more: int


class Hostile(Acting):
    """A stone that raises what it is told, where it is told, once a number of 2 came.

    Args:
        where: the method or property of its actor that raises.
        error: what it raises.
    """

    kind = "hostile"
    entrance = False
    inputs = {"input": Number.schema}  # noqa: RUF012
    wakes = True

    def __init__(self, where: str, error: type[BaseException]) -> None:
        super().__init__(name="hostile")
        self.where, self.error = where, error

    def emits(self, schema: Any) -> tuple[Any, ...]:
        return (Number.schema,)

    def open(self, context: Context) -> Actor:
        return _Hostile(context, self.where, self.error)

    def settings(self) -> dict[str, Any]:
        return {"where": self.where, "error": self.error.__name__}


class Exact(Hostile):
    """A peaceful one, which takes events of exactly its schema."""

    kind = "exact"
    exact = True


class _Hostile(Actor):
    def __init__(self, context: Context, where: str, error: type[BaseException]) -> None:
        super().__init__(context)
        self._where, self._error, self._angry = where, error, False
        self.hurt = 0

    def _perhaps(self, where: str) -> None:
        if self._angry and where == self._where:
            self.hurt += 1
            raise self._error(where)

    def receive(self, batch: ev.EventBatch, input: str) -> None:
        self._angry = True
        self._perhaps("receive")
        self.context.emit(batch)

    def wake(self, now: float) -> float | None:
        self._perhaps("wake")
        return now + 0.01

    @property
    def full(self) -> bool:
        self._perhaps("full")
        return False

    @property
    def busy(self) -> str:
        self._perhaps("busy")
        return ""

    @property
    def failure(self) -> EvflowError | None:
        self._perhaps("failure")
        return None

    def draining(self) -> None:
        self._perhaps("draining")

    def mark(self) -> object:
        self._perhaps("mark")
        return None

    def settled(self, mark: object) -> None:
        self._perhaps("settled")

    def extract(self, count: int | None = None) -> list[ev.EventBatch]:
        self._perhaps("extract")
        return []

    def close(self) -> None:
        self._perhaps("close")


@pytest.mark.parametrize("error", ERRORS)
@pytest.mark.parametrize(
    "where", ["receive", "wake", "full", "busy", "failure", "draining", "mark", "settled", "extract", "close"]
)
def test_stone_that_raises_costs_only_its_own_events(where: str, error: type[BaseException]) -> None:
    got: list[int] = []
    g = ev.Graph("hostile")
    source = g.source("numbers", Number)
    source >> ev.Terminal(lambda event: got.append(event.n), name="all")
    g.link(g.link(source, g.add(Hostile(where, error))), g.add(ev.Terminal(lambda event: None, name="after")))
    with g.run() as flow:
        actor = flow.engine.topology.slots["hostile"].actor
        assert isinstance(actor, _Hostile)
        for n in range(4):
            flow["numbers"].submit(Number(n))
            flow.drain(timeout=20)
        if where not in ("extract", "close"):
            wait_for(lambda: actor.hurt > 0, f"{where} is called")
        assert flow.failure is None
        letters = flow.dead_letters()
    assert got == [0, 1, 2, 3]
    assert actor.hurt > 0
    # Each event that the stone was to take is a dead letter with the reason, and no other event is.
    expected = [(n, "hostile", f"{error.__name__}: receive") for n in range(4)] if where == "receive" else []
    assert [(letter.event.n, letter.stone, letter.reason) for letter in letters] == expected


def _once(patch: Patch, owner: Any, name: str, error: type[BaseException], when: Callable[..., bool]) -> None:
    """Plants an error into a function: it is raised the first time that ``when`` says so."""
    original, planted = getattr(owner, name), [True]

    def instead(*given: Any, **named: Any) -> Any:
        if planted[0] and when(*given):
            planted[0] = False
            raise error("planted")
        return original(*given, **named)

    patch.setattr(owner, name, instead)


def _always(*given: Any) -> bool:
    return True


PLANTED: dict[str, tuple[Any, str, Callable[..., bool], int]] = {
    # Where: what it is planted in, when, and how many of the events are dead letters.
    "route plan": (engines, "plan_route", _always, 1),
    "kernel": (Kernel, "run", _always, 1),
    "what leaves a kernel": (engines, "left", _always, 1),
    "adapter of an input": (engines, "Adapter", _always, 1),
    "conversion for an input": (Adapter, "apply", _always, 1),
    "parking at a frozen stone": (Slot, "park", lambda slot, *given: slot.name == "cold", 1),
    "gate": (source_queue, "gate_of", _always, 0),
}


@pytest.mark.parametrize("error", [MemoryError, RecursionError, SystemExit])
@pytest.mark.parametrize("place", PLANTED)
def test_failure_in_the_engine_costs_one_batch(
    place: str, error: type[BaseException], monkeypatch: Patch, caplog: pytest.LogCaptureFixture
) -> None:
    owner, name, when, lost = PLANTED[place]
    seen: list[int] = []
    g = ev.Graph("planted")
    source = g.source("numbers", Wide)
    every = source >> ev.Filter("input.n >= 0", name="every")
    g.link(g.link(every, g.add(Exact("nowhere", error))), g.add(ev.Terminal(lambda e: seen.append(e.n))))
    cold = ev.Terminal(lambda event: None, name="cold")
    source >> ev.Filter("input.n < 0", name="none") >> ev.Terminal(lambda event: None, name="nobody")
    g.link(source, g.add(cold))
    with g.run() as flow:
        flow.freeze("cold")
        _once(monkeypatch, owner, name, error, when)
        for n in range(200):
            flow["numbers"].submit(Wide(n, n))
            if n < 4:
                flow.drain(timeout=20)
        flow.drain(timeout=20)
        letters = flow.dead_letters()
        stats = flow.stats()
        flow.unfreeze("cold")
        flow.drain(timeout=20)
    assert len(letters) == lost
    assert all(letter.reason == f"{error.__name__}: planted" for letter in letters)
    lost_here = {letter.event.n for letter in letters if letter.stone != "cold"}
    assert seen == [n for n in range(200) if n not in lost_here]
    assert sum(counts["errors"] for counts in stats.values()) == lost
    if lost:
        assert "planted" in caplog.text
        assert "Traceback" in caplog.text


def test_no_memory_to_join_events_costs_none(monkeypatch: Patch) -> None:
    seen: list[int] = []
    g = ev.Graph()
    source = g.source("numbers", Number)
    source >> ev.Terminal(lambda event: seen.append(event.n))
    original, joined = ev.EventBatch.from_encoded.__func__, []

    def from_encoded(cls: Any, schema: Any, events: Any, attributes: Any = None) -> Any:
        joined.append(len(events))
        if len(events) > 1:
            raise MemoryError
        return original(cls, schema, events, attributes)

    monkeypatch.setattr(ev.EventBatch, "from_encoded", classmethod(from_encoded))
    monkeypatch.setattr(ev.EventBatch, "concat", _no_memory)
    gate = threading.Event()
    source >> ev.Terminal(lambda event: gate.wait(20), name="slow")
    with g.run() as flow:
        flow["numbers"].submit(Number(0))
        for n in range(1, 50):
            flow["numbers"].submit(Number(n))
            flow["numbers"].submit_batch({"n": [1000 + n]})
        gate.set()
        flow.drain(timeout=20)
    assert sorted(seen) == [*range(50), *range(1001, 1050)]


def _no_memory(*given: Any, **named: Any) -> Any:
    raise MemoryError("planted")


@pytest.mark.parametrize("error", [MemoryError, SystemExit, KeyboardInterrupt, GeneratorExit])
def test_tasks_and_hooks_that_fail_are_told(
    error: type[BaseException], caplog: pytest.LogCaptureFixture
) -> None:
    seen: list[int] = []
    g = ev.Graph(f"tasks {error.__name__}")
    g.source("numbers", Number) >> ev.Terminal(lambda event: seen.append(event.n))

    def fail(*given: object) -> Any:
        raise error("planted")

    with g.run() as flow:
        end = flow.each_turn(fail)
        flow.post(fail)
        with pytest.raises(FlowError, match=f"{error.__name__}: planted") as caught:
            flow.call(fail)
        assert isinstance(caught.value.__cause__, error)
        flow["numbers"].submit(Number(1))
        flow.drain(timeout=20)
        end()
        assert seen == [1]
    told = [r.getMessage() for r in caplog.records if r.exc_info and "planted" in r.getMessage()]
    assert len([text for text in told if "a task was not done" in text]) == 1
    assert len([text for text in told if "in each turn" in text]) == 1


def test_the_same_failure_is_told_more_and_more_seldom(caplog: pytest.LogCaptureFixture) -> None:
    g = ev.Graph("seldom")
    source = g.source("numbers", Number)
    g.link(g.link(source, g.add(Hostile("busy", ZeroDivisionError))), g.add(ev.Terminal(lambda event: None)))
    with g.run() as flow:
        flow["numbers"].submit(Number(0))
        for _ in range(100):
            flow.drain(timeout=20)
    told = [record for record in caplog.records if "'busy' failed" in record.getMessage()]
    assert 1 <= len(told) <= 12


@pytest.fixture
def _letters_broken(monkeypatch: Patch) -> Iterator[None]:
    """Events can neither be handled nor given up."""
    monkeypatch.setattr(LetterBox, "put", _no_memory)
    yield


def test_flow_that_can_give_nothing_up_ends_and_says_why(
    _letters_broken: None, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.CRITICAL, "evflow")
    g = ev.Graph("broken")

    def fail(event: object) -> None:
        raise ValueError

    g.source("numbers", Number) >> ev.Terminal(fail)
    flow = g.run()
    flow["numbers"].submit(Number(1))
    wait_for(lambda: flow.failure is not None, "the flow has ended")
    why = "flow broken broke: .*neither handled nor given up: MemoryError: planted"
    for call in (
        lambda: flow["numbers"].submit(Number(2)),
        lambda: flow.drain(timeout=20),
        lambda: flow.call(lambda: None),
        flow.close,
    ):
        with pytest.raises(FlowError, match=why) as caught:
            call()
        assert caught.value.__cause__ is not None


class Mute(Exception):
    """An error whose text cannot be had."""

    def __str__(self) -> str:
        raise RuntimeError("no text")


class Shy(Exception):
    """An error nothing of which can be read."""

    def __getattribute__(self, name: str) -> Any:
        raise KeyError(name)


class Misnoted(Exception):
    """An error whose notes are none."""

    __notes__ = 5


class Namer(type):
    """Names a class in a way that fails."""

    @property
    def __name__(cls) -> str:  # type: ignore[override]
        raise RuntimeError("no name")


class Nameless(Exception, metaclass=Namer):
    """An error whose class has no name to be had."""


class Unlike(Exception):
    """An error that looks like a group."""

    exceptions = 5


def _misnoted() -> None:
    raise Misnoted


def _nameless() -> None:
    raise Nameless


def _unlike() -> None:
    raise Unlike("on purpose")


def _mute() -> None:
    raise Mute


def _shy() -> None:
    raise Shy


def _hidden() -> None:
    try:
        raise Shy
    except Shy as error:
        raise ValueError("on purpose") from error


def _odd_object() -> None:
    """It says that something has no attribute of which nothing can be read."""
    try:
        raise Shy
    except Shy as error:
        raise AttributeError("on purpose", name="x", obj=error) from None


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize(
    ("fail", "reason"),
    [
        (_mute, "FlowError: Mute, which cannot be shown: its own code raised RuntimeError"),
        (_shy, "FlowError: Shy, which cannot be shown: its own code raised KeyError"),
        (_misnoted, "FlowError: Misnoted, which cannot be shown: its own code raised TypeError"),
        (_nameless, "FlowError: Nameless, which cannot be shown: its own code raised RuntimeError"),
        (_unlike, "Unlike: on purpose"),
        (_hidden, "ValueError: on purpose"),
        (_odd_object, "AttributeError: on purpose"),
    ],
)
def test_an_error_that_cannot_be_shown_costs_its_event(
    fail: Callable[[], None], reason: str, workers: int, caplog: pytest.LogCaptureFixture
) -> None:
    handled: list[int] = []

    def handler(event: Any) -> None:
        if event.n < 3:
            fail()
        handled.append(event.n)

    graph = ev.Graph("g")
    graph.source("in", Number) >> ev.Terminal(
        handler, name="end", workers=workers, key="n" if workers else None
    )
    with graph.run() as flow:
        flow["in"].submit_batch({"n": range(6)})
        flow.drain(20)
        letters = flow.dead_letters()
        assert [letter.reason for letter in letters] == [reason] * 3
        assert sorted(letter.event.n for letter in letters) == [0, 1, 2]
        flow["in"].submit(Number(6))
        flow.drain(20)
    assert sorted(handled) == [3, 4, 5, 6]
    assert fail.__name__ in caplog.text


@pytest.mark.parametrize(
    ("error", "told"), [(SystemExit, "SystemExit"), (ValueError, "ValueError"), (Shy, "FlowError: Shy")]
)
def test_a_stone_that_cannot_be_opened_is_named(
    error: type[BaseException], told: str, monkeypatch: Patch
) -> None:
    def fail(self: Hostile, context: Context) -> Actor:
        raise error

    monkeypatch.setattr(Hostile, "open", fail)
    graph = ev.Graph("g")
    stone = graph.link(graph.source("numbers", Number), graph.add(Hostile("nowhere", error)))
    graph.link(stone, graph.add(ev.Terminal(print)))
    with pytest.raises(FlowError, match=rf"stone 'hostile' \(hostile\) cannot be opened: {told}"):
        graph.run()
