"""Attacks by somebody who reaches the port, and has no key."""

from __future__ import annotations

import socket
import time
from contextlib import suppress

from tests.siege.hostile import Foe

_GREETING = b"\xff" + bytes(8) + b"\x7f\x03\x01CURVE" + bytes(15) + b"\x00" + bytes(31)
"""What somebody says first in ZMTP 3.1."""


def loris(foe: Foe) -> None:
    """Hundreds of connections, each of which says a byte of the greeting now and then."""
    _hold(foe, 300)


def crowd(foe: Foe) -> None:
    """More connections than the node may have files."""
    _hold(foe, 1500)


def _hold(foe: Foe, count: int) -> None:
    held: list[tuple[socket.socket, int]] = []
    while foe.left:
        if len(held) < count and (one := _connected(foe)) is not None:
            held.append((one, foe.random.choice((0, 1, 10, 12, 33, 64))))
            foe.done["connections"] += 1
            if len(held) % 50:
                continue
        kept = []
        for one, said in held:
            with suppress(OSError):
                one.send(_GREETING[said : said + 1])
                kept.append((one, min(said + 1, len(_GREETING))))
        held = kept
        time.sleep(0.05)


def noise(foe: Foe) -> None:
    """Bytes of all sorts, before and after a right greeting; half of it is hung up on at once."""
    while foe.left:
        one = _connected(foe)
        if one is None:
            continue
        foe.done["connections"] += 1
        with suppress(OSError):
            if foe.random.random() < 0.7:
                one.sendall(_GREETING)
            one.sendall(foe.random.randbytes(foe.random.choice((0, 1, 100, 100_000))))
            command = b"\x04" + foe.random.choice(
                (b"\x05HELLO", b"\xc8\x05HELLO", b"\xff\xff\xff\xff", b"\x05READY")
            )
            one.sendall(command + foe.random.randbytes(200))
        one.close()


def _connected(foe: Foe) -> socket.socket | None:
    host, _, port = foe.contact.removeprefix("tcp://").rpartition(":")
    try:
        one = socket.create_connection((host, int(port)), timeout=0.5)
    except OSError:
        foe.done["not connected"] += 1
        time.sleep(0.05)
        return None
    one.settimeout(0.2)
    return one
