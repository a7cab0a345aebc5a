"""Records: how one follows from another, what differs between two, and what is refused."""

from __future__ import annotations

from typing import Any

import msgpack
import pytest
from hypothesis import given

from evflow.deploy.record import Record, moves, stones_on, touched
from evflow.errors import DeployError
from tests.deploy.group import graph_of, record_of
from tests.deploy.strategies import RECORD

FIRST, SECOND = "1" * 32, "2" * 32


def base() -> Record:
    return record_of("x", "ABC", a="A", b="B", c="C").made_by(FIRST, None)


@given(RECORD)
def test_record_comes_back_from_its_data(record: Record) -> None:
    assert Record.from_data(msgpack.unpackb(msgpack.packb(record.data()))) == record


def test_first_version_touches_all_hosts() -> None:
    record = record_of("x", "AB", a="A").made_by(FIRST, None)
    assert (record.version, record.change, record.birth) == (1, FIRST, FIRST)
    assert record.parts == {"A": FIRST, "B": FIRST}


def test_edited_record_follows_its_base() -> None:
    record = base().edited(graph_of(a="A", b="C", c="C"), frozen=["a"])
    assert (record.version, record.birth, record.change, record.parts) == (2, FIRST, "", {})
    assert record.hosts == base().hosts
    made = record.made_by(SECOND, base())
    assert made.parts == {"A": SECOND, "B": SECOND, "C": SECOND}
    assert made.edited(None).graph is None
    assert made.edited().graph == made.graph


def test_moves_are_of_stones_on_other_nodes() -> None:
    new = base().edited(graph_of(a="B", b="B", d="A"))
    assert moves(base(), new) == {"a": ("A", "B")}
    assert moves(None, new) == {}
    assert moves(base(), base().edited(None)) == {}
    assert stones_on(new, "B").keys() == {"a", "b"}
    assert stones_on(None, "B") == {}


def changed(**stone: Any) -> dict[str, Any]:
    graph = graph_of(a="A", b="B", c="C")
    graph["stones"][0].update(stone)
    return graph


@pytest.mark.parametrize(
    ("new", "nodes"),
    [
        (base().edited(), ""),
        (base().edited(changed(settings={"code": "1"})), "A"),
        # B sends to c, and has to send it elsewhere.
        (base().edited(graph_of(a="A", b="B", c="A")), "ABC"),
        (base().edited(graph_of(a="A", b="B")), "BC"),
        (base().edited(changed() | {"links": []}), "ABC"),
        (base().edited(changed() | {"morphs": [1]}), "ABC"),
        (base().edited(changed() | {"name": "other", "fallbacks": {"A": {"to": "B", "after": 1}}}), ""),
        (base().edited(frozen=["b"]), "B"),
        (base().edited(hosts={**base().hosts, "D": ""}), "D"),
        (base().edited(hosts={**base().hosts, "C": "sim://elsewhere"}), "B"),
        (base().edited(None), "ABC"),
    ],
)
def test_touched_are_the_nodes_whose_part_differs(new: Record, nodes: str) -> None:
    assert touched(base(), new) == set(nodes)
    assert new.made_by(SECOND, base()).parts == {
        n: SECOND if n in nodes else FIRST for n in new.hosts | dict.fromkeys(nodes, "")
    }


def test_node_that_leaves_is_part_of_that_change_only() -> None:
    new = (
        base().edited(graph_of(a="A", b="B"), hosts={"A": "sim://A", "B": "sim://B"}).made_by(SECOND, base())
    )
    assert new.parts == {"A": FIRST, "B": SECOND, "C": SECOND}
    assert new.edited().made_by("3" * 32, new).parts == {"A": FIRST, "B": SECOND}


def test_unchanged_record_differs_in_its_version_only() -> None:
    new = base().unchanged(SECOND)
    assert (new.version, new.change) == (2, SECOND)
    assert (new.graph, new.hosts, new.parts, new.birth) == (base().graph, base().hosts, base().parts, FIRST)
    assert touched(base(), new) == set()


def test_withdrawn_record_has_no_graph() -> None:
    new = base().withdrawn(SECOND)
    assert (new.version, new.graph, new.parts, new.birth) == (1, None, {}, FIRST)


@pytest.mark.parametrize(
    ("graph", "why"),
    [
        (graph_of(a="Z"), "stone 'a' is placed on 'Z'; expected one of its hosts, A"),
        (
            {"stones": [{"name": "a", "on": None}], "links": []},
            "stone 'a' is placed on no node (on= places it); expected one",
        ),
        ({"stones": [1], "links": []}, "Expected `object`, got `int` - at `$.stones[0]`"),
        ({"stones": 5}, "Expected `array`, got `int` - at `$.stones`"),
        ({"stones": [{"name": "a"}] * 10_001, "links": []}, "expected at most 10000 stones, found 10001"),
        ({"stones": [], "links": [["a", 0, "b", ""]]}, "is not a link between its stones"),
        ({"stones": [], "links": [["a", 0]]}, "Expected `array` of length 4, got 2 - at `$.links[0]`"),
        ({"stones": [{"name": "a", "on": "A"}] * 2, "links": []}, "there are two stones 'a'"),
        (
            graph_of() | {"fallbacks": {"A": {"to": "Z", "after": 1}}},
            "fallback of 'A' to 'Z': expected one of its hosts, A, and another one",
        ),
        (
            graph_of() | {"fallbacks": {"zz": {"to": "A", "after": 1}}},
            "fallback of 'zz': no stone is placed there; expected one of its hosts, A",
        ),
        (graph_of() | {"fallbacks": 3}, "Expected `object | null`, got `int` - at `$.fallbacks`"),
    ],
)
def test_graph_that_cannot_be_told_is_refused(graph: dict[str, Any], why: str) -> None:
    with pytest.raises(DeployError) as found:
        Record.first("x", graph, {"A": ""})
    assert str(found.value).startswith("deployment x: ")
    assert why in str(found.value)


@pytest.mark.parametrize("after", [0, -1, True, float("nan"), float("inf"), "5", None])
def test_fallback_needs_a_number_of_seconds(after: Any) -> None:
    with pytest.raises(DeployError, match=r"Expected `float`.* - at `\$.fallbacks\[\.\.\.\]\.after`"):
        Record.first("x", graph_of() | {"fallbacks": {"A": {"to": "B", "after": after}}}, {"A": "", "B": ""})


def test_hosts_that_are_no_mapping_are_refused() -> None:
    with pytest.raises(DeployError, match="expected hosts as node → contact, found \\['tcp://"):
        Record.first("x", graph_of(), ["tcp://127.0.0.1:7000"])  # type: ignore[arg-type]


def test_name_with_a_slash_is_refused() -> None:
    with pytest.raises(DeployError, match=r"graph 'x/y' cannot be deployed.*without '/'"):
        Record.first("x/y", graph_of(), {"A": ""})
