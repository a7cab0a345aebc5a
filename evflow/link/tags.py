"""Where a frame comes from: what tells a frame that is sent again from one that is new.

The first bridge on an event's way numbers its frames; the numbers of one bridge since its process began are a
stream. A node that forwards handles a frame of a stream as a whole, so what it sends on because of it is the
same each time: the first, the second … frame into this bridge. So a frame is known for good by its route
(the stream and the bridges since) and its path (the number at the first bridge, then a number at each further
one), and along one route paths only grow, in the order of tuples.
"""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from typing import NamedTuple

__all__ = ["Seen", "Tag", "next_route"]

_ROUTES = 10_000


class Tag(NamedTuple):
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


class Seen:
    """The paths that came last over one bridge, by route.

    The routes that were quiet longest are forgotten when there are more than 10,000.
    """

    def __init__(self) -> None:
        self._paths: OrderedDict[bytes, tuple[int, ...]] = OrderedDict()

    def is_new(self, tag: Tag) -> bool:
        """Whether a frame was not seen before; from now on it was."""
        before = self._paths.get(tag.route)
        if before is not None and tag.path <= before:
            return False
        self.note(tag)
        return True

    def note(self, tag: Tag) -> None:
        """Sets what was seen."""
        self._paths[tag.route] = tag.path
        self._paths.move_to_end(tag.route)
        if len(self._paths) > _ROUTES:
            self._paths.popitem(last=False)
