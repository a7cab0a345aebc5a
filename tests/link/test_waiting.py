"""What waits at a bridge, and the policies, against a plain list of events."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from evflow.events.attributes import Attributes
from evflow.events.batch import EventBatch
from evflow.events.encode import encode_dict
from evflow.net.link.waiting import POLICIES, Entry, Waiting
from evflow.schema import Schema
from evflow.schema.types import TEXT, i64
from tests.examples import tried

A = Schema("A", {"n": i64})
B = Schema("B", {"n": i64, "text": TEXT})
C = Schema("C", {"n": i64, "m": i64})
SCHEMAS = (A, B, C)

some = settings(deadline=None, max_examples=tried(40))


class Waits(NamedTuple):
    """An event that waits, in the model."""

    schema: str
    number: int
    size: int
    ticket: int
    tag: str | None


class Emission(NamedTuple):
    """Events of one schema: the length of each one's text, and which of them are selected."""

    schema: int
    texts: list[int]
    selected: list[bool]
    attributes: bool


emissions = st.lists(
    st.integers(0, 6).flatmap(
        lambda count: st.builds(
            Emission,
            st.integers(0, 2),
            st.lists(st.integers(0, 40), min_size=count, max_size=count),
            st.lists(st.booleans(), min_size=count, max_size=count) | st.just([True] * count),
            st.booleans(),
        )
    ),
    max_size=8,
)


def emitted(emission: Emission, ticket: int) -> tuple[EventBatch, list[Waits]]:
    """An emission as a batch, and as events of the model; its events are numbered from 100 * ticket."""
    schema = SCHEMAS[emission.schema]
    numbers = [100 * ticket + place for place in range(len(emission.texts))]
    fields = [{"n": n, "m": 0, "text": "x" * t} for n, t in zip(numbers, emission.texts, strict=True)]
    events = [encode_dict(schema, {field.name: f[field.name] for field in schema}) for f in fields]
    attributes = Attributes.from_rows([{"mark": n} for n in numbers]) if emission.attributes else None
    batch = EventBatch.from_encoded(schema, events, attributes)
    if not all(emission.selected):
        batch = batch.select(np.flatnonzero(emission.selected))
    kept = [
        Waits(schema.name, n, len(event), ticket, str(ticket))
        for n, event, selected in zip(numbers, events, emission.selected, strict=True)
        if selected
    ]
    return batch, kept


def waits(waiting: Waiting) -> list[Waits]:
    """What waits, event by event; checks what must hold on the way."""
    found = []
    for entry in waiting:
        batch = entry.batch
        assert len(batch) > 0
        sizes = [len(batch.slice(place, place + 1).to_bytes()) for place in range(len(batch))]
        for place, number in enumerate(batch["n"].tolist()):
            if batch.attributes is not None:
                assert batch.attributes.of(place) == {"mark": number}
            assert entry.tag is None or isinstance(entry.tag, str)
            found.append(Waits(batch.schema.name, number, sizes[place], entry.low, entry.tag))
    assert waiting.bytes == sum(event.size for event in found)
    assert waiting.events == len(found)
    lows = [entry.low for entry in waiting]
    assert lows == sorted(lows)
    return found


def drop_oldest(events: list[Waits], limit: int) -> list[Waits]:
    while events and sum(event.size for event in events) > limit:
        events = events[1:]
    return events


def drop_newest(events: list[Waits], limit: int) -> list[Waits]:
    while events and sum(event.size for event in events) > limit:
        events = events[:-1]
    return events


def keep_latest(events: list[Waits], limit: int) -> list[Waits]:
    return [e for n, e in enumerate(events) if e.schema not in {later.schema for later in events[n + 1 :]}]


def sample(events: list[Waits], limit: int) -> list[Waits]:
    while len(events) > 1 and sum(event.size for event in events) > limit:
        events = events[::2]
    return events


MODELS: dict[str, Callable[[list[Waits], int], list[Waits]]] = {
    "block": lambda events, limit: events,
    "drop oldest": drop_oldest,
    "drop newest": drop_newest,
    "keep latest": keep_latest,
    "sample": sample,
}


def test_every_policy_has_a_model() -> None:
    assert sorted(MODELS) == sorted(POLICIES)


@pytest.mark.parametrize("name", sorted(POLICIES))
@some
@given(data=st.data())
def test_policy_keeps_what_the_model_keeps(name: str, data: st.DataObject) -> None:
    limit = data.draw(st.integers(-5, 400), "limit")
    waiting = Waiting()
    model: list[Waits] = []
    for ticket, emission in enumerate(data.draw(emissions, "emissions"), 1):
        batch, events = emitted(emission, ticket)
        waiting.append(Entry(batch, ticket, str(ticket)))
        before = model + events
        assert waits(waiting) == before
        model = MODELS[name](before, limit)
        assert POLICIES[name](waiting, limit) == len(before) - len(model)
        assert waits(waiting) == model
        one_is_sent: bool = data.draw(st.booleans(), "one is sent")
        if model and one_is_sent:
            entry = waiting.popleft()
            assert [e.number for e in model[: len(entry.batch)]] == entry.batch["n"].tolist()
            assert {e.ticket for e in model[: len(entry.batch)]} == {entry.low}
            model = model[len(entry.batch) :]


@some
@given(emissions)
def test_settled_emissions_have_no_event_that_waits(given: list[Emission]) -> None:
    """Whatever a policy does, the low of the first entry tells exactly which emissions are settled."""
    waiting = Waiting()
    for ticket, emission in enumerate(given, 1):
        waiting.append(Entry(emitted(emission, ticket)[0], ticket))
        POLICIES["sample"](waiting, 200)
        POLICIES["drop oldest"](waiting, 150)
    first = waiting.first
    settled = len(given) if first is None else first.low - 1
    owed = {number // 100 for entry in waiting for number in entry.batch["n"].tolist()}
    assert min(owed, default=len(given) + 1) == settled + 1


def batch_of(*numbers: int) -> EventBatch:
    return EventBatch.from_columns(A, {"n": list(numbers)})


def numbers_in(waiting: Waiting) -> list[list[int]]:
    return [entry.batch["n"].tolist() for entry in waiting]


def test_waiting_gives_back_entries_from_either_end() -> None:
    waiting = Waiting()
    entries = [Entry(batch_of(n), n) for n in (1, 2, 3)]
    for entry in entries:
        waiting.append(entry)
    assert waiting.first is entries[0]
    assert (waiting.popleft(), waiting.pop()) == (entries[0], entries[2])
    waiting.appendleft(entries[0])
    assert numbers_in(waiting) == [[1], [2]]
    assert waiting.bytes == 2 * batch_of(1).nbytes
    assert [waiting.popleft().low for _ in range(2)] == [1, 2]
    assert list(waiting) == []
    assert (waiting.bytes, waiting.events, len(waiting)) == (0, 0, 0)
    with pytest.raises(IndexError):
        waiting.popleft()


def test_most_of_a_batch_may_wait_as_a_selection() -> None:
    waiting = Waiting(whole=True)
    batch = batch_of(*range(10))
    waiting.append(Entry(batch.select(range(0, 10, 2)), 1))
    waiting.append(Entry(batch.select(range(0, 10, 3)), 2))
    waiting.append(Entry(batch.select([]), 3))
    assert numbers_in(waiting) == [[0, 2, 4, 6, 8], [0, 3, 6, 9]]
    # Five of ten hold all ten in memory, four of ten have been copied out.
    assert [len(entry.batch.data) for entry in waiting] == [batch.nbytes, 4 * batch_of(1).nbytes]
    assert (waiting.bytes, waiting.events, waiting.fresh) == (14 * batch_of(1).nbytes, 9, 9)
    first = waiting.popleft()
    waiting.appendleft(Entry(first.batch.slice(1, 5), 1))
    assert waiting.bytes == 11 * batch_of(1).nbytes
    assert [waiting.pop().low, waiting.pop().low] == [2, 1]
    assert (waiting.bytes, waiting.events) == (0, 0)


def test_fresh_counts_events_that_came() -> None:
    waiting = Waiting()
    waiting.append(Entry(batch_of(1, 2), 1))
    waiting.append(Entry(batch_of(), 2))
    waiting.append(Entry(batch_of(3), 3))
    assert waiting.fresh == 3
    waiting.fresh = 0
    waiting.appendleft(waiting.popleft())
    waiting.replace([Entry(batch_of(1), 1)])
    assert waiting.fresh == 0


def test_selected_events_are_copied_out_of_their_buffer() -> None:
    batch = batch_of(*range(1000))
    waiting = Waiting()
    waiting.append(Entry(batch.select(np.array([3, 500])), 1))
    assert waiting.first is not None
    assert len(waiting.first.batch.data) == waiting.bytes == 2 * batch_of(1).nbytes


@pytest.mark.parametrize("name", ["drop newest", "keep latest", "sample"])
def test_thinned_entries_hold_no_more_memory_than_their_events(name: str) -> None:
    waiting = Waiting()
    waiting.append(Entry(batch_of(*range(1000)), 1))
    POLICIES[name](waiting, 100)
    assert waiting.first is not None
    held: Any = waiting.first.batch.data
    while isinstance(held.base, np.ndarray):
        held = held.base
    assert held.nbytes == waiting.bytes <= 100


def test_policies_leave_what_fits_as_it_is() -> None:
    waiting = Waiting()
    entries = [Entry(batch_of(1, 2), 1, "a"), Entry(batch_of(3), 2, "b")]
    for entry in entries:
        waiting.append(entry)
    batches = [entry.batch for entry in entries]
    for name in ("block", "drop oldest", "drop newest", "sample"):
        assert POLICIES[name](waiting, waiting.bytes) == 0
    assert list(waiting) == entries
    assert [entry.batch for entry in waiting] == batches


def test_sample_drops_every_second_event_over_all_entries() -> None:
    waiting = Waiting()
    for ticket, numbers in enumerate([(0,), (1, 2, 3), (4,), (5,), (6, 7)], 1):
        waiting.append(Entry(batch_of(*numbers), ticket, ticket))
    size = batch_of(1).nbytes
    assert POLICIES["sample"](waiting, 4 * size) == 4
    assert numbers_in(waiting) == [[0], [2], [4], [6]]
    assert [(entry.low, entry.tag) for entry in waiting] == [(1, 1), (2, 2), (3, 3), (5, 5)]
    assert POLICIES["sample"](waiting, 0) == 3
    assert numbers_in(waiting) == [[0]]
