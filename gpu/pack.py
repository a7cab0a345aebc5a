"""Events as kernels read them: one record of 32 bytes an attribute, and the bytes of their strings."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from evflow.events.gather import starts_of
from evflow.matching.rows import TEXT, EventRows

__all__ = ["ATTRIBUTE", "attributes", "gathered", "places"]

ATTRIBUTE = np.dtype(
    [
        ("number", np.float64),
        ("start", np.int32),
        ("size", np.int32),
        ("kind", np.int32),
        ("text", np.int32),
        ("chars", np.int32),
        ("length", np.int32),
    ]
)
"""``Attribute`` of ``gpu/kernels/values.cuh``."""


def places(events: EventRows) -> NDArray[np.float64]:
    """(N, 3): where each event happened, with NaN for nowhere and 0 for a third coordinate on the plane."""
    found = np.zeros((len(events), 3))
    found[:, : events.place.shape[1]] = events.place
    found[~np.isfinite(found).all(axis=1)] = np.nan
    return found


def attributes(events: EventRows, which: NDArray[np.int64]) -> NDArray[np.void]:
    """Records of these attributes, without ``start``, ``size`` and ``chars``."""
    made = np.zeros(len(which), ATTRIBUTE)
    made["number"] = events.number[which]
    made["kind"] = events.kind[which]
    made["text"] = events.text[which]
    made["length"] = np.where(events.kind[which] == TEXT, events.char_length[which], 0)
    return made


def gathered(events: EventRows, which: NDArray[np.int64]) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    """The bytes of these attributes' strings, one after the other.

    Returns:
        The bytes, and for each attribute where its own start; one more for the end.
    """
    length = np.where(events.kind[which] == TEXT, events.char_length[which], 0).astype(np.int64)
    bounds = starts_of(length)
    shift = np.where(length > 0, events.char_start[which], 0) - bounds[:-1]
    return events.chars[np.repeat(shift, length) + np.arange(bounds[-1])], bounds
