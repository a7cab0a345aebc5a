"""Location publish/subscribe that scales out: moving publications and subscriptions, matched tile by tile.

The system of Chapuis, Garbinato and Mourot (A Horizontally Scalable and Reliable Architecture for
Location-based Publish-Subscribe). ``graph`` makes what is deployed, ``connect`` connects a client, ``grow``
and ``shrink`` let hosts join and leave, ``balance`` lets the grid follow density. See docs/tiles.md.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from evflow.tiles.client import Client
from evflow.tiles.frontend import Frontend
from evflow.tiles.grid import Grid
from evflow.tiles.layout import Layout
from evflow.tiles.manager import TileManager
from evflow.tiles.messages import EVENTS, MATCH, MOVE, Message, Place
from evflow.tiles.ring import Ring
from evflow.tiles.state import StateManager
from evflow.tiles.store import content_of

if TYPE_CHECKING:
    from evflow.tiles.change import balance, grow, shrink
    from evflow.tiles.connection import Connection, connect
    from evflow.tiles.map.gateway import Map
    from evflow.tiles.stone import Host, graph

__all__ = [
    "EVENTS",
    "MATCH",
    "MOVE",
    "Client",
    "Connection",
    "Frontend",
    "Grid",
    "Host",
    "Layout",
    "Map",
    "Message",
    "Place",
    "Ring",
    "StateManager",
    "TileManager",
    "balance",
    "connect",
    "content_of",
    "graph",
    "grow",
    "shrink",
]

_LATER = {
    **dict.fromkeys(("Connection", "connect"), "connection"),
    **dict.fromkeys(("Host", "graph"), "stone"),
    "Map": "map.gateway",
    **dict.fromkeys(("balance", "grow", "shrink"), "change"),
}


def __getattr__(name: str) -> Any:
    if name not in _LATER:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    # They need packages that are not there when evflow is built, and its kernels are compiled.
    return getattr(importlib.import_module(f"{__name__}.{_LATER[name]}"), name)
