"""What fails while nodes talk costs the session of that link, which begins anew; no event is lost."""

from __future__ import annotations

import errno
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
import zmq

import evflow as ev
from evflow import mishaps
from evflow.errors import FlowError, LinkError
from evflow.events.attributes import Attributes
from evflow.events.batch import EventBatch
from evflow.net.link import hub, link, outlet
from evflow.net.link.link import Link
from evflow.net.link.session import Session
from evflow.net.node import sockets
from evflow.net.node.sockets import Sockets
from tests.node.processes import wait_for

Patch = pytest.MonkeyPatch


class Number(ev.Event):
    n: int


@pytest.fixture(autouse=True)
def _nothing_was_told(monkeypatch: Patch) -> None:
    monkeypatch.setattr(mishaps, "_counts", Counter())


@pytest.fixture(autouse=True)
def _sessions_begin_anew_soon(monkeypatch: Patch) -> None:
    monkeypatch.setattr(link, "_FIRST_RETRY", 0.02)


def _plant(patch: Patch, owner: Any, name: str, error: BaseException, every: int, most: int = 3) -> list[int]:
    """Raises the error in a function, in each of so many calls, a few times; gives how often it was called
    and how often it failed."""
    original, counts = getattr(owner, name), [0, 0]

    def instead(*given: Any, **named: Any) -> Any:
        counts[0] += 1
        if counts[0] % every == 0 and counts[1] < most:
            counts[1] += 1
            raise error
        return original(*given, **named)

    patch.setattr(owner, name, instead)
    return counts


def _full() -> BaseException:
    return zmq.ZMQError(errno.EMFILE)


PLANTED: dict[str, tuple[Any, str, Callable[[], BaseException], int]] = {
    "unpacking of a message": (hub.m, "unpack", MemoryError, 7),
    "a message of a session": (Session, "_take", RecursionError, 7),
    "a frame that comes": (Session, "_on_data", MemoryError, 3),
    "an acknowledgement": (Session, "_on_ack", ZeroDivisionError, 3),
    "a link's tick": (Link, "tick", MemoryError, 9),
    "a frame that is sent": (Session, "_send_frame", MemoryError, 3),
    "packing of what is sent": (outlet, "pack_attributes", MemoryError, 2),
    "joining of what is sent": (EventBatch, "concat", MemoryError, 2),
    "a socket that refuses": (Sockets, "send", lambda: zmq.ZMQError(errno.ENOMEM), 9),
    "a part that is refused": (sockets, "_send", lambda: zmq.ZMQError(errno.ENOMEM), 9),
    "no memory for a part": (sockets, "_send", MemoryError, 9),
    "no socket to dial with": (Sockets, "_socket", _full, 2),
}


# What an event need not lead to.
SELDOM = ("no socket to dial with", "packing of what is sent", "joining of what is sent")


@pytest.mark.slow
@pytest.mark.parametrize("shared", [False, True], ids=["sockets", "shortcuts"])
@pytest.mark.parametrize("place", PLANTED)
def test_failure_costs_the_session_and_no_event(place: str, shared: bool, monkeypatch: Patch) -> None:
    owner, name, error, every = PLANTED[place]
    seen: list[int] = []
    g = ev.Graph("planted")
    end = ev.Terminal(lambda event: seen.append(event.n), on="there")
    g.source("numbers", Number, on="here") >> ev.Filter("input.n >= 0", on="here") >> end
    there = ev.Node("there", listen="tcp://127.0.0.1:0", heartbeat=0.1, shared_memory=shared)
    here = ev.Node("here", peers={"there": there.contact}, heartbeat=0.1, shared_memory=shared)
    # A session notes its methods when it begins.
    early = _plant(monkeypatch, owner, name, error(), every) if owner is Session else None
    with g.run(node=there) as behind, g.run(node=here) as flow:
        counts = early or _plant(monkeypatch, owner, name, error(), every)
        for n in range(60):
            flow["numbers"].submit(Number(n))
            if n % 10 == 0:
                batch = EventBatch.from_columns(Number, {"n": [n + 1000]})
                flow["numbers"].submit_batch(batch.with_attributes(Attributes.from_rows([{"a": n}])))
            if n % 5 == 0:
                flow.drain(timeout=30)
        flow.drain(timeout=30)
        more = 0
        # Where there is a shortcut all that is sent may go over it, and none of it over a socket.
        seldom = place in SELDOM or (shared and owner in (Sockets, sockets))
        while not seldom and not counts[1]:
            # On a busy machine many events share a frame.
            flow["numbers"].submit(Number(60 + more))
            flow.drain(timeout=30)
            more += 1
        assert flow.failure is None
        assert behind.failure is None
        assert not flow.dead_letters()
        assert not behind.dead_letters()
    assert sorted(seen) == sorted([*range(60 + more), *(n + 1000 for n in range(0, 60, 10))])


@pytest.mark.parametrize("error", [MemoryError, SystemExit, ValueError])
def test_listener_that_fails_costs_the_note(error: type[BaseException]) -> None:
    g = ev.Graph("notes")
    g.source("numbers", Number, on="here") >> ev.Terminal(lambda event: None, on="there")
    there = ev.Node("there", listen="tcp://127.0.0.1:0")
    here = ev.Node("here", peers={"there": there.contact})
    came: list[bytes] = []

    def listen(peer: str, body: memoryview, now: float) -> None:
        came.append(bytes(body))
        if len(came) == 1:
            raise error("planted")

    with g.run(node=there) as behind, g.run(node=here) as flow:
        assert behind.links is not None
        assert flow.links is not None
        links = flow.links
        behind.links.listen("topic", listen)
        flow["numbers"].submit(Number(1))
        flow.drain(timeout=20)
        for body in (b"one", b"two"):
            assert flow.call(lambda body=body: links.tell("there", "topic", body))
        wait_for(lambda: came == [b"one", b"two"], "both notes came")
        assert there.refused["failed"] == 1
        assert here.links()["there"]["sessions"] == 1


def test_socket_that_cannot_be_closed_is_told_and_nothing_waits_for_it(monkeypatch: Patch) -> None:
    closed: list[zmq.Socket[bytes]] = []
    original = zmq.Socket.close

    def close(self: zmq.Socket[bytes], linger: int | None = None) -> None:
        closed.append(self)
        if len(closed) == 1:
            raise zmq.ZMQError(zmq.ENOTSOCK)
        original(self, linger)

    g = ev.Graph("closing")
    g.source("numbers", Number, on="here") >> ev.Terminal(lambda event: None, on="here")
    here = ev.Node("here", listen=["tcp://127.0.0.1:0", "tcp://127.0.0.1:0"])
    flow = g.run(node=here)
    monkeypatch.setattr(zmq.Socket, "close", close)
    with pytest.raises(FlowError, match=r"flow closing broke: .*a connection could not be closed") as caught:
        flow.close()
    assert isinstance(caught.value.__cause__, LinkError)
    assert len(closed) >= 2
    monkeypatch.undo()
    for socket in closed:
        socket.close(0)
