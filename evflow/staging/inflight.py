"""Stones for the blocks that a ``Stage`` hands on: what becomes small on the way need not be stored whole.

Each is a stone of evflow with a function in Cod, made for one shape of blocks. Those that sum up a step keep
what they have of it until its last block has come, so all blocks of a step have to come to one stone.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

import numpy as np

from evflow.schema import Schema
from evflow.schema.types import Array, f64, i64
from evflow.staging.model import Variable, expect
from evflow.stones.filter import Filter
from evflow.stones.transform import Transform

__all__ = ["Summary", "histogram", "summary", "thinned", "within"]

Summary = Schema(
    "summary", {"step": i64, "time": f64, "count": i64, "least": f64, "greatest": f64, "mean": f64}
)
"""What ``summary`` tells of a step: how many elements there are, without NaN; the least, the greatest and the
mean of these, NaN if there are none."""

MOST_BINS = 1000


def summary(variable: Variable, shape: Sequence[int], **placed: Any) -> Transform:
    """A stone that sums a variable up: one event ``Summary`` for each step.

    Args:
        variable: whose blocks come.
        shape: of each block.
        placed: ``name`` and ``on`` of the stone.

    Raises:
        StagingError: blocks of the variable cannot have the shape.

    Example:
        >>> from evflow import staging
        >>> staging.summary(staging.Variable("heat", "f4", (4, 4)), (2, 4)).output.name
        'summary'
    """
    declared = "static long count; static double sum, least, greatest;"
    begins = "count = 0; sum = 0; least = INFINITY; greatest = -INFINITY;"
    each = """if (v == v) {
        count++; sum += v; least = v < least ? v : least; greatest = v > greatest ? v : greatest;
    }"""
    ends = (
        "output.count = count; output.least = count ? least : NAN; output.greatest = count ? greatest : NAN;"
    )
    ends += "output.mean = count ? sum / count : NAN;"
    return _of_step(variable, shape, Summary, (declared, begins, each, ends), placed)


def histogram(
    variable: Variable,
    shape: Sequence[int],
    edges: Sequence[float],
    **placed: Any,
) -> Transform:
    """A stone that counts elements in bins: for each step an event with ``step``, ``time`` and ``counts``.

    Args:
        variable: whose blocks come.
        shape: of each block.
        edges: of the bins, rising, 2 to 1001. An element belongs to the bin whose lower edge it reaches; the
            greatest edge belongs to the last bin, as in ``numpy.histogram``. No others are counted.
        placed: ``name`` and ``on`` of the stone.

    Raises:
        StagingError: blocks of the variable cannot have the shape, or the edges are not rising numbers.

    Example:
        >>> from evflow import staging
        >>> made = staging.histogram(staging.Variable("heat", "f4", (4, 4)), (2, 4), [0, 1, 2])
        >>> [field.name for field in made.output.fields]
        ['step', 'time', 'counts']
    """
    kinds, most = (int, float, np.integer, np.floating), sys.float_info.max
    listed = isinstance(edges, Sequence | np.ndarray) and all(
        isinstance(edge, kinds) and -most <= edge <= most for edge in edges
    )
    numbers = np.array(edges if listed else [], float)
    bins = len(numbers) - 1
    fits = 1 <= bins <= MOST_BINS and bool(np.all(np.diff(numbers) > 0))
    expect(fits, "edges", edges, f"2 to {MOST_BINS + 1} numbers, each greater than the one before")
    written = ", ".join(map(repr, numbers.tolist()))
    declared = f"static long counts[{bins}]; int b, low, high; double edges[{bins + 1}] = {{{written}}};"
    begins = f"for (b = 0; b < {bins}; b++) counts[b] = 0;"
    each = f"""if (v >= edges[0] && v <= edges[{bins}]) {{
        low = 0; high = {bins};
        while (high - low > 1) {{ b = (low + high) / 2; if (v >= edges[b]) low = b; else high = b; }}
        counts[low]++;
    }}"""
    ends = f"for (b = 0; b < {bins}; b++) output.counts[b] = counts[b];"
    output = Schema("histogram", {"step": i64, "time": f64, "counts": Array(i64, (bins,))})
    return _of_step(variable, shape, output, (declared, begins, each, ends), placed)


def thinned(
    variable: Variable,
    shape: Sequence[int],
    every: int,
    **placed: Any,
) -> Transform:
    """A stone that keeps each ``every``-th element of the global array in each dimension.

    Args:
        variable: whose blocks come.
        shape: of each block; each side has to be a multiple of ``every``.
        every: 1 or more.
        placed: ``name`` and ``on`` of the stone.

    Returns:
        The stone. Its events have the same fields as those that come; ``offset`` is the place of the block in
        the thinned array.

    Raises:
        StagingError: blocks of the variable cannot have the shape, or it is not a multiple.

    Example:
        >>> from evflow import staging
        >>> staging.thinned(staging.Variable("heat", "f4", (4, 4)), (2, 4), 2).output.width
        96
    """
    given = _event(variable, shape)
    whole = isinstance(every, int) and every >= 1 and not any(size % every for size in shape)
    expect(whole, "every", every, f"a number that divides each side of {tuple(shape)}")
    small, sides = tuple(size // every for size in shape), range(len(shape))
    starts = "".join(
        f"s{d} = ({every} - input.offset[{d}] % {every}) % {every}; "
        f"output.offset[{d}] = (input.offset[{d}] + s{d}) / {every}; "
        for d in sides
    )
    to, of = "".join(f"[i{d}]" for d in sides), "".join(f"[s{d} + {every} * i{d}]" for d in sides)
    code = f"""{{
        long {", ".join(f"i{d}, s{d}" for d in sides)};
        {starts}
        {_loops(small)} output.values{to} = input.values{of};
        output.step = input.step; output.time = input.time; output.rank = input.rank;
        output.part = input.part; output.parts = input.parts;
        return 1;
    }}"""
    return Transform(code, input=given, output=variable.event(small), fuel=_FUEL, **placed)


def within(
    variable: Variable,
    shape: Sequence[int],
    low: Sequence[int],
    high: Sequence[int],
    **placed: Any,
) -> Filter:
    """A stone that lets blocks pass that have an element in a box of the global array.

    Args:
        variable: whose blocks come.
        shape: of each block.
        low: the box's first element in each dimension.
        high: in each dimension, the element behind its last.
        placed: ``name`` and ``on`` of the stone.

    Raises:
        StagingError: blocks of the variable cannot have the shape, or the box has no element.

    Example:
        >>> from evflow import staging
        >>> staging.within(staging.Variable("heat", "f4", (4, 4)), (2, 4), (0, 0), (2, 2), name="corner")
        Filter(corner)
    """
    given = _event(variable, shape)
    for what, corner in (("low", low), ("high", high)):
        listed = isinstance(corner, Sequence) and len(corner) == len(shape)
        fits = listed and all(isinstance(entry, int) for entry in corner)
        expect(fits, what, corner, "an integer for each dimension")
    expect(
        all(a < b for a, b in zip(low, high, strict=True)),
        "high",
        high,
        f"more than {tuple(low)}, in each dimension",
    )
    sides = zip(range(len(shape)), shape, low, high, strict=True)
    tests = (f"input.offset[{d}] < {b}L && input.offset[{d}] + {size} > {a}L" for d, size, a, b in sides)
    return Filter(" && ".join(tests), input=given, **placed)


_FUEL = 100_000_000
"""The most that a node allows: enough for 20 million elements of a block in ``summary``, and 3 million in a
``histogram`` of 1000 bins."""


def _event(variable: Variable, shape: Sequence[int]) -> Schema:
    """The schema of the blocks that come."""
    expect(isinstance(variable, Variable), "variable", variable, "a Variable")
    return variable.event(shape)


def _loops(shape: Sequence[int]) -> str:
    return "".join(f"for (i{d} = 0; i{d} < {size}; i{d}++) " for d, size in enumerate(shape))


def _of_step(
    variable: Variable,
    shape: Sequence[int],
    output: Schema,
    parts: tuple[str, str, str, str],
    placed: dict[str, Any],
) -> Transform:
    """A transform that goes through all elements of a step: what it declares, and does at the beginning of a
    step, for each element ``v``, and at the end. It makes nothing of a step of which a block did not come, or
    became a dead letter."""
    declared, begins, each, ends = parts
    given = _event(variable, shape)
    places = [f"i{d}" for d in range(len(shape))]
    code = f"""{{
        {declared}
        long {", ".join(places)};
        double v;
        static long step, next;
        if (input.part == 0) {{ {begins} step = input.step; next = 0; }}
        if (input.step != step || input.part != next) return 0;
        {_loops(shape)} {{ v = input.values{"".join(f"[{place}]" for place in places)}; {each} }}
        next++;
        if (input.part + 1 < input.parts) return 0;
        {ends}
        output.step = input.step; output.time = input.time;
        return 1;
    }}"""
    return Transform(code, input=given, output=output, fuel=_FUEL, **placed)
