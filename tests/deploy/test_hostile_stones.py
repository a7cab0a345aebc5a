"""A stone of which any part fails costs its own deployment what it had to do there, and nothing else."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

import evflow as ev
from evflow.graph import kinds
from tests.deploy.hostilestones import Anger, Angry
from tests.deploy.yard import Rec, Yard
from tests.examples import tried
from tests.flow.ownstones import Every
from tests.node.processes import wait_for

pytestmark = pytest.mark.slow

KIND, EVERY = "tests.deploy.hostilestones:Angry", "tests.flow.ownstones:Every"

STONE = [
    "__init__", "from_settings", "settings", "inputs", "emits", "imports", "files", "reads", "asks",
    "keep_in", "prepare", "check", "check_arrivals", "open",
]  # fmt: skip
ACTOR = [
    "receive", "wake", "full", "busy", "draining", "pause", "resume", "at_work", "failure", "answer", "mark",
    "settled", "taken", "oldest", "queued", "extract", "close", "keeps", "checkpoint", "restore",
    "take_request", "stream", "become", "controls",
]  # fmt: skip
GIVEN = [
    "context.emit", "context.port", "context.fault", "context.fault reason", "context.drop", "context.spend",
    "context.attributes",
]  # fmt: skip


@pytest.fixture(autouse=True)
def _calm() -> Iterator[None]:
    yield
    Anger.begin("", None)


@pytest.fixture
def yard(tmp_path: Path) -> Iterator[Yard]:
    with Yard(tmp_path, "") as found:
        for name in "ab":
            found.start(name, handlers={**found.handlers(), KIND: Angry, EVERY: Every})
        yield found
        Anger.begin("", None)
        # What a daemon could not open keeps it from ending by itself.
        for daemon in found.daemons.values():
            daemon.close(0.2)


def angry() -> ev.Graph:
    g = ev.Graph("angry")
    with g.on("a"):
        g.source("recs", Rec) >> Angry(name="angry") >> ev.Terminal("desk:one", batch=True, name="end")
    return g


def sound() -> ev.Graph:
    """What shares the daemon; its stone has a state."""
    g = ev.Graph("sound")
    with g.on("a"):
        g.source("recs", Rec) >> Every(2, name="every") >> ev.Terminal("desk:two", batch=True, name="end")
    return g


class Neighbour:
    """Makes sure of the other deployment, again and again."""

    def __init__(self, yard: Yard, handle: ev.Deployment) -> None:
        self._yard, self._handle, self._sent = yard, handle, 0

    def check(self) -> None:
        for daemon in self._yard.daemons.values():
            assert daemon.failure is None
        self._handle["recs"].submit(Rec(self._sent))
        self._sent += 1
        self._handle.drain(20)
        assert self._yard.others["two"] == list(range(1, self._sent, 2))


def acts(handle: ev.Deployment) -> list[Callable[[], Any]]:
    """All that can be done with a deployment."""
    recs = handle["recs"]
    return [
        lambda: recs.submit_batch({"seq": [1, 2, 3]}, timeout=1),
        lambda: handle.drain(0.2),
        handle.stats,
        handle.dead_letters,
        lambda: handle.cluster.flow.ask("a", "angry/angry", {}, timeout=0.1),
        lambda: handle.freeze("angry"),
        lambda: recs.submit_batch({"seq": [4]}, timeout=0.3),
        lambda: handle.unfreeze("angry"),
        lambda: handle.send_stored("angry"),
        lambda: handle.move("angry", "b", 0.5),
        lambda: recs.submit_batch({"seq": [5, 6]}, timeout=0.3),
        lambda: handle.drain(0.2),
        lambda: handle.move("angry", "a", 0.5),
        lambda: handle._edit(lambda graph: graph.replace("angry", ev.Filter("1", input=Rec)), 0.5),
        lambda: handle.shutdown(0.2),
        # As ``undeploy``, which waits longer for a node that will not get ready.
        lambda: handle._propose(handle._record, None, 0.5),
    ]


HOW = {"raises": ZeroDivisionError, "exits": SystemExit, "gives rubbish": object()}
"""What it raises, or gives; nothing takes an object that is nothing."""


def each(places: list[str], ways: list[str]) -> list[Any]:
    """Every place with one of the ways, the next place with the next; with more if more is tried."""
    turns = range(min(tried(1), len(ways)))
    pairs = [(where, ways[(n + turn) % len(ways)]) for n, where in enumerate(places) for turn in turns]
    return [pytest.param(where, HOW[way], id=f"{where}-{way}") for where, way in pairs]


@pytest.mark.parametrize(("where", "how"), each(STONE + ACTOR, [*HOW]))
def test_stone_that_fails_costs_its_deployment_at_most(where: str, how: Any, yard: Yard) -> None:
    with sound().deploy(yard.hosts) as handle:
        neighbour = Neighbour(yard, handle)
        neighbour.check()
        with angry().deploy(yard.hosts, timeout=3) as own:
            steps = acts(own)
            Anger.begin(where, how)
            for step in steps:
                with suppress(ev.EvflowError):
                    step()
                neighbour.check()
            Anger.begin("", None)
            own.close(0.5)


@pytest.mark.parametrize(("where", "how"), each(GIVEN, [*HOW]))
def test_rubbish_given_to_the_engine_costs_its_events_at_most(where: str, how: Any, yard: Yard) -> None:
    with sound().deploy(yard.hosts) as handle, angry().deploy(yard.hosts) as own:
        neighbour = Neighbour(yard, handle)
        Anger.begin(where, how)
        for _ in range(3):
            own["recs"].submit_batch({"seq": [1, 2, 3]})
            own.drain(20)
            neighbour.check()
        wait_for(lambda: Anger.hurt >= 3, "it was called")
        own.status()
        assert yard.others["one"] == []
        assert {letter.stone for letter in own.dead_letters()} <= {"angry", "end"}


MADE = [name for name in STONE if name not in ("settings", "asks", "keep_in", "open")]


@pytest.mark.parametrize(("where", "how"), each(MADE, ["raises", "exits"]))
def test_node_that_cannot_make_a_stone_names_it(where: str, how: Any, yard: Yard) -> None:
    with sound().deploy(yard.hosts) as handle:
        neighbour = Neighbour(yard, handle)
        graph = ev.Graph.from_dict(angry().to_dict(), lambda entry: kinds.made(entry, kinds.absent))
        Anger.begin(where, how)
        with pytest.raises(ev.DeployError, match=rf"stone 'angry/angry'.*{how.__name__}: on purpose"):
            graph.deploy(yard.hosts, timeout=3)
        neighbour.check()


@pytest.mark.parametrize("how", [ZeroDivisionError, SystemExit], ids=["raises", "exits"])
def test_node_that_cannot_open_a_stone_names_it_in_its_status(how: Any, yard: Yard) -> None:
    """The version was decided by then, so it stands."""
    with sound().deploy(yard.hosts) as handle:
        neighbour = Neighbour(yard, handle)
        graph = ev.Graph.from_dict(angry().to_dict(), lambda entry: kinds.made(entry, kinds.absent))
        Anger.begin("open", how)
        with graph.deploy(yard.hosts, timeout=3) as own:
            wanted = f"stone 'angry/angry' (angry) cannot be opened: {how.__name__}: on purpose"
            wait_for(lambda: wanted in repr([own.ask(node, "status") for node in yard.hosts]), wanted)
        neighbour.check()


@pytest.mark.parametrize("where", ["__init__", "inputs", "check", "prepare"])
def test_stone_that_never_comes_to_be_is_refused(
    where: str, yard: Yard, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("evflow.deploy.part._PATIENCE", 0.3)
    with sound().deploy(yard.hosts) as handle:
        neighbour = Neighbour(yard, handle)
        graph = ev.Graph.from_dict(angry().to_dict(), lambda entry: kinds.made(entry, kinds.absent))
        over = threading.Event()
        Anger.begin(where, over.wait)
        try:
            with pytest.raises(ev.DeployError, match=rf"making stones of {KIND} did not return within 0.3 s"):
                graph.deploy(yard.hosts, timeout=3)
            neighbour.check()
        finally:
            over.set()


def test_stone_that_waits_holds_the_node_up_and_loses_nothing(yard: Yard) -> None:
    with sound().deploy(yard.hosts) as handle, angry().deploy(yard.hosts) as own:
        over = threading.Event()
        Anger.begin("receive", lambda: over.wait(20))
        own["recs"].submit_batch({"seq": [1, 2, 3]})
        wait_for(lambda: Anger.hurt, "it waits")
        for n in range(100):
            handle["recs"].submit(Rec(n))
        over.set()
        own.drain(20)
        handle.drain(20)
        assert yard.others == {"one": [1, 2, 3], "two": list(range(1, 100, 2)), "three": []}
