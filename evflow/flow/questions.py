"""Questions that programs have for stones of other nodes, and the answers of the stones of this one."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol

from evflow.choices import choices
from evflow.errors import EvflowError, FlowError
from evflow.flow.hooks import Hook
from evflow.net.link.control import Answers, Asker, Reply, UnansweredError
from evflow.outside import shown
from evflow.stone import Later

if TYPE_CHECKING:
    from evflow.engine.engine import Engine

_ASK, _ANSWER = "ask stone", "stone answers"
_LINGER = 2.0
"""Seconds beyond its time that a question waits for the thread that asks it."""


class _Links(Protocol):
    def peer(self, name: str, contact: str = "") -> None: ...

    def barred(self, name: str) -> str: ...

    def tell(self, peer: str, topic: str, body: bytes) -> bool: ...

    def listen(
        self, topic: str, call: Callable[[str, memoryview, float], None], prompt: bool = False
    ) -> None: ...


class Questions:
    """Both ends of questions to stones.

    Args:
        engine: whose stones answer.
        links: the node's.
        later: has whoever has the links do a task with them.
        each_turn: has whoever has the links call something in each turn.
    """

    def __init__(
        self,
        engine: Engine,
        links: _Links,
        later: Callable[[Callable[[], object]], None],
        each_turn: Callable[[Hook], object],
    ) -> None:
        self._engine = engine
        self._links = links
        self._later = later
        self._each_turn = each_turn
        self._asker = Asker(links.tell, os.urandom(8), _ASK, self._barred)
        self._asks = False
        answers = Answers({"stone": self._answer}, lambda peer, verb: "", links.tell, _ANSWER)
        links.listen(_ASK, lambda peer, body, now: answers.receive(peer, body))
        links.listen(_ANSWER, lambda peer, body, now: self._asker.receive(peer, body), prompt=True)

    def _barred(self, peer: str) -> str:
        reason = self._links.barred(peer)
        return reason and f"{peer}: {reason}"

    def _answer(self, peer: str, arguments: dict[str, Any], reply: Reply) -> None:
        """What a stone says to a question."""
        stone, question = arguments["stone"], arguments["question"]
        slot = self._engine.topology.slots.get(stone) if isinstance(stone, str) else None
        if slot is None:
            there = choices(str(stone)[:300], list(self._engine.topology.slots))
            raise FlowError(f"there is no stone {shown(stone)} on this node{there}")
        if slot.actor is None or not isinstance(question, dict):
            raise FlowError(f"stone {stone!r} is a {slot.stone.kind}, which takes no questions")
        answer = slot.actor.answer(question)
        if isinstance(answer, Later):
            # It is given in the stone's own code, while another thread may have the links.
            answer.tell(lambda given: self._later(lambda: reply(given)))
        else:
            reply(answer)

    def ask(
        self,
        call: Callable[[Callable[[], None]], None],
        peer: str,
        stone: str,
        question: dict[str, Any],
        timeout: float,
    ) -> Any:
        """Asks and waits; see ``Flow.ask``.

        Args:
            call: has the flow's thread do a task.
        """
        outcome: list[Any] = []
        done = threading.Event()

        def reply(answer: Any) -> None:
            outcome.append(answer)
            done.set()

        def ask() -> None:
            # Most flows ask nothing, and need not look in each turn for what is not answered.
            if not self._asks:
                self._asks = True
                self._each_turn(self._asker.tick)
            self._links.peer(peer, peer if "://" in peer else "")
            arguments = {"stone": stone, "question": question}
            self._asker.ask(peer, "stone", arguments, time.monotonic(), timeout, reply)

        call(ask)
        if not done.wait(min(timeout + _LINGER, threading.TIMEOUT_MAX)):
            outcome.append(UnansweredError(f"{peer}: no answer in time"))
        answer = outcome[0]
        if isinstance(answer, EvflowError):
            raise answer
        return answer
