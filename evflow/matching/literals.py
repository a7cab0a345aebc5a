"""How names and values are written in the text of a subscription, and checked wherever they come from."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
from numpy.typing import NDArray

from evflow import outside
from evflow.errors import SubscriptionError

WORDS = frozenset(
    ["exists", "startswith", "endswith", "contains", *"and false in inf nan not or true within".split()]
)
"""The words of the language, in any case: an attribute of such a name is written in backquotes."""

LIMIT = 2.0**128 - 2.0**104
"""The largest coordinate and radius on the plane, whatever the sign: that of float32."""

_NAME = re.compile(r"[^\W\d]\w*(?:\.\w+)*")
_ESCAPES = {"\\": r"\\", "\n": r"\n", "\r": r"\r", "\t": r"\t", "\0": r"\0"}
_SHOWN = 60


def checked_number(value: object, what: str) -> float:
    """A number (booleans are 0 and 1) of Python or numpy as float64.

    Args:
        what: names the number in the error.

    Raises:
        SubscriptionError: it is not a number, or an integer that float64 does not hold exactly.

    Example:
        >>> checked_number(True, "the operand")
        1.0
        >>> checked_number(2**53 + 1, "the operand")
        Traceback (most recent call last):
        evflow.errors.SubscriptionError: the operand: 9007199254740993 is not exact as float64; ...
    """
    if not isinstance(value, (bool, int, float, np.bool_, np.integer, np.floating)):
        raise SubscriptionError(f"{what}: expected a number but found {shown(value)}")
    if isinstance(value, np.generic):
        value = value.item() if not isinstance(value, np.longdouble) else _from_long(value, what)
    try:
        number = float(value)
    except OverflowError:
        number = float("inf")
    if isinstance(value, int) and (number in (float("inf"), float("-inf")) or int(number) != value):
        raise SubscriptionError(
            f"{what}: {_digits(value)} is not exact as float64; numbers are compared as float64, "
            f"so keep such a value as a string"
        )
    return number


def _from_long(value: Any, what: str) -> float:
    number = float(value)
    if number != value and value == value:
        raise SubscriptionError(f"{what}: {value} is not exact as float64; round it first")
    return number


def _digits(value: int) -> str:
    # Python refuses to write integers of many thousand digits.
    return str(value) if value.bit_length() < 256 else f"an integer of {value.bit_length()} bits"


def checked_text(value: object, what: str) -> str:
    """A string that has UTF-8, as a plain ``str``.

    Raises:
        SubscriptionError: it is not a string, or has lone surrogates.

    Example:
        >>> checked_text("area1", "the operand")
        'area1'
    """
    if not isinstance(value, str):
        raise SubscriptionError(f"{what}: expected a string but found {shown(value)}")
    try:
        str.encode(value)
    except UnicodeEncodeError:
        raise SubscriptionError(f"{what}: {shown(value)} has lone surrogates, which UTF-8 lacks") from None
    return str.__str__(value)


def first_of(wrong: NDArray[np.bool_] | np.bool_) -> list[int]:
    """Where the first thing stands that is wrong; nothing if none is.

    Example:
        >>> first_of(np.array([1, 5, 7]) > 4)
        [1]
    """
    return [int(wrong.argmax())] if wrong.any() else []


def shown(value: object) -> str:
    """A value with its type, cut short, for a message."""
    if isinstance(value, int) and value.bit_length() >= 256:
        return _digits(value)
    cut = outside.shown(value, _SHOWN + 2)
    return cut if value is None or isinstance(value, str) else f"{cut} ({type(value).__name__})"


def number_text(value: float) -> str:
    """A number so that it is read back exactly.

    Example:
        >>> number_text(30.0), number_text(-0.0), number_text(1e300)
        ('30', '-0.0', '1e+300')
    """
    text = repr(value)
    return text[:-2] if text.endswith(".0") and value != 0.0 else "0" if text == "0.0" else text


def string_text(value: str, quote: str = "'") -> str:
    r"""A string in quotes.

    Example:
        >>> print(string_text("it's\n"))
        'it\'s\n'
    """
    return quote + "".join(_escaped(c, quote) for c in value) + quote


def _escaped(c: str, quote: str) -> str:
    if c == quote:
        return "\\" + c
    if c in _ESCAPES:
        return _ESCAPES[c]
    if c.isprintable():
        return c
    return (
        f"\\x{ord(c):02x}" if c < "\x80" else f"\\u{ord(c):04x}" if c < "\U00010000" else f"\\U{ord(c):08x}"
    )


def name_text(name: str) -> str:
    """An attribute's name, in backquotes if it needs them.

    Example:
        >>> name_text("area.temp"), name_text("wind speed"), name_text("in")
        ('area.temp', '`wind speed`', '`in`')
    """
    plain = _NAME.fullmatch(name) and name.lower() not in WORDS
    return name if plain else string_text(name, "`")
