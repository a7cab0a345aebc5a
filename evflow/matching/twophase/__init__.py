"""The engine ``two-phase``: first the predicates that an event satisfies, then the filters that have them."""

from __future__ import annotations

from evflow.matching.twophase.engine import TwoPhase

__all__ = ["TwoPhase"]
