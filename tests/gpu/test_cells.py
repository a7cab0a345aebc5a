"""Buckets of filters by the cells that their centres lie in."""

from __future__ import annotations

import numpy as np
import pytest

from evflow.gpu.cells import EVERYWHERE, Cells


@pytest.mark.parametrize("dimensions", [2, 3])
@pytest.mark.parametrize("radius", [0.0, 1e-12, 1e-3])
@pytest.mark.parametrize("origin", [0.0, 1.0, 1e3, 6.4e6])
def test_filters_apart_have_buckets_of_their_own(dimensions: int, radius: float, origin: float) -> None:
    count = 2000
    kind = np.float32 if dimensions == 2 else np.float64
    apart = np.random.default_rng(3).uniform(0, 100, (count, dimensions)) + origin
    centre, reach = apart.astype(kind), np.full(count, radius**2, kind)
    found = np.unique(Cells(centre, reach).buckets(centre, reach))
    # As many as balls thrown at random fill, or those that there are of different centres.
    different = min(count, len(np.unique(centre, axis=0)))
    assert len(found) > different / 2


@pytest.mark.parametrize("dimensions", [2, 3])
def test_the_buckets_near_a_place_have_all_filters_around_it(dimensions: int) -> None:
    random = np.random.default_rng(5)
    centre, radius = random.uniform(-50, 50, (500, dimensions)), 10 ** random.uniform(-3, 1.5, 500)
    cells = Cells(centre, radius**2)
    buckets = cells.buckets(centre, radius**2)
    places = np.concatenate((random.uniform(-50, 50, (200, dimensions)), centre[:50]))
    near = cells.near(places)
    inside = np.linalg.norm(places[:, None] - centre, axis=2) <= radius
    assert inside.sum() > 300
    for place, filter in np.argwhere(inside):
        assert buckets[filter] == EVERYWHERE or buckets[filter] in near[place]


@pytest.mark.parametrize("radius", [1.999999999999999, 1e-150, 2.3e-162, 0.0])
def test_the_buckets_near_a_place_have_filters_that_only_rounding_puts_around_it(radius: float) -> None:
    random = np.random.default_rng(7)
    centre = random.uniform(-8, 8, (500, 2)) * max(radius, 1e-165)
    reach = np.full(500, radius * radius)
    cells = Cells(centre, reach)
    buckets = cells.buckets(centre, reach)
    angle, far = random.uniform(0, 7, 500), max(radius, 1e-163) * random.uniform(0.9, 1.3, 500)
    places = centre + np.stack([np.cos(angle), np.sin(angle)], axis=1) * far[:, None]
    apart = places - centre
    held = np.flatnonzero((apart * apart).sum(axis=1) <= reach)
    near = cells.near(places)
    assert len(held) > 50
    assert all(buckets[filter] in near[filter] for filter in held)
