"""The papers' scenarios and a mixed one, at any size: what engines are checked and timed with."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from evflow.matching.columns.bulk import FilterColumns
from evflow.matching.engine import Matches
from evflow.matching.model import Op

ENGINES = ("ccm", "clcb", "clcb-grid")
"""Those that match on a device."""

NAMES = 100
GROUP = 5
VALUES = 100

NUMBER_OPS = np.array([Op.EQ, Op.NE, Op.GT, Op.LT], np.uint8)
TEXT_OPS = np.array([Op.EQ, Op.NE, Op.CONTAINS, Op.PREFIX], np.uint8)


def ccm_scenario(
    filters: int, events: int, seed: int = 1, *, exponent: float = 0.0
) -> tuple[FilterColumns, list[dict[str, Any]]]:
    """Table 1 of CCM: 10 subscriptions of many filters; half of the constraints are on strings.

    Args:
        filters: 250,000 in the paper.
        events: how many.
        seed: of everything.
        exponent: of Zipf's law, by which names are drawn; 0: all alike. The paper's other case is 1.7, where
            half of the constraints are on one name.

    Example:
        >>> columns, events = ccm_scenario(100, 3)
        >>> len(columns), columns.subscriptions, len(events)
        (100, 10, 3)
    """
    random = np.random.default_rng(seed)
    start, name = _names(random, filters)
    count = len(name)
    likely = np.arange(1, NAMES + 1) ** -float(exponent)
    likely /= likely.sum()
    if exponent:
        name = random.choice(NAMES, count, p=likely).astype(np.int32)
    is_text = name % 2 == 1
    pick = random.integers(0, 4, count)
    value = random.integers(0, VALUES, count)
    columns = FilterColumns(
        names=[f"name{i}" for i in range(NAMES)],
        texts=[f"value{i}" for i in range(VALUES)],
        start=start,
        name=name,
        op=np.where(is_text, TEXT_OPS[pick], NUMBER_OPS[pick]),
        number=np.where(is_text, 0.0, value),
        text=np.where(is_text, value, -1).astype(np.int32),
        subscription=np.arange(filters) * min(10, filters) // filters,
    )
    made = []
    for _ in range(events):
        chosen = random.choice(NAMES, random.integers(3, 6), replace=False, p=likely if exponent else None)
        drawn = random.integers(0, VALUES, len(chosen))
        pairs = zip(chosen.tolist(), drawn.tolist(), strict=True)
        made.append({f"name{n}": f"value{v}" if n % 2 else float(v) for n, v in pairs})
    return columns, made


def clcb_scenario(
    subscriptions: int, events: int, seed: int = 1, *, any_content: bool = False
) -> tuple[FilterColumns, list[dict[str, Any]]]:
    """Table 1 of CLCB: 10 filters a subscription, each with an area of 0.01 % and 0.5 % of all contents.

    Names come in groups of five, so that filters match at all: an event has the names of one group, a filter
    three to five of them. Each of its constraints holds for 56 % of the values.

    Args:
        subscriptions: 250,000 in the paper.
        events: how many.
        seed: of everything.
        any_content: all constraints hold, on names that all events have, so that only places count
            (figure 6b).

    Example:
        >>> columns, events = clcb_scenario(10, 3)
        >>> len(columns), columns.subscriptions, sorted(events[0])[-2:]
        (100, 10, ['x', 'y'])
    """
    random = np.random.default_rng(seed)
    filters = 10 * subscriptions
    groups = 1 if any_content else NAMES // GROUP
    sizes = random.integers(3, 6, filters)
    start = np.append(0, np.cumsum(sizes))
    group = np.repeat(random.integers(0, groups, filters), sizes)
    within = np.arange(int(start[-1])) - np.repeat(start[:-1], sizes)
    shift = np.repeat(random.integers(0, GROUP, filters), sizes)
    side = 1000.0
    columns = FilterColumns(
        names=[f"name{i}" for i in range(NAMES)],
        texts=[],
        start=start,
        name=(GROUP * group + (within + shift) % GROUP).astype(np.int32),
        op=np.full(len(group), Op.GE, np.uint8),
        number=np.full(len(group), 0.0 if any_content else 0.44 * VALUES),
        text=np.full(len(group), -1, np.int32),
        subscription=np.repeat(np.arange(subscriptions), 10),
        x=random.uniform(0, side, filters),
        y=random.uniform(0, side, filters),
        radius=np.full(filters, side * np.sqrt(1e-4 / np.pi)),
    )
    made = []
    for _ in range(events):
        first = GROUP * int(random.integers(0, groups))
        values = random.integers(0, VALUES, GROUP)
        event: dict[str, Any] = {f"name{first + i}": float(value) for i, value in enumerate(values)}
        made.append(event | dict(zip("xy", random.uniform(0, side, 2).tolist(), strict=True)))
    return columns, made


def mixed_scenario(filters: int, events: int, seed: int = 1) -> tuple[FilterColumns, list[dict[str, Any]]]:
    """Ranges and areas of all sizes: a filter is a range of one or two of twenty names, most with an area.

    Args:
        filters: each a subscription of its own.
        events: how many; each has ten of the names.
        seed: of everything.

    Example:
        >>> columns, events = mixed_scenario(10, 3)
        >>> len(columns), columns.subscriptions, len(events[0])
        (10, 10, 12)
    """
    random = np.random.default_rng(seed)
    names, side = 20, 1000.0
    ranges = random.integers(1, 3, filters)
    low = random.uniform(0, VALUES, int(ranges.sum()))
    high = low + VALUES * random.uniform(0, 1, len(low)) ** 4
    first = np.repeat(random.integers(0, names, filters), ranges)
    within = np.arange(len(low)) - np.repeat(np.cumsum(ranges) - ranges, ranges)
    columns = FilterColumns(
        names=[f"name{i}" for i in range(names)],
        texts=[],
        start=np.append(0, 2 * np.cumsum(ranges)),
        name=np.repeat((first + within) % names, 2).astype(np.int32),
        op=np.tile(np.array([Op.GE, Op.LE], np.uint8), len(low)),
        number=np.stack((low, high), axis=1).ravel(),
        text=np.full(2 * len(low), -1, np.int32),
        x=np.where(random.random(filters) < 0.02, np.nan, random.uniform(0, side, filters)),
        y=random.uniform(0, side, filters),
        radius=side * 10 ** random.uniform(-4, -1, filters),
    )
    made = []
    for _ in range(events):
        chosen = random.choice(names, names // 2, replace=False).tolist()
        values = random.uniform(0, VALUES, len(chosen)).tolist()
        event: dict[str, Any] = {f"name{n}": value for n, value in zip(chosen, values, strict=True)}
        made.append(event | dict(zip("xy", random.uniform(0, side, 2).tolist(), strict=True)))
    return columns, made


def differences(found: Matches, expected: Matches) -> int:
    """How many of the events of ``expected`` have other ids in ``found``, which may have more events."""
    return sum(not np.array_equal(np.sort(found[i]), np.sort(expected[i])) for i in range(len(expected)))


def _names(random: np.random.Generator, filters: int) -> tuple[NDArray[np.int64], NDArray[np.int32]]:
    """Three to five different names for each filter."""
    sizes = random.integers(3, 6, filters)
    start = np.append(0, np.cumsum(sizes))
    within = np.arange(int(start[-1])) - np.repeat(start[:-1], sizes)
    first = np.repeat(random.integers(0, NAMES, filters), sizes)
    step = np.repeat(random.choice([1, 3, 7, 9, 11, 13, 17, 19], filters), sizes)
    return start, ((first + within * step) % NAMES).astype(np.int32)
