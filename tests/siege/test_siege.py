"""The plan and the judge of a siege, and 12 seconds of one."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

from tests.examples import tried
from tests.siege.judge import judge_traffic
from tests.siege.limits import Limits
from tests.siege.plan import ATTACKS, plan
from tests.siege.plants import PLANTS
from tests.siege.run import besiege
from tests.siege.troubles import Trouble, overlap, united
from tests.siege.ways import NODES, ways

SECONDS = float(os.environ.get("EVFLOW_SIEGE_SECONDS", "12"))
SEED = int(os.environ.get("EVFLOW_SEED", "0"))
PLANTED = [[*PLANTS][(SEED + n) % len(PLANTS)] for n in range(min(tried(1), len(PLANTS)))]
"""One of the planted faults, another with another seed; more with ``EVFLOW_EXAMPLES``."""

SHARED = Limits(silent=10.0, unheard=20.0)
"""Twice as long: other tests run beside the siege, and a function with all its fuel takes as much longer."""


def test_a_plan_is_the_same_for_the_same_seed_and_has_every_attack() -> None:
    assert plan(3, 60) == plan(3, 60) != plan(4, 60)
    assert {step.attack for step in plan(3, 60)} == ATTACKS.keys()
    assert {step.attack for step in plan(3, 60, ["kill", "cut"])} == {"kill", "cut"}


def test_troubles_that_overlap_count_once() -> None:
    troubles = [Trouble("kill", "a", 1, 3), Trouble("cut", "a", 2, 4), Trouble("stop", "a", 8, 9)]
    assert united(troubles, recovery=1.0) == [(1, 5.0), (8, 10.0)]
    assert overlap(united(troubles), 0, 8.5) == 3.5


WAY = ways()[0]


def _judged(
    folder: Path, lines: list[str], troubles: list[Trouble], sent: int
) -> tuple[list[int], list[str]]:
    notes = {node: folder / node for node in NODES}
    notes[WAY.nodes[-1]].write_text("".join(f"{WAY.number} {line}\n" for line in lines))
    figures, failures = judge_traffic({WAY.number: sent}, notes, troubles, Limits())
    counts = [figures.lost, figures.doubled, figures.disordered, figures.allowed]
    return counts, [failure.what for failure in failures]


def test_traffic_without_fault_is_judged_so(tmp_path: Path) -> None:
    assert _judged(tmp_path, ["0 1.0 1.1", "1 2.0 2.1"], [], 2) == ([0, 0, 0, 0], [])


@pytest.mark.parametrize(
    ("lines", "counts", "words"),
    [
        (["0 1.0 1.1"], [1, 0, 0, 0], "1 of 2 events lost"),
        (["0 1.0 1.1", "1 1.0 1.1", "0 1.0 1.2"], [0, 1, 0, 0], "event 0 arrived again"),
        (["1 1.0 1.1", "0 1.0 1.1"], [0, 0, 1, 0], "event 0 arrived after 1"),
        (["0 1.0 1.1", "1 1.0 7.1"], [0, 0, 0, 0], "event 1 took 6.1 s"),
    ],
    ids=["lost", "doubled", "disordered", "late"],
)
def test_what_is_wrong_with_traffic_is_told(
    tmp_path: Path, lines: list[str], counts: list[int], words: str
) -> None:
    found, told = _judged(tmp_path, lines, [], 2)
    assert found == counts
    assert len(told) == 1
    assert words in told[0]


def test_a_terminal_may_see_again_only_what_it_handled_just_before_it_was_killed(tmp_path: Path) -> None:
    lines = ["0 1.0 1.1", "1 5.0 5.1", "0 1.0 6.0", "1 5.0 6.0"]
    killed = Trouble("kill", WAY.nodes[-1], 5.2, 5.5)
    assert _judged(tmp_path, lines, [killed], 2)[0] == [0, 1, 0, 1]
    another = Trouble("kill", WAY.nodes[0], 5.2, 5.5)
    assert _judged(tmp_path, lines, [another], 2)[0] == [0, 2, 0, 0]


def test_an_event_may_be_late_only_while_its_path_is_in_trouble(tmp_path: Path) -> None:
    lines = ["0 1.0 12.0"]
    assert _judged(tmp_path, lines, [Trouble("cut", WAY.nodes[1], 1.0, 4.0)], 1)[1] == []
    (elsewhere,) = set(NODES[3:]) - set(WAY.nodes) - {"e"}
    assert len(_judged(tmp_path, lines, [Trouble("cut", elsewhere, 1.0, 4.0)], 1)[1]) == 1


@pytest.mark.slow
def test_a_siege_loses_doubles_and_ends_nothing() -> None:
    told: list[str] = []
    failures = besiege(SEED, SECONDS, limits=SHARED, say=told.append)
    assert failures == [], "\n".join(told)


@pytest.mark.slow
@pytest.mark.parametrize("plant", PLANTED)
def test_a_planted_fault_is_found(plant: str) -> None:
    found = PLANTS[plant]
    told: list[str] = []
    limits = Limits(unheard=5.0, settle=12.0, memory=found.memory)
    # On a busy machine a short siege may end before its attacks get through.
    for seconds in (4.0, 8.0, 16.0):
        failures = besiege(
            SEED, seconds, plant=plant, only=found.attacks, limits=limits, keep=False, say=told.append
        )
        if any(re.search(found.found, failure.what) for failure in failures):
            return
    pytest.fail("\n".join(told))
