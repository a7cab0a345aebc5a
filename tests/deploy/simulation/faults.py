"""What goes wrong, and when."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from tests.deploy.simulation.network import Killed, Manner

if TYPE_CHECKING:
    from tests.deploy.simulation.world import World

__all__ = ["schedule"]


def schedule(world: World) -> None:
    """Has the faults of a run happen at random times."""
    random = world.random
    world.network.manner = _manner(world)
    kinds = [_kill, _kill, _kill_sending, _kill_saving, _kill_saving, _cut, _cut_one_way, _worse]
    at = random.uniform(0, world.ends)
    for _ in range(random.choice((0, 1, 2, 4, 10))):
        # Often several at once.
        if random.random() < 0.7:
            at = random.uniform(0, world.ends)
        world.clock.at(at, _fault(world, random.choice(kinds)))


def _fault(world: World, kind: Callable[[World], None]) -> Callable[[], None]:
    return lambda: kind(world)


def _manner(world: World) -> Manner:
    random = world.random
    return Manner(
        delay=random.choice((0.001, 0.05, 0.05, 0.3, 0.3, 2.0, 10.0)),
        lost=random.choice((0.0, 0.0, 0.05, 0.3)),
        doubled=random.choice((0.0, 0.1, 0.5)),
        late=random.choice((0.0, 0.1)),
    )


def _worse(world: World) -> None:
    world.network.manner = _manner(world)


def _kill(world: World) -> None:
    process = world.alive.get(world.random.choice(world.nodes))
    if process is not None:
        world.kill(process)


def _kill_sending(world: World) -> None:
    process = world.alive.get(world.random.choice(world.nodes))
    if process is not None:
        process.sends_left = world.random.choice((0, 1, 3, 10, 30))


def _kill_saving(world: World) -> None:
    left = [world.random.randint(1, 8)]

    def dies() -> None:
        left[0] -= 1
        if left[0] == 0:
            raise Killed

    world.stores[world.random.choice(world.nodes)].dies = dies


def _cut(world: World) -> None:
    """Some nodes and the others hear nothing of each other."""
    some = {node for node in world.nodes if world.random.random() < 0.4}
    cuts = {(a, b) for a in world.nodes for b in world.nodes if (a in some) != (b in some)}
    world.network.cuts |= cuts
    world.later(world.random.choice((1.0, 12.0)), lambda: world.network.cuts.difference_update(cuts))


def _cut_one_way(world: World) -> None:
    cut = (world.random.choice(world.nodes), world.random.choice(world.nodes))
    world.network.cuts.add(cut)
    world.later(8.0, lambda: world.network.cuts.discard(cut))
