"""What goes wrong, and when."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from tests.link.simulation.network import Killed, Manner, Wire

if TYPE_CHECKING:
    from tests.link.simulation.process import Process
    from tests.link.simulation.world import World

__all__ = ["schedule"]


def schedule(world: World) -> None:
    """Has the faults of a run happen at random times."""
    random, kinds = world.random, [_break, _break, _stall, _stall, _part, _slow, _dies]
    if world.scenario.killed:
        kinds += [_kill, _kill_within, _kill_sending, _kill_saving]
    at = random.uniform(0, world.setting.ends)
    for _ in range(world.setting.faults):
        # Often several at once.
        if random.random() < 0.7:
            at = random.uniform(0, world.setting.ends)
        world.clock.at(at, _fault(world, random.choice(kinds)))
    if world.scenario.freezes:
        for _ in range(random.randint(1, 4)):
            world.clock.at(random.uniform(0, world.setting.ends), lambda: _freeze(world))
    if world.scenario.stores:
        for _ in range(random.randint(0, 3)):
            world.clock.at(random.uniform(0, world.setting.ends), lambda: _let_some_go(world))


def _fault(world: World, kind: Callable[[World], None]) -> Callable[[], None]:
    return lambda: kind(world)


def _wire(world: World) -> Wire | None:
    wires = world.network.wires.listed()
    return world.random.choice(wires) if wires else None


def _break(world: World) -> None:
    wire = _wire(world)
    if wire is not None:
        wire.breaks()


def _dies(world: World) -> None:
    wire = _wire(world)
    if wire is not None:
        wire.dies()


def _stall(world: World) -> None:
    wire = _wire(world)
    if wire is not None:
        wire.stall(world.random.choice(((0,), (1,), (0, 1))))
        _end_later(world, [wire])


def _part(world: World) -> None:
    """All wires of one node stall."""
    name = world.random.choice(world.nodes)
    wires = [
        wire
        for wire in world.network.wires.listed()
        if wire.target == name or (wire.dialler is not None and wire.dialler.name == name)
    ]
    for wire in wires:
        wire.stall((0, 1))
    _end_later(world, wires)


def _end_later(world: World, wires: list[Wire]) -> None:
    heals = world.random.random() < 0.5
    lasts = (0.0, world.setting.heartbeat * world.random.choice((1, 8)))

    def end() -> None:
        for wire in wires:
            if heals:
                wire.heal()
            else:
                wire.breaks()

    world.network.later(lasts, end)


def _slow(world: World) -> None:
    manner = world.network.manner
    if manner.delay[1] < 1.0:
        before = manner.delay
        manner.delay = (before[0], before[1] * world.random.choice((5, 50)))

        def end(manner: Manner = manner) -> None:
            manner.delay = before

        world.network.later((0.0, 2.0), end)


def _victim(world: World) -> Process | None:
    process = world.alive.get(world.random.choice(world.scenario.killed))
    if process is None or (world.move and world.move.under_way):
        return None
    # What a bridge that has ended keeps is lost if both ends are killed.
    return None if process.hub.retired else process


def _kill(world: World) -> None:
    process = _victim(world)
    if process is not None:
        world.kill(process)


def _kill_within(world: World) -> None:
    process = _victim(world)
    if process is not None:
        process.doomed = True


def _kill_sending(world: World) -> None:
    process = _victim(world)
    if process is not None:
        process.transport.sends_left = world.random.choice((0, 1, 3, 10))


def _kill_saving(world: World) -> None:
    process = _victim(world)
    journal = None if process is None else world.journals.get(process.name)
    if journal is None:
        return
    left = [world.random.randint(1, 6)]

    def dies() -> None:
        left[0] -= 1
        if left[0] == 0:
            raise Killed

    journal.dies = dies


def _freeze(world: World) -> None:
    process = world.alive.get("B")
    if process is None:
        return
    slot = process.engine.topology.slots[world.scenario.freezes]
    process.tasks.append(lambda p: None if slot.frozen else p.engine.freeze(slot))
    process.wake()

    def thaw() -> None:
        if process.alive:
            process.tasks.append(lambda p: p.engine.unfreeze(slot) if slot.frozen else None)
            process.wake()

    world.network.later((0.0, 4.0), thaw)


def _let_some_go(world: World) -> None:
    name, count = world.scenario.stores, world.random.randint(1, 5)
    for process in world.alive.values():
        if name in process.engine.topology.slots:
            process.tasks.append(lambda p: _send_some(p, name, count))
            process.wake()


def _send_some(process: Process, name: str, count: int) -> None:
    slot = process.engine.topology.slots.get(name)
    if slot is not None:
        process.engine.send_stored(slot, min(count, slot.queued))
