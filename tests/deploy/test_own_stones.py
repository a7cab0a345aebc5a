"""Stones that are not evflow's own on daemons: admitted, moved, and failing without taking others along."""

from __future__ import annotations

import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

import evflow as ev
from evflow.deploy.admission import Admission
from evflow.deploy.part import part_of, within
from evflow.deploy.record import Record
from evflow.graph import kinds
from tests.deploy.yard import Rec, Yard, feeding
from tests.flow.ownstones import Every, Last
from tests.node.processes import ROOT

HERE = "tests.flow.ownstones"
HOSTS = {"a": "tcp://127.0.0.1:1", "b": "tcp://127.0.0.1:2"}


def chain(*stones: ev.stone.Stone, on: str = "b", end: str = "c", name: str = "own") -> ev.Graph:
    """Stones one behind the other on a node, between a source on a and a terminal."""
    graph = ev.Graph(name)
    at = graph.source("recs", Rec, on="a")
    for stone in stones:
        stone.on = on
        at = at >> stone
    at >> ev.Terminal("desk:note", batch=True, name="end", on=end)
    return graph


def admitting(yard: Yard, *texts: str) -> dict[str, Any]:
    """The handlers of a yard and classes of stones."""
    return {**yard.handlers(), **{text: kinds.stone_class(text) for text in texts}}


@pytest.fixture
def record() -> Record:
    return Record.first("own", chain(Every(2, name="every"), end="b").to_dict(), HOSTS)


def test_class_is_made_only_where_the_stone_runs_and_is_allowed(record: Record, tmp_path: Path) -> None:
    desk = {"desk:note": print}
    part = part_of(record, "b", Admission({**desk, f"{HERE}:Every": Every}, tmp_path))
    assert type(part.slots["own/every"].stone) is Every
    assert list(part_of(record, "a", Admission((), tmp_path)).slots) == ["own/recs", "own/recs→own/every"]
    why = rf"stone 'own/every': stone class '{HERE}:Every' is not on this node's list \(desk:note\)"
    with pytest.raises(ev.DeployError, match=why):
        part_of(record, "b", Admission(desk, tmp_path))


@pytest.mark.parametrize("allowed", ["own_shapes", "own_shapes:Shape", "own_shapes.inner"])
def test_module_allows_what_it_defines_itself(
    allowed: str, record: Record, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = f"from {HERE} import Every, Last\n__all__ = ['Last']\nclass Shape(Every): pass\n"
    (tmp_path / "own_shapes.py").write_text(text)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "own_shapes", raising=False)
    admission = Admission([allowed], tmp_path)
    taken = {name: _admitted(admission, f"own_shapes:{name}") for name in ("Shape", "Last", "Every")}
    assert taken == {"Shape": "inner" not in allowed, "Last": allowed == "own_shapes", "Every": False}


def _admitted(admission: Admission, kind: str) -> bool:
    try:
        return issubclass(admission.stone_class(kind), ev.stone.Stone)
    except ev.DeployError as error:
        assert f"stone class {kind!r}" in str(error)
        return False


@pytest.mark.slow
def test_node_imports_nothing_for_stones_of_others(record: Record, tmp_path: Path) -> None:
    """Not to read the record, to check a change, to tap; a fresh interpreter has only what it imported."""
    graph = record.graph
    assert graph is not None
    graph["stones"][1]["kind"] = "antigravity:Every"
    source = (
        "import sys\nfrom pathlib import Path\nfrom evflow.deploy.admission import Admission\n"
        "from evflow.deploy.frontier import frontier\nfrom evflow.deploy.part import checked_graph, part_of\n"
        "from evflow.deploy.record import Record\nfrom evflow.errors import DeployError\n"
        f"record = Record.from_data({record.data()!r})\n"
        "nobody = Admission((), Path())\n"
        "checked_graph(record); part_of(record, 'a', nobody); frontier(record, record.edited(), 'b')\n"
        "try:\n    part_of(record, 'b', nobody)\nexcept DeployError as error:\n    print(error)\n"
        "assert 'antigravity' not in sys.modules\n"
    )
    done = subprocess.run([sys.executable, "-c", source], cwd=ROOT, capture_output=True, encoding="utf-8")
    assert "start it with --allow antigravity" in done.stdout, done.stderr


def test_other_version_of_the_class_is_refused(record: Record, tmp_path: Path) -> None:
    assert record.graph is not None
    record.graph["stones"][1]["declares"]["linked_ports"] = "any"
    with pytest.raises(
        ev.GraphError, match=r"'own/every' .*linked_ports 'one' here, and 'any' where the graph"
    ):
        part_of(record, "b", Admission({f"{HERE}:Every": Every, "desk:note": print}, tmp_path))


def test_call_that_may_never_return_is_waited_for_no_longer_than_given() -> None:
    """It gives what the call gives, also None, or raises what the call raises, also SystemExit."""
    assert within(10.0, "stone", lambda: 3) == 3
    assert within(10.0, "stone", lambda: None) is None
    with pytest.raises(SystemExit, match="7"):
        within(10.0, "stone", lambda: sys.exit(7))
    over = threading.Event()
    with pytest.raises(ev.DeployError, match=r"^stone did not return within 0.01 s; "):
        within(0.01, "stone", over.wait)
    over.set()


@pytest.mark.slow
def test_moves_take_state_and_waiting_events_along(tmp_path: Path) -> None:
    with Yard(tmp_path, "") as yard:
        for name in "abc":
            yard.start(name, handlers=admitting(yard, f"{HERE}:Every", f"{HERE}:Last"))
        graph = chain(Every(3, name="third"), Last(2, name="last"))
        with graph.deploy(yard.hosts) as handle, feeding(handle["recs"]) as feeder:
            for third, last in ("cb", "aa", "bc", "cb"):
                feeder.more()
                handle.move("third", third)
                handle.move("last", last)
            count = feeder.end()
            handle.drain(20)
            expected = list(range(2, count, 3))
            assert yard.seen == expected[:-2]
            assert handle.stats()["last"]["queued"] == 2
            assert handle.stats()["third"]["kind"] == "every"
            assert "last few" in handle.draw().svg
            assert handle.send_stored("last") == 2
            handle.drain(20)
            assert yard.seen == expected


@pytest.mark.slow
def test_daemon_takes_its_stones_up_again(tmp_path: Path) -> None:
    with Yard(tmp_path, "") as yard:
        for name in "abc":
            yard.start(name, handlers=admitting(yard, f"{HERE}:Every", f"{HERE}:Last"))
        with chain(Every(3, name="third"), Last(2, name="last")).deploy(yard.hosts) as handle:
            handle["recs"].submit_batch({"seq": list(range(10))})
            handle.drain(20)
            contact = yard.daemons["b"].contact
            yard.daemons["b"].close()
            yard.start("b", listen=contact, handlers=admitting(yard, f"{HERE}:Every", f"{HERE}:Last"))
            handle["recs"].submit_batch({"seq": list(range(10, 20))})
            handle.drain(20)
            assert yard.seen == [2, 5, 8, 11]


@pytest.mark.slow
def test_edits_by_a_program_that_lacks_the_class(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It can move, replace, insert and remove around such a stone, and the stone stays what it is."""
    with Yard(tmp_path, "") as yard:
        for name in "abc":
            yard.start(name, handlers=admitting(yard, f"{HERE}:Every", f"{HERE}:Last"))
        with chain(Every(2, name="second")).deploy(yard.hosts) as handle:
            monkeypatch.setattr("evflow.deploy.handle.loaded", kinds.absent)
            # What its class declares says here, too, what comes to the filter behind it.
            handle.insert(ev.Filter("input.seq != 3", name="no 3"), after="second", before="end")
            handle.move("second", "c")
            handle["recs"].submit_batch({"seq": list(range(5))})
            handle.drain(20)
            handle.move("second", "a")
            handle["recs"].submit_batch({"seq": list(range(5, 10))})
            handle.drain(20)
            assert yard.seen == [1, 5, 7, 9]
            handle.replace("second", ev.Filter("input.seq < 7", input=Rec))
            handle["recs"].submit_batch({"seq": list(range(5, 10))})
            handle.drain(20)
            assert yard.seen == [1, 5, 7, 9, 5, 6]
