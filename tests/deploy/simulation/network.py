"""A simulated network of notes: lost, doubled, late, in any order, and cut between nodes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from random import Random

from tests.link.simulation.clock import Clock

__all__ = ["Killed", "Manner", "Network"]


class Killed(BaseException):
    """The process ends here, at once."""


@dataclass
class Manner:
    """How a network behaves.

    Attributes:
        delay: seconds that a note takes at most.
        lost: how many of the notes are.
        doubled: how many come twice.
        late: how many of these come again after many seconds.
    """

    delay: float = 0.001
    lost: float = 0.0
    doubled: float = 0.0
    late: float = 0.0


class Network:
    """All notes under way.

    Args:
        clock, random: of the world.
        deliver: gives a note to a node, if it is alive: (from, to, note).

    Attributes:
        manner: how it behaves now.
        cuts: pairs (from, to) between which nothing gets through.
    """

    def __init__(self, clock: Clock, random: Random, deliver: Callable[[str, str, bytes], None]) -> None:
        self.manner = Manner()
        self.cuts: set[tuple[str, str]] = set()
        self._clock = clock
        self._random = random
        self._deliver = deliver

    def send(self, start: str, end: str, note: bytes) -> bool:
        """Sends a note."""
        random, manner = self._random, self.manner
        if (start, end) in self.cuts:
            return False
        if random.random() >= manner.lost:
            self._later(random.random() * manner.delay, start, end, note)
        if random.random() < manner.doubled:
            late = 60.0 if random.random() < manner.late else 3 * manner.delay
            self._later(random.random() * late, start, end, note)
        return True

    def _later(self, seconds: float, start: str, end: str, note: bytes) -> None:
        def arrive() -> None:
            if (start, end) not in self.cuts:
                self._deliver(start, end, note)

        self._clock.at(self._clock.now + seconds, arrive)

    def heal(self) -> None:
        """From now on all goes well, but for what is late."""
        self.manner = Manner()
        self.cuts.clear()
