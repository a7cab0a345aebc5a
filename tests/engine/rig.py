"""An engine that a test drives by hand, and what came to its terminals."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import evflow as ev
from evflow.engine.check import check_graph
from evflow.engine.engine import Engine
from evflow.engine.letters import LetterBox
from evflow.engine.topology import Slot, Topology

__all__ = ["Rec", "Rig", "Word", "keep"]


class Rec(ev.Event):
    seq: int
    source: int = 0


class Word(ev.Event):
    text: str


def keep(into: list[Any]) -> Callable[[Any], None]:
    """A handler that keeps the number of each event."""
    return lambda event: into.append(event.seq)


class Rig:
    """An engine over a graph."""

    def __init__(self, graph: ev.Graph) -> None:
        self.box = LetterBox(1000, lambda stone, batch, timeout: None)
        self.engine = Engine(check_graph(graph), self.box)

    @property
    def topology(self) -> Topology:
        return self.engine.topology

    def slot(self, name: str) -> Slot:
        return self.topology.slots[name]

    def send(self, name: str, *seqs: int, source: int = 0) -> None:
        """Submits one batch, and runs it."""
        columns = {"seq": list(seqs), "source": [source] * len(seqs)}
        self.engine.submit(self.slot(name), ev.EventBatch.from_columns(Rec, columns))
        self.engine.run()

    def letters(self) -> list[tuple[str, int, str]]:
        return [(letter.stone, letter.event.seq, letter.reason) for letter in self.box.letters()]
