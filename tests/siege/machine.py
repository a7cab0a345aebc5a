"""Attacks on the machine: kills, stops, cuts, full disks, and handlers that sleep."""

from __future__ import annotations

import errno
import os
import signal
import time
from typing import TYPE_CHECKING

from tests.siege.plan import Step
from tests.siege.troubles import Trouble
from tests.siege.ways import MANY, ways

if TYPE_CHECKING:
    from tests.siege.world import World

__all__ = ["attack", "end_all"]

_POLL = 0.1
_CHUNK = 1 << 20
_SPARE = 4096


def attack(world: World, step: Step) -> bool:
    """Makes an attack; False if the node is in such a state that it cannot be made."""
    return {"kill": _kill, "stop": _stop, "cut": _cut, "fill": _fill, "nap": _nap, "orphan": _orphan}[
        step.attack
    ](world, step.target, step.seconds)


def _is_in(world: World, node: str, *kinds: str) -> bool:
    return any(t.node == node and t.kind in kinds and t.end == float("inf") for t in world.troubles)


def _begin(world: World, kind: str, node: str) -> Trouble:
    trouble = Trouble(kind, node, time.monotonic())
    world.troubles.append(trouble)
    return trouble


def _end(trouble: Trouble) -> None:
    trouble.end = time.monotonic()


def _kill(world: World, node: str, seconds: float) -> bool:
    if _is_in(world, node, "kill", "stop", "ended"):
        return False
    world.nodes[node].kill()
    trouble = _begin(world, "kill", node)
    world.later(seconds, lambda: revive(world, trouble))
    return True


def revive(world: World, trouble: Trouble) -> None:
    """Starts a node again, once its disk has room; the trouble ends when it listens."""
    node = world.nodes[trouble.node]
    if _is_in(world, trouble.node, "fill"):
        world.later(_POLL, lambda: revive(world, trouble))
        return
    node.start()
    _wait_ready(world, trouble)


def _wait_ready(world: World, trouble: Trouble) -> None:
    node = world.nodes[trouble.node]
    if node.is_ready:
        _end(trouble)
    elif node.code is None:
        world.later(_POLL, lambda: _wait_ready(world, trouble))


def _stop(world: World, node: str, seconds: float) -> bool:
    if _is_in(world, node, "kill", "stop", "ended"):
        return False
    trouble = _begin(world, "stop", node)
    world.nodes[node].signal(signal.SIGSTOP)

    def go_on() -> None:
        world.nodes[node].signal(signal.SIGCONT)
        _end(trouble)

    world.later(seconds, go_on)
    return True


def _cut(world: World, node: str, seconds: float) -> bool:
    if _is_in(world, node, "cut"):
        return False
    trouble = _begin(world, "cut", node)
    world.ground.cut(node)

    def mend() -> None:
        world.ground.mend(node)
        _end(trouble)

    world.later(seconds, mend)
    return True


def _fill(world: World, node: str, seconds: float) -> bool:
    if _is_in(world, node, "fill", "kill", "ended"):
        return False
    trouble = _begin(world, "fill", node)
    filler = world.folder / node / "filler"
    _fill_up(filler)

    def empty() -> None:
        filler.unlink()
        _end(trouble)

    world.later(seconds, empty)
    return True


def _fill_up(filler: os.PathLike[str]) -> None:
    file = os.open(filler, os.O_WRONLY | os.O_CREAT, 0o600)
    try:
        at, size = 0, _CHUNK
        while size >= _SPARE:
            try:
                os.posix_fallocate(file, at, size)
                at += size
            except OSError as error:
                if error.errno != errno.ENOSPC:
                    raise
                size //= 2
    finally:
        os.close(file)


def _nap(world: World, node: str, seconds: float) -> bool:
    found = [way.number for way in ways() if way.nodes[-1] == node and way.kind != "many"]
    world.desk.tell("nap", way=found[0], seconds=seconds)
    return True


def _orphan(world: World, node: str, seconds: float) -> bool:
    first = next(way.number for way in ways() if way.kind == "many")
    world.desk.tell("nap", way=first + MANY // 2, seconds=seconds)
    # So that every bridge has as many frames under way as it may, when its node is killed.
    world.later(0.6, lambda: world.desk.tell("hurry", kind="many", seconds=1.0))
    world.later(1.7, lambda: _kill(world, node, 1.0))
    return True


def end_all(world: World) -> None:
    """Has the system let all processes go on, so that they can be ended."""
    for node in world.nodes.values():
        if node.code is None:
            node.signal(signal.SIGCONT)
