"""Hostile deployers: what they send is refused with a clear error, and what runs beside it goes on."""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Iterator
from typing import Any

import msgpack
import pytest

import evflow as ev
from evflow.codgen.kernel import KernelCode, Stage
from evflow.deploy.client import Cluster
from tests.deploy.yard import Feeder, Rec, Yard, chain, feeding
from tests.node.processes import wait_for


class Beside:
    """A deployment that runs under load beside what is tried.

    Attributes:
        yard: its daemons, a and b.
        handle: its handle.
        feeder: who submits to it.
    """

    def __init__(self, yard: Yard, handle: ev.Deployment, feeder: Feeder) -> None:
        self.yard, self.handle, self.feeder = yard, handle, feeder

    @property
    def hosts(self) -> dict[str, str]:
        """Where the daemons are."""
        return self.yard.hosts

    def check(self) -> None:
        """It is as it was, and goes on; the daemons have nothing else, and obey."""
        seen = len(self.yard.seen)
        wait_for(lambda: len(self.yard.seen) > seen, "events beside")
        for daemon in self.yard.daemons.values():
            assert list(daemon.rpc.status()["deployments"]) == ["beside"]
            assert daemon._thread.is_alive()
            assert all(name.startswith("beside/") for name in daemon.flow.engine.topology.slots)
        self.handle.move("step1", "a" if self.yard.placed("beside")["step1"] == "b" else "b")


@pytest.fixture(scope="module")
def beside(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Beside]:
    """Two daemons with a deployment under load; at the end all of its events have arrived once."""
    tmp_path = tmp_path_factory.mktemp("beside")
    graph = chain("a", "b", "b", name="beside")
    with (
        Yard(tmp_path, "ab") as yard,
        graph.deploy(yard.hosts) as handle,
        feeding(handle["recs"]) as feeder,
    ):
        yield Beside(yard, handle, feeder)
        count = feeder.end()
        handle.drain(20)
        assert yard.seen == list(range(count))


def _propose(beside: Beside, data: dict[str, Any], host: str = "a") -> Any:
    return beside.handle.ask(host, "propose", record=data, patience=2.0)


def _record(beside: Beside, graph: dict[str, Any], name: str = "evil") -> dict[str, Any]:
    return {
        "deployment": name, "version": 1, "graph": graph, "hosts": beside.hosts, "frozen": [], "change": "",
        "birth": "", "parts": {},
    }  # fmt: skip


def _refused(beside: Beside, graph: dict[str, Any], words: str, name: Any = "evil") -> None:
    """A graph is refused in these words, and nothing is left of it."""
    case = f"{name!r:.300} {graph!s:.2000}"
    try:
        _propose(beside, _record(beside, graph, name))
    except ev.DeployError as error:
        assert re.search(words, str(error), re.DOTALL), case
    else:
        pytest.fail(f"not refused: {case}")
    for daemon in beside.yard.daemons.values():
        assert list(daemon.rpc.status()["deployments"]) == ["beside"], case


def _evil(**settings: Any) -> dict[str, Any]:
    """A graph's data with a filter on b whose settings are others."""
    data = chain("a", "b", "b", name="evil").to_dict()
    (filter,) = (stone for stone in data["stones"] if stone["name"] == "step1")
    filter["settings"] = filter["settings"] | settings
    return data


@pytest.mark.slow
def test_notes_of_garbage_are_refused_and_change_nothing(beside: Beside) -> None:
    noise = random.Random(5)
    with Cluster(beside.hosts) as stranger:
        stranger.ask("a", "name"), stranger.ask("b", "name")
        for topic in ("deploy", "ask", "answer", "nothing"):
            for number in range(200):
                body = _garbage(noise, number)
                for host in "ab":
                    stranger.flow.call(
                        lambda host=host, topic=topic, body=body: stranger._links.tell(host, topic, body)
                    )
        assert [stranger.ask(host, "name") for host in "ab"] == ["a", "b"]
    beside.check()


def _garbage(noise: random.Random, number: int) -> bytes:
    match number % 4:
        case 0:
            return noise.randbytes(noise.randrange(200))
        case 1:
            return bytes(msgpack.packb([noise.randrange(20), _thing(noise, 0), _thing(noise, 0)]))
        case 2:
            return bytes(msgpack.packb([b"12345678", number, "propose", {"record": _thing(noise, 0)}]))
        case _:
            return b"\x91" * 5_000 + b"\xc0"


def _thing(noise: random.Random, depth: int) -> Any:
    kind = noise.randrange(7 if depth < 3 else 5)
    if kind == 5:
        return [_thing(noise, depth + 1) for _ in range(noise.randrange(6))]
    if kind == 6:
        return {str(n): _thing(noise, depth + 1) for n in range(noise.randrange(6))}
    return [None, True, noise.randrange(-9, 1 << 40), "text/ä", noise.randbytes(32)][kind]


_WRONG_FUNCTIONS: list[tuple[dict[str, Any], str]] = [
    ({"code": "1 || " * 20_000 + "1"}, "node b.*'evil/step1'.*100001 characters; expected at most 65536"),
    ({"fuel": 1 << 60}, "node b.*'evil/step1'.*expected at most 100000000"),
    ({"fuel": -1}, "node [ab].*fuel -1: expected an integer of 1 or more"),
    ({"code": ["python", "import os"]}, "node b"),
    ({"code": 7}, "node b"),
    ({"code": "system(1)"}, "node b.*'evil/step1'.*line 1, column 1"),
    ({"code": "(" * 5_000 + "1" + ")" * 5_000}, "node b"),
    ({"code": "-" * 60_000 + "1"}, "node b"),
    ({"input": 5}, "node [ab]: schema description: expected an object"),
]


@pytest.mark.slow
def test_a_function_that_a_node_cannot_take_is_refused(beside: Beside) -> None:
    for settings, words in _WRONG_FUNCTIONS:
        _refused(beside, _evil(**settings), words)
    beside.check()


def test_a_function_that_cannot_be_compiled_is_refused_before_anybody_votes(
    beside: Beside, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only LLVM finds out, after the check: no node adopts the graph, and none is in trouble."""

    class Failing(KernelCode):
        def __init__(self, stages: tuple[Stage, ...], schema: ev.Schema | None) -> None:
            if "fails" in stages[-1].function.source:
                raise RuntimeError("no such instruction")
            super().__init__(stages, schema)

    monkeypatch.setattr("evflow.codgen.kernel.KernelCode", Failing)
    with pytest.raises(ev.DeployError, match=r"node b.*LLVM cannot compile this code: no such instruction"):
        _propose(beside, _record(beside, _evil(code="1 /* fails */")))
    assert not any(daemon.site.troubles for daemon in beside.yard.daemons.values())
    beside.check()


def test_a_file_outside_the_storage_folder_is_refused(beside: Beside) -> None:
    graph = chain("a", "b", "b", name="evil")
    graph.replace("step1", ev.Storage(1, path="fine.db"))
    data = graph.to_dict()
    (stone,) = (stone for stone in data["stones"] if stone["name"] == "step1")
    for path in ("/evil.db", "../evil.db", "x/../../evil.db", "\0", ".", "", "x" * 300):
        stone["settings"]["path"] = path
        _refused(beside, data, "node b.*evil/step1")
    beside.check()
    assert not list(beside.yard.folder.rglob("evil.db"))


def test_two_stones_of_a_node_with_one_file_are_refused(beside: Beside) -> None:
    """The second one would empty what the first one keeps."""
    graph = chain("a", "b", "b", name="evil")
    graph.insert(ev.Storage(1, path="./held.db", name="one"), after="step1", before="end")
    graph.insert(ev.Storage(1, path="held.db", name="two"), after="one", before="end")
    with pytest.raises(ev.DeployError, match=r"held\.db: stone 'evil/.*' has it already"):
        _propose(beside, _record(beside, graph.to_dict()))
    beside.check()


def test_more_bridges_to_a_node_than_it_takes_are_refused(
    beside: Beside, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("evflow.deploy.site._MOST_BRIDGES", 5)
    graph = ev.Graph("evil")
    for number in range(5):
        _ = graph.source(f"recs{number}", Rec, on="a") >> ev.Terminal("desk:one", name=f"end{number}", on="b")
    with pytest.raises(
        ev.DeployError, match=r"node a: it would have [67] bridges to node b; expected at most 5"
    ):
        _propose(beside, _record(beside, graph.to_dict()))
    monkeypatch.undo()
    beside.check()


_HANDLERS = [
    "os:system",
    "subprocess:run",
    "desk:other",
    "builtins:eval",
    "desk",
    ":",
    "a.b:c.d",
    "os: system",
]


def test_a_handler_that_is_not_on_the_list_is_refused(beside: Beside) -> None:
    data = chain("a", "b", "b", name="evil").to_dict()
    entries = [entry for stone in data["stones"] for entry in stone["settings"].get("handlers", ())]
    assert entries
    for handler in _HANDLERS:
        for entry in entries:
            entry[2] = handler
        _refused(beside, data, "node b")
    beside.check()


def _many(count: int) -> dict[str, Any]:
    data = chain("a", "b", "b", name="evil").to_dict()
    (filter,) = (stone for stone in data["stones"] if stone["name"] == "step1")
    data["stones"] += [{**filter, "name": f"more {n}"} for n in range(count)]
    return data


def test_a_graph_of_too_many_stones_is_refused(beside: Beside) -> None:
    with pytest.raises(ev.DeployError, match="expected at most 10000 stones, found 10004"):
        _propose(beside, _record(beside, _many(10_001)))
    beside.check()


@pytest.mark.slow
def test_an_oversized_graph_is_refused_before_it_is_sent(beside: Beside) -> None:
    data = _evil(code="1 " + " " * (40 << 20))
    with pytest.raises(ev.EvflowError, match="expected at most"):
        _propose(beside, _record(beside, data))
    beside.check()


def test_a_deployment_with_an_impossible_name_is_refused(beside: Beside) -> None:
    """Names like another's prefix would let one deployment's stones be taken for another's."""
    for name in ("", "a/b", "beside/", "x" * 256, "/", 7, None):
        _refused(beside, _evil(), r"a record: Expected `str`.* - at `\$.deployment`", name)
    beside.check()


@pytest.mark.slow
@pytest.mark.parametrize("name", ["..", ".", "besid", "beside 2", "ä\u202e\0\n", "%s{}", "x" * 255])
def test_odd_names_work_and_stay_apart(beside: Beside, name: str) -> None:
    graph = ev.Graph(name)
    beside.yard.others["one"].clear()
    held = graph.source("a/recs", Rec, on="a") >> ev.Storage(5, path="held.db", name="..", on="b")
    _ = held >> ev.Terminal("desk:one", batch=True, name="beside/end\n", on="a")
    with graph.deploy(beside.hosts) as handle:
        handle["a/recs"].submit_batch({"seq": range(10)})
        handle.drain(20)
        wait_for(lambda: len(beside.yard.others["one"]) == 5, "what is not held")
        assert handle.send_stored("..") == 5
        wait_for(lambda: len(beside.yard.others["one"]) == 10, "what was held")
        assert beside.yard.others["one"] == list(range(10))
        handle.undeploy()
    beside.check()
    home = beside.yard.folder
    assert all(path.is_relative_to(home / "b" / "files") for path in home.rglob("held.db*"))


LOOPS = "{ if (input.seq % 10 == 0) { while (1) { } } return 1; }"


@pytest.mark.slow
def test_a_function_that_loops_for_ever_costs_its_own_events_only(beside: Beside) -> None:
    graph = ev.Graph("loops")
    beside.yard.others["one"].clear()
    loops = graph.source("recs", Rec, on="a") >> ev.Filter(LOOPS, name="loops", on="b", fuel=1_000_000)
    _ = loops >> ev.Terminal("desk:one", batch=True, name="end", on="a")
    with graph.deploy(beside.hosts) as handle:
        handle["recs"].submit_batch({"seq": range(100)})
        handle.drain(60)
        assert beside.yard.others["one"] == [n for n in range(100) if n % 10]
        letters = handle.dead_letters()
        assert [letter.event["seq"] for letter in letters] == list(range(0, 100, 10))
        assert {(letter.stone, letter.node) for letter in letters} == {("loops", "b")}
        assert all("1000000" in letter.reason or "fuel" in letter.reason for letter in letters)
        handle.undeploy()
    beside.check()


_SPOILT: list[Callable[[dict[str, Any]], Any]] = [
    lambda d: d.pop("links"),
    lambda d: d["links"].append(["recs", 0, "nothing", ""]),
    lambda d: d["links"].append(["recs", -1, "end", ""]),
    lambda d: d["links"].append([1, 2]),
    lambda d: d["links"].append(["step1", 0, "recs", ""]),
    lambda d: d["stones"].append(d["stones"][0]),
    lambda d: d["stones"][1].update(kind="os"),
    lambda d: d["stones"][1].update(kind=["filter"]),
    lambda d: d["stones"][1].update(settings=None),
    lambda d: d["stones"][1].update(name="recs"),
    lambda d: d["stones"][1].update(name="beside/recs/../x" * 9_000),
    lambda d: d["stones"][1].update(on=["b"]),
    lambda d: d.update(morphs=[[1, 2, 3]]),
    lambda d: d.update(morphs={"a": 1}),
    lambda d: d.update(rules=[{"stone": 1}]),
    lambda d: d.update(fallbacks={"b": {"to": "b", "after": 1}}),
    lambda d: d.update(fallbacks={"b": {"to": "a", "after": float("nan")}}),
]


def test_a_malformed_graph_is_refused(beside: Beside) -> None:
    for spoil in _SPOILT:
        data = chain("a", "b", "b", name="evil").to_dict()
        spoil(data)
        _refused(beside, data, "")
    beside.check()


def test_questions_with_wrong_arguments_are_answered_with_an_error(beside: Beside) -> None:
    questions: list[tuple[str, dict[str, Any]]] = [
        ("nothing", {}),
        ("record", {}),
        ("record", {"deployment": ["x"], "known": None}),
        ("propose", {"record": None, "patience": "x"}),
        ("letters", {"limit": "many"}),
        ("resubmit", {"numbers": 7}),
        ("resubmit", {"numbers": ["x"]}),
        ("resubmit", {"numbers": [0] * 1001}),
        ("send_stored", {"stone": "beside/step1", "count": 1}),
        ("send_stored", {"stone": None, "count": None}),
        ("attributes", {"stone": "beside/step1", "values": {"x": [1]}}),
        ("attributes", {"stone": "beside/step1", "values": 7}),
        ("tap", {"stone": "nothing", "to": "x"}),
        ("untap", {"number": [1]}),
        ("seal", {}),
        ("quiet", {}),
    ]
    for verb, arguments in questions:
        with pytest.raises(ev.EvflowError) as caught:
            beside.handle.ask("a", verb, **arguments)
        assert not isinstance(caught.value, ev.LinkError), f"{verb} {arguments}: {caught.value}"
    beside.check()
