"""The handle of a deployment: what a program does with a graph that runs on daemons.

The deployment lives on its nodes: this program may end, and another one may take a handle of it by name.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from evflow.choices import choices
from evflow.closing import Closing
from evflow.deploy.client import Cluster, RemoteAttributes, checked_seconds, missing, no_deployment
from evflow.deploy.letters import RemoteLetters, letters_from, own_letters
from evflow.deploy.part import checked_graph, qualified
from evflow.deploy.record import Record, stones_of
from evflow.errors import DeployError, EvflowError, FlowError, LinkError
from evflow.flow.changeable import Editing
from evflow.graph.graph import Graph
from evflow.graph.kinds import loaded, made
from evflow.outside import shown
from evflow.stone import Stone, checked_integer

if TYPE_CHECKING:
    from evflow.flow.entry import Entry

_PATIENCE = 2.0
"""Seconds that hosts have to tell which deployments there are instead."""
_POLL = 0.02
_NEWS = 1.0
"""Seconds after which a node is asked for a newer version."""

ANSWER = 3.0
"""Seconds after the limit of a change within which the node that proposes it says what became of it."""
_TRIES = 3

T = TypeVar("T")


class Deployment(Closing, Editing):
    """A graph that runs on daemons; made by ``Graph.deploy``, or for one that runs already by its name.

    ``with`` closes the handle, and what was submitted through it is handed over before. The deployment goes
    on until ``undeploy`` or ``shutdown``.

    Args:
        name: the deployment's name: that of its graph.
        hosts: daemon's name → contact; those that the deployment has beyond these are found.
        cluster: the connections to ask over, which are closed with the handle; by default new ones.
        settings: ``name``, ``keys``, ``plain`` and ``timeout`` of this end; see ``Cluster``.

    Raises:
        DeployError: there is no such deployment.
        LinkError: no host answers.
    """

    def __init__(
        self, name: str, hosts: Mapping[str, str], /, *, cluster: Cluster | None = None, **settings: Any
    ) -> None:
        self.name = name
        self.cluster = Cluster(hosts, **settings) if cluster is None else cluster
        self._hosts = dict(hosts)
        self._entries: dict[str, Entry] = {}
        self._sources: dict[str, str] = {}
        self._ended = self._birth = ""
        # The nodes on which stones have let events go by this handle's doing, since it was drained.
        self._let_go: set[str] = set()
        try:
            record = self._newest()
        except BaseException:
            self.cluster.close(0.0)
            raise
        if record is None or record.graph is None:
            statuses = self.cluster.ask_all(hosts, "status", seconds=min(self.cluster.timeout, _PATIENCE))
            self.cluster.close(0.0)
            raise no_deployment(name, hosts, statuses.values())
        self._take(record)
        # The nodes that said that they do not have the deployment, since a node last said that it does.
        self._without: set[str] = set()
        self._news_at = 0.0
        self._unfollow = self.cluster.flow.each_turn(self._follow)

    # --- what it is

    @property
    def graph(self) -> Graph:
        """The graph as it runs now."""
        self._refresh()
        return _read(self._record)

    @property
    def version(self) -> int:
        """The number of the graph's version: one more with each change."""
        return self._record.version

    @property
    def hosts(self) -> dict[str, str]:
        """Its nodes and their contacts."""
        return dict(self._record.hosts)

    def ask(self, node: str, verb: str, **arguments: Any) -> Any:
        """What one of its nodes answers to a question, as plain data.

        Args:
            node: the node's name.
            verb: the question.
            arguments: plain data that belongs to it.

        Raises:
            DeployError: the deployment has no such node.
            EvflowError: as ``Cluster.ask``.
        """
        self._check_node(node)
        return self.cluster.ask(node, verb, **arguments)

    def _check_node(self, node: str) -> None:
        if node not in self._record.hosts:
            self._refresh()
        if node not in self._record.hosts:
            there = choices(node, list(self._record.hosts))
            raise DeployError(f"deployment {self.name} has no host {shown(node)}{there}")

    def _in_turn(self) -> list[str]:
        """The nodes, those that can be reached first."""
        links = self.cluster.node.links()
        return sorted(self._hosts, key=lambda host: links.get(host, {}).get("state") != "up")

    def _newest(self, at_least: int = 1) -> Record | None:
        """The newest record that is found, asking no further once it is of some version.

        Raises:
            LinkError: no node answers.
        """
        found: Record | None = None
        troubles, hosts = [], self._in_turn()
        for host in hosts:
            try:
                data = self.cluster.ask(host, "record", deployment=self.name, known=0)
            except LinkError as error:
                troubles.append(str(error))
                continue
            record = None if data is None else Record.from_data(data)
            if record is not None and self._birth and record.birth != self._birth:
                continue  # another deployment, which has taken the name since
            if record is not None and (found is None or record.version > found.version):
                found = record
            if found is not None and found.version >= at_least:
                break
        if len(troubles) == len(hosts):
            raise LinkError("\n".join(troubles))
        return found

    def _refresh(self, at_least: int = 1) -> None:
        record = self._newest(at_least)
        if record is not None and record.version >= self._record.version:
            self._take(record)

    def _take(self, record: Record) -> None:
        self._record, self._birth = record, record.birth
        self._hosts.update(record.hosts)
        self.cluster.know(record.hosts)
        placed = self._placed()
        for source, host in list(self._sources.items()):
            there = placed.get(source)
            if there is not None and there != host:
                self._sources[source] = there
                self.cluster.readdress(source, there, qualified(self.name, source))

    # --- what others do to it, found out in the flow's thread

    def _follow(self, now: float) -> float:
        """Asks a node for a newer version if it is time; gives when it is next."""
        if now >= self._news_at:
            self._news_at = now + _NEWS
            self._ask_for_news()
        return self._news_at

    def _ask_for_news(self) -> None:
        record, links = self._record, self.cluster.node.links()
        for host in record.hosts:
            if host not in self._without and links.get(host, {}).get("state") == "up":
                asked = {"deployment": self.name, "known": record.version, "birth": record.birth}
                self.cluster.ask_later(host, "record", asked, partial(self._take_news, host))
                return

    def _take_news(self, host: str, answer: Any) -> None:
        if not isinstance(answer, dict):
            return
        if "gone" in answer:
            self._without.add(host)
            if self._without >= self._record.hosts.keys():
                self.cluster.flow.post(lambda: self._take_no_more("none of its nodes has it any more"))
            else:
                self._ask_for_news()
            return
        self._without.clear()
        if "graph" in answer:
            record = Record.from_data(answer)
            if record.version > self._record.version:
                self._take(record)

    # --- events

    def __getitem__(self, name: str) -> Entry:
        """The source of that name, to submit events to, wherever it runs.

        Raises:
            FlowError: there is none, or it is a stone that takes events from other stones only.
            DeployError: the deployment has ended.
        """
        if self._ended:
            raise DeployError(f"{self._ended}; deploy the graph again, and submit to the handle that gives")
        entry = self._entries.get(name)
        if entry is None:
            host = self._node_of(name)
            stone = self._stone(name)
            if not stone.entrance:
                sources = [other for other in self._placed() if self._stone(other).entrance]
                raise FlowError(
                    f"stone {name!r} of deployment {self.name} is a {stone.kind}, which takes events from "
                    f"other stones only; submit to a source: {', '.join(sources) or 'it has none'}"
                )
            schemas = [schema for schema in stone.emits(None) if schema is not None]
            entry = self.cluster.source(host, qualified(self.name, name), schemas=schemas, key=name)
            self._entries[name], self._sources[name] = entry, host
        return entry

    def _placed(self) -> dict[str, str]:
        """Stone → node, by the newest record known here."""
        return {name: entry["on"] for name, entry in stones_of(self._record).items()}

    def _node_of(self, name: str) -> str:
        if name not in self._placed():
            self._refresh()
        placed = self._placed()
        if name not in placed:
            raise self._unknown(name, placed)
        return placed[name]

    def _stone(self, name: str) -> Stone:
        """A stone as the newest record known here describes it."""
        return made(stones_of(self._record)[name], loaded)

    def drain(self, timeout: float | None = None) -> None:
        """Returns when everything submitted through this handle has been handled, or is held by a stone.

        So is what went on because of ``send_stored``, ``transfer`` and ``unfreeze`` of this handle.
        A warning in the log says what it waits for, after 10 seconds and then after each tenfold time.

        Args:
            timeout: seconds to wait; None waits as long as it takes.

        Raises:
            FlowError: not within ``timeout`` seconds, and why.
        """
        nodes = self._let_go & self._record.hosts.keys()
        self.cluster.drain(nodes, timeout)
        self._let_go -= nodes

    # --- seeing

    def status(self) -> dict[str, dict[str, Any]]:
        """What each node says of itself; one that does not answer has only ``"trouble"``."""
        answers = self.cluster.ask_all(self._record.hosts, "status")
        return {
            host: {"trouble": str(answer)} if isinstance(answer, EvflowError) else answer
            for host, answer in answers.items()
        }

    def stats(self) -> dict[str, dict[str, Any]]:
        """What happened at each stone, as ``Flow.stats``, and ``node``, where it runs."""
        return self.stats_of(self.status())

    def stats_of(self, status: Mapping[str, Mapping[str, Any]]) -> dict[str, dict[str, Any]]:
        """The same as ``stats``, out of the ``status`` that ``status()`` or ``shutdown`` gave."""
        own = f"{self.name}/"
        return {
            name.replace(own, ""): {**counts, "node": node}
            for node, told in status.items()
            for name, counts in told.get("stones", {}).items()
            if name.startswith(own)
        }

    def dead_letters(self, limit: int | None = None) -> RemoteLetters:
        """The events that stones gave up, of each node the oldest first; and those that were submitted
        through this handle and could not be sent.

        Args:
            limit: how many to fetch from each node, the newest; None for all.

        Returns:
            A list of them, with ``lost`` and ``total`` of all nodes and of this handle.

        Raises:
            GraphError: ``limit`` is not an integer of 0 or more.
            LinkError: a node does not answer.
        """
        if limit is not None:
            checked_integer("limit", limit, 0)
        own = own_letters(self.cluster.flow, self.cluster.node.name, self.cluster.led_to, limit)
        those = [letters_from(self.cluster.ask, node, self.name, limit) for node in self._record.hosts]
        return RemoteLetters.joined([own, *those])

    def draw(self, path: str | None = None) -> Any:
        """A picture of the graph with live counts; see ``Graph.draw``.

        Args:
            path: the file to write, of the kind that its ending says; None for none.
        """
        from evflow.graph.draw import draw

        return draw(self.graph, path, self.stats())

    def _repr_svg_(self) -> str:
        return str(self.draw().svg)

    # --- changing

    @contextmanager
    def change(self, timeout: float = 10.0, *, lost: Collection[str] = ()) -> Iterator[Graph]:
        """Gives a copy of the graph to edit; at the end of the block all of it is changed, or nothing.

        Events go on meanwhile; none is lost, and each goes through the old graph or the new one.

        Args:
            timeout: seconds after which a change that some node is not ready for is given up. The answer is
                here at most three seconds later, also where a cut network stops the change; if the node that
                was asked does not answer at all, the next one is asked in the same way.
            lost: a list of nodes that are dead: the change does not wait for them, nor for events at bridges
                to them that deliver at most once and end. These are lost, and what stones there held.

        Raises:
            DeployError: a node refuses, or is not ready in time; says which stone on which node and why.
            EvflowError: the edited graph is wrong.
        """
        checked_seconds(timeout)
        self._refresh()
        record = self._record
        graph = _read(record)
        yield graph
        # A stone that comes later under the name of one that was removed is not frozen.
        frozen = [name for name in record.frozen if name in graph.stones]
        self._propose(record, graph.to_dict(), timeout=timeout, lost=lost, frozen=frozen)

    def _unknown(self, name: str, stones: Iterable[str]) -> FlowError:
        return FlowError(f"deployment {self.name} has no stone {name!r}{choices(str(name), list(stones))}")

    def _edit(self, work: Callable[[Graph], T], timeout: float) -> T:
        # Anew when somebody else's change came first.
        for tried in range(_TRIES):
            before = self._record.version
            try:
                with self.change(timeout) as graph:
                    result = work(graph)
            except DeployError:
                self._refresh()
                if self._record.version == before or tried == _TRIES - 1:
                    raise
            else:
                return result
        raise AssertionError

    def _propose(
        self,
        base: Record,
        graph: dict[str, Any] | None,
        timeout: float,
        lost: Collection[str] = (),
        **other: Any,
    ) -> None:
        wanted = base.edited(graph, **other)
        if graph is not None:
            checked_graph(wanted)
        troubles = []
        for host in self._in_turn():
            try:
                self.cluster.ask(
                    host, "propose", record=wanted.data(), patience=timeout, lost=list(lost),
                    seconds=timeout + ANSWER,
                )  # fmt: skip
                break
            except LinkError as error:
                # It may have been made all the same; then the next node says that it is too late for it.
                troubles.append(str(error))
            except DeployError:
                if not troubles or not self._is_made(wanted):
                    raise
                break
        else:
            raise LinkError("\n".join(troubles))
        if graph is not None:
            self._refresh(wanted.version)

    def _is_made(self, wanted: Record) -> bool:
        """True if a record was decided, though no node has said so."""
        found = self._newest(wanted.version)
        if found is None:
            return wanted.graph is None
        same = (found.graph, found.hosts, found.frozen) == (wanted.graph, wanted.hosts, wanted.frozen)
        return found.version == wanted.version and same

    def move(self, name: str, node: str, timeout: float = 10.0) -> None:
        """Moves a stone to another node, with its queue and state; nothing is lost, doubled or reordered.

        Args:
            name: the stone's name.
            node: the node that it goes to.
            timeout: see ``change``, which also says what it raises.
        """
        self._edit(lambda graph: graph.move(self._known(graph, name), node), timeout)

    def freeze(self, name: str) -> None:
        """Has a stone queue what arrives, in order, from now on; also after a restart of its node.

        Args:
            name: the stone's name.
        """
        self._freeze(name, True)

    def unfreeze(self, name: str) -> None:
        """Lets a frozen stone go on, with what it queued first.

        Args:
            name: the stone's name.
        """
        self._freeze(name, False)

    def _freeze(self, name: str, frozen: bool) -> None:
        self._refresh()
        node = self._node_of(name)
        self._let_go |= set() if frozen else {node}
        names = set(self._record.frozen) - {name} | ({name} if frozen else set())
        self._propose(self._record, self._record.graph, 10.0, frozen=sorted(names))

    def send_stored(self, name: str, count: int | None = None) -> int:
        """Lets the oldest events of a storage stone go on.

        Args:
            name: the stone's name.
            count: how many; None for all.

        Returns:
            How many went.
        """
        stone, node = qualified(self.name, name), self._node_of(name)
        self._let_go.add(node)
        return int(self.cluster.ask(node, "send_stored", stone=stone, count=count))

    def transfer(self, source: str, target: str) -> None:
        """Moves the events that wait at one stone to another of the same node; see ``Flow.transfer``.

        Args:
            source: the stone that they wait at.
            target: the stone that gets them.

        Raises:
            DeployError: the two stones are on different nodes.
            FlowError: there is no such stone.
        """
        nodes = [self._node_of(name) for name in (source, target)]
        if nodes[0] != nodes[1]:
            raise DeployError(
                f"deployment {self.name}: stone {source!r} is on {nodes[0]} and {target!r} is on {nodes[1]}; "
                "events are transferred within one node, so move one of the stones first"
            )
        start, end = (qualified(self.name, name) for name in (source, target))
        self._let_go.add(nodes[0])
        self.cluster.ask(nodes[0], "transfer", source=start, target=end)

    def attributes(self, name: str, **values: int | float | str) -> dict[str, int | float | str]:
        """A stone's attributes, which its function reads as ``stone_attrs``, after setting some.

        Args:
            name: the stone's name.
            values: the attributes to set: name → int, float or str.

        Returns:
            A dict to read and to set, as that of a flow; what others set later is not seen in it.
        """
        stone, node = qualified(self.name, name), self._node_of(name)

        def tell(values: Mapping[str, int | float | str]) -> Any:
            return self.cluster.ask(node, "attributes", stone=stone, values=values)

        return RemoteAttributes(tell(values), tell)

    def add_host(self, node: str, contact: str) -> None:
        """Lets another node join: stones can be moved there, and it has a vote on changes.

        Args:
            node: its name.
            contact: where the others find it.

        Raises:
            DeployError: it is one already, at another contact; or it cannot be reached.
        """
        self._refresh()
        known = self._record.hosts.get(node)
        if known is not None and known != contact:
            raise DeployError(
                f"deployment {self.name}: {node} is a host already, at {known}, not at {contact}; to give it "
                "another contact, move its stones away and remove it first"
            )
        self._propose(self._record, self._record.graph, 10.0, hosts={**self._record.hosts, node: contact})

    def remove_host(self, node: str) -> None:
        """Lets the node ``node``, on which no stone is placed, leave.

        Raises:
            DeployError: it has no such node, or a stone is placed there.
        """
        self._refresh()
        self._check_node(node)
        hosts = {name: contact for name, contact in self._record.hosts.items() if name != node}
        self._propose(self._record, self._record.graph, 10.0, hosts=hosts)

    # --- ending

    def undeploy(self) -> None:
        """Takes the graph off all its nodes. What stones hold becomes dead letters there, and what was
        submitted through this handle and is not there yet becomes dead letters here."""
        self._end("undeploy")

    def _end(self, how: str) -> None:
        self._propose(self._record, None, 10.0)
        self._take_no_more(f"{how} was called")

    def _take_no_more(self, why: str) -> None:
        if not self._ended:
            self._ended = f"deployment {self.name} has ended: {why}"
            self._unfollow()
            self.cluster.end_sources(self._ended)

    def shutdown(self, timeout: float = 30.0) -> dict[str, dict[str, Any]]:
        """Ends the deployment in an orderly way.

        What was submitted through this handle is handled, the sources take no more, all else that is under
        way is handled, then the graph is taken off its nodes.

        Returns:
            For each node what it said last: the counts of its stones, and the number of dead letters.

        Raises:
            DeployError: not all could be handled within ``timeout`` seconds; the deployment goes on.
        """
        checked_seconds(timeout)
        deadline = time.monotonic() + timeout
        late = f"deployment {self.name}: not all is handled within {timeout:g} s"
        try:
            self.drain(timeout)
        except FlowError as error:
            raise DeployError(f"{late}; {error}") from None
        nodes = list(self._record.hosts)
        for node in nodes:
            self.cluster.ask(node, "seal", deployment=self.name)
        try:
            self._wait_until_quiet(nodes, deadline, late)
        except DeployError:
            for node in nodes:
                self.cluster.ask(node, "unseal", deployment=self.name)
            raise
        last = self.status()
        self._end("shutdown")
        return last

    def _wait_until_quiet(self, nodes: list[str], deadline: float, late: str) -> None:
        quiet = 0
        # Twice, since an event may go from one node to another between two answers.
        while quiet < 2:
            busy = {node: self.cluster.ask(node, "quiet", deployment=self.name) for node in nodes}
            waits = [f"{node}: {text}" for node, text in busy.items() if text]
            quiet = 0 if waits else quiet + 1
            if waits and time.monotonic() > deadline:
                raise DeployError(f"{late}; " + "; ".join(waits))
            if waits:
                time.sleep(_POLL)

    def close(self, timeout: float | None = 10.0) -> None:
        """Closes the handle; what was submitted through it is handed over before.

        Args:
            timeout: seconds to wait for that; None waits as long as it takes.
        """
        self.cluster.close(timeout)

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            raise missing(name)

    def __repr__(self) -> str:
        return f"<Deployment {self.name}, version {self._record.version}, on {', '.join(self._record.hosts)}>"


def _read(record: Record) -> Graph:
    """A record's graph; nothing is imported for it, as the record comes from a node."""
    return Graph.from_dict(record.graph or {}, lambda entry: made(entry, loaded))
