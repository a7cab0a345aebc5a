"""Each check by itself, with what it would find on hosts that are not this one."""

from __future__ import annotations

import os
import socket
from pathlib import Path
from typing import Any

import pytest

import evflow as ev
from evflow.errors import LinkError
from evflow.net.node.keyfile import generate
from evflow.tools.watch import doctor
from evflow.tools.watch.diagnosis import Probe
from evflow.tools.watch.doctor import (
    Finding,
    Greeting,
    checked,
    host_checks,
    keys_check,
    listen_check,
    verdict,
)
from tests.watch.fake import FakeClient, served


def levels(findings: Any) -> dict[str, str]:
    return {finding.about: finding.level for finding in findings}


def test_this_host_passes_its_checks() -> None:
    findings = [finding for about, check in host_checks().items() for finding in checked(about, check)]
    assert not [finding for finding in findings if finding.level == "wrong"]
    assert {"python", "numpy", "pyzmq", "system", "eventfd", "memory", "open files", "java"} <= set(
        levels(findings)
    )


def test_check_that_fails_is_a_finding_and_no_traceback() -> None:
    def broken() -> list[Finding]:
        raise RuntimeError("what now")

    (found,) = checked("moon", broken)
    assert found.level == "wrong"
    assert "RuntimeError('what now')" in found.text


def test_verdict_is_the_worst_level() -> None:
    def found(*given: str) -> str:
        return verdict(Finding("x", level, "") for level in given)

    assert (found("ok", "note"), found("ok", "warning"), found("warning", "wrong", "ok")) == (
        "ok", "warning", "wrong"
    )  # fmt: skip


@pytest.mark.parametrize(
    ("version", "implementation", "level"),
    [((3, 11, 0), "cpython", "ok"), ((3, 10, 9), "cpython", "wrong"), ((3, 12, 0), "pypy", "wrong")],
)
def test_python_is_checked(version: tuple[int, ...], implementation: str, level: str) -> None:
    assert doctor.python(version, implementation).level == level


def test_missing_and_old_packages_are_told_with_the_command_that_helps() -> None:
    there = {"numpy": "1.26.4", "llvmlite": "0.45.0rc1", "msgpack": "1.1", "pyzmq": "27.0"}
    found = {finding.about: finding for finding in doctor.packages(there.get)}
    assert found["numpy"].advice == "pip install 'numpy>=2.0'"
    assert (found["llvmlite"].level, found["msgpack"].level, found["pyzmq"].level) == ("ok", "ok", "ok")
    assert (found["click"].level, found["click"].text) == ("wrong", "not installed")
    assert found["pygraphviz"].level == "note"


def test_system_without_nodes_is_told() -> None:
    assert doctor.system("Linux", "6.1").level == "ok"
    assert "need Linux" in doctor.system("Darwin", "23").advice


def test_forbidden_and_missing_system_calls_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    def forbidden(name: str) -> int:
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(os, "memfd_create", forbidden)
    monkeypatch.delattr(os, "eventfd")
    found = {finding.about: finding for finding in doctor.kernel(["eventfd", "memfd_create"])}
    assert found["eventfd"].level == "wrong"
    assert "seccomp" in found["memfd_create"].advice


def test_little_memory_and_few_files_are_warnings() -> None:
    assert doctor.memory("MemTotal: 9 kB\nMemAvailable:   1000000 kB\n").text == "1.0 GB available"
    assert doctor.memory("MemAvailable:   1000 kB\n").level == "warning"
    assert doctor.memory("").level == "note"
    assert doctor.open_files(4096, 4096).level == "ok"
    assert doctor.open_files(-1, -1).text == "no limit"
    assert doctor.open_files(256, 4096).advice.endswith("ulimit -n 1024")
    assert doctor.open_files(256, 512).advice.endswith("ulimit -n 512")


def test_other_programs_are_for_information() -> None:
    found = {finding.about: finding for finding in doctor.others({"java": "/bin/java"}.get)}
    assert (found["java"].text, found["cuda"].level) == ("/bin/java", "note")


# Where a node could listen


def test_free_port_can_be_listened_at_and_a_taken_one_not() -> None:
    assert listen_check("tcp://127.0.0.1:0", keys=False).level == "ok"
    with socket.create_server(("127.0.0.1", 0)) as server:
        found = listen_check(f"tcp://127.0.0.1:{server.getsockname()[1]}", keys=False)
    assert (found.level, "ss -ltnp" in found.advice) == ("wrong", True)


@pytest.mark.parametrize(
    ("contact", "said"),
    [
        ("tcp://192.0.2.1:7000", "not an address of this host"),
        ("7000", "begins with neither"),
        ("ipc:///no/such/folder/edge", "no folder"),
    ],
)
def test_contact_that_cannot_be_had_is_told_why(contact: str, said: str) -> None:
    found = listen_check(contact, keys=True)
    assert found.level == "wrong"
    assert said in found.text
    assert found.advice


def test_contact_beyond_this_host_needs_keys_or_plain() -> None:
    assert "evflow keygen" in listen_check("tcp://*:0", keys=False).advice
    assert listen_check("tcp://*:0", keys=False, plain=True).level == "ok"


def test_ipc_tells_sockets_in_use_from_those_left_over(tmp_path: Path) -> None:
    path = tmp_path / "edge"
    assert listen_check(f"ipc://{path}", keys=False).level == "ok"
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(path))
        server.listen()
        assert "another process" in listen_check(f"ipc://{path}", keys=False).text
    assert listen_check(f"ipc://{path}", keys=False).level == "ok"
    path.unlink()
    path.write_text("")
    assert "not a socket" in listen_check(f"ipc://{path}", keys=False).text


# Keys


@pytest.fixture
def keys(tmp_path: Path) -> Path:
    """A folder with the pair of edge and the public key of office."""
    folder = tmp_path / "keys"
    generate(folder, "edge")
    generate(tmp_path / "theirs", "office")
    (folder / "office.pub").write_text((tmp_path / "theirs" / "office.pub").read_text())
    return folder


def test_good_keys_are_told_with_the_peers_that_may_connect(keys: Path) -> None:
    found = list(keys_check(keys, "edge"))
    assert verdict(found) == "ok"
    assert found[-1].text == "peers that may connect: office"


def test_each_thing_that_is_wrong_with_keys_is_told(keys: Path) -> None:
    (keys / "edge.key").chmod(0o644)
    (keys / "bad.pub").write_text("no key")
    keys.chmod(0o777)
    texts = "\n".join(f"{finding.text} {finding.advice}" for finding in keys_check(keys, "lab"))
    assert "mode is 0644; run: chmod 600" in texts
    assert "bad.pub" in texts
    assert "they could let anybody in" in texts
    assert "evflow keygen lab" in texts


def test_pair_that_does_not_belong_together_is_told(keys: Path, tmp_path: Path) -> None:
    generate(tmp_path / "other", "edge")
    (keys / "edge.pub").write_text((tmp_path / "other" / "edge.pub").read_text())
    assert levels(keys_check(keys))["key of edge"] == "wrong"
    (keys / "edge.pub").unlink()
    assert levels(keys_check(keys))["key of edge"] == "warning"


def test_secret_key_that_is_none_does_not_get_into_the_message(keys: Path) -> None:
    (keys / "edge.key").write_text("almost-a-secret\n")
    text = "\n".join(finding.text for finding in keys_check(keys))
    assert "almost-a-secret" not in text


def test_folder_that_is_not_there_is_told(tmp_path: Path) -> None:
    (found,) = keys_check(tmp_path / "none")
    assert "evflow keygen" in found.advice


# Peers


def test_port_where_nobody_listens_is_told_with_what_to_check() -> None:
    at = "tcp://127.0.0.1:7"
    found = Greeting("office", at, probe=lambda c: Probe("refused", "it refuses")).reach()
    assert found.level == "wrong"
    assert found.text == f"this command on {socket.gethostname()} dials office at {at}: it refuses"
    assert "is the node running" in found.advice
    assert Greeting("office", at, probe=lambda c: Probe("answers", "it answers", 0.001)).reach().level == "ok"


def test_node_that_answers_is_told() -> None:
    node = ev.Node("office", listen="tcp://127.0.0.1:0")
    with served(node):
        found = Greeting("office", node.contact).hello()
        other = Greeting("lab", node.contact).hello()
    assert found.level == "ok"
    assert other.level == "wrong"
    assert "calls itself 'office'" in other.text


def test_node_with_keys_answers_those_it_knows(keys: Path, tmp_path: Path) -> None:
    theirs = tmp_path / "theirs"
    (theirs / "edge.pub").write_text((keys / "edge.pub").read_text())
    generate(keys, "stranger")
    node = ev.Node("office", listen="tcp://127.0.0.1:0", keys=theirs)
    with served(node):
        known = Greeting("office", node.contact, name="edge", keys=keys).hello()
        stranger = Greeting("office", node.contact, name="stranger", keys=keys, patience=0.5).hello()
    assert known.level == "ok"
    assert stranger.level == "wrong"
    assert "stranger.pub" in stranger.text and "doctor --keys" in stranger.advice


def test_missing_key_is_told_before_anything_is_dialled(keys: Path) -> None:
    found = Greeting("lab", "tcp://127.0.0.1:7", name="edge", keys=keys, patience=0.5).hello()
    assert found.level == "wrong"
    assert "lab.pub" in found.text


@pytest.mark.parametrize(("theirs", "level", "way"), [(100.2, "ok", "ahead"), (90.0, "warning", "behind")])
def test_clock_of_a_node_is_compared(theirs: float, level: str, way: str) -> None:
    client = FakeClient({"status": lambda: {"wall": theirs}})
    found = Greeting("office", "tcp://x:7", open=lambda *a, **k: client, wall=lambda: 100.0).clock()
    assert found.level == level
    assert way in found.text


def test_slow_answer_makes_the_clock_uncertain_and_no_warning() -> None:
    times = iter([100.0, 110.0])
    client = FakeClient({"status": lambda: {"wall": 110.0}})
    found = Greeting("office", "tcp://x:7", open=lambda *a, **k: client, wall=lambda: next(times)).clock()
    assert found.text == "5.000 s ahead of that of this host, give or take 5.000 s"
    assert found.level == "ok"


def test_node_that_is_no_daemon_has_no_clock() -> None:
    def no_daemon(*arguments: object, **options: object) -> FakeClient:
        raise LinkError("no answer to 'name'")

    assert Greeting("office", "tcp://x:7", open=no_daemon).clock().level == "note"
