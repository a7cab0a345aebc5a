"""Why a compiled function has given an event up: what, where, and what to do."""

from __future__ import annotations

import pytest

import evflow as ev


class Inner(ev.Event):
    grid: ev.Array[float, 2, 3]


class Rec(ev.Event):
    at: int
    fixed: ev.Array[float, 3]
    many: ev.Array[float, None]
    names: list[str]
    inner: Inner


class Out(ev.Event):
    cells: ev.Array[float, 4]


EVENT = Rec(7, [1.0] * 3, [1.0] * 5, ["a", "b"], Inner([[1.0] * 3] * 2))


def index(found: int, name: str, size: str, line: int) -> str:
    return f"index {found} is out of range: {name} has {size} (line {line})"


def reason(stone: ev.Stone, at: int) -> str:
    graph = ev.Graph()
    _ = graph.source("recs", Rec) >> stone >> ev.Terminal(lambda event: None)
    with graph.run() as flow:
        event = Rec(at, EVENT.fixed, EVENT.many, EVENT.names, EVENT.inner)
        flow["recs"].submit(event)
    (letter,) = flow.dead_letters()
    return letter.reason


def second(event: Rec) -> bool:
    total = 0.0
    for number in range(event.at):
        total += event.many[number]
    return total > 0


def lookup(event: Rec) -> bool:
    return event.names[event.at] == "a"


@pytest.mark.parametrize(
    ("stone", "at", "told"),
    [
        (ev.Filter("input.fixed[input.at] > 0"), 7, index(7, "input.fixed", "3 elements", 1)),
        (ev.Filter("input.fixed[input.at] > 0"), -1, index(-1, "input.fixed", "3 elements", 1)),
        (ev.Filter("input.inner.grid[1][input.at] > 0"), 3,
         index(3, "dimension 2 of input.inner.grid", "3 elements", 1)),
        (ev.Filter(second), 9, index(5, "event.many", "5 elements", 4)),
        (ev.Filter(lookup), 2, index(2, "event.names", "2 elements", 2)),
        (ev.Filter("{\n static int seen[4];\n seen[input.at] = 1;\n return 1;\n}"), 4,
         index(4, "seen", "4 elements", 3)),
        (ev.Transform("{\n output.cells[input.at] = 1;\n return 1;\n}", output=Out), 6,
         index(6, "output.cells", "4 elements", 2)),
        (ev.Queue("{ discard(recs, 5); }", inputs={"recs": Rec}, outputs={"out": Out}), 0,
         index(5, "recs", "1 element", 1)),
        (ev.Filter("{\n while (1) ;\n return 1;\n}", fuel=1000), 0,
         "out of fuel: it did more for one event than 1,000 units allow; bound its loops, or give "
         "a higher fuel= (line 2)"),
    ],
)  # fmt: skip
def test_the_reason_names_what_was_wrong(stone: ev.Stone, at: int, told: str) -> None:
    """Index, length, field and line of an index; the amount of fuel, and how to give more."""
    assert reason(stone, at) == told


def test_reasons_that_differ_in_their_numbers_are_one_to_the_log(caplog: pytest.LogCaptureFixture) -> None:
    """Two lines of one function are two."""
    graph = ev.Graph()
    code = "{\n if (input.at > 50) return input.many[input.at] > 0;\n return input.fixed[input.at] > 0;\n}"
    _ = graph.source("recs", Rec) >> ev.Filter(code) >> ev.Terminal(lambda event: None)
    with graph.run() as flow:
        for at in (7, -4, 5, 60, 61, 8):
            flow["recs"].submit(Rec(at, EVENT.fixed, EVENT.many, EVENT.names, EVENT.inner))
    assert len({letter.reason for letter in flow.dead_letters()}) == 6
    told = [record.getMessage().partition("; with")[0] for record in caplog.records]
    assert told[:2] == [f"stone 'filter': {index(7, 'input.fixed', '3 elements', 3)}",
                        f"stone 'filter': {index(60, 'input.many', '5 elements', 2)}"]  # fmt: skip
    assert told[2].startswith("flow graph ended with 6 dead letters: 4 at 'filter' (index 7")
    assert len(told) == 3
