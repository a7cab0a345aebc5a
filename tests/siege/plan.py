"""What happens in a run, and when: data that is made from a seed."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from random import Random
from typing import NamedTuple

from tests.siege.ways import NODES

__all__ = ["ATTACKS", "Attack", "Step", "plan"]


class Attack(NamedTuple):
    """A kind of attack.

    Attributes:
        by: who makes it: "siege" (to the machine), "wolf" (a peer with a valid key that may not control) or
            "mole" (who may deploy).
        least, most: how many seconds it lasts.
        weight: how often it comes in a round.
        what: what it is.
    """

    by: str
    least: float
    most: float
    weight: int
    what: str


ATTACKS = {
    "kill": Attack("siege", 0.1, 2.0, 2, "kill -9 of a node, which starts again on its folder"),
    "stop": Attack("siege", 1.0, 7.0, 1, "SIGSTOP of a node for a while"),
    "cut": Attack("siege", 1.0, 7.0, 1, "the cable of a node's host is pulled"),
    "fill": Attack("siege", 1.0, 5.0, 1, "the disk with a node's storage is full"),
    "nap": Attack("siege", 5.5, 8.0, 2, "a handler sleeps"),
    "orphan": Attack(
        "siege", 4.0, 8.0, 1, "a handler sleeps while its sender, with 64 bridges to it, is killed"
    ),
    "nested": Attack("wolf", 1.0, 3.0, 1, "lists in lists, 1,000 to 100,000 deep"),
    "header": Attack("wolf", 2.0, 4.0, 1, "headers of up to 60 MB"),
    "body": Attack("wolf", 2.0, 4.0, 1, "bodies of up to 200 MB for no channel, and messages of many parts"),
    "pings": Attack("wolf", 2.0, 5.0, 1, "a flood of small messages, the answers to which nobody reads"),
    "states": Attack("wolf", 1.0, 4.0, 1, "messages in the wrong state, or with wrong values"),
    "schemas": Attack("wolf", 2.0, 4.0, 1, "thousands of schemas"),
    "channels": Attack("wolf", 2.0, 5.0, 1, "thousands of channels, and frames as far as the credit goes"),
    "hoard": Attack("wolf", 4.0, 7.0, 1, "frames on hundreds of channels while the handler sleeps"),
    "questions": Attack(
        "wolf", 2.0, 5.0, 1, "questions and notes without end, the answers to which nobody reads"
    ),
    "churn": Attack("wolf", 2.0, 4.0, 1, "sessions that begin and are left, under one name and others"),
    "claims": Attack("wolf", 1.0, 3.0, 1, "shared memory and shortcuts that are not there"),
    "loris": Attack("wolf", 3.0, 7.0, 1, "hundreds of connections that say a byte now and then"),
    "crowd": Attack("wolf", 2.0, 4.0, 1, "more connections than a node may have files"),
    "noise": Attack("wolf", 1.0, 3.0, 1, "bytes that are not ZeroMQ"),
    "wide": Attack("mole", 2.0, 5.0, 1, "functions that are wide or deep"),
    "fuel": Attack("mole", 2.0, 5.0, 1, "functions that burn what they may"),
    "texts": Attack("mole", 2.0, 5.0, 1, "functions that search megabytes"),
    "strange": Attack("mole", 1.0, 4.0, 1, "handlers that nobody allowed"),
    "failing": Attack("mole", 1.0, 4.0, 1, "handlers that raise, or want to end the process"),
    "dozing": Attack("mole", 2.0, 6.0, 1, "handlers that sleep at every event"),
    "flood": Attack("mole", 2.0, 5.0, 1, "as many events as go, small and large"),
}

_GAP = (0.3, 1.7)


class Step(NamedTuple):
    """One attack of a run.

    Attributes:
        at: seconds after the beginning.
        attack: a key of ``ATTACKS``.
        target: the node.
        seconds: how long it lasts.
        seed: of what it decides itself.
    """

    at: float
    attack: str
    target: str
    seconds: float
    seed: int

    def __str__(self) -> str:
        return (
            f"{self.attack} of {self.target} at {self.at:.1f} s for {self.seconds:.1f} s (seed {self.seed})"
        )


def plan(seed: int, seconds: float, only: Collection[str] = ()) -> list[Step]:
    """The attacks of a run.

    Args:
        seed: decides everything.
        seconds: when the last one begins at the latest.
        only: names of attacks; all by default.
    """
    random = Random(seed)
    steps: list[Step] = []
    at, bag = 0.0, _bag(random, only or ATTACKS.keys())
    while (at := at + random.uniform(*_GAP)) < seconds:
        name = next(bag)
        attack = ATTACKS[name]
        target = "d" if name == "orphan" else random.choice(NODES)
        lasts = min(random.uniform(attack.least, attack.most), max(attack.least, seconds - at))
        steps.append(Step(at, name, target, lasts, random.randrange(1 << 30)))
    return steps


def _bag(random: Random, names: Collection[str]) -> Iterator[str]:
    """All attacks as often as they weigh, in a random order, again and again."""
    while True:
        found = [name for name in sorted(names) for _ in range(ATTACKS[name].weight)]
        random.shuffle(found)
        yield from found
