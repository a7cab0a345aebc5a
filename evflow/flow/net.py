"""What the thread of a flow needs of a node: its links and sockets, and what wakes it."""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Collection
from contextlib import AbstractContextManager, nullcontext
from typing import Protocol

from evflow.codgen.express import Express
from evflow.engine.topology import Crossing, Slot
from evflow.events.batch import EventBatch
from evflow.events.gather import Place
from evflow.schema import Schema
from evflow.stone import Actor


class Waker(Protocol):
    """Wakes the engine's thread; see ``Bell``.

    Attributes:
        asleep: whether it has to be rung; set before the sleeper looks whether anything waits.
    """

    asleep: bool

    def ring(self) -> None:
        """Wakes the sleeper."""

    def sleep(self, seconds: float | None) -> None:
        """Sleeps until rung since ``asleep`` was set, or for ``seconds``."""


class Net(Protocol):
    """A node's links and sockets, as the thread that drives them sees them; here as if there were none.

    Attributes:
        bell: wakes the thread, which sleeps at the sockets.
    """

    @property
    def bell(self) -> Waker: ...

    def pace(self, length: int) -> None:
        """Waits a moment if much is on its way before so many bytes are reserved; not for the net's own
        thread."""
        return

    def reserve(self, length: int) -> Place | None:
        """Where large events are sent from: room for ``length`` bytes; called in any thread.

        Returns:
            None if there is no room.
        """
        return None

    def spare(self, length: int) -> Place | None:
        """The same for what is kept for a while: half of the room is left to others."""
        return None

    def begin(self) -> None:
        """The thread begins."""
        return

    @property
    def patience(self) -> float | None:
        """Seconds that the links may be left alone while a handler runs; None where there are none."""
        return None

    def receive(self, now: float) -> None:
        """Takes what has come over the sockets, and runs it."""
        return

    def serve(self, now: float) -> None:
        """Takes what has come over the sockets, and sends what is to go, but runs nothing: frames of events
        are queued. Called while the flow's thread is in a stone's own code."""
        return

    def finish(self, now: float) -> float:
        """Sends what is to go, at the end of a turn; gives when that is needed next, infinity if never."""
        return math.inf

    def blocked(self, slot: Slot, leaving: bool = False) -> bool:
        """Whether events at a stone, or those that it emits itself (``leaving``), would get to a stone or
        a bridge that is full."""

    def express(self, bridge: str, schema: Schema) -> Express | None:
        """What may send events of a schema over a bridge by itself until the next turn; None if nobody
        may."""
        return None

    def went(self, bridge: str, batch: EventBatch, counts: list[int]) -> None:
        """It has sent these events, as frames of so many each."""
        return

    def leads(self, entry: Slot, onward: Slot) -> None:
        """A handler somewhere behind ``entry`` has submitted to ``onward``."""
        return

    def run_numbered(self, slot: Slot, number: int, run: Callable[[], None]) -> None:
        """Moves what a stone has emitted by itself; its ``stream`` and the number say what events these are,
        so that other nodes know them if they come again. Its actor is told when that was handled."""

    def aside(self) -> AbstractContextManager[None]:
        """Within the ``with`` block events are moved that are not a part of what came: those that handlers
        have submitted."""
        return nullcontext()

    def settle_actors(self, emitted: list[tuple[Actor, object]]) -> None:
        """Tells actors that what they emitted was handled, when it was, on other nodes too."""

    def when_handled(self, call: Callable[[], None]) -> None:
        """Calls when other nodes have handled all that was emitted so far."""
        call()

    def when_safe(self, slot: Slot, call: Callable[[], None]) -> None:
        """Calls when other nodes have answered for all that was emitted so far behind a stone: it has been
        handled there, or is in a file."""
        call()

    @property
    def owes(self) -> bool:
        """Whether other nodes have not handled all yet."""
        return False

    def troubles(self) -> list[str]:
        """Why they have not."""
        return []

    def close_entries(
        self, names: Collection[str], passing: Collection[str] = (), repeating: Collection[str] = ()
    ) -> None:
        """From now on nothing that comes from outside is taken in at these stones: they are ``blocked``, and
        frames for them wait, but for those that come over the bridges ``passing``, and, at the stones
        ``repeating``, those that were sent before. Closed twice, they are opened by opening them twice."""
        return

    def open_entries(
        self, names: Collection[str], passing: Collection[str] = (), repeating: Collection[str] = ()
    ) -> None:
        """Takes one ``close_entries`` of these stones back, and one exception for each of these bridges and
        stones."""
        return

    def waiting_for(self, entries: Collection[str], bridges: Collection[str]) -> str:
        """What is still to be done until a change may be made; "" if nothing is.

        Args:
            entries: stones that are closed: what was taken in there must be safe, or held by stones only.
            bridges: bridges that end: other nodes must have handled all that they were given.
        """
        return ""

    def enter(self, name: str, slot: Slot) -> None:
        """From now on other nodes may send to a stone."""
        return

    def leave(self, name: str, reason: str) -> None:
        """From now on they may not; ``reason`` is what they are told."""
        return

    def readdress(self, bridge: str, crossing: Crossing) -> None:
        """From now on a bridge leads elsewhere; what is not known to be safe is sent again there."""
        return

    def drop(self, bridge: str) -> None:
        """Forgets a bridge that leads to another node; what it still owes becomes dead letters."""
        return

    def stop(self) -> None:
        """From now on nothing that comes is taken in."""
        return

    def close(self) -> None:
        """Ends the links; what they still owe becomes dead letters."""
        return


class Bell:
    """Wakes the engine's thread, which sleeps only after it has seen that nothing waits."""

    def __init__(self) -> None:
        self.asleep = False
        self._lock = threading.Lock()
        self._lock.acquire()

    def ring(self) -> None:
        """Wakes the sleeper; does nothing if it is awake."""
        # Until it sleeps again nobody else needs to.
        self.asleep = False
        try:
            self._lock.release()
        except RuntimeError:
            # Released already: the sleeper is on its way.
            return

    def sleep(self, seconds: float | None) -> None:
        """Sleeps until rung since ``asleep`` was set, or for ``seconds``."""
        self._lock.acquire(timeout=-1 if seconds is None else max(seconds, 0.0))
        self.asleep = False


class Alone(Net):
    """The net of a flow that has no links: there is nothing to send, and nothing to be waited for.

    Args:
        blocked: see ``Waking.blocked``.
        settle: see ``Stalls.settle``.
    """

    def __init__(
        self, blocked: Callable[[Slot, bool], bool], settle: Callable[[Actor, object], None]
    ) -> None:
        self._blocked = blocked
        self._settle = settle
        self._bell = Bell()

    @property
    def bell(self) -> Waker:
        return self._bell

    def blocked(self, slot: Slot, leaving: bool = False) -> bool:
        return self._blocked(slot, leaving)

    def run_numbered(self, slot: Slot, number: int, run: Callable[[], None]) -> None:
        assert slot.actor is not None
        mark = slot.asked("mark", lambda actor: actor.mark(), None)
        run()
        self._settle(slot.actor, mark)

    def settle_actors(self, emitted: list[tuple[Actor, object]]) -> None:
        for actor, mark in emitted:
            self._settle(actor, mark)
