"""Where EVPath was seen to fail, and evflow must not."""

from __future__ import annotations

import pytest

import evflow as ev


class Rec(ev.Event):
    seq: int
    size: ev.i32 = 0


class Series(ev.Event):
    at: int
    values: ev.Array[ev.f64, 4]


def test_bad_function_is_refused_with_line_and_column() -> None:
    """A wrong function is refused before anything runs, and the error shows the place."""
    g = ev.Graph()
    g.source("recs", Rec) >> ev.Filter("{\n    return input.sise > 3;\n}", name="big") >> ev.Terminal(print)
    with pytest.raises(ev.CodeError) as refused:
        g.run()
    error = refused.value
    assert (error.line, error.column) == (2, 18)
    for word in ("big", "sise", "seq, size"):
        assert word in str(error)
    assert str(error).splitlines()[-1].index("^") == str(error).splitlines()[-2].index("sise")


def test_everything_wrong_is_reported_at_once() -> None:
    """A graph with several mistakes names them all."""
    g = ev.Graph()
    recs = g.source("recs", Rec)
    recs >> ev.Filter("input.nope", name="first") >> ev.Terminal(print)
    recs >> ev.Filter("input.seq +", name="second") >> ev.Terminal(print)
    recs >> ev.Filter("1", name="leads nowhere")
    with pytest.raises(ev.GraphError) as refused:
        g.run()
    text = str(refused.value)
    assert len(refused.value.problems) == 3
    for word in ("first", "nope", "second", "leads nowhere"):
        assert word in text


@pytest.mark.parametrize(
    ("code", "reason"),
    [("return 10 / input.at;", "division"), ("return input.values[input.at] == 0;", "index")],
)
def test_a_fault_costs_one_event(code: str, reason: str) -> None:
    """Division by zero or a bad index costs the event it happened in, which becomes a dead letter."""
    seen = []
    bad = 0 if reason == "division" else 4
    g = ev.Graph()
    g.source("series", Series) >> ev.Filter(code, name="check") >> ev.Terminal(lambda e: seen.append(e.at))
    with g.run() as flow:
        for at in (1, bad, 2):
            flow["series"].submit(Series(at, [0.0] * 4))
        flow.drain()
        letters = flow.dead_letters()
        stats = flow.stats()["check"]
    assert seen == [1, 2]
    assert [(letter.stone, letter.event.at) for letter in letters] == [("check", bad)]
    assert reason in letters[0].reason
    assert (stats["in"], stats["out"], stats["errors"]) == (3, 2, 1)


def test_unlinked_output_is_an_error() -> None:
    """A stone whose output leads nowhere is refused when the graph starts."""
    g = ev.Graph()
    g.source("recs", Rec) >> ev.Filter("1", name="loose")
    with pytest.raises(ev.GraphError, match=r"loose.*leads nowhere"):
        g.run()


def test_a_change_in_one_branch_is_not_seen_in_another() -> None:
    """What one branch of a split does to attributes is seen neither by the other nor by the submitter."""
    changed, plain = [], []
    g = ev.Graph()
    recs = g.source("recs", Rec)
    (
        recs
        >> ev.Filter('set_int_attr(event_attrs, "k", 2); return 1;')
        >> ev.Terminal(lambda event: changed.append(event.attrs["k"]))
    )
    recs >> ev.Terminal(lambda event: plain.append(event.attrs["k"]))
    attrs = {"k": 1}
    with g.run() as flow:
        flow["recs"].submit(Rec(0), attrs=attrs)
    assert (changed, plain, attrs) == ([2], [1], {"k": 1})


def test_an_event_cannot_be_changed_by_a_handler() -> None:
    """The event that a handler gets is read-only."""
    refused = []

    def handler(event: object) -> None:
        try:
            event.seq = 9  # type: ignore[attr-defined]
        except AttributeError as error:
            refused.append(str(error))

    g = ev.Graph()
    g.source("recs", Rec) >> ev.Terminal(handler)
    rec = Rec(1)
    with g.run() as flow:
        flow["recs"].submit(rec)
    assert len(refused) == 1
    assert rec == Rec(1)


def test_removing_what_is_no_target_of_a_split_is_an_error() -> None:
    """Taking a stone off a split that does not lead to it is refused, and the real targets stay."""
    seen: list[str] = []
    g = ev.Graph()
    fan = g.source("recs", Rec) >> ev.Split(name="fan")
    fan >> ev.Terminal(lambda event: seen.append("a"), name="a")
    g.source("others", Rec) >> ev.Terminal(print, name="stranger")
    with g.run() as flow:
        with pytest.raises(ev.FlowError, match="'stranger' is not a target of 'fan'; its targets are a"):
            flow.unlink("fan", "stranger")
        flow["recs"].submit(Rec(1))
    assert seen == ["a"]


def test_a_hostile_function_ends() -> None:
    """A function that loops for ever runs out of fuel, and costs its event only."""
    g = ev.Graph()
    g.source("recs", Rec) >> ev.Filter("while (1) {} return 1;", name="spin", fuel=1000) >> ev.Terminal(print)
    with g.run() as flow:
        flow["recs"].submit(Rec(1))
        flow.drain()
        assert "fuel" in flow.dead_letters()[0].reason
