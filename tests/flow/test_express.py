"""Events that are sent by the thread that submits them, while the flow's thread sleeps."""

from __future__ import annotations

import socket
import threading
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import evflow as ev
from evflow.codgen.express import MOST_FRAMES, Express
from evflow.codgen.llvm.append_ir import SENT
from evflow.events.encode import encoder
from evflow.flow import entry, submit_buffer
from evflow.net.link import messages as m
from evflow.net.link.outlet import Outlet
from tests.examples import tried
from tests.flow.test_source_queue import Note, Rec, numbers, opened
from tests.node.processes import wait_for

BEFORE = b"8 bytes!"
SEQUENCE, CHANNEL, SCHEMA = 70_000, 300, 5


class Wire:
    """A sender's end of a socket, and what its reader finds there."""

    def __init__(self, kind: type[ev.Event]) -> None:
        self.near, self.far = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.near.setblocking(False)
        self.far.setblocking(False)
        self.kind = kind
        self.frames: list[list[int]] = []
        self.express = Express()
        self.express.use(self.near.fileno())
        self.express.begin_with(m.data_head(BEFORE, CHANNEL, SCHEMA))

    def read(self) -> None:
        """Takes all that has come, each a frame as the protocol has it."""
        while True:
            try:
                data = self.far.recv(1 << 16)
            except BlockingIOError:
                return
            assert data[: len(BEFORE)] == BEFORE
            message = m.unpack(data[len(BEFORE) :])
            assert isinstance(message, m.Data) and isinstance(message.place, bytes)
            batch = ev.EventBatch.from_bytes(self.kind.schema, message.place, message.events)
            sequence = SEQUENCE + len(self.frames)
            assert message == m.Data(CHANNEL, sequence, SCHEMA, len(batch), b"", [], m.NIL, message.place)
            self.frames.append([event.number for event in batch])

    def write(self, numbers: list[int]) -> None:
        """Sends a frame of events as the flow's thread does."""
        batch = ev.EventBatch.from_events([self.kind(number) for number in numbers])  # type: ignore[call-arg]
        self.read()
        sequence = SEQUENCE + len(self.frames)
        frame = m.Data(CHANNEL, sequence, SCHEMA, len(batch), b"", [], m.NIL, batch.to_bytes())
        self.near.send(BEFORE + m.pack(frame))
        self.read()

    def close(self) -> None:
        self.near.close()
        self.far.close()


STEPS = st.lists(
    st.tuples(st.sampled_from("submit submit read event batch turn".split()), st.integers(1, 60)), max_size=30
)


@settings(deadline=None, max_examples=tried(40))
@given(st.sampled_from([Rec, Note]), STEPS)
def test_events_are_sent_once_and_in_order_whoever_sends_them(
    kind: type[ev.Event], steps: list[tuple[str, int]]
) -> None:
    """The reader may be slow, and other threads may put in events that have to wait their turn."""
    queue, append = opened(kind)
    wire = Wire(kind)
    try:
        number, at_once = 0, 0

        def turn(lends: bool) -> None:
            """What the flow's thread does in a turn, as far as this queue is concerned."""
            nonlocal at_once
            gone = queue.gone()
            wire.read()
            if gone is not None:
                assert [count for count in gone[1] if count <= 0] == []
                sent = [event.number for event in gone[0]]
                assert sent == [n for frame in wire.frames[-len(gone[1]) :] for n in frame]
                assert gone[1] == [len(frame) for frame in wire.frames[-len(gone[1]) :]]
                at_once += len(sent)
            left = numbers(queue)
            for start in range(0, len(left), 100):
                wire.write(left[start : start + 100])
            if lends:
                wire.express.load(SEQUENCE + len(wire.frames), 8)
                queue.lend(wire.express)

        turn(True)
        for step, count in steps:
            if step == "read":
                wire.read()
            elif step == "turn":
                turn(True)
            elif step == "submit":
                for _ in range(count):
                    event = kind(number)  # type: ignore[call-arg]
                    if not append(event):
                        queue.put((kind.schema, encoder(kind.schema)(event), None))
                    number += 1
            else:
                events = [kind(n) for n in range(number, number + count)]  # type: ignore[call-arg]
                number += count
                if step == "batch":
                    queue.put(ev.EventBatch.from_events(events))
                for event in events if step == "event" else ():
                    queue.put((kind.schema, encoder(kind.schema)(event), None))
        turn(False)
        assert [n for frame in wire.frames for n in frame] == list(range(number))
        assert at_once > 0 or not steps or steps[0][0] != "submit"
        # A drain waits for as many as came.
        assert queue.taken == queue.came
    finally:
        wire.close()


def test_a_reader_that_takes_nothing_gets_no_more_than_a_few_messages() -> None:
    queue, append = opened(Rec)
    wire = Wire(Rec)
    try:
        wire.express.load(SEQUENCE, MOST_FRAMES)
        queue.lend(wire.express)
        given_ = [append(Rec(number)) for number in range(1000)]
        sent = given_.count(SENT)
        assert 1 <= sent < MOST_FRAMES
        assert given_ == [SENT] * sent + [True] * (1000 - sent)
        wire.read()
        assert wire.frames == [[number] for number in range(sent)]
        assert queue.gone() is not None
        assert numbers(queue) == list(range(sent, 1000))
    finally:
        wire.close()


def test_what_waits_is_sent_as_one_message_once_the_reader_has_caught_up() -> None:
    queue, append = opened(Rec)
    wire = Wire(Rec)
    try:
        wire.express.load(SEQUENCE, MOST_FRAMES)
        queue.lend(wire.express)
        number = 0
        while append(Rec(number)) == SENT:
            number += 1
        first = number
        wire.read()
        while append(Rec(number + 1)) != SENT:
            number += 1
        wire.read()
        assert wire.frames == [*([n] for n in range(first)), list(range(first, number + 2))]
    finally:
        wire.close()


def test_a_reader_that_is_gone_gets_nothing() -> None:
    queue, append = opened(Rec)
    wire = Wire(Rec)
    wire.far.close()
    try:
        wire.express.load(SEQUENCE, MOST_FRAMES)
        queue.lend(wire.express)
        assert [append(Rec(number)) for number in range(3)] == [True] * 3
        assert queue.gone() is None
        assert numbers(queue) == [0, 1, 2]
    finally:
        wire.near.close()


@pytest.fixture
def _few_are_many(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(entry, "_MANY", 1)
    monkeypatch.setattr(submit_buffer, "_MANY", 10)


@pytest.fixture
def at_once(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many events were sent at once, each time that a flow's thread found some."""
    found: list[int] = []
    went = Outlet.went

    def noting(self: Outlet, batch: ev.EventBatch, counts: list[int]) -> None:
        found.append(batch.rows)
        went(self, batch, counts)

    monkeypatch.setattr(Outlet, "went", noting)
    return found


class Numbered(ev.Event):
    thread: int
    number: int


@pytest.mark.usefixtures("_few_are_many")
@pytest.mark.parametrize("delivery", ["at_least_once", "at_most_once"])
@pytest.mark.parametrize("filtered", [False, True])
def test_threads_that_submit_at_once_lose_and_mix_up_nothing(
    filtered: bool, delivery: str, at_once: list[int]
) -> None:
    """Events of each thread arrive in its order, each once, and are counted, also beside tables."""
    seen: list[tuple[int, int]] = []
    g = ev.Graph()
    way = g.source("recs", Numbered, on="here")
    if filtered:
        way >>= ev.Filter("input.number % 5 != 4", name="some", on="here")
    way >>= ev.Bridge(delivery=delivery, name="bridge", on="here")
    way >> ev.Terminal(lambda event: seen.append((event.thread, event.number)), on="there")

    def submit(thread: int) -> None:
        for number in range(400):
            if number % 50 == 7:
                flow["recs"].submit_batch([Numbered(thread, number)])
            elif number % 50 == 8:
                flow["recs"].submit(Numbered(thread, number), attrs={"a": 1})
            else:
                flow["recs"].submit(Numbered(thread, number))
            if number % 20 == 0:
                time.sleep(0.003)

    there = ev.Node("there", listen="tcp://127.0.0.1:0")
    here = ev.Node("here", peers={"there": there.contact})
    with g.run(node=there), g.run(node=here) as flow:
        threads = [threading.Thread(target=submit, args=(thread,)) for thread in range(3)]
        for each in threads:
            each.start()
        for each in threads:
            each.join()
        flow.drain(timeout=20)
        stats = flow.stats()
        wait_for(lambda: not here.links()["there"]["waiting"], "the last acknowledgement")
    passed = [number for number in range(400) if not filtered or number % 5 != 4]
    for thread in range(3):
        assert [number for of, number in seen if of == thread] == passed
    # How many depends on how busy the machine is.
    assert sum(at_once) > 0
    assert stats["recs"]["in"] == stats["recs"]["out"] == 1200
    assert [stats["bridge"][key] for key in ("in", "out", "dropped")] == [len(seen), len(seen), 0]
    if filtered:
        assert [stats["some"][key] for key in ("in", "out", "dropped")] == [1200, len(seen), 1200 - len(seen)]
