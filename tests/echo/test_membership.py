"""Who takes part in which channel, simulated with seeds: all who live agree, and links are complete."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest

from evflow import LinkError
from evflow.echo.membership import Membership
from evflow.echo.notes import LEFT, OPEN, Entry, Known, State
from evflow.echo.record import Record
from tests.echo.world import Process, World

NAMES = ["ada", "bob", "cyd", "dan", "eve"]


def act(world: World, random: Random, deaths: bool) -> None:
    """Something happens."""
    what = random.choice(
        ["start", "create", "derive", "open", "open", "subscribe", "subscribe", "unsubscribe", "leave"]
    )
    if deaths and random.random() < 0.15:
        what = random.choice(["kill", "kill", "cut", "heal"])
    if what == "start" or not world.processes:
        missing = [name for name in NAMES if name not in world.processes]
        if missing:
            world.start(random.choice(missing), ahead=random.choice([0, 0, -100_000]) if deaths else 0)
        return
    process = world.processes[random.choice(sorted(world.processes))]
    keys = sorted(process.membership.rosters)
    if what == "create":
        world.create(process, random.choice(["a", "b"]))
    elif what == "open":
        _open(world, random, process)
    elif what == "cut" and len(world.processes) > 1:
        world.cut.add(frozenset(random.sample(sorted(world.processes), 2)))
    elif what == "heal":
        world.cut.clear()
    elif what == "kill":
        world.kill(process.name)
    elif keys:
        _change(world, process, what, random.choice(keys))


def _open(world: World, random: Random, process: Process) -> None:
    other = world.processes[random.choice(sorted(world.processes))]
    keys = sorted(other.membership.rosters)
    if other is not process and keys:
        world.open(process, other.name, random.choice(keys))


def _change(world: World, process: Process, what: str, key: str) -> None:
    if what == "derive":
        if key in process.opened and len(process.membership.rosters) < 12:
            world.create(process, "d", key)
    elif what == "leave":
        if process.membership.rosters[key].record.parent not in process.membership.rosters:
            world.leave(process, key)
    else:
        world.subscribe(process, key, what == "subscribe")


def play(seed: int, deaths: bool, steps: int = 60) -> None:
    world = World(seed)
    random = Random(seed)
    for name in NAMES[:2]:
        world.start(name)
    world.create(world.processes["ada"], "a")
    for _ in range(steps):
        act(world, random, deaths)
        for _ in range(random.choice([1, 3, 10, 30])):
            world.step()
            if not deaths:
                world.check_complete()
    world.loss = 0.0
    world.cut.clear()
    world.run(28.0 if deaths else 6.0)
    world.check_complete(strangers=deaths)
    world.check_agreed()
    for process in world.processes.values():
        assert not process.opening & process.membership.rosters.keys()
        assert not process.subscribing


@pytest.mark.parametrize("start", [0, *(pytest.param(start, marks=pytest.mark.slow) for start in (8, 16))])
def test_links_are_complete_whatever_notes_are_lost(start: int) -> None:
    for seed in range(start, start + 8):
        play(seed, deaths=False)


@pytest.mark.parametrize("start", [0, *(pytest.param(start, marks=pytest.mark.slow) for start in (8, 16))])
def test_those_who_live_agree_whoever_dies(start: int) -> None:
    for seed in range(start, start + 8):
        play(seed, deaths=True)


@pytest.mark.parametrize(
    ("seed", "deaths"),
    [
        (86, False),
        (798, False),
        (889, False),
        (5073, False),
        (27, True),
        (59, True),
        (4178, True),
        (7101, True),
        (10364, True),
    ],
)
def test_runs_that_went_wrong_once_go_well(seed: int, deaths: bool) -> None:
    play(seed, deaths)


def fails(monkeypatch: pytest.MonkeyPatch, name: str, instead: Any, deaths: bool) -> bool:
    """Whether the simulation notices that a part of the bookkeeping is missing."""
    monkeypatch.setattr(Membership, name, instead)
    for seed in range(40):
        try:
            play(seed, deaths)
        except AssertionError:
            return True
    return False


def test_the_simulation_notices_when_nobody_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    assert fails(monkeypatch, "waiting_for", lambda self, key, now: [], deaths=False)


def test_the_simulation_notices_when_nobody_gossips(monkeypatch: pytest.MonkeyPatch) -> None:
    assert fails(monkeypatch, "_gossip", lambda self, roster, now: None, deaths=False)


def test_the_simulation_notices_when_nobody_is_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    assert fails(monkeypatch, "_tidy", lambda self, now: None, deaths=True)


def test_a_process_that_left_makes_room_for_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("evflow.echo.roster.MOST_ENTRIES", 100)
    membership = Membership("ada", "", 5)
    record = Record("c", "ada", "00000000")
    membership.add(record, 0.0)
    for number in range(180):
        entry = Entry(f"p{number}", "", 1, 1, LEFT if number < 130 else OPEN)
        state = State(record.key, False, entry, (0, 0), bytes(16), [], None, None)
        membership.receive(entry.process, [state], 1.0)
    assert len(membership.rosters[record.key].members()) == 51
    more = State(record.key, False, None, (0, 0), bytes(16), [], None, Known(
        [(Entry(f"q{number}", "", 1, 1, OPEN), 0) for number in range(100)], []
    ))  # fmt: skip
    with pytest.raises(LinkError, match="more than 100 processes"):
        membership.receive("p179", [more], 1.0)
