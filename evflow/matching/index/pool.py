"""The pool: filters that no list of their own would find, with bitmaps that tell which ones an event may
satisfy.

An *axis* cuts the keys of an element into buckets. For each bucket a row of bits tells which filters of the
pool accept some key in it, and one more row tells which do not constrain the element. An event picks a row of
each axis and ands them; what is left is tested exactly. So rows may be coarse, and an element may have none.

Rows lie block by block of 1024 filters, so that a block's rows stay in the cache while many events pick from
them. A filter that leaves clears its bit in the row of those that are there, and its slot is used again.

The method is that of bitmap indexes with bins (O'Neil and Quass, Improved query performance with variant
indexes, SIGMOD 1997), turned round: the queries are indexed, and the event asks.
"""

from __future__ import annotations

from evflow.matching.index import layout as at
from evflow.matching.index.bands import drop_filings, file_signature
from evflow.matching.index.blocks import (
    add_to,
    bump,
    drop_block,
    list_address,
    record_address,
    records_of,
    reserve,
    room,
)
from evflow.matching.index.directory import element_address, signature_elements
from evflow.matching.index.filing import SHARP_ENOUGH, find_place, put, sharpest
from evflow.matching.index.records import D_ELEMENTS, D_HIGH, D_LOW
from evflow.matching.native import compiled, i32, i64, kernel, set_i64, set_u32, u32


@compiled
def axis_address(state: int, axis: int) -> int:
    """Where an axis stands."""
    return i64(state + 8 * at.AXES) + axis * at.AXIS_SIZE


@compiled
def _block_of(state: int, slot: int) -> int:
    """Where the block of a slot begins, which is with the row of the slots in use."""
    return i64(state + 8 * at.BITS) + at.LINE * i64(state + 8 * at.POOL_ROWS) * (slot // at.IN_BLOCK)


@compiled
def _mark(place: int, bit: int, there: bool) -> None:
    """Sets or clears a bit of a word."""
    word = i64(place)
    set_i64(place, word | bit if there else word & ~bit)


@compiled
def _mark_rows(place: int, axis: int, bit: int, low: int, width: int) -> None:
    """Clears a filter's bit in the rows of an axis whose keys it accepts none of."""
    _mark(place, bit, False)
    for row in range(1, u32(axis + at.AXIS_ROWS)):
        first = u32(axis + at.AXIS_LOWS + 4 * row)
        # Both are intervals that may wrap around: they share a key if one begins within the other.
        apart = (first - low) & at.NONE > width and (low - first) & at.NONE > u32(
            axis + at.AXIS_WIDTHS + 4 * row
        )
        if apart:
            _mark(place + at.LINE * row, bit, False)


@compiled
def _write_bits(state: int, slot: int, record: int, entering: bool) -> None:
    """Writes the bits of a record that comes to a slot, or makes those of one that goes as they were."""
    source = record_address(state, record)
    entry = list_address(state, u32(source + 4 * at.R_LIST))
    elements, count = signature_elements(state, entry), u32(entry + at.L_INFO) >> at.I_ELEMENTS
    word = _block_of(state, slot) + 8 * (slot % at.IN_BLOCK // 64)
    bit = 1 << (slot & 63)
    axis, axes = 0, i64(state + 8 * at.AXES_USED)
    for j in range(count):
        element = u32(elements + 4 * j)
        while axis < axes and u32(axis_address(state, axis)) < element:
            axis += 1
        if axis == axes:
            break
        place = axis_address(state, axis)
        if u32(place) != element:
            continue
        rows = word + at.LINE * u32(place + at.AXIS_ROW)
        if entering:
            low = u32(source + 4 * (at.R_LOWS + j))
            _mark_rows(rows, place, bit, low, u32(source + 4 * (at.R_LOWS + count + j)))
        else:
            for row in range(u32(place + at.AXIS_ROWS)):
                _mark(rows + at.LINE * row, bit, True)
    _mark(word, bit, entering)


@compiled
def _new_block(state: int) -> int:
    """Makes a block of the pool for the slots that come next: 0 or FULL."""
    rows = i64(state + 8 * at.POOL_ROWS)
    if room(state, at.BITS, rows) == at.FULL:
        return at.FULL
    used = i64(state + 8 * at.BITS_USED)
    start = i64(state + 8 * at.BITS) + at.LINE * used
    for word in range(at.LINE // 8):
        set_i64(start + 8 * word, 0)
    for word in range(at.LINE // 8, at.LINE // 8 * rows):
        set_i64(start + 8 * word, -1)
    set_i64(state + 8 * at.BITS_USED, used + rows)
    return 0


@compiled
def _free_slot(state: int) -> int:
    """A slot that is free; or FULL."""
    free = i64(state + 8 * at.FREE_SLOT)
    if free:
        slots = i64(state + 8 * at.SLOTS)
        set_i64(state + 8 * at.FREE_SLOT, u32(slots + 4 * (free - 1)))
        return free - 1
    slot = i64(state + 8 * at.SLOTS_USED)
    if room(state, at.SLOTS, 1) == at.FULL:
        return at.FULL
    if slot % at.IN_BLOCK == 0 and _new_block(state) == at.FULL:
        return at.FULL
    set_i64(state + 8 * at.SLOTS_USED, slot + 1)
    return slot


@compiled
def _take_in(state: int, slot: int, record: int, signature: int) -> None:
    """Puts a record in a slot."""
    source = record_address(state, record)
    set_u32(i64(state + 8 * at.SLOTS) + 4 * slot, record)
    set_u32(source + 4 * at.R_LIST, signature)
    set_u32(source + 4 * at.R_POSITION, slot)
    set_u32(source + 4 * at.R_INFO, u32(source + 4 * at.R_INFO) | at.R_POOLED)
    _write_bits(state, slot, record, True)


@compiled
def enter_pool(state: int, record: int, signature: int) -> int:
    """Puts a record in the pool: 0 or FULL."""
    slot = _free_slot(state)
    if slot == at.FULL:
        return at.FULL
    _take_in(state, slot, record, signature)
    bump(list_address(state, signature) + at.L_POOLED, 1)
    add_to(state, at.POOL_FILTERS, 1)
    return 0


@compiled
def leave_pool(state: int, record: int) -> None:
    """Takes a record out of the pool."""
    source = record_address(state, record)
    slot = u32(source + 4 * at.R_POSITION)
    _write_bits(state, slot, record, False)
    set_u32(i64(state + 8 * at.SLOTS) + 4 * slot, i64(state + 8 * at.FREE_SLOT))
    set_i64(state + 8 * at.FREE_SLOT, slot + 1)
    bump(list_address(state, u32(source + 4 * at.R_LIST)) + at.L_POOLED, -1)
    add_to(state, at.POOL_FILTERS, -1)


@compiled
def is_weak(state: int, record: int, signature: int) -> bool:
    """Whether a filter without area belongs in the pool; else it goes to the list of a sharp constraint."""
    entry = list_address(state, signature)
    if u32(entry + at.L_POOLED) + u32(entry + at.L_OWNER) < at.SPLIT:
        return True
    return sharpest(state, record, entry)[0] >= SHARP_ENOUGH


@kernel
def fill_pool(state: int) -> int:
    """Takes in the filters of all signatures' own lists, once there are axes: 0, or FULL to be called again.

    Events no longer look for signatures that have no other filters.
    """
    for number in range(1, i64(state + 8 * at.LISTS_USED)):
        entry = list_address(state, number)
        info, length = u32(entry + at.L_INFO), u32(entry + at.L_LENGTH)
        if i64(entry) == 0 or not info & at.I_SIGNATURE:
            continue
        # What is left of a list that the last call could not empty stands at its beginning.
        while length:
            record = u32(records_of(state, entry) + 4 * (length - 1))
            slot = _free_slot(state)
            if slot == at.FULL:
                return at.FULL
            _take_in(state, slot, record, number)
            length -= 1
            set_u32(entry + at.L_LENGTH, length)
            set_u32(entry + at.L_OWNER, u32(entry + at.L_OWNER) - 1)
            add_to(state, at.POOL_FILTERS, 1)
        drop_block(state, entry)
    for number in range(1, i64(state + 8 * at.LISTS_USED)):
        entry = list_address(state, number)
        if i64(entry) and u32(entry + at.L_INFO) & at.I_SIGNATURE:
            set_u32(entry + at.L_POOLED, 0)
    for slot in range(i64(state + 8 * at.SLOTS_USED)):
        source = record_address(state, u32(i64(state + 8 * at.SLOTS) + 4 * slot))
        bump(list_address(state, u32(source + 4 * at.R_LIST)) + at.L_POOLED, 1)
    for element in range(i64(state + 8 * at.ELEMENTS_USED)):
        if u32(element_address(state, element) + at.E_LENGTH):
            drop_filings(state, element_address(state, element))
    set_i64(state + 8 * at.POOLED, 1)
    return 0


@compiled
def _empty_free_slots(state: int) -> None:
    """Notes in each free slot that it holds no record; they are in no chain any more."""
    slots, free = i64(state + 8 * at.SLOTS), i64(state + 8 * at.FREE_SLOT)
    while free:
        following = u32(slots + 4 * (free - 1))
        set_u32(slots + 4 * (free - 1), 0)
        free = following
    set_i64(state + 8 * at.FREE_SLOT, 0)


@kernel
def renew_pool(state: int, axes: int) -> int:
    """Writes the pool anew, without gaps, for the axes that stand there now: 0.

    ``axes`` is how many there are, and there is room for all blocks. The filters' rows are counted by
    POOL_ROWS of the new axes; the old ones are not read.
    """
    _empty_free_slots(state)
    slots, kept = i64(state + 8 * at.SLOTS), 0
    for slot in range(i64(state + 8 * at.SLOTS_USED)):
        record = u32(slots + 4 * slot)
        if record:
            set_u32(slots + 4 * kept, record)
            kept += 1
    set_i64(state + 8 * at.BITS_USED, 0)
    set_i64(state + 8 * at.AXES_USED, axes)
    set_i64(state + 8 * at.SLOTS_USED, kept)
    for slot in range(kept):
        if slot % at.IN_BLOCK == 0:
            _new_block(state)
        record = u32(slots + 4 * slot)
        _take_in(state, slot, record, u32(record_address(state, record) + 4 * at.R_LIST))
    return 0


@compiled
def _draft_again(state: int, source: int, entry: int) -> None:
    """Drafts the intervals of a record, by which its signature is filed."""
    draft, elements = i64(state + 8 * at.DRAFT), signature_elements(state, entry)
    count = u32(entry + at.L_INFO) >> at.I_ELEMENTS
    for j in range(count):
        element = u32(elements + 4 * j)
        low = source + 4 * (at.R_LOWS + j)
        first = i32(low) if element % 3 == at.NUMBERS else u32(low)
        set_u32(draft + D_ELEMENTS + 4 * j, element)
        set_i64(draft + D_LOW + 8 * j, first)
        set_i64(draft + D_HIGH + 8 * j, first + u32(low + 4 * count))


@kernel
def drain_pool(state: int) -> int:
    """Puts the filters of the pool back in lists: 0, or FULL to be called again."""
    set_i64(state + 8 * at.POOLED, 0)
    _empty_free_slots(state)
    while i64(state + 8 * at.SLOTS_USED):
        last = i64(state + 8 * at.SLOTS_USED) - 1
        record = u32(i64(state + 8 * at.SLOTS) + 4 * last)
        if record == 0:
            set_i64(state + 8 * at.SLOTS_USED, last)
            continue
        source = record_address(state, record)
        signature = u32(source + 4 * at.R_LIST)
        entry = list_address(state, signature)
        _draft_again(state, source, entry)
        if file_signature(state, signature) == at.FULL:
            return at.FULL
        number = find_place(state, record, signature, False, 0.0, 0.0, 0.0, 0.0)[0]
        if number == at.FULL or reserve(state, list_address(state, number)) == at.FULL:
            return at.FULL
        set_u32(source + 4 * at.R_INFO, u32(source + 4 * at.R_INFO) & ~at.R_POOLED)
        put(state, number, 0, record, 0.0, 0.0, 0.0, 0.0)
        bump(list_address(state, signature) + at.L_OWNER, 1)
        set_i64(state + 8 * at.SLOTS_USED, last)
        add_to(state, at.POOL_FILTERS, -1)
    set_i64(state + 8 * at.BITS_USED, 0)
    return 0


@kernel
def sample_intervals(state: int, step: int, out: int, most: int) -> int:
    """Writes the intervals of weak filters of each ``step``-th subscription; how many.

    ``out`` is where ``most`` rows of four uint32 stand: a number of the filter, its element, low, width.
    """
    taken, filters = 0, 0
    for subscription in range(0, i64(state + 8 * at.FIRST_USED), step):
        record = u32(i64(state + 8 * at.FIRST) + 4 * subscription)
        if record == 0:
            continue
        source = record_address(state, record)
        number, info = u32(source + 4 * at.R_LIST), u32(source + 4 * at.R_INFO)
        if number == at.NONE or info & at.R_LOCATED:
            continue
        entry = list_address(state, number)
        count = u32(entry + at.L_INFO) >> at.I_ELEMENTS
        if not u32(entry + at.L_INFO) & at.I_SIGNATURE or count == 0:
            continue
        if taken + count > most:
            break
        elements = signature_elements(state, entry)
        for j in range(count):
            row = out + 16 * (taken + j)
            set_u32(row, filters)
            set_u32(row + 4, u32(elements + 4 * j))
            set_u32(row + 8, u32(source + 4 * (at.R_LOWS + j)))
            set_u32(row + 12, u32(source + 4 * (at.R_LOWS + count + j)))
        taken += count
        filters += 1
    return taken
