"""How many examples hypothesis tries: few in the suite, so many times more if ``EVFLOW_EXAMPLES`` says so."""

from __future__ import annotations

import os

TIMES = float(os.environ.get("EVFLOW_EXAMPLES", "1"))


def tried(count: int) -> int:
    """How many examples to try where the suite tries ``count``."""
    return max(1, round(count * TIMES))
