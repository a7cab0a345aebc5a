"""Whether memory grows: ten million events, in batches and one by one, with the resident memory on the way.

python benchmarks/memory.py [--quick]
"""

from __future__ import annotations

import argparse
import gc
import os
from pathlib import Path

import local
import table

POINTS = 20


def resident() -> float:
    """MiB of this process that are in memory now."""
    gc.collect()
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 2**20


def readings(name: str, events: int) -> list[float]:
    """MiB after each twentieth of the events; the first, warmed up, is the one to compare with."""
    columns = local.trades(events // POINTS)
    how = local.one_by_one if name == "one by one" else local.in_batches
    build = local.to_handler if name == "one by one" else local.to_batches
    found = []
    with how(build, columns) as run:
        for _ in range(POINTS):
            run()
            found.append(resident())
    return found


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    arguments.add_argument("--quick", action="store_true", help="half a million events")
    events = 500_000 if arguments.parse_args().quick else 10_000_000
    found = {name: readings(name, events) for name in ("in batches", "one by one")}
    print(f"\nResident memory in MiB over {events:,} events\n")
    print("|            |  first |   last | growth |\n| ---------- | -----: | -----: | -----: |")
    for name, mib in found.items():
        print(f"| {name} | {mib[0]:6.1f} | {mib[-1]:6.1f} | {mib[-1] - mib[0]:+6.1f} |")
    handled = [events * (i + 1) // POINTS for i in range(POINTS)]
    table.save_lines("memory", "Resident memory", handled, found, "events", "MiB")


if __name__ == "__main__":
    main()
