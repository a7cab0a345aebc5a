"""Large events between nodes: equal at the other end, by whatever way, and none is lost for want of room."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import evflow as ev
from evflow.events.encode import encoder, encoder_parts
from evflow.flow import entry
from evflow.net.node import sockets as sockets_module
from evflow.net.node.arena import Arena
from tests.node.processes import wait_for


class Image(ev.Event):
    """600 KB of fixed width."""

    number: int
    pixels: ev.Array[ev.u16, 600, 500]
    note: ev.Str[8] = "note"


class Track(ev.Event):
    """Of varying width, small or large."""

    number: int
    points: ev.Array[ev.f64, None, 3]
    raw: bytes
    maybe: ev.Array[ev.f32, None] | None = None


class Wave(ev.Event):
    """Of varying width, small or large, and nothing that may be missing."""

    number: int
    samples: ev.Array[ev.f64, None]
    text: str = "a wave"


def wave(number: int) -> Wave:
    chance = np.random.default_rng(number)
    return Wave(number, chance.normal(size=int(chance.choice([0, 2, 9_000, 50_000, 150_000, 300_000]))))


def image(number: int) -> Image:
    return Image(number, np.random.default_rng(number).integers(0, 65_536, (600, 500), np.uint16))


def track(number: int) -> Track:
    chance = np.random.default_rng(number)
    points = chance.normal(size=(int(chance.choice([0, 2, 5_000])), 3))
    raw = chance.bytes(int(chance.choice([0, 3, 70_000])))
    maybe = None if number % 2 else chance.normal(size=int(chance.choice([1, 30_000]))).astype(np.float32)
    return Track(number, points, raw, maybe)


def graph(kind: type[ev.Event], ends: dict[str, Callable[[Any], None]]) -> ev.Graph:
    made = ev.Graph("large")
    source = made.source("events", kind, on="here")
    for node, handler in ends.items():
        _ = source >> ev.Terminal(handler, name=f"end at {node}", on=node)
    return made


def crossed(kind: type[ev.Event], events: list[Any], receivers: int = 1, **settings: Any) -> list[list[Any]]:
    """What each of so many receivers gets of the events, copied before it is let go."""
    names = [f"there {n}" for n in range(receivers)]
    seen: dict[str, list[Any]] = {name: [] for name in names}
    both = graph(kind, {name: lambda event, n=name: seen[n].append(event.to_event()) for name in names})  # type: ignore[misc]
    nodes = [ev.Node(name, listen="tcp://127.0.0.1:0") for name in names]
    peers = {node.name: node.contact for node in nodes}
    flows = [both.run(node=node) for node in nodes]
    with both.run(node=ev.Node("here", peers=peers, **settings)) as flow:
        for event in events:
            flow["events"].submit(event)
        flow.drain(60)
    for ended in flows:
        ended.close()
    return [seen[name] for name in names]


@pytest.fixture(params=["the long way", pytest.param("the short way", marks=pytest.mark.slow)])
def way_in(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """How events are taken in: as the first ones of a source, or as all that follow many."""
    if request.param == "the short way":
        monkeypatch.setattr(entry, "_MANY", 1)


@pytest.mark.usefixtures("way_in")
@pytest.mark.parametrize("shared_memory", [True, False])
@pytest.mark.parametrize(("kind", "make"), [(Image, image), (Track, track), (Wave, wave)])
def test_large_events_arrive_as_they_were(kind: type[ev.Event], make: Any, shared_memory: bool) -> None:
    """Through shared memory and over TCP, with every kind of large field, small ones between."""
    sent = [make(number) for number in range(25)]
    assert crossed(kind, sent, shared_memory=shared_memory) == [sent]


@pytest.mark.usefixtures("way_in")
def test_what_several_threads_submit_arrives_in_the_order_of_each() -> None:
    """Large and small events, singly and in batches, with attributes, and some that leave a doubt."""
    seen: dict[str, list[tuple[int, int]]] = {name: [] for name in "abc"}

    def handle(event: Any) -> None:
        right = np.all(event.samples == event.number)
        seen[event.text].append((event.number, len(event.samples) if right else -1))

    sizes = [int(n) for n in np.random.default_rng(5).choice([3, 9_000, 50_000, 150_000, 300_000], 60)]

    def submit(name: str) -> None:
        samples = np.empty(max(sizes))
        for number, size in enumerate(sizes):
            samples[:] = number
            event = Wave(number, samples[:size], name)
            if number % 7 == 3:
                flow["events"].submit_batch([event])
            elif number % 11 == 5:
                flow["events"].submit(event, attrs={"odd": 1})
            elif number % 13 == 6:
                flow["events"].submit(Wave(number, list(samples[:3]), name))
            else:
                flow["events"].submit(event)

    there = ev.Node("there", listen="tcp://127.0.0.1:0")
    both = graph(Wave, {"there": handle})
    with both.run(node=there), both.run(node=ev.Node("here", peers={"there": there.contact})) as flow:
        threads = [threading.Thread(target=submit, args=(name,)) for name in seen]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        flow.drain(60)
    # A list is not an array, which the short way leaves to the long one.
    listed = [n for n in range(60) if n % 7 != 3 and n % 11 != 5 and n % 13 == 6]
    expected = [(n, 3 if n in listed else size) for n, size in enumerate(sizes)]
    assert seen == dict.fromkeys("abc", expected)


class Row(ev.Event):
    """A quarter of a KB."""

    number: int
    values: ev.Array[ev.f64, 30]


@pytest.mark.parametrize("shared_memory", [True, False])
@pytest.mark.parametrize("left_out", [2, 10])
def test_what_a_filter_leaves_of_batches_arrives(left_out: int, shared_memory: bool) -> None:
    """Most of each batch, or half of it; batches of all sizes, so that some are joined and some are cut."""
    seen: list[tuple[int, float]] = []
    made = ev.Graph("filtered")
    kept = made.source("rows", Row, on="here") >> ev.Filter(f"input.number % {left_out} != 0", on="here")
    _ = kept >> ev.Terminal(lambda row: seen.append((row.number, row.values[-1])), on="there")
    there = ev.Node("there", listen="tcp://127.0.0.1:0")
    here = ev.Node("here", peers={"there": there.contact}, shared_memory=shared_memory)
    numbers, values = np.arange(23_000), np.random.default_rng(1).normal(size=(23_000, 30))
    with made.run(node=there), made.run(node=here) as flow:
        for part in np.split(numbers, np.cumsum([1, 7, 40, 300, 1_000, 1_500, 8_000, 10, 900])):
            flow["rows"].submit_batch({"number": part, "values": values[part]})
        flow.drain(60)
    assert seen == [(n, values[n, -1]) for n in range(23_000) if n % left_out]


@pytest.mark.usefixtures("way_in")
def test_two_receivers_get_the_same_events() -> None:
    sent = [image(number) for number in range(20)]
    assert crossed(Image, sent, receivers=2) == [sent, sent]


@pytest.mark.usefixtures("way_in")
@pytest.mark.parametrize("size", [4096, 1 << 20])
def test_without_room_nothing_is_lost(monkeypatch: pytest.MonkeyPatch, size: int) -> None:
    """The arena has room for one event, or none; the others go another way."""
    monkeypatch.setattr(sockets_module, "Arena", lambda: Arena(size))
    sent = [image(number) for number in range(20)]
    assert crossed(Image, sent) == [sent]


@pytest.mark.usefixtures("way_in")
def test_an_event_may_be_changed_after_submit() -> None:
    """What was submitted is what it was then."""
    values = np.zeros((600, 500), np.uint16)
    seen: list[int] = []
    both = graph(Image, {"there": lambda event: seen.append(int(event.pixels[599, 499]))})
    there = ev.Node("there", listen="tcp://127.0.0.1:0")
    with both.run(node=there), both.run(node=ev.Node("here", peers={"there": there.contact})) as flow:
        for number in range(30):
            values[...] = number
            flow["events"].submit(Image(number, values))
        flow.drain(60)
    assert seen == list(range(30))


@pytest.mark.slow
@pytest.mark.usefixtures("way_in")
def test_events_kept_by_the_receiver_stay_as_they_are() -> None:
    """Views of more events than the arena has room for, and through the end of both nodes."""
    kept: list[Any] = []
    both = graph(Image, {"there": kept.append})
    there = ev.Node("there", listen="tcp://127.0.0.1:0")
    sent = [image(number) for number in range(200)]
    with both.run(node=there), both.run(node=ev.Node("here", peers={"there": there.contact})) as flow:
        for event in sent:
            flow["events"].submit(event)
        flow.drain(60)
    assert all(np.array_equal(view.pixels, event.pixels) for view, event in zip(kept, sent, strict=True))


def test_blocks_are_free_again_when_all_is_done() -> None:
    """Also those of several threads that submit at the same time."""
    seen: list[int] = []
    both = graph(Image, {"there": lambda event: seen.append(event.number)})
    there = ev.Node("there", listen="tcp://127.0.0.1:0")
    here = ev.Node("here", peers={"there": there.contact})
    arena: Arena = here._sockets._arena
    with both.run(node=there), both.run(node=here) as flow:
        entry = flow["events"]

        def submit(start: int) -> None:
            for number in range(start, start + 20):
                entry.submit(image(number))

        threads = [threading.Thread(target=submit, args=(start,)) for start in (0, 100, 200, 300)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        flow.drain(60)
        wait_for(lambda: arena.held == 0, "blocks are free again")
    assert [n for n in seen if n < 100] == list(range(20))
    assert len(seen) == 80


@pytest.mark.parametrize("event", [image(1), *map(track, range(12))])
def test_parts_are_the_bytes_of_the_event(event: Any) -> None:
    """Put back to back they are what the other encoder makes."""
    assert b"".join(encoder_parts(event.schema)(event)) == encoder(event.schema)(event)


def test_parts_of_what_does_not_fit_are_refused_as_ever() -> None:
    """Lists and other types are converted; the message names what is wrong."""
    listed = Track(1, [[1, 2, 3]], b"", np.arange(3))
    assert b"".join(encoder_parts(Track.schema)(listed)) == encoder(Track.schema)(listed)
    wrong = Track(1, np.zeros((2, 3)), b"")
    wrong.points = np.zeros((2, 4))
    with pytest.raises(ev.SchemaError, match="points"):
        encoder_parts(Track.schema)(wrong)
