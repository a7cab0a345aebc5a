"""What the stones that carry a function have in common."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, ClassVar, Self

from evflow.codgen.front import source_of
from evflow.schema import Schema
from evflow.stone import Compiled, Stone, checked_integer, titled

Code = str | Callable[..., object]
"""Cod or Python text, or a Python function whose source can be read."""


class Described(Stone):
    """A stone that keeps what its constructor takes under the same names, so that these are its settings.

    Attributes:
        parameters: what the constructor takes beside ``name`` and ``on``.
    """

    parameters: ClassVar[tuple[str, ...]] = ()

    def settings(self) -> dict[str, Any]:
        return {name: plain(getattr(self, name)) for name in self.parameters}

    @classmethod
    def from_settings(cls, settings: Mapping[str, Any]) -> Self:
        return cls(**{name: _parameter(name, value) for name, value in settings.items()})


def plain(value: Any) -> Any:
    """A parameter as plain data: of a schema its description, of a function its source."""
    if isinstance(value, Schema):
        return value.description
    if isinstance(value, Mapping):
        return {name: plain(held) for name, held in value.items()}
    if isinstance(value, tuple):
        return list(value)
    if isinstance(value, Path):
        return str(value)
    return source_of(value) if callable(value) else value


def _parameter(name: str, value: Any) -> Any:
    # The input of a bridge is a name.
    if name in ("input", "output") and not isinstance(value, str | None):
        return Schema.from_description(value)
    if name in ("inputs", "outputs") and value is not None:
        return {key: Schema.from_description(description) for key, description in value.items()}
    return value


class OfOneInput(Described, Compiled):
    """A compiled stone with one input.

    Args:
        code: Cod or a Python function.
        input: the least schema that the function needs; None for that of the events linked to it.
        fuel: what one event may spend.
        name: the stone's name.
        on: the node it is placed on.
    """

    def __init__(self, code: Code, input: Any, fuel: int, name: str | None, on: str | None) -> None:
        super().__init__(name=name, on=on)
        self.code = code
        self.input = None if input is None else Schema.of(input)
        self.fuel = checked_integer(f"{titled(self.kind, name)}: fuel", fuel)

    @property
    def inputs(self) -> Mapping[str, Schema | None]:
        return {"input": self.input}
