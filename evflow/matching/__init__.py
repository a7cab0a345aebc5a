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
    "parse_filter",
    "parse_subscription",
]


def __getattr__(name: str) -> Any:
    if name != "Matcher":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    # Loads numba, which those who only write subscriptions need not have.
    return importlib.import_module("evflow.matching.matcher").Matcher
