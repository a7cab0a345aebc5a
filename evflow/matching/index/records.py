"""From constraints to a record: intervals of keys, one an element, and what intervals do not decide.

A draft holds the elements of a filter in ascending order, as int64 columns: element, low, high, a key that is
excluded. Exact constraints follow, four words each: element and operator; a text, or the key that ``!=``
excludes; a number.
"""

from __future__ import annotations

from evflow.matching.index import layout as at
from evflow.matching.index.blocks import area_words, record_address, room
from evflow.matching.index.keys import INFINITE, NOT_A_NUMBER, number_key
from evflow.matching.native import compiled, f32, f64, i32, i64, set_f64, set_i64, set_u32, u8, u32
from evflow.matching.operators import EQ, EXISTS, GE, GT, LE, LT, NE

LONGEST = 2048
"""Constraints of a filter, at most."""

# The draft, in bytes.
D_COUNT, D_EXACT, D_FLAGS = 0, 8, 16
D_ELEMENTS = _ELEMENT = 64
D_LOW = _ELEMENT + 4 * LONGEST
D_HIGH = D_LOW + 8 * LONGEST
_NOT = D_HIGH + 8 * LONGEST
_EXACT = _NOT + 8 * LONGEST
DRAFT_SIZE = _EXACT + 16 * LONGEST
_NOTHING = -(1 << 40)


@compiled
def _find_element(draft: int, element: int, low: int, high: int) -> int:
    """The row of an element, put in its order if it is new."""
    count = i64(draft + D_COUNT)
    row = count
    while row and u32(draft + _ELEMENT + 4 * (row - 1)) >= element:
        row -= 1
    if row < count and u32(draft + _ELEMENT + 4 * row) == element:
        return row
    for j in range(count, row, -1):
        set_u32(draft + _ELEMENT + 4 * j, u32(draft + _ELEMENT + 4 * (j - 1)))
        for column in (D_LOW, D_HIGH, _NOT):
            set_i64(draft + column + 8 * j, i64(draft + column + 8 * (j - 1)))
    set_u32(draft + _ELEMENT + 4 * row, element)
    set_i64(draft + D_LOW + 8 * row, low)
    set_i64(draft + D_HIGH + 8 * row, high)
    set_i64(draft + _NOT + 8 * row, _NOTHING)
    set_i64(draft + D_COUNT, count + 1)
    return row


@compiled
def _exact(draft: int, element: int, op: int, text: int, number: float, flag: int) -> None:
    """Notes a constraint that its interval does not decide."""
    count = i64(draft + D_EXACT)
    place = draft + _EXACT + 16 * count
    set_u32(place, element << 4 | op)
    set_u32(place + 4, text)
    set_f64(place + 8, number)
    set_i64(draft + D_EXACT, count + 1)
    set_i64(draft + D_FLAGS, i64(draft + D_FLAGS) | flag)


@compiled
def _limit(draft: int, row: int, low: int, high: int) -> None:
    """Narrows the interval of an element."""
    set_i64(draft + D_LOW + 8 * row, max(low, i64(draft + D_LOW + 8 * row)))
    set_i64(draft + D_HIGH + 8 * row, min(high, i64(draft + D_HIGH + 8 * row)))


@compiled
def _exclude(draft: int, row: int, key: int, op: int, number: float) -> None:
    """Excludes a key from an interval; a second one becomes an exact constraint."""
    there = i64(draft + _NOT + 8 * row)
    if there == _NOTHING:
        set_i64(draft + _NOT + 8 * row, key)
    elif there != key:
        _exact(draft, u32(draft + _ELEMENT + 4 * row), op, key, number, at.V_ALWAYS)


@compiled
def _add_number(draft: int, name: int, op: int, number: float) -> bool:
    """Adds a constraint with a number; False if nothing satisfies it."""
    element = 3 * name + at.NUMBERS
    row = _find_element(draft, element, -INFINITE, NOT_A_NUMBER)
    if number != number:
        return op == NE
    if op > GE:
        return False
    key = number_key(number)
    if op == NE and not key & 1:
        _exclude(draft, row, key, op, number)
        return True
    # Values in the gap of an operand that is not round have its key too.
    if key & 1:
        _exact(draft, element, op, at.NO_KEY, number, at.V_GAPS)
    step = 1 - (key & 1)
    if op == EQ:
        _limit(draft, row, key, key)
    elif op == LT:
        _limit(draft, row, -INFINITE, key - step)
    elif op == LE:
        _limit(draft, row, -INFINITE, key)
    elif op == GT:
        _limit(draft, row, key + step, INFINITE)
    elif op == GE:
        _limit(draft, row, key, INFINITE)
    return True


@compiled
def _add_text(draft: int, name: int, op: int, text: int) -> bool:
    """Adds a constraint with a string; False if nothing satisfies it."""
    element = 3 * name + at.TEXTS
    row = _find_element(draft, element, 0, at.NONE)
    if op == EQ:
        _limit(draft, row, text, text)
    elif op == NE:
        _exclude(draft, row, text, op, 0.0)
    else:
        _exact(draft, element, op, text, 0.0, at.V_ALWAYS)
    return True


@compiled
def make_draft(draft: int, names: int, ops: int, numbers: int, texts: int, start: int, stop: int) -> bool:
    """Drafts the filter of these constraints; False if no event satisfies it."""
    set_i64(draft + D_COUNT, 0)
    set_i64(draft + D_EXACT, 0)
    set_i64(draft + D_FLAGS, 0)
    possible = True
    for c in range(start, stop):
        name, op, text = i32(names + 4 * c), u8(ops + c), i32(texts + 4 * c)
        if op == EXISTS:
            _find_element(draft, 3 * name + at.ANY, 0, 0)
        elif text >= 0:
            possible &= _add_text(draft, name, op, text)
        else:
            possible &= _add_number(draft, name, op, f64(numbers + 8 * c))
    for row in range(i64(draft + D_COUNT)):
        possible &= _settle_exclusion(draft, row)
    return possible


@compiled
def _number_of(draft: int, key: int) -> float:
    """The round number of a key; the draft's head serves to turn bits into a number."""
    set_u32(draft + 24, key if key >= 0 else at.V_MARK - key)
    return f32(draft + 24)


@compiled
def _settle_exclusion(draft: int, row: int) -> bool:
    """Works an excluded key into its interval; False if nothing is left."""
    low, high = i64(draft + D_LOW + 8 * row), i64(draft + D_HIGH + 8 * row)
    key = i64(draft + _NOT + 8 * row)
    element = u32(draft + _ELEMENT + 4 * row)
    numeric = element % 3 == at.NUMBERS
    if low > high:
        return False
    if key < low or key > high:
        return True
    if (numeric and high == NOT_A_NUMBER) or (not numeric and high == at.NONE):
        # All keys but one: an interval that wraps around.
        set_i64(draft + D_LOW + 8 * row, key + 1)
        set_i64(draft + D_HIGH + 8 * row, key + at.NONE)
    elif key == low:
        set_i64(draft + D_LOW + 8 * row, low + 1)
        return low < high
    elif key == high:
        set_i64(draft + D_HIGH + 8 * row, high - 1)
    else:
        number = _number_of(draft, key) if numeric else 0.0
        _exact(draft, element, NE, key, number, at.V_ALWAYS)
    return True


@compiled
def new_record(state: int, draft: int, subscription: int, located: int) -> int:
    """A record of a draft; or FULL."""
    count, exact = i64(draft + D_COUNT), i64(draft + D_EXACT)
    flags = i64(draft + D_FLAGS) | (at.R_LOCATED if located else 0)
    ahead = area_words(state, flags)
    size = ahead + at.R_LOWS + 2 * count + 4 * exact
    if size >= 256:
        size = size | 255
    record = _free_record_of(state, size)
    if record == 0:
        if room(state, at.RECORDS, size) == at.FULL:
            return at.FULL
        record = i64(state + 8 * at.RECORDS_USED)
        set_i64(state + 8 * at.RECORDS_USED, record + size)
    record += ahead
    place = record_address(state, record)
    set_u32(place + 4 * at.R_LIST, at.NONE)
    set_u32(place + 4 * at.R_NEXT, 0)
    set_u32(place + 4 * at.R_SUBSCRIPTION, subscription)
    set_u32(place + 4 * at.R_INFO, flags | count | exact << at.K_EXACT)
    lows = place + 4 * at.R_LOWS
    for j in range(count):
        low, high = i64(draft + D_LOW + 8 * j), i64(draft + D_HIGH + 8 * j)
        set_u32(lows + 4 * j, low)
        set_u32(lows + 4 * (count + j), high - low)
    for j in range(exact):
        target, source = lows + 8 * count + 16 * j, draft + _EXACT + 16 * j
        element = u32(source) >> 4
        row = 0
        while u32(draft + _ELEMENT + 4 * row) != element:
            row += 1
        set_u32(target, row << 4 | u32(source) & 15)
        set_u32(target + 4, u32(source + 4))
        set_i64(target + 8, i64(source + 8))
    return record


@compiled
def record_size(state: int, record: int) -> int:
    """How many words a record takes."""
    info = u32(record_address(state, record) + 4 * at.R_INFO)
    size = at.R_LOWS + 2 * (info & at.K_MASK) + 4 * (info >> at.K_EXACT & at.K_EXACT_MASK)
    return area_words(state, info) + size


@compiled
def _free_record_of(state: int, size: int) -> int:
    """A free record of this size, taken off its list, or 0."""
    head = i64(state + 8 * at.COUNTS) + 4 * (at.FREE_RECORDS + _size_class(size))
    record = u32(head)
    if record:
        set_u32(head, u32(record_address(state, record)))
    return record


@compiled
def _size_class(size: int) -> int:
    """Records of one class can take each other's place."""
    return size if size < 256 else 255 + size // 256


@compiled
def free_record(state: int, record: int) -> None:
    """Gives a record back."""
    head = i64(state + 8 * at.COUNTS) + 4 * (at.FREE_RECORDS + _size_class(record_size(state, record)))
    record -= area_words(state, u32(record_address(state, record) + 4 * at.R_INFO))
    set_u32(record_address(state, record), u32(head))
    set_u32(head, record)
