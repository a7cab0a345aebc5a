"""The roles in one process with a network that delays, a seed that decides, and hosts that die.

``python -m tests.tiles.simulation --seeds 1000`` plays many; ``--fault`` plants one, which has to be caught.
"""

from __future__ import annotations

import argparse
import random
from collections import Counter, defaultdict, deque
from dataclasses import dataclass
from unittest.mock import patch

import numpy as np

from evflow.errors import EvflowError
from evflow.tiles.client import Client
from evflow.tiles.frontend import Frontend
from evflow.tiles.grid import Grid
from evflow.tiles.layout import Layout
from evflow.tiles.manager import TileManager
from evflow.tiles.messages import GONE, Message, Outbox, Place
from evflow.tiles.ring import Ring
from evflow.tiles.state import StateManager
from evflow.tiles.store import content_of
from tests.tiles.rows import moves
from tests.tiles.world import Box, Circle, Zone, gap

Role = Frontend | StateManager | TileManager
Key = tuple[int, int, int, int]

CENTRES = [(46.5, 6.6), (0.0, 179.995), (89.97, 10.0), (-85.05, -180.0)]
CONTENTS = [content_of(each) for each in ({}, {"kind": "taxi"}, {"kind": "taxi", "seats": 4}, {"seats": 5})]


@dataclass
class Entity:
    """A publication or subscription as the truth has it.

    Attributes:
        states: its versions of this round and the last one before: zone and content; None once deleted.
    """

    client: int
    subscription: bool
    version: int
    states: list[tuple[int, Zone, int] | None]


class Simulation:
    """One seed.

    Args:
        seed: decides everything.
        r: replicas; by default the seed decides.
    """

    def __init__(self, seed: int, r: int | None = None) -> None:
        self.random = random.Random(seed)
        self.r = r or self.random.choice([1, 2, 2, 3])
        groups = self.random.choice([1, 2, 3])
        ring = Ring({g: tuple(f"h{g * self.r + i}" for i in range(self.r)) for g in range(groups)})
        self.centre = self.random.choice(CENTRES)
        # A zone on a pole touches all the tiles of a row.
        zooms = [6, 8] if abs(self.centre[0]) > 89 else [13, 15, 17]
        self.layout = Layout(Grid(self.random.choice(zooms)), ring, ring)
        self.hosts = [host for members in ring.groups.values() for host in members]
        self.where = {
            host: [
                Place("frontend", number),
                Place("state", number // self.r, number % self.r),
                Place("tile", number // self.r, number % self.r),
            ]
            for number, host in enumerate(self.hosts)
        }
        self.lives = Counter[str]()
        self.roles: dict[Place, Role] = {}
        self.links: dict[tuple[Place, Place], deque[Message | str]] = defaultdict(deque)
        for host in self.hosts:
            self._boot(host)
        self.clients = [Client(Place("client", n), self._alive()) for n in range(self.random.randint(1, 4))]
        self.entities: dict[tuple[bool, int], Entity] = {}
        self.named: set[tuple[int, int]] = set()
        self.delivered = Counter[Key]()
        self.before: set[Key] = set()
        self.down: set[str] = set()
        self.catching: set[str] = set()
        self.done: set[str] = set()
        self.cut: set[int] = set()
        self.messages = Counter[str]()

    def _boot(self, host: str) -> None:
        life, (front, state, tile) = self.lives[host], self.where[host]
        self.roles[front] = Frontend(front, self.layout, life=life)
        self.roles[state] = StateManager(state, self.layout, ready=not life)
        self.roles[tile] = TileManager(tile, self.layout, life=life)
        self.lives[host] += 1

    def _alive(self) -> Place:
        return self.random.choice([place for place in self.roles if place.role == "frontend"])

    def send(self, sender: Place, outbox: Outbox) -> None:
        for target, message in outbox:
            self.links[sender, target].append(message)

    def step(self) -> bool:
        """Something on the network arrives."""
        waiting = [link for link, held in self.links.items() if held]
        if not waiting:
            return False
        sender, target = link = self.random.choice(waiting)
        message = self.links[link].popleft()
        if target.role == "client":
            client = self.clients[target.group]
            assert isinstance(message, Message)
            self.messages[message.kind + " to clients"] += len(message.rows)
            rows, outbox = client.receive(sender, message)
            if message.kind == "matches":
                self.delivered.update(zip(*(rows[name].tolist() for name in KEY), strict=True))
            assert message.kind != "refused", message
            self.send(target, outbox)
        elif target in self.roles:
            role = self.roles[target]
            if isinstance(message, str):
                self.send(target, role.down(sender))
            else:
                self.messages[f"{message.kind} to {target.role}"] += len(message.rows)
                self.send(target, role.receive(sender, message))
        return True

    def kill(self, host: str) -> None:
        """A host dies: of what it has sent, the last may be lost; the others learn of it."""
        self.down.add(host)
        for place in self.where[host]:
            del self.roles[place]
            for (sender, target), held in self.links.items():
                if sender == place:
                    for _ in range(self.random.randint(0, len(held))):
                        held.pop()
                elif target == place:
                    held.clear()
        for place in self.where[host]:
            for other in self.roles:
                self.links[place, other].append("down")
        self.cut |= {client.place.group for client in self.clients if client.frontend in self.where[host]}

    def revive(self, host: str) -> None:
        """A host that died starts again, with nothing."""
        self.down.discard(host)
        self._boot(host)
        running = {place for place in self.roles if place.role == "frontend"}
        front, state, tile = (self.roles[place] for place in self.where[host])
        for other in self.down:
            for place in self.where[other]:
                front.down(place)
        assert isinstance(state, StateManager) and isinstance(tile, TileManager)
        self.send(state.place, state.start(running))
        self.send(tile.place, tile.start())

    def reconnect(self, client: Client) -> None:
        """A client goes to a Frontend that runs; what was under way is lost."""
        for (sender, target), held in self.links.items():
            if client.place in (sender, target):
                held.clear()
        self.cut.discard(client.place.group)
        if isinstance(left := self.roles.get(client.frontend), Frontend):
            self.send(left.place, left.disconnect(client.place))
        self.send(client.place, client.moved_to(self._alive()))

    def _zone(self) -> Zone:
        tile = self.layout.grid.side * 0.7
        north = self.centre[0] + self.random.uniform(-2, 2) * tile / 111_000
        if abs(self.centre[0]) > 89:
            east = self.random.uniform(-180, 180)
        else:
            scale = 111_000 * np.cos(np.radians(min(abs(self.centre[0]), 89)))
            east = self.centre[1] + self.random.uniform(-2, 2) * tile / scale
        north, east = min(north, 90.0), (east + 180) % 360 - 180
        if self.random.random() < 0.7:
            return Circle(north, east, tile * self.random.choice([0, 0.05, 0.3, 1]) * self.random.random())
        high = tile * self.random.random() / 111_000
        return Box(
            north - high, east, north, east + high * self.random.choice([1, 30 if abs(north) > 80 else 1])
        )

    def act(self) -> None:
        """A client publishes, subscribes, moves and deletes."""
        client = self.random.choice(self.clients)
        number = client.place.group
        zones: list[Zone | None] = []
        keys: list[tuple[bool, int]] = []
        contents: list[int] = []
        owned = [key for key, entity in self.entities.items() if entity.client == number]
        for key in self.random.sample(owned, min(len(owned), self.random.randint(0, 4))):
            entity = self.entities[key]
            entity.version += 1
            if self.random.random() < 0.15:
                entity.states.append(None)
                zones.append(None)
                contents.append(0)
            else:
                held = next((state[2] for state in reversed(entity.states) if state), 0)
                zones.append(self._zone())
                contents.append(held)
                entity.states.append((entity.version, zones[-1], held))
            keys.append(key)
        for _ in range(self.random.randint(0, 3)):
            key = (self.random.random() < 0.6, len(self.entities))
            chosen = self.random.randrange(len(CONTENTS))
            zones.append(self._zone())
            self.entities[key] = Entity(number, key[0], 0, [None, (0, zones[-1], chosen)])
            keys.append(key)
            contents.append(chosen)
        if not keys:
            return
        rows = moves(
            zones,
            [key[1] for key in keys],
            [self.entities[key].version for key in keys],
            subscriptions=[key[0] for key in keys],
            contents=[CONTENTS[chosen][0] for chosen in contents],
        )
        named = {CONTENTS[c][0]: CONTENTS[c][1] for c in contents if c}
        self.send(client.place, client.send(rows, named))

    def check(self) -> None:
        """Compares a round with brute force."""
        required, allowed = set[Key](), set[Key]()
        pubs = [(key[1], e) for key, e in self.entities.items() if not key[0]]
        subs = [(key[1], e) for key, e in self.entities.items() if key[0]]
        for p, pub in pubs:
            for s, sub in subs:
                still = len(pub.states) == 1, len(sub.states) == 1
                for one in pub.states:
                    for other in sub.states:
                        if one is None or other is None or not CONTENTS[other[2]][1] or one[2] == other[2]:
                            fits = one is not None and other is not None
                        else:
                            fits = set(CONTENTS[other[2]][1]) <= set(CONTENTS[one[2]][1])
                        if not fits or one is None or other is None:
                            continue
                        away = gap(one[1], other[1])
                        key = (p, one[0], s, other[0])
                        if away < 1e-5:
                            allowed.add(key)
                        both = one is pub.states[-1] and other is sub.states[-1]
                        new = len(pub.states) > 1 and one is not pub.states[0]
                        new |= len(sub.states) > 1 and other is not sub.states[0]
                        if away < -1e-5 and new and (both or any(still)):
                            required.add(key)
        twice = [key for key, times in self.delivered.items() if times > 1]
        found = set(self.delivered) - self.before
        assert not twice, f"delivered twice: {twice[:3]}"
        assert required <= found, (
            f"missing {len(required - found)} of {len(required)}: {sorted(required - found)[:3]}"
        )
        assert found <= allowed, f"wrong: {sorted(found - allowed)[:3]}"
        self.before |= found
        for entity in self.entities.values():
            entity.states = entity.states[-1:]

    def run(self, rounds: int = 3, steps: int = 60) -> None:
        """Plays rounds, and checks each.

        Args:
            rounds: how many.
            steps: of a round, about.
        """
        for _ in range(rounds):
            for _ in range(self.random.randint(1, steps)):
                what = self.random.random()
                if what < 0.25:
                    self.act()
                elif what < 0.27:
                    self.reconnect(self.random.choice(self.clients))
                elif what < 0.30 and len(self.down) + len(self._behind()) < self.r - 1:
                    self.kill(self.random.choice([host for host in self.hosts if host not in self.down]))
                elif what < 0.33 and self.down and not self._untold():
                    self.revive(self.random.choice(sorted(self.down)))
                else:
                    self.step()
            self.settle()
            self.check()

    def _untold(self) -> bool:
        return any("down" in held for held in self.links.values())

    def _behind(self) -> set[str]:
        """Hosts that were started again and do not count yet: not before what was under way is done."""
        self.catching = {
            host
            for host in self.catching | {h for h in self.hosts if self.lives[h] > 1 and h not in self.done}
            if host not in self.down
        }
        return self.catching

    def settle(self) -> None:
        """Lets everything arrive; clients of Frontends that have died connect to others."""
        for _ in range(100_000):
            for client in self.clients:
                if client.place.group in self.cut:
                    self.reconnect(client)
            if not self.step():
                break
        assert all(client.idle for client in self.clients), "not acknowledged"
        for role in self.roles.values():
            if isinstance(role, StateManager):
                assert role.ready, f"{role.place} has not caught up"
            elif isinstance(role, TileManager):
                assert role.counts["lost"] == 0 and role.counts["kept"] == 0, f"{role.place}: {role.counts}"
        self.done = {host for host in self.hosts if host not in self.down}
        self.catching = set()


KEY = ("pub", "pub_version", "sub", "sub_version")


FAULTS = {
    "clients keep copies": ("evflow.tiles.client.Seen.fresh", lambda self, rows: np.ones(len(rows), bool)),
    "matches are not kept": ("evflow.tiles.manager.TileManager._keep", lambda self, number, rows: None),
    "dead State Managers are not forgotten": (
        "evflow.tiles.manager.TileManager.down",
        lambda self, place: [],
    ),
    "snapshots are ignored": ("evflow.tiles.state.StateManager._caught_up", lambda self, message: []),
    "nothing is sent again": ("evflow.tiles.frontend.Frontend._greeted", lambda self, state: []),
    "nothing is told of what was left": (
        "evflow.tiles.state.StateManager._told",
        lambda self, rows, told=StateManager._told: told(self, rows[rows["flags"] & GONE == 0]),
    ),
}
"""Faults to plant: what each replaces, and by what."""


def found(seeds: range, r: int | None = None) -> str:
    """What is wrong with the first seed that shows it; "" if none does.

    Args:
        seeds: to play.
        r: replicas.
    """
    for seed in seeds:
        try:
            Simulation(seed, r).run()
        except (AssertionError, EvflowError, KeyError, IndexError) as wrong:
            return f"seed {seed}: {type(wrong).__name__}: {wrong}"
    return ""


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--seeds", type=int, default=1000)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--fault", choices=sorted(FAULTS))
    options = parser.parse_args()
    seeds = range(options.first, options.first + options.seeds)
    if options.fault:
        with patch(*FAULTS[options.fault]):
            print(found(seeds) or "not found")
        return
    wrong = [what for seed in seeds if (what := found(range(seed, seed + 1)))]
    print(*wrong, f"{len(wrong)} of {len(seeds)} seeds failed", sep="\n")


if __name__ == "__main__":
    main()
