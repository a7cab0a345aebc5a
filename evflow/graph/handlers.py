"""Handlers by name: a function as ``"module:function"``, so that a graph can be plain data.

Such a handler is imported when its stone is checked to run, so a graph may name handlers that only another
host has.
"""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from types import MappingProxyType
from typing import Any

from evflow.errors import GraphError
from evflow.mishaps import CONTAINED, named

_own: ContextVar[Mapping[str, Callable[..., object]]] = ContextVar(
    "evflow.graph.handlers", default=MappingProxyType({})
)


@contextmanager
def own_handlers(handlers: Mapping[str, Callable[..., object]]) -> Iterator[None]:
    """Within the ``with`` block these texts name these functions, whatever could be imported."""
    token = _own.set(handlers)
    try:
        yield
    finally:
        _own.reset(token)


def handler_from(handler: object) -> Any:
    """The function that a text ``"module:function"`` names; anything else as it is.

    Raises:
        GraphError: the module or the function is not there.
    """
    if not isinstance(handler, str):
        return handler
    if handler in _own.get():
        return _own.get()[handler]
    module, colon, path = handler.partition(":")
    if not colon or not path:
        raise GraphError(f"handler {handler!r}: expected 'module:function'")
    return imported(module, path)


def imported(module: str, path: str, what: str = "handler") -> Any:
    """What a dotted path leads to in a module.

    Args:
        module: the module's name.
        path: the name of a function, a class or another object; or a dotted path.
        what: what is looked for, for errors.

    Raises:
        GraphError: the module, or one of the names, is not there.
    """
    return _on_the_way(module, path, what)[-1]


def _on_the_way(module: str, path: str, what: str = "handler") -> list[Any]:
    """A module, and what each name of a dotted path leads to.

    Raises:
        GraphError: the module, or one of the names, is not there.
    """
    try:
        found: list[Any] = [importlib.import_module(module)]
        for part in path.split("."):
            found.append(getattr(found[-1], part))
    except CONTAINED as error:
        # Whatever a module does when it is imported.
        why = named(error, ImportError, AttributeError)
        raise GraphError(f"{what} {f'{module}:{path}'!r} cannot be imported: {why}") from error
    return found


def is_made_in(module: str, path: str, what: str = "handler") -> bool:
    """Whether a module itself defines what a path names, and did not import it from elsewhere.

    Args:
        module: the module's name.
        path: the name of a function, a class or another object; or a dotted path to a method.
        what: what is looked for, for errors.

    Returns:
        Whether the module lists the name in ``__all__``, or the object's ``__module__`` is this module. Of a
        dotted path each further object must be of this module, too.

    Raises:
        GraphError: the module cannot be imported, or has no such name.
    """
    found = _on_the_way(module, path, what)
    listed = path.partition(".")[0] in getattr(found[0], "__all__", ())
    return all(getattr(each, "__module__", None) == module for each in found[1 + listed :])


def missing_module(text: str) -> str:
    """Why the module of ``"module:function"`` or ``"module"`` cannot be found, as things are; "" if it can.

    Of a module within a package the package is imported, as that knows where the module is.
    """
    module = text.partition(":")[0]
    try:
        if module in sys.modules or importlib.util.find_spec(module) is not None:
            return ""
        why = "is it spelt right, and is its folder the one of the start, or on PYTHONPATH?"
    except CONTAINED as error:
        why = named(error, ImportError)
    return f"module {module!r} cannot be found: {why}"


def is_handler_text(text: str) -> bool:
    """Whether a text has the form ``module:function``."""
    module, _, path = text.partition(":")
    return all(part.isidentifier() for part in (*module.split("."), *path.split(".")))


def handler_text(handler: Any) -> str:
    """The text ``"module:function"`` of a function that can be imported; of a text itself.

    Raises:
        GraphError: it cannot, as a lambda or a function within a function.
    """
    if isinstance(handler, str):
        return handler
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
