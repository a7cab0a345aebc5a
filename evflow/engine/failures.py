"""What fails at stones, said in the log: the first of each kind with its traceback, the others as counts."""

from __future__ import annotations

import logging
import re
from collections import Counter
from collections.abc import Callable, Sequence

from evflow import mishaps
from evflow.errors import FlowError

__all__ = ["Failures"]

_log = logging.getLogger("evflow.flow")

_MOST_KINDS = 100
"""Stones and reasons that are told apart; all others are one."""

_SUMMED_UP = 5

_NUMBER = re.compile(r"-?\d+(?![\d)])")
"""What may differ from event to event in a reason; the line of a function, in brackets, does not."""

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
        self._first: tuple[str, BaseException | None] | None = None

    def note(
        self,
        stone: str,
        reasons: Sequence[str],
        error: BaseException | None = None,
        *,
        shown: Callable[[], str] = lambda: "",
        failed: bool = True,
    ) -> None:
        """Notes failures at a stone, and tells the log of those that are new, or many by now.

        Args:
            stone: the stone's name.
            reasons: why, of each.
            error: the exception, a ``sound`` one, or None.
            shown: gives the first event as text; "" if there is none.
            failed: whether the stone failed; False for what it held when it ended.
        """
        for reason, count in Counter(reasons).items():
            self._note(stone, reason, count, error, shown)
            if failed:
                self.count += count
                self._first = self._first or (f"stone {stone!r}: {reason}", error)

    def _note(
        self, stone: str, reason: str, count: int, error: BaseException | None, shown: Callable[[], str]
    ) -> None:
        kind = (
            stone,
            _NUMBER.sub("…", reason) if error is None else f"{type(error).__name__} at {_line(error)}",
        )
        if kind not in self._counts and len(self._counts) >= _MOST_KINDS:
            kind = "others", ""
        before = self._counts[kind]
        self._counts[kind] = now = before + count
        if not before:
            self._texts[kind] = reason
            event = shown()
            lines = [f"stone {stone!r}: {reason}", *([f"with {event}"] if event else [])]
            mishaps.say(_log, logging.WARNING, "; ".join(lines), error)
        elif mishaps.is_due(before, now):
            mishaps.say(_log, logging.WARNING, f"stone {stone!r}: {reason} ({now:,} so far)")

    def raise_first(self) -> None:
        """Raises what failed first, if that was not raised before.

        Raises:
            FlowError: something failed; it comes of the exception of the stone's function, if there is one.
        """
        if self._first is not None:
            text, cause = self._first
            self._first = None
            raise FlowError(f"flow {self._flow}: {text} ({self.count:,} failed so far)") from cause

    def sum_up(self, letters: int) -> None:
        """Tells the log what failed, at the end of the flow.

        Args:
            letters: dead letters that were not submitted again.
        """
        if not letters:
            return
        kinds = self._counts.most_common(_SUMMED_UP)
        told = [f"{count:,} at {stone!r} ({self._texts[stone, why]})" for (stone, why), count in kinds]
        more = len(self._counts) - len(kinds)
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
