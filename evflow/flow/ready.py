"""Loads before a flow begins what the flow may need later, when there may be no file left to open.

Modules that are heavy, or that stand above those that use them, are found when they are needed. A process
whose limit of open files is reached cannot read a module, so each of these is in memory by then.
"""

from __future__ import annotations

import importlib

from evflow.codgen.native import prepare
from evflow.kinds import KINDS

__all__ = ["load"]

_ALWAYS = (
    "msgpack", "traceback", "evflow.graph", "evflow.codgen.front", "evflow.codgen.objects",
    "evflow.codgen.rows", "evflow.codgen.validate", "evflow.codgen.source.cod",
    "evflow.codgen.source.pyfunc", "evflow.codgen.source.pysource",
)  # fmt: skip

_HEAVY = {"match", "spark source", "spark sink"}
"""Kinds of stones that bring in more than evflow; a graph that has one has loaded the module of the kind."""


def load() -> None:
    """Loads all that flows find late, and sets up the compiler. Doing it again costs nothing."""
    stones = (place.partition(":")[0] for kind, place in KINDS.items() if kind not in _HEAVY)
    for module in (*_ALWAYS, *stones):
        importlib.import_module(module)
    prepare()
