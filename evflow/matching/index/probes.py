"""The first steps of matching: from events to lists that may hold filters they satisfy.

Steps go through a block of events, each asking for the memory that the next step reads, so that many cache
misses run at once. What a step finds stands in queues; lists and records are chained by event, so that ids
come out event by event.
"""

from __future__ import annotations

from evflow.matching.index import layout as at
from evflow.matching.index.bands import band_of, filings, inner_pair, order_of
from evflow.matching.index.blocks import list_address
from evflow.matching.index.directory import element_address, may_hold
from evflow.matching.index.keys import number_key
from evflow.matching.native import (
    compiled,
    f64,
    i32,
    i64,
    inside,
    lowest,
    prefetch,
    set_i64,
    set_u32,
    subsets,
    u8,
    u32,
)

MANY = 256
"""Signatures that end a block of events."""
_EVENT = 40  # bytes of an event in M_EVENTS
E_FIRST, E_COUNT, E_LISTS, E_RECORDS, E_POOL = 0, 8, 16, 24, 32
SCANNED = 1 << 30  # in the payload of a probe: the list is known, its elements are not checked


@compiled
def push(scratch: int, buffer: int, used: int, size: int) -> int:
    """The place of one more item in a queue, or 0, noting that it is full."""
    count = i64(scratch + 8 * used)
    if (count + 1) * size > i64(scratch + 8 * buffer + 8):
        set_i64(scratch + 8 * at.M_WANTED, buffer // 2)
        return 0
    set_i64(scratch + 8 * used, count + 1)
    return i64(scratch + 8 * buffer) + count * size


@compiled
def chain(scratch: int, buffer: int, used: int, head: int, what: int) -> int:
    """Queues something in front of the chain that begins at ``head``: its place, or 0 where it is full."""
    item = push(scratch, buffer, used, 16)
    if item:
        set_u32(item, what)
        set_u32(item + 4, i64(head))
        set_i64(head, i64(scratch + 8 * used))
    return item


@compiled
def event_address(scratch: int, event: int) -> int:
    """What is known of an event of the block."""
    return scratch + 8 * at.M_EVENTS + _EVENT * event


@compiled
def column(scratch: int, which: int) -> int:
    """The address of a column of the rows."""
    return i64(scratch + 8 * (at.M_ROWS + which))


@compiled
def _put_attribute(state: int, scratch: int, element: int, key: int, row: int) -> bool:
    """Notes an attribute of an event, unless no signature has its element; False if there is no room."""
    if element >= i64(state + 8 * at.ELEMENTS_USED):
        return True
    place = element_address(state, element)
    if u32(place + at.E_USES) == 0:
        return True
    attribute = push(scratch, at.M_ATTRIBUTES, at.M_ATTRIBUTES_USED, at.ATTRIBUTE_SIZE)
    if attribute == 0:
        return False
    set_i64(attribute + at.A_HASH, i64(place + at.E_HASH))
    set_u32(attribute + at.A_ELEMENT, element)
    set_u32(attribute + at.A_KEY, key)
    set_u32(attribute + at.A_ROW, row)
    set_u32(attribute + at.A_PATTERN_COUNT, at.NONE)
    return True


@compiled
def _read_attributes(state: int, scratch: int, event: int, row: int) -> bool:
    """Notes the attributes of an event that signatures have; False if there is no room."""
    starts = column(scratch, at.ROWS_START) + 8 * row
    names, kinds = column(scratch, at.ROWS_NAME), column(scratch, at.ROWS_KIND)
    first = i64(scratch + 8 * at.M_ATTRIBUTES_USED)
    for i in range(i64(starts), i64(starts + 8)):
        element, kind = 3 * i32(names + 4 * i), u8(kinds + i)
        done = True
        if kind == 1:
            key = number_key(f64(column(scratch, at.ROWS_NUMBER) + 8 * i))
            done = _put_attribute(state, scratch, element + at.NUMBERS, key, i)
        elif kind == 2:
            key = i32(column(scratch, at.ROWS_TEXT) + 4 * i)
            done = _put_attribute(state, scratch, element + at.TEXTS, key, i)
        if not done or not _put_attribute(state, scratch, element + at.ANY, 0, i):
            return False
    place = event_address(scratch, event)
    set_i64(place + E_FIRST, i64(scratch + 8 * at.M_ATTRIBUTES) + first * at.ATTRIBUTE_SIZE)
    set_i64(place + E_COUNT, i64(scratch + 8 * at.M_ATTRIBUTES_USED) - first)
    set_i64(place + E_LISTS, 0)
    set_i64(place + E_RECORDS, 0)
    set_i64(place + E_POOL, 0)
    return True


@compiled
def _sort(first: int, count: int) -> None:
    """Puts attributes in the order of their elements."""
    for i in range(1, count):
        here = first + i * at.ATTRIBUTE_SIZE
        a, b, c = i64(here), i64(here + 8), i64(here + 16)
        j = i
        while j and u32(first + (j - 1) * at.ATTRIBUTE_SIZE + at.A_ELEMENT) > (b & at.NONE):
            for word in range(0, 24, 8):
                source = first + (j - 1) * at.ATTRIBUTE_SIZE + word
                set_i64(source + at.ATTRIBUTE_SIZE, i64(source))
            j -= 1
        set_i64(first + j * at.ATTRIBUTE_SIZE, a)
        set_i64(first + j * at.ATTRIBUTE_SIZE + 8, b)
        set_i64(first + j * at.ATTRIBUTE_SIZE + 16, c)


@compiled
def probe_key(scratch: int, table: int, mask: int, key: int, payload: int) -> bool:
    """Queues a key and asks for its slot; False if there is no room."""
    probe = push(scratch, at.M_PROBES, at.M_PROBES_USED, 24)
    if probe == 0:
        return False
    set_i64(probe, key)
    set_i64(probe + 8, payload)
    prefetch(table + 8 * ((key >> 12) & mask))
    return True


@compiled
def _probe_subsets(state: int, scratch: int, event: int, first: int, count: int) -> bool:
    """Queues the subsets of an event's elements that the Bloom filter lets through."""
    table, mask = i64(state + 8 * at.TABLE), i64(state + 8 * at.TABLE_CAPACITY) - 1
    bloom, words = i64(state + 8 * at.BLOOM), i64(state + 8 * at.BLOOM_CAPACITY)
    key, chosen = 0, 0
    for i in range(1, 1 << count):
        bit = lowest(i)
        key ^= i64(first + bit * at.ATTRIBUTE_SIZE + at.A_HASH)
        chosen ^= 1 << bit
        if may_hold(bloom, words, key) and not probe_key(scratch, table, mask, key, event << 32 | chosen):
            return False
    return True


@compiled
def _queue_list(state: int, scratch: int, payload: int, number: int) -> bool:
    """Queues a list that needs no probe, and asks for it."""
    probe = push(scratch, at.M_PROBES, at.M_PROBES_USED, 24)
    if probe == 0:
        return False
    _put_probe(probe, 0, payload, number)
    prefetch(list_address(state, number))
    return True


@compiled
def _put_probe(queue: int, used: int, payload: int, number: int) -> None:
    """Writes a probe that is a list already."""
    set_i64(queue + 24 * used, 0)
    set_i64(queue + 24 * used + 8, payload)
    set_i64(queue + 24 * used + 16, number)


@compiled
def _scan_run(
    scratch: int, payload: int, columns: int, capacity: int, first: int, stop: int, order: int, used: int
) -> int:
    """Queues those of a run of filings that may fit, by masks and intervals; how many probes there are."""
    missing = scratch + 8 * at.M_MISSING
    one, two, three = i64(missing), i64(missing + 8), i64(missing + 16)
    queue, most = i64(scratch + 8 * at.M_PROBES), i64(scratch + 8 * at.M_PROBES + 8) // 24 - 16
    for begin in range(first, stop, 16):
        if used > most:
            set_i64(scratch + 8 * at.M_WANTED, at.M_PROBES // 2)
            return at.FULL
        column = columns + 4 * begin
        found = subsets(one, two, three, column, 4 * capacity)
        found &= inside(order, column + at.F_LOWS * capacity, 4 * capacity)
        found &= (1 << min(16, stop - begin)) - 1
        # Whether there is one at all is foretold wrongly too often to jump by it.
        numbers = column + at.F_LISTS * capacity
        _put_probe(queue, used, payload, u32(numbers + 4 * (lowest(found) & 15)))
        used += found != 0
        found &= found - 1
        while found:
            _put_probe(queue, used, payload, u32(numbers + 4 * lowest(found)))
            used += 1
            found &= found - 1
    return used


@compiled
def _scan_element(state: int, scratch: int, payload: int, attribute: int, used: int) -> int:
    """Queues what may fit of an element's filings, by the pairs of bands that enclose its key; as above."""
    element = u32(attribute + at.A_ELEMENT)
    place, order = element_address(state, element), order_of(element, u32(attribute + at.A_KEY))
    block, columns, done = filings(state, place)
    capacity, starts = u32(place + at.E_CAPACITY), block + at.F_STARTS
    band = band_of(block, order) if done else 0
    for begin in range(0 if done else band + 1, band + 2):
        if begin == 0:
            first, stop = u32(starts + 4 * band), u32(starts + 4 * (at.BANDS + band))
        elif begin <= band:
            first = u32(starts + 4 * inner_pair(begin, band))
            stop = u32(starts + 4 * inner_pair(begin, at.BANDS - 1))
        else:
            first, stop = done, u32(place + at.E_LENGTH)
        if first < stop:
            used = _scan_run(scratch, payload, columns, capacity, first, stop, order, used)
        if used == at.FULL:
            return at.FULL
    return used


@compiled
def _scan_signatures(state: int, scratch: int, event: int, first: int, count: int) -> bool:
    """Queues the signatures filed under an event's elements that may fit; False if there is no room."""
    missing = scratch + 8 * at.M_MISSING
    for word in range(3):
        set_i64(missing + 8 * word, -1)
    for i in range(count):
        bit = i64(first + i * at.ATTRIBUTE_SIZE + at.A_HASH) & 127
        word = missing + 8 * (bit >> 5)
        set_i64(word, i64(word) & ~(1 << (bit & 31)))
    i = used = i64(scratch + 8 * at.M_PROBES_USED)
    for attribute in range(first, first + count * at.ATTRIBUTE_SIZE, at.ATTRIBUTE_SIZE):
        used = _scan_element(state, scratch, event << 32 | SCANNED, attribute, used)
        if used == at.FULL:
            return False
    queue = i64(scratch + 8 * at.M_PROBES)
    while i < used:
        number = i64(queue + 24 * i + 16)
        if number:
            prefetch(list_address(state, number))
            i += 1
        else:
            used -= 1
            set_i64(queue + 24 * i + 16, i64(queue + 24 * used + 16))
    set_i64(scratch + 8 * at.M_PROBES_USED, used)
    return True


@compiled
def read_events(state: int, scratch: int, first: int, count: int) -> int:
    """Reads up to ``count`` events and queues what leads to their signatures; how many, 0 if there is no
    room.

    Events that lead to many signatures make a short block, so that what is asked for stays in the cache.
    """
    for used in range(at.M_VALUES_USED, at.M_PATTERNS_USED + 1):
        set_i64(scratch + 8 * used, 0)
    for event in range(count):
        if not _read_attributes(state, scratch, event, first + event):
            return 0
        place = event_address(scratch, event)
        attributes, number = i64(place + E_FIRST), i64(place + E_COUNT)
        if u32(list_address(state, 0) + at.L_OWNER) and not _queue_list(
            state, scratch, event << 32 | SCANNED, 0
        ):
            return 0
        filed = 0
        for i in range(number):
            element = u32(attributes + i * at.ATTRIBUTE_SIZE + at.A_ELEMENT)
            filed += u32(element_address(state, element) + at.E_LENGTH)
        narrow = number <= at.NARROW and (8 << number) <= filed and not i64(state + 8 * at.COLLISIONS)
        if narrow:
            _sort(attributes, number)
            done = _probe_subsets(state, scratch, event, attributes, number)
        else:
            done = _scan_signatures(state, scratch, event, attributes, number)
        if not done:
            return 0
        if i64(scratch + 8 * at.M_PROBES_USED) >= MANY:
            return event + 1
    return count


@compiled
def follow_probes(state: int, scratch: int, first: int) -> None:
    """Finds the lists of the probes from ``first`` on by their tags, and asks for them; drops the others."""
    table, mask = i64(state + 8 * at.TABLE), i64(state + 8 * at.TABLE_CAPACITY) - 1
    queue = i64(scratch + 8 * at.M_PROBES)
    kept = queue + 24 * first
    for i in range(first, i64(scratch + 8 * at.M_PROBES_USED)):
        probe = queue + 24 * i
        key, number = i64(probe), i64(probe + 16)
        if key:
            slot = (key >> 12) & mask
            number = u32(table + 8 * slot)
            while number and u32(table + 8 * slot + 4) != (key & at.NONE):
                slot = (slot + 1) & mask
                number = u32(table + 8 * slot)
            if number == 0:
                continue
            prefetch(list_address(state, number))
        set_i64(kept, key)
        set_i64(kept + 8, i64(probe + 8))
        set_i64(kept + 16, number)
        kept += 24
    set_i64(scratch + 8 * at.M_PROBES_USED, (kept - queue) // 24)
