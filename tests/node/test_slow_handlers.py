"""A handler that takes long holds up its flow, but neither its links nor what was handled before it."""

from __future__ import annotations

import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest

import evflow as ev
from evflow.flow.standby import Standby
from evflow.net.node.sockets import Sockets
from evflow.stone import Acting, Actor, Context, Later
from tests.node.processes import wait_for

pytestmark = pytest.mark.slow


class Number(ev.Event):
    number: int


class Blocked:
    """A handler that does not return from event ``at`` before it is released."""

    def __init__(self, at: int) -> None:
        self.seen: list[int] = []
        self.begun, self.released = threading.Event(), threading.Event()
        self._at = at

    def __call__(self, event: Number) -> None:
        if event.number == self._at:
            self.begun.set()
            assert self.released.wait(60)
        self.seen.append(event.number)


def test_links_live_and_acknowledge_while_a_handler_blocks() -> None:
    handler = Blocked(at=3)
    g = ev.Graph()
    g.source("numbers", Number, on="here") >> ev.Terminal(handler, on="there")
    there = ev.Node("there", listen="tcp://127.0.0.1:0", heartbeat=0.2)
    here = ev.Node("here", peers={"there": there.contact}, heartbeat=0.2)
    with g.run(node=there), g.run(node=here) as flow:
        for number in range(1, 4):
            flow["numbers"].submit(Number(number))
            wait_for(lambda number=number: len(handler.seen) >= min(number, 2), "it is handled")
        assert handler.begun.wait(20)
        # Twice as long as a peer may be silent.
        time.sleep(2.0)
        wait_for(lambda: here.links()["there"]["waiting"] == 1, "the others are acknowledged")
        flow["numbers"].submit(Number(4))
        assert [node.links()[peer]["sessions"] for node, peer in ((here, "there"), (there, "here"))] == [1, 1]
        handler.released.set()
        flow.drain(timeout=30)
        assert [node.links()[peer]["sessions"] for node, peer in ((here, "there"), (there, "here"))] == [1, 1]
    assert handler.seen == [1, 2, 3, 4]


def test_machine_code_that_takes_long_lets_links_live() -> None:
    """All events together take several times as long as a peer may be silent."""
    slow = ev.Filter(
        "double x = input.number; for (int i = 0; i < 30000; i++) x = sin(x) + 1.0; return x > -9.0;",
        on="there",
    )
    seen: list[int] = []
    g = ev.Graph()
    (
        g.source("numbers", Number, on="here")
        >> slow
        >> ev.Terminal(lambda batch: seen.extend(batch["number"].tolist()), batch=True, on="there")
    )
    there = ev.Node("there", listen="tcp://127.0.0.1:0", heartbeat=0.05)
    here = ev.Node("here", peers={"there": there.contact}, heartbeat=0.05)
    with g.run(node=there), g.run(node=here) as flow:
        flow["numbers"].submit_batch({"number": list(range(4000))})
        flow.drain(timeout=120)
        assert here.links()["there"]["sessions"] == 1
    assert seen == list(range(4000))


def test_a_daemon_answers_while_a_handler_blocks(tmp_path: Path) -> None:
    handler = Blocked(at=1)
    g = ev.Graph("numbers")
    g.source("numbers", Number, on="edge") >> ev.Terminal("desk:show", on="edge")
    with (
        ev.Daemon("edge", "tcp://127.0.0.1:0", storage=tmp_path, handlers={"desk:show": handler}) as edge,
        g.deploy({"edge": edge.contact}) as deployment,
    ):
        deployment["numbers"].submit(Number(1))
        assert handler.begun.wait(20)
        assert deployment.ask("edge", "record", deployment="numbers", known=0)["version"] == 1
        handler.released.set()
        deployment.drain(timeout=30)
    assert handler.seen == [1]


def test_what_fails_beside_a_handler_is_kept_for_the_flows_thread() -> None:
    error = ValueError("nobody expected this")

    def serve(now: float) -> None:
        raise error

    standby = Standby(serve, 0.01, "test")
    standby.begin()
    with standby:
        wait_for(lambda: standby.failure, "it has failed")
    standby.end()
    assert standby.failure is error


class Thinking(Acting):
    """Answers a question in its own code, and goes on with that until it is released."""

    linked_ports, wakes = "free", True

    def __init__(self, released: threading.Event) -> None:
        super().__init__(name="thinking", on="there")
        self.released = released

    def open(self, context: Context) -> Actor:
        return ThinkingActor(context, self.released)


class ThinkingActor(Actor):
    def __init__(self, context: Context, released: threading.Event) -> None:
        super().__init__(context)
        self.released = released
        self.asked: list[Later] = []

    def answer(self, question: dict[str, Any]) -> Later:
        self.asked.append(Later())
        self.context.wake()
        return self.asked[-1]

    def wake(self, now: float) -> None:
        for later in self.asked:
            later.give("thought")
            assert self.released.wait(20)


def test_answers_given_in_the_code_of_a_stone_are_sent_by_whoever_has_the_links(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    send, inside, released = Sockets.send, list[str](), threading.Event()

    def watched(self: Sockets, *arguments: Any) -> bool:
        frame = sys._getframe()
        while frame := frame.f_back:  # type: ignore[assignment]
            inside.extend(["wake"] if frame.f_code is ThinkingActor.wake.__code__ else [])
        return send(self, *arguments)

    monkeypatch.setattr(Sockets, "send", watched)
    there = ev.Node("there", "tcp://127.0.0.1:0", heartbeat=0.2)
    here = ev.Node("here", heartbeat=0.2)
    g, near = ev.Graph(), ev.Graph()
    g.add(Thinking(released))
    near.source("numbers", Number, on="here") >> ev.Terminal(print, on="here")
    with g.run(node=there), near.run(node=here) as flow:
        try:
            # It comes although the stone goes on.
            assert flow.ask(there.contact, "thinking", {}, timeout=10) == "thought"
        finally:
            released.set()
    # Else two threads would use one socket, and ZeroMQ ends the process.
    assert not inside
