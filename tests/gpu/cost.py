"""What an event costs on a device, counted from the PTX while it runs, and the times that follow from it.

    python -m tests.gpu.cost [--events N]

The workloads are the papers' default scenarios, and that of CLCB with as many subscriptions as in its
figures. Instructions are those of the PTX; bytes are sectors of 32 bytes that warps touch, as if no cache
held anything between two accesses.
"""

from __future__ import annotations

import argparse
import ctypes
from dataclasses import dataclass

from evflow.gpu.scenarios import ccm_scenario, clcb_scenario
from evflow.matching.matcher import Matcher
from tests.gpu.standin import StandIn, load

__all__ = ["BANDWIDTH", "Cost", "cost"]

BANDWIDTH = {
    "GTX 460": 115, "RTX 3060": 360, "RTX 4090": 1008, "A100 80 GB": 2039, "H100 SXM": 3350, "H200": 4800,
    "B200": 8000,
}  # fmt: skip
"""GB/s of memory, as their makers state it."""

KERNELS = {"ccm": ("ccm_plane",), "clcb": ("loc_plane", "cont", "zip"), "clcb-grid": ("grid_plane", "clear")}
SIZES = {"ccm": 250_000, "clcb": 250_000, "clcb-grid": 250_000}
"""The papers' default scenarios: filters for CCM, subscriptions with ten filters each for CLCB."""

FIGURES = (10_000, 100_000, 250_000, 500_000, 1_000_000)
"""Subscriptions of CLCB's figures 3 to 7."""


@dataclass(frozen=True)
class Cost:
    """What an event costs.

    Attributes:
        kernels: by kernel: ``threads``, ``instructions`` and ``bytes``.
        device: bytes that the engine holds on the device.
    """

    kernels: dict[str, dict[str, float]]
    device: int

    @property
    def bytes(self) -> float:
        """Of all kernels."""
        return sum(kernel["bytes"] for kernel in self.kernels.values())


def cost(standin: StandIn, engine: str, size: int, events: int) -> Cost:
    """What an event costs an engine in the default scenario of its paper.

    Args:
        standin: with nothing loaded that matters.
        engine: one of ``KERNELS``.
        size: filters for ``ccm``, else subscriptions with ten filters each.
        events: how many are averaged.
    """
    standin.configure(deferred=False)
    standin.count = True
    columns, made = ccm_scenario(size, events) if engine == "ccm" else clcb_scenario(size, events)
    matcher = Matcher(engine)
    matcher.subscribe_many(columns)
    # A library that was loaded before may have counted what others did.
    _counts(standin, engine)
    matcher.match_batch(made)
    found = {
        name: {what: number / events for what, number in counted.items()}
        for name, counted in _counts(standin, engine).items()
    }
    return Cost(found, matcher.stats().memory["engine.device"])


def _counts(standin: StandIn, engine: str) -> dict[str, dict[str, int]]:
    """What the kernels of an engine have done since they were last asked."""
    four = (ctypes.c_uint64 * 4)()
    found = {}
    for name in KERNELS[engine]:
        for path in standin.modules:
            ctypes.CDLL(str(path)).kernel_counts(name.encode(), four)
            if four[0]:
                found[name] = dict(zip(("threads", "instructions", "bytes"), four[1:], strict=True))
    return found


def times(bytes: float) -> str:
    """Columns of a table: the time to move so many bytes, in µs, for each card."""
    return " | ".join(f"{bytes / speed / 1e3:.2f}" for speed in BANDWIDTH.values())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--events", type=int, default=4)
    events = parser.parse_args().events
    header = f"| {' | '.join(BANDWIDTH)} |\n|{' --- |' * (len(BANDWIDTH) + 1)}"
    print("| for an event | threads | PTX instructions | bytes |\n| --- | --- | --- | --- |")
    found = {}
    for engine, size in SIZES.items():
        # A batch has to be large to be like those of use.
        many = events * (64 if engine == "clcb-grid" else 1)
        found[engine] = cost(load(), engine, size, many)
        for name, kernel in found[engine].kernels.items():
            numbers = " | ".join(f"{kernel[what]:,.0f}" for what in ("threads", "instructions", "bytes"))
            print(f"| {engine}: {name} | {numbers} |", flush=True)
    print(f"\n| predicted, not measured, µs an event {header}")
    for engine, one in found.items():
        print(f"| {engine}, {one.device / 1e6:,.0f} MB on the device | {times(one.bytes)} |")
    print(f"\n| subscriptions, MB on the device; clcb, predicted, not measured, µs an event {header}")
    for size in FIGURES:
        one = found["clcb"] if size == SIZES["clcb"] else cost(load(), "clcb", size, events)
        print(f"| {size:,}, {one.device / 1e6:,.0f} MB | {times(one.bytes)} |", flush=True)


if __name__ == "__main__":
    main()
