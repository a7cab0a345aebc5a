"""What was seen over the bridges that lead to a stone, as bytes: it goes along when the stone moves."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgpack

from evflow.errors import LinkError
from evflow.link.messages import MOST_PATH
from evflow.link.tags import Known
from evflow.outside import Malformed, from_msgpack, shown

__all__ = ["pack_seen", "unpack_seen"]

_MOST_BYTES = 64 << 20
_NAME = 4096
_DEPTH = 6  # [stone, [[bridge, [[route, path, safe path], …]], …]]
_MOST = (1 << 63) - 1


def pack_seen(stone: str, known: Mapping[str, list[Known]]) -> bytes:
    """As msgpack: [stone, [[bridge, [[route, path, safe path], …]], …]]."""
    packed: bytes = msgpack.packb([stone, [*known.items()]])
    return packed


def unpack_seen(data: bytes) -> tuple[str, dict[str, list[Known]]]:
    """The stone, and by bridge what was seen.

    Raises:
        LinkError: the bytes are not what ``pack_seen`` makes.
    """
    try:
        whole = from_msgpack(data, _MOST_BYTES, maps=False, depth=_DEPTH)
    except Malformed as error:
        raise LinkError(f"what a stone has seen: {error}") from None
    stone, bridges = _fields(whole, "[stone, bridges]", 2)
    found: dict[str, list[Known]] = {}
    for entry in _list(bridges, "a list of bridges"):
        bridge, routes = _fields(entry, "[bridge, routes]", 2)
        found[_name(bridge)] = [_known(route) for route in _list(routes, "a list of routes")]
    return _name(stone), found


def _known(value: Any) -> Known:
    route, path, safe = _fields(value, "[route, path, safe path]", 3)
    if type(route) is not bytes or len(route) != 16:
        raise _wrong("a route of 16 bytes", route)
    known = Known(route, _path(path), _path(safe))
    if not known.path or known.safe > known.path:
        raise _wrong("a path, and before it one that is safe, or none", value)
    return known


def _path(value: Any) -> tuple[int, ...]:
    whole = type(value) is list and all(type(number) is int and 0 <= number <= _MOST for number in value)
    if not whole or len(value) > MOST_PATH:
        raise _wrong(f"a path of up to {MOST_PATH} numbers", value)
    return tuple(value)


def _fields(value: Any, expected: str, count: int) -> list[Any]:
    if type(value) is not list or len(value) != count:
        raise _wrong(expected, value)
    return value


def _list(value: Any, expected: str) -> list[Any]:
    if type(value) is not list:
        raise _wrong(expected, value)
    return value


def _name(value: Any) -> str:
    if type(value) is not str or len(value) > _NAME:
        raise _wrong("a name", value)
    return value


def _wrong(expected: str, found: Any) -> LinkError:
    return LinkError(f"what a stone has seen: expected {expected}, found {shown(found)}")
