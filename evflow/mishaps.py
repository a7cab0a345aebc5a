"""What fails unexpectedly while a flow runs, and is contained: it costs one event, one link or one change.

Few places contain failures: where one batch moves, one message is taken, one link is tended, one stone is
asked, one task is done. Each of them says here what failed. Where the flow's own bookkeeping has failed
nothing can be contained: ``Broken`` passes all these places, and the flow ends.
"""

from __future__ import annotations

import logging
import traceback
from collections import Counter

from evflow.errors import FlowError

CONTAINED = (Exception, SystemExit, KeyboardInterrupt, GeneratorExit)
"""What code that a flow calls may raise without ending the flow; a handler may call ``sys.exit()``, too."""

_MOST_KINDS = 10_000

_LONGEST = 20_000
"""Characters of a text or a traceback that go into a log: a handler may raise with any text."""

_counts: Counter[tuple[str, str, type[BaseException]]] = Counter()


class Broken(BaseException):
    """The flow's own bookkeeping failed: what the flow says of its events may be wrong, so the flow ends."""


class Forked(BaseException):
    """A handler forked and has returned in the fork, where there is no flow to return to."""


def sound(error: BaseException) -> BaseException:
    """An exception itself, or one in its place if it cannot be shown, because code of its class fails.

    Args:
        error: the exception, perhaps of a class of a user's own.
    """
    try:
        reason_for(error)
        for name in ("__class__", "__cause__", "__context__", "__suppress_context__", "args"):
            getattr(error, name, None)
    except BaseException as worse:  # noqa: BLE001  it is code of whoever made the class
        # Beneath what a metaclass may have put there.
        kind, why = (type.__dict__["__name__"].__get__(type(each)) for each in (error, worse))
        shown = FlowError(f"{kind}, which cannot be shown: its own code raised {why}")
        return shown.with_traceback(object.__getattribute__(error, "__traceback__"))
    return error


def reason_for(error: BaseException) -> str:
    """A ``sound`` exception as the reason of a dead letter: its type, its text and its notes."""
    notes = getattr(error, "__notes__", ())
    return "; ".join([f"{type(error).__name__}: {error}", *map(str, notes)])


def named(error: BaseException, *plain: type[BaseException]) -> str:
    """An exception in one line: its type and its text.

    Args:
        error: the exception.
        plain: the types of which the text alone says enough; the text is given as it is.
    """
    error = sound(error)
    if isinstance(error, plain):
        return str(error)
    return " ".join(f"{type(error).__name__}: {error}".removesuffix(": ").split())


def reason_of(failure: BaseException) -> str:
    """Why a flow broke, in one line: the failure, and what it came of."""
    cause = failure.__cause__
    return f"{failure}: {named(cause)}" if isinstance(failure, Broken) and cause else named(failure)


def say(log: logging.Logger, level: int, text: str, error: BaseException | None = None) -> None:
    """Writes to a log; to stderr if nobody has configured logging.

    Args:
        log: the logger.
        level: the level.
        text: the text.
        error: the exception whose traceback goes along, or None.
    """
    if not log.isEnabledFor(level):
        return
    error = None if error is None else sound(error)
    trace = None if error is None else (type(error), error, error.__traceback__)
    record = log.makeRecord(log.name, level, __file__, 0, _writable(text), (), trace)
    if error is not None:
        # What a formatter takes in place of the exception.
        record.exc_text = _writable(_traceback(error))
    log.handle(record)
    if not _is_heard(log) and logging.lastResort is not None and level >= logging.lastResort.level:
        logging.lastResort.handle(record)


def _traceback(error: BaseException) -> str:
    try:
        return "".join(traceback.format_exception(error)).rstrip()
    except CONTAINED:
        # What it comes from cannot be shown.
        return "".join([*traceback.format_tb(error.__traceback__), named(error)])


def _writable(text: str) -> str:
    """A text that any file takes: not too long, and without halves of characters, as names of files have."""
    text = text.encode("utf-8", "backslashreplace").decode()
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}… ({len(text):,} characters)"


def _is_heard(log: logging.Logger) -> bool:
    """Whether anybody reads a log."""
    at: logging.Logger | None = log
    while at is not None:
        if any(not isinstance(handler, logging.NullHandler) for handler in at.handlers):
            return True
        at = at.parent if at.propagate else None
    return False


def is_due(before: int, now: int) -> bool:
    """Whether a failure that has come ``now`` times is told again: the first one, and each tenfold number.

    Args:
        before: how many had come when this was asked last.
        now: how many have come.
    """
    return before == 0 or len(str(now)) > len(str(before))


def tell(log: logging.Logger, who: str, what: str, error: BaseException) -> None:
    """Writes a contained failure to the log with its traceback; the same one more and more seldom.

    Args:
        log: the logger.
        who: the stone, peer or deployment that it costs something.
        what: what failed, and what is lost by that.
        error: the exception.
    """
    key = (who, what, type(error))
    if len(_counts) >= _MOST_KINDS and key not in _counts:
        _counts.clear()
    _counts[key] += 1
    count = _counts[key]
    if is_due(count - 1, count):
        say(log, logging.ERROR, f"{who}: {what} ({count} so far): {named(error)}", error)
