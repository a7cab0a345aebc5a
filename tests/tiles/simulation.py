"""The roles in one process with a network that delays, a seed that decides, hosts that die, join and leave.

``python -m tests.tiles.simulation --seeds 1000`` plays many; ``--fault`` plants one, which has to be caught.
"""

from __future__ import annotations

import argparse
import random
from collections import Counter, defaultdict, deque
from dataclasses import dataclass
from unittest.mock import patch

import numpy as np

from evflow.errors import EvflowError, GraphError
from evflow.tiles.client import Client
from evflow.tiles.frontend import Frontend
from evflow.tiles.grid import Grid
from evflow.tiles.kernels.fields import NUMBER
from evflow.tiles.manager import TileManager
from evflow.tiles.messages import ENTER, EVENTS, INSIDE, LEAVE, MOST_ROWS, Message, Outbox, Place
from evflow.tiles.plan import Plan
from evflow.tiles.state import StateManager
from evflow.tiles.store import Contents, content_of
from tests.tiles.faults import FAULTS
from tests.tiles.rows import moves, outlines
from tests.tiles.world import Box, Circle, Polygon, Zone, gap

Role = Frontend | StateManager | TileManager
Key = tuple[int, int, int, int]

ALL = ENTER | INSIDE | LEAVE
CENTRES = [(46.5, 6.6), (0.0, 179.995), (89.97, 10.0), (-85.05, -180.0)]
CONTENTS = [content_of(each) for each in ({}, {"kind": "taxi"}, {"kind": "taxi", "seats": 4}, {"seats": 5})]


@dataclass
class Entity:
    """A publication or subscription as the truth has it.

    Attributes:
        states: its versions of this round and the last one before: zone and content; None once deleted.
        asked: the events that it asks for, a subscription.
    """

    client: int
    subscription: bool
    version: int
    states: list[tuple[int, Zone, int] | None]
    asked: int = 0


class Simulation:
    """One seed.

    Args:
        seed: decides everything.
        r: replicas; by default the seed decides.
    """

    def __init__(self, seed: int, r: int | None = None) -> None:
        self.random = random.Random(seed)
        self.r = r or self.random.choice([1, 2, 2, 3])
        # Of every fourth the grid changes, too.
        self.divides = seed % 4 == 3
        # Of every third one clients are slow: they take something once all others have what there is.
        self.is_slow = seed % 3 == 2
        names = [f"h{n}" for n in range(self.random.choice([1, 2, 3]) * self.r)]
        self.centre = self.random.choice(CENTRES)
        # A zone on a pole touches all the tiles of a row.
        zooms = [6, 8] if abs(self.centre[0]) > 89 else [13, 15, 17]
        self.plan = Plan.made(names, names, names, self.r, self.random.choice(zooms))
        self.lives = Counter[int]()
        self.plans: dict[int, Plan] = {}
        self.places: dict[int, list[Place]] = {}
        self.roles: dict[Place, Role] = {}
        self.down: set[int] = set()
        self.links: dict[tuple[Place, Place], deque[Message | Plan | str]] = defaultdict(deque)
        for host in range(len(names)):
            self._boot(host, self.plan)
        self.clients = [Client(Place("client", n), self._alive()) for n in range(self.random.randint(1, 4))]
        self.entities: dict[tuple[bool, int], Entity] = {}
        self.named: set[tuple[int, int]] = set()
        self.delivered = Counter[Key]()
        self.before: set[Key] = set()
        self.told: list[tuple[Key, str]] = []
        self.inside: set[tuple[int, int]] = set()
        self.lost: set[tuple[int, int]] = set()
        self.catching: set[int] = set()
        self.changing = False
        self.cut: set[int] = set()
        self.messages = Counter[str]()

    def _boot(self, host: int, plan: Plan) -> None:
        """A host starts: one that was there before, or comes later, has to catch up."""
        life = self.lives[host]
        self.lives[host] += 1
        self.plans[host], self.places[host] = plan, plan.roles(host)
        for place in self.places[host]:
            self._make(place, plan, life)
        for other in self.down:
            for place in self.places[host]:
                if isinstance(role := self.roles[place], Frontend):
                    for dead in plan.roles(other):
                        role.down(dead)
        if life:
            self._start(self.places[host], plan)

    def _make(self, place: Place, plan: Plan, life: int) -> None:
        if place.role == "frontend":
            self.roles[place] = Frontend(place, plan.layout, life=life)
        elif place.role == "state":
            self.roles[place] = StateManager(place, plan.layout, ready=not life)
        else:
            self.roles[place] = TileManager(place, plan.layout, life=life)

    def _start(self, places: list[Place], plan: Plan) -> None:
        for place in places:
            role = self.roles[place]
            if isinstance(role, StateManager):
                self.send(place, role.start(self._running(plan)))
            elif isinstance(role, TileManager):
                self.send(place, role.start())

    def _running(self, plan: Plan) -> set[Place]:
        return {place for place in self.roles if place.role == "frontend" and place in plan.where}

    # --- hosts join and leave

    def change(self) -> None:
        """A host joins or leaves, if no change is under way and enough others live."""
        if self.plan.next or self._progresses() or not self._ready():
            return
        hosts = self.plan.running
        try:
            if self.divides and self.random.random() < 0.7:
                self.plan = self.plan.divided(self._splits())
            elif self.random.random() < 0.5 and len(hosts) < 8:
                self.plan = self.plan.grown(f"h{len(self.plan.hosts)}")
            else:
                plan = self.plan.without(host := self.random.choice(hosts))
                if plan.next is None and host not in self.plan.states.spare:
                    # Another one takes its place, as if it had died.
                    if self.plan.number(host) not in self.down and not self._spares():
                        return
                    self.catching.add(plan.number(self.plan.states.spare[0]))
                self.plan = plan
        except GraphError:
            return

    def _splits(self) -> set[int]:
        """Some tiles more that are split, or some that are not any more."""
        grid = self.plan.layout.grid
        splits = set(grid.splits)
        for _ in range(self.random.randint(1, 4)):
            last = [tile for tile in sorted(splits) if not splits & set(grid.parts(tile))]
            if last and self.random.random() < 0.4:
                splits.discard(self.random.choice(last))
            else:
                zone = self._zone()
                contents = Contents()
                contents.learn(outlines([zone]))
                tiles = Grid(self.plan.zoom, splits).tiles(moves([zone]), contents)[1].tolist()
                splits |= {tile for tile in tiles[:3] if grid.can_split(tile)}
        return splits

    def _spares(self) -> bool:
        """Whether one more host may die."""
        return len(self.down) + len(self.catching) < self.r - 1

    def _progresses(self) -> bool:
        numbers = {self.plan.number(host) for host in self.plan.running}
        return numbers != self.plans.keys() or any(plan is not self.plan for plan in self.plans.values())

    def progress(self) -> bool:
        """One step of the change that is under way."""
        live = [host for host in self.plans if host not in self.down]
        numbers = {self.plan.number(host) for host in self.plan.running}
        lagging = [host for host in live if self.plans[host].stage < self.plan.stage]
        new = sorted(numbers - self.plans.keys())
        gone = [host for host in self.plans if host not in numbers]
        if lagging:
            self._adopt(self.random.choice(lagging), self.plan)
        elif new and not self._untold():
            self._join(new[0])
        elif self.plan.next and not new and self._ready():
            self.plan = self.plan.settled()
        elif gone:
            self.down.discard(gone[0])
            del self.plans[gone[0]], self.places[gone[0]]
        else:
            return False
        return True

    def _ready(self) -> bool:
        return all(isinstance(role, Frontend) or role.ready for role in self.roles.values())

    def _join(self, host: int) -> None:
        self.lives[host] = max(self.lives.values())
        self._clear(self.plan.roles(host))
        self._boot(host, self.plan)
        if any(
            place.group in self.plan.states.groups for place in self.places[host] if place.role == "state"
        ):
            # It stands in for another one.
            self.catching.add(host)

    def _clear(self, places: list[Place]) -> None:
        """What others sent from or to places is lost, before somebody else plays these roles."""
        for (sender, target), held in self.links.items():
            if sender in places or target in places:
                held.clear()

    def _adopt(self, host: int, plan: Plan) -> None:
        """A host takes the next step of a change, and tells the others before it tells them anything else."""
        self.changing = True
        before, places, now = self.plans[host], self.places[host], plan.roles(host)
        new = [place for place in now if place not in places]
        for place in new:
            other = before.where.get(place)
            if other in self.plans and self.plans[other].stage < plan.stage and other not in self.down:
                self._adopt(other, plan)
        self._clear(new)
        self.plans[host], self.places[host] = plan, now
        for place in [*places, *new]:
            for other in self.roles:
                if other not in now:
                    self.links[place, other].append(plan)
        moved = [place for place, at in before.where.items() if plan.where.get(place) != at]
        for place in places:
            role = self.roles[place]
            if isinstance(role, StateManager):
                self.send(place, role.adopt(plan.layout, self._running(plan)))
            else:
                self.send(place, role.adopt(plan.layout))
            for other in moved:
                if other.role == "frontend" or other in plan.where:
                    self.send(place, role.down(other))
        for place in [place for place in places if place not in now]:
            self.cut |= {client.place.group for client in self.clients if client.frontend == place}
            del self.roles[place]
        for place in new:
            self._make(place, plan, self.lives[host])
        self._start(new, plan)

    # --- what happens

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
        if self.is_slow:
            waiting = [link for link in waiting if link[1].role != "client"] or waiting
        sender, target = link = self.random.choice(waiting)
        message = self.links[link].popleft()
        if target.role == "client":
            client = self.clients[target.group]
            assert isinstance(message, Message)
            self.messages[message.kind + " to clients"] += len(message.rows)
            rows, outbox = client.receive(sender, message)
            if message.kind == "matches":
                keys: list[Key] = list(zip(*(rows[name].tolist() for name in KEY), strict=True))
                told = [EVENTS[event] for event in rows["event"].tolist()]
                self.told += [pair for pair in zip(keys, told, strict=True) if pair[1] != "match"]
                # Who asks for them is told of each match as well, by enter or inside.
                self.delivered.update(key for key, event in zip(keys, told, strict=True) if event != "leave")
            assert message.kind != "refused", message
            self.send(target, outbox)
        elif target in self.roles and (sender.role != "client" or sender.group not in self.cut):
            role = self.roles[target]
            if isinstance(message, Plan):
                live = {host: places for host, places in self.places.items() if host not in self.down}
                host = next(host for host, places in live.items() if target in places)
                if message.stage > self.plans[host].stage:
                    self._adopt(host, message)
            elif isinstance(message, str):
                self.send(target, role.down(sender))
            else:
                self.messages[f"{message.kind} to {target.role}"] += len(message.rows)
                self.send(target, role.receive(sender, message))
        return True

    def kill(self, host: int) -> None:
        """A host dies: of what it has sent, the last may be lost; the others learn of it."""
        self.down.add(host)
        self.catching.discard(host)
        for place in self.places[host]:
            del self.roles[place]
            for (sender, target), held in self.links.items():
                if sender == place:
                    for _ in range(self.random.randint(0, len(held))):
                        held.pop()
                elif target == place:
                    held.clear()
        for place in self.places[host]:
            for other in self.roles:
                self.links[place, other].append("down")
        self.cut |= {client.place.group for client in self.clients if client.frontend in self.places[host]}

    def revive(self, host: int) -> None:
        """A host that died starts again, with nothing."""
        self.down.discard(host)
        # It does not count before what is under way now is done.
        self.catching.add(host)
        # It learns of the plan from the others.
        plans = [plan for other, plan in self.plans.items() if other not in self.down]
        self._boot(host, max(plans, key=lambda plan: plan.stage))

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
        tile = self.plan.layout.grid.side * 0.7
        north = self.centre[0] + self.random.uniform(-2, 2) * tile / 111_000
        if abs(self.centre[0]) > 89:
            east = self.random.uniform(-180, 180)
        else:
            scale = 111_000 * np.cos(np.radians(min(abs(self.centre[0]), 89)))
            east = self.centre[1] + self.random.uniform(-2, 2) * tile / scale
        north, east = min(north, 90.0), (east + 180) % 360 - 180
        if self.random.random() < 0.6:
            return Circle(north, east, tile * self.random.choice([0, 0.05, 0.3, 1]) * self.random.random())
        if self.random.random() < 0.4:
            size, wide = tile / 111_000, self.random.choice([1, 30 if abs(north) > 80 else 1])
            around = [(self.random.uniform(-1, 1), self.random.uniform(-1, 1)) for _ in range(5)]
            return Polygon(tuple((min(north + size * y, 90.0), east + size * wide * x) for y, x in around))
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
                if entity.subscription:
                    # Nothing leaves what was deleted.
                    self.told.append(((0, 0, key[1], 0), "end"))
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
            asked = self.random.choice([0, ALL]) if key[0] else 0
            self.entities[key] = Entity(number, key[0], 0, [None, (0, zones[-1], chosen)], asked)
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
            asked=[self.entities[key].asked for key in keys],
        )
        named = {CONTENTS[c][0]: CONTENTS[c][1] for c in contents if c}
        self.send(client.place, client.send(rows, named | outlines(zones)))

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
                        if one is None or other is None or not fits(one[2], other[2]):
                            continue
                        away = gap(one[1], other[1])
                        key = (p, one[0], s, other[0])
                        if away < 1e-5:
                            allowed.add(key)
                        both = one is pub.states[-1] and other is sub.states[-1]
                        new = len(pub.states) > 1 and one is not pub.states[0]
                        new |= len(sub.states) > 1 and other is not sub.states[0]
                        # While the layout changes, a state that is replaced at once may be skipped; and
                        # of events what is older than what was told.
                        skipped = self.changing or sub.asked
                        if away < -1e-5 and new and (both or (any(still) and not skipped)):
                            required.add(key)
        twice = [key for key, times in self.delivered.items() if times > 1]
        found = set(self.delivered) - self.before
        assert not twice, f"delivered twice: {twice[:3]}"
        assert required <= found, (
            f"missing {len(required - found)} of {len(required)}: {sorted(required - found)[:3]}"
        )
        assert found <= allowed, f"wrong: {sorted(found - allowed)[:3]}"
        self.before |= found
        self.check_events(allowed)
        for entity in self.entities.values():
            entity.states = entity.states[-1:]

    def check_events(self, allowed: set[Key]) -> None:
        """Each pair enters, is inside and leaves by turns; at the end it is known who is where."""
        for (p, _, s, _), event in self.told:
            if event == "end":
                self.inside = {pair for pair in self.inside if pair[1] != s}
                continue
            assert ((p, s) in self.inside) == (event != "enter"), f"{event} of {p} and {s}"
            if event == "leave":
                self.inside.discard((p, s))
            else:
                self.inside.add((p, s))
        self.told = []
        for p, s in [(p, s) for i, p in self.entities if not i for j, s in self.entities if j]:
            pub, sub = self.entities[False, p], self.entities[True, s]
            if not sub.asked:
                continue
            if sub.states[-1] is None:
                continue
            one, other = pub.states[-1], sub.states[-1]
            away = gap(one[1], other[1]) if one is not None and fits(one[2], other[2]) else 1.0
            if away < -1e-5:
                assert (p, s) in self.inside, f"{p} is inside {s}, which nobody tells"
                self.lost.discard((p, s))
            elif away > 1e-5 and (p, s) in self.inside:
                moved = len(pub.states) > 1 and len(sub.states) > 1
                if moved or self.changing:
                    self.lost.add((p, s))
                assert (p, s) in self.lost, f"{p} has left {s}, which nobody tells"

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
                elif what < 0.30 and self._spares():
                    self.kill(self.random.choice([host for host in self.plans if host not in self.down]))
                elif what < 0.33 and self.down and not self._untold():
                    self.revive(self.random.choice(sorted(self.down)))
                elif what < 0.35:
                    self.change()
                elif what < 0.42:
                    self.progress()
                else:
                    self.step()
            self.settle()
            self.check()
            self.changing = False

    def _untold(self) -> bool:
        return any("down" in held for held in self.links.values())

    def settle(self) -> None:
        """Lets everything arrive; clients of Frontends that have died connect to others."""
        ends = self.random.random() < 0.5 or not self.plan.next
        for _ in range(100_000):
            for client in self.clients:
                if client.place.group in self.cut:
                    self.reconnect(client)
            if not self.step() and not (ends and self.progress()):
                break
        assert all(client.idle for client in self.clients), "not acknowledged"
        for role in self.roles.values():
            if isinstance(role, StateManager):
                assert role.ready, f"{role.place} has not caught up"
            elif isinstance(role, TileManager):
                assert role.counts["lost"] == 0 and role.counts["kept"] == 0, f"{role.place}: {role.counts}"
                there = role.tiles[(role.tiles[:, 1] > 0) | (role.tiles[:, 3] > 0), NUMBER]
                mine = [owners == role.place.group for owners in role.layout.owners(there)]
                assert (mine[0] | mine[1]).all(), f"{role.place} has tiles of others"
        self.catching = set()


def fits(pub: int, sub: int) -> bool:
    """Whether the attributes of a subscription are among those of a publication."""
    return set(CONTENTS[sub][1]) <= set(CONTENTS[pub][1])


KEY = ("pub", "pub_version", "sub", "sub_version")


def found(seeds: range, r: int | None = None) -> str:
    """What is wrong with the first seed that shows it; "" if none does.

    Args:
        seeds: to play.
        r: replicas.
    """
    for seed in seeds:
        try:
            # Of every second one what replicas tell each other goes in small parts.
            with patch("evflow.tiles.state.MOST_ROWS", (MOST_ROWS, 3)[seed % 2]):
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
