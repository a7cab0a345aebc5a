"""A daemon: a node that others deploy graphs to.

The flow's thread moves events and owns the sockets. All that decides about deployments is done by another
thread, the control: it reads graphs, compiles, writes to the storage folder, and so holds up no event.
"""

from __future__ import annotations

import logging
import os
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, Any, TypeVar

from evflow import mishaps
from evflow.closing import Closing
from evflow.deploy.admission import Admission
from evflow.deploy.controller import Controller
from evflow.deploy.messages import TOPIC
from evflow.deploy.requests import Requests
from evflow.deploy.rpc import RpcHandlers
from evflow.deploy.site import Site
from evflow.deploy.store import FileStore
from evflow.disk import AGAIN, advice, private_file, read_file
from evflow.errors import DeployError, EvflowError, FlowError, LinkError
from evflow.flow.flow import Flow
from evflow.graph.handlers import missing_module
from evflow.mishaps import CONTAINED, named
from evflow.net.link.control import ANSWER, ASK, Answers, Reply
from evflow.net.node.contact import node_name
from evflow.net.node.node import Node
from evflow.outside import shown, shown_path

if TYPE_CHECKING:
    from evflow.net.node.node import Contacts

_log = logging.getLogger("evflow.deploy")

T = TypeVar("T")

_TRIES = 5

_OWNER = "node"
"""The file of a storage folder that has the name of the node."""
_LONGEST_OWNER = 2000
"""Bytes of that file that are read: more than any name has."""

_MOST_KEPT, _KEPT, _SEND_AGAIN = 100, 2.0, 0.01
"""Notes that are kept for a peer without a session, for how many seconds, and when they are tried again."""

_LOOK = 0.5
"""Seconds between two looks at what changes by itself: connections, taps, stones that have let go."""


class Daemon(Closing):
    """A node that others deploy graphs to; ``evflow node`` is one.

    What it runs is in its storage folder: started again on the same folder, also after a kill, it takes its
    stones up again.

    Args:
        name: its name, as the graphs' ``on=`` have it.
        listen: where it listens; see ``Node``.
        storage: a folder that is this daemon's alone; made if it is not there.
        handlers: what deployed graphs may import: modules and ``"module:function"``; or a mapping from such
            texts to functions of this program.
        control: names of peers that may deploy and change graphs, by default all that may connect. Who
            deploys does so through the first of the hosts that answers, so nodes have to let each other, too.
        dead_after: seconds of silence after which another node is taken for dead.
        settings: of ``Node``: ``advertise``, ``peers``, ``keys``, ``allow``, ``plain``, ``heartbeat``,
            ``window``, ``memory``, ``shared_memory``.

    Raises:
        EvflowError: a contact, key or the folder cannot be used.

    Attributes:
        node: the node.

    Example:
        >>> import tempfile
        >>> import evflow as ev
        >>> class Ping(ev.Event):
        ...     number: int
        >>> seen = []
        >>> g = ev.Graph("pings")
        >>> large = g.source("pings", Ping, on="edge") >> ev.Filter("input.number > 1", on="edge")
        >>> end = large >> ev.Terminal("desk:show", on="edge")
        >>> show = {"desk:show": lambda event: seen.append(event.number)}
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     with ev.Daemon("edge", "tcp://127.0.0.1:0", storage=folder, handlers=show) as edge:
        ...         with g.deploy({"edge": edge.contact}) as pings:
        ...             pings["pings"].submit_batch({"number": [1, 2, 3]})
        ...             pings.drain(timeout=10)
        >>> seen
        [2, 3]
    """

    def __init__(
        self,
        name: str | None = None,
        listen: Contacts = None,
        *,
        storage: str | os.PathLike[str],
        handlers: Iterable[str] | Mapping[str, Callable[..., object]] = (),
        control: Iterable[str] | None = None,
        dead_after: float = 5.0,
        **settings: Any,
    ) -> None:
        if not isinstance(storage, str | os.PathLike):
            raise DeployError(f"daemon: storage {shown(storage, 300)}: expected the path of a folder")
        if isinstance(control, str) or not isinstance(control, Iterable | None):
            raise DeployError(
                f"daemon: control {shown(control, 300)}: expected a list of names, such as ['desk']"
            )
        # A comparison also refuses NaN.
        if not isinstance(dead_after, int | float) or isinstance(dead_after, bool) or not dead_after > 0:
            raise DeployError(f"daemon: dead_after {shown(dead_after, 300)}: expected seconds, more than 0")
        if name is not None:
            # Before anything is written: the command calls its folder by it.
            node_name(name)
        folder = Path(storage)
        self._control = None if control is None else frozenset(control)
        admission = Admission(handlers, folder)
        self._store = FileStore(folder)
        try:
            owner = _owner(folder)
            if name not in (None, owner) and owner:
                raise DeployError(
                    f"storage folder {shown_path(folder)} is that of node {owner!r}; give node {name!r} "
                    "a folder of its own"
                )
            self.node = Node(name or owner or None, listen, journal=folder / "journal", **settings)
        except BaseException:
            self._store.close()
            raise
        self._dead_after = dead_after
        self._known: dict[str, str] = {}
        self._look_at = 0.0
        self._looking = False
        self._closed = False
        self._failure: BaseException | None = None
        self._tasks: SimpleQueue[Callable[[], object] | None] = SimpleQueue()
        try:
            if not owner:
                _own(folder, self.node.name)
            self.flow = Flow.empty(f"node {self.node.name}", node=self.node)
            self._begin(admission)
        except BaseException:
            self.node.close()
            self._store.close()
            raise
        self._thread = threading.Thread(
            target=self._work, name=f"evflow control {self.node.name}", daemon=True
        )
        self._thread.start()

    def _begin(self, admission: Admission) -> None:
        for text in admission.listed:
            if why := missing_module(text):
                _log.warning("node %s: graphs may name handlers of %r, but %s", self.node.name, text, why)
        links = self.flow.links
        assert links is not None
        self._links = links
        self.site = Site(self.flow, self.node.name, admission)
        self._released: set[tuple[str, str]] = set()
        self.site.released = lambda deployment, stone: self._tasks.put(
            lambda: self._released.add((deployment, stone))
        )
        self.controller = Controller(
            self.node.name, self.site, self._store, self._send, os.urandom, time.monotonic(),
            permits=lambda peer, what: not self._refusal(peer, what), dead_after=self._dead_after,
        )  # fmt: skip
        self.site.thought_dead = lambda node: self.controller.detector.is_dead(node, time.monotonic())
        self.site.go()
        self.requests = Requests(self.controller)
        self.rpc = RpcHandlers(self)
        self._answers = Answers(self.rpc.table, self._refusal, self._note)
        self._outbox = _Outbox(links.tell)
        self.flow.call(self._listen)

    def _listen(self) -> None:
        # Nodes do not adopt a change at one moment.
        self._links.bear(_TRIES)
        self.flow.each_turn(self._outbox.flush, links=True)
        self._links.listen(TOPIC, lambda peer, body, now: self._later(self._on_deploy, peer, body), True)
        self._links.listen(ASK, lambda peer, body, now: self._later(self._on_ask, peer, body), True)
        self._links.listen(ANSWER, lambda peer, body, now: None)

    @property
    def contact(self) -> str:
        """Where it can be dialled."""
        return self.node.contact

    @property
    def failure(self) -> FlowError | None:
        """Why the daemon does its work no longer: its flow, or the thread that changes deployments, broke;
        None while it works. Such a daemon is to be closed, and started again on its folder."""
        if self._failure is not None:
            failure = FlowError(f"node {self.node.name}: its control broke: {named(self._failure)}")
            failure.__cause__ = self._failure
            return failure
        return self.flow.failure

    def unwritten(self) -> list[str]:
        """What cannot be written now, and why, one text a file."""
        stalls = self.flow.engine.stalls
        files = [self._store.trouble.why, self._links.unwritten()]
        return [why for why in (*files, *stalls.waiting(), *stalls.unsettled()) if why]

    def know(self, hosts: Mapping[str, str]) -> None:
        """Begins to connect to the nodes that a proposal is about to speak to; called by the controller.

        Args:
            hosts: the nodes: name → contact.
        """
        new = {name: contact for name, contact in hosts.items() if name != self.node.name}
        # Those that come to nothing are forgotten when ``_connect`` looks next.
        self._known = self._known | new
        self.flow.post(lambda: self._keep(new, {}), links=True)

    def drain(self, reply: Reply) -> None:
        """Answers once all that the node's stones had let go when this was called has been handled.

        Args:
            reply: called then, with None.
        """
        self.flow.when_drained(lambda: self._tasks.put(lambda: reply(None)))

    # --- the control thread

    def _later(self, call: Callable[[str, memoryview], None], peer: str, body: memoryview) -> None:
        # The flow's thread may not wait.
        self._tasks.put(lambda: call(peer, body))

    def _work(self) -> None:
        try:
            self._serve()
        except BaseException as error:  # noqa: BLE001  the daemon ends by it
            self._failure = error
            _log.exception("node %s: its control broke", self.node.name)

    def _serve(self) -> None:
        due = time.monotonic()
        while self.flow.failure is None:
            try:
                task = self._tasks.get(timeout=max(0.0, due - time.monotonic()))
            except Empty:
                task = _nothing
            if task is None:
                return
            self._contained(task)
            # If that fails it is tried again, in a while.
            due = self._contained(lambda: self._tick(time.monotonic())) or time.monotonic() + AGAIN

    def _contained(self, call: Callable[[], T]) -> T | None:
        """What a call gives; None where it fails, as without this thread no deployment could be changed or
        taken down any more."""
        try:
            return call()
        except EvflowError as error:
            # The store itself tells when it cannot be written.
            if self.flow.failure is None and not self._store.trouble.why:
                _log.warning("node %s: %s", self.node.name, error)
        except CONTAINED as error:
            mishaps.tell(_log, f"node {self.node.name}", "a task of its control failed", error)
        return None

    def _tick(self, now: float) -> float:
        for key in list(self._released):
            self.controller.released(*key)
            self._released.discard(key)
        if now >= self._look_at:
            self._look_at = now + _LOOK
            if not self._looking:
                self._looking = True
                self.flow.post(self._look)
            self._store.tidy()
            hosts = list(self._known)
            self.flow.post(lambda: self._hear(hosts), links=True)
        self._connect()
        return min(self.controller.tick(now), self._look_at)

    def _look(self) -> None:
        """Looks, in the flow's thread, what stones have let go and asked for: the control does not wait for
        a handler."""
        gone: list[int] = []
        asked: list[tuple[str, int]] = []
        try:
            gone = self.site.look()
            asked = self.flow.engine.requests()
        finally:
            self._tasks.put(lambda: self._looked(gone, asked))

    def _looked(self, gone: list[int], asked: list[tuple[str, int]]) -> None:
        self._looking = False
        self.site.end_taps(gone)
        self.requests.look(asked, time.time())

    def _on_deploy(self, peer: str, body: memoryview) -> None:
        self.controller.receive(peer, body, time.monotonic())

    def _on_ask(self, peer: str, body: memoryview) -> None:
        self._answers.receive(peer, body)

    def _refusal(self, peer: str, verb: str) -> str:
        if self._control is None or peer in self._control or verb in RpcHandlers.HARMLESS:
            return ""
        return f"node {self.node.name}: {peer} may not {verb}; start the node with --control {peer}"

    # --- notes

    def _send(self, peer: str, body: bytes) -> bool:
        return self._note(peer, TOPIC, body)

    def _note(self, peer: str, topic: str, body: bytes) -> bool:
        self.flow.post(lambda: self._outbox.send(peer, topic, body), links=True)
        return True

    def _connect(self) -> None:
        """Keeps connections to the other members of all deployments; at once, since events wait for them."""
        hosts = {name: contact for name, contact in self.controller.hosts.items() if name != self.node.name}
        if hosts != self._known:
            before, self._known = self._known, hosts
            self.flow.post(lambda: self._keep(hosts, before), links=True)

    def _keep(self, hosts: Mapping[str, str], before: Mapping[str, str]) -> None:
        for name in before.keys() - hosts.keys():
            self._links.forget(name)
        for name, contact in hosts.items():
            if before.get(name) != contact:
                self._links.peer(name, contact)

    def _hear(self, hosts: list[str]) -> None:
        heard = [(name, at) for name in hosts if (at := self._links.heard(name)) is not None]
        self._tasks.put(lambda: self._heard(heard))

    def _heard(self, heard: list[tuple[str, float]]) -> None:
        for name, at in heard:
            self.controller.heard(name, at)

    def close(self, timeout: float = 3.0) -> None:
        """Ends the daemon. Its deployments wait for it, and go on when it is started again.

        What its stones hold, and their statics, are kept in its folder. Closing twice does nothing.

        Args:
            timeout: seconds to wait until all that is under way is handled, here and by other nodes; if it
                is not, what was not safe comes again, as after a kill.

        Raises:
            FlowError: the daemon broke before; see ``failure``.
            DeployError: the folder cannot be written. The daemon has ended all the same, as after a kill.
        """
        if self._closed:
            return
        self._closed = True
        self._tasks.put(None)
        broken = self.failure is not None
        self._thread.join(_LOOK if broken else None)
        try:
            if not broken:
                self.controller.put_away(self.site.put_away(timeout))
        finally:
            try:
                self.flow.stop()
            finally:
                self._store.close()

    def __repr__(self) -> str:
        return f"<Daemon {self.node.name} at {', '.join(self.node.contacts)}>"


class _Outbox:
    """Notes to peers whose link is about to be up: kept a moment, or all that begins would begin late.

    Args:
        tell: sends a note (peer, topic, body); False if there is no session.
    """

    def __init__(self, tell: Callable[[str, str, bytes], bool]) -> None:
        self._tell = tell
        self._waiting: dict[str, deque[tuple[float, str, bytes]]] = {}

    def send(self, peer: str, topic: str, body: bytes) -> None:
        """Sends a note, now or within two seconds; of many that wait for a peer the oldest are let go."""
        if peer in self._waiting or not self._tell(peer, topic, body):
            waiting = self._waiting.setdefault(peer, deque(maxlen=_MOST_KEPT))
            waiting.append((time.monotonic() + _KEPT, topic, body))

    def flush(self, now: float) -> float | None:
        """Sends what can be sent by now; gives when to be called again."""
        for peer, waiting in list(self._waiting.items()):
            while waiting and (now > waiting[0][0] or self._tell(peer, waiting[0][1], waiting[0][2])):
                waiting.popleft()
            if not waiting:
                del self._waiting[peer]
        return now + _SEND_AGAIN if self._waiting else None


def _owner(folder: Path) -> str:
    """The name of the node that a storage folder belongs to; "" if it is nobody's yet.

    Raises:
        DeployError: what is there cannot be read, or is not a name.
    """
    try:
        content = read_file(folder / _OWNER, _LONGEST_OWNER)[1]
    except FileNotFoundError:
        return ""
    except OSError as error:
        raise _unusable(folder, error) from error
    try:
        name = content.decode().strip()
        return node_name(name) if name else ""
    except (UnicodeDecodeError, LinkError):
        raise DeployError(
            f"file {shown_path(folder / _OWNER)}: expected the name of the node that the folder belongs to, "
            f"found {shown(content, 100)}; write the name into it"
        ) from None


def _own(folder: Path, name: str) -> None:
    """Makes a storage folder that of a node.

    Raises:
        DeployError: it cannot be written.
    """
    try:
        private_file(folder / _OWNER)
        (folder / _OWNER).write_text(f"{name}\n", encoding="utf-8")
    except OSError as error:
        raise _unusable(folder, error) from error


def _unusable(folder: Path, error: Exception) -> DeployError:
    why = getattr(error, "strerror", None) or error
    return DeployError(f"file {shown_path(folder / _OWNER)} cannot be used: {why}; {advice(error)}")


def _nothing() -> None:
    return None
