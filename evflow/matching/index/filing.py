"""Where a filter stands: with its signature, by its sharpest constraint, or in a cell; what each would cost
decides.

A signature keeps its filters together while they are few. Beyond that, a filter goes where an event has to
look at the smallest share of the signature's filters: to those with the same equality or pattern, whose share
is counted, or to a cell, whose share is estimated when the size of cells is chosen.
"""

from __future__ import annotations

import math

from evflow.matching.index import layout as at
from evflow.matching.index.blocks import append, bump, list_address, record_address, reserve, take
from evflow.matching.index.directory import element_address, find, new_list, signature_elements
from evflow.matching.index.keys import (
    bucket_hash,
    cell_key,
    cell_number,
    hash_bytes,
    join,
    mix,
    power,
    value_hash,
)
from evflow.matching.native import (
    bits_of,
    compiled,
    f32,
    f64,
    i32,
    i64,
    set_f32,
    set_i64,
    set_u32,
    u32,
)
from evflow.matching.operators import CONTAINS, PREFIX

SHARP_ENOUGH = 0.25
"""A constraint is sharp if at most this share of those on its attribute are the same."""

_NARROW_ENOUGH = 1 / 512
"""A range is if at most this share of those on its attribute are in its bucket: the pool has no such rows."""
_WIDEST = 20
"""The level of the largest buckets, a sixteenth of what is between a power of two and the next."""


@compiled
def _value_code(lows: int, count: int, exacts: int, j: int, low: int) -> tuple[bool, int]:
    """What an equality with a number is found by: its key, or its bits if the key stands for several."""
    if not low & 1:
        return True, low
    for e in range(exacts):
        place = lows + 8 * count + 16 * e
        if u32(place) == j << 4:
            return True, bits_of(f64(place + 8))
    return False, 0


@compiled
def _equality(state: int, source: int, element: int, j: int) -> int:
    """The hash of a record's equality on an element, or 0."""
    info = u32(source + 4 * at.R_INFO)
    count = info & at.K_MASK
    lows = source + 4 * at.R_LOWS
    if element % 3 == at.ANY or u32(lows + 4 * (count + j)):
        return 0
    if element % 3 == at.TEXTS:
        return value_hash(element, 0, u32(lows + 4 * j))
    exacts = info >> at.K_EXACT & at.K_EXACT_MASK
    there, code = _value_code(lows, count, exacts, j, i32(lows + 4 * j))
    return value_hash(element, 0, code) if there else 0


@compiled
def _range(source: int, element: int, j: int) -> tuple[int, int]:
    """The hash of the smallest bucket that holds a record's narrow range on an element, and its level; or 0.

    It is at least twice as long as the range, so one of the two rows has one that holds all of it. Every
    second size is enough.
    """
    lows = source + 4 * at.R_LOWS
    width = u32(lows + 4 * ((u32(source + 4 * at.R_INFO) & at.K_MASK) + j))
    first = (u32(lows + 4 * j) + (1 << 31)) & at.NONE
    if element % 3 != at.NUMBERS or 2 * width >= 1 << _WIDEST or first + width > at.NONE:
        return 0, 0
    level = 2
    while 1 << level <= 2 * width:
        level += 2
    shifted = 0 if first >> level == (first + width) >> level else 1
    return bucket_hash(element, first, level, shifted), level


@compiled
def _pattern(state: int, place: int, element: int) -> tuple[int, int]:
    """The hash and the length of an exact constraint if it is a pattern that is looked up, else 0."""
    op = u32(place) & 15
    if op < PREFIX or op > CONTAINS:
        return 0, 0
    text = u32(place + 4)
    offsets = i64(state + 8 * at.TEXT_OFFSETS)
    start = i64(offsets + 8 * text)
    length = i64(offsets + 8 * text + 8) - start
    if length == 0 or length > at.LONGEST:
        return 0, 0
    return value_hash(element, op, hash_bytes(i64(state + 8 * at.TEXT_DATA) + start, length)), length


@compiled
def _tallied(state: int, key: int) -> int:
    """Where the count of a sharp constraint stands; others may share it."""
    return i64(state + 8 * at.TALLY) + 4 * (key & (at.TALLY_SIZE - 1))


@compiled
def tally(state: int, record: int, signature: int, step: int) -> None:
    """Counts the sharp constraints of a record that comes (1) or goes (-1)."""
    source = record_address(state, record)
    elements = signature_elements(state, list_address(state, signature))
    info = u32(source + 4 * at.R_INFO)
    count = info & at.K_MASK
    for j in range(count):
        element = u32(elements + 4 * j)
        key = _equality(state, source, element, j)
        if key == 0:
            key = _range(source, element, j)[0]
        if key:
            bump(_tallied(state, key), step)
            bump(element_address(state, element) + at.E_VALUES, step)
    for e in range(info >> at.K_EXACT & at.K_EXACT_MASK):
        place = source + 4 * at.R_LOWS + 8 * count + 16 * e
        element = u32(elements + 4 * (u32(place) >> 4))
        key, length = _pattern(state, place, element)
        if key:
            bump(_tallied(state, key), step)
            bump(element_address(state, element) + at.E_PATTERNS, step)
            slot = at.LENGTHS + 64 * ((u32(place) & 15) - PREFIX) + length
            bump(i64(state + 8 * at.COUNTS) + 4 * slot, step)


@compiled
def sharpest(state: int, record: int, entry: int) -> tuple[float, int, bool]:
    """The sharpest constraint of a record: the share that has it, its hash, whether it is a pattern."""
    source = record_address(state, record)
    elements = signature_elements(state, entry)
    info = u32(source + 4 * at.R_INFO)
    count = info & at.K_MASK
    share, best, pattern = 1.0, 0, False
    for j in range(count):
        element = u32(elements + 4 * j)
        place = element_address(state, element)
        key, level = _equality(state, source, element, j), 0
        if key == 0:
            key, level = _range(source, element, j)
        if key:
            own = u32(_tallied(state, key)) / (u32(place + at.E_VALUES) + 16.0)
            if own < share and (level == 0 or own < _NARROW_ENOUGH):
                share, best, pattern = own, key, False
                # Events look for it from now on.
                set_u32(place + at.E_RANGES, u32(place + at.E_RANGES) | (1 << level if level else 0))
    for e in range(info >> at.K_EXACT & at.K_EXACT_MASK):
        place = source + 4 * at.R_LOWS + 8 * count + 16 * e
        element = u32(elements + 4 * (u32(place) >> 4))
        key = _pattern(state, place, element)[0]
        if key:
            total = u32(element_address(state, element) + at.E_PATTERNS)
            own = u32(_tallied(state, key)) / (total + 16.0)
            if own < share:
                share, best, pattern = own, key, True
    return share, best, pattern


@compiled
def mark_dirty(state: int, number: int) -> None:
    """Notes that a list has grown so much that its filters may stand better; room is made before."""
    entry = list_address(state, number)
    info = u32(entry + at.L_INFO)
    if not info & at.I_DIRTY:
        used = i64(state + 8 * at.DIRTY_USED)
        set_u32(i64(state + 8 * at.DIRTY) + 4 * used, number)
        set_i64(state + 8 * at.DIRTY_USED, used + 1)
        set_u32(entry + at.L_INFO, info | at.I_DIRTY)


@compiled
def _sharp_list(state: int, signature: int, key: int, pattern: bool, located: bool) -> int:
    """The list of a sharp constraint in a signature, made if it is new; or FULL."""
    entry = list_address(state, signature)
    key = join(i64(entry) ^ (1 if located else 0), key)
    number = find(state, key)
    if number:
        return number
    info = u32(entry + at.L_INFO)
    kind = at.LOCATED if located else at.PLAIN
    number = new_list(state, key, kind | at.I_SHARP | info >> at.I_ELEMENTS << at.I_ELEMENTS)
    if number == at.FULL:
        return at.FULL
    set_u32(list_address(state, number) + at.L_OWNER, signature)
    if located:
        info |= at.I_PATTERNS_LOCATED if pattern else at.I_VALUES_LOCATED
    else:
        info |= at.I_PATTERNS if pattern else at.I_VALUES
    set_u32(entry + at.L_INFO, info)
    return number


@compiled
def radius_of(state: int, reach: float) -> float:
    """A distance that no point in a circle has, however the square of its own was rounded."""
    return math.sqrt(reach) * 1.000000001 + 1e-150


@compiled
def _radius_exponent(radius: float) -> int:
    """The exponent of the least power of two that is larger; all circles that are huge share one."""
    if radius > 1e30:
        return at.UNBOUNDED
    return (bits_of(radius) >> 52) - 1022


@compiled
def find_group(state: int, signature: int, radius: float) -> int:
    """The group of a signature that takes circles of this radius, made if it is new; or FULL."""
    entry = list_address(state, signature)
    exponent = _radius_exponent(radius) if u32(entry + at.L_INFO) & at.I_SPLIT else at.ANY_RADIUS
    number = u32(entry + at.L_NEXT)
    elements = u32(entry + at.L_INFO) >> at.I_ELEMENTS << at.I_ELEMENTS
    while number:
        group = list_address(state, number)
        if i32(group + at.L_RADIUS) == exponent:
            break
        number = u32(group + at.L_CHAIN)
    if number == 0:
        key = join(i64(entry), mix(exponent + 5000))
        number = new_list(state, key, at.LOCATED | at.I_GROUP | elements)
        if number == at.FULL:
            return at.FULL
        group = list_address(state, number)
        set_u32(group + at.L_OWNER, signature)
        set_u32(group + at.L_RADIUS, exponent)
        set_u32(group + at.L_CELL, at.ONE_CELL)
        set_f32(group + at.L_SHARE, 1.0)
        set_u32(group + at.L_CHAIN, u32(entry + at.L_NEXT))
        set_u32(entry + at.L_NEXT, number)
    return number


@compiled
def cell_key_of(group: int, x: float, y: float, z: float) -> int:
    """The key of the cell that takes circles with this centre, given the group's address."""
    exponent = i32(group + at.L_CELL)
    scale = power(-exponent)
    i, j, k = cell_number(x, scale), cell_number(y, scale), cell_number(z, scale)
    return cell_key(i64(group), exponent, i, j, k)


@compiled
def cell_of(state: int, number: int, x: float, y: float, z: float) -> int:
    """The cell of a group that takes circles with this centre, made if it is new; or FULL."""
    group = list_address(state, number)
    key = cell_key_of(group, x, y, z)
    cell = find(state, key)
    if cell == 0:
        elements = u32(group + at.L_INFO) >> at.I_ELEMENTS << at.I_ELEMENTS
        cell = new_list(state, key, at.LOCATED | at.I_CELL | elements)
        if cell == at.FULL:
            return at.FULL
        entry = list_address(state, cell)
        set_u32(entry + at.L_OWNER, u32(group + at.L_OWNER))
        set_u32(entry + at.L_NEXT, number)
        set_u32(entry + at.L_CHAIN, u32(group + at.L_CELLS))
        set_u32(group + at.L_CELLS, cell)
    return cell


@compiled
def find_place(
    state: int, record: int, signature: int, located: bool, x: float, y: float, z: float, reach: float
) -> tuple[int, int]:
    """The list that a filter belongs in and the group that counts it, or 0; (FULL, 0) if there is no room."""
    entry = list_address(state, signature)
    info = u32(entry + at.L_INFO)
    if not located:
        sharp = info & (at.I_VALUES | at.I_PATTERNS) or u32(entry + at.L_LENGTH) >= at.SPLIT
        sharp = sharp or i64(state + 8 * at.POOLED)
        if sharp and info >> at.I_ELEMENTS:
            share, key, pattern = sharpest(state, record, entry)
            if share < SHARP_ENOUGH:
                return _sharp_list(state, signature, key, pattern, False), 0
        return signature, 0
    number = find_group(state, signature, radius_of(state, reach))
    if number == at.FULL:
        return at.FULL, 0
    group = list_address(state, number)
    if u32(group + at.L_LEVELLED) == 0:
        return number, number
    if info >> at.I_ELEMENTS:
        share, key, pattern = sharpest(state, record, entry)
        seen = f32(group + at.L_SHARE)
        if share < min(SHARP_ENOUGH, 0.5 * seen) and seen * u32(group + at.L_COUNT) > at.SPLIT:
            return _sharp_list(state, signature, key, pattern, True), 0
    if i32(group + at.L_CELL) == at.ONE_CELL:
        return number, number
    return cell_of(state, number, x, y, z), number


@compiled
def widen(state: int, group: int, reach: float) -> None:
    """Notes that a group has a circle of this reach."""
    largest = list_address(state, group) + at.L_REACH
    radius = radius_of(state, reach)
    if radius > f32(largest):
        set_f32(largest, max(radius * 1.000001, 1e-30))


@compiled
def put(state: int, number: int, group: int, record: int, x: float, y: float, z: float, reach: float) -> int:
    """Puts a record in a list that ``find_place`` gave: 0 or FULL."""
    entry = list_address(state, number)
    grown = reserve(state, entry)
    if grown == at.FULL:
        return at.FULL
    append(state, number, record, x, y, z, reach)
    if group:
        owner = list_address(state, group)
        count = u32(owner + at.L_COUNT) + 1
        set_u32(owner + at.L_COUNT, count)
        widen(state, group, reach)
        if count >= max(at.LEVEL_FROM, 4 * u32(owner + at.L_LEVELLED)):
            mark_dirty(state, group)
    elif grown and u32(entry + at.L_INFO) & at.I_SIGNATURE and u32(entry + at.L_LENGTH) >= at.SPLIT:
        mark_dirty(state, number)
    return 0


@compiled
def group_of(state: int, number: int) -> int:
    """The group that counts the filters of a list, or 0."""
    entry = list_address(state, number)
    info = u32(entry + at.L_INFO)
    if info & at.I_GROUP:
        return number
    return u32(entry + at.L_NEXT) if info & at.I_CELL else 0


@compiled
def leave(state: int, number: int, position: int) -> None:
    """Takes a record out of its list, and off the count of its group."""
    take(state, list_address(state, number), position)
    group = group_of(state, number)
    if group:
        bump(list_address(state, group) + at.L_COUNT, -1)


@compiled
def refile(
    state: int,
    number: int,
    position: int,
    target: int,
    group: int,
    record: int,
    x: float,
    y: float,
    z: float,
    reach: float,
) -> int:
    """Moves a record from its list to one that ``find_place`` gave: 0, or FULL and nothing is moved."""
    if target == at.FULL or reserve(state, list_address(state, target)) == at.FULL:
        return at.FULL
    leave(state, number, position)
    put(state, target, group, record, x, y, z, reach)
    return 0
