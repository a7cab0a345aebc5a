"""What a Tile Manager does with moves.

The zones of a tile lie in blocks of 32, publications apart from subscriptions, as float32 with room for
rounding; what may be near enough by these is compared exactly.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from evflow.matching.areas.sphere import circles_meet
from evflow.matching.globe import place_vector
from evflow.matching.native import (
    Read,
    ReadRows,
    Write,
    WriteBlocks,
    WriteRows,
    array_kernel,
    bits_of,
    compiled,
    float_of,
    lowest,
    within_reach,
)
from evflow.matching.space import EARTH_RADIUS
from evflow.tiles.kernels.fields import (
    AHEAD,
    ASKED,
    BLOCK,
    BLOCKS,
    CENTRE,
    CONTENT,
    COVER,
    FREE,
    GONE_COUNT,
    HELD_WORDS,
    ID,
    ISSUER,
    LATE,
    LISTS,
    NUMBER,
    OUT,
    REHOMED,
    SENDER,
    TILE,
    TILES,
    TOLD,
    USED,
    VERSION,
    WORD,
    Words,
    X,
)
from evflow.tiles.kernels.tables import ask, ask_ahead, ask_for, copy, find, key_of, mixed, newness
from evflow.tiles.kernels.zones import (
    BASE,
    DEEPEST,
    Shapes,
    Tiling,
    after,
    at_zoom,
    cell_of,
    in_span,
    numbers_of,
    span_of,
    tile_id,
    touches,
    zones_meet,
    zoom_of,
)

_INFINITY = np.float32(np.inf)


@compiled
def _locate(held: Words, shapes: Shapes) -> None:
    """Writes middle and covering radius of what is held."""
    a, b, c, d = numbers_of(held, shapes)
    cover: float = min(c, 2.0 * EARTH_RADIUS)
    is_box = held[WORD] & 255 > 0
    x, y, z = place_vector((a + c) / 2.0, (b + d) / 2.0) if is_box else place_vector(a, b)
    if is_box:
        cover = 0.0
        for corner in (a, c):
            u, v, w = place_vector(corner, b)
            chord = math.sqrt((u - x) * (u - x) + (v - y) * (v - y) + (w - z) * (w - z))
            cover = max(cover, EARTH_RADIUS * chord)
        if d - b > 180.0:
            cover = 2.0 * EARTH_RADIUS
    held[X], held[X + 1], held[X + 2] = bits_of(x), bits_of(y), bits_of(z)
    held[COVER] = bits_of(cover)


@compiled
def _copy_held(source: Words, target: Words) -> None:
    for k in range(HELD_WORDS):
        target[k] = source[k]


@compiled
def _near(held: Words, tile: Words) -> tuple[float, float, float, float]:
    """Where a zone is from the middle of the tile, and its reach with room for rounding, in metres."""
    x = (float_of(held[X]) - float_of(tile[CENTRE])) * EARTH_RADIUS
    y = (float_of(held[X + 1]) - float_of(tile[CENTRE + 1])) * EARTH_RADIUS
    z = (float_of(held[X + 2]) - float_of(tile[CENTRE + 2])) * EARTH_RADIUS
    away = abs(x) + abs(y) + abs(z)
    reach = (float_of(held[COVER]) + away * 2.0**-21 + 0.001) * (1.0 + 2.0**-20)
    return x, y, z, reach


@compiled
def _overlap(one: Words, other: Words, shapes: Shapes) -> bool:
    """Whether the zones of two that are held have a place in common."""
    if (one[WORD] | other[WORD]) & 255 == 0:
        return circles_meet(
            (float_of(one[X]), float_of(one[X + 1]), float_of(one[X + 2])),
            (float_of(other[X]), float_of(other[X + 1]), float_of(other[X + 2])),
            float_of(one[8]) + float_of(other[8]),
        )
    return zones_meet(one, other, shapes)


@compiled
def _chosen(tile: int, one: Words, other: Words, tiling: Tiling, shapes: Shapes) -> bool:
    """Whether a tile has the least hash of the tiles of a grid that two zones share (section III.C).

    Of two grids each chooses its own.
    """
    first = span_of(one, tiling, shapes)
    if first[0] == first[1] and first[2] == first[3]:
        return True
    second = span_of(other, tiling, shapes)
    if second[0] == second[1] and second[2] == second[3]:
        return True
    base: int = tiling.counts[BASE]
    top, bottom, west, east = at_zoom(first, base, tiling)
    high, low, _, _ = at_zoom(second, base, tiling)
    mine, grids = mixed(tile), cell_of(tile, tiling) >> 2
    for v in range(max(top, high), min(bottom, low) + 1):
        for u in range(west, east + 1):
            y, x, zoom = v, u & ((1 << base) - 1), base
            while True:
                shared = tile_id(y, x, 1 << zoom)
                cell = cell_of(shared, tiling)
                if (
                    cell >> 2 & grids
                    and mixed(shared) < mine
                    and touches(y, x, zoom, one, first, tiling, shapes)
                    and touches(y, x, zoom, other, second, tiling, shapes)
                ):
                    grids &= ~(cell >> 2)
                    if grids == 0:
                        return False
                if cell & 3 and in_span(y, x, zoom, first, tiling) and in_span(y, x, zoom, second, tiling):
                    y, x, zoom = 2 * y, 2 * x, zoom + 1
                else:
                    y, x, zoom = after(y, x, zoom, base)
                    if zoom == base:
                        break
    return True


@compiled
def _covers(pub: int, sub: int, contents: Words, ends: Words, attributes: NDArray[np.int64]) -> bool:
    """Whether the attributes of a subscription are among those of a publication."""
    if sub == 0 or pub == sub:
        return True
    if pub == 0:
        return False
    p, s = contents[find(contents, pub), 1], contents[find(contents, sub), 1]
    if p < 0 or s < 0:
        return False
    at = ends[p - 1] if p else 0
    for k in range(ends[s - 1] if s else 0, ends[s]):
        while at < ends[p] and attributes[at] < attributes[k]:
            at += 1
        if at == ends[p] or attributes[at] != attributes[k]:
            return False
    return True


@compiled
def _position(slot: int, head: int, count: int, slots: NDArray[np.int32], nexts: Words) -> tuple[int, int]:
    """Block and place of an entity in a list; (-1, 0) if it is not in it."""
    block, left = head, (count - 1) % BLOCK + 1 if count else 0
    while block != -1:
        for at in range(left):
            if slots[block, at] == slot:
                return block, at
        block, left = nexts[block], BLOCK
    return -1, 0


@compiled
def _append(
    tile: Words, side: int, places: NDArray[np.float32], slots: NDArray[np.int32], nexts: Words, count: Words
) -> tuple[int, int]:
    """A new place in a list of a tile."""
    number = tile[2 * side + 1]
    at = number % BLOCK
    if at == 0:
        block = count[FREE]
        if block != -1:
            count[FREE] = nexts[block]
        else:
            block = count[BLOCKS]
            count[BLOCKS] += 1
        nexts[block] = tile[2 * side]
        tile[2 * side] = block
        for k in range(BLOCK):
            places[block, 0, k] = _INFINITY
    tile[2 * side + 1] = number + 1
    return tile[2 * side], at


@compiled
def _remove(
    tile: Words,
    side: int,
    block: int,
    at: int,
    places: NDArray[np.float32],
    slots: NDArray[np.int32],
    nexts: Words,
    count: Words,
) -> None:
    """Takes a place out of a list: the last one moves there."""
    head, last = tile[2 * side], (tile[2 * side + 1] - 1) % BLOCK
    slots[block, at] = slots[head, last]
    for k in range(4):
        places[block, k, at] = places[head, k, last]
    places[head, 0, last] = _INFINITY
    tile[2 * side + 1] -= 1
    if last == 0:
        tile[2 * side] = nexts[head]
        nexts[head] = count[FREE]
        count[FREE] = head


@compiled
def _meet(pub: Words, sub: Words, ends: Words, attributes: Words, shapes: Shapes) -> bool:
    """Whether a publication and a subscription match."""
    return _covers(pub[CONTENT], sub[CONTENT], shapes.table, ends, attributes) and _overlap(pub, sub, shapes)


@compiled
def _matched(pub: Words, sub: Words, apart: int, out: Words, shapes: Shapes) -> None:
    out[0], out[1] = pub[ID], pub[VERSION]
    out[2], out[3] = sub[ID], sub[VERSION]
    out[4], out[5] = sub[SENDER], sub[ISSUER]
    out[6] = pub[WORD] & 255 | (apart | sub[WORD] >> 11 & 7) << 32
    a, b, c, d = numbers_of(pub, shapes)
    out[7], out[8], out[9], out[10] = bits_of(a), bits_of(b), bits_of(c), bits_of(d)


@compiled
def _part(
    tile: Words,
    side: int,
    past: Words,
    now: Words,
    is_gone: bool,
    held: Words,
    places: NDArray[np.float32],
    slots: NDArray[np.int32],
    nexts: Words,
    ends: Words,
    attributes: Words,
    out: Words,
    made: int,
    shapes: Shapes,
) -> int:
    """Writes which matches of a past state ended with the one of now; returns how many there are then."""
    x, y, z, reach = _near(past, tile)
    other = tile[2 - 2 * side]
    while other != -1:
        near = within_reach(x, y, z, reach, places[other].ctypes.data)
        while near:
            theirs = held[slots[other, lowest(near)]]
            near &= near - 1
            asked = now[WORD] if side else theirs[WORD]
            if asked >> 11 & 7 == 0:
                continue
            pub, sub = (theirs, now) if side else (now, theirs)
            first, second = (theirs, past) if side else (past, theirs)
            ended = is_gone or not _meet(pub, sub, ends, attributes, shapes)
            if ended and _meet(first, second, ends, attributes, shapes):
                _matched(pub, sub, 8, out[made], shapes)
                made += 1
        other = nexts[other]
    return made


@compiled
def _found(tile: Words, number: int, tiling: Tiling) -> None:
    """Writes an empty tile."""
    zoom = zoom_of(number, tiling)
    n, down = 1 << zoom, tiling.counts[DEEPEST] - zoom
    y, x = (number - n * n) >> zoom, number & (n - 1)
    latitude = (tiling.borders[y << down] + tiling.borders[(y + 1) << down]) / 2.0
    u, v, w = place_vector(latitude, (x + 0.5) * 360.0 / n - 180.0)
    tile[0] = tile[2] = -1
    tile[1] = tile[3] = 0
    tile[CENTRE], tile[CENTRE + 1], tile[CENTRE + 2] = bits_of(u), bits_of(v), bits_of(w)
    tile[NUMBER] = number


@compiled
def _ask_ahead(
    rows: Words,
    start: int,
    numbers: Words,
    tiles: Words,
    places: NDArray[np.float32],
    slots: NDArray[np.int32],
    nexts: Words,
) -> None:
    """Asks memory for the tiles of the next ``AHEAD`` moves, and what they will look at of these."""
    stop = min(start + AHEAD, len(rows))
    for i in range(start, stop):
        ask_for(numbers, rows[i, TILE])
    for i in range(start, stop):
        ask(tiles, numbers[find(numbers, rows[i, TILE]), 1])
    for i in range(start, stop):
        number = numbers[find(numbers, rows[i, TILE]), 1]
        if number == -1:
            continue
        side = rows[i, WORD] >> 8 & 1
        block = tiles[number, 2 * side]
        while block != -1:
            ask(slots, block)
            block = nexts[block]
        block = tiles[number, 2 - 2 * side]
        while block != -1:
            ask(places, block)
            block = nexts[block]


@array_kernel
def match(
    rows: ReadRows[np.int64],
    start: int,
    table: WriteRows[np.int64],
    held: WriteRows[np.int64],
    numbers: WriteRows[np.int64],
    tiles: WriteRows[np.int64],
    places: WriteBlocks[np.float32],
    slots: WriteRows[np.int32],
    nexts: Write[np.int64],
    tiling: Tiling,
    ends: Read[np.int64],
    attributes: Read[np.int64],
    count: Write[np.int64],
    out: WriteRows[np.int64],
    rehomed: Write[np.int64],
    states: WriteRows[np.int64],
    shapes: Shapes,
) -> int:
    """A Tile Manager takes moves of its tiles, and writes the matches that they make.

    Algorithm 3. What is silent makes none, nor what only a new connection of a client brings again, unless
    others may have found matches of the subscription. ``rehomed`` gets the rows of subscriptions whose client
    is connected elsewhere now. ``states`` has the state that an entity had before its last move, and the key
    and words of this move. Returns the row at which it stopped.

    A pair that matched before a move and does not afterwards has come apart. Each tile that had both tells
    it, if the subscription asks for events: it has the old state, and each row has the new one.
    """
    made = 0
    for i in range(start, len(rows)):
        if (i - start) % AHEAD == 0:
            ask_ahead(rows, i, table, held)
            _ask_ahead(rows, i, numbers, tiles, places, slots, nexts)
        row = rows[i]
        side, gone, silent = row[WORD] >> 8 & 1, row[WORD] >> 9 & 1, row[WORD] >> 10 & 1
        at = find(numbers, row[TILE])
        number = numbers[at, 1]
        if number == -1:
            number = count[LISTS]
            count[LISTS] += 1
            numbers[at, 0], numbers[at, 1] = row[TILE], number
            _found(tiles[number], row[TILE], tiling)
        tile = tiles[number]
        if made + tile[3 - 2 * side] > len(out):
            count[OUT] = made
            return i
        key = key_of(row)
        at = find(table, key)
        slot = table[at, 1]
        order = 1
        if slot == -1:
            slot = count[USED]
            count[USED] += 1
            table[at, 0], table[at, 1] = key, slot
            held[slot, TILES], held[slot, SENDER], held[slot, TOLD] = 0, row[SENDER], -1
            count[GONE_COUNT] += 1
        else:
            order = newness(row, held[slot])
        if order < 0:
            count[LATE] += 1
            continue
        mine = held[slot]
        told = mine[TOLD]
        if row[WORD] >> 15 & 1 and not (side and (told == -1 or told == row[SENDER])):
            silent = 1
        count[ASKED] |= row[WORD] >> 11 & 7
        past, now = states[0], states[1]
        if count[ASKED] and order > 0:
            _copy_held(mine, past)
            states[2, 0] = key
            copy(row, states[3])
        if side and mine[SENDER] != row[SENDER]:
            rehomed[count[REHOMED]] = i
            count[REHOMED] += 1
            mine[SENDER] = row[SENDER]
        block, at = _position(slot, tile[2 * side], tile[2 * side + 1], slots, nexts)
        asks = count[ASKED] and block != -1 and states[2, 0] == key and newness(row, states[3]) == 0
        is_gone = gone == 1 and row[WORD] >> 14 & 1 == 0
        x = y = z = reach = 0.0
        if gone:
            asks = asks and not (side and is_gone)
            if asks:
                _copy_held(past, now)
                now[VERSION] = row[VERSION]
                if not is_gone:
                    copy(row, now)
                    _locate(now, shapes)
            if order > 0:
                # The zone stays until the next move brings another: by it the tiles here can be found.
                mine[VERSION] = row[VERSION]
                mine[WORD] = mine[WORD] & 0xFFFFFFFF | row[WORD] >> 32 << 32
                mine[ID] = row[ID]
            if block != -1:
                _remove(tile, side, block, at, places, slots, nexts, count)
                mine[TILES] -= 1
                if mine[TILES] == 0:
                    count[GONE_COUNT] += 1
        else:
            # A deletion of the same version may have come before, hence also where it is the same.
            copy(row, mine)
            mine[TOLD] = told if silent else row[SENDER]
            _locate(mine, shapes)
            if block == -1:
                block, at = _append(tile, side, places, slots, nexts, count)
                slots[block, at] = slot
                if mine[TILES] == 0:
                    count[GONE_COUNT] -= 1
                mine[TILES] += 1
                asks = False
            x, y, z, reach = _near(mine, tile)
            places[block, 0, at], places[block, 1, at], places[block, 2, at] = x, y, z
            places[block, 3, at] = reach
            now = mine
        if asks and (gone or not silent):
            lists = places, slots, nexts
            made = _part(tile, side, past, now, is_gone, held, *lists, ends, attributes, out, made, shapes)
        if gone or silent:
            continue
        other = tile[2 - 2 * side]
        while other != -1:
            near = within_reach(x, y, z, reach, places[other].ctypes.data)
            while near:
                theirs = held[slots[other, lowest(near)]]
                near &= near - 1
                pub, sub = (theirs, mine) if side else (mine, theirs)
                if _meet(pub, sub, ends, attributes, shapes) and _chosen(row[TILE], pub, sub, tiling, shapes):
                    _matched(pub, sub, 0, out[made], shapes)
                    made += 1
            other = nexts[other]
    count[OUT] = made
    return len(rows)


@array_kernel
def forget(
    which: Read[np.uint8],
    whole: Read[np.uint8],
    held: WriteRows[np.int64],
    tiles: WriteRows[np.int64],
    places: WriteBlocks[np.float32],
    slots: WriteRows[np.int32],
    nexts: Write[np.int64],
    count: Write[np.int64],
) -> None:
    """Takes some of the entities that are held out of all tiles, and all of them out of some tiles."""
    for number in range(count[LISTS]):
        tile = tiles[number]
        for side in range(2):
            block, at = tile[2 * side], (tile[2 * side + 1] - 1) % BLOCK
            # From the last to the first: what moves to a place was looked at before.
            while block != -1:
                following = nexts[block]
                while at >= 0:
                    slot = slots[block, at]
                    if whole[number] or which[slot]:
                        _remove(tile, side, block, at, places, slots, nexts, count)
                        held[slot, TILES] -= 1
                        if held[slot, TILES] == 0:
                            count[GONE_COUNT] += 1
                    at -= 1
                block, at = following, BLOCK - 1
