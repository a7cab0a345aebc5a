"""The middle steps of matching: from signatures to the lists within them, and to records worth reading."""

from __future__ import annotations

from evflow.matching.index import layout as at
from evflow.matching.index.blocks import add_to, list_address
from evflow.matching.index.cost import LONG, NAME, SHORT, SIGNATURE
from evflow.matching.index.directory import find, may_hold, signature_elements
from evflow.matching.index.keys import cell_key, cell_number, power
from evflow.matching.index.probes import (
    E_COUNT,
    E_FIRST,
    E_LISTS,
    E_RECORDS,
    SCANNED,
    chain,
    column,
    event_address,
    probe_key,
)
from evflow.matching.native import (
    compiled,
    f32,
    f64,
    i32,
    i64,
    lowest,
    prefetch,
    set_i64,
    set_u32,
    u32,
)


@compiled
def _checked(state: int, key: int, number: int) -> int:
    """The list of a key, given one whose tag fits."""
    if key == 0 or i64(list_address(state, number)) == key:
        return number
    return find(state, key)


@compiled
def fill_dense(state: int, scratch: int, event: int) -> bool:
    """Notes the position of each attribute of an event by its element."""
    if i64(scratch + 8 * at.M_DENSE + 8) < 4 * i64(state + 8 * at.ELEMENTS_USED):
        set_i64(scratch + 8 * at.M_WANTED, at.M_DENSE // 2)
        return False
    dense = i64(scratch + 8 * at.M_DENSE)
    place = event_address(scratch, event)
    first = i64(place + E_FIRST)
    for i in range(i64(place + E_COUNT)):
        set_u32(dense + 4 * u32(first + i * at.ATTRIBUTE_SIZE + at.A_ELEMENT), i)
    return True


@compiled
def take_values(state: int, scratch: int, event: int, number: int, chosen: int) -> int:
    """The values of an event for a signature; -1 if it lacks one, 0 if there is no room."""
    entry = list_address(state, number)
    count = u32(entry + at.L_INFO) >> at.I_ELEMENTS
    padded = max(8, (count + 7) & -8)
    used = i64(scratch + 8 * at.M_VALUES_USED)
    if used + 64 + 8 * padded > i64(scratch + 8 * at.M_VALUES + 8):
        set_i64(scratch + 8 * at.M_WANTED, at.M_VALUES // 2)
        return 0
    values = i64(scratch + 8 * at.M_VALUES) + used
    elements = signature_elements(state, entry)
    place = event_address(scratch, event)
    first, there = i64(place + E_FIRST), i64(place + E_COUNT)
    dense = i64(scratch + 8 * at.M_DENSE)
    gaps = 0
    for j in range(count):
        element = u32(elements + 4 * j)
        if chosen & SCANNED:
            position = u32(dense + 4 * element)
            if position >= there:
                return -1
        else:
            position = lowest(chosen)
            chosen &= chosen - 1
        attribute = first + position * at.ATTRIBUTE_SIZE
        if u32(attribute + at.A_ELEMENT) != element:
            return -1
        key = u32(attribute + at.A_KEY)
        set_u32(values + at.X_KEYS + 4 * j, key)
        set_u32(values + at.X_KEYS + 4 * (padded + j), position)
        gaps |= key & (element % 3 == at.NUMBERS)
    set_u32(values + at.X_EVENT, event)
    set_u32(values + at.X_LIST, number)
    set_u32(values + at.X_COUNT, count)
    set_u32(values + at.X_GAPS, gaps)
    set_i64(scratch + 8 * at.M_VALUES_USED, used + at.X_KEYS + 8 * padded)
    return values


@compiled
def attribute_row(scratch: int, values: int, j: int) -> int:
    """The attribute of the event that a signature's element ``j`` is."""
    padded = max(8, (u32(values + at.X_COUNT) + 7) & -8)
    position = u32(values + at.X_KEYS + 4 * (padded + j))
    return i64(event_address(scratch, u32(values + at.X_EVENT)) + E_FIRST) + position * at.ATTRIBUTE_SIZE


@compiled
def queue_entries(state: int, scratch: int, number: int, values: int) -> bool:
    """Queues a list whose entries are to be tested, and asks for the first; False if there is no room."""
    entry = list_address(state, number)
    length = u32(entry + at.L_LENGTH)
    if length == 0:
        return True
    if u32(entry + at.L_CAPACITY) == 0:
        return queue_record(state, scratch, u32(entry + at.L_START), values, True)
    head = event_address(scratch, u32(values + at.X_EVENT)) + E_LISTS
    item = chain(scratch, at.M_LISTS, at.M_LISTS_USED, head, number)
    if item == 0:
        return False
    set_i64(item + 8, values)
    block = i64(state + 8 * at.ENTRIES) + 16 * u32(entry + at.L_START)
    prefetch(block)
    if u32(entry + at.L_INFO) & at.LOCATED:
        capacity = u32(entry + at.L_CAPACITY)
        for line in range(64, min(16 * capacity, 512), 64):
            prefetch(block + line)
    return True


@compiled
def queue_record(state: int, scratch: int, record: int, values: int, near: bool) -> bool:
    """Queues a record to be tested, its circle too if not ``near``, and asks for it; False if there is no
    room.
    """
    head = event_address(scratch, u32(values + at.X_EVENT)) + E_RECORDS
    item = chain(scratch, at.M_RECORDS, at.M_RECORDS_USED, head, record)
    if item == 0:
        return False
    # Values stand at multiples of eight.
    set_i64(item + 8, values if near else values | 1)
    source = i64(state + 8 * at.RECORDS) + 4 * record
    prefetch(source + 4 * at.R_SUBSCRIPTION)
    prefetch(source + 4 * at.R_LOWS + 8 * u32(values + at.X_COUNT) - 4)
    return True


@compiled
def event_place(state: int, scratch: int, row: int) -> tuple[float, float, float]:
    """Where an event happened."""
    places = column(scratch, at.ROWS_PLACE)
    if i64(state + 8 * at.DIMENSIONS) == 2:
        return f64(places + 16 * row), f64(places + 16 * row + 8), 0.0
    return f64(places + 24 * row), f64(places + 24 * row + 8), f64(places + 24 * row + 16)


@compiled
def has_place(state: int, scratch: int, row: int) -> bool:
    """Whether an event says where it happened."""
    x, y, z = event_place(state, scratch, row)
    return x - x == 0.0 and y - y == 0.0 and z - z == 0.0


@compiled
def follow_signatures(state: int, scratch: int, first: int) -> bool:
    """From signatures to their own lists and to groups; False if there is no room.

    In place of its probe a signature leaves the event's values, and its first group.
    """
    count = i64(scratch + 8 * at.M_PROBES_USED)
    queue = i64(scratch + 8 * at.M_PROBES)
    current = -1
    spent = 0
    for i in range(count):
        probe = queue + 24 * i
        key, payload, number = i64(probe), i64(probe + 8), i64(probe + 16)
        event, chosen = payload >> 32, payload & at.NONE
        set_i64(probe + 8, 0)
        set_i64(probe + 16, 0)
        if key:
            number = _checked(state, key, number)
            if number == 0:
                continue
        elif event != current:
            if not fill_dense(state, scratch, event):
                return False
            current = event
        entry = list_address(state, number)
        info = u32(entry + at.L_INFO)
        if u32(entry + at.L_OWNER) == 0 or not info & at.I_SIGNATURE:
            continue
        values = take_values(state, scratch, event, number, chosen)
        if values == -1:
            continue
        if values == 0 or not queue_entries(state, scratch, number, values):
            return False
        set_i64(probe + 8, values)
        length = u32(entry + at.L_LENGTH)
        if length:
            spent += SIGNATURE + NAME * (info >> at.I_ELEMENTS)
            spent += length * (LONG if info & at.COLUMNS else SHORT)
        group = u32(entry + at.L_NEXT)
        if group and has_place(state, scratch, first + event):
            set_i64(probe + 16, group)
            prefetch(list_address(state, group))
    set_i64(scratch + 8 * at.M_FOUND, count)
    add_to(scratch, at.M_SPENT, spent)
    return True


@compiled
def _probe_cells(state: int, scratch: int, group: int, values: int, row: int) -> bool:
    """Queues the cells around an event that may hold circles it lies in; False if there is no room."""
    table, mask = i64(state + 8 * at.TABLE), i64(state + 8 * at.TABLE_CAPACITY) - 1
    bloom, words = i64(state + 8 * at.BLOOM), i64(state + 8 * at.BLOOM_CAPACITY)
    scale, reach = power(-i32(group + at.L_CELL)), f32(group + at.L_REACH)
    x, y, z = event_place(state, scratch, row)
    k0, k1 = 0, 0
    if i64(state + 8 * at.DIMENSIONS) == 3:
        k0, k1 = cell_number(z - reach, scale), cell_number(z + reach, scale)
    j0, j1 = cell_number(y - reach, scale), cell_number(y + reach, scale)
    for i in range(cell_number(x - reach, scale), cell_number(x + reach, scale) + 1):
        for j in range(j0, j1 + 1):
            for k in range(k0, k1 + 1):
                key = cell_key(i64(group), i32(group + at.L_CELL), i, j, k)
                if may_hold(bloom, words, key) and not probe_key(scratch, table, mask, key, values):
                    return False
    return True


@compiled
def follow_groups(state: int, scratch: int, first: int) -> bool:
    """From groups to their own lists and to probes of cells; False if there is no room."""
    if i64(state + 8 * at.LOCATED_FILTERS) == 0:
        return True
    for i in range(i64(scratch + 8 * at.M_FOUND)):
        probe = i64(scratch + 8 * at.M_PROBES) + 24 * i
        values, number = i64(probe + 8), i64(probe + 16)
        while number:
            group = list_address(state, number)
            if not queue_entries(state, scratch, number, values):
                return False
            if i32(group + at.L_CELL) != at.ONE_CELL and u32(group + at.L_COUNT):
                row = first + u32(values + at.X_EVENT)
                if not _probe_cells(state, scratch, group, values, row):
                    return False
            number = u32(group + at.L_CHAIN)
    return True


@compiled
def follow_lists(state: int, scratch: int) -> bool:
    """From probes by value and of cells to their lists; False if there is no room."""
    for i in range(i64(scratch + 8 * at.M_FOUND), i64(scratch + 8 * at.M_PROBES_USED)):
        probe = i64(scratch + 8 * at.M_PROBES) + 24 * i
        number = _checked(state, i64(probe), i64(probe + 16))
        if number and not queue_entries(state, scratch, number, i64(probe + 8)):
            return False
    return True
