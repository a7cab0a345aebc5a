"""Channels over processes of their own: joins and leaves under load, kills, derived channels."""

from __future__ import annotations

from contextlib import ExitStack
from functools import partial
from itertools import pairwise

import psutil
import pytest

from tests.echo.processes import EchoProcess
from tests.node.processes import free_port, wait_for

pytestmark = pytest.mark.slow


def started(stack: ExitStack, *names: str, **settings: object) -> list[EchoProcess]:
    return [stack.enter_context(EchoProcess(name, **settings)) for name in names]


def some(process: EchoProcess, name: str) -> bool:
    count: int = process.ask("count", name=name)
    return count > 100


def test_every_subscriber_gets_what_any_process_publishes() -> None:
    with ExitStack() as stack:
        processes = started(stack, "ada", "bob", "cyd")
        ada, bob, cyd = processes
        contact = ada.ask("create", name="c")
        # Any member will do to join by.
        cyd.ask("open", name="c", contact=bob.ask("open", name="c", contact=contact))
        for process in processes:
            process.ask("subscribe", channel="c")
        for number, process in enumerate(processes):
            process.tell("publish", channel="c", start=1000 * number, stop=1000 * number + 1000)
        for process in processes:
            process.answer("publish")
        for process in processes:
            process.ask("drain")
        for process in processes:
            seen = process.ask("seen", name="c")
            assert sorted(seen) == list(range(3000))
            # Those of one publisher come in their order.
            for start in (0, 1000, 2000):
                own = [seq for seq in seen if start <= seq < start + 1000]
                assert own == sorted(own)


def test_who_joins_and_leaves_under_load_gets_all_in_between() -> None:
    with ExitStack() as stack:
        ada, bob, cyd = started(stack, "ada", "bob", "cyd")
        contact = ada.ask("create", name="c")
        bob.ask("open", name="c", contact=contact)
        bob.ask("subscribe", channel="c")
        ada.ask("pour", channel="c")
        for turn in range(5):
            cyd.ask("open", name="c", contact=contact)
            cyd.ask("subscribe", channel="c", name=f"turn {turn}")
            wait_for(partial(some, cyd, f"turn {turn}"), "some events")
            cyd.ask("unsubscribe", name=f"turn {turn}")
            cyd.ask("close", channel="c")
        poured = ada.ask("halt")
        ada.ask("drain")
        assert bob.ask("seen", name="c") == list(range(poured))
        for turn in range(5):
            seen = cyd.ask("seen", name=f"turn {turn}")
            assert all(after == before + 1 for before, after in pairwise(seen))
        assert ada.ask("members", channel="c") == {"ada": False, "bob": True}
        assert not any("cyd" in stone for stone in ada.ask("stones"))
        assert ada.ask("letters") == cyd.ask("letters") == 0


def test_events_flow_after_the_creator_was_killed() -> None:
    with ExitStack() as stack:
        ada, bob, cyd, dan = started(stack, "ada", "bob", "cyd", "dan", silence=1.0)
        contact = ada.ask("create", name="c")
        through_bob = bob.ask("open", name="c", contact=contact)
        cyd.ask("open", name="c", contact=contact)
        cyd.ask("subscribe", channel="c")
        bob.ask("pour", channel="c")
        wait_for(partial(some, cyd, "c"), "some events")
        ada.kill()
        before = cyd.ask("count", name="c")
        wait_for(lambda: cyd.ask("count", name="c") > before + 1000, "events flow")
        poured = bob.ask("halt")
        dan.ask("open", name="c", contact=through_bob)
        dan.ask("subscribe", channel="c")
        bob.ask("publish", channel="c", start=poured, stop=poured + 1000)
        dan.ask("publish", channel="c", start=poured + 1000, stop=poured + 2000)
        wait_for(lambda: cyd.ask("count", name="c") == poured + 2000, "all events")
        assert sorted(cyd.ask("seen", name="c")) == list(range(poured + 2000))
        wait_for(lambda: dan.ask("count", name="c") == 2000, "all events since")


def test_a_killed_subscriber_gets_what_waited_when_it_is_back() -> None:
    with ExitStack() as stack:
        (ada,) = started(stack, "ada", silence=1.0)
        listen = f"tcp://127.0.0.1:{free_port()}"
        (bob,) = started(stack, "bob", listen=listen)
        contact = ada.ask("create", name="c")
        bob.ask("open", name="c", contact=contact)
        derived = ada.ask("derive", name="even", origin="c", code="input.seq % 2 == 0")
        bob.ask("open", name="even", contact=derived)
        bob.ask("subscribe", channel="c")
        bob.ask("subscribe", channel="even")
        ada.ask("publish", channel="c", start=0, stop=1000)
        ada.ask("drain")
        bob.kill()
        ada.ask("publish", channel="c", start=1000, stop=3000)
        wait_for(lambda: ada.ask("stats", channel="c")["to"]["bob"]["waiting"] == 2000, "events wait")
        bob.restart()
        bob.ask("open", name="c", contact=contact)
        assert bob.ask("count", name="c") == 0
        bob.ask("open", name="even", contact=derived)
        bob.ask("subscribe", channel="c")
        bob.ask("subscribe", channel="even")
        ada.ask("publish", channel="c", start=3000, stop=4000)
        ada.ask("drain")
        assert bob.ask("seen", name="c") == list(range(1000, 4000))
        assert bob.ask("seen", name="even") == list(range(1000, 4000, 2))


def test_a_killed_process_derives_again_what_it_derived_before() -> None:
    with ExitStack() as stack:
        (ada,) = started(stack, "ada", silence=1.0)
        (bob,) = started(stack, "bob", listen=f"tcp://127.0.0.1:{free_port()}")
        contact = ada.ask("create", name="c")
        bob.ask("open", name="c", contact=contact)
        bob.ask("derive", name="even", origin="c", code="input.seq % 2 == 0")
        bob.ask("subscribe", channel="even")
        for turn in range(2):
            bob.kill()
            ada.ask("publish", channel="c", start=1000 * turn, stop=1000 * turn + 1000)
            bob.restart()
            bob.ask("open", name="c", contact=contact)
            derived = bob.ask("derive", name="even", origin="c", code="input.seq % 2 == 0")
            bob.ask("subscribe", channel="even")
            ada.ask("drain")
            assert bob.ask("seen", name="even") == list(range(1000 * turn, 1000 * turn + 1000, 2))
        # It is one channel: what others have of it is what it has.
        ada.ask("open", name="even", contact=derived)
        ada.ask("subscribe", channel="even")
        bob.ask("publish", channel="c", start=5000, stop=5010)
        bob.ask("drain")
        assert ada.ask("seen", name="even") == [5000, 5002, 5004, 5006, 5008]


def test_what_waits_for_a_dead_subscriber_is_dropped_in_the_end() -> None:
    with ExitStack() as stack:
        ada, bob, cyd = started(stack, "ada", "bob", "cyd", patience=3.0, silence=0.5)
        contact = ada.ask("create", name="c")
        for process in (bob, cyd):
            process.ask("open", name="c", contact=contact)
            process.ask("subscribe", channel="c")
        bob.kill()
        # Neither the publisher nor another subscriber waits for the dead one.
        ada.ask("publish", channel="c", start=0, stop=1000)
        wait_for(lambda: cyd.ask("count", name="c") == 1000, "the living one has all")
        assert ada.ask("stats", channel="c")["to"]["bob"]["waiting"] == 1000
        wait_for(lambda: "bob" not in ada.ask("members", channel="c"), "it is forgotten")
        wait_for(lambda: ada.ask("stats", channel="c")["dropped"] == 1000, "what waited is dropped")
        assert ada.ask("stats", channel="c")["to"].keys() == {"cyd"}
        ada.ask("drain")


def test_derived_channels_filter_where_events_are_published() -> None:
    with ExitStack() as stack:
        ada, bob, cyd, dan = started(stack, "ada", "bob", "cyd", "dan")
        contact = ada.ask("create", name="c")
        bob.ask("open", name="c", contact=contact)
        cyd.ask("open", name="c", contact=contact)
        even = cyd.ask("derive", name="even", origin="c", code="input.seq % 2 == 0")
        six = cyd.ask("double", name="doubled six", origin="even")
        # Only the derived channels are opened here.
        dan.ask("open", name="even", contact=even)
        dan.ask("open", name="six", contact=six)
        dan.ask("subscribe", channel="even")
        dan.ask("subscribe", channel="six", field="twice")
        ada.ask("publish", channel="c", start=0, stop=1000)
        bob.ask("publish", channel="c", start=1000, stop=2000)
        for process in (ada, bob):
            process.ask("drain")
            sent = {name: process.ask("links")[name]["waiting"] for name in process.ask("links")}
            assert set(sent.values()) == {0}
        assert sorted(dan.ask("seen", name="even")) == list(range(0, 2000, 2))
        assert sorted(dan.ask("seen", name="six")) == list(range(0, 4000, 4))
        # Nothing of the original crosses: nobody elsewhere is subscribed to it.
        assert not any(stone.startswith("c@") and "→" in stone for stone in ada.ask("stones"))


def test_all_channels_between_two_processes_share_a_connection() -> None:
    with ExitStack() as stack:
        ada, bob = started(stack, "ada", "bob")
        for name in ("one", "two", "three"):
            contact = ada.ask("create", name=name)
            bob.ask("open", name=name, contact=contact)
            bob.ask("subscribe", channel=name)
            ada.ask("subscribe", channel=name)
            ada.ask("publish", channel=name, start=0, stop=10)
            bob.ask("publish", channel=name, start=0, stop=10)
        assert ada.ask("links").keys() == {"bob"}
        both = {ada.pid, bob.pid}

        def connections() -> int:
            ends = [c for pid in both for c in psutil.Process(pid).net_connections("tcp")]
            return sum(c.status == psutil.CONN_ESTABLISHED for c in ends)

        # Both may dial at first; one connection stays, with an end in each process.
        wait_for(lambda: connections() == 2, "one connection")
