"""The middle steps of matching: from signatures to lists within them, by place and by value, and to records.

And whether an event satisfies a record: intervals of keys, eight at a time, then what they do not decide.
"""

from __future__ import annotations

from evflow.matching.compare import number_holds, text_holds
from evflow.matching.index import layout as at
from evflow.matching.index.blocks import add_to, list_address, record_address
from evflow.matching.index.directory import element_address, find, may_hold, signature_elements
from evflow.matching.index.keys import bucket_hash, cell_key, cell_number, hash_bytes, join, power, value_hash
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
    push,
)
from evflow.matching.native import (
    bits_of,
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
    within,
)
from evflow.matching.operators import CONTAINS, NE, PREFIX, SUFFIX


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
            spent += at.NS_SIGNATURE + at.NS_NAME * (info >> at.I_ELEMENTS)
            spent += length * (at.NS_LONG if info & at.COLUMNS else at.NS_SHORT)
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


@compiled
def _note_pattern(
    state: int, scratch: int, element: int, op: int, start: int, length: int, before: int
) -> bool:
    """Notes a piece of a string, once, if a filter may have it as its pattern; False if there is no room.

    Those of the string are noted from ``before`` on.
    """
    key = value_hash(element, op, hash_bytes(start, length))
    if u32(i64(state + 8 * at.TALLY) + 4 * (key & (at.TALLY_SIZE - 1))):
        noted = i64(scratch + 8 * at.M_PATTERNS)
        for i in range(before, i64(scratch + 8 * at.M_PATTERNS_USED)):
            if i64(noted + 8 * i) == key:
                return True
        place = push(scratch, at.M_PATTERNS, at.M_PATTERNS_USED, 8)
        if place == 0:
            return False
        set_i64(place, key)
    return True


@compiled
def _find_patterns(state: int, scratch: int, attribute: int) -> bool:
    """Notes all patterns in use that a string satisfies; False if there is no room."""
    before = i64(scratch + 8 * at.M_PATTERNS_USED)
    row, element = u32(attribute + at.A_ROW), u32(attribute + at.A_ELEMENT)
    start = column(scratch, at.ROWS_CHARS) + i64(column(scratch, at.ROWS_CHAR_START) + 8 * row)
    size = i32(column(scratch, at.ROWS_CHAR_LENGTH) + 4 * row)
    for op in range(PREFIX, CONTAINS + 1):
        lengths = i64(state + 8 * at.COUNTS) + 4 * (at.LENGTHS + 64 * (op - PREFIX))
        for length in range(1, min(size, at.LONGEST) + 1):
            if u32(lengths + 4 * length) == 0:
                continue
            first = size - length if op == SUFFIX else 0
            last = 0 if op == PREFIX else size - length
            for i in range(first, last + 1):
                if not _note_pattern(state, scratch, element, op, start + i, length, before):
                    return False
    set_u32(attribute + at.A_PATTERNS, before)
    set_u32(attribute + at.A_PATTERN_COUNT, i64(scratch + 8 * at.M_PATTERNS_USED) - before)
    return True


@compiled
def _probe_sharp(state: int, scratch: int, signature: int, key: int, values: int, info: int) -> bool:
    """Queues the lists of a sharp constraint in a signature that the Bloom filter lets through."""
    table, mask = i64(state + 8 * at.TABLE), i64(state + 8 * at.TABLE_CAPACITY) - 1
    bloom, words = i64(state + 8 * at.BLOOM), i64(state + 8 * at.BLOOM_CAPACITY)
    if info & (at.I_VALUES | at.I_PATTERNS):
        plain = join(signature, key)
        if may_hold(bloom, words, plain) and not probe_key(scratch, table, mask, plain, values):
            return False
    if info & (at.I_VALUES_LOCATED | at.I_PATTERNS_LOCATED):
        located = join(signature ^ 1, key)
        if may_hold(bloom, words, located) and not probe_key(scratch, table, mask, located, values):
            return False
    return True


@compiled
def _probe_ranges(
    state: int, scratch: int, signature: int, element: int, key: int, values: int, info: int
) -> bool:
    """Queues the lists of narrow ranges that a key may lie in; False if there is no room."""
    levels, first = u32(element_address(state, element) + at.E_RANGES), (key + (1 << 31)) & at.NONE
    while levels:
        level = lowest(levels)
        levels &= levels - 1
        for shifted in range(2):
            bucket = bucket_hash(element, first, level, shifted)
            if not _probe_sharp(state, scratch, signature, bucket, values, info):
                return False
    return True


@compiled
def _probe_values(state: int, scratch: int, entry: int, values: int, info: int) -> bool:
    """Queues the lists of a signature by equalities and patterns that hold; False if there is no room."""
    signature = i64(entry)
    for j in range(u32(values + at.X_COUNT)):
        attribute = attribute_row(scratch, values, j)
        element, key = u32(attribute + at.A_ELEMENT), u32(attribute + at.A_KEY)
        if element % 3 == at.ANY:
            continue
        if info & (at.I_VALUES | at.I_VALUES_LOCATED) and not (element % 3 == at.TEXTS and key == at.NONE):
            code = key
            if element % 3 == at.NUMBERS:
                code = i32(attribute + at.A_KEY)
                if code & 1:
                    code = bits_of(f64(column(scratch, at.ROWS_NUMBER) + 8 * u32(attribute + at.A_ROW)))
                if not _probe_ranges(state, scratch, signature, element, key, values, info):
                    return False
            if not _probe_sharp(state, scratch, signature, value_hash(element, 0, code), values, info):
                return False
        if info & (at.I_PATTERNS | at.I_PATTERNS_LOCATED) and element % 3 == at.TEXTS:
            if u32(attribute + at.A_PATTERN_COUNT) == at.NONE and not _find_patterns(
                state, scratch, attribute
            ):
                return False
            first = i64(scratch + 8 * at.M_PATTERNS) + 8 * u32(attribute + at.A_PATTERNS)
            for i in range(u32(attribute + at.A_PATTERN_COUNT)):
                if not _probe_sharp(state, scratch, signature, i64(first + 8 * i), values, info):
                    return False
    return True


@compiled
def follow_values(state: int, scratch: int, first: int) -> bool:
    """From signatures to probes by value; False if there is no room."""
    sharp = at.I_VALUES | at.I_PATTERNS
    sharp_located = at.I_VALUES_LOCATED | at.I_PATTERNS_LOCATED
    for i in range(i64(scratch + 8 * at.M_FOUND)):
        values = i64(i64(scratch + 8 * at.M_PROBES) + 24 * i + 8)
        if values == 0:
            continue
        entry = list_address(state, u32(values + at.X_LIST))
        info = u32(entry + at.L_INFO)
        wanted = info & sharp
        if info & sharp_located and has_place(state, scratch, first + u32(values + at.X_EVENT)):
            wanted |= info & sharp_located
        if wanted and not _probe_values(state, scratch, entry, values, wanted):
            return False
    return True


@compiled
def _text_holds(state: int, scratch: int, op: int, row: int, text: int) -> bool:
    """Whether a string of an event satisfies a constraint with a string."""
    if op == NE:
        return i32(column(scratch, at.ROWS_TEXT) + 4 * row) != text
    offsets = i64(state + 8 * at.TEXT_OFFSETS)
    start = i64(offsets + 8 * text)
    left = column(scratch, at.ROWS_CHARS) + i64(column(scratch, at.ROWS_CHAR_START) + 8 * row)
    length = i32(column(scratch, at.ROWS_CHAR_LENGTH) + 4 * row)
    operand, size = i64(state + 8 * at.TEXT_DATA) + start, i64(offsets + 8 * text + 8) - start
    return text_holds(op, left, length, operand, size)


@compiled
def _exactly(state: int, scratch: int, place: int, count: int, values: int) -> bool:
    """Whether the exact constraints of a record hold."""
    for c in range(count):
        constraint = place + 16 * c
        op = u32(constraint) & 15
        attribute = attribute_row(scratch, values, u32(constraint) >> 4)
        row = u32(attribute + at.A_ROW)
        if u32(attribute + at.A_ELEMENT) % 3 == at.NUMBERS:
            number = f64(column(scratch, at.ROWS_NUMBER) + 8 * row)
            if not number_holds(op, number, f64(constraint + 8)):
                return False
        elif not _text_holds(state, scratch, op, row, u32(constraint + 4)):
            return False
    return True


@compiled
def _lies_in(state: int, scratch: int, area: int, values: int) -> bool:
    """Whether an event on the plane lies in a circle."""
    x, y, _ = event_place(state, scratch, i64(scratch + 8 * at.M_FIRST) + u32(values + at.X_EVENT))
    dx, dy = x - f64(area), y - f64(area + 8)
    return dx * dx + dy * dy <= f64(area + 16)


@compiled
def holds(state: int, scratch: int, record: int, values: int, near: bool) -> bool:
    """Whether an event satisfies a record; if not ``near`` its circle on the plane is still to be tested."""
    source = record_address(state, record)
    info = u32(source + 4 * at.R_INFO)
    count = info & at.K_MASK
    lows = source + 4 * at.R_LOWS
    keys = values + at.X_KEYS
    j = 0
    while count - j > 8:
        if within(keys + 4 * j, lows + 4 * j, lows + 4 * (count + j)) != 255:
            return False
        j += 8
    bits = (1 << (count - j)) - 1
    if within(keys + 4 * j, lows + 4 * j, lows + 4 * (count + j)) & bits != bits:
        return False
    if info & at.V_ALWAYS or (info & at.V_GAPS and u32(values + at.X_GAPS)):
        exact = info >> at.K_EXACT & at.K_EXACT_MASK
        if not _exactly(state, scratch, lows + 8 * count, exact, values):
            return False
    return near or _lies_in(state, scratch, source - 4 * at.R_AREA, values)


@compiled
def holds_keys(state: int, scratch: int, event: int, record: int) -> int:
    """Whether the event whose attributes were noted last by element satisfies a record of the pool: 1 or 0;
    FULL if there is no room.
    """
    source = record_address(state, record)
    info, signature = u32(source + 4 * at.R_INFO), u32(source + 4 * at.R_LIST)
    elements, count = signature_elements(state, list_address(state, signature)), info & at.K_MASK
    lows, dense = source + 4 * at.R_LOWS, i64(scratch + 8 * at.M_DENSE)
    place = event_address(scratch, event)
    first, there = i64(place + E_FIRST), i64(place + E_COUNT)
    for j in range(count):
        element = u32(elements + 4 * j)
        position = u32(dense + 4 * element)
        attribute = first + position * at.ATTRIBUTE_SIZE
        if position >= there or u32(attribute + at.A_ELEMENT) != element:
            return 0
        if (u32(attribute + at.A_KEY) - u32(lows + 4 * j)) & at.NONE > u32(lows + 4 * (count + j)):
            return 0
    if info & (at.V_ALWAYS | at.V_GAPS) == 0:
        return 1
    used = i64(scratch + 8 * at.M_VALUES_USED)
    values = take_values(state, scratch, event, signature, SCANNED)
    if values == 0:
        return at.FULL
    # The next record's values take their place.
    set_i64(scratch + 8 * at.M_VALUES_USED, used)
    return 1 if values != -1 and holds(state, scratch, record, values, True) else 0
