"""Where a frame comes from: what tells a frame that is sent again from one that is new.

The first bridge on an event's way numbers its frames; the numbers of one bridge since its process began are a
stream. A node that forwards handles a frame of a stream as a whole, so what it sends on because of it is the
same each time: the first, the second … frame into this bridge. So a frame is known for good by its route
(the stream and the bridges since) and its path (the number at the first bridge, then a number at each further
one), and along one route paths only grow, in the order of tuples.

A route names bridges and stones, and never a node, so it stays the same when a stone moves to another. It is
unambiguous all the same. A stream is 16 random bytes, and belongs to one outlet, which leads to one stone of
one node at a time. That stone's node has at most one outlet of the name of the next bridge, which again leads
to one stone; and so on. So at any time a stream and the names of the bridges that follow lead one way through
the overlay; what comes by that way over other nodes has come over the same bridges and stones, before a move
or after. Two peers may have bridges of one name to one receiver: what comes over them differs in the stream,
or in a bridge before, since no outlet leads to both. So what was seen is kept by the bridge's name alone.

An outlet whose bridge has ended may have to send again what came along a route before frames that come
another way now. What it sends is known by its own stream and number only; each frame is noted as these too.

What was seen over the bridges to a stone goes along as bytes when the stone moves.
"""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping
from typing import Annotated, Any, NamedTuple

import msgpack
import msgspec
from msgspec import Meta, Struct

from evflow.errors import LinkError
from evflow.net.link.messages import MOST_PATH
from evflow.outside import Malformed, from_msgpack

_ROUTES, _ALL_ROUTES = 10_000, 200_000
"""Routes that are known of one bridge: those of one peer, and all."""


class Provenance(Struct, frozen=True, gc=False):
    """The provenance of a frame.

    Attributes:
        route: 16 bytes.
        path: numbers, one for each bridge crossed.
    """

    route: bytes
    path: tuple[int, ...]


def next_route(route: bytes, crossed: str) -> bytes:
    """The route of what is sent on because of frames that came by ``route`` over the bridge ``crossed``."""
    return hashlib.blake2b(route + crossed.encode(), digest_size=16).digest()


class Known(NamedTuple):
    """What is known of one route: the last path that was handled, and the last that was safe, () if none."""

    route: bytes
    path: tuple[int, ...]
    safe: tuple[int, ...]


class Seen:
    """The paths that came last over one bridge, by route.

    There may be bridges of one name on several peers. Of each peer the routes that were quiet longest are
    forgotten when there are more than 10,000, so none can have those of others forgotten. Peers come and go:
    when there are more than 200,000 in all, those of the peers that were quiet longest are.

    Args:
        forgotten: called with each route that is forgotten so.
    """

    def __init__(self, forgotten: Callable[[bytes], None] = lambda route: None) -> None:
        self._forgotten = forgotten
        self._paths: dict[bytes, tuple[int, ...]] = {}
        self._safe: dict[bytes, tuple[int, ...]] = {}
        self._ends: dict[bytes, tuple[str, str]] = {}
        # By peer, each with what was quiet longest first.
        self._routes: OrderedDict[str, OrderedDict[bytes, None]] = OrderedDict()
        # The route, peer and stone of what was seen last.
        self._latest: tuple[bytes, str, str] | None = None

    def __len__(self) -> int:
        return len(self._paths)

    def __iter__(self) -> Iterator[bytes]:
        return iter(self._paths)

    def __contains__(self, route: object) -> bool:
        return route in self._paths

    def has(self, tag: Provenance) -> bool:
        """Whether a frame, or one behind it, was seen before."""
        before = self._paths.get(tag.route)
        return before is not None and tag.path <= before

    def is_new(self, tag: Provenance, peer: str = "", stone: str = "") -> bool:
        """Whether a frame was not seen before; from now on it was.

        Args:
            tag: its provenance.
            peer: who has sent it; "" if that is known from elsewhere.
            stone: the stone that it came for.
        """
        route = tag.route
        last = self._paths.get(route)
        if last is not None and tag.path <= last:
            return False
        self._paths[route] = tag.path
        if self._latest != (route, peer, stone):
            self._use(route, peer, stone)
        return True

    def _use(self, route: bytes, peer: str, stone: str) -> None:
        """Notes that something came along a route."""
        self._latest = route, peer, stone
        before, now = self._ends.get(route), (peer, stone)
        if before != now:
            if before is not None:
                self._leave(before[0], route)
            self._ends[route] = now
        routes = self._routes.get(peer)
        if routes is None:
            routes = self._routes[peer] = OrderedDict()
        self._routes.move_to_end(peer)
        routes[route] = None
        routes.move_to_end(route)
        if peer and len(routes) > _ROUTES:
            self._forget_quiet(routes)
        elif len(self._paths) > _ALL_ROUTES:
            self._forget_quiet(next(iter(self._routes.values())))

    def make_safe(self, route: bytes, path: tuple[int, ...]) -> bool:
        """Notes that a frame that was seen is safe; gives whether that is new."""
        new = route in self._paths and self._safe.get(route, ()) < path
        if new:
            self._safe[route] = path
        return new

    def _forget_quiet(self, routes: OrderedDict[bytes, None]) -> None:
        route = next(iter(routes))
        self._forget(route)
        self._forgotten(route)

    def _forget(self, route: bytes) -> None:
        peer, _ = self._ends.pop(route)
        self._latest = None
        self._safe.pop(route, None)
        del self._paths[route]
        self._leave(peer, route)

    def _leave(self, peer: str, route: bytes) -> None:
        """A route is a peer's no more."""
        routes = self._routes[peer]
        del routes[route]
        if not routes:
            del self._routes[peer]

    def known(self, stone: str) -> list[Known]:
        """What came for a stone."""
        routes = [route for route, (_, at) in self._ends.items() if at == stone]
        return [Known(route, self._paths[route], self._safe.get(route, ())) for route in routes]

    def forget(self, stone: str) -> None:
        """Forgets what came for a stone."""
        for known in self.known(stone):
            self._forget(known.route)


_MOST_BYTES = 64 << 20
_DEPTH = 6  # [stone, [[bridge, [[route, path, safe path], …]], …]]
_Name = Annotated[str, Meta(max_length=4096)]
_Route = Annotated[bytes, Meta(min_length=16, max_length=16)]
_Path = Annotated[tuple[Annotated[int, Meta(ge=0, le=(1 << 63) - 1)], ...], Meta(max_length=MOST_PATH)]
_Seen = tuple[_Name, list[tuple[_Name, list[tuple[_Route, _Path, _Path]]]]]


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
        whole: Any = from_msgpack(data, _MOST_BYTES, maps=False, depth=_DEPTH)
        stone, bridges = msgspec.convert(whole, _Seen, builtin_types=(bytes,))
    except (Malformed, msgspec.ValidationError) as error:
        raise LinkError(f"what a stone has seen: expected [stone, bridges]: {error}") from None
    found = {bridge: [Known(*route) for route in routes] for bridge, routes in bridges}
    for known in (known for routes in found.values() for known in routes):
        if not known.path or known.safe > known.path:
            raise LinkError(
                f"what a stone has seen: expected a path, and before it one that is safe, or none, found "
                f"{known.path[:8]} and {known.safe[:8]}"
            )
    return stone, found
