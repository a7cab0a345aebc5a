"""Questions and answers over notes that may be lost, late or doubled."""

from __future__ import annotations

from random import Random
from typing import Any

import msgpack
import pytest
from hypothesis import given
from hypothesis import strategies as st

from evflow.errors import DeployError, EvflowError, GraphError, LinkError
from evflow.net.link.control import ASK, Answers, Asker
from tests.examples import tried


def _answers(send: Any, **verbs: Any) -> Answers:
    table = {"add": lambda peer, given, reply: reply(given["a"] + given["b"]), **verbs}
    return Answers(table, lambda peer, verb: "you may not" if peer == "stranger" else "", send)


@pytest.mark.parametrize("seed", range(tried(50)))
def test_a_question_is_answered_once_over_a_network_that_loses_and_doubles(seed: int) -> None:
    """Each question is done exactly once and answered, whatever notes are lost or come twice."""
    random, done = Random(seed), []
    under_way: list[tuple[str, bytes]] = []

    def send(peer: str, topic: str, body: bytes) -> bool:
        under_way.extend([(topic, body)] * random.choice((0, 0, 1, 2)))
        return True

    def note(peer: str, given: dict[str, Any], reply: Any) -> None:
        done.append(given["number"])
        reply(given["number"] * 2)

    asker, answers = Asker(send, b"12345678"), _answers(send, note=note)
    got: dict[int, Any] = {}
    now = 0.0
    for number in range(20):
        asker.ask(
            "there", "note", {"number": number}, now, 1e6, lambda value, n=number: got.update({n: value})
        )
    while len(got) < 20:
        random.shuffle(under_way)
        for topic, body in under_way[:5]:
            if topic == ASK:
                answers.receive("here", body)
            else:
                asker.receive("there", body)
        del under_way[:5]
        now += 0.1
        asker.tick(now)
    assert got == {number: number * 2 for number in range(20)}
    assert sorted(done) == list(range(20))


def _ask(answers_of: Any, verb: str, peer: str = "here", **arguments: Any) -> Any:
    """The answer over a network that loses nothing."""
    got: list[Any] = []
    asker = Asker(lambda to, topic, body: answers.receive(peer, body) is None, b"12345678")
    answers = answers_of(lambda to, topic, body: asker.receive("there", body) is None)
    asker.ask("there", verb, arguments, 0.0, 1.0, got.append)
    return got[0]


def test_an_error_comes_back_as_what_it_was() -> None:
    """The class and the text of an error cross the network; anything else that a verb raises is an error
    too."""

    def fail(peer: str, given: dict[str, Any], reply: Any) -> None:
        raise GraphError("stone 'x': wrong")

    error = _ask(lambda send: _answers(send, fail=fail), "fail")
    assert type(error) is GraphError and str(error) == "stone 'x': wrong"
    assert "wrong arguments" in str(_ask(_answers, "add", a=1))
    assert "nobody here knows 'fly'; expected one of add" in str(_ask(_answers, "fly"))
    assert str(_ask(_answers, "add", peer="stranger", a=1, b=2)) == "you may not"


def test_halves_of_characters_are_replaced_in_answers_and_errors() -> None:
    """Python has them in names of files that are not UTF-8, as in the reason of a dead letter."""

    def fail(peer: str, given: dict[str, Any], reply: Any) -> None:
        raise GraphError("no file \udc80")

    said = _ask(lambda send: _answers(send, say=lambda peer, given, reply: reply({"a": "x\udc80"})), "say")
    assert said == {"a": "x?"}
    error = _ask(lambda send: _answers(send, fail=fail), "fail")
    assert type(error) is GraphError and str(error) == "no file ?"


def test_no_answer_in_time_is_an_error() -> None:
    """Who asks is told when time is up, and when it is wanted next."""
    asker, got = Asker(lambda peer, topic, body: False, b"12345678"), []
    asker.ask("there", "add", {}, 10.0, 2.0, got.append)
    assert asker.tick(10.0) == 10.02
    assert asker.tick(11.9) is not None and not got
    assert asker.tick(12.0) is None
    assert isinstance(got[0], LinkError) and "there: no answer in time" in str(got[0])


def test_who_cannot_answer_is_not_waited_for() -> None:
    """Others are; nothing is sent to a peer that is known to be barred."""
    sent: list[str] = []
    asker = Asker(
        lambda peer, topic, body: sent.append(peer) is None,
        b"12345678",
        barred=lambda peer: "barred has no key" if peer == "barred" else "",
    )
    got: list[Any] = []
    for peer in ("barred", "there"):
        asker.ask(peer, "add", {}, 0.0, 1e6, got.append)
    assert sent == ["there"]
    assert [str(answer) for answer in got] == ["barred has no key"]


def test_an_answer_of_another_peer_or_session_is_nobody_s() -> None:
    """Only who was asked answers, and only what this asker asked."""
    got: list[Any] = []
    asker = Asker(lambda peer, topic, body: True, b"12345678")
    asker.ask("there", "add", {}, 0.0, 9.0, got.append)
    asker.receive("elsewhere", msgpack.packb([b"12345678", 1, True, 3]))
    asker.receive("there", msgpack.packb([b"87654321", 1, True, 4]))
    assert got == []
    asker.receive("there", msgpack.packb([b"12345678", 1, True, 5]))
    assert got == [5]


def test_too_large_an_answer_is_an_error() -> None:
    """An answer that no note can carry is told as an error."""
    big = _ask(lambda send: _answers(send, big=lambda peer, given, reply: reply(bytes(9 << 20))), "big")
    assert isinstance(big, DeployError) and "9437" in str(big)


@pytest.mark.slow
def test_question_or_answer_of_too_many_values_is_an_error() -> None:
    many = [[]] * (2 << 20)
    answer = _ask(lambda send: _answers(send, many=lambda peer, given, reply: reply(many)), "many")
    assert isinstance(answer, DeployError) and "the answer to 'many'" in str(answer)
    with pytest.raises(DeployError, match="question 'add': expected what msgpack takes"):
        _ask(_answers, "add", a=many, b=1)


@given(st.binary(max_size=60) | st.recursive(
    st.none() | st.integers(-5, 5) | st.text(max_size=3) | st.binary(max_size=8) | st.booleans(),
    lambda inner: st.lists(inner, max_size=5) | st.dictionaries(st.text(max_size=2), inner, max_size=3),
).map(msgpack.packb))  # fmt: skip
def test_malformed_notes_are_refused(body: bytes) -> None:
    """Whatever comes is an answer, a question, or a DeployError."""
    for receive in (
        Asker(lambda *note: True, b"12345678").receive,
        _answers(lambda *note: True).receive,
    ):
        try:
            receive("there", body)
        except EvflowError as error:
            assert isinstance(error, DeployError)
