"""Whether the engines on a device say what the CPU says, and what each step takes there."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import numpy as np

from evflow.gpu.device import Device
from evflow.gpu.scenarios import ccm_scenario, clcb_scenario
from evflow.matching.matcher import Matcher

__all__ = ["STEPS", "selftest"]

STEPS = ("copy input", "Loc", "Cont", "Zip", "copy results")
"""As in figure 6 of CLCB."""


def selftest(*, full: bool = False, events: int = 50, device: int = 0) -> Iterator[str]:
    """Runs the papers' scenarios on a device and compares each answer with that of engine ``reference``.

    Args:
        full: at the papers' own size: 250,000 filters for CCM, 2,500,000 for CLCB.
        events: how many events of each scenario.
        device: which CUDA device, from 0.

    Yields:
        Lines to be read; the last ends in ``0 wrong`` if all is well.

    Raises:
        DeviceError: the device cannot be used.
    """
    yield f"device {device}: {Device(device).name}"
    scenarios = {
        "CCM": (ccm_scenario(250_000 if full else 5_000, events), ("ccm", "clcb", "clcb-grid")),
        "CLCB": (clcb_scenario(250_000 if full else 2_000, events), ("ccm", "clcb", "clcb-grid")),
    }
    wrong = 0
    for title, ((columns, made), engines) in scenarios.items():
        oracle = Matcher("reference")
        oracle.subscribe_many(columns)
        expected = oracle.match_batch(made)
        sizes = f"{len(columns):,} filters, {columns.subscriptions:,} subscriptions"
        yield f"{title}: {sizes}, {len(made)} events"
        for engine in engines:
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
            if engine == "clcb":
                yield f"             {_steps(matcher, made)}"
    yield f"{wrong} wrong"


def _compare(matcher: Matcher, made: list[dict[str, Any]], expected: Any) -> tuple[int, float]:
    prepared = matcher.prepare(made)
    began = time.perf_counter()
    found = matcher.match_batch(prepared)
    took = time.perf_counter() - began
    same = [np.array_equal(np.sort(found[i]), np.sort(expected[i])) for i in range(len(made))]
    return same.count(False), took


def _steps(matcher: Matcher, made: list[dict[str, Any]]) -> str:
    times = np.median(matcher._engine.times(matcher.prepare(made).rows), axis=0)
    return ", ".join(f"{step} {value * 1e3:.1f} µs" for step, value in zip(STEPS, times, strict=True))
