"""What one native pass takes in at most; what does not fit is a pass of its own."""

from __future__ import annotations

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

import evflow as ev
from evflow.engine import plan
from evflow.engine.plan import plan_route
from evflow.engine.topology import DROPPED, IN, OUT
from tests.engine.rig import Rec, Rig, keep
from tests.examples import tried


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


@settings(max_examples=tried(20), deadline=None)
@given(
    st.lists(
        st.tuples(st.sampled_from([1, 1, 1, 2, 3]), st.sampled_from([0, 0, 2, 3])), min_size=1, max_size=7
    )
)
@example([(1, 2), (1, 0), (1, 3)])
def test_each_stone_of_a_pass_counts_what_comes_to_it(stones: list[tuple[int, int]]) -> None:
    """Of random trees: each stone is behind an earlier one, and is a split, or lets multiples pass."""
    g = ev.Graph()
    at, passing, ahead = [g.source("recs", Rec)], [{*range(12)}], [0]
    for number, (back, multiple) in enumerate(stones, 1):
        place = max(number - back, 0)
        code = f"input.seq % {multiple} == 0"
        stone = ev.Filter(code, name=f"s{number}") if multiple else ev.Split(name=f"s{number}")
        at.append(at[place] >> stone)
        passing.append({n for n in passing[place] if not multiple or n % multiple == 0})
        ahead[place] += 1
        ahead.append(0)
    seen: list[list[int]] = [[] for _ in at]
    for number, last in enumerate(at):
        if number % 3 == 0 or not ahead[number]:
            _ = last >> ev.Terminal(keep(seen[number]), name=f"end{number}")
            ahead[number] += 1
    rig = Rig(g)
    rig.send("recs", *range(12))
    for number, (back, multiple) in enumerate(stones, 1):
        counts, came = rig.slot(f"s{number}").counts, len(passing[max(number - back, 0)])
        # A split counts what it gives to each stone behind it.
        left = len(passing[number]) * (1 if multiple else ahead[number])
        assert (counts[IN], counts[OUT]) == (came, left), f"s{number}"
        assert counts[DROPPED] == (came - left if multiple else 0)
    assert all(numbers in ([], sorted(may)) for numbers, may in zip(seen, passing, strict=True))
