"""Matching: which of millions of subscriptions an event satisfies, by content and by place."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from evflow.matching.areas.columns import AreaColumns
from evflow.matching.columns.bulk import FilterColumns
from evflow.matching.engine import ENGINES, Matches, Stats
from evflow.matching.explain import Explanation, FilterExplanation, Reason
from evflow.matching.model import (
    Box,
    Circle,
    Constraint,
    Filter,
    GlobeBox,
    GlobeCircle,
    GlobePolygon,
    Op,
    Polygon,
    Subscription,
)
from evflow.matching.rows import PreparedEvents
from evflow.matching.text import parse_filter, parse_subscription

if TYPE_CHECKING:
    from evflow.matching.areas.overlap import overlaps
    from evflow.matching.matcher import Matcher
    from evflow.matching.tracking import Tracked, Tracker

__all__ = [
    "ENGINES",
    "AreaColumns",
    "Box",
    "Circle",
    "Constraint",
    "Explanation",
    "Filter",
    "FilterColumns",
    "FilterExplanation",
    "GlobeBox",
    "GlobeCircle",
    "GlobePolygon",
    "Matcher",
    "Matches",
    "Op",
    "Polygon",
    "PreparedEvents",
    "Reason",
    "Stats",
    "Subscription",
    "Tracked",
    "Tracker",
    "overlaps",
    "parse_filter",
    "parse_subscription",
]

_LATER = {
    "Matcher": "evflow.matching.matcher",
    "Tracked": "evflow.matching.tracking",
    "Tracker": "evflow.matching.tracking",
    "overlaps": "evflow.matching.areas.overlap",
}


def __getattr__(name: str) -> Any:
    if name not in _LATER:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    # Loads machine code or numba, which those who only write subscriptions need not have.
    return getattr(importlib.import_module(_LATER[name]), name)
