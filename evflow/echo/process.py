"""A process that takes part in channels: one node, one flow, and the keeper that has its stones follow who
takes part."""

from __future__ import annotations

import atexit
import os
import threading
import time
import weakref
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from evflow.closing import Closing
from evflow.echo.channel import Channel
from evflow.echo.keeper import Keeper
from evflow.echo.membership import Membership, Settings
from evflow.echo.record import ChannelContact, Derivation, Record
from evflow.echo.wiring import bridge_name
from evflow.errors import FlowError, GraphError, LinkError
from evflow.flow.flow import Flow
from evflow.net.node.contact import Contact
from evflow.net.node.node import Node
from evflow.outside import shown
from evflow.schema import Schema

if TYPE_CHECKING:
    from evflow.engine.letters import DeadLetters

_open: weakref.WeakSet[Process] = weakref.WeakSet()


@atexit.register
def _close_all() -> None:
    # Whoever forgets to close says goodbye all the same, before its flow is closed.
    for process in list(_open):
        # A fork has nobody to say goodbye for.
        if process._pid == os.getpid():
            process.close()


class Process(Closing):
    """A process that takes part in channels (EVPath paper, section 4.1).

    A channel is made by one process and opened by others, through its creator or any other that has it open.
    Events go from where they are published straight to every subscriber; no process is needed for that but
    the two. All that goes between two processes shares one connection.

    Args:
        name: the process's name, unlike that of any other; by default one that nobody else has. One that is
            started again under its name gets what waited for it meanwhile.
        listen: contacts to listen at; by default a free port that this host only can reach.
        node: a node that serves no flow yet, in place of one made from ``name``, ``listen`` and ``settings``.
        patience: seconds for which events wait for a process that is not heard; then it is forgotten.
        silence: seconds after which a process that is not heard is not waited for.
        settings: further arguments of ``Node``: ``keys``, ``allow``, ``plain``, ``advertise``, ``peers``, …

    Raises:
        LinkError: the node cannot be made; see ``Node``.
        GraphError: a time is not a number above 0.

    Attributes:
        name: its name.
        contact: where others dial it.
        node: its node.
        flow: its flow, with the stones of all its channels; they are changed by this process only.

    Example:
        >>> import evflow as ev
        >>> from evflow import echo
        >>> class Trade(ev.Event):
        ...     symbol: ev.Str[8]
        ...     size: int
        >>> seen = []
        >>> with echo.Process("desk") as desk, echo.Process("office") as office:
        ...     trades = desk.create("trades", Trade)
        ...     big = office.open(trades.contact).derive("big", "input.size > 1000")
        ...     subscription = big.subscribe(lambda trade: seen.append(trade.symbol))
        ...     trades.publish(Trade("IBM", 5000))
        ...     trades.publish(Trade("HAL", 10))
        ...     desk.drain(timeout=10)
        >>> seen
        ['IBM']
    """

    def __init__(
        self,
        name: str | None = None,
        listen: Any = "tcp://127.0.0.1:0",
        *,
        node: Node | None = None,
        patience: float = 60.0,
        silence: float = 5.0,
        **settings: Any,
    ) -> None:
        times = _times(patience, silence)
        if node is not None and (name is not None or settings):
            raise LinkError("a process: expected a node, or what a node is made from, found both")
        self.node = Node(name, listen, **settings) if node is None else node
        self.name = self.node.name
        self.contact = self.node.contact
        self.flow = Flow.empty(f"channels of {self.name}", node=self.node)
        # A process that is started again counts on from where its clock is.
        incarnation = time.time_ns() // 1_000_000
        membership = Membership(self.name, self.contact, incarnation, times, self._permits)
        self.keeper = Keeper(membership, self.flow)
        self._channels: dict[str, Channel] = {}
        self._lock = threading.Lock()
        self._closed = False
        self._pid = os.getpid()
        _open.add(self)

    def _permits(self, contact: str) -> bool:
        try:
            self.node.permitted(Contact.parse(contact))
        except LinkError:
            return False
        return True

    # --- channels

    def create(
        self,
        name: str,
        *schemas: Any,
        policy: str = "drop oldest",
        delivery: str = "at_least_once",
        limit: int = 64 << 20,
    ) -> Channel:
        """Makes a channel.

        Args:
            name: its name. If this process made one of that name before, which is still open here, and all
                arguments are the same, that one is opened.
            schemas: the schemas (or ``Event`` classes) that it carries; none for any.
            policy: what happens when ``limit`` bytes wait for a subscriber, as ``Bridge`` has it. With
                "block" who
                publishes waits, also for a subscriber that is dead, until ``patience`` ends.
            delivery: "at_least_once" or "at_most_once", as ``Bridge`` has it.
            limit: bytes that may wait for each other process.

        Returns:
            The channel.

        Raises:
            LinkError: a setting is wrong.
            FlowError: the process has another channel of that name open; the process is closed; or
                the caller is a handler.
        """
        self.keeper.refuse_in_handler("create a channel")
        made = tuple(Schema.of(schema) for schema in schemas)
        return self.add(self.new_record(name, made, policy, delivery, limit, None))

    def new_record(
        self,
        name: str,
        schemas: tuple[Schema, ...],
        policy: str,
        delivery: str,
        limit: int,
        derivation: Derivation | None,
    ) -> Record:
        """What a channel of this process is: a new one, or the open one of that name that it made, if alike.

        Args:
            name: the name of the channel.
            schemas, policy, delivery, limit: see ``create``.
            derivation: the function that derives the channel from another; None for a channel that is not
                derived.

        Raises:
            LinkError: a setting is wrong.
            FlowError: the process has made another channel of that name, or is closed.
        """
        self._refuse_if_closed()
        record = Record(name, self.name, os.urandom(4).hex(), schemas, policy, delivery, limit, derivation)
        with self.keeper.changing() as membership:
            made = [roster.record for roster in membership.rosters.values()]
        for other in made:
            if (other.name, other.creator) == (name, self.name):
                if replace(other, token=record.token) == record:
                    return other
                raise FlowError(
                    f"channel {name!r}: process {self.name} has a channel of that name open, with "
                    f"{_differences(other, record)}; give the new one another name, or make it alike"
                )
        return record

    def add(self, record: Record) -> Channel:
        """Takes part in a channel, unless the process does already.

        Args:
            record: what the channel is.

        Returns:
            The channel.

        Raises:
            LinkError: the process takes part in too many channels.
            EvflowError: the stones of the channel cannot be there.
        """
        with self.keeper.changing() as membership:
            is_new = record.key not in membership.rosters
            if is_new:
                membership.add(record, time.monotonic())
        if not is_new:
            return self._channel(record.key)
        try:
            self.keeper.wire()
        except BaseException:
            with self.keeper.changing() as membership:
                membership.leave(record.key, time.monotonic())
            raise
        return self._channel(record.key)

    def _channel(self, key: str) -> Channel:
        """The channel of that key, which has its stones; always the same object while it is open."""
        with self._lock:
            channel = self._channels.get(key)
            if channel is None:
                with self.keeper.changing() as membership:
                    record = membership.rosters[key].record
                channel = self._channels[key] = Channel(self, record)
            return channel

    def open(self, contact: str, timeout: float = 10.0) -> Channel:
        """Opens a channel that another process has made, or one of this process by name.

        When it returns, all living processes that have it open know of this one: what is published here gets
        to every subscriber. The channels derived from it run their functions here from then on.

        Args:
            contact: the ``contact`` of the channel, as any process that has it open tells it.
            timeout: seconds to wait for the others.

        Returns:
            The channel.

        Raises:
            LinkError: the contact is wrong; there is no such channel there; or the process did not answer in
                time, and what is wrong with the link.
            FlowError: the process is closed, or the caller is a handler.
        """
        self.keeper.refuse_in_handler("open a channel")
        self._refuse_if_closed()
        wanted = ChannelContact.parse(contact)
        deadline = time.monotonic() + timeout
        key = self._here(wanted.channel) if wanted.process == self.name else self._found(wanted, timeout)
        try:
            self.keeper.confirm(key, timeout, f"channel {contact}: not joined", until=deadline, family=True)
        except LinkError:
            self._abandon(key)
            raise
        return self._channel(key)

    def _abandon(self, key: str) -> None:
        """Leaves a channel that could not be joined, unless the program has it open."""
        with self._lock, self.keeper.changing() as membership:
            if key not in self._channels and key in membership.rosters:
                for each in list(membership.family(key))[::-1]:
                    if each in membership.rosters:
                        membership.leave(each, time.monotonic())

    def _here(self, name: str) -> str:
        with self.keeper.changing() as membership:
            roster = membership.named(name)
        if roster is None:
            raise LinkError(f"channel {name!r}: this process, {self.name}, has none of that name")
        return roster.key

    def _found(self, wanted: ChannelContact, timeout: float) -> str:
        """The key of the channel that a process has of that name, once this one takes part in it."""
        asked = (wanted.process, wanted.channel)
        address = str(self.node.permitted(Contact.parse(wanted.address)))
        with self.keeper.changing() as membership:
            # Of one that is connected the contact is known better.
            if not membership.presence.alive(wanted.process, time.monotonic()):
                membership.presence.contacts[wanted.process] = address
            membership.find(*asked, time.monotonic())
        answered = self.keeper.wait(lambda membership, now: asked in membership.search.answers, timeout)
        with self.keeper.changing() as membership:
            membership.search.end(*asked)
            key, reason = membership.search.answers.pop(asked, ("", ""))
        if not answered:
            trouble = self.keeper.link_trouble(wanted.process)
            raise LinkError(
                f"channel {wanted}: not joined within {timeout} s: process {wanted.process} did not answer "
                f"at {address}{trouble}; is it running, and is that its contact?"
            )
        if not key:
            raise LinkError(f"channel {wanted}: {reason}")
        return key

    def channels(self) -> dict[str, Channel]:
        """The open channels of this process by key, those that are derived from them among them."""
        with self.keeper.changing() as membership:
            linked = [key for key in membership.rosters if not membership.unlinked(key)]
        return {key: self._channel(key) for key in linked}

    # --- the process

    @property
    def refused(self) -> dict[str, int]:
        """What came and was refused so far, by kind; see ``Node.refused``."""
        counts = dict(self.node.refused)
        with self.keeper.changing() as membership:
            for kind, count in membership.refused.items():
                counts[kind] = counts.get(kind, 0) + count
        return counts

    def drain(self, timeout: float | None = None) -> None:
        """Returns when all that was published here so far has been handled by the subscribers everywhere.

        Raises:
            FlowError: not within ``timeout`` seconds, and why; or the process is closed.
        """
        self.flow.drain(timeout)

    def dead_letters(self) -> DeadLetters:
        """The events of all channels that were given up in this process, oldest first; also after
        ``close``."""
        return self.flow.dead_letters()

    def close_channel(self, channel: Channel, timeout: float) -> None:
        """Ends this process's part in a channel; see ``Channel.close``.

        Args:
            channel: the channel.
            timeout: seconds; as ``Channel.close`` has it.
        """
        deadline = time.monotonic() + timeout
        with self.keeper.changing() as membership:
            roster = membership.rosters.get(channel.key)
            derived = roster is not None and roster.record.parent in membership.rosters
            family = (
                []
                if roster is None
                else [k for k in membership.family(channel.key) if k in membership.rosters]
            )
        for key in [channel.key] if derived else family:
            with self._lock:
                handle = self._channels.pop(key, None)
            if handle is not None:
                handle.end()
        if derived:
            self.keeper.wire()
            return
        self._deliver(family, deadline)
        with self.keeper.changing() as membership:
            for key in family[::-1]:
                membership.leave(key, time.monotonic())
        self.keeper.wire()
        self._say_goodbye(family, deadline)

    def _deliver(self, keys: list[str], deadline: float) -> None:
        """Waits until the other processes have handled what was published here."""
        # What was submitted before this task has gone to the bridges when it is done.
        self.flow.call(lambda: None)
        with self.keeper.changing() as membership:
            bridges = [bridge_name(k, name) for k in keys for name in membership.rosters[k].subscribers()]
        pause = threading.Event()
        while any(self.keeper.owed(bridge) for bridge in bridges) and time.monotonic() < deadline:
            pause.wait(0.005)

    def _say_goodbye(self, keys: list[str], deadline: float) -> None:
        def told(membership: Membership, now: float) -> bool:
            return not any(membership.waiting_for(key, now) for key in keys)

        self.keeper.wait(told, max(0.0, deadline - time.monotonic()))

    def close(self, timeout: float = 10.0) -> None:
        """Ends the process's part in all channels, and its node. Closing twice does nothing.

        Args:
            timeout: seconds to wait until the others have handled what was sent to them; what they have not
                by then goes to the dead letters of ``flow``.
        """
        self.keeper.refuse_in_handler("close its process")
        with self._lock:
            if self._closed:
                return
            self._closed = True
            handles = list(self._channels.values())
        _open.discard(self)
        for channel in handles:
            channel.end(detach=False)
        self.keeper.rest()
        with self.keeper.changing() as membership:
            keys = list(membership.rosters)
            for key in keys:
                membership.leave(key, time.monotonic())
        self._say_goodbye(keys, time.monotonic() + timeout)
        self.keeper.end()
        self.flow.close(timeout)

    def _refuse_if_closed(self) -> None:
        if self._closed:
            raise FlowError(f"process {self.name} is closed")

    def draw(self, path: str | None = None) -> Any:
        """A picture of the stones of all channels of this process, with live counts.

        Args:
            path: a file to write it to, by its ending; see ``Graph.draw``.

        Raises:
            GraphError: the library for the picture is not installed; says how to get it.
        """
        from evflow.graph.draw import draw

        return draw(self.keeper.graph, path, self.flow.stats())

    def __repr__(self) -> str:
        return f"<Process {self.name}{' at ' + self.contact if self.contact else ''}>"


def _differences(old: Record, new: Record) -> str:
    """What two channels have of each other's, by name."""
    names = ("schemas", "policy", "delivery", "limit", "derivation")
    return ", ".join(
        f"{name} {_told(getattr(old, name))} instead of {_told(getattr(new, name))}"
        for name in names
        if getattr(old, name) != getattr(new, name)
    )


def _told(setting: Any) -> str:
    """A setting of a channel, for an error."""
    if isinstance(setting, Derivation):
        return f"{setting.kind} {shown(setting.code, 200)}"
    if isinstance(setting, tuple):
        return " and ".join(shown(schema, 200).removeprefix("Schema") for schema in setting)
    return shown(setting, 200)


def _times(patience: float, silence: float) -> Settings:
    for what, value in (("patience", patience), ("silence", silence)):
        if not isinstance(value, int | float) or isinstance(value, bool) or not 0 < value <= 1e6:
            raise GraphError(f"a process: {what} {value!r}: expected seconds above 0, at most 1000000")
    return Settings(silence=float(silence), patience=float(patience))
