"""Kinds of stones that are not evflow's own: named, written as data, read again."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from functools import partial
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Any

import pytest

import evflow as ev
from evflow.graph import kinds
from evflow.stone import Acting, Actor, Context
from tests.flow.ownstones import AtLeast, Every, Half, Halves, Last, Rec

HERE = "tests.flow.ownstones"


def handler(event: object) -> None:
    """A handler that can be named."""


def written(graph: ev.Graph) -> dict[str, Any]:
    """The graph as data, as it comes back from a file."""
    data: dict[str, Any] = json.loads(json.dumps(graph.to_dict()))
    return data


def around(*stones: Any) -> ev.Graph:
    """A graph of these stones, one behind the other."""
    g = ev.Graph()
    at = g.source("recs", Rec)
    for stone in stones:
        at = at >> stone
    at >> ev.Terminal(f"{__name__}:handler", name="end")
    return g


def passed(graph: ev.Graph, count: int) -> list[int]:
    seen: list[int] = []
    graph.stones["end"] = ev.Terminal(lambda event: seen.append(event.seq), name="end")
    with graph.run() as flow:
        flow["recs"].submit_batch({"seq": list(range(count))})
        flow.drain(timeout=20)
    return seen


def test_stones_of_any_class_are_written_and_read_again() -> None:
    graph = around(Every(3, name="third"), Last(2), AtLeast(4))
    again = ev.Graph.from_dict(written(graph))
    assert [type(stone) for stone in again.stones.values()][1:4] == [Every, Last, AtLeast]
    assert list(again.stones) == ["recs", "third", "last few", "at least", "end"]
    assert again.to_dict() == graph.to_dict()
    # Every third of 0…19 is 2, 5, 8, 11, 14, 17; the last two are held back; 2 is less than 4.
    assert passed(again, 20) == passed(graph, 20) == [5, 8, 11]


def test_kind_is_by_default_the_name_of_the_class() -> None:
    assert (Every(1).kind, Last(1).kind, AtLeast(1).kind) == ("every", "last few", "at least")


def test_data_says_where_the_class_is_and_what_it_declares() -> None:
    _, third, *_ = around(Every(3, name="third")).to_dict()["stones"]
    assert (third["kind"], third["settings"]) == (f"{HERE}:Every", {"nth": 3})
    assert third["declares"]["inputs"] == {"input": None}


@pytest.fixture
def announce(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., None]]:
    """Has packages announce kinds."""

    def announced(**points: str | tuple[str, ...]) -> None:
        found = [
            EntryPoint(name.replace("_", " "), value, kinds.GROUP)
            for name, values in points.items()
            for value in ((values,) if isinstance(values, str) else values)
        ]
        monkeypatch.setattr(
            "importlib.metadata.entry_points", lambda group: found if group == kinds.GROUP else []
        )
        kinds.announced.cache_clear()

    yield announced
    kinds.announced.cache_clear()


def test_announced_kind_is_known_by_its_name(announce: Callable[..., None]) -> None:
    announce(every=f"{HERE}:Every", last_few=f"{HERE}:Last")
    graph = around(Every(2), Last(1))
    assert [entry["kind"] for entry in graph.to_dict()["stones"]][1:3] == ["every", "last few"]
    again = ev.Graph.from_dict(written(graph))
    assert [type(stone) for stone in again.stones.values()][1:3] == [Every, Last]
    with pytest.raises(
        ev.GraphError, match=r"'evry' is not known.*terminal, every, last few, or 'module:Class'"
    ):
        kinds.place_of("evry")


def test_kind_that_two_packages_announce_is_refused(announce: Callable[..., None]) -> None:
    announce(every=(f"{HERE}:Every", "other:Every"))
    with pytest.raises(
        ev.GraphError, match=f"'every' is announced by several packages, as other:Every and as {HERE}"
    ):
        kinds.place_of("every")
    # Its class itself still names it.
    assert around(Every(2)).to_dict()["stones"][1]["kind"] == f"{HERE}:Every"


def test_packages_cannot_take_the_names_of_own_kinds(announce: Callable[..., None]) -> None:
    announce(filter=f"{HERE}:Every")
    assert kinds.stone_class("filter") is ev.Filter


def test_same_name_for_another_class_is_not_taken_for_it() -> None:
    class Filter(Every):
        kind = "filter"

    with pytest.raises(ev.GraphError, match="define it with 'class' at the top of a module"):
        around(Filter(2, name="other")).to_dict()


def test_graph_whose_class_is_not_here_is_drawn_and_written_but_not_run() -> None:
    data = written(around(Every(3, name="third")))
    data["stones"][1]["kind"] = "no_such_package:Every"
    graph = ev.Graph.from_dict(data)
    assert written(graph) == data
    assert "every" in graph.draw().svg
    assert repr(graph["third"])
    for act in (graph.check, graph.run):
        with pytest.raises(ev.GraphError, match=r"'third' \(every\).*needed to run it.*No module named"):
            act()


def test_each_port_may_have_a_schema_of_its_own_also_where_the_class_is_not() -> None:
    graph, seen = ev.Graph(), list[Any]()
    halves = graph.source("recs", Rec) >> Halves(name="halves")
    halves[0] >> ev.Filter("input.seq > 4") >> ev.Terminal(f"{__name__}:handler", name="whole")
    halves[1] >> ev.Filter("input.half > 2.5") >> ev.Terminal(f"{__name__}:handler", name="end")
    text = json.dumps(graph.to_dict())
    for name in ("whole", "end"):
        graph.stones[name] = ev.Terminal(lambda event: seen.append(event.to_event()), name=name)
    with graph.run() as flow:
        flow["recs"].submit_batch({"seq": list(range(7))})
        flow.drain(timeout=20)
    assert seen == [Rec(5), Rec(6), Half(3.0)]
    # A filter may use only what leaves by the port that it is linked to.
    wrong = json.loads(text.replace("input.half > 2.5", "input.seq > 4"))
    for make in (kinds.made, partial(kinds.made, find=kinds.absent)):
        with pytest.raises(ev.EvflowError, match="'input' has no field 'seq'; its fields are half"):
            ev.Graph.from_dict(wrong, make).check()


@pytest.mark.parametrize(
    ("entry", "words"),
    [
        ({"kind": "no_such_package:Every"}, "No module named 'no_such_package'"),
        ({"kind": f"{HERE}:Evry"}, "has no attribute 'Evry'"),
        ({"kind": f"{HERE}:a_function"}, "expected a class that derives from evflow.stone.Acting"),
        ({"kind": "json:JSONDecoder"}, "expected a class that derives from evflow.stone.Acting"),
        ({"kind": "every"}, "stone kind 'every' is not known"),
        ({"kind": ["every"]}, "expected a text"),
        ({"kind": None}, "expected a text"),
        ({"settings": {"nth": 0}}, r"'third' .*cannot be made of its settings.*nth 0: expected 1 or more"),
        ({"settings": {"mth": 0}}, r"'third' .*cannot be made of its settings.*TypeError"),
        ({"settings": 7}, r"'third' .*cannot be made of its settings 7"),
        ({"settings": None}, r"'third' .*cannot be made of its settings None"),
    ],
)
def test_entry_that_makes_no_stone_is_refused_by_name(entry: dict[str, Any], words: str) -> None:
    data = written(around(Every(3, name="third")))
    data["stones"][1] |= entry
    del data["stones"][1]["declares"]
    with pytest.raises(ev.GraphError, match=words):
        ev.Graph.from_dict(data)


@pytest.mark.parametrize(
    ("declares", "words"),
    [
        (None, "does not say what the stone's class declares"),
        ({"linked_ports": "two"}, "linked_ports 'two': expected one of one, any, free, none"),
        ({"wakes": 1}, "wakes 1: expected True or False"),
        ({"emits_by_port": "yes"}, "emits_by_port 'yes': expected True or False"),
        ({"kind": 5}, "kind 5: expected a text"),
        ({"inputs": {"input": 7}}, "."),
        ({"inputs": 7}, "."),
        ({"emits": 7}, "expected a tuple, found 7"),
        ({"emits": [7]}, "."),
        ({"imports": [7]}, "expected texts, found 7"),
    ],
)
def test_what_a_class_declares_is_checked_where_it_is_not(declares: Any, words: str) -> None:
    data = written(around(Every(3, name="third")))
    entry = data["stones"][1]
    entry["declares"] = None if declares is None else entry["declares"] | declares
    with pytest.raises(ev.EvflowError, match=words):
        ev.Graph.from_dict(data, lambda one: kinds.made(one, kinds.absent))


class Rubbish(Acting):
    """Says of itself what it is told."""

    def __init__(self, **said: Any) -> None:
        super().__init__(name="rubbish")
        self.said = said

    def open(self, context: Context) -> Actor:
        return Actor(context)

    def settings(self) -> Any:
        return _given(self.said.get("settings", {}))

    @property
    def inputs(self) -> Any:
        return _given(self.said.get("inputs", {"input": None}))

    def emits(self, schema: Any) -> Any:
        return _given(self.said.get("emits", (None,)))

    @property
    def imports(self) -> Any:
        return _given(self.said.get("imports", ()))


def _given(value: Any) -> Any:
    if isinstance(value, type) and issubclass(value, BaseException):
        raise value("on purpose")
    return value


class Forgetful(Acting):
    """Has a parameter, and no settings."""

    def __init__(self, most: int) -> None:
        self.most = most


@pytest.mark.parametrize(
    ("stone", "words"),
    [
        (Rubbish(settings=7), r"settings\(\): expected a dict, found 7"),
        (Rubbish(settings={"a": object()}), r"settings\(\): expected plain data"),
        (Rubbish(settings={"a": float("nan")}), r"settings\(\): expected plain data"),
        (Rubbish(settings=ZeroDivisionError), r"settings\(\): ZeroDivisionError: on purpose"),
        (Rubbish(settings=SystemExit), r"settings\(\): SystemExit: on purpose"),
        (Rubbish(inputs=7), "inputs: TypeError"),
        (Rubbish(inputs={"a": Rec}), r"inputs: expected schemas, such as Reading.schema"),
        (Rubbish(inputs={7: None}), "inputs: expected texts, found 7"),
        (Rubbish(inputs=KeyError), "inputs: KeyError: 'on purpose'"),
        (Rubbish(emits=Rec.schema), r"emits\(None\): expected a tuple"),
        (Rubbish(emits=(7,)), r"emits\(None\): expected schemas"),
        (Rubbish(emits=OSError), r"emits\(None\): OSError: on purpose"),
        (Rubbish(imports="a:b"), "imports: expected a tuple"),
        (Rubbish(imports=SystemExit), "imports: SystemExit: on purpose"),
        (Forgetful(3), r"settings\(\): the class has none of its own, but the stone has most"),
    ],
)
def test_stone_that_says_rubbish_of_itself_is_not_written(stone: Any, words: str) -> None:
    g = ev.Graph()
    g.source("recs") >> stone
    with pytest.raises(ev.GraphError, match=rf"stone '{stone.name or stone.kind}' \(\w+\): {words}"):
        g.to_dict()


@pytest.mark.parametrize("text", ["import sys\nsys.exit(3)\n", "1 / 0\n", "raise KeyboardInterrupt\n"])
def test_module_that_fails_when_it_is_imported_is_an_error(
    text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "failing_stones.py").write_text(text)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "failing_stones", raising=False)
    with pytest.raises(ev.GraphError, match="stone class 'failing_stones:Every' cannot be imported: "):
        kinds.stone_class("failing_stones:Every")


def test_a_port_that_a_stone_does_not_emit_by_is_refused() -> None:
    graph = ev.Graph()
    halves = graph.source("in", Rec) >> Halves(name="halves")
    halves[2] >> ev.Terminal(print)
    with pytest.raises(ev.GraphError, match=r"'halves'.*: port 2 is linked; it emits by ports 0 to 1"):
        graph.check()
