"""Runs cases in processes of their own: one that crashes or hangs is reported with its seed, and replaced.

A worker is handed a few cases at a time and reports each before it begins and when it is done; what it tries
is noted in memory that outlives it.
"""

from __future__ import annotations

import faulthandler
import multiprocessing
import os
import resource
import signal
import sys
import time
import traceback
import warnings
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import islice
from multiprocessing.connection import Connection, wait
from typing import Any
from unittest import mock

from evflow import mishaps
from tests.fuzz import areas, guard, samples
from tests.fuzz.areas import Tally

__all__ = ["Failure", "Report", "fuzz", "one"]

HANG = 60.0
"""Seconds after which a case is given up."""

_MEMORY = 6 << 30
_NOTE = 1 << 16
_CHUNK = 25
_MOST_FAILURES = 20

Job = tuple[str, int]


@dataclass(frozen=True)
class Failure:
    """A case that went wrong.

    Attributes:
        area, seed: which.
        what: the traceback, or how the process ended.
        trying: what was being tried.
    """

    area: str
    seed: int
    what: str
    trying: str

    def __str__(self) -> str:
        again = f"python -m tests.fuzz --only {self.area} --seed {self.seed} --programs 1"
        return f"---- {self.area}, seed {self.seed}\n{self.trying}\n{self.what}\nagain: {again}"


@dataclass
class Report:
    """What a run came to.

    Attributes:
        by_area: cases, pairs, programs and seconds of each area.
        failures: what went wrong.
        slowest: the slowest case.
    """

    by_area: dict[str, list[float]] = field(default_factory=dict)
    failures: list[Failure] = field(default_factory=list)
    slowest: tuple[float, str, int] = (0.0, "", 0)

    def add(self, job: Job, tally: Tally, seconds: float) -> None:
        """Counts a case."""
        sums = self.by_area.setdefault(job[0], [0, 0, 0, 0.0])
        for n, more in enumerate((1, tally.pairs, tally.programs, seconds)):
            sums[n] += more
        self.slowest = max(self.slowest, (seconds, *job))

    def total(self, column: int) -> int:
        """The sum of a column over all areas."""
        return int(sum(sums[column] for sums in self.by_area.values()))

    def progress(self) -> str:
        """In one line how far it is."""
        return f"{self.total(1):,} pairs, {self.total(0):,} cases, {len(self.failures)} failures"

    def __str__(self) -> str:
        rows = [("area", "cases", "pairs", "programs", "seconds")]
        for name in [*areas.AREAS, "all"]:
            sums = self.by_area.get(name, [self.total(n) for n in range(4)] if name == "all" else None)
            if sums:
                rows.append((name, *(f"{value:,.0f}" for value in sums)))
        table = "\n".join(f"{row[0]:10}" + "".join(f"{cell:>12}" for cell in row[1:]) for row in rows)
        seconds, area, seed = self.slowest
        return f"{table}\nslowest case: {area}, seed {seed}, {seconds:.1f} s\nfailures: {len(self.failures)}"


def one(job: Job, tell: Any) -> tuple[Tally, Failure | None]:
    """Runs one case in this process."""
    trying = [""]

    def note(text: str) -> None:
        trying[0] = text
        tell(text)

    contained: list[BaseException] = []
    try:
        with mock.patch.object(mishaps, "tell", lambda log, who, what, error: contained.append(error)):
            tally = areas.run(*job, note)
        if contained:
            raise AssertionError("a flow has contained what nothing should raise") from contained[0]
        return tally, None
    except Exception:  # noqa: BLE001  whatever it is, it is a finding
        return Tally(samples.INPUTS), Failure(*job, traceback.format_exc(), trying[0])


def _work(connection: Connection, note: Any) -> None:
    """The life of a worker."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    warnings.simplefilter("ignore")
    faulthandler.enable()
    resource.setrlimit(resource.RLIMIT_AS, (_MEMORY, _MEMORY))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))

    def tell(text: str) -> None:
        note.value = text.encode("utf-8", "backslashreplace")[: _NOTE - 1].replace(b"\0", b"\\0")

    with guard.installed():
        while (jobs := connection.recv()) is not None:
            for job in jobs:
                connection.send(None)
                start = time.perf_counter()
                tally, failure = one(job, tell)
                connection.send((job, tally, time.perf_counter() - start, failure))


class _Worker:
    """A process, the cases that it still has to do, and since when it has been silent."""

    def __init__(self) -> None:
        context = multiprocessing.get_context("spawn")
        self.connection, theirs = context.Pipe()
        self.note = context.RawArray("c", _NOTE)
        self.process = context.Process(target=_work, args=(theirs, self.note), daemon=True)
        self.process.start()
        theirs.close()
        self.jobs: deque[Job] = deque()
        self.since = float("inf")

    def give(self, jobs: list[Job]) -> None:
        """Hands it some cases."""
        if self.since < float("inf"):  # it has begun to work
            self.since = time.monotonic()
        self.jobs.extend(jobs)
        self.connection.send(jobs)

    def hangs(self) -> bool:
        """Whether the case that it is at takes too long."""
        return bool(self.jobs) and time.monotonic() - self.since > HANG

    def end(self) -> int:
        """Ends the process, with a traceback on stderr if it is at a case; gives its exit code."""
        if self.jobs and self.process.is_alive() and self.process.pid:
            os.kill(self.process.pid, signal.SIGABRT)
            self.process.join(2)
        self.process.kill()
        self.process.join()
        self.connection.close()
        return self.process.exitcode or 0


def fuzz(
    seed: int, pairs: int, minutes: float = float("inf"), only: str | None = None, workers: int = 2
) -> Report:
    """Runs cases until there were so many pairs, the time is over, or too much went wrong."""
    report, seeds = Report(), _jobs(seed, only)
    deadline, told = time.monotonic() + 60 * minutes, time.monotonic()
    crew = [_Worker() for _ in range(max(1, min(workers, pairs // samples.INPUTS)))]
    left: list[Job] = []
    while True:
        if time.monotonic() < deadline and len(report.failures) < _MOST_FAILURES:
            _hand_out(crew, left, seeds, pairs - report.total(1))
        if not any(worker.jobs for worker in crew):
            break
        ready = wait([worker.connection for worker in crew], timeout=1.0)
        for n, worker in enumerate(crew):
            if worker.hangs() or (worker.connection in ready and not _receive(worker, report)):
                left += _lost(worker, report)
                crew[n] = _Worker()
        if time.monotonic() - told > 10:
            told = time.monotonic()
            print(report.progress(), file=sys.stderr)
    for worker in crew:
        worker.end()
    return report


def _hand_out(crew: list[_Worker], left: list[Job], seeds: Iterator[Job], missing: int) -> None:
    """Gives cases to those who have none: what others left, then new ones while pairs are missing."""
    for worker in crew:
        if not worker.jobs:
            open_pairs = samples.INPUTS * sum(len(other.jobs) for other in crew)
            wanted = min(_CHUNK, -(-(missing - open_pairs) // samples.INPUTS))
            jobs = left[:_CHUNK] or list(islice(seeds, max(wanted, 0)))
            del left[:_CHUNK]
            if jobs:
                worker.give(jobs)


def _jobs(seed: int, only: str | None) -> Iterator[Job]:
    while True:
        yield only or areas.choose(seed), seed
        seed += 1


def _receive(worker: _Worker, report: Report) -> bool:
    """Takes one message of a worker; gives whether there was one."""
    try:
        message = worker.connection.recv()
    except (EOFError, ConnectionError):
        return False
    worker.since = time.monotonic()
    if message is not None:
        job, tally, seconds, failure = message
        worker.jobs.popleft()
        report.add(job, tally, seconds)
        if failure is not None:
            _fail(report, failure)
    return True


def _lost(worker: _Worker, report: Report) -> list[Job]:
    """Reports the case that a worker was at; gives those that it has not begun."""
    hung = worker.hangs()
    code = worker.end()
    job = worker.jobs.popleft()
    how = f"it hangs: no end after {HANG:.0f} s" if hung else f"the process died: {_exit(code)}"
    report.add(job, Tally(samples.INPUTS), HANG if hung else 0.0)
    _fail(report, Failure(*job, how, worker.note.value.decode(errors="replace")))
    return list(worker.jobs)


def _exit(code: int) -> str:
    return signal.Signals(-code).name if code < 0 else f"exit code {code}"


def _fail(report: Report, failure: Failure) -> None:
    report.failures.append(failure)
    print(failure, flush=True)
