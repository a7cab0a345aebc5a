"""The engines that tests go through, with their options."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import pytest

from evflow.matching.engine import ENGINES, engine_class
from tests.examples import tried

OPTIONS: dict[str, list[dict[str, Any]]] = {
    "two-phase": [
        {"phase1": phase1, "phase2": phase2}
        for phase1 in ("table", "trie", "search-tree")
        for phase2 in ("counting", "clustering")
    ]
}
"""Engines that are tested with several sets of options."""

EXAMPLES = {"reference": 20}
"""How many random examples an engine has in the suite, over all of its options; others have 60."""


@dataclass(frozen=True)
class Case:
    """An engine with options, and how many random examples it has in the suite."""

    engine: str
    options: dict[str, Any] = field(default_factory=dict)
    examples: int = tried(60)

    def __str__(self) -> str:
        return "-".join([self.engine, *map(str, self.options.values())])


def there(engine: str) -> bool:
    """Whether the engine is there; those that need a device are tested in ``tests/gpu``."""
    if ENGINES[engine].startswith("evflow.gpu"):
        return False
    try:
        engine_class(engine)
    except (ModuleNotFoundError, AttributeError):
        return False
    return True


def cases(engine: str) -> list[Case]:
    options = OPTIONS.get(engine, [{}])
    return [Case(engine, chosen, tried(EXAMPLES.get(engine, 60) // len(options))) for chosen in options]


CASES = [case for engine in ENGINES if there(engine) for case in cases(engine)]


def _each(cases: Iterable[Case]) -> pytest.MarkDecorator:
    return pytest.mark.parametrize(
        "case",
        [
            # numba compiles its kernels in each process.
            pytest.param(case, id=str(case), marks=[pytest.mark.slow] * (case.engine == "two-phase"))
            for case in cases
        ],
    )


every_engine = _each(CASES)
"""A test of every engine with all of its options."""

each_engine = _each({case.engine: case for case in CASES}.values())
"""A test of every engine once."""
