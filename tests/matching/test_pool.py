"""The pool of the index: bitmaps over buckets of values, for filters that no list of their own would find."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pytest

from evflow.matching import Matcher
from evflow.matching.index import arranging, engine, layout
from evflow.matching.index.arranging import Counts, choose_axes, pool_instead
from evflow.matching.model import Constraint, Filter, Op, Subscription
from tests.matching.play import Play
from tests.matching.side import Side, circle, constraint, event

NAMES = "abcdefghijklmnopqrstABCDEF"
WIDE = [f"w{i}" for i in range(20)]


class Moves:
    """How often filters went to the pool, to a pool with other axes, and back to lists.

    Attributes:
        cost: what the pool is said to cost, whenever the index asks.
    """

    def __init__(self, cost: Callable[[], float]) -> None:
        self.into = self.renewed = self.back = 0
        self.cost = cost

    def least(self) -> int:
        return min(self.into, self.renewed, self.back)


@pytest.fixture
def restless(monkeypatch: pytest.MonkeyPatch) -> Iterator[Moves]:
    """Has the index move filters to the pool and back all the time, by chance."""
    moves, arrange = Moves(partial(Random(1).choice, [-1e30, 1e30])), arranging.Arranging.arrange

    def counted(self: Any) -> None:
        before = self._state[layout.POOLED]
        arrange(self)
        after = self._state[layout.POOLED]
        moves.into += after > before
        moves.back += after < before
        moves.renewed += bool(before and after)

    monkeypatch.setattr(arranging.Arranging, "arrange", counted)
    monkeypatch.setattr(engine, "_SELDOM", 0)
    monkeypatch.setattr(arranging, "FEWEST", 1)
    monkeypatch.setattr(arranging, "ENTER", 0.0)
    monkeypatch.setattr(arranging, "BETTER", 1e-40)
    monkeypatch.setattr(arranging, "pool_instead", lambda *_: moves.cost())
    yield moves


def ranges(random: Random, count: int, names: list[str], width: float = 0.3) -> list[Filter]:
    """Filters of a few ranges each; some open at one end."""
    made = []
    for _ in range(count):
        parts = []
        for name in random.sample(names, random.randint(1, 5)):
            low = round(random.uniform(0, 1 - width), random.choice([2, 17]))
            kind = random.random()
            if kind < 0.9:
                parts.append(Constraint(name, random.choice([Op.GE, Op.GT]), low))
            if kind > 0.1:
                parts.append(Constraint(name, random.choice([Op.LE, Op.LT]), low + width))
        made.append(Filter(tuple(parts)))
    return made


def happened(random: Random, names: list[str], share: float = 1.0) -> dict[str, Any]:
    return {name: round(random.random(), random.choice([2, 17])) for name in names if random.random() < share}


def pooled(side: Side) -> int:
    return side.told()["pool.filters"]


def to_pool(side: Side, random: Random) -> None:
    """Matches wide events until the filters stand in the pool."""
    for _ in range(20):
        side.matcher.match_batch([happened(random, WIDE) for _ in range(100)])
        if pooled(side):
            return
    raise AssertionError("the filters stay where they are")


@pytest.mark.slow
def test_random_calls_give_what_the_oracle_says(restless: Moves, tmp_path: Path) -> None:
    for seed in range(7):
        play = Play(Random(seed), partial(Matcher, "index"), tmp_path / str(seed))
        for _ in range(3):
            play.run(3)
            for _ in range(4):
                play.match_batch()
    assert restless.least() > 4


@pytest.mark.slow
def test_ranges_equalities_patterns_and_areas_stand_side_by_side(restless: Moves, tmp_path: Path) -> None:
    random, side = Random(2), Side()
    for turn in range(6):
        filters = [
            Filter(tuple(constraint(random, n) for n in random.sample(NAMES, random.randint(1, 4))))
            for _ in range(700)
        ]
        filters += [
            Filter((constraint(random, "a"), constraint(random, "A")), circle(random, 0.2)) for _ in range(60)
        ]
        filters += [Filter((Constraint("b", Op.EQ, 1.0), constraint(random, "c")))] * 70
        side.add(filters)
        held = sorted(side.oracle.held)
        side.remove(random.sample(held, len(held) // 3))
        for share in (0.1, 0.6, 1.0):
            assert side.check([event(random, NAMES, share) for _ in range(3)]) >= 0
        if turn % 2:
            side.matcher.save(tmp_path / "saved")
            side.matcher = Matcher.load(tmp_path / "saved")
    assert restless.least() > 0


def test_signatures_stay_while_their_filters_leave_the_pool(restless: Moves) -> None:
    random, side = Random(10), Side()
    restless.cost = lambda: -1e30
    side.add(ranges(random, 40, WIDE))
    side.check([happened(random, WIDE)] * 3)
    # These filters leave the pool last, when others have long wanted new lists.
    side.add(ranges(random, 600, WIDE))
    equal = [Constraint("w0", Op.EQ, float(i)) for i in range(90)]
    ids = side.add([Filter((one, Constraint(name, Op.LE, 0.9))) for name in WIDE[1:] for one in equal])
    assert pooled(side) > 1500
    side.remove(random.sample(ids, len(ids) // 3))
    restless.cost = lambda: 1e30
    for _ in range(4):
        side.check([happened(random, WIDE), {name: random.choice([0.0, 0.5]) for name in WIDE}])
    assert restless.back > 0


@pytest.mark.slow
def test_wide_events_bring_ranges_to_the_pool_and_narrow_ones_back() -> None:
    random, side = Random(3), Side()
    side.add(ranges(random, 3000, WIDE))
    assert pooled(side) == 0
    to_pool(side, random)
    assert pooled(side) == 3000
    assert side.told()["pool.axes"] == 20
    assert side.told()["own.filters"] == 0
    assert side.check([happened(random, WIDE, share) for share in (0.0, 0.2, 0.9, 1.0)]) > 0
    # Bitmaps are looked through for these events, while no list could hold anything for them.
    narrow = side.matcher.prepare([happened(random, ["other"]) for _ in range(500)])
    for _ in range(400):
        side.matcher.match_batch(narrow)
        if not pooled(side):
            break
    assert side.told()["own.filters"] == 3000
    assert side.check([happened(random, WIDE, share) for share in (0.0, 0.2, 0.9, 1.0)]) > 0


@pytest.mark.slow
def test_pool_that_others_never_improve_is_seldom_written_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    random, side = Random(12), Side()
    written = []
    renew = arranging.renew_pool
    monkeypatch.setattr(arranging, "renew_pool", lambda *given: written.append(1) or renew(*given))
    monkeypatch.setattr(arranging, "pool_instead", lambda *_: 1.0)
    side.add(ranges(random, 700, WIDE, 0.7))
    to_pool(side, random)
    events = side.matcher.prepare([happened(random, WIDE) for _ in range(200)])
    for _ in range(120):
        side.matcher.match_batch(events)
    assert 1 <= len(written) < 12
    assert side.check([happened(random, WIDE, share) for share in (0.5, 1.0)]) > 0


@pytest.mark.slow
def test_memory_of_lists_is_given_back_once_their_filters_are_in_the_pool() -> None:
    random, side = Random(11), Side()
    # What stays in blocks: long signatures, circles, equalities, and what is filed under names.
    side.add([Filter((constraint(random, "a"),), circle(random, 0.1)) for _ in range(300)])
    side.add([Filter((Constraint("b", Op.EQ, float(i % 30)), constraint(random, "c"))) for i in range(900)])
    side.add([Filter(tuple(constraint(random, name) for name in "cdefghi")) for _ in range(20)])
    side.add(ranges(random, 6000, WIDE))
    before = side.matcher.stats().memory["engine.entries"]
    to_pool(side, random)
    assert side.matcher.stats().memory["engine.entries"] < 0.4 * before
    events = [event(random, "abcdefghi") | happened(random, WIDE, share) for share in (0.3, 1.0) * 4]
    assert side.check(events) > 0
    # Blocks that are new after that take no place of one that is in use.
    side.add([Filter((constraint(random, name),), circle(random, 0.2)) for name in "abcde" * 60])
    side.remove(random.sample(sorted(side.oracle.held), 3000))
    side.add([Filter((Constraint("b", Op.EQ, float(i % 50)), constraint(random, "d"))) for i in range(900)])
    assert side.check(events) > 0


@pytest.mark.slow
def test_a_slot_that_is_used_again_forgets_who_was_there() -> None:
    random, side = Random(4), Side()
    ids = side.add(ranges(random, 1500, WIDE, 0.1))
    to_pool(side, random)
    events = [happened(random, WIDE) for _ in range(12)]
    for _ in range(2):
        gone = random.sample(ids, 700)
        side.remove(gone)
        side.check(events)
        # What matches all events stands where filters stood that matched few.
        names = random.sample(WIDE, 3)
        new = [Filter(tuple(Constraint(name, Op.LE, 1.0) for name in names))] * 300
        ids = [*set(ids).difference(gone), *side.add([*new, *ranges(random, 400, WIDE, 0.1)])]
        assert side.check(events) >= 300 * len(events)
    side.remove(ids)
    assert side.check(events) == 0
    assert pooled(side) == 0
    side.add(ranges(random, 20, WIDE))
    side.check(events)


def test_pool_that_has_grown_chooses_its_buckets_anew() -> None:
    random, side = Random(5), Side()
    side.add(ranges(random, 600, WIDE))
    to_pool(side, random)
    assert side.told()["pool.axes"] == 20
    names = [f"late{i}" for i in range(10)]
    for _ in range(6):
        side.add(ranges(random, 700, names))
    assert side.told()["pool.axes"] == 30
    assert side.check([happened(random, WIDE + names, share) for share in (0.5, 1.0)]) > 0
    side.remove(random.sample(sorted(side.oracle.held), 4500))
    assert side.check([happened(random, WIDE + names, share) for share in (0.5, 1.0)]) > 0


def test_values_at_the_very_edges_of_buckets_are_told_apart() -> None:
    random, side = Random(6), Side()
    bounds = [0.1, 0.5, 1.0, 2.0**53, 5e-324, -0.0, 3.4e38, -7.25, 16_777_217.0, 0.3]
    near = [math.nextafter(b, to) for b in bounds for to in (-math.inf, math.inf)]
    ops = [Op.LT, Op.LE, Op.GT, Op.GE, Op.EQ, Op.NE]
    filters = []
    for _ in range(1200):
        names = random.sample(WIDE, 2)
        filters.append(Filter(tuple(Constraint(n, random.choice(ops), random.choice(bounds)) for n in names)))
    side.add(filters)
    to_pool(side, random)
    assert pooled(side) > 1000
    values = [*bounds, *near, math.inf, -math.inf, math.nan, "text", None, 10**400]
    events = [{name: random.choice(values) for name in WIDE} for _ in range(40)]
    assert side.check(events) > 0


@pytest.mark.slow
def test_pool_that_caches_do_not_hold_finds_the_same() -> None:
    random, side = Random(13), Side()
    side.add(ranges(random, layout.CACHED + 100, WIDE, 0.1))
    to_pool(side, random)
    assert pooled(side) > layout.CACHED
    assert side.check([happened(random, WIDE, share) for share in (0.5, 1.0)]) > 0


@pytest.mark.slow
def test_loaded_pool_goes_on_where_the_saved_one_was(tmp_path: Path) -> None:
    random, side = Random(7), Side()
    side.add(ranges(random, 2000, WIDE))
    to_pool(side, random)
    side.matcher.save(tmp_path / "saved")
    other = Matcher.load(tmp_path / "saved")
    events = [happened(random, WIDE) for _ in range(5)]
    expected = [ids.tolist() for ids in side.matcher.match_batch(events)]
    side.matcher = Matcher.load(tmp_path / "saved")
    assert pooled(side) == 2000
    side.remove(range(0, 2000, 2))
    side.add(ranges(random, 1500, WIDE))
    side.check(events)
    assert [sorted(ids.tolist()) for ids in other.match_batch(events)] == [sorted(ids) for ids in expected]


def test_subscription_with_several_filters_in_the_pool_is_reported_once() -> None:
    random, side = Random(8), Side()
    either = Subscription(tuple(Filter((Constraint(name, Op.GE, 0.0),)) for name in WIDE[:2]))
    side.add([*ranges(random, 4000, WIDE), *[either] * 30])
    to_pool(side, random)
    for given in ({"w0": 0.5, "w1": 0.5}, {"w1": 0.5}):
        assert side.check([given]) >= 30


@pytest.mark.slow
def test_threads_match_while_filters_go_to_the_pool_and_others_come() -> None:
    random, matcher = Random(9), Matcher("index")
    matcher.subscribe_many(ranges(random, 3000, WIDE))
    events = [happened(random, WIDE) for _ in range(150)]
    reference = Matcher("reference")
    reference.subscribe_many(ranges(Random(9), 3000, WIDE))
    expected = [set(ids.tolist()) for ids in reference.match_batch(events[:10])]

    def work(turn: int) -> None:
        if turn % 4 == 3:
            matcher.unsubscribe_many(matcher.subscribe_many(ranges(Random(turn), 50, WIDE)))
        matches = matcher.match_batch(events, threads=turn % 3 + 1)
        for ids, wanted in zip(matches, expected, strict=False):
            assert wanted <= set(ids.tolist())
        assert wanted_of(matcher, events[0]) >= expected[0]

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(work, range(16)))
    assert matcher.stats().details["pool.filters"] == 3000
    assert [set(ids.tolist()) for ids in matcher.match_batch(events[:10])] == expected


def some_of_all(random: Random) -> list[Filter | Subscription]:
    """Filters of all kinds, from a few to some blocks of the pool."""
    made: list[Filter | Subscription] = []
    for _ in range(random.choice([3, 300, 1100])):
        chosen = random.sample(NAMES, random.randint(1, random.choice([2, 4, 9])))
        made.append(Filter(tuple(constraint(random, name) for name in chosen)))
    width = random.choice([0.01, 0.3, 0.7])
    made += ranges(random, random.choice([0, 10, 1030]), WIDE[: random.randint(5, 20)], width)
    if random.random() < 0.5:
        made += [Subscription((Filter((constraint(random, "a"),)), *ranges(random, 1, WIDE)))] * 20
        made += [Filter((constraint(random, "a"),), circle(random, 0.2)) for _ in range(70)]
    else:
        made += [Filter((Constraint("a", Op.EQ, float(i)), constraint(random, "b"))) for i in range(200)]
    random.shuffle(made)
    return made


@pytest.mark.slow
def test_changes_saves_and_threads_by_chance(restless: Moves, tmp_path: Path) -> None:
    for seed in range(2):
        random, side = Random(seed), Side()
        for _ in range(4):
            # Others come before the next match, so that they take the slots of those that have gone.
            held = sorted(side.oracle.held)
            side.remove(random.sample(held, int(len(held) * random.choice([0, 0.1, 0.5, 0.95, 1.0]))))
            side.add(some_of_all(random))
            share = random.choice([0, 0.1, 0.6, 1])
            events = [event(random, NAMES, share) | happened(random, WIDE, share) for _ in range(3)]
            side.check([*events, {}])
            if random.random() < 0.3:
                side.matcher.save(tmp_path / "saved")
                side.matcher = Matcher.load(tmp_path / "saved")
            look_while_others_change(side, random, events)
            side.check(events)
    assert restless.least() > 0


def look_while_others_change(side: Side, random: Random, events: list[dict[str, Any]]) -> None:
    """Threads match while one adds and removes subscriptions, which change nothing for those of ``side``."""
    matcher, mine, others = side.matcher, set(side.oracle.held), ranges(random, 200, WIDE)
    wanted = [set(ids.tolist()) for ids in matcher.match_batch(events)]

    def change() -> None:
        for _ in range(3):
            matcher.unsubscribe_many(matcher.subscribe_many(others))

    def look() -> None:
        for _ in range(4):
            found = matcher.match_batch(events * 40, threads=2)
            for i, ids in enumerate(found):
                assert set(ids.tolist()) & mine == wanted[i % len(events)]
            assert wanted_of(matcher, events[0]) & mine == wanted[0]

    with ThreadPoolExecutor(3) as pool:
        for running in [pool.submit(change), pool.submit(look), pool.submit(look)]:
            running.result()


def wanted_of(matcher: Matcher, happening: dict[str, Any]) -> set[int]:
    return set(matcher.match(happening).tolist())


@pytest.mark.parametrize("kind", [layout.NUMBERS, layout.TEXTS, layout.ANY])
@pytest.mark.parametrize("filters", [1, 3, 50, 4000])
def test_buckets_of_an_axis_hold_each_key_once(kind: int, filters: int) -> None:
    random = np.random.default_rng(filters)
    intervals = np.zeros((filters, 4), np.uint32)
    intervals[:, 0] = np.arange(filters)
    intervals[:, 1] = 3 + kind
    intervals[:, 2] = random.integers(0, 1 << 32, filters)
    intervals[:, 3] = random.integers(0, 1 << 31, filters)
    axes = choose_axes(intervals)
    assert 0 < axes.share <= 1
    (words,) = axes.words
    element, first, rows = words[:3].tolist()
    assert (element, first, axes.rows) == (3 + kind, 1, rows + 1)
    assert 2 <= rows <= layout.MOST_ROWS
    lows, widths = words[5 : 4 + rows].astype(np.int64), words[69 : 68 + rows].astype(np.int64)
    assert widths.sum() + len(widths) == 1 << 32
    assert (np.roll(lows, -1) == (lows + widths + 1) % (1 << 32)).all()


def test_axes_are_the_elements_that_are_used_most_if_there_are_many() -> None:
    names = 5000
    intervals = np.zeros((names + 500, 4), np.uint32)
    intervals[:, 0] = np.arange(len(intervals))
    intervals[:names, 1] = 3 * np.arange(names)
    intervals[names:, 1] = 3 * np.tile(np.arange(100, 105), 100)
    intervals[:, 3] = 7
    axes = choose_axes(intervals)
    elements = axes.words[:, 0].tolist()
    assert elements == sorted(elements)
    assert set(3 * np.arange(100, 105)) <= set(elements)
    assert len(elements) < 200


def test_costs_follow_from_counts() -> None:
    wide, narrow = Counts(10, 900_000, 0), Counts(10, 2000, 0)
    pool = pool_instead(filters=10_000, blocks=10, axes=20, share=0.01)
    assert narrow.lists() < pool < wide.lists()
    found = Counts(10, 0, candidates=1000, reached=9000)
    assert found.pool(blocks=10, axes=20) < found.lists_instead(10_000, 9000, 3.0, 48)
    tests = [found.pool(blocks, axes=0) - Counts(10, 0, 0).pool(blocks, axes=0) for blocks in (32, 33)]
    assert tests[0] < tests[1], "caches hold 32 blocks"
    with pytest.raises(ValueError, match="reached was not counted"):
        wide.lists_instead(10_000, 9000, 3.0, 48)
