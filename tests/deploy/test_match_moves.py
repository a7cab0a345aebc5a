"""A match stone on daemons: what is subscribed goes along with it, and outlives its process."""

from __future__ import annotations

import time
from pathlib import Path
from random import Random

import pytest

import evflow as ev
from tests.deploy.daemons import HANDLERS, DaemonProcess, hosts_of
from tests.deploy.yard import Rec, Yard, feeding
from tests.node.processes import wait_for

pytestmark = pytest.mark.slow

Change = ev.SubscriptionChange
Named = ev.NamedSubscriptionChange


def alerting(match: ev.Match, *, handler: str = "desk:note", events: str = "a", end: str = "c") -> ev.Graph:
    """Events and changes come in on one node, are matched on b, and end on another."""
    graph = ev.Graph("alerting")
    alerts = graph.source("recs", Rec, on=events) >> match
    graph.source("changes", Change, Named, on=events) >> alerts
    alerts >> ev.Terminal(handler, batch=True, name="end", on=end)
    return graph


def matching(*subscriptions: str, **settings: object) -> ev.Match:
    return ev.Match(subscriptions, engine="reference", name="alerts", on="b", **settings)  # type: ignore[arg-type]


def change(handle: ev.Deployment, *changes: ev.Event) -> None:
    handle["changes"].submit_batch(list(changes))
    handle.drain(20)


def passing(yard: Yard, handle: ev.Deployment, *numbers: int) -> list[int]:
    """Which of these events leave the match stone."""
    yard.seen.clear()
    handle["recs"].submit_batch({"seq": list(numbers)})
    handle.drain(20)
    return list(yard.seen)


def check_noted(daemon: DaemonProcess, expected: list[int]) -> None:
    wait_for(lambda: len(daemon.noted) >= len(expected), "all that match", 20)
    assert daemon.noted == expected


def test_subscriptions_go_along_from_host_to_host(tmp_path: Path) -> None:
    with Yard(tmp_path, "abc") as yard, alerting(matching("seq == 1")).deploy(yard.hosts) as handle:
        change(handle, *(Change.subscribe(n, f"seq == {n}") for n in range(10, 15)), Change.unsubscribe(14))
        for step, node in enumerate(("c", "a", "b", "c", "b")):
            handle.move("alerts", node)
            # What was changed on the host before is no longer so there, when the stone comes back.
            change(handle, Change.subscribe(20, f"seq == {20 + step}"), Change.unsubscribe(10 + step % 4))
            change(handle, Change.subscribe(10 + step % 4, f"seq == {30 + step}"))
            wanted = [1, 20 + step, 30 + step]
            assert passing(yard, handle, 1, 14, *range(20, 40))[:1] == [1]
            assert set(wanted) <= set(passing(yard, handle, 1, 14, *range(20, 40)))
        assert passing(yard, handle, *range(40)) == [1, 24, 31, 32, 33, 34]
        assert handle.attributes("alerts")["subscriptions"] == 6
        status = handle.status()["b"]["stones"]["alerting/alerts"]
        assert status["attributes"]["matches"] > 0


def test_a_move_under_load_loses_doubles_and_reorders_nothing(tmp_path: Path) -> None:
    with (
        Yard(tmp_path, "abc") as yard,
        alerting(matching()).deploy(yard.hosts) as handle,
    ):
        change(handle, Change.subscribe(5, "seq >= 0"), Change.subscribe(6, "seq >= 100 and seq < 200"))
        # Not faster than they are matched on a busy machine, or a move waits for all that waits.
        with feeding(handle["recs"], batch=4) as feeder:
            for node in "cab":
                feeder.more()
                handle.move("alerts", node)
            feeder.more()
            count = feeder.end()
        handle.drain(20)
        assert yard.seen == list(range(count))


def test_a_daemon_that_is_ended_and_started_goes_on_with_its_subscriptions(tmp_path: Path) -> None:
    with Yard(tmp_path, "abc") as yard, alerting(matching("seq == 1")).deploy(yard.hosts) as handle:
        change(handle, Change.subscribe(7, "seq == 7"), Change.unsubscribe(0))
        contact = yard.daemons["b"].contact
        yard.daemons["b"].close(5.0)
        yard.start("b", listen=contact)
        assert passing(yard, handle, *range(10)) == [7]
        handle.undeploy()
    with Yard(tmp_path, "abc") as yard, alerting(matching("seq == 1")).deploy(yard.hosts) as handle:
        # Another deployment of the name begins anew.
        assert passing(yard, handle, *range(10)) == [1]


def test_changes_that_were_acknowledged_outlive_any_kill(tmp_path: Path) -> None:
    random = Random(5)
    with (
        DaemonProcess("a", tmp_path) as a,
        DaemonProcess("b", tmp_path) as b,
        alerting(matching(), handler=f"{HANDLERS}:note", end="a").deploy(
            hosts_of(a, b), timeout=20
        ) as handle,
    ):
        sent = 0
        for _ in range(3):
            for _ in range(random.randint(2, 6)):
                many = range(sent, sent + 50)
                handle["changes"].submit_batch([Change.subscribe(n, f"seq == {n}") for n in many])
                handle["changes"].submit_batch([Change.unsubscribe(n) for n in many if n % 5 == 0])
                sent += 50
                if random.random() < 0.5:
                    handle.drain(20)
            time.sleep(random.random() * 0.02)
            b.kill()
            b.restart()
        handle.drain(30)
        handle["recs"].submit_batch({"seq": list(range(sent))})
        handle.drain(30)
        expected = [n for n in range(sent) if n % 5]
        check_noted(a, expected)
        letters = handle.dead_letters()
        # A change that comes again may find that it was made already.
        assert all("there is no subscription" in letter.reason for letter in letters)


def test_texts_go_along_and_outlive_a_kill(tmp_path: Path) -> None:
    with (
        DaemonProcess("a", tmp_path) as a,
        DaemonProcess("b", tmp_path) as b,
        alerting(matching("seq == 0"), handler=f"{HANDLERS}:note", end="a").deploy(
            hosts_of(a, b), timeout=20
        ) as handle,
    ):
        change(handle, *(Named.subscribe(f"taxi-{n}", f"seq == {n}") for n in range(1, 6)))
        handle.move("alerts", "a", timeout=20)
        change(handle, Named.unsubscribe("taxi-2"), Named.subscribe("taxi-3", "seq == 30"))
        handle.move("alerts", "b", timeout=20)
        change(handle, Named.unsubscribe("taxi-4"))
        b.kill()
        b.restart()
        change(handle, Named.subscribe("taxi-5", "seq == 50"))
        handle["recs"].submit_batch({"seq": list(range(60))})
        handle.drain(30)
        check_noted(a, [0, 1, 30, 50])


def test_a_host_that_is_killed_after_a_move_has_what_came_with_the_stone(tmp_path: Path) -> None:
    with (
        DaemonProcess("a", tmp_path) as a,
        DaemonProcess("b", tmp_path) as b,
        DaemonProcess("c", tmp_path) as c,
        alerting(matching(), handler=f"{HANDLERS}:note", end="a").deploy(
            hosts_of(a, b, c), timeout=20
        ) as handle,
    ):
        change(handle, *(Change.subscribe(n, f"seq == {n}") for n in range(500)))
        expected: list[int] = []
        for step, (host, pause) in enumerate(((c, 0.0), (b, 0.05), (c, 0.5))):
            handle.move("alerts", host.name, timeout=20)
            handle["changes"].submit(Change.unsubscribe(step))
            time.sleep(pause)
            host.kill()
            host.restart()
            handle.drain(30)
            handle["recs"].submit_batch({"seq": [*range(step + 3), 499, 500]})
            handle.drain(30)
            expected += [*range(step + 1, step + 3), 499]
            check_noted(a, expected)


def test_what_is_tracked_goes_along_and_begins_anew_when_the_host_is_killed(tmp_path: Path) -> None:
    match = matching("seq >= 0", track="seq", track_states=("enter",))
    with (
        DaemonProcess("a", tmp_path) as a,
        DaemonProcess("b", tmp_path) as b,
        DaemonProcess("c", tmp_path) as c,
        alerting(match, handler=f"{HANDLERS}:note", end="a").deploy(hosts_of(a, b, c), timeout=20) as handle,
    ):
        expected: list[int] = []

        def entering(numbers: range, wanted: range) -> None:
            handle["recs"].submit_batch({"seq": numbers})
            handle.drain(30)
            expected.extend(wanted)
            check_noted(a, expected)

        entering(range(4), range(4))
        for step, node in enumerate("cbc", 4):
            handle.move("alerts", node, timeout=20)
            entering(range(step + 1), range(step, step + 1))
        # Another subscription has the id, and its events enter it.
        change(handle, Change.subscribe(0, "seq < 2"))
        entering(range(4), range(2))
        handle.move("alerts", "b", timeout=20)
        entering(range(4), range(0))
        b.kill()
        b.restart()
        entering(range(4), range(2))


def test_a_file_of_subscriptions_lies_in_the_storage_folder_of_the_daemon(tmp_path: Path) -> None:
    with Yard(tmp_path, "abc") as yard:
        with pytest.raises(ev.DeployError, match=r"(?s)node b.*wanted\.txt cannot be read"):
            alerting(matching(file="wanted.txt")).deploy(yard.hosts)
        for name in ("/etc/passwd", "../wanted.txt"):
            with pytest.raises(ev.DeployError, match="expected a name within the node's storage folder"):
                alerting(matching(file=name)).deploy(yard.hosts)
        (tmp_path / "b" / "files" / "alerting").mkdir(parents=True, exist_ok=True)
        (tmp_path / "b" / "files" / "alerting" / "wanted.txt").write_text("seq == 3\n9: seq == 4")
        with alerting(matching(file="wanted.txt")).deploy(yard.hosts) as handle:
            change(handle, Change.unsubscribe(9))
            assert passing(yard, handle, *range(10)) == [3]


def test_a_graph_with_a_malformed_subscription_is_not_deployed(tmp_path: Path) -> None:
    with Yard(tmp_path, "abc") as yard:
        with pytest.raises(ev.SubscriptionError, match=r"(?s)subscriptions: number 0: .*line 1, column 4"):
            alerting(matching("seq")).deploy(yard.hosts)
        assert yard.is_bare()
