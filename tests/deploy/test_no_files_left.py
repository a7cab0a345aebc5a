"""A daemon that can open no more files: what is connected and runs goes on, the rest comes later."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

import evflow as ev

pytestmark = pytest.mark.slow

DAEMON = """
import logging, os, resource, sys
import evflow as ev

logging.basicConfig(level="INFO", filename=sys.argv[1] + "/log")
taken, handlers = [], {"desk:show": lambda event: None}
with ev.Daemon("edge", "tcp://127.0.0.1:0", storage=sys.argv[1] + "/edge", handlers=handlers) as edge:
    print(edge.contact, flush=True)
    for line in sys.stdin:
        if line == "take\\n":
            resource.setrlimit(resource.RLIMIT_NOFILE, (400, 400))
            try:
                while True:
                    taken.append(os.open("/dev/null", os.O_RDONLY))
            except OSError:
                pass
        elif line == "give\\n":
            for file in taken:
                os.close(file)
        else:
            break
        print("done", flush=True)
    assert edge.failure is None, edge.failure
print("ended", flush=True)
"""


class Reading(ev.Event):
    number: int


class Edge:
    """A daemon in a process of its own."""

    def __init__(self, folder: Path) -> None:
        self.log = folder / "log"
        self.process = subprocess.Popen(
            [sys.executable, "-c", DAEMON, str(folder)],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, encoding="utf-8",
        )  # fmt: skip
        self.contact = self.said()

    def said(self) -> str:
        assert self.process.stdout is not None
        return self.process.stdout.readline().strip()

    def do(self, word: str) -> str:
        assert self.process.stdin is not None
        self.process.stdin.write(f"{word}\n")
        self.process.stdin.flush()
        return self.said()


@pytest.fixture
def edge(tmp_path: Path) -> Iterator[Edge]:
    found = Edge(tmp_path)
    try:
        yield found
    finally:
        found.process.kill()
        found.process.communicate()


def graph(name: str) -> ev.Graph:
    g = ev.Graph(name)
    with g.on("edge"):
        some = g.source("readings", Reading) >> ev.Filter("100 / input.number >= 0", name="some")
        some >> ev.Storage(1_000_000, name="kept") >> ev.Terminal("desk:show", name="end")
    return g


def test_a_daemon_goes_on_and_takes_what_is_new_later(edge: Edge) -> None:
    with graph("first").deploy({"edge": edge.contact}) as first, ThreadPoolExecutor(1) as beside:
        first["readings"].submit(Reading(1))
        first.drain(timeout=30)
        assert edge.do("take") == "done"
        for number in range(-50, 50):
            first["readings"].submit(Reading(number))
        first.drain(timeout=30)
        first["readings"].submit_batch({"number": range(51, 60_000)}, schema=Reading)
        first.drain(timeout=60)
        stats = first.stats()["kept"]
        assert stats["in"] == stats["queued"] == 1 + 49 + 59_949
        assert first.stats()["some"]["errors"] == 1
        (letter,) = first.dead_letters()
        assert "zero" in letter.reason
        (status,) = first.status().values()
        assert status["memory"] > 1 << 20
        # One who is not connected yet waits.
        later = beside.submit(lambda: graph("second").deploy({"edge": edge.contact}, timeout=60))
        with pytest.raises(ev.EvflowError):
            graph("third").deploy({"edge": edge.contact}, timeout=2)
        assert edge.do("give") == "done"
        with later.result(timeout=90) as second:
            second["readings"].submit(Reading(1))
            second.drain(timeout=30)
            assert second.stats()["kept"]["queued"] == 1
        first["readings"].submit(Reading(7))
        first.drain(timeout=30)
    assert edge.do("end") == "ended"
