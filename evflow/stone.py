"""The stone contract: what a stone says of itself, and what it may do when events come.

A stone is a description, plain and without side effects, until a graph runs. There are three kinds:

* ``Passing``: hands every event on by reference (source, split).
* ``Compiled``: a function decides (filter, transform, router, generator). It only names its function;
  neighbouring compiled stones become one native pass over a batch.
* ``Acting``: Python that sees each batch once (terminal, storage, queue, match, and whatever you write).
  ``open`` makes its ``Actor``, which lives as long as the graph runs.

A new stone of evflow is one file in ``stones/`` and one line in ``evflow.graph.kinds.KINDS``; a public one is
also named in ``evflow/__init__.py`` and docs/reference.md. docs/stones.md says how to write one elsewhere.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn, Protocol, runtime_checkable

from evflow.errors import EvflowError, FlowError, GraphError
from evflow.later import Later

if TYPE_CHECKING:
    import numpy as np

    from evflow.codgen.tree import Function
    from evflow.events.batch import EventBatch
    from evflow.schema import Schema

__all__ = [
    "Acting",
    "Actor",
    "Call",
    "Checkpoint",
    "Compiled",
    "Context",
    "Entrance",
    "Held",
    "Later",
    "Leaving",
    "Passing",
    "Stone",
    "arrivals",
    "checked_integer",
    "titled",
    "working",
]


def checked_integer(what: str, value: object, least: int = 1) -> int:
    """A setting that is an integer of ``least`` or more, and of 64 bits.

    Args:
        what: what the setting belongs to and its name, for the message.
        value: the value to check.
        least: the smallest value that is allowed.

    Returns:
        The value.

    Raises:
        GraphError: it is not; ``what`` names it.
    """
    if not isinstance(value, int) or isinstance(value, bool) or not least <= value < 1 << 63:
        raise GraphError(f"{what} {value!r}: expected an integer of {least} or more")
    return value


def titled(kind: str, name: str | None) -> str:
    """What a stone is called in errors, also before it has a name.

    Args:
        kind: the kind of the stone.
        name: the name of the stone; None if it has none yet.
    """
    return f"{kind} {name}" if name else kind


class Stone:
    """What every stone says of itself.

    Args:
        name: its name in the graph; by default its kind and a number.
        on: the node it is placed on; by default that of ``Graph.on``.

    Attributes:
        kind: what the stone is called in pictures, tables and errors; by default the name of its class.
        linked_ports: "one" output that must be linked, "any" number of which at least one must be, any number
            or none at all ("free"), or "none".
        entrance: whether programs and other nodes may send to it from outside of the graph.
        emits_by_port: whether ``emits`` has the schema of each port, by number; else any may leave by each.
    """

    kind: str
    linked_ports: str = "one"
    entrance: bool = False
    emits_by_port: bool = False
    name: str | None = None
    on: str | None = None

    def __init_subclass__(cls, **settings: Any) -> None:
        super().__init_subclass__(**settings)
        if not hasattr(cls, "kind") and cls.__module__ != __name__:
            cls.kind = cls.__name__.lower()

    def __init__(self, *, name: str | None = None, on: str | None = None) -> None:
        self.name = name
        self.on = on

    def __rshift__(self, target: object) -> NoReturn:
        what = titled(self.kind, self.name)
        raise GraphError(f"{what} is in no graph; begin with graph.source(…) >> … or graph.add(…) >> …")

    def __getitem__(self, port: object) -> NoReturn:
        what = titled(self.kind, self.name)
        raise GraphError(f"{what} is in no graph; write (… >> stone)[{port!r}] or graph.add(stone)[{port!r}]")

    @property
    def inputs(self) -> Mapping[str, Schema | None]:
        """What it takes: input name → the least schema an event needs; None for whatever is linked to it."""
        return {"input": None}

    def emits(self, schema: Schema | None) -> tuple[Schema | None, ...]:
        """The schemas that may leave the stone when events of ``schema`` arrive; (None,) when any may.

        Raises:
            EvflowError: events of ``schema`` cannot be handled.
        """
        return (schema,)

    @property
    def imports(self) -> tuple[str, ...]:
        """Handlers that it names, as ``module:function``; imported where it runs."""
        return ()

    @property
    def files(self) -> tuple[Path, ...]:
        """Files of its own, in which it keeps what it holds where it runs."""
        return ()

    @property
    def reads(self) -> tuple[Path, ...]:
        """Files and folders that somebody else has put where it runs, and that it only reads."""
        return ()

    def asks(self, schema: Schema | None) -> bool:
        """Whether the function of the stone, for events of ``schema`` (None: any), may ask for
        reconfiguration."""
        return False

    def keep_in(self, folder: Path) -> None:
        """Moves the files of the stone, which have relative names, into ``folder``, before the graph runs."""

    def settings(self) -> dict[str, Any]:
        """The parameters of the stone as plain data, as ``from_settings`` takes them."""
        return {}

    @classmethod
    def from_settings(cls, settings: Mapping[str, Any]) -> Stone:
        """The stone that ``settings()`` described; ``settings`` is what it gave."""
        return cls(**settings)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.name or ''})"


class Passing(Stone):
    """A stone that hands each event to everything linked to it."""


class Compiled(Stone):
    """A stone whose function becomes machine code.

    Attributes:
        period: seconds between the ticks that the engine gives it, or None.
    """

    period: float | None = None

    def function(self, declared: Schema | None, actual: Schema | None) -> Function:
        """The function of the stone, checked.

        Args:
            declared: the schema whose fields the function may use; None for a function that uses attributes
                only.
            actual: the schema of the events that will come, from which the function loads the fields.

        Raises:
            CodeError: the function is wrong; carries line and column.
            SchemaError: ``actual`` lacks fields of ``declared``.
        """
        raise NotImplementedError

    def asks(self, schema: Schema | None) -> bool:
        seen = next(iter(self.inputs.values())) or schema
        return self.function(seen, seen).asks_at is not None


class Entrance(NamedTuple):
    """Where events came into a flow. Those of one entrance arrive at a stone in the order of their source.

    Attributes:
        era: another number after each change of the graph, by which events may take another way.
        name: of the stone that they were submitted to, or of the bridge over which they came.
        life: random bytes of the bridge, others once it has moved or its node was started again; b"" for a
            stone.
    """

    era: int
    name: str
    life: bytes


class Context(Protocol):
    """What the engine offers an actor."""

    def emit(self, batch: EventBatch, port: int = 0, number: int | None = None) -> None:
        """Sends events out of a port; they arrive after ``receive`` or ``wake`` has returned.

        Args:
            batch: the events.
            port: the port.
            number: from ``wake`` only: their place in the actor's ``stream``. It rises, and one number always
                means the same events, so that other nodes recognise what comes to them again after a restart.
        """

    def fault(self, batch: EventBatch, reason: str | BaseException) -> None:
        """Counts events as errors of this stone and puts them among the dead letters.

        Args:
            batch: the events.
            reason: why the stone gives them up: a text, or the exception that stopped it.
        """

    def drop(self, count: int) -> None:
        """Counts ``count`` events that end here by intention."""

    def take(self, count: int) -> None:
        """Counts ``count`` events that came here otherwise than by ``receive``."""

    def sender(self) -> Callable[[EventBatch], None] | None:
        """What takes a bridge's events to their node; None where they stay in this process."""

    def wake(self) -> None:
        """Has the actor's ``wake`` called soon; may be called in any thread."""

    @property
    def home(self) -> tuple[str, str]:
        """Where other processes reach the stone: the contact of its node, "" if it has none, and the stone's
        name there."""

    @property
    def frame(self) -> tuple[bytes, tuple[int, ...]] | None:
        """What the frame of a link is known by that is being handled: its route and its path. What comes of
        one frame comes again, in the same order, when the frame does; along a route paths only grow. None
        where nothing came over a link, or something else might come again."""

    @property
    def entrance(self) -> Entrance | None:
        """Where the events came in that ``receive`` is given; None where that is not known, as behind a stone
        that keeps events, or when they had waited at one that was frozen."""

    def spend(self, seconds: float) -> None:
        """Counts ``seconds`` that the stone has worked elsewhere than in ``receive`` and ``wake``."""

    @property
    def attributes(self) -> dict[str, int | float | str]:
        """The stone's own attributes, read and set by anyone."""


@dataclass(frozen=True, eq=False)
class Held:
    """Events that an actor holds at one of its inputs.

    Attributes:
        input: the input; "" for the one that fits best.
        batch: the events, oldest first.
        numbers: int64, increasing: where each stands among the events of all inputs; None where these are in
            order as they are listed.
    """

    input: str
    batch: EventBatch
    numbers: np.ndarray[Any, np.dtype[np.int64]] | None = None


@dataclass(frozen=True, eq=False)
class Checkpoint:
    """What an actor holds and remembers; from it another of the same kind goes on as if it were the first.

    Attributes:
        held: the events it holds.
        state: the statics of its function (uint8).
        layout: what these statics are; see ``evflow.codgen.runtime.layout_of``.
    """

    held: tuple[Held, ...] = ()
    state: np.ndarray[Any, np.dtype[np.uint8]] | None = None
    layout: str = ""


def arrivals(held: Sequence[Held]) -> list[tuple[str, EventBatch]]:
    """Events that an actor holds, in the order in which they came to it.

    Args:
        held: the events at each input; ``Held.numbers`` gives their order across inputs.

    Returns:
        Pairs of an input and a batch, oldest first.
    """
    if len(held) < 2 or any(one.numbers is None for one in held):
        return [(one.input, one.batch) for one in held]
    order = sorted(
        (number, place, position)
        for place, one in enumerate(held)
        for position, number in enumerate(one.numbers.tolist() if one.numbers is not None else ())
    )
    found = []
    for place, run in groupby(order, key=lambda entry: entry[1]):
        positions = [position for _, _, position in run]
        found.append((held[place].input, held[place].batch.slice(positions[0], positions[-1] + 1)))
    return found


working: ContextVar[Actor | None] = ContextVar("evflow.working", default=None)
"""The actor in a thread of which a handler runs."""


class Actor:
    """The running half of an ``Acting`` stone. Called by one thread only.

    Attributes:
        context: its way to the engine.
        divides: whether ``receive`` may be given a batch in slices, so that what handlers submit for some
            events is run before the next.
        stream: of what stream the numbers are that it gives to ``Context.emit``: random bytes that are kept
            with what it holds, and thrown away with it.
    """

    divides: bool = False
    stream: bytes = b""

    def __init__(self, context: Context) -> None:
        self.context = context

    def receive(self, batch: EventBatch, input: str) -> None:
        """Takes events that arrived at an input.

        Args:
            batch: the events, which already fit the declared schema of the input.
            input: the name of the input.

        Raises:
            UnwrittenError: the actor cannot keep the events now, as on a full disk; they come again.
        """
        raise NotImplementedError

    def wake(self, now: float) -> float | None:
        """Emits, once at most, what it has to emit by itself; see ``Acting.wakes``.

        It is not called while the stone is frozen or closed, or events from it would get to one that takes no
        more; that of a stone from which nothing leads is called all the same.

        Args:
            now: seconds on a clock that only goes forward.

        Returns:
            When it wants to be called next; None for when ``Context.wake`` is called.
        """
        return None

    @property
    def full(self) -> bool:
        """Whether it is full: then the stones upstream of it wait (back-pressure). When that ends it calls
        ``Context.wake``."""
        return False

    @property
    def busy(self) -> str:
        """What it still has to emit or to handle by itself, in words; "" if nothing. ``drain`` waits for
        it."""
        return ""

    def draining(self) -> None:
        """A drain begins, which waits as long as it is ``busy``: what there is now is to be handled."""

    def pause(self) -> None:
        """From now on it begins nothing by itself, until ``resume`` is called as often: it is frozen, or
        another is to take its place."""

    def resume(self) -> None:
        """Takes one ``pause`` back."""

    @property
    def at_work(self) -> str:
        """What it had begun before ``pause`` and is not done with, in words; "" if nothing. A change of the
        graph waits for it."""
        return ""

    @property
    def failure(self) -> EvflowError | None:
        """Why it emits nothing more by itself; a drain raises it."""
        return None

    def answer(self, question: dict[str, Any]) -> Any:
        """Answers a question that a program of another node has for this stone; see ``Flow.ask``.

        Args:
            question: plain data, as msgpack has it. It may come twice.

        Returns:
            Plain data, 8 MiB at most; or a ``Later``, which gets the answer when there is one.

        Raises:
            EvflowError: it cannot; whoever asked gets it.
        """
        raise FlowError("this stone takes no questions")

    def mark(self) -> object:
        """How far it has emitted, in its own terms."""
        return None

    def settled(self, mark: object) -> None:
        """Tells that what the actor had emitted has been handled, or is held safely further on.

        Args:
            mark: how far the actor had emitted, as ``mark()`` gave it.

        Raises:
            UnwrittenError: the actor cannot note that now; it is told again.
        """

    @property
    def taken(self) -> int:
        """How many events it has kept in memory so far; 0 if it keeps none there."""
        return 0

    @property
    def oldest(self) -> int:
        """Which of these, counted from 0, is the oldest that it still keeps; ``taken`` if there is none."""
        return self.taken

    @property
    def queued(self) -> int:
        """Events it holds."""
        return 0

    def extract(self, count: int | None = None) -> list[EventBatch]:
        """Gives up events that the actor holds.

        Args:
            count: how many of the oldest; None for all.

        Returns:
            The events, oldest first.
        """
        return []

    def close(self) -> None:
        """Ends; what it still holds and cannot keep it has given up through ``extract`` before."""

    @property
    def keeps(self) -> bool:
        """Whether what it holds survives ``close``."""
        return False

    def sync(self) -> None:
        """Brings what it has written to its files to the disk itself, so that a power cut does not lose it.

        Raises:
            EvflowError: the disk refuses.
        """

    def checkpoint(self) -> Checkpoint:
        """What it holds and remembers; nothing is taken out. An actor that holds events has its own."""
        return Checkpoint()

    def restore(self, checkpoint: Checkpoint) -> bool:
        """Takes up what another actor held and remembered; called before any event comes.

        Args:
            checkpoint: what the other actor held and remembered, as its ``checkpoint()`` gave it.

        Returns:
            False if it cannot take up these events, and has not; then they come to it as if they arrived.

        Raises:
            FlowError: it cannot keep them now; nothing has changed.
        """
        return not checkpoint.held

    def take_request(self) -> int:
        """What its function has asked for last, since this was called last; 0 for nothing."""
        return 0

    def become(self, stone: Stone) -> bool:
        """Goes on with all it holds as another description of the same kind says.

        Args:
            stone: the other description.

        Returns:
            False if the actor cannot, and has not; then another actor takes its place.
        """
        return False


Call = Callable[[Callable[[Any], Any]], Any]
"""Has the engine's thread do a task with a stone's actor, between two batches, and gives its result."""


class Acting(Stone):
    """A stone that is Python.

    Attributes:
        exact: whether its actor wants events of exactly the declared schemas; otherwise an event that has
            further fields comes whole.
        wakes: whether its actor's ``wake`` is to be called, first when the graph begins.
        buffers: whether what comes to it leaves by ``wake`` only; then what is full behind it does not keep
            events from coming.
        listens: whether other processes have to reach it; then a flow without a node gets one on loopback.
    """

    exact: bool = False
    wakes: bool = False
    buffers: bool = False
    listens: bool = False

    def open(self, context: Context) -> Actor:
        """Makes the running half of the stone; called once each time that a graph begins.

        Args:
            context: what the engine offers the actor.

        Returns:
            The actor.

        Raises:
            EvflowError: the stone cannot run here.
        """
        raise NotImplementedError

    def controls(self, call: Call) -> object | None:
        """What programs may do with the stone while it runs in their process.

        Args:
            call: has the engine's thread do a task with the stone's actor, and gives its result.

        Returns:
            An object, whose methods ``flow[name]`` has too; None if there is nothing to do.
        """
        return None

    def prepare(self) -> None:
        """Compiles what ``open`` will need; called in any thread, for a graph that was checked."""

    def check(self) -> None:
        """Refuses what would fail later; called before anything runs.

        Raises:
            EvflowError: what is wrong.
        """

    def check_arrivals(self, schemas: Sequence[Schema | None]) -> None:
        """Refuses events of schemas that fit an input, but that it cannot handle; called after ``check``.

        Args:
            schemas: the schemas that are expected to arrive; None among them for any.

        Raises:
            EvflowError: what is wrong.
        """


@runtime_checkable
class Leaving(Protocol):
    """A stone that may lead out of the graph, to a stone of another node.

    Attributes:
        peer: the node, by name or contact; None if it leads to a stone of the graph.
        stone: the stone there.
        input: its input.
    """

    peer: str | None
    stone: str
    input: str


Handler = Callable[[Any], object]
"""A user's function that takes an event or a batch."""
