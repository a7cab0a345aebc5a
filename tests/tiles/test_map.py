"""The map of tiles: its gateway with browsers of all sorts, and its page in Chromium."""

from __future__ import annotations

import importlib.util
import json
import socket
import struct
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from contextlib import ExitStack, suppress
from typing import Any
from unittest.mock import patch
from urllib.parse import urlsplit

import numpy as np
import pytest
from click.testing import CliRunner

from evflow import tiles
from evflow.errors import EvflowError
from evflow.matching import GlobePolygon
from evflow.tiles.map import gateway
from evflow.tools.cli import main
from tests.node.processes import free_port

if importlib.util.find_spec("websockets") is None:
    pytest.skip("websockets is not installed", allow_module_level=True)

from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.sync.client import ClientConnection, connect

from evflow.tiles.map import sockets
from tests.tiles.browser import Chromium, found

PLACE = (46.53, 6.63)
HELLO = (
    "GET /live HTTP/1.1\r\nHost: x\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
    "Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nOrigin: http://localhost:{port}\r\n\r\n"
)
BOX = [46.5, 6.6, 46.56, 6.66]


@pytest.fixture(autouse=True)
def _no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gateway, "_LOOK", 0.02)
    monkeypatch.setattr(sockets, "_FRAME", 0.02)


def _open(page: tiles.Map, **settings: Any) -> ClientConnection:
    url = urlsplit(page.url)
    settings.setdefault("origin", f"http://localhost:{url.port}")
    return connect(f"ws://{url.netloc}/live", proxy=None, compression=None, **settings).__enter__()


class Reader:
    """A browser that keeps what frames tell."""

    def __init__(self, page: tiles.Map) -> None:
        self.socket = _open(page)
        self.things: dict[int, list[float]] = {}
        self.areas: dict[int, list[float]] = {}
        self.pairs: list[tuple[int, int]] = []
        self.corners: list[tuple[float, float]] = []
        self.matched, self.head, self.notes = 0, np.zeros(12), list[str]()

    def say(self, **message: Any) -> None:
        self.socket.send(json.dumps(message))

    def until(self, is_right: Callable[[], bool], seconds: float = 20) -> None:
        ends = time.monotonic() + seconds
        while not is_right():
            assert time.monotonic() < ends, vars(self)
            self.read(self.socket.recv(timeout=seconds))

    def read(self, frame: str | bytes) -> None:
        if isinstance(frame, str):
            self.notes.append(frame)
            return
        self.head, whole = np.frombuffer(frame[:96], "<f8"), np.frombuffer(frame, "<i8")
        at = 12
        for count, width, table in zip(self.head, (3, 6), (self.things, self.areas), strict=False):
            for _ in range(int(count)):
                table[int(whole[at])] = whole[at + 1 : at + width].view("<f8").tolist()
                at += width
        pairs, corners = np.split(whole[at:].reshape(-1, 2), [int(self.head[2])])
        self.pairs += map(tuple, pairs.tolist())
        self.corners = list(map(tuple, corners.view("<f8").tolist())) or self.corners
        self.matched += int(self.head[3])


@pytest.mark.slow
def test_browsers_see_what_moves_in_their_boxes_and_make_areas(contact: str) -> None:
    with tiles.Map(contact, {"kind": "taxi"}) as page, tiles.connect(contact) as client:
        one, other = Reader(page), Reader(page)
        client.publish([1, 2], [(*PLACE, 5), (46.54, 6.64, 5)], {"kind": "taxi"})
        client.publish(3, (*PLACE, 5), {"kind": "bus"})
        one.say(type="look", box=BOX)
        one.until(lambda: set(one.things) == {1, 2})
        assert one.things[1] == pytest.approx(PLACE)
        client.move(1, (46.531, 6.631, 5))
        one.until(lambda: one.things[1] == pytest.approx([46.531, 6.631]))
        one.say(type="add", latitude=46.54, longitude=6.64, radius=100)
        one.until(lambda: len(one.areas) == 1 and one.matched == 1)
        (area,) = one.areas
        assert one.areas[area] == [0, 46.54, 6.64, 100, 0] and one.pairs == [(2, area)]
        other.until(lambda: set(other.areas) == {area})
        assert other.things == {}
        client.move([1, 2], [(46.54, 6.64, 5)] * 2)
        one.until(lambda: one.matched == 3)
        # The box is moved: what is in the new one comes, also what does not move.
        client.publish(4, (46.7, 6.7, 5), {"kind": "taxi"})
        one.say(type="look", box=[46.69, 6.69, 46.71, 6.71])
        one.until(lambda: 4 in one.things and one.head[7:11].tolist() == [46.69, 6.69, 46.71, 6.71])
        for number, note in ((str(area), ""), ("12", "another program")):
            one.say(type="drop", id=number)
            one.until(lambda note=note: one.areas[area][0] == 3 and note in "".join(one.notes))  # type: ignore[misc]
        one.say(type="add", latitude=0, longitude=0, radius=1e6)
        one.until(lambda: "too large" in one.notes[-1])
        with patch.object(gateway, "MOST_OWN", 0):
            one.say(type="add", latitude=0, longitude=0, radius=1)
            one.until(lambda: "already" in one.notes[-1])
        # A box that the Frontends refuse becomes its middle.
        one.say(type="look", box=[30, -20, 60, 40])
        one.until(lambda: one.head[7] < 46)
        south, west, north, east = one.head[7:11]
        assert (south + north) / 2 == pytest.approx(45) and (west + east) / 2 == pytest.approx(10)
        client.unpublish([1, 2, 3, 4])
        client.drain(20)


def test_a_program_shows_areas_of_its_own_and_their_matches(contact: str) -> None:
    with tiles.Map(contact) as page, tiles.connect(contact, lambda rows: page.flash(rows)) as client:
        areas = [(10, 10, 50), (46.6, 6.6, 50)]
        client.subscribe([11, 12], areas)
        page.show([11, 12], areas)
        reader = Reader(page)
        client.publish(13, (10, 10, 5))
        reader.until(lambda: reader.pairs == [(13, 11)])
        assert set(reader.areas) == {11, 12}
        page.show(14, GlobePolygon([(10, 10), (10, 12), (12, 10)]))
        reader.until(lambda: 14 in reader.areas)
        assert reader.areas[14][:3] == [2, 0, 5] and reader.corners[:2] == [(10, 10), (10, 12)]
        page.hide([11])
        reader.until(lambda: reader.areas[11][0] == 3)
        client.unsubscribe([11, 12])
        client.unpublish(13)
        client.drain(20)
        with pytest.raises(EvflowError, match="zones of shape"):
            page.show([1, 2], PLACE)


def _ends(page: tiles.Map, **settings: Any) -> str:
    """Why a browser is not let in, or is ended after what it says."""
    said = settings.pop("said", ())
    try:
        with _open(page, **settings) as socket:
            for text in said:
                socket.send(text)
            while True:
                socket.recv(timeout=20)
    except InvalidStatus as error:
        return str(error.response.status_code)
    except ConnectionClosed as error:
        return str(error)


@pytest.mark.slow
def test_hostile_browsers_cost_only_their_connection(contact: str) -> None:
    with (
        patch.multiple(sockets, MOST_BROWSERS=2, MOST_CONNECTIONS=8, PATIENCE=0.6),
        tiles.Map(contact) as page,
    ):
        port = urlsplit(page.url).port
        good = Reader(page)
        good.say(type="look", box=BOX)
        for origin in (None, "http://evil.example", f"http://evil.example:{port}", "null"):
            assert _ends(page, origin=origin) == "403"
        assert "1008" in _ends(page, said=["garbage"])
        assert "1008" in _ends(page, said=[b"\xff\x00"])
        assert "expected south" in _ends(page, said=[json.dumps({"type": "look", "box": [1, 1, 0, 0]})])
        assert "1009" in _ends(page, said=["x" * 5000])
        assert "messages in a second" in _ends(page, said=[json.dumps({"type": "look", "box": BOX})] * 60)
        assert "1008" in _ends(page, said=[json.dumps({"type": "drop", "id": "1"})] * 51)
        with _open(page):
            assert _ends(page) == "503"
        # Those that say nothing give way to the page, and to each other; those that say garbage are ended.
        with ExitStack() as opened:
            for head in (b"", b"\xff" * 100_000, b"GET / HTTP/1.1\r\nx: ", b"POST / HTTP/1.1\r\n\r\n") * 20:
                one = opened.enter_context(socket.create_connection(("127.0.0.1", port)))
                with suppress(OSError):
                    one.sendall(head)
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/") as answer:
                assert b"evflow tiles" in answer.read()
                assert "default-src 'none'" in answer.headers["Content-Security-Policy"]
            assert len(page._sockets._connections) <= 8
        with pytest.raises(urllib.error.HTTPError, match="404"):
            urllib.request.urlopen(f"http://127.0.0.1:{port}/../setup.py")
        # One that does not read gets no more frames; what comes meanwhile replaces what waits for it.
        ids, zones = np.arange(10_000), np.tile((46.53, 6.63, 50.0), (10_000, 1))
        before = page.refused
        slow = socket.socket()
        slow.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        slow.connect(("127.0.0.1", port))
        slow.sendall(HELLO.format(port=port).encode())
        # Its connection is ended whatever the kernel keeps for it, a few megabytes at most.
        ends = time.monotonic() + 20
        while page.refused == before:
            assert time.monotonic() < ends
            page.show(ids, zones)
            time.sleep(0.05)
            with suppress(TimeoutError):
                good.read(good.socket.recv(timeout=0))
        slow.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        slow.close()
        page.hide(ids)
        good.until(lambda: len(good.areas) == len(ids) and {area[0] for area in good.areas.values()} == {3})
        assert page.refused >= 10


def test_the_command_serves_the_map(contact: str, monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[Any] = []

    def make(*arguments: Any, **settings: Any) -> tiles.Map:
        made.append((arguments, settings))
        raise EvflowError("as far as this goes")

    monkeypatch.setattr(tiles, "Map", make, raising=False)
    run = ["tiles", "map", contact, "--port", "0", "--where", "kind=taxi", "--where", "seats=4"]
    done = CliRunner().invoke(main, [*run, "--view", "46.53", "6.63", "13", "--name", "desk"])
    assert (done.exit_code, done.output) == (1, "Error: as far as this goes\n")
    ((arguments, settings),) = made
    assert arguments == (contact, {"kind": "taxi", "seats": 4})
    assert settings["view"] == (46.53, 6.63, 13) and settings["name"] == "desk" and settings["port"] == 0
    assert "expected NAME=VALUE" in CliRunner().invoke(main, [*run, "--where", "taxi"]).output


def test_a_map_that_cannot_be_made_says_why(contact: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(EvflowError, match="no Frontend answers"):
        tiles.Map(f"tcp://127.0.0.1:{free_port()}/tiles/a", patience=0.1)
    with socket.create_server(("127.0.0.1", 0)) as taken, pytest.raises(EvflowError, match="cannot listen"):
        tiles.Map(contact, port=taken.getsockname()[1])
    monkeypatch.setitem(sys.modules, "websockets.asyncio.server", None)
    monkeypatch.delitem(sys.modules, "evflow.tiles.map.sockets")
    with pytest.raises(EvflowError, match=r"needs the package websockets.*evflow\[map\]"):
        tiles.Map(contact)


@pytest.mark.slow
def test_the_page_shows_moves_areas_and_matches_and_asks_nobody_else(
    contact: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    found()
    monkeypatch.setattr(gateway, "_RENEW", 0.4)
    port = free_port()

    def page() -> tiles.Map:
        return tiles.Map(contact, port=port, view=(*PLACE, 14))

    with tiles.connect(contact) as client, ExitStack() as opened:
        shown = opened.enter_context(page())
        client.publish([31, 32], [(*PLACE, 5), (46.535, 6.635, 5)])
        with Chromium(shown.url) as browser:
            browser.wait("document.readyState == 'complete' && things.size", lambda count: count == 2)
            assert browser.wait("byId('state').textContent", lambda text: text == "live")
            before = browser.picture()
            client.move(31, (46.531, 6.631, 5))
            place = "((thing) => [thing.lat, thing.lng])(things.get(31n))"
            browser.wait(place, lambda found: found == pytest.approx([46.531, 6.631]))
            # An area, as by a click of the right button on the second thing.
            browser.value(
                "map.fire('contextmenu', {latlng: L.latLng(46.535, 6.635),"
                " containerPoint: map.latLngToContainerPoint([46.535, 6.635])}); 0"
            )
            browser.wait("areas.size", lambda count: count == 1)
            browser.wait("things.get(32n).flash > 0 && [...areas.values()][0].flash > 0")
            browser.wait("byId('areas').textContent == '1' && byId('things').textContent == '2'")
            # A ring around the first thing, which is not in it.
            around, hole = [
                [(PLACE[0] + y * d, PLACE[1] + x * d) for y, x in ((-1, -1), (-1, 1), (1, 1), (1, -1))]
                for d in (0.008, 0.004)
            ]
            shown.show(33, GlobePolygon(around, [hole]))
            browser.wait("areas.has(33n)")
            at = "covers(areas.get(33n), map.latLngToContainerPoint([{}, {}]), projection())"
            for far, is_in in ((0, False), (0.003, False), (0.006, True), (0.009, False)):
                assert browser.value(at.format(PLACE[0] + far, PLACE[1])) is is_in
            shown.hide(33)
            browser.wait("areas.size", lambda count: count == 1)
            client.move(32, (46.535, 6.6351, 5))
            browser.wait("Number(byId('rate').textContent) > 0 || matches.length > 1")
            assert browser.picture() != before
            # What is deleted goes from the page.
            client.unpublish(32)
            browser.wait("things.size", lambda count: count == 1)
            browser.value("map.setView([46.6, 6.7]); 0")
            browser.wait("watched && watched[0] > 46.55")
            assert {urlsplit(url).netloc for url in browser.requests} == {f"127.0.0.1:{port}"}
            assert len(browser.requests) == 7 and browser.complaints == []
            # The gateway ends, and comes again.
            opened.close()
            browser.wait("byId('state').textContent", lambda text: "lost" in text)
            with page():
                browser.wait("byId('state').textContent", lambda text: text == "live")
                browser.wait("areas.size", lambda count: count == 0)
        client.unpublish(31)
        client.drain(20)


def test_browsers_are_told_when_the_system_does_not_answer(
    contact: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gateway, "_RENEW", 0.02)
    with tiles.Map(contact) as page:
        reader = Reader(page)
        reader.say(type="look", box=BOX)
        reader.until(lambda: reader.head[6] == 1 and reader.head[5] > 0)
        with patch.object(page._client, "drain", side_effect=EvflowError("moves are not acknowledged")):
            reader.until(lambda: reader.head[6] == 0)
        reader.until(lambda: reader.head[6] == 1)
