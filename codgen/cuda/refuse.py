"""What a stone function must not contain if it is to run on a GPU, each with the reason."""

from __future__ import annotations

from collections.abc import Iterator
from math import prod
from typing import Any

from evflow.codgen.library import SYSTEM
from evflow.codgen.tree import (
    REQUEST,
    Attribute,
    Call,
    Copy,
    Discard,
    Element,
    Function,
    Pos,
    SetAttribute,
    Submit,
    Variable,
    walk,
)
from evflow.errors import CodeError
from evflow.schema.types import NUMBERS

__all__ = ["ARRAYS", "EXACT", "refuse"]

ARRAYS = 4096
"""Bytes that the arrays of a function may have in all: each of some hundred thousand threads has its own."""

EXACT = frozenset(
    "sqrt floor ceil trunc round fabs fmod copysign fmin fmax abs isnan isfinite "
    "starts_with ends_with contains length".split()
)
"""The functions of the library with one possible result, which the CPU and the GPU therefore agree on."""


def refuse(function: Function) -> None:
    """Refuses a function that cannot run on a GPU.

    Raises:
        CodeError: says what cannot, why, and what to do; carries line and column.
    """
    _refuse_events(function)
    for message, pos in _reasons(function):
        raise CodeError(f"a GPU filter {message}", function.source, pos.line, pos.column)
    arrays = [variable for variable in function.locals if variable.shape]
    size = sum(_item_size(variable) * prod(variable.shape) for variable in arrays)
    if size > ARRAYS:
        names = ", ".join(repr(variable.name) for variable in arrays)
        raise CodeError(
            f"the arrays of a GPU filter may have {ARRAYS} bytes in all, found {size} ({names}); make them "
            "smaller or run the filter on the CPU",
            function.source,
        )


def _item_size(variable: Variable) -> int:
    """Bytes of one element of a variable."""
    return 16 if variable.type == "str" else max(NUMBERS[variable.type].size, 1)


def _refuse_events(function: Function) -> None:
    if function.kind != "filter":
        raise CodeError(
            f"only filters run on a GPU, found a {function.kind}; run it on the CPU", function.source
        )
    schema = function.inputs[0][1]
    if schema is None:
        raise CodeError("a GPU filter needs the schema of its events, found none", function.source)
    if schema.width is None:
        names = ", ".join(repr(field.name) for field in schema.fields if field.offset is None)
        raise CodeError(
            f"a GPU filter takes events of fixed width, but {schema.name} has fields of variable width "
            f"({names}); use Str[n], Bytes[n] and arrays of fixed shape, or run the filter on the CPU",
            function.source,
        )


def _reasons(function: Function) -> Iterator[tuple[str, Pos]]:
    for node in walk(function.body):
        message = _reason(node)
        if message:
            yield message, node.pos


def _reason(node: Any) -> str:
    if isinstance(node, (Submit, Discard, Copy)):
        return "only says which events pass: it cannot submit, copy or discard; do that in a stone behind it"
    if isinstance(node, (Attribute, SetAttribute)):
        return f"cannot see attributes, which stay on the host: found {node.name!r}; use a field"
    place = getattr(node, "place", None)
    if isinstance(place, Element) and place.variable.static:
        if place.variable.name == REQUEST:
            return "cannot ask for reconfiguration; call reconfigure(...) in a function on the CPU"
        return (
            f"cannot keep {place.variable.name!r} from event to event, since all events of a batch run at "
            "once; leave out 'static', or run the filter on the CPU"
        )
    if isinstance(node, Call) and node.name in SYSTEM:
        return f"cannot call {node.name}(), which is a value of the host; give it in a field"
    if isinstance(node, Call) and node.name not in EXACT:
        return (
            f"cannot call {node.name}(): CUDA rounds it otherwise than the CPU, so the two could differ on "
            "an event; run the filter on the CPU"
        )
    return ""
