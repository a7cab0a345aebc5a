"""Kernels that add and remove subscriptions.

``add`` returns the number of the filter that it stopped at for want of room; Python makes room and calls
again. Until a filter's record stands in a list nothing of it is left behind, so a second try finds the state
as the first did.
"""

from __future__ import annotations

from evflow.matching.index import layout as at
from evflow.matching.index.bands import file_signature
from evflow.matching.index.blocks import add_to, bump, list_address, record_address
from evflow.matching.index.directory import find_signature
from evflow.matching.index.filing import find_place, leave, put, tally
from evflow.matching.index.pool import enter_pool, is_weak, leave_pool
from evflow.matching.index.records import D_COUNT, D_ELEMENTS, free_record, make_draft, new_record
from evflow.matching.native import compiled, f64, i32, i64, kernel, set_u32, u32


@compiled
def area_of(state: int, centre: int, reach: int, i: int) -> tuple[float, float, float, float]:
    """The area of row ``i`` of two columns."""
    if i64(state + 8 * at.DIMENSIONS) == 2:
        return f64(centre + 16 * i), f64(centre + 16 * i + 8), 0.0, f64(reach + 8 * i)
    return f64(centre + 24 * i), f64(centre + 24 * i + 8), f64(centre + 24 * i + 16), f64(reach + 8 * i)


@compiled
def _add_one(
    state: int, possible: bool, subscription: int, x: float, y: float, z: float, reach: float
) -> int:
    """The record of the filter that is drafted, in its list; or FULL, and nothing has changed."""
    draft = i64(state + 8 * at.DRAFT)
    located = x == x
    signature = find_signature(state, draft + D_ELEMENTS, i64(draft + D_COUNT)) if possible else 0
    if signature == at.FULL:
        return at.FULL
    record = new_record(state, draft, subscription, located)
    if record == at.FULL or not possible:
        return record
    tally(state, record, signature, 1)
    if i64(state + 8 * at.POOLED) and signature and not located and is_weak(state, record, signature):
        done = enter_pool(state, record, signature)
    else:
        done = _list_one(state, record, signature, located, x, y, z, reach)
    if done == at.FULL:
        tally(state, record, signature, -1)
        free_record(state, record)
        return at.FULL
    return record


@compiled
def _list_one(
    state: int, record: int, signature: int, located: bool, x: float, y: float, z: float, reach: float
) -> int:
    """Puts the filter that is drafted in the list where it belongs: 0 or FULL."""
    if file_signature(state, signature) == at.FULL:
        return at.FULL
    number, group = find_place(state, record, signature, located, x, y, z, reach)
    if number == at.FULL or put(state, number, group, record, x, y, z, reach) == at.FULL:
        return at.FULL
    bump(list_address(state, signature) + at.L_OWNER, 1)
    return 0


@compiled
def _link(state: int, subscription: int, record: int, tail: int) -> None:
    """Puts a record at the end of its subscription's chain."""
    first = i64(state + 8 * at.FIRST) + 4 * subscription
    if u32(first) == 0:
        set_u32(first, record)
        add_to(state, at.SUBSCRIPTIONS, 1)
        return
    if tail == 0:
        tail = u32(first)
        while u32(record_address(state, tail) + 4 * at.R_NEXT):
            tail = u32(record_address(state, tail) + 4 * at.R_NEXT)
    if tail == u32(first):
        add_to(state, at.SEVERAL, 1)
    set_u32(record_address(state, tail) + 4 * at.R_NEXT, record)


@kernel
def add(
    state: int,
    first: int,
    stop: int,
    subscriptions: int,
    starts: int,
    names: int,
    ops: int,
    numbers: int,
    texts: int,
    centres: int,
    reaches: int,
) -> int:
    """Adds filters ``first`` to ``stop``; gives the one that there is no room for, or ``stop``."""
    draft = i64(state + 8 * at.DRAFT)
    before, tail = -1, 0
    for i in range(first, stop):
        c, d = i64(starts + 8 * i), i64(starts + 8 * i + 8)
        possible = make_draft(draft, names, ops, numbers, texts, c, d)
        x, y, z, reach = area_of(state, centres, reaches, i)
        subscription = i32(subscriptions + 4 * i)
        record = _add_one(state, possible, subscription, x, y, z, reach)
        if record == at.FULL:
            return i
        _link(state, subscription, record, tail if subscription == before else 0)
        before, tail = subscription, record
        add_to(state, at.FILTERS, 1)
        add_to(state, at.CONSTRAINTS, d - c)
        if x == x:
            add_to(state, at.LOCATED_FILTERS, 1)
    return stop


@compiled
def signature_of(state: int, number: int) -> int:
    """The signature that a list belongs to."""
    entry = list_address(state, number)
    if number == 0 or u32(entry + at.L_INFO) & at.I_SIGNATURE:
        return number
    return u32(entry + at.L_OWNER)


@compiled
def _remove_one(state: int, record: int) -> None:
    source = record_address(state, record)
    number = u32(source + 4 * at.R_LIST)
    if number != at.NONE:
        signature = signature_of(state, number)
        tally(state, record, signature, -1)
        if u32(source + 4 * at.R_INFO) & at.R_POOLED:
            leave_pool(state, record)
        else:
            leave(state, number, u32(source + 4 * at.R_POSITION))
            bump(list_address(state, signature) + at.L_OWNER, -1)
    add_to(state, at.FILTERS, -1)
    if u32(source + 4 * at.R_INFO) & at.R_LOCATED:
        add_to(state, at.LOCATED_FILTERS, -1)
    free_record(state, record)


@kernel
def remove(state: int, ids: int, count: int) -> int:
    """Removes subscriptions with all their filters."""
    for i in range(count):
        first = i64(state + 8 * at.FIRST) + 4 * i32(ids + 4 * i)
        record = u32(first)
        if record == 0:
            continue
        set_u32(first, 0)
        add_to(state, at.SUBSCRIPTIONS, -1)
        if u32(record_address(state, record) + 4 * at.R_NEXT):
            add_to(state, at.SEVERAL, -1)
        while record:
            following = u32(record_address(state, record) + 4 * at.R_NEXT)
            _remove_one(state, record)
            record = following
    return 0
