"""Nodes: what they listen at, how they find each other, what they say of wrong use, how they end."""

from __future__ import annotations

import os
import threading
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import evflow as ev
from evflow.net.node.bell import NetBell
from tests.node import graphs
from tests.node.graphs import Count, Rec
from tests.node.processes import NodeProcess, free_port, running, wait_for


def _established(port: int) -> int:
    """Connections of this host with a port at their listening end."""
    rows = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
    return sum(int(row[1].rpartition(":")[2], 16) == port and row[3] == "01" for row in rows)


def _port(contact: str) -> int:
    return int(contact.rpartition(":")[2])


def test_port_0_takes_one_that_is_free_and_says_which() -> None:
    node = ev.Node(listen=["tcp://127.0.0.1:0", "tcp://127.0.0.1:0"])
    first, second = map(_port, node.contacts)
    assert first != second
    assert min(first, second) > 0
    assert node.contact == node.contacts[0]
    node.close()


def test_advertise_is_the_contact_that_others_are_told() -> None:
    """Who listens everywhere has no contact to be dialled at unless it is said."""
    quiet = ev.Node(listen="tcp://*:0", plain=True)
    told = ev.Node(listen="tcp://*:0", plain=True, advertise="tcp://edge.example:7000")
    assert quiet.contact == ""
    assert told.contact == "tcp://edge.example:7000"
    quiet.close()
    told.close()


def test_a_name_is_made_up_and_is_nobody_elses() -> None:
    one, other = ev.Node(), ev.Node()
    assert one.name != other.name
    assert repr(one) == f"<Node {one.name}>"
    one.close()
    other.close()


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"name": ""}, "expected a name"),
        ({"name": "x" * 256}, "expected a name"),
        ({"name": 5}, "expected a name"),
        ({"name": "a\nb"}, "characters that can be printed"),
        ({"name": "\ud800"}, "characters that can be printed"),
        ({"name": "tcp://127.0.0.1:1"}, "without '://'"),
        ({"heartbeat": 0}, "heartbeat 0: expected seconds from 0.01 to 3600"),
        ({"heartbeat": float("nan")}, "heartbeat nan"),
        ({"heartbeat": "1"}, "heartbeat '1'"),
        ({"window": 10}, "window 10: expected 65536 to 70368744177664 bytes"),
        ({"window": 1e6}, "window 1000000.0"),
        ({"memory": 10}, "memory 10: expected 1048576 to 70368744177664 bytes"),
        ({"memory": 10**20}, "memory 100000000000000000000: expected 1048576 to"),
        ({"window": 10**20}, "window 100000000000000000000: expected 65536 to"),
        ({"memory": "1 GB"}, "memory '1 GB': expected"),
        ({"allow": ["a"]}, "allow= names keys"),
        ({"listen": "udp://127.0.0.1:1"}, "neither tcp:// nor ipc://"),
        ({"listen": 7000}, "contact 7000: expected a text"),
        ({"peers": ["tcp://127.0.0.1:1"]}, "expected a mapping, name → contact"),
        ({"peers": {"here": "tcp://127.0.0.1:1"}}, "cannot be a peer of itself"),
        ({"peers": {5: "tcp://127.0.0.1:1"}}, "expected a name"),
        ({"keys": ".", "allow": "there"}, "expected a list of names"),
        ({"peers": {"a": "127.0.0.1:1"}}, "neither tcp:// nor ipc://"),
        ({"peers": {"a": "tcp://127.0.0.1:0"}}, "port"),
        ({"advertise": "tcp://*:7000"}, "expected|cannot|dial"),
        (
            {"journal": "nowhere/at/all"},
            "journal nowhere/at/all cannot be used: .*; create its folder",
        ),
        (
            {"journal": "a\0b"},
            r"journal 'a\\x00b' cannot be used: (embedded null byte|lstat: embedded null character)",
        ),
        ({"journal": "/proc/self/fd/\ud800"}, "cannot be used: .*surrogates not allowed"),
        ({"keys": "nowhere/at/all"}, "nowhere/at/all"),
        ({"keys": 3}, "keys=3: expected the path of a folder"),
        ({"journal": 3}, "journal 3: expected the path of a file"),
    ],
)
def test_a_wrong_argument_is_named(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ev.LinkError, match=message):
        ev.Node(**({"name": "here"} | settings))


def test_an_address_that_is_taken_is_named() -> None:
    node = ev.Node(listen="tcp://127.0.0.1:0")
    with pytest.raises(
        ev.LinkError, match=f"contact {node.contact}: this node cannot listen there: .*in use"
    ):
        ev.Node(listen=node.contact)
    node.close()


def test_a_node_serves_one_flow_only() -> None:
    node = ev.Node("here")
    graph = graphs.pair([], end="here")
    with running(graph, node) as flow:
        flow["recs"].submit(Rec(1))
        with pytest.raises(ev.LinkError, match="node here serves a flow already; make another node"):
            graph.run(node=node)
    with pytest.raises(ev.LinkError, match="serves a flow already"):
        graph.run(node=node)


def test_a_graph_with_nothing_on_the_node_or_a_stone_on_none_is_refused() -> None:
    for graph, message in (
        (graphs.pair([]), "no stone is placed on node 'elsewhere'; there are stones on here, there"),
        (_homeless(), "to run on nodes every stone needs one, and terminal has none"),
    ):
        node = ev.Node("elsewhere")
        with pytest.raises(ev.GraphError, match=message):
            graph.run(node=node)
        node.close()


def _homeless() -> ev.Graph:
    graph = ev.Graph()
    _ = graph.source("recs", Rec, on="here") >> ev.Terminal(print)
    return graph


@pytest.mark.parametrize("contact", ["ipc://{}/socket", "ipc://@{}", "tcp://[::1]:0"])
def test_events_cross_whatever_the_contact_is(contact: str, tmp_path: Path) -> None:
    seen: list[int] = []
    there = ev.Node("there", listen=contact.format(tmp_path))
    here = ev.Node("here", peers={"there": there.contact})
    with running(graphs.pair(seen), there), running(graphs.pair([]), here) as flow:
        flow["recs"].submit_batch({"seq": np.arange(1000)})
        flow.drain(10)
    assert seen == list(range(1000))


def _both_ways(seen: list[Any]) -> ev.Graph:
    """Three bridges each way between two nodes."""
    graph = ev.Graph("both ways")
    for start, end in (("here", "there"), ("there", "here")):
        for number in range(3):
            name = f"{start} {number}"
            _ = graph.source(name, Rec, on=start) >> ev.Terminal(
                lambda event, name=name: seen.append((name, event.seq)), name=f"end of {name}", on=end
            )
    return graph


@pytest.mark.parametrize("both_dial", [False, True])
def test_all_that_goes_between_two_nodes_shares_one_connection(both_dial: bool) -> None:
    """Bridges both ways; also where both nodes dial at the same time, one connection is left."""
    seen: list[tuple[str, int]] = []
    ports = [free_port(), free_port()]
    contacts = {name: f"tcp://127.0.0.1:{port}" for name, port in zip(("here", "there"), ports, strict=True)}
    here = ev.Node("here", contacts["here"], peers={"there": contacts["there"]}, heartbeat=0.2)
    there = ev.Node(
        "there", contacts["there"], peers={"here": contacts["here"]} if both_dial else None, heartbeat=0.2
    )
    graph = _both_ways(seen)
    with running(graph, there) as far, running(graph, here) as near:
        for seq in range(100):
            for number in range(3):
                near[f"here {number}"].submit(Rec(seq))
                far[f"there {number}"].submit(Rec(seq))
        near.drain(10)
        far.drain(10)
        wait_for(lambda: sum(map(_established, ports)) == 1, "one connection")
        assert (here.links()["there"]["state"], there.links()["here"]["state"]) == ("up", "up")
    for side in ("here", "there"):
        for number in range(3):
            name = f"{side} {number}"
            assert [seq for at, seq in seen if at == name] == list(range(100))


@pytest.mark.slow
def test_both_dialling_at_once_loses_nothing_however_often_it_happens() -> None:
    for _ in range(15):
        test_all_that_goes_between_two_nodes_shares_one_connection(True)


def test_requests_get_their_responses_from_handlers_that_submit() -> None:
    """The handler there submits an answer, which goes back over the same connection."""
    answers: list[int] = []
    flows: dict[str, ev.Flow] = {}
    graph = ev.Graph("asked")
    _ = graph.source("questions", Rec, on="here") >> ev.Terminal(
        lambda event: flows["there"]["answers"].submit(Count(event.seq * 2)), name="asked", on="there"
    )
    _ = graph.source("answers", Count, on="there") >> ev.Terminal(
        lambda event: answers.append(event.seq), name="told", on="here"
    )
    there = ev.Node("there", listen="tcp://127.0.0.1:0")
    here = ev.Node("here", peers={"there": there.contact})
    with running(graph, there) as flows["there"], running(graph, here) as flow:
        for seq in range(1000):
            flow["questions"].submit(Rec(seq))
        flow.drain(10)
        wait_for(lambda: len(answers) >= 1000, "the answers")
        assert set(there.links()) == {"here"}
    assert answers == [2 * seq for seq in range(1000)]


def test_a_generator_goes_on_while_what_is_behind_another_has_filled_a_bridge() -> None:
    """Both are due in the same turns, so what a handler behind one submits is not what the other leads to."""
    graph = graphs.pair([], limit=1 << 16)
    node = ev.Node("here", peers={"there": "tcp://127.0.0.1:1"}, heartbeat=0.2)
    counted = {"plain": 0, "full": 0}

    def fill(event: Rec) -> None:
        counted["full"] += 1
        flow["recs"].submit_batch({"seq": np.arange(4000)})

    def count(event: Rec) -> None:
        counted["plain"] += 1

    for name, handler in (("plain", count), ("full", fill)):
        code = "output.seq = input.count; return 1;"
        beats = graph.add(ev.Generator(code, output=Rec, period=0.02, name=name, on="here"))
        beats >> ev.Terminal(handler, name=f"at {name}", on="here")
    with running(graph, node, timeout=0.05) as flow:
        wait_for(lambda: counted["full"], "the bridge is full")
        goal = counted["plain"] + 10
        wait_for(lambda: counted["plain"] >= goal, "the ticks of the other generator")


def test_what_comes_over_a_link_does_not_lead_to_what_ticks_lead_to(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else frames would wait for bridges that they never get to."""
    seen: list[Any] = []
    told = set[tuple[str, str]]()
    ticks: list[int] = []
    graph = graphs.pair(seen)

    def submit(event: Rec) -> None:
        ticks.append(event.seq)
        receiving["other"].submit(event)

    beats = ev.Generator(
        "output.seq = input.count; return 1;", output=Rec, period=0.001, name="beats", on="there"
    )
    graph.add(beats) >> ev.Terminal(submit, name="at beats", on="there")
    graph.source("other", Rec, on="there") >> ev.Terminal(lambda event: None, name="at other", on="there")
    there = ev.Node("there", listen="tcp://127.0.0.1:0")
    here = ev.Node("here", peers={"there": there.contact})
    with running(graph, there) as receiving, running(graph, here) as flow:
        net = receiving._worker._net
        monkeypatch.setattr(net, "leads", lambda entry, onward: told.add((entry.name, onward.name)))
        for seq in range(4000):
            flow["recs"].submit(Rec(seq))
        flow.drain(10)
        wait_for(lambda: len(ticks) > 20, "ticks")
    assert not told


def test_who_asks_a_peer_that_cannot_be_reached_is_told_at_once() -> None:
    """Its contact is not known, and nobody can dial a node that does not listen."""
    node = ev.Node("here", peers={"there": "tcp://127.0.0.1:1"})
    why = r"^stone 'x' of elsewhere: not connected yet; no contact of elsewhere is known"
    with running(graphs.pair([]), node, timeout=0.05) as flow, pytest.raises(ev.LinkError, match=why):
        flow.ask("elsewhere", "x", {}, timeout=600)


def test_a_drain_that_is_late_says_which_bridge_waits_for_what() -> None:
    node = ev.Node("here", peers={"there": "tcp://127.0.0.1:1"}, heartbeat=0.1)
    with running(graphs.pair([], limit=1 << 16), node, timeout=0.05) as flow:
        flow["recs"].submit_batch({"seq": [1, 2, 3]})
        with pytest.raises(
            ev.FlowError,
            match=r"flow pair: not done within 0\.2 s; bridge 'bridge of here' to there: 3 events wait; not ",
        ):
            flow.drain(0.2)


@pytest.mark.slow
def test_a_drain_that_lasts_says_in_the_log_what_it_waits_for(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Also one without a timeout, which ends with the flow here."""

    def drain() -> None:
        with suppress(ev.FlowError):
            flow.drain()

    monkeypatch.setattr("evflow.flow.drains._SILENT", 0.001)
    node = ev.Node("here", peers={"there": "tcp://127.0.0.1:1"}, heartbeat=0.1)
    with running(graphs.pair([], limit=1 << 16), node, timeout=0.05) as flow:
        flow["recs"].submit_batch({"seq": [1, 2, 3]})
        waiter = threading.Thread(target=drain)
        waiter.start()
        told = "s: bridge 'bridge of here' to there: 3 events wait; not "
        wait_for(lambda: "flow pair: not done after" in caplog.text and told in caplog.text, "the log")
    waiter.join()


def test_a_close_with_an_unreachable_peer_ends_and_gives_up_the_events() -> None:
    """What was owed is among the dead letters, with why."""
    node = ev.Node("here", peers={"there": "tcp://127.0.0.1:1"}, heartbeat=0.1)
    flow = graphs.pair([], limit=1 << 16).run(node=node)
    flow["recs"].submit_batch({"seq": np.arange(5)})
    flow["recs"].submit(Rec(5))
    flow.close(0.1)
    letters = list(flow.dead_letters())
    assert [letter.event.seq for letter in letters] == [0, 1, 2, 3, 4, 5]
    assert all(letter.stone == "bridge of here" for letter in letters)
    assert all("to there: 6 events wait" in letter.reason for letter in letters)


def test_a_close_waits_for_what_the_peer_still_handles() -> None:
    """No drain before: what was submitted is there when close returns."""
    seen: list[int] = []
    there = ev.Node("there", listen="tcp://127.0.0.1:0")
    here = ev.Node("here", peers={"there": there.contact})
    with running(graphs.pair(seen), there):
        with running(graphs.pair([]), here) as flow:
            flow["recs"].submit_batch({"seq": np.arange(100_000)})
        assert seen == list(range(100_000))


def test_a_flow_without_a_node_leads_out_by_contact_and_stone() -> None:
    """It gets a node of its own, which dials only."""
    seen: list[int] = []
    there = ev.Node("there", listen="tcp://127.0.0.1:0")
    far = ev.Graph("far")
    _ = far.source("recs", Rec, on="there") >> ev.Terminal(lambda e: seen.append(e.seq), on="there")
    near = ev.Graph("near")
    _ = near.source("recs", Rec) >> ev.Bridge(there.contact, "recs")
    with running(far, there), near.run() as flow:
        assert flow.node is not None
        assert flow.node.contacts == ()
        flow["recs"].submit_batch({"seq": np.arange(10)})
        flow.drain(10)
        assert flow.node.links()[there.contact]["state"] == "up"
    assert seen == list(range(10))


def test_a_bridge_beyond_this_host_needs_keys_there_too() -> None:
    graph = ev.Graph()
    _ = graph.source("recs", Rec) >> ev.Bridge("tcp://10.1.2.3:7000", "recs")
    with pytest.raises(ev.LinkError, match=r"contact tcp://10\.1\.2\.3:7000 is beyond this host"):
        graph.run()


def test_two_nodes_of_one_name_are_told_so() -> None:
    """A peer that has this node's own name is refused, and says so at the other end."""
    one = ev.Node("same", listen="tcp://127.0.0.1:0")
    near = ev.Graph("near")
    _ = near.source("recs", Rec, on="same") >> ev.Bridge(one.contact, "recs", on="same")
    other = ev.Node("same")
    far = ev.Graph("far")
    _ = far.source("recs", Rec, on="same") >> ev.Terminal(print, on="same")
    with running(far, one), running(near, other, timeout=0.05) as flow:
        flow["recs"].submit(Rec(1))
        wait_for(lambda: "refused: 'same' is not a name" in other.links()[one.contact]["trouble"], "why")
    assert one.refused["unauthorised"] >= 1


@pytest.mark.slow
def test_a_process_ends_in_good_order_and_leaves_nothing_behind() -> None:
    """Large events have gone through shared memory; its files are gone with the processes, killed or not."""
    before = {path.name for path in Path("/dev/shm").iterdir()}
    with ExitStack() as stack:
        there = stack.enter_context(NodeProcess("pair", "there", listen="tcp://127.0.0.1:0"))
        here = stack.enter_context(NodeProcess("pair", "here", peers={"there": there.contact}))
        here.ask("submit_many", stone="recs", stop=200_000, batch=50_000)
        here.ask("drain")
        assert there.ask("count") == 200_000
        assert here.end() == 0
        there.kill()
    left = {path.name for path in Path("/dev/shm").iterdir()} - before
    assert not [name for name in left if "evflow" in name]


def test_a_bell_that_is_rung_late_touches_no_file_that_has_its_number_now() -> None:
    """A flow's thread may end, and give its files back, before the one that closes it has rung."""
    bell = NetBell()
    bell.close()
    reader, writer = os.pipe()
    bell.ring()
    os.close(writer)
    assert os.read(reader, 8) == b""
    bell.close()
    os.close(reader)


def test_closing_a_flow_and_its_node_again_and_again_does_nothing() -> None:
    for _ in range(40):
        node = ev.Node("here")
        flow = graphs.pair([], end="here").run(node=node)
        flow.close()
        flow.close()
        node.close()
        node.close()


def test_one_node_under_two_contacts_gets_one_link() -> None:
    """Two links would take the peer's one session from each other, again and again."""
    seen: list[int] = []
    there = ev.Node("there", listen="tcp://127.0.0.1:0", heartbeat=0.2)
    contacts = [there.contact, there.contact.replace("127.0.0.1", "localhost")]
    far, near = ev.Graph("far"), ev.Graph("near")
    _ = far.source("recs", Rec, on="there") >> ev.Terminal(lambda e: seen.append(e.seq), on="there")
    for contact in contacts:
        _ = near.source(contact, Rec) >> ev.Bridge(contact, "recs")
    with running(far, there), near.run() as flow:
        assert flow.node is not None
        for seq in range(200):
            flow[contacts[seq % 2]].submit(Rec(seq))
        flow.drain(10)
        links = flow.node.links()
        assert sorted(links[contact]["state"] for contact in contacts) == ["down", "up"]
        # The peer may have taken the first one's connection after the second one's.
        assert sum(links[contact]["sessions"] for contact in contacts) <= 3
        assert any("whose link carries the events" in links[contact]["trouble"] for contact in contacts)
    assert sorted(seen) == list(range(200))


def test_a_bridge_is_linked_to_a_split_that_runs() -> None:
    """A target may be added that leads out of the graph; without a node it is refused."""
    far, near = ev.Graph("far"), ev.Graph("near")
    seen: list[int] = []
    far.source("pings", Rec, on="there") >> ev.Terminal(lambda e: seen.append(e.seq), on="there")
    fan = near.source("pings", Rec, on="here") >> ev.Split(name="fan", on="here")
    fan >> ev.Terminal(lambda event: None, on="here")
    there = ev.Node("there", listen="tcp://127.0.0.1:0")
    with far.run(node=there), near.run(node=ev.Node("here")) as flow:
        flow.link("fan", ev.Bridge(there.contact, "pings"))
        flow["pings"].submit(Rec(7))
        flow.drain(timeout=10)
    assert seen == [7]
    with near.run() as alone, pytest.raises(ev.GraphError, match=r"run\(node="):
        alone.link("fan", ev.Bridge("tcp://127.0.0.1:9", "pings"))


def test_a_receiver_dials_a_sender_that_listens() -> None:
    """Which of two nodes dials has nothing to do with the way that events go."""
    g = ev.Graph("g")
    seen: list[int] = []
    g.source("recs", Rec, on="here") >> ev.Terminal(lambda e: seen.append(e.seq), on="there")
    here = ev.Node("here", listen="tcp://127.0.0.1:0")
    there = ev.Node("there", peers={"here": here.contact})
    with g.run(node=there), g.run(node=here) as flow:
        flow["recs"].submit(Rec(7))
        flow.drain(timeout=10)
    assert seen == [7]


def test_a_flow_that_breaks_ends_its_node(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its peers see a node that has ended, and its address is free again."""
    g = ev.Graph("g")
    g.source("recs", Rec, on="here") >> ev.Terminal(lambda e: None, on="here")
    node = ev.Node("here", listen="tcp://127.0.0.1:0")
    flow = g.run(node=node)
    monkeypatch.setattr(flow.engine, "run", lambda: 1 / 0)
    with pytest.raises(ev.FlowError):
        flow["recs"].submit(Rec(1))
        flow.drain(timeout=10)
    with pytest.raises(ev.FlowError, match="broke"):
        flow.close()
    with ev.Node("again", listen=node.contact) as again:
        assert again.contact == node.contact


def test_node_of_a_flow_that_cannot_begin_is_closed() -> None:
    node = ev.Node("here", listen="tcp://127.0.0.1:0")
    g = ev.Graph()
    g.source("pings", on="here")
    with pytest.raises(ev.GraphError):
        g.run(node=node)
    # Its address is free again.
    ev.Node("again", listen=node.contact).close()


def test_a_node_tells_how_much_memory_peers_may_fill() -> None:
    for node, most in ((ev.Node("here"), 256 << 20), (ev.Node("here", memory=1 << 20), 1 << 20)):
        assert node.memory == {"used": 0, "most": most}
        node.close()


def test_letters_of_a_closed_bridge_say_that_their_events_may_be_handled() -> None:
    """They were sent, and the peer has them; those that never left are only given up."""
    over, begun = threading.Event(), threading.Event()

    def slow(event: Rec) -> None:
        begun.set()
        over.wait(20)

    graph = ev.Graph("late")
    graph.source("recs", Rec, on="here") >> ev.Terminal(slow, on="there")
    listening = ev.Node("there", listen="tcp://127.0.0.1:0")
    with graph.run(node=listening):
        try:
            flow = graph.run(node=ev.Node("here", peers={"there": listening.contact}))
            flow["recs"].submit(Rec(1))
            assert begun.wait(20)
            flow.close(0.1)
            assert "may be handled there all the same" in flow.dead_letters()[0].reason
        finally:
            over.set()
    flow = graph.run(node=ev.Node("here", peers={"there": listening.contact}))
    flow["recs"].submit(Rec(1))
    flow.close(0.1)
    assert "may be handled" not in flow.dead_letters()[0].reason
