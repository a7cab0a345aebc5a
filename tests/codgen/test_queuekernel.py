"""A queue's function run natively, against the interpreter and by hand."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from random import Random
from typing import Any

import llvmlite.binding as llvm
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from evflow.codgen.front import Input, build
from evflow.codgen.queuekernel import QueueKernel, QueueResult, QueueSegment, QueueState, queue_kernel
from evflow.codgen.runtime import new_state
from evflow.codgen.tree import Fault, Function
from evflow.errors import GraphError
from evflow.events.attributes import Attributes
from evflow.events.batch import EventBatch
from evflow.events.encode import encode_dict
from evflow.events.view import view_class
from evflow.schema import Schema
from evflow.schema.types import TEXT, i64
from tests.codgen import interpret
from tests.examples import tried

A = Schema("A", {"a": i64, "n": i64})
B = Schema("B", {"b": i64, "t": TEXT})
C = Schema("C", {"c": i64, "t": TEXT})
SCHEMAS = (A, B)

JOIN = """{
    if (count(a) > 0 && count(b) > 0) {
        c.c = a[0].a + b[0].b;
        c.t = b[0].t;
        submit(0, c);
        discard(a, 0);
        discard(b, 0);
    }
}"""


def queue_function(code: str) -> Function:
    return build(code, "queue", [Input("a", A), Input("b", B)], [("c", C)])


class Harness:
    """A queue with its state; events arrive as dicts."""

    def __init__(self, code: str, limit: int = 1000) -> None:
        self.function = queue_function(code)
        self.kernel: QueueKernel = queue_kernel(self.function)
        llvm.parse_assembly(self.kernel.code.dump_ir()).verify()
        self.queues = QueueState(SCHEMAS, limit)
        self.state = new_state(self.function)

    def arrive(
        self,
        slot: int,
        events: Sequence[Mapping[str, Any]],
        attributes: Sequence[Mapping[str, Any]] | None = None,
        selection: Sequence[int] | None = None,
    ) -> QueueResult:
        batch = EventBatch.from_encoded(SCHEMAS[slot], [encode_dict(SCHEMAS[slot], e) for e in events])
        columns = None if attributes is None else Attributes.from_rows(attributes).columns
        chosen = None if selection is None else np.array(selection, np.int32)
        arguments: Any = (self.queues, self.state, {}, {})
        return self.kernel.run(slot, batch.data, batch.offsets, chosen, batch.rows, columns, *arguments)


def records(segment: QueueSegment) -> list[dict[str, Any]]:
    schema, data = segment.records.schema, memoryview(segment.records.data)
    width = schema.width
    offsets = range(0, len(data), width) if width else segment.records.offsets[:-1].tolist()  # type: ignore[index]
    return [view_class(schema)(data, at).to_dict() for at in offsets]


def sent(result: QueueResult) -> list[tuple[int, Any, dict[str, Any]]]:
    found = []
    for segment in result.segments:
        source = segment.output if segment.queue is None else ("queue", segment.queue)
        found += [(segment.port, source, record) for record in records(segment)]
    return found


def as_(*values: int) -> list[dict[str, Any]]:
    return [{"a": value, "n": 0} for value in values]


def bs(*values: int) -> list[dict[str, Any]]:
    return [{"b": value, "t": "t" * value} for value in values]


def test_join_uses_each_event_once() -> None:
    queue = Harness(JOIN)
    results = [queue.arrive(0, as_(1, 2, 3)), queue.arrive(1, bs(4, 5)), queue.arrive(1, bs(6, 7))]
    sums = [[record["c"] for _, _, record in sent(result)] for result in results]
    assert sums == [[], [5, 7], [9]]
    assert (queue.queues.length(0), queue.queues.length(1)) == (0, 1)


def test_positions_say_which_arrival_sent_a_record() -> None:
    queue = Harness(JOIN)
    queue.arrive(0, as_(1, 2))
    result = queue.arrive(1, bs(9, 8, 7, 6), selection=[1, 3])
    assert [segment.positions.tolist() for segment in result.segments] == [[0, 1]]
    assert [record["c"] for _, _, record in sent(result)] == [9, 8]


def test_queued_events_are_sent_as_they_are_and_in_order() -> None:
    queue = Harness(
        "{ if (count(b) == 3) { submit(2, b[1]); submit(0, b[0]); submit(0, b[2]); submit(0, a[0]); } }"
    )
    queue.arrive(0, as_(1))
    assert sent(queue.arrive(1, bs(1, 2, 3))) == [
        (2, ("queue", 1), {"b": 2, "t": "tt"}),
        (0, ("queue", 1), {"b": 1, "t": "t"}),
        (0, ("queue", 1), {"b": 3, "t": "ttt"}),
        (0, ("queue", 0), {"a": 1, "n": 0}),
    ]


def test_full_queue_refuses_and_does_not_call() -> None:
    queue = Harness("{ static int calls = 0; calls++; c.c = calls; submit(0, c); }", limit=2)
    result = queue.arrive(0, as_(1, 2, 3, 4))
    assert result.refused.tolist() == [2, 3]
    assert [record["c"] for _, _, record in sent(result)] == [1, 2]
    assert queue.queues.length(0) == 2


def test_fault_undoes_the_call_and_takes_its_event_out() -> None:
    queue = Harness(
        """{
            if (count(a) < 4) return;
            discard(a, 0); discard(a, count(a) - 1); c.c = 1; submit(0, c); submit(0, a[0]);
            return 1 / a[2].a;
        }"""
    )
    queue.arrive(0, as_(1, 2, 3))
    result = queue.arrive(0, as_(4, 0, 9))
    assert [(n.position, n.fault, n.line) for n in result.faults] == [
        (0, Fault.INDEX, 4),
        (1, Fault.INDEX, 4),
        (2, Fault.INDEX, 4),
    ]
    assert result.segments == []
    assert [view_class(A)(event).to_dict()["a"] for event in queue.queues.events(0)] == [1, 2, 3]


def test_bad_index_is_a_fault() -> None:
    for code in ("{ return a[0].a; }", "{ discard(a, -1); }", "{ submit(0, a[7]); }", "{ discard(a, 1); }"):
        result = Harness(code).arrive(1, bs(1))
        assert [note.fault for note in result.faults] == [Fault.INDEX]


def test_attributes_stay_with_queued_events_and_set_ones_win() -> None:
    code = """{
        if (count(a) < 2) return;
        set_int_attr(event_attrs, "n", attr_ivalue(event_attrs, "n") + 10);
        submit(0, a[0]); submit(0, a[1]); submit(0, c);
        discard(a, 0); discard(a, 0);
    }"""
    queue = Harness(code)
    queue.arrive(0, as_(1), [{"n": 1, "who": "ann"}])
    result = queue.arrive(0, as_(2, 3), [{"n": 2, "who": "bob"}, {}])
    assert [segment.attributes for segment in result.segments] == [
        [{"n": 12, "who": "ann"}, {"n": 12, "who": "bob"}],
        [{"n": 12, "who": "bob"}],
    ]
    assert queue.queues.attributes_of(0) == [{}]


def test_attributes_of_events_that_are_gone_are_forgotten() -> None:
    queue = Harness("{ if (count(a) > 3) discard(a, 0); }")
    for n in range(100):
        queue.arrive(0, as_(n, n), [{"n": n}, {"n": -n}])
    assert len(queue.queues.attributes) < 100
    assert queue.queues.attributes_of(0) == [{"n": -98}, {"n": 99}, {"n": -99}]


def test_extract_takes_the_oldest_out_with_their_attributes() -> None:
    queue = Harness(JOIN)
    queue.arrive(0, as_(1, 2, 3), [{"k": 1}, {"k": 2}, {}])
    assert queue.queues.attributes_of(0) == [{"k": 1}, {"k": 2}, {}]
    events = queue.queues.extract(0, 1) + queue.queues.extract(0)
    assert [view_class(A)(event).to_dict()["a"] for event in events] == [1, 2, 3]
    assert (queue.queues.length(0), queue.queues.attributes_of(0)) == (0, [])


def test_long_queue_is_packed_and_keeps_its_order() -> None:
    queue = Harness(
        "{ if (count(b) > 500) { submit(0, b[0]); discard(b, 250); discard(b, 0); } }", limit=10_000
    )
    waiting: list[int] = []
    for n in range(0, 20_000, 100):
        result = queue.arrive(1, [{"b": i, "t": "x" * (i % 50)} for i in range(n, n + 100)])
        expected_: list[int] = []
        for i in range(n, n + 100):
            waiting.append(i)
            if len(waiting) > 500:
                expected_.append(waiting[0])
                del waiting[250], waiting[0]
        assert [record["b"] for _, _, record in sent(result)] == expected_
    assert [view_class(B)(event).to_dict()["b"] for event in queue.queues.events(1)] == waiting


def test_queues_of_other_schemas_are_refused() -> None:
    queue = Harness(JOIN)
    queue.queues = QueueState((B, A), 10)
    with pytest.raises(GraphError, match="expected queues of"):
        queue.arrive(0, as_(1))


def test_function_of_another_kind_is_refused() -> None:
    with pytest.raises(GraphError, match="kind 'queue'"):
        queue_kernel(build("1", "filter", [Input("input", A)]))


STATEMENTS = (
    "if (count(a) > {n}) discard(a, {i});",
    "if (count(b) > {n}) {{ submit({p}, b[{i}]); discard(b, {i}); }}",
    "submit({p}, a[{i}]);",
    'c.c = {i}; c.t = count(b) ? b[0].t : "none"; if (count(a) + count(b) > {n}) submit({p}, c);',
    "for (int k = 0; k < count(a); k++) if (a[k].a % 3 == {n} % 3) {{ submit({p}, a[k]); discard(a, k); }}",
    "if (count(a) > 2 && a[1].n == {n}) c.c = 1 / (a[2].n - {i});",
    "{{ static int s = 0; s += count(b); if (s % 4 == 1) discard(b, count(b) - 1); }}",
)


@settings(max_examples=tried(20), deadline=None)
@given(st.integers(0, 2**64 - 1))
def test_random_functions_agree_with_the_interpreter(seed: int) -> None:
    random = Random(seed)
    chosen = random.choices(STATEMENTS, k=random.randrange(1, 5))
    numbers = [
        {"n": random.randrange(5), "i": random.randrange(4), "p": random.randrange(-1, 3)} for _ in chosen
    ]
    queue = Harness(
        "{" + " ".join(s.format(**n) for s, n in zip(chosen, numbers, strict=True)) + "}", limit=8
    )
    waiting: list[list[Any]] = [[], []]
    state = interpret.new_state(queue.function)
    for _ in range(12):
        slot = random.randrange(2)
        events: list[dict[str, Any]] = [
            {"a": random.randrange(9), "n": random.randrange(4)} if slot == 0 else bs(random.randrange(4))[0]
            for _ in range(random.randrange(1, 5))
        ]
        result = queue.arrive(slot, events)
        emitted, faults, refused = [], [], []
        for position, event in enumerate(events):
            if len(waiting[slot]) == 8:
                refused.append(position)
                continue
            waiting[slot].append(event)
            outcome = interpret.interpret_queue(queue.function, waiting, state=state)
            if outcome.fault:
                faults.append((position, outcome.fault))
                waiting[slot].pop()
            else:
                waiting = [list(q) for q in outcome.queues]
                emitted += [(e.port, e.source, dict(e.event)) for e in outcome.emitted]
        assert [(n.position, n.fault) for n in result.faults] == faults
        assert result.refused.tolist() == refused
        assert sent(result) == emitted
        assert [
            [view_class(s)(e).to_dict() for e in queue.queues.events(n)] for n, s in enumerate(SCHEMAS)
        ] == waiting
