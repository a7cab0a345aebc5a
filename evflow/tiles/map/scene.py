"""What the browsers of a map are to be told, without sockets; may be used in any thread.

A browser gets frames, each at most one message: the latest place of each thing, areas that came, changed or
went, and which matched. A frame is 64-bit words, read as floating-point numbers or as integers: a head of
``HEAD`` words, then four tables. A row of things is id, latitude, longitude; of areas id, kind (0 circle,
1 box, 2 polygon, 3 gone) and four words of zone; of matches the ids of thing and area; of corners latitude,
longitude. The zone of a polygon is where its corners begin and end; a row that is not a number ends a ring.
"""

from __future__ import annotations

import itertools
import threading
from collections import deque
from collections.abc import Mapping
from typing import Annotated

import msgspec
import numpy as np
from numpy.typing import NDArray

from evflow.errors import EvflowError
from evflow.tiles.messages import CIRCLE, POLYGON, Rows
from evflow.tiles.store import outlines_of

__all__ = ["MOST_AREAS", "MOST_CORNERS", "Add", "Browser", "Drop", "Look", "Scene", "parse"]

MOST_AREAS = 10_000
"""Areas of a map."""

MOST_CORNERS = 200_000
"""Corners of the polygons among them."""

MOST_THINGS = 20_000
"""Things in a frame; others are counted as dropped."""

_MOST_ASKED = 100

_MOST_FLASHES = 2_000
"""Matches that a frame names; it counts all."""

HEAD = 12
"""Words: things, areas, matches named, matches in all, things dropped, stamp, whether the system answers, the
box that is watched (four), corners."""

_GONE = 3

_Words = NDArray[np.float64]
_Latitude = Annotated[float, msgspec.Meta(ge=-90, le=90)]
_Longitude = Annotated[float, msgspec.Meta(ge=-180, le=180)]


class Look(msgspec.Struct, tag="look", frozen=True, forbid_unknown_fields=True):
    """A browser shows this part of the world: south, west, north, east."""

    box: tuple[_Latitude, _Longitude, _Latitude, _Longitude]


class Add(msgspec.Struct, tag="add", frozen=True, forbid_unknown_fields=True):
    """A browser wants a circle as an area; the radius is in metres."""

    latitude: _Latitude
    longitude: _Longitude
    radius: Annotated[float, msgspec.Meta(gt=0, le=1e7)]


class Drop(msgspec.Struct, tag="drop", frozen=True, forbid_unknown_fields=True):
    """A browser wants an area deleted, by its number as text, since browsers have no 64-bit integers."""

    id: Annotated[str, msgspec.Meta(pattern="^[0-9]{1,18}$|^[1-4][0-9]{18}$")]


_decoder = msgspec.json.Decoder(Look | Add | Drop)


def parse(text: str | bytes) -> Look | Add | Drop:
    """A message of a browser.

    Args:
        text: JSON.

    Raises:
        EvflowError: it is not one.
    """
    try:
        message: Look | Add | Drop = _decoder.decode(text)
    except (msgspec.MsgspecError, RecursionError, UnicodeError) as error:
        raise EvflowError(f"message of a browser: {error}") from None
    if isinstance(message, Look) and not (
        message.box[0] < message.box[2] and message.box[1] < message.box[3]
    ):
        raise EvflowError(f"box {list(message.box)}: expected south < north and west < east")
    return message


class _Latest:
    """The latest row of each id that comes, for at most so many ids; rows begin with the id."""

    def __init__(self, width: int, most: int) -> None:
        self._most, self._empty = most, np.empty((0, width))
        self._parts: list[_Words] = []
        self._count = 0
        self.dropped = 0

    def put(self, rows: _Words) -> None:
        self._parts.append(rows)
        self._count += len(rows)
        if self._count > 2 * self._most:
            self._parts = [self._merged()]
            self._count = len(self._parts[0])

    def _merged(self) -> _Words:
        rows = np.concatenate([self._empty, *self._parts])[::-1]
        _, first = np.unique(rows[:, 0].copy().view(np.int64), return_index=True)
        self.dropped += max(0, len(first) - self._most)
        return rows[first[: self._most]]

    def take(self) -> _Words:
        rows = self._merged()
        self._parts, self._count = [], 0
        return rows


class Browser:
    """What one browser wants, and what it has not been told yet.

    Args:
        number: the id of the subscription that is what it shows.

    Attributes:
        wanted: the box that it wants to see and that is not subscribed to yet.
        asked: areas that it wants, and those that it wants deleted, the oldest first.
        watched: the box that is subscribed to; None before.
        renewed: when all things in there were asked for anew, by the monotonic clock.
        stamp: how often they were.
        answers: whether the system answers.
        notes: what people are to be told.
        is_changed: whether there is something to tell.
    """

    def __init__(self, number: int) -> None:
        self.number = number
        self.wanted: tuple[float, ...] | None = None
        self.asked: deque[Add | Drop] = deque()
        self.watched: tuple[float, ...] | None = None
        self.renewed, self.stamp, self.answers, self.is_changed = 0.0, 0, True, True
        self.notes: deque[str] = deque(maxlen=10)
        self._things, self._areas = _Latest(3, MOST_THINGS), _Latest(6, 2 * MOST_AREAS)
        self._pairs: list[_Words] = []
        self._named, self._matched = 0, 0

    def take(self, message: Look | Add | Drop) -> None:
        """Takes a message of the browser.

        Args:
            message: which; of several boxes the last one counts.

        Raises:
            EvflowError: too much is asked for and not done yet.
        """
        if isinstance(message, Look):
            self.wanted = message.box
        elif len(self.asked) >= _MOST_ASKED:
            raise EvflowError(f"{len(self.asked)} changes of areas wait; expected fewer at once")
        else:
            self.asked.append(message)

    def match(self, rows: Rows) -> None:
        """Things have matched areas."""
        if self._named < _MOST_FLASHES:
            self._pairs.append(_table(rows[: _MOST_FLASHES - self._named], "pub", "sub"))
            self._named += len(self._pairs[-1])
        self._matched += len(rows)
        self.is_changed = True

    def move(self, rows: Rows) -> None:
        """Things have moved; what is told is the middle of their zones."""
        zone, words = rows["zone"], _table(rows, "pub", None, None)
        is_box = rows["kind"] != CIRCLE
        words[:, 1] = np.where(is_box, (zone[:, 0] + zone[:, 2]) / 2, zone[:, 0])
        words[:, 2] = np.where(is_box, (zone[:, 1] + zone[:, 3]) / 2, zone[:, 1])
        self._things.put(words)
        self.is_changed = True

    def change(self, areas: _Words) -> None:
        """Areas came, changed or went."""
        self._areas.put(areas)
        self.is_changed = True

    def frame(self, outlines: Mapping[int, _Words]) -> bytes:
        """What has not been told yet; it counts as told then."""
        self.is_changed = False
        pairs, areas = np.concatenate([np.empty((0, 2)), *self._pairs]), self._areas.take()
        corners, end = [np.empty((0, 2))], 0
        for at in np.flatnonzero(areas[:, 1] == POLYGON).tolist():
            corners.append(outlines[int(areas[at, :1].view(np.int64)[0])])
            areas[at, 2:4] = end, end + len(corners[-1])
            end += len(corners[-1])
        tables = [self._things.take(), areas, pairs, np.concatenate(corners)]
        counts = [*map(len, tables[:3]), self._matched, self._things.dropped, self.stamp, self.answers]
        self._pairs, self._named, self._matched, self._things.dropped = [], 0, 0, 0
        head = np.array([*counts, *(self.watched or (0, 0, 0, 0)), end], np.float64)
        return b"".join(part.tobytes() for part in (head, *tables))


def _table(rows: Rows, *names: str | None) -> _Words:
    """Words: the integers of these fields, as they are; nothing where there is no name."""
    words = np.empty((len(rows), len(names)), np.int64)
    for column, name in enumerate(names):
        words[:, column] = 0 if name is None else rows[name]
    return words.view(np.float64)


def _rings(outline: tuple[bytes, ...]) -> _Words:
    """The corners of all rings, and a row that is not a number after each."""
    rings = [np.frombuffer(ring, np.float64).reshape(-1, 2) for ring in outline]
    return np.concatenate([part for ring in rings for part in (ring, np.full((1, 2), np.nan))])


class Scene:
    """The browsers of a map, and its areas.

    Args:
        first: the first number that it may give to a browser or an area; each later one is larger.

    Attributes:
        numbers: gives them.
        browsers: those that are connected.
    """

    def __init__(self, first: int) -> None:
        self.numbers = itertools.count(first)
        self.browsers: list[Browser] = []
        self._areas: dict[int, _Words] = {}
        self._outlines: dict[int, _Words] = {}
        self._lock = threading.Lock()

    def join(self) -> Browser:
        """A new browser, which is to be told of all areas."""
        with self._lock:
            browser = Browser(next(self.numbers))
            self.browsers.append(browser)
            if self._areas:
                browser.change(np.concatenate(list(self._areas.values())))
            return browser

    def leave(self, browser: Browser) -> None:
        """A browser has gone."""
        with self._lock:
            self.browsers.remove(browser)

    def frame(self, browser: Browser) -> bytes:
        """What a browser has not been told yet."""
        with self._lock:
            return browser.frame(self._outlines)

    def show(self, moves: Rows, outlines: Mapping[int, tuple[bytes, ...]] | None = None) -> None:
        """Areas that came or changed.

        Args:
            moves: subscriptions, of ``MOVE``.
            outlines: those of polygons by number, as ``moves_of`` gives them.

        Raises:
            EvflowError: there would be too many, or too many corners; nothing is shown.
        """
        words = np.concatenate([_table(moves, "id", None), moves["zone"]], axis=1)
        words[:, 1] = moves["kind"]
        ids = moves["id"].tolist()
        drawn = (
            {
                ids[at]: _rings(outlines[number])
                for at, number in zip(
                    np.flatnonzero(moves["kind"] == POLYGON), outlines_of(moves).tolist(), strict=True
                )
            }
            if outlines
            else {}
        )
        with self._lock:
            new = {number: words[i : i + 1] for i, number in enumerate(ids)}
            if len(self._areas | new) > MOST_AREAS:
                raise EvflowError(f"{len(self._areas | new)} areas: a map shows at most {MOST_AREAS}")
            kept = {number: rings for number, rings in self._outlines.items() if number not in new} | drawn
            if (corners := sum(map(len, kept.values()))) > MOST_CORNERS:
                raise EvflowError(f"polygons of {corners} corners: a map shows at most {MOST_CORNERS}")
            self._areas |= new
            self._outlines = kept
            self._change(words)

    def hide(self, ids: NDArray[np.int64]) -> None:
        """Areas that are gone; unknown ids are passed over."""
        with self._lock:
            known = [number for number in ids.tolist() if self._areas.pop(number, None) is not None]
            for number in known:
                self._outlines.pop(number, None)
            words = np.zeros((len(known), 6))
            words[:, 0] = np.array(known, np.int64).view(np.float64)
            words[:, 1] = _GONE
            self._change(words)

    def _change(self, words: _Words) -> None:
        for browser in self.browsers:
            browser.change(words)

    def take(self, rows: Rows) -> None:
        """Matches: of what browsers show with things, and of areas with things.

        Args:
            rows: of ``MATCH``.
        """
        with self._lock:
            of_areas = rows[np.isin(rows["sub"], np.fromiter(self._areas, np.int64))]
            for browser in self.browsers:
                moved = rows[rows["sub"] == browser.number]
                if len(moved):
                    browser.move(moved)
                if len(of_areas):
                    browser.match(of_areas)
