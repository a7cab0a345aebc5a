"""Whether an event satisfies a filter: intervals of keys, eight at a time, then what they do not decide."""

from __future__ import annotations

from evflow.matching.compare import number_holds, text_holds
from evflow.matching.index import layout as at
from evflow.matching.index.blocks import list_address, record_address
from evflow.matching.index.directory import signature_elements
from evflow.matching.index.follow import attribute_row, event_place, take_values
from evflow.matching.index.probes import E_COUNT, E_FIRST, SCANNED, column, event_address
from evflow.matching.native import compiled, f64, i32, i64, set_i64, u32, within
from evflow.matching.operators import NE


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
