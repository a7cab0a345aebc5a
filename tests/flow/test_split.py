"""One batch to many handlers: each gets every event, whole and in order, whatever the others do."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import evflow as ev
from evflow.errors import FlowError

Handlers = dict[str, Callable[[Any], object]]


class Number(ev.Event):
    n: int


class Note(ev.Event):
    first: str
    second: str
    numbers: ev.Array[ev.f64, 3]
    marks: list[int]
    last: str


def _note(n: int) -> Note:
    numbers = np.arange(n, n + 3, dtype=np.float64)
    return Note("a" * (n % 7), f"second {n}", numbers, [n] * (n % 4), f"last {n}")


def _flow(handlers: Handlers, event: type[ev.Event] = Number, **settings: Any) -> ev.Flow:
    """A running flow from the source ``in`` to a split to these handlers, each at a terminal of its name."""
    g = ev.Graph()
    fan = g.source("in", event) >> ev.Split(name="fan")
    for name, handler in handlers.items():
        fan >> ev.Terminal(handler, name=name)
    return g.run(**settings)


def _submit(flow: ev.Flow, count: int, *, together: bool) -> None:
    if together:
        flow["in"].submit_batch({"n": np.arange(count)})
    else:
        for n in range(count):
            flow["in"].submit(Number(n))


@pytest.mark.parametrize("together", [True, False], ids=["a batch", "one by one"])
@pytest.mark.parametrize("count", [1, 2, 15, 16, 17, 5000, pytest.param(100_000, marks=pytest.mark.slow)])
def test_each_of_many_handlers_gets_every_event_in_order(count: int, together: bool) -> None:
    """With batches beyond any number of events that is handled at a time, too."""
    seen: list[list[int]] = [[] for _ in range(5)]
    handlers: Handlers = {
        f"t{i}": lambda event, own=own: own.append(event.n)  # type: ignore[misc]
        for i, own in enumerate(seen)
    }
    with _flow(handlers) as flow:
        _submit(flow, count, together=together)
        flow.drain(timeout=60)
        stats = {name: flow.stats()[name] for name in handlers}
    assert seen == [list(range(count))] * 5
    assert [(stat["in"], stat["errors"]) for stat in stats.values()] == [(count, 0)] * 5


def test_a_handler_that_raises_costs_its_own_events_only() -> None:
    """Two of four raise for some events; each of these is a dead letter of that handler, no other is."""
    left: list[int] = []
    right: list[int] = []

    def refuse(divisor: int) -> Callable[[Any], None]:
        def handler(event: Any) -> None:
            if event.n % divisor == 0:
                raise ValueError(f"{event.n} of {divisor}")

        return handler

    handlers = {"left": lambda event: left.append(event.n), "threes": refuse(3), "sevens": refuse(7)}
    with _flow({**handlers, "right": lambda event: right.append(event.n)}) as flow:
        _submit(flow, 1000, together=True)
        flow.drain(timeout=60)
        counts = {name: (stat["in"], stat["errors"]) for name, stat in flow.stats().items()}
        letters = [(letter.stone, letter.event.n, str(letter.error)) for letter in flow.dead_letters()]
    assert left == right == list(range(1000))
    assert counts["threes"] == (1000, 334)
    assert counts["sevens"] == (1000, 143)
    assert counts["left"] == counts["right"] == (1000, 0)
    for name, divisor in [("threes", 3), ("sevens", 7)]:
        own = [(n, text) for stone, n, text in letters if stone == name]
        assert own == [(n, f"{n} of {divisor}") for n in range(0, 1000, divisor)]
    assert len(letters) == 334 + 143


def test_what_is_done_to_an_event_that_one_handler_got_is_not_seen_by_another() -> None:
    """A handler cannot change its event; the copies that it makes of it are its own, attributes too."""
    refused: list[type[Exception]] = []
    seen: list[tuple[Note, dict[str, Any]]] = []

    def spoil(event: Any) -> None:
        for change in (
            lambda: setattr(event, "first", "x"),
            lambda: delattr(event, "last"),
            lambda: setattr(event, "other", 1),
            lambda: event.numbers.__setitem__(0, -1.0),
            lambda: event.marks.__setitem__(0, -1),
        ):
            try:
                change()
            except (AttributeError, ValueError, TypeError) as error:
                refused.append(type(error))
        event.attrs["via"] = "elsewhere"
        event.to_dict()["numbers"][:] = -1
        own = event.to_event()
        own.first, own.marks = "x", [-1]

    with _flow(
        {"spoil": spoil, "see": lambda event: seen.append((event.to_event(), event.attrs))}, Note
    ) as flow:
        for n in range(40):
            flow["in"].submit(_note(n), attrs={"via": f"road {n}"})
        flow.drain(timeout=60)
        assert not flow.dead_letters()
    assert len(refused) == 5 * 40
    assert seen == [(_note(n), {"via": f"road {n}"}) for n in range(40)]


def test_events_that_handlers_keep_stay_what_they_were() -> None:
    """Two keep all they get, others some or none; many batches come meanwhile."""
    left: list[Any] = []
    right: list[Any] = []
    some: list[Any] = []
    handlers: Handlers = {
        "left": left.append,
        "none": lambda event: event.last,
        "some": lambda event: some.append(event) if event.second.endswith("5") else None,
        "right": right.append,
    }
    with _flow(handlers, Note) as flow:
        for start in range(0, 1000, 50):
            flow["in"].submit_batch([_note(n) for n in range(start, start + 50)])
            flow.drain(timeout=60)
    expected = [_note(n) for n in range(1000)]
    assert left == expected
    assert right == expected
    assert some == [event for event in expected if event.second.endswith("5")]


def test_batches_beside_single_events() -> None:
    """Handlers of batches, of single events, with workers, and of bytes, behind one split."""
    batches: list[Any] = []
    singles: list[list[int]] = [[], [], []]
    worked: list[int] = []
    raw: list[bytes] = []
    g = ev.Graph()
    fan = g.source("in", Number) >> ev.Split()
    fan >> ev.Terminal(lambda event: singles[0].append(event.n))
    fan >> ev.Terminal(batches.append, batch=True)
    fan >> ev.Terminal(lambda event: singles[1].append(event.n))
    fan >> ev.Terminal(lambda event: worked.append(event.n), workers=1)
    fan >> ev.Terminal(raw=lambda data, schema: raw.append(data))
    fan >> ev.Terminal(lambda event: singles[2].append(event.n))
    with g.run() as flow:
        flow["in"].submit_batch({"n": np.arange(3000)})
        flow.drain(timeout=60)
    assert singles == [list(range(3000))] * 3
    assert worked == list(range(3000))
    assert [event.n for batch in batches for event in batch] == list(range(3000))
    assert len(batches) == 1
    whole = ev.EventBatch.from_columns(Number, {"n": np.arange(3000)}).to_bytes()
    assert b"".join(raw) == whole


def test_only_what_leads_to_the_same_handlers_is_the_same() -> None:
    """Behind a filter, and behind a transform that makes others, handlers get their own events."""
    seen: dict[str, list[int]] = {
        name: [] for name in ("all 1", "even 1", "even 2", "ten 1", "ten 2", "all 2")
    }

    def to(name: str) -> ev.Terminal:
        return ev.Terminal(lambda event: seen[name].append(event.n), name=name)

    g = ev.Graph()
    source = g.source("in", Number)
    even = ev.Filter("return input.n % 2 == 0;")
    ten = ev.Transform("output.n = input.n * 10; return 1;", output=Number)
    source >> to("all 1")
    for name, stone in [("even", even), ("ten", ten)]:
        behind = source >> stone
        behind >> to(f"{name} 1")
        behind >> to(f"{name} 2")
    source >> to("all 2")
    with g.run() as flow:
        flow["in"].submit_batch({"n": np.arange(500)})
        flow.drain(timeout=60)
    assert seen["all 1"] == seen["all 2"] == list(range(500))
    assert seen["even 1"] == seen["even 2"] == list(range(0, 500, 2))
    assert seen["ten 1"] == seen["ten 2"] == list(range(0, 5000, 10))


def test_handlers_that_submit_between_the_others() -> None:
    """What one of three submits, to another split, is handled meanwhile; none is lost or doubled."""
    seen: dict[str, list[int]] = {name: [] for name in ("left", "right", "on left", "on right")}
    flows: list[ev.Flow] = []
    g = ev.Graph()
    fan = g.source("in", Number) >> ev.Split()
    fan >> ev.Terminal(lambda event: seen["left"].append(event.n))
    fan >> ev.Terminal(lambda event: flows[0]["on"].submit_batch({"n": np.full(50, event.n)}))
    fan >> ev.Terminal(lambda event: seen["right"].append(event.n))
    on = g.source("on", Number) >> ev.Split()
    on >> ev.Terminal(lambda event: seen["on left"].append(event.n))
    on >> ev.Terminal(lambda event: seen["on right"].append(event.n))
    with g.run() as flow:
        flows.append(flow)
        flow["in"].submit_batch({"n": np.arange(2000)})
        flow.drain(timeout=60)
        flows.clear()
    assert seen["left"] == seen["right"] == list(range(2000))
    assert seen["on left"] == seen["on right"] == [n for n in range(2000) for _ in range(50)]


def _read(event: Any) -> tuple[Any, ...]:
    return event.last, event.first, event.second, event.numbers.tolist(), list(event.marks)


def _read_amid(event: Any, field: str, at: int) -> list[Any]:
    """What is read of an event, and of one of its fields by another after so many steps of the first."""
    steps, found = 0, []

    def trace(*_: object) -> Any:
        nonlocal steps
        steps += 1
        if steps == at:
            found.append(getattr(event, field))
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        whole = _read(event)
    finally:
        sys.settrace(before)
    return [whole, *found]


@pytest.mark.parametrize("field", ["second", "last"])
def test_an_event_that_two_threads_read_at_once_reads_right_in_both(field: str) -> None:
    """Wherever one thread stops within a read, and another reads the event meanwhile."""
    kept: list[Any] = []
    with _flow({"keep": kept.append, "other": lambda event: None}, Note) as flow:
        for _ in range(200):
            flow["in"].submit(_note(6))
        flow.drain(timeout=60)
    own = _note(6)
    found = [_read_amid(event, field, at) for at, event in enumerate(kept)]
    assert [_read(own), getattr(own, field)] in found
    assert all(reads in ([_read(own), getattr(own, field)], [_read(own)]) for reads in found)
    assert [_read(event) for event in kept] == [_read(own)] * 200


def test_the_first_failure_of_many_handlers_is_raised_where_that_is_asked_for() -> None:
    """With ``on_error="raise"`` the others still get the event."""
    seen: list[int] = []

    def fail(event: Any) -> None:
        raise ValueError(f"number {event.n}")

    flow = _flow({"one": fail, "two": lambda event: seen.append(event.n), "three": fail}, on_error="raise")
    _submit(flow, 3, together=True)
    with pytest.raises(FlowError, match="number 0"):
        flow.close()
    assert seen == [0, 1, 2]
