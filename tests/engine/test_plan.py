"""What one native pass takes in at most; what does not fit is a pass of its own."""

from __future__ import annotations

import pytest

import evflow as ev
from evflow.engine import plan
from evflow.engine.plan import plan_route
from tests.engine.rig import Rec, Rig, keep


@pytest.mark.parametrize(
    ("limit", "most", "branching", "passes"),
    [
        ("_MAX_DEPTH", 3, False, [["f0", "f1", "f2"], ["f3", "f4"]]),
        ("_MAX_STAGES", 3, False, [["f0", "f1", "f2"], ["f3", "f4"]]),
        ("_MAX_STAGES", 3, True, [["f0", "f1", "f2"], ["f3"], ["f4"]]),
        ("_MAX_NODES", 1, False, [["f0"], ["f1"], ["f2"], ["f3"], ["f4"]]),
        ("_MAX_NODES", 1, True, [["f0"], ["f1"], ["f2"], ["f3"], ["f4"]]),
        ("_MAX_NODES", 1000, False, [["f0", "f1", "f2", "f3", "f4"]]),
    ],
)
def test_a_pass_ends_where_it_has_enough(
    limit: str, most: int, branching: bool, passes: list[list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(plan, limit, most)
    g, seen = ev.Graph(), []  # type: ignore[var-annotated]
    source = g.source("recs", Rec)
    at = source
    for number in range(5):
        last = (source if branching else at) >> ev.Filter(f"input.seq != {number}", name=f"f{number}")
        if branching or number == 4:
            _ = last >> ev.Terminal(keep(seen), name=f"end{number}")
        at = last
    rig = Rig(g)
    found, todo = [], ["recs"]
    while todo:
        route = plan_route(rig.slot(todo.pop(0)), Rec.schema, rig.topology)
        if route.stages:
            found.append([slot.name for slot, _ in route.stages])
        ends = [hop for hops in (route.direct, *route.exits) for hop in hops]
        todo += [hop.slot.name for hop in ends if hop.slot.name.startswith("f")]
    assert found == passes
    rig.send("recs", *range(7))
    passed = [n for number in range(5) for n in range(7) if n != number]
    assert sorted(seen) == (sorted(passed) if branching else [5, 6])
