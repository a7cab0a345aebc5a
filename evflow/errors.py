"""Every error that evflow raises.

    EvflowError
    ├── SchemaError         a schema, or a value that does not fit one
    ├── CodeError           a stone function that cannot be compiled; carries line, column and a caret
    ├── GraphError          a graph that is described wrongly; lists every problem at once
    ├── FlowError           a running flow that cannot do what was asked: closed, full, no such stone
    │   └── UnwrittenError  a file that cannot be written now, as when its disk is full
    ├── LinkError           a connection to another node
    ├── DeployError         a roll-out over several nodes
    ├── RemoteError         what a handler on another node raised, of a class that is not known here
    ├── SubscriptionError   a subscription of the matcher
    ├── DeviceError         a GPU
    ├── SparkError          a Spark job that reads or writes events, its options, or what Spark needs
    └── StagingError        a variable, step or store of staged output

A message names the thing, what was expected, what was found, and what to do.
"""

from __future__ import annotations

from typing import Self

__all__ = [
    "CodeError",
    "DeployError",
    "DeviceError",
    "EvflowError",
    "FlowError",
    "GraphError",
    "LinkError",
    "RemoteError",
    "SchemaError",
    "SparkError",
    "StagingError",
    "SubscriptionError",
    "UnwrittenError",
]


class EvflowError(Exception):
    """Base class of all errors of evflow.

    Example:
        >>> import evflow as ev
        >>> try:
        ...     ev.Graph().check()
        ... except ev.EvflowError as error:
        ...     print(error)
        graph graph has no stones; begin with graph.source(…)
    """


class SchemaError(EvflowError):
    """A schema is malformed, or a value or bytes do not fit a schema.

    Example:
        >>> import evflow as ev
        >>> ev.Schema("reading", {"value": ev.Str[0]})
        Traceback (most recent call last):
        evflow.errors.SchemaError: Str[0]: expected a capacity of 1 to 65533 bytes
    """


class _PlacedError(EvflowError):
    """An error in a text; its message ends with the line and a caret.

    Args:
        message: what is wrong.
        source: the whole text; "" if there is none to show.
        line: the line of the place in ``source``, from 1.
        column: the column of the place in that line, from 1.
    """

    def __init__(self, message: str, source: str = "", line: int = 1, column: int = 1) -> None:
        self.message = message
        self.line = line
        self.column = column
        self.source = source
        super().__init__(message + _excerpt(source, line, column))

    def within(self, where: str) -> Self:
        """The same error, its message begun with ``where``, the thing that holds the text."""
        return type(self)(f"{where}: {self.message}", self.source, self.line, self.column)


class CodeError(_PlacedError):
    """A stone function is refused when it is built.

    Attributes:
        line: 1-based line in the function's source.
        column: 1-based column in that line.
        source: the function's whole source text.
        message: what is wrong, without the excerpt of the source.

    Example:
        >>> import evflow as ev
        >>> class Ping(ev.Event):
        ...     number: int
        >>> g = ev.Graph()
        >>> end = g.source("pings", Ping) >> ev.Filter("input.numbre > 1") >> ev.Terminal(print)
        >>> try:
        ...     g.check()
        ... except ev.CodeError as error:
        ...     print(error.line, error.column)
        1 7
    """


class GraphError(EvflowError):
    """A graph is described wrongly.

    Attributes:
        problems: one text for each thing that is wrong.

    Example:
        >>> import evflow as ev
        >>> g = ev.Graph()
        >>> a, b = g.source("a"), g.source("b")
        >>> try:
        ...     g.check()
        ... except ev.GraphError as error:
        ...     print(len(error.problems))
        2
    """

    def __init__(self, *problems: str) -> None:
        self.problems = problems
        super().__init__("\n".join(problems))


class FlowError(EvflowError):
    """A running flow cannot do what was asked of it.

    Example:
        >>> import evflow as ev
        >>> g = ev.Graph()
        >>> end = g.source("pings") >> ev.Terminal(print, name="end")
        >>> with g.run() as flow:
        ...     flow["pongs"]
        Traceback (most recent call last):
        evflow.errors.FlowError: flow graph has no stone 'pongs' (did you mean 'pings'?); it has pings, end
    """


class UnwrittenError(FlowError):
    """A file cannot be written now, as when its disk is full; the same may succeed later.

    An actor's ``receive`` that raises it has not kept its events: they wait in memory, are not acknowledged
    to other nodes, and come to the actor again each second. Meanwhile whoever submits to it waits.

    Args:
        message: which file, why, and what to do.
        taken: how many of the events, from the first on, were kept all the same.

    Attributes:
        taken: as given.
    """

    def __init__(self, message: str, taken: int = 0) -> None:
        super().__init__(message)
        self.taken = taken


class LinkError(EvflowError):
    """A connection to another node failed or was refused."""


class DeployError(EvflowError):
    """A graph could not be rolled out over its nodes."""


class RemoteError(EvflowError):
    """What a handler on another node raised, of a class that is not known here.

    Its note has the traceback.
    """


class SubscriptionError(_PlacedError):
    """A subscription of the matcher is malformed.

    Attributes:
        line: 1-based line in the subscription's text.
        column: 1-based column in that line.
        source: the whole text, or "" if the subscription was not given as text.
        message: what is wrong, without the excerpt of the text.

    Example:
        >>> from evflow.matching.text import parse_subscription
        >>> try:
        ...     parse_subscription("temp > 30 and area contains area1")
        ... except SubscriptionError as error:
        ...     print(error)
        expected a value after contains but found area1
           1 | temp > 30 and area contains area1
                                           ^ line 1, column 29
    """


class DeviceError(EvflowError):
    """A GPU, its driver or its memory cannot do what was asked."""


class SparkError(EvflowError):
    """A Spark job cannot read or write events: a wrong option, lost rows, or Spark or Java is missing."""


class StagingError(EvflowError):
    """Output cannot be staged: a variable, block, step, budget or store is not what it should be."""


_EXCERPT = 100


def _excerpt(source: str, line: int, column: int) -> str:
    lines = source.splitlines()
    if not 1 <= line <= len(lines):
        return ""
    number = f"{line:4d} | "
    text = lines[line - 1].expandtabs(1)
    # Of a long line only what is around the place is shown.
    start = max(0, min(column - 1 - _EXCERPT // 2, len(text) - _EXCERPT))
    before, after = "…" * (start > 0), "…" * (start + _EXCERPT < len(text))
    # What does not print may steer a terminal.
    safe = "".join(c if c.isprintable() else "\ufffd" for c in text[start : start + _EXCERPT])
    shown = f"{before}{safe}{after}"
    caret = " " * (len(number) + len(before) + column - 1 - start)
    return f"\n{number}{shown}\n{caret}^ line {line}, column {column}"
