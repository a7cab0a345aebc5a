"""Dead letters of daemons, as a program elsewhere has them: like those of a flow."""

from __future__ import annotations

import builtins
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import evflow.errors
from evflow.errors import RemoteError

__all__ = ["RemoteEvent", "RemoteLetter", "RemoteLetters", "letters_of", "newest"]


class RemoteEvent(dict[str, Any]):
    """The fields of an event of another node, by name and as attributes.

    A field that is called as a method of dicts, such as ``items``, is there by name only.

    Example:
        >>> event = RemoteEvent(symbol="IBM", price=80.0)
        >>> event.symbol, event["price"]
        ('IBM', 80.0)
    """

    def __getattr__(self, name: str) -> Any:
        if name not in self:
            raise AttributeError(f"the event has no field {name!r}; it has {', '.join(self) or 'none'}")
        return self[name]


@dataclass(frozen=True)
class RemoteLetter:
    """An event that a stone on a daemon gave up.

    Attributes:
        event: its fields, by name and as attributes. Where it has more than 256 KiB, texts that tell how
            large they are stand for the largest; ``resubmit`` submits all of it.
        stone: the stone's name.
        node: the node it ran on.
        reason: what went wrong.
        error: the exception of a handler, or None: one of Python or of evflow as such, any other as a
            ``RemoteError``. Its note has the traceback.
        number: its number among the dead letters of its node.
    """

    event: RemoteEvent
    stone: str
    node: str
    reason: str
    error: BaseException | None = None
    number: int = field(default=-1, repr=False)
    _ask: Callable[..., object] | None = field(default=None, repr=False, compare=False)

    def resubmit(self) -> None:
        """Takes the event off the dead letters and gives it to the stone again.

        Raises:
            EvflowError: the node cannot be reached, or the letter is no longer there.
        """
        if self._ask is not None:
            self._ask(self.node, "resubmit", number=self.number)


class RemoteLetters(list[RemoteLetter]):
    """Dead letters of daemons, those of one node oldest first.

    Args:
        letters: the letters.
        lost, total: see below.

    Attributes:
        lost: older ones that the nodes no longer keep, as ``DeadLetters.lost``; those that were not asked for
            are not among them.
        total: how many there ever were since the nodes began, those resubmitted among them.
    """

    def __init__(self, letters: Iterable[RemoteLetter] = (), lost: int = 0, total: int = 0) -> None:
        super().__init__(letters)
        self.lost = lost
        self.total = total

    def resubmit(self) -> None:
        """Resubmits every one of them, in order.

        Raises:
            EvflowError: a node cannot be reached, or a letter is no longer there.
        """
        for letter in self:
            letter.resubmit()


def letters_of(
    said: Iterable[Mapping[str, Any]], node: str, own: str = "", ask: Callable[..., object] | None = None
) -> list[RemoteLetter]:
    """The dead letters that a daemon has told.

    Args:
        said: its answer to ``letters``.
        node: the daemon's name.
        own: what their stones' names begin with, which is left out.
        ask: asks a daemon; called as ``Cluster.ask``.
    """
    return [
        RemoteLetter(
            RemoteEvent(one["event"]),
            one["stone"].removeprefix(own),
            node,
            one["reason"],
            _error(one.get("kind", ""), one.get("text", ""), one.get("trace", ""), node),
            one["number"],
            ask,
        )
        for one in said
    ]


def newest(ask: Callable[..., Any], limit: int, deployment: str = "") -> list[dict[str, Any]]:
    """The newest dead letters of a daemon, oldest first, as it tells them.

    Args:
        ask: asks the daemon; called as ``Client.ask``.
        limit: how many, at most.
        deployment: those of this deployment only.
    """
    letters: list[dict[str, Any]] = []
    before = None
    while len(letters) < limit:
        # Older ones come with the next answer, where one cannot hold them all.
        more = ask("letters", limit=limit - len(letters), deployment=deployment, before=before)
        if not more:
            break
        letters = [*more, *letters]
        before = more[0]["number"]
    return letters


def _error(kind: str, text: str, trace: str, node: str) -> BaseException | None:
    """The exception of another node: of the same class if that is one of Python or of evflow."""
    if not kind:
        return None
    error: BaseException = RemoteError(f"{kind}: {text}")
    found = getattr(evflow.errors, kind, None) or getattr(builtins, kind, None)
    if isinstance(found, type) and issubclass(found, BaseException):
        # Some are made of something else than a text.
        with suppress(Exception):
            error = found(text)
    error.add_note(f"on node {node}:\n{trace}")
    return error
