"""What matching costs: the evaluations of the CCM, CLCB and two-phase papers, and what was to be reached.

The engines of evflow stand beside the papers' published figures, and beside rtree and shapely's STRtree in
the same run. Costs are CPU time of one core, the least of several passes, of events that are all different.

    python benchmarks/matching.py [--quick] [--only NAME …] [--workloads N]
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from functools import partial

import matching_ccm
import matching_clcb
import matching_ranges
import matching_targets
import matching_two_phase
from matching_report import Report

PAPERS: dict[str, Callable[[bool], Report]] = {
    "ccm": matching_ccm.run,
    "clcb": matching_clcb.run,
    "two-phase": matching_two_phase.run,
    "ranges": matching_ranges.run,
}
DRAWN = "drawn"
"""The part that has workloads drawn at random."""


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    arguments.add_argument("--quick", action="store_true", help="a hundredth of the filters, few points")
    names = [*matching_targets.PARTS, *PAPERS, DRAWN]
    arguments.add_argument("--only", nargs="+", choices=names, default=names, help="these parts")
    arguments.add_argument("--workloads", type=int, default=300, help="how many are drawn, from seed 0 on")
    given = arguments.parse_args()
    parts = [name for name in matching_targets.PARTS if name in given.only]
    runs = [partial(matching_targets.run, given.quick, parts)] if parts else []
    runs += [partial(PAPERS[name], given.quick) for name in PAPERS if name in given.only]
    runs += [partial(matching_ranges.run_drawn, given.quick, given.workloads)] if DRAWN in given.only else []
    for run in runs:
        report = run()
        if given.quick:
            # Beside the results of whole runs, which quick ones must not replace.
            report.name += "_quick"
        report.save()


if __name__ == "__main__":
    main()
