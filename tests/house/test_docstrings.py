"""Docstrings of public functions: each names every parameter, under Args or as ``name`` in the text."""

from __future__ import annotations

import importlib
import inspect
import re
from collections.abc import Iterator
from typing import Any

import pytest

MODULES = (
    "evflow", "evflow.echo", "evflow.errors", "evflow.matching", "evflow.spark", "evflow.staging",
    "evflow.stone", "evflow.tiles",
)  # fmt: skip
"""The modules whose ``__all__`` says what is public; those of Spark load PySpark only on use."""

GIVEN = (
    ("evflow.flow.entry", "Entry"),
    ("evflow.graph.placed", "Placed"),
    ("evflow.stones.matching.controls", "Controls"),
    ("evflow.schema.types", "Logical"),
)
"""Classes that programs derive from, or of which they are given objects."""

_EXAMPLE = re.compile(r"^[ ]*Example:.*?(?=^[ ]*\w+:$|\Z)", re.MULTILINE | re.DOTALL)


def _public() -> Iterator[Any]:
    for module in MODULES:
        loaded = importlib.import_module(module)
        yield from (getattr(loaded, name) for name in loaded.__all__)
    yield from (getattr(importlib.import_module(module), name) for module, name in GIVEN)


def _own(thing: Any) -> bool:
    return inspect.isfunction(thing) and thing.__module__.startswith("evflow")


def _functions() -> Iterator[tuple[str, Any, str]]:
    """Every public function: its full name, itself, and the text that describes it."""
    for thing in _public():
        if isinstance(thing, type):
            yield from _methods(thing)
        elif inspect.isroutine(thing) and _own(function := inspect.unwrap(thing)):
            yield f"{function.__module__}.{function.__qualname__}", function, inspect.getdoc(function) or ""


def _methods(thing: type) -> Iterator[tuple[str, Any, str]]:
    for base in thing.__mro__:
        for name in vars(base) if base.__module__.startswith("evflow") else ():
            found = inspect.getattr_static(base, name)
            function = inspect.unwrap(getattr(found, "__func__", found))
            if not _own(function) or (name.startswith("_") and name != "__init__"):
                continue
            texts = [inspect.getdoc(getattr(base, name))]
            if name == "__init__":
                # What a class derives from describes the parameters that it takes over.
                texts += [vars(one).get("__doc__") for one in base.__mro__]
            yield f"{base.__module__}.{base.__qualname__}.{name}", function, "\n".join(filter(None, texts))


def _names(text: str, parameter: str) -> bool:
    entry = rf"^ *(?:\**\w+, )*\**{parameter}(?:, \**\w+)*: "
    return bool(re.search(rf"{entry}|``[^`]*\b{parameter}\b[^`]*``", text, re.MULTILINE))


FUNCTIONS = {name: (function, text) for name, function, text in _functions()}


def test_there_are_public_functions() -> None:
    assert len(FUNCTIONS) > 300


@pytest.mark.parametrize("name", ["evflow.flow.flow.Flow.freeze", "evflow.matching.text.parse_filter"])
def test_functions_of_every_sort_are_looked_at(name: str) -> None:
    assert name in FUNCTIONS


def test_every_parameter_of_a_public_function_is_in_its_docstring() -> None:
    missing = [
        f"{name}: {parameter}"
        for name, (function, text) in FUNCTIONS.items()
        for parameter in inspect.signature(function).parameters
        if parameter not in ("self", "cls") and not parameter.startswith("_")
        if not _names(_EXAMPLE.sub("", text), parameter)
    ]
    assert sorted(missing) == []
