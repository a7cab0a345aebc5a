"""Output without waiting: steps of a simulation are staged, put together and committed while it goes on.

``sending``, ``pulling``, ``gathering`` and ``area`` are state machines without sockets or files.
"""

from __future__ import annotations

from evflow.staging.model import Block, Variable
from evflow.staging.schedulers import All, AvoidCongestion, ConstantDrain, InOrder, RateLimit, Scheduler

__all__ = [
    "All",
    "AvoidCongestion",
    "Block",
    "ConstantDrain",
    "InOrder",
    "RateLimit",
    "Scheduler",
    "Variable",
]
