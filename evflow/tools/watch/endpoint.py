"""The HTTP server of the metrics, bounded in connections, bytes and time, whatever its clients do.

Each connection has a thread, and ends with its answer. Where one too many comes the oldest has to go: a
scrape takes milliseconds, so the oldest is one that says nothing, says it slowly, or does not read.
"""

from __future__ import annotations

import logging
import socket
import sys
import threading
import time
from contextlib import suppress
from io import BytesIO
from socketserver import ThreadingMixIn
from typing import TYPE_CHECKING, Any
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer

from evflow import mishaps
from evflow.closing import Closing

if TYPE_CHECKING:
    from wsgiref.types import WSGIApplication

MOST_CONNECTIONS = 32
"""Connections at one time."""

MOST_BYTES = 16 << 10
"""Bytes of a request."""

PATIENCE = 10.0
"""Seconds from the beginning of a connection to its end."""

_BACKLOG = 128
_GLANCE = 0.5
"""Seconds between two looks at connections that have had their time."""

_TOO_LARGE = b"HTTP/1.0 431 Request Header Fields Too Large\r\nContent-Length: 0\r\n\r\n"

_log = logging.getLogger("evflow.watch")


class Endpoint(Closing):
    """Where Prometheus scrapes a node; made by ``evflow.tools.watch.metrics.serve``.

    Args:
        application: what answers.
        address: where to listen.
        port: where to listen; 0 for any that is free.

    Raises:
        OSError: the address cannot be had.
        OverflowError: no port has this number.

    Attributes:
        url: what to scrape.
    """

    def __init__(self, application: WSGIApplication, address: str, port: int) -> None:
        self._server = _server(application, address, port)
        self._thread = threading.Thread(
            target=self._server.serve_forever, args=(_GLANCE,), name="evflow metrics", daemon=True
        )
        self._thread.start()
        host, port = self._server.server_address[:2]
        shown = f"[{host!s}]" if ":" in str(host) else str(host)
        self.url = f"http://{shown}:{port}/metrics"

    def close(self) -> None:
        """Ends it, and the connections that there are."""
        self._server.wake()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


class _Server(ThreadingMixIn, WSGIServer):
    daemon_threads = True
    request_queue_size = _BACKLOG

    def __init__(self, address: Any, family: socket.AddressFamily) -> None:
        self.address_family = family
        # When each connection began; the oldest is first.
        self._began: dict[socket.socket, float] = {}
        self._guard = threading.Lock()
        self._ends = False
        super().__init__(address, _Handler)

    def wake(self) -> None:
        """Lets the server's loop look up at once, which is about to be ended."""
        self._ends = True
        with suppress(OSError):
            self.socket.shutdown(socket.SHUT_RDWR)

    def get_request(self) -> tuple[socket.socket, Any]:
        if self._ends:
            raise OSError("the endpoint is being closed")
        try:
            return super().get_request()
        except OSError as error:
            if self._ends:
                raise
            mishaps.tell(_log, "metrics", "a connection cannot be taken", error)
            # It is still there, and would be tried again at once.
            time.sleep(_GLANCE)
            raise

    def process_request(self, request: Any, client_address: Any) -> None:
        with self._guard:
            if len(self._began) >= MOST_CONNECTIONS:
                self._end(next(iter(self._began)))
            self._began[request] = time.monotonic()
        super().process_request(request, client_address)

    def service_actions(self) -> None:
        """Ends connections that have had their time; called by the server's loop."""
        late = time.monotonic() - PATIENCE
        with self._guard:
            for request in [request for request, began in self._began.items() if began < late]:
                self._end(request)

    def _end(self, request: socket.socket) -> None:
        # Its thread has it still, which finds that it has ended and closes it.
        del self._began[request]
        with suppress(OSError):
            request.shutdown(socket.SHUT_RDWR)

    def shutdown_request(self, request: Any) -> None:
        # Before it is closed: its number may be that of another file afterwards.
        with self._guard:
            self._began.pop(request, None)
        super().shutdown_request(request)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Tells of what failed; called where it is being handled."""
        error = sys.exc_info()[1]
        # A client who has gone, or had to go, misses nothing.
        if error is not None and not isinstance(error, OSError):
            mishaps.tell(_log, "metrics", "a request is not answered", error)

    def server_close(self) -> None:
        super().server_close()
        with self._guard:
            for request in list(self._began):
                self._end(request)


class _Handler(WSGIRequestHandler):
    def setup(self) -> None:
        super().setup()
        self.rfile = BytesIO(self._head())

    def _head(self) -> bytes:
        """A request up to its empty line; nothing if the client has gone, or says too much."""
        head = b""
        while b"\r\n\r\n" not in head:
            part = self.connection.recv(4096)
            head += part
            if not part:
                return b""
            if len(head) > MOST_BYTES:
                self.connection.sendall(_TOO_LARGE)
                return b""
        return head

    def log_message(self, format: str, *args: Any) -> None:
        """Nothing: a scrape makes no line."""


def _server(application: WSGIApplication, address: str, port: int) -> _Server:
    found = socket.getaddrinfo(address, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    family, _, _, _, place = found[0]
    server = _Server(place[:2], family)
    server.set_app(application)
    return server
