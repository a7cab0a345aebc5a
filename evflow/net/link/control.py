"""Control messages: what nodes tell each other besides events, and questions with their answers over that.

A note goes one way, at most once, within a session, so it may be lost. A question is repeated under its
number until it is answered, and done once: who answers keeps the newest answers. Questions are sans-I/O:
both ends are told the time and what came.
"""

from __future__ import annotations

import logging
from collections import OrderedDict, deque
from collections.abc import Callable, Mapping
from threading import Lock
from typing import Any

import msgpack
from msgspec import Struct

from evflow import errors, mishaps
from evflow.errors import DeployError, EvflowError, LinkError
from evflow.mishaps import CONTAINED, named
from evflow.net.link.messages import MOST_NOTE, MOST_TOPIC
from evflow.outside import MOST_DEPTH, MOST_VALUES, Malformed, check_depth, from_msgpack, shown
from evflow.schema.values import describe

_log = logging.getLogger("evflow.link")
_NOTE = 1 << 10
"""Bytes that a note takes beside its body, about."""

_MOST_WAITING = 4 * MOST_NOTE
"""Bytes of notes that wait while a pass is under way; notes may be lost, so the oldest go first."""

Listener = Callable[[str, memoryview, float], None]
"""(peer, body, now); the body is the listener's to keep, and may be megabytes."""


def checked(topic: str, body: bytes) -> None:
    """Sees to it that a note can be sent.

    Raises:
        LinkError: its topic or body is too long.
    """
    if not 0 < len(topic) <= MOST_TOPIC:
        raise LinkError(
            f"note {topic[:80]!r}: expected a topic of 1 to {MOST_TOPIC} characters, found {len(topic)}"
        )
    if len(body) > MOST_NOTE:
        raise LinkError(
            f"note {topic!r}: expected at most {MOST_NOTE} bytes, found {len(body)}; send it in parts"
        )


class Notes:
    """Who listens to which topic.

    Args:
        refuse: called with the kind of what is refused, and the reason.
        serving: while it is locked notes wait, unless their listener is prompt.

    Attributes:
        waiting: the notes that wait: peer, topic and body of each.
    """

    def __init__(self, refuse: Callable[[str, str], None], serving: Lock) -> None:
        self._serving = serving
        self._refuse = refuse
        self._listeners: dict[str, tuple[Listener, bool]] = {}
        self.waiting: deque[tuple[str, str, memoryview]] = deque()
        self._waiting_bytes = 0

    def listen(self, topic: str, call: Listener, prompt: bool = False) -> None:
        """From now on ``call`` is given the notes of a topic; it takes the place of who listened before.

        Args:
            topic: what the notes are about.
            call: called with the peer, the body and the time; an ``EvflowError`` that it raises is counted as
                refused.
            prompt: whether ``call`` only hands a note over to another thread; then notes do not wait for
                handlers.
        """
        checked(topic, b"")
        self._listeners[topic] = (call, prompt)

    def take(self, peer: str, topic: str, body: Any, now: float) -> None:
        """Gives a note that came to who listens; what is wrong with it is counted, and costs nothing else."""
        call, prompt = self._listeners.get(topic, (None, False))
        if call is None:
            self._refuse("unknown topic", f"note {topic[:MOST_TOPIC]!r} of {peer}: nobody listens to it here")
            return
        size = None if body is None else memoryview(body).nbytes
        if size is None or size > MOST_NOTE:
            found = "nothing" if size is None else f"{size} bytes"
            self._refuse(
                "malformed", f"note {topic!r} of {peer}: expected up to {MOST_NOTE} bytes, found {found}"
            )
            return
        note = memoryview(body).toreadonly()
        if self._serving.locked() and not prompt:
            self._wait(peer, topic, note)
            return
        self.deliver(now)
        self._give(call, peer, topic, note, now)

    def _wait(self, peer: str, topic: str, body: memoryview) -> None:
        self.waiting.append((peer, topic, body))
        self._waiting_bytes += len(body) + _NOTE
        while self._waiting_bytes > _MOST_WAITING:
            self._waiting_bytes -= len(self.waiting.popleft()[2]) + _NOTE

    def deliver(self, now: float) -> None:
        """Gives the notes that have waited for the end of a pass to who listens."""
        while self.waiting and not self._serving.locked():
            peer, topic, body = self.waiting.popleft()
            self._waiting_bytes -= len(body) + _NOTE
            self._give(self._listeners[topic][0], peer, topic, body, now)

    def _give(self, call: Listener, peer: str, topic: str, body: memoryview, now: float) -> None:
        try:
            call(peer, body, now)
        except (EvflowError, RecursionError) as error:
            self._refuse("malformed", f"note {topic!r} of {peer}: {error}")
        except CONTAINED as error:
            mishaps.tell(
                _log, f"note {topic!r} of {peer}", "who listens to it failed: the note is lost", error
            )
            self._refuse("failed", f"note {topic!r} of {peer}: {named(error)}")


ASK, ANSWER = "ask", "answer"
"""The topics of the notes, where nobody says others."""

_AGAIN, _SOON = 0.5, 0.02
"""Seconds until a question is asked again, and where it could not be sent, as before there is a session."""

_KEPT, _KEPT_BYTES = 1000, 64 << 20

Reply = Callable[[Any], None]
"""Takes an answer, plain data, or the ``EvflowError`` that stands for it."""

Question = Callable[[str, dict[str, Any], Reply], None]
"""What a node does for a verb: (who asks, arguments, what takes the answer, now or later)."""

Send = Callable[[str, str, bytes], bool]
"""Sends a note (peer, topic, body)."""


class UnansweredError(LinkError):
    """Nobody has answered in time."""


class _Asked(Struct):
    peer: str
    body: bytes
    until: float
    again: float
    reply: Reply


class Asker:
    """Who asks.

    Args:
        send: sends a note.
        session: 8 bytes unlike those of any other asker, so that numbers of an earlier one mean nothing.
        topic: that of questions.
        barred: why a peer cannot answer, which is not waited for then; "" if it can.
    """

    def __init__(
        self,
        send: Send,
        session: bytes,
        topic: str = ASK,
        barred: Callable[[str], str] = lambda peer: "",
    ) -> None:
        self._send = send
        self._barred = barred
        self._session = session
        self._topic = topic
        self._number = 0
        self._asked: dict[int, _Asked] = {}

    def ask(
        self, peer: str, verb: str, arguments: Mapping[str, Any], now: float, seconds: float, reply: Reply
    ) -> None:
        """Asks; ``reply`` gets the answer, an ``UnansweredError`` when there is none within ``seconds``, or a
        ``LinkError`` when there cannot be one."""
        self._number += 1
        try:
            check_depth([verb, dict(arguments)], MOST_DEPTH)
            body = msgpack.packb([self._session, self._number, verb, dict(arguments)])
            if len(body) > MOST_VALUES:
                from_msgpack(body, values=MOST_VALUES)
        except (TypeError, ValueError, OverflowError, RecursionError) as error:
            raise DeployError(
                f"question {shown(verb)}: expected what msgpack takes, found {shown(error, 200)}"
            ) from None
        if len(body) > MOST_NOTE:
            raise DeployError(
                f"question {shown(verb)}: expected at most {MOST_NOTE} bytes, found {len(body)}"
            )
        self._asked[self._number] = _Asked(peer, body, now + seconds, now, reply)
        self.tick(now)

    def receive(self, peer: str, body: bytes | memoryview) -> None:
        """Takes a note that came as an answer.

        Raises:
            DeployError: it is malformed.
        """
        session, number, good, value = _parts(body, 4)
        asked = self._asked.get(number) if type(number) is int and session == self._session else None
        if asked is None or asked.peer != peer:
            return
        del self._asked[number]
        asked.reply(value if good is True else _error(value))

    def tick(self, now: float) -> float | None:
        """Asks again what is not answered; returns when that is next."""
        if not self._asked:
            return None
        for number, asked in list(self._asked.items()):
            if now >= asked.until:
                del self._asked[number]
                asked.reply(UnansweredError(f"{asked.peer}: no answer in time"))
            elif reason := self._barred(asked.peer):
                del self._asked[number]
                asked.reply(LinkError(reason))
            elif now >= asked.again:
                sent = self._send(asked.peer, self._topic, asked.body)
                asked.again = now + (_AGAIN if sent else _SOON)
        return min((min(a.until, a.again) for a in self._asked.values()), default=None)


class Answers:
    """Who answers.

    Args:
        verbs: what it does for each verb.
        permits: why a peer may not ask; "" if it may.
        send: sends a note.
        topic: that of answers.
    """

    def __init__(
        self,
        verbs: Mapping[str, Question],
        permits: Callable[[str, str], str],
        send: Send,
        topic: str = ANSWER,
    ) -> None:
        self._verbs = verbs
        self._permits = permits
        self._send = send
        self._topic = topic
        # None while it is not answered yet.
        self._answers: OrderedDict[tuple[str, bytes, int], bytes | None] = OrderedDict()
        self._bytes = 0

    def receive(self, peer: str, body: bytes | memoryview) -> None:
        """Takes a note that came as a question, and does what it asks, unless that was done before.

        Raises:
            DeployError: it is malformed.
        """
        session, number, verb, arguments = _parts(body, 4)
        if not (
            type(session) is bytes and type(number) is int and type(verb) is str
            and type(arguments) is dict and all(type(key) is str for key in arguments)
        ):  # fmt: skip
            raise DeployError(f"a question of {peer} is malformed")
        key = (peer, session, number)
        if key in self._answers:
            known = self._answers[key]
            if known is not None:
                self._send(peer, self._topic, known)
            return
        self._answers[key] = None
        self._tidy()

        def reply(value: Any) -> None:
            answer = _packed(session, number, verb, value)
            self._answers[key] = answer
            self._bytes += len(answer)
            self._tidy()
            self._send(peer, self._topic, answer)

        self._do(peer, verb, arguments, reply)

    def _tidy(self) -> None:
        """Forgets the oldest answers where there are many, or much is in them."""
        while len(self._answers) > _KEPT or self._bytes > _KEPT_BYTES:
            _, answer = self._answers.popitem(last=False)
            self._bytes -= len(answer or b"")

    def _do(self, peer: str, verb: str, arguments: dict[str, Any], reply: Reply) -> None:
        refusal = self._permits(peer, verb)
        if refusal:
            reply(DeployError(refusal))
        elif verb not in self._verbs:
            reply(DeployError(f"nobody here knows {shown(verb)}; expected one of {', '.join(self._verbs)}"))
        else:
            _log.debug("%s asks for %s", peer, verb)
            try:
                self._verbs[verb](peer, arguments, reply)
            except EvflowError as error:
                reply(error)
            except (
                TypeError,
                ValueError,
                LookupError,
                AttributeError,
                ArithmeticError,
                RecursionError,
            ) as error:
                reply(DeployError(f"question {shown(verb)} has wrong arguments: {shown(error, 200)}"))
            except CONTAINED as error:
                mishaps.tell(_log, f"question {shown(verb)} of {peer}", "it could not be answered", error)
                reply(DeployError(f"question {shown(verb)} could not be answered: {named(error)}"))


def _packed(session: bytes, number: int, verb: str, value: Any) -> bytes:
    failed = isinstance(value, EvflowError)
    said = [type(value).__name__, str(value)[:100_000]] if failed else value
    # A text of Python may hold halves of characters, which a message may not.
    body = bytes(msgpack.packb([session, number, not failed, said], unicode_errors="replace"))
    if len(body) > MOST_NOTE:
        return _packed(
            session, number, verb, DeployError(f"the answer to {shown(verb)} has {len(body)} bytes")
        )
    try:
        if len(body) > MOST_VALUES:
            from_msgpack(body, values=MOST_VALUES)
    except Malformed as error:
        return _packed(session, number, verb, DeployError(f"the answer to {shown(verb)}: {error}"))
    return body


def _parts(body: bytes | memoryview, count: int) -> list[Any]:
    try:
        parts = from_msgpack(body, MOST_NOTE, values=MOST_VALUES)
    except Malformed as error:
        raise DeployError(f"a note: {error}") from None
    if type(parts) is not list or len(parts) != count:
        raise DeployError(f"a note: expected an array of {count}, found {describe(parts)}")
    return parts


def _error(value: Any) -> EvflowError:
    """The error that an answer describes."""
    name, text = value if type(value) is list and len(value) == 2 else ("DeployError", describe(value))
    kind = getattr(errors, name, None) if type(name) is str else None
    known = isinstance(kind, type) and issubclass(kind, EvflowError)
    told = text if type(text) is str else describe(text)
    return kind(told) if known and kind is not None else DeployError(told)
