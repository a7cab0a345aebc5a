"""Location publish/subscribe that scales out: moving publications and subscriptions, matched tile by tile.

The system of Chapuis, Garbinato and Mourot (A Horizontally Scalable and Reliable Architecture for
Location-based Publish-Subscribe). ``graph`` makes what is deployed, ``connect`` connects a client. See
docs/tiles.md.
"""

from evflow.tiles.client import Client
from evflow.tiles.connection import Connection, connect
from evflow.tiles.frontend import Frontend
from evflow.tiles.grid import Grid
from evflow.tiles.layout import Layout
from evflow.tiles.manager import TileManager
from evflow.tiles.messages import MATCH, MOVE, Message, Place
from evflow.tiles.ring import Ring
from evflow.tiles.state import StateManager
from evflow.tiles.stone import Host, graph
from evflow.tiles.store import content_of

__all__ = [
    "MATCH",
    "MOVE",
    "Client",
    "Connection",
    "Frontend",
    "Grid",
    "Host",
    "Layout",
    "Message",
    "Place",
    "Ring",
    "StateManager",
    "TileManager",
    "connect",
    "content_of",
    "graph",
]
