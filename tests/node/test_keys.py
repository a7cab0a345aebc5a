from __future__ import annotations

import contextlib
import logging
import os
import socket as sockets
import stat
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import zmq
from hypothesis import given, settings
from hypothesis import strategies as st
from zmq.utils import z85

import evflow as ev
from evflow.deploy.client import Cluster
from evflow.errors import LinkError
from evflow.net.node.keyfile import stamp_of
from evflow.net.node.keys import Gate, KeyRing, generate
from tests.examples import tried

NEVER = 300
"""Milliseconds after which nothing has come: long enough for a handshake that should have failed."""
SOON = 20_000
"""Milliseconds within which what must come has come."""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with the keys of two nodes."""
    for name in ("center", "edge"):
        generate(tmp_path / "keys", name)
    return tmp_path / "keys"


def key_of(path: Path) -> str:
    """The key in a file, read by other means."""
    return path.read_text().splitlines()[-1]


def test_a_pipe_in_a_folder_of_keys_makes_nobody_wait(folder: Path) -> None:
    os.mkfifo(folder / "pipe.pub")
    with pytest.raises(LinkError, match=r"pipe\.pub cannot be read: .*it is not a regular file"):
        KeyRing(folder, "center")
    (folder / "center.key").unlink()
    os.mkfifo(folder / "center.key", 0o600)
    with pytest.raises(LinkError, match=r"center\.key cannot be read: .*it is not a regular file"):
        KeyRing(folder, "center")


def test_generate_makes_a_pair_that_belongs_together(tmp_path: Path) -> None:
    secret, public = generate(tmp_path / "deep" / "keys", "edge-1.lab_2")
    assert (secret.name, public.name) == ("edge-1.lab_2.key", "edge-1.lab_2.pub")
    assert zmq.curve_public(key_of(secret).encode()) == key_of(public).encode()
    for path in (secret, public):
        first, second = path.read_text().splitlines()
        assert first.startswith("# ")
        assert len(z85.decode(second)) == 32


def test_secret_key_is_readable_by_its_owner_only(tmp_path: Path) -> None:
    old = os.umask(0)
    try:
        secret, public = generate(tmp_path / "keys", "edge")
    finally:
        os.umask(old)
    assert stat.S_IMODE(secret.stat().st_mode) == 0o600
    assert stat.S_IMODE(public.stat().st_mode) == 0o644
    assert stat.S_IMODE(secret.parent.stat().st_mode) == 0o700


@pytest.mark.parametrize("there", ["edge.key", "edge.pub"])
def test_generate_keeps_a_key_that_is_there(tmp_path: Path, there: str) -> None:
    (tmp_path / there).write_text("mine")
    with pytest.raises(LinkError, match=rf"{there} is there already and is kept"):
        generate(tmp_path, "edge")
    assert [path.name for path in tmp_path.iterdir()] == [there]
    assert (tmp_path / there).read_text() == "mine"


def test_generate_does_not_follow_a_link_that_somebody_laid(tmp_path: Path) -> None:
    (tmp_path / "edge.key").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(LinkError, match="is there already"):
        generate(tmp_path, "edge")
    assert not (tmp_path / "elsewhere").exists()


def test_generate_names_a_folder_that_is_none(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(LinkError, match="file"):
        generate(tmp_path / "file" / "keys", "edge")


@pytest.mark.parametrize(
    "name", ["", ".", "..", ".edge", "a/b", "../edge", "a b", "edge\n", "kante\0", "bücher"]
)
def test_name_that_is_no_file_name_is_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(LinkError, match=r"node name .* expected letters, digits"):
        generate(tmp_path, name)
    assert list(tmp_path.iterdir()) == []


def test_missing_secret_key_says_which_command_makes_it(tmp_path: Path) -> None:
    with pytest.raises(
        LinkError, match=r"no secret key .*edge\.key; make one with: evflow keygen edge --dir"
    ):
        KeyRing(tmp_path, "edge")


def test_keys_without_a_name_are_told_with_the_names_that_have_one(folder: Path, tmp_path: Path) -> None:
    """The cure is not a key for the random name that the node would have had."""
    with pytest.raises(LinkError, match=r"needs a name.*: give name=NAME; .* has the keys of center, edge$"):
        ev.Node(keys=folder)
    with pytest.raises(LinkError, match=r"no secret key .*centre\.key.*name=NAME; .* of center, edge$"):
        ev.Node("centre", keys=folder)
    (folder / "edge.pub").rename(tmp_path / "edge.pub")
    with pytest.raises(LinkError, match=r"needs a name.*make one with: evflow keygen NAME --dir"):
        ev.Node(keys=tmp_path)


def test_an_end_with_the_name_of_a_host_is_told_so() -> None:
    with pytest.raises(LinkError, match=r"host 'edge' has the name of this end: give this end .* name=NAME"):
        Cluster({"edge": "tcp://127.0.0.1:1"}, name="edge")


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o620, 0o644, 0o660, 0o777])
def test_secret_key_open_to_others_is_refused(folder: Path, mode: int) -> None:
    (folder / "edge.key").chmod(mode)
    with pytest.raises(
        LinkError, match=rf"edge\.key is open to others, its mode is {mode:04o}; run: chmod 600"
    ):
        KeyRing(folder, "edge")


@pytest.mark.parametrize("mode", [0o600, 0o400])
def test_secret_key_closed_to_others_is_taken(folder: Path, mode: int) -> None:
    (folder / "edge.key").chmod(mode)
    assert KeyRing(folder, "edge").public == key_of(folder / "edge.pub")


def test_comments_and_empty_lines_do_not_matter(folder: Path) -> None:
    key = key_of(folder / "edge.pub")
    (folder / "edge.pub").write_text(f"# Schlüssel\r\n\n#\n  {key}  \r\n# end")
    assert KeyRing(folder, "center").allows(key)


@pytest.mark.parametrize(
    "content", ["", "# only a comment\n", "{key}\n{key}\n", "{key}0\n", "{short}\n", "{broken}\n"]
)
@pytest.mark.parametrize("file", ["center.key", "edge.pub"])
def test_malformed_key_is_refused_and_not_shown(folder: Path, content: str, file: str) -> None:
    key = key_of(folder / file)
    # "%%%%%" is more than 32 bits.
    text = content.format(key=key, short=key[:-1], broken="%%%%%" + key[5:])
    (folder / file).write_text(text)
    with pytest.raises(LinkError, match=file) as caught:
        KeyRing(folder, "center")
    assert key[5:-1] not in str(caught.value)


@settings(max_examples=tried(20), deadline=None)
@given(st.binary(max_size=100))
def test_any_bytes_are_a_key_or_a_link_error(
    tmp_path_factory: pytest.TempPathFactory, content: bytes
) -> None:
    folder = tmp_path_factory.mktemp("keys")
    generate(folder, "center")
    (folder / "edge.pub").write_bytes(content)
    with pytest.raises(LinkError, match=r"edge\.pub: expected"):
        KeyRing(folder, "center")


@settings(max_examples=tried(20), deadline=None)
@given(st.binary(min_size=32, max_size=32))
def test_every_key_of_32_bytes_can_stand_in_a_file(
    tmp_path_factory: pytest.TempPathFactory, key: bytes
) -> None:
    folder = tmp_path_factory.mktemp("keys")
    generate(folder, "center")
    text = z85.encode(key).decode()
    (folder / "edge.pub").write_text(f"# edge\n{text}\n")
    ring = KeyRing(folder, "center")
    assert ring.allows(text)
    assert ring.name_of(text) == "edge"


def test_public_key_that_belongs_to_another_secret_is_refused(folder: Path) -> None:
    (folder / "center.pub").unlink()
    (folder / "edge.pub").rename(folder / "center.pub")
    with pytest.raises(LinkError, match=r"center\.pub does not belong to .*center\.key"):
        KeyRing(folder, "center")


def test_own_public_key_need_not_be_there(folder: Path) -> None:
    public = key_of(folder / "center.pub")
    (folder / "center.pub").unlink()
    assert KeyRing(folder, "center").public == public


def test_key_under_two_names_is_refused(folder: Path) -> None:
    (folder / "other.pub").write_text((folder / "edge.pub").read_text())
    with pytest.raises(LinkError, match="edge, other have the same public key"):
        KeyRing(folder, "center")


def test_everything_wrong_with_public_keys_is_said_at_once(folder: Path) -> None:
    (folder / "one.pub").write_text("")
    (folder / "two words.pub").write_text((folder / "edge.pub").read_text())
    (folder / "three.pub").symlink_to(folder / "nowhere")
    with pytest.raises(LinkError) as caught:
        KeyRing(folder, "center")
    assert all(name in str(caught.value) for name in ("one.pub", "two words.pub", "three.pub"))


def test_other_files_in_the_folder_do_not_matter(folder: Path) -> None:
    (folder / ".#edge.pub").write_text("an editor's")
    (folder / "edge.pub~").write_text("")
    (folder / "README").write_text("")
    (folder / "sub").mkdir()
    KeyRing(folder, "center")


def test_everyone_in_the_folder_is_allowed_and_known_by_name(folder: Path) -> None:
    ring = KeyRing(folder, "center")
    edge = key_of(folder / "edge.pub")
    assert ring.allows(edge)
    assert ring.allows(edge.encode())
    assert ring.name_of(edge) == "edge"
    assert ring.name_of(ring.public) == "center"


def test_a_stranger_is_not_allowed_and_has_no_name(folder: Path) -> None:
    ring = KeyRing(folder, "center")
    stranger = zmq.curve_keypair()[0]
    assert not ring.allows(stranger)
    assert ring.name_of(stranger.decode()) is None
    assert ring.name_of(None) is None
    for odd in ("", "x", b"\xff\xfe", "#" * 40):
        assert not ring.allows(odd)


def test_allow_list_restricts_who_may_connect(folder: Path) -> None:
    generate(folder, "third")
    ring = KeyRing(folder, "center", allow=["edge"])
    assert ring.allows(key_of(folder / "edge.pub"))
    assert not ring.allows(key_of(folder / "third.pub"))
    assert not ring.allows(ring.public)
    assert not KeyRing(folder, "center", allow=[]).allows(key_of(folder / "edge.pub"))


def test_allow_list_names_who_has_no_key(folder: Path) -> None:
    with pytest.raises(LinkError, match=r"no public key of 'third': expected .*third\.pub"):
        KeyRing(folder, "center", allow=["edge", "third"])


def test_allow_list_that_is_a_text_is_refused(folder: Path) -> None:
    with pytest.raises(LinkError, match=r"expected a list of names, such as \['edge'\]"):
        KeyRing(folder, "center", allow="edge")


def test_keys_added_and_removed_are_seen(folder: Path) -> None:
    ring = KeyRing(folder, "center")
    _, public = generate(folder, "third")
    key = key_of(public)
    assert ring.allows(key)
    assert ring.name_of(key) == "third"
    public.unlink()
    assert not ring.allows(key)
    assert ring.allows(key_of(folder / "edge.pub"))
    assert ring.name_of(key) == "third"


def test_key_that_is_replaced_in_place_is_seen(folder: Path) -> None:
    ring = KeyRing(folder, "center", allow=["edge"])
    old, new = key_of(folder / "edge.pub"), zmq.curve_keypair()[0].decode()
    (folder / "edge.pub").write_text(f"{new}\n")
    assert ring.allows(new)
    assert not ring.allows(old)
    assert ring.name_of(new) == "edge"


def test_file_that_becomes_wrong_shuts_out_its_peer_only(
    folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    generate(folder, "third")
    ring = KeyRing(folder, "center")
    edge, third = key_of(folder / "edge.pub"), key_of(folder / "third.pub")
    (folder / "third.pub").write_text("half")
    with caplog.at_level(logging.ERROR, "evflow.node"):
        assert not ring.allows(third)
        assert ring.allows(edge)
        assert ring.allows(edge)
    assert len(caplog.messages) == 1
    assert "third.pub" in caplog.messages[0]


def test_nobody_is_allowed_once_the_folder_is_gone(folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    ring = KeyRing(folder, "center")
    edge = key_of(folder / "edge.pub")
    folder.rename(folder.with_name("away"))
    with caplog.at_level(logging.ERROR, "evflow.node"):
        assert not ring.allows(edge)
        assert not ring.allows(edge)
    assert len(caplog.messages) == 1
    folder.with_name("away").rename(folder)
    assert ring.allows(edge)


def test_folder_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(LinkError, match="nowhere"):
        KeyRing(tmp_path / "nowhere", "edge")
    with pytest.raises(LinkError, match=r"folder of keys .* cannot be read"):
        stamp_of(tmp_path / "nowhere")


def test_dialling_a_peer_without_key_names_the_file(folder: Path) -> None:
    with zmq.Context() as context, context.socket(zmq.DEALER) as socket:
        with pytest.raises(LinkError, match=r"no public key of 'third': expected .*third\.pub; copy it"):
            KeyRing(folder, "center").dial(socket, "third")
        assert socket.mechanism == zmq.NULL


class Node:
    """A ROUTER behind a gate, and what its peers do to it."""

    def __init__(self, context: zmq.Context[zmq.Socket[bytes]], keys: KeyRing, contact: str) -> None:
        self.context, self.keys = context, keys
        self.gate: Gate | None = None
        self.router = context.socket(zmq.ROUTER)
        keys.serve(self.router)
        self.router.bind(contact)
        self.dealers: list[zmq.Socket[bytes]] = []
        self.contact = self.router.last_endpoint.decode()

    def dealer(self) -> zmq.Socket[bytes]:
        socket = self.context.socket(zmq.DEALER)
        self.dealers.append(socket)
        socket.reconnect_ivl = 10
        return socket

    def dialled(self, keys: KeyRing) -> zmq.Socket[bytes]:
        socket = self.dealer()
        keys.dial(socket, self.keys.name)
        socket.connect(self.contact)
        return socket

    def received(self, milliseconds: int) -> tuple[str | None, bytes] | None:
        """Who sent the next message, by name, and its text."""
        if not self.router.poll(milliseconds):
            return None
        _, frame = self.router.recv_multipart(copy=False)
        return self.keys.name_of(str(frame.get("User-Id"))), frame.bytes

    def serves(self, healthy: zmq.Socket[bytes], text: bytes) -> bool:
        """Whether a message of a healthy peer comes through, with its name."""
        healthy.send(text)
        return self.received(SOON) == ("edge", text)


def offer(socket: zmq.Socket[bytes], text: bytes) -> None:
    """Sends if the socket still takes anything: one that has been refused by then does not."""
    with contextlib.suppress(zmq.Again):
        socket.send(text, zmq.NOBLOCK)


@pytest.fixture(params=["tcp", pytest.param("ipc", marks=pytest.mark.slow)])
def contact(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return "tcp://127.0.0.1:*" if request.param == "tcp" else f"ipc://{tmp_path}/center"


@pytest.fixture
def node(folder: Path, contact: str) -> Iterator[Node]:
    context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
    keys = KeyRing(folder, "center")
    with Gate(context, keys) as gate:
        node = Node(context, keys, contact)
        node.gate = gate
        yield node
    context.destroy(linger=0)


@pytest.fixture
def healthy(node: Node, folder: Path) -> zmq.Socket[bytes]:
    return node.dialled(KeyRing(folder, "edge"))


@contextlib.contextmanager
def waiting(socket: zmq.Socket[bytes], event: int) -> Iterator[Callable[[], None]]:
    """Gives a function that returns once a socket's monitor has told of an event."""
    monitor = socket.get_monitor_socket(event)

    def wait() -> None:
        assert monitor.poll(SOON)
        monitor.recv_multipart()

    yield wait
    socket.disable_monitor()
    monitor.close()


def test_peer_with_a_key_gets_through_by_name(node: Node, healthy: zmq.Socket[bytes]) -> None:
    assert node.serves(healthy, b"one")
    healthy.send(b"two")
    identity, _ = node.router.recv_multipart()
    node.router.send_multipart([identity, b"back"])
    assert healthy.poll(SOON)
    assert healthy.recv() == b"back"


def test_peer_whose_key_is_not_there_gets_nothing_through(
    node: Node, healthy: zmq.Socket[bytes], folder: Path
) -> None:
    strangers = folder.with_name("strangers")
    generate(strangers, "edge")
    (strangers / "center.pub").write_text((folder / "center.pub").read_text())
    with waiting(node.router, zmq.EVENT_HANDSHAKE_FAILED_AUTH) as refused:
        stranger = node.dialled(KeyRing(strangers, "edge"))
        offer(stranger, b"let me in")
        refused()
    assert node.received(NEVER) is None
    assert node.gate is not None
    assert node.gate.refused == 1
    assert node.serves(healthy, b"undisturbed")


def test_peer_without_a_key_gets_nothing_through(node: Node, healthy: zmq.Socket[bytes]) -> None:
    with waiting(node.router, zmq.EVENT_HANDSHAKE_FAILED_PROTOCOL) as refused:
        plain = node.dealer()
        plain.connect(node.contact)
        offer(plain, b"let me in")
        refused()
    assert node.received(NEVER) is None
    assert node.serves(healthy, b"undisturbed")


def test_bytes_that_are_no_zeromq_get_nothing_through(node: Node, healthy: zmq.Socket[bytes]) -> None:
    if node.contact.startswith("ipc"):
        raw = sockets.socket(sockets.AF_UNIX)
        raw.connect(node.contact.removeprefix("ipc://"))
    else:
        raw = sockets.create_connection(("127.0.0.1", int(node.contact.rpartition(":")[2])))
    with raw:
        raw.sendall(b"GET / HTTP/1.1\r\n\r\n" * 20)
        assert node.serves(healthy, b"undisturbed")
    assert node.received(NEVER) is None


def test_peer_that_takes_another_for_the_node_gets_nothing_through(
    node: Node, healthy: zmq.Socket[bytes], folder: Path
) -> None:
    mistaken = folder.with_name("mistaken")
    mistaken.mkdir()
    for file in ("edge.key", "edge.pub"):
        (mistaken / file).write_text((folder / file).read_text())
    (mistaken / "edge.key").chmod(0o600)
    generate(mistaken, "other")
    (mistaken / "other.pub").rename(mistaken / "center.pub")
    lost = node.dialled(KeyRing(mistaken, "edge"))
    offer(lost, b"is it you?")
    assert node.received(NEVER) is None
    assert node.serves(healthy, b"undisturbed")


def test_removed_key_locks_out_from_the_next_connection(
    node: Node, healthy: zmq.Socket[bytes], folder: Path
) -> None:
    _, public = generate(folder, "third")
    third = KeyRing(folder, "third")
    first = node.dialled(third)
    first.send(b"before")
    assert node.received(SOON) == ("third", b"before")
    public.unlink()
    first.send(b"still connected")
    assert node.received(SOON) == ("third", b"still connected")
    with waiting(node.router, zmq.EVENT_HANDSHAKE_FAILED_AUTH) as refused:
        offer(node.dialled(third), b"after")
        refused()
    assert node.received(NEVER) is None
    assert node.serves(healthy, b"undisturbed")


def test_key_that_is_added_later_lets_in_a_new_connection(node: Node, folder: Path) -> None:
    _, public = generate(folder, "third")
    third = KeyRing(folder, "third")
    content = public.read_text()
    public.unlink()
    with waiting(node.router, zmq.EVENT_HANDSHAKE_FAILED_AUTH) as refused:
        socket = node.dialled(third)
        refused()
    public.write_text(content)
    node.dialled(third).send(b"another")
    assert node.received(SOON) == ("third", b"another")
    socket.disconnect(node.contact)
    socket.connect(node.contact)
    socket.send(b"the same")
    assert node.received(SOON) == ("third", b"the same")


def test_plain_sockets_of_the_same_context_are_left_alone(node: Node) -> None:
    with node.context.socket(zmq.ROUTER) as plain:
        port = plain.bind_to_random_port("tcp://127.0.0.1")
        dealer = node.dealer()
        dealer.connect(f"tcp://127.0.0.1:{port}")
        dealer.send(b"plain")
        assert plain.poll(SOON)
        _, frame = plain.recv_multipart(copy=False)
        assert frame.bytes == b"plain"
        with pytest.raises(zmq.ZMQError):
            frame.get("User-Id")
    assert node.gate is not None
    assert node.gate.refused == 0


@pytest.mark.slow
def test_nobody_is_let_in_while_no_gate_runs(folder: Path) -> None:
    context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
    keys = KeyRing(folder, "center")
    node = Node(context, keys, "tcp://127.0.0.1:*")
    edge = node.dialled(KeyRing(folder, "edge"))
    edge.send(b"nobody looks")
    assert node.received(NEVER) is None
    with Gate(context, keys):
        assert node.received(SOON) == ("edge", b"nobody looks")
    offer(node.dialled(KeyRing(folder, "edge")), b"nobody looks again")
    assert node.received(NEVER) is None
    context.destroy(linger=0)


def test_gate_ends_its_thread_and_can_start_again(folder: Path) -> None:
    before = threading.active_count()
    with zmq.Context() as context:
        gate = Gate(context, KeyRing(folder, "center"))
        for _ in range(3):
            gate.start()
            gate.start()
            assert [thread.name for thread in threading.enumerate()].count("evflow center gate") == 1
            assert threading.active_count() == before + 1
            gate.stop()
            gate.stop()
            assert threading.active_count() == before


def test_context_has_one_gate(folder: Path) -> None:
    before = threading.active_count()
    keys = KeyRing(folder, "center")
    with zmq.Context() as context, Gate(context, keys):
        with pytest.raises(LinkError, match="a context has one gate"):
            Gate(context, keys).start()
        assert threading.active_count() == before + 1
    assert threading.active_count() == before


@pytest.mark.slow
def test_many_peers_that_connect_at_once_are_told_apart(folder: Path) -> None:
    names = [f"peer-{number}" for number in range(20)]
    for name in names:
        generate(folder, name)
    context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
    keys = KeyRing(folder, "center", allow=names[::2])
    with Gate(context, keys) as gate:
        node = Node(context, keys, "tcp://127.0.0.1:*")
        for name in names:
            offer(node.dialled(KeyRing(folder, name)), name.encode())
        got = {node.received(SOON) for _ in names[::2]}
        assert got == {(name, name.encode()) for name in names[::2]}
        assert node.received(NEVER) is None
        assert gate.refused == 10
    context.destroy(linger=0)


PROCESS = """
import zmq
from evflow.net.node.keys import Gate, KeyRing
context = zmq.Context()
gate = Gate(context, KeyRing({folder!r}, "center"))
gate.start()
print("ends without being stopped")
"""


@pytest.mark.slow
def test_gate_that_is_not_stopped_does_not_keep_the_process(folder: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", PROCESS.format(folder=str(folder))],
        capture_output=True,
        encoding="utf-8",
        timeout=60,
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "ends without being stopped\n", "")
