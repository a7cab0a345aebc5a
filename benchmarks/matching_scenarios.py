"""The workloads that the papers on matching describe, and some that are hard on purpose."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from matching_workloads import (
    KINDS,
    NOWHERE,
    SIX,
    VALUES,
    Array,
    Events,
    Space,
    Workload,
    distinct,
    equally,
    events_of,
    first_of,
    operands,
    sharp_or_wide,
    starts,
    typed,
    vocabulary,
    zipf,
)

from evflow.matching.model import Op

AREAS = (1e-5, 1e-4, 1e-3, 1e-2)
"""Shares of the unit square that a filter's area covers, in CLCB's figures."""


def ccm(
    *,
    each: int = 25_000,
    interfaces: int = 10,
    constraints: tuple[int, int] = (3, 5),
    attributes: tuple[int, int] = (3, 5),
    names: int = 100,
    exponent: float = 0.0,
    distinct_names: bool = False,
    numeric: float = 0.5,
    events: int = 100_000,
    grouped: bool = False,
    seed: int = 1,
) -> Workload:
    """CCM's default scenario (table 1), with the parameters that its figures vary.

    Args:
        each: filters an interface, give or take a tenth.
        constraints: least and most of a filter.
        attributes: least and most of an event.
        exponent: Zipf's, of names; 0 draws all alike.
        distinct_names: a filter names no attribute twice.
        numeric: share of the names that hold numbers.
        grouped: an interface is one subscription; without, each filter is.
    """
    random = np.random.default_rng((seed, 2011))
    texts, types, law = vocabulary(random), typed(names, numeric), zipf(names, exponent)
    sizes = random.integers(each - each // 10, each + each // 10 + 1, interfaces)
    counts = random.integers(constraints[0], constraints[1] + 1, int(sizes.sum()))
    if distinct_names:
        name = first_of(distinct(random, law, names, len(counts), constraints[1]), counts)
    else:
        name = random.choice(names, int(counts.sum()), p=law).astype(np.int32)
    op = equally(random, types[name])
    number, text = operands(random, types[name], op)
    group = np.repeat(np.arange(interfaces), sizes) if grouped else np.arange(len(counts))
    rows = distinct(random, law, names, events, attributes[1])
    found = events_of(random, rows, *attributes, NOWHERE)
    return Workload(texts, types, starts(counts), name, op, number, text, group.astype(np.int32), found)


def clcb(
    *,
    subscriptions: int = 250_000,
    each: int = 10,
    area: float = 1e-4,
    mixed: bool = False,
    uneven: bool = False,
    content: str = "kinds",
    events: int = 100_000,
    seed: int = 1,
) -> Workload:
    """CLCB's default scenario (table 1), with the parameters that its figures vary.

    Args:
        each: filters of a subscription.
        area: share of the unit square that an area covers.
        mixed: areas of 0.001 % to 1 % instead, all equally likely.
        uneven: space after Zipf's law.
        content: "kinds" for constraints that 0.5 % of the events satisfy, "independent" for names as in CCM,
            "all" for constraints that every event satisfies (figure 6b).
    """
    random = np.random.default_rng((seed, 2012))
    texts, types, filters = vocabulary(random), typed(100), subscriptions * each
    counts = random.integers(3, 6, filters)
    name, rows = located_names(random, counts, events, content)
    number, text = np.full(len(name), 1000.0), np.full(len(name), -1, np.int32)
    op = np.full(len(name), Op.NE, np.uint8)
    if content != "all":
        op = (sharp_or_wide if content == "kinds" else equally)(random, types[name])
        number, text = operands(random, types[name], op)
    space = Space(random, uneven)
    centre, place = space.draw(filters), space.draw(events)
    share = np.array(AREAS)[random.integers(0, 4, filters)] if mixed else np.full(filters, area)
    return Workload(
        texts, types, starts(counts), name, op, number, text,
        np.repeat(np.arange(subscriptions, dtype=np.int32), each),
        events_of(random, rows, 3, 5, place),
        centre[:, 0].copy(), centre[:, 1].copy(), np.sqrt(share / np.pi).astype(np.float32),
    )  # fmt: skip


def located_names(
    random: np.random.Generator, counts: Array, events: int, content: str
) -> tuple[Array, Array]:
    """The names of constraints, and five names for each event; ``content`` as for ``clcb``."""
    filters = len(counts)
    if content == "independent":
        return random.integers(0, 100, counts.sum()).astype(np.int32), distinct(random, None, 100, events, 5)
    if content == "all":
        rows = np.tile(np.array([0, 2, 4, 0, 2], np.int32), (filters, 1))
        return first_of(rows, counts), np.tile(np.array([0, 2, 4, 6, 8], np.int32), (events, 1))

    def of_a_kind(count: int) -> Array:
        kind = random.integers(0, KINDS, (count, 1)) * 5
        return (kind + np.argsort(random.random((count, 5)), axis=1)).astype(np.int32)

    name = first_of(of_a_kind(filters), counts)
    return name, of_a_kind(events)


def two_phase(*, subscriptions: int = 100_000, events: int = 2_000, seed: int = 1) -> Workload:
    """The two-phase paper's: 1,600 predicates on 100 integer attributes, events of 20 attributes."""
    random = np.random.default_rng((seed, 2016))
    pool = np.argsort(random.random((100, 600)), axis=1)[:, :16]
    counts = random.integers(3, 6, subscriptions)
    name = first_of(distinct(random, None, 100, subscriptions, 5), counts)
    chosen = pool[name, random.integers(0, 16, len(name))]
    number, text = (chosen // 6).astype(np.float64), np.full(len(name), -1, np.int32)
    found = events_of(random, distinct(random, None, 100, events, 20), 20, 20, NOWHERE)
    return Workload(
        vocabulary(random), np.ones(100, bool), starts(counts), name, SIX[chosen % 6], number, text,
        np.arange(subscriptions, dtype=np.int32), found,
    )  # fmt: skip


def same_names(
    *, filters: int = 250_000, ranges: bool = False, events: int = 10_000, seed: int = 1
) -> Workload:
    """All filters and events use the same five names; ``ranges``: nothing but < and > on numbers."""
    made = ccm(each=filters // 10, names=5, numeric=1.0 if ranges else 0.5, events=events, seed=seed)
    if not ranges:
        return made
    random = np.random.default_rng((seed, 5))
    return replace(made, op=np.array([Op.LT, Op.GT], np.uint8)[random.integers(0, 2, len(made.op))])


def with_filters(base: Workload, other: Workload) -> Workload:
    """The first workload with the filters of the second one besides, whose names and texts it shares."""
    located = len(base.x) or len(other.x)

    def area(which: str, part: Workload) -> Array:
        held: Array = getattr(part, which)
        return held if len(held) or not located else np.full(len(part), np.nan, np.float32)

    return replace(
        base,
        start=np.concatenate((base.start, other.start[1:] + base.start[-1])),
        subscription=np.concatenate((base.subscription, other.subscription + base.subscription.max() + 1)),
        **{
            key: np.concatenate((getattr(base, key), getattr(other, key)))
            for key in ("name", "op", "number", "text")
        },
        **{key: np.concatenate((area(key, base), area(key, other))) for key in ("x", "y", "radius")},
    )


def on_one_name(base: Workload, count: int = 10_000, seed: int = 1) -> Workload:
    """``count`` filters of one constraint each, all on the first name: =, !=, < and > of any number."""
    random = np.random.default_rng((seed, 1))
    number = random.uniform(0, VALUES, count)
    op = NUMERIC_OPS[random.integers(0, 4, count)]
    number[op == Op.EQ] = np.floor(number[op == Op.EQ])
    return replace(
        base,
        start=np.arange(count + 1, dtype=np.int64), name=np.zeros(count, np.int32), op=op, number=number,
        text=np.full(count, -1, np.int32), subscription=np.arange(count, dtype=np.int32),
    )  # fmt: skip


NUMERIC_OPS = np.array([Op.EQ, Op.NE, Op.LT, Op.GT], np.uint8)


def one_filter(base: Workload, x: float, y: float, radius: float) -> Workload:
    """A single filter without constraints, in an area."""
    none = {key: getattr(base, key)[:0] for key in ("name", "op", "number", "text")}
    return replace(
        base, start=np.zeros(2, np.int64), subscription=np.zeros(1, np.int32), **none,
        x=np.array([x], np.float32), y=np.array([y], np.float32), radius=np.array([radius], np.float32),
    )  # fmt: skip


def in_one_place(base: Workload, radius: float = 0.05) -> Workload:
    """All areas are the same circle around the centre of the square, and all events happen in it."""
    filters, events = len(base), len(base.events)
    middle, near = np.full(filters, 0.5, np.float32), np.full(events, 0.51, np.float32)
    return replace(
        base, x=middle, y=middle.copy(), radius=np.full(filters, radius, np.float32),
        events=Events(base.events.start, base.events.name, base.events.value, near, near.copy()),
    )  # fmt: skip


def without_areas(base: Workload) -> Workload:
    """The same filters and events, nowhere."""
    none, events = NOWHERE[:, 0], base.events
    return replace(base, x=none, y=none, radius=none, events=replace(events, x=none, y=none))
