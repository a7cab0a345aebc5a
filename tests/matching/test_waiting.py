"""Single moves that wait are seen by all that comes after them."""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import partial
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from evflow.errors import SubscriptionError
from evflow.matching import Matcher
from evflow.matching.model import Filter, GlobeCircle
from evflow.matching.moving import ALONE, MOST
from tests.matching.play import Play

EVERYWHERE = {"x": np.arange(1000.0), "y": np.zeros(1000)}


def moved(matcher: Matcher, id: int = 0, times: int = ALONE + 3, at: float = 500.0) -> None:
    """Moves a subscription so often that the last moves wait."""
    for i in range(times):
        matcher.move(id, at - times + 1.0 + i, 0.0)


def waiting(matcher: Matcher) -> bool:
    return bool(matcher._guard._waiting)


def places(matcher: Matcher) -> dict[int, list[int]]:
    """By id where on the line it matches."""
    found: dict[int, list[int]] = {}
    for place, ids in enumerate(matcher.match_batch(EVERYWHERE)):
        for id in ids.tolist():
            found.setdefault(id, []).append(place)
    return found


@pytest.fixture
def matcher() -> Matcher:
    matcher = Matcher("index")
    matcher.subscribe_many(["within(1, 0, 0.4)", "within(2, 0, 0.4) or within(3, 0, 0.4)", "a > 0"])
    return matcher


class Often(Play):
    """Moves come before each other call."""

    def run(self, steps: int) -> None:
        self.subscribe_many()
        for _ in range(steps):
            self.move_often()
            self.random.choice(self.calls())()
            self.check()


@pytest.mark.slow
@settings(suppress_health_check=list(HealthCheck))
@given(random=st.randoms(use_true_random=False))
def test_calls_between_moves_give_what_the_oracle_says(random: Random) -> None:
    Often(random, partial(Matcher, "index")).run(5)


@pytest.mark.slow
def test_moves_between_saves_are_in_the_file(tmp_path: Path) -> None:
    for seed in range(6):
        Often(Random(seed), partial(Matcher, "index"), tmp_path / str(seed)).run(6)


CALLS: list[Callable[[Matcher], Any]] = [
    lambda m: m.match({"x": 500.0, "y": 0.0}),
    lambda m: m.match_batch([{"x": 500.0, "y": 0.0}]),
    lambda m: m.stats(),
    lambda m: m.subscribe("a > 0"),
    lambda m: m.subscribe_many(["a > 0"]),
    lambda m: m.unsubscribe(0),
    lambda m: m.unsubscribe_many([1]),
    lambda m: m.move_many([1], [5.0], [5.0]),
    lambda m: m.move(1, 7, 7),
]


@pytest.mark.parametrize("call", CALLS, ids=range(len(CALLS)))
def test_whatever_comes_next_makes_the_moves_that_wait(
    matcher: Matcher, call: Callable[[Matcher], Any]
) -> None:
    moved(matcher)
    assert waiting(matcher)
    call(matcher)
    assert not waiting(matcher)


def test_a_match_sees_the_last_of_any_number_of_moves(matcher: Matcher) -> None:
    for times in (ALONE + 2, ALONE + 9, ALONE + 10, ALONE + 11, ALONE + MOST + 2, 3 * MOST):
        moved(matcher, 0, times)
        assert waiting(matcher) == (times != ALONE + MOST + 2)
        assert matcher.match({"x": 500.0, "y": 0.0}).tolist() == [0]
        assert places(matcher) == {0: [500], 1: [2, 3]}


def test_radii_and_numbers_of_filters_wait_in_their_order(matcher: Matcher) -> None:
    """Moves that keep the radius stand between others that change it."""
    moved(matcher)
    for i in range(20):
        matcher.move(1, 100.0 + i, 0.0, filter=1)
        matcher.move(0, 200.0 + i, 0.0, 1.0 + i)
        matcher.move(0, 300.0 + i, 0.0)
        matcher.move(1, 400.0 + i, 0.0, 2.0, filter=0)
    assert waiting(matcher)
    assert places(matcher) == {0: [*range(299, 340)], 1: [119, *range(417, 422)]}


WRONG: list[tuple[Callable[[Matcher], Any], str]] = [
    (lambda m: m.move(9, 1.0, 1.0), "there is no subscription 9"),
    (lambda m: m.move(-3, 1.0, 1.0), "there is no subscription -3"),
    (lambda m: m.move(2, 1.0, 1.0), "subscription 2 has no area"),
    (lambda m: m.move(0, float("nan"), 1.0), "x nan"),
    (lambda m: m.move(0, 1.0, 1e39), "y 1e"),
    (lambda m: m.move(0, 1.0, 1.0, -1.0), "radius -1.0"),
    (lambda m: m.move(0, 1.0, 1.0, float("inf")), "radius inf"),
    (lambda m: m.move(0, 1.0, 1.0, filter=1), "filter 1 of subscription 0 has no area"),
    (lambda m: m.move(0, 1.0, 1.0, filter=-1), "filter -1"),
]


@pytest.mark.parametrize(("call", "message"), WRONG, ids=range(len(WRONG)))
def test_a_wrong_move_is_refused_at_once_while_others_wait(
    matcher: Matcher, call: Callable[[Matcher], Any], message: str
) -> None:
    moved(matcher)
    with pytest.raises(SubscriptionError, match=message):
        call(matcher)
    assert places(matcher) == {0: [500], 1: [2, 3]}


def test_an_id_that_is_used_again_is_not_moved_by_what_was_called_before(matcher: Matcher) -> None:
    moved(matcher)
    matcher.unsubscribe(0)
    assert matcher.subscribe("within(9, 0, 0.4)") == 0
    assert places(matcher)[0] == [9]


def test_moves_of_what_another_thread_has_unsubscribed_are_none(matcher: Matcher) -> None:
    """The thread that unsubscribes comes between the check of a move and its being noted."""
    for times in (ALONE + 3, ALONE + 40):
        moved(matcher, 0, times)
        rows = bytes(matcher._guard._waiting)  # type: ignore[call-overload]
        matcher.unsubscribe(0)
        matcher._guard._waiting.extend(rows)  # type: ignore[attr-defined]
        assert places(matcher) == {1: [2, 3]}
        assert matcher.subscribe("within(9, 0, 0.4)") == 0
        assert places(matcher) == {0: [9], 1: [2, 3]}


@pytest.mark.parametrize("times", [ALONE + 3, ALONE + 40])
def test_moves_whose_making_fails_are_made_by_the_next(
    matcher: Matcher, times: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: Any) -> None:
        raise MemoryError

    moved(matcher, 0, times)
    with monkeypatch.context() as broken:
        broken.setattr(matcher._engine, "move", fail)
        broken.setattr(matcher._guard, "_make", fail)
        with pytest.raises(MemoryError):
            matcher.match({})
        with pytest.raises(MemoryError):
            matcher.subscribe("a > 0")
    assert places(matcher) == {0: [500], 1: [2, 3]}


def test_poles_and_full_turns_wait_on_the_globe() -> None:
    matcher, reference = Matcher("index", space="globe"), Matcher("reference", space="globe")
    events = [{"latitude": a, "longitude": b} for a, b in ((90, 5), (-90, 0), (10, 20), (10, -160), (0, 180))]
    for held in (matcher, reference):
        held.subscribe_many([Filter((), GlobeCircle(0, 0, 1000))] * 5)
        for _ in range(ALONE):
            held.move(0, 1.0, 1.0)
        for id, (a, b) in enumerate(
            [(90.0, 77.0), (-90.0, 1e9), (10.0, 380.0), (10.0, 200.0), (0.0, -180.0)]
        ):
            held.move(id, a, b, 5e5)
        with pytest.raises(SubscriptionError, match="latitude"):
            held.move(0, 90.1, 0.0)
    found = [[sorted(ids) for ids in held.match_batch(events)] for held in (matcher, reference)]
    assert found[0] == found[1]
    assert found[0][0] == [0] and found[0][1] == [1] and all(found[0])


def test_threads_see_each_move_that_has_returned(matcher: Matcher) -> None:
    """Each mover steps along the line and tells how far it is; who matches then finds it there or further."""
    matcher.unsubscribe_many([0, 1, 2])
    matcher.subscribe_many(["within(0, 0, 0.4)"] * 3)
    told = [0, 0, 0]
    steps, turns = 999, 4

    def step(id: int) -> None:
        for i in range(1, steps + 1):
            matcher.move(id, float(i), 0.0)
            told[id] = i

    def come_and_go() -> None:
        while min(told) < steps:
            matcher.unsubscribe(matcher.subscribe("within(-5, 0, 0.4)", 7))

    for _ in range(turns):
        told[:] = [0, 0, 0]
        matcher.move_many([0, 1, 2], 0.0, 0.0)
        threads = [threading.Thread(target=step, args=(id,), daemon=True) for id in range(3)]
        threads.append(threading.Thread(target=come_and_go, daemon=True))
        for thread in threads:
            thread.start()
        while min(told) < steps:
            before = list(told)
            found = places(matcher)
            assert sorted(found) == [0, 1, 2]
            for id, where in found.items():
                assert len(where) == 1 and where[0] >= before[id]
        for thread in threads:
            thread.join(60)
            assert not thread.is_alive()
        assert places(matcher) == {id: [steps] for id in range(3)}


def test_matches_come_in_while_other_threads_move_without_end(matcher: Matcher) -> None:
    matched = threading.Event()

    def move() -> None:
        while not matched.is_set():
            matcher.move(0, 5.0, 0.0)

    threads = [threading.Thread(target=move, daemon=True) for _ in range(3)]
    for thread in threads:
        thread.start()
    found = [matcher.match({"x": 3.0, "y": 0.0}).tolist() for _ in range(300)]
    matched.set()
    for thread in threads:
        thread.join(60)
        assert not thread.is_alive()
    assert found == [[1]] * 300


def test_ids_in_whole_blocks_are_checked_as_others_are(tmp_path: Path) -> None:
    """Where thousands of ids in a row have areas, a count stands for them, and one that goes is missed."""
    matcher = Matcher("index")
    matcher.subscribe_many(["within(-9, 0, 0.4)"] * 9000)
    for turn in range(2):
        moved(matcher, 4095 + turn)
        for other in (None, "a > 0", "a > 0 or within(-9, 0, 0.4)"):
            matcher.unsubscribe(5000)
            if other:
                matcher.subscribe(other, 5000)
            moved(matcher, 4095 + turn)
            assert waiting(matcher)
            if other and "within" in other:
                matcher.move(5000, 9.0, 0.0)
                continue
            with pytest.raises(SubscriptionError, match="subscription 5000"):
                matcher.move(5000, 9.0, 0.0)
            if not other:
                matcher.subscribe("within(-9, 0, 0.4)", 5000)
        assert places(matcher) == {4095 + turn: [500], 5000: [9]}
        matcher.unsubscribe(5000)
        matcher.subscribe("within(-9, 0, 0.4)", 5000)
        matcher.move(4095 + turn, -9.0, 0.0)
        matcher.save(tmp_path / "saved")
        matcher = Matcher.load(tmp_path / "saved")
