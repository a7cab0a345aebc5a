"""Better places for the filters of lists that have grown: split by sharp constraints, by radius, by cells.

A group's cells are of one size, a power of two, chosen by what an event would cost: probes of cells times
what a probe takes, plus filters in them times what a filter takes, where events are taken to fall as the
filters' own centres do. Each change of size takes the group to grow fourfold, so a filter is moved a bounded
number of times.
"""

from __future__ import annotations

from evflow.matching.index import layout as at
from evflow.matching.index.blocks import area_in, give_columns, list_address, records_of
from evflow.matching.index.filing import find_place, mark_dirty, refile
from evflow.matching.index.keys import cell_key, cell_number, power
from evflow.matching.native import (
    bits_of,
    compiled,
    f32,
    f64,
    i32,
    i64,
    kernel,
    set_f32,
    set_f64,
    set_i64,
    set_u32,
    u32,
)

_SAMPLE = 256
_SLOTS = 1024
_PROBE = 15.0
_FILTER = 0.7
_FEWEST = 12.0
"""Nanoseconds that a probe of a cell and a filter in it take; filters that a cell should hold."""
_CROWD = 1024
"""Filters in one place that take so long that the probes of cells do not count beside them."""
_FINEST = 20
"""Bits of the number of a cell."""


@compiled
def _rehome(state: int, number: int, position: int) -> int:
    """Puts an entry of a list where it belongs now: 1, 0 if that is where it is, or FULL."""
    entry = list_address(state, number)
    record = u32(records_of(state, entry) + 4 * position)
    info = u32(entry + at.L_INFO)
    located = info & at.LOCATED != 0
    signature, x, y, z, reach = number, 0.0, 0.0, 0.0, 0.0
    if located:
        x, y, z, reach = area_in(state, entry, position)
    if not info & at.I_SIGNATURE:
        signature = u32(entry + at.L_OWNER)
    target, group = find_place(state, record, signature, located, x, y, z, reach)
    if target == number:
        return 0
    if refile(state, number, position, target, group, record, x, y, z, reach) == at.FULL:
        return at.FULL
    return 1


@compiled
def _drain(state: int, number: int) -> int:
    """Puts all entries of a list where they belong now: 0 or FULL."""
    for position in range(u32(list_address(state, number) + at.L_LENGTH) - 1, -1, -1):
        if _rehome(state, number, position) == at.FULL:
            return at.FULL
    return 0


@compiled
def free_list(state: int, number: int) -> None:
    """Gives an empty list back; the table forgets it when it is made anew."""
    entry = list_address(state, number)
    set_i64(entry + at.L_KEY, 0)
    set_u32(entry + at.L_CHAIN, i64(state + 8 * at.FREE_LIST))
    set_i64(state + 8 * at.FREE_LIST, number)


@compiled
def _sample_list(state: int, number: int, first: int, stride: int, taken: int) -> tuple[int, int]:
    """Takes each ``stride``-th centre of a list; how many are taken, and where to begin in the next list."""
    entry = list_address(state, number)
    length = u32(entry + at.L_LENGTH)
    sample = i64(state + 8 * at.DRAFT)
    while first < length and taken < _SAMPLE:
        x, y, z, _ = area_in(state, entry, first)
        set_f64(sample + 24 * taken, x)
        set_f64(sample + 24 * taken + 8, y)
        set_f64(sample + 24 * taken + 16, z)
        taken += 1
        first += stride
    return taken, first - length


@compiled
def _sample(state: int, number: int) -> int:
    """Takes centres of a group into working memory, evenly; how many."""
    group = list_address(state, number)
    stride = u32(group + at.L_COUNT) // _SAMPLE + 1
    taken, first = _sample_list(state, number, 0, stride, 0)
    cell = u32(group + at.L_CELLS)
    while cell:
        taken, first = _sample_list(state, cell, max(first, 0), stride, taken)
        cell = u32(list_address(state, cell) + at.L_CHAIN)
    return taken


@compiled
def _pairs(state: int, taken: int, exponent: int) -> int:
    """How many pairs of the sample share a cell of this size."""
    sample = i64(state + 8 * at.DRAFT)
    table = sample + 24 * _SAMPLE
    for slot in range(_SLOTS):
        set_i64(table + 16 * slot, 0)
    scale = power(-exponent)
    pairs = 0
    for i in range(taken):
        place = sample + 24 * i
        x, y, z = f64(place), f64(place + 8), f64(place + 16)
        key = cell_key(1, 0, cell_number(x, scale), cell_number(y, scale), cell_number(z, scale)) | 1
        slot = (key >> 12) & (_SLOTS - 1)
        while i64(table + 16 * slot) != 0 and i64(table + 16 * slot) != key:
            slot = (slot + 1) & (_SLOTS - 1)
        before = 0 if i64(table + 16 * slot) == 0 else i64(table + 16 * slot + 8)
        set_i64(table + 16 * slot, key)
        set_i64(table + 16 * slot + 8, before + 1)
        pairs += before
    return pairs


@compiled
def _choose_cells(state: int, number: int) -> tuple[int, float]:
    """The exponent of the size of cells that costs an event least, and the share of filters it then sees."""
    group = list_address(state, number)
    count = u32(group + at.L_COUNT)
    taken = _sample(state, number)
    sample = i64(state + 8 * at.DRAFT)
    largest = 1e-30
    for i in range(3 * taken):
        largest = max(largest, abs(f64(sample + 8 * i)))
    reach = f32(group + at.L_REACH)
    least = max(i32(group + at.L_RADIUS) - 3, -1000)
    exponent = max((bits_of(largest) >> 52) - 1022, least)
    best, share, cost, crowd = at.ONE_CELL, 1.0, count * _FILTER, 1.0 * count
    alike = 1.0
    while exponent >= least and exponent < 1000:
        pairs = _pairs(state, taken, exponent)
        measured = 2.0 * pairs / (taken * (taken - 1.0))
        alike = max(measured, 0.25 * alike) if pairs >= 16 else 0.25 * alike
        side = 1.0 + 2.0 * reach * power(-exponent)
        probes = side * side
        if i64(state + 8 * at.DIMENSIONS) == 3:
            probes *= 1.5
        new = probes * (_PROBE + alike * count * _FILTER)
        if new < cost:
            best, share, cost, crowd = exponent, min(1.0, alike * probes), new, alike * count
        if alike * count < _FEWEST:
            break
        exponent -= 1
    if crowd > _CROWD:
        # Many centres are in one place: whoever is elsewhere is spared them at the cost of a few probes.
        finest = max(i32(group + at.L_RADIUS) + 1, (bits_of(largest) >> 52) - 1022 - _FINEST, -1000)
        best = min(best, finest)
    return best, share


@compiled
def _drain_cells(state: int, number: int) -> int:
    """Puts what stands in a group's cells of the old size where it belongs now: 0 or FULL."""
    group = list_address(state, number)
    cell = u32(group + at.L_OLD)
    while cell:
        if _drain(state, cell) == at.FULL:
            return at.FULL
        following = u32(list_address(state, cell) + at.L_CHAIN)
        free_list(state, cell)
        set_u32(list_address(state, number) + at.L_OLD, following)
        cell = following
    return 0


@compiled
def _settle_group(state: int, number: int) -> int:
    """Chooses the size of a group's cells anew: 0 or FULL."""
    group = list_address(state, number)
    if _drain_cells(state, number) == at.FULL:
        return at.FULL
    count = u32(group + at.L_COUNT)
    if count >= max(at.LEVEL_FROM, 4 * u32(group + at.L_LEVELLED)):
        set_u32(group + at.L_LEVELLED, count)
        if i32(group + at.L_RADIUS) != at.UNBOUNDED:
            cell, share = _choose_cells(state, number)
            set_f32(group + at.L_SHARE, share)
            if cell != i32(group + at.L_CELL):
                set_u32(group + at.L_CELL, cell)
                set_u32(group + at.L_OLD, u32(group + at.L_CELLS))
                set_u32(group + at.L_CELLS, 0)
        if _drain_cells(state, number) == at.FULL:
            return at.FULL
    if _drain(state, number) == at.FULL:
        return at.FULL
    return give_columns(state, group)


@compiled
def _split_radii(state: int, number: int) -> int:
    """Puts the circles of a group that takes all radii into groups by radius: 0 or FULL."""
    group = list_address(state, number)
    signature = u32(group + at.L_OWNER)
    entry = list_address(state, signature)
    set_u32(entry + at.L_INFO, u32(entry + at.L_INFO) | at.I_SPLIT)
    if _drain(state, number) == at.FULL:
        return at.FULL
    previous = entry + at.L_NEXT
    while u32(previous) != number:
        previous = list_address(state, u32(previous)) + at.L_CHAIN
    set_u32(previous, u32(group + at.L_CHAIN))
    free_list(state, number)
    return 0


@kernel
def settle(state: int) -> int:
    """Settles all lists that are marked: 0, or FULL to be called again once there is room."""
    while i64(state + 8 * at.DIRTY_USED):
        used = i64(state + 8 * at.DIRTY_USED) - 1
        number = u32(i64(state + 8 * at.DIRTY) + 4 * used)
        set_i64(state + 8 * at.DIRTY_USED, used)
        entry = list_address(state, number)
        info = u32(entry + at.L_INFO)
        set_u32(entry + at.L_INFO, info & ~at.I_DIRTY)
        if info & at.I_SIGNATURE:
            done = _drain(state, number)
        elif i32(entry + at.L_RADIUS) == at.ANY_RADIUS:
            done = _split_radii(state, number)
        else:
            done = _settle_group(state, number)
        if done == at.FULL:
            mark_dirty(state, number)
            return at.FULL
    return 0
