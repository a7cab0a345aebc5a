"""Logical types: times, decimals, UUIDs and enumerations, one file each.

A module of this folder that does not start with ``_`` is a type: it is found by being here, and what its
``__all__`` names is public, as ``evflow.Timestamp`` is.
"""

from __future__ import annotations

import importlib
import pkgutil
from typing import Any

from evflow.schema.types import FieldType, Logical

__all__: list[str] = []

_KINDS: list[type[Logical]] = []
_BY_CLASS: dict[type, type[Logical]] = {}

for _found in pkgutil.iter_modules(__path__):
    if not _found.name.startswith("_"):
        _module = importlib.import_module(f"{__name__}.{_found.name}")
        __all__ += _module.__all__
        globals().update({name: getattr(_module, name) for name in _module.__all__})
        _KINDS += [k for k in vars(_module).values() if isinstance(k, type) and issubclass(k, Logical)]
for _kind in _KINDS:
    _BY_CLASS.update(dict.fromkeys(_kind.classes, _kind))


def __getattr__(name: str) -> Any:
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def parse_logical(text: str) -> FieldType | None:
    """The logical type whose canonical text this is; None if it is not one.

    Raises:
        SchemaError: the text has the form of one, but what it says cannot be.
    """
    found: FieldType | None = next((made for kind in _KINDS if (made := kind.parse(text)) is not None), None)
    return found


def logical_of(kind: type) -> type[Logical] | None:
    """The logical type that has values of a Python class; None if there is none."""
    return next((_BY_CLASS[base] for base in kind.__mro__ if base in _BY_CLASS), None)


def spellings() -> list[str]:
    """How logical types are written in annotations."""
    return list(dict.fromkeys(kind.spelling for kind in _KINDS if kind.spelling))
