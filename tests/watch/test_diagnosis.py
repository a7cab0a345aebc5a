"""What a link reports, as a text; the reports come from the links themselves where that is possible."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

import evflow as ev
from evflow.net.link.messages import VERSION
from evflow.tools.watch.diagnosis import Probe, diagnose, probe
from evflow.tools.watch.doctor import Greeting
from evflow.tools.watch.status import LinkStatus
from tests.watch.fake import served

AT = "tcp://10.0.0.3:7000"


def down(trouble: str, contact: str = AT) -> LinkStatus:
    return LinkStatus("down", trouble, contact)


@pytest.mark.parametrize(
    ("trouble", "kind", "said", "check"),
    [
        (f"no answer from {AT}", "no answer", f"node edge dials office at {AT}: no answer", "edge.pub"),
        ("not connected yet", "not connected", "not connected yet", "is office running"),
        ("silent for more than 5 s", "silence", "silent for more than 5 s", "asleep"),
        ("the connection is gone, or the peer reads nothing", "lost connection", "was connected", "its log"),
        ("the peer has ended: node office has ended", "ended", "said good-bye", "was that meant"),
        (
            f"contact {AT} of office: no public key of 'office': expected keys/office.pub; copy it",
            "key", "expected keys/office.pub", "doctor --keys",
        ),
        ("a node with keys needs a name, …", "key", "needs a name, …", "doctor --keys"),
        ("it speaks only with nodes that have keys, …", "key", "that have keys, …", "doctor --keys"),
        ("it has no keys, and this end speaks …", "key", "it has no keys", "doctor --keys"),
        ("it does not let in the key of edge: …", "key", "the key of edge: …", "doctor --keys"),
        (
            "expected the node 'office' there, found one that has another key …",
            "key", "expected the node 'office' there, found", "doctor --keys",
        ),
        (
            "refused: it calls itself 'edge', but has the key of 'lab'",
            "key", "finds that node edge has the key of 'lab'", "lab.pub in the keys of office",
        ),
        (
            "refused: it calls itself 'edge', but has the key of '?'", "key", "the key of '?'",
            "is its .pub in the folder of keys of office",
        ),
        (
            "the contact answered as 'lab', expected 'office'",
            "name", "calls itself 'lab'", f"is {AT} the contact of 'lab'",
        ),
        (
            "refused: 'edge' is not a name that a peer of node edge can have", "name", "not a name",
            "another --name",
        ),
        (
            f"refused: node office speaks version {VERSION} of the protocol, not {VERSION + 1}",
            "version", "speaks version", "evflow --version",
        ),
        (
            f"it speaks version {VERSION + 1} of the protocol, this node {VERSION}",
            "version", "this node", "evflow --version",
        ),
        ("refused: node office has 10000 peers already", "full", "10000 peers", "new names"),
        ("refused: the moon is full", "refused", "the moon is full", "log of office"),
        ("the peer has no session: no session on this connection", "protocol", "no session", "of evflow"),
        (f"contact {AT} of {AT}: node name '{AT}': expected letters", "key", "by its name", "give NAME="),
        ("something new", "trouble", "something new", "evflow doctor --peer"),
    ],
)  # fmt: skip
def test_trouble_is_told_with_who_dialled_whom_and_what_to_check(
    trouble: str, kind: str, said: str, check: str
) -> None:
    found = diagnose("edge", "office", down(trouble))
    assert found
    assert found.kind == kind
    assert said in found.what
    assert "edge" in found.what
    assert any(check in text for text in found.checks), found.checks


def test_text_of_a_diagnosis_has_a_line_for_each_check() -> None:
    lines = str(diagnose("edge", "office", down(f"no answer from {AT}"), host="lab1")).splitlines()
    assert lines[0] == f"node edge on lab1 dials office at {AT}: no answer"
    assert all(line.startswith("  check: ") for line in lines[1:])
    assert len(lines) > 3


def test_link_that_is_up_has_nothing_wrong() -> None:
    assert not diagnose("edge", "office", LinkStatus("up"))


def test_missing_stone_of_a_peer_is_told_though_the_link_is_up() -> None:
    report = LinkStatus("up", "node office has no stone 'trades/show' that others may send to", AT)
    found = diagnose("edge", "office", report)
    assert found.kind == "stone"
    assert "'trades/show'" in found.what


def test_peer_whose_contact_nobody_knows_is_waited_for() -> None:
    found = diagnose("edge", "office", down("not connected yet", ""))
    assert "whose contact it does not know" in found.what
    assert any("--peer office=CONTACT" in check for check in found.checks)


@pytest.mark.parametrize(
    ("outcome", "kind", "check"),
    [
        ("refused", "refused connection", "is the node running"),
        ("silent", "no answer", "does a firewall drop port 7000"),
        ("unreachable", "no route", "network"),
        ("unknown host", "no such host", "name server"),
        ("wrong", "contact", "tcp://HOST:PORT"),
    ],
)
def test_probe_of_this_host_says_more_than_the_link(outcome: str, kind: str, check: str) -> None:
    found = diagnose("edge", "office", down(f"no answer from {AT}"), probe=Probe(outcome, "what came of it"))
    assert found.kind == kind
    assert "what came of it" in found.what
    assert any(check in text for text in found.checks)


def test_port_that_is_open_and_silent_is_a_matter_of_keys() -> None:
    found = diagnose("", "office", down("no answer"), host="here", probe=Probe("answers", ""))
    assert found.kind == "key"
    assert found.what.startswith("this command on here dials office")


# Probes of this host


def test_probe_tells_open_from_closed_ports() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        contact = f"tcp://127.0.0.1:{server.getsockname()[1]}"
        assert probe(contact).outcome == "answers"
    assert probe(contact).outcome == "refused"


def test_probe_of_a_port_that_drops_everything_is_silent(monkeypatch: pytest.MonkeyPatch) -> None:
    def never(self: object, address: object) -> None:
        raise TimeoutError("timed out")

    monkeypatch.setattr("socket.socket.connect", never)
    tried = probe("tcp://127.0.0.1:7000", timeout=1.5)
    assert tried.outcome == "silent"
    assert "did not answer within 1.5 s" in tried.detail


def test_probe_tells_names_that_are_not_known(monkeypatch: pytest.MonkeyPatch) -> None:
    def unknown(*arguments: object, **options: object) -> None:
        raise socket.gaierror(-2, "Name or service not known")

    monkeypatch.setattr("socket.getaddrinfo", unknown)
    tried = probe("tcp://no.such.host:7000")
    assert tried.outcome == "unknown host"
    assert "no.such.host" in tried.detail


def test_probe_of_ipc_tells_missing_files_from_sockets_that_nobody_serves(tmp_path: Path) -> None:
    path = tmp_path / "edge"
    assert probe(f"ipc://{path}").outcome == "no file"
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(path))
        assert probe(f"ipc://{path}").outcome == "refused"
        server.listen()
        assert probe(f"ipc://{path}").outcome == "answers"


def test_probe_of_no_contact_says_so() -> None:
    tried = probe("10.0.0.1")
    assert tried.outcome == "wrong"
    assert "tcp://" in tried.detail


# Real links: what they report is what the rules are for


def test_greeting_a_node_of_another_name_tells_its_name() -> None:
    node = ev.Node("lab", listen="tcp://127.0.0.1:0")
    with served(node):
        report = Greeting("office", node.contact, name="edge").report()
    assert diagnose("edge", "office", report).kind == "name"


def test_greeting_the_right_node_brings_the_link_up() -> None:
    node = ev.Node("office", listen="tcp://127.0.0.1:0")
    with served(node):
        report = Greeting("office", node.contact, name="edge").report()
    assert report.state == "up"


def test_greeting_a_port_where_nobody_is_ends_in_time() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        contact = f"tcp://127.0.0.1:{server.getsockname()[1]}"
        report = Greeting("office", contact, name="edge", patience=0.3).report()
    assert report.state != "up"
    assert diagnose("edge", "office", report).kind in ("no answer", "not connected")
