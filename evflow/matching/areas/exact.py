"""On which side of a line a point lies: exact for all coordinates of areas.

The determinant is computed in float64 and believed if it exceeds what rounding can have done; else its six
products are summed as expansions (Shewchuk, "Adaptive Precision Floating-Point Arithmetic and Fast Robust
Geometric Predicates", 1997: the filter of section 4.3, GROW-EXPANSION with elimination of zeros).
"""

from __future__ import annotations

from typing import Any

from evflow.matching.native import compiled

WORK = 256
"""How many float64 a kernel needs to work in."""

_DOUBTFUL = 3.3306690738754716e-16
_SAFE = 1e-280
"""From here on products that lose bits to underflow make no difference."""

_SCALE = 2.0**380
"""Takes coordinates of 1e-250 to 3.4e38 to where no product and no rest of one leaves float64."""

_SPLIT = 134217729.0


@compiled
def _add(work: Any, count: int, more: float) -> int:
    """Adds a number to an expansion of so many; how many it has then."""
    kept = 0
    for i in range(count):
        held = work[i]
        total = more + held
        part = total - more
        rest = (more - (total - part)) + (held - part)
        more = total
        if rest != 0.0:
            work[kept] = rest
            kept += 1
    if more != 0.0:
        work[kept] = more
        kept += 1
    return kept


@compiled
def _add_product(work: Any, count: int, left: float, right: float) -> int:
    """Adds a product, with its rounding error, to an expansion."""
    product = left * right
    wide = _SPLIT * left
    left_high = wide - (wide - left)
    left_low = left - left_high
    wide = _SPLIT * right
    right_high = wide - (wide - right)
    right_low = right - right_high
    rest = product - left_high * right_high
    rest = left_low * right_low - ((rest - left_low * right_high) - left_high * right_low)
    return _add(work, _add(work, count, rest), product)


@compiled
def _exactly(ax: float, ay: float, bx: float, by: float, px: float, py: float, work: Any) -> int:
    ax *= _SCALE
    ay *= _SCALE
    bx *= _SCALE
    by *= _SCALE
    px *= _SCALE
    py *= _SCALE
    count = _add_product(work, 0, ax, by)
    count = _add_product(work, count, -ay, bx)
    count = _add_product(work, count, bx, py)
    count = _add_product(work, count, -by, px)
    count = _add_product(work, count, px, ay)
    count = _add_product(work, count, -py, ax)
    if count == 0:
        return 0
    return 1 if work[count - 1] > 0.0 else -1


@compiled
def side(ax: float, ay: float, bx: float, by: float, px: float, py: float, work: Any) -> int:
    """1 if p lies left of the line from a to b, -1 if it lies right of it, 0 if it lies on it.

    Args:
        ax, ay, bx, by, px, py: coordinates: 0, or from 1e-250 to 3.4e38, whatever the sign.
        work: ``WORK`` float64 to work in.
    """
    left = (ax - px) * (by - py)
    right = (ay - py) * (bx - px)
    size = abs(left) + abs(right)
    found = left - right
    if size > _SAFE and abs(found) > _DOUBTFUL * size:
        return 1 if found > 0.0 else -1
    if (ax == px or by == py) and (ay == py or bx == px):
        return 0
    return _exactly(ax, ay, bx, by, px, py, work)
