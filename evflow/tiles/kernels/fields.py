"""What kernels read of rows, and what they count."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

Words = NDArray[np.int64]
Floats = NDArray[np.float64]

ID, VERSION, WORD, CONTENT, ISSUER, SENDER, ZONE, TILE = 0, 1, 2, 3, 4, 5, 6, 10
"""Where the fields of a move stand among its words; kind, flags, grid and home are one word."""
MOVE_WORDS = 11
KEY_WORDS = 4
"""The first words of a match, which are its key."""
LATE, REFUSED, USED, LISTS, BLOCKS, FREE, OUT, REHOMED, GONE_COUNT, ASKED = range(10)
"""What the numbers of a store count; ``ASKED`` has the events that any subscription asks for, as bits."""
AHEAD = 16
"""Moves for which memory is asked at once."""
BLOCK = 32
"""Zones that lie together in a tile."""
X, COVER, TILES = 11, 14, 15
"""Of what a Tile Manager holds: the unit vector of the middle, metres that cover the zone, its tiles here."""
TOLD = TILE
"""Also: the ``sender`` with which its matches were told last; -1 if others may have found some, as of what
came by a snapshot."""
HELD_WORDS = 16
CENTRE, NUMBER = 4, 7
"""Of a tile: head and count of publications, then of subscriptions; the unit vector of its middle, its id."""

U: Any = np.uint64
I: Any = np.int64  # noqa: E741
