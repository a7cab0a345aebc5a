"""The program of somebody hostile: one attack on one node for some seconds; it says what it has done."""

from __future__ import annotations

import importlib
import json
import os
import sys
import time
from collections import Counter
from random import Random

__all__ = ["Foe", "main"]


class Foe:
    """Who attacks, and what he needs for that.

    Attributes:
        target: the node's name.
        hosts: where all nodes are.
        keys: the folder of his keys.
        name: his name.
        random: what he decides with.
        done: what he has done: counts by name.
    """

    def __init__(
        self, target: str, hosts: dict[str, str], keys: str, name: str, seconds: float, seed: int
    ) -> None:
        self.target = target
        self.hosts = hosts
        self.keys = keys
        self.name = name
        self.random = Random(seed)
        self.done: Counter[str] = Counter()
        self._until = time.monotonic() + seconds

    @property
    def left(self) -> float:
        """Seconds that are left."""
        return max(0.0, self._until - time.monotonic())

    @property
    def contact(self) -> str:
        """Where the node is."""
        return self.hosts[self.target]


def main() -> None:
    """The program."""
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)
    module, attack, plan = sys.argv[1:]
    foe = Foe(**json.loads(plan))
    getattr(importlib.import_module(module), attack)(foe)
    answers.write(json.dumps(foe.done) + "\n")
    answers.flush()
    # Connections that are still open are none of the node's fault.
    os._exit(0)
