"""The questions that Spark's tasks, driver and readers ask a stone, and the answers: one class for each.

Both ends check what comes by the same classes: the other end may be of another version, or hostile.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, TypeVar, get_args

import msgspec
from msgspec import Meta, Struct

from evflow.errors import FlowError, SparkError
from evflow.outside import shown

MOST_TASKS = 100_000
"""Tasks of which a source lets rows land, at most, and that one commit may name."""

Count = Annotated[int, Meta(ge=0, lt=1 << 62)]
Name = Annotated[str, Meta(min_length=1, max_length=1000)]
Run = Annotated[str, Meta(max_length=1000)]


class Question(Struct, frozen=True, tag_field="ask"):
    """A question to a stone; ``ask`` says which."""


class Look(Question, frozen=True, tag="look"):
    """Asks a source which schemas it takes."""


class Begin(Question, frozen=True, tag="begin"):
    """Announces the attempt of a task; ``run`` tells runs of a batch job from each other."""

    job: Name
    epoch: Count
    partition: Count
    attempt: Count
    schema: Any
    run: Run = ""


class Append(Question, frozen=True, tag="append"):
    """Rows of a task, from number ``first`` on; those that came before are ignored."""

    task: Count
    first: Count
    rows: Count
    data: bytes


class End(Question, frozen=True, tag="end"):
    """Says that a task has sent all of its rows."""

    task: Count


class Drop(Question, frozen=True, tag="drop"):
    """Says that a task has failed."""

    task: Count


class Commit(Question, frozen=True, tag="commit"):
    """Has a source release what some tasks have sent: (partition, task, rows) of each."""

    job: Name
    epoch: Count
    tasks: Annotated[list[tuple[Count, Count, Count]], Meta(max_length=MOST_TASKS)]


class Abort(Question, frozen=True, tag="abort"):
    """Has a source delete what has landed of an epoch."""

    job: Name
    epoch: Count
    run: Run = ""


class Range(Question, frozen=True, tag="range"):
    """Asks a sink which rows it has; a query says that it reads on ``at`` an offset in the log ``spool``."""

    query: Run = ""
    at: Count = 0
    spool: Run = ""


class Read(Question, frozen=True, tag="rows", rename={"start": "from", "stop": "to"}):
    """Asks a sink for rows by their offsets, in at ``most`` so many bytes."""

    spool: Run
    start: Count
    stop: Count
    most: Count


class CommitRead(Question, frozen=True, tag="commit"):
    """Tells a sink that a query has done with all rows before an offset."""

    query: Name
    spool: Run
    to: Count


SourceQuestion = Look | Begin | Append | End | Drop | Commit | Abort
SinkQuestion = Range | Read | CommitRead


class Done(Struct, frozen=True):
    """It is done."""


class Schemas(Struct, frozen=True):
    """The descriptions of the schemas that a source takes; none for any."""

    schemas: list[Any]


class Begun(Struct, frozen=True):
    """The number of a task; or that its job was committed before, so that nothing is to be sent."""

    task: Count
    done: bool


class Landed(Struct, frozen=True):
    """How many rows a source has of a task or a job."""

    rows: Count


class There(Struct, frozen=True):
    """What a sink has: the offsets of its log, the bytes between them, and the description of the schema."""

    spool: Name
    first: Count
    next: Count
    bytes: Count
    schema: Any

    def __post_init__(self) -> None:
        if self.first > self.next:
            raise ValueError(f"rows from {self.first} to {self.next}")

    @property
    def mean(self) -> int:
        """Bytes of a row, about."""
        return max(self.bytes // max(self.next - self.first, 1), 1)


class Page(Struct, frozen=True):
    """Rows of a sink."""

    rows: Count
    data: bytes


class First(Struct, frozen=True):
    """The offset of a sink's first row."""

    first: Count


Kind = TypeVar("Kind")


def packed(message: Struct) -> dict[str, Any]:
    """A question or an answer as plain data."""
    plain: dict[str, Any] = msgspec.to_builtins(message, builtin_types=(bytes,))
    return plain


def asked(question: Mapping[str, Any], kinds: Any) -> Any:
    """The question that plain data are, one of the classes ``kinds``.

    Raises:
        FlowError: it is none of these; says what is wrong with it.
    """
    ask = question.get("ask")
    known = [kind.__struct_config__.tag for kind in get_args(kinds)]
    if ask not in known:
        raise FlowError(f"question {shown(ask, 100)} of Spark: expected one of {', '.join(known)}")
    try:
        return msgspec.convert(question, kinds)
    except (msgspec.ValidationError, RecursionError) as error:
        raise FlowError(f"question {ask!r} of Spark: {shown(str(error), 300)[1:-1]}") from None


def answered(answer: object, kind: type[Kind]) -> Kind:
    """The answer that plain data are.

    Raises:
        SparkError: they are not such an answer; says what is wrong with it.
    """
    try:
        return msgspec.convert(answer, kind)
    except (msgspec.ValidationError, RecursionError) as error:
        raise SparkError(
            f"answer of a stone: {shown(str(error), 300)[1:-1]}; is it a Spark source or sink of this "
            "version of evflow?"
        ) from None
