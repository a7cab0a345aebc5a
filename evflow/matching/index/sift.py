"""How events find filters of the pool: each picks a row of every axis, and ands them block by block."""

from __future__ import annotations

from evflow.matching.index import layout as at
from evflow.matching.index.blocks import add_to
from evflow.matching.index.follow import fill_dense
from evflow.matching.index.pool import axis_address
from evflow.matching.index.probes import E_COUNT, E_FIRST, E_POOL, chain, event_address
from evflow.matching.native import compiled, i64, inside, lowest, meet, ones, set_i64, set_u32, u32


@compiled
def _row_of(axis: int, key: int) -> int:
    """The row of the bucket that holds a key; buckets hold all keys."""
    found, begin = 0, 0
    while True:
        found = inside(key, axis + at.AXIS_LOWS + 4 * begin, at.AXIS_WIDTHS - at.AXIS_LOWS)
        if found:
            return begin + lowest(found)
        begin += 16


@compiled
def _pick_rows(state: int, scratch: int, event: int, rows: int) -> bool:
    """Writes how far into a block each row stands that an event picks; False if there is no room."""
    if not fill_dense(state, scratch, event):
        return False
    place, dense = event_address(scratch, event), i64(scratch + 8 * at.M_DENSE)
    first, there = i64(place + E_FIRST), i64(place + E_COUNT)
    for i in range(i64(state + 8 * at.AXES_USED)):
        axis = axis_address(state, i)
        element = u32(axis + at.AXIS_ELEMENT)
        position, row = u32(dense + 4 * element), 0
        if position < there:
            attribute = first + position * at.ATTRIBUTE_SIZE
            if u32(attribute + at.A_ELEMENT) == element:
                row = _row_of(axis, u32(attribute + at.A_KEY))
        set_u32(rows + 4 * i, at.LINE * (u32(axis + at.AXIS_ROW) + row))
    return True


@compiled
def _queue_slots(state: int, scratch: int, event: int, first: int) -> int:
    """Queues the records of the slots that are left of a block which begins at slot ``first``; how many, or
    FULL.
    """
    slots, count = i64(state + 8 * at.SLOTS) + 4 * first, 0
    head = event_address(scratch, event) + E_POOL
    for word in range(at.LINE // 8):
        left = i64(scratch + 8 * (at.M_LINE + word))
        while left:
            record = u32(slots + 4 * (64 * word + lowest(left)))
            if chain(scratch, at.M_RECORDS, at.M_RECORDS_USED, head, record) == 0:
                return at.FULL
            left &= left - 1
            count += 1
    return count


@compiled
def _count_reached(state: int, scratch: int, rows: int) -> int:
    """How many filters of the pool constrain no attribute that the event of these rows lacks."""
    lacking = 0
    for i in range(i64(state + 8 * at.AXES_USED)):
        offset = at.LINE * u32(axis_address(state, i) + at.AXIS_ROW)
        if u32(rows + 4 * i) == offset:
            set_u32(rows + 4 * lacking, offset)
            lacking += 1
    base, size = i64(state + 8 * at.BITS), at.LINE * i64(state + 8 * at.POOL_ROWS)
    reached = 0
    for block in range((i64(state + 8 * at.SLOTS_USED) + at.IN_BLOCK - 1) // at.IN_BLOCK):
        if meet(base + size * block, rows, lacking, scratch + 8 * at.M_LINE):
            for word in range(at.LINE // 8):
                reached += ones(i64(scratch + 8 * (at.M_LINE + word)))
    return reached


@compiled
def sift(state: int, scratch: int, events: int) -> bool:
    """Queues what the pool may hold for a block of events; False if there is no room."""
    axes, used = i64(state + 8 * at.AXES_USED), i64(scratch + 8 * at.M_VALUES_USED)
    size = 4 * axes + 4
    if used + size * events + 8 > i64(scratch + 8 * at.M_VALUES + 8):
        set_i64(scratch + 8 * at.M_WANTED, at.M_VALUES // 2)
        return False
    rows = i64(scratch + 8 * at.M_VALUES) + used
    for event in range(events):
        if not _pick_rows(state, scratch, event, rows + size * event):
            return False
    base, step = i64(state + 8 * at.BITS), at.LINE * i64(state + 8 * at.POOL_ROWS)
    candidates = 0
    for block in range((i64(state + 8 * at.SLOTS_USED) + at.IN_BLOCK - 1) // at.IN_BLOCK):
        for event in range(events):
            if meet(base + step * block, rows + size * event, axes, scratch + 8 * at.M_LINE):
                count = _queue_slots(state, scratch, event, at.IN_BLOCK * block)
                if count == at.FULL:
                    return False
                candidates += count
    add_to(scratch, at.M_CANDIDATES, candidates)
    if i64(scratch + 8 * at.M_ASKED):
        add_to(scratch, at.M_REACHED, _count_reached(state, scratch, rows))
        set_i64(scratch + 8 * at.M_ASKED, 0)
    return True
