"""What must hold of a run, by what arrived, what nodes answered, and what they had in use."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

from tests.siege.limits import Limits
from tests.siege.troubles import Span, Trouble, overlap, united
from tests.siege.ways import NODES, Way, ways

__all__ = ["Failure", "Figures", "judge_answers", "judge_traffic", "naps_of"]

_MOST_TOLD = 3
"""Failures of one kind that are told; the others are counted."""


class Failure(NamedTuple):
    """What was wrong.

    Attributes:
        at: when, of ``time.monotonic``.
        what: in words.
        nodes: the nodes that it is about.
    """

    at: float
    what: str
    nodes: tuple[str, ...]


@dataclass
class Figures:
    """What was found.

    Attributes:
        sent, arrived, lost, doubled, allowed, disordered: events; ``allowed`` are those that came again as
            the documents say that they may.
        worst: kind of way → the longest that an event took while nothing excused it.
        gap: the longest that a node which was well left questions without an answer.
    """

    sent: int = 0
    arrived: int = 0
    lost: int = 0
    doubled: int = 0
    allowed: int = 0
    disordered: int = 0
    worst: dict[str, float] = field(default_factory=dict)
    gap: float = 0.0


class _Arrival(NamedTuple):
    seq: int
    sent: float
    at: float


def naps_of(node: str, file: Path, troubles: Iterable[Trouble]) -> list[Trouble]:
    """The times in which handlers of a node slept, as they wrote them down; a kill ends a nap too."""
    kills = sorted(t.start for t in troubles if t.node == node and t.kind in ("kill", "ended"))
    naps: list[Trouble] = []
    for line in file.read_text().splitlines() if file.exists() else ():
        what, _, at = line.partition(" ")
        if what == "begin":
            killed = [kill for kill in kills if kill >= float(at)]
            naps.append(Trouble("nap", node, float(at), min(killed, default=float("inf"))))
        elif naps:
            naps[-1].end = float(at)
    return naps


def judge_traffic(
    sent: Mapping[int, int], notes: Mapping[str, Path], troubles: list[Trouble], limits: Limits
) -> tuple[Figures, list[Failure]]:
    """Whether everything arrived, once, in order and in time.

    Args:
        sent: way → how many events were submitted.
        notes: node → the file of what arrived there.
        troubles: what was done to nodes.
        limits: what is allowed.
    """
    figures, failures = Figures(), []
    arrivals = {node: _read(file) for node, file in notes.items()}
    for way in ways():
        came = arrivals[way.nodes[-1]].get(way.number, [])
        figures.sent += sent.get(way.number, 0)
        failures += _judge_way(way, sent.get(way.number, 0), came, troubles, limits, figures)
    return figures, _some(failures)


def _read(file: Path) -> dict[int, list[_Arrival]]:
    found: dict[int, list[_Arrival]] = {}
    with file.open() if file.exists() else Path("/dev/null").open() as lines:
        for line in lines:
            way, seq, sent, at = line.split()
            found.setdefault(int(way), []).append(_Arrival(int(seq), float(sent), float(at)))
    return found


def _judge_way(
    way: Way, sent: int, came: list[_Arrival], troubles: list[Trouble], limits: Limits, figures: Figures
) -> Iterator[Failure]:
    title = f"way {way.number} ({way.kind} {'→'.join(way.nodes)})"
    excused = united((t for t in troubles if t.node in way.nodes), limits.recovery)
    there = [t for t in troubles if t.node == way.nodes[-1]]
    first: dict[int, _Arrival] = {}
    newest = -1
    for arrival in came:
        if arrival.seq in first:
            if _may_come_again(first[arrival.seq], arrival, there, limits):
                figures.allowed += 1
            else:
                figures.doubled += 1
                before = arrival.at - first[arrival.seq].at
                what = f"{title}: event {arrival.seq} arrived again, {before:.2f} s after it had arrived"
                yield Failure(arrival.at, what, way.nodes)
            continue
        first[arrival.seq] = arrival
        if arrival.seq < newest:
            figures.disordered += 1
            yield Failure(arrival.at, f"{title}: event {arrival.seq} arrived after {newest}", way.nodes)
        newest = max(newest, arrival.seq)
        took = arrival.at - arrival.sent
        took -= overlap(excused, arrival.sent, arrival.at)
        if took > figures.worst.get(way.kind, 0.0):
            figures.worst[way.kind] = took
        if took > limits.silent:
            what = f"{title}: event {arrival.seq} took {took:.1f} s in which nothing excused it"
            yield Failure(arrival.at, what, way.nodes)
    figures.arrived += len(first)
    lost = sorted(set(range(sent)) - first.keys())
    figures.lost += len(lost)
    if lost:
        at = next((one.at for one in came if one.seq > lost[0]), float("inf"))
        yield Failure(
            at, f"{title}: {len(lost)} of {sent} events lost, from {lost[0]} to {lost[-1]}", way.nodes
        )


def _may_come_again(first: _Arrival, again: _Arrival, there: list[Trouble], limits: Limits) -> bool:
    """Whether the terminal's node was killed in the turn in which it handled an event first."""
    held_up = united(trouble for trouble in there if trouble.kind not in ("kill", "ended"))
    return any(
        first.at <= kill.start <= again.at
        and kill.start - first.at - overlap(held_up, first.at, kill.start) <= limits.turn
        for kill in there
        if kill.kind in ("kill", "ended")
    )


def judge_answers(
    file: Path, begun: float, ended: float, troubles: list[Trouble], limits: Limits, figures: Figures
) -> list[Failure]:
    """Whether nodes that were well answered, and stayed connected to each other.

    Args:
        file: what the desk wrote.
        begun, ended: from when to when.
        troubles: what was done to nodes.
        limits: what is allowed.
        figures: gets the longest silence.
    """
    answers: dict[str, list[dict[str, Any]]] = {node: [] for node in NODES}
    for line in file.read_text().splitlines():
        told = json.loads(line)
        if "links" in told and begun <= told["asked"]:
            answers[told["host"]].append(told)
    failures: list[Failure] = []
    for node, told in answers.items():
        excused = united((t for t in troubles if t.node == node), limits.recovery)
        times = [begun, *(one["answered"] for one in told), ended]
        for before, after in pairwise(times):
            silent = after - before - overlap(excused, before, after)
            figures.gap = max(figures.gap, silent)
            if silent > limits.unheard:
                what = f"node {node}: no answer for {silent:.1f} s in which nothing excused it"
                failures.append(Failure(after, what, (node,)))
        failures += _judge_sessions(node, told, troubles, limits)
    return _some(failures)


def _judge_sessions(
    node: str, told: list[dict[str, Any]], troubles: list[Trouble], limits: Limits
) -> Iterator[Failure]:
    """A handler that is slow, or a full disk, is no reason to give a peer up."""
    grave = [t for t in troubles if t.kind not in ("nap", "fill")]
    for before, after in pairwise(told):
        for peer in NODES:
            grown = after["links"].get(peer, 0) - before["links"].get(peer, 0)
            if grown <= 0 or before["pid"] != after["pid"]:
                continue
            excused: list[Span] = united((t for t in grave if t.node in (node, peer)), limits.recovery)
            start = before["asked"] - limits.recovery
            if not overlap(excused, start, after["answered"]):
                what = f"node {node}: its link to {peer} broke {grown} times while both were well"
                yield Failure(after["answered"], what, (node, peer))


def _some(failures: Iterable[Failure]) -> list[Failure]:
    """A few of each kind; the last one says how many there were."""
    grouped: dict[str, list[Failure]] = {}
    for failure in sorted(failures):
        kind = re.sub(r"\d|\(.*\)|node \w|link to \w", "", failure.what)
        grouped.setdefault(kind, []).append(failure)
    told: list[Failure] = []
    for group in grouped.values():
        told += group[:_MOST_TOLD]
        if len(group) > _MOST_TOLD:
            told[-1] = told[-1]._replace(what=f"{told[-1].what}, and {len(group) - _MOST_TOLD} more such")
    return sorted(told)
