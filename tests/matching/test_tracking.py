"""What a tracker tells, beside a dict of sets in plain Python."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgpack
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from evflow.errors import SchemaError, SubscriptionError
from evflow.matching import Matcher, Matches, Tracked, Tracker, stays
from evflow.matching.native import KERNELS
from tests.examples import tried
from tests.matching.engines import Case, each_engine

Rows = list[tuple[list[int], list[int], list[int]]]


class Oracle:
    """What each key was inside of last, the key seen least recently first."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.known: dict[Any, set[int]] = {}
        self.forgotten = 0

    def track(self, keys: Sequence[Any], matches: Sequence[Sequence[int]]) -> Rows:
        found: Rows = []
        for key, now in zip(keys, map(set, matches), strict=True):
            before = self.known.pop(key, None)
            if before is None:
                before = set()
                if len(self.known) == self.limit:
                    del self.known[next(iter(self.known))]
                    self.forgotten += 1
            self.known[key] = now
            found.append((sorted(now - before), sorted(now & before), sorted(before - now)))
        return found

    def end(self, ids: Sequence[int]) -> None:
        for known in self.known.values():
            known.difference_update(ids)


def matches_of(lists: Sequence[Sequence[int]]) -> Matches:
    offsets = np.cumsum([0, *map(len, lists)])
    return Matches(offsets, np.array([id for ids in lists for id in ids], np.int32))


def rows(tracked: Tracked) -> Rows:
    return [tuple(one[n].tolist() for one in tracked) for n in range(len(tracked.enter))]  # type: ignore[misc]


KEYS = st.sampled_from(
    ["", "a", "b", "3c6444", "3c6445", "3c6444 ", "a longer key", "x" * 256, 5, -5, "5", 2.5, 1 << 63]
)
IDS = st.lists(st.integers(0, 9), max_size=6)
BATCH = st.lists(st.tuples(KEYS, IDS), max_size=12)
STEPS = st.lists(st.one_of(BATCH, st.sets(st.integers(0, 9), max_size=3), st.just("again")), max_size=8)


@settings(max_examples=tried(60))
@given(st.integers(1, 6), STEPS)
def test_it_tells_what_a_dict_of_sets_tells(limit: int, steps: list[Any]) -> None:
    tracker, oracle = Tracker(limit=limit), Oracle(limit)
    for step in steps:
        if isinstance(step, set):
            tracker.end(list(step))
            oracle.end(list(step))
        elif step == "again":
            again = Tracker(limit=limit)
            again.unpack(tracker.pack())
            tracker = again
        else:
            keys, lists = [key for key, _ in step], [ids for _, ids in step]
            assert rows(tracker.track(keys, matches_of(lists))) == oracle.track(keys, lists)
        assert (len(tracker), tracker.forgotten) == (len(oracle.known), oracle.forgotten)
        for key, known in oracle.known.items():
            assert tracker.inside(key).tolist() == sorted(known)


def test_many_keys_with_sets_of_all_sizes_stay_apart() -> None:
    random = np.random.default_rng(4)
    tracker, oracle = Tracker(limit=700), Oracle(700)
    for _ in range(15):
        keys = random.zipf(1.3, 400) % 1000
        counts = np.minimum(random.zipf(1.6, 400) - 1, 300)
        lists = [random.choice(400, count, replace=False).tolist() for count in counts]
        assert rows(tracker.track(keys, matches_of(lists))) == oracle.track(keys.tolist(), lists)
        ended = random.choice(400, 3).tolist()
        tracker.end(ended)
        oracle.end(ended)
    assert tracker.forgotten == oracle.forgotten > 0


def test_without_a_compiler_it_tells_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("step", "fill", "find", "pad"):
        kernel = KERNELS.get(f"evflow.matching.stays.{name}")
        if kernel is not None:
            monkeypatch.setattr(stays, name, kernel.function)
    random = np.random.default_rng(3)
    tracker, oracle = Tracker(limit=20), Oracle(20)
    for _ in range(10):
        keys = [f"ship {n}" for n in random.zipf(1.5, 30) % 40]
        lists = [random.integers(0, 9, count).tolist() for count in random.integers(0, 8, 30)]
        assert rows(tracker.track(keys, matches_of(lists))) == oracle.track(keys, lists)
        tracker.end([1])
        oracle.end([1])
        assert tracker.inside(keys[-1]).tolist() == sorted(oracle.known[keys[-1]])


def test_memory_that_keys_no_longer_need_is_used_again() -> None:
    tracker, sizes = Tracker(), []
    for turn in range(300):
        count = 200 if turn % 2 else 3
        tracker.track(["a", "b"], matches_of([range(count), range(200 - count)]))
        sizes.append(tracker.nbytes)
    assert sizes[-1] == sizes[10]


@each_engine
def test_things_that_move_are_tracked_behind_every_engine(case: Case) -> None:
    random = np.random.default_rng(7)
    matcher, tracker, oracle = Matcher(case.engine, **case.options), Tracker(), Oracle(100)
    matcher.subscribe_many([f"within({x}, {y}, 1.2)" for x in range(6) for y in range(6)])
    places = random.random((20, 2)) * 5
    for _ in range(12):
        places += random.normal(0, 0.5, places.shape)
        order = random.permutation(np.repeat(np.arange(20), 2))[:30]
        x, y = places[order].T
        batch = {"x": x, "y": y}
        lists = [
            [id for id in range(36) if (x - id // 6) ** 2 + (y - id % 6) ** 2 <= 1.2**2]
            for x, y in zip(x.tolist(), y.tolist(), strict=True)
        ]
        assert rows(tracker.track(order, matcher.match_batch(batch))) == oracle.track(order.tolist(), lists)


def test_a_subscription_that_moves_is_entered_and_left_by_the_next_event() -> None:
    matcher, tracker = Matcher("reference"), Tracker()
    moving = matcher.subscribe("within(0, 0, 1)")

    def pass_by() -> Rows:
        return rows(tracker.track(["a"], matcher.match_batch({"x": [0.0], "y": [0.0]})))

    assert pass_by() == [([moving], [], [])]
    matcher.move(moving, 5, 5)
    assert pass_by() == [([], [], [moving])]
    matcher.move(moving, 0, 0)
    assert pass_by() == [([moving], [], [])]
    matcher.unsubscribe(moving)
    tracker.end([moving])
    assert pass_by() == [([], [], [])]
    assert matcher.subscribe("within(0, 0, 1)") == moving
    assert pass_by() == [([moving], [], [])]
    matcher.unsubscribe(moving)
    assert matcher.subscribe("within(0, 0, 2)") == moving
    tracker.end([moving])
    # Another one has its id.
    assert (tracker.inside("a").tolist(), pass_by()) == ([], [([moving], [], [])])


def test_columns_of_any_library_are_keys() -> None:
    pa = pytest.importorskip("pyarrow")
    pandas = pytest.importorskip("pandas")
    texts = ["a", "bc", "a", "ü"]
    numbers = [1, 2, 1, -3]
    for keys, values in (
        (texts, [pa.array(texts), pandas.Series(texts), np.array(texts), np.array(texts, object)]),
        (
            numbers,
            [pa.array(numbers), pandas.Series(numbers), np.array(numbers, ">i2"), np.array(numbers, "f4")],
        ),
    ):
        for given_keys in values:
            tracker = Tracker()
            tracker.track(given_keys, matches_of([[n] for n in range(4)]))
            assert len(tracker) == 3
            assert [tracker.inside(key).tolist() for key in keys] == [[2], [1], [2], [3]]


@pytest.mark.parametrize(
    ("keys", "words"),
    [
        (["a", None], "key 1 is missing; expected a text or a number for each event"),
        ([1.0, float("nan")], "key 1 is missing"),
        (["a", b"a"], "key 1 is neither a text nor a number"),
        ([{"a": 1}, "a"], "key 0 is neither"),
        (np.zeros((2, 2)), "key 0 is neither"),
        (["a", "x" * 257], "key 1 is a text of more than 256 bytes, or a number beyond 64 bits"),
        ([1 << 64, 1], "key 0 is a text of more"),
        (["a"], "1 keys for 2 events: expected one each"),
        ("ab", "column keys"),
        ({"a": 1}, "column keys.a: expected a column, found 1"),
        ({"a": ["x", "y"]}, "key 0 is neither a text nor a number"),
    ],
)
def test_wrong_keys_are_refused_and_change_nothing(keys: Any, words: str) -> None:
    tracker = Tracker()
    with pytest.raises(SchemaError, match=words):
        tracker.track(keys, matches_of([[1], [2]]))
    assert len(tracker) == 0
    with pytest.raises(SchemaError, match="expected a text of at most 256 bytes or a number"):
        tracker.inside(None)  # type: ignore[arg-type]


def test_keys_are_the_same_that_are_equal_as_numbers() -> None:
    for one, other in (
        (5, 5.0),
        (True, 1),
        (0.0, -0.0),
        (1 << 63, 2.0**63),
        (2.0**63 + 2048, (1 << 63) + 2048),
    ):
        tracker = Tracker()
        tracker.track([one], matches_of([[1]]))
        assert tracker.track([other], matches_of([[1]])).inside[0].tolist() == [1]
    for one, other in (
        ((1 << 53) + 1, 2.0**53),
        ((1 << 63) + 1, 2.0**63),
        (2.0**64, (1 << 64) - 1),
        (5, "5"),
    ):
        tracker = Tracker()
        tracker.track([one], matches_of([[1]]))
        assert tracker.inside(other).tolist() == []


@pytest.mark.parametrize(
    ("offsets", "ids", "words"),
    [
        ([0, 5], [1], "offsets of matches: expected offsets that rise from 0 to 1"),
        ([0, 2, 1], [1], "offsets of matches"),
        ([1, 1], [1], "offsets of matches"),
        ([0.0, 1.0], [1], "offsets of matches"),
        ([], [], "offsets of matches"),
        ([0, 1], [-5], "id -5: expected 0 to 2147483646"),
        ([0, 1], [(1 << 31) - 1], "id 2147483647: expected"),
        ([0, 1], [1.5], "ids: expected whole numbers in one dimension, found float64"),
        ([0, 1], [[1]], "ids: expected whole numbers in one dimension"),
    ],
)
def test_matches_that_lead_out_of_arrays_are_refused(offsets: Any, ids: Any, words: str) -> None:
    tracker = Tracker()
    tracker.track(["a"], matches_of([[1]]))
    with pytest.raises(SubscriptionError, match=words):
        tracker.track(["a"], Matches(np.array(offsets), np.array(ids)))
    with pytest.raises(SubscriptionError, match="matches: expected Matches, as"):
        tracker.track(["a"], [[1]])  # type: ignore[arg-type]
    assert tracker.inside("a").tolist() == [1]


def test_only_ids_end() -> None:
    tracker = Tracker()
    tracker.track(["a"], matches_of([[1]]))
    for ids in ([-1], [1 << 40], [1.0], ["a"], [[1]], 1, None):
        with pytest.raises(SubscriptionError, match="expected"):
            tracker.end(ids)  # type: ignore[arg-type]
    assert tracker.inside("a").tolist() == [1]
    tracker.end([])
    tracker.end(np.array([1], np.uint8))
    assert tracker.inside("a").tolist() == []


def test_a_wrong_limit_is_refused() -> None:
    for limit in (0, -1, 1.5, True, (1 << 30) + 1):
        with pytest.raises(SubscriptionError, match=f"limit {limit}: expected a whole number of keys from 1"):
            Tracker(limit=limit)  # type: ignore[arg-type]


def packed(**changed: Any) -> bytes:
    words, counts, ids = (
        np.array(part, kind) for part, kind in (([1, 5], "<i8"), ([2], "<i4"), ([3, 4], "<i4"))
    )
    parts = {"version": 1, "width": 2, "forgotten": 0, "words": words, "counts": counts, "ids": ids} | changed
    listed = [part.tobytes() if isinstance(part, np.ndarray) else part for part in parts.values()]
    return bytes(msgpack.packb(listed))


def test_what_was_packed_wrong_changes_nothing() -> None:
    tracker = Tracker()
    tracker.unpack(packed())
    assert tracker.inside(5).tolist() == [3, 4]
    for data in (
        b"", b"\xc1", packed(version=2), packed(width=1), packed(width=99), packed(width="2"),
        packed(width=3), packed(forgotten=-1), packed(words=None), packed(words=b"abc"),
        packed(counts=np.array([3], "<i4")), packed(counts=np.array([-1], "<i4")),
        packed(ids=np.array([-1, 2], "<i4")), packed(more=b""),
    ):  # fmt: skip
        with pytest.raises(SubscriptionError, match="what a tracker knew is malformed"):
            tracker.unpack(data)
    assert (len(tracker), tracker.inside(5).tolist()) == (1, [3, 4])
    small = Tracker(limit=1)
    small.track(["a"], matches_of([[1]]))
    many = Tracker()
    many.track(["a", "b", "c"], matches_of([[1], [2], [3]]))
    small.unpack(many.pack())
    assert (len(small), small.forgotten, small.inside("c").tolist()) == (1, 2, [3])
