"""Dead letters: the events that were given up, why and where."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, overload

from evflow.errors import FlowError

if TYPE_CHECKING:
    from evflow.events.batch import EventBatch

__all__ = ["DeadLetter", "DeadLetters", "LetterBox"]

Resubmit = Callable[[str, "EventBatch"], None]


@dataclass(frozen=True)
class DeadLetter:
    """An event that a stone gave up.

    Attributes:
        event: the event as that stone saw it, a read-only view.
        stone: the stone's name.
        reason: what went wrong.
        error: the exception of a handler, or None.
        number: its number among the flow's dead letters.

    Example:
        >>> import evflow as ev
        >>> class Ping(ev.Event):
        ...     number: int
        >>> g = ev.Graph()
        >>> _ = g.source("pings", Ping) >> ev.Filter("1 / input.number", name="inverse") >> ev.Terminal(print)
        >>> with g.run() as flow:
        ...     flow["pings"].submit(Ping(0))
        >>> letter = flow.dead_letters()[0]
        >>> letter.event.number, letter.stone, letter.reason
        (0, 'inverse', 'integer division by zero (line 1)')
    """

    event: Any
    stone: str
    reason: str
    error: BaseException | None = None
    number: int = field(default=-1, repr=False)
    _box: LetterBox | None = field(default=None, repr=False, compare=False)

    def resubmit(self) -> None:
        """Takes the event off the dead letters and gives it to the stone again.

        Raises:
            FlowError: the flow is closed.
        """
        if self._box is not None:
            self._box.resubmit(self.number)


class DeadLetters(Sequence[DeadLetter]):
    """The dead letters at one moment, oldest first.

    Attributes:
        lost: older ones that are no longer kept, because there were more than the flow's bound.
        total: how many there ever were, those resubmitted among them.

    Example:
        >>> import evflow as ev
        >>> class Ping(ev.Event):
        ...     number: int
        >>> broken, seen = True, []
        >>> def handler(event):
        ...     if broken:
        ...         raise ValueError("not yet")
        ...     seen.append(event.number)
        >>> g = ev.Graph()
        >>> _ = g.source("pings", Ping) >> ev.Terminal(handler)
        >>> with g.run() as flow:
        ...     flow["pings"].submit_batch({"number": [1, 2]})
        ...     flow.drain()
        ...     broken = False
        ...     flow.dead_letters().resubmit()
        >>> seen
        [1, 2]
    """

    def __init__(self, letters: list[DeadLetter], lost: int, total: int) -> None:
        self._letters = letters
        self.lost = lost
        self.total = total

    @overload
    def __getitem__(self, index: int) -> DeadLetter: ...
    @overload
    def __getitem__(self, index: slice) -> list[DeadLetter]: ...
    def __getitem__(self, index: int | slice) -> DeadLetter | list[DeadLetter]:
        return self._letters[index]

    def __len__(self) -> int:
        return len(self._letters)

    def __iter__(self) -> Iterator[DeadLetter]:
        return iter(self._letters)

    def __repr__(self) -> str:
        return f"DeadLetters({len(self)} kept, {self.lost} lost)"

    def resubmit(self) -> None:
        """Resubmits every one of them, in order."""
        for letter in self._letters:
            letter.resubmit()


class LetterBox:
    """Keeps the newest ``limit`` dead letters. Filled by the engine's thread, read by any."""

    def __init__(self, limit: int, resubmit: Resubmit) -> None:
        self._limit = limit
        self._resubmit = resubmit
        self._kept: dict[int, tuple[str, EventBatch, str, BaseException | None]] = {}
        self._next = 0
        self.lost = 0
        self.total = 0

    def put(
        self, stone: str, batch: EventBatch, reasons: Sequence[str], error: BaseException | None = None
    ) -> None:
        """Keeps each event of ``batch`` with the reason at its position."""
        skip = max(0, len(batch) - self._limit)
        self.lost += skip
        self.total += len(batch)
        # A dead letter keeps only its own bytes alive, not those of the batch it came in.
        for position in range(skip, len(batch)):
            one = batch.take([position])
            self._kept[self._next] = (stone, one, reasons[position], error)
            self._next += 1
        while len(self._kept) > self._limit:
            self._kept.pop(next(iter(self._kept)), None)
            self.lost += 1

    def letters(self) -> DeadLetters:
        """What is kept now."""
        letters = [
            DeadLetter(one[0], stone, reason, error, number, self)
            for number, (stone, one, reason, error) in list(self._kept.items())
        ]
        return DeadLetters(letters, self.lost, self.total)

    def resubmit(self, number: int) -> None:
        """Gives a letter's event to its stone again; does nothing if that was done before."""
        entry = self._kept.pop(number, None)
        if entry is None:
            return
        try:
            self._resubmit(entry[0], entry[1])
        except FlowError:
            self._kept[number] = entry
            raise
