"""Texts without the difference of upper and lower case: the full case folding of Unicode.

It is what ``str.casefold`` does (The Unicode Standard, section 3.13, toCasefold): character by character, so
``ß`` becomes ``ss``. Nothing is normalised: ``é`` and an ``e`` with a combining accent stay two things.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from evflow.events.gather import gather, starts_of

_Int64s = NDArray[np.int64]
_Bytes = NDArray[np.uint8]

_ASCII = np.frombuffer(bytes(range(256)).lower(), np.uint8)
"""The folded byte of each that is a character by itself."""


def folded(piece: bytes) -> bytes:
    """The UTF-8 bytes of a text, folded.

    Args:
        piece: the UTF-8 bytes of the text; what is not UTF-8 in them stays as it is.

    Example:
        >>> folded("STRASSE".encode()) == folded("Straße".encode())
        True
    """
    return piece.decode("utf-8", "surrogateescape").casefold().encode("utf-8", "surrogateescape")


def folded_pieces(
    chars: _Bytes, start: _Int64s, length: NDArray[np.int32]
) -> tuple[_Bytes, _Int64s, NDArray[np.int32]]:
    """The same of N pieces of ``chars``, of which those in ASCII are folded together.

    Args:
        chars: uint8, contiguous.
        start: int64, N: where each begins.
        length: int32, N: how many bytes it has.

    Returns:
        The folded bytes, where each piece begins in them, and its length.

    Example:
        >>> data, start, length = folded_pieces(
        ...     np.frombuffer("AbÉ".encode(), np.uint8), np.array([0, 2]), np.array([2, 2], np.int32)
        ... )
        >>> [data[at : at + size].tobytes().decode() for at, size in zip(start, length)]
        ['ab', 'é']
    """
    lengths = length.astype(np.int64)
    pieces, ends = gather(chars, start, lengths), starts_of(lengths)
    # How many bytes before each place are part of a longer character.
    beyond = np.concatenate([[0], np.cumsum(pieces >= 0x80)])[ends]
    data, start, length = [_ASCII[pieces]], ends[:-1].copy(), length.copy()
    size, known = len(pieces), dict[bytes, tuple[int, int]]()
    for row in np.flatnonzero(beyond[1:] > beyond[:-1]).tolist():
        piece = pieces[ends[row] : ends[row + 1]].tobytes()
        if piece not in known:
            made = folded(piece)
            known[piece] = size, len(made)
            size += len(made)
            data.append(np.frombuffer(made, np.uint8))
        start[row], length[row] = known[piece]
    return np.concatenate(data), start, length
