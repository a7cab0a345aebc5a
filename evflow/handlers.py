"""Handlers by name: a function as ``"module:function"``, so that a graph can be plain data."""

from __future__ import annotations

import importlib
import sys
from typing import Any

from evflow.errors import GraphError

__all__ = ["handler_from", "handler_text"]


def handler_from(handler: object) -> Any:
    """The function that a text ``"module:function"`` names; anything else as it is.

    Raises:
        GraphError: the module or the function is not there.
    """
    if not isinstance(handler, str):
        return handler
    module_name, colon, path = handler.partition(":")
    if not colon or not path:
        raise GraphError(f"handler {handler!r}: expected 'module:function'")
    try:
        found: Any = importlib.import_module(module_name)
        for part in path.split("."):
            found = getattr(found, part)
    except (ImportError, AttributeError) as error:
        raise GraphError(f"handler {handler!r} cannot be imported: {error}") from error
    return found


def handler_text(handler: Any) -> str:
    """The text ``"module:function"`` of a function that can be imported.

    Raises:
        GraphError: it cannot, as a lambda or a function within a function.
    """
    module, path = getattr(handler, "__module__", None), getattr(handler, "__qualname__", "<unnamed>")
    found: Any = sys.modules.get(str(module))
    for part in path.split("."):
        found = getattr(found, part, None)
    if found is None or found is not handler:
        raise GraphError(
            f"handler {path} cannot be named as 'module:function', so the graph cannot be written as data; "
            "define it with 'def' at the top of a module"
        )
    return f"{module}:{path}"
