"""Consistent hashing: spread and movement."""

from __future__ import annotations

import numpy as np
import pytest

from evflow.errors import GraphError
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
    assert (ring.groups, ring.spare) == ({0: ("a", "b")}, ("c",))
    assert ring.grown("d", 2).groups == {0: ("a", "b"), 1: ("c", "d")}
    # A spare host stands in, and no key moves.
    assert ring.without("a").groups == {0: ("b", "c")}
    assert ring.without("c").spare == ()


def test_wrong_rings_are_refused() -> None:
    with pytest.raises(GraphError, match="each host in one of them only"):
        Ring({0: ("a",), 1: ("a",)})
    with pytest.raises(GraphError, match="expected one of the ring"):
        Ring({0: ("a",)}).without("a")
