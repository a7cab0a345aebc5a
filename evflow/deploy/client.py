"""A program's connection to daemons: questions, and stones of theirs to submit to or to watch."""

from __future__ import annotations

import os
import threading
import time
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from evflow.choices import choices
from evflow.closing import Closing
from evflow.engine.topology import Crossing
from evflow.errors import DeployError, EvflowError, FlowError, LinkError
from evflow.events.batch import EventBatch
from evflow.flow.drains import Waiting
from evflow.flow.flow import Flow
from evflow.net.link.control import ANSWER, Asker, Reply, UnansweredError
from evflow.net.node.contact import Contact, named_contact
from evflow.net.node.node import Node
from evflow.outside import shown
from evflow.stones.bridge import Bridge
from evflow.stones.source import Source
from evflow.stones.terminal import Terminal

if TYPE_CHECKING:
    from evflow.flow.entry import Entry
    from evflow.graph.graph import Graph

_POLL = 0.02
_LOOK = 0.2
_MOST_TIMEOUT = 86_400
_LINGER = 2.0
"""Seconds beyond its time that a question waits for the thread that asks it."""

_IN_PLACE_OF = {
    "extract": "what waits at a stone stays with its node; use transfer or send_stored",
    "failed": "stats() has the errors of each stone, and dead_letters() the events",
    "failure": "status() has the trouble of each node",
    "stop": "undeploy() takes the graph off its nodes at once",
}
"""What to use where a deployment lacks what a flow has."""


def checked_seconds(timeout: object) -> float:
    """Seconds to wait.

    Raises:
        LinkError: it is not a number above 0, of at most 86,400.
    """
    if not isinstance(timeout, int | float) or not 0 < timeout <= _MOST_TIMEOUT:
        raise LinkError(f"timeout {shown(timeout)}: expected seconds above 0, at most {_MOST_TIMEOUT}")
    return timeout


def no_deployment(name: str, hosts: Iterable[str], statuses: Iterable[Any]) -> DeployError:
    """The error of a deployment that no host has.

    Args:
        name: its name.
        hosts: the hosts that were asked.
        statuses: what they say of themselves; an error in the place of one that does not answer.
    """
    known: set[str] = set()
    for status in statuses:
        deployments = status.get("deployments") if isinstance(status, Mapping) else None
        if isinstance(deployments, Mapping):
            # One without a graph was taken down.
            known |= {
                key for key, told in deployments.items() if isinstance(told, Mapping) and told.get("graph")
            }
    asked = sorted(hosts)
    hint = choices(name, sorted(known), "they have" if len(asked) > 1 else "it has")
    return DeployError(f"no deployment {name!r} on {', '.join(asked)}{hint}")


class OnlyOfFlowsError(DeployError, AttributeError):
    """A flow has it, a deployment has not; ``hasattr`` says so too."""


def missing(name: str) -> Exception:
    """The error of an attribute that a deployment does not have."""
    if name.startswith("_") or not hasattr(Flow, name):
        return AttributeError(f"'Deployment' object has no attribute {name!r}")
    reason = _IN_PLACE_OF.get(name, "its stones run in other processes")
    return OnlyOfFlowsError(f"a deployment has no {name!r}, which a flow has: {reason}")


class Cluster(Closing):
    """Connections to several daemons over one node.

    Args:
        hosts: daemon's name → contact; where the name is not known, the contact itself.
        name: the name of this end; with keys, that of its key.
        keys: the folder of keys; see ``evflow.Node``.
        plain: allow tcp beyond this host without keys.
        timeout: seconds that a question waits for its answer, at most 86,400.

    Raises:
        LinkError: a contact, key or timeout is wrong.

    Attributes:
        led_to: stone of the flow of this end → the ``key`` of the ``source`` that it is part of.
    """

    def __init__(
        self,
        hosts: Mapping[str, str],
        *,
        name: str | None = None,
        keys: str | os.PathLike[str] | None = None,
        plain: bool = False,
        timeout: float = 10.0,
    ) -> None:
        if not isinstance(hosts, Mapping):
            raise LinkError(f"expected hosts as node → contact, found {shown(hosts, 300)}")
        self.timeout = checked_seconds(timeout)
        self.node = Node(name, keys=keys, plain=plain)
        self._keyed = keys is not None
        try:
            if name in hosts:
                raise LinkError(f"host {name!r} has the name of this end: give this end another name=NAME")
            contacts = {host: str(self.node.permitted(Contact.parse(text))) for host, text in hosts.items()}
        except BaseException:
            self.node.close()
            raise
        self.flow = Flow.empty(f"client {self.node.name}", node=self.node)
        self._number = 0
        self._bridges: dict[str, str] = {}
        self.led_to: dict[str, str] = {}
        self._known = set(hosts)
        self._lock = threading.Lock()
        links = self.flow.links
        assert links is not None
        self._links = links
        self._asker = Asker(links.tell, os.urandom(8), barred=self._barred)
        self.flow.call(lambda: self._begin(contacts))

    def _connect(self, contacts: Mapping[str, str]) -> None:
        for host, contact in contacts.items():
            self._links.peer(host, contact)

    def _begin(self, contacts: Mapping[str, str]) -> None:
        self._connect(contacts)
        self._links.listen(ANSWER, lambda peer, body, now: self._asker.receive(peer, body))
        self.flow.each_turn(self._asker.tick)

    def ask(self, host: str, verb: str, *, seconds: float | None = None, **arguments: Any) -> Any:
        """Asks a daemon and waits for its answer.

        Args:
            host: the daemon.
            verb: the question.
            seconds: how long to wait; by default the timeout of this connection.
            arguments: plain data that belongs to the question.

        Returns:
            The answer, plain data.

        Raises:
            EvflowError: what the daemon raised.
            LinkError: it did not answer in time, and what its link is doing; or its contact is not known
                here.
        """
        answer = self.ask_all([host], verb, seconds=seconds, **arguments)[host]
        if isinstance(answer, EvflowError):
            raise answer
        return answer

    def ask_all(
        self,
        hosts: Iterable[str],
        verb: str,
        *,
        seconds: float | None = None,
        look: Callable[[], object] = lambda: None,
        **arguments: Any,
    ) -> dict[str, Any]:
        """Asks several daemons at once; gives for each its answer, or the error in its place.

        Args:
            hosts: the daemons.
            verb: the question.
            seconds: how long to wait; by default the timeout of this connection.
            look: called several times a second meanwhile.
            arguments: those of the question.

        Raises:
            LinkError: a daemon's contact is not known here.
        """
        wait = self.timeout if seconds is None else seconds
        hosts = list(hosts)
        for host in hosts:
            if host not in self._known:
                known = ", ".join(sorted(self._known))
                raise LinkError(f"no host {shown(host)} is known here; expected one of {known}")
        answers: dict[str, Any] = dict.fromkeys(hosts, UnansweredError())
        left = set(answers)
        done = threading.Event()

        def ask(host: str) -> None:
            self._asker.ask(host, verb, arguments, time.monotonic(), wait, lambda answer: reply(host, answer))

        def reply(host: str, answer: Any) -> None:
            answers[host] = answer
            left.discard(host)
            if not left:
                done.set()

        def ask_all() -> None:
            for host in answers:
                ask(host)

        self.flow.call(ask_all)
        until = time.monotonic() + wait + _LINGER
        while left and time.monotonic() < until and not done.wait(min(_LOOK, until - time.monotonic())):
            look()
        return {
            host: LinkError(self._no_answer(host, verb, wait))
            if isinstance(answer, UnansweredError)
            else answer
            for host, answer in answers.items()
        }

    def drain(self, hosts: Collection[str], timeout: float | None) -> None:
        """Waits until what was submitted at this end is handled, then what stones of daemons had let go.

        Args:
            hosts: these daemons.
            timeout: seconds to wait; None waits as long as it takes.

        Raises:
            FlowError: not within ``timeout`` seconds, and why.
        """
        began = time.monotonic()
        self.flow.drain(timeout)
        most = _MOST_TIMEOUT if timeout is None else min(timeout, _MOST_TIMEOUT)
        left = max(0.0, began + most - time.monotonic())
        waiting = Waiting(self.node.name, lambda: [f"node {host}" for host in sorted(hosts)])
        for host, answer in self.ask_all(hosts, "drain", seconds=left, look=waiting.look).items():
            if isinstance(answer, EvflowError):
                raise FlowError(f"not all is handled within {timeout} s: node {host}: {answer}")

    def _barred(self, host: str) -> str:
        """Why there is no use in waiting for a host; "" if there is."""
        reason = self._links.barred(host)
        return reason and f"{self._where(host)}: {reason}"

    def _where(self, host: str) -> str:
        contact = self.node.links().get(host, {}).get("contact", "")
        return f"host {host} at {contact}" if contact and contact != host else f"host {host}"

    def _no_answer(self, host: str, verb: str, seconds: float) -> str:
        trouble = self.node.links().get(host, {}).get("trouble") or "it does not answer"
        return (
            f"{self._where(host)}: no answer to {verb!r} within {seconds:g} s: {trouble}; "
            "is 'evflow node' running there, and does the contact lead to it?"
            + (f" Is {host}.pub here its key of now?" if self._keyed else "")
        )

    def ask_later(self, host: str, verb: str, arguments: Mapping[str, Any], reply: Reply) -> None:
        """Asks a daemon from the flow's own thread; ``reply`` gets the answer, or the error in its place."""
        self._asker.ask(host, verb, arguments, time.monotonic(), self.timeout, reply)

    @contextmanager
    def editing(self) -> Iterator[Graph]:
        """Changes the graph of the flow of this end; see ``Flow.change``."""
        with self.flow.change() as graph, graph.on(self.node.name):
            yield graph

    def know(self, hosts: Mapping[str, str]) -> None:
        """Keeps connections to these daemons too."""
        new = {host: contact for host, contact in hosts.items() if host not in self._known}
        self._known |= new.keys()
        if new:
            self.flow.post(lambda: self._connect(new))

    def source(
        self, host: str, stone: str, *, schemas: Iterable[Any] = (), key: str | None = None, **bridge: Any
    ) -> Entry:
        """A stone of a daemon as a place to submit events to.

        Args:
            host: the daemon.
            stone: the stone's name there.
            schemas: the schemas that are expected; none for any.
            key: a name for ``readdress``.
            bridge: settings of the bridge to it; see ``evflow.Bridge``.
        """
        with self._lock:
            self._number += 1
            name = f"to {stone} {self._number}"
        bridge_name = f"{self.node.name} {name}"
        with self.editing() as graph:
            source = graph.add(Source(*schemas, name=name))
            graph.link(source, Bridge(host, stone, name=bridge_name, **bridge))
        if key is not None:
            self._bridges[key] = bridge_name
            # The bridge is removed before the source that leads to it.
            self.led_to[bridge_name] = self.led_to[name] = key
        return self.flow[name]

    def end_sources(self, reason: str) -> None:
        """No source takes more; what they took and is not safe with a daemon becomes dead letters here.

        Args:
            reason: why, for whoever submits.
        """
        self.flow.call(lambda: self.flow.end_entries(self.led_to, reason))
        with self.flow.change(settled=False) as graph:
            for name in [name for name in self.led_to if name in graph.stones]:
                graph.remove(name)

    def wait_open(self, key: str, host: str) -> None:
        """Waits until the stone that a source leads to takes events.

        Raises:
            LinkError: it does not within the timeout of this connection; says why.
        """
        until = time.monotonic() + self.timeout
        while (reason := self.flow.call(lambda: self._links.refusal(self._bridges[key]))) is not None:
            if time.monotonic() > until:
                raise LinkError(reason or self._no_answer(host, "open", self.timeout))
            time.sleep(_POLL)

    def readdress(self, key: str, host: str, stone: str) -> None:
        """What is submitted to a source goes to another daemon from now on, in order."""
        crossing = Crossing(host, stone, "")
        self.flow.post(lambda: self._links.readdress(self._bridges[key], crossing))

    def tap(self, host: str, stone: str) -> Tap:
        """Watches the events that leave a stone of a daemon (or arrive at it, if none leave)."""
        with self._lock:
            self._number += 1
            name = f"tap {self._number}"
        return Tap(self, host, stone, name)

    def close(self, timeout: float | None = 10.0) -> None:
        """Ends the connections; what was submitted is handed over before."""
        self.flow.close(timeout)


class Client(Closing):
    """The connection to one daemon.

    Args:
        contact: where it listens, or ``"NAME=CONTACT"``; with keys its name is needed.
        name, keys, plain, timeout: see ``Cluster``.

    Attributes:
        host: the daemon, as its link is called here.
        node: the daemon's name.
    """

    def __init__(self, contact: str, **settings: Any) -> None:
        self.host, place = named_contact(contact)
        self.cluster = Cluster({self.host: place}, **settings)
        try:
            self.node = str(self.ask("name"))
        except BaseException:
            self.cluster.close(0.0)
            raise

    def ask(self, verb: str, *, seconds: float | None = None, **arguments: Any) -> Any:
        """Asks the daemon; see ``Cluster.ask``."""
        return self.cluster.ask(self.host, verb, seconds=seconds, **arguments)

    def source(self, stone: str, **bridge: Any) -> Entry:
        """A stone of the daemon as a place to submit events to; see ``Cluster.source``.

        Raises:
            LinkError: it does not take events; says why.
        """
        entry = self.cluster.source(self.host, stone, key=stone, **bridge)
        self.cluster.wait_open(stone, self.host)
        return entry

    def tap(self, stone: str) -> Tap:
        """Watches a stone of the daemon; see ``Cluster.tap``."""
        return self.cluster.tap(self.host, stone)

    def close(self, timeout: float = 10.0) -> None:
        """Ends the connection; what was submitted is handed over before."""
        self.cluster.close(timeout)


class RemoteAttributes(dict[str, int | float | str]):
    """The attributes of a stone elsewhere; what is set is set there.

    Args:
        found: what they are.
        tell: has some set there.
    """

    def __init__(
        self,
        found: Mapping[str, int | float | str],
        tell: Callable[[Mapping[str, int | float | str]], object],
    ) -> None:
        super().__init__(found)
        self._tell = tell

    def __setitem__(self, name: str, value: int | float | str) -> None:
        self._tell({name: value})
        super().__setitem__(name, value)

    def update(self, *given: Any, **more: Any) -> None:
        """Sets several at once."""
        values = dict(*given, **more)
        self._tell(values)
        super().update(values)


class Tap(Closing):
    """Events that pass at a stone of a daemon, as they come; made by ``Client.tap``.

    The daemon sends them at most once and holds back at most a few megabytes: a watcher that is slow misses
    events, and disturbs nothing.
    """

    _MOST = 1000

    def __init__(self, cluster: Cluster, host: str, stone: str, name: str) -> None:
        self._cluster = cluster
        self._name = name
        self._taps: list[tuple[str, int]] = []
        self._came = threading.Condition()
        self._batches: deque[EventBatch] = deque()
        self._closed = False
        self.missed = 0
        self.stone = stone
        with cluster.editing() as graph:
            end = Terminal(self._take, batch=True, name=f"{name} end")
            graph.link(graph.add(Source(name=name)), end)
        self._open(host, stone)

    def _open(self, host: str, stone: str) -> None:
        """Opens a tap; where events come to the stone from other nodes, also at the bridges there."""
        opened = self._cluster.ask(host, "tap", stone=stone, to=self._name)
        self._taps.append((host, opened["number"]))
        for node, contact, bridge in opened["elsewhere"]:
            self._cluster.know({node: contact})
            self._open(node, bridge)

    def _take(self, batch: EventBatch) -> None:
        with self._came:
            self._batches.append(batch)
            if len(self._batches) > self._MOST:
                self.missed += len(self._batches.popleft())
            self._came.notify()

    def next(self, timeout: float | None = None) -> EventBatch | None:
        """The next batch; None if none came within ``timeout`` seconds, or the tap was closed."""
        with self._came:
            self._came.wait_for(lambda: self._batches or self._closed, timeout)
            return self._batches.popleft() if self._batches else None

    def __iter__(self) -> Iterator[EventBatch]:
        while (batch := self.next()) is not None:
            yield batch

    def close(self) -> None:
        """Ends watching."""
        if self._closed:
            return
        with self._came:
            self._closed = True
            self._came.notify_all()
        try:
            for host, number in self._taps:
                self._cluster.ask(host, "untap", number=number)
            with self._cluster.editing() as graph:
                graph.remove(f"{self._name} end")
                graph.remove(self._name)
        except (LinkError, FlowError):
            # The daemon takes a tap away by itself when the watcher is gone.
            return
