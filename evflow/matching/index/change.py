"""Kernels that add and remove subscriptions, and move areas.

``add`` returns the number of the filter that it stopped at for want of room; Python makes room and calls
again. Until a filter's record stands in a list nothing of it is left behind, so a second try finds the state
as the first did.

A filter whose cell stays the same is moved in place. Moves come in blocks: what each will touch is asked for
in steps, so that the memory works on all of them at once.
"""

from __future__ import annotations

from evflow.matching.areas.sphere import reach_of
from evflow.matching.globe import place_vector
from evflow.matching.index import layout as at
from evflow.matching.index.bands import file_signature
from evflow.matching.index.blocks import (
    add_to,
    area_in,
    bump,
    list_address,
    put_area,
    record_address,
    records_of,
)
from evflow.matching.index.directory import find_signature
from evflow.matching.index.filing import (
    cell_key_of,
    cell_of,
    find_group,
    find_place,
    group_of,
    leave,
    put,
    radius_of,
    refile,
    tally,
    widen,
)
from evflow.matching.index.pool import enter_pool, is_weak, leave_pool
from evflow.matching.index.records import D_COUNT, D_ELEMENTS, free_record, make_draft, new_record
from evflow.matching.model import LIMIT
from evflow.matching.native import (
    compiled,
    f64,
    i32,
    i64,
    kernel,
    prefetch,
    set_f64,
    set_i64,
    set_u32,
    short_kernel,
    u32,
)


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


_BLOCK = 32

_ROW, _NOTED = 32, 40
"""Bytes of a move, and of what is noted of one in working memory: its record, and where it goes."""

_MOVED, UNSETTLED, _REFUSED = range(3)


@compiled
def _home(state: int, number: int, x: float, y: float, z: float, reach: float, keep: bool) -> tuple[int, int]:
    """The list and the group that an area belongs in now; (FULL, 0) if there is no room."""
    group = group_of(state, number)
    if not keep:
        group = find_group(state, signature_of(state, number), radius_of(state, reach))
        if group == at.FULL:
            return at.FULL, 0
    if i32(list_address(state, group) + at.L_CELL) == at.ONE_CELL:
        return group, group
    return cell_of(state, group, x, y, z), group


@compiled
def _move_one(state: int, record: int, x: float, y: float, z: float, reach: float, keep: bool) -> int:
    """Gives a filter another area: 0 or FULL."""
    source = record_address(state, record)
    number, position = u32(source + 4 * at.R_LIST), u32(source + 4 * at.R_POSITION)
    if number == at.NONE or not u32(source + 4 * at.R_INFO) & at.R_LOCATED:
        return 0
    entry = list_address(state, number)
    if keep:
        reach = area_in(state, entry, position)[3]
    target, group = number, 0
    if not u32(entry + at.L_INFO) & at.I_SHARP:
        target, group = _home(state, number, x, y, z, reach, keep)
    if target == number:
        block = i64(state + 8 * at.ENTRIES) + 16 * u32(entry + at.L_START)
        put_area(state, block, u32(entry + at.L_CAPACITY), position, record, x, y, z, reach)
        if group and not keep:
            widen(state, group, reach)
        return 0
    return refile(state, number, position, target, group, record, x, y, z, reach)


@compiled
def _wanted(state: int, subscription: int, which: int) -> int:
    """The record of a filter by its number in its subscription; 0 if there are not so many."""
    record = u32(i64(state + 8 * at.FIRST) + 4 * subscription)
    while which > 0 and record:
        record = u32(record_address(state, record) + 4 * at.R_NEXT)
        which -= 1
    return record


@compiled
def _ask_lists(state: int, record: int) -> None:
    """Asks for the list of a record."""
    number = u32(record_address(state, record) + 4 * at.R_LIST)
    if record and number != at.NONE:
        prefetch(list_address(state, number))


@compiled
def _ask_entries(state: int, record: int, x: float, y: float, z: float) -> None:
    """Asks for what is read of an entry, of the last one of its list, and of the cell to come."""
    source = record_address(state, record)
    number = u32(source + 4 * at.R_LIST)
    if record == 0 or number == at.NONE:
        return
    entry = list_address(state, number)
    records = records_of(state, entry)
    last = u32(entry + at.L_LENGTH) - 1
    prefetch(records + 4 * u32(source + 4 * at.R_POSITION))
    prefetch(records + 4 * last)
    prefetch(i64(state + 8 * at.ENTRIES) + 16 * u32(entry + at.L_START))
    if u32(entry + at.L_INFO) & at.I_CELL:
        group = list_address(state, u32(entry + at.L_NEXT))
        key = cell_key_of(group, x, y, z)
        mask = i64(state + 8 * at.TABLE_CAPACITY) - 1
        prefetch(i64(state + 8 * at.TABLE) + 8 * ((key >> 12) & mask))


@compiled
def _ask_last(state: int, record: int) -> None:
    """Asks for the record that stands last in the list."""
    number = u32(record_address(state, record) + 4 * at.R_LIST)
    if record == 0 or number == at.NONE:
        return
    entry = list_address(state, number)
    last = u32(entry + at.L_LENGTH) - 1
    prefetch(record_address(state, u32(records_of(state, entry) + 4 * last)))


@compiled
def _area(state: int, x: float, y: float, radius: float) -> tuple[float, float, float, float]:
    """The area of a circle as it was given."""
    if i64(state + 8 * at.DIMENSIONS) == 2:
        return x, y, 0.0, radius * radius
    a, b, c = place_vector(x, y)
    return a, b, c, reach_of(radius)


@compiled
def _ask(state: int, rows: int, count: int, wanted: int) -> None:
    """Asks for all that the moves of a block will touch, and notes what each has."""
    first = i64(state + 8 * at.FIRST)
    for i in range(count):
        prefetch(first + 4 * i32(rows + _ROW * i))
    for i in range(count):
        record = record_address(state, u32(first + 4 * i32(rows + _ROW * i)))
        prefetch(record)
        prefetch(record - 4 * at.R_AREA)
    for i in range(count):
        row, place = rows + _ROW * i, wanted + _NOTED * i
        set_i64(place, _wanted(state, i32(row), i32(row + 4)))
        x, y, z, reach = _area(state, f64(row + 8), f64(row + 16), f64(row + 24))
        set_f64(place + 8, x)
        set_f64(place + 16, y)
        set_f64(place + 24, z)
        set_f64(place + 32, reach)
    for i in range(count):
        _ask_lists(state, i64(wanted + _NOTED * i))
    for i in range(count):
        place = wanted + _NOTED * i
        _ask_entries(state, i64(place), f64(place + 8), f64(place + 16), f64(place + 24))
    for i in range(count):
        _ask_last(state, i64(wanted + _NOTED * i))


@compiled
def _move_all(
    state: int, record: int, which: int, x: float, y: float, z: float, reach: float, keep: bool
) -> int:
    """Gives a filter, and with a negative ``which`` those behind it, another area: 0 or FULL."""
    while record:
        if _move_one(state, record, x, y, z, reach, keep) == at.FULL:
            return at.FULL
        record = 0 if which >= 0 else u32(record_address(state, record) + 4 * at.R_NEXT)
    return 0


@kernel
def move(state: int, first: int, stop: int, rows: int) -> int:
    """Makes moves, each a ``ROW``; gives the one that there is no room for, or ``stop``."""
    wanted = i64(state + 8 * at.DRAFT)
    for begin in range(first, stop, _BLOCK):
        count, block = min(_BLOCK, stop - begin), rows + _ROW * begin
        _ask(state, block, count, wanted)
        for i in range(count):
            place, row = wanted + _NOTED * i, block + _ROW * i
            x, y, z, reach = f64(place + 8), f64(place + 16), f64(place + 24), f64(place + 32)
            keep = f64(row + 24) < 0.0
            if _move_all(state, i64(place), i32(row + 4), x, y, z, reach, keep) == at.FULL:
                return begin + i
    return stop


@compiled
def _movable(state: int, subscription: int, which: int) -> int:
    """The record of a filter that has an area, the first if all are meant and have one; else 0."""
    if subscription < 0 or subscription >= i64(state + 8 * at.FIRST_USED):
        return 0
    first = record = _wanted(state, subscription, which)
    while record:
        source = record_address(state, record)
        if not u32(source + 4 * at.R_INFO) & at.R_LOCATED:
            return 0
        record = 0 if which >= 0 else u32(source + 4 * at.R_NEXT)
    return first


@short_kernel
def move_one(state: int, subscription: int, which: int, x: float, y: float, radius: float) -> int:
    """Moves filters of one subscription; a negative ``which`` means all, a negative radius that it stays.

    It gives 0, ``UNSETTLED`` if lists wait to be settled now, FULL, or something else: there is no such
    filter, place or radius.
    """
    record = _movable(state, subscription, which)
    a, b, c, reach = _area(state, x, y, radius)
    if record == 0 or not (abs(a) <= LIMIT and abs(b) <= LIMIT and radius <= LIMIT):
        return _REFUSED
    if _move_all(state, record, which, a, b, c, reach, radius < 0.0) == at.FULL:
        return at.FULL
    return UNSETTLED if i64(state + 8 * at.DIRTY_USED) else _MOVED
