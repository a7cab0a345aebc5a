"""A program that forks while its flows run, for ``test_forks.py``.

``python -m tests.node.forking MANNER FOLDER`` prints as its last line what was wrong, a list of texts
as JSON.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np

import evflow as ev
from evflow.flow import entry

FORKS = 6
LATE = 30.0


class Rec(ev.Event):
    """Small."""

    seq: int


class Wave(ev.Event):
    """Large."""

    seq: int
    samples: ev.Array[ev.f64, None]


class Parent:
    """Flows of a sender and a receiver, and what came."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.seen: list[int] = []
        self.waves: list[int] = []
        g = ev.Graph("forked")
        stored = g.source("recs", Rec, on="here") >> ev.Storage(
            10, path=folder / "s.db", on="here", name="store"
        )
        _ = stored >> ev.Terminal(lambda event: self.seen.append(event.seq), name="end", on="there")
        _ = g.source("waves", Wave, on="here") >> ev.Terminal(self.wave, name="waves end", on="there")
        self.there = ev.Node("there", listen="tcp://127.0.0.1:0", journal=folder / "journal.db")
        self.here = ev.Node("here", peers={"there": self.there.contact})
        self.receiver = g.run(node=self.there)
        self.flow = g.run(node=self.here)
        self.sent = self.large = 0
        self.ended = threading.Event()
        self.thread = threading.Thread(target=self.send)

    def wave(self, event: Any) -> None:
        if event.samples[0] == event.seq == event.samples[-1]:
            self.waves.append(event.seq)

    def send(self) -> None:
        while not self.ended.is_set():
            for _ in range(20):
                self.flow["recs"].submit(Rec(self.sent))
                self.sent += 1
            self.flow["waves"].submit(Wave(self.large, np.full(20_000, self.large)))
            self.large += 1
            time.sleep(0.001)

    def wrong(self) -> list[str]:
        """What is wrong once all was handled."""
        self.ended.set()
        self.thread.join()
        self.flow.drain(timeout=30)
        self.flow.send_stored("store")
        self.flow.drain(timeout=30)
        found = []
        for name, seen, sent in (("recs", self.seen, self.sent), ("waves", self.waves, self.large)):
            if seen != list(range(sent)):
                found.append(
                    f"{name}: {sent} were sent, {len(seen)} came, {len(set(seen))} of them different"
                )
        locks = sorted(path.name for path in self.folder.glob("*-lock"))
        if locks != ["journal.db-lock", "s.db-lock"]:
            found.append(f"locks: {locks}")
        self.flow.close()
        self.receiver.close()
        return found


def ends_at_once(parent: Parent) -> int:
    os._exit(0)


def ends(parent: Parent) -> int:
    return 0


def uses(parent: Parent) -> int:
    """Everything of the flow says what to do."""
    flow = parent.flow
    for use in (
        lambda: flow["recs"].submit(Rec(-1)),
        lambda: flow["waves"].submit(Wave(-1, np.zeros(20_000))),
        lambda: flow["waves"].submit(flow["waves"].loan(Wave, seq=-1, samples=200_000)),
        lambda: flow["recs"].submit_batch({"seq": [-1]}),
        lambda: flow["recs"].flush(timeout=5),
        lambda: flow.drain(timeout=5),
        lambda: flow.freeze("store"),
        lambda: flow.call(lambda: None),
    ):
        try:
            use()
        except ev.FlowError as error:
            if "fork" not in str(error) or "spawn" not in str(error):
                print(error, file=sys.stderr)
                return 3
        else:
            return 4
    flow.stats()
    flow.dead_letters()
    parent.here.links()
    flow.close()
    parent.here.close()
    parent.there.close()
    return 0


CHILDREN: dict[str, Callable[[Parent], int]] = {
    "ends at once": ends_at_once,
    "ends": ends,
    "uses": uses,
}


def waited(process: int, manner: str) -> list[str]:
    end = time.monotonic() + LATE
    while time.monotonic() < end:
        found, status = os.waitpid(process, os.WNOHANG)
        if found:
            code = os.waitstatus_to_exitcode(status)
            return [f"{manner}: the fork ended with {code}"] if code else []
        time.sleep(0.01)
    os.kill(process, signal.SIGKILL)
    os.waitpid(process, 0)
    return [f"{manner}: the fork hangs"]


def forks(parent: Parent, manner: str) -> list[str]:
    wrong = []
    for _ in range(FORKS):
        time.sleep(0.02)
        process = os.fork()
        if not process:
            sys.exit(CHILDREN[manner](parent))
        wrong += waited(process, manner)
        if wrong:
            break
    return wrong


def forks_with_locks_held(parent: Parent) -> list[str]:
    """Another thread has every lock that a submission or a closing could need."""
    flow: Any = parent.flow
    arena: Any = flow.node._sockets._arena
    locks = [entry._SETTING, flow._lock, flow._worker._queues_lock, arena._lock]
    locks += [queue.changed for queue in flow._worker._queues]
    for lock in locks:
        held, done = threading.Event(), threading.Event()

        def hold(lock: Any = lock, held: threading.Event = held, done: threading.Event = done) -> None:
            with lock:
                held.set()
                done.wait(LATE)

        holder = threading.Thread(target=hold)
        holder.start()
        held.wait()
        process = os.fork()
        if not process:
            sys.exit(uses(parent))
        done.set()
        holder.join()
        wrong = waited(process, f"lock {locks.index(lock)}")
        if wrong:
            return wrong
    return []


def square(number: int) -> int:
    return number * number


def multiprocesses(parent: Parent, method: str) -> list[str]:
    context = multiprocessing.get_context(method)
    with ProcessPoolExecutor(2, mp_context=context) as pool:
        if list(pool.map(square, range(20))) != [n * n for n in range(20)]:
            return ["the pool computed something else"]
    process = context.Process(target=square, args=(3,))
    process.start()
    process.join(LATE)
    return [] if process.exitcode == 0 else [f"{method}: ended with {process.exitcode}"]


def handler_forks(folder: Path) -> list[str]:
    """A handler forks, and the fork returns from it."""
    parent, seen = os.getpid(), []

    def fork(event: Any) -> None:
        seen.append(event.seq)
        if event.seq % 10 == 3:
            process = os.fork()
            if process:
                os.waitpid(process, 0)
        (folder / f"{event.seq} {os.getpid() == parent}").touch()

    g = ev.Graph("handler")
    tick = g.source("recs", Rec)
    _ = tick >> ev.Terminal(fork, name="in the pass")
    with g.run() as flow:
        flow["recs"].submit_batch({"seq": list(range(30))})
        flow.drain(timeout=20)
    # The forks had what was left of the batch, and ended then.
    made = {path.name for path in folder.glob("* True")}
    return (
        [] if made == {f"{n} True" for n in range(30)} and seen == list(range(30)) else [f"handled: {made}"]
    )


def main() -> None:
    manner, folder = sys.argv[1], Path(sys.argv[2])
    if manner == "handler":
        print(json.dumps(handler_forks(folder)), flush=True)
        return
    parent = Parent(folder)
    parent.thread.start()
    time.sleep(0.3)
    if manner == "locks":
        wrong = forks_with_locks_held(parent)
    elif manner in CHILDREN:
        wrong = forks(parent, manner)
    else:
        wrong = multiprocesses(parent, manner)
    wrong += parent.wrong()
    print(json.dumps(wrong), flush=True)


if __name__ == "__main__":
    main()
