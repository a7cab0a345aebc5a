"""A live map of a system of tiles: a client whose subscriptions are what browsers show, and areas.

Each browser is a subscription of its own: the box that it shows. Things there match it whenever they move,
and all of them when the box does; so nothing is asked for that no browser shows.
"""

from __future__ import annotations

import logging
import math
import secrets
import socket
import threading
import time
from collections.abc import Collection, Iterable, Mapping
from typing import Any

from numpy.typing import ArrayLike

from evflow import mishaps
from evflow.closing import Closing
from evflow.errors import EvflowError
from evflow.mishaps import CONTAINED
from evflow.tiles.connection import connect
from evflow.tiles.map.scene import Add, Browser, Drop, Scene
from evflow.tiles.messages import SUBSCRIPTION, Rows
from evflow.tiles.moves import Zones, moves_of

__all__ = ["Map"]

_log = logging.getLogger("evflow.tiles.map")

_LOOK, _RENEW = 0.2, 3.0
"""Seconds between two changes of what is subscribed to; after which all things are asked for anew."""

MOST_OWN = 200
"""Areas that browsers may add."""

_PATIENCE = 5.0
"""Seconds after which the page says that the system does not answer."""


class Map(Closing):
    """A live map of a system of tiles, for browsers. All methods may be called in any thread.

    Args:
        contact: as that of ``connect``.
        attributes: those that a publication must have to be shown.
        host: where to listen; there is no login, so whoever reaches this address sees the map.
        port: where to listen; 0 for any that is free.
        origins: where else pages may come from that use the map, such as ``https://map.example`` of a proxy.
        view: what the page shows first: latitude, longitude, and the zoom of web maps.
        settings: further arguments of ``connect``, such as ``keys``.

    Raises:
        EvflowError: the package websockets is not installed; nobody answers; or the address cannot be had.

    Attributes:
        url: the address of the page.
    """

    def __init__(
        self,
        contact: str,
        attributes: Mapping[str, Any] | None = None,
        *,
        host: str = "127.0.0.1",
        port: int = 0,
        origins: Iterable[str] = (),
        view: tuple[float, float, float] = (25.0, 0.0, 2.0),
        **settings: Any,
    ) -> None:
        try:
            from evflow.tiles.map.sockets import Sockets
        except ModuleNotFoundError as error:
            raise EvflowError(
                f"the map needs the package {error.name}, which is not installed: pip install 'evflow[map]'"
            ) from None
        self._attributes, self._scene = dict(attributes or {}), Scene(secrets.randbits(60))
        # What browsers show and areas that they added are subscriptions; boxes of this extent are refused.
        self._shown, self._own, self._refused = set[int](), set[int](), math.inf
        self._is_closed = threading.Event()
        listening, url, own = _listening(host, port)
        self.url = f"{url}#{','.join(f'{number:.6g}' for number in view)}"
        try:
            self._client = connect(contact, self._scene.take, **settings)
        except BaseException:
            listening.close()
            raise
        self._sockets = Sockets(self._scene, listening, {*own, *origins})
        self._thread = threading.Thread(target=self._steer, name="evflow map steers", daemon=True)
        self._thread.start()

    @property
    def refused(self) -> int:
        """Connections of browsers that were ended because of what they did, or were too many."""
        return self._sockets.refused

    def show(self, ids: ArrayLike, zones: Zones) -> None:
        """Draws areas, or draws them elsewhere: subscriptions of a client of this program.

        Args:
            ids: one integer, or (N,).
            zones: one zone or many, as ``Connection.subscribe`` takes them: circles, boxes, polygons.

        Raises:
            EvflowError: something is wrong with them, or the map would have too many; nothing is drawn.
        """
        self._scene.show(*moves_of(SUBSCRIPTION, ids, zones))

    def hide(self, ids: ArrayLike) -> None:
        """Draws areas no more.

        Args:
            ids: one integer, or (N,).
        """
        self._scene.hide(moves_of(SUBSCRIPTION, ids, None)[0]["id"])

    def flash(self, matches: Rows) -> None:
        """Has areas and things flash.

        Args:
            matches: rows of ``MATCH`` of a client of this program; those of other areas are passed over.
        """
        self._scene.take(matches)

    def close(self) -> None:
        """Ends it, and its subscriptions."""
        if self._is_closed.is_set():
            return
        self._is_closed.set()
        self._sockets.close()
        self._thread.join()
        self._client.close()

    # --- the thread that subscribes to what browsers show

    def _steer(self) -> None:
        while not self._is_closed.wait(_LOOK):
            try:
                self._look()
            except EvflowError as error:
                there = list(self._scene.browsers)
                if any(browser.answers for browser in there):
                    _log.warning("map: %s", error)
                for browser in there:
                    browser.answers, browser.is_changed = False, True
            except CONTAINED as error:
                mishaps.tell(_log, "map", "what browsers show is not subscribed to", error)
        try:
            self._unsubscribe([*self._shown, *self._own])
            self._client.drain(_PATIENCE)
        except EvflowError as error:
            _log.warning("map: its subscriptions may stay: %s", error)

    def _look(self) -> None:
        """Makes subscriptions what browsers show and want now."""
        there = {browser.number: browser for browser in list(self._scene.browsers)}
        self._unsubscribe(self._shown - set(there))
        self._shown &= set(there)
        for browser in there.values():
            while browser.asked:
                self._change(browser, browser.asked.popleft())
            if (box := browser.wanted) is not None:
                self._watch(browser, box)
                if browser.wanted is box:
                    browser.wanted = None
            elif browser.watched is not None and time.monotonic() > browser.renewed + _RENEW:
                # What is not there any more does not match again.
                self._is_taken(browser.number, browser.watched, self._attributes)
                browser.stamp, browser.renewed = browser.stamp + 1, time.monotonic()
                browser.is_changed = True
            browser.is_changed |= not browser.answers
            browser.answers = True

    def _watch(self, browser: Browser, box: tuple[float, ...]) -> None:
        """Subscribes to a box, or to as much of its middle as the Frontends let a zone have."""
        self._shown.add(browser.number)
        while _extent(box) >= self._refused or not self._is_taken(browser.number, box, self._attributes):
            self._refused = min(self._refused, _extent(box))
            south, west, north, east = box
            high, wide = (north - south) / 6, (east - west) / 6
            box = (south + high, west + wide, north - high, east - wide)
            if north - south < 1e-9:
                return browser.notes.append("The Frontends refuse every box here.")
        browser.watched, browser.is_changed = box, True

    def _is_taken(self, number: int, zone: tuple[float, ...], attributes: Mapping[str, Any]) -> bool:
        before = self._client.refused
        self._client.subscribe(number, zone, attributes)
        self._client.drain(_PATIENCE)
        return self._client.refused == before

    def _change(self, browser: Browser, asked: Add | Drop) -> None:
        """Makes an area that a browser wants, or deletes one that a browser wanted."""
        if isinstance(asked, Drop):
            if int(asked.id) not in self._own:
                browser.notes.append("This area belongs to another program.")
            self._unsubscribe({int(asked.id)} & self._own)
            return self._own.discard(int(asked.id))
        if len(self._own) >= MOST_OWN:
            return browser.notes.append(f"Browsers have {MOST_OWN} areas already; remove one before.")
        number, zone = next(self._scene.numbers), (asked.latitude, asked.longitude, asked.radius)
        # It is there before its first matches are.
        self.show(number, zone)
        self._own.add(number)
        if not self._is_taken(number, zone, self._attributes):
            self._own.discard(number)
            self.hide(number)
            browser.notes.append("This area is too large: zoom in, and add a smaller one.")

    def _unsubscribe(self, numbers: Collection[int]) -> None:
        if numbers:
            self._client.unsubscribe(list(numbers))
            self.hide(list(numbers))


def _extent(box: tuple[float, ...]) -> float:
    """A measure of how many tiles a box touches: its size on Mercator's map."""
    south, north = (math.asinh(math.tan(math.radians(max(-85.0, min(85.0, box[i]))))) for i in (0, 2))
    return (north - south) * (box[3] - box[1])


def _listening(host: str, port: int) -> tuple[socket.socket, str, set[str]]:
    """A socket that listens, the address of the page there, and where that page comes from."""
    try:
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        listening = socket.create_server((host, port), family=family)
    except (OSError, OverflowError) as error:
        raise EvflowError(f"the map cannot listen at {host!r}, port {port}: {error}") from error
    port, shown = listening.getsockname()[1], f"[{host}]" if ":" in host else host
    origins = {f"http://{name}:{port}" for name in (shown, "localhost", "127.0.0.1", "[::1]")}
    return listening, f"http://{shown}:{port}/", origins
