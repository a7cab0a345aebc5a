"""One run of a siege, from a seed, and what is told of it."""

from __future__ import annotations

import math
import shutil
import tempfile
import time
from collections.abc import Callable, Collection
from contextlib import ExitStack
from pathlib import Path

from tests.siege.judge import Failure, Figures, judge_answers, judge_traffic
from tests.siege.limits import Limits
from tests.siege.plan import ATTACKS, plan
from tests.siege.world import World

__all__ = ["besiege"]

_TABLE_EVERY = 10.0
_DESCRIPTORS_GO = 35.0
"""Seconds after which ZeroMQ has given up every handshake that was begun."""


def besiege(
    seed: int,
    seconds: float,
    *,
    plant: str = "",
    only: Collection[str] = (),
    limits: Limits | None = None,
    keep: bool = True,
    say: Callable[[str], None] = print,
) -> list[Failure]:
    """Runs nodes under attack; returns what was wrong.

    Args:
        seed: decides what happens when.
        seconds: how long attacks begin.
        plant: a fault to plant into the nodes; see ``tests.siege.plants``.
        only: names of attacks; all by default.
        limits: what is allowed.
        keep: whether logs are kept where something was wrong.
        say: prints a line.
    """
    limits = limits or Limits()
    folder = Path(tempfile.mkdtemp(prefix=f"siege-{seed}-"))
    kept = keep
    try:
        with ExitStack() as stack:
            world = World(folder, limits, plant, stack, say)
            for attack, why in world.ground.missing.items():
                say(f"  no attack {attack!r}: {why}")
            _fight(world, seed, seconds, only, say)
            _settle(world, limits, say)
            _tell(world, seed, say)
        kept = keep and bool(world.failures)
        return world.failures
    finally:
        if kept:
            say(f"  seed {seed}: logs are in {folder}")
        else:
            shutil.rmtree(folder, ignore_errors=True)


def _fight(
    world: World, seed: int, seconds: float, only: Collection[str], say: Callable[[str], None]
) -> None:
    steps = plan(seed, seconds, only)
    table_at = 0.0
    say(f"seed {seed}: {len(steps)} attacks in {seconds:g} s")
    while (now := time.monotonic() - world.begun) < seconds or steps:
        while steps and steps[0].at <= now:
            world.attack(steps.pop(0))
        if now >= table_at:
            table_at = now + _TABLE_EVERY
            say(_in_use(world, now))
        world.turn()
    # What goes on ends by itself, each within a time.
    while not world.is_calm:
        world.turn()


def _in_use(world: World, now: float) -> str:
    told = [
        f"{name} {node.samples[-1].memory >> 20:5} MiB {node.samples[-1].descriptors:4} fd"
        for name, node in world.nodes.items()
        if node.samples
    ]
    return f"  {now:7.1f} s  " + "   ".join(told)


def _settle(world: World, limits: Limits, say: Callable[[str], None]) -> None:
    """Ends the traffic, waits until all is handled, and judges."""
    calm = time.monotonic()
    world.desk.tell("end", within=limits.settle)
    result = None
    while result is None and time.monotonic() < calm + limits.settle + 10 and world.desk.code is None:
        result = world.desk.answer(0.1)
        if not isinstance(result, dict):
            result = None
        else:
            break
        world.turn_nodes()
    if result is None:
        world.fail(time.monotonic(), "the desk did not end")
        result = {"sent": {}, "troubles": []}
    drained = time.monotonic()
    for trouble in result["troubles"]:
        world.fail(time.monotonic(), f"not handled {limits.settle:g} s after the last attack: {trouble}")
    _judge_descriptors(world, limits, calm)
    if world.failures:
        for node in world.nodes.values():
            node.dump()
        time.sleep(0.5)
    troubles = world.all_troubles()
    sent = {int(way): count for way, count in result["sent"].items()}
    notes = {name: node.notes for name, node in world.nodes.items()}
    figures, failures = judge_traffic(sent, notes, troubles, limits)
    failures += judge_answers(world.folder / "answers", world.begun, drained, troubles, limits, figures)
    world.failures += failures
    say(_told(figures))


def _judge_descriptors(world: World, limits: Limits, calm: float) -> None:
    def grown() -> dict[str, int]:
        return {
            name: node.samples[-1].descriptors - world.usual[name]
            for name, node in world.nodes.items()
            if node.samples[-1].descriptors - world.usual[name] > limits.grown
        }

    world.turn_nodes()
    while grown() and time.monotonic() < calm + _DESCRIPTORS_GO:
        world.turn_nodes()
        time.sleep(0.1)
    for name, more in grown().items():
        what = f"node {name}: {more} descriptors more than before the first attack"
        world.fail(time.monotonic(), f"{what}; expected at most {limits.grown}", name)


def _told(figures: Figures) -> str:
    worst = ", ".join(f"{kind} {seconds:.2f} s" for kind, seconds in sorted(figures.worst.items()))
    return (
        f"  events: {figures.sent} sent, {figures.arrived} arrived, {figures.lost} lost, "
        f"{figures.doubled} doubled, {figures.disordered} out of order, "
        f"{figures.allowed} again after a kill of their terminal\n"
        f"  worst latency with no excuse: {worst}; longest without an answer: {figures.gap:.1f} s"
    )


def _tell(world: World, seed: int, say: Callable[[str], None]) -> None:
    for name, node in world.nodes.items():
        memory = max(sample.most for sample in node.samples) >> 20
        files = max(sample.descriptors for sample in node.samples)
        last = node.samples[-1]
        say(
            f"  node {name}: at most {memory} MiB and {files} descriptors; "
            f"at the end {last.memory >> 20} MiB and {last.descriptors}"
        )
    for attack in ATTACKS:
        made, skipped = world.made[attack], world.made[f"{attack} (skipped)"]
        if made or skipped:
            done = ", ".join(f"{count} {what}" for what, count in sorted(world.done.get(attack, {}).items()))
            left_out = f", {skipped} skipped" if skipped else ""
            say(f"  {attack:10} {made} made{left_out}{f': {done}' if done else ''}")
    for failure in sorted(world.failures):
        at = failure.at - world.begun
        when = f"{at:.1f} s" if math.isfinite(at) else "never"
        say(f"FAILED seed {seed} at {when}: {failure.what}")
        for start, end, step in world.log:
            if start <= failure.at <= end + 5:
                say(f"    meanwhile: {step}")
        for node in sorted(set(failure.nodes)):
            say(f"    log of {node}: {world.nodes[node].log}")
