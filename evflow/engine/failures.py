"""What fails at stones, said in the log: the first of each kind with its traceback, the others as counts."""

from __future__ import annotations

import logging
import re
import threading
from collections import Counter
from collections.abc import Callable, Sequence

from evflow import mishaps
from evflow.errors import FlowError

__all__ = ["MOST_REASON", "Failures"]

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
