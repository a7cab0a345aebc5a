"""Output without waiting: steps of a simulation are staged, put together and committed while it goes on.

``Writer`` is the place to start; ``docs/staging.md`` tells the rest.
"""

from __future__ import annotations

from evflow.staging.inflight import Summary, histogram, summary, thinned, within
from evflow.staging.leaves import LeafStage, RootFates, RootStage, tree
from evflow.staging.model import Block, Variable
from evflow.staging.schedulers import All, AvoidCongestion, ConstantDrain, InOrder, RateLimit, Scheduler
from evflow.staging.stage import Committed, Stage
from evflow.staging.writer import Writer

__all__ = [
    "All",
    "AvoidCongestion",
    "Block",
    "Committed",
    "ConstantDrain",
    "InOrder",
    "LeafStage",
    "RateLimit",
    "RootFates",
    "RootStage",
    "Scheduler",
    "Stage",
    "Summary",
    "Variable",
    "Writer",
    "tree",
    "histogram",
    "summary",
    "thinned",
    "within",
]
