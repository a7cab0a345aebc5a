"""Lists that have become empty are given back, once enough has changed that there may be many; and so is the
memory of blocks, once filters have moved to the pool.
"""

from __future__ import annotations

from evflow.matching.index import layout as at
from evflow.matching.index.bands import drop_filings, filing_units
from evflow.matching.index.blocks import add_to, bump, free_block, list_address, list_units, rounded
from evflow.matching.index.directory import element_address, signature_elements
from evflow.matching.index.settle import free_list
from evflow.matching.native import compiled, i64, kernel, set_i64, set_u32, u32


@compiled
def _purge_cells(state: int, head: int) -> int:
    """Gives the empty cells of a chain back whose first number stands at ``head``; how many."""
    freed = 0
    while u32(head):
        number = u32(head)
        entry = list_address(state, number)
        if u32(entry + at.L_LENGTH):
            head = entry + at.L_CHAIN
            continue
        set_u32(head, u32(entry + at.L_CHAIN))
        free_list(state, number)
        freed += 1
    return freed


@compiled
def _purge_groups(state: int, head: int) -> int:
    """Gives the empty cells and groups of a chain of groups back; how many."""
    freed = 0
    while u32(head):
        number = u32(head)
        entry = list_address(state, number)
        freed += _purge_cells(state, entry + at.L_CELLS)
        if u32(entry + at.L_COUNT) or u32(entry + at.L_INFO) & at.I_DIRTY or u32(entry + at.L_OLD):
            head = entry + at.L_CHAIN
            continue
        set_u32(head, u32(entry + at.L_CHAIN))
        free_list(state, number)
        freed += 1
    return freed


@compiled
def _free_signature(state: int, number: int) -> None:
    """Gives a signature without filters back."""
    entry = list_address(state, number)
    count = u32(entry + at.L_INFO) >> at.I_ELEMENTS
    elements = signature_elements(state, entry)
    for j in range(count):
        bump(element_address(state, u32(elements + 4 * j)) + at.E_USES, -1)
    if count > at.INLINE:
        free_block(state, u32(entry + at.L_ELEMENTS), (count + 3) // 4)
    free_list(state, number)
    add_to(state, at.SIGNATURES, -1)


@kernel
def purge(state: int) -> int:
    """Gives all empty lists back, but for list 0; how many. The table is to be made anew afterwards."""
    freed = 0
    used = i64(state + 8 * at.LISTS_USED)
    for number in range(used):
        entry = list_address(state, number)
        info = u32(entry + at.L_INFO)
        if number and i64(entry) == 0:
            continue
        if info & at.I_SIGNATURE:
            freed += _purge_groups(state, entry + at.L_NEXT)
        elif info & at.I_SHARP and u32(entry + at.L_LENGTH) == 0:
            free_list(state, number)
            freed += 1
    for number in range(1, used):
        entry = list_address(state, number)
        info = u32(entry + at.L_INFO)
        held = u32(entry + at.L_OWNER)
        if i64(state + 8 * at.POOLED):
            held += u32(entry + at.L_POOLED)
        if i64(entry) and info & at.I_SIGNATURE and not info & at.I_DIRTY and held == 0:
            _free_signature(state, number)
            freed += 1
    for element in range(i64(state + 8 * at.ELEMENTS_USED)):
        if u32(element_address(state, element) + at.E_LENGTH):
            drop_filings(state, element_address(state, element))
    return freed


@compiled
def _copy_block(state: int, start: int, units: int, to: int, used: int) -> int:
    """Copies a block behind ``used`` units of another arena, unless ``to`` is 0; how many are used then.

    ``start`` is where its first unit is noted.
    """
    units = rounded(units)[0]
    if to:
        source, target = i64(state + 8 * at.ENTRIES) + 16 * u32(start), to + 16 * used
        for word in range(2 * units):
            set_i64(target + 8 * word, i64(source + 8 * word))
        set_u32(start, used)
    return used + units


@kernel
def compact(state: int, to: int) -> int:
    """Copies the blocks that are in use to another arena, without gaps; how many units they take.

    ``to`` is where that arena stands, which is to take the place of the old one; if it is
    0, units are only counted.
    """
    used = 1
    for number in range(i64(state + 8 * at.LISTS_USED)):
        entry = list_address(state, number)
        if number and i64(entry) == 0:
            continue
        info, capacity = u32(entry + at.L_INFO), u32(entry + at.L_CAPACITY)
        count = info >> at.I_ELEMENTS
        if capacity:
            units = list_units(state, info & at.I_KIND, count, capacity)
            used = _copy_block(state, entry + at.L_START, units, to, used)
        if info & at.I_SIGNATURE and count > at.INLINE:
            used = _copy_block(state, entry + at.L_ELEMENTS, (count + 3) // 4, to, used)
    for element in range(i64(state + 8 * at.ELEMENTS_USED)):
        place = element_address(state, element)
        if u32(place + at.E_CAPACITY):
            units = filing_units(u32(place + at.E_CAPACITY))
            used = _copy_block(state, place + at.E_START, units, to, used)
    if to:
        for size in range(at.FREE_BLOCKS, at.LENGTHS):
            set_u32(i64(state + 8 * at.COUNTS) + 4 * size, 0)
        set_i64(state + 8 * at.SCRAP, 0)
        set_i64(state + 8 * at.SCRAP_END, 0)
        set_i64(state + 8 * at.ENTRIES_USED, used)
    return used
