"""Dead letters: the events that were given up, why and where; and what the log tells of failures.

The log has the first failure of each kind with its traceback, and the others as counts.
"""

from __future__ import annotations

import logging
import re
import threading
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice
from sys import getsizeof
from types import FrameType
from typing import TYPE_CHECKING, Any, NamedTuple, cast, overload

import numpy as np

from evflow import mishaps
from evflow.errors import FlowError
from evflow.mishaps import CONTAINED, sound
from evflow.outside import shown

if TYPE_CHECKING:
    from evflow.events.batch import EventBatch

_MOST_SHOWN = 160
"""Characters of an event that the log shows."""

Resubmit = Callable[[str, "EventBatch", float | None], None]
"""Gives an event to a stone again: (its name, the event, seconds to wait while the flow is full)."""
MOST_BYTES = 256 << 20
"""Bytes of the dead letters that are kept; the newest letter is kept whatever its size."""
_COLUMN = 300
"""Bytes that an attribute of one event takes beside its text."""
_FRAME = 250
"""Bytes of a line of a traceback, about."""
_MOST_WEIGHED = 10_000
"""Values of an error that are looked at to find out how large it is."""


@dataclass(frozen=True)
class DeadLetter:
    """An event that a stone gave up.

    Attributes:
        event: the event as that stone saw it, a read-only view.
        stone: the stone's name.
        reason: what went wrong, in 1000 characters at most.
        error: the exception of a handler, or None. Its traceback tells the lines, and has no local variables.
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

    def resubmit(self, timeout: float | None = None) -> None:
        """Takes the event off the dead letters and gives it to the stone again.

        Args:
            timeout: seconds to wait while the flow is full; None waits as long as it takes.

        Raises:
            FlowError: the flow is closed, or stayed full; the letter is still there.
        """
        if self._box is not None:
            self._box.resubmit(self.number, timeout)


class DeadLetters(Sequence[DeadLetter]):
    """The dead letters at one moment, oldest first.

    Args:
        letters: the dead letters, oldest first.

    Attributes:
        lost: older ones that are no longer kept, because there were more than the flow's bound, or their
            events had more than 256 MiB.
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


class _Kept(NamedTuple):
    stone: str
    event: EventBatch
    reason: str
    error: BaseException | None
    size: int


@dataclass
class _Count:
    """The dead letters of one stone: how many were let go, and how many there ever were."""

    lost: int = 0
    total: int = 0


class LetterBox:
    """Keeps the newest ``limit`` dead letters, of ``most_bytes`` at most. Filled by the engine's thread, read
    by any.

    Args:
        limit: how many are kept.
        resubmit: gives an event to a stone again.
        most_bytes: bytes of their events.
        flow: the flow's name, for the log.

    Attributes:
        failures: what the log is told of them.
    """

    def __init__(self, limit: int, resubmit: Resubmit, most_bytes: int = MOST_BYTES, flow: str = "") -> None:
        self.failures = Failures(flow)
        self._limit = limit
        self._most_bytes = most_bytes
        self._bytes = 0
        self._resubmit = resubmit
        self._kept: dict[int, _Kept] = {}
        self._next = 0
        self._counts: defaultdict[str, _Count] = defaultdict(_Count)

    def put(
        self,
        stone: str,
        batch: EventBatch,
        reasons: Sequence[str],
        error: BaseException | None = None,
        failed: bool = True,
    ) -> None:
        """Keeps each event of ``batch`` with the reason at its position; see ``Failures.note``."""
        skip = max(0, len(batch) - self._limit)
        count = self._counts[stone]
        count.lost += skip
        count.total += len(batch)
        # Of an error that many events have in common the first bears the size.
        extra = 0 if error is None else _let_go(error)
        # A dead letter keeps only its own bytes alive, not those of the batch it came in.
        for position in range(skip, len(batch)):
            one = batch.take([position])
            size, extra = _size(one) + extra, 0
            self._kept[self._next] = _Kept(stone, one, reasons[position][:MOST_REASON], error, size)
            self._bytes += size
            self._next += 1
        self._lose_oldest()
        self.failures.note(stone, reasons, error, shown=lambda: _shown(batch), failed=failed)

    def _lose_oldest(self) -> None:
        if self._bytes > self._most_bytes:
            # Some may have been submitted again, by other threads.
            self._bytes = sum(kept.size for kept in list(self._kept.values()))
        while len(self._kept) > self._limit or (self._bytes > self._most_bytes and len(self._kept) > 1):
            kept = self._kept.pop(next(iter(self._kept)), None)
            if kept is not None:
                self._bytes -= kept.size
                self._counts[kept.stone].lost += 1

    def letters(self, prefix: str = "") -> DeadLetters:
        """What is kept now of the stones whose names begin with ``prefix``."""
        letters = [
            DeadLetter(kept.event[0], kept.stone, kept.reason, kept.error, number, self)
            # One that could not be submitted again lies last.
            for number, kept in sorted(self._kept.items())
            if kept.stone.startswith(prefix)
        ]
        counts = [count for stone, count in list(self._counts.items()) if stone.startswith(prefix)]
        return DeadLetters(letters, sum(c.lost for c in counts), sum(c.total for c in counts))

    def resubmit(self, number: int, timeout: float | None = None) -> None:
        """Gives a letter's event to its stone again; does nothing if that was done before."""
        kept = self._kept.pop(number, None)
        if kept is None:
            return
        try:
            self._resubmit(kept.stone, kept.event, timeout)
        except BaseException:  # also where it is interrupted while it waits
            self._kept[number] = kept
            raise
        self.failures.submitted_again(kept.stone, kept.reason, kept.error)


def _size(one: EventBatch) -> int:
    """Bytes that an event takes, with its attributes."""
    if one.attributes is None:
        return one.nbytes
    columns = one.attributes.columns.values()
    texts = sum(getsizeof(text) for column in columns if column.kind == "s" for text in column.values)
    return one.nbytes + texts + _COLUMN * len(columns)


def _let_go(error: BaseException) -> int:
    """Frees what the frames of an error and of its causes held: the events of a whole frame, as a rule.

    Returns:
        About how many bytes they still hold.
    """
    size = 0
    todo: list[BaseException | None] = [error]
    seen: set[int] = set()
    while todo:
        one = todo.pop()
        if one is None or id(one) in seen:
            continue
        seen.add(id(one))
        if sound(one) is not one:
            continue
        size += _bytes_of([one.args, vars(one)])
        todo += [one.__cause__, one.__context__]
        if isinstance(one, BaseExceptionGroup):
            todo += one.exceptions
        trace = one.__traceback__
        # The first are those of evflow, which still run.
        while trace is not None and not _cleared(trace.tb_frame):
            trace = trace.tb_next
        one.__traceback__ = trace
        while trace is not None:
            _cleared(trace.tb_frame)
            size += _FRAME
            trace = trace.tb_next
    return size


def _bytes_of(values: list[object]) -> int:
    """Bytes of values, about, with those that lists, tuples, sets, dicts and arrays among them hold."""
    size, left = 0, _MOST_WEIGHED
    while values and left:
        value = values.pop()
        left -= 1
        kind = type(value)
        if kind is np.ndarray:
            size += cast("np.ndarray[Any, Any]", value).nbytes
        elif kind in (str, bytes, bytearray, int):
            size += getsizeof(value)
        elif kind is dict:
            values += islice(cast("dict[object, object]", value).values(), left)
        elif kind in (list, tuple, set, frozenset):
            values += islice(cast("list[object]", value), left)
    return size


def _cleared(frame: FrameType) -> bool:
    try:
        frame.clear()
    except RuntimeError:
        return False
    return True


def _shown(batch: EventBatch) -> str:
    """The first event of a batch, as the log shows it."""
    try:
        return shown(batch[0], _MOST_SHOWN)
    except CONTAINED:
        return "an event that cannot be shown"


_log = logging.getLogger("evflow.flow")

_MOST_KINDS = 100
"""Stones and reasons that are told apart; all others are one."""

_SUMMED_UP = 5

_NUMBER = re.compile(r"-?\d+(?![\d)])")
"""What may differ from event to event in a reason; the line of a function, in brackets, does not."""

MOST_REASON = 1000
"""Characters of a reason that a dead letter keeps, and by which reasons are told apart."""

_Kind = tuple[str, str]


class Failures:
    """What failed in one flow. Filled by the engine's thread, read by any.

    Args:
        flow: the flow's name, for the log.

    Attributes:
        count: events that stones have failed on, and calls of other functions that failed, so far.
    """

    def __init__(self, flow: str = "") -> None:
        self.count = 0
        self._flow = flow
        self._counts: Counter[_Kind] = Counter()
        self._texts: dict[_Kind, str] = {}
        # Of dead letters: how many there were, and how many of them were submitted again.
        self._letters: Counter[_Kind] = Counter()
        self._again: Counter[_Kind] = Counter()
        self._lock = threading.Lock()
        self._first: tuple[str, BaseException | None] | None = None

    def note(
        self,
        stone: str,
        reasons: Sequence[str],
        error: BaseException | None = None,
        *,
        shown: Callable[[], str] = lambda: "",
        failed: bool = True,
        letters: bool = True,
    ) -> None:
        """Notes failures at a stone, and tells the log of those that are new, or many by now.

        Args:
            stone: the stone's name.
            reasons: why, of each.
            error: the exception, a ``sound`` one, or None.
            shown: gives the first event as text; "" if there is none.
            failed: whether the stone failed; False for what it held when it ended.
            letters: whether each is a dead letter.
        """
        for reason, count in Counter(reasons).items():
            kind = self._note(stone, reason, count, error, shown)
            if letters:
                self._letters[kind] += count
            if failed:
                self.count += count
                self._first = self._first or (f"stone {stone!r}: {reason}", error)

    def _note(
        self, stone: str, reason: str, count: int, error: BaseException | None, shown: Callable[[], str]
    ) -> _Kind:
        kind = self._kind(stone, reason, error)
        before = self._counts[kind]
        self._counts[kind] = now = before + count
        if not before:
            self._texts[kind] = reason
            event = shown()
            lines = [f"stone {stone!r}: {reason}", *([f"with {event}"] if event else [])]
            mishaps.say(_log, logging.WARNING, "; ".join(lines), error)
        elif mishaps.is_due(before, now):
            mishaps.say(_log, logging.WARNING, f"stone {stone!r}: {reason} ({now:,} so far)")
        return kind

    def _kind(self, stone: str, reason: str, error: BaseException | None) -> _Kind:
        """What a failure counts as."""
        text = _NUMBER.sub("…", reason[:MOST_REASON])
        kind = stone, text if error is None else f"{type(error).__name__} at {_line(error)}"
        known = kind in self._counts or len(self._counts) < _MOST_KINDS
        return kind if known else ("others", "")

    def submitted_again(self, stone: str, reason: str, error: BaseException | None) -> None:
        """A dead letter is no longer one; any thread may say so.

        Args:
            stone, error: as they were noted.
            reason: as it was noted, its first 1000 characters.
        """
        with self._lock:
            self._again[self._kind(stone, reason, error)] += 1

    def raise_first(self) -> None:
        """Raises what failed first, if that was not raised before.

        Raises:
            FlowError: something failed; it comes of the exception of the stone's function, if there is one.
        """
        if self._first is not None:
            text, cause = self._first
            self._first = None
            raise FlowError(f"flow {self._flow}: {text} ({self.count:,} failed so far)") from cause

    def sum_up(self) -> None:
        """Tells the log of the dead letters that were not submitted again, at the end of the flow."""
        left = self._letters - self._again
        letters = left.total()
        if not letters:
            return
        kinds = left.most_common(_SUMMED_UP)
        told = [f"{count:,} at {stone!r} ({self._texts[stone, why]})" for (stone, why), count in kinds]
        more = len(left) - len(kinds)
        mishaps.say(
            _log,
            logging.WARNING,
            f"flow {self._flow} ended with {letters:,} dead letter{'s' * (letters > 1)}: "
            + ", ".join([*told, *([f"and {more} other reasons"] if more else [])]),
        )


def _line(error: BaseException) -> str:
    """Where an exception was raised."""
    trace, place = error.__traceback__, ""
    while trace is not None:
        place = f"{trace.tb_frame.f_code.co_filename}:{trace.tb_lineno}"
        trace = trace.tb_next
    return place
