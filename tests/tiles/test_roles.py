"""The roles: what they send for one another, what they refuse, and that no death loses or doubles a match."""

from __future__ import annotations

import itertools
import math
import random
from dataclasses import replace
from unittest.mock import patch

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from evflow.errors import EvflowError
from evflow.tiles.client import Client
from evflow.tiles.frontend import Frontend
from evflow.tiles.layout import Layout
from evflow.tiles.manager import TileManager
from evflow.tiles.messages import ENTER, INSIDE, LEAVE, MATCH, Message, Outbox, Place, Rows
from evflow.tiles.ring import Ring
from evflow.tiles.state import StateManager
from evflow.tiles.store import Entities, Pairs, Seen, content_of
from tests.examples import tried
from tests.tiles.faults import FAULTS
from tests.tiles.rows import moves, outlines
from tests.tiles.simulation import Simulation, found
from tests.tiles.system import GRID, System
from tests.tiles.world import Box, Circle, Polygon, metres

FIRST = {
    "clients keep copies": 14,
    "dead State Managers are not forgotten": 77,
    "matches are not kept": 5,
    "old news counts": 66,
    "only the first part of a snapshot is told": 51,
    "tiles agree with those that are split": 75,
    "tiles of the next grid are not told": 15,
    "tiles that a group gets are not told": 51,
    "what a State Manager got is not told": 40,
    "what has come apart is not told": 1,
    "who leaves a tile counts as deleted": 4,
}


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


def test_an_outline_that_nobody_knows_is_refused() -> None:
    system = System(1)
    system.send(moves([Polygon(((0, 0), (0, 1e-4), (1e-4, 0)))]))
    assert system.refused == 1 and system.rows["moves to state"] == 0


def test_outlines_that_no_zone_has_any_more_are_forgotten() -> None:
    with patch("evflow.tiles.store.LEAST", 16):
        _forget_outlines(System(1, groups=1))


def _forget_outlines(system: System) -> None:
    kept = Polygon(((0, 0), (0, 1e-4), (1e-4, 0)))
    system.send(moves([kept], subscriptions=True), outlines([kept]))
    for version in range(100):
        moving = Polygon(((1, 1), (1, 1 + 1e-6 * version), (1.001, 1)))
        system.send(moves([moving], [1], version), outlines([moving]))
    system.send(moves([kept], [1], 2000), outlines([kept]))
    assert system.matches == [(1, 2000, 0, 0)]
    known = [role.contents.known for role in system.roles.values()]
    assert all(1 <= len(held) <= 40 for held in known)


@pytest.mark.parametrize("r", [1, 2])
def test_things_that_move_are_told_who_comes_near_and_goes(r: int) -> None:
    # Each thing publishes where it is, and subscribes to the circle around it.
    draw, near, system = random.Random(r), 300.0, System(r)
    corner = math.floor(6.6 * 32768 / 360) * 360 / 32768
    pubs: dict[int, tuple[float, float]] = {}
    subs: dict[int, tuple[float, float]] = {}
    around = set[tuple[int, int]]()
    for version in range(12):
        for thing in range(10):
            place = 46.5 + draw.uniform(-0.005, 0.005), corner + draw.uniform(-0.007, 0.007)
            for held, radius in ((pubs, 0.0), (subs, near)):
                system.events.clear()
                held[thing] = place
                rows = moves([Circle(*place, radius)], [thing], version, subscriptions=held is subs, asked=56)
                system.send(rows)
                now = {(i, j) for i, p in pubs.items() for j, s in subs.items() if metres(p, s) <= near}
                moved = {pair for pair in now & around if pair[held is subs] == thing}
                wanted = [("enter", *pair) for pair in now - around]
                wanted += [("leave", *pair) for pair in around - now] + [("inside", *pair) for pair in moved]
                assert sorted(system.events) == sorted(wanted)
                around = now


def test_only_the_events_that_a_subscription_asks_for_are_told() -> None:
    system, here, there = System(2), Circle(46.5, 6.6, 50.0), Circle(46.6, 6.6, 50.0)
    asked = [ENTER, INSIDE, LEAVE, ENTER | LEAVE, 0]
    system.send(moves([here] * 5, range(5), subscriptions=True, asked=asked))
    for version, zone in enumerate([here, here, there, here, None]):
        system.send(moves([zone], [9], version))
    wanted = {0: ["enter", "enter"], 1: ["inside"], 2: ["leave", "leave"], 3: ["enter", "leave"] * 2}
    wanted[4] = ["match"] * 3
    assert {s: [event for event, _, sub in system.events if sub == s] for s in range(5)} == wanted


def test_nothing_leaves_a_subscription_that_is_deleted_or_asks_for_matches() -> None:
    system, here, there = System(1), Circle(46.5, 6.6, 50.0), Circle(46.6, 6.6, 50.0)
    system.send(moves([here] * 2))
    for version, (zone, asked) in enumerate(
        [(here, 56), (None, 0), (there, 56), (here, 56), (here, 0), (here, 56)]
    ):
        system.send(moves([zone], [9], version, subscriptions=True, asked=asked))
    events = [event for event, pub, _ in system.events if pub == 0]
    assert events == ["enter", "enter", "match", "enter"]
    # What is the same once more is not told: its version is old.
    system.send(moves([there], [0], 1))
    assert system.events[-1] == ("leave", 0, 9)


def test_nothing_of_a_subscription_that_was_deleted_is_told_of_one_that_takes_its_id() -> None:
    client = Client(Place("client", 0), Place("frontend", 0))
    for version, zone in enumerate([Circle(46.5, 6.6, 50), None, Circle(47.5, 6.6, 50)]):
        client.send(moves([zone], [7], version, subscriptions=True, asked=56))
    told = []
    for number, version in enumerate([0, 2]):
        rows = np.zeros(1, MATCH)
        rows["pub"], rows["sub"], rows["sub_version"], rows["event"] = number, 7, version, 7
        told += client.receive(client.frontend, Message("matches", rows, number))[0]["sub_version"].tolist()
    assert told == [2]


def test_pairs_that_are_apart_are_forgotten_and_those_inside_are_not() -> None:
    pairs, none = Pairs(64), Entities()
    rows = np.zeros(50, MATCH)
    rows["pub"], rows["event"] = np.arange(50), 7
    assert pairs.follow(rows, none).all() and set(rows["event"]) == {1}
    for start in range(100, 2100, 100):
        for event, number in ((7, 1), (15, 3)):
            rows["pub"], rows["event"] = np.arange(start, start + 50), event
            rows["pub_version"] = number
            assert pairs.follow(rows, none).all() and set(rows["event"]) == {number}
    assert len(pairs) <= 400
    rows["pub"], rows["event"], rows["pub_version"] = np.arange(50), 15, 1
    assert pairs.follow(rows, none).all() and set(rows["event"]) == {3}


def test_many_matches_of_a_batch_need_not_fit_at_once() -> None:
    system = System(1, groups=1)
    n = 120
    system.send(moves([Circle(0, 0, 1)] * 2 * n, range(2 * n), subscriptions=[True] * n + [False] * n))
    assert len(set(system.matches)) == len(system.matches) == n * n


@given(
    st.lists(st.lists(st.integers(0, 99), max_size=40), max_size=9),
    st.integers(0, 64),
)
def test_a_bounded_set_remembers_the_newest_keys(batches: list[list[int]], most: int) -> None:
    seen, entered = Seen(most), list[int]()
    for batch in batches:
        rows = np.zeros(len(batch), MATCH)
        rows["pub"], rows["sub_version"] = np.array(batch, int) % 7, np.array(batch, int) // 7
        for key, is_fresh in zip(batch, seen.fresh(rows).tolist(), strict=True):
            assert is_fresh or key in entered
            assert not is_fresh or key not in entered[-max(most // 2, 1) :]
            entered += [key] * is_fresh


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


def _fronted() -> tuple[Frontend, Place, list[Place]]:
    """A Frontend with a client, and two replicas of a Tile Manager."""
    layout = Layout(GRID, Ring({0: ("a", "b")}), Ring({0: ("a", "b")}))
    front, client = Frontend(Place("frontend", 0), layout), Place("client", 5)
    front.receive(client, Message("moved", moves([Circle(0, 0, 1)])))
    return front, client, layout.replicas("tile", 0)


def _matches(*pubs: int, client: int = 5) -> Rows:
    rows = np.zeros(len(pubs), MATCH)
    rows["pub"], rows["issuer"] = pubs, client
    return rows


def _told(outbox: Outbox) -> list[tuple[Place, str, int, list[int]]]:
    return [(place, sent.kind, sent.number, [row[0] for row in sent.rows.tolist()]) for place, sent in outbox]


def test_all_copies_of_a_match_are_acknowledged_once_its_client_has_the_first() -> None:
    front, client, (one, other) = _fronted()
    ((_, told),) = front.receive(one, Message("matches", _matches(1, 2), 7))
    # Of these it has one, and one is new.
    ((_, more),) = front.receive(other, Message("matches", _matches(2, 3), 8))
    assert (told.rows["pub"].tolist(), more.rows["pub"].tolist()) == ([1, 2], [3])
    assert front.receive(client, Message("ack", number=more.number)) == []
    acknowledged = front.receive(client, Message("ack", number=told.number))
    assert _told(acknowledged) == [(one, "ack", 7, []), (other, "ack", 8, [])]
    # What comes later than that is acknowledged at once.
    assert _told(front.receive(other, Message("matches", _matches(1), 9))) == [(other, "ack", 9, [])]


def test_all_who_sent_a_match_get_it_back_if_its_client_goes_and_send_it_again() -> None:
    front, client, (one, other) = _fronted()
    ((_, told),) = front.receive(one, Message("matches", _matches(1, 2), 7))
    front.receive(client, Message("ack", number=told.number))
    ((_, told),) = front.receive(one, Message("matches", _matches(3, 4), 8))
    assert front.receive(other, Message("matches", _matches(1, 2, 3), 8)) == []
    assert _told(front.disconnect(client)) == [(one, "ack", 8, [3, 4]), (other, "ack", 8, [3])]
    assert _told(front.receive(other, Message("matches", _matches(4), 9))) == [(other, "ack", 9, [4])]
    front.receive(client, Message("moved", moves([Circle(0, 0, 1)])))
    ((_, told),) = front.receive(other, Message("matches", _matches(3, 4), 10))
    assert told.rows["pub"].tolist() == [3, 4] and front.copies == 3
    assert front.receive(one, Message("matches", _matches(4, 3), 9)) == []
    assert len(front.receive(client, Message("ack", number=told.number))) == 2


@pytest.mark.parametrize("seed", range(tried(3)))
def test_no_match_is_lost_or_doubled_at_whatever_moment_a_host_dies(seed: int) -> None:
    for moment in itertools.count(seed, 5):
        play = Simulation(seed, 2)
        for _ in range(4):
            play.act()
        if not all(play.step() for _ in range(moment)):
            break
        front = play.clients[0].frontend
        play.kill(next(host for host, mine in play.places.items() if front in mine))
        play.settle()
        play.check()


@pytest.mark.parametrize("taken", range(4))
def test_a_client_that_connects_anew_is_told_what_it_has_not_acknowledged(taken: int) -> None:
    system, here = System(2), Circle(46.5, 6.6, 100)
    system.send(moves([here], [1], subscriptions=True))
    system.most = taken
    for pub in range(3):
        system.send(moves([here], [9 + pub]))
    assert len(system.matches) == taken
    system.most = 9
    system.rows.clear()
    system.carry(system.client.moved_to(system.client.frontend))
    assert system.rows["matches to client"] == 3 - taken
    assert len(system.matches) == 3 and system.client.copies == 0
    kept = [role.counts["kept"] for role in system.roles.values() if isinstance(role, TileManager)]
    assert not any(kept)
    # Its next matches come where it is connected now.
    system.send(moves([here], [9], 1))
    assert len(system.matches) == 4


@pytest.mark.parametrize("groups", [1, 2])
@pytest.mark.parametrize("roles", [("state",), ("tile",), ("state", "tile")])
def test_a_replica_that_has_caught_up_tells_a_client_that_connects_anew_what_it_was_not_told(
    roles: tuple[str, ...], groups: int
) -> None:
    system, here = System(2, groups), [Circle(46.5, 6.6, 100)]
    system.send(moves(here, [1], subscriptions=True))
    system.most = 0
    system.send(moves(here, [8]))
    system.die(1, roles)
    system.send(moves(here * 3, [8, 9, 10], [1, 0, 0]))
    system.start(1, roles)
    assert all(role.ready for role in system.roles.values() if not isinstance(role, Frontend))
    system.die(0, ("state", "tile"))
    system.most = 9
    system.carry(system.client.moved_to(system.client.frontend))
    # What it has kept of a state that was replaced meanwhile may come, too.
    assert sorted(set(system.matches) - {(8, 0, 1, 0)}) == [(8, 1, 1, 0), (9, 0, 1, 0), (10, 0, 1, 0)]
    # From then on it has seen all itself.
    system.rows.clear()
    system.carry(system.client.moved_to(system.client.frontend))
    assert system.rows["matches to client"] == 0


@pytest.mark.parametrize("seed", range(tried(3)))
def test_no_match_is_lost_where_only_a_replica_that_has_caught_up_is_left(seed: int) -> None:
    play = Simulation(seed, 2)
    play.is_slow = True
    for _ in range(12):
        play.act()
    hosts = sorted(play.plans)
    for dead, gone in ((host, host ^ 1) for host in hosts[:2]):
        _deliver_all_but_to_clients(play)
        play.kill(dead)
        play.act()
        _deliver_all_but_to_clients(play)
        play.revive(dead)
        _deliver_all_but_to_clients(play)
        play.kill(gone)
        play.settle()
        # Of what moved twice the state in between may be skipped.
        play.changing = True
        play.check()
        play.revive(gone)
        play.settle()
        for _ in range(4):
            play.act()


def test_copies_that_are_acknowledged_before_the_client_has_the_match_are_missed() -> None:
    _lose_a_frontend(1)
    at_once = patch("evflow.tiles.frontend.Frontend._wait", lambda self, delivery, number, copies: None)
    with at_once, pytest.raises(AssertionError, match="missing"):
        _lose_a_frontend(1)


def _lose_a_frontend(seed: int) -> None:
    """The host of a Frontend dies when its clients have not taken anything."""
    play = Simulation(seed, 2)
    play.is_slow = play.changing = True
    for _ in range(12):
        play.act()
    _deliver_all_but_to_clients(play)
    front = play.clients[0].frontend
    play.kill(next(host for host, mine in play.places.items() if front in mine))
    play.settle()
    play.check()


def _deliver_all_but_to_clients(play: Simulation) -> None:
    while any(held and target.role != "client" for (_, target), held in play.links.items()):
        play.step()


def test_what_changes_while_the_parts_of_a_snapshot_are_under_way_stays_right() -> None:
    layout = Layout(GRID, Ring({0: ("a", "b")}), Ring({0: ("a", "b")}))
    front, here, there = Place("frontend", 0), Circle(1.0, 2.0, 10.0), Circle(3.0, 4.0, 10.0)
    donor, other = (StateManager(Place("state", 0, i), layout, ready=not i) for i in (0, 1))
    given = [(here, 1)] * 20
    donor.receive(front, Message("moves", moves([zone for zone, _ in given], range(20), 1)))
    with patch("evflow.tiles.state.MOST_ROWS", 6):
        other.start([front])
        asked, parts = other.receive(front, Message("welcome")), 0
        while asked:
            assert not other.ready
            ((_, part),) = donor.receive(other.place, asked[0][1])
            # One that has gone over, one that has not, one that is new, and two that are deleted.
            rows = moves([there, there, here, None, None], [0, 19, 20 + parts, 1, 18], 2 + parts)
            for role in (donor, other):
                role.receive(front, Message("moves", rows, 1))
            asked = [sent for sent in other.receive(donor.place, part) if sent[0] == donor.place]
            parts += 1
    assert parts > 3 and other.ready and other.counts["live"] == donor.counts["live"] == 18 + parts
    assert {bytes(row) for row in other.entities.rows} == {bytes(row) for row in donor.entities.rows}


def test_who_lacked_what_it_was_asked_for_is_asked_again_once_another_one_has_died() -> None:
    layout = Layout(GRID, Ring({0: ("a", "b", "c")}), Ring({0: ("a", "b", "c")}))
    front, rows = Place("frontend", 0), moves([Circle(1.0, 2.0, 10.0)] * 5)
    donor, one, other = (StateManager(Place("state", 0, i), layout, ready=not i) for i in range(3))
    donor.receive(front, Message("moves", rows, 1))
    asked = list[dict[Place, Message]]()
    for role in (one, other):
        role.start([front])
        asked.append(dict(role.receive(front, Message("welcome"))))
    # The other one lacks all, too; it gets that of the donor, which dies then.
    assert other.receive(one.place, asked[0][other.place]) == []
    ((_, part),) = donor.receive(other.place, asked[1][donor.place])
    other.receive(donor.place, part)
    assert other.ready and not one.ready
    other.down(donor.place)
    ((_, part),) = other.receive(one.place, dict(one.down(donor.place))[other.place])
    one.receive(other.place, part)
    assert one.ready and one.counts["live"] == 5


def test_what_one_asked_that_died_is_not_answered() -> None:
    ring = Ring({0: ("a", "b")})
    layouts = [Layout(GRID, ring, ring, version=version) for version in (0, 1)]
    front = Place("frontend", 0)
    donor, other = StateManager(Place("state", 0), layouts[0]), Place("state", 0, 1)
    question = Message("ask", number=layouts[1].stage)
    assert donor.receive(other, question) == []
    donor.down(other)
    assert other not in dict(donor.adopt(layouts[1], [front]))
    # Nor does one that is not welcome yet take what it has not asked for.
    begun = StateManager(other, layouts[1], ready=False)
    begun.start([front])
    begun.receive(donor.place, donor.receive(other, question)[0][1])
    assert not begun.ready
    begun.receive(front, Message("welcome"))
    begun.receive(donor.place, donor.receive(other, question)[0][1])
    assert begun.ready


def test_a_part_that_is_not_the_next_one_is_not_taken() -> None:
    layout = Layout(GRID, Ring({0: ("a",)}), Ring({0: ("a",)}))
    state, tile = StateManager(Place("state", 0), layout), TileManager(Place("tile", 0), layout, life=1)
    rows = moves([Circle(46.52, 6.63, 1)] * 10)
    state.receive(Place("frontend", 0), Message("moves", rows, 1))
    with patch("evflow.tiles.state.MOST_ROWS", 3):
        asked, live = tile.start(), list[int]()
        while asked:
            ((_, question),) = asked
            for at in (question.at + 3, question.at):
                ((_, part),) = state.receive(tile.place, replace(question, at=at))
                assert not tile.ready
                asked = tile.receive(state.place, part)
                live.append(tile.counts["live"])
    assert tile.ready and live == [0, 3, 3, 6, 6, 9, 9, 10]


@pytest.mark.slow
@pytest.mark.parametrize("r", [1, 2, 3])
def test_no_death_loses_or_doubles_a_match(r: int) -> None:
    assert not found(range(tried(2)), r)
    # In these the grid changes, too.
    assert not found(range(3, 3 + 4 * tried(2), 4), r)


@pytest.mark.slow
@pytest.mark.parametrize("fault", sorted(FAULTS))
def test_the_simulation_finds_faults(fault: str) -> None:
    with patch(*FAULTS[fault]):
        # From a seed on that shows it.
        assert found(range(FIRST.get(fault, 0), 1000), 2)


def test_a_match_that_came_among_others_is_not_fresh_when_it_comes_alone() -> None:
    rows, seen = np.zeros(3, MATCH), Seen(100)
    rows["pub"] = range(3)
    assert seen.fresh(rows).all()
    assert [bool(seen.fresh(rows[at : at + 1]).any()) for at in (1, 2, 0)] == [False] * 3
