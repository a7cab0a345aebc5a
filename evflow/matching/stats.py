"""What a matcher holds and has done, in numbers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Stats:
    """What a matcher holds and has done.

    Attributes:
        engine: the name of the engine.
        subscriptions, filters, constraints: how many there are.
        names, strings: how many different ones constraints have used so far.
        events: how many have been matched.
        matches: how many ids that gave.
        memory: bytes, by what they are for; those of the engine begin with ``engine.``.
        details: what the engine tells of itself.
    """

    engine: str
    subscriptions: int
    filters: int
    constraints: int
    names: int
    strings: int
    events: int
    matches: int
    memory: Mapping[str, int]
    details: Mapping[str, Any]
