"""The keeper of a process's channels: a thread that hears what others say, has the stones follow it, and says
what there is to say; ``membership.py`` decides all of it."""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from evflow.echo.membership import Membership
from evflow.echo.notes import TOPIC, Message, unpack
from evflow.echo.wiring import Wires, plan
from evflow.errors import EvflowError, FlowError, LinkError
from evflow.stone import Stone

if TYPE_CHECKING:
    from evflow.flow.flow import Flow
    from evflow.graph.graph import Graph

_log = logging.getLogger("evflow.echo")


class Keeper:
    """Drives a membership, and the flow that has its stones.

    Args:
        membership: the bookkeeping; from now on used within ``changing`` only.
        flow: a flow on the process's node.

    Attributes:
        terminals: channel → the stones of its own subscribers, by name; to be changed within ``changing``.
        trouble: why the stones could not follow the last time; "" if they could.
    """

    def __init__(self, membership: Membership, flow: Flow) -> None:
        self.terminals: dict[str, dict[str, Stone]] = {}
        self.trouble = ""
        self._membership = membership
        self._flow = flow
        self._wires = Wires(flow)
        self._changed = threading.Condition(threading.RLock())
        self._wiring = threading.Lock()
        self._wired = -1
        self._inbox: deque[tuple[str, list[Message]]] = deque()
        self._bell = threading.Event()
        self._ended = False
        self._resting = False
        self._kept: dict[str, str] = {}
        assert flow.links is not None
        self._links = flow.links
        self._links.listen(TOPIC, self._hear, prompt=True)
        self._engine_thread = flow.call(threading.get_ident)
        self._thread = threading.Thread(
            target=self._keep, name=f"evflow channels of {membership.name}", daemon=True
        )
        self._thread.start()

    # --- for threads of the program

    @property
    def in_handler(self) -> bool:
        """True if the caller is a handler."""
        return threading.get_ident() == self._engine_thread

    @property
    def graph(self) -> Graph:
        """The stones as they run."""
        return self._wires.graph

    def owed(self, bridge: str) -> int:
        """Events that wait at a bridge, or are kept until they are safe."""
        return self._links.owed(bridge)

    def dropped(self, key: str) -> int:
        """Events that a channel's bridges had not delivered when they were taken away."""
        return self._wires.dropped[key]

    def refuse_in_handler(self, what: str) -> None:
        """Raises if the caller is a handler, which must not wait.

        Raises:
            FlowError: it is.
        """
        if self.in_handler:
            raise FlowError(
                f"a handler cannot {what}, since it would wait for itself; do it in another thread"
            )

    @contextmanager
    def changing(self) -> Iterator[Membership]:
        """The membership, to be read and changed within a ``with`` block; what follows from it is done
        soon."""
        with self._changed:
            yield self._membership
        self._bell.set()

    def wait(self, done: Callable[[Membership, float], bool], timeout: float) -> bool:
        """Waits until something holds; gives whether it did within ``timeout`` seconds."""
        deadline = time.monotonic() + timeout
        self._bell.set()
        with self._changed:
            while not done(self._membership, now := time.monotonic()):
                if now >= deadline or self._ended:
                    return False
                # Woken now and then all the same: somebody may have fallen silent.
                self._changed.wait(min(0.2, deadline - now))
        return True

    def wire(self) -> None:
        """Has the stones follow what is known now.

        Raises:
            EvflowError: they cannot.
        """
        with self._wiring:
            if self._resting:
                return
            with self._changed:
                version, marks = self._membership.version, self._membership.marks()
                planned = plan(self._membership.rosters, {k: dict(t) for k, t in self.terminals.items()})
            self._wires.follow(planned)
            with self._changed:
                self._wired = version
                self._membership.applied(marks, time.monotonic())
                self._changed.notify_all()
        self._bell.set()

    def confirm(
        self, key: str, timeout: float, what: str, *, until: float | None = None, family: bool = False
    ) -> None:
        """Waits until all that live have confirmed what this process is in a channel, and its stones follow.

        Args:
            key: the channel.
            timeout: seconds to wait.
            what: what is not done otherwise, for the error.
            until: when the time is over, if it began before this.
            family: also for all channels that are derived from it.

        Raises:
            LinkError: not in time; who has not confirmed, and what is wrong with the links to them.
        """
        left = timeout if until is None else until - time.monotonic()
        if not self.wait(lambda membership, now: self._ready(membership, key, now, family), left):
            raise LinkError(f"{what} within {timeout} s: {self._late(key)}")

    def _ready(self, membership: Membership, key: str, now: float, family: bool) -> bool:
        keys = membership.family(key) if family else [key]
        return all(
            k in membership.rosters and not membership.waiting_for(k, now) and not membership.unlinked(k)
            for k in keys
            if k not in membership.failed
        )

    def _late(self, key: str) -> str:
        now = time.monotonic()
        with self.changing() as membership:
            late = sorted({n for k in membership.family(key) for n in membership.waiting_for(k, now)})
        told = [f"{name} has not confirmed{self.link_trouble(name)}" for name in late]
        return "; ".join(told) or self.trouble or "this process is too busy to change its stones"

    def link_trouble(self, process: str) -> str:
        """What is wrong with the link to a process, in parentheses; "" if nothing is known."""
        node = self._flow.node
        trouble = None if node is None else node.links().get(process, {}).get("trouble")
        return f" ({trouble})" if trouble else ""

    def rest(self) -> None:
        """From now on the stones stay as they are."""
        with self._wiring:
            self._resting = True

    def end(self) -> None:
        """Ends the thread."""
        self._ended = True
        self._bell.set()
        if threading.current_thread() is not self._thread:
            self._thread.join()

    # --- the thread

    def _hear(self, process: str, body: memoryview, now: float) -> None:
        """Takes a note, in the thread that serves the links."""
        self._inbox.append((process, unpack(body)))
        self._bell.set()

    def _keep(self) -> None:
        while not self._ended:
            with self._changed:
                due = self._membership.next_due()
            self._bell.wait(max(0.0, due - time.monotonic()))
            self._bell.clear()
            try:
                self._turn()
            except FlowError as error:
                # The flow was closed beneath it.
                _log.debug("channels of %s end: %s", self._membership.name, error)
                self._ended = True

    def _turn(self) -> None:
        with self._changed:
            now = time.monotonic()
            while self._inbox:
                self._take(*self._inbox.popleft(), now)
            self._membership.tick(now)
            behind = self._membership.version != self._wired and not self._resting
        if behind:
            self._follow()
        self._send()
        with self._changed:
            self._changed.notify_all()

    def _take(self, process: str, messages: list[Message], now: float) -> None:
        try:
            self._membership.receive(process, messages, now)
        except LinkError as error:
            _log.warning("channels of %s: refused: %s", self._membership.name, error)

    def _follow(self) -> None:
        try:
            self.wire()
            self.trouble = ""
        except EvflowError as error:
            if str(error) != self.trouble:
                _log.error("channels of %s: the stones cannot follow: %s", self._membership.name, error)
            self.trouble = str(error)

    def _send(self) -> None:
        with self._changed:
            outgoing = self._membership.outgoing()
            contacts = self._membership.peers()
        # The links belong to the engine's thread.
        if outgoing or contacts.keys() != self._kept.keys():
            self._flow.call(lambda: self._send_here(outgoing, contacts), links=True)

    def _send_here(self, outgoing: list[tuple[str, bytes]], contacts: dict[str, str]) -> None:
        for name in self._kept.keys() - contacts.keys():
            self._links.forget(name)
            del self._kept[name]
        for name, contact in contacts.items():
            if self._kept.get(name) != contact:
                self._links.peer(name, contact)
                self._kept[name] = contact
        for name, body in outgoing:
            self._links.tell(name, TOPIC, body)
