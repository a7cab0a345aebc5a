"""The last steps of matching: test records and entries, and report the subscriptions, event by event."""

from __future__ import annotations

from evflow.matching.index import layout as at
from evflow.matching.index.blocks import add_to, columns_of, list_address, record_address, records_of
from evflow.matching.index.follow import (
    event_place,
    fill_dense,
    follow_groups,
    follow_lists,
    follow_signatures,
    follow_values,
    holds,
    holds_keys,
    queue_record,
    take_values,
)
from evflow.matching.index.probes import (
    E_LISTS,
    E_POOL,
    E_RECORDS,
    event_address,
    follow_probes,
    read_events,
)
from evflow.matching.index.sift import sift
from evflow.matching.native import (
    compiled,
    i64,
    inside,
    inside_but_one,
    inside_but_two,
    kernel,
    lowest,
    near_globe,
    near_plane,
    prefetch,
    set_i64,
    set_u32,
    surely_near,
    u32,
)

_DONE = at.NONE
_ALL = 0xFFFF
_LEAP = 10007


@compiled
def _report(scratch: int, stamps: int, serial: int, out: int, used: int, subscription: int) -> int:
    """Reports a subscription, unless it was; how many are reported."""
    if stamps:
        stamp = stamps + 4 * subscription
        if u32(stamp) == serial:
            return used
        set_u32(stamp, serial)
    set_u32(out + 4 * used, subscription)
    return used + 1


@compiled
def _near(state: int, block: int, capacity: int, i: int, x: float, y: float, z: float) -> int:
    """Which of the 8 entries from ``i`` on have areas that hold a point, as bits."""
    if i64(state + 8 * at.DIMENSIONS) == 2:
        column = block + 4 * i
        return near_plane(x, y, column, column + 4 * capacity, column + 8 * capacity)
    column = block + 8 * i
    return near_globe(x, y, z, column, column + 8 * capacity, column + 16 * capacity, column + 24 * capacity)


@compiled
def _near_bits(state: int, entry: int, begin: int, x: float, y: float, z: float) -> int:
    """Which of the 16 entries of a located list from ``begin`` on have areas that hold a point."""
    capacity, length = u32(entry + at.L_CAPACITY), u32(entry + at.L_LENGTH)
    block = i64(state + 8 * at.ENTRIES) + 16 * u32(entry + at.L_START)
    found = _near(state, block, capacity, begin, x, y, z)
    if i64(state + 8 * at.DIMENSIONS) == 3 and length - begin > 8:
        found |= _near(state, block, capacity, begin + 8, x, y, z) << 8
    return found & ((1 << (length - begin)) - 1) if length - begin < 16 else found


@compiled
def _sure_bits(state: int, entry: int, begin: int, x: float, y: float) -> int:
    """Of which of the areas that ``_near_bits`` tells it is certain; of others the record has to say."""
    if i64(state + 8 * at.DIMENSIONS) == 3:
        return _ALL
    capacity = u32(entry + at.L_CAPACITY)
    column = i64(state + 8 * at.ENTRIES) + 16 * u32(entry + at.L_START) + 4 * begin
    return surely_near(x, y, column, column + 4 * capacity, column + 8 * capacity)


@compiled
def _unroll(state: int, scratch: int, first: int, event: int) -> bool:
    """Queues the records of an event's short lists, of located ones those whose area holds the event."""
    x, y, z = event_place(state, scratch, first + event)
    number = i64(event_address(scratch, event) + E_LISTS)
    while number:
        item = i64(scratch + 8 * at.M_LISTS) + 16 * (number - 1)
        number = u32(item + 4)
        if u32(item) == _DONE:
            continue
        entry, values = list_address(state, u32(item)), i64(item + 8)
        length, kind = u32(entry + at.L_LENGTH), u32(entry + at.L_INFO) & at.I_KIND
        if length > at.SHORT or kind & at.COLUMNS:
            continue
        set_u32(item, _DONE)
        records = records_of(state, entry)
        for begin in range(0, length, 16):
            found = (1 << min(16, length - begin)) - 1
            sure = _ALL
            if kind == at.LOCATED:
                found = _near_bits(state, entry, begin, x, y, z)
                sure = _sure_bits(state, entry, begin, x, y) if found else _ALL
            while found:
                record = u32(records + 4 * (begin + lowest(found)))
                near = found & -found & sure != 0
                found &= found - 1
                if not queue_record(state, scratch, record, values, near):
                    return False
    return True


@compiled
def _report_kept(state: int, scratch: int, count: int, values: int, stamps: int, used: int) -> int:
    """Tests the records that were kept, and reports those that hold; how many are reported."""
    serial, out = i64(scratch + 8 * at.M_SERIAL), i64(scratch + 8 * at.M_OUT)
    for i in range(count):
        kept = i64(scratch + 8 * (at.M_KEPT + i))
        record = kept & at.NONE
        if holds(state, scratch, record, values, kept == record):
            subscription = u32(record_address(state, record) + 4 * at.R_SUBSCRIPTION)
            used = _report(scratch, stamps, serial, out, used, subscription)
    return used


@compiled
def _keep(state: int, scratch: int, kept: int, record: int, near: bool) -> int:
    """Keeps a record to be tested, its circle too if not ``near``, and asks for it; how many are kept."""
    set_i64(scratch + 8 * (at.M_KEPT + kept), record if near else record | 1 << 32)
    source = record_address(state, record)
    prefetch(source + 4 * at.R_SUBSCRIPTION)
    prefetch(source + 64 + 4 * at.R_SUBSCRIPTION)
    return kept + 1


@compiled
def _report_list(
    state: int, scratch: int, entry: int, values: int, first: int, stamps: int, used: int, most: int
) -> int:
    """Reports from a long list, 16 filters at a time; how many are reported, or -1: no room.

    If ``most`` ids are all there can be, filters are taken in leaps, so that each subscription's come soon.
    """
    length, capacity = u32(entry + at.L_LENGTH), u32(entry + at.L_CAPACITY)
    serial, out = i64(scratch + 8 * at.M_SERIAL), i64(scratch + 8 * at.M_OUT)
    size = i64(scratch + 8 * at.M_OUT + 8) // 4
    info = u32(entry + at.L_INFO)
    records, block = records_of(state, entry), columns_of(state, entry)
    count = u32(values + at.X_COUNT) if info & at.COLUMNS else 0
    x, y, z = event_place(state, scratch, first + u32(values + at.X_EVENT))
    kept = 0
    parts = (length + 15) // 16
    # A prime that does not divide the number of parts comes by all of them.
    leap = _LEAP % parts if most < at.NONE and parts % _LEAP and parts > 1 else 1
    part = 0
    for _ in range(parts):
        if used + 96 > size:
            return -1
        if used >= most:
            return used
        begin = 16 * part
        part += leap
        if part >= parts:
            part -= parts
        found = (1 << min(16, length - begin)) - 1
        if info & at.LOCATED:
            found = _near_bits(state, entry, begin, x, y, z)
            if found == 0:
                continue
        column = block + 8 * capacity + 4 * begin
        for j in range(count):
            key = u32(values + at.X_KEYS + 4 * j)
            if info & at.I_RANGES:
                found &= inside(key, column, 4 * capacity)
            elif info & at.I_ONCE:
                found &= inside_but_one(key, column, 4 * capacity)
            else:
                found &= inside_but_two(key, column, 4 * capacity)
            if found == 0:
                break
            column += 16 * capacity
        sure = _sure_bits(state, entry, begin, x, y) if info & at.LOCATED and found else _ALL
        while found:
            i = begin + lowest(found)
            near = found & -found & sure != 0
            found &= found - 1
            # Without columns the record has to say who has subscribed.
            marked = u32(block + 4 * i) if count else at.V_MARK
            if marked & at.V_MARK or not near:
                kept = _keep(state, scratch, kept, u32(records + 4 * i), near)
            else:
                used = _report(scratch, stamps, serial, out, used, marked)
        if kept > 40:
            used = _report_kept(state, scratch, kept, values, stamps, used)
            kept = 0
    return _report_kept(state, scratch, kept, values, stamps, used)


@compiled
def _report_lists(
    state: int, scratch: int, first: int, event: int, stamps: int, used: int, most: int, early: bool
) -> int:
    """Reports from an event's long lists, ``early`` from columns only; how many ids, or -1: no room."""
    number = i64(event_address(scratch, event) + E_LISTS)
    while number and used < most:
        item = i64(scratch + 8 * at.M_LISTS) + 16 * (number - 1)
        number = u32(item + 4)
        if u32(item) == _DONE:
            continue
        entry, values = list_address(state, u32(item)), i64(item + 8)
        if u32(item) == i64(scratch + 8 * at.M_REPORTED):
            set_u32(item, _DONE)
        elif u32(entry + at.L_INFO) & at.COLUMNS or not early:
            used = _report_list(state, scratch, entry, values, first, stamps, used, most)
            set_u32(item, _DONE)
        if used == -1:
            return -1
    return used


@compiled
def _report_records(state: int, scratch: int, event: int, stamps: int, used: int, most: int) -> int:
    """Reports from an event's records; how many ids there are, or -1: no room."""
    serial, out = i64(scratch + 8 * at.M_SERIAL), i64(scratch + 8 * at.M_OUT)
    size = i64(scratch + 8 * at.M_OUT + 8) // 4
    number = i64(event_address(scratch, event) + E_RECORDS)
    while number and used < most:
        if used >= size:
            return -1
        item = i64(scratch + 8 * at.M_RECORDS) + 16 * (number - 1)
        number = u32(item + 4)
        record = u32(item)
        values = i64(item + 8)
        if holds(state, scratch, record, values & -2, values & 1 == 0):
            subscription = u32(record_address(state, record) + 4 * at.R_SUBSCRIPTION)
            used = _report(scratch, stamps, serial, out, used, subscription)
    return used


@compiled
def _ask_for_chain(state: int, items: int, head: int) -> None:
    """Asks for the records of a chain of items of the pool, and then for their lists."""
    number = head
    while number:
        item = items + 16 * (number - 1)
        record, number = u32(item), u32(item + 4)
        prefetch(record_address(state, record))
        prefetch(record_address(state, record) + 64)
    number = head
    while number:
        item = items + 16 * (number - 1)
        record, number = u32(item), u32(item + 4)
        prefetch(list_address(state, u32(record_address(state, record) + 4 * at.R_LIST)))


@compiled
def _report_pool(state: int, scratch: int, event: int, stamps: int, used: int, most: int) -> int:
    """Reports what the rows of the pool left for an event; how many ids there are, or -1: no room."""
    items, head = i64(scratch + 8 * at.M_RECORDS), i64(event_address(scratch, event) + E_POOL)
    if head == 0:
        return used
    if not fill_dense(state, scratch, event):
        return -2
    if i64(state + 8 * at.POOL_FILTERS) > at.CACHED:
        _ask_for_chain(state, items, head)
    serial, out = i64(scratch + 8 * at.M_SERIAL), i64(scratch + 8 * at.M_OUT)
    size = i64(scratch + 8 * at.M_OUT + 8) // 4
    number = head
    while number and used < most:
        if used >= size:
            return -1
        item = items + 16 * (number - 1)
        record, number = u32(item), u32(item + 4)
        held = holds_keys(state, scratch, event, record)
        if held == at.FULL:
            return -2
        if held:
            subscription = u32(record_address(state, record) + 4 * at.R_SUBSCRIPTION)
            used = _report(scratch, stamps, serial, out, used, subscription)
    return used


@compiled
def _report_block(
    state: int, scratch: int, first: int, count: int, start: int, stamps: int, most: int, pooled: bool
) -> int:
    """Reports a block of events, each at most ``most`` ids; 0, or 1 if there is no room."""
    used = i64(scratch + 8 * at.M_USED)
    offsets = i64(scratch + 8 * at.M_OFFSETS) + 8 * (first - start + 1)
    before = used
    used += i64(scratch + 8 * at.M_EARLY)
    if not _unroll(state, scratch, first, 0):
        return 1
    for event in range(count):
        # Records are asked for one event ahead.
        if event + 1 < count and not _unroll(state, scratch, first, event + 1):
            return 1
        if event:
            add_to(scratch, at.M_SERIAL, 1)
            before = used
        used = _report_lists(state, scratch, first, event, stamps, used, before + most, False)
        if used >= 0:
            used = _report_records(state, scratch, event, stamps, used, before + most)
        if pooled and used >= 0:
            used = _report_pool(state, scratch, event, stamps, used, before + most)
        if used == -1:
            set_i64(scratch + 8 * at.M_WANTED, at.M_OUT // 2)
        if used < 0:
            return 1
        set_i64(offsets + 8 * event, used)
    set_i64(scratch + 8 * at.M_USED, used)
    return 0


@compiled
def _longest(state: int, scratch: int) -> int:
    """The probe of the signature that has the longest list in columns, or 0."""
    best, longest = 0, 0
    for i in range(i64(scratch + 8 * at.M_PROBES_USED)):
        probe = i64(scratch + 8 * at.M_PROBES) + 24 * i
        entry = list_address(state, i64(probe + 16))
        length, info = u32(entry + at.L_LENGTH), u32(entry + at.L_INFO)
        if length > longest and i64(entry) == i64(probe) and info & at.I_KIND == at.COLUMNS:
            best, longest = probe, length
    return best


@compiled
def _report_longest(state: int, scratch: int, first: int, stamps: int, most: int) -> int:
    """Reports from the longest columns before others are looked at, since they may hold all; as below."""
    set_i64(scratch + 8 * at.M_REPORTED, -1)
    probe = _longest(state, scratch)
    if probe == 0:
        return 0
    number = i64(probe + 16)
    values = take_values(state, scratch, 0, number, i64(probe + 8) & at.NONE)
    if values == 0:
        return -1
    if values == -1:
        return 0
    used = i64(scratch + 8 * at.M_USED)
    set_i64(scratch + 8 * at.M_REPORTED, number)
    return _early(
        scratch,
        _report_list(state, scratch, list_address(state, number), values, first, stamps, used, used + most),
        most,
    )


@compiled
def _report_early(state: int, scratch: int, first: int, stamps: int, most: int) -> int:
    """Reports from an event's columns: 1 if that is all there can be, else 0; -1 if there is no room."""
    before = i64(scratch + 8 * at.M_USED)
    used = before + i64(scratch + 8 * at.M_EARLY)
    return _early(scratch, _report_lists(state, scratch, first, 0, stamps, used, before + most, True), most)


@compiled
def _early(scratch: int, used: int, most: int) -> int:
    """Notes how many ids there are after a step: 1 if that is all there can be."""
    if used < 0:
        set_i64(scratch + 8 * at.M_WANTED, at.M_OUT // 2)
        return -1
    set_i64(scratch + 8 * at.M_EARLY, used - i64(scratch + 8 * at.M_USED))
    return 1 if used - i64(scratch + 8 * at.M_USED) >= most else 0


@compiled
def _end_early(scratch: int, row: int) -> None:
    """Ends an event of which all is reported."""
    used = i64(scratch + 8 * at.M_USED) + i64(scratch + 8 * at.M_EARLY)
    set_i64(i64(scratch + 8 * at.M_OFFSETS) + 8 * (row + 1), used)
    set_i64(scratch + 8 * at.M_USED, used)


@compiled
def _begin(state: int, scratch: int, rows: int, offsets: int) -> bool:
    """Notes where rows and offsets stand; False if there are too few stamps."""
    for which in range(9):
        set_i64(scratch + 8 * (at.M_ROWS + which), i64(rows + 8 * which))
    set_i64(scratch + 8 * at.M_OFFSETS, offsets)
    set_i64(scratch + 8 * at.M_USED, 0)
    set_i64(offsets, 0)
    if i64(state + 8 * at.SEVERAL) == 0:
        return True
    set_i64(scratch + 8 * at.M_WANTED, at.M_STAMPS // 2)
    # Stamps are 32 bits wide.
    enough = 4 * i64(state + 8 * at.FIRST_USED) <= i64(scratch + 8 * at.M_STAMPS + 8)
    return enough and i64(scratch + 8 * at.M_SERIAL) < 1 << 31


@kernel
def match(state: int, scratch: int, rows: int, offsets: int, start: int, first: int, stop: int) -> int:
    """Matches events ``first`` to ``stop`` of the rows; gives the one where it stopped for want of room, or
    ``stop``.

    Ids come after those that are there, unless ``first`` is ``start``; offsets are those of events from
    ``start`` on. ``rows`` and ``offsets`` are addresses: of nine addresses of columns, and of as many int64
    as events and one.
    """
    if first == start and not _begin(state, scratch, rows, offsets):
        return first
    set_i64(scratch + 8 * at.M_REPORTED, -1)
    several, alive = i64(state + 8 * at.SEVERAL), i64(state + 8 * at.SUBSCRIPTIONS)
    few = several > 0 and alive <= at.FEW and i64(state + 8 * at.FILTERS) > 64 * alive
    stamps = i64(scratch + 8 * at.M_STAMPS) if several else 0
    most = alive if few else at.NONE
    few = few and i64(state + 8 * at.FILTERS) > 4 * i64(state + 8 * at.SIGNATURES)
    pooled = i64(state + 8 * at.POOL_FILTERS) > 0
    block = 1 if few else (at.POOL_BLOCK if pooled else at.BLOCK)
    while first < stop:
        count = read_events(state, scratch, first, min(block, stop - first))
        if count == 0:
            return first
        add_to(scratch, at.M_SERIAL, 1)
        set_i64(scratch + 8 * at.M_FIRST, first)
        set_i64(scratch + 8 * at.M_EARLY, 0)
        follow_probes(state, scratch, 0)
        done = _report_longest(state, scratch, first, stamps, most) if few else 0
        if done == 0:
            if not follow_signatures(state, scratch, first):
                return first
            if few:
                done = _report_early(state, scratch, first, stamps, most)
        if done < 0:
            return first
        if done:
            _end_early(scratch, first - start)
            first += 1
            continue
        if not follow_values(state, scratch, first) or not follow_groups(state, scratch, first):
            return first
        follow_probes(state, scratch, i64(scratch + 8 * at.M_FOUND))
        if not follow_lists(state, scratch) or (pooled and not sift(state, scratch, count)):
            return first
        if _report_block(state, scratch, first, count, start, stamps, most, pooled):
            return first
        first += count
    return first
