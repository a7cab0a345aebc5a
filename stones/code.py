"""What the stones that carry a function have in common."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from evflow.codgen.front import source_of
from evflow.schema import Schema

Code = str | Callable[..., object]
"""Cod or Python text, or a Python function whose source can be read."""


def code_settings(code: Code, input: Schema | None, fuel: int) -> dict[str, Any]:
    """A function and what it needs, as plain data."""
    return {
        "code": source_of(code),
        "input": None if input is None else input.description,
        "fuel": fuel,
    }


def described(schemas: Mapping[str, Schema]) -> dict[str, Any]:
    """Named schemas as plain data."""
    return {name: schema.description for name, schema in schemas.items()}


def undescribed(descriptions: Mapping[str, Any]) -> dict[str, Schema]:
    """Named schemas from plain data."""
    return {name: Schema.from_description(d) for name, d in descriptions.items()}
