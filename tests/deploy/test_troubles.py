"""A node that cannot run what it should: it says why, harms nothing that it keeps, and can be helped."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import evflow as ev
from tests.deploy.yard import Rec, Yard
from tests.node.processes import wait_for


def _graph() -> ev.Graph:
    graph = ev.Graph("chain")
    held = graph.source("recs", Rec, on="a") >> ev.Storage(10, path="held.db", name="held", on="b")
    _ = held >> ev.Terminal("desk:note", batch=True, name="end", on="b")
    return graph


def test_a_file_that_cannot_be_opened_for_a_while_loses_nothing(tmp_path: Path) -> None:
    """The node is started while something else lies in its place; the next change takes the stones up."""
    with Yard(tmp_path, "ab") as yard, _graph().deploy(yard.hosts) as handle:
        handle["recs"].submit_batch({"seq": range(10)})
        handle.drain(20)
        contact = yard.daemons["b"].contact
        yard.daemons["b"].close()
        (file,) = tmp_path.rglob("held.db")
        file.rename(tmp_path / "away.db")
        file.mkdir()
        yard.start("b", listen=contact)
        trouble = yard.daemons["b"].rpc.status()["deployments"]["chain"]["trouble"]
        assert "'chain/held'" in trouble and "'held.db' is a folder" in trouble
        file.rmdir()
        (tmp_path / "away.db").rename(file)
        handle.freeze("end")
        assert yard.daemons["b"].rpc.status()["deployments"]["chain"]["trouble"] == ""
        handle.unfreeze("end")
        assert handle.stats()["held"]["queued"] == 10
        assert handle.send_stored("held") == 10
        wait_for(lambda: len(yard.seen) == 10, "what was held")
        assert yard.seen == list(range(10))


def test_a_file_left_by_a_deployment_of_the_same_name_is_not_taken_for_a_new_one(tmp_path: Path) -> None:
    with Yard(tmp_path, "ab") as yard:
        for _ in range(2):
            with _graph().deploy(yard.hosts) as handle:
                handle["recs"].submit_batch({"seq": range(5)})
                handle.drain(20)
                assert handle.stats()["held"]["queued"] == 5
                handle.undeploy()
        assert yard.seen == []


def test_a_handler_that_fails_costs_its_event_and_can_be_tried_again(tmp_path: Path) -> None:
    """The letter says which stone on which node, and why; it is gone once it was submitted again."""
    with Yard(tmp_path, "a") as yard:
        faults = [ValueError("for once \udc80")]

        def note(event: Rec) -> None:
            if event.seq == 3 and faults:
                raise faults.pop()
            yard.seen.append(event.seq)

        yard.start("b", handlers={"desk:note": note})
        graph = _graph()
        graph.remove("held")
        graph.replace("end", ev.Terminal("desk:note"))
        with graph.deploy(yard.hosts) as handle:
            handle["recs"].submit_batch({"seq": range(6)})
            handle.drain(20)
            (letter,) = handle.dead_letters()
            assert (letter.stone, letter.node, letter.event) == ("end", "b", {"seq": 3})
            assert "for once" in letter.reason
            assert letter.event.seq == 3
            assert isinstance(letter.error, ValueError)
            assert str(letter.error) == "for once ?"
            assert "raise faults.pop()" in letter.error.__notes__[0]
            letter.resubmit()
            wait_for(lambda: len(yard.seen) == 6, "the event that failed")
            assert yard.seen == [0, 1, 2, 4, 5, 3]
            assert handle.dead_letters() == []


class Photo(ev.Event):
    """An event that may be large."""

    seq: int
    title: str
    pixels: ev.Array[ev.u8, None]


@pytest.mark.slow
def test_large_events_among_dead_letters_do_not_hide_the_others(tmp_path: Path) -> None:
    """All are told, more than fit into one answer; of one that is too large, how large it is."""
    seen: list[tuple[int, int]] = []
    broken = True

    def note(photo: Photo) -> None:
        if broken:
            raise ValueError("x" * 10_000_000)
        seen.append((photo.seq, len(photo.pixels)))

    graph = ev.Graph("photos")
    _ = graph.source("photos", Photo, on="a") >> ev.Terminal("desk:note", name="end", on="a")
    sizes = [9 << 20, *[200_000] * 12, 3]
    with Yard(tmp_path, "") as yard:
        yard.start("a", handlers={"desk:note": note})
        with graph.deploy(yard.hosts) as handle:
            for seq, size in enumerate(sizes):
                handle["photos"].submit(Photo(seq, "sea", np.ones(size, np.uint8)))
            handle.drain(20)
            letters = handle.dead_letters()
            assert [letter.event["seq"] for letter in letters] == list(range(14))
            assert letters[0].event["pixels"] == "9437184 values, too many to show"
            assert [len(letter.event["pixels"]) for letter in letters[1:]] == sizes[1:]
            assert [letter.event["seq"] for letter in handle.dead_letters(limit=2)] == [12, 13]
            broken = False
            letters[0].resubmit()
            wait_for(lambda: seen == [(0, 9 << 20)], "the large event")
            assert len(handle.dead_letters()) == 13


def test_a_handler_that_fails_is_one_traceback_in_the_log_of_its_daemon(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A count afterwards, of all events that failed so."""
    caplog.set_level(logging.WARNING, "evflow")

    def note(event: Rec) -> None:
        print(event.sek)

    with Yard(tmp_path, "") as yard:
        yard.start("a", handlers={"desk:note": note})
        graph = ev.Graph("chain")
        _ = graph.source("recs", Rec, on="a") >> ev.Terminal("desk:note", name="end", on="a")
        with graph.deploy(yard.hosts) as handle:
            handle["recs"].submit_batch({"seq": range(10)})
            handle.drain(20)
            assert len(handle.dead_letters()) == 10
    told = [record for record in caplog.records if "has no attribute 'sek'" in record.getMessage()]
    assert "stone 'chain/end': AttributeError" in told[0].getMessage()
    assert "did you mean 'seq'?" in told[0].getMessage()
    assert [bool(record.exc_info) for record in told] == [True] + [False] * (len(told) - 1)


def test_the_log_of_a_node_tells_each_version_and_what_it_changed(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """One line for the version, one for each of its stones; where it was decided also who asked."""
    caplog.set_level(logging.DEBUG, "evflow")

    def said() -> list[str]:
        lines = [
            r.getMessage() for r in caplog.records if r.name == "evflow.deploy" and r.levelname == "INFO"
        ]
        caplog.clear()
        return [line for line in lines if line.startswith("deployment chain")]

    def tell(change: Callable[[], object], version: int, line: str, nodes: int = 1) -> None:
        change()
        wanted = f"deployment chain, version {version}"
        wait_for(lambda: caplog.text.count(f"{wanted}: {line}") == nodes, line)
        lines = said()
        assert sum(each.startswith(f"{wanted} runs here, after version ") for each in lines) == nodes
        assert sum("stone" in each for each in lines) == nodes
        assert f"deployment chain: version {version}, which clerk has asked for, is decided" in lines

    with Yard(tmp_path, "ab") as yard, _graph().deploy(yard.hosts, name="clerk") as handle:
        wait_for(lambda: len(yard.placed("chain")) == 3, "all stones")
        assert caplog.text.count("clerk asks for propose") == 1
        first = said()
        assert first.count("deployment chain, version 1 runs here: 3 stones on a, b") == 2
        assert sum("which clerk has asked for, is decided" in line for line in first) == 1
        tell(lambda: handle.freeze("held"), 2, "stone 'held' is frozen")
        tell(lambda: handle.unfreeze("held"), 3, "stone 'held' is unfrozen")
        tell(lambda: handle.move("end", "a"), 4, "stone 'end' is moved from b to a", 2)
        tell(lambda: handle.replace("end", ev.Terminal("desk:one", batch=True)), 5, "stone 'end' is replaced")
        handle.undeploy()
        wait_for(lambda: caplog.text.count("version 6: it is undeployed") == 2, "the end")


@pytest.mark.slow
def test_a_daemon_answers_while_a_handler_does_not_return(tmp_path: Path) -> None:
    """For longer than it takes until the daemon looks at its stones again."""
    over, begun = threading.Event(), threading.Event()

    def note(event: Rec) -> None:
        begun.set()
        over.wait(60)

    graph = ev.Graph("slow")
    with graph.on("a"):
        graph.source("recs", Rec) >> ev.Terminal("desk:note", name="end")
    with Yard(tmp_path, "") as yard:
        yard.start("a", handlers={"desk:note": note})
        with graph.deploy(yard.hosts) as handle:
            handle["recs"].submit(Rec(1))
            try:
                assert begun.wait(20)
                for _ in range(5):
                    assert handle.stats()["end"]["in"] == 1
                    assert "trouble" not in handle.status()["a"]
                    ev.Deployment("slow", yard.hosts).close(0)
                    time.sleep(0.3)
            finally:
                over.set()
            handle.drain(20)
