"""Terminal: where events reach the user's own Python."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from inspect import isasyncgenfunction, iscoroutinefunction, isgeneratorfunction
from typing import Any

from evflow.errors import GraphError
from evflow.events.batch import EventBatch
from evflow.events.view import position_of
from evflow.graph.handlers import handler_from, handler_text
from evflow.outside import shown
from evflow.schema import Schema
from evflow.stone import Acting, Actor, Context, Handler, checked_integer, titled
from evflow.stones.working import RAW, Working, key_problem

__all__ = ["RAW", "Terminal"]

_MOST_WORKERS = 1000


class Terminal(Acting):
    """Calls a handler with each event, a read-only view with the event's fields as attributes.

    A handler that raises costs that event only: it is counted, and kept among the dead letters. A handler
    may submit events itself: as many as it likes to other sources, and to the one that its own events come
    from no more than it takes, or ``submit`` raises ``FlowError`` there, and the next ``drain``, too.

    The flow waits while a handler runs, and with it all its stones. Handlers that wait for something, as a
    database or a request, run beside the flow with ``workers=``: as many at once, each in a thread. Events
    with the same value of the field ``key`` are handled one after the other, in the order in which they came.
    Without a key that holds for the events that came into the flow at the same source, or over the same
    bridge; behind a storage or a queue stone it holds for all events. The threads share the interpreter's
    lock, so workers do not make a handler faster that computes in Python. ``docs/overlays.md`` says more.

    Args:
        handler: called with each event; or a mapping from schema (or ``Event`` class) to handler, each
            event going to the one it fits best. A text ``"module:function"`` names a handler that is imported
            where the stone runs.
        batch: call the handler with an ``EventBatch``, all events that came together, instead.
        input: the least schema that ``handler`` needs; by default that of the events linked to it.
        raw: called with the encoded bytes and the schema of each event that no other handler fits.
        workers: handlers that may run at once beside the flow, at most 1000; 0 has the flow call them.
        key: a field of the events: an integer, a bool, text, bytes, or a logical type such as a time; only
            with workers.
        queue: events that may wait for workers; when so many do, or when the terminal holds 64 MiB, it takes
            no further batch, and whoever sends events to it waits. Only with workers.
        name: the stone's name.
        on: the node it is placed on.

    Raises:
        GraphError: there is no handler, or one that cannot be called; or a setting is wrong.

    Example:
        >>> import evflow as ev
        >>> class Ping(ev.Event):
        ...     number: int
        >>> total = []
        >>> g = ev.Graph()
        >>> _ = g.source("pings", Ping) >> ev.Terminal(lambda b: total.append(b["number"].sum()), batch=True)
        >>> with g.run() as flow:
        ...     flow["pings"].submit_batch({"number": [1, 2, 3]})
        >>> int(sum(total))
        6

        Two requests at a time, in order for each user:

        >>> import time
        >>> class Request(ev.Event):
        ...     user: ev.Str[8]
        ...     number: int
        >>> answered = {"ann": [], "bob": []}
        >>> def answer(request):
        ...     time.sleep(0.001)
        ...     answered[request.user].append(request.number)
        >>> g = ev.Graph()
        >>> _ = g.source("requests", Request) >> ev.Terminal(answer, workers=2, key="user")
        >>> with g.run() as flow:
        ...     flow["requests"].submit_batch({"user": ["ann", "bob", "ann"], "number": [1, 2, 3]})
        ...     flow.drain()
        >>> answered
        {'ann': [1, 3], 'bob': [2]}
    """

    kind = "terminal"
    linked_ports = "none"

    def __init__(
        self,
        handler: Handler | str | Mapping[Any, Handler | str] | None = None,
        *,
        batch: bool = False,
        input: Any = None,
        raw: Callable[[bytes, Schema], object] | str | None = None,
        workers: int = 0,
        key: str | None = None,
        queue: int = 1000,
        name: str | None = None,
        on: str | None = None,
    ) -> None:
        super().__init__(name=name, on=on)
        self.batch = batch
        self._inputs: dict[str, Schema | None] = {}
        self._handlers: dict[str, Handler | str] = {}
        if isinstance(handler, Mapping):
            for spec, function in handler.items():
                schema = Schema.of(spec)
                self._take(schema.name, schema, function)
        elif handler is not None:
            self._take("input", None if input is None else Schema.of(input), handler)
        if raw is not None:
            self._take(RAW, None, raw)
        if not self._handlers:
            raise GraphError(f"{titled('terminal', name)}: expected a handler, found none")
        self._set_workers(workers, key, queue)

    def _set_workers(self, workers: int, key: str | None, queue: int) -> None:
        """Sets how handlers run beside the flow.

        Raises:
            GraphError: a setting is wrong, or a handler's schema has no such key.
        """
        where = titled("terminal", self.name)
        self.workers = checked_integer(f"{where}: workers", workers, 0)
        if workers > _MOST_WORKERS:
            raise GraphError(f"{where}: workers {workers}: expected at most {_MOST_WORKERS}")
        self.queue = checked_integer(f"{where}: queue", queue)
        if key is not None and not isinstance(key, str):
            raise GraphError(f"{where}: key {shown(key)}: expected the name of a field")
        if key is not None and not workers:
            raise GraphError(f"{where}: key {shown(key)}: expected workers=1 or more with a key")
        self.key = key
        self.check_arrivals(list(self._inputs.values()))

    def _take(self, key: str, schema: Schema | None, handler: Any) -> None:
        if key in self._inputs:
            raise GraphError(f"{titled('terminal', self.name)}: two handlers for schemas named {key}")
        if not isinstance(handler, str):
            self._checked(handler, handler)
        self._inputs[key] = schema
        self._handlers[key] = handler

    @property
    def inputs(self) -> Mapping[str, Schema | None]:
        return self._inputs

    @property
    def wakes(self) -> bool:  # type: ignore[override]
        """Whether workers report to it."""
        return self.workers > 0

    def check(self) -> None:
        self.handlers()

    def check_arrivals(self, schemas: Sequence[Schema | None]) -> None:
        # What its handler of raw events takes may lack the key.
        if self.key is None or RAW in self._inputs:
            return
        for schema in schemas:
            if schema is not None and (problem := key_problem(schema, self.key)):
                raise GraphError(f"{titled('terminal', self.name)}: {problem}")

    def handlers(self) -> dict[str, Handler]:
        """Its handlers by input; those that are named are imported.

        Raises:
            GraphError: one is not there, or cannot be called.
        """
        found: dict[str, Handler] = {}
        for key, handler in self._handlers.items():
            if isinstance(handler, str):
                found[key] = self._checked(handler_from(handler), handler)
            else:  # it was checked when it was given
                found[key] = handler
        return found

    def _checked(self, function: Any, named: Any) -> Handler:
        if not callable(function):
            raise GraphError(
                f"{titled('terminal', self.name)}: expected a handler that can be called, such as print, or "
                f"its name as 'module:function', found {shown(named)}"
            )
        called = (function, vars(type(function)).get("__call__"))
        for form in called:
            if isgeneratorfunction(form) or isasyncgenfunction(form):
                raise GraphError(
                    f"{titled('terminal', self.name)}: handler {named!r} is a generator, which would never "
                    "run; use 'return' in place of 'yield'"
                )
        if any(map(iscoroutinefunction, called)):
            raise GraphError(
                f"{titled('terminal', self.name)}: handler {named!r} is a coroutine, which nobody would "
                "await; use 'def', and within it asyncio.run_coroutine_threadsafe"
            )
        handler: Handler = function
        return handler

    @property
    def imports(self) -> tuple[str, ...]:
        return tuple(handler for handler in self._handlers.values() if isinstance(handler, str))

    def emits(self, schema: Schema | None) -> tuple[Schema | None, ...]:
        return ()

    def open(self, context: Context) -> Actor:
        handlers = self.handlers()
        if not self.workers:
            return _Caller(context, handlers, self.batch)
        return Working(
            context, handlers, batch=self.batch, workers=self.workers, key=self.key, queue=self.queue
        )

    def settings(self) -> dict[str, Any]:
        return {
            "batch": self.batch,
            "workers": self.workers,
            "key": self.key,
            "queue": self.queue,
            "handlers": [
                [key, None if schema is None else schema.description, handler_text(self._handlers[key])]
                for key, schema in self._inputs.items()
            ],
        }

    @classmethod
    def from_settings(cls, settings: Mapping[str, Any]) -> Terminal:
        terminal = cls.__new__(cls)
        Acting.__init__(terminal)
        terminal.batch = settings["batch"]
        terminal._inputs, terminal._handlers = {}, {}
        for key, described, text in settings["handlers"]:
            schema = None if described is None else Schema.from_description(described)
            terminal._take(key, schema, text)
        # Descriptions that were stored before there were workers say nothing of them.
        terminal._set_workers(settings.get("workers", 0), settings.get("key"), settings.get("queue", 1000))
        return terminal


class _Caller(Actor):
    def __init__(self, context: Context, handlers: Mapping[str, Handler], batch: bool) -> None:
        super().__init__(context)
        self._handlers = handlers
        self._batch = batch
        self.divides = not batch

    def receive(self, batch: EventBatch, input: str) -> None:
        handler = self._handlers[input]
        if input == RAW:
            self._raw(handler, batch)
            return
        if self._batch:
            try:
                handler(batch)
            except BaseException as error:  # noqa: BLE001  a handler may raise anything, sys.exit() too
                self.context.fault(batch, error)
            return
        events, done = iter(batch), False
        while not done:
            # Outside of the loop, which has nothing else to do for an event.
            try:
                for event in events:
                    handler(event)
                done = True
            except BaseException as error:  # noqa: BLE001  as above
                self.context.fault(batch.slice(position_of(event), position_of(event) + 1), error)

    def _raw(self, handler: Callable[..., object], batch: EventBatch) -> None:
        for position in range(len(batch)):
            one = batch.slice(position, position + 1)
            try:
                handler(one.to_bytes(), batch.schema)
            except BaseException as error:  # noqa: BLE001  as above
                self.context.fault(one, error)
