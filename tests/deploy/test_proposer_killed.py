"""A proposer that dies at any step of a change leaves the deployment to the others, within a bounded time."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest

from evflow.deploy.proposal import Outcome
from tests.deploy.group import Group, graph_of, record_of

BOUND = 12.0
"""Seconds after the death within which the others can change the deployment; see docs/deployments.md."""


class Killed(BaseException):
    """The process ends here, at once."""


def _dies(group: Group, step: int, saving: bool) -> Callable[[], bool]:
    """Kills A at the nth note that it sends, or before or after the nth time that it saves."""
    controller, store = group.controllers["A"], group.stores["A"]
    left, dead = [step], [False]

    def count() -> None:
        if dead[0]:
            raise Killed
        left[0] -= 1
        if left[0] < 0:
            dead[0] = True
            group.down.add("A")
            raise Killed

    if saving:
        store.dies = count
    else:
        send = controller._send

        def counted(peer: str, note: bytes) -> bool:
            count()
            return send(peer, note)

        controller._send = counted
    return lambda: dead[0]


def _run(group: Group, seconds: float) -> None:
    end = group.now + seconds
    while group.now < end:
        try:
            group.run(end - group.now)
        except Killed:
            group.down.add("A")


def _change_by(group: Group, node: str, within: float) -> None:
    """Changes the deployment at a node, again and again, until that succeeds."""
    end, version = group.now + within, group.controllers[node].records["x"].version
    while group.now < end:
        base, outcomes = group.controllers[node].records["x"], []
        told: list[Outcome] = outcomes
        group.controllers[node].propose(
            base.edited(graph_of(a="B", b="C", c="C")), patience=2.0, done=told.append
        )
        while not told:
            _run(group, 0.05)
        if told[0].error is None:
            assert group.controllers[node].records["x"].version > version
            return
    pytest.fail(f"it cannot be changed: {told[0].error}")


@pytest.mark.slow
@pytest.mark.parametrize("returns", [False, True], ids=["for good", "returns"])
@pytest.mark.parametrize("saving", [False, True], ids=["sending", "saving"])
def test_others_can_change_a_deployment_whose_proposer_died(saving: bool, returns: bool) -> None:
    for step in range(200):
        group = Group("ABC")
        assert group.propose("A", record_of("x", "ABC", a="B", b="B", c="C")).error is None
        is_dead = _dies(group, step, saving)
        # A itself has no stone, so that the others can go on without it.
        wanted = group.controllers["A"].records["x"].edited(graph_of(a="B", b="C", c="B"))
        outcomes: list[Outcome] = []
        group.controllers["A"].propose(wanted, patience=5.0, done=outcomes.append)
        _run(group, 1.5)
        if not is_dead():
            # It was done before the nth step, as all later ones.
            assert outcomes
            assert step > 5
            break
        if returns:
            group.stores["A"].dies = lambda: None
            group.start("A")
            group.down.discard("A")
        _change_by(group, "B", BOUND)
        _run(group, 5.0)
        here = {name: stones for name, stones in group.stones("x").items() if name not in group.down}
        # No stone is lost or runs twice.
        assert sorted(stone for stones in here.values() for stone in stones) == ["a", "b", "c"]
        assert here["B"] == {"a"} and here["C"] == {"b", "c"}
    else:
        pytest.fail("it never comes to an end")


def test_refusal_says_how_long_the_other_change_may_take() -> None:
    group = Group("ABC")
    assert group.propose("A", record_of("x", "ABC", a="A", b="B", c="C")).error is None
    group.grounds["B"].waits = "events are under way"
    first: list[Outcome] = []
    moved = group.controllers["A"].records["x"].edited(graph_of(a="A", b="C", c="C"))
    group.controllers["A"].propose(moved, patience=5.0, done=first.append)
    began = group.now
    group.run(2.0)
    second = group.propose("C", group.controllers["C"].records["x"].edited(graph_of(a="C", b="B", c="C")))
    found = re.search(r"proposed by A, is under way; it ends within (\d+\.\d) s", str(second.error))
    assert found is not None, second.error
    asked = group.now
    while not first:
        group.run(0.05)
    assert first[0].error is not None
    assert group.now - began <= 5.0 + 1.0 + 0.2
    assert group.now <= asked + float(found[1]) + 0.2


@pytest.mark.slow
def test_change_that_is_cut_off_keeps_its_limit() -> None:
    """Whatever it was at, its outcome is told at most a second after its limit."""
    for cut_after in range(30):
        group = Group("ABC")
        assert group.propose("A", record_of("x", "ABC", a="A", b="B", c="C")).error is None
        told: list[Outcome] = []
        moved = group.controllers["A"].records["x"].edited(graph_of(a="A", b="C", c="C"))
        group.controllers["A"].propose(moved, patience=4.0, done=told.append)
        began = group.now
        for _ in range(cut_after):
            if not group.notes:
                group.controllers["A"].tick(group.now)
            if group.notes:
                start, peer, note = group.notes.popleft()
                group.controllers[peer].receive(start, note, group.now)
                group.controllers[peer].tick(group.now)
        group.down |= {"B", "C"}
        while not told:
            group.run(0.05)
        assert group.now - began <= 4.0 + 1.0 + 0.2
