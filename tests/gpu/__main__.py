"""The self-test on the stand-in: ``python -m tests.gpu [--full] [--events N]``. Its times mean nothing."""

from __future__ import annotations

import argparse

from evflow.gpu import trials
from evflow.gpu.selftest import selftest
from tests.gpu.standin import load

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--full", action="store_true", help="the papers' default scenarios at their own size")
parser.add_argument("--events", type=int, default=20)
options = parser.parse_args()
# A card's memory, small enough to be filled.
load().configure(limit=1 << 30)
trials._PROGRAM = f"from tests.gpu.standin import load\nload()\n{trials._PROGRAM}"
line = ""
for line in selftest(full=options.full, events=options.events):
    print(line, flush=True)
raise SystemExit(line != "0 wrong")
