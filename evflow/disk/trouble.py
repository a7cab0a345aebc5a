"""A file that cannot be written now: what to do about it, and when to try again."""

from __future__ import annotations

import errno
import logging
import time

from evflow.errors import FlowError, UnwrittenError

AGAIN = 1.0
"""Seconds between two tries of a write."""

_QUIET = 10.0
"""Seconds between two lines in the log about one trouble."""

_ROOM = "make room on its disk"
_WRITABLE = "make the file and its folder writable"
_FOLDER = "create its folder if it is missing, and put the file back if it was moved"
_OWN = "close that first, or give each a file of its own"
_FILES = "close files that the process has open, or allow it more (ulimit -n)"
_ADVICE = {
    errno.ENOSPC: _ROOM, errno.EDQUOT: _ROOM, errno.EFBIG: _ROOM,
    errno.EMFILE: _FILES, errno.ENFILE: _FILES,
    errno.ENOENT: _FOLDER, errno.ENOTDIR: _FOLDER,
    errno.EROFS: _WRITABLE, errno.EACCES: _WRITABLE, errno.EPERM: _WRITABLE,
}  # fmt: skip
_ELSE = "check its disk, which may be full or failing"


def advice(error: BaseException) -> str:
    """What a person can do about an error of a file."""
    if isinstance(error, BlockingIOError):
        return _OWN
    return _ADVICE.get(getattr(error, "errno", None) or 0, _ELSE)


def unusable(what: str, error: BaseException) -> FlowError:
    """The error to raise where a file cannot be used.

    Args:
        what: the file, and what it is.
        error: why it cannot be used.

    Returns:
        An ``UnwrittenError`` if the same may succeed later.
    """
    if isinstance(error, OSError):
        return UnwrittenError(f"{what} cannot be used: {error}; {advice(error)}")
    return FlowError(f"{what} cannot be used: {error}")


class Trouble:
    """A write that failed and is tried again each second; the log has one line when that begins and one when
    it ends.

    Args:
        log: where these lines go.

    Attributes:
        why: the error of the last try; "" while writes succeed.
        due: when to try again, in seconds of ``time.monotonic``.
    """

    def __init__(self, log: logging.Logger) -> None:
        self._log = log
        self._told = False
        self._quiet_until = 0.0
        self.why = ""
        self.due = 0.0

    def failed(self, why: str, now: float | None = None) -> None:
        """A write has failed."""
        now = time.monotonic() if now is None else now
        if not self.why and now >= self._quiet_until:
            self._told, self._quiet_until = True, now + _QUIET
            self._log.error(
                "%s (evflow tries again each second; what is not written waits, and is kept)", why
            )
        self.why = why
        self.due = now + AGAIN

    def over(self) -> None:
        """A write has succeeded."""
        if self._told:
            self._log.warning("written again after: %s", self.why)
        self.why, self.due, self._told = "", 0.0, False

    def waits(self, now: float) -> bool:
        """Whether it is too early for another try."""
        return bool(self.why) and now < self.due
