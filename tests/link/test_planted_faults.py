"""The simulation finds faults that are planted into the protocol, within some hundred seeds."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from evflow.engine.topology import Crossing
from evflow.net.link import delivery, link, session
from evflow.net.link.delivery import Delivery
from evflow.net.link.downstream import Downstream
from evflow.net.link.hub import Hub
from evflow.net.link.inlet import Inlet
from evflow.net.link.outlet import Outlet
from evflow.net.link.provenance import Provenance, Seen, next_route
from tests.link.simulation.process import Process
from tests.link.simulation.runner import one
from tests.link.simulation.sharing import Sharing

pytestmark = pytest.mark.slow

Patch = pytest.MonkeyPatch


def acknowledges_what_is_consumed(patch: Patch) -> None:
    patch.setattr(Delivery, "_is_safe", lambda self, pending, ask_stones=True: True)


def takes_what_is_being_handled_for_safe(patch: Patch) -> None:
    patch.setattr(Inlet, "handling", property(lambda self: 0, lambda self, value: None))


def leaves_links_alone(patch: Patch) -> None:
    patch.setattr(Process, "_serve", lambda self: None)


def sends_nothing_again(patch: Patch) -> None:
    def disconnected(self: Outlet) -> None:
        self.state = "closed"
        self._sent.clear()
        self._kept_bytes = sum(frame.size for frame in self._unsent)

    patch.setattr(Outlet, "disconnected", disconnected)


def takes_all_for_new(patch: Patch) -> None:
    patch.setattr(Seen, "is_new", lambda self, tag, peer="", stone="": True)


def ignores_credit(patch: Patch) -> None:
    def ready(self: Outlet) -> bool:
        free = self._kept_bytes < self.terms.limit
        return self.state == "open" and free and bool(self._unsent or self.waiting.first is not None)

    patch.setattr(Outlet, "ready", property(ready))


def forgets_holds(patch: Patch) -> None:
    patch.setattr(Downstream, "holds", lambda self: [])


def forgets_what_comes_of_a_duplicate(patch: Patch) -> None:
    patch.setattr(delivery, "_now", lambda outlets: [])


def never_blocks(patch: Patch) -> None:
    patch.setattr(Downstream, "blocked", lambda self, slot, leaving=False, inlet=None: False)


def gives_no_credit_back(patch: Patch) -> None:
    original = Inlet.take

    def take(self: Inlet) -> Any:
        returned = self._returned
        arrived = original(self)
        self._returned = returned
        return arrived

    patch.setattr(Inlet, "take", take)


def swaps_frames(patch: Patch) -> None:
    original = Outlet.disconnected

    def disconnected(self: Outlet) -> None:
        original(self)
        self._unsent.reverse()

    patch.setattr(Outlet, "disconnected", disconnected)


def releases_shared_memory_at_once(patch: Patch) -> None:
    original = Sharing.view

    def view(self: Sharing, place: list[int]) -> Any:
        self._released.append(place[0])
        return original(self, place)

    patch.setattr(Sharing, "view", view)
    # As events of numbers do, all that comes stays where it is.
    patch.setattr(session, "steadied", lambda schema, data, count, keep: data)


def loses_frames_without_a_count(patch: Patch) -> None:
    def count_lost(self: Outlet, received: int) -> None:
        self._sent.clear()

    patch.setattr(Outlet, "_count_lost", count_lost)


def forgets_the_journal(patch: Patch) -> None:
    original = Delivery.__init__

    def init(self: Delivery, *given: Any, **named: Any) -> None:
        original(self, *given, **named)
        self._seen.clear()

    patch.setattr(Delivery, "__init__", init)


def never_hears_silence(patch: Patch) -> None:
    patch.setattr(link, "_SILENCES", 1e9)


def learns_nothing(patch: Patch) -> None:
    patch.setattr(Delivery, "learn", lambda self, stone, known: None)


def waits_for_nothing(patch: Patch) -> None:
    patch.setattr(Hub, "waiting_for", lambda self, entries, bridges: "")


def sends_nothing_again_elsewhere(patch: Patch) -> None:
    original = Outlet.readdressed

    def readdressed(self: Outlet, address: Crossing) -> None:
        original(self, address)
        self._unsent.clear()
        self._kept_bytes = 0

    patch.setattr(Outlet, "readdressed", readdressed)


def forgets_what_is_held_when_a_bridge_ends(patch: Patch) -> None:
    patch.setattr(Outlet, "retire", Outlet.remains)


def keeps_the_tags_of_bridges_that_have_ended(patch: Patch) -> None:
    original = Outlet.retire

    def retire(self: Outlet) -> Any:
        tags = {frame.sequence: frame.tag for frame in (*self._sent, *self._unsent)}
        given = original(self)
        for frame in self._unsent:
            frame.tag = tags[frame.sequence]
        return given

    patch.setattr(Outlet, "retire", retire)


def names_nodes_in_routes(patch: Patch) -> None:
    def route_onward(self: Inlet, tag: Provenance) -> bytes:
        return next_route(tag.route, f"{self.peer}\0{self.bridge}\0{self.slot.name}\0{self.input}")

    patch.setattr(Inlet, "route_onward", route_onward)


FAULTS: list[tuple[Callable[[Patch], None], str, str]] = [
    (acknowledges_what_is_consumed, "chain", "lost"),
    (takes_what_is_being_handled_for_safe, "chain", "lost"),
    (leaves_links_alone, "pair", "silent"),
    (sends_nothing_again, "pair", ""),
    (takes_all_for_new, "chain", "came twice"),
    (ignores_credit, "chain", ""),
    (forgets_holds, "queue", "lost"),
    (forgets_what_comes_of_a_duplicate, "queue", "lost"),
    (never_blocks, "chain", "owes"),
    (gives_no_credit_back, "pair", "does not come to an end"),
    (swaps_frames, "pair", ""),
    (releases_shared_memory_at_once, "chain", ""),
    (loses_frames_without_a_count, "at most once", "dropped"),
    (forgets_the_journal, "pair", "came twice"),
    (learns_nothing, "move end", "came twice"),
    (waits_for_nothing, "move", "given up"),
    (sends_nothing_again_elsewhere, "move", ""),
    (forgets_what_is_held_when_a_bridge_ends, "move before storage", "lost"),
    (keeps_the_tags_of_bridges_that_have_ended, "move before storage", "lost"),
    (names_nodes_in_routes, "give up chain", "came twice"),
    (never_hears_silence, "pair", "does not come to an end"),
]


_BEGIN = {
    "acknowledges_what_is_consumed": 21,
    "takes_what_is_being_handled_for_safe": 129,
    "ignores_credit": 17,
    "takes_all_for_new": 6,
    "releases_shared_memory_at_once": 7,
    "forgets_the_journal": 26,
    "learns_nothing": 43,
    "forgets_what_is_held_when_a_bridge_ends": 16,
    "keeps_the_tags_of_bridges_that_have_ended": 194,
    "names_nodes_in_routes": 246,
    "never_hears_silence": 14,
}
"""Faults that seeds find seldom, and the seed to begin with."""


@pytest.mark.parametrize(("plant", "name", "wrong"), FAULTS, ids=[fault[0].__name__ for fault in FAULTS])
def test_planted_fault_is_found(
    plant: Callable[[Patch], None], name: str, wrong: str, monkeypatch: Patch
) -> None:
    plant(monkeypatch)
    first = _BEGIN.get(plant.__name__, 0)
    for seed in range(first, first + 500):
        found = one((name, seed))[3]
        if found:
            assert wrong in found
            return
    pytest.fail(f"500 seeds of {name!r} have not found it")
