"""What a State Manager does with moves."""

from __future__ import annotations

import numpy as np

from evflow.matching.native import ReadRows, Write, WriteRows, array_kernel
from evflow.tiles.kernels.fields import (
    AHEAD,
    GONE_COUNT,
    ISSUER,
    LATE,
    OUT,
    REFUSED,
    TILE,
    USED,
    VERSION,
    WORD,
)
from evflow.tiles.kernels.tables import ask_ahead, copy, find, key_of, newness
from evflow.tiles.kernels.zones import Shapes, Tiling, fill, in_zone, span_of


@array_kernel
def advance(
    rows: ReadRows[np.int64],
    start: int,
    table: WriteRows[np.int64],
    held: WriteRows[np.int64],
    tiling: Tiling,
    count: Write[np.int64],
    out: WriteRows[np.int64],
    scratch: Write[np.int64],
    shapes: Shapes,
) -> int:
    """A State Manager takes moves, and says for each which tiles its entity leaves, enters or keeps.

    Algorithm 2. ``scratch`` has room for the tiles of two zones. Returns the row at which it stopped.
    """
    made = 0
    for i in range(start, len(rows)):
        if (i - start) % AHEAD == 0:
            ask_ahead(rows, i, table, held)
        row = rows[i]
        key = key_of(row)
        at = find(table, key)
        slot = table[at, 1]
        known = slot != -1
        gone, was, again = row[WORD] >> 9 & 1, 1, 0
        if known:
            old = held[slot]
            if row[ISSUER] != old[ISSUER]:
                count[REFUSED] += 1
                continue
            if newness(row, old) <= 0:
                count[LATE] += 1
                continue
            was = old[WORD] >> 9 & 1
            again = 1 if row[VERSION] == old[VERSION] else 0
        spanned = span_of(row, tiling, shapes)
        left = 0
        if not was:
            left = fill(held[slot], span_of(held[slot], tiling, shapes), tiling, scratch, 0, shapes)
        right = fill(row, spanned, tiling, scratch, left, shapes) if not gone else left
        if made + right > len(out):
            count[OUT] = made
            return i
        if not known:
            slot = count[USED]
            count[USED] += 1
            table[at, 0], table[at, 1] = key, slot
        count[GONE_COUNT] += gone - (was if known else 0)
        for k in range(left):
            if gone or not in_zone(scratch[k], row, spanned, tiling, shapes):
                copy(row, out[made])
                out[made, WORD] |= (2 if gone else 66) << 8
                out[made, TILE] = scratch[k]
                made += 1
        for k in range(left, right):
            copy(row, out[made])
            out[made, WORD] |= again << 15
            out[made, TILE] = scratch[k]
            made += 1
        copy(row, held[slot])
    count[OUT] = made
    return len(rows)
