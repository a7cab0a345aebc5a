"""Overlap on the plane, and of what latitudes and longitudes bound as if they were on a plane.

Areas are read from the columns of ``AreaColumns``, which stand in a tuple: kind, numbers, first and last
ring, rings, corners. ``turn`` is added to second coordinates: 0 on the plane.

On which side of a line a point lies is exact for all coordinates of areas. The determinant is computed in
float64 and believed if it exceeds what rounding can have done; else its six products are summed as expansions
(Shewchuk, "Adaptive Precision Floating-Point Arithmetic and Fast Robust Geometric Predicates", 1997: the
filter of section 4.3, GROW-EXPANSION with elimination of zeros).
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


@compiled
def holds_point(area: Any, i: int, px: float, py: float, work: Any) -> bool:
    """Whether a polygon holds a point: on an edge, or with an odd number of edges that a ray crosses."""
    rings, corners = area[4], area[5]
    odd = False
    for ring in range(area[2][i], area[3][i]):
        for at in range(rings[ring], rings[ring + 1] - 1):
            ay, by = corners[at, 1], corners[at + 1, 1]
            if (ay > py and by > py) or (ay < py and by < py):
                continue
            ax, bx = corners[at, 0], corners[at + 1, 0]
            if ax < px and bx < px:
                continue
            crosses = (ay <= py) != (by <= py)
            if ax > px and bx > px:
                odd = odd != crosses
                continue
            if ay == by:
                # Both are at the point's height, and on both sides of it.
                return True
            found = side(ax, ay, bx, by, px, py, work)
            if found == 0:
                return True
            if crosses and (found > 0) == (by > ay):
                odd = not odd
    return odd


@compiled
def _between(ax: float, ay: float, bx: float, by: float, px: float, py: float) -> bool:
    """Whether a point on the line through a and b lies between them."""
    return min(ax, bx) <= px <= max(ax, bx) and min(ay, by) <= py <= max(ay, by)


@compiled
def edges_meet(
    ax: float, ay: float, bx: float, by: float,
    cx: float, cy: float, dx: float, dy: float, work: Any,
) -> bool:  # fmt: skip
    """Whether two edges, with their ends, have a point in common."""
    if max(ax, bx) < min(cx, dx) or max(cx, dx) < min(ax, bx):
        return False
    if max(ay, by) < min(cy, dy) or max(cy, dy) < min(ay, by):
        return False
    of_a, of_b = side(cx, cy, dx, dy, ax, ay, work), side(cx, cy, dx, dy, bx, by, work)
    if of_a * of_b > 0:
        return False
    of_c, of_d = side(ax, ay, bx, by, cx, cy, work), side(ax, ay, bx, by, dx, dy, work)
    if of_c * of_d > 0:
        return False
    if of_a * of_b < 0 and of_c * of_d < 0:
        return True
    return (
        (of_a == 0 and _between(cx, cy, dx, dy, ax, ay))
        or (of_b == 0 and _between(cx, cy, dx, dy, bx, by))
        or (of_c == 0 and _between(ax, ay, bx, by, cx, cy))
        or (of_d == 0 and _between(ax, ay, bx, by, dx, dy))
    )


@compiled
def polygon_box(
    area: Any, i: int, turn: float, x1: float, y1: float, x2: float, y2: float, work: Any
) -> bool:
    """Whether a polygon, its second coordinates turned, and a box overlap."""
    rings, corners = area[4], area[5]
    for ring in range(area[2][i], area[3][i]):
        for at in range(rings[ring], rings[ring + 1] - 1):
            ax, ay = corners[at, 0], corners[at, 1] + turn
            bx, by = corners[at + 1, 0], corners[at + 1, 1] + turn
            if x1 <= ax <= x2 and y1 <= ay <= y2:
                return True
            if max(ax, bx) < x1 or min(ax, bx) > x2 or max(ay, by) < y1 or min(ay, by) > y2:
                continue
            # An edge that meets the box somewhere, with no end within, meets a diagonal of it or a side.
            if (
                edges_meet(ax, ay, bx, by, x1, y1, x2, y1, work)
                or edges_meet(ax, ay, bx, by, x1, y2, x2, y2, work)
                or edges_meet(ax, ay, bx, by, x1, y1, x1, y2, work)
                or edges_meet(ax, ay, bx, by, x2, y1, x2, y2, work)
            ):
                return True
    # No border meets the other: the box is within, or apart.
    return holds_point(area, i, x1, y1 - turn, work)


@compiled
def polygons_meet(one: Any, i: int, other: Any, j: int, turn: float, work: Any) -> bool:
    """Whether two polygons overlap, the second coordinates of the other turned."""
    rings, corners = one[4], one[5]
    others, theirs = other[4], other[5]
    bounds = other[1]
    x1, y1, x2, y2 = bounds[j, 0], bounds[j, 1] + turn, bounds[j, 2], bounds[j, 3] + turn
    for ring in range(one[2][i], one[3][i]):
        for at in range(rings[ring], rings[ring + 1] - 1):
            ax, ay, bx, by = corners[at, 0], corners[at, 1], corners[at + 1, 0], corners[at + 1, 1]
            if max(ax, bx) < x1 or min(ax, bx) > x2 or max(ay, by) < y1 or min(ay, by) > y2:
                continue
            for second in range(other[2][j], other[3][j]):
                for to in range(others[second], others[second + 1] - 1):
                    if edges_meet(
                        ax, ay, bx, by,
                        theirs[to, 0], theirs[to, 1] + turn, theirs[to + 1, 0], theirs[to + 1, 1] + turn,
                        work,
                    ):  # fmt: skip
                        return True
    # No border meets the other, so all of a ring is within the other polygon, or nothing of it.
    for ring in range(one[2][i], one[3][i]):
        at = rings[ring]
        if holds_point(other, j, corners[at, 0], corners[at, 1] - turn, work):
            return True
    for second in range(other[2][j], other[3][j]):
        to = others[second]
        if holds_point(one, i, theirs[to, 0], theirs[to, 1] + turn, work):
            return True
    return False


@compiled
def circle_edge(cx: float, cy: float, radius: float, ax: float, ay: float, bx: float, by: float) -> bool:
    """Whether the point of an edge that is nearest to the centre of a circle lies in it."""
    along, up = bx - ax, by - ay
    length = along * along + up * up
    share = 0.0
    if length > 0.0:
        share = min(max(((cx - ax) * along + (cy - ay) * up) / length, 0.0), 1.0)
    dx, dy = cx - (ax + share * along), cy - (ay + share * up)
    if share == 1.0:
        dx, dy = cx - bx, cy - by
    return dx * dx + dy * dy <= radius * radius


@compiled
def circle_polygon(area: Any, i: int, cx: float, cy: float, radius: float, work: Any) -> bool:
    """Whether a circle and a polygon overlap."""
    rings, corners = area[4], area[5]
    if holds_point(area, i, cx, cy, work):
        return True
    for ring in range(area[2][i], area[3][i]):
        for at in range(rings[ring], rings[ring + 1] - 1):
            if circle_edge(
                cx, cy, radius, corners[at, 0], corners[at, 1], corners[at + 1, 0], corners[at + 1, 1]
            ):
                return True
    return False
