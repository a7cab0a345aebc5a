"""Stones that work on blocks on their way: numpy, over the whole array, is the oracle."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

import evflow as ev
from evflow.errors import StagingError
from evflow.staging import Variable, histogram, summary, thinned, within

HEAT = Variable("heat", "f8", (12, 8))
BLOCK = (6, 4)
PLACES = [(0, 0), (0, 4), (6, 0), (6, 4)]


def through(
    stone: Any, steps: Sequence[np.ndarray[Any, Any]], variable: Variable = HEAT, shape: Any = BLOCK
) -> list[Any]:
    """What comes of the blocks of some steps."""
    places = PLACES if variable is HEAT else [(0,) * len(shape)]
    seen: list[Any] = []
    graph, schema = ev.Graph(), variable.event(shape)
    graph.source("blocks", schema) >> stone >> ev.Terminal(lambda event: seen.append(event.to_event()))
    with graph.run() as flow:
        for step, whole in enumerate(steps):
            for part, place in enumerate(places):
                block = whole[tuple(slice(a, a + n) for a, n in zip(place, shape, strict=True))]
                counts = {"step": [step], "time": [step / 2], "rank": [part], "part": [part]}
                columns = {**counts, "parts": [len(places)], "offset": [place], "values": block[np.newaxis]}
                flow["blocks"].submit_batch(columns)
        flow.drain()
    return seen


def steps_of(seed: int, count: int = 3) -> list[np.ndarray[Any, Any]]:
    random = np.random.default_rng(seed)
    made = [random.normal(0, 2, (12, 8)) for _ in range(count)]
    made[-1][random.random((12, 8)) < 0.2] = np.nan
    return made


def test_summary_is_that_of_numpy_over_all_blocks_of_a_step() -> None:
    steps = [*steps_of(1), np.full((12, 8), np.nan)]
    found = through(summary(HEAT, BLOCK), steps)
    assert [(one.step, one.time) for one in found] == [(0, 0.0), (1, 0.5), (2, 1.0), (3, 1.5)]
    for one, whole in zip(found[:3], steps, strict=False):
        assert one.count == np.count_nonzero(~np.isnan(whole))
        assert (one.least, one.greatest) == (np.nanmin(whole), np.nanmax(whole))
        np.testing.assert_allclose(one.mean, np.nanmean(whole), rtol=1e-12)
    assert found[3].count == 0
    assert np.isnan([found[3].least, found[3].greatest, found[3].mean]).all()


@pytest.mark.parametrize(
    ("dtype", "shape"), [("i1", (7,)), ("u8", (3, 2, 4)), ("f4", (2, 3)), ("i8", (1, 2, 1, 2))]
)
def test_summary_of_any_type_and_number_of_dimensions(dtype: str, shape: tuple[int, ...]) -> None:
    variable = Variable("some", dtype, shape)
    whole = np.random.default_rng(2).integers(0, 100, shape).astype(dtype)
    (found,) = through(summary(variable, shape), [whole], variable, shape)
    assert (found.count, found.least, found.greatest) == (whole.size, whole.min(), whole.max())
    np.testing.assert_allclose(found.mean, whole.mean(dtype=float))


@pytest.mark.parametrize(
    "edges", [[-1.0, 1.0], [-3, -0.5, 0.25, 2.5], np.linspace(-5, 5, 1001).tolist(), [0, 1e-300, 1e300]]
)
def test_histogram_is_that_of_numpy(edges: list[float]) -> None:
    steps = steps_of(3)
    # Elements on the edges themselves, the last one too.
    steps[0].flat[: min(len(edges), 90)] = edges[-90:]
    for found, whole in zip(through(histogram(HEAT, BLOCK, edges), steps), steps, strict=True):
        expected = np.histogram(whole[~np.isnan(whole)], edges)[0]
        assert found.counts.tolist() == expected.tolist()


@pytest.mark.parametrize("lost", range(4))
def test_nothing_is_told_of_a_step_that_lacks_a_block(lost: int) -> None:
    whole, seen = np.arange(96.0).reshape(12, 8), list[Any]()
    graph = ev.Graph()
    source = graph.source("blocks", HEAT.event(BLOCK))
    source >> summary(HEAT, BLOCK) >> ev.Terminal(lambda found: seen.append(found.to_event()))
    source >> histogram(HEAT, BLOCK, [0, 100]) >> ev.Terminal(lambda found: seen.append(found.to_event()))
    with graph.run() as flow:
        for step, part in [(step, part) for step in range(3) for part in range(4)]:
            if (step, part) != (1, lost):
                y, x = PLACES[part]
                place = {"step": [step], "time": [0.0], "rank": [part], "part": [part], "parts": [4]}
                values = whole[np.newaxis, y : y + 6, x : x + 4]
                flow["blocks"].submit_batch(place | {"offset": [PLACES[part]], "values": values})
        flow.drain()
    assert sorted(one.step for one in seen) == [0, 0, 2, 2]
    assert {one.count if hasattr(one, "count") else one.counts.sum() for one in seen} == {96}


def test_thinned_blocks_make_the_thinned_array() -> None:
    steps = steps_of(4)
    found = through(thinned(HEAT, BLOCK, 2), steps)
    for step, whole in enumerate(steps):
        made = np.zeros((6, 4))
        for one in found[4 * step : 4 * step + 4]:
            assert (one.step, one.time, one.parts) == (step, step / 2, 4)
            y, x = one.offset
            made[y : y + 3, x : x + 2] = one.values
        assert made.tobytes() == np.ascontiguousarray(whole[::2, ::2]).tobytes()


def test_thinned_blocks_that_begin_anywhere_keep_elements_of_the_same_grid() -> None:
    variable = Variable("line", "i4", (10,))
    graph, seen = ev.Graph(), list[Any]()
    source = graph.source("blocks", variable.event((3,)))
    source >> thinned(variable, (3,), 3) >> ev.Terminal(lambda event: seen.append(event.to_event()))
    with graph.run() as flow:
        for offset in range(7):
            columns = {"offset": [[offset]], "values": [np.arange(offset, offset + 3)]}
            flow["blocks"].submit_batch({field.name: [0] for field in variable.event((3,)).fields} | columns)
        flow.drain()
    assert [(one.offset[0] * 3, one.values[0]) for one in seen] == [
        (place, place) for place in (0, 3, 3, 3, 6, 6, 6)
    ]


@pytest.mark.parametrize(
    ("low", "high", "ranks"),
    [
        ((0, 0), (12, 8), [0, 1, 2, 3]),
        ((0, 0), (1, 1), [0]),
        ((5, 3), (7, 5), [0, 1, 2, 3]),
        ((6, 3), (7, 4), [2]),
        ((-9, 4), (6, 99), [1]),
        ((12, 0), (20, 8), []),
    ],
)
def test_within_lets_pass_what_has_an_element_in_the_box(low: Any, high: Any, ranks: list[int]) -> None:
    assert [one.rank for one in through(within(HEAT, BLOCK, low, high), steps_of(5, 1))] == ranks


def test_wrong_settings_are_refused() -> None:
    with pytest.raises(StagingError, match="a number that divides each side"):
        thinned(HEAT, BLOCK, 4)
    with pytest.raises(StagingError, match="each greater than the one before"):
        histogram(HEAT, BLOCK, [1, 1])
    with pytest.raises(StagingError, match="2 to 1001 numbers"):
        histogram(HEAT, BLOCK, [0, float("nan")])
    with pytest.raises(StagingError, match="an integer for each dimension"):
        within(HEAT, BLOCK, (0,), (1,))
    with pytest.raises(StagingError, match="more than"):
        within(HEAT, BLOCK, (3, 3), (4, 3))
    with pytest.raises(StagingError, match="block"):
        summary(HEAT, (13, 8))


@pytest.mark.parametrize(
    "make",
    [
        lambda: HEAT.block(3),
        lambda: summary(HEAT, None),  # type: ignore[arg-type]
        lambda: summary("heat", BLOCK),  # type: ignore[arg-type]
        lambda: histogram(HEAT, 5, [0, 1]),  # type: ignore[arg-type]
        lambda: thinned(None, BLOCK, 2),  # type: ignore[arg-type]
        lambda: within(HEAT.block(BLOCK), BLOCK, (0, 0), (1, 1)),  # type: ignore[arg-type]
        lambda: HEAT.event("ab"),
        lambda: HEAT.block((1, 1), 5),
        lambda: histogram(HEAT, BLOCK, [[1], [1, 2]]),
        lambda: histogram(HEAT, BLOCK, "abc"),
        lambda: histogram(HEAT, BLOCK, 5),
        lambda: within(HEAT, BLOCK, 3, 4),
        lambda: thinned(HEAT, BLOCK, "a"),
        lambda: thinned(HEAT, 3, 2),  # type: ignore[arg-type]
        lambda: histogram(HEAT, BLOCK, [0, 10**400]),
        lambda: histogram(HEAT, BLOCK, [0, 1j]),  # type: ignore[list-item]
        lambda: Variable("a", "f8", (1,), attributes=3),  # type: ignore[arg-type]
    ],
)
def test_settings_of_another_type_are_refused_by_name(make: Any) -> None:
    with pytest.raises(StagingError, match="expected"):
        make()
