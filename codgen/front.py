"""The door to the front ends: a text or a Python function, and the schemas of its events, to a typed tree."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from functools import lru_cache

from msgspec import Struct

from evflow.codgen.adapt import check_fit
from evflow.codgen.source.check import KINDS
from evflow.codgen.tree import Function
from evflow.errors import CodeError
from evflow.schema import Schema

FUEL = 10_000_000
"""What one event may spend, if nothing else is said: about a tenth of a second."""

_LONG = 1 << 14


class Input(Struct, frozen=True):
    """An event that a function sees.

    Attributes:
        name: its name in the code.
        declared: the fields that the code may use; None for a function that uses attributes only.
        actual: the schema of the events that will come, by default the declared one; it may have more
            fields, fields of other number types, and may lack fields that have a default.
    """

    name: str
    declared: Schema | None
    actual: Schema | None = None


def build(
    code: str | Callable[..., object],
    kind: str,
    inputs: Sequence[Input],
    outputs: Sequence[tuple[str, Schema]] = (),
    *,
    fuel: int = FUEL,
) -> Function:
    """The typed tree of a stone function; the same arguments give the same tree again, if it is not long.

    Args:
        code: Cod (an expression or a block), a Python function, or the text of one (``def …``, ``lambda …``).
        kind: "filter", "transform", "router" or "queue".
        inputs: the event it sees; for a queue one for each queue.
        outputs: name and schema of each record it can fill.
        fuel: what one event may spend; a unit pays for a short turn of a loop.

    Raises:
        CodeError: the code is refused; carries the place in it.
        SchemaError: events of an actual schema do not fit the declared one.
    """
    key = _Code(code)
    # A long text would take much memory.
    make = _build.__wrapped__ if isinstance(code, str) and len(code) > _LONG else _build
    function = make(key, kind, tuple(inputs), tuple(outputs), fuel)
    del key.code  # the cache keeps the key, which must not keep what a Python function refers to
    return function


def refuse_requests(function: Function, what: str) -> None:
    """Refuses a function that asks for reconfiguration where nobody listens.

    Args:
        function: the function.
        what: what the function belongs to, for the message.

    Raises:
        CodeError: the function asks for it; carries line and column.
    """
    at = function.asks_at
    if at is not None:
        raise CodeError(
            f"{what} cannot ask for reconfiguration; call reconfigure(...) in the function of a stone",
            function.source,
            at.line,
            at.column,
        )


def refuse_statics(function: Function, what: str) -> None:
    """Refuses a function with static variables where there is no memory for them.

    Args:
        function: the function.
        what: what the function belongs to, for the message.

    Raises:
        CodeError: the function has some; carries line and column.
    """
    if not function.statics:
        return
    name, source = function.statics[0].name, function.source
    found = re.search(rf"\bstatic\b[^;/]*\b{re.escape(name)}\b", source)
    start = 0 if found is None else found.start()
    raise CodeError(
        f"{what} cannot have static variables, found {name!r}; keep them in the function of a stone",
        source,
        1 + source.count("\n", 0, start),
        start - source.rfind("\n", 0, start),
    )


class _Code:
    """The code of a function; two are equal if they would give the same tree."""

    def __init__(self, code: str | Callable[..., object]) -> None:
        self.code = code
        self.identity: object = code
        if not isinstance(code, str):
            from evflow.codgen.source.pysource import identity

            self.identity = identity(code)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Code) and self.identity == other.identity

    def __hash__(self) -> int:
        return hash(self.identity)


@lru_cache(maxsize=1024)
def _build(
    given: _Code, kind: str, inputs: tuple[Input, ...], outputs: tuple[tuple[str, Schema], ...], fuel: int
) -> Function:
    code = given.code
    if kind not in KINDS:
        raise CodeError(f"a function of kind {kind!r}: expected one of {', '.join(KINDS)}")
    if kind == "transform" and not outputs:
        raise CodeError("a transform fills an output: expected an output schema, found none")
    slots = [(i.name, i.declared, i.declared if i.actual is None else i.actual) for i in inputs]
    for _, declared, actual in slots:
        if declared is not None and actual is not None and actual is not declared:
            check_fit(actual, declared)
    try:
        if isinstance(code, str) and not is_python(code):
            from evflow.codgen.source.cod import build_cod

            return build_cod(code, kind, slots, outputs, fuel)
        from evflow.codgen.source.pyfunc import build_python

        return build_python(code, kind, slots, outputs, fuel)
    except RecursionError:
        raise CodeError("the code is nested too deeply", code if isinstance(code, str) else "") from None


def is_python(text: str) -> bool:
    """Whether a text is taken for the Python subset: it begins with ``def`` or ``lambda``."""
    words = text.split(None, 1)
    return bool(words) and (words[0] in ("def", "lambda", "async") or words[0].startswith(("lambda:", "@")))


def source_of(code: str | Callable[..., object]) -> str:
    """The text that stands for a function as data; constants that it takes from around it are written out.

    Raises:
        CodeError: a Python function without a source.
    """
    if isinstance(code, str):
        return code
    from evflow.codgen.source.pysource import portable, python_source

    return portable(python_source(code))
