"""Polygons from well-known text and from shapely's geometries; shapely is imported on use."""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from typing import Any

import numpy as np

from evflow.errors import SubscriptionError
from evflow.matching.areas.columns import AreaColumns
from evflow.matching.literals import first_of, shown
from evflow.matching.outlines import GlobePolygon, Polygon

_KINDS = (3, 6)
"""What shapely calls a polygon and a multipolygon."""


def _shapely() -> Any:
    try:
        return importlib.import_module("shapely")
    except ImportError:
        raise SubscriptionError(
            "polygons as well-known text need shapely: pip install 'evflow[shapes]' (Polygon, GlobePolygon, "
            "Box and AreaColumns do without)"
        ) from None


def polygon_of(text: str, space: str) -> Polygon | GlobePolygon:
    """The polygon that well-known text describes.

    Args:
        text: ``POLYGON`` or ``MULTIPOLYGON``; on the globe the longitude stands first.
        space: "plane" or "globe".

    Raises:
        SubscriptionError: it is none, or shapely is not installed.

    Example:
        >>> polygon_of("POLYGON ((0 0, 4 0, 0 3, 0 0))", "plane").rings
        (((0.0, 0.0), (4.0, 0.0), (0.0, 3.0), (0.0, 0.0)),)
    """
    made = polygons_of([text], space)[0]
    assert isinstance(made, (Polygon, GlobePolygon))
    return made


def polygons_of(texts: Sequence[str], space: str, rows: Sequence[int] | None = None) -> AreaColumns:
    """Many polygons given as well-known text, without a loop over them.

    Args:
        texts: ``POLYGON`` or ``MULTIPOLYGON`` each; on the globe the longitude stands first.
        space: "plane" or "globe".
        rows: what errors call each, by number; None: they are counted from 0.

    Raises:
        SubscriptionError: one is none; names it. Or shapely is not installed.
    """
    shapely = _shapely()
    held = np.array(texts, object)
    rows = range(len(texts)) if rows is None else rows
    with np.errstate(all="ignore"):  # shapely warns of numbers that are none, in what is refused below
        found = shapely.from_wkt(held, on_invalid="ignore")
    for number in np.flatnonzero(~np.isin(shapely.get_type_id(found), _KINDS)).tolist():
        raise SubscriptionError(
            f"polygon {rows[number]}: expected POLYGON ((x y, x y, x y, x y)) or MULTIPOLYGON but found "
            f"{shown(texts[number])}"
        )
    for wrong, what in (
        (shapely.is_empty(found), "it is empty"),
        (shapely.has_z(found), "it has a third coordinate"),
    ):
        for at in first_of(wrong):
            raise SubscriptionError(f"polygon {rows[at]}: {what}")
    # Where all are of one part, each still is a list of parts.
    parts, owner = shapely.get_parts(found, return_index=True)
    _, corners, (rings, start) = (
        shapely.to_ragged_array(parts) if len(parts) else (0, np.zeros((0, 2)), ([0], [0]))
    )
    of_parts = np.append(np.searchsorted(owner, np.arange(len(texts))), len(parts))
    turned = corners[:, ::-1] if space == "globe" else corners
    return AreaColumns.polygons(turned, np.asarray(rings), np.asarray(start)[of_parts], space)
