"""Signatures filed under one of their elements, sorted by the values that their filters accept there.

An event with many names goes through the signatures that are filed under its elements, each under one. A
signature stands there with a mask of all its elements, and with the interval of keys outside of which none of
its filters accepts that element. Quantiles of the intervals' ends bound eight *bands*, and filings are sorted
by the bands in which their intervals begin and end, so that an event passes by all pairs of bands that do not
enclose its key. New filings stand unsorted behind the others until they are an eighth of them.

A block of filings has columns: masks (two), lows, widths, and the lists of the signatures, 0 where one has
left. Keys are counted from the least one of the element's type. In front of the columns of a large block
stand the bounds of the bands, and where each pair of bands starts.
"""

from __future__ import annotations

from evflow.matching.index import layout as at
from evflow.matching.index.blocks import bump, free_block, list_address, new_block
from evflow.matching.index.directory import element_address, signature_elements
from evflow.matching.index.keys import INFINITE
from evflow.matching.index.records import D_ELEMENTS, D_HIGH, D_LOW
from evflow.matching.native import compiled, i64, set_u32, u32

_SAMPLE = 64


@compiled
def order_of(element: int, key: int) -> int:
    """Where a key stands in the order of its type, from 0."""
    return (key + INFINITE if element % 3 == at.NUMBERS else key) & at.NONE


@compiled
def _head(capacity: int) -> int:
    """How many bytes stand before the columns of a block."""
    return at.F_HEAD if capacity >= at.F_SORTED else 0


@compiled
def filing_units(capacity: int) -> int:
    """The size of a block that has room for so many filings."""
    return (_head(capacity) + at.F_SIZE * capacity) // 16


@compiled
def filings(state: int, place: int) -> tuple[int, int, int]:
    """Of an element: where its block stands, where the columns do, and how many filings are sorted."""
    block = i64(state + 8 * at.ENTRIES) + 16 * u32(place + at.E_START)
    head = _head(u32(place + at.E_CAPACITY))
    return block, block + head, u32(block + at.F_STARTS + 4 * at.PAIRS) if head else 0


@compiled
def band_of(block: int, order: int) -> int:
    """The band that a key is in."""
    band = 0
    for i in range(at.BANDS - 1):
        band += order >= u32(block + 4 * i)
    return band


@compiled
def pair_of(first: int, last: int) -> int:
    """The number of a pair of bands.

    Pairs from the first band on come first and pairs up to the last one next, so that a key is in one run of
    both. The others follow by where they begin.
    """
    if first == 0:
        return last
    if last == at.BANDS - 1:
        return last + first
    return inner_pair(first, last)


@compiled
def inner_pair(first: int, last: int) -> int:
    """The number of a pair that has neither the first band nor the last one; those are the last."""
    return 2 * at.BANDS - 1 + (first - 1) * (2 * at.BANDS - 4 - first) // 2 + last - 1


@compiled
def _accepted(draft: int, row: int) -> tuple[int, int]:
    """The first and the last key, in their order, that a drafted filter accepts of an element."""
    element = u32(draft + D_ELEMENTS + 4 * row)
    start = INFINITE if element % 3 == at.NUMBERS else 0
    low, high = i64(draft + D_LOW + 8 * row) + start, i64(draft + D_HIGH + 8 * row) + start
    if element % 3 == at.ANY or high > at.NONE:
        return 0, at.NONE
    return low, high


@compiled
def _cost(state: int, element: int, low: int, high: int) -> float:
    """How often an event goes through what is filed under an element with an interval, in some unit.

    Events are taken to have an element as often as signatures do.
    """
    place = element_address(state, element)
    block = filings(state, place)[0]
    if u32(place + at.E_CAPACITY) < at.F_SORTED:
        bands = at.BANDS * max(0.125, (high - low) / at.NONE)
    else:
        bands = 1.0 + band_of(block, high) - band_of(block, low)
    return bands * u32(place + at.E_USES)


@compiled
def _cheapest(state: int, draft: int, count: int) -> int:
    """The row of the drafted filter whose element it is filed under at the least cost."""
    best, least = 0, 0.0
    for row in range(count):
        low, high = _accepted(draft, row)
        cost = _cost(state, u32(draft + D_ELEMENTS + 4 * row), low, high)
        if row == 0 or cost < least:
            best, least = row, cost
    return best


@compiled
def _copy(source: int, capacity: int, i: int, target: int, larger: int, j: int) -> None:
    """Copies a filing from one block's columns to another's."""
    for column in range(6):
        set_u32(target + 4 * (column * larger + j), u32(source + 4 * (column * capacity + i)))


@compiled
def _choose_bounds(source: int, length: int, capacity: int, block: int) -> None:
    """Bounds a new block's bands by quantiles of where intervals begin and end; its columns are empty yet."""
    sample, taken = block + at.F_HEAD, 0
    for i in range(0, length, length // _SAMPLE + 1):
        low = u32(source + at.F_LOWS * capacity + 4 * i)
        for end in (low, low + u32(source + at.F_WIDTHS * capacity + 4 * i) + 1):
            if 0 < end <= at.NONE:
                j = taken
                while j and u32(sample + 4 * (j - 1)) > end:
                    set_u32(sample + 4 * j, u32(sample + 4 * (j - 1)))
                    j -= 1
                set_u32(sample + 4 * j, end)
                taken += 1
    for i in range(1, at.BANDS):
        set_u32(block + 4 * (i - 1), u32(sample + 4 * (i * taken // at.BANDS)) if taken else at.NONE)


@compiled
def _pair_at(block: int, columns: int, capacity: int, i: int) -> int:
    """The pair of bands of a filing, by the bounds of a block."""
    low = u32(columns + at.F_LOWS * capacity + 4 * i)
    high = low + u32(columns + at.F_WIDTHS * capacity + 4 * i)
    return pair_of(band_of(block, low), band_of(block, high))


@compiled
def _copy_sorted(source: int, length: int, capacity: int, block: int, larger: int) -> int:
    """Copies what has not left to a new block, sorted if that is large; how many."""
    if larger < at.F_SORTED:
        kept = 0
        for i in range(length):
            if u32(source + at.F_LISTS * capacity + 4 * i):
                _copy(source, capacity, i, block, larger, kept)
                kept += 1
        return kept
    starts = block + at.F_STARTS
    for pair in range(at.PAIRS + 1):
        set_u32(starts + 4 * pair, 0)
    for i in range(length):
        if u32(source + at.F_LISTS * capacity + 4 * i):
            bump(starts + 4 * _pair_at(block, source, capacity, i) + 4, 1)
    for pair in range(at.PAIRS):
        set_u32(starts + 4 * pair + 4, u32(starts + 4 * pair) + u32(starts + 4 * pair + 4))
    for i in range(length):
        if u32(source + at.F_LISTS * capacity + 4 * i):
            start = starts + 4 * _pair_at(block, source, capacity, i)
            _copy(source, capacity, i, block + at.F_HEAD, larger, u32(start))
            bump(start, 1)
    # Each start has come to where the next one was.
    for pair in range(at.PAIRS, 0, -1):
        set_u32(starts + 4 * pair, u32(starts + 4 * pair - 4))
    set_u32(starts, 0)
    return u32(starts + 4 * at.PAIRS)


@compiled
def _sort_filings(state: int, place: int) -> int:
    """Gives the filings of an element a new block, sorted and with room for more: 0 or FULL."""
    length, capacity = u32(place + at.E_LENGTH), u32(place + at.E_CAPACITY)
    columns = filings(state, place)[1]
    kept = 0
    for i in range(length):
        kept += u32(columns + at.F_LISTS * capacity + 4 * i) != 0
    larger = capacity
    if 8 * kept >= 7 * capacity:
        larger = (capacity + max(8, capacity // 2) + 7) & -8
    start = new_block(state, filing_units(larger))
    if start == at.FULL:
        return at.FULL
    block = i64(state + 8 * at.ENTRIES) + 16 * start
    if larger >= at.F_SORTED:
        _choose_bounds(columns, length, capacity, block)
    kept = _copy_sorted(columns, length, capacity, block, larger)
    if capacity:
        free_block(state, u32(place + at.E_START), filing_units(capacity))
    set_u32(place + at.E_START, start)
    set_u32(place + at.E_CAPACITY, larger)
    set_u32(place + at.E_LENGTH, kept)
    return 0


@compiled
def drop_filings(state: int, place: int) -> None:
    """Takes signatures without filters in lists from those filed under an element; gives an empty block
    back.
    """
    block, columns, done = filings(state, place)
    capacity, starts = u32(place + at.E_CAPACITY), block + at.F_STARTS
    kept, pair = 0, 0
    for i in range(u32(place + at.E_LENGTH)):
        while done and pair <= at.PAIRS and u32(starts + 4 * pair) == i:
            set_u32(starts + 4 * pair, kept)
            pair += 1
        number = u32(columns + at.F_LISTS * capacity + 4 * i)
        entry = list_address(state, number)
        if i64(entry) and u32(entry + at.L_OWNER):
            _copy(columns, capacity, i, columns, capacity, kept)
            kept += 1
        elif number:
            set_u32(entry + at.L_FILED, 0)
    while done and pair <= at.PAIRS:
        set_u32(starts + 4 * pair, kept)
        pair += 1
    set_u32(place + at.E_LENGTH, kept)
    if kept == 0 and capacity:
        free_block(state, u32(place + at.E_START), filing_units(capacity))
        set_u32(place + at.E_CAPACITY, 0)


@compiled
def _widen(state: int, place: int) -> int:
    """Makes room for one more filing, and sorts if many are not: 0 or FULL."""
    length, capacity = u32(place + at.E_LENGTH), u32(place + at.E_CAPACITY)
    if length < capacity:
        done = filings(state, place)[2]
        if capacity < at.F_SORTED or length - done < max(32, done // 16):
            return 0
    return _sort_filings(state, place)


@compiled
def _position(state: int, place: int, entry: int, number: int) -> int:
    """Where a signature stands among the filings of its element."""
    block, columns, done = filings(state, place)
    numbers = columns + at.F_LISTS * u32(place + at.E_CAPACITY)
    first, stop = 0, 0
    if done:
        low, high = u32(entry + at.L_LOW), u32(entry + at.L_HIGH)
        start = block + at.F_STARTS + 4 * pair_of(band_of(block, low), band_of(block, high))
        first, stop = u32(start), u32(start + 4)
    while first < stop and u32(numbers + 4 * first) != number:
        first += 1
    if first < stop:
        return first
    while u32(numbers + 4 * done) != number:
        done += 1
    return done


@compiled
def _write(state: int, place: int, i: int, number: int, low: int, high: int) -> None:
    """Writes a filing: the mask of a signature's elements, the interval, the list."""
    entry = list_address(state, number)
    elements = signature_elements(state, entry)
    columns, capacity = filings(state, place)[1], u32(place + at.E_CAPACITY)
    for word in range(3):
        set_u32(columns + 4 * (word * capacity + i), 0)
    for j in range(u32(entry + at.L_INFO) >> at.I_ELEMENTS):
        bit = i64(element_address(state, u32(elements + 4 * j)) + at.E_HASH) & 127
        word = columns + 4 * ((bit >> 5) * capacity + i)
        set_u32(word, u32(word) | 1 << (bit & 31))
    set_u32(columns + at.F_LOWS * capacity + 4 * i, low)
    set_u32(columns + at.F_WIDTHS * capacity + 4 * i, high - low)
    set_u32(columns + at.F_LISTS * capacity + 4 * i, number)
    set_u32(entry + at.L_LOW, low)
    set_u32(entry + at.L_HIGH, high)


@compiled
def _file_wider(state: int, number: int, place: int, low: int, high: int) -> bool:
    """Gives a filing another interval if it is not sorted yet, else takes it away; whether it is there."""
    columns, done = filings(state, place)[1:]
    i = _position(state, place, list_address(state, number), number)
    if i < done:
        set_u32(columns + at.F_LISTS * u32(place + at.E_CAPACITY) + 4 * i, 0)
        return False
    _write(state, place, i, number, low, high)
    return True


@compiled
def file_signature(state: int, number: int) -> int:
    """Files a signature so that events find it which satisfy the drafted filter: 0 or FULL."""
    draft, entry = i64(state + 8 * at.DRAFT), list_address(state, number)
    count, filed = u32(entry + at.L_INFO) >> at.I_ELEMENTS, u32(entry + at.L_FILED)
    if count == 0:
        return 0
    row = 0 if filed else _cheapest(state, draft, count)
    while filed and u32(draft + D_ELEMENTS + 4 * row) + 1 != filed:
        row += 1
    low, high = _accepted(draft, row)
    if filed and u32(entry + at.L_OWNER):
        first, last = u32(entry + at.L_LOW), u32(entry + at.L_HIGH)
        if first <= low and high <= last:
            return 0
        low, high = min(low, first), max(high, last)
    element = u32(draft + D_ELEMENTS + 4 * row)
    place = element_address(state, element)
    if _widen(state, place) == at.FULL:
        return at.FULL
    if filed and _file_wider(state, number, place, low, high):
        return 0
    i = u32(place + at.E_LENGTH)
    _write(state, place, i, number, low, high)
    set_u32(place + at.E_LENGTH, i + 1)
    set_u32(entry + at.L_FILED, element + 1)
    return 0
