from __future__ import annotations

import math
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import evflow
from evflow.errors import SubscriptionError
from evflow.matching import native
from evflow.matching.columns.bulk import FilterColumns
from evflow.matching.ids import LARGEST, Ids
from evflow.matching.matcher import Matcher
from evflow.matching.model import Circle, Constraint, Filter, GlobeCircle, Op, Subscription
from evflow.matching.strings import Strings

HOT = "temp > 30"


@pytest.fixture
def matcher() -> Matcher:
    return Matcher("reference")


def test_subscriptions_come_as_text_filter_subscription_columns_and_table(matcher: Matcher) -> None:
    hot = Filter((Constraint("temp", Op.GT, 30.0),))
    rows = [[{"name": "temp", "op": ">", "number": 30.0, "text": None}]]
    kind = pa.struct({"name": pa.string(), "op": pa.string(), "number": pa.float64(), "text": pa.string()})
    table = pa.table({"constraints": pa.array(rows, pa.list_(kind))})
    for one in (HOT, hot, Subscription((hot,))):
        matcher.subscribe(one)
    for many in ([HOT], (hot,), FilterColumns.from_subscriptions([hot]), table, iter([HOT])):
        assert matcher.subscribe_many(many).dtype == np.int32
    assert sorted(matcher.match({"temp": 31})) == list(range(8))
    assert matcher.match({"temp": 30}).tolist() == []
    assert (len(matcher), 7 in matcher, 8 in matcher, "7" in matcher) == (8, True, False, False)


def test_columns_may_hold_ids_and_filters_in_any_order(matcher: Matcher) -> None:
    columns = FilterColumns.from_arrays(
        name=[["a"], ["a"], ["b"], ["a"]], op="==", number=[[1], [2], [3], [4]], subscription=[9, 4, 9, 4]
    )
    assert matcher.subscribe_many(columns).tolist() == [4, 9]
    found = [sorted(matcher.match(event)) for event in ({"a": 1}, {"a": 2}, {"b": 3}, {"a": 4}, {"b": 1})]
    assert found == [[9], [4], [9], [4], []]
    assert matcher.subscribe_many(columns, [2, 3]).tolist() == [2, 3]


def test_the_smallest_free_id_is_taken(matcher: Matcher) -> None:
    assert [matcher.subscribe(HOT) for _ in range(3)] == [0, 1, 2]
    assert matcher.subscribe(HOT, 4) == 4
    assert matcher.subscribe_many([HOT] * 3).tolist() == [3, 5, 6]
    matcher.unsubscribe_many([5, 0])
    assert matcher.subscribe(HOT) == 0
    assert matcher.subscribe_many([HOT] * 2, [100_000, 7]).tolist() == [100_000, 7]
    assert matcher.subscribe_many([HOT] * 2).tolist() == [5, 8]


def test_ids_fill_blocks_and_holes() -> None:
    ids = Ids()
    one = np.ones(10_000, np.int32)
    ids.add(ids.next_many(10_000), one, one, np.zeros(10_000, bool))
    assert ids.next() == 10_000
    ids.remove(np.array([9_999, 4_100, 5_000], np.int32))
    assert (ids.next(), ids.next_many(4).tolist()) == (4_100, [4_100, 5_000, 9_999, 10_000])
    assert (len(ids), 4_100 in ids, 4_101 in ids, -1 in ids, 2.0 in ids) == (9_997, False, True, False, False)
    assert ids.totals() == (9_997, 9_997)


@pytest.mark.parametrize("count", [512, 1024, 2048, 3000, 4096])
def test_ids_that_are_free_again_are_taken_though_very_many_came_and_went(count: int) -> None:
    ids = Ids()
    many = ids.next_many(count)
    one = np.ones(len(many), np.int32)
    for _ in range(3):
        ids.add(many, one, one, np.ones(len(many), bool))
        assert ids.moves(0) and not ids.moves(count)
        ids.remove(many)
        assert ids.next() == 0 and not ids.moves(0) and not ids.moves(count)


WRONG: list[tuple[Callable[[Matcher], Any], str]] = [
    (lambda m: m.subscribe("temp >"), "."),
    (lambda m: m.subscribe(3), "expected a text, a Filter or a Subscription"),
    (lambda m: m.subscribe(HOT, 0), "id 0 is in use"),
    (lambda m: m.subscribe(HOT, -1), "id -1: expected 0 to"),
    (lambda m: m.subscribe(HOT, LARGEST + 1), f"id {LARGEST + 1}: expected 0 to"),
    (lambda m: m.subscribe(HOT, 1.5), "ids: expected whole numbers"),
    (lambda m: m.subscribe(Filter((), GlobeCircle(1, 2, 3))), "globe"),
    (lambda m: m.subscribe_many([HOT, "temp >"]), "subscription 1"),
    (lambda m: m.subscribe_many([HOT, HOT], [5]), "2 subscriptions and 1 ids"),
    (lambda m: m.subscribe_many([HOT, HOT], [5, 5]), "id 5 stands twice"),
    (lambda m: m.subscribe_many([HOT, HOT], [5, 0]), "id 0 is in use"),
    (lambda m: m.subscribe_many([HOT], [[5]]), "one dimension"),
    (lambda m: m.subscribe_many([HOT], np.array([2**63], np.uint64)), "id 9223372036854775808"),
    (lambda m: m.subscribe_many(HOT), "expected a list"),
    (lambda m: m.subscribe_many(7), "expected subscriptions"),
    (lambda m: m.unsubscribe(3), "there is no subscription 3"),
    (lambda m: m.unsubscribe(-1), "there is no subscription -1"),
    (lambda m: m.unsubscribe(10**9), "there is no subscription"),
    (lambda m: m.unsubscribe_many([0, 1, 0]), "id 0 stands twice"),
    (lambda m: m.unsubscribe_many([0, 99]), "there is no subscription 99"),
    (lambda m: m.move(3, 1, 1), "there is no subscription 3"),
    (lambda m: m.move("1", 1, 1), "there is no subscription '1'"),
    (lambda m: m.move(0, 1, 1), "subscription 0 has no area to move"),
    (lambda m: m.move(1, 1, 1, filter=0), "filter 0 of subscription 1 has no area"),
    (lambda m: m.move(1, 1, 1, filter=2), "filter 2 of subscription 1 has no area"),
    (lambda m: m.move(1, 1, 1, filter=-1), "filter -1: expected a number from 0"),
    (lambda m: m.move(1, float("nan"), 1), "x nan"),
    (lambda m: m.move(1, 1, 1e39), r"y 1e\+39"),
    (lambda m: m.move(1, 1, 1, -1), "radius -1.0"),
    (lambda m: m.move_many([1, 1], [1, 1], [1, float("inf")]), "area 1: .*inf"),
    (lambda m: m.move_many([1, 0], [1, 1], [1, 1]), "subscription 0 has no area"),
    (lambda m: m.move_many([1, 1], [1, 1], [1, 1], [1, float("nan")]), "area 1: radius nan"),
    (lambda m: m.move_many([1, 1], [1, 1], [1, 1], filters=[1, 0]), "filter 0 of subscription 1"),
    (lambda m: m.move_many([1, 1], [1, 1], [1, 1], filters=[1, -2]), "filter -2"),
    (lambda m: m.move_many([1, 1], [1, 1], [1]), "y: expected one for each of 2 ids"),
    (lambda m: m.move_many([1], [1], [1], [1, 2]), "expected one"),
    (lambda m: m.move_many([1], [1], [1], filters=[1, 1]), "expected one"),
    (lambda m: m.move_many([1], [1], [1], filters=[0.5]), "whole numbers"),
    (lambda m: m.move(1, "a", 1), "move of subscription 1: expected numbers"),
    (lambda m: m.move(1, 1, 1, [2]), "move of subscription 1: expected numbers"),
    (lambda m: m.move_many([1], ["a"], [1]), "x: expected numbers"),
    (lambda m: m.match_batch([], threads=0), "threads 0"),
]


@pytest.mark.parametrize(("call", "message"), WRONG, ids=range(len(WRONG)))
def test_a_wrong_call_is_refused_and_changes_nothing(
    matcher: Matcher, call: Callable[[Matcher], Any], message: str
) -> None:
    matcher.subscribe_many([HOT, "temp > 40 or within(0, 0, 1)"])
    with pytest.raises(SubscriptionError, match=message):
        call(matcher)
    assert len(matcher) == 2 and matcher.stats().filters == 3
    assert matcher.match({"temp": 35, "x": 0, "y": 0}).tolist() == [0, 1]
    assert matcher.match({"x": 1, "y": 1}).tolist() == []
    assert matcher.subscribe(HOT) == 2


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"engine": "fast"}, "engine 'fast': expected one of index, reference"),
        ({"space": "cube"}, "space 'cube'"),
        ({"location": ("x",)}, "location"),
        ({"location": ("x", "x")}, "location"),
        ({"location": "xy"}, None),
        ({"threads": 0}, "threads 0"),
        ({"depth": 3}, "depth"),
    ],
)
def test_a_matcher_of_wrong_options_is_refused(options: dict[str, Any], message: str | None) -> None:
    given = {"engine": "reference", **options}
    if message is None:
        assert Matcher(**given).location == ("x", "y")
        return
    with pytest.raises(SubscriptionError, match=message):
        Matcher(**given)


def test_a_move_gives_one_or_all_areas_another_place(matcher: Matcher) -> None:
    areas = [Filter((), Circle(0, 0, 1)), Filter((Constraint("a", Op.EXISTS),)), Filter((), Circle(9, 0, 2))]
    id = matcher.subscribe(Subscription(tuple(areas)))

    def inside(x: float) -> bool:
        return matcher.match({"x": x, "y": 0}).tolist() == [id]

    assert [inside(x) for x in (0, 9, 50, 60)] == [True, True, False, False]
    matcher.move(id, 50, 0, filter=2)
    assert [inside(x) for x in (0, 9, 50, 52, 60)] == [True, False, True, True, False]
    matcher.move(id, 60, 0)
    assert [inside(x) for x in (0, 50, 58, 61, 62, 63)] == [False, False, True, True, True, False]
    matcher.move(id, 0, 0, 3)
    assert [inside(x) for x in (60, 3, 3.5)] == [False, True, False]
    matcher.move_many([id, id], [10, 20], [0, 0], 1, filters=[-1, 0])
    assert [inside(x) for x in (0, 10, 11, 20, 22)] == [False, True, True, True, False]
    assert matcher.match({"a": 1}).tolist() == [id]


@pytest.mark.parametrize("space", ["plane", "globe"])
def test_engines_move_one_area_alike(space: str) -> None:
    """What numbers are given as and what is wrong with them makes no difference between engines."""
    radius = 1e5 if space == "globe" else 2.0
    areas = [Circle(i, 1, radius) if space == "plane" else GlobeCircle(i, 1, radius) for i in range(4)]
    matchers = [Matcher(engine, space=space) for engine in ("reference", "index")]
    for matcher in matchers:
        matcher.subscribe_many([Subscription((Filter((), area), Filter((), areas[0]))) for area in areas])
        matcher.subscribe(Subscription((Filter((), areas[0]), Filter((Constraint("a", Op.EXISTS),)))))
    numbers = [5.0, np.float64(6.5), 7, np.float32(8.1), True, 10**400, math.inf, math.nan, 1e39, "3", None]
    others = [{}, {"radius": radius}, {"radius": 3}, {"radius": -1.0}, {"radius": math.nan}, {"radius": "2"}]
    others += [{"filter": which} for which in (0, 1, 2, -1, 2**40)]
    outcomes: list[list[Any]] = [[], []]
    for id in (3, np.int64(2), 4, 5, -1, 2**31, 2**63, 2**70, 1.0, True, "1"):
        for number in numbers:
            for other in others:
                for matcher, outcome in zip(matchers, outcomes, strict=True):
                    outcome.append(told(matcher, id, number, other))
    assert outcomes[0] == outcomes[1]
    assert sum(type(outcome) is list for outcome in outcomes[0]) > 50


def told(matcher: Matcher, id: Any, number: Any, others: dict[str, Any]) -> str | list[list[int]]:
    """What an error says, or what matches after the move."""
    try:
        matcher.move(id, number, 1.0, **others)
    except SubscriptionError as error:
        return str(error)
    first, second = matcher.location
    return [sorted(matcher.match({first: place, second: 1.0}).tolist()) for place in (1.0, 5.0, 8.1)]


def test_the_globe_is_round() -> None:
    matcher = Matcher("reference", space="globe")
    matcher.subscribe_many(["within(0, 180, 50 km)", "within(90, 7, 1000 m)", "within(0, 0, 20020 km)"])
    matches = matcher.match_batch(
        {"latitude": [0.1, 0, 90, 89.99, 91], "longitude": [-179.7, 179, -50, 0, 0]}
    )
    assert [sorted(matches[i]) for i in range(5)] == [[0, 2], [2], [1, 2], [2], []]
    matcher.move(1, -90, 0, 2000)
    assert matcher.match({"latitude": -89.99, "longitude": 33}).tolist() == [1, 2]


def test_an_empty_matcher_and_empty_calls_are_fine(matcher: Matcher) -> None:
    assert matcher.match({"a": 1}).tolist() == []
    assert matcher.match_batch([]).offsets.tolist() == [0]
    assert len(matcher.match_batch({})) == 0
    assert matcher.subscribe_many([]).tolist() == []
    matcher.unsubscribe_many([])
    matcher.move_many([], [], [])
    assert len(matcher.match_batch([{}, {}])) == 2


def test_matches_are_read_by_event(matcher: Matcher) -> None:
    matcher.subscribe_many(["a > 0", "a > 1"])
    matches = matcher.match_batch({"a": [2, 0, 1]})
    assert [matches[i].tolist() for i in (0, 1, 2, -1, -3)] == [[0, 1], [], [0], [0], [0, 1]]
    with pytest.raises(IndexError, match="event 3: there are 3"):
        matches[3]


def test_stats_count_what_there_is_and_was_done(matcher: Matcher) -> None:
    matcher.subscribe_many(["a == 'x' and b > 1 or within(0, 0, 1)", "a == 'y'", Subscription(())])
    matcher.match({"a": "y"})
    matcher.match_batch([{"a": "y"}, {"x": 0, "y": 0}, {}])
    stats = matcher.stats()
    assert (stats.engine, stats.subscriptions, stats.filters, stats.constraints) == ("reference", 3, 3, 3)
    assert (stats.names, stats.strings, stats.events, stats.matches) == (2, 2, 4, 3)
    assert all(size >= 0 for size in stats.memory.values()) and sum(stats.memory.values()) > 0
    matcher.unsubscribe(0)
    assert (matcher.stats().filters, matcher.stats().constraints, len(matcher)) == (1, 1, 2)
    assert repr(matcher) == "Matcher('reference', space='plane'): 2 subscriptions"


def texts(n: int) -> list[str]:
    return ["", "é", "\ud800", "a\0", "a", *(f"word{i}" for i in range(n))]


@pytest.mark.parametrize("compiled", [True, False])
def test_strings_keep_numbers_while_they_grow(compiled: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(native, "HAS_CODE", compiled and native.HAS_CODE)
    strings = Strings()
    for n in (0, 3, 300, 5000):
        numbers = strings.intern([*texts(n), *texts(n)])
        assert numbers.tolist() == [*range(n + 5), *range(n + 5)] and numbers.dtype == np.int32
        assert len(strings) == n + 5
    read = [strings.bytes_of(number).decode("utf-8", "surrogatepass") for number in range(len(strings))]
    assert read == texts(5000)
    assert strings.offsets[-1] == len(strings.data) and strings.nbytes >= strings.data.nbytes
    chars = np.frombuffer("xword7\0aé".encode(), np.uint8)
    start, length = np.array([1, 1, 0, 0, 8, 7, 6]), np.array([5, 4, 0, 1, 2, 1, 2], np.int32)
    assert strings.find(chars, start, length).tolist() == [12, -1, 0, -1, 1, 4, -1]
    assert [strings.number(text) for text in ("word4999", "word5000", "", b"a")] == [5004, -1, 0, 4]


def test_compiled_code_heeds_all_sources_of_its_folder(tmp_path: Path) -> None:
    def stamp() -> Any:
        native._sources.cache_clear()
        file = SimpleNamespace(_source_stamp="own")
        scope: dict[str, Any] = {}
        exec(compile("def kernel(): pass", str(tmp_path / "kernel.py"), "exec"), scope)
        native.fresh(SimpleNamespace(_cache=SimpleNamespace(_cache_file=file), py_func=scope["kernel"]))
        return file._source_stamp

    (tmp_path / "part.py").write_text("one = 1")
    first = stamp()
    assert stamp() == first != "own"
    (tmp_path / "part.py").write_text("one = 1 + 1")
    assert stamp() != first
    assert native.fresh(stamp) is stamp
    if native.HAS_CODE:
        numba = pytest.importorskip("numba")
        kernel = native.fresh(numba.njit(cache=True)(abs_of))
        assert isinstance(kernel._cache._cache_file._source_stamp[1], tuple), "numba has changed"


def abs_of(number: float) -> float:
    return abs(number)


@pytest.mark.slow
def test_without_numba_reference_works_and_others_say_what_to_install(checkout: Path) -> None:
    code = """
import sys
sys.modules["numba"] = None
from evflow.matching import Matcher
import evflow as ev
class Reading(ev.Event):
    kind: ev.Str[8]
    note: str
    latitude: float
    longitude: float
matcher = Matcher("reference", space="globe")
matcher.subscribe_many(["kind == 'a' and note endswith 'é'", "within(1, 2, 3 km)"])
batch = ev.EventBatch.from_events([Reading("a", "xé", 1.0, 2.0), Reading("b", "", 5.0, 6.0)])
print([matcher.match_batch(batch)[i].tolist() for i in range(2)], matcher.match(batch[0]).tolist())
for engine in ("index", "two-phase"):
    try:
        Matcher(engine)
    except ev.SubscriptionError as error:
        print(error)
"""
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=checkout,
        capture_output=True,
        encoding="utf-8",
        check=True,
        env=os.environ | {"EVFLOW_MATCHING_JIT": "1"},
    )
    first, *others = done.stdout.splitlines()
    assert first == "[[0, 1], []] [0, 1]"
    assert len(others) == 2 and all("pip install 'evflow[matching]'" in line for line in others)


@pytest.fixture
def checkout() -> Path:
    return Path(evflow.__file__).resolve().parents[1]


@pytest.mark.parametrize("texts", [["1", "2"], [b"1", b"2"], np.array(["1", "2"], object)])
def test_coordinates_that_are_texts_are_no_place(texts: Any) -> None:
    """In columns as in events one by one."""
    matcher = Matcher("reference")
    matcher.subscribe("within(0, 0, 5)")
    for x, expected in ((np.array(texts), []), (np.array([1, 2]), [0]), (np.array([1.0, 2], object), [0])):
        found = matcher.match_batch({"x": x, "y": np.array([1.0, 2.0])})
        assert [found[n].tolist() for n in range(2)] == [expected] * 2
        assert list(matcher.match({"x": x[0], "y": 1.0})) == expected
