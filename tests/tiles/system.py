"""All roles in one process, without delays: what is sent arrives at once, in order."""

from __future__ import annotations

from collections import Counter

from evflow.tiles.client import Client
from evflow.tiles.frontend import Frontend
from evflow.tiles.grid import Grid
from evflow.tiles.layout import Layout
from evflow.tiles.manager import TileManager
from evflow.tiles.messages import EVENTS, Message, Outbox, Place, Rows
from evflow.tiles.ring import Ring
from evflow.tiles.state import StateManager

GRID = Grid(15)


class System:
    """All roles, and a network without delays that counts rows."""

    def __init__(self, r: int, groups: int = 2, grid: Grid = GRID) -> None:
        ring = Ring({g: tuple(f"h{g}{i}" for i in range(r)) for g in range(groups)})
        layout = Layout(grid, ring, ring)
        self.roles: dict[Place, Frontend | StateManager | TileManager] = {}
        for group in range(groups):
            for state, tile in zip(
                layout.replicas("state", group), layout.replicas("tile", group), strict=True
            ):
                self.roles[state], self.roles[tile] = StateManager(state, layout), TileManager(tile, layout)
        front = Place("frontend", 0)
        self.roles[front] = Frontend(front, layout)
        self.client = Client(Place("client", 0), front)
        self.rows = Counter[str]()
        self.matches: list[tuple[int, ...]] = []
        self.refused = self.steps = 0
        # How many messages with matches the client takes; more of them are lost.
        self.most = 1 << 30
        self.events: list[tuple[str, int, int]] = []

    def send(self, rows: Rows, contents: dict[int, tuple[tuple[str, object], ...]] | None = None) -> None:
        """The client sends moves, and all follows."""
        self.carry(self.client.send(rows, contents))

    def carry(self, outbox: Outbox) -> None:
        """Carries what the client sends, and all that follows."""
        self._carry(self.client.place, outbox)

    def die(self, replica: int, roles: tuple[str, ...]) -> None:
        """All State or Tile Managers of a replica number die, and the others hear of it."""
        dead = [place for place in self.roles if place.role in roles and place.replica == replica]
        for place in dead:
            del self.roles[place]
        for place in dead:
            for other, role in list(self.roles.items()):
                self._carry(other, role.down(place))

    def start(self, replica: int, roles: tuple[str, ...]) -> None:
        """Those that have died start again, with nothing, and catch up."""
        front = next(role for role in self.roles.values() if isinstance(role, Frontend))
        layout = front.layout
        places = [Place(role, group, replica) for role in roles for group in layout.groups(role)]
        for place in places:
            self.roles[place] = (
                StateManager(place, layout, ready=False)
                if place.role == "state"
                else TileManager(place, layout, life=1)
            )
        for place in places:
            role = self.roles[place]
            self._carry(place, role.start([front.place]) if isinstance(role, StateManager) else role.start())

    def _carry(self, origin: Place, outbox: Outbox) -> None:
        waiting = [(1, origin, *sent) for sent in outbox]
        while waiting:
            step, sender, target, message = waiting.pop(0)
            if target.role != "client" and target not in self.roles:
                continue
            self.rows[f"{message.kind} to {target.role}"] += len(message.rows)
            if message.kind != "ack":
                self.steps = max(self.steps, step)
            waiting += [(step + 1, target, *sent) for sent in self._taken(sender, target, message)]

    def _taken(self, sender: Place, target: Place, message: Message) -> Outbox:
        if target.role != "client":
            return self.roles[target].receive(sender, message)
        self.refused += len(message.rows) if message.kind == "refused" else 0
        if message.kind == "matches":
            if self.most == 0:
                return []
            self.most -= 1
        rows, outbox = self.client.receive(sender, message)
        told = (
            zip(*(rows[name].tolist() for name in ("event", "pub", "sub")), strict=True)
            if "event" in rows.dtype.names
            else ()
        )
        self.events += [(EVENTS[event], pub, sub) for event, pub, sub in told]
        names = ("pub", "pub_version", "sub", "sub_version") if message.kind == "matches" else ()
        self.matches += zip(*(rows[name].tolist() for name in names), strict=True) if names else []
        return outbox
