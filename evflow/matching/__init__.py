"""Matching: which of millions of subscriptions an event satisfies, by content and by place."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from evflow.matching.columns.bulk import FilterColumns
from evflow.matching.engine import ENGINES, Matches
from evflow.matching.explain import Explanation, FilterExplanation, Reason
from evflow.matching.model import Circle, Constraint, Filter, GlobeCircle, Op, Subscription
from evflow.matching.prepared import PreparedEvents
from evflow.matching.stats import Stats
from evflow.matching.text import parse_filter, parse_subscription

if TYPE_CHECKING:
    from evflow.matching.matcher import Matcher
    from evflow.matching.tracking import Tracked, Tracker

__all__ = [
    "ENGINES",
    "Circle",
    "Constraint",
    "Explanation",
    "Filter",
    "FilterColumns",
    "FilterExplanation",
    "GlobeCircle",
    "Matcher",
    "Matches",
    "Op",
    "PreparedEvents",
    "Reason",
    "Stats",
    "Subscription",
    "Tracked",
    "Tracker",
    "parse_filter",
    "parse_subscription",
]

_LATER = {
    "Matcher": "evflow.matching.matcher",
    "Tracked": "evflow.matching.tracking",
    "Tracker": "evflow.matching.tracking",
}


def __getattr__(name: str) -> Any:
    if name not in _LATER:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    # Loads machine code or numba, which those who only write subscriptions need not have.
    return getattr(importlib.import_module(_LATER[name]), name)
