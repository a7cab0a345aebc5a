"""What a change of a running graph touches: a comparison of two topologies, without any effect."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from evflow.engine.topology import Crossing, Slot, Topology
from evflow.errors import EvflowError
from evflow.stone import Stone

__all__ = ["Difference", "difference", "same_stone"]


@dataclass(frozen=True)
class Difference:
    """What differs between the running topology and the wanted one, by the names of stones.

    Attributes:
        new: stones that come.
        gone: stones that go.
        replaced: stones that become others of the same name.
        relinked: stones that stay and lead elsewhere within the node.
        appearing: bridges to other nodes that come, those replaced among them.
        vanishing: bridges to other nodes that go, those replaced among them.
        readdressed: bridges that stay and lead elsewhere, and where to.
        entered: stones that others may send to from now on.
        left: stones that others may not send to any more.
        entries: stones where events come in that get to what changes; closed while the change is made.
    """

    new: frozenset[str] = frozenset()
    gone: frozenset[str] = frozenset()
    replaced: frozenset[str] = frozenset()
    relinked: frozenset[str] = frozenset()
    appearing: frozenset[str] = frozenset()
    vanishing: frozenset[str] = frozenset()
    readdressed: Mapping[str, Crossing] = field(default_factory=dict)
    entered: frozenset[str] = frozenset()
    left: frozenset[str] = frozenset()
    entries: frozenset[str] = frozenset()


def difference(running: Topology, wanted: Topology, submitted: Collection[str] = ()) -> Difference:
    """What has to change so that the running topology becomes the wanted one.

    Args:
        running: as it is.
        wanted: as it shall be.
        submitted: stones that programs submit to, besides the sources.
    """
    old, new = running.slots, wanted.slots
    common = old.keys() & new.keys()
    replaced = {name for name in common if not _goes_on(name, running, wanted)}
    relinked = {name for name in common - replaced if _ways(old[name]) != _ways(new[name])}
    gone = old.keys() - new.keys()
    before, after = running.crossings, wanted.crossings
    kept = (before.keys() & after.keys()) - replaced
    # A stone that was an entrance and is replaced stays the same place to send to.
    entrances_before, entrances = running.entrances & old.keys(), wanted.entrances & new.keys()
    return Difference(
        new=frozenset(new.keys() - old.keys()),
        gone=frozenset(gone),
        replaced=frozenset(replaced),
        relinked=frozenset(relinked),
        appearing=frozenset(after.keys() - kept),
        vanishing=frozenset(before.keys() - kept),
        readdressed={name: after[name] for name in sorted(kept) if before[name] != after[name]},
        entered=frozenset(entrances - entrances_before),
        left=frozenset(entrances_before - entrances),
        entries=_entries(running, gone | replaced | relinked, submitted),
    )


def _goes_on(name: str, running: Topology, wanted: Topology) -> bool:
    # A bridge finds out when it is opened whether it leads to another node.
    crosses = (name in running.crossings) == (name in wanted.crossings)
    return crosses and same_stone(running.slots[name].stone, wanted.slots[name].stone)


def same_stone(one: Stone, other: Stone) -> bool:
    """Whether two descriptions say the same, wherever they are placed and whatever they are named."""
    if one is other:
        return True
    if type(one) is not type(other):
        return False
    values, others = _parameters(one), _parameters(other)
    if values.keys() == others.keys() and all(values[key] is others[key] for key in values):
        return True
    if type(one).settings is Stone.settings:
        # It says nothing of itself, so it may be another.
        return False
    try:
        return one.settings() == other.settings()
    except EvflowError:
        # A handler without a name is the same only as itself.
        return False


def _parameters(stone: Stone) -> dict[str, object]:
    return {key: value for key, value in vars(stone).items() if key not in ("name", "on")}


def _ways(slot: Slot) -> dict[int, list[tuple[str, str]]]:
    return {port: [(hop.slot.name, hop.input) for hop in hops] for port, hops in slot.ports.items() if hops}


def _entries(topology: Topology, changed: Collection[str], submitted: Collection[str]) -> frozenset[str]:
    upstream: dict[str, list[str]] = {}
    for slot in topology.slots.values():
        for hops in slot.ports.values():
            for hop in hops:
                upstream.setdefault(hop.slot.name, []).append(slot.name)
    reached, todo = set(changed), list(changed)
    while todo:
        for name in upstream.get(todo.pop(), ()):
            if name not in reached:
                reached.add(name)
                todo.append(name)
    return frozenset(
        name
        for name in reached
        if name in submitted or name in topology.entrances or topology.slots[name].makes_events
    )
