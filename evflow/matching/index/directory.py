"""From a key to its list: a table with open addressing, and a Bloom filter before it.

A slot holds 32 bits of the key and the number of the list; the key itself stands in the list. Slots of lists
that are gone lead to a list with another key, and vanish when the table is made anew. An event with few
attributes looks for all subsets of them; one with many goes through signatures by their elements (``bands``).
"""

from __future__ import annotations

from evflow.matching.index import layout as at
from evflow.matching.index.blocks import add_to, bump, list_address, new_block, room
from evflow.matching.index.keys import mix
from evflow.matching.native import compiled, i64, kernel, set_i64, set_u32, total, u32


@compiled
def element_address(state: int, element: int) -> int:
    """Where an element stands."""
    return i64(state + 8 * at.ELEMENTS) + element * at.ELEMENT_SIZE


@compiled
def may_hold(bloom: int, words: int, key: int) -> int:
    """1 if the table may hold a key, 0 if it surely does not."""
    word = i64(bloom + 8 * ((key >> 20) & (words - 1)))
    return (word >> (key & 63)) & (word >> ((key >> 6) & 63)) & 1


@compiled
def find(state: int, key: int) -> int:
    """The list of a key, or 0."""
    table, mask = i64(state + 8 * at.TABLE), i64(state + 8 * at.TABLE_CAPACITY) - 1
    slot = (key >> 12) & mask
    while True:
        number = u32(table + 8 * slot)
        if number == 0:
            return 0
        if u32(table + 8 * slot + 4) == (key & at.NONE) and i64(list_address(state, number)) == key:
            return number
        slot = (slot + 1) & mask


@compiled
def _enter(state: int, key: int, number: int) -> None:
    """Puts a list in the table, which has room, and in the Bloom filter."""
    table, mask = i64(state + 8 * at.TABLE), i64(state + 8 * at.TABLE_CAPACITY) - 1
    slot = (key >> 12) & mask
    while u32(table + 8 * slot):
        slot = (slot + 1) & mask
    set_u32(table + 8 * slot, number)
    set_u32(table + 8 * slot + 4, key & at.NONE)
    add_to(state, at.TABLE_USED, 1)
    words = i64(state + 8 * at.BLOOM_CAPACITY)
    word = i64(state + 8 * at.BLOOM) + 8 * ((key >> 20) & (words - 1))
    set_i64(word, i64(word) | (1 << (key & 63)) | (1 << ((key >> 6) & 63)))


@compiled
def new_list(state: int, key: int, info: int) -> int:
    """A new list, in the table unless it is a group; or FULL."""
    number = i64(state + 8 * at.FREE_LIST)
    if number == 0:
        if room(state, at.LISTS, 1) == at.FULL:
            return at.FULL
        number = i64(state + 8 * at.LISTS_USED)
    if info & at.I_GROUP == 0:
        # Half of the table stays empty.
        if room(state, at.TABLE, 1 + i64(state + 8 * at.TABLE_CAPACITY) // 2) == at.FULL:
            return at.FULL
        _enter(state, key, number)
    entry = list_address(state, number)
    if i64(state + 8 * at.FREE_LIST):
        set_i64(state + 8 * at.FREE_LIST, u32(entry + at.L_CHAIN))
    else:
        set_i64(state + 8 * at.LISTS_USED, number + 1)
    for word in range(at.LIST_SIZE // 8):
        set_i64(entry + 8 * word, 0)
    set_i64(entry + at.L_KEY, key)
    set_u32(entry + at.L_INFO, info)
    return number


@compiled
def signature_elements(state: int, entry: int) -> int:
    """Where the elements of a signature stand, given its address."""
    if u32(entry + at.L_INFO) >> at.I_ELEMENTS <= at.INLINE:
        return entry + at.L_ELEMENTS
    return i64(state + 8 * at.ENTRIES) + 16 * u32(entry + at.L_ELEMENTS)


@compiled
def _same_elements(state: int, number: int, elements: int, count: int) -> bool:
    """Whether a list is the signature of these elements."""
    entry = list_address(state, number)
    if u32(entry + at.L_INFO) >> at.I_ELEMENTS != count or not u32(entry + at.L_INFO) & at.I_SIGNATURE:
        return False
    own = signature_elements(state, entry)
    for j in range(count):  # noqa: SIM110
        if u32(own + 4 * j) != u32(elements + 4 * j):
            return False
    return True


@compiled
def _element_hash(state: int, element: int) -> int:
    """What an element adds to the key of a signature."""
    place = element_address(state, element)
    if i64(place + at.E_HASH) == 0:
        bit = i64(state + 8 * at.BITS_GIVEN)
        set_i64(state + 8 * at.BITS_GIVEN, bit + 1)
        value = mix(total(element, i64(state + 8 * at.SEED)))
        set_i64(place + at.E_HASH, (value & -256) | 128 | (bit % at.MASK_BITS))
    return i64(place + at.E_HASH)


@compiled
def find_signature(state: int, elements: int, count: int) -> int:
    """The signature of these elements (uint32, ascending), made if it is new; or FULL."""
    if count == 0:
        return 0
    key = 0
    for j in range(count):
        key ^= _element_hash(state, u32(elements + 4 * j))
    while True:
        number = find(state, key)
        if number == 0 and key:
            return _new_signature(state, key, elements, count)
        if number and _same_elements(state, number, elements, count):
            return number
        # Two sets with one hash: the second is found by going through signatures only, from now on.
        set_i64(state + 8 * at.COLLISIONS, 1)
        key = mix(key)


@compiled
def _new_signature(state: int, key: int, elements: int, count: int) -> int:
    """A signature that is not filed yet; or FULL."""
    units = (count + 3) // 4
    if room(state, at.ENTRIES, 2 * units) == at.FULL:
        return at.FULL
    number = new_list(state, key, at.I_SIGNATURE | count << at.I_ELEMENTS)
    if number == at.FULL:
        return at.FULL
    entry = list_address(state, number)
    own = entry + at.L_ELEMENTS
    if count > at.INLINE:
        start = new_block(state, units)
        set_u32(own, start)
        own = i64(state + 8 * at.ENTRIES) + 16 * start
    for j in range(count):
        element = u32(elements + 4 * j)
        set_u32(own + 4 * j, element)
        bump(element_address(state, element) + at.E_USES, 1)
    add_to(state, at.SIGNATURES, 1)
    return number


@kernel
def rebuild(state: int) -> int:
    """Fills an empty table and Bloom filter with all lists that are there; gives their number."""
    count = 0
    for number in range(1, i64(state + 8 * at.LISTS_USED)):
        entry = list_address(state, number)
        if i64(entry) and not u32(entry + at.L_INFO) & at.I_GROUP:
            _enter(state, i64(entry), number)
            count += 1
    return count
