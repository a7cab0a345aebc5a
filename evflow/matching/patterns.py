"""Regular expressions, searched in time that is linear in the text, by RE2 (the extra ``regex``)."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from importlib import import_module

from evflow.errors import SubscriptionError

_KEPT = 4096
"""Expressions that stay compiled."""


@lru_cache(_KEPT)
def searcher(pattern: str) -> Callable[[bytes], bool]:
    """What tells whether the UTF-8 bytes of a text hold a match of a regular expression.

    Args:
        pattern: a regular expression of RE2.

    Raises:
        SubscriptionError: it is malformed, or google-re2 is not installed.

    Example:
        >>> searcher("^[A-Z]{2}[0-9]+$")(b"UA90")
        True
    """
    try:
        re2 = import_module("re2")
    except ImportError:
        raise SubscriptionError(
            "regular expressions need google-re2, which is not installed here:"
            " run pip install 'evflow[regex]'"
        ) from None
    options = re2.Options()
    options.log_errors, options.never_capture = False, True
    try:
        search = re2.compile(pattern, options).search
    except re2.error as error:
        said = error.args[0] if error.args else ""
        why = said.decode("utf-8", "replace") if isinstance(said, bytes) else str(said)
        raise SubscriptionError(
            f"{pattern!r} is not a regular expression of RE2: {why}; its syntax is at"
            " https://github.com/google/re2/wiki/Syntax"
        ) from None
    return lambda text: search(text) is not None


def found(text: bytes, pattern: bytes) -> bool:
    """Whether a text holds a match of a regular expression, both as UTF-8."""
    return searcher(pattern.decode())(text)
