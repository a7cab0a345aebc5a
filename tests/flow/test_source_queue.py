"""What threads submit and the engine's thread takes."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import evflow as ev
from evflow.codgen.objects import append_bytes, append_event
from evflow.engine.topology import Slot
from evflow.events.attributes import row_of
from evflow.events.encode import encoder
from evflow.flow import submit_buffer
from evflow.flow.source_queue import Marks, SourceQueue
from evflow.stones.source import Source
from tests.examples import tried


class Rec(ev.Event):
    number: int


class Note(ev.Event):
    number: int
    text: str = "a note"


MANY = 1_000_000


def opened(kind: type[ev.Event], max_events: int = MANY, max_bytes: int = MANY) -> tuple[SourceQueue, Any]:
    """A source queue and the function that writes small events to its submit buffer."""
    queue = SourceQueue(Slot("recs", Source()), max_events, max_bytes)
    queue.begin(kind.schema, 0, lambda length: None)
    own = append_event(kind.schema, queue.buffer.words)
    append = append_bytes(queue.buffer.words, varying=kind.schema.width is None)
    assert append is not None
    return queue, own or (lambda event: append(encoder(kind.schema)(event)))


def numbers(queue: SourceQueue) -> list[int]:
    return [event.number for batch in queue.take() for event in batch]


@settings(deadline=None, max_examples=tried(25))
@given(
    st.sampled_from([Rec, Note]),
    st.lists(
        st.tuples(st.sampled_from("small small event batch take".split()), st.integers(1, 6000)), max_size=12
    ),
)
def test_a_queue_gives_in_order_what_went_in(kind: type[ev.Event], steps: list[tuple[str, int]]) -> None:
    """Small events, single ones and batches come out as they went in, whatever fills up meanwhile."""
    queue, append = opened(kind)
    given_, taken, number = [], [], 0
    for step, count in steps:
        if step == "take":
            taken += numbers(queue)
            continue
        many = range(number, number + (count if step != "event" else 1))
        number = many.stop
        given_ += many
        events = [kind(i) for i in many]  # type: ignore[call-arg]
        if step == "batch":
            queue.put(ev.EventBatch.from_events(events))
        for event in [] if step == "batch" else events:
            # What finds no room goes the long way, which makes room for what follows.
            if step == "event" or not append(event):
                queue.put((kind.schema, encoder(kind.schema)(event), None))
    assert queue.waiting == (len(given_) > len(taken))
    assert taken + numbers(queue) == given_
    assert not queue.waiting


_ATTRIBUTES = st.dictionaries(
    st.sampled_from("kl"), st.one_of(st.integers(0, 9), st.floats(0, 9), st.text(max_size=3)), max_size=2
)


@settings(deadline=None, max_examples=tried(25))
@given(st.lists(_ATTRIBUTES, max_size=40))
def test_events_keep_their_attributes_whatever_events_wait_beside_them(rows: list[dict[str, Any]]) -> None:
    """Also where a name is text in one event and a number in the next."""
    queue, _ = opened(Rec)
    for number, row in enumerate(rows):
        queue.put((Rec.schema, encoder(Rec.schema)(Rec(number)), row_of(row) if row else None))
    batches = list(queue.take())
    assert [(event.number, event.attrs) for batch in batches for event in batch] == list(enumerate(rows))
    kinds = [[(name, type(value)) for name, value in row.items()] for row in rows]
    assert len(batches) == sum(kind != before for kind, before in zip(kinds, [None, *kinds], strict=False))


@pytest.mark.parametrize(("max_events", "max_bytes"), [(10, MANY), (MANY, 200)])
def test_a_source_queue_takes_no_more_small_events_than_may_wait(max_events: int, max_bytes: int) -> None:
    queue, append = opened(Rec, max_events, max_bytes)
    width = Rec.schema.width or 0
    for _ in range(3):
        while not queue.full:
            if not append(Rec(1)):
                queue.put((Rec.schema, encoder(Rec.schema)(Rec(1)), None))
        assert len(numbers(queue)) == min(max_events, max_bytes // width)
        assert not queue.full


def test_batches_in_between_give_small_events_no_more_room() -> None:
    queue, append = opened(Rec, 10)
    small = 0
    for _ in range(5):
        while append(Rec(1)):
            small += 1
        queue.put(ev.EventBatch.from_events([Rec(2), Rec(3)]))
    assert small == 10 and len(numbers(queue)) == 20


def test_batches_of_two_schemas_stay_two_though_they_lie_side_by_side() -> None:
    class Other(ev.Event):
        key: int

    one, other = ev.EventBatch.from_events([Rec(1)]), ev.EventBatch.from_events([Other(2)])
    data = np.frombuffer(one.to_bytes() + other.to_bytes(), np.uint8)
    queue, _ = opened(Rec)
    for schema, part in ((Rec.schema, data[: one.size]), (Other.schema, data[one.size :])):
        queue.put(ev.EventBatch.from_bytes(schema, part, 1))
    assert [batch.schema for batch in queue.take()] == [Rec.schema, Other.schema]


def test_no_more_events_of_varying_width_lie_together_than_ends_are_noted() -> None:
    queue, append = opened(Note, 10 * MANY, 10 * MANY)
    count = 0
    while count < 100_000 and append(Note(count, "")):
        count += 1
    assert count == submit_buffer._MARKS
    assert numbers(queue) == list(range(count))


def test_a_source_queue_that_is_sealed_before_it_has_begun_takes_nothing() -> None:
    queue = SourceQueue(Slot("recs", Source()), 10, 1000)
    queue.seal()
    queue.begin(Rec.schema, 0, lambda length: None)
    append = append_event(Rec.schema, queue.buffer.words)
    assert append is not None
    assert not append(Rec(1))
    assert not queue.waiting


def test_batches_of_a_source_queue_stay_as_they_are_while_more_comes() -> None:
    """What was taken lies where it was written; what is written later does not touch it."""
    queue, append = opened(Rec)
    batches = []
    number = 0
    for _ in range(200):
        for _ in range(997):
            if not append(Rec(number)):
                queue.put((Rec.schema, encoder(Rec.schema)(Rec(number)), None))
            number += 1
        batches += list(queue.take())
    assert [n for batch in batches for n in batch["number"].tolist()] == list(range(number))


@pytest.mark.parametrize("kinds", [[Rec], [Note], [Rec, Note], [Note, Rec], [Rec, Rec, Rec, Rec, Note]])
def test_a_source_gives_in_order_what_is_submitted_on_every_way(kinds: list[type[ev.Event]]) -> None:
    """Many events of one class take a short way in; others, and batches between them, do not overtake."""
    seen: list[int] = []
    g = ev.Graph()
    g.source("events") >> ev.Terminal(lambda event: seen.append(event.number))
    with g.run() as flow:
        for number in range(4000):
            event = kinds[number % len(kinds)](number)  # type: ignore[call-arg]
            if number % 1009 == 1008:
                flow["events"].submit_batch([event])
            elif number % 1013 == 1012:
                flow["events"].submit(event, attrs={"hops": 1})
            else:
                flow["events"].submit(event)
    assert seen == list(range(4000))


@pytest.mark.parametrize("first", ["outside", "handler"])
def test_an_event_with_large_attributes_goes_alone(first: str) -> None:
    """It may be too large to be sent, and that costs no other event."""
    sizes: list[int] = []
    taken = threading.Event()

    def give(_: Any = None) -> None:
        for text in ("a", "x" * 100_000, "b", "c"):
            flow["second"].submit(Rec(1), attrs={"k": text})

    g = ev.Graph()
    g.source("first", Rec) >> ev.Terminal(lambda event: give() if first == "handler" else taken.wait(20))
    g.source("second", Rec) >> ev.Terminal(lambda batch: sizes.append(len(batch)), batch=True)
    with g.run() as flow:
        flow["first"].submit(Rec(1))
        if first == "outside":
            give()
        taken.set()
    assert sizes == [1, 1, 2]


@pytest.mark.parametrize("kind", [Rec, Note])
def test_what_handlers_submit_arrives_in_order_however_much_it_is(kind: type[ev.Event]) -> None:
    seen: list[int] = []
    g = ev.Graph()
    g.source("first", Rec) >> ev.Terminal(lambda event: flow["second"].submit(kind(event.number)))  # type: ignore[call-arg]
    g.source("second", kind) >> ev.Terminal(lambda event: seen.append(event.number))
    with g.run() as flow:
        for number in range(3000):
            flow["first"].submit(Rec(number))
    assert seen == list(range(3000))


# --- who waits until what was submitted has been run


@pytest.fixture
def queue() -> SourceQueue:
    return SourceQueue(Slot("source", Source()), 10, 1 << 20)


def _put(queue: SourceQueue) -> None:
    queue.put(ev.EventBatch.from_events([Rec(1)]))


def _marked(queue: SourceQueue) -> Marks:
    marks = Marks()
    marks.mark([queue])
    return marks


def test_a_drain_of_nothing_is_done(queue: SourceQueue) -> None:
    assert _marked(queue).done


def test_a_drain_waits_for_what_waits_and_no_longer(queue: SourceQueue) -> None:
    """Nothing more need come for it to end, and what comes later is not waited for."""
    _put(queue)
    _put(queue)
    drain = _marked(queue)
    _put(queue)
    assert not drain.done
    next(queue.take())
    assert not drain.done
    next(queue.take())
    assert drain.done


def test_a_drain_waits_for_what_is_in_the_submit_buffer() -> None:
    queue, append = opened(Rec)
    assert append(Rec(1))
    drain = _marked(queue)
    assert not drain.done
    assert numbers(queue) == [1]
    assert drain.done
