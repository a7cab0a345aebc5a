"""Faults to plant into a besieged node."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

__all__ = ["PLANTS", "Plant"]


class Plant(NamedTuple):
    patch: Callable[[], None]
    attacks: tuple[str, ...]


PLANTS: dict[str, Plant] = {}
