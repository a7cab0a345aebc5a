"""What a match stone adds to its matcher: the same batches through a flow and through ``match_batch`` alone.

``cost`` is for other benchmarks; run as a script it says what a few kinds of events cost.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

import evflow as ev
from evflow.engine.check import check_graph
from evflow.engine.engine import Engine
from evflow.engine.letters import LetterBox
from evflow.matching.matcher import Matcher

ENGINE = "index"
EVENTS = 1_000
"""Events a batch."""


@dataclass(frozen=True)
class Cost:
    """Microseconds of processor time an event, the least of several runs.

    Attributes:
        alone: ``Matcher.match_batch``.
        stone: from submission to the batches that leave, in an engine.
        matches: ids an event.
    """

    alone: float
    stone: float
    matches: float

    @property
    def added(self) -> float:
        """What the stone adds."""
        return self.stone - self.alone


def cost(
    subscriptions: Any,
    batches: Sequence[ev.EventBatch],
    *,
    repeat: int = 7,
    settings: dict[str, Any] | None = None,
) -> Cost:
    """What events cost alone and through the stone, which subscribes the same.

    Args:
        subscriptions: what ``subscribe_many`` takes.
        batches: the events, as many in each as come at once.
        repeat: how often each is measured.
        settings: of the stone: engine, space, location, route …
    """
    stone = ev.Match(name="match", **(settings or {}))
    graph = ev.Graph()
    matching = graph.source("events") >> stone
    matching >> ev.Terminal(lambda batch: None, batch=True)
    engine = Engine(check_graph(graph), LetterBox(10, lambda name, batch, timeout: None))
    slots = engine.topology.slots
    slots["match"].actor.do(lambda book: book.matcher.subscribe_many(subscriptions))
    matcher: Matcher = slots["match"].actor.do(lambda book: book.matcher)

    def through() -> None:
        for batch in batches:
            engine.submit(slots["events"], batch)
            engine.run()

    def alone() -> None:
        for batch in batches:
            matcher.match_batch(batch)

    count = sum(map(len, batches))
    matches = sum(len(matcher.match_batch(batch).ids) for batch in batches) / count
    times = [(_seconds(alone), _seconds(through)) for _ in range(repeat)]
    found = Cost(*(min(column) / count * 1e6 for column in zip(*times, strict=True)), matches)
    engine.stop()
    return found


def _seconds(work: Callable[[], None]) -> float:
    start = time.thread_time()
    work()
    return time.thread_time() - start


class Reading(ev.Event):
    """Fields of fixed width."""

    station: ev.Str[10]
    x: float
    y: float
    number: int


class Note(ev.Event):
    """A text of any length among them."""

    station: str
    x: float
    y: float
    number: int


def main() -> None:
    """Prints what the stone adds to matching ``number == n``, of which each event satisfies so many."""
    random = np.random.default_rng(1)
    print(f"{'events':8} {'matches':>8} {'alone':>8} {'stone':>8} {'added':>8}   µs an event")
    for kind in (Reading, Note):
        for route in (False, True):
            for each in (0.3, 1.0, 15.0):
                columns = {
                    "station": [f"station{n % 7}" for n in range(EVENTS)],
                    "x": random.random(EVENTS),
                    "y": random.random(EVENTS),
                    "number": random.permutation(EVENTS),
                }
                batch = ev.EventBatch.from_columns(kind.schema, columns)
                wanted = [f"number == {n % EVENTS}" for n in range(int(each * EVENTS))]
                found = cost(wanted, [batch] * 20, settings={"engine": ENGINE, "route": route})
                print(
                    f"{kind.__name__:8} {found.matches:8.1f} {found.alone:8.2f} {found.stone:8.2f} "
                    f"{found.added:8.2f}   {'routed' if route else 'with ids'}"
                )


if __name__ == "__main__":
    main()
