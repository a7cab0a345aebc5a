"""Bodies that ZeroMQ sends without a copy: they arrive, and are kept exactly as long as it reads them."""

from __future__ import annotations

import gc
import time
import weakref
from collections.abc import Iterator

import numpy as np
import pytest
import zmq

from evflow.node import uncopied
from evflow.node.uncopied import MOST, Uncopied

SIZE = 100_000


class Ends:
    """A socket that sends, one that receives, and what is kept for the first."""

    def __init__(self) -> None:
        self.context = zmq.Context()
        self.sender = self.context.socket(zmq.DEALER)
        self.receiver = self.context.socket(zmq.DEALER)
        for socket in (self.sender, self.receiver):
            socket.set_hwm(10 * MOST)
            socket.linger = 0
            socket.rcvtimeo = 10_000
        self.port = self.receiver.bind_to_random_port("tcp://127.0.0.1")
        self.uncopied = Uncopied()

    def connect(self) -> None:
        self.sender.connect(f"tcp://127.0.0.1:{self.port}")

    def send(self, number: int) -> weakref.ref[object]:
        """Sends a message with a body of its own, and forgets it."""
        body = np.full(SIZE, number % 251, np.uint8)
        self.sender.send(number.to_bytes(4, "big"), zmq.SNDMORE)
        self.uncopied.send(self.sender, body.data)
        return weakref.ref(body)

    def receive(self) -> tuple[int, set[int], int]:
        """The number of a message, the values in its body, and its length."""
        head, body = self.receiver.recv_multipart()
        return int.from_bytes(head, "big"), set(body), len(body)

    def collected(self, body: weakref.ref[object]) -> bool:
        """Whether a body is let go in the end."""
        deadline = time.monotonic() + 10
        while time.monotonic() < deadline:
            self.uncopied.collect()
            gc.collect()
            if body() is None:
                return True
            time.sleep(0.01)
        return False


@pytest.fixture
def ends() -> Iterator[Ends]:
    made = Ends()
    yield made
    made.context.destroy(linger=0)


def test_the_functions_of_zeromq_are_found_here() -> None:
    """Else nothing here would be tested but pyzmq."""
    assert uncopied._sender() is not None


def test_bodies_arrive_and_are_let_go(ends: Ends) -> None:
    ends.connect()
    bodies = [ends.send(number) for number in range(20)]
    assert [ends.receive() for _ in bodies] == [(number, {number}, SIZE) for number in range(20)]
    assert all(ends.collected(body) for body in bodies)


def test_a_body_is_kept_while_it_waits_to_be_sent(ends: Ends) -> None:
    ends.sender.connect("tcp://127.0.0.1:9")
    bodies = [ends.send(number) for number in range(3)]
    ends.uncopied.collect()
    gc.collect()
    assert all(body() is not None for body in bodies)
    ends.context.destroy(linger=0)
    assert all(ends.collected(body) for body in bodies)


def test_of_bodies_that_leave_out_of_turn_each_is_let_go_by_itself(ends: Ends) -> None:
    first = np.zeros(SIZE, np.uint8)
    kept = weakref.ref(first)
    with ends.context.socket(zmq.DEALER) as waits:
        waits.linger = 0
        waits.connect("tcp://127.0.0.1:9")
        ends.uncopied.send(waits, first.data)
        del first
        ends.connect()
        second = ends.send(7)
        assert ends.receive() == (7, {7}, SIZE)
        assert ends.collected(second)
        assert kept() is not None
    assert ends.collected(kept)


def test_more_bodies_than_can_be_noted_are_sent_all_the_same(ends: Ends) -> None:
    ends.connect()
    count = MOST + 50
    bodies = [ends.send(number) for number in range(count)]
    for number in range(count):
        assert ends.receive() == (number, {number % 251}, SIZE)
    assert all(ends.collected(body) for body in bodies)


def test_what_is_refused_raises_and_is_let_go(ends: Ends) -> None:
    """There is no peer, so nothing has room."""
    body = np.zeros(SIZE, np.uint8)
    kept = weakref.ref(body)
    with pytest.raises(zmq.ZMQError) as raised:
        ends.uncopied.send(ends.sender, body.data)
    assert raised.value.errno == zmq.EAGAIN
    del body, raised
    assert ends.collected(kept)


def test_where_zeromq_is_not_found_pyzmq_sends(ends: Ends, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(uncopied, "_FUNCTIONS", ("zmq_there_is_none",))
    uncopied._sender.cache_clear()
    try:
        assert uncopied._sender() is None
        ends.connect()
        body = ends.send(5)
        assert ends.receive() == (5, {5}, SIZE)
        assert ends.collected(body)
    finally:
        monkeypatch.undo()
        uncopied._sender.cache_clear()
