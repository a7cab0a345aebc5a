"""From a signature and an event's values to the lists of constraints that these values satisfy."""

from __future__ import annotations

from evflow.matching.index import layout as at
from evflow.matching.index.blocks import list_address
from evflow.matching.index.directory import element_address, may_hold
from evflow.matching.index.follow import attribute_row, has_place
from evflow.matching.index.keys import bucket_hash, hash_bytes, join, value_hash
from evflow.matching.index.probes import column, probe_key, push
from evflow.matching.native import bits_of, compiled, f64, i32, i64, lowest, set_i64, set_u32, u32
from evflow.matching.operators import CONTAINS, PREFIX, SUFFIX


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
