"""The healthy program: it deploys, submits numbered events, and asks the nodes how they are.

It is told what to do by lines of JSON on standard input, and answers each with a line.
"""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from pathlib import Path
from typing import Any

import evflow as ev
from evflow.deploy.client import Cluster
from tests.siege.ways import Way, graph, ways

__all__ = ["main"]

_ASK_EVERY = 1.0


class Desk:
    """What the program does.

    Args:
        hosts: where the nodes are.
        keys: the folder of its keys.
        folder: where it writes what the nodes answered.
    """

    def __init__(self, hosts: dict[str, str], keys: str, folder: str) -> None:
        self._hosts = hosts
        self._settings: dict[str, Any] = {"name": "desk", "keys": keys}
        self._answers = Path(folder, "answers").open("a", buffering=1)  # noqa: SIM115  for as long as it runs
        self._ended = threading.Event()
        self._drained = threading.Event()
        self._hurries: dict[str, float] = {}
        self._naps: dict[int, float] = {}
        self._sent: dict[int, int] = {}
        self._threads: list[threading.Thread] = []
        self._troubles: list[str] = []

    def begin(self) -> None:
        """Deploys, and begins to submit and to ask."""
        self._handle = graph().deploy(self._hosts, timeout=30.0, **self._settings)
        alone = [[way] for way in ways() if way.kind != "many"]
        # The many share a thread: all of them take the same way.
        for group in [*alone, [way for way in ways() if way.kind == "many"]]:
            self._start(self._feed, group)
        # Under a name of its own: of two that have the same a node hears only one.
        keys = Path(self._settings["keys"]).with_name("watch")
        cluster = Cluster(self._hosts, **self._settings | {"name": "watch", "keys": str(keys)})
        for host in self._hosts:
            self._start(self._ask, cluster, host)

    def _start(self, work: Any, *arguments: Any) -> None:
        thread = threading.Thread(target=work, args=arguments, daemon=True)
        thread.start()
        if work == self._feed:
            self._threads.append(thread)

    def _feed(self, group: list[Way]) -> None:
        entries = [self._handle[way.source] for way in group]
        try:
            while not self._ended.wait(self._pause(group[0])):
                for way, entry in zip(group, entries, strict=True):
                    self._submit(way, entry)
        except ev.EvflowError as error:
            self._troubles.append(f"way {group[0].number}: {error}")

    def _pause(self, way: Way) -> float:
        return 0.0 if time.monotonic() < self._hurries.get(way.kind, 0.0) else way.pause

    def _submit(self, way: Way, entry: Any) -> None:
        start = self._sent.get(way.number, 0)
        count = way.batch
        columns = {
            "way": [way.number] * count,
            "seq": list(range(start, start + count)),
            "sent": [time.monotonic()] * count,
            "nap": [0.0] * (count - 1) + [self._naps.pop(way.number, 0.0)],
        }
        self._sent[way.number] = start + count
        entry.submit_batch(columns, timeout=120)

    def _ask(self, cluster: Cluster, host: str) -> None:
        while not self._drained.wait(_ASK_EVERY):
            asked = time.monotonic()
            try:
                status = cluster.ask(host, "status", seconds=2.0)
            except ev.EvflowError as error:
                told: dict[str, Any] = {"error": str(error)[:300]}
            else:
                links = {peer: one["sessions"] for peer, one in status["links"].items()}
                told = {"links": links, "refused": status["refused"], "pid": status["pid"]}
            told |= {"host": host, "asked": asked, "answered": time.monotonic()}
            self._answers.write(json.dumps(told) + "\n")

    def nap(self, way: int, seconds: float) -> None:
        """Has the terminal of a way sleep when the next events arrive there."""
        self._naps[way] = seconds

    def hurry(self, kind: str, seconds: float) -> None:
        """Submits as fast as it goes on ways of a kind, for a while."""
        self._hurries[kind] = time.monotonic() + seconds

    def end(self, within: float) -> dict[str, Any]:
        """Ends submitting; returns how many events were submitted on each way, and what went wrong."""
        until = time.monotonic() + within
        self._ended.set()
        for thread in self._threads:
            thread.join(max(0.0, until - time.monotonic()))
        if any(thread.is_alive() for thread in self._threads):
            self._troubles.append("submit did not return")
        try:
            self._handle.drain(max(0.1, until - time.monotonic()))
        except ev.EvflowError as error:
            self._troubles.append(str(error))
        self._drained.set()
        return {"sent": self._sent, "troubles": self._troubles}


def main() -> None:
    """The program."""
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)
    desk = Desk(**json.loads(sys.argv[1]))
    for line in sys.stdin:
        what, arguments = json.loads(line)
        answers.write(json.dumps(getattr(desk, what)(**arguments)) + "\n")
    # Its nodes need not end in good order: nothing is owed any more, or that was told.
    os._exit(0)


if __name__ == "__main__":
    main()
