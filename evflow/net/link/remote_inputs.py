"""The stones of a node that others may send to, which may come and go, and the inlets that lead to them.

An inlet outlives sessions. One whose channel was closed, or whose bridge began anew, is a former one: it goes
once what came over it is settled. When a stone goes its inlets go at once: what they have not taken in the
sender still has, and what they have is no longer this node's to answer for. A stone that stays, but is led to
from this node only by now, keeps the inlets whose frames it holds; and bridges that have ended may send it
again what it has held, should this node have lost that.
"""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Mapping
from typing import TYPE_CHECKING

from evflow.choices import choices
from evflow.engine.topology import Slot
from evflow.net.link.inlet import Inlet
from evflow.net.link.messages import ENDED, Open

if TYPE_CHECKING:
    from evflow.net.link.hub import Hub

_MAX_INLETS = 10_000
_MAX_STREAMS = 32
_MAX_TRIES = 1000
_MAX_TAKEN = 10_000

_Key = tuple[str, str, bytes]
"""Peer, bridge and stream."""


class RemoteInputs:
    """The entrances of one node.

    Args:
        hub: the node's other parts.

    Attributes:
        slots: the stones that others may send to, by name.
        inlets: (peer, bridge, stream) → inlet.
        former: inlets over which no more will come, while what came is not settled.
        patience: how often a bridge may ask for a stone that is not there before that counts as refused; more
            than none where stones come and go, as those who send and those who get do not change at one
            moment.
    """

    def __init__(self, hub: Hub) -> None:
        self.slots: dict[str, Slot] = {}
        self.inlets: dict[_Key, Inlet] = {}
        self.former: list[Inlet] = []
        self.patience = 0
        self._hub = hub
        self._tries: Counter[tuple[str, str, str]] = Counter()
        self._streams: dict[tuple[str, str], list[Inlet]] = {}
        self._staying: set[str] = set()
        self._taken: OrderedDict[_Key, int] = OrderedDict()

    def over(self, peer: str, bridge: str) -> list[Inlet]:
        """The inlets of a bridge, the oldest first: of its streams that are not known to have ended."""
        return list(self._streams.get((peer, bridge), ()))

    def all(self) -> list[Inlet]:
        """All inlets, former ones first."""
        return [*self.former, *self.inlets.values()]

    @property
    def changing(self) -> bool:
        """Whether ``tidy`` may have something to do."""
        return bool(self.former or self._staying)

    def begin(self, slots: Mapping[str, Slot]) -> None:
        """Sets the stones that others may send to."""
        self.slots = dict(slots)

    def enter(self, name: str, slot: Slot) -> None:
        """From now on others may send to a stone. In place of one of the same name it goes on with what that
        one's inlets have; those whose input it has not are closed."""
        self._hub.restless = True
        self.slots[name] = slot
        self._staying.discard(name)
        self._tries = Counter({key: tries for key, tries in self._tries.items() if key[2] != name})
        before = [inlet for inlet in self.all() if inlet.slot.name == name]
        for inlet in before:
            inlet.slot = slot
        misfit = [inlet for inlet in before if not _takes(slot, inlet.input)]
        if misfit:
            self._hub.delivery.settle_links(misfit)
            self._close(misfit, f"stone {name!r} of node {self._hub.name} has not that input any more")
        for link in self._hub.links.values():
            link.invite(name)

    def leave(self, name: str, reason: str) -> None:
        """From now on nobody may send to a stone; peers that do are told why.

        Frames that were not taken in are forgotten here, and so is what was seen over its bridges: it belongs
        to wherever the stone goes. Was it closed, it goes there with what it holds: bridges that have ended
        are told that all it has taken in is safe. A stone that stays keeps the inlets of what it holds.
        """
        if self.slots.pop(name, None) is None:
            return
        self._hub.restless = True
        inlets = [inlet for inlet in self.all() if inlet.slot.name == name]
        # Whoever sent what was handled since links were looked after last is told that it is safe.
        self._hub.delivery.settle_links(inlets)
        if name in self._hub.downstream and any(inlet.pending for inlet in inlets):
            self._stay(name, inlets, reason)
        else:
            self._depart(name, reason, along=self._hub.downstream.closed(name))

    def _stay(self, name: str, inlets: list[Inlet], reason: str) -> None:
        """Nobody may send to a stone any more, but it goes on with what it holds."""
        self._staying.add(name)
        self._close([inlet for inlet in inlets if not inlet.pending], reason)
        kept = {inlet for inlet in inlets if inlet.pending and not inlet.ended}
        for link in self._hub.links.values():
            link.reject(kept, reason)
        for inlet in kept:
            inlet.let_go()
            inlet.received = inlet.consumed

    def _depart(self, name: str, reason: str, along: bool) -> None:
        """A stone is gone, and has taken what it held along, or not."""
        inlets = [inlet for inlet in self.all() if inlet.slot.name == name]
        if along:
            for inlet in inlets:
                if inlet.ended:
                    inlet.safe = inlet.consumed
                if inlet.exact and inlet.consumed:
                    self._taken[_key(inlet)] = inlet.consumed
            while len(self._taken) > _MAX_TAKEN:
                self._taken.popitem(last=False)
        self._close(inlets, reason)
        self._hub.delivery.forget(name)

    def taken_along(self, peer: str, wanted: Open) -> int:
        """Up to which frame of a bridge that has ended the stone has left with what it held; 0 if it has not,
        or that is not known."""
        return self._taken.get((peer, wanted.bridge, wanted.stream), 0) if wanted.delivery == ENDED else 0

    def _close(self, closed: list[Inlet], reason: str) -> None:
        inlets = set(closed)
        for link in self._hub.links.values():
            link.reject(inlets, reason)
        self.former = [inlet for inlet in self.former if inlet not in inlets]
        for inlet in inlets:
            self._remove(inlet)
            inlet.let_go()
            inlet.pending.clear()

    def _remove(self, inlet: Inlet) -> bool:
        """Takes an inlet out of those whose streams may go on; gives whether it was among them."""
        if self.inlets.get(_key(inlet)) is not inlet:
            return False
        del self.inlets[_key(inlet)]
        streams = self._streams[inlet.peer, inlet.bridge]
        streams.remove(inlet)
        if not streams:
            del self._streams[inlet.peer, inlet.bridge]
        return True

    def inlet(self, peer: str, wanted: Open) -> Inlet | str:
        """The inlet of a channel that a peer wants to open, or why there is none."""
        node = self._hub.name
        slot = self._slot(peer, wanted)
        if slot is None or not _takes(slot, wanted.input):
            if not self.taken_along(peer, wanted) and not self._bears(peer, wanted):
                self._hub.refuse("unknown stone", f"bridge {wanted.bridge!r} of {peer}: {wanted.stone!r}")
            where = f"{wanted.stone}[{wanted.input}]" if wanted.input else wanted.stone
            others = choices(wanted.stone[:300], list(self.slots)) if slot is None else ""
            return f"node {node} has no stone {where!r} that others may send to{others}"
        inlet = self.inlets.get((peer, wanted.bridge, wanted.stream))
        if inlet is None or (inlet.slot, inlet.input) != (slot, wanted.input):
            trouble = self._make_room(peer, wanted, inlet)
            if trouble:
                return trouble
            exact, budget = bool(wanted.delivery), self._hub.budget
            inlet = Inlet(peer, wanted.bridge, slot, wanted.input, wanted.stream, exact, budget)
            self.inlets[_key(inlet)] = inlet
            self._streams.setdefault((peer, wanted.bridge), []).append(inlet)
        inlet.ended = wanted.delivery == ENDED
        self._taken.pop(_key(inlet), None)
        if wanted.stone not in self.slots:
            self._staying.add(wanted.stone)
        return inlet

    def _slot(self, peer: str, wanted: Open) -> Slot | None:
        """The stone that a bridge may send to."""
        slot = self.slots.get(wanted.stone)
        if slot is None and wanted.delivery == ENDED and wanted.stone not in self._hub.outlets:
            # It was one that others may send to, before the graph was changed.
            slot = self._hub.downstream.slot(wanted.stone)
        return slot

    def _make_room(self, peer: str, wanted: Open, before: Inlet | None) -> str:
        """Sees to it that there may be another inlet; gives why not, or "".

        A bridge has one stream at a time, beside those that have ended since the peer's process began: what
        was not opened in this session are former streams.
        """
        node, link = self._hub.name, self._hub.links.get(peer)
        past = self.over(peer, wanted.bridge)
        if past and link is not None:
            used = set(link.inlets.values())
            past = [inlet for inlet in past if inlet not in used]
        pair = (peer, wanted.bridge)
        former = [i for i in self.former if (i.peer, i.bridge) == pair]
        if sum(i is not before and i.unsettled for i in (*former, *past)) >= _MAX_STREAMS:
            return f"node {node} holds frames of {_MAX_STREAMS} former streams of the bridge"
        for inlet in past if before is None else [*past, before]:
            self.closed(inlet)
        if before is None and len(self.inlets) >= _MAX_INLETS and not self._forget_one(peer):
            return f"node {node} has {_MAX_INLETS} channels already"
        return ""

    def _bears(self, peer: str, wanted: Open) -> bool:
        """Whether a bridge may ask once more for a stone that is not there."""
        key = (peer, wanted.bridge, wanted.stone)
        if self.patience and (key in self._tries or len(self._tries) < _MAX_TRIES):
            self._tries[key] += 1
        return 0 < self._tries[key] <= self.patience

    def _forget_one(self, peer: str) -> bool:
        """Forgets a channel that nobody uses, rather one of the peer's; gives whether there was one."""
        used = {id(inlet) for link in self._hub.links.values() for inlet in link.inlets.values()}
        idle = [key for key, i in self.inlets.items() if id(i) not in used and not i.unsettled]
        key = next((key for key in idle if key[0] == peer), next(iter(idle), None))
        return key is not None and self._remove(self.inlets[key])

    def closed(self, inlet: Inlet) -> None:
        """No more will come for an inlet."""
        if self._remove(inlet):
            self.former.append(inlet)

    def tidy(self) -> None:
        """Lets former inlets go that are settled, and those of stones that stayed for a while."""
        if self.former:
            self.former = [inlet for inlet in self.former if inlet.unsettled]
        gone = [name for name in self._staying if name not in self._hub.downstream] if self._staying else ()
        for name in gone:
            self._staying.discard(name)
            self._depart(name, f"stone {name!r} has moved or was removed", along=True)


def _key(inlet: Inlet) -> _Key:
    return inlet.peer, inlet.bridge, inlet.stream


def _takes(slot: Slot, input: str) -> bool:
    return not input or input in slot.stone.inputs
