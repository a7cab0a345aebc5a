"""The graphs that are simulated, and what each must do, in plain Python."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from random import Random
from typing import Any

import evflow as ev

__all__ = ["SCENARIOS", "Item", "Scenario"]

Handlers = Callable[[str], Callable[[Any], None]]
Arrival = tuple[str, int]


class Item(ev.Event):
    """What flows.

    Attributes:
        source: the number of the source.
        seq: counts the events of a source, from 0; negative: queues let everything go.
        path: which way the event took.
        text: a payload that follows from ``source`` and ``seq``.
    """

    source: int
    seq: int
    path: int
    text: str


class Partner(ev.Event):
    """The other half of a pair."""

    source: int
    seq: int
    path: int
    text: str
    other: int


@dataclass(frozen=True)
class Scenario:
    """A graph and its oracle.

    Attributes:
        name: its name.
        build: makes the graph of handlers, given by the terminal's name.
        sources: source stone → its number, and the class of its events.
        arrives: (source, seq) → the terminals that the event reaches, each with its ``path`` there.
        killed: nodes that may be killed.
        once: whether nothing arrives twice although nodes that forward are killed; not so behind stones that
            keep events, which are other events after a restart.
        holds: whether a stone keeps events until others come, so a bridge must not block before.
        bursts: whether a stone may let go more at once than one frame.
        delivery: of all bridges.
        policy: of all bridges.
        freezes, stores: the stone that is frozen now and then, and that holds events until told.
        moves: how what is on B goes elsewhere meanwhile, see ``Move``; "" if it does not.
        mixes: a node whose kill has bridges that have ended send again, behind what is newer; "" if none.
        flushes: whether a last event with a negative number is submitted.
    """

    name: str
    build: Callable[[Random, Handlers], ev.Graph]
    sources: Mapping[str, tuple[int, type[ev.Event]]]
    arrives: Callable[[int, int], list[Arrival]]
    killed: tuple[str, ...] = ()
    once: bool = True
    holds: bool = False
    bursts: bool = False
    delivery: str = "at_least_once"
    policy: str = "block"
    freezes: str = ""
    stores: str = ""
    moves: str = ""
    mixes: str = ""
    flushes: bool = False


_ONE = {"s": (1, Item)}


def _moved(path: str) -> str:
    return (
        f"output.source = input.source; output.seq = input.seq; output.path = {path}; "
        "output.text = input.text; return 1;"
    )


def _way(number: int, on: str) -> ev.Transform:
    return ev.Transform(_moved(f"input.path * 10 + {number}"), output=Item, name=f"t{number}", on=on)


def _pair(random: Random, handlers: Handlers) -> ev.Graph:
    graph = ev.Graph("pair")
    graph.source("s", Item, on="A") >> ev.Terminal(handlers("end"), batch=True, name="end", on="B")
    return graph


def _chain(random: Random, handlers: Handlers) -> ev.Graph:
    graph = ev.Graph("chain")
    kept = graph.source("s", Item, on="A") >> ev.Filter("input.seq % 3 != 1", name="f", on="B")
    if random.random() < 0.5:
        kept = kept >> ev.Filter("input.seq >= 0", name="g", on="C")
    kept >> _way(1, "D") >> ev.Terminal(handlers("end"), batch=True, name="end", on="E")
    return graph


def _diamond(random: Random, handlers: Handlers) -> ev.Graph:
    graph = ev.Graph("diamond")
    source = graph.source("s", Item, on="A")
    for number, node in enumerate("BC", 1):
        name = f"end{number}"
        source >> _way(number, node) >> ev.Terminal(handlers(name), batch=True, name=name, on="D")
    return graph


def _meeting(random: Random, handlers: Handlers) -> ev.Graph:
    graph = ev.Graph("meeting")
    source = graph.source("s", Item, on="A")
    ways = [source >> _way(number, node) for number, node in enumerate("BC", 1)]
    end = graph.add(ev.Terminal(handlers("end"), batch=True, name="end", on="D"))
    for way in ways:
        way >> end
    return graph


def _fan_in(random: Random, handlers: Handlers) -> ev.Graph:
    graph = ev.Graph("fan in")
    kept = graph.add(ev.Filter("input.seq % 2 == 0", name="f", on="C"))
    for name, node in (("s", "A"), ("r", "B")):
        graph.source(name, Item, on=node) >> kept
    kept >> ev.Terminal(handlers("end"), batch=True, name="end", on="D")
    return graph


def _router(random: Random, handlers: Handlers) -> ev.Graph:
    graph = ev.Graph("router")
    router = graph.source("s", Item, on="A") >> ev.Router("return input.seq % 3;", name="r", on="B")
    both = graph.add(ev.Filter("1", name="f", on="B"))
    for number in (1, 2):
        router[number] >> _way(number, "B") >> both
    both >> ev.Terminal(handlers("end"), batch=True, name="end", on="C")
    return graph


def _there_and_back(random: Random, handlers: Handlers) -> ev.Graph:
    graph = ev.Graph("there and back")
    (
        graph.source("s", Item, on="A")
        >> _way(1, "B")
        >> ev.Terminal(handlers("end"), batch=True, name="end", on="A")
    )
    (
        graph.source("r", Item, on="B")
        >> _way(2, "A")
        >> ev.Terminal(handlers("end2"), batch=True, name="end2", on="B")
    )
    return graph


_KEEP_THREE = """{
    while (count(items) > 3) { submit(0, items[0]); discard(items, 0); }
    if (items[count(items) - 1].seq < 0) {
        while (count(items) > 0) { submit(0, items[0]); discard(items, 0); }
    }
}"""


def _queue(random: Random, handlers: Handlers) -> ev.Graph:
    graph = ev.Graph("queue")
    queue = ev.Queue(_KEEP_THREE, inputs={"items": Item}, name="q", on="B")
    graph.source("s", Item, on="A") >> queue >> ev.Terminal(handlers("end"), batch=True, name="end", on="C")
    return graph


_JOIN = """{
    while (count(left) > 0 && count(right) > 0) {
        pair.source = left[0].source;
        pair.seq = left[0].seq;
        pair.path = left[0].seq == right[0].seq ? 7 : 8;
        pair.text = left[0].text;
        submit(0, pair);
        discard(left, 0);
        discard(right, 0);
    }
}"""


def _join(random: Random, handlers: Handlers) -> ev.Graph:
    graph = ev.Graph("join")
    join = graph.add(
        ev.Queue(_JOIN, inputs={"left": Item, "right": Partner}, outputs={"pair": Item}, name="q", on="C")
    )
    graph.source("s", Item, on="A") >> join["left"]
    graph.source("r", Partner, on="B") >> join["right"]
    join >> ev.Terminal(handlers("end"), batch=True, name="end", on="D")
    return graph


def _storage(random: Random, handlers: Handlers) -> ev.Graph:
    graph = ev.Graph("storage")
    held = graph.source("s", Item, on="A") >> ev.Storage(random.randint(1, 9), name="held", on="B")
    held >> ev.Terminal(handlers("end"), batch=True, name="end", on="C")
    return graph


def _frozen(random: Random, handlers: Handlers) -> ev.Graph:
    graph = ev.Graph("frozen")
    (
        graph.source("s", Item, on="A")
        >> _way(1, "B")
        >> ev.Terminal(handlers("end"), batch=True, name="end", on="C")
    )
    return graph


def _move(random: Random, handlers: Handlers) -> ev.Graph:
    graph = ev.Graph("move")
    source = graph.source("s", Item, on="A")
    way = source >> _way(1, "B")
    if random.random() < 0.5:
        way = way >> ev.Filter("input.seq >= 0", name="g", on="B")
    way >> ev.Terminal(handlers("end1"), batch=True, name="end1", on="D")
    source >> _way(2, "C") >> ev.Terminal(handlers("end2"), batch=True, name="end2", on="D")
    return graph


def _move_chain(random: Random, handlers: Handlers) -> ev.Graph:
    graph = ev.Graph("move chain")
    way = graph.source("s", Item, on="A") >> _way(1, "B") >> _way(2, "D")
    way >> ev.Terminal(handlers("end1"), batch=True, name="end1", on="E")
    graph.source("r", Item, on="C") >> ev.Terminal(handlers("end2"), batch=True, name="end2", on="C")
    return graph


def _move_end(random: Random, handlers: Handlers) -> ev.Graph:
    graph = ev.Graph("move end")
    source = graph.source("s", Item, on="A")
    source >> _way(1, "B") >> ev.Terminal(handlers("end1"), batch=True, name="end1", on="B")
    source >> _way(2, "C") >> ev.Terminal(handlers("end2"), batch=True, name="end2", on="D")
    return graph


def _move_storage(random: Random, handlers: Handlers) -> ev.Graph:
    graph = ev.Graph("move storage")
    source = graph.source("s", Item, on="A")
    held = source >> _way(1, "B") >> ev.Storage(random.randint(1, 9), name="held", on="B")
    held >> ev.Terminal(handlers("end1"), batch=True, name="end1", on="D")
    source >> _way(2, "C") >> ev.Terminal(handlers("end2"), batch=True, name="end2", on="D")
    return graph


def _move_before(random: Random, handlers: Handlers) -> ev.Graph:
    graph = ev.Graph("move before storage")
    source = graph.source("s", Item, on="A")
    held = source >> _way(1, "B") >> ev.Storage(random.randint(1, 9), name="held", on="D")
    held >> ev.Terminal(handlers("end1"), batch=True, name="end1", on="E")
    source >> _way(2, "C") >> ev.Terminal(handlers("end2"), batch=True, name="end2", on="E")
    return graph


def _move_one(random: Random, handlers: Handlers) -> ev.Graph:
    graph = ev.Graph("move one")
    way = graph.source("s", Item, on="A") >> _way(1, "B")
    way >> ev.Terminal(handlers("end1"), batch=True, name="end1", on="D")
    graph.source("r", Item, on="C") >> ev.Terminal(handlers("end2"), batch=True, name="end2", on="C")
    return graph


_BOTH = [("end1", 1), ("end2", 2)]
_TWO = {"s": (1, Item), "r": (2, Item)}

_ALL = [
    Scenario("pair", _pair, _ONE, lambda source, seq: [("end", 0)], ("B",)),
    Scenario(
        "chain", _chain, _ONE, lambda source, seq: [("end", 1)] if seq % 3 != 1 else [], ("B", "C", "D", "E")
    ),
    Scenario(
        "diamond", _diamond, _ONE, lambda source, seq: [("end1", 1), ("end2", 2)], ("B", "C", "D")
    ),
    Scenario("meeting", _meeting, _ONE, lambda source, seq: [("end", 1), ("end", 2)], ("B", "C", "D")),
    Scenario(
        "fan in", _fan_in, _TWO, lambda source, seq: [("end", 0)] if seq % 2 == 0 else [], ("C", "D")
    ),
    Scenario(
        "router", _router, _ONE, lambda source, seq: [("end", seq % 3)] if seq % 3 else [], ("B", "C")
    ),
    Scenario(
        "there and back", _there_and_back, _TWO,
        lambda source, seq: [("end", 1) if source == 1 else ("end2", 2)],
    ),
    Scenario(
        "queue", _queue, _ONE, lambda source, seq: [("end", 0)], ("B", "C"), once=False, holds=True,
        bursts=True, flushes=True,
    ),
    # A join that is killed may find its events in another order, and then makes other pairs.
    Scenario(
        "join", _join, {"s": (1, Item), "r": (2, Partner)},
        lambda source, seq: [("end", 7)] if source == 1 else [], ("D",), holds=True, bursts=True,
    ),
    Scenario(
        "storage", _storage, _ONE, lambda source, seq: [("end", 0)], ("B", "C"), once=False, bursts=True,
        stores="held",
    ),
    Scenario(
        "frozen", _frozen, _ONE, lambda source, seq: [("end", 1)], ("B", "C"), once=False, bursts=True,
        freezes="t1",
    ),
    Scenario(
        "at most once", _pair, _ONE, lambda source, seq: [("end", 0)], ("B",), delivery="at_most_once"
    ),
    Scenario("move", _move, _ONE, lambda source, seq: _BOTH, ("B", "C", "D"), moves="orderly"),
    Scenario("move end", _move_end, _ONE, lambda source, seq: _BOTH, ("B", "C", "D"), moves="orderly"),
    Scenario(
        "move storage", _move_storage, _ONE, lambda source, seq: _BOTH, ("B", "C", "D"), once=False,
        bursts=True, stores="held", moves="orderly",
    ),
    *(
        Scenario(
            name, _move_before, _ONE, lambda source, seq: _BOTH, ("B", "C", "D", "D", "E"), once=False,
            bursts=True, stores="held", moves=moves, mixes="D",
        )
        for name, moves in (
            ("move before storage", "orderly"), ("move back", "back"), ("move to storage", "to D")
        )
    ),
    Scenario("give up", _move, _ONE, lambda source, seq: _BOTH, ("B", "C", "D"), moves="given up"),
    Scenario(
        "give up chain", _move_chain, _ONE, lambda source, seq: [("end1", 12)], ("B", "C", "D", "E"),
        moves="given up",
    ),
    Scenario(
        "move at most once", _move_one, _ONE, lambda source, seq: [("end1", 1)], ("D",),
        delivery="at_most_once", moves="orderly",
    ),
    *(
        Scenario(policy, _pair, _ONE, lambda source, seq: [("end", 0)], ("B",), policy=policy)
        for policy in ("drop oldest", "drop newest", "keep latest", "sample")
    ),
]  # fmt: skip

SCENARIOS: dict[str, Scenario] = {scenario.name: scenario for scenario in _ALL}
"""By name."""
