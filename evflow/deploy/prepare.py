"""The prepare phase of a change: a node closes, is quiet, is prepared, gives and takes snapshots, is ready.

Before that it does what takes long and needs nothing to be quiet. All nodes close together, once all can.
A node is prepared only when all are quiet: until then one further down may have to take what comes from one
further up that is not quiet, or neither would ever be.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING

from evflow.deploy import messages as m
from evflow.deploy.durable import Prepared
from evflow.deploy.record import Record, moves, touched
from evflow.deploy.snapshots import Arrivals, Departure

if TYPE_CHECKING:
    from evflow.deploy.controller import Controller
    from evflow.engine.snapshot import Snapshot

_POLL = 0.01
"""Seconds after which it is looked again whether all is quiet, at most."""

_MOST_REASON = 4000


class PreparePhase:
    """The prepare phase of a change, at one node: from the vote on it to its outcome.

    Args:
        controller: the node's controller.
        base: the version before; None if there is none.
        prepared: what is kept of it, or would be.
        again: whether the node was prepared for it before a restart.

    Attributes:
        ballot: the proposer's newest ballot.
        change: the identity of the change.
        record: what it would make.
        touched: whether it does something here.
        refusal: why this node will not get ready for it; "" if it may.
        begun: whether the node has begun it.
        prepared: whether it is kept that this node is quiet for it.
    """

    def __init__(
        self, controller: Controller, base: Record | None, prepared: Prepared, again: bool = False
    ) -> None:
        self.ballot = prepared.ballot
        self.record = prepared.record
        self.change = self.record.change
        self.touched = controller.name in touched(base, self.record) and controller.name not in prepared.lost
        self.refusal = ""
        self.begun = False
        self.prepared = again
        self._controller = controller
        self._base = base
        self._kept = prepared
        self._at = m.Decision(self.record.deployment, self.record.birth, self.record.version)
        self._waits = "it begins"
        self._ready = False
        self._quiet = False
        self._settled = again
        self._sealed = False
        self._poll = _POLL / 16
        self._moves = moves(base, self.record)
        self._departures: dict[str, Departure] | None = None
        self._arrivals = self._expected()
        if again and self.touched:
            self._begin()
        else:
            self._check()

    def _check(self) -> None:
        """Sees whether this node can do its part."""
        if self.touched and not self.refusal:
            self.refusal = self._controller.namesake(self._at.deployment, self._at.birth)
            self.refusal = self.refusal or self._controller.site.check(self._base, self.record)

    def _begin(self) -> None:
        self.begun = True
        site, lost = self._controller.site, self._kept.lost
        site.begin(self._base, self.record, settled=self.prepared, lost=lost)

    def close(self) -> bool:
        """All nodes can make the change. Returns True if this node begins now."""
        if self.begun:
            return False
        # Other changes may have come between.
        self._check()
        if self.touched and not self.refusal:
            self._begin()
        return self.begun

    @property
    def came(self) -> Mapping[str, Snapshot]:
        """Stone → the snapshot with which it came here, of those that have."""
        return self._controller.durable.arriving.get((self._at.birth, self.change), {})

    def _expected(self) -> Arrivals:
        controller, came = self._controller, self.came
        sources = {
            stone: start
            for stone, (start, end) in self._moves.items()
            if end == controller.name and start not in self._kept.lost and stone not in came
        }
        keep = partial(controller.durable.keep, self._at.birth, self.change)
        return Arrivals(self._at, self.change, sources, controller.tell, controller.durable.growing, keep)

    def tick(self, now: float) -> float | None:
        """Goes on with it as far as possible; gives when to be called again."""
        if not self.begun:
            return None
        if self._departures is None:
            self._settle_down()
        asks = self._arrivals.tick(now)
        if self._departures is None:
            if self._rests:
                return asks
            # Soon at first: most often little is under way.
            self._poll = min(2 * self._poll, _POLL)
            return now + self._poll
        if not self._ready and not self._arrivals.waiting:
            self._ready = True
            self._answer(m.Ready)
            # While the others are asked for their votes.
            self._controller.site.expect(self.record, self.came)
        return asks

    @property
    def _rests(self) -> bool:
        """True if this node is quiet and waits for the others: to look again would hold events up."""
        return self._quiet and not self._settled

    def _settle_down(self) -> None:
        """Checks whether this node is quiet, and goes on once all are."""
        if self._rests:
            return
        site, deployment = self._controller.site, self._at.deployment
        if self._settled and not self._sealed:
            self._sealed = True
            self._waits = site.settle(deployment)
        else:
            self._waits = site.waiting(deployment)
        if not self._waits and self._settled:
            self._depart()
        elif not self._waits and not self._quiet:
            self._answer(m.Quiet)
        self._quiet = not self._waits

    def settle(self) -> None:
        """All nodes were quiet."""
        if self.begun:
            self._settled = True

    def _depart(self) -> None:
        """It is quiet: from now on it is prepared, so its stones can be given away."""
        if not self.prepared:
            # A node that gave a snapshot away, and then let events pass after a restart, would lose them.
            self._controller.durable.prepare(self._at.birth, self._kept)
            self.prepared = True
        snapshots = self._controller.site.leaving(self._at.deployment)
        self._departures = {
            stone: Departure(self._at, self.change, stone, parts, self._controller.entropy(16))
            for stone, parts in snapshots.items()
        }
        for stone, departure in self._departures.items():
            if stone in self._moves:
                for piece in departure.asked():
                    self._controller.tell(self._moves[stone][1], piece)

    def fetch(self, peer: str, wanted: m.Fetch) -> None:
        """Sends a piece of a snapshot to the node that the stone goes to, once there is one."""
        departure = (self._departures or {}).get(wanted.stone)
        if departure is not None and wanted.change == self.change and self._moves[wanted.stone][1] == peer:
            for piece in departure.asked(wanted.offset):
                self._controller.tell(peer, piece)

    def take(self, peer: str, piece: m.Piece, now: float) -> None:
        """Takes a piece of a snapshot."""
        if self.begun:
            self._arrivals.take(peer, piece, now)

    def report(self) -> None:
        """Says to the proposer how far it is."""
        if not self.touched:
            return
        if self._rests:
            # It may have had to take something since.
            self._waits = self._controller.site.waiting(self._at.deployment)
            self._quiet = not self._waits
        if self.refusal:
            self._answer(m.Unable, self.refusal[:_MOST_REASON])
        elif not self.begun:
            self._answer(m.Able)
        elif self._ready:
            self._answer(m.Ready)
        elif self._rests:
            self._answer(m.Quiet)
        else:
            self._answer(m.Busy, (self._waits or self._arrivals.waiting)[:_MOST_REASON])

    def _answer(self, kind: Callable[..., m.Answer], *reason: str) -> None:
        self._controller.tell(self.ballot.node, kind(self._at, self.ballot, *reason))

    def describe(self) -> str:
        """What it is and how far, for people."""
        state = self.refusal or self._waits or self._arrivals.waiting or "ready, the outcome is not known yet"
        return f"version {self.record.version}, proposed by {self.ballot.node}: {state}"

    def end(self) -> None:
        """It will not be."""
        if self.begun:
            self._controller.site.cancel(self._at.deployment)
