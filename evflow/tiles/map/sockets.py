"""The server of a map: the files of its page, and a WebSocket for each browser, which costs only itself."""

from __future__ import annotations

import asyncio
import importlib.resources
import logging
import socket
import threading
import time
from collections.abc import Iterable
from contextlib import suppress
from http import HTTPStatus

from websockets.asyncio.server import ServerConnection, serve
from websockets.datastructures import Headers
from websockets.exceptions import ConnectionClosed
from websockets.http11 import Request, Response
from websockets.typing import Origin

from evflow import mishaps
from evflow.errors import EvflowError
from evflow.mishaps import CONTAINED
from evflow.tiles.map.scene import Browser, Scene, parse

__all__ = ["Sockets"]

_log = logging.getLogger("evflow.tiles.map")
# What strangers do is counted, and makes no lines.
_strangers = logging.getLogger("evflow.tiles.map.strangers")
_strangers.setLevel(logging.CRITICAL)

MOST_BROWSERS = 16

MOST_CONNECTIONS = 64
"""At one time, with those that load the page; then the oldest that is not yet a browser has to go."""

MOST_BYTES = 4 << 10
"""Of a message of a browser."""

MOST_ASKED = 50
"""Messages of a browser in a second."""

PATIENCE = 10.0
"""Seconds that a browser has to take a frame."""

_FRAME, _QUIET = 0.08, 1.0
"""Seconds between two frames, and from one that tells nothing to the next such one."""

_PAGE = "text/html; charset=utf-8"
_FILES = {
    "index.html": _PAGE, "map.js": "text/javascript", "map.css": "text/css", "land.json": "application/json",
    "leaflet.js": "text/javascript", "leaflet.css": "text/css",
}  # fmt: skip
_HEADERS = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src data:; "
    "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "Cache-Control": "no-cache",
    "X-Content-Type-Options": "nosniff",
}


class Sockets:
    """The server, in a thread of its own.

    Args:
        scene: what browsers are told, and where they say what they want.
        listening: a socket that listens.
        origins: where pages may come from.

    Attributes:
        refused: connections that were ended because of what they did, or were too many.
    """

    def __init__(self, scene: Scene, listening: socket.socket, origins: Iterable[str]) -> None:
        self.refused = 0
        self._scene, self._origins = scene, [Origin(origin) for origin in origins]
        page = importlib.resources.files("evflow.tiles.map") / "page"
        self._files = {f"/{name}": (kind, (page / name).read_bytes()) for name, kind in _FILES.items()}
        self._files["/"] = self._files.pop("/index.html")
        # Each connection that there is, the oldest first, and whether it is a browser.
        self._connections: dict[ServerConnection, bool] = {}
        self._loop = asyncio.new_event_loop()
        self._end = asyncio.Event()
        self._thread = threading.Thread(
            target=self._loop.run_until_complete, args=(self._run(listening),), name="evflow map", daemon=True
        )
        self._thread.start()

    def close(self) -> None:
        """Ends it, and all connections."""
        self._loop.call_soon_threadsafe(self._end.set)
        self._thread.join()
        self._loop.close()

    async def _run(self, listening: socket.socket) -> None:
        sockets = self

        class Watched(ServerConnection):
            def connection_made(self, transport: asyncio.BaseTransport) -> None:
                super().connection_made(transport)
                sockets._came(self)

            def connection_lost(self, error: Exception | None) -> None:
                sockets._connections.pop(self, None)
                super().connection_lost(error)

        async with serve(
            self._browse,
            sock=listening,
            origins=self._origins,
            process_request=self._answer,
            create_connection=Watched,
            # What goes to browsers is numbers, which take longer to compress than to send on this host.
            compression=None,
            max_size=MOST_BYTES,
            close_timeout=1,
            server_header=None,
            logger=_strangers,
        ):
            await self._end.wait()
            for connection in list(self._connections):
                connection.transport.abort()

    def _came(self, connection: ServerConnection) -> None:
        self._connections[connection] = False
        if len(self._connections) > MOST_CONNECTIONS:
            oldest = next(
                (one for one, is_browser in self._connections.items() if not is_browser), connection
            )
            self._refuse(oldest)

    def _refuse(self, connection: ServerConnection) -> None:
        self.refused += 1
        # At once: many may come before this one is told that it is lost.
        self._connections.pop(connection, None)
        connection.transport.abort()

    def _answer(self, connection: ServerConnection, request: Request) -> Response | None:
        """A file of the page; None where a WebSocket is to be opened."""
        if request.path == "/live":
            if len(self._scene.browsers) < MOST_BROWSERS:
                return None
            self.refused += 1
            return connection.respond(HTTPStatus.SERVICE_UNAVAILABLE, "The map has too many browsers.\n")
        if request.path not in self._files:
            return connection.respond(HTTPStatus.NOT_FOUND, "The map has no such page.\n")
        kind, body = self._files[request.path]
        sizes = {"Content-Type": kind, "Content-Length": str(len(body)), "Connection": "close"}
        return Response(200, "OK", Headers(**_HEADERS, **sizes), body)

    async def _browse(self, connection: ServerConnection) -> None:
        """One browser, until it goes or has to go."""
        if len(self._scene.browsers) >= MOST_BROWSERS:
            return self._refuse(connection)
        self._connections[connection] = True
        browser = self._scene.join()
        telling = asyncio.create_task(self._tell(connection, browser))
        try:
            began, count = 0.0, 0
            async for text in connection:
                if time.monotonic() > began + 1:
                    began, count = time.monotonic(), 0
                count += 1
                if count > MOST_ASKED:
                    raise EvflowError(f"more than {MOST_ASKED} messages in a second")
                browser.take(parse(text))
        except EvflowError as error:
            self.refused += 1
            await connection.close(1008, str(error)[:120])
        except ConnectionClosed:
            pass
        except CONTAINED as error:
            mishaps.tell(_log, "map", "a browser is ended", error)
        finally:
            telling.cancel()
            self._scene.leave(browser)

    async def _tell(self, connection: ServerConnection, browser: Browser) -> None:
        told = 0.0
        with suppress(ConnectionClosed):
            while True:
                await asyncio.sleep(_FRAME)
                if browser.is_changed or browser.notes or time.monotonic() > told + _QUIET:
                    told = time.monotonic()
                    try:
                        # Meanwhile what comes replaces what waits.
                        await asyncio.wait_for(connection.send(self._scene.frame(browser)), PATIENCE)
                        while browser.notes:
                            await asyncio.wait_for(connection.send(browser.notes.popleft()), PATIENCE)
                    except TimeoutError:
                        return self._refuse(connection)
