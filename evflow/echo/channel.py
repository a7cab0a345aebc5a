"""A channel as a program holds it: publish, subscribe, derive."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from evflow.closing import Closing
from evflow.echo.notes import SUBSCRIBED
from evflow.echo.record import ChannelContact, Derivation, Record
from evflow.echo.wiring import bridge_name, lower_name, upper_name
from evflow.engine.fit import best_fit
from evflow.errors import FlowError, LinkError, SchemaError
from evflow.events.batch import EventBatch
from evflow.graph.morph import Morph
from evflow.outside import shown
from evflow.schema import Schema
from evflow.stone import Compiled, Stone
from evflow.stones.filter import Filter
from evflow.stones.terminal import Terminal

if TYPE_CHECKING:
    from evflow.echo.process import Process
    from evflow.engine.letters import DeadLetter
    from evflow.flow.entry import Entry

_numbers = itertools.count(1)


class Member(NamedTuple):
    """A process that takes part in a channel.

    Attributes:
        process: its name.
        subscribed: whether it gets the channel's events.
        contact: where it can be dialled; "" if it cannot.
        silent: seconds since it was heard; 0.0 for this process.
    """

    process: str
    subscribed: bool
    contact: str
    silent: float


class Channel(Closing):
    """A channel, as one process takes part in it; made by ``Process.create`` and ``Process.open``.

    Args:
        process: the process that takes part.
        record: what the channel is, as all processes know it.

    Attributes:
        name: the channel's name.
        key: what it is known by among processes: its name, its creator, and what tells it from others of that
            name.
        schemas: what its events are; none for anything.
    """

    def __init__(self, process: Process, record: Record) -> None:
        self.name = record.name
        self.key = record.key
        self.schemas = record.schemas
        self._process = process
        self._record = record
        self._keeper = process.keeper
        self._closed = False
        self._admitted: set[object] = set()
        self._entry: Entry = process.flow[upper_name(self.key)]

    @property
    def contact(self) -> str:
        """What others open it by, through this process; "" if this process does not listen."""
        if not self._process.contact:
            return ""
        with self._keeper.changing() as membership:
            roster = membership.named(self.name)
        plain = roster is not None and roster.key == self.key
        name = self.name if plain else self.key
        return str(ChannelContact(self._process.contact, self._process.name, name))

    # --- publishing

    def publish(
        self,
        event: Any,
        *,
        attrs: Mapping[str, int | float | str] | None = None,
        timeout: float | None = None,
    ) -> None:
        """Sends an event to every subscriber, here and in other processes; a handler may do so too.

        Args:
            event: an ``Event``, or an event that a handler got; it may be changed and used again at once.
            attrs: attributes that go along: name → int, float or str.
            timeout: seconds to wait while the process has too much to do; None waits as long as it takes.

        Raises:
            SchemaError: the channel carries other events, or a value does not fit its field.
            FlowError: the channel is closed, or it took too long.
        """
        if event.__class__ not in self._admitted:
            self._admit(getattr(event, "schema", None), event.__class__)
        self._entry.submit(event, attrs=attrs, timeout=timeout)

    def publish_batch(
        self,
        table: Any,
        *,
        schema: Any = None,
        attrs: Mapping[str, int | float | str] | None = None,
        timeout: float | None = None,
    ) -> None:
        """Sends many events to every subscriber, in order.

        Args:
            table: a dict of columns, a numpy structured array, a pandas DataFrame, a pyarrow table or record
                batch, a list of events, or an ``EventBatch``.
            schema: what the rows are; by default the one schema of the channel.
            attrs: attributes that go along with every event.
            timeout: as for ``publish``.

        Raises:
            SchemaError: the channel carries other events, or a column is missing or does not fit.
            FlowError: the channel is closed, or it took too long.
        """
        given = table.schema if isinstance(table, EventBatch) else None
        if given is None and schema is not None:
            given = Schema.of(schema)
        if given is None and isinstance(table, list | tuple) and table:
            given = getattr(table[0], "schema", None)
        if given is not None and given not in self._admitted:
            self._admit(given, given)
        self._refuse_if_closed()
        self._entry.submit_batch(table, schema=schema, attrs=attrs, timeout=timeout)

    def _admit(self, schema: object, by: object) -> None:
        self._refuse_if_closed()
        if not isinstance(schema, Schema):
            raise SchemaError(f"channel {self.name!r}: expected an event, found an object of {shown(by)}")
        if self.schemas:
            try:
                best_fit(schema, {s.name: (s,) for s in self.schemas}, self._morphs())
            except SchemaError as error:
                carried = ", ".join(s.name for s in self.schemas)
                raise SchemaError(f"channel {self.name!r} carries {carried}: {error}") from None
        self._admitted.add(by)

    def _morphs(self) -> list[Morph]:
        with self._keeper.changing() as membership:
            roster = membership.rosters.get(self.key)
            return [] if roster is None else list(roster.morphs.values())

    # --- subscribing

    def subscribe(
        self,
        handler: Callable[[Any], object] | Mapping[Any, Callable[[Any], object]],
        schema: Any = None,
        batch: bool = False,
        timeout: float = 10.0,
    ) -> Subscription:
        """Has a handler called with each event that is published from now on, by any process.

        When it returns, every living process that has the channel open has confirmed that its events come
        here. One that has not been heard for the process's ``silence`` seconds is left out: it follows when
        it is heard again.

        Args:
            handler: called with each event; see ``Terminal``. It runs in the process's own thread.
            schema: the least schema that it needs, an older one perhaps; by default what the channel carries.
            batch: call it with an ``EventBatch``, all events that came together, instead.
            timeout: seconds to wait for the others.

        Returns:
            The subscription; ``close`` ends it.

        Raises:
            SchemaError: the channel's events do not fit ``schema``.
            LinkError: a process did not confirm in time, and which.
            FlowError: the channel is closed, or the caller is a handler.
        """
        self._keeper.refuse_in_handler("subscribe")
        self._refuse_if_closed()
        terminal = Terminal(handler, batch=batch, input=schema)
        if schema is not None:
            for carried in self.schemas:
                best_fit(carried, {"input": (Schema.of(schema),)}, self._morphs())
        name = f"{self.key} subscription {next(_numbers)}"
        with self._keeper.changing() as membership:
            others = self._keeper.terminals.setdefault(self.key, {})
            others[name] = terminal
            membership.version += 1
        try:
            self._keeper.wire()
        except BaseException:
            self._take_off(name)
            raise
        subscription = Subscription(self, name)
        with self._keeper.changing() as membership:
            roster = membership.rosters[self.key]
            if roster.own.state != SUBSCRIBED or roster.claimed:
                membership.subscribe(self.key, True, time.monotonic())
        try:
            self._keeper.confirm(self.key, timeout, f"channel {self.name!r}: not subscribed")
        except LinkError:
            subscription.close()
            raise
        return subscription

    def close_subscription(self, name: str) -> None:
        """Takes a subscriber away, and waits until it is, unless a handler calls this.

        Args:
            name: the name of the stone that calls the subscriber's handler.
        """
        if self._take_off(name) and not self._keeper.in_handler:
            self._keeper.wire()

    def _take_off(self, name: str) -> bool:
        """Takes a subscriber away; gives whether it was there."""
        with self._keeper.changing() as membership:
            others = self._keeper.terminals.get(self.key, {})
            if others.pop(name, None) is None:
                return False
            membership.version += 1
            if not others:
                self._keeper.terminals.pop(self.key, None)
                roster = membership.rosters.get(self.key)
                if roster is not None and roster.own.state == SUBSCRIBED and not roster.claimed:
                    membership.subscribe(self.key, False, time.monotonic())
        return True

    # --- deriving

    def derive(
        self, name: str, code: str | Callable[..., object] | Compiled, timeout: float = 10.0
    ) -> Channel:
        """A channel with the events of this one that pass a filter, or with what a transform makes of them.

        The function runs in every process that publishes, before events are sent; so what nobody wants costs
        no network. The channel is one like any other.

        Args:
            name: the new channel's name. If this process derived one of that name from this channel before,
                with the same function, that one is opened: so a process that was killed starts as before.
            code: of a filter, as ``Filter`` has it; or an ``ev.Filter(…)`` or ``ev.Transform(…)``.
            timeout: seconds to wait for the others.

        Raises:
            CodeError: the function is wrong; carries line and column.
            SchemaError: the channel's events do not fit it.
            LinkError: a process did not confirm in time, or refuses the function.
            FlowError: the channel is closed, the process has another channel of that name open, or the caller
                is a handler.
        """
        self._keeper.refuse_in_handler("derive a channel")
        self._refuse_if_closed()
        stone: Stone = code if isinstance(code, Stone) else Filter(code)
        derivation = Derivation.of(self.key, stone)
        record = self._process.new_record(
            name,
            self.schemas if derivation.output is None else (derivation.output,),
            self._record.policy,
            self._record.delivery,
            self._record.limit,
            derivation,
        )
        record.check(self._record, self._morphs())
        channel = self._process.add(record)
        self._keeper.confirm(channel.key, timeout, f"channel {name!r}: not derived")
        with self._keeper.changing() as membership:
            refusals = dict(membership.rosters[record.key].refusals)
        if refusals:
            told = "; ".join(f"{process}: {reason}" for process, reason in sorted(refusals.items()))
            raise LinkError(f"channel {name!r}: refused by {told}")
        return channel

    def morph(self, new: Any, old: Any, code: str, timeout: float = 10.0) -> None:
        """Registers, in all processes, what turns an event of a newer schema into an older one.

        Args:
            new: the schema (or ``Event`` class) of the events that come.
            old: the schema that older subscribers want.
            code: Cod over ``input`` and ``output``, as a transform's.
            timeout: seconds to wait for the others.

        Raises:
            CodeError: the code is wrong.
            LinkError: a process did not confirm in time.
            FlowError: the channel is closed, or the caller is a handler.
        """
        self._keeper.refuse_in_handler("register a morph")
        self._refuse_if_closed()
        morph = Morph(Schema.of(new), Schema.of(old), code)
        morph.function(morph.new)
        with self._keeper.changing() as membership:
            membership.add_morph(self.key, morph, time.monotonic())
        self._keeper.confirm(self.key, timeout, f"channel {self.name!r}: the morph is not known")

    # --- looking

    def members(self) -> list[Member]:
        """The processes that take part, by name, as far as this one knows."""
        now = time.monotonic()
        with self._keeper.changing() as membership:
            roster = membership.rosters.get(self.key)
            entries = [] if roster is None else roster.members()
            return [
                Member(
                    e.process, e.state == SUBSCRIBED, e.contact, membership.presence.silent(e.process, now)
                )
                for e in entries
            ]

    def stats(self) -> dict[str, Any]:
        """What happened to its events in this process.

        Returns:
            ``published`` events (of a derived channel, those that its function made), ``received`` ones for
            the subscribers here, ``delivered`` to handlers here and ``errors`` of these, ``dropped`` on the
            way to other processes; and ``to``, process → events ``sent``, ``waiting`` and ``dropped``.
        """
        counts, keeper = self._process.flow.stats(), self._keeper
        with keeper.changing() as membership:
            roster = membership.rosters.get(self.key)
            subscribers = [] if roster is None else roster.subscribers()
            terminals = list(keeper.terminals.get(self.key, ()))
        nothing = {"in": 0, "out": 0, "dropped": 0, "errors": 0}
        ends = [counts.get(name, nothing) for name in terminals]
        to = {}
        for process in subscribers:
            bridge = bridge_name(self.key, process)
            at = counts.get(bridge, nothing)
            to[process] = {"sent": at["out"], "waiting": keeper.owed(bridge), "dropped": at["dropped"]}
        return {
            "published": counts.get(upper_name(self.key), nothing)["in"],
            "received": counts.get(lower_name(self.key), nothing)["in"],
            "delivered": sum(end["in"] - end["errors"] for end in ends),
            "errors": sum(end["errors"] for end in ends),
            "dropped": keeper.dropped(self.key) + sum(at["dropped"] for at in to.values()),
            "to": to,
        }

    def dead_letters(self) -> list[DeadLetter]:
        """Its events that were given up in this process, oldest first, with the reasons: those on which a
        handler or the channel's function failed, and those that cannot be sent. Each can be submitted again.
        """
        own = f"{self.key} "
        return [letter for letter in self._process.dead_letters() if letter.stone.startswith(own)]

    # --- the end

    def _refuse_if_closed(self) -> None:
        if self._closed:
            raise FlowError(f"channel {self.name!r} is closed in process {self._process.name}; open it again")

    def close(self, timeout: float = 10.0) -> None:
        """Ends this process's part in the channel, and in those derived from it; the others go on.

        What was published here is delivered first. A derived channel goes on running its function here as
        long as the channel that it is derived from is open. Closing twice does nothing.

        Args:
            timeout: seconds to wait until the others have handled what was sent to them, and know that this
                process has left; what they have not handled by then is counted as dropped.
        """
        self._keeper.refuse_in_handler("close a channel")
        if not self._closed:
            self._process.close_channel(self, timeout)

    def end(self, detach: bool = True) -> None:
        """From now on it refuses what is asked of it; its handlers are called no more, if ``detach``."""
        self._closed = True
        self._admitted = _Nothing()
        with self._keeper.changing():
            names = list(self._keeper.terminals.get(self.key, ()))
        for name in names if detach else ():
            self._take_off(name)

    def __repr__(self) -> str:
        return f"<Channel {self.key}{', closed' if self._closed else ''}>"


class _Nothing(set[object]):
    """A set that nothing gets into."""

    def add(self, element: object) -> None:
        return


class Subscription(Closing):
    """A handler that gets a channel's events; made by ``Channel.subscribe``.

    Args:
        channel: the channel.
        name: the name of the stone that calls the handler.
    """

    def __init__(self, channel: Channel, name: str) -> None:
        self.channel = channel
        self._name = name

    def close(self) -> None:
        """From now on the handler is not called any more; events that are on their way to it are let go.

        A handler may close its own subscription; then it is closed soon. Closing twice does nothing.
        """
        self.channel.close_subscription(self._name)
