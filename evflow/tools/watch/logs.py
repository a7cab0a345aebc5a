"""Logs: the newest records of a node's log, kept in memory so that others can ask for them."""

from __future__ import annotations

import json
import logging
import sys
import threading
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import islice
from typing import Any

from evflow.outside import shown

_TEXT = "%(asctime)s %(levelname)s %(name)s: %(message)s"

_KEPT = 5_000
_LONGEST = 4_000
"""Characters of a record that are kept."""
_AT_ONCE = 1_000


class LogRing(logging.Handler):
    """Keeps the newest records; any thread may log, any may ask.

    Args:
        kept: how many; the oldest are let go.

    Example:
        >>> import logging
        >>> log, ring = logging.getLogger("evflow.example"), LogRing()
        >>> log.addHandler(ring)
        >>> log.warning("no answer from %s", "office")
        >>> said = ring.since(0)
        >>> said["lines"][0]["text"], ring.since(said["next"])["lines"]
        ('no answer from office', [])
    """

    def __init__(self, kept: int = _KEPT) -> None:
        super().__init__()
        self._lines: deque[tuple[float, str, str, str]] = deque(maxlen=kept)
        self._count = 0
        # The handler's own lock is held while a record is formatted, which may take long.
        self._guard = threading.Lock()
        self.setFormatter(logging.Formatter())

    def emit(self, record: logging.LogRecord) -> None:
        """Keeps a record, its text as a formatter makes it (with a traceback, if there is one)."""
        try:
            text = self.format(record)
        except Exception as error:  # noqa: BLE001  a record of any library must not end who logs it
            text = f"{shown(record.msg, 1000)} (its arguments do not fit: {shown(error, 200)})"
        if len(text) > _LONGEST:
            text = f"{text[:_LONGEST]}… ({len(text):,} characters)"
        with self._guard:
            self._lines.append((record.created, record.levelname, record.name, text))
            self._count += 1

    def since(self, number: int = 0, limit: int = _AT_ONCE) -> dict[str, Any]:
        """The records from a number on, oldest first.

        Args:
            number: that of the first wanted, the "next" of the answer before; 0 for all that are kept; a
                negative one for so many of the newest.
            limit: how many at once.

        Returns:
            "lines", of each "time" (seconds since 1970), "level", "logger", "text"; "next", the number to go
            on from; "lost", how many of those wanted are no longer kept.
        """
        with self._guard:
            oldest = self._count - len(self._lines)
            wanted = self._count + number if number < 0 else number
            # A number of a node that has begun anew since is behind the end: then it begins from the start.
            first = oldest if wanted > self._count else max(wanted, oldest)
            start = first - oldest
            lines = list(islice(self._lines, start, start + max(1, limit)))
        lost = max(0, oldest - wanted) if number > 0 else 0
        names = ("time", "level", "logger", "text")
        return {
            "next": first + len(lines),
            "lost": lost,
            "lines": [dict(zip(names, line, strict=True)) for line in lines],
        }


class JsonLines(logging.Formatter):
    """Formats each record as a JSON object on one line.

    It has "time" (seconds since 1970), "level", "logger", "message", and "traceback" where there is one.
    """

    def format(self, record: logging.LogRecord) -> str:
        """The record's line."""
        said: dict[str, Any] = {
            "time": record.created,
            "level": record.levelname,
            "logger": record.name,
            "message": record.getMessage(),
        }
        if record.exc_info:
            said["traceback"] = record.exc_text or self.formatException(record.exc_info)
        return json.dumps(said)


@contextmanager
def printed(level: int | str, form: str = "text") -> Iterator[None]:
    """Within the ``with`` block the log of the process is printed to stderr, unless somebody has configured
    logging.

    Args:
        level: the least level that is printed.
        form: "text", or "json" for ``JsonLines``.
    """
    root = logging.getLogger()
    if root.handlers:
        yield
        return
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonLines() if form == "json" else logging.Formatter(_TEXT))
    with _hearing(root, handler, level):
        yield


@contextmanager
def kept_log(level: int = logging.INFO, kept: int = _KEPT, logger: str = "evflow") -> Iterator[LogRing]:
    """Within the ``with`` block the records of a logger and of those beneath it are kept.

    Args:
        level: the least level that is kept.
        kept: how many records.
        logger: its name.
    """
    ring = LogRing(kept)
    ring.setLevel(level)
    log = logging.getLogger(logger)
    with _hearing(log, ring, level if log.level == logging.NOTSET else min(log.level, level)):
        yield ring


@contextmanager
def _hearing(log: logging.Logger, handler: logging.Handler, level: int | str) -> Iterator[None]:
    before = log.level
    log.addHandler(handler)
    log.setLevel(level)
    try:
        yield
    finally:
        log.removeHandler(handler)
        log.setLevel(before)
