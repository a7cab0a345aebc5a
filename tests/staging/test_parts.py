"""Blocks that make a whole, offsets that are settled in a tree, and what schedulers allow."""

from __future__ import annotations

import itertools
from typing import Any
from unittest import mock

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from evflow.errors import StagingError
from evflow.staging import All, AvoidCongestion, ConstantDrain, InOrder, RateLimit, Scheduler, Stage, Variable
from evflow.staging.gathering import Gathering, Part
from evflow.staging.messages import Ready
from evflow.staging.model import Block, by_name, trouble_with
from evflow.staging.pulling import Piece, Pulling
from tests.examples import tried

CUBE = Variable("cube", "u1", (4, 3, 5))
ROWS = Variable("rows", "i2", (None, 2))

_sides = st.tuples(*(st.tuples(st.integers(0, n - 1), st.integers(1, n)) for n in (4, 3, 5)))


@pytest.mark.parametrize("beside", [(1, 0, 0), (0, 1, 0), (0, 0, 1)])
def test_blocks_that_only_touch_are_not_compared_with_each_other(beside: Any, monkeypatch: Any) -> None:
    many = 500
    sizes = tuple(many if side else 4 for side in beside)
    plates = Variable("plates", "u1", sizes)
    shape = tuple(1 if side else 4 for side in beside)
    blocks = {rank: plates.block(shape, tuple(rank * side for side in beside)) for rank in range(many)}
    overlaps = mock.Mock(return_value=False)
    monkeypatch.setattr(Block, "overlaps", overlaps)
    assert trouble_with(plates, blocks) == ""
    assert overlaps.call_count < many


@settings(max_examples=tried(60), deadline=None)
@given(st.lists(_sides, max_size=5), st.booleans())
def test_overlaps_and_gaps_are_found_as_by_counting(sides: list[Any], gaps: bool) -> None:
    counted = np.zeros((4, 3, 5), int)
    blocks = {}
    for rank, block in enumerate(sides):
        offset = [start for start, _ in block]
        shape = [min(n, whole - start) for (start, n), whole in zip(block, (4, 3, 5), strict=True)]
        blocks[rank] = CUBE.block(shape, offset)
        counted[tuple(slice(o, o + n) for o, n in zip(offset, shape, strict=True))] += 1
    found = trouble_with(CUBE, blocks, gaps)
    if (counted > 1).any():
        assert "overlaps" in found
    elif gaps or counted.all():
        assert found == ""
    else:
        assert found == f"cube: {(counted == 0).sum()} of 60 elements are in no block"


@settings(max_examples=tried(30), deadline=None)
@given(st.lists(st.integers(0, 4), min_size=1, max_size=8), st.data())
def test_rows_are_settled_as_by_a_prefix_sum_in_any_tree(counts: list[int], data: st.DataObject) -> None:
    def grown(ranks: list[int]) -> Part:
        """The part of a tree of random shape over these ranks, whose parts come in any order."""
        if len(ranks) == 1:
            ready = Ready(0, 0.0, (ROWS.block((counts[ranks[0]], 2)),), 0, 1, 0)
            return Part.of(ranks[0], 1, ready, by_name([ROWS]), [b""])
        cuts = sorted(data.draw(st.sets(st.integers(1, len(ranks) - 1), min_size=1)))
        groups = [ranks[a:b] for a, b in itertools.pairwise([0, *cuts, len(ranks)])]
        node = Gathering({str(group): group for group in groups}, 1.0)
        node.opened(0, 0.0)
        for group in data.draw(st.permutations(groups)):
            assert not isinstance(node.next(0.0), Part)
            node.arrived(str(group), grown(group))
        whole = node.next(0.0)
        assert isinstance(whole, Part)
        return whole

    whole = grown(list(range(len(counts))))
    assert [whole.blocks[rank][0].offset for rank in range(len(counts))] == [
        (sum(counts[:rank]), 0) for rank in range(len(counts))
    ]
    assert whole.rows == {"rows": sum(counts)}


@pytest.mark.parametrize(
    ("wrong", "why"),
    [
        (("a b", "f8", (1,)), "letters"), (("step", "f8", (1,)), "of its own"), (("a", "f2", (1,)), "dtype"),
        (("a", "f8", ()), "1 to 8 sizes"), (("a", "f8", (2, None)), "first may be None"),
        (("a", "f8", (0,)), "1 or more"), (("a", np.dtype("f8"), (1,)), "one of f4"),
        (("a", "f8", (1 << 40,)), "less than"), (("a", "f8", (1, 2), "xy"), "a tuple of names"),
        (("a", "f8", (1, 2), ("x",)), "2 different names"),
        (("a", "f8", (1,), ("a",)), "none of them"), (("a", "f8", (1,), (), {"k": []}), "text or a number"),
    ],
)  # fmt: skip
def test_wrong_variable_is_refused(wrong: tuple[Any, ...], why: str) -> None:
    with pytest.raises(StagingError, match=why):
        Variable(*wrong)


def test_a_block_without_elements_is_to_be_left_out() -> None:
    with pytest.raises(StagingError, match="a block without elements; leave a out of this step"):
        Variable("a", "f8", (3,)).block((0,), (3,))
    assert Variable("a", "f8", (None, 3)).block((0, 3)).nbytes == 0


def test_variables_agree_about_dimensions() -> None:
    with pytest.raises(StagingError, match="dimension x: expected one size, found 2 and 3"):
        by_name([Variable("a", "f8", (2,), ("x",)), Variable("b", "f8", (3,), ("x",))])
    with pytest.raises(StagingError, match="each name once"):
        by_name([ROWS, ROWS])


def pulls(scheduler: Scheduler, offers: list[tuple[int, int]], size: int = 250, **settings: Any) -> list[Any]:
    """Step, rank and time of each piece of 100 bytes; a look takes 0.01 s, two are under way."""
    pulling, copied = Pulling(scheduler, 100, 1 << 20), mock.Mock(blocks=lambda transfer: [])
    pulling.phases.update(settings.get("phases", {}))
    for rank, step in offers:
        block = Variable("v", "u1", (size,)).block((size,))
        pulling.offer(rank, 1, Ready(step, 0.0, (block,), 0, 1, 0), copied, 0.0)
    found, moving, now = [], [], 0.0
    while now < 10:
        piece = pulling.next(settings.get("behind", ()), now)
        if isinstance(piece, Piece):
            found.append((piece.transfer.step, piece.transfer.rank, round(now, 2)))
            moving.append(piece)
        if len(moving) == 2 or (moving and not isinstance(piece, Piece)):
            pulling.moved(moving.pop(0), True)
        now += 0.01
    return found


OFFERS = [(1, 1), (0, 2), (0, 1), (1, 2)]


def test_constant_drain_begins_the_next_when_one_is_done() -> None:
    found = [place[:2] for place in pulls(ConstantDrain(1), OFFERS)]
    assert [place for place, _ in itertools.groupby(found)] == [(1, 0), (1, 1), (2, 0), (2, 1)]
    assert len(found) == 12


@pytest.mark.parametrize("key", [("step", "rank"), ("rank", "step")])
def test_in_order_pulls_by_its_key(key: tuple[str, str]) -> None:
    found = [place for place, _ in itertools.groupby(place[:2] for place in pulls(InOrder(key), OFFERS))]
    assert found == sorted(found, key=lambda place: place if key[0] == "step" else place[::-1])
    assert len(found) == 4


def test_in_order_waits_for_what_may_come_first() -> None:
    def begun(*behind: tuple[int, int]) -> list[tuple[int, int]]:
        return sorted({place[:2] for place in pulls(InOrder(), OFFERS, behind=behind)})

    # Ranks 0 and 1 offer steps 1 and 2. By step and rank, what a rank announces next comes before or behind.
    assert begun((7, 1)) == [(1, 0), (1, 1), (2, 0), (2, 1)]
    assert begun((7, 0)) == [(1, 0), (1, 1)]
    assert begun((1, 1)) == [(1, 0), (1, 1), (2, 0), (2, 1)]
    assert begun((0, 1)) == [(1, 0), (1, 1), (2, 0)]
    assert begun((7, 1), (0, 0)) == [(1, 0)]
    assert begun((7, -1), (0, 1)) == []


def test_congestion_is_avoided() -> None:
    found = pulls(AvoidCongestion(), OFFERS, phases={0: True})
    assert {place[:2] for place in found} == {(1, 1), (2, 1)}


def test_rate_is_limited_over_any_time_for_each_writer() -> None:
    rate = 500.0
    found = pulls(RateLimit(rate), OFFERS)
    assert len(found) == 12
    for rank in (0, 1):
        times = [now for _, own, now in found if own == rank]
        for i, j in itertools.combinations(range(len(times)), 2):
            # Bytes of these pieces but the last, all of 100 at most.
            assert 50 * (j - i) <= rate * (times[j] - times[i]) + 100


def test_all_allow_what_each_allows() -> None:
    found = pulls(All([InOrder(("rank", "step")), ConstantDrain(1), RateLimit(500.0)]), OFFERS)
    assert [place[:2] for place in found] == [p for p in ((1, 0), (2, 0), (1, 1), (2, 1)) for _ in range(3)]
    assert found[-1][2] > 0.8


def nested(depth: int) -> Any:
    """Plain data of schedulers within each other."""
    made: Any = {"type": "Scheduler"}
    for _ in range(depth):
        made = {"type": "All", "schedulers": [made]}
    return made


@pytest.mark.parametrize(
    "wrong",
    [
        {"type": "Fast"}, "x", [], {"type": "RateLimit", "rate": -1}, {"type": "InOrder", "key": ["x"]},
        {"type": "All", "schedulers": []}, {"type": "ConstantDrain", "pulls": 0},
        nested(5000),
    ],
)  # fmt: skip
def test_wrong_scheduler_is_refused(wrong: Any) -> None:
    with pytest.raises(StagingError):
        Stage([ROWS], 1, "socket", "run.h5", scheduler=wrong)


@pytest.mark.parametrize("wrong", ["x", InOrder, {"type": "Fast"}, {}])
def test_an_unknown_scheduler_is_told_which_there_are(wrong: Any) -> None:
    known = "Scheduler, ConstantDrain, AvoidCongestion, InOrder, RateLimit, All"
    with pytest.raises(StagingError, match=f"stage: scheduler .*: expected one of {known}"):
        Stage([ROWS], 1, "socket", "run.h5", scheduler=wrong)


@pytest.mark.parametrize("wrong", [InOrder(), [], [InOrder(), "x"]])
def test_all_expects_a_list_of_schedulers(wrong: Any) -> None:
    with pytest.raises(StagingError, match=r"all: schedulers .*expected a list of one or more"):
        All(wrong)


@pytest.mark.parametrize(
    "wrong", [5, None, "step", ("step",), ("rank", "rank"), ("step", 3), [["step"], "rank"]]
)
def test_in_order_expects_one_of_two_keys(wrong: Any) -> None:
    with pytest.raises(StagingError, match=r"in order: key .*: expected \('step', 'rank'\) or"):
        InOrder(wrong)
