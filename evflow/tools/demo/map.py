"""A map of where matches fell, as SVG: subscribers are dots, places circles whose area is their matches."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

_WEST, _EAST, _SOUTH, _NORTH = -126.0, -66.0, 24.0, 50.0
"""The part of the world that is drawn: the United States without Alaska and Hawaii."""
_SCALE = 20.0
"""Pixels of a degree of latitude."""
_SQUEEZE = 0.77
"""A degree of longitude over one of latitude, at 40° N."""
_TOP = 60
_WIDTH, _HEIGHT = round((_EAST - _WEST) * _SCALE * _SQUEEZE), round((_NORTH - _SOUTH) * _SCALE) + _TOP
_LARGEST = 34.0
_LABELS = 20
_LABEL = (32.0, 13.0)
"""Pixels that a name takes."""
_DOT = 4
"""Pixels between dots: subscribers nearer than that share one."""
_STYLE = (
    "text{font:11px Helvetica,Arial,sans-serif;fill:#1f2933;paint-order:stroke;stroke:#fff;stroke-width:3px}"
    ".title{font-size:16px;font-weight:bold}"
    ".dots{stroke-linecap:round;stroke-width:2.6;fill:none}.spot{fill:#c25b12;fill-opacity:.5;stroke:#8a3d06}"
)


@dataclass(frozen=True)
class Spot:
    """A place with its name and its number of matches."""

    name: str
    latitude: float
    longitude: float
    matches: int


def draw_map(
    file: Path,
    title: str,
    spots: Iterable[Spot],
    latitude: NDArray[Any],
    longitude: NDArray[Any],
    reached: NDArray[np.bool_],
) -> None:
    """Writes the map to a file.

    Args:
        file: where to; its folder must be there.
        title: a line above the map.
        spots: the places.
        latitude, longitude: where subscribers are, degrees.
        reached: which of them got a match; they are drawn in blue.
    """
    # The largest first, so that none hides another.
    ordered = sorted((spot for spot in spots if spot.matches), key=lambda spot: -spot.matches)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {_HEIGHT}" width="{_WIDTH}">',
        f'<style>{_STYLE}</style><rect width="100%" height="100%" fill="#fff"/>',
        _dots(latitude[~reached], longitude[~reached], "#cbd2d9"),
        _dots(latitude[reached], longitude[reached], "#7fb0dd"),
        *(_circle(spot, ordered[0].matches) for spot in ordered),
        *_labels(ordered),
        f'<text class="title" x="16" y="28">{escape(title)}</text>',
        '<text x="16" y="46">orange: matches, by the place where they fell (area of the circle); '
        "blue: subscribers with matches; grey: those without</text>",
        "</svg>",
    ]
    file.write_text("\n".join(parts) + "\n", encoding="utf-8")


def _project(latitude: Any, longitude: Any) -> tuple[Any, Any]:
    """Pixels of degrees."""
    return (longitude - _WEST) * _SCALE * _SQUEEZE, (_NORTH - latitude) * _SCALE + _TOP


def _dots(latitude: NDArray[Any], longitude: NDArray[Any], colour: str) -> str:
    places = np.stack(_project(latitude, longitude), axis=1)
    pixels = np.unique(np.round(places / _DOT).astype(int), axis=0) * _DOT
    inside = (pixels >= (0, _TOP)).all(axis=1) & (pixels <= (_WIDTH, _HEIGHT)).all(axis=1)
    path = "".join(f"M{x} {y}h0" for x, y in pixels[inside].tolist())
    return f'<path class="dots" stroke="{colour}" d="{path}"/>'


def _circle(spot: Spot, most: int) -> str:
    x, y = _project(spot.latitude, spot.longitude)
    radius = _LARGEST * (spot.matches / most) ** 0.5
    what = f"<title>{escape(spot.name)}: {spot.matches:,}</title>"
    return f'<circle class="spot" cx="{x:.1f}" cy="{y:.1f}" r="{radius:.1f}">{what}</circle>'


def _labels(spots: list[Spot]) -> Iterator[str]:
    """The names of the largest, but for those that another one would cover."""
    written: list[tuple[float, float]] = []
    for spot in spots[:_LABELS]:
        x, y = _project(spot.latitude, spot.longitude)
        if all(abs(x - other) > _LABEL[0] or abs(y - below) > _LABEL[1] for other, below in written):
            written.append((x, y))
            yield f'<text x="{x:.0f}" y="{y + 4:.0f}" text-anchor="middle">{escape(spot.name)}</text>'
