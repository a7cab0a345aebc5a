"""How events leave a match stone: the bytes of events with ids, and which event goes to which port."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import evflow as ev
from evflow.events.attributes import Attributes
from evflow.matching.engine import Matches
from evflow.stones.matching.output import columns_by_port, matched_schema, ports_of, with_ids

ID_LISTS = st.lists(st.lists(st.integers(0, 2**31 - 2), max_size=5), max_size=20)


class Fixed(ev.Event):
    number: int
    name: ev.Str[5]


class Varying(ev.Event):
    number: int
    name: str


class Tree(ev.Event):
    number: int
    name: str
    below: list[Tree]


Wide = ev.Schema("Wide", {"number": int, "name": str, **{f"f{n}": ev.f32 for n in range(13)}})


def matches_of(lists: Sequence[Sequence[int]]) -> Matches:
    offsets = np.cumsum([0, *map(len, lists)])
    return Matches(offsets, np.array([id for ids in lists for id in ids], np.int32))


def batch_of(kind: str, count: int) -> ev.EventBatch:
    names = ["", "a", "é" * 2, "x" * 5]
    numbers = range(count)
    if kind == "tree":
        leaf = Tree(0, "leaf", [])
        return ev.EventBatch.from_events([Tree(n, names[n % 4], [leaf] * (n % 3)) for n in numbers], Tree)
    columns = {"number": list(numbers), "name": [names[n % 4] for n in numbers]}
    columns |= {f"f{n}": [0.5] * count for n in range(13)}
    schema = {"fixed": Fixed.schema, "varying": Varying.schema, "wide": Wide}[kind]
    attributes = Attributes.from_rows([{"n": n} for n in numbers]) if count else None
    return ev.EventBatch.from_columns(schema, columns, attributes)


@given(ID_LISTS, st.sampled_from(["fixed", "varying", "wide", "tree"]), st.booleans(), st.booleans())
def test_an_event_with_ids_is_the_event_and_its_ids(
    lists: list[list[int]], kind: str, all_events: bool, selected: bool
) -> None:
    batch = batch_of(kind, len(lists))
    if selected:
        lists, batch = lists[::2], batch.select(np.arange(0, len(lists), 2))
    made = with_ids(batch, {"ids": matches_of(lists)}, all_events)
    expected = [(n, ids) for n, ids in enumerate(lists) if ids or all_events]
    read = ev.EventBatch.from_bytes(made.schema, made.to_bytes())
    assert len(read) == len(made) == len(expected)
    for view, (position, ids) in zip(read, expected, strict=True):
        assert (view.ids.tolist(), view.ids.dtype) == (ids, np.dtype("int32"))
        before = batch[position].to_dict()
        assert {name: value for name, value in view.to_dict().items() if name != "ids"} == before
    if made.attributes is not None:
        told = [made.attributes.of(n)["n"] for n in range(len(made))]
        assert told == [batch[position].number for position, _ in expected]


@pytest.mark.parametrize("kind", ["fixed", "varying"])
def test_an_event_may_have_many_ids(kind: str) -> None:
    lists = [list(range(n * 150)) for n in (0, 3, 1, 7)]
    made = with_ids(batch_of(kind, 4), {"ids": matches_of(lists)})
    read = ev.EventBatch.from_bytes(made.schema, made.to_bytes())
    assert [view.ids.tolist() for view in read] == lists[1:]
    assert [view.number for view in read] == [1, 2, 3]


@given(
    st.lists(st.tuples(*[st.lists(st.integers(0, 8), max_size=n) for n in (3, 0, 4)]), max_size=12),
    st.sampled_from(["fixed", "varying"]),
    st.lists(st.sampled_from([0, 1, 5]), min_size=9, max_size=9),
    st.sampled_from([1, 70]),
)
def test_an_event_may_have_several_arrays_of_ids(
    rows: list[tuple[list[int], ...]], kind: str, by_port: list[int], times: int
) -> None:
    rows = [tuple(ids * times for ids in row) for row in rows]
    names, batch = ("enter", "inside", "leave"), batch_of(kind, len(rows))
    columns = {name: matches_of([row[n] for row in rows]) for n, name in enumerate(names)}

    def read(made: ev.EventBatch) -> list[tuple[Any, ...]]:
        made = ev.EventBatch.from_bytes(made.schema, made.to_bytes())
        return [(view.number, *(getattr(view, name).tolist() for name in names)) for view in made]

    assert read(with_ids(batch, columns)) == [(n, *row) for n, row in enumerate(rows) if any(row)]
    assert read(with_ids(batch, columns, True)) == [(n, *row) for n, row in enumerate(rows)]
    for port, where, held in columns_by_port(columns, np.array(by_port, np.int32)):
        mine = [tuple([id for id in ids if by_port[id] == port] for ids in row) for row in rows]
        assert read(with_ids(batch.select(where), held)) == [
            (n, *row) for n, row in enumerate(mine) if any(row)
        ]


def test_a_schema_with_ids_has_a_name_of_its_own_also_where_it_holds_itself() -> None:
    schema = matched_schema(Tree.schema, "ids")
    assert [field.name for field in schema] == ["number", "name", "below", "ids"]
    assert "ids" not in schema["below"].type.element.schema  # type: ignore[attr-defined]
    again = matched_schema(schema, "more")
    assert (schema.name, again.name) == ("Tree_matched", "Tree_matched_matched")
    with pytest.raises(ev.SchemaError, match="a field 'ids' already"):
        matched_schema(schema, "ids")


@given(ID_LISTS, st.lists(st.sampled_from([0, 1, 5, 2**31 - 1]), min_size=9, max_size=9))
def test_each_port_gets_each_of_its_events_once_in_order(lists: list[list[int]], by_id: list[int]) -> None:
    lists = [[id % 9 for id in ids] for ids in lists]
    expected: dict[int, list[int]] = {}
    for position, ids in enumerate(lists):
        for port in sorted({by_id[id] for id in ids}):
            expected.setdefault(port, []).append(position)
    found = {port: where.tolist() for port, where in ports_of(matches_of(lists), np.array(by_id, np.int32))}
    assert found == expected
