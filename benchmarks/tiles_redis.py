"""Redis GEO as a peer of tiles: publications in one key, subscriptions in another, a search for each move.

Needs ``redis-server`` (Debian's 7.0); the client speaks its protocol itself, so that it takes little CPU.
"""

from __future__ import annotations

import socket
import subprocess
import threading
import time
from pathlib import Path
from types import TracebackType

import numpy as np

KEYS = (b"pubs", b"subs")
RADIUS = 100 * 6372797.560856 / 6371008.8
"""Metres between the middles of two circles of 50 m that touch, on the somewhat larger globe of Redis."""

UNDER_WAY = 4
"""Batches that wait for their answers."""

_ADD = "*5\r\n$6\r\nGEOADD\r\n$4\r\n%s\r\n$%d\r\n%s\r\n$%d\r\n%s\r\n$%d\r\n%s\r\n"
_SEARCH = (
    "*8\r\n$9\r\nGEOSEARCH\r\n$4\r\n%s\r\n$10\r\nFROMLONLAT\r\n$%d\r\n%s\r\n$%d\r\n%s\r\n$8\r\nBYRADIUS\r\n"
    f"$10\r\n{RADIUS:.6f}\r\n$1\r\nm\r\n"
)


class Redis:
    """A server of its own on a socket of the host, and a client that has the methods of a ``Connection``.

    Args:
        folder: for its socket.

    Attributes:
        count: matches found.
        pid: of the server.
    """

    def __init__(self, folder: Path) -> None:
        path = folder / "redis"
        command = [
            "redis-server",
            "--port",
            "0",
            "--unixsocket",
            str(path),
            "--save",
            "",
            "--appendonly",
            "no",
        ]
        self._server = subprocess.Popen([*command, "--dir", str(folder)], stdout=subprocess.DEVNULL)
        self.pid, self.count = self._server.pid, 0
        while not path.exists():
            time.sleep(0.01)
        self._socket = socket.socket(socket.AF_UNIX)
        self._socket.connect(str(path))
        self._room = threading.Semaphore(UNDER_WAY)
        self._reader = threading.Thread(target=self._read)
        self._reader.start()

    def __enter__(self) -> Redis:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._socket.shutdown(socket.SHUT_RDWR)
        self._reader.join()
        self._socket.close()
        self._server.terminate()
        self._server.wait()

    def publish(self, ids: np.ndarray, zones: np.ndarray) -> None:
        self._send(ids, zones, 0, search=False)

    def subscribe(self, ids: np.ndarray, zones: np.ndarray) -> None:
        self._send(ids, zones, 1, search=False)

    def move(self, ids: np.ndarray, zones: np.ndarray, *, subscriptions: bool = False) -> int:
        self._send(ids, zones, int(subscriptions), search=True)
        return 0

    def drain(self, timeout: float) -> None:
        for _ in range(UNDER_WAY):
            assert self._room.acquire(timeout=timeout), "Redis answers"
        self._room.release(UNDER_WAY)

    def _send(self, ids: np.ndarray, zones: np.ndarray, side: int, *, search: bool) -> None:
        own, other = (KEYS[at].decode() for at in (side, 1 - side))
        wanted = []
        places = zip(ids.tolist(), zones[:, 0].tolist(), zones[:, 1].tolist(), strict=True)
        for id, latitude, longitude in places:
            x, y, name = f"{longitude:.9f}", f"{latitude:.9f}", str(id)
            wanted.append(_ADD % (own, len(x), x, len(y), y, len(name), name))
            if search:
                wanted.append(_SEARCH % (other, len(x), x, len(y), y))
        self._room.acquire()
        self._socket.sendall("".join(wanted).encode() + b"*1\r\n$4\r\nPING\r\n")

    def _read(self) -> None:
        while data := self._socket.recv(1 << 20):
            assert b"-ERR" not in data, data[:1000]
            # An id is told with its length; the answer to a batch ends with one PONG.
            self.count += data.count(b"$")
            for _ in range(data.count(b"+")):
                self._room.release()
