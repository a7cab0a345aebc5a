"""The kernel that moves areas. A filter whose cell stays the same is written in place.

Moves come in blocks: what each will touch is asked for in steps, so that the memory works on all of them at
once.
"""

from __future__ import annotations

from evflow.matching.areas.sphere import reach_of
from evflow.matching.globe import place_vector
from evflow.matching.index import layout as at
from evflow.matching.index.blocks import (
    area_in,
    list_address,
    put_area,
    record_address,
    records_of,
    reserve,
)
from evflow.matching.index.change import signature_of
from evflow.matching.index.filing import (
    cell_key_of,
    cell_of,
    find_group,
    group_of,
    leave,
    put,
    radius_of,
    widen,
)
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
    short_kernel,
    u32,
)

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
    if target == at.FULL or reserve(state, list_address(state, target)) == at.FULL:
        return at.FULL
    leave(state, number, position)
    put(state, target, group, record, x, y, z, reach)
    return 0


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
