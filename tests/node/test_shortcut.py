"""Shortcuts: what goes partly over them and partly over the connection arrives in the order it was sent."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from evflow.errors import LinkError
from evflow.net.link.transport import Connection
from evflow.net.node.contact import Contact
from evflow.net.node.shortcut import MOST, Shortcut
from evflow.net.node.sockets import Sockets
from tests.examples import tried
from tests.node.processes import wait_for

TOLD, JOINED = b"told", b"joined"


class End:
    """One node's sockets, with what came over its one connection, or all of them."""

    def __init__(self, shared_memory: bool = True) -> None:
        self.sockets = Sockets(None, 5.0, shared_memory)
        self.connection: Connection = None
        self.came: list[bytes] = []
        self.offer: tuple[str, bytes] | None = None

    def take(self, connection: Connection, header: Any, body: Any, now: float) -> None:
        self.connection = connection
        self.came.append(bytes(header) if body is None else bytes(header) + bytes(body))
        if header == TOLD:
            assert self.offer is not None
            self.sockets.open_shortcut(connection, *self.offer)
            self.sockets.send(connection, JOINED)
        elif header == JOINED:
            self.sockets.joined(connection, True)

    def look(self) -> None:
        """Takes what is there."""
        self.sockets.bell.sleep(0.0)
        self.sockets.receive(self.take, 0.0)

    def send(self, data: bytes, body: bytes | None = None) -> None:
        assert self.sockets.send(self.connection, data, None if body is None else memoryview(body))


class Pair:
    """Two ends of a connection with a shortcut, in one thread: nothing is taken before it is told to."""

    def __init__(self) -> None:
        self.listener, self.dialler = End(), End()
        contact = self.listener.sockets.listen(Contact.parse("tcp://127.0.0.1:0", listening=True), False)
        self.dialler.connection = self.dialler.sockets.dial("listener", str(contact))
        self.dialler.send(b"hello")
        self.until(self.listener, b"hello")
        self.dialler.offer = self.listener.sockets.offer_shortcut(self.listener.connection)
        self.listener.send(TOLD)
        self.until(self.dialler, TOLD)
        self.until(self.listener, JOINED)
        self.listener.came.clear()
        self.dialler.came.clear()

    def until(self, end: End, last: bytes) -> None:
        """Takes what comes until that has."""

        def came() -> bool:
            before = -1
            while len(end.came) > before:
                before = len(end.came)
                end.look()
            return last in end.came

        wait_for(came, f"message {last!r}")

    def close(self) -> None:
        self.listener.sockets.close()
        self.dialler.sockets.close()


@pytest.fixture
def pair() -> Iterator[Pair]:
    pair = Pair()
    yield pair
    pair.close()


def _over_connection(end: End) -> int:
    """How many messages an end has sent over the connection, from the one on that told of the shortcut."""
    return end.sockets._shortcuts[end.connection].passed


STEPS = st.lists(
    st.sampled_from(["small", "small", "large", "body", "look", "other way", "other looks"]), max_size=60
)


@settings(max_examples=tried(20), deadline=None)
@given(STEPS)
def test_messages_are_taken_in_the_order_in_which_they_were_sent(steps: list[str]) -> None:
    """In both directions, whatever way each goes, and whenever the other side looks."""
    pair = Pair()
    try:
        sent: dict[End, list[bytes]] = {pair.listener: [], pair.dialler: []}
        for number, step in enumerate(steps):
            word = b"%d " % number
            if step == "look":
                pair.listener.look()
            elif step == "other looks":
                pair.dialler.look()
            elif step == "other way":
                pair.listener.send(word)
                sent[pair.dialler].append(word)
            else:
                body = b"x" * 100_000 if step == "body" else None
                header = word * MOST if step == "large" else word
                pair.dialler.send(header, body)
                sent[pair.listener].append(header + (body or b""))
        for end, other in ((pair.listener, pair.dialler), (pair.dialler, pair.listener)):
            other.send(b"end")
            pair.until(end, b"end")
            assert end.came == [*sent[end], b"end"]
    finally:
        pair.close()


def test_what_is_small_takes_the_shortcut_and_wakes_the_other_side(pair: Pair) -> None:
    pair.dialler.send(b"x" * MOST)
    pair.listener.sockets.bell.sleep(10.0)
    assert [type(ready[0]) for ready in pair.listener.sockets.bell.ready] == [int]
    assert _over_connection(pair.dialler) == 1
    pair.dialler.send(b"x" * (MOST + 1))
    assert _over_connection(pair.dialler) == 2


@pytest.mark.slow
def test_what_finds_no_room_goes_over_the_connection(pair: Pair) -> None:
    """The other side reads nothing: nobody waits for it, nothing is lost, and the order is kept."""
    words = [b"%d" % number for number in range(20_000)]
    for word in words:
        pair.dialler.send(word)
    assert 1 < _over_connection(pair.dialler) <= len(words)
    pair.until(pair.listener, words[-1])
    assert pair.listener.came == words


def test_while_a_message_waits_for_the_connection_the_bell_sleeps(pair: Pair) -> None:
    """What cannot be taken yet does not wake the thread again and again."""
    shortcut = pair.dialler.sockets._shortcuts[pair.dialler.connection]
    shortcut.passed += 1
    pair.dialler.send(b"behind the next")
    pair.listener.look()
    assert not pair.listener.came
    pair.listener.sockets.bell.sleep(0.05)
    assert not pair.listener.sockets.bell.ready
    shortcut.passed -= 1
    pair.dialler.send(b"the next", b"")
    pair.until(pair.listener, b"behind the next")
    assert pair.listener.came == [b"the next", b"behind the next"]


@pytest.mark.parametrize("ends", ["listener", "dialler"])
def test_what_was_sent_before_one_side_ended_is_taken_and_then_the_connection_goes_on(
    pair: Pair, ends: str
) -> None:
    ending: End = getattr(pair, ends)
    other = pair.dialler if ending is pair.listener else pair.listener
    words = [b"%d" % number for number in range(100)]
    for word in words:
        ending.send(word)
    other.send(b"which nobody reads")
    ending.sockets.leave_shortcut(ending.connection)
    pair.until(other, words[-1])
    assert other.came == words
    wait_for(lambda: (other.look(), not other.sockets._shortcuts)[1], "a shortcut that is given up")
    ending.send(b"on")
    pair.until(other, b"on")
    other.send(b"and back")
    pair.until(ending, b"and back")


def test_nobody_gets_in_without_the_token() -> None:
    """Whoever knows the name may connect, but is not who was meant; who was comes in all the same."""
    offered = Shortcut.offer()
    assert offered is not None
    shortcut, name, token = offered
    strangers = [socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) for _ in range(2)]
    for stranger in strangers:
        stranger.connect("\0" + name)
    strangers[0].send(b"x" * 16)
    opened = Shortcut.open(name, token)
    assert opened is not None
    assert shortcut.accept()
    opened.passed = 1
    assert opened.send(b"hello")
    assert shortcut.receive(1) == [b"hello"]
    for one in (*strangers, opened, shortcut):
        one.close()


def test_strangers_only_leave_no_shortcut() -> None:
    offered = Shortcut.offer()
    assert offered is not None
    shortcut, name, _ = offered
    stranger = Shortcut.open(name, b"y" * 16)
    assert stranger is not None
    assert not shortcut.accept()
    stranger.close()
    assert Shortcut.open(name, b"y" * 16) is None
    assert not shortcut.accept()


def test_a_name_at_which_nobody_listens_is_no_error() -> None:
    """As where the peer runs on another host."""
    assert Shortcut.open("evflow-" + "0" * 32, bytes(16)) is None


@pytest.mark.parametrize("name", ["", "evflow-", "evflow-" + "0" * 33, "evflow-" + "G" * 32, "/run/bus\n"])
def test_a_name_of_something_else_is_refused(name: str) -> None:
    with pytest.raises(LinkError, match="expected evflow- and 32 hexadecimal digits; refuse the peer"):
        Shortcut.open(name, bytes(16))


def test_the_first_64_peers_have_shortcuts_and_the_others_go_without() -> None:
    end = End()
    assert all(end.sockets.offer_shortcut(peer) for peer in range(64))
    assert end.sockets.offer_shortcut(64) is None
    end.sockets.leave_shortcut(7)
    assert end.sockets.offer_shortcut(64) is not None
    end.sockets.close()


def test_where_shared_memory_is_off_there_is_no_shortcut() -> None:
    end = End(shared_memory=False)
    assert end.sockets.offer_shortcut("anyone") is None
    assert not end.sockets.open_shortcut("anyone", "evflow-" + "0" * 32, bytes(16))
    end.sockets.close()
