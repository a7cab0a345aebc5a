"""Trees of stages run as one native pass: what leaves, in which order, with which attributes; every count."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from evflow.codgen.front import Input, build
from evflow.codgen.kernel import Port, Stage, kernel
from evflow.codgen.runtime import kept_state, layout_of, new_state
from evflow.codgen.tree import Fault, Function
from evflow.errors import GraphError
from evflow.events.attributes import Attributes
from evflow.events.batch import EventBatch
from evflow.events.encode import encode_dict
from evflow.schema import Schema
from evflow.schema.types import TEXT, Array, Str, f64, i64
from tests.codgen.oracle import plain, records_at, rows_at, run, run_kernel

REC = Schema("rec", {"seq": i64, "price": f64, "tag": Str[8]})
OUT = Schema("out", {"a": i64, "note": TEXT})


def function(code: str, kind: str = "filter", schema: Schema = REC, output: Schema | None = None) -> Function:
    outputs = [] if output is None else [("output", output)]
    return build(code, kind, [Input("input", schema)], outputs)


def batch_of(n: int, schema: Schema = REC) -> EventBatch:
    events = [{"seq": i, "price": i + 0.5, "tag": f"t{i % 3}"} for i in range(n)]
    return EventBatch.from_encoded(schema, [encode_dict(schema, event) for event in events])


def test_filter_passes_what_the_function_accepts() -> None:
    result = run(Stage(function("input.seq % 2 == 1"), 0, (Port((), 0),)), batch_of(10))
    assert rows_at(result, 0) == [1, 3, 5, 7, 9]
    assert result.counts.tolist() == [[10, 5, 5, 0]]


def test_filter_that_passes_all_selects_nothing() -> None:
    result = run(Stage(function("1"), 0, (Port((), 0),)), batch_of(4))
    assert [(s.rows, s.positions, s.count) for s in result.exits[0]] == [(None, None, 4)]


def test_filter_that_passes_none_gives_no_segment() -> None:
    result = run(Stage(function("0"), 0, (Port((), 0),)), batch_of(4))
    assert result.exits == [[]]


def test_empty_batch_gives_nothing() -> None:
    result = run(Stage(function("1"), 0, (Port((), 0),)), batch_of(0))
    assert result.exits == [[]]
    assert result.counts.tolist() == [[0, 0, 0, 0]]


def test_selection_is_respected_and_rows_are_those_of_the_batch() -> None:
    batch = batch_of(10).select([1, 4, 5, 8])
    result = run(Stage(function("input.seq > 3"), 0, (Port((), 0),)), batch)
    (segment,) = result.exits[0]
    assert segment.rows is not None and segment.rows.tolist() == [4, 5, 8]
    assert segment.positions is not None and segment.positions.tolist() == [1, 2, 3]
    assert result.counts.tolist() == [[4, 3, 1, 0]]


def test_chain_counts_each_stone() -> None:
    last = Stage(function("input.seq < 6"), 2, (Port((), 0),))
    middle = Stage(function("input.seq % 2 == 0"), 1, (Port((last,)),))
    result = run(Stage(function("input.seq > 1"), 0, (Port((middle,)),)), batch_of(10))
    assert rows_at(result, 0) == [2, 4]
    assert result.counts.tolist() == [[10, 8, 2, 0], [8, 4, 4, 0], [4, 2, 2, 0]]


def test_port_that_is_not_linked_drops_and_counts() -> None:
    for ports in ((), (Port(),)):
        result = run(Stage(function("input.seq > 1"), 0, ports), batch_of(10))
        assert result.counts.tolist() == [[10, 0, 10, 0]]


def test_router_sends_to_the_port_it_returns() -> None:
    code = "return input.seq - 1;"
    stage = Stage(function(code, "router"), 0, (Port((), 0), Port(), Port((), 1)))
    result = run(stage, batch_of(6))
    assert rows_at(result, 0) == [1]
    assert rows_at(result, 1) == [3]
    assert result.counts.tolist() == [[6, 2, 4, 0]]


def test_router_port_beyond_32_bits_is_not_linked() -> None:
    stage = Stage(function("return 4294967296;", "router"), 0, (Port((), 0),))
    assert run(stage, batch_of(3)).counts.tolist() == [[3, 0, 3, 0]]


def test_one_port_feeds_stages_and_exit_with_the_same_events() -> None:
    odd = Stage(function("input.seq % 2"), 1, (Port((), 1),))
    even = Stage(function("input.seq % 2 == 0"), 2, (Port((), 2),))
    result = run(Stage(function("input.seq < 5"), 0, (Port((odd, even), 0),)), batch_of(8))
    assert [rows_at(result, n) for n in range(3)] == [[0, 1, 2, 3, 4], [1, 3], [0, 2, 4]]


def test_two_entries_see_every_event() -> None:
    stages = (
        Stage(function("input.seq < 2"), 0, (Port((), 0),)),
        Stage(function("input.seq > 1"), 1, (Port((), 1),)),
    )
    result = run(stages, batch_of(4))
    assert [rows_at(result, n) for n in range(2)] == [[0, 1], [2, 3]]


def test_two_ways_to_one_exit_keep_the_order_of_emission() -> None:
    first = Stage(function("input.seq % 2 == 0"), 0, (Port((), 0),))
    second = Stage(function("input.seq > 0"), 1, (Port((), 0),))
    assert rows_at(run((first, second), batch_of(4)), 0) == [0, 1, 2, 2, 3]


def test_transform_makes_records_and_says_where_they_came_from() -> None:
    code = "{ output.a = input.seq * 10; output.note = input.tag; return input.seq != 1; }"
    result = run(Stage(function(code, "transform", output=OUT), 0, (Port((), 0),)), batch_of(3))
    assert records_at(result, 0) == [(0, {"a": 0, "note": "t0"}), (2, {"a": 20, "note": "t2"})]
    assert result.counts.tolist() == [[3, 2, 1, 0]]


def test_stage_after_transform_sees_its_records() -> None:
    after = Stage(function("input.a >= 20", schema=OUT), 1, (Port((), 0),))
    code = '{ output.a = input.seq * 10; output.note = "x"; return 1; }'
    result = run(Stage(function(code, "transform", output=OUT), 0, (Port((after,)),)), batch_of(4))
    assert records_at(result, 0) == [(2, {"a": 20, "note": "x"}), (3, {"a": 30, "note": "x"})]
    assert result.counts.tolist() == [[4, 4, 0, 0], [4, 2, 2, 0]]


def test_submitted_and_passed_events_share_an_exit_in_order() -> None:
    code = (
        "{ output.a = input.seq; submit(0, output); submit(0, input); output.a = -1; return input.seq == 1; }"
    )
    result = run(Stage(function(code, "transform", output=OUT), 0, (Port((), 0),)), batch_of(2))
    found = [(s.buffer, s.positions is None or s.positions.tolist()) for s in result.exits[0]]
    assert found == [(1, [0]), (0, [0]), (1, [1]), (0, [1]), (1, [1])]
    assert result.counts.tolist() == [[2, 5, 1, 0]]


def test_output_is_new_after_it_was_submitted() -> None:
    code = '{ output.a = 5; output.note = "n"; submit(0, output); submit(0, output); return 0; }'
    result = run(Stage(function(code, "transform", output=OUT), 0, (Port((), 0),)), batch_of(1))
    assert records_at(result, 0) == [(0, {"a": 5, "note": "n"}), (0, {"a": 0, "note": ""})]


def test_fault_costs_one_event_and_takes_back_what_it_sent() -> None:
    code = "{ static int n = 0; n++; submit(0, output); output.a = 6 / (input.seq - 2);\n return n; }"
    stage = Stage(function(code, "transform", output=OUT), 0, (Port((), 0),))
    result = run(stage, batch_of(4))
    assert [position for position, _ in records_at(result, 0)] == [0, 0, 1, 1, 3, 3]
    assert result.counts.tolist() == [[4, 6, 0, 1]]
    (note,) = result.faults
    assert note[:6] == (0, 2, 0, 2, Fault.DIVISION, 1)


def test_fault_behind_a_transform_names_the_record_that_was_seen() -> None:
    bad = Stage(function("1 / (input.a - 10)", schema=OUT), 1, (Port((), 0),))
    make = Stage(
        function("{ output.a = input.seq * 10; return 1; }", "transform", output=OUT), 0, (Port((bad,)),)
    )
    batch = batch_of(5).select([1, 3])
    (note,) = run(make, batch).faults
    assert note[:6] == (1, 0, 1, 0, Fault.DIVISION, 1)


def test_static_assignments_before_a_fault_stay() -> None:
    counting = function("{ static int n = 0; n++; if (input.seq == 0) return 1 / input.seq; return n == 2; }")
    assert rows_at(run(Stage(counting, 0, (Port((), 0),)), batch_of(3)), 0) == [1]


def test_state_goes_on_from_run_to_run_and_between_kernels() -> None:
    wide = Schema("wide", {"extra": i64, "seq": i64})
    code = "{ static int n = 10; return ++n % 2; }"
    first = function(code)
    second = build(code, "filter", [Input("input", REC, REC)])
    other = build(code, "filter", [Input("input", Schema("w", {"seq": i64}), wide)])
    state = new_state(first)
    events = EventBatch.from_encoded(wide, [encode_dict(wide, {"extra": 0, "seq": 0})] * 3)
    arguments: Any = (None, [state], [{}], {})
    batch = batch_of(3)
    one = kernel((Stage(first, 0, (Port((), 0),)),), REC).run(batch.data, None, None, 3, *arguments)
    two = kernel((Stage(other, 0, (Port((), 0),)),), wide).run(events.data, None, None, 3, *arguments)
    three = kernel((Stage(second, 0, (Port((), 0),)),), REC).run(batch.data, None, None, 3, *arguments)
    assert [rows_at(r, 0) for r in (one, two, three)] == [[0, 2], [1], [0, 2]]


def test_new_state_has_the_initial_values() -> None:
    made = function(
        "{ static unsigned char a = 7; static double b[2][2] = {{1.5}, {0, -2}}; return a + b[0][0]; }"
    )
    state = new_state(made)
    assert state[0] == 7
    assert np.frombuffer(state[8:40].tobytes(), np.float64).tolist() == [1.5, 0.0, 0.0, -2.0]


def test_attribute_set_by_a_stage_is_seen_behind_it_and_nowhere_else() -> None:
    hop = 'set_int_attr(event_attrs, "hops", attr_ivalue(event_attrs, "hops") + 1); return 1;'
    second = Stage(function(hop), 1, (Port((), 0),))
    sibling = Stage(function('attr_ivalue(event_attrs, "hops") == 5'), 2, (Port((), 1),))
    first = Stage(function(hop), 0, (Port((second,), 2),))
    given_ = Attributes.from_rows([{"hops": 5}, {}, {"hops": 7}])
    result = run((first, sibling), batch_of(3), given_)
    assert [rows_at(result, n) for n in range(3)] == [[0, 1, 2], [0], [0, 1, 2]]
    changed = [[s.attributes["hops"][1].tolist() for s in result.exits[n]] for n in (0, 2)]
    assert changed == [[[7, 2, 9]], [[6, 1, 8]]]
    assert result.exits[1][0].attributes == {}


def test_attribute_of_changing_kind_cuts_the_arrivals() -> None:
    code = (
        'if (input.seq == 1) set_string_attr(event_attrs, "k", input.tag);'
        ' if (input.seq == 2) set_double_attr(event_attrs, "k", 2.5); return 1;'
    )
    result = run(Stage(function(code), 0, (Port((), 0),)), batch_of(4), Attributes.from_rows([{"k": 3}] * 4))
    found = [(s.attributes["k"][0], s.attributes["k"][1].tolist()) for s in result.exits[0]]
    assert found == [("i", [3]), ("s", ["t1"]), ("f", [2.5]), ("i", [3])]
    assert rows_at(result, 0) == [0, 1, 2, 3]


def test_attributes_of_text_reach_the_function() -> None:
    rows = [{"who": "ann"}, {}, {"who": "bób"}]
    stage = Stage(function('attr_svalue(event_attrs, "who", "ann") == "ann"'), 0, (Port((), 0),))
    assert rows_at(run(stage, batch_of(3), Attributes.from_rows(rows)), 0) == [0, 1]


@pytest.mark.parametrize(("value", "expected"), [(3, [3]), (3.9, [3]), ("3", [0]), (True, [1])])
def test_stone_attribute_is_read_as_the_type_asked_for(value: object, expected: list[int]) -> None:
    stage = Stage(function('attr_ivalue(stone_attrs, "n") == input.seq'), 0, (Port((), 0),))
    assert rows_at(run(stage, batch_of(5), stone_attributes={"n": value}), 0) == expected


def test_results_are_not_overwritten_by_a_later_run() -> None:
    code = "{ output.a = input.seq; output.note = input.tag; return 1; }"
    make = Stage(function(code, "transform", output=OUT), 0, (Port((), 0),))
    keep = Stage(function("input.seq % 2"), 1, (Port((), 1),))
    compiled = kernel((make, keep), REC)
    for n in (3, 5_000):
        first = run_kernel(compiled, batch_of(n))
        before = (plain(records_at(first, 0)), rows_at(first, 1))
        run_kernel(compiled, batch_of(n).select(list(range(n))[::-1]))
        assert (plain(records_at(first, 0)), rows_at(first, 1)) == before


def test_buffers_grow_while_the_code_runs() -> None:
    big = Schema("big", {"values": Array[f64, 300], "note": TEXT})
    turn = "output.values[i] = input.seq; output.note = input.tag; submit(0, output);"
    code = f"{{ int i; for (i = 0; i < 5; i++) {{ {turn} }} return 0; }}"
    result = run(Stage(function(code, "transform", output=big), 0, (Port((), 0),)), batch_of(400))
    records = records_at(result, 0)
    assert len(records) == 2000
    assert [(p, r["values"][i % 5], r["note"]) for i, (p, r) in enumerate(records)] == [
        (i // 5, i // 5, f"t{i // 5 % 3}") for i in range(2000)
    ]


def test_too_many_submits_are_a_fault_of_that_event() -> None:
    code = "{ int i; for (i = 0; i < input.seq; i++) submit(0, input); return 0; }"
    batch = EventBatch.from_encoded(
        REC, [encode_dict(REC, {"seq": n, "price": 0.0, "tag": ""}) for n in (2, 100_001, 100_000)]
    )
    result = run(Stage(function(code), 0, (Port((), 0),)), batch)
    assert result.counts.tolist() == [[3, 100_002, 2, 1]]
    assert [(n.position, n.fault) for n in result.faults] == [(1, Fault.LIMIT)]


def test_too_many_submits_of_a_batch_are_faults_of_its_last_events(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("evflow.codgen.llvm.host.MAX_RUN", 1000)
    code = "{ int i; for (i = 0; i < 70; i++) submit(0, input); return 0; }"
    made = kernel((Stage(function(code), 0, (Port((), 0),)),), REC)
    for _ in range(2):
        result = run_kernel(made, batch_of(20))
        assert [(n.position, n.fault) for n in result.faults] == [(n, Fault.LIMIT) for n in range(14, 20)]
        assert len(rows_at(result, 0)) == 14 * 70


def test_too_much_output_is_a_fault_of_that_event() -> None:
    big = Schema("big", {"values": Array[f64, 1 << 20]})
    code = "{ int i; for (i = 0; i < 9; i++) submit(0, output); return 0; }"
    result = run(Stage(function(code, "transform", output=big), 0, (Port((), 0),)), batch_of(2))
    assert result.counts.tolist() == [[2, 0, 0, 2]]
    assert {n.fault for n in result.faults} == {Fault.LIMIT}


def test_what_a_batch_makes_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Events after the bound are given up; those before it, and the next batch, are not."""
    monkeypatch.setattr("evflow.codgen.vectors.most_made", lambda: 1 << 20)
    large = Schema("large", {"n": i64, "pad": Array[f64, 1000]})
    code = "{ int i; for (i = 0; i < 10; i++) { output.n = i; submit(0, output); } return 0; }"
    made = kernel((Stage(function(code, "transform", output=large), 0, (Port((), 0),)),), REC)
    result = run_kernel(made, batch_of(100))
    given_up = [note.position for note in result.faults]
    assert {note.fault for note in result.faults} == {Fault.LIMIT}
    assert given_up == list(range(given_up[0], 100))
    assert given_up[0] == ((1 << 20) // large.width - 1) // 10
    assert not run_kernel(made, batch_of(5)).faults


def test_function_for_another_schema_is_refused() -> None:
    with pytest.raises(GraphError, match="compiled for"):
        kernel((Stage(function("input.a", schema=OUT), 0, (Port((), 0),)),), REC)


def test_function_of_attributes_takes_any_schema() -> None:
    attributes_only = build('attr_ivalue(event_attrs, "n")', "filter", [Input("input", None)])
    result = run(
        Stage(attributes_only, 0, (Port((), 0),)), batch_of(3), Attributes.from_rows([{"n": 1}, {}, {"n": 2}])
    )
    assert rows_at(result, 0) == [0, 2]


def test_statics_of_another_length_are_not_taken_over() -> None:
    """They come from files and from other nodes, and native code trusts their length."""
    counting = function("{ static int seen = 7; static double sums[3]; seen += 1; return seen; }")
    state, layout = new_state(counting), layout_of(counting)
    kept = kept_state(counting, state, layout)
    assert kept is not None and kept.tolist() == state.tolist()
    for wrong in (state[:0], state[:-1], np.append(state, state[:1])):
        assert kept_state(counting, wrong, layout) is None
