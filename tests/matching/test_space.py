from __future__ import annotations

import math
from decimal import Decimal, localcontext

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from evflow.errors import SubscriptionError
from evflow.matching import globe
from evflow.matching.areas.sphere import reach_of
from evflow.matching.model import LIMIT
from evflow.matching.space import EARTH_RADIUS, Globe, Plane, space_of

latitudes = st.floats(-90, 90)
longitudes = st.floats(-1e6, 1e6) | st.sampled_from([180.0, -180.0, 540.0, 179.99999999999997, -0.0])
anything = st.floats() | st.floats(width=32)


def column(*values: float) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    return np.array(values, np.float64)


def exact_sine(degrees: float) -> float:
    """By its series, in decimals."""
    with localcontext(prec=60):
        radians = (
            Decimal(degrees) * Decimal("3.14159265358979323846264338327950288419716939937510582097494") / 180
        )
        term, total, n = radians, Decimal(0), 1
        while abs(term) > Decimal(10) ** -50:
            total += term
            term = -term * radians * radians / ((n + 1) * (n + 2))
            n += 2
        return float(total)


@given(st.floats(-180, 180))
@example(45.0)
@example(135.0)
@example(-135.00000000000003)
def test_sine_and_cosine_are_as_exact_as_float64_can_say(degrees: float) -> None:
    sine, cosine = globe.sine_cosine(degrees)
    assert getattr(globe.sine_cosine, "py_func", globe.sine_cosine)(degrees) == (sine, cosine)
    assert abs(sine - exact_sine(degrees)) < 2.3e-16
    assert abs(cosine - math.cos(math.radians(degrees))) < 4e-16


@given(latitudes, longitudes)
def test_a_place_is_a_unit_vector_in_the_usual_directions(latitude: float, longitude: float) -> None:
    (vector,) = Globe().places(column(latitude), column(longitude))
    a, b = math.radians(latitude), math.radians(math.fmod(longitude, 360.0))
    expected = (math.cos(a) * math.cos(b), math.cos(a) * math.sin(b), math.sin(a))
    assert np.allclose(vector, expected, rtol=0, atol=2e-15)
    assert abs(np.dot(vector, vector) - 1) < 1e-15


@given(anything, anything, st.integers(1, 20), st.integers(0, 19))
@example(90.0, 12.0, 9, 3)
@example(0.0, 180.0, 9, 8)
def test_a_place_has_the_same_bits_alone_in_a_column_and_interpreted(
    first: float, second: float, n: int, at: int
) -> None:
    for space in (Plane(), Globe()):
        (one,) = space.places(column(first), column(second))
        x, y = np.linspace(-80, 80, n), np.linspace(-300, 300, n)
        x[at % n], y[at % n] = first, second
        assert space.places(x, y)[at % n].tobytes() == one.tobytes() or np.isnan(one).any()
        assert np.array_equal(space.places(x, y)[at % n], one, equal_nan=True)
    (compiled,) = Globe().places(column(first), column(second))
    assert np.array_equal(globe.place_vector(first, second), compiled, equal_nan=True)


def test_poles_and_antimeridian_are_single_points() -> None:
    vectors = Globe().places(column(90, 90, -90, 0, 0, 0, 0), column(0, 123, -7, 180, -180, 540, 900))
    assert vectors[:3].tolist() == [[0, 0, 1], [0, 0, 1], [0, 0, -1]]
    assert vectors[3:].tolist() == [[-1, 0, 0]] * 4
    assert not np.signbit(vectors[vectors == 0]).any()


@given(latitudes, longitudes, st.integers(-5, 5))
def test_longitudes_go_round(latitude: float, longitude: float, turns: int) -> None:
    around = math.fmod(longitude, 360.0)
    one, other = Globe().places(column(latitude, latitude), column(longitude, around))
    assert one.tolist() == other.tolist()
    if math.fmod(around + 360.0 * turns, 360.0) == around:
        (third,) = Globe().places(column(latitude), column(around + 360.0 * turns))
        assert third.tolist() == one.tolist()


def test_what_is_no_place_is_nowhere() -> None:
    bad = [(90.00000000000001, 0), (-91, 0), (math.nan, 0), (0, math.nan), (0, math.inf), (math.inf, 0)]
    first, second = (column(*values) for values in zip(*bad, strict=True))
    assert np.isnan(Globe().places(first, second)).all()
    bad = [(1e39, 0), (math.nextafter(LIMIT, math.inf), 0), (math.nan, 0), (0, -math.inf)]
    first, second = (column(*values) for values in zip(*bad, strict=True))
    assert np.isnan(Plane().places(first, second)).all()
    assert Plane().places(column(-LIMIT), column(LIMIT)).tolist() == [[-LIMIT, LIMIT]]


@given(st.floats(0, 1e8) | st.floats(0, 1e38))
def test_a_reach_is_the_square_of_the_chord(radius: float) -> None:
    (reach,) = Globe().reaches(column(radius))
    assert reach == reach_of(radius)
    if radius >= math.pi * EARTH_RADIUS:
        assert reach > 4
    else:
        chord = 2 * math.sin(radius / (2 * EARTH_RADIUS))
        assert reach == pytest.approx(chord * chord, rel=1e-14, abs=1e-300)


def test_half_the_circumference_reaches_the_other_side() -> None:
    space = Globe()
    centre, across = space.places(column(33.3, -33.3), column(44.4, -135.6))
    square = ((centre - across) ** 2).sum()
    assert square <= space.reaches(column(math.pi * EARTH_RADIUS))[0]
    assert square > space.reaches(column(math.pi * EARTH_RADIUS - 1000))[0]


def test_plane_numbers_stay_as_they_are() -> None:
    assert Plane().places(column(0.1), column(5_600_000.24)).tolist() == [[0.1, 5_600_000.24]]
    assert Plane().reaches(column(0.1)).tolist() == [0.1 * 0.1]


@pytest.mark.parametrize("space", [Plane(), Globe()], ids=lambda space: space.name)
def test_areas_that_are_nowhere_are_refused_by_number(space: Plane | Globe) -> None:
    with pytest.raises(SubscriptionError, match=r"area 1: .* nan"):
        space.check(column(1, math.nan, math.nan), column(1, 2, 3), None)
    for radius in (-1.0, math.nan, math.inf):
        with pytest.raises(SubscriptionError, match="area 2: radius"):
            space.check(column(1, 2, 3), column(1, 2, 3), column(1, 0, radius))


def test_an_unknown_space_is_refused() -> None:
    with pytest.raises(SubscriptionError, match="'plane' or 'globe'"):
        space_of("cube")
