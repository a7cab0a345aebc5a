"""Congestion handlers, against plain lists of events."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import evflow as ev
from evflow.engine.host import NETWORK, system_values, use_network
from evflow.errors import CodeError, GraphError, LinkError
from evflow.events.attributes import Attributes
from evflow.events.batch import EventBatch
from evflow.net.link.congestion import Congestion, compiled_handler, python_handler, relieve
from evflow.net.link.waiting import Entry, Waiting
from evflow.schema import Schema
from evflow.schema.types import TEXT, f64, i64
from tests.codgen.compiling import compile
from tests.examples import tried

some = settings(deadline=None, max_examples=tried(20))

A = Schema("A", {"n": i64})
B = Schema("B", {"n": i64, "text": TEXT})
OTHER = Schema("other", {"n": i64, "m": i64})
SUM = Schema("sum", {"n": i64, "count": i64})
STATE = Schema("state", dict.fromkeys((*NETWORK, "cores"), f64))

Event = tuple[str, int, dict[str, Any]]
"""An event in the model: schema, number and attributes."""


def batch_of(schema: Schema, *numbers: int, marked: bool = False) -> EventBatch:
    columns = {
        "n": list(numbers), "m": [0] * len(numbers), "count": [0] * len(numbers),
        "text": ["t" * (number % 5) for number in numbers],
    }  # fmt: skip
    attributes = Attributes.from_rows([{"mark": -number} for number in numbers]) if marked else None
    return EventBatch.from_columns(schema, columns, attributes)


def waiting_of(*batches: EventBatch) -> Waiting:
    waiting = Waiting()
    for ticket, batch in enumerate(batches, 1):
        waiting.append(Entry(batch, ticket, f"tag {ticket}"))
    return waiting


def events_of(batches: list[EventBatch]) -> list[Event]:
    found = []
    for batch in batches:
        for place, number in enumerate(batch["n"].tolist()):
            attributes = {} if batch.attributes is None else batch.attributes.of(place)
            if "text" in batch.schema:
                assert batch[place].text == "t" * (number % 5)
            found.append((batch.schema.name, number, attributes))
    return found


def events_in(waiting: Waiting) -> list[Event]:
    return events_of([entry.batch for entry in waiting])


def books(waiting: Waiting) -> list[tuple[int, Any]]:
    return [(entry.low, entry.tag) for entry in waiting]


def numbered(schema: Schema, *numbers: int) -> list[Event]:
    return [(schema.name, number, {}) for number in numbers]


def relieved(waiting: Waiting, handler: Any, **measured: Any) -> int:
    fewer, error = relieve(waiting, handler, Congestion(**measured))
    assert error is None
    return fewer


# Python handlers


def test_python_handler_sees_what_waits_and_what_was_measured() -> None:
    seen: list[Congestion] = []
    waiting = waiting_of(batch_of(A, 1, 2), batch_of(B, 3))
    batches = [entry.batch for entry in waiting]
    assert relieved(waiting, python_handler(seen.append), bandwidth=5e6, round_trip=0.25, link="out") == 0
    (congestion,) = seen
    assert [a is b for a, b in zip(congestion.waiting, batches, strict=True)] == [True, True]
    assert (congestion.bandwidth, congestion.round_trip, congestion.link) == (5e6, 0.25, "out")
    assert congestion.queued_events == 3
    assert congestion.queued_bytes == sum(len(batch.to_bytes()) for batch in batches)


@pytest.mark.parametrize(
    ("change", "expected", "fewer"),
    [
        (lambda w: w[1:], [*numbered(B, 4), *numbered(A, 5)], 3),
        (lambda w: [w[2], w[0]], [*numbered(A, 5), *numbered(A, 1, 2, 3)], 1),
        (lambda w: [EventBatch.concat([w[0], w[2]])], numbered(A, 1, 2, 3, 5), 1),
        (lambda w: (b.take([0]) for b in w), [*numbered(A, 1), *numbered(B, 4), *numbered(A, 5)], 2),
        (lambda w: [b.select(np.array([0])) for b in w[:1]], numbered(A, 1), 4),
        (lambda w: [*w, batch_of(SUM, 9)], [*numbered(A, 1, 2, 3), *numbered(B, 4), *numbered(A, 5),
                                            *numbered(SUM, 9)], -1),
        (lambda w: [w[0].slice(0, 0), w[1]], numbered(B, 4), 4),
        (lambda w: [], [], 5),
    ],
    ids=["drop", "re-order", "merge", "thin", "select", "make", "empty batch", "drop all"],
)  # fmt: skip
def test_python_handler_changes_what_waits(
    change: Callable[[list[EventBatch]], Any], expected: list[Event], fewer: int
) -> None:
    waiting = waiting_of(batch_of(A, 1, 2, 3), batch_of(B, 4), batch_of(A, 5))
    waiting.popleft()
    waiting.appendleft(Entry(batch_of(A, 1, 2, 3), 7, "tag"))
    assert relieved(waiting, python_handler(lambda c: change(c.waiting))) == fewer
    assert events_in(waiting) == expected
    assert set(books(waiting)) <= {(7, None)}
    assert waiting.events == len(expected)
    assert waiting.bytes == sum(len(entry.batch.to_bytes()) for entry in waiting)


@pytest.mark.parametrize("change", [lambda c: None, lambda c: c.waiting, lambda c: tuple(c.waiting)])
def test_handler_that_changes_nothing_leaves_the_books(change: Callable[[Congestion], Any]) -> None:
    waiting = waiting_of(batch_of(A, 1, 2), batch_of(B, 3))
    assert relieved(waiting, python_handler(change)) == 0
    assert books(waiting) == [(1, "tag 1"), (2, "tag 2")]
    assert events_in(waiting) == [*numbered(A, 1, 2), *numbered(B, 3)]


def test_clearing_the_list_alone_changes_nothing() -> None:
    waiting = waiting_of(batch_of(A, 1))
    assert relieved(waiting, python_handler(lambda c: c.waiting.clear())) == 0
    assert events_in(waiting) == numbered(A, 1)


def raising(error: BaseException) -> Callable[[Congestion], Any]:
    def handle(congestion: Congestion) -> Iterator[EventBatch]:
        yield congestion.waiting[0]
        raise error

    return handle


def askew(congestion: Congestion) -> list[EventBatch]:
    batch, attributes = congestion.waiting[0], Attributes.constant({"a": 1}, 7)
    return [EventBatch(batch.schema, batch.data, batch.rows, batch.offsets, batch.selection, attributes)]


def beyond(congestion: Congestion) -> list[EventBatch]:
    batch = congestion.waiting[0]
    selection = np.array([0, 99], np.int32)
    return [EventBatch(batch.schema, batch.data, batch.rows, batch.offsets, selection)]


@pytest.mark.parametrize(
    ("handler", "kind", "message"),
    [
        (raising(ValueError("no")), ValueError, "no"),
        (raising(SystemExit(3)), SystemExit, "3"),
        (lambda c: 1 / 0, ZeroDivisionError, "division"),
        (
            lambda c: 7,
            LinkError,
            r"bridge out: its congestion handler returned 7 \(int\): expected the batches",
        ),
        (lambda c: c.waiting[0], LinkError, "returned EventBatch"),
        (lambda c: [*c.waiting, None], LinkError, "returned None"),
        (lambda c: "text", LinkError, "returned 't'"),
        (lambda c: [list(c.waiting[0])], LinkError, "list of EventBatch"),
        (askew, LinkError, "2 events with attributes of another number of events"),
        (beyond, IndexError, "99"),
    ],
)
def test_wrong_python_handler_costs_nothing(
    handler: Callable[[Congestion], Any], kind: type[BaseException], message: str
) -> None:
    waiting = waiting_of(batch_of(A, 1, 2), batch_of(B, 3))
    before = waiting.bytes
    fewer, error = relieve(waiting, python_handler(handler), Congestion(link="out"))
    assert fewer == 0
    with pytest.raises(kind, match=message):
        raise error or AssertionError("nothing was raised")
    assert events_in(waiting) == [*numbered(A, 1, 2), *numbered(B, 3)]
    assert books(waiting) == [(1, "tag 1"), (2, "tag 2")]
    assert (waiting.bytes, waiting.events) == (before, 3)


def test_handler_that_cannot_be_called_is_refused() -> None:
    wrong: Any = "peaks"
    with pytest.raises(GraphError, match="congestion handler 'peaks'"):
        python_handler(wrong)


def test_handler_is_called_again_when_enough_is_new() -> None:
    calls = 0

    def count(congestion: Congestion) -> None:
        nonlocal calls
        calls += 1

    waiting, handler = Waiting(), python_handler(count)
    assert relieved(waiting, handler) == 0
    assert calls == 0
    for number in range(1, 17):
        waiting.append(Entry(batch_of(A, number), number))
        for _ in range(2):
            relieved(waiting, handler)
        assert calls == number
    waiting.append(Entry(batch_of(A, *range(64)), 17))
    relieved(waiting, handler)
    assert calls == 17
    for number in range(5):
        waiting.append(Entry(batch_of(A, number), 18 + number))
        relieved(waiting, handler)
    assert calls == 17
    waiting.append(Entry(batch_of(A, 9), 24))
    relieved(waiting, handler)
    assert calls == 18


# compiled handlers

KEEP_EVEN = """{
    int i;
    for (i = count(a) - 1; i >= 0; i--)
        if (a[i].n % 2 != 0) discard(a, i);
}"""

SUM_UP = """{
    int i;
    while (count(a) > 0) { total.n += a[0].n; total.count += 1; discard(a, 0); }
    if (total.count > 0) submit(0, total);
    for (i = count(b) - 1; i >= 0; i--)
        if (b[i].n > 500) { submit(0, b[i]); discard(b, i); }
}"""


def kept_even(events: list[Event]) -> list[Event]:
    return [e for e in events if e[0] != "A" or e[1] % 2 == 0]


def summed_up(events: list[Event]) -> list[Event]:
    known = ("A", "B")
    if not any(e[0] in known for e in events):
        return events
    lead = next(n for n, e in enumerate(events) if e[0] in known)
    numbers = [e[1] for e in events if e[0] == "A"]
    last = [e for e in events if e[0] in known][-1]
    total: list[Event] = [("sum", sum(numbers), last[2])] if numbers else []
    large = [e for e in reversed(events) if e[0] == "B" and e[1] > 500]
    rest = [e for e in events[lead:] if e[0] == "other" or (e[0] == "B" and e[1] <= 500)]
    return [*events[:lead], *total, *large, *rest]


@st.composite
def batches(draw: st.DrawFn) -> EventBatch:
    schema = draw(st.sampled_from([A, B, OTHER]))
    numbers = draw(st.lists(st.integers(0, 1000), max_size=5))
    return batch_of(schema, *numbers, marked=draw(st.booleans()))


COMPILED = {
    "keep even": (compiled_handler(KEEP_EVEN, {"a": A}), kept_even),
    "sum up": (compiled_handler(SUM_UP, {"a": A, "b": B}, {"total": SUM}), summed_up),
}


@pytest.mark.parametrize("name", sorted(COMPILED))
@some
@given(given=st.lists(batches(), max_size=6))
def test_compiled_handler_does_what_its_model_does(name: str, given: list[EventBatch]) -> None:
    handler, model = COMPILED[name]
    waiting = waiting_of(*given)
    before, had = events_in(waiting), books(waiting)
    expected = model(before)
    assert relieved(waiting, handler) == len(before) - len(expected)
    assert events_in(waiting) == expected
    sent = name == "sum up" and any(kind == "A" or (kind == "B" and n > 500) for kind, n, _ in before)
    if sent or expected != before:
        assert set(books(waiting)) <= {(had[0][0], None)}
    else:
        assert books(waiting) == had


def test_compiled_handler_may_be_python() -> None:
    def latest(a: Any, b: Any) -> None:
        while count(a) > 1:  # type: ignore[name-defined]  # noqa: F821
            discard(a, 0)  # type: ignore[name-defined]  # noqa: F821

    waiting = waiting_of(batch_of(A, 1, 2, 3), batch_of(B, 4), batch_of(A, 5, 6))
    assert relieved(waiting, compiled_handler(latest, {"a": A, "b": B})) == 4
    assert events_in(waiting) == [*numbered(B, 4), *numbered(A, 6)]


def test_compiled_handler_reads_the_state_of_its_link() -> None:
    code = "{" + "".join(f"s.{name} = {name}();" for name in (*NETWORK, "cores")) + "submit(0, s); }"
    waiting = waiting_of(batch_of(A, 1, 2), batch_of(OTHER, 3))
    size = waiting.bytes
    handler = compiled_handler(code, {"a": A}, {"s": STATE})
    assert relieved(waiting, handler, bandwidth=1e6, round_trip=0.5) == -1
    state: Any = next(entry.batch for entry in waiting if entry.batch.schema == STATE)[0]
    assert (state.bandwidth, state.round_trip, state.queued_bytes, state.queued_events) == (1e6, 0.5, size, 3)
    assert state.cores >= 1


def test_compiled_handler_may_set_attributes_and_keeps_static_variables() -> None:
    code = """{
        static int calls;
        calls = calls + 1;
        set_int_attr(event_attrs, "calls", calls);
        submit(0, a[0]);
        discard(a, 0);
    }"""
    handler = compiled_handler(code, {"a": A})
    for call in (1, 2):
        waiting = waiting_of(batch_of(A, 5, 6, marked=True))
        assert relieved(waiting, handler) == 0
        assert events_in(waiting) == [("A", 5, {"mark": -5, "calls": call}), ("A", 6, {"mark": -6})]
        assert books(waiting) == [(1, None)] * 2


def test_queued_event_that_is_submitted_and_kept_waits_twice() -> None:
    waiting = waiting_of(batch_of(A, 1, 2))
    assert relieved(waiting, compiled_handler("{ submit(0, a[1]); }", {"a": A})) == -1
    assert events_in(waiting) == numbered(A, 2, 1, 2)


@pytest.mark.parametrize(
    ("code", "message"),
    [
        ("{ discard(a, 0); submit(0, a[0]); a[0].n / (count(a) - 2); }", "integer division by zero .line 1."),
        ("{ discard(a, 0); while (1) ; }", "out of fuel: .* 1,000 units"),
        ("{ discard(a, 0); discard(a, 7); }", "index 7 is out of range: a has 2 elements"),
        ("{ discard(a, 0); submit(1, a[0]); }", "submitted to port 1: expected port 0"),
    ],
)
def test_faulty_compiled_handler_costs_nothing(code: str, message: str) -> None:
    waiting = waiting_of(batch_of(A, 1, 2), batch_of(A, 3))
    fewer, error = relieve(waiting, compiled_handler(code, {"a": A}, fuel=1000), Congestion(link="out"))
    assert fewer == 0
    with pytest.raises(LinkError, match=f"bridge out: its congestion handler:? .*{message}"):
        raise error or AssertionError("nothing was raised")
    assert events_in(waiting) == numbered(A, 1, 2, 3)
    assert books(waiting) == [(1, "tag 1"), (2, "tag 2")]


def test_compiled_handler_is_checked_when_it_is_made() -> None:
    with pytest.raises(CodeError, match="has no field 'm'"):
        compiled_handler("{ a[0].m; }", {"a": A})
    with pytest.raises(GraphError, match="found none"):
        compiled_handler("{ }", {})
    with pytest.raises(GraphError, match="a of A, b of A"):
        compiled_handler("{ }", {"a": A, "b": A})


# the network in the functions of stones


def test_functions_of_stones_read_the_network_that_their_thread_was_told() -> None:
    assert system_values(NETWORK) == dict.fromkeys(NETWORK, 0.0)
    found: dict[str, dict[str, float]] = {}

    def drive(node: str, value: float) -> None:
        use_network({name: value + n for n, name in enumerate(NETWORK)}.__getitem__)
        found[node] = system_values(NETWORK)

    threads = [threading.Thread(target=drive, args=case) for case in (("one", 10.0), ("two", 20.0))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [list(found[node].values()) for node in ("one", "two")] == [[10, 11, 12, 13], [20, 21, 22, 23]]
    assert system_values(NETWORK) == dict.fromkeys(NETWORK, 0.0)


def test_filter_reads_the_network() -> None:
    class Ping(ev.Event):
        number: int

    class Told(ev.Event):
        bandwidth: float

    seen: list[float] = []
    g = ev.Graph()
    pings = g.source("pings", Ping)
    pings >> ev.Terminal(lambda event: use_network(lambda name: {"bandwidth": 2e6}.get(name, 0.0)))
    transform = ev.Transform("{ output.bandwidth = bandwidth(); return 1; }", output=Told)
    pings >> transform >> ev.Terminal(lambda event: seen.append(event.bandwidth))
    with g.run() as flow:
        for number in (1, 2):
            flow["pings"].submit(Ping(number))
            flow.drain()
    assert seen[-1] == 2e6
    told = compile("input.n < queued_bytes() && round_trip() < 0.5", A)
    event = batch_of(A, 10).to_bytes()
    assert [told(event, system={"queued_bytes": value}).result for value in (10.0, 11.0)] == [0, 1]
