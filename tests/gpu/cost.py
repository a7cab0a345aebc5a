"""What an event costs on a device, counted from the PTX while it runs, and the times that follow from it.

    python -m tests.gpu.cost [--subscriptions N] [--events N]

The workload is CLCB's default scenario. Instructions are those of the PTX; bytes are sectors of 32 bytes that
warps touch, as if no cache held anything between two accesses.
"""

from __future__ import annotations

import argparse
import ctypes

from evflow.gpu.scenarios import clcb_scenario
from evflow.matching.matcher import Matcher
from tests.gpu.standin import StandIn, load

__all__ = ["BANDWIDTH", "costs"]

BANDWIDTH = {
    "GTX 460": 115, "RTX 3060": 360, "RTX 4090": 1008, "A100 80 GB": 2039, "H100 SXM": 3350, "H200": 4800,
    "B200": 8000,
}  # fmt: skip
"""GB/s of memory, as their makers state it."""

KERNELS = {"clcb": ("loc_plane", "cont", "zip"), "clcb-grid": ("grid_plane", "clear")}


def costs(standin: StandIn, engine: str, subscriptions: int, events: int) -> dict[str, dict[str, float]]:
    """What each kernel of an engine costs for one event.

    Args:
        standin: with nothing loaded that matters.
        engine: ``clcb`` or ``clcb-grid``.
        subscriptions: with ten filters each.
        events: how many are averaged.

    Returns:
        By kernel: ``threads``, ``instructions`` and ``bytes``.
    """
    standin.configure(deferred=False)
    standin.count = True
    columns, made = clcb_scenario(subscriptions, events)
    matcher = Matcher(engine)
    matcher.subscribe_many(columns)
    matcher.match_batch(made)
    four = (ctypes.c_uint64 * 4)()
    found = {}
    for name in KERNELS[engine]:
        for path in standin.modules:
            library = ctypes.CDLL(str(path))
            library.kernel_counts(name.encode(), four)
            if four[0]:
                found[name] = dict(
                    zip(("threads", "instructions", "bytes"), (n / events for n in four[1:]), strict=True)
                )
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--subscriptions", type=int, default=250_000)
    parser.add_argument("--events", type=int, default=4)
    options = parser.parse_args()
    for engine in KERNELS:
        # A batch has to be large to be like those of use.
        events = options.events * (64 if engine == "clcb-grid" else 1)
        found = costs(load(), engine, options.subscriptions, events)
        print(f"{engine}, {10 * options.subscriptions:,} filters, for an event (predicted, not measured)")
        print("| kernel | threads | PTX instructions | bytes |\n| --- | --- | --- | --- |")
        for name, cost in found.items():
            print(f"| {name} | {cost['threads']:,.0f} | {cost['instructions']:,.0f} | {cost['bytes']:,.0f} |")
        total = sum(cost["bytes"] for cost in found.values())
        times = " | ".join(f"{total / speed / 1e3:.2f}" for speed in BANDWIDTH.values())
        print(f"\n| {' | '.join(BANDWIDTH)} |\n|{' --- |' * len(BANDWIDTH)}\n| {times} |")
        print("µs to move so many bytes at the stated bandwidth, predicted, not measured\n")


if __name__ == "__main__":
    main()
