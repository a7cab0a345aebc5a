"""The roles: what they send for one another, what they refuse, and that no death loses or doubles a match."""

from __future__ import annotations

import math
from collections import Counter
from unittest.mock import patch

import numpy as np
import pytest

from evflow.errors import EvflowError
from evflow.tiles.client import Client
from evflow.tiles.frontend import Frontend
from evflow.tiles.grid import Grid
from evflow.tiles.layout import Layout
from evflow.tiles.manager import TileManager
from evflow.tiles.messages import MATCH, Message, Outbox, Place, Rows
from evflow.tiles.ring import Ring
from evflow.tiles.state import StateManager
from evflow.tiles.store import Seen, content_of
from tests.examples import tried
from tests.tiles.rows import moves
from tests.tiles.simulation import FAULTS, found
from tests.tiles.world import Box, Circle

GRID = Grid(15)
FIRST = {
    "a change ends before all have caught up": 7,
    "dead State Managers are not forgotten": 50,
    "matches are not kept": 77,
    "tiles that a group gets are not told": 214,
    "what a State Manager got is not told": 30,
}


class System:
    """All roles, and a network without delays that counts rows."""

    def __init__(self, r: int, groups: int = 2) -> None:
        ring = Ring({g: tuple(f"h{g}{i}" for i in range(r)) for g in range(groups)})
        layout = Layout(GRID, ring, ring)
        self.roles: dict[Place, Frontend | StateManager | TileManager] = {}
        for group in range(groups):
            for state, tile in zip(
                layout.replicas("state", group), layout.replicas("tile", group), strict=True
            ):
                self.roles[state], self.roles[tile] = StateManager(state, layout), TileManager(tile, layout)
        front = Place("frontend", 0)
        self.roles[front] = Frontend(front, layout)
        self.client = Client(Place("client", 0), front)
        self.rows = Counter[str]()
        self.matches: list[tuple[int, ...]] = []
        self.refused = self.steps = 0

    def send(self, rows: Rows, contents: dict[int, tuple[tuple[str, object], ...]] | None = None) -> None:
        waiting = [(1, self.client.place, *sent) for sent in self.client.send(rows, contents)]
        while waiting:
            step, sender, target, message = waiting.pop(0)
            self.rows[f"{message.kind} to {target.role}"] += len(message.rows)
            if message.kind != "ack":
                self.steps = max(self.steps, step)
            waiting += [(step + 1, target, *sent) for sent in self._taken(sender, target, message)]

    def _taken(self, sender: Place, target: Place, message: Message) -> Outbox:
        if target.role != "client":
            return self.roles[target].receive(sender, message)
        self.refused += len(message.rows) if message.kind == "refused" else 0
        rows, outbox = self.client.receive(sender, message)
        names = ("pub", "pub_version", "sub", "sub_version") if message.kind == "matches" else ()
        self.matches += zip(*(rows[name].tolist() for name in names), strict=True) if names else []
        return outbox


@pytest.mark.parametrize("r", [1, 2, 3])
def test_an_update_takes_the_messages_that_section_iv_says(r: int) -> None:
    system = System(r)
    # Two tiles meet here: what lies across is matched in both, and told by one.
    border = math.floor(6.6 * 32768 / 360) * 360 / 32768
    system.send(
        moves([Circle(46.5, border + k * 1e-4, 50.0) for k in range(5)], range(1, 6), subscriptions=True)
    )
    before, after = (
        moves([Circle(46.5, border + 0.005, 50.0)], [9]),
        moves([Circle(46.5, border, 60.0)], [9], 1),
    )
    system.send(before)
    system.rows.clear()
    system.steps = 0
    system.send(after)
    t, d = len(GRID.tiles(after)[1]), len(set(GRID.tiles(before)[1]) - set(GRID.tiles(after)[1]))
    m = len([match for match in system.matches if match[1] == 1])
    assert (t, m) == (2, 5)
    assert system.rows["moves to frontend"] == 1
    assert system.rows["moves to state"] == r
    assert system.rows["moves to tile"] == r * (t + d)
    assert system.rows["matches to frontend"] == r * m
    assert system.rows["matches to client"] == m
    assert system.steps == 5


def test_a_match_needs_the_attributes_of_the_subscription() -> None:
    sets = [{}, {"kind": "taxi"}, {"kind": "taxi", "seats": 4}, {"seats": 4.0}, {"seats": 5}, {"seats": True}]
    contents = [content_of(each) for each in sets]
    system = System(1)
    numbers = [number for number, _ in contents] * 2
    here = [Circle(1.0, 2.0, 10.0)] * 12
    rows = moves(here, range(12), subscriptions=[False] * 6 + [True] * 6, contents=numbers)
    system.send(rows, {number: content for number, content in contents if number})
    wanted = [
        (p, 0, 6 + s, 0) for p, pub in enumerate(sets) for s, sub in enumerate(sets) if _within(sub, pub)
    ]
    assert sorted(system.matches) == sorted(wanted)


def _within(sub: dict[str, object], pub: dict[str, object]) -> bool:
    """As attributes are compared: a truth value is no number."""
    return all(
        k in pub and pub[k] == v and (type(v) is bool) == (type(pub[k]) is bool) for k, v in sub.items()
    )


def test_late_moves_are_dropped_and_counted() -> None:
    system = System(1, groups=1)
    system.send(moves([Circle(0, 0, 5)], [1], 5))
    system.send(moves([Circle(1, 1, 5), Circle(1, 1, 5)], [1, 1], [4, 5]))
    system.send(moves([Circle(1, 1, 5)], [2], subscriptions=True))
    state = system.roles[Place("state", 0)]
    assert isinstance(state, StateManager) and state.counts == {"live": 2, "late": 2, "refused": 0}
    assert system.matches == []


def test_what_others_have_published_cannot_be_moved() -> None:
    system = System(1, groups=1)
    system.send(moves([Circle(0, 0, 5)], [1]))
    own, system.client = system.client, Client(Place("client", 7), Place("frontend", 0))
    system.send(moves([None], [1], 9))
    state = system.roles[Place("state", 0)]
    assert isinstance(state, StateManager) and state.counts == {"live": 1, "late": 0, "refused": 1}
    system.client = own
    system.send(moves([Circle(0, 0, 5)], [2], subscriptions=True))
    assert system.matches == [(1, 0, 2, 0)]


def test_zones_that_are_none_or_too_large_are_refused() -> None:
    wrong = [
        *(
            Circle(math.nan, 0, 1),
            Circle(91, 0, 1),
            Circle(0, 181, 1),
            Circle(0, 0, -1),
            Circle(0, 0, math.inf),
        ),
        *(Box(1, 0, 0, 1), Box(0, 1, 1, 0), Box(0, 0, 1, 361), Circle(0, 0, 1e6), Box(-90, -180, 90, 180)),
    ]
    system = System(1)
    system.send(moves([*wrong, Circle(0, 0, 1)]))
    assert system.refused == len(wrong) and system.rows["moves to state"] == 1


def test_one_number_for_two_sets_of_attributes_is_an_error() -> None:
    system = System(1)
    system.send(moves([Circle(0, 0, 1)], contents=5), {5: (("a", 1),)})
    system.client = Client(Place("client", 7), Place("frontend", 0))
    system.send(moves([Circle(0, 0, 1)], [1], contents=5), {5: (("a", 2),)})
    assert system.refused == 1
    with pytest.raises(EvflowError, match="expected text, a number or a truth value"):
        content_of({"a": [1]})


def test_many_matches_of_a_batch_need_not_fit_at_once() -> None:
    system = System(1, groups=1)
    n = 120
    system.send(moves([Circle(0, 0, 1)] * 2 * n, range(2 * n), subscriptions=[True] * n + [False] * n))
    assert len(set(system.matches)) == len(system.matches) == n * n


def test_a_bounded_set_remembers_the_newest_keys() -> None:
    seen = Seen(64)
    rows = np.zeros(1000, MATCH)
    rows["pub"] = np.arange(1000)
    assert seen.fresh(rows).all()
    assert not seen.fresh(rows[-32:]).any() and seen.fresh(rows[:32]).all()


def test_what_has_left_is_forgotten_in_time() -> None:
    layout = Layout(GRID, Ring({0: ("a",)}), Ring({0: ("a",)}))
    state, tile = StateManager(Place("state", 0), layout), TileManager(Place("tile", 0), layout, gone=10)
    for version in range(20):
        zones = [Circle(version, k, 1.0) for k in range(40)]
        for zone in (zones, [None] * 40):
            rows = moves(zone, range(version * 40, version * 40 + 40), 1 + (zone is not zones))
            for target, message in state.receive(Place("frontend", 0), Message("moves", rows, 1)):
                if target.role == "tile":
                    tile.receive(state.place, message)
    assert tile.counts["live"] == 0 and len(tile.entities) < 200


@pytest.mark.parametrize(
    "r", [pytest.param(1, marks=pytest.mark.slow), pytest.param(2, marks=pytest.mark.slow), 3]
)
def test_no_death_loses_or_doubles_a_match(r: int) -> None:
    assert not found(range(tried(4)), r)


@pytest.mark.slow
@pytest.mark.parametrize("fault", sorted(FAULTS))
def test_the_simulation_finds_faults(fault: str) -> None:
    with patch(*FAULTS[fault]):
        # From a seed on that shows it.
        assert found(range(FIRST.get(fault, 0), 1000), 2)
