"""Notes: one way, at most once, within a session; what is wrong with one costs nothing else."""

from __future__ import annotations

from threading import Lock

import pytest

from evflow.errors import LinkError
from evflow.net.link import messages as m
from evflow.net.link import session
from evflow.net.link.control import Notes
from evflow.net.link.link import State
from tests.link.pair import Network, Pair, Peer, Raw, chain, frame, receiver

Heard = list[tuple[str, bytes]]


def listening(peer: Peer, topic: str = "change") -> Heard:
    """What the peer hears of a topic from now on."""
    heard: Heard = []
    peer.hub.listen(topic, lambda name, body, now: heard.append((name, body)))
    return heard


def test_note_is_heard_with_who_has_sent_it() -> None:
    pair = Pair()
    pair.run()
    heard, back = listening(pair.b), listening(pair.a)
    assert pair.a.hub.tell("b", "change", b"one")
    assert pair.a.hub.tell("b", "change", b"")
    assert pair.b.hub.tell("a", "change", b"\0" * m.MOST_NOTE)
    pair.run()
    assert heard == [("a", b"one"), ("a", b"")]
    assert back == [("b", b"\0" * m.MOST_NOTE)]


def test_note_is_not_sent_without_a_session() -> None:
    pair = Pair()
    heard = listening(pair.b)
    assert not pair.a.hub.tell("b", "change", b"too early")
    assert not pair.a.hub.tell("nobody", "change", b"")
    pair.run()
    pair.break_()
    assert not pair.a.hub.tell("b", "change", b"too late")
    pair.run(1)
    assert heard == []


def test_note_that_is_too_long_is_an_error_of_who_sends_it() -> None:
    pair = Pair()
    pair.run()
    with pytest.raises(LinkError, match="expected a topic of 1 to 255 characters, found 256"):
        pair.a.hub.tell("b", "x" * 256, b"")
    with pytest.raises(LinkError, match="expected a topic of 1 to 255 characters, found 0"):
        pair.a.hub.listen("", lambda name, body, now: None)
    with pytest.raises(LinkError, match=r"expected at most 8388608 bytes, found 8388609; send it in parts"):
        pair.a.hub.tell("b", "change", bytes(m.MOST_NOTE + 1))


def test_later_listener_takes_the_place_of_the_one_before() -> None:
    pair = Pair()
    pair.run()
    first, second = listening(pair.b), listening(pair.b)
    pair.a.hub.tell("b", "change", b"one")
    pair.run()
    assert (first, second) == ([], [("a", b"one")])


@pytest.mark.parametrize("topic", ["", "unknown", "x" * 4096, "\0", "chängé"])
def test_note_of_an_unknown_topic_is_counted_and_the_session_goes_on(topic: str) -> None:
    _, b, raw, arrived = receiver()
    listening(b)
    assert raw.say(m.Note(topic), body=b"body") == []
    raw.say(frame(1, 5))
    assert b.hub.refused == {"unknown topic": 1}
    assert arrived == [5] and b.link("a").sessions == 1


@pytest.mark.parametrize(("body", "found"), [(None, "nothing"), (bytes((8 << 20) + 1), "8388609 bytes")])
def test_note_without_a_body_or_with_too_much_is_counted(body: bytes | None, found: str) -> None:
    _, b, raw, arrived = receiver()
    heard = listening(b)
    assert raw.say(m.Note("change"), body=body) == []
    raw.say(frame(1, 5))
    assert b.hub.refused == {"malformed": 1}
    assert heard == [] and arrived == [5]
    refused: list[tuple[str, str]] = []
    notes = Notes(lambda kind, reason: refused.append((kind, reason)), Lock())
    notes.listen("change", lambda name, body, now: heard.append((name, body)))
    notes.take("a", "change", body, 0.0)
    assert refused == [("malformed", f"note 'change' of a: expected up to 8388608 bytes, found {found}")]


def test_error_of_a_listener_is_counted_and_the_session_goes_on() -> None:
    _, b, raw, arrived = receiver()

    def fail(peer: str, body: bytes, now: float) -> None:
        raise LinkError("that is not a change")

    b.hub.listen("change", fail)
    raw.say(m.Note("change"), body=b"x")
    raw.say(frame(1, 5))
    assert b.hub.refused == {"malformed": 1}
    assert arrived == [5] and b.link("a").state is State.UP


def test_note_before_the_handshake_is_answered_by_reset() -> None:
    network = Network()
    b = Peer(network, "b", chain([]))
    heard = listening(b)
    raw = Raw(network, "a")
    raw.dial("b")
    assert raw.say(m.Note("change"), body=b"x") == [m.Reset("no session on this connection")]
    assert heard == []


def test_peer_that_says_nothing_is_told_only_so_much(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session, "_MOST_UNHEARD", 100)
    _, b, raw, _ = receiver()
    assert [b.hub.tell("a", "change", bytes(40)) for _ in range(4)] == [True, True, False, False]
    raw.say(m.Ping(1))
    assert b.hub.tell("a", "change", bytes(40))


def test_notes_do_not_hold_up_events_that_were_sent_before() -> None:
    pair = Pair()
    pair.run()
    order: list[str] = []
    pair.b.hub.listen("change", lambda name, body, now: order.append(f"note {len(pair.arrived)}"))
    pair.submit(1)
    pair.a.hub.tell("b", "change", bytes(m.MOST_NOTE))
    pair.submit(2)
    pair.run()
    assert order == ["note 1"] and pair.arrived == [1, 2]


def test_listener_may_answer_at_once() -> None:
    pair = Pair()
    pair.run()
    heard = listening(pair.a, "answer")

    def answer(peer: str, body: bytes, now: float) -> None:
        assert pair.b.hub.tell(peer, "answer", body[::-1])

    pair.b.hub.listen("question", answer)
    pair.a.hub.tell("b", "question", b"abc")
    pair.run()
    assert heard == [("b", b"cba")]
