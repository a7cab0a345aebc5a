"""What a flow loads before its first event: all that it needs of Python, and the compiler."""

from __future__ import annotations

import importlib
from functools import cache

from evflow.codgen.native import prepare
from evflow.graph.kinds import KINDS

_ALWAYS = (
    "msgpack", "traceback", "evflow.graph.graph", "evflow.codgen.front", "evflow.codgen.objects",
    "evflow.codgen.rows", "evflow.codgen.reading", "evflow.codgen.tables", "evflow.codgen.validate",
    "evflow.codgen.source.cod", "evflow.codgen.source.pyfunc", "evflow.codgen.source.pysource",
)  # fmt: skip

_HEAVY = {"bridge", "match", "spark source", "spark sink"}
"""Kinds of stones that bring in much of their own; a graph that has one has loaded the module of the kind."""


@cache
def load() -> None:
    """Loads all that flows find late, and sets up the compiler. Doing it again costs nothing."""
    stones = (place.partition(":")[0] for kind, place in KINDS.items() if kind not in _HEAVY)
    for module in (*_ALWAYS, *stones):
        importlib.import_module(module)
    prepare()
