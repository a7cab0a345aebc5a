"""Graphs of strangers, changed at random: a node refuses them in words, or can take them; nothing else."""

from __future__ import annotations

import copy
import os
import random
from pathlib import Path
from typing import Any

import pytest

import evflow as ev
from evflow.deploy.admission import Admission
from evflow.deploy.part import part_of
from evflow.deploy.record import Record
from tests.deploy.yard import Rec

SEEDS = int(os.environ.get("EVFLOW_GRAPH_SEEDS", "500"))
HOSTS = {"a": "tcp://127.0.0.1:1", "b": "tcp://127.0.0.1:2"}
COPY = "output.seq = input.seq; return 1;"
ASK = "{ if (input.seq == 2) reconfigure(1); return input.seq > 3; }"
ODD = [
    None, True, False, 0, -1, 1, 7, 1 << 62, 1 << 70, -(1 << 63), 0.5, float("nan"), float("inf"), "", "a",
    "b", "x", "recs", "/", "..", "\0", "a/b", "input.seq", "os:system", "desk:note", b"", b"\xff", [], [[]],
    {}, {"a": 1}, ["a", 1, "b", ""], "x" * 70_000, "ä\ud800",
]  # fmt: skip


class Newer(ev.Event):
    """Another schema, for a morph."""

    seq: int
    more: float


def _graph() -> dict[str, Any]:
    """A graph with stones of all kinds on b."""
    graph = ev.Graph("evil")
    with graph.on("b"):
        recs = graph.source("recs", Rec, on="a")
        above = recs >> ev.Filter(ASK, name="filter")
        router = above >> ev.Router("input.seq % 2", name="router")
        made = router[0] >> ev.Transform(COPY, output=Rec, name="transform")
        _ = made >> ev.Terminal("desk:note", batch=True, name="end")
        held = router[1] >> ev.Storage(5, path="held.db", name="held")
        queue = held >> ev.Queue(
            "{ discard(recs, 0); }", inputs={"recs": Rec}, name="queue", outputs={"o": Rec}
        )
        split = queue >> ev.Split(name="split")
        _ = split >> ev.Terminal("desk:note", batch=True, name="other")
        _ = graph.add(ev.Generator("return 0;", period=1.0, output=Rec, name="clock")) >> split
    graph.morph(Newer, Rec, COPY)
    graph.fallback("b", to="a", after=5)
    graph.when("filter", 1, freeze=["end"])
    return graph.to_dict()


def _spoil(value: Any, noise: random.Random) -> Any:
    """The same data with one thing changed somewhere in it."""
    if isinstance(value, dict | list) and value and noise.random() < 0.85:
        key = noise.choice(list(value) if isinstance(value, dict) else range(len(value)))
        if noise.random() < 0.06:
            del value[key]
        elif isinstance(value, list) and noise.random() < 0.06:
            value.append(copy.deepcopy(value[key]))
        else:
            value[key] = _spoil(value[key], noise)
        return value
    if isinstance(value, str) and value and noise.random() < 0.4:
        at = noise.randrange(len(value))
        return (
            value[:at] + noise.choice(["", "(", "0", "}", " ", "\0", ";", "input", "[9]"]) + value[at + 1 :]
        )
    return noise.choice(ODD)


@pytest.fixture(scope="module")
def admission(tmp_path_factory: pytest.TempPathFactory) -> Admission:
    """What a node admits that has one handler."""
    return Admission({"desk:note": lambda batch: None}, tmp_path_factory.mktemp("node"))


def _take(graph: Any, admission: Admission) -> str:
    data = Record("evil", 1, graph, HOSTS).data()
    try:
        part = part_of(Record.from_data(data), "b", admission)
    except ev.EvflowError as error:
        return str(error)
    assert all(name.startswith("evil/") for name in part.slots)
    return ""


def test_the_graph_itself_is_taken(admission: Admission) -> None:
    assert _take(_graph(), admission) == ""


def test_a_graph_that_is_spoilt_is_refused_in_words_or_taken(admission: Admission, tmp_path: Path) -> None:
    graph, told = _graph(), set()
    for seed in range(SEEDS):
        noise = random.Random(seed)
        spoilt = copy.deepcopy(graph)
        for _ in range(noise.choice([1, 1, 1, 2, 4])):
            spoilt = _spoil(spoilt, noise)
        try:
            told.add(_take(spoilt, admission)[:40])
        except BaseException:
            print(f"seed {seed}: {str(spoilt)[:3000]}")
            raise
    assert "" in told
    assert len(told) > 50
