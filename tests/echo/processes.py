"""Processes that take part in channels, told what to do over a pipe; none outlives its test."""

from __future__ import annotations

import json
import os
import sys
import threading
from collections.abc import Callable
from typing import Any

import numpy as np

import evflow as ev
from evflow import echo
from tests.node.processes import NodeProcess


class Rec(ev.Event):
    """What the channels of the tests carry."""

    seq: int
    source: int = 0


class Double(ev.Event):
    """What a transform makes."""

    twice: int


class EchoProcess(NodeProcess):
    """A process of its own that takes part in channels; see ``Commands`` for what it may be asked.

    Args:
        name: its name.
        settings: arguments of ``echo.Process``.
    """

    _PROGRAM = "tests.echo.processes"

    def __init__(self, name: str, **settings: Any) -> None:
        super().__init__("", name, ready=False, settings={"name": name} | settings)
        self.wait_ready()


class Commands:
    """What a process may be asked to do; channels go by the names that it gives them."""

    def __init__(self, process: echo.Process) -> None:
        self._process = process
        self._channels: dict[str, echo.Channel] = {}
        self._subscriptions: dict[str, echo.Subscription] = {}
        self._seen: dict[str, list[int]] = {}
        self._halted = threading.Event()
        self._pouring = threading.Thread()
        self._poured = 0

    def create(self, name: str, **settings: Any) -> str:
        """Makes a channel; gives its contact."""
        self._channels[name] = self._process.create(name, Rec, **settings)
        return self._channels[name].contact

    def open(self, name: str, contact: str, timeout: float = 20.0) -> str:
        """Opens a channel; gives its contact."""
        self._channels[name] = self._process.open(contact, timeout)
        return self._channels[name].contact

    def derive(self, name: str, origin: str, code: str) -> str:
        """Derives a channel; gives its contact."""
        self._channels[name] = self._channels[origin].derive(name, code)
        return self._channels[name].contact

    def double(self, name: str, origin: str) -> str:
        """Derives a channel with a transform; gives its contact."""
        stone = ev.Transform("output.twice = 2 * input.seq; return 1;", output=Double)
        self._channels[name] = self._channels[origin].derive(name, stone)
        return self._channels[name].contact

    def subscribe(self, channel: str, name: str = "", field: str = "seq", timeout: float = 20.0) -> None:
        """Notes a field of each event under a name, that of the channel by default."""
        seen = self._seen.setdefault(name or channel, [])

        def note(batch: ev.EventBatch) -> None:
            seen.extend(batch[field].tolist())

        self._subscriptions[name or channel] = self._channels[channel].subscribe(
            note, batch=True, timeout=timeout
        )

    def unsubscribe(self, name: str) -> None:
        """Notes no more."""
        self._subscriptions.pop(name).close()

    def publish(self, channel: str, start: int, stop: int, batch: int = 100, source: int = 0) -> None:
        """Publishes numbers, a batch at a time."""
        for at in range(start, stop, batch):
            seq = np.arange(at, min(at + batch, stop))
            self._channels[channel].publish_batch({"seq": seq, "source": np.full(len(seq), source)})

    def pour(self, channel: str, start: int = 0) -> None:
        """Publishes numbers from ``start`` on, ten at a time, until ``halt``."""
        self._halted.clear()

        def work() -> None:
            at = start
            while not self._halted.wait(0.0005):
                self._channels[channel].publish_batch({"seq": np.arange(at, at + 10)})
                at += 10
            self._poured = at

        self._pouring = threading.Thread(target=work)
        self._pouring.start()

    def halt(self) -> int:
        """Ends ``pour``; gives the number that would have come next."""
        self._halted.set()
        self._pouring.join()
        return self._poured

    def seen(self, name: str) -> list[int]:
        """What was noted."""
        return list(self._seen.get(name, []))

    def count(self, name: str) -> int:
        """How much was noted."""
        return len(self._seen.get(name, []))

    def drain(self, timeout: float = 20.0) -> None:
        """Waits until all is handled."""
        self._process.drain(timeout)

    def members(self, channel: str) -> dict[str, bool]:
        """Who takes part, and whether it is subscribed."""
        return {member.process: member.subscribed for member in self._channels[channel].members()}

    def stats(self, channel: str) -> dict[str, Any]:
        """What happened."""
        return self._channels[channel].stats()

    def links(self) -> dict[str, Any]:
        """The links of the node."""
        return self._process.node.links()

    def stones(self) -> list[str]:
        """The names of the stones."""
        return sorted(self._process.flow.stats())

    def refused(self) -> dict[str, int]:
        """What was refused."""
        return self._process.refused

    def letters(self) -> int:
        """How many dead letters there are."""
        return len(self._process.flow.dead_letters())

    def close(self, channel: str) -> None:
        """Closes a channel."""
        self._channels.pop(channel).close()


def main() -> None:
    """A process's program."""
    with os.fdopen(os.dup(1), "w", buffering=1) as answers:
        os.dup2(2, 1)
        _serve(json.loads(sys.argv[1])["settings"], lambda *a: answers.write(json.dumps(a) + "\n"))


def _serve(settings: dict[str, Any], answer: Callable[[Any, str | None], Any]) -> None:
    with echo.Process(**settings) as process:
        commands = Commands(process)
        answer(process.contact, None)
        for line in sys.stdin:
            what, arguments = json.loads(line)
            try:
                answer(getattr(commands, what)(**arguments), None)
            except ev.EvflowError as failure:
                answer(None, str(failure))
