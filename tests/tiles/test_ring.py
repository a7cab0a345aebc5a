"""Consistent hashing: spread and movement."""

from __future__ import annotations

import numpy as np
import pytest

from evflow.errors import GraphError
from evflow.tiles.messages import Place
from evflow.tiles.plan import Plan
from evflow.tiles.ring import Ring

KEYS = np.arange(200_000, dtype=np.int64)


def _ring(groups: int, r: int = 2) -> Ring:
    return Ring({g: tuple(f"h{g}.{i}" for i in range(r)) for g in range(groups)})


@pytest.mark.parametrize("groups", [1, 2, 7, 32])
def test_groups_get_like_shares(groups: int) -> None:
    shares = np.bincount(_ring(groups).owners(KEYS), minlength=groups) * groups / len(KEYS)
    assert shares.min() > 0.85 and shares.max() < 1.15


@pytest.mark.parametrize("groups", [1, 4, 15])
def test_only_keys_of_a_group_that_comes_move(groups: int) -> None:
    before, after = _ring(groups).owners(KEYS), _ring(groups + 1).owners(KEYS)
    moved = before != after
    assert (after[moved] == groups).all()
    assert 0.8 < moved.mean() * (groups + 1) < 1.2


def test_a_ring_grows_by_one_host_at_a_time() -> None:
    ring = Ring({0: ("b", "a")})
    ring = ring.grown("c", 2)
    assert (ring.groups, ring.spare) == ({0: ("b", "a")}, ("c",))
    assert ring.grown("d", 2).groups == {0: ("b", "a"), 1: ("c", "d")}
    assert ring.grown("d", 2, 7).groups == {0: ("b", "a"), 7: ("c", "d")}


def test_a_ring_that_a_host_leaves() -> None:
    ring = Ring({0: ("a", "b"), 1: ("c", "d")}, ("e",))
    # A spare host stands in, where the other was, and no key moves.
    assert ring.without("a").groups == {0: ("e", "b"), 1: ("c", "d")}
    assert ring.without("e").spare == ()
    # Without a spare host the group ends.
    shrunk = Ring({0: ("a", "b"), 1: ("c", "d")}).without("a")
    assert (shrunk.groups, shrunk.spare) == ({1: ("c", "d")}, ("b",))


def test_wrong_rings_are_refused() -> None:
    with pytest.raises(GraphError, match="each host in one of them only"):
        Ring({0: ("a",), 1: ("a",)})
    for host in ("a", "b"):
        with pytest.raises(GraphError, match="expected one of the ring"):
            Ring({0: ("a",)}).without(host)


def test_a_plan_says_who_joins_and_leaves_in_steps() -> None:
    plan = Plan.made("abcd", "abcd", "abcd", 2, 15)
    assert (plan.states.groups, plan.stage) == ({0: ("a", "b"), 1: ("c", "d")}, 0)
    # A spare host has a Frontend, and no key moves.
    spare = plan.grown("e")
    assert (spare.stage, spare.next, spare.states.spare, spare.roles(4)) == (
        2, None, ("e",), [Place("frontend", 4)],
    )  # fmt: skip
    comes = spare.grown("f")
    assert comes.stage == 3 and comes.states.groups == plan.states.groups
    assert comes.settled().states.groups == {**plan.states.groups, 2: ("e", "f")}
    assert comes.where[Place("tile", 2, 1)] == comes.number("f") == 5
    # A spare host stands in, a group without one ends, and no number is given twice.
    assert spare.without("c").where[Place("state", 1)] == 4
    ends = comes.settled().without("a")
    assert ends.settled().states.groups == {1: ("c", "d"), 2: ("e", "f")}
    assert ends.settled().grown("a").settled().states.groups == {
        **ends.settled().states.groups,
        3: ("b", "a"),
    }
    assert Plan.read(ends.text()).text() == ends.text()


def test_plans_that_cannot_be_are_refused() -> None:
    plan = Plan.made("ab", "ab", "ab", 1, 15)
    for wrong, what in (
        (lambda: plan.grown("a"), "does not play a role yet"),
        (lambda: plan.grown("c", ["client"]), "expected some of frontends"),
        (lambda: plan.without("c"), "expected one of"),
        (lambda: plan.grown("c").grown("d"), "a change is under way"),
        (lambda: plan.without("a").settled().without("b"), "another one with a Frontend"),
        (lambda: Plan.read("{}"), "expected what Plan.plain gives"),
        (lambda: Plan.read("{"), "expected JSON"),
    ):
        with pytest.raises(GraphError, match=what):
            wrong()
