"""What matching takes on a CUDA device, beside the CPU in the same run; each answer that is timed is checked.

    python benchmarks/matching_gpu.py [--json FILE] [--seconds N] [--scale SHARE] [--events N] [--device N]

Needs a card from Turing on, NVIDIA's driver, PyCUDA, and numba for the CPU's side; docs/gpu.md tells how to
get them. The exit code is 1 if an answer is wrong.
"""

from __future__ import annotations

import argparse
import json
import platform
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

import evflow
from evflow.errors import EvflowError, SubscriptionError
from evflow.gpu.device import Device, OutOfMemory
from evflow.gpu.scenarios import ENGINES, ccm_scenario, clcb_scenario, differences, mixed_scenario
from evflow.matching.columns.bulk import FilterColumns
from evflow.matching.engine import Matches
from evflow.matching.matcher import Matcher

ONE_BY_ONE = ("ccm", "clcb")
BATCHES = (1, 16, 256, 4096)
ORACLE_EVENTS = 50
"""So many events of a scenario are tried by brute force; the others by the CPU's index, which those check."""

PASSES = 5
ENOUGH = 5.0
"""Seconds after which no other pass is made."""

COPIED = 256 << 20
MOVED = 100
"""One filter in so many moves."""

MOVED_ALONE = 200

AT_RANDOM = "ranges and areas at random"
SLOTS = (1, 2, 3, 4)
SLOTS_BATCH = 256
"""Events of a batch where ``clcb-grid`` is timed by how many batches may be in flight."""

Scenario = tuple[FilterColumns, list[dict[str, Any]]]


class Bench:
    """A run of all scenarios. Times are the median of a few passes; device times are by CUDA's events.

    Args:
        device: which CUDA device, from 0.
        scale: the share of the papers' sizes, 250,000 filters for CCM and 2,500,000 for CLCB.
        events: how many events of each scenario; ``ccm`` and ``clcb``, which take them one by one, get fewer.
        seconds: after so many nothing more is begun, and what is left out is told.

    Attributes:
        report: all that was found so far, to be written as JSON. ``wrong`` counts the answers that differ
            from the oracle's; ``left_out`` names what was not measured, and why.
    """

    def __init__(
        self, *, device: int = 0, scale: float = 1.0, events: int = 4096, seconds: float = 540.0
    ) -> None:
        self._ordinal, self._scale, self._events, self._seconds = device, scale, events, seconds
        self.report: dict[str, Any] = {}

    def run(self) -> Iterator[str]:
        """Measures.

        Yields:
            Lines to be read; ``report`` is good after each.

        Raises:
            DeviceError: the device cannot be used.
        """
        self._began = time.monotonic()
        device = Device.of(self._ordinal)
        self.report = {
            "evflow": evflow.__version__,
            "python": platform.python_version(),
            "numpy": np.__version__,
            "host": platform.processor() or platform.machine(),
            "device": device.facts(),
            "scale": self._scale,
            "seconds": self._seconds,
            "wrong": 0,
            "left_out": [],
            "scenarios": [],
            "complete": False,
        }
        yield f"device {self._ordinal}: {device.name}"
        self.report["copies"] = device.do("timing copies", partial(_copies, device))
        yield ", ".join(f"{what} {speed:,.1f} GB/s" for what, speed in self.report["copies"].items())
        for title, make in self._scenarios().items():
            yield from self._scenario(title, make)
        self.report["complete"] = not self.report["left_out"]
        self.report["took_seconds"] = time.monotonic() - self._began
        for left in self.report["left_out"]:
            yield f"left out: {left}"
        yield f"{self.report['wrong']} wrong"

    def _scenarios(self) -> dict[str, Callable[[], Scenario]]:
        # Of filters for CCM, and for CLCB of subscriptions, each of ten filters.
        count, events = max(10, round(self._scale * 250_000)), self._events

        def content_only() -> Scenario:
            columns, made = clcb_scenario(count, events)
            return replace(columns, x=None, y=None, radius=None), made

        return {
            "CCM, table 2, uniform names": lambda: ccm_scenario(count, events),
            "CCM, table 2, Zipf names": lambda: ccm_scenario(count, events, exponent=1.7),
            "CLCB, table 2, with location": lambda: clcb_scenario(count, events),
            "CLCB, table 2, content only": content_only,
            "CLCB, figure 6b, any content": lambda: clcb_scenario(
                count, max(1, events // 4), any_content=True
            ),
            AT_RANDOM: lambda: mixed_scenario(count, events),
        }

    def _late(self, what: str) -> bool:
        late = time.monotonic() - self._began > self._seconds
        if late:
            self.report["left_out"].append(f"{what}: {self._seconds:g} seconds were over")
        return late

    def _scenario(self, title: str, make: Callable[[], Scenario]) -> Iterator[str]:
        if self._late(title):
            return
        case = _Case(*make())
        found: dict[str, Any] = {"name": title, **case.facts(), "engines": {}}
        self.report["scenarios"].append(found)
        yield f"{title}: {found['filters']:,} filters, {found['matches_of_an_event']:,.1f} matches an event"
        for engine in ("index", *ENGINES):
            row = self._tried(f"{title}, {engine}", partial(self._engine, engine, case))
            if row is not None:
                found["engines"][engine] = row
                yield f"  {_line(engine, row)}"
        if title == AT_RANDOM:
            row = self._tried(f"{title}, slots", partial(self._slots, case))
            if row is not None:
                found["slots"] = row
                parts = [f"{took:,.1f} with {slots}" for slots, took in row["us_of_an_event"].items()]
                yield f"  clcb-grid by slots, {row['wrong']} wrong, µs an event: {', '.join(parts)}"

    def _tried(self, what: str, measure: Callable[[], dict[str, Any]]) -> dict[str, Any] | None:
        """What was measured; None: there was no time or no room for it, which the report tells."""
        if self._late(what):
            return None
        try:
            row = measure()
        except (OutOfMemory, SubscriptionError) as error:
            self.report["left_out"].append(f"{what}: {error}")
            return None
        self.report["wrong"] += row["wrong"]
        return row

    def _slots(self, case: _Case) -> dict[str, Any]:
        """Microseconds of an event by how many batches may be in flight, all events in one call."""
        made = case.made[: len(case.expected)]
        row: dict[str, Any] = {"batch": SLOTS_BATCH, "us_of_an_event": {}, "wrong": 0}
        for slots in SLOTS:
            matcher = Matcher("clcb-grid", device=self._ordinal, batch=SLOTS_BATCH, slots=slots)
            matcher.subscribe_many(case.columns)
            # The first call sends the filters and makes room.
            matcher.match_batch(made)
            took, wrong = _timed(matcher, made, len(made), case.expected)
            row["us_of_an_event"][str(slots)] = took
            row["wrong"] += wrong
        return row

    def _engine(self, engine: str, case: _Case) -> dict[str, Any]:
        on_device = engine != "index"
        options: dict[str, Any] = {"device": self._ordinal} if on_device else {}
        if engine == "clcb-grid":
            options["batch"] = max(BATCHES)
        matcher = Matcher(engine, **options)
        if not on_device:
            _compile(engine)
        began = time.perf_counter()
        matcher.subscribe_many(case.columns)
        matcher.match_batch(case.made[:1])
        row: dict[str, Any] = {"deployed_seconds": time.perf_counter() - began}
        if not on_device:
            row["compared"] = len(case.expected)
            row["wrong"] = case.learn(matcher.match_batch(case.made))
        used = case.made[: ORACLE_EVENTS if engine in ONE_BY_ONE else len(case.expected)]
        if on_device:
            row["compared"] = len(used)
            row["wrong"] = differences(matcher.match_batch(used), _part(case.expected, 0, len(used)))
        row["us_of_an_event"] = {}
        for size in (len(used),) if engine in ONE_BY_ONE else BATCHES:
            if size <= len(used):
                took, wrong = _timed(matcher, used, size, case.expected)
                row["us_of_an_event"][str(1 if engine in ONE_BY_ONE else size)] = took
                row["wrong"] += wrong
        if on_device:
            row["device_bytes"] = matcher.stats().memory["engine.device"]
            row["steps"] = self._steps(matcher, used)
        if case.moves is not None:
            row["moves"], wrong = case.moves.made(matcher)
            row["wrong"] += wrong
        return row

    def _steps(self, matcher: Matcher, made: list[dict[str, Any]]) -> dict[str, Any]:
        """Of each step: microseconds and least bytes of an event, GB/s, and the share of the card's."""
        engine, rows = matcher._engine, matcher.prepare(made).rows
        times = np.median([engine.times(rows).sum(axis=0) for _ in range(3)], axis=0)
        moved = engine.least_bytes(rows).sum(axis=0)
        steps: dict[str, Any] = {}
        for name, took, nbytes in zip(engine.steps, times.tolist(), moved.tolist(), strict=True):
            speed = nbytes / took / 1e6 if took else 0.0
            steps[name] = {"us": took * 1e3 / len(made), "least_bytes": nbytes / len(made), "gb_per_s": speed}
            if not name.startswith("copy"):
                steps[name]["share_of_card"] = speed / self.report["copies"]["on the device"]
        return steps


class _Case:
    """A scenario, and what its events satisfy: the first by brute force, the others once an index says."""

    def __init__(self, columns: FilterColumns, made: list[dict[str, Any]]) -> None:
        self.columns, self.made = columns, made
        few = made[:ORACLE_EVENTS]
        oracle = Matcher("reference")
        oracle.subscribe_many(columns)
        self.expected = oracle.match_batch(few)
        self.moves = None if columns.x is None else _Moves(columns, few)

    def facts(self) -> dict[str, Any]:
        """What it consists of."""
        return {
            "filters": len(self.columns),
            "constraints": len(self.columns.name),
            "subscriptions": self.columns.subscriptions,
            "events": len(self.made),
            "events_by_brute_force": len(self.expected),
            "matches_of_an_event": len(self.expected.ids) / len(self.expected),
        }

    def learn(self, matches: Matches) -> int:
        """Takes what the index says of all events; gives how often brute force says something else."""
        wrong = differences(matches, self.expected)
        self.expected = matches
        return wrong


def _compile(engine: str) -> None:
    """Lets what is compiled on first use be compiled before it is timed."""
    matcher = Matcher(engine)
    matcher.subscribe_many(["a > 5 and b == 'word'", "a < 5 and within(0, 0, 1)", "b contains 'o'"])
    matcher.match_batch([{"a": 6.0, "b": "word"}, {"a": 4.0, "x": 0.0, "y": 0.0}])
    matcher.move_many([1], [0.5], [0.5])
    matcher.move(1, 0.0, 0.0)


def _copies(device: Device) -> dict[str, float]:
    """GB/s of copies, by CUDA's events: one on the device counts twice, as it reads and writes."""
    nbytes = min(COPIED, device.facts()["free_bytes"] // 8) // 4 * 4
    here, there = device.allocate(nbytes), device.allocate(nbytes)
    pinned, stream = device.pinned(nbytes), device.stream()
    device.clear(here, stream)
    kinds: dict[str, tuple[int, Callable[[], None]]] = {
        "on the device": (2, lambda: device.copy(there, here, stream)),
        "to the device": (1, lambda: device.send(here.address, pinned, stream)),
        "to the host": (1, lambda: device.fetch(pinned, here.address, stream)),
    }
    found = {}
    for what, (times, copy) in kinds.items():
        marks = [device.mark(timing=True) for _ in range(PASSES + 2)]
        for mark in marks:
            mark.record(stream)
            copy()
        stream.synchronize()
        # The first may be slower.
        took = float(np.median(device.milliseconds(marks)[1:]))
        found[what] = times * nbytes / took / 1e6 if took else 0.0
    return found


def _timed(matcher: Matcher, made: list[dict[str, Any]], size: int, expected: Matches) -> tuple[float, int]:
    """Microseconds of an event in calls of so many, and how many answers are wrong."""
    firsts = range(0, min(len(made), max(size, 256)) - size + 1, size)
    parts = [matcher.prepare(made[first : first + size]) for first in firsts]
    times: list[float] = []
    wrong = 0
    while len(times) < PASSES and sum(times) < ENOUGH:
        began = time.perf_counter()
        found = [matcher.match_batch(part) for part in parts]
        times.append(time.perf_counter() - began)
        for first, one in zip(firsts, found, strict=True):
            wrong += differences(one, _part(expected, first, size))
    return float(np.median(times)) * 1e6 / (size * len(parts)), wrong


def _part(matches: Matches, first: int, count: int) -> Matches:
    """Those of ``count`` events from one on, as far as they are known."""
    first = min(first, len(matches))
    return Matches(matches.offsets[first : first + count + 1], matches.ids)


class _Moves:
    """Filters that go to other places, many in one call and then some one by one, and what matches after."""

    def __init__(self, columns: FilterColumns, few: list[dict[str, Any]]) -> None:
        assert columns.x is not None and columns.y is not None
        random = np.random.default_rng(9)
        owner = columns.subscription
        owner = np.arange(len(columns)) if owner is None else owner
        movable = np.flatnonzero(~np.isnan(columns.x))
        chosen = random.choice(movable, max(1, len(movable) // MOVED), replace=False)
        number = np.arange(len(columns)) - np.searchsorted(owner, owner)
        self._few, self._ids, self._which = few, owner[chosen], number[chosen]
        self._to = random.uniform(0, 1000.0, (2, len(chosen)))
        # Those that move again change x and y.
        self._alone = self._to[::-1, :MOVED_ALONE]
        x, y = columns.x.copy(), columns.y.copy()
        x[chosen], y[chosen] = self._to
        x[chosen[:MOVED_ALONE]], y[chosen[:MOVED_ALONE]] = self._alone
        oracle = Matcher("reference")
        oracle.subscribe_many(replace(columns, x=x, y=y))
        self._expected = oracle.match_batch(few)

    def made(self, matcher: Matcher) -> tuple[dict[str, float], int]:
        """Microseconds of a move until it has arrived, and how many answers are wrong afterwards."""
        took = [self._took(matcher, self._in_bulk), self._took(matcher, self._one_by_one)]
        count = len(self._ids)
        wrong = differences(matcher.match_batch(self._few), self._expected)
        alone = took[1] / min(count, MOVED_ALONE)
        return {"moved": count, "us_in_bulk": took[0] / count, "us_alone": alone}, wrong

    def _took(self, matcher: Matcher, move: Callable[[Matcher], None]) -> float:
        began = time.perf_counter()
        move(matcher)
        # What has changed is sent before the next event.
        matcher.match_batch(self._few[:1])
        return (time.perf_counter() - began) * 1e6

    def _in_bulk(self, matcher: Matcher) -> None:
        matcher.move_many(self._ids, *self._to, filters=self._which)

    def _one_by_one(self, matcher: Matcher) -> None:
        for id, which, (x, y) in zip(
            self._ids.tolist(), self._which.tolist(), self._alone.T.tolist(), strict=False
        ):
            matcher.move(id, x, y, filter=which)


def _line(engine: str, row: dict[str, Any]) -> str:
    parts = [f"{engine:10} {row['wrong']} of {row['compared']} wrong"]
    parts += [f"{took:,.1f} µs an event in calls of {size}" for size, took in row["us_of_an_event"].items()]
    for name, step in row.get("steps", {}).items():
        share = f" ({step['share_of_card']:.0%} of the card)" if "share_of_card" in step else ""
        parts.append(f"{name} {step['us']:,.1f} µs{share}")
    if "moves" in row:
        parts.append(
            f"a move {row['moves']['us_in_bulk']:,.2f} µs in bulk, {row['moves']['us_alone']:,.2f} alone"
        )
    return ", ".join(parts)


def main(arguments: list[str] | None = None) -> None:
    """Measures and prints; writes the figures after each step, so that a run that breaks off leaves some."""
    parser = argparse.ArgumentParser(description="Time the engines on a device beside the CPU.")
    parser.add_argument("--json", dest="file", type=Path, help="write all figures here")
    parser.add_argument("--seconds", type=float, default=540.0, help="begin nothing more after so many")
    parser.add_argument("--scale", type=float, default=1.0, help="share of 250,000 and 2,500,000 filters")
    parser.add_argument("--events", type=int, default=4096, help="events of a scenario")
    parser.add_argument("--device", type=int, default=0, help="which device, from 0")
    given = parser.parse_args(arguments)
    run = Bench(device=given.device, scale=given.scale, events=given.events, seconds=given.seconds)
    try:
        for line in run.run():
            print(line)
            if given.file is not None:
                given.file.write_text(json.dumps(run.report, indent=1) + "\n")
    except (EvflowError, OSError) as error:
        sys.exit(f"Error: {error}")
    sys.exit(1 if run.report["wrong"] else 0)


if __name__ == "__main__":
    main()
