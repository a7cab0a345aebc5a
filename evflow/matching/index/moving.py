"""The kernel that moves areas. A filter whose cell stays the same is written in place.

Moves come in blocks: what each will touch is asked for in steps, so that the memory works on all of them at
once.
"""

from __future__ import annotations

from evflow.matching.index import layout as at
from evflow.matching.index.blocks import (
    area_in,
    list_address,
    put_area,
    record_address,
    records_of,
    reserve,
)
from evflow.matching.index.change import area_of, signature_of
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
    i32,
    i64,
    kernel,
    prefetch,
    set_i64,
    short_kernel,
    u32,
)

_BLOCK = 32

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
def _ask(state: int, ids: int, which: int, centres: int, first: int, stop: int) -> None:
    """Asks for all that the moves of a block will touch."""
    wanted = i64(state + 8 * at.DRAFT)
    for i in range(first, stop):
        prefetch(i64(state + 8 * at.FIRST) + 4 * i32(ids + 4 * i))
    for i in range(first, stop):
        record = record_address(state, u32(i64(state + 8 * at.FIRST) + 4 * i32(ids + 4 * i)))
        prefetch(record)
        prefetch(record - 4 * at.R_AREA)
    for i in range(first, stop):
        record = _wanted(state, i32(ids + 4 * i), i32(which + 4 * i))
        set_i64(wanted + 8 * (i - first), record)
    for i in range(first, stop):
        _ask_lists(state, i64(wanted + 8 * (i - first)))
    for i in range(first, stop):
        x, y, z, _ = area_of(state, centres, centres, i)
        _ask_entries(state, i64(wanted + 8 * (i - first)), x, y, z)
    for i in range(first, stop):
        _ask_last(state, i64(wanted + 8 * (i - first)))


@kernel
def move(state: int, first: int, stop: int, ids: int, which: int, centres: int, reaches: int) -> int:
    """Moves filters; gives the row there is no room for, or ``stop``. ``reaches`` 0: they keep their own."""
    for block in range(first, stop, _BLOCK):
        end = min(block + _BLOCK, stop)
        if end - block > 1:
            _ask(state, ids, which, centres, block, end)
        for i in range(block, end):
            x, y, z, reach = area_of(state, centres, reaches if reaches else centres, i)
            number = i32(which + 4 * i)
            record = _wanted(state, i32(ids + 4 * i), number)
            while record:
                if _move_one(state, record, x, y, z, reach, reaches == 0) == at.FULL:
                    return i
                if number >= 0:
                    break
                record = u32(record_address(state, record) + 4 * at.R_NEXT)
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
def move_one(state: int, subscription: int, which: int, x: float, y: float, z: float, reach: float) -> int:
    """Moves filters of one subscription; a negative ``which`` means all, a negative reach that it stays.

    It gives 0, ``UNSETTLED`` if lists wait to be settled now, FULL, or something else: there is no such
    filter or place.
    """
    record = _movable(state, subscription, which)
    # Of what is not finite the difference to itself is NaN.
    if record == 0 or not (abs(x) <= LIMIT and abs(y) <= LIMIT) or z - z + (reach - reach) != 0.0:
        return _REFUSED
    while record:
        if _move_one(state, record, x, y, z, reach, reach < 0.0) == at.FULL:
            return at.FULL
        record = 0 if which >= 0 else u32(record_address(state, record) + 4 * at.R_NEXT)
    return UNSETTLED if i64(state + 8 * at.DIRTY_USED) else _MOVED
