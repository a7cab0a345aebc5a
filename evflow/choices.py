"""Names that are known, in the error of one that is not."""

from __future__ import annotations

from difflib import get_close_matches

_MAX_COMPARED = 1000
_MOST_NAMES = 20


def nearest(name: str, known: list[str]) -> str | None:
    """The known name that may be meant: one that has it behind a ``/``, or one like it."""
    some = known[:_MAX_COMPARED]
    # The name of a bridge ends with that of the stone that it leads to.
    whole = min((each for each in some if each.endswith(f"/{name}")), key=len, default=None)
    return whole or next(iter(get_close_matches(name, some, 1)), None)


def suggestion(name: str, known: list[str]) -> str:
    """`` (did you mean 'x'?)`` where a known name is close."""
    close = nearest(name, known)
    return f" (did you mean '{close}'?)" if close else ""


def choices(name: str, known: list[str], have: str = "it has") -> str:
    """``suggestion`` and ``listed``."""
    # Who asks may be a stranger, so not much is done for it.
    return suggestion(name, known[:_MOST_NAMES]) + listed(known, have)


def listed(known: list[str], have: str = "it has") -> str:
    """The names that are known, or the first of many: ``; it has a, b and 3 more``."""
    more = f" and {len(known) - _MOST_NAMES} more" if len(known) > _MOST_NAMES else ""
    return f"; {have} {', '.join(known[:_MOST_NAMES]) or 'none'}{more}"
