"""Whether the engines on a device say what the CPU says."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

from evflow.gpu.device import Device
from evflow.gpu.scenarios import ENGINES, ccm_scenario, clcb_scenario, differences
from evflow.gpu.trials import trials
from evflow.matching.columns.bulk import FilterColumns
from evflow.matching.matcher import Matcher


def selftest(*, full: bool = False, events: int = 50, device: int = 0) -> Iterator[str]:
    """Runs the papers' scenarios on a device and compares each answer with that of engine ``reference``.

    These are both default scenarios, and that of figure 6b of CLCB, where all filters near to an event match.
    Then it tries threads, memory that ends, interrupts, a fork and the end of a process.

    Args:
        full: at the papers' own size: 250,000 filters for CCM, 2,500,000 for CLCB.
        events: how many events of each default scenario; of the other a quarter.
        device: which CUDA device, from 0.

    Yields:
        Lines to be read; the last ends in ``0 wrong`` if all is well.

    Raises:
        DeviceError: the device cannot be used.
    """
    yield f"device {device}: {Device.of(device).name}"
    filters, subscriptions = (250_000, 250_000) if full else (5_000, 2_000)
    few = max(1, events // 4)
    scenarios: dict[str, Callable[[], tuple[FilterColumns, list[dict[str, Any]]]]] = {
        "CCM": lambda: ccm_scenario(filters, events),
        "CLCB": lambda: clcb_scenario(subscriptions, events),
        "CLCB, any content": lambda: clcb_scenario(subscriptions, few, any_content=True),
    }
    wrong = 0
    for title, make in scenarios.items():
        columns, made = make()
        oracle = Matcher("reference")
        oracle.subscribe_many(columns)
        expected = oracle.match_batch(made)
        sizes = f"{len(columns):,} filters with {len(columns.name):,} constraints"
        sizes += f", {columns.subscriptions:,} subscriptions"
        yield f"{title}: {sizes}, {len(made)} events, {len(expected.ids):,} matches"
        for engine in ENGINES:
            matcher = Matcher(engine, device=device)
            began = time.perf_counter()
            matcher.subscribe_many(columns)
            matcher.match_batch(made[:1])
            deployed = time.perf_counter() - began
            differ, took = _compare(matcher, made, expected)
            wrong += differ
            right = f"{len(made) - differ} of {len(made)} right"
            each = f"{took / len(made) * 1e3:.3f} ms an event with the host's part"
            yield f"  {engine:10} {right}, {each}, deployed in {deployed * 1e3:.0f} ms"
    for title, problem in trials(device, full=full):
        wrong += bool(problem)
        yield f"{title}: {'WRONG, ' + problem if problem else 'right'}"
    yield f"{wrong} wrong"


def _compare(matcher: Matcher, made: list[dict[str, Any]], expected: Any) -> tuple[int, float]:
    prepared = matcher.prepare(made)
    began = time.perf_counter()
    found = matcher.match_batch(prepared)
    took = time.perf_counter() - began
    return differences(found, expected), took
