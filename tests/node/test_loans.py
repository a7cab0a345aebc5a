"""Loaned events: filled in place, they arrive as others do, without a copy; a change costs one at most."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

import evflow as ev
from evflow.events.encode import encoder, encoder_parts
from evflow.events.gather import Place
from evflow.flow import entry
from evflow.flow import loan as loan_module
from evflow.flow.loan import lend, taken_up
from evflow.net.node import sockets as sockets_module
from evflow.net.node.arena import Arena
from tests.examples import tried
from tests.node.processes import wait_for


class Scan(ev.Event):
    """An array of any length between other fields."""

    station: ev.Str[8]
    samples: ev.Array[ev.f64, None]
    note: str = ""


class Image(ev.Event):
    """600 KB of fixed width."""

    number: int
    pixels: ev.Array[ev.u16, 600, 500]
    last: ev.i8 = 1


class Pair(ev.Event):
    """Several arrays, one of which may be missing."""

    left: ev.Array[ev.f32, None, 3]
    right: ev.Array[ev.f32, None, 3]
    mask: ev.Array[bool, None]
    maybe: ev.Array[ev.i64, None] | None = None


LEAST = loan_module._LEAST


@pytest.fixture(autouse=True)
def _less_is_lent(monkeypatch: pytest.MonkeyPatch) -> None:
    """So that not every test has to fill megabytes."""
    monkeypatch.setattr(loan_module, "_LEAST", 64 << 10)


def own(size: int) -> Place | None:
    """Gives no place, so that memory of its own is used."""
    return None


def crossed(work: Callable[[Any], None], kind: type[ev.Event], **settings: Any) -> list[Any]:
    """What arrives at another node of what ``work`` submits to the source that it gets."""
    seen: list[Any] = []
    graph = ev.Graph("loans")
    source = graph.source("events", kind, on="here")
    _ = source >> ev.Terminal(lambda event: seen.append(event.to_event()), on="there")
    there = ev.Node("there", listen="tcp://127.0.0.1:0")
    here = ev.Node("here", peers={"there": there.contact}, **settings)
    with graph.run(node=there), graph.run(node=here) as flow:
        work(flow["events"])
        flow.drain(60)
        arena = here._sockets._arena
        wait_for(lambda: arena.held == 0, "blocks are free again")
    return seen


def run_here(work: Callable[[Any], None], kind: type[ev.Event], handler: Callable[[Any], None]) -> None:
    graph = ev.Graph("loans")
    _ = graph.source("events", kind) >> ev.Terminal(handler)
    with graph.run() as flow:
        work(flow["events"])
        flow.drain(60)


@pytest.mark.parametrize("shared_memory", [True, False])
@pytest.mark.parametrize("size", [0, 10, 8_192, 70_000, 300_000])
def test_loans_arrive_as_they_were_filled(size: int, shared_memory: bool) -> None:
    """Small and large, among events that are not loaned."""
    chance = np.random.default_rng(size)
    sent = [Scan(f"s{number}", chance.normal(size=size), "x" * number) for number in range(10)]

    def work(source: Any) -> None:
        for number, event in enumerate(sent):
            loaned = source.loan(Scan, station="?", samples=size, note=event.note)
            loaned.station = event.station
            loaned.samples[:] = event.samples
            source.submit(event if number % 3 == 2 else loaned)

    assert crossed(work, Scan, shared_memory=shared_memory) == sent


@pytest.mark.parametrize("room", [4096, 1 << 20])
def test_without_room_they_arrive_too(monkeypatch: pytest.MonkeyPatch, room: int) -> None:
    """The arena has room for one event, or none."""
    monkeypatch.setattr(sockets_module, "Arena", lambda: Arena(room))

    def work(source: Any) -> None:
        for number in range(10):
            image = source.loan(Image, number=number)
            image.pixels[...] = number
            source.submit(image)

    arrived = crossed(work, Image)
    assert [(image.number, image.pixels.min(), image.pixels.max()) for image in arrived] == [
        (number, number, number) for number in range(10)
    ]


@pytest.mark.parametrize("size", [20_000, 200_000])
def test_nothing_is_copied(size: int) -> None:
    """The handler's array is the one that was filled; the large one is aligned."""
    seen: list[tuple[int, float]] = []
    loaned: list[Any] = []

    def work(source: Any) -> None:
        loaned.append(source.loan(Scan, station="a", samples=size))
        loaned[0].samples[:] = 2.0
        source.submit(loaned[0])

    run_here(work, Scan, lambda scan: seen.append((scan.samples.ctypes.data, scan.samples.sum())))
    assert seen == [(loaned[0].samples.ctypes.data, 2.0 * size)]
    assert size < 100_000 or loaned[0].samples.ctypes.data % 64 == 0


@pytest.mark.parametrize(
    ("usual", "name", "fields"),
    [
        (Scan("a", np.zeros(9_000)), "samples", {"station": "b", "samples": 9_000}),
        (Image(1, np.zeros((600, 500), np.uint16)), "pixels", {"number": 2}),
    ],
)
def test_nothing_is_copied_by_the_short_way_of_many_events(
    monkeypatch: pytest.MonkeyPatch, usual: ev.Event, name: str, fields: dict[str, Any]
) -> None:
    """The machine code that takes the events of a class leaves arrays on loan, and views of them."""
    monkeypatch.setattr(entry, "_MANY", 1)
    seen: list[int] = []
    loaned: list[Any] = []

    def work(source: Any) -> None:
        for _ in range(3):
            source.submit(usual)
        for whole in (True, False):
            event = source.loan(type(usual), **fields)
            if not whole:
                setattr(event, name, getattr(event, name).reshape(-1).reshape(getattr(event, name).shape))
            getattr(event, name)[...] = 7
            source.submit(event)
            loaned.append(event)

    run_here(work, type(usual), lambda event: seen.append(getattr(event, name).ctypes.data))
    assert seen[3:] == [getattr(event, name).ctypes.data for event in loaned]


def test_one_block_of_the_arena_serves() -> None:
    """From the loan until everybody has let go."""

    def work(source: Any) -> None:
        arena = source._worker.reserve.__self__
        image = source.loan(Image, number=1)
        assert arena.held == 1
        image.pixels[...] = 5
        assert arena.offset_of(image.pixels.reshape(-1)) is not None
        source.submit(image)
        assert arena.held == 1
        source.loan(Image, number=2)
        assert arena.held == 1

    assert [image.pixels.sum() for image in crossed(work, Image)] == [5 * 600 * 500]


def test_a_loan_is_read_only_once_it_was_submitted() -> None:
    def work(source: Any) -> None:
        scan = source.loan(Scan, station="a", samples=50_000)
        scan.samples[:] = 1.0
        source.submit(scan)
        with pytest.raises(ValueError, match="read-only"):
            scan.samples[0] = 2.0

    assert [scan.samples.sum() for scan in crossed(work, Scan)] == [50_000]


def test_a_small_loan_is_an_event_as_any_other(monkeypatch: pytest.MonkeyPatch) -> None:
    """It takes no room of the arena, goes the short way of many events, and may be used again."""
    monkeypatch.setattr(loan_module, "_LEAST", LEAST)

    class Block(ev.Event):
        number: int
        data: ev.Array[ev.f64, None]

    def work(source: Any) -> None:
        source.submit(Block(0, np.zeros(4)))
        lent = source.loan(Block, number=1, data=(LEAST >> 3) - 10)
        assert source._worker.reserve.__self__.held == 0
        lent.data[:] = 1.0
        # The machine code that takes the events of a class takes no other.
        assert lent.data.dtype is np.dtype(np.float64)
        source.submit(lent)
        lent.data[:] = 2.0
        source.submit(lent)

    assert [block.data.sum() for block in crossed(work, Block)] == [
        0.0,
        1.0 * ((LEAST >> 3) - 10),
        2.0 * ((LEAST >> 3) - 10),
    ]


def test_what_is_submitted_again_is_copied() -> None:
    """With what changed meanwhile, and without a change to what went before."""

    def work(source: Any) -> None:
        scan = source.loan(Scan, station="a", samples=50_000)
        scan.samples[:] = 1.0
        source.submit(scan)
        scan.station = "b"
        source.submit(scan)
        scan.samples = scan.samples[1:]
        source.submit(scan)

    arrived = crossed(work, Scan)
    assert [(scan.station, len(scan.samples), scan.samples.min()) for scan in arrived] == [
        ("a", 50_000, 1.0),
        ("b", 50_000, 1.0),
        ("b", 49_999, 1.0),
    ]


def exchange_for_shorter(pair: Any) -> None:
    pair.left = pair.left[5:]


def exchange_for_new(pair: Any) -> None:
    pair.left = pair.left * 2


def exchange_for_list(pair: Any) -> None:
    pair.left = pair.left.tolist()


def swap(pair: Any) -> None:
    pair.left, pair.right = pair.right, pair.left


def swap_slices(pair: Any) -> None:
    pair.left, pair.right = pair.right[:], pair.left[:]


def reverse(pair: Any) -> None:
    pair.left = pair.left[::-1]


def same_twice(pair: Any) -> None:
    pair.right = pair.left


def fill_in_what_was_missing(pair: Any) -> None:
    pair.maybe = np.arange(10)


def leave(pair: Any) -> None:
    """Changes nothing."""


@pytest.mark.parametrize(
    "change",
    [
        exchange_for_shorter, exchange_for_new, exchange_for_list, swap, swap_slices, reverse, same_twice,
        fill_in_what_was_missing, leave,
    ],
)  # fmt: skip
def test_a_loan_may_be_changed_as_any_event(change: Callable[[Any], None]) -> None:
    """Whatever was done to its arrays, what arrives is what an event of copies of them would be."""
    expected: list[Any] = []

    def work(source: Any) -> None:
        chance = np.random.default_rng(7)
        pair = source.loan(Pair, left=(9_000, 3), right=(9_000, 3), mask=30)
        pair.left[...], pair.right[...] = chance.normal(size=(2, 9_000, 3))
        pair.mask[::2] = True
        change(pair)
        expected.append(copy.deepcopy(pair))
        source.submit(pair)

    assert crossed(work, Pair) == expected


def test_what_is_not_filled_of_bools_is_false() -> None:
    """Memory that was used before may hold any bytes, most of which are not a bool."""
    used = np.full(1 << 20, 0xFF, np.uint8)
    pair = lend(
        Pair.schema, {"left": (20_000, 3), "right": (1, 3), "mask": 64}, lambda n: Place(used[:n], used[:n])
    )
    assert not pair.mask.any()  # type: ignore[attr-defined]


def test_arrays_that_are_there_already_are_taken_as_they_are() -> None:
    there = np.ones((2, 3), np.float32)

    def work(source: Any) -> None:
        pair = source.loan(Pair, left=(30_000, 3), right=there, mask=1, maybe=5)
        pair.left[...], pair.maybe[...] = 4, 7
        there[...] = 2
        source.submit(pair)
        there[...] = 3

    (pair,) = crossed(work, Pair)
    assert (pair.left.sum(), pair.right.sum(), pair.maybe.sum()) == (4 * 90_000, 12, 35)


def test_a_loan_may_go_to_another_flow_or_nowhere() -> None:
    seen: list[float] = []
    graph = ev.Graph("other")
    _ = graph.source("events", Scan) >> ev.Terminal(lambda scan: seen.append(scan.samples.sum()))
    with graph.run() as other:

        def work(source: Any) -> None:
            for number in range(5):
                scan = source.loan(Scan, station="a", samples=50_000)
                scan.samples[:] = number
                if number % 2:
                    other["events"].submit(scan)

        assert crossed(work, Scan) == []
        other.drain(60)
    assert seen == [50_000, 150_000]


def test_handlers_lend_too() -> None:
    """In the engine's thread, which waits for nobody."""
    seen: list[float] = []
    graph = ev.Graph("doubled")

    def double(scan: Any) -> None:
        twice = flow["twice"].loan(Scan, station=scan.station, samples=len(scan.samples))
        np.multiply(scan.samples, 2, out=twice.samples)
        flow["twice"].submit(twice)

    _ = graph.source("once", Scan) >> ev.Terminal(double)
    _ = graph.source("twice", Scan) >> ev.Terminal(lambda scan: seen.append(scan.samples.sum()))
    with graph.run() as flow:
        for number in range(4):
            flow["once"].submit(Scan("a", np.full(20_000, float(number))))
        flow.drain(60)
    assert seen == [2 * 20_000 * number for number in range(4)]


@pytest.mark.parametrize(
    ("fields", "found"),
    [
        ({"station": "a"}, "missing: samples"),
        ({"station": "a", "samples": 5, "colour": 1}, "no such field: colour"),
        ({"station": "a", "samples": (5, 2)}, r"field samples: expected.*array\(f64,\?\).*\(5, 2\)"),
        ({"station": "a", "samples": -1}, "field samples: expected.*-1"),
        ({"station": "a", "samples": [1.0, 2.0]}, "field samples: expected"),
        ({"station": "too long a name", "samples": 5}, "station"),
    ],
)
def test_what_does_not_fit_is_refused(fields: dict[str, Any], found: str) -> None:
    with pytest.raises(ev.SchemaError, match=found):
        lend(Scan.schema, fields, own)


def test_a_shape_that_the_schema_has_may_be_told() -> None:
    image: Any = lend(Image.schema, {"number": 1, "pixels": (600, 500)}, own)
    assert image.pixels.shape == (600, 500)
    with pytest.raises(ev.SchemaError, match=r"pixels.*\(600, 501\)"):
        lend(Image.schema, {"number": 1, "pixels": (600, 501)}, own)


def test_schemas_without_a_class_have_loans() -> None:
    schema = ev.Schema("run_time", {"key": ev.i32, "values": ev.Array[ev.i16, None]})
    event: Any = lend(schema, {"key": 3, "values": 40_000}, own)
    event.values[:] = 9
    placed = taken_up(encoder_parts(schema)(event))
    assert placed is not None
    assert placed.tobytes() == encoder(schema)(schema(key=3, values=np.full(40_000, 9, np.int16)))


def test_layouts_that_are_remembered_are_bounded() -> None:
    """One for each shape, up to a number."""
    schema = ev.Schema("shapes", {"values": ev.Array[ev.u8, None]})
    for size in range(70_000, 70_000 + 3 * loan_module._MOST_LAYOUTS):
        event: Any = lend(schema, {"values": size}, own)
        assert len(event.values) == size
    assert len(schema.made["loan layouts"]) <= loan_module._MOST_LAYOUTS


@settings(max_examples=tried(60), deadline=None)
@given(
    st.integers(0, 30_000), st.integers(0, 3), st.integers(0, 9), st.none() | st.integers(0, 9_000),
    st.integers(0, 1 << 20),
)  # fmt: skip
@example(left=5_455, right=3, mask=0, maybe=None, at=0)
@example(left=9_000, right=3, mask=9, maybe=None, at=1)
def test_a_loan_is_encoded_as_any_event(left: int, right: int, mask: int, maybe: int | None, at: int) -> None:
    """Byte for byte, wherever its place begins; where it is large it is its place."""
    memory = np.full((1 << 20) + (2 << 20), 0xA5, np.uint8)
    places: list[Place] = []

    def reserve(size: int) -> Place:
        places.append(Place(memory[at : at + size], memory[at : at + size]))
        return places[-1]

    fields = {"left": (left, 3), "right": (right, 3), "mask": mask} | (
        {} if maybe is None else {"maybe": maybe}
    )
    event: Any = lend(Pair.schema, fields, reserve)
    chance = np.random.default_rng(left)
    event.left[...], event.right[...] = chance.normal(size=(left, 3)), chance.normal(size=(right, 3))
    event.mask[...] = chance.integers(0, 2, mask)
    if maybe is not None:
        event.maybe[...] = chance.integers(0, 99, maybe)
    wanted = encoder(Pair.schema)(copy.deepcopy(event))
    placed = taken_up(encoder_parts(Pair.schema)(event))
    assert (placed is not None) == (len(places) == 1) == (len(wanted) >= 64 << 10)
    if placed is not None:
        assert placed.tobytes() == wanted
        inside = memory.copy()
        inside[at : at + len(places[0].target)] = 0xA5
        assert (inside == 0xA5).all()
