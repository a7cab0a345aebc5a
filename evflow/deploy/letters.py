"""Dead letters of daemons, as a program elsewhere has them: like those of a flow."""

from __future__ import annotations

import builtins
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from itertools import chain, groupby
from typing import TYPE_CHECKING, Any, NoReturn

import evflow.errors
from evflow.deploy.telling import MOST_AGAIN, MOST_LETTERS, fields_of, resubmitted
from evflow.errors import DeployError, RemoteError

if TYPE_CHECKING:
    from evflow.flow.flow import Flow

Again = Callable[[Sequence[int]], list[int]]
"""Gives letters of a node to their stones again, by number; the numbers of those that are not there."""


class RemoteEvent(dict[str, Any]):
    """The fields of an event of another node, by name and as attributes; they cannot be changed.

    A field that is called as a method of dicts, such as ``items``, is there by name only.

    Example:
        >>> event = RemoteEvent(symbol="IBM", price=80.0)
        >>> event.symbol, event["price"]
        ('IBM', 80.0)
        >>> event | {"price": 81.0}
        {'symbol': 'IBM', 'price': 81.0}
    """

    def __getattr__(self, name: str) -> Any:
        if name not in self:
            raise AttributeError(f"the event has no field {name!r}; it has {', '.join(self) or 'none'}")
        return self[name]

    def __reduce__(self) -> tuple[type[RemoteEvent], tuple[dict[str, Any]]]:
        return RemoteEvent, (dict(self),)

    if not TYPE_CHECKING:

        def _refuse(self, *given: object, **more: object) -> NoReturn:
            raise DeployError(
                "the event of a dead letter cannot be changed: resubmit() submits it as it was; submit "
                "a changed copy to a source, as "
                "handle['trades'].submit(Trade(**letter.event | {'price': 80.0}))"
            )

        __setattr__ = __delattr__ = __setitem__ = __delitem__ = __ior__ = _refuse
        update = setdefault = pop = popitem = clear = _refuse


@dataclass(frozen=True)
class RemoteLetter:
    """An event that a stone of a deployment gave up.

    Attributes:
        event: its fields, by name and as attributes, read-only. Where it has more than 256 KiB, texts that
            tell how large they are stand for the largest; ``resubmit`` submits all of it.
        stone: the stone's name.
        node: the node it ran on; the name of this end for an event that never left it.
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
    _again: Again = field(default=lambda numbers: [], repr=False, compare=False)

    def resubmit(self) -> None:
        """Takes the event off the dead letters and gives it to the stone again.

        Raises:
            EvflowError: the node cannot be reached, its stone is full, or the letter is no longer there.
        """
        RemoteLetters([self]).resubmit()


class RemoteLetters(list[RemoteLetter]):
    """Dead letters of a deployment, those of one node oldest first.

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

    @classmethod
    def joined(cls, parts: Sequence[RemoteLetters]) -> RemoteLetters:
        """Those of several nodes, in the order of the nodes."""
        return cls(chain.from_iterable(parts), sum(p.lost for p in parts), sum(p.total for p in parts))

    def resubmit(self) -> None:
        """Resubmits every one of them, in order.

        Raises:
            EvflowError: a node cannot be reached, or a stone is full: the letters from there on are still
                there. Or letters are no longer there, and all others were resubmitted.
        """
        gone: list[str] = []
        for (node, again), letters in groupby(self, lambda letter: (letter.node, letter._again)):
            numbers = [letter.number for letter in letters]
            # More at once may keep the node from answering in time.
            for start in range(0, len(numbers), MOST_AGAIN):
                missing = again(numbers[start : start + MOST_AGAIN])
                gone += [f"dead letter {number} of node {node}" for number in missing]
        if gone:
            more = f" and {len(gone) - 1:,} more are" if len(gone) > 1 else " is"
            raise DeployError(f"{gone[0]}{more} no longer there")


def letters_of(
    said: Iterable[Mapping[str, Any]], node: str, own: str = "", ask: Callable[..., Any] | None = None
) -> list[RemoteLetter]:
    """The dead letters that a daemon has told.

    Args:
        said: its answer to ``letters``.
        node: the daemon's name.
        own: what their stones' names begin with, which is left out.
        ask: asks a daemon; called as ``Cluster.ask``.
    """

    def again(numbers: Sequence[int]) -> list[int]:
        missing: list[int] = [] if ask is None else ask(node, "resubmit", numbers=list(numbers))
        return missing

    return [
        RemoteLetter(
            RemoteEvent(one["event"]),
            one["stone"].removeprefix(own),
            node,
            one["reason"],
            _error(one.get("kind", ""), one.get("text", ""), one.get("trace", ""), node),
            one["number"],
            again,
        )
        for one in said
    ]


def letters_from(ask: Callable[..., Any], node: str, deployment: str, limit: int | None) -> RemoteLetters:
    """The dead letters of a deployment on one of its nodes.

    Args:
        ask: asks a daemon; called as ``Cluster.ask``.
        node: the daemon's name.
        deployment: the deployment's name.
        limit: how many of the newest, at most; None for all.
    """
    here = partial(ask, node)
    letters = letters_of(newest(here, limit, deployment), node, f"{deployment}/", ask)
    counts = here("letter_counts", deployment=deployment)
    return RemoteLetters(letters, counts["lost"], counts["total"])


def own_letters(flow: Flow, node: str, stones: Mapping[str, str], limit: int | None) -> RemoteLetters:
    """The dead letters of this end: of what was submitted here and did not get to a daemon.

    Args:
        flow: the flow of this end.
        node: the name of this end.
        stones: stone of the flow → the deployment's stone that it leads to.
        limit: how many of the newest, at most; None for all.
    """

    def again(numbers: Sequence[int]) -> list[int]:
        return resubmitted(flow.dead_letters(), numbers)

    kept = flow.dead_letters()
    letters = [
        RemoteLetter(
            RemoteEvent(fields_of(letter.event)),
            stones.get(letter.stone, letter.stone),
            node,
            letter.reason,
            letter.error,
            letter.number,
            again,
        )
        for letter in kept[0 if limit is None else max(0, len(kept) - limit) :]
    ]
    return RemoteLetters(letters, kept.lost, kept.total)


def newest(ask: Callable[..., Any], limit: int | None, deployment: str = "") -> list[dict[str, Any]]:
    """The newest dead letters of a daemon, oldest first, as it tells them.

    Args:
        ask: asks the daemon; called as ``Client.ask``.
        limit: how many, at most; None for all.
        deployment: those of this deployment only.
    """
    letters: list[dict[str, Any]] = []
    before = None
    while limit is None or len(letters) < limit:
        # Older ones come with the next answer, where one cannot hold them all.
        wanted = MOST_LETTERS if limit is None else limit - len(letters)
        more = ask("letters", limit=wanted, deployment=deployment, before=before)
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
