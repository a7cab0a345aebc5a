"""Lists: blocks of the entry arena that grow, shrink, and fill a gap with their last entry."""

from __future__ import annotations

import math

from evflow.matching.index import layout as at
from evflow.matching.native import compiled, f64, i64, set_f32, set_f64, set_i64, set_u32, u32
from evflow.matching.operators import NE


@compiled
def add_to(base: int, what: int, step: int) -> None:
    """Adds to a number of the state or of a scratch."""
    set_i64(base + 8 * what, i64(base + 8 * what) + step)


@compiled
def bump(address: int, step: int) -> None:
    """Adds to the uint32 at an address."""
    set_u32(address, u32(address) + step)


@compiled
def list_address(state: int, number: int) -> int:
    """Where a list stands."""
    return i64(state + 8 * at.LISTS) + number * at.LIST_SIZE


@compiled
def record_address(state: int, record: int) -> int:
    """Where a record stands."""
    return i64(state + 8 * at.RECORDS) + 4 * record


@compiled
def area_words(state: int, info: int) -> int:
    """How many words stand in front of a record with this info, for its area."""
    return at.R_AREA if info & at.R_LOCATED and i64(state + 8 * at.DIMENSIONS) == 2 else 0


@compiled
def room(state: int, arena: int, amount: int) -> int:
    """0 if an arena has room for this much more; else FULL, noting what is wanted."""
    if i64(state + 8 * (arena + 1)) + amount <= i64(state + 8 * (arena + 2)):
        return 0
    set_i64(state + 8 * at.WANTED, arena // 3)
    set_i64(state + 8 * at.AMOUNT, amount)
    return at.FULL


@compiled
def rounded(units: int) -> tuple[int, int]:
    """The size that a block gets, and its class: each size up to 32, then four in an octave."""
    if units <= 32:
        return units, units
    shift = 0
    while units > 8:
        units = (units + 1) >> 1
        shift += 1
    return units << shift, 32 + 4 * (shift - 3) + units - 5 + 1


@compiled
def new_block(state: int, units: int) -> int:
    """The first unit of a block of this size, or FULL."""
    units, size_class = rounded(units)
    head = i64(state + 8 * at.COUNTS) + 4 * (at.FREE_BLOCKS + size_class)
    entries = i64(state + 8 * at.ENTRIES)
    start = u32(head)
    if start:
        set_u32(head, u32(entries + 16 * start))
        return start
    start = i64(state + 8 * at.SCRAP)
    if start + units <= i64(state + 8 * at.SCRAP_END):
        set_i64(state + 8 * at.SCRAP, start + units)
        return start
    if room(state, at.ENTRIES, units) == at.FULL:
        return at.FULL
    start = i64(state + 8 * at.ENTRIES_USED)
    set_i64(state + 8 * at.ENTRIES_USED, start + units)
    return start


@compiled
def free_block(state: int, start: int, units: int) -> None:
    """Gives a block back. A large one serves for small ones if none does at present."""
    units, size_class = rounded(units)
    left = i64(state + 8 * at.SCRAP_END) - i64(state + 8 * at.SCRAP)
    if units >= 256 and left <= 32:
        rest = i64(state + 8 * at.SCRAP)
        set_i64(state + 8 * at.SCRAP, start)
        set_i64(state + 8 * at.SCRAP_END, start + units)
        start, size_class = rest, left
        if left == 0:
            return
    head = i64(state + 8 * at.COUNTS) + 4 * (at.FREE_BLOCKS + size_class)
    set_u32(i64(state + 8 * at.ENTRIES) + 16 * start, u32(head))
    set_u32(head, start)


@compiled
def list_units(state: int, kind: int, elements: int, capacity: int) -> int:
    """The size of a block for this many entries, a multiple of 4 (16 for columns)."""
    if kind == at.PLAIN:
        return capacity // 4
    units = capacity // 4 * (2 + 4 * elements) if kind & at.COLUMNS else 0
    return units + _placed(state, kind, capacity) // 16


@compiled
def _placed(state: int, kind: int, capacity: int) -> int:
    """How many bytes of a block are for areas and their records."""
    if not kind & at.LOCATED:
        return 0
    return 16 * capacity if i64(state + 8 * at.DIMENSIONS) == 2 else 36 * capacity


@compiled
def _offset(state: int, kind: int, capacity: int) -> int:
    """How far into a block the column of records stands."""
    if not kind & at.LOCATED:
        return 4 * capacity if kind == at.COLUMNS else 0
    return 12 * capacity if i64(state + 8 * at.DIMENSIONS) == 2 else 32 * capacity


@compiled
def records_of(state: int, entry: int) -> int:
    """Where the column of records of a list stands, given the list's address."""
    capacity = u32(entry + at.L_CAPACITY)
    if capacity == 0:
        return entry + at.L_START
    block = i64(state + 8 * at.ENTRIES) + 16 * u32(entry + at.L_START)
    return block + _offset(state, u32(entry + at.L_INFO) & at.I_KIND, capacity)


@compiled
def columns_of(state: int, entry: int) -> int:
    """Where the columns of a list that has some stand, given the list's address."""
    kind = u32(entry + at.L_INFO) & at.I_KIND
    block = i64(state + 8 * at.ENTRIES) + 16 * u32(entry + at.L_START)
    return block + _placed(state, kind, u32(entry + at.L_CAPACITY))


@compiled
def _exclude(target: int, capacity: int, place: int, exacts: int) -> tuple[bool, int]:
    """Writes the keys that a record's exact constraints exclude; False if columns cannot hold them all.

    Besides it tells what is true of the columns still: ``I_RANGES``, ``I_ONCE``.

    They can where each excludes a round number or a string, and at most two are on the same element.
    """
    still = at.I_RANGES | at.I_ONCE
    for e in range(exacts):
        word, key = u32(place + 16 * e), u32(place + 16 * e + 4)
        column = target + 4 * capacity * (4 + 4 * (word >> 4))
        if word & 15 != NE or key == at.NO_KEY:
            return False, still
        still &= at.I_ONCE
        if u32(column) != at.NO_KEY:
            still = 0
            column += 4 * capacity
            if u32(column) != at.NO_KEY:
                return False, still
        set_u32(column, key)
    return True, still


@compiled
def _fill(state: int, block: int, capacity: int, position: int, record: int) -> int:
    """Writes the columns of a record; gives the flags that it takes from the list's."""
    source = record_address(state, record)
    info = u32(source + 4 * at.R_INFO)
    elements = info & at.K_MASK
    target = block + 4 * position
    lows = source + 4 * at.R_LOWS
    for j in range(elements):
        column = target + 4 * capacity * (2 + 4 * j)
        set_u32(column, u32(lows + 4 * j))
        set_u32(column + 4 * capacity, u32(lows + 4 * (elements + j)))
        set_u32(column + 8 * capacity, at.NO_KEY)
        set_u32(column + 12 * capacity, at.NO_KEY)
    exacts = info >> at.K_EXACT & at.K_EXACT_MASK
    held, still = _exclude(target, capacity, lows + 8 * elements, exacts)
    set_u32(target, u32(source + 4 * at.R_SUBSCRIPTION) | (0 if held else at.V_MARK))
    set_u32(target + 4 * capacity, record)
    return (at.I_RANGES | at.I_ONCE) & ~still


@compiled
def _copy_entry(state: int, block: int, capacity: int, i: int, other: int, larger: int, j: int) -> None:
    """Copies a located entry to another block, or place in the block."""
    if i64(state + 8 * at.DIMENSIONS) == 2:
        for column in range(4):
            set_u32(other + 4 * (column * larger + j), u32(block + 4 * (column * capacity + i)))
        return
    for column in range(4):
        set_i64(other + 8 * (column * larger + j), i64(block + 8 * (column * capacity + i)))
    set_u32(other + 32 * larger + 4 * j, u32(block + 32 * capacity + 4 * i))


@compiled
def _resize(state: int, entry: int, capacity: int) -> int:
    """Gives a list another block, as columns if it is long; 0 or FULL."""
    info = u32(entry + at.L_INFO)
    kind = info & at.I_KIND
    elements = info >> at.I_ELEMENTS
    length = u32(entry + at.L_LENGTH)
    becomes = kind & at.LOCATED
    # Areas that wait to be settled are about to go to cells.
    staying = not (becomes and info & at.I_DIRTY) or kind & at.COLUMNS
    if elements and staying and capacity >= (at.PLACED_FROM if becomes else at.COLUMNS_FROM):
        becomes |= at.COLUMNS
        capacity = (capacity + 15) & -16
        info |= at.I_RANGES | at.I_ONCE
    start = new_block(state, list_units(state, becomes, elements, capacity))
    if start == at.FULL:
        return at.FULL
    entries = i64(state + 8 * at.ENTRIES)
    old_start, old = u32(entry + at.L_START), u32(entry + at.L_CAPACITY)
    block, source = entries + 16 * start, entries + 16 * old_start
    records, columns = records_of(state, entry), block + _placed(state, becomes, capacity)
    for i in range(length):
        if becomes & at.LOCATED:
            _copy_entry(state, source, old, i, block, capacity, i)
        if becomes & at.COLUMNS:
            info &= ~_fill(state, columns, capacity, i, u32(records + 4 * i))
        elif becomes == at.PLAIN:
            set_u32(block + 4 * i, u32(records + 4 * i))
    if old:
        free_block(state, old_start, list_units(state, kind, elements, old))
    set_u32(entry + at.L_START, start)
    set_u32(entry + at.L_CAPACITY, capacity)
    set_u32(entry + at.L_INFO, (info & ~at.I_KIND) | becomes)
    return 0


@compiled
def give_columns(state: int, entry: int) -> int:
    """Gives a list of areas columns if it has become long without; 0 or FULL."""
    capacity, info = u32(entry + at.L_CAPACITY), u32(entry + at.L_INFO)
    if capacity < at.PLACED_FROM or info & at.COLUMNS or not info >> at.I_ELEMENTS:
        return 0
    return _resize(state, entry, capacity)


@compiled
def reserve(state: int, entry: int) -> int:
    """Makes room for one more record in a list: 0, 1 if its block has grown, or FULL."""
    length, capacity = u32(entry + at.L_LENGTH), u32(entry + at.L_CAPACITY)
    if length < capacity:
        return 0
    if length == 0 and not u32(entry + at.L_INFO) & at.LOCATED:
        return 0
    larger = (capacity + max(4, capacity // 2) + 3) & -4
    return at.FULL if _resize(state, entry, larger) == at.FULL else 1


@compiled
def append(state: int, number: int, record: int, x: float, y: float, z: float, reach: float) -> None:
    """Puts a record at the end of a list that has room."""
    entry = list_address(state, number)
    length, capacity = u32(entry + at.L_LENGTH), u32(entry + at.L_CAPACITY)
    kind = u32(entry + at.L_INFO) & at.I_KIND
    block = i64(state + 8 * at.ENTRIES) + 16 * u32(entry + at.L_START)
    if capacity == 0:
        set_u32(entry + at.L_START, record)
    elif kind == at.PLAIN:
        set_u32(block + 4 * length, record)
    if capacity and kind & at.COLUMNS:
        taken = _fill(state, columns_of(state, entry), capacity, length, record)
        set_u32(entry + at.L_INFO, u32(entry + at.L_INFO) & ~taken)
    if kind & at.LOCATED:
        put_area(state, block, capacity, length, record, x, y, z, reach)
        set_u32(block + _offset(state, kind, capacity) + 4 * length, record)
    set_u32(entry + at.L_LENGTH, length + 1)
    source = record_address(state, record)
    set_u32(source + 4 * at.R_LIST, number)
    set_u32(source + 4 * at.R_POSITION, length)


@compiled
def _outward(x: float, y: float, reach: float) -> float:
    """A reach in float32 that holds each point of a circle, though its centre and the point are rounded."""
    # Rounding a centre and a point moves each by 2 ** -24 of itself; underflow is less than the last term.
    radius = math.sqrt(reach) * (1 + 2.0**-20) + (abs(x) + abs(y)) * 2.0**-22 + 1e-18
    return radius * radius


@compiled
def put_area(
    state: int, block: int, capacity: int, i: int, record: int, x: float, y: float, z: float, reach: float
) -> None:
    """Writes the area of a located entry, and of its record."""
    if i64(state + 8 * at.DIMENSIONS) == 2:
        set_f32(block + 4 * i, x)
        set_f32(block + 4 * (capacity + i), y)
        set_f32(block + 4 * (2 * capacity + i), _outward(x, y, reach))
        area = record_address(state, record - at.R_AREA)
        set_f64(area, x)
        set_f64(area + 8, y)
        set_f64(area + 16, reach)
    else:
        set_f64(block + 8 * i, x)
        set_f64(block + 8 * (capacity + i), y)
        set_f64(block + 8 * (2 * capacity + i), z)
        set_f64(block + 8 * (3 * capacity + i), reach)


@compiled
def area_in(state: int, entry: int, i: int) -> tuple[float, float, float, float]:
    """The exact area of an entry of a located list, given the list's address."""
    if i64(state + 8 * at.DIMENSIONS) == 2:
        area = record_address(state, u32(records_of(state, entry) + 4 * i) - at.R_AREA)
        return f64(area), f64(area + 8), 0.0, f64(area + 16)
    capacity = u32(entry + at.L_CAPACITY)
    block = i64(state + 8 * at.ENTRIES) + 16 * u32(entry + at.L_START)
    return (
        f64(block + 8 * i),
        f64(block + 8 * (capacity + i)),
        f64(block + 8 * (2 * capacity + i)),
        f64(block + 8 * (3 * capacity + i)),
    )


@compiled
def take(state: int, entry: int, position: int) -> None:
    """Takes an entry out of a list; the last one comes in its place."""
    last = u32(entry + at.L_LENGTH) - 1
    capacity = u32(entry + at.L_CAPACITY)
    info = u32(entry + at.L_INFO)
    kind = info & at.I_KIND
    set_u32(entry + at.L_LENGTH, last)
    if position != last:
        block = i64(state + 8 * at.ENTRIES) + 16 * u32(entry + at.L_START)
        moved = u32(block + _offset(state, kind, capacity) + 4 * last)
        if kind & at.LOCATED:
            _copy_entry(state, block, capacity, last, block, capacity, position)
        if kind & at.COLUMNS:
            columns = columns_of(state, entry)
            for column in range(2 + 4 * (info >> at.I_ELEMENTS)):
                start = columns + 4 * capacity * column
                set_u32(start + 4 * position, u32(start + 4 * last))
        elif kind == at.PLAIN:
            set_u32(block + 4 * position, moved)
        set_u32(record_address(state, moved) + 4 * at.R_POSITION, position)
    if capacity > 8 and last <= capacity // 4:
        _resize(state, entry, (last + last // 2 + 4) & -4)
    elif last == 0 and capacity:
        drop_block(state, entry)


@compiled
def drop_block(state: int, entry: int) -> None:
    """Gives the block of an empty list back."""
    info, capacity = u32(entry + at.L_INFO), u32(entry + at.L_CAPACITY)
    if capacity == 0:
        return
    kind = info & at.I_KIND
    units = list_units(state, kind, info >> at.I_ELEMENTS, capacity)
    free_block(state, u32(entry + at.L_START), units)
    set_u32(entry + at.L_CAPACITY, 0)
    set_u32(entry + at.L_INFO, info & ~at.COLUMNS)
